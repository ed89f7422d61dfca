"""One stream on loopback: ours against dd into netcat and iperf3, and the processor time that a gigabyte costs.

All contenders alternate in one run. Rates are the receiving side's where a program tells them, and bytes over the time
of the whole command for dd, whose own clock ends when the pipe is full. The processor time is that of both ends.
"""

import json
import os
import re
import resource
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from connections import await_listener
from contest import Settings, contest, could_not_run

OURS = str(Path(sys.executable).with_name("ncps"))
PORT = 23_301
DD_BYTES = 600_000_000


def suite(settings: Settings) -> None:
    """The table of docs/link-check.md."""
    seconds = str(settings.seconds)
    cpu: dict[str, list[float]] = {}

    def charged(name: str, measure: Callable[[], tuple[float, float]]) -> Callable[[], float]:
        """MB/s of a run, its processor seconds per GB set aside."""

        def run() -> float:
            before = _cpu()
            rate, count = measure()
            cpu.setdefault(name, []).append((_cpu() - before) * 1e9 / count)
            return rate / 1e6

        return run

    contenders: dict[str, Callable[[], tuple[float, float]]] = {}
    if shutil.which("iperf3"):
        contenders["iperf3"] = lambda: iperf3(seconds)
        contenders["iperf3 -Z"] = lambda: iperf3(seconds, "-Z")
    else:
        could_not_run.append("iperf3: not installed (apt install iperf3)")
    netcat = next((name for name in ("nc.openbsd", "nc") if shutil.which(name)), None)
    if netcat and shutil.which("dd"):
        contenders["dd bs=1500 | nc"] = lambda: dd_into(netcat)
    else:
        could_not_run.append("dd into netcat: not installed (apt install netcat-openbsd)")
    contenders["ours, discarding"] = lambda: ours(seconds)
    contenders["ours, copying receiver"] = lambda: ours(seconds, receiver=("--copy",))
    contenders["ours, --copy at both"] = lambda: ours(seconds, receiver=("--copy",), sender=("--copy",))
    wrapped = {name: charged(name, measure) for name, measure in contenders.items()}
    contest(wrapped, settings.rounds, next(iter(wrapped)), "MB/s", "one stream on loopback")
    print("processor seconds per GB, both ends, median")
    for name, values in cpu.items():
        print(f"{name:24}  {statistics.median(values):.3f}")
    print(flush=True)


def _cpu() -> float:
    """Seconds of all children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def ours(seconds: str, sender: tuple[str, ...] = (), receiver: tuple[str, ...] = ()) -> tuple[float, float]:
    """(bytes/s, bytes) of ncps send into ncps recv."""
    listen = [OURS, "recv", "-p", str(PORT), "-b", "127.0.0.1", "--format", "json", *receiver]
    with subprocess.Popen(listen, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as far:
        await_listener(PORT)
        send = [OURS, "send", "127.0.0.1", "-p", str(PORT), "-t", seconds, "-q", *sender]
        subprocess.run(send, stdout=subprocess.DEVNULL, check=True)
        assert far.stdout is not None
        report = json.load(far.stdout)
    return report["bytes_per_s"], report["bytes"]


def iperf3(seconds: str, *more: str) -> tuple[float, float]:
    """(bytes/s, bytes) as iperf3's receiver says."""
    with subprocess.Popen(["iperf3", "-s", "-1", "-B", "127.0.0.1", "-p", str(PORT)], stdout=subprocess.DEVNULL):
        await_listener(PORT)
        command = ["iperf3", "-c", "127.0.0.1", "-p", str(PORT), "-t", seconds, "-J", *more]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    end = json.loads(done.stdout)["end"]["sum_received"]
    return end["bits_per_second"] / 8, end["bytes"]


def dd_into(netcat: str) -> tuple[float, float]:
    """(bytes/s, bytes) of the pipe that people type; the time is that of the pipe's last program."""
    if netcat == "nc.openbsd":
        listen, end = [netcat, "-l", "127.0.0.1", str(PORT)], "-N"
    else:
        listen, end = [netcat, "-l", "-p", str(PORT)], "-q0"
    with subprocess.Popen(listen, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL):
        await_listener(PORT)
        count = DD_BYTES // 1500
        line = f"time (dd if=/dev/zero bs=1500 count={count} 2>/dev/null | {netcat} {end} 127.0.0.1 {PORT})"
        done = subprocess.run(
            ["bash", "-c", line],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "LC_ALL": "C", "TIMEFORMAT": "%R"},
        )
    found = re.search(r"([\d.]+)\s*$", done.stderr)
    if found is None:
        raise SystemExit(f"bench: bash's time printed nothing: {done.stderr}")
    return DD_BYTES / float(found[1]), DD_BYTES
