"""IPv4 and IPv6 headers of a batch, in columns: which transport a frame carries, and where. Pure.

It must not know link layers or TCP. The one idea: only the first header of all rows is read at once; whatever is
rarer (options, fragments, extension headers) is a mask over the few rows that have it, walked in a bounded loop.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from ncps_capture.link import Bytes, Ints, be16

Bools = npt.NDArray[np.bool_]

TCP: Final = 6
ICMP: Final = 1
ICMPV6: Final = 58

_FRAGMENT: Final = 44
_AUTHENTICATION: Final = 51
_EXTENSIONS: Final = (0, 43, _FRAGMENT, _AUTHENTICATION, 60, 135, 139, 140)
_EXTENSIONS_MAX: Final = 16

OK, CUT, MALFORMED, FRAGMENT = 0, 1, 2, 3
"""Verdicts on a row: usable, not captured far enough, contradicts itself, not the first fragment."""


@dataclass(frozen=True)
class Transport:
    """What one IP version's rows carry. One element a row; ``at`` and ``stop`` are indices into the data."""

    at: Ints  # the transport header
    stop: Ints  # end of the IP packet as its header announces it; where it announces 0, of the frame
    proto: Bytes
    verdict: Bytes


def ipv4(data: Bytes, at: Ints, end: Ints, wire_end: Ints) -> Transport:
    """Read IPv4 headers at ``at`` of frames captured up to ``end`` and on the wire up to ``wire_end``.

    A total length of 0 is segmentation offload: the packet then reaches to the end of the frame.
    """
    verdict = np.zeros(len(at), np.uint8)
    whole = at + 20 <= end
    if not whole.all():
        verdict[~whole] = CUT
        at = np.where(whole, at, 0)  # read anything inside, it is not used
        if len(data) < 20:
            empty = np.zeros(len(at), np.uint8)
            return Transport(at, at, empty, verdict)
    first = data[at]
    header = (first & 15).astype(np.int64) << 2
    total = be16(data, at + 2)
    proto = data[at + 9]
    fragment = ((data[at + 6] & 0x1F) | data[at + 7]) != 0
    odd = (first != 0x45) | (total < 40) | fragment
    if odd.any():
        wrong = odd & whole & ((first >> 4 != 4) | (header < 20) | ((total < header) & (total != 0)))
        verdict[wrong] = MALFORMED
        verdict[odd & whole & ~wrong & fragment] = FRAGMENT
    return Transport(at + header, np.where(total == 0, wire_end, at + total), proto, verdict)


def ipv6(data: Bytes, at: Ints, end: Ints, wire_end: Ints) -> Transport:
    """Read IPv6 headers and walk their extension headers, at most 16. Arguments as for ``ipv4``."""
    rows = len(at)
    verdict = np.full(rows, CUT, np.uint8)
    proto = np.zeros(rows, np.uint8)
    next_at = at.copy()
    stop = end.copy()
    whole = np.flatnonzero(at + 40 <= end)
    start = at[whole]
    verdict[whole] = np.where(data[start] >> 4 == 6, OK, MALFORMED)
    size = be16(data, start + 4)
    stop[whole] = np.where(size == 0, wire_end[whole], start + 40 + size)
    proto[whole] = data[start + 6]
    next_at[whole] = start + 40
    walk = whole[verdict[whole] == OK]
    for _ in range(_EXTENSIONS_MAX):
        walk = walk[np.isin(proto[walk], _EXTENSIONS)]
        if not len(walk):
            break
        short = next_at[walk] + 8 > end[walk]
        verdict[walk[short]] = CUT
        walk = walk[~short]
        here = next_at[walk]
        kind = proto[walk]
        length = (data[here + 1].astype(np.int64) + 1) << 3
        length[kind == _AUTHENTICATION] = (data[here[kind == _AUTHENTICATION] + 1].astype(np.int64) + 2) << 2
        split = kind == _FRAGMENT
        length[split] = 8
        proto[walk] = data[here]
        next_at[walk] = here + length
        later = np.zeros(len(walk), np.bool_)
        later[split] = be16(data, here[split] + 2) >> 3 != 0
        verdict[walk[later]] = FRAGMENT
        walk = walk[~later]
    else:
        verdict[walk[np.isin(proto[walk], _EXTENSIONS)]] = MALFORMED
    return Transport(next_at, stop, proto, verdict)
