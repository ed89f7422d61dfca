from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ncps_analysis import percentiles
from ncps_analysis.percentiles import PERCENTILES, of_counts, of_sorted, rank

PERCENTS = [percent for _, percent in PERCENTILES]

# n -> ranks of p25 p50 p75 p90 p95 p99 p99.9 p99.99, worked out by hand as ceil(n * p / 100)
RANKS = {
    1: [1, 1, 1, 1, 1, 1, 1, 1],
    2: [1, 1, 2, 2, 2, 2, 2, 2],
    3: [1, 2, 3, 3, 3, 3, 3, 3],
    4: [1, 2, 3, 4, 4, 4, 4, 4],
    10: [3, 5, 8, 9, 10, 10, 10, 10],
    100: [25, 50, 75, 90, 95, 99, 100, 100],
    1_000: [250, 500, 750, 900, 950, 990, 999, 1_000],
    10_000: [2_500, 5_000, 7_500, 9_000, 9_500, 9_900, 9_990, 9_999],
    10_001: [2_501, 5_001, 7_501, 9_001, 9_501, 9_901, 9_991, 10_000],
}


@pytest.mark.parametrize("n", RANKS)
def test_ranks_of_small_and_round_sample_counts(n):
    assert [rank(n, percent) for percent in PERCENTS] == RANKS[n]
    samples = np.arange(1, n + 1, dtype=np.int64) * 7
    assert of_sorted(samples, PERCENTS) == [7 * r for r in RANKS[n]]
    assert of_counts(samples, np.ones(n, np.int64), PERCENTS) == [7 * r for r in RANKS[n]]


def test_three_samples_show_their_minimum_and_their_maximum():
    assert of_sorted(np.array([19, 19, 61], np.int64), [*PERCENTS, 100]) == [19, 19, 61, 61, 61, 61, 61, 61, 61]


def test_ranks_stay_exact_where_floats_and_32_bit_integers_do_not():
    assert rank(10**18, Fraction(9999, 100)) == 999_900_000_000_000_000
    assert rank(10**18 + 1, Fraction(9999, 100)) == 999_900_000_000_000_001
    billions = np.array([3_000_000_000, 1, 1], np.int64)
    assert of_counts(np.array([5, 6, 7], np.int64), billions, [50, Fraction(9999, 100), 100]) == [5, 5, 7]


def test_names_are_those_of_the_reports():
    assert [name for name, _ in PERCENTILES] == ["p25", "p50", "p75", "p90", "p95", "p99", "p99_9", "p99_99"]


def test_no_samples_and_impossible_percentages_are_refused():
    with pytest.raises(ValueError, match="at least one sample"):
        rank(0, 50)
    with pytest.raises(ValueError, match="at least one sample"):
        of_counts(np.empty(0, np.int64), np.empty(0, np.int64), [50])
    with pytest.raises(ValueError, match="not within 0 and 100"):
        rank(10, 101)
    with pytest.raises(ValueError, match="not within 0 and 100"):
        rank(10, Fraction(-1, 2))


def naive(samples: list[int], percent: Fraction) -> int:
    """The least sample that at least ``percent`` of all samples do not exceed: the definition, read aloud."""
    return min(s for s in samples if Fraction(100 * sum(x <= s for x in samples), len(samples)) >= percent)


@given(
    samples=st.lists(st.integers(-5, 60), min_size=1, max_size=60),
    percent=st.fractions(0, 100, max_denominator=1000),
)
def test_agrees_with_the_definition_read_aloud(samples, percent):
    expected = naive(samples, percent)
    assert of_sorted(np.array(sorted(samples), np.int64), [percent]) == [expected]
    values, counts = np.unique(np.array(samples, np.int64), return_counts=True)
    assert of_counts(values, counts, [percent]) == [expected]
    assert percentiles.of_sorted(np.array(sorted(samples), np.int64), [100]) == [max(samples)]
