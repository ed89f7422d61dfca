"""What a capture ten times as large costs ``ncps analyze``: time, which must be tenfold within a fifth, and memory.

Start-up is measured too, with a capture of ten packets, and taken off both: what is left is the price of packets. Sizes
are a fifth of a million packets and two millions, of mixed traffic and of SYNs that nobody answers.
"""

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from contest import Settings, host

OURS = str(Path(sys.executable).with_name("ncps"))
MAKER = str(Path(__file__).with_name("make_capture.py"))
SMALL, LARGE = 200_000, 2_000_000
ALLOWED = 0.2


def suite(settings: Settings) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for kind, options in {"mixed": (), "mixed, pcapng": ("--pcapng",), "SYNs alone": ("--syn-only",)}.items():
            paths = [made(Path(folder), packets, options) for packets in (10, SMALL, LARGE)]
            seen = [[analyzed(path) for path in paths] for _ in range(settings.rounds)]
            show(kind, [list(each) for each in zip(*seen, strict=True)])
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


def show(kind: str, seen: list[list[tuple[float, float, float]]]) -> None:
    start, small, large = ([statistics.median(figure) for figure in zip(*size, strict=True)] for size in seen)
    print(f"{kind} ({host()})")
    print(f"{'packets':>12}  {'seconds':>8}  {'processor s':>11}  {'most MB':>8}")
    for packets, (wall, processor, memory) in zip((10, SMALL, LARGE), (start, small, large), strict=True):
        print(f"{packets:12,}  {wall:8.2f}  {processor:11.2f}  {memory:8.0f}")
    ratios = [(large[i] - start[i]) / (small[i] - start[i]) for i in (0, 1)]
    times = LARGE / SMALL
    kept = "within" if abs(ratios[1] / times - 1) <= ALLOWED else "NOT within"
    print(
        f"{times:.0f} times the packets: {ratios[0]:.1f} times as long, {ratios[1]:.1f} times the processor's time, ",
        end="",
    )
    print(f"{kept} {ALLOWED:.0%}\n", flush=True)
