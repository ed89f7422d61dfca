"""Helpers of the end-to-end tests: the console script as a person starts it, and what is left when it has gone."""

import contextlib
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

NCPS = str(Path(sys.executable).with_name("ncps"))
PATIENCE_S = 60.0
NO_CAPTURE_RIGHTS = ("setpriv", "--bounding-set=-net_raw,-net_admin", "--inh-caps=-net_raw,-net_admin")


def start(
    *arguments: str, before: Sequence[str] = (), stdin: int = subprocess.DEVNULL, **more: Any
) -> subprocess.Popen[str]:
    """The console script; both outputs are pipes."""
    return subprocess.Popen(
        [*before, NCPS, *arguments],
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **more,
    )


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Exit code, standard output and standard error; a process that hangs is ended and fails the test."""
    try:
        out, err = process.communicate(timeout=PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        raise AssertionError(f"{process.args} did not end; it had printed:\n{out}\n{err}") from None
    assert "Traceback" not in out + err, out + err
    return process.returncode, out, err


def run(*arguments: str, **more: Any) -> tuple[int, str, str]:
    """Run to the end."""
    return finish(start(*arguments, **more))


def report(out: str) -> dict[str, Any]:
    """The JSON report; nothing else may stand in it."""
    loaded = json.loads(out)
    assert isinstance(loaded, dict)
    return loaded


class Server:
    """A running ``ncps server --format json``; ``stop`` ends it with SIGTERM and returns its report."""

    def __init__(self, port: int, *arguments: str, before: Sequence[str] = ()) -> None:
        self.port = port
        threads = () if "-r" in arguments else ("-r", "2")
        self.process = start("server", "-p", str(port), *threads, "--format", "json", *arguments, before=before)
        assert self.process.stderr is not None
        self.said = self.process.stderr.readline()
        assert "listening" in self.said, self.said + self.process.stderr.read()

    def stop(self) -> dict[str, Any]:
        self.process.terminate()
        code, out, err = finish(self.process)
        assert code == 0, err
        return report(out)


@contextlib.contextmanager
def serving(port: int, *arguments: str, before: Sequence[str] = ()) -> Iterator[Server]:
    server = Server(port, *arguments, before=before)
    try:
        yield server
    finally:
        if server.process.returncode is None:
            server.stop()


def until(condition: Callable[[], Any], what: str) -> Any:
    """Wait for an event that can only be polled."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(0.02)
    raise AssertionError(f"{what} did not happen within {PATIENCE_S:g} s")


def children(pid: int) -> list[int]:
    """Processes started by ``pid``."""
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def capturing(pid: int) -> int | None:
    """The child of ``pid`` that holds a packet socket."""
    packet = {line.split()[8] for line in Path("/proc/net/packet").read_text().splitlines()[1:]}
    for child in children(pid):
        with contextlib.suppress(OSError):
            for link in Path(f"/proc/{child}/fd").iterdir():
                found = re.fullmatch(r"socket:\[(\d+)\]", str(link.readlink()))
                if found and found[1] in packet:
                    return child
    return None


def alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists() and "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()


def shared_memory_of_the_dead() -> list[str]:
    """Files of Python's shared memory whose process is gone; their names begin with its number."""
    left = []
    for path in Path("/dev/shm").glob("pym*"):
        found = re.match(r"pymp?-(\d+)-", path.name)
        if found and not Path(f"/proc/{found[1]}").exists():
            left.append(path.name)
    return left


def time_waits(first: int, last: int) -> list[str]:
    """Lines of the kernel's tables for sockets in TIME_WAIT on these server ports, at either end."""
    found = []
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            words = line.split()
            ports = {int(words[i].rpartition(":")[2], 16) for i in (1, 2)}
            if words[3] == "06" and any(first <= port <= last for port in ports):
                found.append(line)
    return found
