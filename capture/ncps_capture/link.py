"""Where the network layer starts: the link headers of a batch, in columns. Pure.

It must not know IP beyond its version nibble. The one idea: a link type is a row in a table that says which header a
frame begins with; from there on each header says which one follows. The headers of Ethernet, of Linux's and BSD's
pseudo devices and of PPP stand here, the rarer ones in ``exotic.py`` and ``wlan.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from ncps_capture import exotic, stack, wlan
from ncps_capture.segments import NO_VLAN
from ncps_capture.stack import LENGTHS_END, OF_ETHERTYPE, Bytes, Ints, Step, Walk, be16, be24, run

__all__ = ["ETHERNET", "LINK_STEPS", "SUPPORTED", "Bytes", "Ints", "Network", "be16", "find_network"]

ETHERNET: Final = 1
_KINDS: Final[Mapping[int, int]] = {
    ETHERNET: stack.ETHERNET, 0: stack.LOOPBACK, 108: stack.LOOPBACK,
    **dict.fromkeys((12, 14, 101, 228, 229), stack.RAW),
    113: stack.SLL, 276: stack.SLL2,
    9: stack.PPP_HDLC, 50: stack.PPP_HDLC, 51: stack.PPPOE, 104: stack.CHDLC,
    105: stack.WLAN, 119: stack.PRISM, 127: stack.RADIOTAP, 163: stack.AVS,
    10: stack.FDDI, 192: stack.PPI, 197: stack.ERF, 239: stack.NFLOG, 242: stack.IPOIB, 258: stack.PKTAP,
}  # fmt: skip
"""The header a frame of a link type begins with."""

SUPPORTED: Final = frozenset(_KINDS)

_FAMILY_V4: Final = 2
_FAMILIES_V6: Final = (10, 24, 28, 30)
"""AF_INET6 of Linux, NetBSD, FreeBSD and macOS: the number in the header is that of the machine that captured."""
_SLL_LLC: Final = 4
"""Linux's own number, in the place of an EtherType, for a frame with an LLC header."""
_SNAP, _SNAP_UI = 0xAAAA, 3
_OUIS: Final = (0, 0x0000F8)
"""OUIs of SNAP behind which an EtherType stands: Ethernet's, and that of bridges to 802.3."""
_LLC_IP: Final = 0x0606
_PPP_KINDS: Final[Mapping[int, int]] = {0x21: stack.IPV4, 0x57: stack.IPV6, 0x281: stack.MPLS, 0x283: stack.MPLS}
_PPP_ALL_STATIONS: Final = 0xFF03
_CISCO_HDLC: Final = (0x0F, 0x8F)


@dataclass(frozen=True)
class Network:
    """Where the network layer of each frame is. One element a frame."""

    at: Ints  # index into the data; meaningful where ``version`` is not 0
    version: Bytes  # 4, 6, or 0 = not IP
    vlan: npt.NDArray[np.uint16]  # innermost id, NO_VLAN = untagged
    cut: npt.NDArray[np.bool_]  # a header was not captured whole


def find_network(data: Bytes, start: Ints, end: Ints, link_type: int) -> Network:
    """Skip the link headers of every frame ``data[start:end]``. ``link_type`` must be in ``SUPPORTED``."""
    rows = len(start)
    kind = np.full(rows, _KINDS[link_type], np.uint8)
    walk = Walk(data, kind, start.copy(), end, np.full(rows, NO_VLAN, np.uint16), np.zeros(rows, np.uint32))
    run(walk, LINK_STEPS)
    return network_of(walk)


def network_of(walk: Walk) -> Network:
    """What a walk that has ended found."""
    cut = walk.kind == stack.CUT
    return Network(walk.at, np.where(cut, np.uint8(0), walk.kind), walk.vlan, cut)


def _ethernet(walk: Walk, rows: Ints) -> None:
    rows = walk.reach(rows, 14)
    walk.step(rows, OF_ETHERTYPE[be16(walk.data, walk.at[rows] + 12)], 14)


def _vlan(walk: Walk, rows: Ints) -> None:
    rows = walk.reach(rows, 4)
    at = walk.at[rows]
    walk.vlan[rows] = be16(walk.data, at) & 0x0FFF
    walk.step(rows, OF_ETHERTYPE[be16(walk.data, at + 2)], 4)


def _sll(walk: Walk, rows: Ints) -> None:
    rows = walk.reach(rows, 16)
    walk.step(rows, _of_sll(be16(walk.data, walk.at[rows] + 14)), 16)


def _sll2(walk: Walk, rows: Ints) -> None:
    rows = walk.reach(rows, 20)
    walk.step(rows, _of_sll(be16(walk.data, walk.at[rows])), 20)


def _of_sll(protocol: Ints) -> Bytes:
    return np.where((protocol < LENGTHS_END) & (protocol != _SLL_LLC), np.uint8(stack.NOWHERE), OF_ETHERTYPE[protocol])


