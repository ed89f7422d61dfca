"""What one connection does after it is established: one frozen row a mode. Pure vocabulary, no sockets.

Engines read these rows and turn them into closures once; nothing here calls back. A new mode is a new row.
The rules an engine obeys for every row:

* ``tx`` units are sent and ``rx`` units are received; ``None`` means without end.
* ``tx_size`` says how long a sent unit is: ``plan`` = the plan's size, ``receipt`` = as long as the last receipt was,
  the first one of the plan's size.
* ``rx_complete`` says when one received unit is whole: ``any`` = whatever one read returned, at most the plan's size.
* ``gate`` orders the two: ``free`` (neither waits), ``window`` (send, await the answer, ...), ``peer`` (the peer speaks
  first and every receipt is answered by as many bytes).
* ``end`` says when it is over: after the ``units``; at the plan's ``age``, which is looked at whenever a unit ends (a
  round, where the gate is a window), so that age 0 means one; or when the ``peer`` closes.
* After the last of its ``units`` a connection is held until its age reaches the plan's hold time, then closed. Data or
  an end that arrives while it is held is an I/O failure, and so is an end that the peer makes before the row's own.
  Where ``end`` is not ``units`` and ``rx`` is 0, nothing is read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Mode:
    """One row of the mode table."""

    name: str
    tx: int | None  # units to send; None = without end
    tx_size: str  # "plan" or "receipt"
    rx: int | None  # units to receive; None = without end
    rx_complete: str  # "any"
    gate: str  # "free", "window" or "peer"
    end: str  # "units", "age" or "peer"
    says: str  # for help and reports


CLIENT_MODES: Final[dict[str, Mode]] = {
    mode.name: mode
    for mode in (
        Mode("0", 0, "plan", 0, "any", "free", "units", says="connect and close"),
        Mode("1", 1, "plan", 1, "any", "window", "units", says="send once, receive once, close"),
        Mode("p", None, "receipt", None, "any", "window", "age", says="send and receive in turn, until old enough"),
        Mode("s", None, "plan", 0, "any", "free", "age", says="send until old enough"),
        Mode("r", 0, "plan", None, "any", "free", "age", says="receive until old enough"),
    )
}

SERVER_MODES: Final[dict[str, Mode]] = {
    mode.name: mode
    for mode in (
        Mode("echo", None, "receipt", None, "any", "peer", "peer", says="send back whatever was received"),
        Mode("s", None, "plan", 0, "any", "free", "peer", says="send without end"),
        Mode("r", 0, "plan", None, "any", "free", "peer", says="receive and discard"),
    )
}
