"""Rare link headers: tags of fabrics and providers, and pseudo headers that tell their own length. Pure.

It must not know IP. The one idea: each header is a step of ``stack.py``, ten lines that read the few bytes which say
how long it is and what follows; what it does not understand ends as NOWHERE, never as an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final

import numpy as np

from ncps_capture import stack
from ncps_capture.stack import OF_ETHERTYPE, Bytes, Ints, Step, Walk, be16, le16, le32

_LINK_TYPES: Final = 512
_NFLOG_PAYLOAD: Final = 9
_NFLOG_VALUES_MAX: Final = 32
_ERF_EXTENSIONS_MAX: Final = 16
_FDDI_LLC: Final = 0x50


def steps(links: Mapping[int, int]) -> dict[int, Step]:
    """The steps of these headers. ``links``: the header each link type begins with, for headers that name one."""
    of_link = np.zeros(_LINK_TYPES, np.uint8)
    of_link[list(links)] = list(links.values())
    return {
        stack.FABRIC_PATH: partial(_fixed, 2),
        stack.PBB: partial(_fixed, 4),
        stack.VNTAG: _vntag,
        stack.NFLOG: _nflog,
        stack.PKTAP: partial(_pktap, of_link),
        stack.PPI: partial(_ppi, of_link),
        stack.ERF: _erf,
        stack.FDDI: _fddi,
        stack.IPOIB: _ipoib,
    }


def _fixed(size: int, walk: Walk, rows: Ints) -> None:
    """Cisco FabricPath and 802.1ah: a tag of fixed size, then the customer's frame from its MAC addresses on."""
    rows = walk.reach(rows, size)
    walk.step(rows, stack.ETHERNET, size)


def _vntag(walk: Walk, rows: Ints) -> None:
    rows = walk.reach(rows, 6)
    walk.step(rows, OF_ETHERTYPE[be16(walk.data, walk.at[rows] + 4)], 6)


def _nflog(walk: Walk, rows: Ints) -> None:
    """Family, version, resource; then values with length and type in the byte order of the machine that captured."""
    rows = walk.reach(rows, 4)
    walk.step(rows, stack.NOWHERE, 4)
    for _ in range(_NFLOG_VALUES_MAX):
        rows = walk.reach(rows, 4)
        if not len(rows):
            return
        at = walk.at[rows]
        swapped = walk.data[at + 2] == 0  # types are small: the byte that is not 0 is the low one
        size = np.where(swapped, be16(walk.data, at), le16(walk.data, at))
        kind = np.where(swapped, be16(walk.data, at + 2), le16(walk.data, at + 2)) & 0x7FFF
        payload = (kind == _NFLOG_PAYLOAD) & (size >= 4)
        walk.step(rows[payload], stack.RAW, 4)
        on = ~payload & (size >= 4)
        rows, size = rows[on], size[on]
        walk.at[rows] += (size + 3) & ~3


def _of_inner(of_link: Bytes, link_type: Ints) -> Bytes:
    known = link_type < len(of_link)
    return np.where(known, of_link[np.where(known, link_type, 0)], np.uint8(stack.NOWHERE))


def _pktap(of_link: Bytes, walk: Walk, rows: Ints) -> None:
    rows = walk.reach(rows, 12)
    at = walk.at[rows]
    size = le32(walk.data, at)
    kind = np.where(size >= 12, _of_inner(of_link, le32(walk.data, at + 8)), np.uint8(stack.NOWHERE))
    walk.step(rows, kind, size)


def _ppi(of_link: Bytes, walk: Walk, rows: Ints) -> None:
    rows = walk.reach(rows, 8)
    at = walk.at[rows]
    size = le16(walk.data, at + 2)
    kind = np.where(size >= 8, _of_inner(of_link, le32(walk.data, at + 4)), np.uint8(stack.NOWHERE))
    walk.step(rows, kind, size)


_ERF_KINDS: Final = np.zeros(128, np.uint8)
_ERF_KINDS[[1, 10, 15, 19]] = stack.PPP_HDLC
_ERF_KINDS[[2, 11, 16, 20]] = stack.ETHERNET
_ERF_KINDS[22], _ERF_KINDS[23] = stack.IPV4, stack.IPV6


def _erf(walk: Walk, rows: Ints) -> None:
    """Type at 8; its top bit says that extension headers of 8 bytes follow, the first bit of each that one more does.

    Ethernet records have two bytes of padding before the frame.
    """
    rows = walk.reach(rows, 16)
    announced = walk.data[walk.at[rows] + 8]
    kind = _ERF_KINDS[announced & 0x7F]
    walk.step(rows, kind, 16)
    more = rows[announced & 0x80 != 0]
    for _ in range(_ERF_EXTENSIONS_MAX):
        if not len(more):
            break
        more = walk.reach(more, 8)
        following = walk.data[walk.at[more]] & 0x80 != 0
        walk.at[more] += 8
        more = more[following]
    walk.kind[more] = stack.NOWHERE
    padded = rows[walk.kind[rows] == stack.ETHERNET]
    walk.at[padded] += 2


def _fddi(walk: Walk, rows: Ints) -> None:
    rows = walk.reach(rows, 13)
    data = walk.data[walk.at[rows]] & 0xF0 == _FDDI_LLC
    walk.step(rows, np.where(data, np.uint8(stack.LLC), np.uint8(stack.NOWHERE)), 13)


def _ipoib(walk: Walk, rows: Ints) -> None:
    rows = walk.reach(rows, 44)
    ethertype = be16(walk.data, walk.at[rows] + 40)
    kind = np.where(ethertype < stack.LENGTHS_END, np.uint8(stack.NOWHERE), OF_ETHERTYPE[ethertype])
    walk.step(rows, kind, 44)
