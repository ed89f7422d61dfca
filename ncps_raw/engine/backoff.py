"""When a loop may connect again after failures. Pure: time is an argument.

The one idea: a failure costs nothing as long as something succeeds. Only when a whole round of connections has failed
without one success does the loop go down to single tries, ten a second at most, so that an absent server, a closed port
or exhausted local ports are waited out without burning a core, and the first success opens it again at once.
"""

from __future__ import annotations

from typing import Final

FIRST_PAUSE_NS: Final = 10_000_000
LONGEST_PAUSE_NS: Final = 100_000_000
RECOVER_NS: Final = 250_000_000
"""After the machine refused: this long, then twice as many, and again twice as many every ``GROW_NS`` that it bears."""
GROW_NS: Final = 50_000_000
MOST_BUSY: Final = 256
"""Busy ports in a row after which a longer round is given up as well."""


class Backoff:
    """The state of one loop: how many connections it may have at once, and not before when it may start the next."""

    __slots__ = ("_pause_ns", "busy", "cap", "failures", "full", "grow_at_ns", "not_before_ns")

    def __init__(self, connections: int) -> None:
        self.full = connections
        self.cap = connections
        self.failures = 0  # in a row, without a success between
        self.busy = 0  # planned ports in a row that were in use
        self.not_before_ns = 0
        self.grow_at_ns = 0
        self._pause_ns = FIRST_PAUSE_NS

    def success(self) -> None:
        """A connection was established. Needed only when ``failures`` or ``busy`` is not 0."""
        self.failures = self.busy = 0
        self._pause_ns = FIRST_PAUSE_NS
        self.not_before_ns = 0

    def target_failed(self, now_ns: int) -> None:
        """The target refused, or never answered, or cannot be reached."""
        self.failures += 1
        if self.failures >= self.full:
            self._pause(now_ns)

    def port_busy(self, now_ns: int, in_use: int, pairs: int) -> None:
        """A port that the plan named is in use, of ``pairs`` that the loop has: the next one may be free.

        Only a whole round of them in a row, or as many connections as there are pairs, says that none is.
        """
        self.busy += 1
        if self.busy >= min(pairs, MOST_BUSY) or in_use >= pairs:
            self.busy = 0
            self.machine_failed(now_ns, in_use)

    def machine_failed(self, now_ns: int, in_use: int) -> None:
        """This machine had no port or descriptor left while ``in_use`` connections of the loop existed.

        The loop lives with what it has got and tries for more four times a second, as long as that is refused.
        """
        self.failures += 1
        self.cap = max(1, in_use)
        self.grow_at_ns = now_ns + RECOVER_NS
        if in_use == 0:
            self._pause(now_ns)

    def allowed(self, now_ns: int, in_use: int, pending: int) -> int:
        """How many connections may be started now, ``pending`` of the ``in_use`` ones being still in flight.

        A single try waits for no connection that lives: a loop with hours of held ones still looks for the target.
        """
        if now_ns < self.not_before_ns:
            return 0
        if self.cap < self.full and now_ns >= self.grow_at_ns:
            self.cap = min(self.full, 2 * self.cap)
            self.grow_at_ns = now_ns + GROW_NS
        room = max(0, self.cap - in_use)
        if self.failures >= self.full:
            return min(room, 1) if pending == 0 else 0
        return room

    def _pause(self, now_ns: int) -> None:
        self.not_before_ns = now_ns + self._pause_ns
        self._pause_ns = min(LONGEST_PAUSE_NS, self._pause_ns * 2)
