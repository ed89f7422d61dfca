"""View: the RunReport for a person, in 80 columns of plain text; and interval rows while the load runs.

It must not know where the text goes, nor work out figures. The one idea: read from top to bottom it answers, in this
order, can I trust it, what was done, how fast, what failed, how long did it take; every figure has a unit, every
round trip says who measured it, and what is not known is a dash, never a zero.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import Final

from ncps_analysis.model import APPLICATION, KERNEL, WIRE, CaptureReport, Disagreement, ErrorCount, RunReport
from ncps_analysis.records import Interval
from ncps_analysis.wording import (
    LABEL,
    MS_FROM_US,
    PLACES,
    ROWS,
    UNKNOWN,
    WIDTH,
    count,
    end,
    many,
    plain,
    time_cell,
    wrap,
)

_MEANINGS: Final = {
    "EARLY_END": "the other side ended the connection early",
    "ECONNREFUSED": "nothing listens there, or a firewall refuses",
    "ETIMEDOUT": "no answer to any SYN",
    "ECONNRESET": "reset by the other side",
    "EPIPE": "the other side had closed already",
    "EHOSTUNREACH": "no route to the host, or it does not answer",
    "ENETUNREACH": "no route to the network",
    "EADDRNOTAVAIL": "this machine: no free local port, or not its address",
    "EADDRINUSE": "this machine: local port in use",
    "EMFILE": "this machine: file limit of the process",
    "ENFILE": "this machine: file limit of the system",
    "ENOBUFS": "this machine: no buffer space",
    "ENOMEM": "this machine: out of memory",
    "EPERM": "this machine: forbidden, by a firewall rule?",
    "EACCES": "this machine: forbidden",
    "EPROTO": "data where none was expected",
}
_APART_US: Final = {KERNEL: 10_000, APPLICATION: 100_000}
"""Disagreements from here on are worth a look. The kernel times the same round trip on the same machine: 10 ms is far
above both the 1 ms ticks of its timestamps and the delay of a busy processor. An application notices late whenever its
loop has much to do, as the two overheads under the table tell; a tenth of a second is a stall."""
_MOST_APART: Final = 5


def report(report: RunReport) -> str:
    """The report, without a last end of line."""
    lines = [f"ncps-raw {report.version}, report of a {report.role}", "=" * WIDTH]
    lines += (line for problem in report.problems for line in wrap("PROBLEM", problem))
    if report.interrupted is not None:
        planned = f" of {plain(report.planned_s)} s planned" if report.planned_s is not None else ""
        lines += wrap("Interrupted", f"by {report.interrupted} after {report.duration_s:.1f} s{planned}")
    lines += _what(report)
    lines += _rates(report)
    lines += _failures(report)
    lines += _table(report)
    lines += _disagreements(report)
    lines += _retransmits(report)
    lines += _capture(report)
    lines += (line for note in report.notes for line in wrap("Note", note))
    return "\n".join(line.rstrip() for line in lines)


# ---- interval rows -----------------------------------------------------------------------------------------

_HEADS: Final = (
    ("time", "s", 9),
    ("connects", "1/s", 9),
    ("open", "", 8),
    ("pending", "", 8),
    ("failed", "total", 8),
    ("repeats", "SYN", 8),
    ("SYN-RTT", "mean us", 9),
    ("RTT", "from", 7),
)


def interval_header() -> str:
    """Two lines, names and units, without the last end of line."""
    names = " ".join(f"{name:>{width}}" for name, _, width in _HEADS)
    units = " ".join(f"{unit:>{width}}" for _, unit, width in _HEADS)
    return f"{names}\n{units}"


def interval_row(interval: Interval) -> str:
    """One line aligned under ``interval_header``, without its end of line."""
    rtt = _mean_rtt(interval)
    values = (
        f"{interval.t_s:.1f}",
        f"{interval.established / interval.seconds:,.1f}" if interval.seconds > 0 else UNKNOWN,
        f"{interval.open_now:,}",
        f"{interval.pending:,}",
        f"{interval.failed_total + interval.io_failed_total:,}",
        count(interval.retransmits),
        UNKNOWN if rtt is None else f"{rtt:,.0f}",
        UNKNOWN if rtt is None else interval.source,
    )
    return " ".join(f"{value:>{width}}" for value, (_, _, width) in zip(values, _HEADS, strict=True))


def _mean_rtt(interval: Interval) -> float | None:
    parts = [
        (n, rtt)
        for n, rtt in ((interval.clean, interval.clean_rtt_us), (interval.repeated, interval.repeated_rtt_us))
        if n and rtt is not None
    ]
    n = sum(n for n, _ in parts)
    return sum(n * rtt for n, rtt in parts) / n if n else None


# ---- sections ----------------------------------------------------------------------------------------------


def _what(report: RunReport) -> Iterator[str]:
    yield from wrap("Command", report.command_line)
    where = f"to {report.target}" if report.role == "client" else f"on {report.target}"
    yield from wrap(
        "Run",
        f"{report.role} {where}, mode {report.mode}, {many(report.threads, 'thread')} on "
        f"{many(report.processes, 'process')}, {report.engine} engine",
    )
    yield from wrap(
        "Time",
        f"{report.duration_s:.3f} s, warm-up {plain(report.warmup_s)} s"
        if report.recorded_s <= 0
        else f"{report.duration_s:.3f} s, of which {report.recorded_s:.3f} s after the warm-up are recorded"
        if report.warmup_s
        else f"{report.duration_s:.3f} s, all of it recorded",
    )


def _rates(report: RunReport) -> Iterator[str]:
    in_time = report.connections - report.connections_late
    if not in_time or report.cps is None:
        yield from wrap("Connections", "NONE WAS ESTABLISHED in the recorded time")
    else:
        yield from wrap(
            "Connections",
            f"{report.cps:,.1f} per second: {in_time:,} established in {report.recorded_s:.3f} s",
        )
    if report.connections_late:
        yield from wrap("", f"{_were(report.connections_late, ' more')} under way when the time was up, and let finish")
    if report.rx_gbps is not None and report.tx_gbps is not None:
        yield from wrap("Data", f"received {_speed(report.rx_gbps)}, sent {_speed(report.tx_gbps)}")
    yield from _schedule(report)
    yield from wrap(
        "Whole run",
        f"attempted {report.attempted:,} = established {report.established:,} + failed {report.failed:,} + "
        f"unfinished {report.unfinished:,}",
    )
    if report.attempted != report.established + report.failed + report.unfinished:
        yield from wrap("", "THIS DOES NOT BALANCE")
    if report.not_started:
        yield from wrap("", _not_started(report))


def _schedule(report: RunReport) -> Iterator[str]:
    if report.rate_asked is None or report.rate_achieved is None:
        return
    yield from wrap(
        "Schedule",
        f"asked for {plain(report.rate_asked)} connects per second, began {plain(report.rate_achieved or 0)}: "
        f"{many(report.late or 0, 'start')} of {report.due:,} late by more than 1 ms"
        + (f" ({report.late_held_up:,} for want of a free connection)" if report.late_held_up else "")
        + (f", {report.missed:,} never begun" if report.missed else ""),
    )
    if report.lag_us_mean is not None:
        yield from wrap(
            "", f"behind the schedule: {report.lag_us_mean:,.0f} us on average, {report.lag_us_max:,} us at most"
        )


def _failures(report: RunReport) -> Iterator[str]:
    if not report.errors:
        silent = f"; {_were(report.unfinished)} never answered" if report.unfinished else ""
        yield from wrap("Failures", f"none{silent}")
        return
    if report.io_failed:
        yield from wrap("I/O failures", f"{report.io_failed:,} of the established connections")
    for number, error in enumerate(report.errors):
        label = "Failures" if number == 0 else ""
        yield f"{label:<{LABEL}}{error.count:>12,}  {error.name:<14}{_when(report, error)}"
        meaning = _MEANINGS.get(error.name)
        if meaning:
            yield f"{'':<{LABEL + 14}}{meaning}"


def _when(report: RunReport, error: ErrorCount) -> str:
    if error.first_t_ns is None or error.last_t_ns is None:
        return ""
    first, last = ((t - report.start_t_ns) / 1e9 for t in (error.first_t_ns, error.last_t_ns))
    return f"at {first:.3f} s" if error.count == 1 else f"first at {first:.3f} s, last at {last:.3f} s"


def _table(report: RunReport) -> Iterator[str]:
    """Distributions side by side: who measured, what, and the figures under one unit."""
    columns = [
        column
        for column in (
            (report.rtt_source, "SYN-RTT", report.syn_rtt_us) if report.rtt_source == WIRE else None,
            ("wire", "path RTT", report.path_rtt_us),
            ("wire", "SYN answer", report.answer_us),
            ("kernel *" if report.kernel_replaced else "kernel", "SYN-RTT", report.syn_rtt_us)
            if report.rtt_source == KERNEL
            else ("kernel", "tcpi_rtt", report.kernel_rtt_us)
            if not report.response_us.n  # there is room for four columns
            else None,
            ("application", "response", report.response_us),
            ("application", "service" if report.response_us.n else "connect", report.connect_us),
        )
        if column is not None and column[2].n
    ]
    yield ""
    if not columns:
        none = "neither a capture nor the kernel could tell" if report.connections else "no connection to measure"
        yield from wrap("SYN-RTT", f"unknown: {none}")
        return
    medians = [distribution.p50 for _, _, distribution in columns if distribution.p50 is not None]
    in_ms = min(medians) >= MS_FROM_US
    unit = "ms" if in_ms else "us"
    yield f"{f'Times in {unit}':<{LABEL}}" + "".join(f"{what:>16}" for _, what, _ in columns)
    yield f"{'measured by':<{LABEL}}" + "".join(f"{who:>16}" for who, _, _ in columns)
    yield "-" * (LABEL + 16 * len(columns))
    for name, key in ROWS:
        figures = (getattr(distribution, key) for _, _, distribution in columns)
        yield f"{name:<{LABEL}}" + "".join(f"{time_cell(figure, key, in_ms):>16}" for figure in figures)
    yield f"{'connections':<{LABEL}}" + "".join(f"{distribution.n:>16,}" for _, _, distribution in columns)
    yield ""
    yield from _legend(report)


def _legend(report: RunReport) -> Iterator[str]:
    if report.rtt_source == WIRE and report.role == "server":
        yield from wrap("SYN-RTT", "SYN-ACK to ACK on the wire, repeats of the SYN-ACK included")
    elif report.rtt_source == WIRE:
        yield from wrap("SYN-RTT", "first SYN to first SYN-ACK on the wire, time-outs included")
        yield from wrap("path RTT", "SYN-ACK minus the SYN it answers, where that is certain")
    if report.answer_us.n:
        yield from wrap("SYN answer", "SYN to SYN-ACK captured here: this machine's own time to answer")
    if report.rtt_source == KERNEL and report.role == "server":
        yield from wrap("SYN-RTT", "SYN-ACK to ACK by the kernel; unknown where a SYN-ACK was repeated")
    elif report.rtt_source == KERNEL:
        yield from wrap("SYN-RTT", "the kernel's estimate of one round trip, not measured on the wire")
        if report.kernel_replaced:
            yield from wrap("*", f"{report.kernel_replaced:,} with repeated SYNs, where connect time stands in")
    elif report.kernel_rtt_us.n and not report.response_us.n:
        yield from wrap("tcpi_rtt", "the kernel's estimate of one round trip, blind to lost SYNs")
    if report.response_us.n:
        yield from wrap("response", "from when the schedule wanted it until the program knew it was established")
        yield from wrap("service", "from connect() until then: without what the start was late")
    elif report.connect_us.n:
        yield from wrap("connect", "connect() called until the program knew it was established")
    before, after = report.overhead_before_us, report.overhead_after_us
    if before.n and after.n:
        yield from wrap("", f"(median {before.p50:,} us before the SYN left, {after.p50:,} us after the SYN-ACK came)")
    if report.rtt_unknown:
        yield from wrap("unknown", f"SYN-RTT of {report.rtt_unknown:,} of {many(report.connections, 'connection')}")


def _disagreements(report: RunReport) -> Iterator[str]:
    shown = []
    for against, least in _APART_US.items():
        rows = [row for row in report.disagreements if row.against == against and row.difference_us >= least]
        shown += rows[:_MOST_APART]
    if not shown:
        return
    yield ""
    yield "Largest disagreements with the wire, by kernel and by application; times in ms"
    yield f"{'at s':>8}{'application':>12}{'kernel':>11}{'wire':>11}{'again':>6} connection"
    yield "-" * WIDTH
    for row in shown:
        yield from _disagreement(row, (row.t_ns - report.start_t_ns) / 1e9)
    yield ""
    yield from wrap("again", "SYNs sent again: by the wire/by the kernel")


def _disagreement(row: Disagreement, at_s: float) -> Iterator[str]:
    """One line, or two where the addresses are long."""
    times = (UNKNOWN if us is None else f"{us / 1000:.3f}" for us in (row.connect_us, row.kernel_rtt_us))
    application, kernel = times
    again = f"{row.syn_repeats}/{count(row.kernel_retrans)}"
    line = f"{at_s:>8.3f}{application:>12}{kernel:>11}{row.syn_rtt_us / 1000:>11.3f}{again:>6}"
    who = f"{end(row.src, row.sport)}>{end(row.dst, row.dport)}"
    if len(line) + 1 + len(who) <= WIDTH:
        yield f"{line} {who}"
    else:
        yield line
        yield from textwrap.wrap(who, WIDTH, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False)


def _retransmits(report: RunReport) -> Iterator[str]:
    yield ""
    share, each = report.retrans_share_percent, report.retrans_per_connection
    kind, total = ("SYN-ACK", report.synack_retrans) if report.role == "server" else ("SYN", report.syn_retrans)
    source = "seen on the wire" if report.retrans_source == WIRE else "counted by the kernel"
    known = many(report.retrans_known, "connection")
    if total is None or share is None:
        none = "neither a capture nor the kernel could tell" if report.connections else "no connection to count on"
        yield from wrap("Retransmits", f"unknown: {none}")
    elif total == 0 or each is None:
        yield from wrap("Retransmits", f"none: no {kind} of {known}, {source}")
    else:
        yield from wrap("Retransmits", f"{many(total, kind)} sent again, {source}")
        yield from wrap("", f"on {report.retrans_connections:,} of {known} ({share:.4f} %), {each:.4f} each on average")
    causes = report.syn_repeat_causes
    if causes is not None and report.syn_repeats:
        reasons = (
            (causes.timeout, "time-out"),
            (causes.after_synack, "SYN-ACK came but was not taken"),
            (causes.after_rst, "retry after a RST (not a retransmit)"),
            (causes.after_challenge, "retry after a challenge ACK (not a retransmit)"),
        )
        for n, reason in reasons:
            if n:
                yield f"{'':<{LABEL}}{n:>12,}  {reason}"
    if report.synack_retrans and report.role == "client":
        yield from wrap("", f"{many(report.synack_retrans, 'SYN-ACK')} sent again by the target")
    if report.syn_retrans_failed:
        yield from wrap(
            "", f"{many(report.syn_retrans_failed, 'SYN')} sent again in vain: those were never established"
        )


def _capture(report: RunReport) -> Iterator[str]:
    capture = report.capture
    if capture is None:
        yield from wrap("Capture", f"none: {report.capture_problem}" if report.capture_problem else "none")
        return
    dropped = "an unknown number" if report.dropped_by_capture is None else f"{report.dropped_by_capture:,}"
    yield from wrap(
        "Capture",
        f"{capture.file or capture.interface} ({capture.link_type}), at the {capture.vantage}: "
        f"{many(capture.packets, 'packet')}, {dropped} dropped",
    )
    yield from _halves(report, capture.vantage_suggested)
    if report.matched is not None and report.matched_share is not None:
        yield from wrap(
            "",
            f"handshake found for {report.matched:,} of {many(report.connections, 'connection')} "
            f"({_percent(report.matched_share)})",
        )
    yield from _clock(capture, report.matched)
    foreign = capture.books.attempts - capture.claimed
    if foreign > 0:
        yield from wrap("", f"{many(foreign, 'captured attempt')} without a connection of this run")
    for identity in capture.identities:
        yield from wrap("", identity)


def _halves(report: RunReport, suggested: str | None) -> Iterator[str]:
    """Both halves of a handshake, and where they suggest that the capture stands (definition D12)."""
    first = report.answer_us if report.role == "server" else report.syn_rtt_us
    second = report.synack_to_ack_us
    if first.p50 is None or second.p50 is None:
        return
    where = PLACES.get(suggested or "")
    yield from wrap(
        "",
        f"medians: SYN to SYN-ACK {first.p50:,} us, SYN-ACK to ACK {second.p50:,} us"
        + (f", as seen {where}" if where else ""),
    )


def _clock(capture: CaptureReport, matched: int | None) -> Iterator[str]:
    """Nothing where there is no handshake whose times would be read by that clock."""
    if not matched:
        return
    offset, low, high = capture.clock_offset_ns, capture.clock_offset_low_ns, capture.clock_offset_high_ns
    if offset is None or low is None or high is None:
        if capture.file is not None:
            yield from wrap("", "its clock is taken for that of this run")
        return
    drift = f", drifting by {capture.clock_drift_ppm:.1f} ppm" if capture.clock_drift_ppm else ""
    yield from wrap(
        "",
        f"clock offset {offset / 1e9:+.6f} s +- {(high - low) / 2e6:.3f} ms{drift}, estimated from "
        f"{many(capture.clock_offset_n or 0, 'connection')}; times between the two clocks are unknown",
    )


# ---- pieces ------------------------------------------------------------------------------------------------


def _percent(share: float) -> str:
    """Two decimals, rounded down: 100 % means all, not almost all."""
    return "100 %" if share == 1 else f"{int(share * 10_000) / 100:.2f} %"


def _not_started(report: RunReport) -> str:
    """Tries that this machine refused: of a client before a SYN, of a server to accept what the kernel had answered."""
    if report.role == "server":
        times = many(report.not_started, "time")
        return f"accepting was refused {times} at a limit of this machine and tried again: connections waited"
    return f"{report.not_started:,} more never left this machine: no SYN was sent"


def _speed(gbps: float) -> str:
    """In the greatest unit in which it does not round to nothing."""
    for unit, scale in (("Gbit/s", 1), ("Mbit/s", 1000)):
        if not gbps or gbps * scale >= 0.001:
            return f"{gbps * scale:.3f} {unit}"
    return f"{plain(gbps * 1_000_000)} kbit/s"


def _were(n: int, more: str = "") -> str:
    return f"{n:,}{more} {'was' if n == 1 else 'were'}"
