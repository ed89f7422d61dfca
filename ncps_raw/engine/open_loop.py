"""Starts on a schedule: the connects of a client whose plan has a rate, whatever became of the earlier ones. Edge.

The one idea: what was meant is kept beside what was done. A start that comes late keeps the time it was due at, so that
what its target's clients would have waited can be told (response time) beside what the connect itself took (service
time), and how late the starts were, and why, is counted: for want of a free connection, or because this machine was
too slow. Nothing is skipped: what is due and not begun by the end is missing, and ``due`` minus ``attempted`` says so.

Must not know: sockets, modes, processes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Final

from ncps_raw.engine.base import ATTEMPTED, DUE, HELD_UP, LAG_MAX_NS, LAG_NS, LATE, Board
from ncps_raw.engine.connection import ClientShare, Slot
from ncps_raw.pacing import Schedule

LATE_NS: Final = 1_000_000
STARTS_A_TURN: Final = 64


class _Line:
    """One loop's place in the schedule."""

    __slots__ = ("blocked", "blocked_at", "loop", "n", "next_ns", "schedule")

    def __init__(self, loop: ClientShare, schedule: Schedule) -> None:
        self.loop = loop
        self.schedule = schedule
        self.n = 0
        self.next_ns = 0
        self.blocked = False
        self.blocked_at = 0  # when it was last seen that nothing could be started: what was due before is held up


class OpenLoop:
    """The starts of one process's loops. ``begin`` makes one attempt with a slot."""

    def __init__(
        self,
        loops: Sequence[ClientShare],
        rate: Fraction,
        all_loops: int,
        board: Board,
        begin: Callable[[Slot], None],
        once: bool = False,
    ) -> None:
        self._lines = [_Line(loop, Schedule(rate, loop.index, all_loops)) for loop in loops]
        self._board = board
        self._begin = begin
        self._once = once
        self._t0 = 0
        self._end = 0
        self._over = False

    def _open(self) -> None:
        self._t0, self._end = self._board.begin_ns(), self._board.end_ns()
        for line in self._lines:
            line.next_ns = self._t0 + line.schedule.at(0)

    def start(self, now: int) -> bool:
        """Begin what is due by ``now``; True if more could be begun at once."""
        if not self._t0:
            self._open()
        if self._end:
            now = min(now, self._end - 1)
        more = False
        for line in self._lines:
            if line.next_ns <= now:
                more = self._start_line(line, now) or more
        return more

    def _start_line(self, line: _Line, now: int) -> bool:
        loop, counts = line.loop, line.loop.counts
        for _ in range(STARTS_A_TURN):
            if self._once and counts[ATTEMPTED] >= loop.total:
                line.next_ns = 1 << 62
                return False
            if not loop.free or loop.pending >= loop.max_pending:
                line.blocked, line.blocked_at = True, now
                return False
            slot = loop.free.pop()
            slot.intended = intended = line.next_ns
            self._begin(slot)
            lag = slot.start - intended
            counts[LAG_NS] += lag
            if lag > LATE_NS:
                counts[LATE] += 1
                counts[HELD_UP] += intended <= line.blocked_at
            if lag > counts[LAG_MAX_NS]:
                counts[LAG_MAX_NS] = lag
            line.n += 1
            line.next_ns = self._t0 + line.schedule.at(line.n)
            line.blocked = False
            if line.next_ns > now:
                return False
        return True

    def wait_s(self, now: int) -> float:
        """Seconds until the next start is due, of the loops that could begin it; also counts what is due by now."""
        if not self._t0:
            return 0.0
        self._count(now)
        soonest = min((line.next_ns for line in self._lines if not line.blocked), default=1 << 62)
        return max(0, soonest - now) / 1e9

    def end(self, now: int) -> None:
        """The load is over: nothing becomes due any more."""
        if not self._over and self._t0:
            self._over = True
            self._count(now)

    def _count(self, now: int) -> None:
        if self._end:
            now = min(now, self._end - 1)
        for line in self._lines:
            if line.next_ns > now:
                line.loop.counts[DUE] = line.n
            else:
                due = line.schedule.due(now - self._t0)
                line.loop.counts[DUE] = min(due, line.loop.total) if self._once else due
