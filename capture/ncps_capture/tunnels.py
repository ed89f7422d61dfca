"""What IP carries that is a packet again: IP, GRE, and the tunnels over UDP. Pure.

It must not know link types or TCP. The one idea: a tunnel is a walk of ``stack.py`` that begins at the transport
header and ends at the next IP header. Its id is kept where it is the same in both directions, as an attempt's key
must be: VXLAN's and Geneve's network, GRE's key. GTP-U's endpoint and PPTP's call are chosen by each end for itself;
with these in the key no SYN-ACK would find its SYN.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from ncps_capture import stack
from ncps_capture.link import LINK_STEPS
from ncps_capture.stack import OF_ETHERTYPE, Bytes, Ints, Step, Walk, be16, be24, run

_GRE_CHECKSUM, _GRE_ROUTING, _GRE_KEY, _GRE_SEQUENCE, _GRE_ACK = 0x8000, 0x4000, 0x2000, 0x1000, 0x0080
_ERSPAN, _ERSPAN_III, _PPP = 0x88BE, 0x22EB, 0x880B
_GTP_V1, _GTP_PACKET = 0x30, 255
_GTP_OPTIONAL, _GTP_EXTENDED = 0x07, 0x04
_GTP_EXTENSIONS_MAX: Final = 8
_VXLAN_VALID: Final = 0x08
_TEREDO_AUTHENTICATION, _TEREDO_ORIGIN = 1, 0


def _table(size: int, kinds: Mapping[int, int]) -> Bytes:
    out = np.zeros(size, np.uint8)
    out[list(kinds)] = list(kinds.values())
    return out


OF_PROTOCOL: Final = _table(
    256,
    {4: stack.IPV4, 41: stack.IPV6, 47: stack.GRE, 17: stack.UDP, 97: stack.ETHERIP, 137: stack.MPLS},
)
"""What an IP protocol number may be the beginning of. (256,) uint8, 0 = no tunnel."""
_OF_PORT: Final = _table(
    65536, {4789: stack.VXLAN, 8472: stack.VXLAN, 6081: stack.GENEVE, 2152: stack.GTPU, 3544: stack.TEREDO}
)


@dataclass(frozen=True)
class Inner:
    """The next IP header of some packets. One element a packet."""

    at: Ints
    version: Bytes  # 4, 6, or 0 = there is none
    vlan: npt.NDArray[np.uint16]
    tunnel: npt.NDArray[np.uint32]
    cut: npt.NDArray[np.bool_]  # a header did not end before the packet or what was captured of it


def unwrap(
    data: Bytes,
    proto: Bytes,
    at: Ints,
    end: Ints,
    vlan: npt.NDArray[np.uint16],
    tunnel: npt.NDArray[np.uint32],
) -> Inner:
    """Walk from the transport headers at ``at`` of packets that end at ``end`` to the next IP header.

    ``proto``: the IP protocol numbers, each with a kind in OF_PROTOCOL; ``vlan`` and ``tunnel``: the ids so far.
    """
    walk = Walk(data, OF_PROTOCOL[proto], at.copy(), end, vlan.copy(), tunnel.copy())
    run(walk, STEPS)
    cut = walk.kind == stack.CUT
    return Inner(walk.at, np.where(cut, np.uint8(0), walk.kind), walk.vlan, walk.tunnel, cut)


def _udp(walk: Walk, rows: Ints) -> None:
    rows = walk.reach(rows, 8)
    at = walk.at[rows]
    there, back = _OF_PORT[be16(walk.data, at + 2)], _OF_PORT[be16(walk.data, at)]
    walk.step(rows, np.where(there != 0, there, back), 8)


def _gre(walk: Walk, rows: Ints) -> None:
    rows = walk.reach(rows, 4)
    at = walk.at[rows]
    flags, protocol = be16(walk.data, at), be16(walk.data, at + 2)
    version = flags & 7
    plain = (version == 0) & (flags & _GRE_ROUTING == 0)
    pptp = (version == 1) & (protocol == _PPP) & (flags & _GRE_KEY != 0)
    checksum, key, sequence = (np.where(flags & bit != 0, 4, 0) for bit in (_GRE_CHECKSUM, _GRE_KEY, _GRE_SEQUENCE))
    size = 4 + key + sequence + np.where(pptp, np.where(flags & _GRE_ACK != 0, 4, 0), checksum)
    walk.kind[rows[~(plain | pptp)]] = stack.NOWHERE
    known = np.flatnonzero(plain | pptp)
    whole = walk.at[rows[known]] + size[known] <= walk.end[rows[known]]
    walk.kind[rows[known[~whole]]] = stack.CUT
    known = known[whole]
    keyed = known[(key[known] != 0) & plain[known]]
    key_at = at[keyed] + 4 + checksum[keyed]
    walk.tunnel[rows[keyed]] = be16(walk.data, key_at) << 16 | be16(walk.data, key_at + 2)
    rows, protocol, sequence = rows[known], protocol[known], sequence[known]
    kind = np.where(protocol < stack.LENGTHS_END, np.uint8(stack.NOWHERE), OF_ETHERTYPE[protocol])
    kind[protocol == _ERSPAN] = stack.ETHERNET  # type I: no header at all
    kind[(protocol == _ERSPAN) & (sequence != 0)] = stack.ERSPAN_II
    kind[protocol == _ERSPAN_III] = stack.ERSPAN_III
    walk.step(rows, kind, size[known])


def _erspan_ii(walk: Walk, rows: Ints) -> None:
    rows = walk.reach(rows, 8)
    walk.step(rows, stack.ETHERNET, 8)


def _erspan_iii(walk: Walk, rows: Ints) -> None:
    rows = walk.reach(rows, 12)
    extended = walk.data[walk.at[rows] + 11] & 1 != 0
    walk.step(rows, stack.ETHERNET, np.where(extended, 20, 12))


def _etherip(walk: Walk, rows: Ints) -> None:
    rows = walk.reach(rows, 2)
    good = walk.data[walk.at[rows]] >> 4 == 3
    walk.step(rows, np.where(good, np.uint8(stack.ETHERNET), np.uint8(stack.NOWHERE)), 2)


def _vxlan(walk: Walk, rows: Ints) -> None:
    rows = walk.reach(rows, 8)
    at = walk.at[rows]
    good = walk.data[at] & _VXLAN_VALID != 0
    walk.kind[rows[~good]] = stack.NOWHERE
    walk.tunnel[rows[good]] = be24(walk.data, at[good] + 4)
    walk.step(rows[good], stack.ETHERNET, 8)


def _geneve(walk: Walk, rows: Ints) -> None:
    rows = walk.reach(rows, 8)
    at = walk.at[rows]
    first, protocol = walk.data[at], be16(walk.data, at + 2)
    good = (first >> 6 == 0) & (protocol >= stack.LENGTHS_END)
    walk.kind[rows[~good]] = stack.NOWHERE
    rows, at = rows[good], at[good]
    walk.tunnel[rows] = be24(walk.data, at + 4)
    walk.step(rows, OF_ETHERTYPE[protocol[good]], 8 + ((first[good] & 0x3F).astype(np.int64) << 2))


def _gtpu(walk: Walk, rows: Ints) -> None:
    """Version 1, user packets. Extension headers tell their length in words and, in their last byte, the next type."""
    rows = walk.reach(rows, 8)
    at = walk.at[rows]
    flags = walk.data[at]
    good = (flags & 0xF0 == _GTP_V1) & (walk.data[at + 1] == _GTP_PACKET)
    walk.kind[rows[~good]] = stack.NOWHERE
    rows, flags = rows[good], flags[good]
    optional = flags & _GTP_OPTIONAL != 0
    walk.step(rows[~optional], stack.RAW, 8)
    rows, flags = rows[optional], flags[optional]
    extended = flags[walk.at[rows] + 12 <= walk.end[rows]] & _GTP_EXTENDED != 0
    rows = walk.reach(rows, 12)
    more = rows[extended & (walk.data[walk.at[rows] + 11] != 0)]
    walk.step(rows, stack.RAW, 12)
    for _ in range(_GTP_EXTENSIONS_MAX):
        more = walk.reach(more, 1)
        if not len(more):
            return
        size = walk.data[walk.at[more]].astype(np.int64) << 2
        walk.kind[more[size == 0]] = stack.NOWHERE
        more, size = more[size != 0], size[size != 0]
        whole = walk.at[more] + size <= walk.end[more]
        walk.kind[more[~whole]] = stack.CUT
        more, size = more[whole], size[whole]
        walk.at[more] += size
        more = more[walk.data[walk.at[more] - 1] != 0]
    walk.kind[more] = stack.NOWHERE


def _teredo(walk: Walk, rows: Ints) -> None:
    """IPv6 behind an authentication and an origin indication, each of which may be missing."""
    rows = walk.reach(rows, 4)
    at = walk.at[rows]
    signed = be16(walk.data, at) == _TEREDO_AUTHENTICATION
    sizes = walk.data[at + 2].astype(np.int64) + walk.data[at + 3] + 13
    walk.at[rows[signed]] += sizes[signed]
    rows = walk.reach(rows, 2)
    origin = be16(walk.data, walk.at[rows]) == _TEREDO_ORIGIN
    walk.at[rows[origin]] += 8
    rows = walk.reach(rows, 1)
    good = walk.data[walk.at[rows]] >> 4 == 6
    walk.step(rows, np.where(good, np.uint8(stack.IPV6), np.uint8(stack.NOWHERE)), 0)


STEPS: Final[Mapping[int, Step]] = {
    **LINK_STEPS,
    stack.UDP: _udp,
    stack.GRE: _gre,
    stack.ERSPAN_II: _erspan_ii,
    stack.ERSPAN_III: _erspan_iii,
    stack.ETHERIP: _etherip,
    stack.VXLAN: _vxlan,
    stack.GENEVE: _geneve,
    stack.GTPU: _gtpu,
    stack.TEREDO: _teredo,
}
"""All headers that may stand between an IP header and the next, link headers included."""
