"""Vocabulary of the first floor: what the figures of every report are made of, with a run or without one.

It must not know reports. The one idea: these few are all that a report of a capture shares with that of a run, so one
does not load the other.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Distribution:
    """Nearest-rank percentiles of ``n`` samples in the unit of the field that holds it, all None if n is 0."""

    n: int = 0
    min: int | None = None
    p25: int | None = None
    p50: int | None = None
    mean: float | None = None
    p75: int | None = None
    p90: int | None = None
    p95: int | None = None
    p99: int | None = None
    p99_9: int | None = None
    p99_99: int | None = None
    max: int | None = None


@dataclass(frozen=True)
class Milestone:
    """The ``n``-th recorded connection was established ``t_ms`` after recording began (whole ms, rounded down)."""

    n: int
    t_ms: int

    @property
    def cps(self) -> int:
        """Connections per second up to here, rounded down; the first millisecond counts as a whole one."""
        return self.n * 1000 // max(self.t_ms, 1)
