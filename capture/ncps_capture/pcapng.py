"""pcapng as batches of frames. Pure: bytes in, batches out.

One idea: all blocks of a chunk are found first (``walk.py``), by the length that stands at both ends of each; the
packets among them are then read as columns, whatever interface they are of. Only a new section ends a chunk, because
it may turn the byte order. Unknown blocks and options are passed over by their lengths. Times are integers all the
way: each interface counts in units of its own, powers of ten or of two.
"""

from __future__ import annotations

import copy
import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from ncps_capture.capfacts import (
    BATCH_BYTES,
    BATCH_ROWS,
    MOST_SNAPLEN,
    SANE_CAPLEN,
    Bytes,
    Facts,
    Interface,
    Ints,
    Taken,
)
from ncps_capture.segments import UNKNOWN, Batch
from ncps_capture.walk import SECTION, PcapngBlocks, fields, meets, walk

MAGIC: Final = SECTION.to_bytes(4, "big")
_ORDERS: Final = {bytes.fromhex("1a2b3c4d"): ">", bytes.fromhex("4d3c2b1a"): "<"}

_INTERFACE: Final = 1
_OLD_PACKET: Final = 2
_SIMPLE_PACKET: Final = 3
_STATISTICS: Final = 5
_PACKET: Final = 6

_PACKET_HEAD: Final = 28  # type, length, interface, time (2), captured length, length: both kinds of packet
_SECTION_LEAST: Final = 28
_FIRST_SPAN: Final = 64 << 10
"""Many chains walk far ahead in vain where a section is short, so they go no further than some times its length yet."""
_INTERFACES_MOST: Final = 1 << 16
"""A file may describe as many as it has room for; packets of those above are counted and no more."""
_LEAST: Final = {_INTERFACE: 20, _OLD_PACKET: 32, _SIMPLE_PACKET: 16, _STATISTICS: 24, _PACKET: 32}
"""Type of a block -> bytes of the shortest."""
_OTHER_RECORDS: Final = (9, 0xBAD, 0x40000BAD)
"""A journal's entry and custom blocks: Wireshark gives them the number of a frame."""
_DROPCOUNT: Final = {_PACKET: 4, _OLD_PACKET: 3}
"""Packet block -> what its option of lost packets is called; the old block counts them in its head as well."""
_OLD_UNKNOWN_DROPS: Final = 0xFFFF
_UNKNOWN_COUNT: Final = (1 << 64) - 1
_IF_NAME: Final = 2
_IF_TSRESOL: Final = 9
_IF_TSOFFSET: Final = 14
_ISB_IFDROP: Final = 5
_ISB_OSDROP: Final = 7
_OPTIONS_MOST: Final = 64  # of a packet that are looked through

_NS: Final = 1_000_000_000
_LAST_SECOND: Final = (1 << 62) // _NS
"""About 146 years either side of 1970: time in nanoseconds can still be added up and subtracted in 64 bits."""

_WINDOW_NS: Final = 50_000_000
"""Frames may be handed on out of order by as much: half of what the handshake table puts right again."""
_SHORT_RUN: Final = 32
_LONGEST: Final = SANE_CAPLEN + MOST_SNAPLEN

U8 = npt.NDArray[np.uint64]


@dataclass
class _Described:
    """An interface of this section, with how it tells the time."""

    facts: Interface
    tsresol: int = 6
    tsoffset: int = 0  # seconds
    dropped: int = 0  # by the last statistics


