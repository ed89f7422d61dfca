"""View: a captured report for a person, in 80 columns of plain text; and as JSON.

It must not know where the text goes, nor work out figures. The one idea is that of ``text.py``: first what speaks
against believing the figures, then what was captured, what became of the attempts, what was repeated, how long it took.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, Final

from ncps_analysis.captured import CLIENT_TO_SERVER, CapturedReport, Group
from ncps_analysis.wording import LABEL, MS_FROM_US, PLACES, ROWS, UNKNOWN, WIDTH, count, end, many, time_cell, wrap

_MOST_GROUPS: Final = 20
"""Groups a person is shown; machine formats have them all."""
_MOST_SOURCES: Final = 8
_PAIR: Final = 52
"""Columns of the ends of a connection; more where addresses are longer."""
_CONTROLS: Final = dict.fromkeys((*range(32), *range(127, 160)), "?")


def as_json(report: CapturedReport) -> dict[str, Any]:
    """All fields as what ``json.loads`` would give back."""
    facts: dict[str, Any] = json.loads(json.dumps(asdict(report), allow_nan=False))
    return facts


def dumps(report: CapturedReport) -> str:
    """The report as one JSON object over several lines, without a last end of line."""
    return json.dumps(asdict(report), indent=2, allow_nan=False)


def dumps_line(report: CapturedReport) -> str:
    """The report as one line, its ``type`` first."""
    return json.dumps({"type": "report", **asdict(report)}, allow_nan=False, separators=(",", ":"))


def text(report: CapturedReport) -> str:
    """The report for a person, without a last end of line."""
    lines = [f"ncps-raw {report.version}, report of a {report.role}", "=" * WIDTH]
    lines += (line for problem in report.problems for line in _wrap("PROBLEM", problem))
    if report.interrupted is not None:
        lines += _wrap("Interrupted", f"by {report.interrupted}")
    lines += _sources(report)
    lines += _packets(report)
    lines += _states(report)
    lines += _retransmits(report)
    lines += _times(report)
    lines += _groups(report)
    lines += _outstanding(report)
    lines += _remarks(report)
    return "\n".join(line.rstrip() for line in lines)


# ---- sections ----------------------------------------------------------------------------------------------


def _sources(report: CapturedReport) -> Iterator[str]:
    for number, source in enumerate(report.sources[:_MOST_SOURCES]):
        types = ", ".join(source.link_types) or "no packets"
        dropped = "" if source.dropped is None else f", {source.dropped:,} dropped while it was captured"
        damaged = ", read up to its damage" if source.damaged else ""
        yield from _wrap(
            "Captured" if not number else "",
            f"{source.name} ({types}): {many(source.packets, 'packet')}{dropped}{damaged}",
        )
    if len(report.sources) > _MOST_SOURCES:
        yield from _wrap("", f"and {len(report.sources) - _MOST_SOURCES:,} more")
    if report.start_t_ns is not None and report.duration_s is not None:
        yield from _wrap("Time", f"{_moment(report.start_t_ns)}, {report.duration_s:,.3f} s")
    if report.filter_text is not None:
        yield from _wrap("Level", f"{report.level}")
    if report.filter is not None:
        yield from _wrap("Filter", f"{report.filter}: {report.attempts:,} of {report.attempts_captured:,} attempts")


def _packets(report: CapturedReport) -> Iterator[str]:
    yield from _wrap(
        "Packets",
        f"{report.packets:,}, of which {report.tcp_packets:,} TCP: {many(report.syn, 'SYN')}, "
        f"{many(report.synack, 'SYN-ACK')}",
    )
    odd = (
        (report.duplicates, "copy made by the capture", "copies made by the capture"),
        (report.synack_only, "SYN-ACK without its SYN", "SYN-ACKs without their SYN"),
        (report.synack_bad_ack, "SYN-ACK with a wrong acknowledgement", "SYN-ACKs with a wrong acknowledgement"),
        (report.rst_ignored, "RST that refuses nothing", "RSTs that refuse nothing"),
        (report.malformed, "malformed", "malformed"),
        (report.fragments, "later fragment", "later fragments"),
        (report.too_short, "cut too short", "cut too short"),
        (report.unsupported_linktype, "of an unsupported link type", "of unsupported link types"),
    )
    told = [f"{n:,} {one if n == 1 else many}" for n, one, many in odd if n]
    if told:
        yield from _wrap("", ", ".join(told))
    for identity in report.identities:
        yield from _wrap("", identity)


def _states(report: CapturedReport) -> Iterator[str]:
    yield ""
    if not report.attempts:
        yield from _wrap("Attempts", "none")
        return
    unknown = report.one_direction is not None
    yield f"{'Attempts':<{LABEL}}{report.attempts:>12,}"
    rows = (
        ("answered", report.answered),
        ("refused", report.refused),
        ("refused, ICMP", report.icmp_refused),
        ("unanswered", report.unanswered),
        ("simultaneous", report.simultaneous),
    )
    for name, n in rows:
        if n:
            share = UNKNOWN if unknown else f"{100 * n / report.attempts:.4f} %"
            yield f"  {name:<{LABEL - 2}}{n:>12,}{share:>14}"
    if report.one_direction == CLIENT_TO_SERVER:
        yield from _wrap("", "answers are not in this capture: unanswered means not seen to be answered")
    if report.censored:
        yield from _wrap("", f"{report.censored:,} of the unanswered had less than 3 s until the capture ended")


def _retransmits(report: CapturedReport) -> Iterator[str]:
    if not report.attempts:
        return
    yield ""
    if not report.syn_repeats:
        yield from _wrap("Retransmits", "no SYN was sent again")
    else:
        none = f"none, but {many(report.syn_repeats, 'SYN')} sent again for another reason"
        yield from _wrap("Retransmits", f"{many(report.syn_retrans, 'SYN')} sent again" if report.syn_retrans else none)
        if report.retrans_share_percent is not None and report.retrans_per_connection is not None:
            yield from _wrap(
                "",
                f"on {report.retrans_connections:,} of {report.answered:,} answered "
                f"({report.retrans_share_percent:.4f} %), {report.retrans_per_connection:.4f} each on average",
            )
        reasons = (
            (report.retrans_timeout, "time-out"),
            (report.retrans_after_synack, "SYN-ACK came but was not taken"),
            (report.retrans_after_rst, "retry after an RST (not a retransmit)"),
            (report.retrans_after_challenge, "retry after a challenge ACK (not a retransmit)"),
        )
        for n, reason in reasons:
            if n:
                yield f"{'':<{LABEL}}{n:>12,}  {reason}"
    if report.synack_retrans:
        yield from _wrap("", f"{many(report.synack_retrans, 'SYN-ACK')} sent again")
    if report.synack_isn_changed:
        yield from _wrap("", f"{many(report.synack_isn_changed, 'SYN-ACK')} with another number for the same attempt")


def _times(report: CapturedReport) -> Iterator[str]:
    columns = [
        (what, distribution)
        for what, distribution in (
            ("SYN-RTT", report.syn_rtt_us),
            ("path RTT", report.path_rtt_us),
            ("SYN-ACK to ACK", report.synack_to_ack_us),
            ("refused after", report.refuse_latency_us),
        )
        if distribution.n
    ]
    yield ""
    if not report.syn_rtt_us.n:
        yield from _wrap("SYN-RTT", f"unknown: {_why_unknown(report)}")
    if not columns:
        return
    if not report.syn_rtt_us.n:
        yield ""
    in_ms = min(d.p50 for _, d in columns if d.p50 is not None) >= MS_FROM_US
    yield f"{'Times in ms' if in_ms else 'Times in us':<{LABEL}}" + "".join(f"{what:>16}" for what, _ in columns)
    yield "-" * (LABEL + 16 * len(columns))
    for name, key in ROWS:
        yield f"{name:<{LABEL}}" + "".join(f"{time_cell(getattr(d, key), key, in_ms):>16}" for _, d in columns)
    yield f"{'handshakes':<{LABEL}}" + "".join(f"{d.n:>16,}" for _, d in columns)
    if not report.syn_rtt_us.n:
        return
    yield ""
    yield from _wrap("SYN-RTT", "first SYN to first SYN-ACK, time-outs included")
    yield from _wrap("path RTT", "SYN-ACK minus the SYN it answers, where that is certain")
    where = PLACES.get(report.vantage_suggested or "")
    medians = (report.syn_rtt_us.p50, report.synack_to_ack_us.p50)
    if where is not None and None not in medians:
        first, second = (f"{time_cell(p50, 'p50', in_ms).strip()} {'ms' if in_ms else 'us'}" for p50 in medians)
        yield from _wrap("Seen", f"{where}, by the medians: SYN to SYN-ACK {first}, SYN-ACK to ACK {second}")
    if report.rtt_ambiguous:
        yield from _wrap("ambiguous", f"{report.rtt_ambiguous:,}: several SYNs and no timestamp that tells them apart")


def _why_unknown(report: CapturedReport) -> str:
    if not report.answered:
        return f"no answered attempt {'in the capture' if report.filter is None else 'passes the filter'}"
    return "the times of the answered attempts cannot be trusted, see the notes"


def _groups(report: CapturedReport) -> Iterator[str]:
    if report.by is None:
        return
    shown = report.groups if report.by == "minute" else report.groups[:_MOST_GROUPS]
    width = max([len(report.by) + 3, *(len(group.key) for group in shown)])
    heads = ("attempts", "answered", "refused", "no answer", "repeats", "RTT p50", "RTT p99")
    units = ("", "", "", "", "SYN", "us", "us")
    yield ""
    yield f"{'By ' + report.by:<{width}}" + "".join(f"{head:>10}" for head in heads)
    yield f"{'':<{width}}" + "".join(f"{unit:>10}" for unit in units)
    yield "-" * (width + 10 * len(heads))
    for group in shown:
        yield f"{group.key:<{width}}" + "".join(f"{value:>10}" for value in _cells(group))
    if len(shown) < len(report.groups):
        yield from _wrap("", f"and {len(report.groups) - len(shown):,} more: --format csv has them all")


def _cells(group: Group) -> tuple[str, ...]:
    refused = group.refused + group.icmp_refused
    counts = (group.attempts, group.answered, refused, group.unanswered, group.syn_repeats)
    return (*(f"{n:,}" for n in counts), count(group.syn_rtt_us.p50), count(group.syn_rtt_us.p99))


def _outstanding(report: CapturedReport) -> Iterator[str]:
    pairs = [f"{pair.src} > {end(pair.dst, pair.dport)}" for pair in report.top_repeats]
    # One handshake is its own slowest, and stands in the table above.
    slowest = report.slowest if report.syn_rtt_us.n > 1 or pairs else ()
    ends = [f"{end(one.src, one.sport)} > {end(one.dst, one.dport)}" for one in slowest]
    width = max([_PAIR, *(len(who) + 1 for who in (*pairs, *ends))])
    if pairs:
        yield ""
        yield f"{'Most SYNs sent again':<{width}}{'repeats':>9}{'attempts':>10}"
        yield "-" * (width + 19)
        for who, pair in zip(pairs, report.top_repeats, strict=True):
            yield f"{who:<{width}}{pair.syn_repeats:>9,}{pair.attempts:>10,}"
    if slowest:
        several = len(report.sources) > 1
        yield ""
        yield f"{'Slowest handshakes':<{width}}{'ms':>12}{'SYNs':>6}{'frame':>10}" + ("  of file" if several else "")
        yield "-" * (width + 28)
        for who, one in zip(ends, slowest, strict=True):
            file = f"  {one.file.translate(_CONTROLS)}" if several else ""
            yield f"{who:<{width}}{one.rtt_first_us / 1000:>12,.3f}{one.syn_n:>6,}{one.frame:>10,}{file}"


def _remarks(report: CapturedReport) -> Iterator[str]:
    if report.warnings or report.notes:
        yield ""
    for label, sentences in (("Warning", report.warnings), ("Note", report.notes)):
        for sentence in sentences:
            yield from _wrap(label, sentence)


# ---- pieces ------------------------------------------------------------------------------------------------


def _wrap(label: str, sentence: str) -> list[str]:
    """``wrap`` of what a file may have told: names and filters are anybody's."""
    return wrap(label, sentence.translate(_CONTROLS))


def _moment(t_ns: int) -> str:
    whole = datetime.fromtimestamp(t_ns // 1_000_000_000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    return f"{whole}.{t_ns % 1_000_000_000 // 1000:06d} UTC"
