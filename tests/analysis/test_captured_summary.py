"""What was read and counted -> the report: sources, unknowns, sums, sentences."""

from dataclasses import replace

import pytest
from made_attempts import attempt, rows
from made_captures import MADE, facts, report
from ncps_analysis.captured import CLIENT_TO_SERVER, SERVER_TO_CLIENT, SourceFacts
from ncps_analysis.captured_summary import one_direction
from ncps_analysis.filters import selection
from ncps_capture import segments as sg
from ncps_capture.segments import Books


def test_figures() -> None:
    found = report(top=2)
    assert (found.attempts, found.answered, found.refused, found.unanswered) == (4, 2, 1, 1)
    assert (found.syn_repeats, found.syn_retrans, found.retrans_timeout) == (3, 3, 3)
    assert (found.retrans_connections, found.retrans_share_percent, found.retrans_per_connection) == (1, 50.0, 1.0)
    assert (found.syn_rtt_us.n, found.syn_rtt_us.min, found.syn_rtt_us.max) == (2, 2000, 1_000_500)
    assert (found.censored, found.answered_share, found.duration_s) == (1, 0.5, 2.0)
    assert found.vantage_suggested == "client"
    assert found.established_ms == ((2, 1050),)
    assert [one.frame for one in found.slowest] == [7, 1]
    assert [(one.dport, one.syn_repeats) for one in found.top_repeats] == [(80, 2), (80, 1)]
    assert found.identities == (
        "attempts 4 = answered 2 + refused 1 + unanswered 1",
        "SYNs captured 7 = sent 7",
    )
    assert found.problems == found.notes == found.warnings == ()


def test_a_filter_changes_attempts_and_not_what_was_captured() -> None:
    found = report(MADE, selection(state="refused"))
    assert (found.attempts, found.attempts_captured, found.refused, found.answered) == (1, 4, 1, 0)
    assert (found.syn, found.filter) == (7, "state refused")
    assert found.identities[-1] == "attempts of the filter 1 = refused 1"
    assert found.problems == ()


def test_books_that_do_not_balance_are_a_problem() -> None:
    wrong = facts()
    wrong.books.syn += 1
    assert "do not balance: SYNs captured 8 != accounted for 7" in report(books=wrong.books).problems[0]


@pytest.mark.parametrize(("dropped", "total"), [((None,), None), ((0,), 0), ((2, 3), 5), ((2, None), None), ((), None)])
def test_losses_are_known_only_where_all_tell(dropped: tuple[int | None, ...], total: int | None) -> None:
    found = report(sources=[SourceFacts("x", dropped=n) for n in dropped])
    assert found.dropped_by_capture == total


@pytest.mark.parametrize(("level", "causes"), [("base", (None, None)), ("resets", (0, None)), ("acks", (0, 0))])
def test_what_a_level_does_not_show_is_unknown(level: str, causes: tuple[int | None, ...]) -> None:
    found = report(level=level)
    assert (found.retrans_after_rst, found.retrans_after_challenge) == causes
    seen = report(rows(attempt(syn_n=2, retrans_after_rst=1)), level="base")
    assert seen.retrans_after_rst == 1


@pytest.mark.parametrize(
    ("syn", "synack", "proven", "direction"),
    [
        (5, 5, None, None),
        (5, 0, None, None),
        (5, 0, CLIENT_TO_SERVER, CLIENT_TO_SERVER),
        (5, 1, CLIENT_TO_SERVER, None),
        (0, 5, None, SERVER_TO_CLIENT),
        (0, 0, None, None),
    ],
)
def test_directions(syn: int, synack: int, proven: str | None, direction: str | None) -> None:
    assert one_direction(facts(one_direction=proven), Books(syn=syn, synack=synack)) == direction


def test_sentences() -> None:
    books = replace(facts().books, unsupported_linktype=3, unsupported_linktypes={250: 3}, clock_step=0)
    found = report(books=books, died="killed", live=True, runs_as="uid 0, gid 0")
    assert found.problems == ("the capture ended early (killed): what it did not see is unknown",)
    assert found.notes == (
        "17 of 20 packets decoded: link type 250 is not supported",
        "the capture process could not become anybody but root: it ran as uid 0, gid 0",
    )
    assert [(one.number, one.name, one.packets) for one in found.unsupported_linktypes] == [(250, "250", 3)]
    copies = report(rows(attempt(dup_syn=1)))
    assert copies.problems[0].startswith("1 of 3 SYNs and SYN-ACKs (33 %) is a copy made by the capture (a mirror")
    few = report(rows(*(attempt(sport=n) for n in range(9)), attempt(dup_syn=1, sport=10)))
    assert few.problems == ()
    several = report(rows(attempt(dup_syn=1)), sources=[SourceFacts("a"), SourceFacts("b")])
    assert "copies both ways in and out, or the same packets in two files?)" in several.problems[0]
    clock = report(rows(attempt(flags=sg.F_CLOCK_ERROR)))
    assert clock.notes == ("the capture's clock: 1 negative round trip; no round trip is known of it",)
    clock = report(rows(attempt(flags=sg.F_CLOCK_ERROR), attempt(sport=2, flags=sg.F_CLOCK_ERROR)))
    assert clock.notes == ("the capture's clock: 2 negative round trips; no round trip is known of these",)


def test_of_nothing_everything_is_unknown() -> None:
    found = report(MADE[:0], books=Books(), first_t_ns=None, last_t_ns=None)
    assert (found.answered_share, found.retrans_share_percent, found.duration_s, found.start_t_ns) == (None,) * 4
    assert found.syn_rtt_us.n == 0
    assert found.identities == ()
