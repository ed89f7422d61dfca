"""What a capture ten times as large costs ``ncps analyze``: time, which must be tenfold within a fifth, and memory.

Start-up is measured too, with a capture of ten packets, and taken off both: what is left is the price of packets. Of
all rounds the fastest counts, and the processor's time gives the verdict: other work on the machine only adds. Of SYNs
that nobody answers the smaller file has a million: shorter ones end before much has waited long enough to be set aside
or put on disk, so they cost less a packet than any flood worth the name.
"""

import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from contest import Settings, host

OURS = str(Path(sys.executable).with_name("ncps"))
MAKER = str(Path(__file__).with_name("make_capture.py"))
KINDS = {"mixed": (300_000, ()), "mixed, pcapng": (300_000, ("--pcapng",)), "SYNs alone": (1_000_000, ("--syn-only",))}
TIMES = 10
ALLOWED = 0.2


def suite(settings: Settings) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for kind, (small, options) in KINDS.items():
            sizes = (10, small, TIMES * small)
            paths = [made(Path(folder), packets, options) for packets in sizes]
            seen = [[analyzed(path) for path in paths] for _ in range(settings.rounds)]
            show(kind, sizes, [list(each) for each in zip(*seen, strict=True)])
            for path in paths:
                path.unlink()


def made(folder: Path, packets: int, options: tuple[str, ...]) -> Path:
    path = folder / f"{packets}.pcap"
    subprocess.run([sys.executable, MAKER, path, str(packets), *options], check=True, stdout=subprocess.DEVNULL)
    return path


def analyzed(path: Path) -> tuple[float, float, float]:
    """Seconds, seconds of processor, and MB at most."""
    began = time.perf_counter()
    process = subprocess.Popen([OURS, "analyze", path, "--quiet"], stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"bench: ncps analyze {path} failed with exit code {process.returncode}")
    return time.perf_counter() - began, used.ru_utime + used.ru_stime, megabytes(used)


def megabytes(used: resource.struct_rusage) -> float:
    return used.ru_maxrss / (1 << 20 if sys.platform == "darwin" else 1 << 10)


def best(seen: list[tuple[float, float, float]]) -> tuple[float, float, float]:
    wall, processor, memory = zip(*seen, strict=True)
    return min(wall), min(processor), max(memory)


def show(kind: str, sizes: tuple[int, ...], seen: list[list[tuple[float, float, float]]]) -> None:
    start, small, large = (best(size) for size in seen)
    print(f"{kind} ({host()})")
    print(f"{'packets':>12}  {'seconds':>8}  {'processor s':>11}  {'most MB':>8}")
    for packets, (wall, processor, memory) in zip(sizes, (start, small, large), strict=True):
        print(f"{packets:12,}  {wall:8.2f}  {processor:11.2f}  {memory:8.0f}")
    ratios = [(large[i] - start[i]) / (small[i] - start[i]) for i in (0, 1)]
    kept = "within" if abs(ratios[1] / TIMES - 1) <= ALLOWED else "NOT within"
    print(
        f"{TIMES} times the packets: {ratios[0]:.1f} times as long, {ratios[1]:.1f} times the processor's time, ",
        end="",
    )
    print(f"{kept} {ALLOWED:.0%}\n", flush=True)