def _llc(walk: Walk, rows: Ints) -> None:
    rows = walk.reach(rows, 3)
    at = walk.at[rows]
    points, control = be16(walk.data, at), walk.data[at + 2]
    ip = (points == _LLC_IP) & (control == _SNAP_UI)
    snap = (points == _SNAP) & (control == _SNAP_UI)
    walk.step(rows, np.where(ip, np.uint8(stack.IPV4), np.uint8(stack.NOWHERE)), 3)
    rows = walk.reach(rows[snap], 5)
    at = walk.at[rows]
    ethertype = be16(walk.data, at + 3)
    known = np.isin(be24(walk.data, at), _OUIS) & (ethertype >= LENGTHS_END)
    walk.step(rows, np.where(known, OF_ETHERTYPE[ethertype], np.uint8(stack.NOWHERE)), 5)


def _mpls(walk: Walk, rows: Ints) -> None:
    rows = walk.reach(rows, 4)
    bottom = walk.data[walk.at[rows] + 2] & 1 != 0
    walk.step(rows, np.where(bottom, np.uint8(stack.MPLS_PAYLOAD), np.uint8(stack.MPLS)), 4)


def _mpls_payload(walk: Walk, rows: Ints) -> None:
    """Nothing names what labels carry: IP shows by its version, a control word before a frame by a 0.

    So does the address of many network cards; then the EtherType behind it decides.
    """
    rows = walk.reach(rows, 1)
    nibble = walk.data[walk.at[rows]] >> np.uint8(4)
    control_word = nibble == 0
    long = control_word & (walk.at[rows] + 14 <= walk.end[rows])
    ethertype = be16(walk.data, np.where(long, walk.at[rows] + 12, 0)) if long.any() else np.zeros(len(rows), np.int64)
    control_word &= ~(long & (ethertype >= LENGTHS_END) & (OF_ETHERTYPE[ethertype] != stack.NOWHERE))
    walk.step(rows, _of_nibble(nibble, stack.ETHERNET), np.where(control_word, 4, 0))


def _of_nibble(nibble: Bytes, other: int) -> Bytes:
    return np.where((nibble == 4) | (nibble == 6), nibble, np.uint8(other))


def _pppoe(walk: Walk, rows: Ints) -> None:
    rows = walk.reach(rows, 6)
    session = walk.data[walk.at[rows] + 1] == 0
    walk.step(rows, np.where(session, np.uint8(stack.PPP), np.uint8(stack.NOWHERE)), 6)


def _ppp(walk: Walk, rows: Ints) -> None:
    """With or without address and control; a protocol number may be sent in one byte, which is then odd."""
    rows = walk.reach(rows, 2)
    protocol = be16(walk.data, walk.at[rows])
    framed = protocol == _PPP_ALL_STATIONS
    walk.step(rows[framed], stack.PPP, 2)
    rows, protocol = rows[~framed], protocol[~framed]
    short = protocol & 0x100 != 0
    protocol = np.where(short, protocol >> 8, protocol)
    kind = np.zeros(len(rows), np.uint8)
    for number, following in _PPP_KINDS.items():
        kind[protocol == number] = following
    walk.step(rows, kind, np.where(short, 1, 2))


def _ppp_hdlc(walk: Walk, rows: Ints) -> None:
    rows = walk.reach(rows, 1)
    cisco = np.isin(walk.data[walk.at[rows]], _CISCO_HDLC)
    walk.step(rows, np.where(cisco, np.uint8(stack.CHDLC), np.uint8(stack.PPP)), 0)


def _chdlc(walk: Walk, rows: Ints) -> None:
    rows = walk.reach(rows, 4)
    ethertype = be16(walk.data, walk.at[rows] + 2)
    walk.step(rows, np.where(ethertype < LENGTHS_END, np.uint8(stack.NOWHERE), OF_ETHERTYPE[ethertype]), 4)


def _loopback(walk: Walk, rows: Ints) -> None:
    rows = walk.reach(rows, 4)
    at = walk.at[rows]
    family = np.where(walk.data[at] == 0, walk.data[at + 3], walk.data[at])
    v4, v6 = family == _FAMILY_V4, np.isin(family, _FAMILIES_V6)
    walk.step(rows, (v4 * stack.IPV4 + v6 * stack.IPV6).astype(np.uint8), 4)


def _raw(walk: Walk, rows: Ints) -> None:
    rows = walk.reach(rows, 1)
    walk.step(rows, _of_nibble(walk.data[walk.at[rows]] >> np.uint8(4), stack.NOWHERE), 0)


LINK_STEPS: Final[Mapping[int, Step]] = {
    stack.ETHERNET: _ethernet,
    stack.VLAN: _vlan,
    stack.SLL: _sll,
    stack.SLL2: _sll2,
    stack.LLC: _llc,
    stack.MPLS: _mpls,
    stack.MPLS_PAYLOAD: _mpls_payload,
    stack.PPPOE: _pppoe,
    stack.PPP: _ppp,
    stack.PPP_HDLC: _ppp_hdlc,
    stack.CHDLC: _chdlc,
    stack.LOOPBACK: _loopback,
    stack.RAW: _raw,
    **exotic.steps(_KINDS),
    **wlan.STEPS,
}
"""All link headers."""
