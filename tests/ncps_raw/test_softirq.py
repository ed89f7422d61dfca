"""NCPS's rule for processors without network interrupts, on made-up counts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ncps_raw.softirq import NonRss, received

TEXT = """\
                    CPU0       CPU1       CPU3
          HI:          0          1          2
      NET_TX:          7          8          9
      NET_RX:       1100        220         30
     TASKLET:          4          5          6
"""


def test_counts_by_processor() -> None:
    assert received(TEXT) == {0: 1100, 1: 220, 3: 30}


@pytest.mark.parametrize("text", ["", "nothing of the kind\n", TEXT.replace("NET_RX", "OTHER")])
def test_a_file_without_counts(text: str) -> None:
    assert received(text) == {}


def answers(rates: list[float], each: list[dict[int, int]]) -> list[tuple[int, ...] | None]:
    rule = NonRss()
    return [rule.feed(rate, counts) for rate, counts in zip(rates, each, strict=True)]


def grown(n: int) -> list[dict[int, int]]:
    """Counts in which a row adds 1000 to processor 2, 100 to 0, 99 to 1 and nothing to 3."""
    return [{2: 1000 * i, 0: 100 * i, 3: 7, 1: 99 * i} for i in range(n)]


def test_three_busy_intervals_after_the_first_give_the_answer() -> None:
    assert answers([10_000.0] * 4, grown(4)) == [None, None, None, (1, 3)]


def test_a_tenth_is_not_below_a_tenth() -> None:
    same = [{0: 10 * i, 1: i} for i in range(4)]
    assert answers([20_000.0] * 4, same)[-1] == ()


def test_an_interval_that_is_not_busy_begins_anew() -> None:
    rates = [10_000.0, 10_000.0, 10_000.0, 9_999.9, 10_000.0, 10_000.0, 10_000.0, 10_000.0]
    assert answers(rates, grown(8)) == [None] * 7 + [(1, 3)]


def test_what_was_counted_before_the_load_does_not_matter() -> None:
    before = {0: 1_000_000, 1: 0}
    each = [before, before, before, {0: 1_000_001, 1: 500}]
    assert answers([1e5] * 4, each)[-1] == (0,)


def test_without_any_interrupt_no_processor_is_better() -> None:
    assert answers([1e5] * 4, [{0: 5, 1: 6}] * 4)[-1] == ()


@given(st.dictionaries(st.integers(0, 63), st.integers(0, 10**9), min_size=1))
def test_the_busiest_is_never_among_them(more: dict[int, int]) -> None:
    zero = dict.fromkeys(more, 0)
    free = answers([1e5] * 4, [zero, zero, zero, more])[-1]
    assert free is not None
    assert list(free) == sorted(free)
    most = max(more.values())
    assert set(free) == {cpu for cpu, n in more.items() if n < most / 10}