class Pcapng:
    """Format of one pcapng file, from its very first byte on."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._order = "<"
        self._field = np.dtype("<u4")
        self._blocks = PcapngBlocks("<", _LONGEST)
        self._section: list[_Described] = []
        self._span = _FIRST_SPAN  # bytes walked at a time

    def take(self, data: Bytes, start: int) -> Taken:
        """Every whole block, up to one whose lengths contradict each other."""
        batches: list[Batch] = []
        at = 0
        while True:
            heads, end = walk(self._blocks, data[: at + self._span], at)
            more, fine = self._stretch(data, heads)
            batches += more
            if fine < len(heads):
                return self._damaged(batches, int(heads[fine]), start)
            at = end
            section = data[at : at + 4].tobytes() == MAGIC
            if not section and self._span < len(data):
                self._span *= 4
                continue
            size = self._begin_section(data, at) if section else self._blocks.size(data, at)
            if size == 0:
                return self._damaged(batches, at, start)
            if size is None or at + size > len(data):
                return Taken(batches, at, needs=size or 0)
            at += size

    def end(self, rest: int, start: int) -> None:
        """What the file ends in is reported, and not used; what could not be used is counted."""
        facts = self._facts
        if rest:
            facts.damaged = f"cut at byte {start}, behind record {facts.packets}"
            facts.warn(f"{facts.damaged}; not used")
        elif not facts.packets and not facts.damaged:
            facts.warn("it has a capture header and no packets")
        for count, why in (
            (facts.untimed, "no time, or none that can be"),
            (facts.unclaimed, "an interface it does not describe"),
        ):
            if count:
                facts.warn(f"{count} packet{'s' * (count != 1)} with {why}: counted, and no more")

    @property
    def current(self) -> list[Interface]:
        """See Format."""
        return [described.facts for described in self._section]

    @property
    def odd(self) -> bool:
        """See Format."""
        return self._facts.drops is not None

    def twin(self, facts: Facts) -> Pcapng:
        """See Format."""
        out = copy.copy(self)
        out._facts = facts
        out._section = [replace(each, facts=replace(each.facts, packets=0)) for each in self._section]
        facts.interfaces += out.current
        return out

    def meets(self, data: Bytes, boundary: int, like: Bytes) -> int | None:
        """See Format."""
        return meets(self._blocks, self._blocks.looks(like, 0), data, boundary)

    def _damaged(self, batches: list[Batch], at: int, start: int) -> Taken:
        facts = self._facts
        facts.damaged = f"damaged at byte {start + at}, record {facts.packets + 1}"
        facts.warn(f"{facts.damaged}; stopped there")
        return Taken(batches, at, stop=True)

    def _begin_section(self, data: Bytes, at: int) -> int | None:
        """Size of the section header, as ``size`` of Records says it; if it is whole, its section begins."""
        if at + 12 > len(data):
            return None
        order = _ORDERS.get(data[at + 8 : at + 12].tobytes())
        if order is None:
            return 0
        blocks = PcapngBlocks(order, _LONGEST)
        size = blocks.size(data, at)
        if size is None or size < _SECTION_LEAST:
            return size and 0
        if at + size <= len(data):
            self._order, self._field, self._blocks = order, np.dtype(f"{order}u4"), blocks
            self._section, self._span = [], _FIRST_SPAN
        return size

    def _stretch(self, data: Bytes, heads: Ints) -> tuple[list[Batch], int]:
        """Batches of these blocks, and how many of the blocks are as long as what they have to hold."""
        if not len(heads):
            return [], 0
        head = self._heads(data, heads)
        kind, size = head[:, 0], head[:, 1]
        packet = (kind == _PACKET) | (kind == _OLD_PACKET)
        fine = np.ones(len(heads), np.bool_)
        for name, least in _LEAST.items():
            fine &= (kind != name) | (size >= least)
        fine &= ~packet | (head[:, 5] <= size - _PACKET_HEAD - 4)
        stop = len(heads) if fine.all() else int(np.argmin(fine))
        heads, kind, size = heads[:stop], kind[:stop], size[:stop]
        described = np.flatnonzero(kind == _INTERFACE)
        before = len(self._section)
        for at, length in zip(heads[described].tolist(), size[described].tolist(), strict=True):
            self._describe(data[at : at + length - 4].tobytes())
        # Number of interfaces that were described when a block was written.
        known = np.minimum(before + np.searchsorted(described, np.arange(stop)), len(self._section))
        for row in np.flatnonzero(kind == _STATISTICS).tolist():
            at = int(heads[row])
            self._statistics(data[at : at + int(size[row]) - 4].tobytes(), int(known[row]))
        rows = np.flatnonzero(np.isin(kind, (_PACKET, _OLD_PACKET, _SIMPLE_PACKET, *_OTHER_RECORDS)))
        if not len(rows):
            return [], stop
        if len(rows) < len(head):
            heads, head, known = heads[rows], head[rows], known[rows]
        return self._packets(data, heads, head, known), stop

    def _heads(self, data: Bytes, heads: Ints) -> Ints:
        """The first seven fields of each block: kind, size, and what a packet has there; in one go over the bytes."""
        far = int(np.searchsorted(heads, len(data) - _PACKET_HEAD, "right"))
        if far == len(heads):
            return fields(data, heads, _PACKET_HEAD // 4, self._field)
        out = np.zeros((len(heads), _PACKET_HEAD // 4), np.int64)  # the last blocks may be shorter than seven fields
        out[:far] = fields(data, heads[:far], _PACKET_HEAD // 4, self._field)
        out[far:, :2] = fields(data, heads[far:], 2, self._field)
        return out

    def _packets(self, data: Bytes, heads: Ints, head: Ints, known: Ints) -> list[Batch]:
        facts = self._facts
        first = facts.packets + 1
        facts.packets += len(heads)
        kind, size = head[:, 0], head[:, 1]
        interface = np.where(kind == _SIMPLE_PACKET, 0, head[:, 2])
        old = np.flatnonzero(kind == _OLD_PACKET)
        if len(old):
            halves = [head[old, 2] >> 16, head[old, 2] & 0xFFFF]
            interface[old], dropped = halves if self._order == ">" else halves[::-1]
            if (said := dropped[dropped != _OLD_UNKNOWN_DROPS]).size:
                self._lost(int(said.sum()))
        full = (kind == _PACKET) | (kind == _OLD_PACKET)
        options = heads + _PACKET_HEAD + ((head[:, 5] + 3) & ~3)
        told = np.flatnonzero(full & (options + 4 <= heads + size - 4))
        self._dropcounts(data, options[told], (heads + size - 4)[told], kind[told])
        other = np.isin(kind, _OTHER_RECORDS)
        claimed = (interface < known) & ~other
        unclaimed = int(np.count_nonzero(~claimed & ~other))
        facts.unclaimed += unclaimed
        link = np.zeros(len(heads), np.int64)
        t_ns = np.full(len(heads), UNKNOWN)
        for number in np.flatnonzero(np.bincount(interface[claimed])).tolist():
            described = self._section[number]
            rows = np.flatnonzero(claimed & (interface == number))
            described.facts.packets += len(rows)
            link[rows] = described.facts.link_type
            rows = rows[kind[rows] != _SIMPLE_PACKET]
            stamp = head[rows, 3].astype(np.uint64) << np.uint64(32) | head[rows, 4].astype(np.uint64)
            t_ns[rows] = nanoseconds(stamp, described.tsresol, described.tsoffset)
        rows = np.flatnonzero(t_ns != UNKNOWN)
        facts.untimed += len(heads) - len(rows) - unclaimed
        return [
            Batch(
                data=data,
                offsets=heads[part] + _PACKET_HEAD,
                caplens=head[part, 5],
                lengths=head[part, 6],
                t_ns=t_ns[part],
                link_type=int(link[part[0]]),
                first_frame=first + int(part[0]),
                source=facts.source,
                frames=None if part[-1] - part[0] == len(part) - 1 else part + first,
            )
            for part in _parts(rows, link[rows], t_ns[rows], heads[rows])
        ]

    def _describe(self, block: bytes) -> None:
        link_type, snaplen = struct.unpack_from(f"{self._order}H2xI", block, 8)
        described = _Described(Interface(link_type, snaplen))
        for code, value in self._options(block, 16):
            if code == _IF_NAME:
                described.facts.name = value.decode("utf-8", "replace").rstrip("\0")
            elif code == _IF_TSRESOL and len(value) == 1:
                described.tsresol = value[0]
            elif code == _IF_TSOFFSET and len(value) == 8:
                (described.tsoffset,) = struct.unpack(f"{self._order}q", value)
        if len(self._facts.interfaces) < _INTERFACES_MOST:
            self._section.append(described)
            self._facts.interfaces.append(described.facts)

    def _statistics(self, block: bytes, known: int) -> None:
        """Counters since the capture began: of several blocks of one interface, the last one says it."""
        (number,) = struct.unpack_from(f"{self._order}I", block, 8)
        counts = [
            count
            for code, value in self._options(block, 20)
            if code in (_ISB_IFDROP, _ISB_OSDROP) and len(value) == 8
            for count in struct.unpack(f"{self._order}Q", value)
            if count != _UNKNOWN_COUNT
        ]
        if counts and number < known:
            described = self._section[number]
            self._lost(sum(counts) - described.dropped)
            described.dropped = sum(counts)

    def _options(self, block: bytes, at: int) -> Iterator[tuple[int, bytes]]:
        while at + 4 <= len(block):
            code, length = struct.unpack_from(f"{self._order}HH", block, at)
            if code == 0 or at + 4 + length > len(block):
                return
            yield code, block[at + 4 : at + 4 + length]
            at += 4 + (length + 3 & ~3)

    def _dropcounts(self, data: Bytes, at: Ints, end: Ints, kind: Ints) -> None:
        """Add up what packets say was lost before them: one option of each of them at a step."""
        for _ in range(_OPTIONS_MOST):
            on = np.flatnonzero(at + 4 <= end)
            if not len(on):
                return
            at, end, kind = at[on], end[on], kind[on]
            word = fields(data, at, 1, self._field)[:, 0]
            code, length = (word >> 16, word & 0xFFFF) if self._order == ">" else (word & 0xFFFF, word >> 16)
            wanted = np.where(kind == _PACKET, _DROPCOUNT[_PACKET], _DROPCOUNT[_OLD_PACKET])
            told = np.flatnonzero((code == wanted) & (length == 8) & (at + 12 <= end))
            for place in at[told].tolist():
                (count,) = struct.unpack_from(f"{self._order}Q", data.data, place + 4)
                if count != _UNKNOWN_COUNT:
                    self._lost(count)
            at = np.where(code == 0, end, at + 4 + ((length + 3) & ~3))

    def _lost(self, count: int) -> None:
        self._facts.drops = (self._facts.drops or 0) + count


def nanoseconds(stamp: U8, tsresol: int, tsoffset: int) -> Ints:
    """Time stamps of an interface as nanoseconds since 1970, rounded down; UNKNOWN where no clock can have said so.

    ``tsresol``: units in a second are this power of ten, or with the top bit set of two; ``tsoffset``: seconds to be
    added. All integers: products stay below 2^63 because seconds and their fraction are converted apart.
    """
    power = tsresol & 0x7F
    if tsresol & 0x80:
        seconds, ns = _of_two(stamp, power)
    else:
        seconds, ns = _of_ten(stamp, power)
    most = np.uint64(1 << 62)
    total = np.minimum(seconds, most).astype(np.int64) + max(min(tsoffset, 1 << 61), -(1 << 62))
    known = np.abs(total) <= _LAST_SECOND
    return np.where(known, np.where(known, total, 0) * _NS + ns.astype(np.int64), UNKNOWN)


def _of_ten(stamp: U8, power: int) -> tuple[U8, U8]:
    if power > 28:  # not one nanosecond in 64 bits
        return np.zeros_like(stamp), np.zeros_like(stamp)
    if power > 19:
        return np.zeros_like(stamp), stamp // np.uint64(10 ** (power - 9))
    seconds, rest = np.divmod(stamp, np.uint64(10**power))
    return seconds, rest * np.uint64(10 ** (9 - power)) if power <= 9 else rest // np.uint64(10 ** (power - 9))


def _of_two(stamp: U8, power: int) -> tuple[U8, U8]:
    billion, half = np.uint64(_NS), np.uint64(32)
    seconds = stamp >> np.uint64(power) if power < 64 else np.zeros_like(stamp)
    rest = stamp & np.uint64((1 << min(power, 64)) - 1)
    if power <= 32:
        return seconds, rest * billion >> np.uint64(power)
    # Upper and lower half by themselves; what of the lower one is lost by shifting it first is below one unit.
    high = (rest >> half) * billion + ((rest & np.uint64(0xFFFFFFFF)) * billion >> half)
    return seconds, high >> np.uint64(min(power - 32, 63))


def _parts(rows: Ints, link: Ints, t_ns: Ints, heads: Ints) -> list[Ints]:
    """``rows`` in batches of one link type: runs of them, or where these are short, sorted within a little time."""
    if not len(rows):
        return []
    cut = np.diff(link) != 0
    if np.count_nonzero(cut) * _SHORT_RUN > len(rows):
        window = np.cumsum(np.append(0, np.diff(t_ns // _WINDOW_NS) != 0))
        order = np.lexsort((link, window))
        rows, heads = rows[order], heads[order]
        cut = (np.diff(link[order]) != 0) | (np.diff(window[order]) != 0)
    size = np.arange(len(rows)) // BATCH_ROWS + (heads - heads[0]) // BATCH_BYTES
    return np.split(rows, np.flatnonzero(cut | (np.diff(size) != 0)) + 1)
