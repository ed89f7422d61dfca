"""``ncps report``: views of a run saved with ``--run``, also joined with a capture made elsewhere.

The one idea: a saved run is the very thing a report is made of when a run ends, so the same functions make it again,
byte for byte; and a saved capture is read by the same functions as live packets, and takes the place of the run's own.
Nothing here counts or renders.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np
from ncps_analysis.records import Run, WireFacts
from ncps_analysis.runfile import load_run
from ncps_analysis.summary import build_report, clock_offset
from ncps_capture.capfile import open_capture
from ncps_capture.decode import decode
from ncps_capture.errors import FileFault, UsageError
from ncps_capture.handshake import HandshakeTable
from ncps_capture.live import link_type_name
from ncps_capture.segments import ACK, HANDSHAKE, RST, SYN, UNKNOWN, Books, Segments
from ncps_capture.spool import SpoolWriter

from ncps_raw.output import Output
from ncps_raw.scratch import scratch_folder

LEVELS: Final = ("base", "resets", "acks")


def run_report(path: str, *, format_: str, output: str | None, pcap: str | None, quiet: bool) -> int:
    """Show the run in ``path``; the exit code. Raises NcpsError for files that cannot be read or written."""
    for source in (path, pcap):
        if source is not None and output is not None and _same_file(source, output):
            raise UsageError(f"--output would replace {source}, which is read: choose another file")
    with scratch_folder() as folder:
        run = load_run(path, folder)
        warnings: list[str] = []
        if pcap is not None:
            run = with_capture(run, pcap, folder, warnings.append)
            run = replace(run, notes=(*run.notes, *warnings))  # a report that is passed on must carry them too
        report = build_report(run, folder)
        with Output(format_, output, silent_rows=quiet, quiet=quiet) as out:
            for warning in warnings:
                out.say(warning)
            for interval in run.intervals:
                out.row(interval)
            out.report(report)
    return 0


def _same_file(one: str, other: str) -> bool:
    try:
        return Path(one).samefile(other)
    except (OSError, ValueError):
        return False  # one of them does not exist, or cannot


def with_capture(run: Run, pcap: str, folder: str, say: Callable[[str], None]) -> Run:
    """``run`` with the capture in the file ``pcap`` in place of its own; what is wrong with the file is said.

    The capture's clock is taken for the run's where it agrees with it, else their offset is estimated.
    """
    wire = read_capture(pcap, folder, say)
    joined = replace(run, wire=replace(wire, vantage=run.role), capture_problem=None)
    offset, one_clock = clock_offset(joined)
    if offset is None:
        note = f"the offset of the clock of {pcap} cannot be told from these connections: it is taken for this run's"
        return replace(joined, notes=(*run.notes, note))
    if one_clock:
        return joined
    return replace(joined, wire=replace(wire, vantage=run.role, offset=offset))


def read_capture(pcap: str, folder: str, say: Callable[[str], None]) -> WireFacts:
    """The handshakes of a saved capture, spooled in ``folder``.

    How many packets it lost is not in the file, and so unknown; what it admitted is judged by what is in it.
    """
    file = open_capture(pcap)
    books, table = Books(), HandshakeTable(third_ack=True)
    spool = Path(folder, "capture.spool")
    first_t_ns, last_t_ns, level = UNKNOWN, UNKNOWN, 0
    with SpoolWriter(spool, HANDSHAKE) as writer:
        for batch in file.batches():
            segments, of_batch = decode(batch, want_acks=True)
            books += of_batch
            table.add(segments)
            level = max(level, _level(segments))
            first_t_ns = int(batch.t_ns[0]) if first_t_ns == UNKNOWN else first_t_ns
            last_t_ns = max(last_t_ns, int(batch.t_ns.max()))
            writer.append(table.settle(last_t_ns))
        writer.append(table.finish(last_t_ns))
    if not file.packets:
        raise FileFault(f"cannot join {pcap}: it has no packets")
    for warning in file.warnings:
        say(warning)
    return WireFacts(
        interface="",
        link_type=link_type_name(file.link_type),
        filter_text="",
        packets=books.packets,
        dropped=None,
        books=books,
        handshake_files=(str(spool),),
        first_t_ns=first_t_ns,
        last_t_ns=last_t_ns,
        level=LEVELS[level],
        file=pcap,
    )


def _level(segments: Segments) -> int:
    """Index into LEVELS: bare ACKs are in, or RSTs that refuse nothing, or neither."""
    flags = segments["flags"]
    if np.any((flags & (SYN | RST) == 0) & (flags & ACK != 0)):
        return 2
    return int(np.any((flags & RST != 0) & (flags & ACK == 0)))
