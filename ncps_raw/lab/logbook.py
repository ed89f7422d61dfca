"""Vocabulary: one row an event of the relay, as it stands in the log file.

The log is the truth of a lab run: when a packet was read from one side, what was decided, and when it was handed to
the other side. Times are integer nanoseconds of CLOCK_REALTIME, the clock captures use. A packet's READ is stamped
after it was read and its WRITTEN before it was written, so a capture on either side has seen no less time between
the two than the log says.
"""

from __future__ import annotations

import struct
from typing import Final

import numpy as np
import numpy.typing as npt
from ncps_capture.segments import V4_MAPPED

from ncps_raw.lab.packets import Header

READ: Final = 0
WRITTEN: Final = 1
UNWRITTEN: Final = 2
"""The device did not take it: it is lost, though nobody meant it to be."""
EVENTS: Final = ("read", "written", "unwritten")

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

_ROW: Final = struct.Struct("<qqqQQQQIIIIIIHHhHBBBBBB")
_V6: Final = struct.Struct("!QQ")
_V4: Final = struct.Struct("!I")


def row(
    t_ns: int,
    head: Header,
    length: int,
    event: int,
    direction: int,
    number: int,
    *,
    late_ns: int = 0,
    nth: int = 0,
    rule: int = -1,
    copy: int = 0,
    action: int = 0,
    answer: bool = False,
) -> bytes:
    """One row of RELAY_LOG, as bytes."""
    return _ROW.pack(
        t_ns,
        late_ns,
        number,
        *_words(head.src),
        *_words(head.dst),
        head.seq,
        head.ack,
        head.tsval,
        head.ident,
        nth,
        length,
        head.sport,
        head.dport,
        rule,
        copy,
        event,
        direction,
        action,
        head.kind,
        head.flags,
        answer,
    )


def _words(address: bytes) -> tuple[int, int]:
    if len(address) == 4:
        return 0, V4_MAPPED + _V4.unpack(address)[0]
    if len(address) == 16:
        high, low = _V6.unpack(address)
        return high, low
    return 0, 0
