"""View: a captured report as NCPS prints the end of a run, so that what reads NCPS reads any capture.

It must not know where the text goes. The one idea: the answered attempts of a capture are the connections of a run
nobody recorded: they count as established when their SYN-ACK came, from the first packet on. There are no rows, so the
text begins with the empty line that ends them; the rates of data are unknown, which NCPS has no word for but 0.
"""

from __future__ import annotations

from ncps_analysis.captured import CapturedReport
from ncps_analysis.model import WIRE
from ncps_analysis.quantities import Milestone
from ncps_analysis.render import ncps


def report(report: CapturedReport) -> str:
    """The text, without an end of line at the very end."""
    lines = [
        "",
        f"=== CMDLINE: {_one_line(report.command_line)}",
        "",
        f"=== VERSION {report.version}",
        "",
        "###RXGBPS 0.00",
        "###TXGBPS 0.00",
        "",
    ]
    milestones = [Milestone(n, t_ms) for n, t_ms in report.established_ms]
    if milestones:
        lines += ncps.connections(
            report.answered,
            report.syn_rtt_us,
            milestones,
            report.retrans_share_percent,
            report.retrans_per_connection,
        )
    else:
        lines.append(ncps.NO_CONNECTIONS)
    return "\n".join([*lines, "", *_new(report)])


def _new(report: CapturedReport) -> list[str]:
    states = ("attempts", "answered", "refused", "icmp_refused", "unanswered", "simultaneous", "synack_only")
    lines = [
        ncps.facts_line("SOURCE", {"rtt": WIRE, "retransmits": WIRE}),
        ncps.facts_line("ATTEMPTS", {name.replace("_", ""): getattr(report, name) for name in states}),
        ncps.facts_line(
            "RETRANS",
            {"syn": report.syn_retrans, "synrepeats": report.syn_repeats, "synack": report.synack_retrans},
        ),
        ncps.facts_line(
            "CAPTURE",
            {
                "level": report.level,
                "packets": report.packets,
                "dropped": "unknown" if report.dropped_by_capture is None else report.dropped_by_capture,
                "duplicates": report.duplicates,
                "vantage": report.vantage_suggested,
            },
        ),
    ]
    for prefix, distribution in (
        ("PATHRTT", report.path_rtt_us),
        ("SYNACKTOACK", report.synack_to_ack_us),
        ("REFUSED", report.refuse_latency_us),
    ):
        if distribution.n:
            lines.append(ncps.times_line(prefix, distribution))
    if report.interrupted is not None:
        lines.append(f"###INTERRUPTED,{report.interrupted}")
    lines += [f"###PROBLEM,{_one_line(problem)}" for problem in report.problems]
    lines += [f"###NOTE,{_one_line(note)}" for note in (*report.warnings, *report.notes)]
    return lines


def _one_line(text: str) -> str:
    return " ".join(text.split())
