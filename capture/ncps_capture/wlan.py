"""802.11 data frames and the three pseudo headers that capture tools put before them. Pure.

It must not know IP. The one idea: whether a frame carries data, and how long its header is, stands in its first two
bytes; encrypted frames, frames without data and everything that manages the network end as NOWHERE.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from ncps_capture import stack
from ncps_capture.stack import Ints, Step, Walk, be16, le16, le32

_DATA: Final = 0x08
_NO_DATA, _QOS = 0x40, 0x80
"""Bits of the subtype, in the frame's first byte."""
_TO_DS_AND_FROM_DS, _PROTECTED, _ORDER = 0x03, 0x40, 0x80
"""Bits of its second byte."""
_AGGREGATED: Final = 0x80
"""Bit of the first byte of QoS control: subframes follow, each with two addresses and a length. The first is read."""

_PRISM_SIZE: Final = 144
_AVS_MAGIC: Final = 0x8021
_TSFT, _FLAGS, _MORE_PRESENT = 0x01, 0x02, 0x80
"""Bits of radiotap's first word of "present" bits; the last stands in the word's last byte."""
_DATA_PAD: Final = 0x20
_PRESENT_MAX: Final = 8


def _wlan(walk: Walk, rows: Ints) -> None:
    _frames(walk, rows, np.zeros(len(rows), np.bool_))


def _frames(walk: Walk, rows: Ints, padded: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> None:
    """``padded``: the header is filled up to a multiple of four bytes."""
    first = walk.at[rows] + 2 <= walk.end[rows]
    padded = padded[first]
    rows = walk.reach(rows, 2)
    at = walk.at[rows]
    control, flags = walk.data[at], walk.data[at + 1]
    carries = (control & 0x0F == _DATA) & (control & _NO_DATA == 0) & (flags & _PROTECTED == 0)
    walk.kind[rows[~carries]] = stack.NOWHERE
    rows, control, flags, padded = rows[carries], control[carries], flags[carries], padded[carries]
    four = flags & _TO_DS_AND_FROM_DS == _TO_DS_AND_FROM_DS
    qos = control & _QOS != 0
    qos_at = np.where(four, 30, 24)
    size = qos_at + np.where(qos, 2, 0) + np.where(qos & (flags & _ORDER != 0), 4, 0)
    size = np.where(padded, (size + 3) & ~3, size)
    whole = walk.at[rows] + size <= walk.end[rows]
    walk.kind[rows[~whole]] = stack.CUT
    rows, qos, qos_at, size = rows[whole], qos[whole], qos_at[whole], size[whole]
    aggregated = qos & (walk.data[walk.at[rows] + np.where(qos, qos_at, 0)] & _AGGREGATED != 0)
    walk.step(rows, stack.LLC, size + np.where(aggregated, 14, 0))


def _prism(walk: Walk, rows: Ints) -> None:
    """The length stands at 4 in the byte order of the machine that captured. Some drivers write AVS's header here."""
    rows = walk.reach(rows, 8)
    at = walk.at[rows]
    avs = be16(walk.data, at) == _AVS_MAGIC
    walk.kind[rows[avs]] = stack.AVS
    rows, at = rows[~avs], at[~avs]
    size = le32(walk.data, at + 4)
    walk.step(rows, stack.WLAN, np.where((size >= 8) & (size < 1 << 16), size, _PRISM_SIZE))


def _avs(walk: Walk, rows: Ints) -> None:
    rows = walk.reach(rows, 8)
    at = walk.at[rows]
    size = be16(walk.data, at + 6)
    good = (be16(walk.data, at) == _AVS_MAGIC) & (be16(walk.data, at + 4) == 0) & (size >= 8)
    walk.step(rows, np.where(good, np.uint8(stack.WLAN), np.uint8(stack.NOWHERE)), size)


def _radiotap(walk: Walk, rows: Ints) -> None:
    """Only one field matters: the flags, which follow a time of 8 bytes if there is one."""
    rows = walk.reach(rows, 8)
    at = walk.at[rows]
    size = le16(walk.data, at + 2)
    good = (walk.data[at] == 0) & (size >= 8)
    walk.kind[rows[~good]] = stack.NOWHERE
    rows, at, size = rows[good], at[good], size[good]
    whole = at + size <= walk.end[rows]
    walk.kind[rows[~whole]] = stack.CUT
    rows, at, size = rows[whole], at[whole], size[whole]
    present = walk.data[at + 4]
    words = np.ones(len(rows), np.int64)
    more = walk.data[at + 7] & _MORE_PRESENT != 0
    for _ in range(_PRESENT_MAX):
        more &= 8 + 4 * words <= size
        words += more
        more &= walk.data[np.where(more, at + 3 + 4 * words, at)] & _MORE_PRESENT != 0
    flags_at = 4 + 4 * words
    timed = present & _TSFT != 0
    flags_at = np.where(timed, ((flags_at + 7) & ~7) + 8, flags_at)
    told = (present & _FLAGS != 0) & (flags_at < size)
    padded = told & (walk.data[np.where(told, at + flags_at, at)] & _DATA_PAD != 0)
    walk.at[rows] += size
    _frames(walk, rows, padded)


STEPS: Final[Mapping[int, Step]] = {
    stack.WLAN: _wlan,
    stack.PRISM: _prism,
    stack.AVS: _avs,
    stack.RADIOTAP: _radiotap,
}
"""The steps of these headers."""
