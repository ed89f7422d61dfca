"""When a loop may connect again: tables, and what must hold for any history. Time is made up."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ncps_raw.engine.backoff import FIRST_PAUSE_NS, GROW_NS, LONGEST_PAUSE_NS, MOST_BUSY, RECOVER_NS, Backoff

MS = 1_000_000


def test_at_first_everything_is_allowed() -> None:
    backoff = Backoff(100)
    assert backoff.allowed(0, 0, 0) == 100
    assert backoff.allowed(0, 30, 30) == 70
    assert backoff.allowed(0, 100, 0) == 0


def test_single_failures_cost_nothing() -> None:
    backoff = Backoff(100)
    for _ in range(99):
        backoff.target_failed(5)
    assert backoff.allowed(5, 40, 10) == 60


def test_a_whole_round_of_failures_leads_to_single_tries_with_longer_and_longer_pauses() -> None:
    backoff, now = Backoff(3), 0
    for _ in range(3):
        backoff.target_failed(now)
    pauses = []
    for _ in range(7):
        assert backoff.allowed(now, 0, 0) == 0
        pauses.append(backoff.not_before_ns - now)
        now = backoff.not_before_ns
        assert backoff.allowed(now - 1, 0, 0) == 0
        assert backoff.allowed(now, 0, 0) == 1
        assert backoff.allowed(now, 1, 1) == 0  # the single try is in flight
        backoff.target_failed(now)
    assert [pause // MS for pause in pauses] == [10, 20, 40, 80, 100, 100, 100]


def test_connections_that_live_do_not_forbid_the_single_try() -> None:
    backoff = Backoff(3)
    for _ in range(3):
        backoff.target_failed(0)
    later = backoff.not_before_ns
    assert backoff.allowed(later, 2, 0) == 1
    assert backoff.allowed(later, 3, 0) == 0
    assert backoff.allowed(later, 2, 1) == 0


def test_one_success_opens_everything_at_once() -> None:
    backoff = Backoff(10)
    for _ in range(50):
        backoff.target_failed(7)
    backoff.success()
    assert backoff.allowed(7, 1, 0) == 9
    for _ in range(10):
        backoff.target_failed(7)
    assert backoff.not_before_ns - 7 == FIRST_PAUSE_NS


def test_what_the_machine_refuses_caps_the_loop_until_it_may_grow() -> None:
    backoff = Backoff(100)
    backoff.machine_failed(0, 40)
    assert backoff.allowed(0, 40, 0) == 0
    assert backoff.allowed(0, 38, 0) == 2  # those that ended are replaced at once
    assert backoff.allowed(RECOVER_NS - 1, 40, 0) == 0
    assert backoff.allowed(RECOVER_NS, 40, 0) == 40
    assert backoff.allowed(RECOVER_NS, 40, 0) == 40  # one step each time
    assert backoff.allowed(RECOVER_NS + GROW_NS - 1, 80, 0) == 0
    assert backoff.allowed(RECOVER_NS + GROW_NS, 80, 0) == 20


def test_a_machine_that_bears_more_again_is_used_in_full_within_a_second() -> None:
    backoff, now = Backoff(100), 0
    backoff.machine_failed(now, 0)
    while backoff.cap < 100:
        now += 10 * MS
        backoff.allowed(now, 0, 0)
        backoff.success()
    assert now < 1000 * MS


def test_a_machine_that_refuses_again_is_asked_four_times_a_second() -> None:
    backoff, now, refused = Backoff(100), 0, 0
    backoff.machine_failed(now, 30)
    while now < 10_000 * MS:
        now += 10 * MS
        backoff.success()
        if backoff.allowed(now, 30, 0):
            refused += 1
            backoff.machine_failed(now, 30)
    assert refused == 40


def test_a_machine_that_refuses_even_the_first_is_asked_again_after_a_pause() -> None:
    backoff = Backoff(100)
    backoff.machine_failed(0, 0)
    assert backoff.allowed(FIRST_PAUSE_NS - 1, 0, 0) == 0
    assert backoff.allowed(FIRST_PAUSE_NS, 0, 0) == 1


def test_the_cap_comes_back_to_full() -> None:
    backoff, now = Backoff(100), 0
    backoff.machine_failed(now, 0)
    for _ in range(60):
        now += RECOVER_NS
        backoff.allowed(now, 0, 0)
    assert backoff.allowed(now, 0, 0) == 100


@pytest.mark.parametrize("machine", [False, True])
@given(full=st.integers(1, 200), held=st.integers(0, 199), pending_cap=st.integers(1, 200))
def test_a_time_without_luck_costs_ten_tries_a_second_at_most(
    machine: bool, full: int, held: int, pending_cap: int
) -> None:
    """Every try fails at once, as on loopback, and the loop asks again as soon as it may."""
    held = min(held, full - 1)
    backoff, now, tries, end = Backoff(full), 0, 0, 20_000 * MS
    while now < end:
        n = min(backoff.allowed(now, held, 0), pending_cap)
        for _ in range(n):
            tries += 1
            if machine:
                backoff.machine_failed(now, held)
                break
            backoff.target_failed(now)
        now = max(now + 10 * MS, backoff.not_before_ns)
    # A round, the growing pauses, then one try each tenth of a second.
    assert tries <= 2 * full + 5 + (end // LONGEST_PAUSE_NS) + 1
    assert tries > 10


EVENTS = st.lists(st.tuples(st.sampled_from(["success", "target", "machine"]), st.integers(0, 400)), max_size=60)


@given(st.integers(1, 50), EVENTS, st.integers(0, 50), st.integers(0, 50))
def test_never_more_than_there_is_room_for_and_never_stuck(
    full: int, events: list[tuple[str, int]], in_use: int, pending: int
) -> None:
    in_use = min(in_use, full)
    pending = min(pending, in_use)
    backoff, now = Backoff(full), 0
    for kind, ms in events:
        now += ms * MS
        if kind == "success":
            backoff.success()
        elif kind == "target":
            backoff.target_failed(now)
        else:
            backoff.machine_failed(now, in_use)
        assert 0 <= backoff.allowed(now, in_use, pending) <= full - in_use
        assert backoff.not_before_ns - now <= LONGEST_PAUSE_NS
    # Whatever happened, a loop with room and nothing in flight tries again before long.
    if in_use < full:
        assert backoff.allowed(now + LONGEST_PAUSE_NS + RECOVER_NS, in_use, 0) >= 1


def test_a_busy_port_of_the_plan_costs_the_next_one_nothing() -> None:
    backoff = Backoff(50)
    for _ in range(9):
        backoff.port_busy(0, in_use=0, pairs=10)
        assert (backoff.allowed(0, 0, 0), backoff.failures) == (50, 0)
    backoff.success()
    assert backoff.busy == 0
    for _ in range(9):
        backoff.port_busy(0, in_use=0, pairs=10)
    assert backoff.allowed(0, 0, 0) == 50


def test_a_whole_round_of_busy_ports_is_waited_out() -> None:
    backoff = Backoff(50)
    for _ in range(10):
        backoff.port_busy(0, in_use=3, pairs=10)
    assert backoff.allowed(0, 3, 0) == 0
    assert backoff.allowed(RECOVER_NS, 3, 0) > 0


def test_as_many_connections_as_pairs_leave_nothing_to_try() -> None:
    backoff = Backoff(50)
    backoff.port_busy(0, in_use=10, pairs=10)
    assert backoff.allowed(0, 10, 0) == 0


def test_a_long_round_is_given_up() -> None:
    backoff = Backoff(50)
    for _ in range(MOST_BUSY):
        backoff.port_busy(0, in_use=0, pairs=1_000_000)
    assert backoff.allowed(0, 0, 0) == 0
