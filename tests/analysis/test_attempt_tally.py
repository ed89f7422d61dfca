"""Counts of attempts: what they count, and that the cut into parts cannot be seen."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_attempts import MS, T0, attempt, rows
from ncps_analysis.attempt_tally import AttemptTally, count_attempts, mark_censored, refuse_latency_ns, syn_repeats
from ncps_analysis.histogram import Histogram
from ncps_capture import segments as sg

MANY = rows(
    attempt(0, rtt_us=100, t_ack_ns=T0 + 150_000),
    attempt(1, rtt_us=3000, syn_n=3, retrans_timeout=1, retrans_after_synack=1, dup_syn=2, synack_retrans=4),
    attempt(2, rtt_us=7, syn_n=2, retrans_after_rst=1, flags=sg.F_AMBIGUOUS, rtt_ts_ns=sg.UNKNOWN),
    attempt(3, sg.REFUSED, 50),
    attempt(4, sg.ICMP_REFUSED, 60),
    attempt(5, sg.UNANSWERED, syn_n=2, retrans_timeout=1),
    attempt(6, sg.SIMULTANEOUS),
    attempt(7, sg.SYNACK_ONLY, synack_retrans=9),
)


def same(one: AttemptTally, other: AttemptTally) -> bool:
    return all(getattr(one, name) == getattr(other, name) for name in vars(one))


def test_what_is_counted() -> None:
    found = count_attempts(MANY, None, T0)
    assert found.captured == found.chosen
    assert (found.chosen.attempts, found.chosen.answered, found.chosen.synack_only) == (7, 3, 1)
    assert found.causes == (2, 1, 1, 0)
    assert (found.answered_retrans, found.retrans_connections) == (2, 1)
    assert found.synack_retrans == 4  # what answers no SYN repeats none
    assert (found.exact, found.ambiguous) == (2, 1)
    assert found.syn_rtt == Histogram.of(np.array([100, 3000, 7]))
    assert found.synack_to_ack == Histogram.of(np.array([50]))
    assert found.refuse_latency == Histogram.of(np.array([50, 60]))
    assert found.established_ms == Histogram.of(np.array([0, 4, 2]))


def test_all_that_is_captured_is_counted_beside_what_is_chosen() -> None:
    found = count_attempts(MANY, MANY["state"] == sg.REFUSED, T0)
    assert (found.captured.attempts, found.chosen.attempts, found.chosen.refused) == (7, 1, 1)
    assert found.captured.syn_counted == 11
    assert found.syn_rtt.n == 0


@given(st.lists(st.integers(0, len(MANY)), max_size=4))
def test_parts_add_up(cuts: list[int]) -> None:
    total = AttemptTally()
    for part in np.split(MANY, sorted(cuts)):
        total += count_attempts(part, None, T0)
    assert same(total, count_attempts(MANY, None, T0))


def test_only_who_was_left_no_time_is_censored() -> None:
    made = rows(attempt(0, sg.UNANSWERED), attempt(10, sg.UNANSWERED, flags=sg.F_CENSORED), attempt(3000))
    mark_censored(made, T0 + 3000 * MS)
    assert (made["flags"] & sg.F_CENSORED != 0).tolist() == [False, True, False]
    mark_censored(made, T0 + 4000 * MS)
    assert not (made["flags"] & sg.F_CENSORED).any()
    assert made["flags"][2] == sg.F_RTT_EXACT


@pytest.mark.parametrize(
    ("row", "ns"),
    [
        (attempt(0, sg.REFUSED, 5), 5000),
        (attempt(0, sg.REFUSED, -5), sg.UNKNOWN),
        (attempt(0, sg.REFUSED, t_refused_ns=sg.UNKNOWN), sg.UNKNOWN),
        (attempt(0), sg.UNKNOWN),
    ],
)
def test_latency_of_refusals(row: np.ndarray, ns: int) -> None:
    assert refuse_latency_ns(row).tolist() == [ns]


def test_repeats_are_all_but_the_first() -> None:
    assert syn_repeats(MANY).tolist() == [0, 2, 1, 0, 0, 1, 0, 0]
