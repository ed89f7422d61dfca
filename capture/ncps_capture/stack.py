"""A walk down the headers of many frames at once: where each frame stands, and what begins there. Pure.

It must not know any header: those are steps, in ``link.py``, ``exotic.py``, ``wlan.py`` and ``tunnels.py``. The one
idea: all frames that stand before the same kind of header take its step together, so a stack of any depth costs a
few column operations a layer. The walk ends at IP, at what is not IP, or where the capture was cut.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]

NOWHERE, CUT, IPV4, IPV6 = 0, 1, 4, 6
"""Where a walk ends: no IP in it, header not captured whole, IP. The last two are the version."""
_FIRST_STEP: Final = 8
(
    ETHERNET, VLAN, LLC, MPLS, MPLS_PAYLOAD, PPPOE, PPP, RAW, LOOPBACK, SLL, SLL2, PPP_HDLC, CHDLC,
    FABRIC_PATH, PBB, VNTAG, NFLOG, PKTAP, PPI, ERF, FDDI, IPOIB, WLAN, PRISM, RADIOTAP, AVS,
    UDP, GRE, ERSPAN_II, ERSPAN_III, ETHERIP, VXLAN, GENEVE, GTPU, TEREDO,
) = range(_FIRST_STEP, _FIRST_STEP + 35)  # fmt: skip
"""What begins where a frame stands."""

LAYERS_MAX: Final = 16
"""Headers of one walk. Deeper stacks are crafted; giving up keeps the loop bounded."""

LENGTHS_END: Final = 0x600
"""What stands in the place of an EtherType and is smaller is the length of an LLC frame."""


def _of_ethertypes() -> Bytes:
    kinds = np.zeros(1 << 16, np.uint8)
    kinds[:LENGTHS_END] = LLC
    tags = dict.fromkeys((0x8100, 0x88A8, 0x9100, 0x9200), VLAN)
    others = {
        0x0800: IPV4, 0x86DD: IPV6, 0x8847: MPLS, 0x8848: MPLS, 0x8864: PPPOE, 0x8903: FABRIC_PATH, 0x88E7: PBB,
        0x8926: VNTAG, 0x6558: ETHERNET, 0x880B: PPP,
    }  # fmt: skip
    for ethertype, kind in (tags | others).items():
        kinds[ethertype] = kind
    return kinds


OF_ETHERTYPE: Final = _of_ethertypes()
"""What an EtherType announces. (65536,) uint8."""


def be16(data: Bytes, at: Ints) -> Ints:
    """Big-endian 16-bit numbers at the given indices, which must lie inside ``data``. int64."""
    return (data[at].astype(np.int64) << 8) | data[at + 1]


def be24(data: Bytes, at: Ints) -> Ints:
    """Big-endian 24-bit numbers, as ``be16``."""
    return be16(data, at) << 8 | data[at + 2]


def le16(data: Bytes, at: Ints) -> Ints:
    """Little-endian 16-bit numbers, as ``be16``."""
    return data[at].astype(np.int64) | (data[at + 1].astype(np.int64) << 8)


def le32(data: Bytes, at: Ints) -> Ints:
    """Little-endian 32-bit numbers, as ``be16``."""
    return le16(data, at) | (le16(data, at + 2) << 16)


@dataclass
class Walk:
    """Some frames on their way down. One element a frame; steps change all but ``data`` and ``end``."""

    data: Bytes
    kind: Bytes  # what begins at ``at``, or where the walk ended
    at: Ints  # index into ``data``
    end: Ints  # first index that is not the frame's own
    vlan: npt.NDArray[np.uint16]  # innermost id
    tunnel: npt.NDArray[np.uint32]  # innermost id that is the same in both directions; 0 = none

    def reach(self, rows: Ints, size: int | Ints) -> Ints:
        """Those of ``rows`` with ``size`` more bytes; the walk of the others ends as CUT."""
        short = self.at[rows] + size > self.end[rows]
        if not short.any():
            return rows
        self.kind[rows[short]] = CUT
        return rows[~short]

    def step(self, rows: Ints, kind: int | Bytes, size: int | Ints) -> None:
        """Let ``rows`` stand ``size`` bytes further, before ``kind``."""
        self.kind[rows] = kind
        self.at[rows] += size


Step = Callable[[Walk, Ints], None]
"""Moves the given frames, all of which stand before one kind of header, behind it."""


def run(walk: Walk, steps: Mapping[int, Step]) -> None:
    """Walk until every frame has ended; what LAYERS_MAX headers do not settle is NOWHERE."""
    for _ in range(LAYERS_MAX):
        left = np.flatnonzero(walk.kind >= _FIRST_STEP)
        if not len(left):
            return
        kinds = walk.kind[left]
        for kind in np.flatnonzero(np.bincount(kinds)).tolist():
            steps[kind](walk, left[kinds == kind])
    walk.kind[walk.kind >= _FIRST_STEP] = NOWHERE
