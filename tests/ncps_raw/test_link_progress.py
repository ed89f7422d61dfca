"""The moving line: at every width it fits, and what matters stays."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ncps_raw.link import progress


def test_at_80_columns() -> None:
    line = progress.line(79, 362_000_000, 4.0, 90_500_000.0, 0.25)
    assert line.startswith(" 362 MB 0:00:04 [ 90 MB/s] [=======> ")
    assert line.endswith("25% left 0:00:12")
    assert len(line) == 79


def test_at_40_columns() -> None:
    line = progress.line(39, 362_000_000, 4.0, 90_500_000.0, 0.25)
    assert "362 MB" in line
    assert "MB/s" in line
    assert line.endswith("25% 0:12")
    assert len(line) <= 39


@given(
    st.integers(0, 300),
    st.integers(0, 10**16),
    st.floats(0, 1e6),
    st.none() | st.floats(0, 1e12),
    st.none() | st.floats(-1, 2),
    st.integers(0, 1000),
)
def test_it_never_takes_more_than_it_has(
    width: int, count: int, elapsed: float, rate: float | None, fraction: float | None, beat: int
) -> None:
    assert len(progress.line(width, count, elapsed, rate, fraction, beat)) <= width


def test_without_an_end_a_mark_wanders() -> None:
    seen = {progress.line(60, 1, 1.0, 1.0, None, beat) for beat in range(200)}
    assert len(seen) > 10
    assert all("<=>" in line and "%" not in line for line in seen)


@pytest.mark.parametrize(("seconds", "long", "short"), [(5, "0:00:05", "0:05"), (3661, "1:01:01", "1:01:01")])
def test_clocks(seconds: float, long: str, short: str) -> None:
    assert (progress.clock(seconds), progress.short_clock(seconds)) == (long, short)
