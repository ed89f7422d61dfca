"""Pure: when something is due. A schedule of starts that nothing delays, and an allowance of so many a second.

Must not know what is started, nor any clock: time is an argument, in integer nanoseconds since the schedule's begin.
The one idea: a rate is an exact fraction and the n-th start's time is worked out from n alone, never by adding up
intervals, so 3333 a second stays 3333 a second for hours, and 0.5 a second is a rate like any other.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Final

SECOND: Final = 1_000_000_000


@dataclass(frozen=True)
class Schedule:
    """One loop's share of ``rate`` starts a second: of the starts 0, 1, 2, ... of all loops every ``of``-th.

    The loops' starts lie one behind the other, evenly, without anything said between them.
    """

    rate: Fraction
    first: int  # the loop's first start is that with this number; less than ``of``
    of: int  # loops in all

    def at(self, n: int) -> int:
        """When the loop's ``n``-th start, from 0, is due: ns, rounded down."""
        return (self.first + n * self.of) * SECOND * self.rate.denominator // self.rate.numerator

    def due(self, elapsed_ns: int) -> int:
        """How many of the loop's starts are due by then: the smallest ``n`` with ``at(n) > elapsed_ns``."""
        if elapsed_ns < 0:
            return 0
        last = ((elapsed_ns + 1) * self.rate.numerator - 1) // (SECOND * self.rate.denominator)
        return max(0, (last - self.first) // self.of + 1)


def paced_per_second(connections: int, pace_ns: int) -> int:
    """So many rounds a second may ``connections`` begin that each have one every ``pace_ns``: rounded up, as NCPS."""
    return -(-connections * SECOND // pace_ns)


class Allowance:
    """So many a second, of which a second's worth may be saved up. It begins with one."""

    __slots__ = ("_at_ns", "_credit", "_per_second")

    def __init__(self, per_second: int) -> None:
        self._per_second = per_second
        self._credit = SECOND  # one costs SECOND; ``per_second`` of these come in each nanosecond
        self._at_ns: int | None = None

    def available(self, now_ns: int) -> int:
        """How many may be taken now."""
        if self._at_ns is not None:
            more = (now_ns - self._at_ns) * self._per_second
            self._credit = min(self._per_second * SECOND, self._credit + more)
        self._at_ns = now_ns
        return self._credit // SECOND

    def take(self, n: int = 1) -> None:
        """Take what was available."""
        self._credit -= n * SECOND

    def wait_ns(self) -> int:
        """How long after the last look one is available, ns."""
        return max(0, -(-(SECOND - self._credit) // self._per_second))
