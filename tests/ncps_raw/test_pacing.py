"""When something is due: exact rates, even shares, allowances that save up no more than a second."""

from fractions import Fraction
from math import floor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ncps_raw.pacing import SECOND, Allowance, Schedule, paced_per_second

RATES = st.builds(Fraction, st.integers(1, 10**6), st.integers(1, 1000))


@pytest.mark.parametrize(
    ("rate", "seconds", "total"),
    [
        ("750", 10, 7500),
        ("1500", 10, 15_000),
        ("3333", 10, 33_330),
        ("0.5", 10, 5),
        ("1/3", 9, 3),
        ("65536", 2, 131_072),
    ],
)
@pytest.mark.parametrize("loops", [1, 2, 7, 16])
def test_a_rate_is_kept_to_the_last_connection(rate: str, seconds: int, total: int, loops: int) -> None:
    shares = [Schedule(Fraction(rate), i, loops) for i in range(loops)]
    assert sum(share.due(seconds * SECOND - 1) for share in shares) == total


@given(RATES, st.integers(1, 40), st.integers(0, 1000))
def test_all_loops_together_are_one_even_schedule(rate: Fraction, loops: int, n: int) -> None:
    shares = [Schedule(rate, i, loops) for i in range(loops)]
    times = sorted(share.at(k) for share in shares for k in range(n // loops + 1))
    assert times == [floor(k * SECOND / rate) for k in range(len(times))]


@given(RATES, st.integers(1, 40), st.data())
def test_due_is_the_inverse_of_at(rate: Fraction, loops: int, data: st.DataObject) -> None:
    share = Schedule(rate, data.draw(st.integers(0, loops - 1)), loops)
    elapsed = data.draw(st.integers(0, 10**12))
    n = share.due(elapsed)
    assert share.at(n) > elapsed
    assert n == 0 or share.at(n - 1) <= elapsed
    assert share.due(-1) == 0


@pytest.mark.parametrize(
    ("n", "pace_s", "expected"), [(100, 10, 10), (100, 30, 4), (1, 60, 1), (7, 1, 7), (600, 7, 86)]
)
def test_rounds_a_second_are_rounded_up(n: int, pace_s: int, expected: int) -> None:
    assert paced_per_second(n, pace_s * SECOND) == expected


@given(st.integers(1, 5000), st.lists(st.integers(0, 3 * SECOND), min_size=1, max_size=40))
def test_an_allowance_saves_up_a_second_at_most(per_second: int, steps: list[int]) -> None:
    allowance, now, taken = Allowance(per_second), 0, 0
    for step in steps:
        now += step
        n = allowance.available(now)
        assert n <= per_second
        allowance.take(n)
        taken += n
        assert taken <= 1 + now * per_second // SECOND
        assert allowance.available(now) == 0
        wait = allowance.wait_ns()
        assert 0 < wait <= SECOND // per_second + 1
        assert allowance.available(now + wait - 1) == 0
        now += wait
        assert allowance.available(now) == 1


def test_an_allowance_begins_with_one() -> None:
    allowance = Allowance(10)
    assert allowance.available(123) == 1
    allowance.take()
    assert allowance.available(123 + SECOND // 10 - 1) == 0
    assert allowance.available(123 + SECOND // 10) == 1
