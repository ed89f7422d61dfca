"""Vocabulary: events of the relay, and one of them as the bytes of a log row.

It must not know numpy: the relay starts with every lab, and would take twice as long to start. The rows' columns are
named in ``logbook.py``; a test holds the two together.
"""

from __future__ import annotations

import struct
from typing import Final

from ncps_raw.lab.packets import Header

READ: Final = 0
WRITTEN: Final = 1
UNWRITTEN: Final = 2
"""The device did not take it: it is lost, though nobody meant it to be."""
EVENTS: Final = ("read", "written", "unwritten")

_V4_MAPPED: Final = 0xFFFF << 32  # as in a segment row
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
        return 0, _V4_MAPPED + _V4.unpack(address)[0]
    if len(address) == 16:
        high, low = _V6.unpack(address)
        return high, low
    return 0, 0
