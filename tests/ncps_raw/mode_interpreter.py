"""A plain interpreter of the mode table, without sockets, clocks or buffers: what a row means, to hold engines to.

It knows rows and no names of modes: the rules at the head of ``conversation.py``, and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from ncps_raw.conversation import Mode

CLOSED = "closed"
FAILED = "I/O failed"


@dataclass
class Told:
    """What one connection did: the units it sent, the receipts it took, how it ended."""

    sent: list[int] = field(default_factory=list)
    received: list[int] = field(default_factory=list)
    outcome: str = ""


def interpret(row: Mode, size: int, peer: Sequence[int], old_at: int | None = None) -> Told:
    """``peer``: lengths of what it says, at most ``size`` each, one when it may speak; then it ends.

    ``old_at``: how often the age is looked at until the connection is old enough; None = it never is. A peer that never
    speaks reads what it is sent.
    """
    told, says = Told(), iter(peer)
    looks = _looks(old_at)
    last: int | None = None
    while True:
        may_send = row.tx is None or len(told.sent) < row.tx
        may_receive = row.rx is None or len(told.received) < row.rx
        if row.end == "units" and not may_send and not may_receive:
            told.outcome = CLOSED
            return told
        if may_send and row.gate != "peer":
            told.sent.append(size if row.tx_size == "plan" or last is None else last)
            if not may_receive:
                if row.end == "age" and next(looks):
                    told.outcome = CLOSED
                    return told
                continue
        if may_receive:
            last = next(says, None)
            if last is None:
                told.outcome = CLOSED if row.end == "peer" else FAILED
                return told
            told.received.append(last)
            if row.gate == "peer":
                told.sent.append(last)
            if row.end == "age" and next(looks):
                told.outcome = CLOSED
                return told


def _looks(old_at: int | None) -> Iterator[bool]:
    n = 0
    while True:
        n += 1
        yield n == old_at
