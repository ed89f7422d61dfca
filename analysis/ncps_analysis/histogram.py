"""Pure: exact counts of integer samples, so that a run of any length needs memory for its distinct values only.

It must not know what is counted. The one idea: connection times in whole microseconds repeat, so (value, count)
pairs lose nothing; adding two histograms is the same as having counted everything at once, in any order. Counts are
64-bit, sums are Python integers: billions of connections are an ordinary case.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from operator import mul

import numpy as np
import numpy.typing as npt

from ncps_analysis import percentiles


@dataclass(frozen=True, eq=False)
class Histogram:
    """``counts[i]`` samples had ``values[i]``: values rise strictly, counts are at least 1; int64 of one length."""

    values: npt.NDArray[np.int64]
    counts: npt.NDArray[np.int64]

    @classmethod
    def of(cls, samples: npt.NDArray[np.int64]) -> Histogram:
        """Count samples (int64, any order, may be empty)."""
        ordered = np.sort(samples.astype(np.int64, copy=False))
        starts = np.flatnonzero(np.concatenate((np.ones(min(len(ordered), 1), np.bool_), ordered[1:] != ordered[:-1])))
        return cls(ordered[starts], np.diff(np.append(starts, len(ordered))))

    @classmethod
    def empty(cls) -> Histogram:
        """No samples: the neutral element of ``+``."""
        return cls(np.empty(0, np.int64), np.empty(0, np.int64))

    def __add__(self, other: Histogram) -> Histogram:
        if not len(other.values):
            return self
        if not len(self.values):
            return other
        both = np.concatenate((self.values, other.values))
        order = np.argsort(both, kind="stable")
        both = both[order]
        starts = np.flatnonzero(np.concatenate(([True], both[1:] != both[:-1])))
        counts = np.concatenate((self.counts, other.counts))[order]
        return Histogram(both[starts], np.add.reduceat(counts, starts))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Histogram):
            return NotImplemented
        return np.array_equal(self.values, other.values) and np.array_equal(self.counts, other.counts)

    __hash__ = None  # type: ignore[assignment]  # equal by contents of arrays, so no dictionary key

    @property
    def n(self) -> int:
        """Number of samples."""
        return int(self.counts.sum())

    @property
    def total(self) -> int:
        """Sum of all samples, exact beyond 64 bits."""
        return sum(map(mul, self.values.tolist(), self.counts.tolist()))

    @property
    def min(self) -> int | None:
        """Smallest sample; None if there are none."""
        return int(self.values[0]) if len(self.values) else None

    @property
    def max(self) -> int | None:
        """Largest sample; None if there are none."""
        return int(self.values[-1]) if len(self.values) else None

    @property
    def mean(self) -> float | None:
        """Arithmetic mean; None if there are no samples."""
        return self.total / self.n if len(self.values) else None

    def percentiles(self, percents: Iterable[Fraction | int]) -> list[int]:
        """Nearest-rank percentiles, one int a percentage. ValueError if there are no samples."""
        return percentiles.of_counts(self.values, self.counts, percents)

    def at_ranks(self, ranks: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """The samples of these ranks (int64, each from 1 to ``n``) in rising order: int64, one a rank."""
        return self.values[np.searchsorted(np.cumsum(self.counts), ranks)]
