"""View: the RunReport exactly as NCPS prints it, so that what reads NCPS reads this.

It must not know where the text goes. The one idea: up to ``###REXMIT`` every line is NCPS's, to the blank, in
NCPS's order, with whole microseconds and truly empty lines; what NCPS has no word for follows under prefixes of
its own. These columns have no form for "unknown", so there it is 0, and ``###SOURCE`` names the source.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ncps_analysis.model import RunReport
from ncps_analysis.quantities import Distribution, Milestone
from ncps_analysis.records import Interval
from ncps_analysis.wording import plain

NO_CONNECTIONS: Final = "!!!NO CONNECTIONS WERE ESTABLISHED!!!"

_COLUMNS: Final = (
    ("T(sec)", 9),
    ("N", 8),
    ("Pend", 6),
    ("Failed", 8),
    ("IOFail", 8),
    ("Conn/s", 8),
    ("Close/s", 8),
    ("RXkbyte/s", 9),
    ("TXkbyte/s", 9),
    ("RT/i", 5),
    ("c0/i", 7),
    ("c0rtt/i", 7),
    ("cR/i", 7),
    ("cRrtt/i", 8),
)
_BRIEF: Final = (("N", 8), ("CPS", 8), ("SYNRTT0", 7), ("SYNRTTx", 8))
FORMS: Final = 3
"""Forms of a row: 0 with all columns, 1 brief, 2 the rate alone; NCPS's key goes through them in this order."""
_TABLE: Final = ("P25", "Median", "Mean", "P75", "P90", "P95", "P99", "P99.9", "P99.99")
_KEYS: Final = ("25", "Median", "Mean", "75", "90", "95", "99", "99.9", "99.99")


def header() -> str:
    """The line of column names, without its end of line; it ends in one blank, as in NCPS 1.5."""
    return " ".join(f"{name:>{width}}" for name, width in _COLUMNS) + " "


def row(interval: Interval) -> str:
    """One line of figures, without its end of line: one blank at the end, then ``REP`` once local ports repeat."""
    seconds = interval.seconds
    values = (
        f"{interval.t_s:.3f}",
        interval.open_now,
        interval.pending,
        interval.failed_total,
        interval.io_failed_total,
        _rate(interval.established, seconds),
        _rate(interval.closed, seconds),
        _rate(interval.rx_bytes / 1000, seconds),
        _rate(interval.tx_bytes / 1000, seconds),
        interval.retransmits or 0,
        interval.clean or 0,
        interval.clean_rtt_us or 0,
        interval.repeated or 0,
        interval.repeated_rtt_us or 0,
    )
    line = " ".join(f"{value:>{width}}" for value, (_, width) in zip(values, _COLUMNS, strict=True))
    return line + (" REP" if interval.ports_wrapped else " ")


def header_of(form: int) -> str:
    """``header`` for any of the FORMS."""
    if form == 0:
        return header()
    return " ".join(f"{name:>{width}}" for name, width in _BRIEF) if form == 1 else "CPS"


def row_of(interval: Interval, form: int, unknown: str = "0") -> str:
    """``row`` in any of the FORMS. ``unknown`` stands for a brief row's mean round trip of no connection."""
    if form == 0:
        return row(interval)
    rate = _rate(interval.established, interval.seconds)
    if form == 2:
        return rate
    rtts = (unknown if rtt is None else rtt for rtt in (interval.clean_rtt_us, interval.repeated_rtt_us))
    values = (interval.open_now, rate, *rtts)
    return " ".join(f"{value:>{width}}" for value, (_, width) in zip(values, _BRIEF, strict=True))


def report(report: RunReport) -> str:
    """The final report, from the empty line that ends the rows to its last line; no end of line at the very end."""
    lines = [
        "",
        f"=== CMDLINE: {_one_line(report.command_line)}",
        "",
        f"=== VERSION {report.version}",
        "",
        f"###RXGBPS {report.rx_gbps or 0:.2f}",
        f"###TXGBPS {report.tx_gbps or 0:.2f}",
        "",
    ]
    lines += _connections(report) if report.milestones else [NO_CONNECTIONS]
    return "\n".join([*lines, "", *_new(report)])


def _connections(report: RunReport) -> list[str]:
    first = report.in_time
    return connections(
        first.connections,
        first.syn_rtt_us,
        report.milestones,
        first.retrans_share_percent,
        first.retrans_per_connection,
    )


