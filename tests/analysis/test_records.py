import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_runs import MONOTONIC, a_run
from ncps_analysis.records import (
    CLOSED,
    CONNECT_FAILED,
    CONNECTION,
    IO_FAILED,
    NOT_STARTED,
    OPEN,
    OUTCOME_NAMES,
    PENDING,
    ClockPairs,
)
from ncps_capture.segments import UNKNOWN

S = 1_000_000_000
EPOCH = 1_700_000_000 * S


def pairs(*readings: tuple[int, int]) -> ClockPairs:
    monotonic, realtime = zip(*readings, strict=True)
    return ClockPairs(np.array(monotonic, np.int64), np.array(realtime, np.int64))


def converted(clock: ClockPairs, *times: int) -> list[int]:
    return clock.to_realtime(np.array(times, np.int64)).tolist()


def test_outcomes_are_the_indices_of_their_names():
    codes = (PENDING, OPEN, CLOSED, CONNECT_FAILED, IO_FAILED, NOT_STARTED)
    assert [OUTCOME_NAMES[code] for code in codes] == [
        "pending", "open", "closed", "connect_failed", "io_failed", "not_started",
    ]  # fmt: skip


def test_a_record_is_48_bytes_without_gaps():
    """Twenty thousand a second for an hour are 3.5 GB: the row is what a long run costs on disk."""
    assert CONNECTION.itemsize == 48
    assert sum(CONNECTION[name].itemsize for name in CONNECTION.names) == 48


def test_one_reading_is_an_offset():
    assert converted(pairs((5 * S, EPOCH)), 5 * S, 4 * S, 6 * S + 1) == [EPOCH, EPOCH - S, EPOCH + S + 1]


def test_between_readings_the_offset_moves_in_a_straight_line_and_beyond_them_it_stays():
    clock = pairs((0, EPOCH), (10 * S, EPOCH + 10 * S + 1000), (20 * S, EPOCH + 20 * S))
    assert converted(clock, 5 * S, 10 * S, 15 * S) == [
        EPOCH + 5 * S + 500, EPOCH + 10 * S + 1000, EPOCH + 15 * S + 500,
    ]  # fmt: skip
    assert converted(clock, -S, 21 * S) == [EPOCH - S, EPOCH + 21 * S]


def test_a_step_is_the_largest_move_between_neighbours():
    assert pairs((5 * S, EPOCH)).step_ns() == 0
    assert (
        pairs((0, EPOCH), (S, EPOCH + S + 400), (2 * S, EPOCH + 2 * S - 100), (3 * S, EPOCH + 3 * S)).step_ns() == 500
    )


def test_unknown_stays_unknown():
    assert converted(pairs((5 * S, EPOCH)), UNKNOWN, 5 * S) == [UNKNOWN, EPOCH]


@given(
    start=st.integers(0, 10**17),
    steps=st.lists(st.tuples(st.integers(1, 3600 * S), st.integers(-(10**6), 10**6)), min_size=1, max_size=6),
    part=st.fractions(0, 1),
)
def test_conversion_is_exact_to_a_nanosecond_on_any_clock_that_is_slewed(start, steps, part):
    monotonic, realtime = [start], [EPOCH]
    for elapsed, slewed in steps:
        monotonic.append(monotonic[-1] + elapsed)
        realtime.append(realtime[-1] + elapsed + slewed)
    clock = pairs(*zip(monotonic, realtime, strict=True))
    assert converted(clock, *monotonic) == realtime
    elapsed, slewed = steps[-1]
    at = monotonic[-2] + int(part * elapsed)
    exact = realtime[-2] + (at - monotonic[-2]) + slewed * (at - monotonic[-2]) / elapsed
    assert abs(converted(clock, at)[0] - round(exact)) <= 256  # the float above holds 2**60 to 256 ns
    drift = converted(clock, at)[0] - at - (realtime[-2] - monotonic[-2])
    assert abs(drift - slewed * (at - monotonic[-2]) / elapsed) <= 1


@pytest.mark.parametrize(
    ("start_ns", "recorded_ns"),
    [(MONOTONIC, 10 * S), (MONOTONIC + 4 * S, 6 * S), (MONOTONIC + 10 * S, 0), (MONOTONIC + 20 * S, 0), (UNKNOWN, 0)],
)
def test_what_was_recorded_ends_with_the_load(start_ns, recorded_ns):
    assert a_run(record_start_ns=start_ns).recorded_ns == recorded_ns
