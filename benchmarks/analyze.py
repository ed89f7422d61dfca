"""Saved captures: the whole job of ``ncps analyze``, process start included, against tools that do a part of it.

Two files of mixed traffic (ten packets a connection, about 550 bytes a packet) of one and five million packets, made
once in a temporary folder; all tools take turns. The marginal cost of a million packets is the difference of both
files by four: start-up is not in it. capinfos only counts packets, tshark prints fields of the same packets our report
is made of, tcptrace makes a report of its own. A file of bare SYNs is shown without a comparison. Ours runs as it does
where it is installed, compiled once and not at every start.
"""

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from contest import Settings, could_not_run, host

OURS = str(Path(sys.executable).with_name("ncps"))
MAKE = str(Path(__file__).with_name("make_capture.py"))
MILLION = 1_000_000
FIELDS = (
    "frame.number",
    "frame.time_epoch",
    "ip.src",
    "tcp.srcport",
    "ip.dst",
    "tcp.dstport",
    "tcp.seq_raw",
    "tcp.ack_raw",
)
FILTER = "tcp.flags.syn == 1 || tcp.flags.reset == 1 || icmp.type == 3"
TOOLS: Mapping[str, tuple[str, ...]] = {
    "ncps analyze": (OURS, "analyze"),
    "capinfos -c": ("capinfos", "-c"),
    "tcptrace -n": ("tcptrace", "-n"),
    "tshark -T fields": (
        *("tshark", "-n", "-Y", FILTER, "-T", "fields"),
        *(word for field in FIELDS for word in ("-e", field)),
        "-r",
    ),
}
SLOW = ("tshark -T fields",)
"""Once a size is enough: it takes minutes, and varies by a few per cent."""


def suite(settings: Settings, sizes: tuple[int, int] = (MILLION, 5 * MILLION)) -> None:
    tools = {name: command for name, command in TOOLS.items() if shutil.which(command[0])}
    for name in TOOLS.keys() - tools.keys():
        could_not_run.append(f"{name}: not installed")
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ["PYTHONPYCACHEPREFIX"] = str(Path(folder, "compiled"))
        files = [made(Path(folder, f"{size}.pcap"), size) for size in sizes]
        seconds(TOOLS["ncps analyze"], files[0])
        times: dict[str, list[list[float]]] = {name: [[], []] for name in tools}
        for number in range(settings.rounds):
            for name, command in tools.items():
                for which, path in enumerate(files):
                    if number and name in SLOW:
                        continue
                    times[name][which].append(seconds(command, path))
        table(times, sizes)
        syns = made(Path(folder, "syns.pcap"), sizes[0], "--syn-only")
        print(f"ncps analyze of {sizes[0]:,} bare SYNs: {seconds(TOOLS['ncps analyze'], syns):.2f} s\n", flush=True)


def table(times: Mapping[str, list[list[float]]], sizes: tuple[int, int]) -> None:
    """Medians of the whole job, the marginal cost of a million packets, and both as multiples of ours."""
    small, large = sizes
    figures = {}
    for name, (first, second) in times.items():
        one, many = statistics.median(first), statistics.median(second)
        figures[name] = (one, many, (many - one) / (large - small) * MILLION)
    ours = figures["ncps analyze"]
    print(f"saved captures ({host()})")
    print(f"{'':18}{small:>12,} {large:>12,}  {'a million more':>15}  {'ratio whole':>12}  {'ratio marginal':>15}")
    for name, (one, many, more) in figures.items():
        print(
            f"{name:18}{one:>10.2f} s {many:>10.2f} s  {more:>13.3f} s  {one / ours[0]:>12.2f}  {more / ours[2]:>15.2f}"
        )
    print(flush=True)


def seconds(command: tuple[str, ...], path: Path) -> float:
    begin = time.perf_counter()
    subprocess.run([*command, str(path)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    return time.perf_counter() - begin


def made(path: Path, packets: int, *more: str) -> Path:
    subprocess.run([sys.executable, MAKE, str(path), str(packets), *more], stdout=subprocess.DEVNULL, check=True)
    path.read_bytes()  # into the page cache, for whoever comes first
    return path
