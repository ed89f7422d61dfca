"""``ncps analyze``: what became of every handshake in saved captures.

The one idea: reading ends in merged rows and facts, and every view is a function of these: a report, a table, or a
record an attempt. So a filter or a breakdown costs no second reading, and ``ncps capture`` ends in the same functions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from ncps_analysis.filters import Selection, choose, selection
from ncps_capture.errors import UsageError

from ncps_raw import __version__, units
from ncps_raw.interrupts import LEFT_BY_SECOND, Interrupts, LeaveNow
from ncps_raw.progress import Progress
from ncps_raw.results import Results, not_over, say

if TYPE_CHECKING:
    from ncps_analysis.captured import CapturedReport, CaptureFacts
    from ncps_analysis.rowstore import RowStore

FORMATS: Final = ("text", "ncps", "json", "jsonl", "csv")
_RECORD_FORMATS: Final = ("jsonl", "csv")
_TOP: Final = 5
_MOST_TOP: Final = 10_000


@dataclass(frozen=True)
class View:
    """What is to be shown of a capture, and where. A view that exists is valid."""

    format: str = "text"
    output: str | None = None
    connections: bool = False
    by: str | None = None
    top: int = _TOP
    dup_window_ns: int = 5_000_000
    vlan_key: bool = False
    quiet: bool = False
    command_line: str = ""


def view_of(values: Mapping[str, Any], command_line: str) -> View:
    """The view that options ask for. UsageError for what cannot be meant."""
    connections = bool(values.get("--connections"))
    format_ = values["--format"] or ("jsonl" if connections else "text")
    if format_ not in FORMATS:
        raise UsageError(f"--format must be {', '.join(FORMATS[:-1])} or {FORMATS[-1]}, not {format_}")
    if connections and format_ not in _RECORD_FORMATS:
        raise UsageError(f"--connections is one record an attempt: give --format jsonl or csv, not {format_}")
    by = values["--by"]
    if by is not None:
        if connections:
            raise UsageError("--connections and --by contradict each other: leave out one of them")
        from ncps_analysis.breakdown import check_kind

        check_kind(by)
    top = _TOP if values["--top"] is None else units.count(values["--top"], "--top")
    if top > _MOST_TOP:
        raise UsageError(f"--top must be at most {_MOST_TOP:,}, not {top:,}")
    if values["--output"] == "":
        raise UsageError("--output is an empty name: name a file, or leave it out for standard output")
    window = values["--dup-window"]
    dup_window_ns = 5_000_000 if window is None else units.duration(window, "--dup-window")
    if dup_window_ns > units.SECOND:
        raise UsageError(f"--dup-window must be at most 1s, not {window}: real repeats come after 1 s")
    return View(
        format=format_,
        output=values["--output"],
        connections=connections,
        by=by,
        top=top,
        dup_window_ns=dup_window_ns,
        vlan_key=bool(values.get("--vlan-key")),
        quiet=bool(values["--quiet"]),
        command_line=command_line,
    )


def run_analyze(paths: Sequence[str], values: Mapping[str, Any], command_line: str, interrupts: Interrupts) -> int:
    """Read ``paths`` and show what the options in ``values`` ask for; the exit code. Raises NcpsError.

    A first interrupt ends the reading: the report is of what was read until then.
    """
    try:
        return _analyze(paths, values, command_line, interrupts)
    except LeaveNow:
        say("left at once by an interrupt, without a report")
        return LEFT_BY_SECOND


def _analyze(paths: Sequence[str], values: Mapping[str, Any], command_line: str, interrupts: Interrupts) -> int:
    view = view_of(values, command_line)
    wanted = selection(
        host=values["--host"],
        port=values["--port"],
        state=values["--state"],
        begin=values["--from"],
        end=values["--to"],
    )
    if list(paths).count("-") > 1:
        raise UsageError("- is standard input, which can be read once: give it once")
    not_over(view.output, paths)
    if values["--run"] is not None:
        # Half a capture would be a capture that lost half: of a join there is no report until the whole was read.
        interrupts.leave_at_once()
        return _joined(paths, values, view, wanted)
    from ncps_analysis.rowstore import RowStore

    from ncps_raw.reading import read_captures
    from ncps_raw.scratch import sweep

    sweep()  # most readings need no folder, and would never remove what a killed one has left
    with ExitStack() as stack:
        store = stack.enter_context(RowStore(lambda: _folder(stack)))
        with Progress(not view.quiet) as progress:
            facts = read_captures(
                paths,
                store.add,
                dup_window_ns=view.dup_window_ns,
                vlan_key=view.vlan_key,
                progress=progress,
                stopped=lambda: interrupts.stopped_by,
            )
        for warning in facts.warnings:
            say(warning)
        show(store, facts, view, wanted, stack.enter_context(results_of(view)))
    return 0


def results_of(view: View) -> Results:
    """Where the view goes. FileFault if it cannot go there."""
    return Results(view.output, coloured=view.format == "text")


def show(store: RowStore, facts: CaptureFacts, view: View, wanted: Selection, results: Results) -> None:
    """Write what the view asks for of the rows in ``store``."""
    if view.connections:
        _records(store, facts, view, wanted, results)
        return
    from ncps_analysis.captured_summary import summarise_capture

    report = summarise_capture(
        store.parts(),
        facts,
        wanted,
        version=__version__,
        command_line=view.command_line,
        by=view.by,
        top=view.top,
    )
    results.write(_text(report, view.format).rstrip("\n") + "\n")


def _text(report: CapturedReport, format_: str) -> str:
    if format_ == "csv":
        from ncps_analysis.render import csv

        return csv.dumps(report)
    if format_ == "ncps":
        from ncps_analysis.render import captured_ncps

        return captured_ncps.report(report)
    from ncps_analysis.render import captured

    return {"text": captured.text, "json": captured.dumps, "jsonl": captured.dumps_line}[format_](report)


def _records(store: RowStore, facts: CaptureFacts, view: View, wanted: Selection, results: Results) -> None:
    from ncps_analysis.attempt_tally import mark_censored
    from ncps_analysis.render import attempts

    files = [source.name for source in facts.sources]
    first, last = facts.first_t_ns or 0, facts.last_t_ns or 0
    write = attempts.csv_text if view.format == "csv" else attempts.jsonl_text
    if view.format == "csv":
        results.write(attempts.csv_head())
    for rows in store.in_order(store.parts()):
        mark_censored(rows, last)
        if facts.tunnels is not None:
            rows["tunnel"] = np.array(facts.tunnels, np.uint32)[rows["tunnel"]]
        results.write(write(rows[choose(rows, wanted, first)] if wanted else rows, files))


def _joined(paths: Sequence[str], values: Mapping[str, Any], view: View, wanted: Selection) -> int:
    """``--run``: the report of the run, with the handshakes of these captures."""
    if view.connections or view.by is not None or view.format == "csv" or wanted:
        raise UsageError("--run shows the run, of which these captures are a part: leave out filters, tables and csv")
    if not values["--run"]:
        raise UsageError("--run is an empty name: name the file that a client saved with --run")
    if view.vlan_key:
        raise UsageError("--run joins by addresses and ports, which --vlan-key would tell apart: leave out one of them")
    from ncps_raw.report import run_report

    return run_report(
        values["--run"],
        format_=view.format,
        output=view.output,
        pcap=tuple(paths),
        quiet=view.quiet,
        dup_window_ns=view.dup_window_ns,
    )


def _folder(stack: ExitStack) -> str:
    from ncps_raw.scratch import scratch_folder

    return stack.enter_context(scratch_folder())
