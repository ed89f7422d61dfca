"""``ncps capture``: the capture process alone, until its time is up or somebody interrupts it.

The one idea: what the process hands over is what reading a file hands over, rows and facts; so the report is that of
``ncps analyze``, and that of the file it wrote is the same again.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import Any, Final

from ncps_analysis.captured import CaptureFacts, SourceFacts
from ncps_analysis.filters import Selection, ports
from ncps_analysis.rowstore import RowStore
from ncps_capture.errors import EnvironmentFault, FileFault, UsageError
from ncps_capture.filter import LEVELS
from ncps_capture.process import CaptureProcess, CaptureResult
from ncps_capture.segments import HANDSHAKE, UNKNOWN, CaptureSpec
from ncps_capture.spool import iter_spool

from ncps_raw import units
from ncps_raw.analyze import View, results_of, show, view_of
from ncps_raw.interrupts import LEFT_BY_SECOND, Interrupts, LeaveNow
from ncps_raw.results import not_over, say
from ncps_raw.scratch import scratch_folder

FILE_FORMATS: Final = ("pcap", "pcapng")
ANY: Final = "any"
HEADERS: Final = 160
WHOLE: Final = 262_144
_ROW_S: Final = 1.0
_LOOK_S: Final = 0.05
_READY_S: Final = 10.0
_BUFFER_LEAST: Final = 1 << 16
_BUFFER_MOST: Final = 1 << 31
_HEADS: Final = (
    ("time", "s", 9),
    ("SYN", "1/s", 10),
    ("SYN-ACK", "1/s", 10),
    ("repeats", "1/s", 10),
    ("answered", "total", 12),
    ("refused", "total", 10),
    ("dropped", "total", 10),
)


def spec_of(values: Mapping[str, Any], dup_window_ns: int) -> CaptureSpec:
    """What to capture, by the options. UsageError for what cannot be meant."""
    interface = _default_interface() if values["--interface"] is None else values["--interface"]
    if not interface.strip():
        raise UsageError("--interface is an empty name: name one, such as lo; see ip link")
    level = values["--level"] or "acks"
    if level not in LEVELS:
        raise UsageError(f"--level must be {', '.join(LEVELS[:-1])} or {LEVELS[-1]}, not {level}")
    own = values["--filter"]
    if own is not None:
        for name in ("--port", "--level"):
            if values[name] is not None:
                raise UsageError(f"--filter replaces ours, of which {name} is a part: put it into the filter")
        if not own.strip():
            raise UsageError("--filter is empty: leave it out to use ours")
    write, format_ = values["--write"], values["--file-format"]
    if write in ("", "-"):
        raise UsageError("--write needs the name of a file: standard output is for the report")
    if format_ is not None and format_ not in FILE_FORMATS:
        raise UsageError(f"--file-format must be {' or '.join(FILE_FORMATS)}, not {format_}")
    for name in ("--whole", "--file-format"):
        if values[name] and write is None:
            raise UsageError(f"{name} is about the file of packets: name one with --write")
    size = 64 << 20 if values["--buffer"] is None else units.size(values["--buffer"], "--buffer")
    if not _BUFFER_LEAST <= size < _BUFFER_MOST:
        raise UsageError(f"--buffer must be from 64k to below 2G, not {values['--buffer']}")
    return CaptureSpec(
        interface=interface,
        server_ports=() if values["--port"] is None else ports(values["--port"], "--port"),
        level=level,
        loopback=interface in ("lo", "lo0"),
        snaplen=WHOLE if values["--whole"] else HEADERS,
        buffer_bytes=size,
        write_path=write,
        write_format=format_ or ("pcapng" if str(write).endswith(".pcapng") else "pcap"),
        dup_window_ns=dup_window_ns,
        own_filter=own,
        tunnels=own is not None,
    )


def run_capture(values: Mapping[str, Any], command_line: str, interrupts: Interrupts) -> int:
    """Capture as the options say and report; the exit code. Raises NcpsError for what prevents it."""
    view = view_of(values, command_line)
    duration = values["--duration"]
    duration_ns = None if duration is None else units.duration(duration, "--duration")
    spec = spec_of(values, view.dup_window_ns)
    if spec.write_path is not None:
        not_over(view.output, (spec.write_path,))
        if view.output is not None and os.path.realpath(view.output) == os.path.realpath(spec.write_path):
            raise UsageError("--output and --write name the same file: choose another one")
    try:
        return _capture(spec, duration_ns, view, interrupts)
    except LeaveNow:
        say("left at once by a second interrupt, without a report")
        return LEFT_BY_SECOND


def _capture(spec: CaptureSpec, duration_ns: int | None, view: View, interrupts: Interrupts) -> int:
    with ExitStack() as stack:
        folder = stack.enter_context(scratch_folder())
        capture = CaptureProcess.start(CaptureSpec(**{**vars(spec), "spool_dir": folder}))
        try:
            capture.wait_ready(_READY_S)
            # Before hours go into a report that cannot be written, and once it is sure that there will be one.
            results = stack.enter_context(results_of(view))
            _tell_begin(capture, spec, view)
            _watch(capture, duration_ns, interrupts, view)
            result = capture.finish(None, 0.0)
            _tell_remarks(capture)
        finally:
            capture.kill()
        facts = _facts(result, interrupts, spec)
        store = stack.enter_context(RowStore(lambda: folder))
        for path in result.handshake_files:
            for rows in iter_spool(path, HANDSHAKE):
                store.add(rows)
        if result.died is not None:
            say(f"the capture on {spec.interface} ended early ({result.died}): the report is of what it saw until then")
        show(store, facts, view, Selection(), results)
    return EnvironmentFault.exit_code if result.died is not None or result.write_problem is not None else 0


def _default_interface() -> str:
    if sys.platform.startswith("linux"):
        return ANY
    raise UsageError("name the interface with --interface, such as en0: this system cannot capture on all at once")


def _tell_begin(capture: CaptureProcess, spec: CaptureSpec, view: View) -> None:
    if view.quiet:
        return
    if capture.note is not None:
        say(capture.note)
    if spec.own_filter is not None:
        say("with a filter of your own: what it leaves out is not seen, and so neither answered nor repeated here")
    say(f"capturing on {spec.interface}" + (f", packets go to {spec.write_path}" if spec.write_path else ""))


def _tell_remarks(capture: CaptureProcess) -> None:
    for remark in capture.remarks():
        say(remark)


def _watch(capture: CaptureProcess, duration_ns: int | None, interrupts: Interrupts, view: View) -> None:
    """Rows until the end; on standard error, so that results are alone on standard output."""
    begin = time.monotonic()
    end = None if duration_ns is None else begin + duration_ns / 1e9
    before = capture.counters.read()
    due, header = begin + _ROW_S, not view.quiet
    while not interrupts.stopped() and capture.alive():
        now = time.monotonic()
        if end is not None and now >= end:
            return
        if now >= due or interrupts.totals_wanted:
            counters = capture.counters.read()
            if not view.quiet or interrupts.totals_wanted:
                for line in _rows(counters, before, now - begin, now - due + _ROW_S, header):
                    _line(line)
                header = False
            before, due, interrupts.totals_wanted = counters, now + _ROW_S, False
            continue
        _tell_remarks(capture)
        if due - now <= 2 * _LOOK_S:
            capture.publish_by(time.time_ns())
        time.sleep(_LOOK_S if end is None else max(min(_LOOK_S, end - now), 0))


def _rows(now: dict[str, int], before: dict[str, int], t_s: float, seconds: float, header: bool) -> Iterator[str]:
    if header:
        yield " ".join(f"{name:>{width}}" for name, _, width in _HEADS)
        yield " ".join(f"{unit:>{width}}" for _, unit, width in _HEADS)
    rates = ((now[name] - before[name]) / seconds for name in ("syn", "synack", "repeats"))
    totals = (now["answered_clean"] + now["answered_repeated"], now["refused"], now["dropped"])
    cells = (f"{t_s:.1f}", *(f"{rate:,.1f}" for rate in rates), *(f"{n:,}" for n in totals))
    yield " ".join(f"{cell:>{width}}" for cell, (_, _, width) in zip(cells, _HEADS, strict=True))


def _line(text: str) -> None:
    if sys.stderr is None:
        return
    with contextlib.suppress(OSError):  # nobody looks any more: what is captured is wanted all the same
        sys.stderr.write(text + "\n")
        sys.stderr.flush()


def _facts(result: CaptureResult, interrupts: Interrupts, spec: CaptureSpec) -> CaptureFacts:
    """The same facts as reading the file of these packets would leave behind."""
    if result.died is not None and not result.handshake_files:
        raise FileFault(f"the capture on {spec.interface} left nothing: {result.died}; run it again")
    warnings = [result.write_problem] if result.write_problem is not None else []
    return CaptureFacts(
        sources=[SourceFacts(result.interface, (result.link_type,), result.packets, result.dropped)],
        books=result.books,
        warnings=warnings,
        level=result.level,
        first_t_ns=None if result.first_t_ns == UNKNOWN else result.first_t_ns,
        last_t_ns=None if result.last_t_ns == UNKNOWN else result.last_t_ns,
        live=True,
        interrupted=interrupts.stopped_by,
        filter_text=result.filter_text,
        runs_as=result.runs_as,
        died=result.died,
    )
