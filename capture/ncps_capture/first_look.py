"""The question that settles nearly every frame: is this plain TCP over IP, and does it open or refuse? Pure.

It must not read more than that; whoever asked reads the few rows that answer yes, and all the slow ways are for the
rest. The one idea: the bytes that decide lie within one or two cache lines, so they are copied out once, a frame a
row, and asked in whole words, in blocks of rows whose copies stay in the cache.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from ncps_capture.stack import Bytes, Ints

Bools = npt.NDArray[np.bool_]
Words = npt.NDArray[np.uint32]

_BLOCK: Final = 4096
_SYN_RST, _ACK = 0x0600, 0x1000
"""Flags of a TCP header, in the little-endian word that begins with its data offset."""


@dataclass(frozen=True)
class _Form:
    """What makes a header of one IP version plain. Words are little-endian and numbered from the IP header's first."""

    version: int
    header: int  # bytes of the IP header
    tests: tuple[tuple[int, int, int], ...]  # (word, mask, value)
    length_word: int  # where the announced length is, and the masks of its two bytes
    high: int
    low: int
    enough: int  # a low byte from which on flags lie inside the packet, in place
    ack_word: int


_FORMS: Final = (
    # 0x45; fragment offset 0; protocol 6.
    _Form(4, 20, ((0, 0xFF, 0x45), (1, 0xFF1F0000, 0), (2, 0xFF00, 0x0600)), 0, 0x00FF0000, 0xFF000000, 34 << 24, 7),
    # version 6; next header 6.
    _Form(6, 40, ((0, 0xF0, 0x60), (1, 0x00FF0000, 0x00060000)), 1, 0xFF, 0xFF00, 14 << 8, 12),
)


@dataclass(frozen=True)
class _Place:
    """Where IP begins behind one kind of link header, and what must stand before it."""

    net: int  # bytes before IP
    words: int  # of them, how many words at the end are copied too
    links: Mapping[int, tuple[tuple[int, int, int], ...]]  # by IP version: (word, mask, value), numbered back from IP
    worth: int = 1  # rows left over by the places before, from which on this one is tried
    tagged: bool = False


_TYPED: Final = {4: ((-1, 0xFFFF0000, 0x00080000),), 6: ((-1, 0xFFFF0000, 0xDD860000),)}
_TAGGED: Final = {version: ((-2, 0xFFFF0000, 0x00810000), *tests) for version, tests in _TYPED.items()}
_FAMILY: Final = {4: ((-1, 0xFFFFFFFF, 2),)}
"""In the byte order of nearly all machines; the other, and the several numbers of IPv6, take the slow way."""
_PLACES: Final[Mapping[int, tuple[_Place, ...]]] = {
    1: (_Place(14, 1, _TYPED), _Place(18, 2, _TAGGED, worth=512, tagged=True)),
    113: (_Place(16, 1, _TYPED),),
    **dict.fromkeys((0, 108), (_Place(4, 1, _FAMILY),)),
    **dict.fromkeys((12, 14, 101), (_Place(0, 0, {4: (), 6: ()}),)),
    228: (_Place(0, 0, {4: ()}),),
    229: (_Place(0, 0, {6: ()}),),
}
"""By link type."""


@dataclass(frozen=True)
class Plain:
    """Rows of plain TCP over one IP version. Rows are indices into the batch."""

    version: int
    net: int  # bytes from the start of a frame to its IP header
    tcp: int  # ... to its TCP header
    tagged: bool  # a VLAN tag ends four bytes before the IP header with the EtherType
    count: int  # TCP segments seen, the chosen ones included
    chosen: Ints  # rows with SYN or RST
    acks: Ints  # rows with ACK and neither, if asked for
    ack_words: Words  # their acknowledgement numbers as they lie in memory, read as little-endian
    ack_ports: Words  # their ports likewise


def first_look(
    data: Bytes, start: Ints, caplens: Ints, link_type: int, want_acks: bool
) -> tuple[list[Plain], Ints | None]:
    """Plain TCP of a batch, and the rows that are not plain; None if none is known to be.

    Arguments as in ``Batch``. ``want_acks``: tell the rows with ACK alone too.
    """
    plain: list[Plain] = []
    rest: Ints | None = None
    for place in _PLACES.get(link_type, ()):
        for form in _FORMS:
            if form.version in place.links and (rest is None or len(rest) >= place.worth):
                seen, rest = _ask(form, place, data, start, caplens, rest, want_acks)
                plain.append(seen)
    return plain, rest


