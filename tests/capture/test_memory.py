"""What is freed stays with the process: seen in its page faults. Asked for in a process of its own."""

import subprocess
import sys

import pytest

TIMES = 20
PROGRAM = f"""
import resource
import numpy as np
from ncps_capture.memory import keep_freed_memory
if {{keep}}:
    keep_freed_memory()
def use():
    np.ones(10 << 20, np.uint8)
    np.ones((12 << 20) + 1, np.uint8)
use()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range({TIMES}):
    use()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's mallopt")
def test_what_is_freed_is_used_again():
    def faults(keep: bool) -> int:
        program = PROGRAM.format(keep=keep)
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, text=True)
        return int(done.stdout)

    kept, given_back = faults(keep=True), faults(keep=False)
    assert kept < TIMES <= given_back


def test_a_system_without_such_a_library_is_left_alone(monkeypatch):
    from ncps_capture import memory

    def none(name: None) -> None:
        raise OSError("no such library")

    monkeypatch.setattr(memory.ctypes, "CDLL", none)
    memory.keep_freed_memory()
