from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ncps_analysis import percentiles
from ncps_analysis.histogram import Histogram

SAMPLES = st.lists(st.integers(-50, 2_000_000) | st.integers(0, 5), max_size=50)


def of(*samples: int) -> Histogram:
    return Histogram.of(np.array(samples, np.int64))


def test_counts_values_exactly():
    h = of(30, 10, 30, 20, 30)
    assert h.values.tolist() == [10, 20, 30]
    assert h.counts.tolist() == [1, 1, 3]
    assert (h.n, h.min, h.max, h.total, h.mean) == (5, 10, 30, 120, 24.0)
    assert h.percentiles([0, 20, 40, 41, 100]) == [10, 10, 20, 30, 30]
    assert h.at_ranks(np.array([1, 2, 3, 5])).tolist() == [10, 20, 30, 30]


def test_no_samples_is_unknown_not_zero():
    h = Histogram.empty()
    assert (h.n, h.min, h.max, h.mean, h.total) == (0, None, None, None, 0)
    with pytest.raises(ValueError, match="at least one sample"):
        h.percentiles([50])
    assert h == of()
    assert h + h == h


def test_billions_of_samples_and_sums_beyond_64_bits():
    half = Histogram(np.array([4_000_000_000], np.int64), np.array([3_000_000_000], np.int64))
    h = half + half + of(1)
    assert h.n == 6_000_000_001
    assert h.total == 24 * 10**18 + 1 > np.iinfo(np.int64).max
    assert h.percentiles([Fraction(1, 10**7), 50]) == [4_000_000_000, 4_000_000_000]
    assert h.percentiles([Fraction(1, 10**9)]) == [1]


def test_equality_is_by_contents_and_only_between_histograms():
    assert of(1, 2) == of(2, 1)
    assert of(1, 2) != of(1, 2, 2)
    assert of(1) != "1"


@given(parts=st.lists(SAMPLES, max_size=6), shuffle=st.randoms())
def test_adding_parts_in_any_order_is_counting_everything_at_once(parts, shuffle):
    whole = of(*(s for part in parts for s in part))
    forward = sum((of(*part) for part in parts), Histogram.empty())
    shuffle.shuffle(parts)
    backward = sum((of(*part) for part in parts), Histogram.empty())
    assert whole == forward == backward


@given(a=SAMPLES, b=SAMPLES, c=SAMPLES)
def test_addition_is_associative(a, b, c):
    assert (of(*a) + of(*b)) + of(*c) == of(*a) + (of(*b) + of(*c))


@given(samples=SAMPLES.filter(bool), percent=st.fractions(0, 100, max_denominator=10_000))
def test_figures_are_those_of_the_samples(samples, percent):
    h = of(*samples)
    assert (h.n, h.min, h.max, h.total) == (len(samples), min(samples), max(samples), sum(samples))
    assert h.mean == sum(samples) / len(samples)
    ordered = np.array(sorted(samples), np.int64)
    assert h.percentiles([percent]) == percentiles.of_sorted(ordered, [percent])
    assert h.at_ranks(np.arange(1, len(samples) + 1)).tolist() == sorted(samples)