def _ask(
    form: _Form,
    place: _Place,
    data: Bytes,
    start: Ints,
    caplens: Ints,
    rows: Ints | None,
    want_acks: bool,
) -> tuple[Plain, Ints]:
    count = 0
    chosen: list[Ints] = []
    acks: list[Ints] = []
    words: list[Words] = []
    ports: list[Words] = []
    others: list[Ints] = []
    tests = _pairs((*place.links[form.version], *form.tests), place.words)
    ack_word = place.words + form.ack_word
    skip, need = place.net - 4 * place.words, place.net + form.header + 14
    for low, at, long in _blocks(start, caplens, skip, need, rows):
        rows_of_bytes = _copy(data, at, 4 * (ack_word + 2) + 7 & ~7, long)
        head = rows_of_bytes.view("<u4").reshape(len(at), -1)
        pairs = rows_of_bytes.view("<u8").reshape(len(at), -1)
        good = long
        for pair, mask, value in tests:
            good = good & (pairs[:, pair] & mask == value)
        length = head[:, place.words + form.length_word]
        good &= (length & np.uint32(form.high) != 0) | (length & np.uint32(form.low) >= form.enough)
        flags = head[:, ack_word + 1]
        here = np.flatnonzero(good & (flags & np.uint32(_SYN_RST) != 0))
        found = int(np.count_nonzero(good))
        count += found
        chosen.append(here + low)
        if want_acks:
            here = np.flatnonzero(good & (flags & np.uint32(_SYN_RST | _ACK) == _ACK))
            acks.append(here + low)
            words.append(head[here, ack_word])
            ports.append(head[here, ack_word - 2])
        if found < len(at):
            others.append(np.flatnonzero(~good) + low)
    seen, left = _join(chosen), _join(others)
    ack_rows = _join(acks)
    ack_words, ack_ports = (np.concatenate(part) if part else np.zeros(0, np.uint32) for part in (words, ports))
    if rows is not None:
        seen, left, ack_rows = rows[seen], rows[left], rows[ack_rows]
    tcp = place.net + form.header
    return Plain(form.version, place.net, tcp, place.tagged, count, seen, ack_rows, ack_words, ack_ports), left


def _pairs(tests: tuple[tuple[int, int, int], ...], first: int) -> list[tuple[int, np.uint64, np.uint64]]:
    """The same tests on two words at a time; word 0 is the copy's word ``first``."""
    out: dict[int, tuple[int, int]] = {}
    for word, mask, value in tests:
        pair, shift = word + first >> 1, 32 * (word + first & 1)
        so_far = out.get(pair, (0, 0))
        out[pair] = (so_far[0] | mask << shift, so_far[1] | value << shift)
    return [(pair, np.uint64(mask), np.uint64(value)) for pair, (mask, value) in out.items()]


def _blocks(start: Ints, caplens: Ints, skip: int, need: int, rows: Ints | None) -> Iterator[tuple[int, Ints, Bools]]:
    """(number of its first row, where to read, whether the frame reaches to its flags), a block of rows at a time."""
    for low in range(0, len(start) if rows is None else len(rows), _BLOCK):
        which = slice(low, low + _BLOCK) if rows is None else rows[low : low + _BLOCK]
        yield low, start[which] + skip, caplens[which] >= need


def _copy(data: Bytes, at: Ints, width: int, long: Bools) -> npt.NDArray[np.void]:
    """The ``width`` bytes at each ``at``. A row that would leave the data becomes not ``long``."""
    last = len(data) - width
    if len(at) and (int(at.max()) > last or int(at.min()) < 0):
        inside = (at >= 0) & (at <= last)
        long &= inside
        at = np.where(inside, at, 0)
        if last < 0:
            return np.zeros(len(at), f"V{width}")
    rows: npt.NDArray[np.void] = np.ndarray((last + 1,), f"V{width}", data, 0, (1,))[at]
    return rows


def _join(parts: list[Ints]) -> Ints:
    if len(parts) == 1:
        return parts[0]
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)