def connections(
    n: int, syn_rtt_us: Distribution, milestones: Sequence[Milestone], share: float | None, each: float | None
) -> list[str]:
    """NCPS's lines about ``n`` connections, from "Time to Nth" to ``###REXMIT``; ``milestones`` must not be empty."""
    figures = _figures(syn_rtt_us)
    share, each = share or 0.0, each or 0.0
    return [
        f"=== Time (ms) to Nth connection establishment for first {n} connections:",
        f"=== {'N':>7} {'T(ms)':>7} {'CPS':>7}",
        *(f"=== {m.n:>7} {m.t_ms:>7} {m.cps:>7}" for m in milestones),
        "",
        f"###ENDCPS {milestones[-1].cps}",
        "",
        "###CPS," + ",".join(f"{m.n}:{m.t_ms}" for m in milestones),
        "",
        f"=== SYN RTT (us) stats for first {n} connections:",
        "=== " + " ".join(f"{name:>8}" for name in _TABLE),
        "=== " + " ".join(f"{value:>8}" for value in figures),
        "",
        "###SYNRTT,"
        + ",".join(f"{key}:{value}" for key, value in zip(_KEYS, figures, strict=True))
        + f",max:{syn_rtt_us.max or 0}",
        "",
        f"=== Percentage of connections with retransmits in the first {n} connections: {share:.4f}%",
        f"=== Average retransmit count per connection (excluding 0-retransmit cases): {each:.4f}",
        "",
        f"###REXMIT,rtconnpercentage:{share:.4f},rtperconn:{each:.4f}",
    ]


def _new(report: RunReport) -> list[str]:
    """What NCPS does not say, one prefix a line; unknown figures are left out."""
    lines = [
        _line("SOURCE", {"rtt": report.rtt_source, "retransmits": report.retrans_source}),
        _line(
            "BOOKS",
            {
                "attempted": report.attempted,
                "established": report.established,
                "failed": report.failed,
                "unfinished": report.unfinished,
                "notstarted": report.not_started,
                "iofailed": report.io_failed,
                "recorded": report.connections,
                "late": report.connections_late,
            },
        ),
        _line(
            "RETRANS",
            {
                "syn": report.syn_retrans,
                "synrepeats": report.syn_repeats,
                "synack": report.synack_retrans,
                "synfailed": report.syn_retrans_failed,
            },
        ),
    ]
    if report.rate_asked is not None:
        lines.append(
            _line(
                "SCHEDULE",
                {
                    "asked": plain(report.rate_asked, grouped=""),
                    "achieved": None if report.rate_achieved is None else plain(report.rate_achieved, grouped=""),
                    "due": report.due,
                    "missed": report.missed,
                    "late": report.late,
                    "lagmean": None if report.lag_us_mean is None else int(report.lag_us_mean),
                    "lagmax": report.lag_us_max,
                },
            )
        )
    if report.capture is not None:
        facts: dict[str, object] = {
            "interface": report.capture.interface,
            "file": report.capture.file and _one_line(report.capture.file).replace(",", "?"),
            "offsetns": report.capture.clock_offset_ns,
            "level": report.capture.level,
            "packets": report.capture.packets,
            "dropped": "unknown" if report.dropped_by_capture is None else report.dropped_by_capture,
            "vantage": report.capture.vantage_suggested,
            "matched": None if report.matched_share is None else _share(report.matched_share),
        }
        lines.append(_line("CAPTURE", facts))
    for prefix, distribution in (
        ("PATHRTT", report.path_rtt_us),
        ("CONNECT", report.connect_us),
        ("RESPONSE", report.response_us),
        ("SERVICE", report.service_us),
        ("KERNELRTT", report.kernel_rtt_us),
        ("BEFORESYN", report.overhead_before_us),
        ("AFTERSYNACK", report.overhead_after_us),
        ("ANSWER", report.answer_us),
        ("SYNACKTOACK", report.synack_to_ack_us),
    ):
        if distribution.n:
            lines.append(times_line(prefix, distribution))
    if report.errors:
        lines.append(_line("ERROR", {error.name: error.count for error in report.errors}))
    if report.interrupted is not None:
        lines.append(f"###INTERRUPTED,{report.interrupted}")
    lines += [f"###PROBLEM,{_one_line(problem)}" for problem in report.problems]
    if report.capture_problem is not None:
        lines.append(f"###NOCAPTURE,{_one_line(report.capture_problem)}")
    lines += [f"###NOTE,{_one_line(note)}" for note in report.notes]
    return [line for line in lines if "," in line]  # a line without a fact says nothing


def times_line(prefix: str, distribution: Distribution) -> str:
    """All figures of a distribution under a prefix of ours."""
    names = ("n", "min", *_KEYS, "max")
    values = (distribution.n, distribution.min, *_figures(distribution), distribution.max)
    return _line(prefix, dict(zip(names, values, strict=True)))


def facts_line(prefix: str, facts: dict[str, object]) -> str:
    """A line under a prefix of ours; unknown facts are left out."""
    return _line(prefix, facts)


def _figures(distribution: Distribution) -> list[int]:
    """The nine figures of NCPS's table in its order; the mean without its fraction, as there."""
    d = distribution
    return [int(v or 0) for v in (d.p25, d.p50, d.mean, d.p75, d.p90, d.p95, d.p99, d.p99_9, d.p99_99)]


def _line(prefix: str, facts: dict[str, object]) -> str:
    return f"###{prefix}" + "".join(f",{key}:{value}" for key, value in facts.items() if value is not None)


def _rate(amount: float, seconds: float) -> str:
    return f"{amount / seconds if seconds > 0 else 0.0:.1f}"


def _share(share: float) -> str:
    """Four decimals, rounded down: 1.0000 means all, not almost all."""
    return f"{int(share * 10_000) / 10_000:.4f}"


def _one_line(text: str) -> str:
    return " ".join(text.split())
