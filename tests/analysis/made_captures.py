"""Reports of captures as the tests of their views need them."""

from typing import Any

from made_attempts import MS, T0, attempt, rows
from ncps_analysis.captured import CapturedReport, CaptureFacts, SourceFacts
from ncps_analysis.captured_summary import summarise_capture
from ncps_analysis.filters import Selection
from ncps_capture import segments as sg
from ncps_capture.merge import books_of

MADE = rows(
    attempt(0, rtt_us=2000, t_ack_ns=T0 + 2 * MS + 30_000, sport=1),
    attempt(50, rtt_us=1_000_500, syn_n=2, retrans_timeout=1, client="2001:db8::1", sport=2, frame=7),
    attempt(60, sg.REFUSED, 40, sport=3),
    attempt(70, sg.UNANSWERED, syn_n=3, retrans_timeout=2, sport=4),
)


def facts(made: Any = MADE, **changes: Any) -> CaptureFacts:
    """Facts whose books of packets fit these rows."""
    books = books_of(made)
    answers = int(made["synack_n"].sum())
    books.packets = books.tcp_packets = 20
    books.syn, books.synack = books.syn_counted + books.syn_duplicate, answers
    given: dict[str, Any] = {
        "sources": [SourceFacts("a,b.pcap", ("EN10MB",), 20)],
        "books": books,
        "level": "acks",
        "first_t_ns": T0,
        "last_t_ns": T0 + 2000 * MS,
    }
    return CaptureFacts(**{**given, **changes})


def report(made: Any = MADE, wanted: Selection | None = None, /, **changes: Any) -> CapturedReport:
    """A report; ``by`` and ``top`` are of the summary, all else of the facts."""
    shown = {name: changes.pop(name) for name in ("by", "top") if name in changes}
    return summarise_capture(
        [made],
        facts(made, **changes),
        wanted or Selection(),
        version="1.2",
        command_line="ncps analyze a,b.pcap",
        **shown,
    )
