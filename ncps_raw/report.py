"""``ncps report``: views of a run saved with ``--run``, also joined with a capture made elsewhere.

The one idea: a saved run is the very thing a report is made of when a run ends, so the same functions make it again,
byte for byte; and a saved capture is read by the same functions as live packets, and takes the place of the run's own.
Nothing here counts or renders.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from ncps_analysis.records import Run, WireFacts
from ncps_analysis.runfile import load_run
from ncps_analysis.summary import build_report, clock_offset
from ncps_capture.segments import HANDSHAKE, UNKNOWN
from ncps_capture.spool import SpoolWriter

from ncps_raw.output import Output
from ncps_raw.reading import read_captures
from ncps_raw.results import not_over
from ncps_raw.scratch import scratch_folder


def run_report(
    path: str,
    *,
    format_: str,
    output: str | None,
    pcap: Sequence[str],
    quiet: bool,
    dup_window_ns: int = 5_000_000,
) -> int:
    """Show the run in ``path``, joined with the captures ``pcap`` if there are any; the exit code.

    Raises NcpsError for files that cannot be read or written.
    """
    not_over(output, (path, *pcap))
    with scratch_folder() as folder:
        run = load_run(path, folder)
        warnings: list[str] = []
        if pcap:
            run = with_capture(run, pcap, folder, warnings.append, dup_window_ns)
            run = replace(run, notes=(*run.notes, *warnings))  # a report that is passed on must carry them too
        report = build_report(run, folder)
        with Output(format_, output, silent_rows=quiet, quiet=quiet) as out:
            for warning in warnings:
                out.say(warning)
            for interval in run.intervals:
                out.row(interval)
            out.report(report)
    return 0


def with_capture(
    run: Run, pcap: Sequence[str], folder: str, say: Callable[[str], None], dup_window_ns: int = 5_000_000
) -> Run:
    """``run`` with the capture in the files ``pcap`` in place of its own; what is wrong with a file is said.

    The capture's clock is taken for the run's where it agrees with it, else their offset is estimated.
    """
    wire = read_capture(pcap, folder, say, dup_window_ns)
    joined = replace(run, wire=replace(wire, vantage=run.role), capture_problem=None)
    offset, one_clock = clock_offset(joined)
    if offset is None:
        note = (
            f"the offset of the clock of {wire.file} cannot be told from these connections: it is taken for this run's"
        )
        return replace(joined, notes=(*run.notes, note))
    if one_clock:
        return joined
    return replace(joined, wire=replace(wire, vantage=run.role, offset=offset))


def read_capture(
    pcaps: Sequence[str], folder: str, say: Callable[[str], None], dup_window_ns: int = 5_000_000
) -> WireFacts:
    """The handshakes of saved captures, spooled in ``folder``.

    How many packets were lost is rarely in a file, and else unknown; what it admitted is judged by what is in it.
    """
    spool = Path(folder, "capture.spool")
    with SpoolWriter(spool, HANDSHAKE) as writer:
        facts = read_captures(pcaps, writer.append, dup_window_ns=dup_window_ns)
    for warning in facts.warnings:
        say(warning)
    dropped = [source.dropped for source in facts.sources]
    types = dict.fromkeys(name for source in facts.sources for name in source.link_types)
    return WireFacts(
        interface="",
        link_type=", ".join(types),
        filter_text="",
        packets=facts.books.packets,
        dropped=None if None in dropped else sum(n for n in dropped if n is not None),
        books=facts.books,
        handshake_files=(str(spool),),
        first_t_ns=UNKNOWN if facts.first_t_ns is None else facts.first_t_ns,
        last_t_ns=UNKNOWN if facts.last_t_ns is None else facts.last_t_ns,
        level=facts.level,
        file=", ".join(source.name for source in facts.sources),
    )
