"""Vocabulary: one row an event of the relay, as it stands in the log file.

The log is the truth of a lab run: when a packet was read from one side, what was decided, and when it was handed to
the other side. Times are integer nanoseconds of CLOCK_REALTIME, the clock captures use. A packet's READ is stamped
after it was read and its WRITTEN before it was written, so a capture on either side has seen no less time between
the two than the log says.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from ncps_raw.lab.logrow import EVENTS, READ, UNWRITTEN, WRITTEN, row

__all__ = ["EVENTS", "READ", "RELAY_LOG", "UNWRITTEN", "WRITTEN", "Log", "row"]

RELAY_LOG: Final = np.dtype(
    [
        ("t_ns", "<i8"),
        ("late_ns", "<i8"),  # of WRITTEN: how much later than due; else 0
        ("number", "<i8"),  # of the packet read, from 0; its copies and answers have the same
        ("src_hi", "<u8"),  # addresses as in a segment row; 0 where the packet is not IP
        ("src_lo", "<u8"),
        ("dst_hi", "<u8"),
        ("dst_lo", "<u8"),
        ("seq", "<u4"),
        ("ack", "<u4"),
        ("tsval", "<u4"),
        ("ident", "<u4"),
        ("nth", "<u4"),  # of READ: which transmission of its attempt, from 1; 0 where that is not looked at
        ("length", "<u4"),  # bytes read from or written to the device
        ("sport", "<u2"),
        ("dport", "<u2"),
        ("rule", "<i2"),  # of READ: which rule decided, -1 = none
        ("copy", "<u2"),  # 0 = the packet itself
        ("event", "u1"),
        ("direction", "u1"),  # index into network.DIRECTIONS
        ("action", "u1"),  # of READ: index into network.ACTIONS
        ("kind", "u1"),  # index into packets.KINDS
        ("flags", "u1"),  # of the TCP header
        ("answer", "u1"),  # 1 = made by the path in place of the packet
    ]
)

Log = npt.NDArray[np.void]
