"""What one connection does after it is established: one frozen row a mode. Pure vocabulary, no sockets.

Engines read these rows and turn them into closures once; nothing here calls back. A new mode is a new row.
The rules an engine obeys for every row:

* ``tx`` units of the plan's size are sent, then ``rx`` units are received; ``None`` means without end.
* ``rx_complete`` says when one received unit is whole: ``any`` = whatever one read returned.
* ``gate`` orders the two: ``free`` (neither waits), ``window`` (send, await the answer, ...), ``peer`` (the peer speaks
  first and every receipt is answered by as many bytes).
* After the last unit the connection is held until its age reaches the plan's hold time, then closed. Data or an end
  that arrives while it is held is an I/O failure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Mode:
    """One row of the mode table."""

    name: str
    tx: int | None  # units to send; None = without end
    rx: int | None  # units to receive; None = without end
    rx_complete: str  # "any"
    gate: str  # "free", "window" or "peer"
    says: str  # for help and reports


CLIENT_MODES: Final[dict[str, Mode]] = {
    mode.name: mode
    for mode in (
        Mode("0", tx=0, rx=0, rx_complete="any", gate="free", says="connect and close"),
        Mode("1", tx=1, rx=1, rx_complete="any", gate="window", says="send once, receive once, close"),
    )
}

SERVER_MODES: Final[dict[str, Mode]] = {
    "echo": Mode("echo", tx=None, rx=None, rx_complete="any", gate="peer", says="send back whatever was received"),
}
