"""Pure: percentiles by nearest rank, the one definition that every report and view uses.

It must not know what the samples measure. The one idea: the p-th percentile of n samples is the sample of rank
ceil(n * p / 100), counted from 1. It is always a value that occurred, the last one is the maximum, and three
samples have percentiles as good as three million. Ranks are exact: p is a fraction, never a float, because
``ceil(0.9999 * 10000)`` in floats may be 9999 or 10000 depending on the machine's rounding.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from typing import Final

import numpy as np
import numpy.typing as npt

PERCENTILES: Final[tuple[tuple[str, Fraction], ...]] = (
    ("p25", Fraction(25)),
    ("p50", Fraction(50)),
    ("p75", Fraction(75)),
    ("p90", Fraction(90)),
    ("p95", Fraction(95)),
    ("p99", Fraction(99)),
    ("p99_9", Fraction(999, 10)),
    ("p99_99", Fraction(9999, 100)),
)
"""Name and percentage of what every distribution is reported with, in rising order."""


def rank(n: int, percent: Fraction | int) -> int:
    """Nearest rank of a percentage among ``n`` samples: an int from 1 to ``n``.

    ValueError if there are no samples or the percentage is not within 0 and 100. The 0th percentile is the minimum.
    """
    if n < 1:
        raise ValueError("a percentile needs at least one sample")
    if not 0 <= percent <= 100:
        raise ValueError(f"percentage {percent} is not within 0 and 100")
    exact = Fraction(percent)
    divisor = 100 * exact.denominator
    return max(1, -(-n * exact.numerator // divisor))


def of_sorted(samples: npt.NDArray[np.int64], percents: Iterable[Fraction | int]) -> list[int]:
    """Percentiles of samples already sorted upwards (int64, one dimension, not empty), one int a percentage."""
    n = len(samples)
    return [int(samples[rank(n, percent) - 1]) for percent in percents]


def of_counts(
    values: npt.NDArray[np.int64], counts: npt.NDArray[np.int64], percents: Iterable[Fraction | int]
) -> list[int]:
    """Percentiles of ``counts[i]`` samples of ``values[i]``: the same figures as of the samples written out.

    ``values`` rise strictly, ``counts`` are int64 and at least 1, both of one length and not empty.
    """
    upto = np.cumsum(counts, dtype=np.int64)
    n = int(upto[-1]) if len(upto) else 0
    return [int(values[np.searchsorted(upto, rank(n, percent))]) for percent in percents]
