"""Pure: whether a load stands still because the two ends do not fit each other, and what to change then.

Must not know the board, engines or clocks: it is given cumulative counters and the time. The one idea: what a row of
the mode table promises to move is looked at and nothing else. Where that has not moved for ``QUIET_NS`` although
connections are open, either both ends wait for each other or one sends what the other never reads, and nothing but a
person can end it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ncps_raw.engine.base import CLOSED, ESTABLISHED, RX_BYTES, TX_BYTES

QUIET_NS: Final = 1_500_000_000

_CLIENT: Final = {
    "1": (
        RX_BYTES,
        "mode 1 awaits an answer and none comes: the peer hangs, or does not echo; start the server without -M",
    ),
    "p": (
        RX_BYTES,
        "mode p awaits an answer and none comes: the peer hangs, or does not echo; start the server without -M",
    ),
    "s": (
        TX_BYTES,
        "mode s only sends and the peer does not read (its echo is not taken): start the server with -M r",
    ),
    "r": (
        RX_BYTES,
        "mode r only receives and the peer sends nothing (an echo server waits): start the server with -M s",
    ),
}
_SERVER: Final = {
    "echo": (TX_BYTES, "the clients send but do not take the echo: start this server with -M r for clients with -M s"),
    "s": (TX_BYTES, "mode s only sends and the clients do not read: start them with -M r"),
    "r": (RX_BYTES, "mode r only receives and the clients send nothing: start them with -M s or -M 1"),
}


def stall_advice(role: str, mode: str, open_now: int) -> str:
    """The line for a load of this role and mode that stands still."""
    what = (_SERVER if role == "server" else _CLIENT)[mode][1]
    connections = "1 open connection" if open_now == 1 else f"{open_now:,} open connections"
    return f"nothing has moved for {QUIET_NS / 1e9:g} s on {connections}: {what}"


class StallWatch:
    """Looks at a load's counters now and then; speaks once."""

    def __init__(self, role: str, mode: str, hold_ns: int = 0, pace_ns: int = 0) -> None:
        self._role = role
        self._mode = mode
        watched = (_SERVER if role == "server" else _CLIENT).get(mode)
        # After its exchange a held connection of mode 1 is meant to be quiet.
        self._counter = None if watched is None or (mode == "1" and hold_ns) else watched[0]
        self._patience_ns = QUIET_NS + pace_ns
        self._since_ns: int | None = None
        self._last = (0, 0)

    def look(self, now_ns: int, totals: Sequence[int]) -> str | None:
        """What to say now; None nearly always."""
        if self._counter is None:
            return None
        open_now = totals[ESTABLISHED] - totals[CLOSED]
        moved = (totals[self._counter], totals[CLOSED])
        owed = self._role == "client" or self._mode != "echo" or totals[RX_BYTES] > totals[TX_BYTES]
        if self._since_ns is None or not open_now or not owed or moved != self._last:
            self._since_ns, self._last = now_ns, moved
            return None
        if now_ns - self._since_ns < self._patience_ns:
            return None
        self._counter = None
        return stall_advice(self._role, self._mode, open_now)

    def rest(self) -> None:
        """The load is held on purpose: count from the next look."""
        self._since_ns = None
