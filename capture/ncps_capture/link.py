"""Where the network layer starts: one pass over the link headers of a batch, in columns. Pure.

It must not know IP beyond its version nibble. The one idea: a link type is a row in a table that says where the
protocol number stands and where the network layer starts; tags that may follow are walked by one shared loop.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from ncps_capture.segments import NO_VLAN

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]

ETHERTYPE_IPV4: Final = 0x0800
ETHERTYPE_IPV6: Final = 0x86DD
_TAGS: Final = (0x8100, 0x88A8, 0x9100, 0x9200)
_MAX_TAGS: Final = 8
"""Deeper stacks are crafted; giving up keeps the loop bounded."""

ETHERNET: Final = 1
_TYPED: Final = {ETHERNET: (12, 14), 113: (14, 16), 276: (0, 20)}
"""Link type: (offset of the EtherType, offset of what follows): Ethernet, LINUX_SLL, LINUX_SLL2."""
_LOOPBACK: Final = (0, 108)
_RAW: Final = (12, 14, 101, 228, 229)
_FAMILY_V4: Final = 2
_FAMILIES_V6: Final = (10, 24, 28, 30)
"""AF_INET6 of Linux, NetBSD, FreeBSD and macOS: the number in the header is that of the machine that captured."""

SUPPORTED: Final = frozenset((*_TYPED, *_LOOPBACK, *_RAW))


@dataclass(frozen=True)
class Network:
    """Where the network layer of each frame is. One element a frame."""

    at: Ints  # index into the data; meaningful where ``version`` is not 0
    version: Bytes  # 4, 6, or 0 = not IP
    vlan: npt.NDArray[np.uint16]  # innermost id, NO_VLAN = untagged
    cut: npt.NDArray[np.bool_]  # the link header was not captured whole


def be16(data: Bytes, at: Ints) -> Ints:
    """Big-endian 16-bit numbers at the given indices, which must lie inside ``data``. int64."""
    return (data[at].astype(np.int64) << 8) | data[at + 1]


def find_network(data: Bytes, start: Ints, end: Ints, link_type: int) -> Network:
    """Skip the link header of every frame ``data[start:end]``. ``link_type`` must be in ``SUPPORTED``."""
    rows = len(start)
    vlan = np.full(rows, NO_VLAN, np.uint16)
    if link_type in _TYPED:
        return _typed(data, start, end, vlan, *_TYPED[link_type])
    version = np.zeros(rows, np.uint8)
    header = 4 if link_type in _LOOPBACK else 0
    at = start + header
    cut = at >= end
    whole = np.flatnonzero(~cut)
    if header:
        first, last = data[start[whole]], data[start[whole] + 3]
        family = np.where(first == 0, last, first)
        version[whole[family == _FAMILY_V4]] = 4
        version[whole[np.isin(family, _FAMILIES_V6)]] = 6
    else:
        nibble = data[at[whole]] >> 4
        known = (nibble == 4) | (nibble == 6)
        version[whole[known]] = nibble[known]
    return Network(at, version, vlan, cut)


def _typed(data: Bytes, start: Ints, end: Ints, vlan: npt.NDArray[np.uint16], type_at: int, size: int) -> Network:
    at = start + size
    cut = at > end
    if cut.any():
        ethertype = np.zeros(len(start), np.int64)
        whole = np.flatnonzero(~cut)
        ethertype[whole] = be16(data, start[whole] + type_at)
    else:
        ethertype = be16(data, start + type_at)
    version = ((ethertype == ETHERTYPE_IPV4) * np.uint8(4)) | ((ethertype == ETHERTYPE_IPV6) * np.uint8(6))
    rest = np.flatnonzero(version == 0)
    for _ in range(_MAX_TAGS):
        rest = rest[np.isin(ethertype[rest], _TAGS)]
        if not len(rest):
            break
        short = at[rest] + 4 > end[rest]
        cut[rest[short]] = True
        rest = rest[~short]
        vlan[rest] = be16(data, at[rest]) & 0x0FFF
        ethertype[rest] = be16(data, at[rest] + 2)
        at[rest] += 4
        version[rest[ethertype[rest] == ETHERTYPE_IPV4]] = 4
        version[rest[ethertype[rest] == ETHERTYPE_IPV6]] = 6
    return Network(at, version, vlan, cut)
