"""Where the records of a capture start. Pure.

A record says where the next one starts, so a walk is a chain, and a chain in Python costs a quarter of a microsecond
a link. The one idea: guess record starts in hundreds of places and follow all their chains at once, one link of each
in one numpy step. What was guessed is then proven: the first chain starts where a record does, so wherever a chain
lands on the start of the next, that one was guessed right, and so on to the end. A chain whose start was wrong is
thrown away, and its stretch is walked plainly until it meets something known. So the result is that of a plain walk
on any bytes; guesses only decide how fast it comes.

Knows of a record no more than where its length stands and what cannot be one.
"""

from __future__ import annotations

import re
import struct
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

from ncps_capture.capfacts import Bytes, Ints
from ncps_capture.rows import distinct

_APART: Final = 8192  # bytes between guesses: some fifteen records of mixed traffic
_CHAINS: Final = 512
_WINDOW: Final = 2048  # bytes looked through for each guess; longer than a full Ethernet frame
_GUESSES_MOST: Final = 16  # that lead nowhere, before a boundary is given up
_PLAIN_CHAINS: Final = 32
"""A step costs the same for one chain as for hundreds: fewer than this are followed one by one."""

SECTION: Final = 0x0A0D0D0A
"""Type of a pcapng section header, the same in both byte orders."""

Lengths = npt.NDArray[np.uint32]


class Records(Protocol):
    """What the walk has to know of a kind of record."""

    least: int  # bytes of the shortest record, by which a walk gets on whatever it reads
    look: int  # byte of a record that ``looks`` begins with

    def follow(self, data: memoryview, at: int, stop: int, found: list[int]) -> int:
        """Append starts from ``at`` on while they are below ``stop`` and whole; where the last one ends."""

    def sizes(self, lengths: Lengths, at: Ints) -> Ints:
        """Bytes of the records at ``at`` by what they claim, at least ``least``."""

    def lengths(self, data: Bytes) -> Lengths:
        """Element i is the length that a record at byte i claims: a view, only as long as whole headers fit."""

    def wrong(self, data: Bytes, at: Ints, sizes: Ints) -> npt.NDArray[np.bool_]:
        """Whether these, which lie whole in ``data``, cannot be records."""

    def looks(self, data: Bytes, at: int) -> bytes:
        """Regular expression of how records of the kind at ``at`` look, from byte ``look`` of them on.

        It begins with letters, not wildcards: those are found at the speed of memchr.
        """

    def plausible(self, data: Bytes, at: Ints) -> npt.NDArray[np.bool_]:
        """Whether what stands at each index, and is found by ``looks``, seems to be a record."""


def walk(records: Records, data: Bytes, at: int = 0) -> tuple[Ints, int]:
    """Starts of the records that lie whole in ``data``, from ``at`` on, and where the last of them ends (int64).

    The walk ends before the first that is not whole or cannot be one.
    """
    cursors = _guess(records, data, at)
    if len(cursors) < _PLAIN_CHAINS:
        found: list[int] = []
        end = records.follow(data.data, at, len(data), found)
        return np.array(found, np.int64), end
    starts, end = _prove(records, data, cursors, *_follow_all(records, data, cursors))
    sizes = np.diff(starts, append=end)
    last = len(starts) - 1
    if starts[last] + sizes[last] > len(data):
        starts, sizes, end = starts[:last], sizes[:last], int(starts[last])
    wrong = np.flatnonzero(records.wrong(data, starts, sizes))
    if len(wrong):
        starts, end = starts[: wrong[0]], int(starts[wrong[0]])
    return starts, end


def meets(records: Records, looks: bytes, data: Bytes, boundary: int) -> int | None:
    """Start of the record that is the first to end behind ``boundary``, told without knowing any start before it.

    A guess found by ``looks`` in front of ``boundary`` is believed if a chain of records leads from it over the
    boundary; None if none does. It is no proof: payload may hold records of its own.
    """
    view = data.data
    guesses = 0
    for match in re.compile(looks, re.DOTALL).finditer(view, 0, boundary):
        at = match.start() - records.look
        if at < 0 or not records.plausible(data, np.array([at], np.int64))[0]:
            continue
        found: list[int] = []
        end = records.follow(view, at, boundary, found)
        if end == boundary:
            return boundary
        if end > boundary:
            return found[-1]
        guesses += 1
        if guesses == _GUESSES_MOST:
            break
    return None


def _guess(records: Records, data: Bytes, at: int) -> Ints:
    """``at`` and likely starts about equally far apart."""
    room = len(data) - at - 2 * _WINDOW
    count = min(_CHAINS, room // _APART)
    if count < _PLAIN_CHAINS:
        return np.array([at], np.int64)
    search = re.compile(records.looks(data, at), re.DOTALL).search
    apart = room // count & ~3
    places = range(at + apart, at + count * apart, apart)
    view = data.data
    matches = [match.start() for place in places if (match := search(view, place, place + _WINDOW))]
    found = distinct(np.array(matches, np.int64)) - records.look
    return np.append(at, found[records.plausible(data, found)])


def _follow_all(records: Records, data: Bytes, cursors: Ints) -> tuple[Ints, Ints]:
    """All starts on the chains, sorted, each chain up to the next one's cursor; and where each came out."""
    lengths = records.lengths(data)
    limits = np.minimum(np.append(cursors[1:], len(lengths)), len(lengths))
    landed = cursors.copy()
    live = np.flatnonzero(cursors < limits)
    at, limit = cursors[live], limits[live]
    columns = []
    while len(live) >= _PLAIN_CHAINS:
        columns.append(at)
        at = at + records.sizes(lengths, at)
        on = at < limit
        if not on.all():
            landed[live[~on]] = at[~on]
            at, limit, live = at[on], limit[on], live[on]
    known = columns
    view = data.data
    for chain, start, stop in zip(live.tolist(), at.tolist(), limit.tolist(), strict=True):
        found: list[int] = []
        landed[chain] = records.follow(view, start, stop, found)
        known.append(np.array(found, np.int64))
    return np.sort(np.concatenate(known)), landed


def _prove(records: Records, data: Bytes, cursors: Ints, known: Ints, landed: Ints) -> tuple[Ints, int]:
    """Of the starts in ``known`` those that are true, with those that no chain found; and where the last one ends."""
    strays = np.append(np.flatnonzero(landed[:-1] != cursors[1:]), len(cursors) - 1)
    if len(strays) == 1:
        return known, int(landed[-1])
    view = data.data
    proven = []
    at = int(cursors[0])
    while True:
        # ``at`` is true and on a chain; so is all that follows, up to where the next stray comes out.
        chain = int(np.searchsorted(cursors, at, "right")) - 1
        stray = int(strays[np.searchsorted(strays, chain)])
        stop = _next(cursors, stray, data)
        proven.append(known[slice(*np.searchsorted(known, (at, stop)).tolist())])
        at = int(landed[stray])
        while True:
            chain = int(np.searchsorted(cursors, at, "right")) - 1
            found: list[int] = []
            end = records.follow(view, at, _next(cursors, chain, data), found)
            if not found:
                return np.concatenate(proven), at
            plain = np.array(found, np.int64)
            met = np.flatnonzero(known[np.minimum(np.searchsorted(known, plain), len(known) - 1)] == plain)
            if len(met):
                proven.append(plain[: met[0]])
                at = int(plain[met[0]])
                break
            proven.append(plain)
            at = end


def _next(cursors: Ints, chain: int, data: Bytes) -> int:
    return int(cursors[chain + 1]) if chain + 1 < len(cursors) else len(data)


class PcapRecords:
    """Records of classic pcap: ``head`` bytes of header with the captured length in it, which is at most ``limit``."""

    def __init__(self, order: str, head: int, limit: int, fractions: int) -> None:
        self.least = head
        self._limit = limit
        self._fractions = fractions  # in a second
        self._length_at = struct.Struct(f"{order}8xI").unpack_from
        self._field = np.dtype(f"{order}u4")
        self.look = 0 if order == ">" else 2  # the upper half of the seconds

    def size(self, data: Bytes, at: int) -> int | None:
        """Bytes of the record at ``at``; 0 if it cannot be one, None if too little of it is there to tell."""
        if at + self.least > len(data):
            return None
        (caplen,) = self._length_at(data.data, at)
        return self.least + int(caplen) if caplen <= self._limit else 0

    def follow(self, data: memoryview, at: int, stop: int, found: list[int]) -> int:
        """See Records."""
        length_at, limit, head, end, append = self._length_at, self._limit, self.least, len(data), found.append
        last = min(stop - 1, end - head)
        while at <= last:
            (caplen,) = length_at(data, at)
            behind = at + head + caplen
            if caplen > limit or behind > end:
                break
            append(at)
            at = behind
        return at

    def lengths(self, data: Bytes) -> Lengths:
        """See Records."""
        return _every(data, self._field, 8, self.least)

    def sizes(self, lengths: Lengths, at: Ints) -> Ints:
        """See Records."""
        return lengths[at] + np.int64(self.least)

    def wrong(self, data: Bytes, at: Ints, sizes: Ints) -> npt.NDArray[np.bool_]:
        """See Records."""
        return sizes > self.least + self._limit

    def looks(self, data: Bytes, at: int) -> bytes:
        """See Records: seconds of the same eighteen hours, lengths below 65,536."""
        day = re.escape(data[at + self.look : at + self.look + 2].tobytes())
        return day + rb".{6}\0\0..\0\0"  # in both byte orders

    def plausible(self, data: Bytes, at: Ints) -> npt.NDArray[np.bool_]:
        """See Records: the fraction is one, and the lengths fit each other, here and in the two records behind."""
        out = np.ones(len(at), np.bool_)
        for _ in range(3):
            here = np.minimum(at, len(data) - self.least)
            head = fields(data, here, 4, self._field)
            fits = (head[:, 1] < self._fractions) & (head[:, 2] <= self._limit) & (head[:, 2] <= head[:, 3])
            out &= fits | (here != at)
            at = here + self.least + head[:, 2]
        return out


class PcapngBlocks:
    """Blocks of one pcapng section, other than its header: their length stands at both ends, at most ``limit``."""

    least = 12
    look = 0

    def __init__(self, order: str, limit: int) -> None:
        self._limit = limit
        self._order = order
        self._start_at = struct.Struct(f"{order}II").unpack_from
        self._length_at = struct.Struct(f"{order}I").unpack_from
        self._field = np.dtype(f"{order}u4")

    def size(self, data: Bytes, at: int) -> int | None:
        """Bytes of the block at ``at``; 0 if it cannot be one, None if too little of it is there to tell."""
        if at + self.least > len(data):
            return None
        (size,) = self._length_at(data.data, at + 4)
        if size < self.least or size & 3 or size > self._limit:
            return 0
        if at + size <= len(data) and self._length_at(data.data, at + size - 4) != (size,):
            return 0
        return int(size)

    def follow(self, data: memoryview, at: int, stop: int, found: list[int]) -> int:
        """See Records."""
        start_at, length_at, limit, end, append = self._start_at, self._length_at, self._limit, len(data), found.append
        last = min(stop - 1, end - self.least)
        while at <= last:
            kind, size = start_at(data, at)
            behind = at + size
            if kind == SECTION or size < 12 or size & 3 or size > limit or behind > end:
                break
            if length_at(data, behind - 4) != (size,):
                break
            append(at)
            at = behind
        return at

    def lengths(self, data: Bytes) -> Lengths:
        """See Records."""
        return _every(data, self._field, 4, self.least)

    def sizes(self, lengths: Lengths, at: Ints) -> Ints:
        """See Records."""
        return np.maximum(lengths[at], np.uint32(self.least)).astype(np.int64)

    def wrong(self, data: Bytes, at: Ints, sizes: Ints) -> npt.NDArray[np.bool_]:
        """See Records."""
        head = fields(data, at, 2, self._field)
        behind = fields(data, at + sizes - 4, 1, self._field)[:, 0]
        wrong: npt.NDArray[np.bool_] = (head[:, 0] == SECTION) | (head[:, 1] != sizes) | (behind != sizes)
        wrong |= (sizes & 3 != 0) | (sizes > self._limit)
        return wrong

    def looks(self, data: Bytes, at: int) -> bytes:
        """See Records: packets, whose length and interface number are below 65,536."""
        return rb"\0\0\0\x06\0\0..\0\0" if self._order == ">" else rb"\x06\0\0\0..\0\0..\0\0"

    def plausible(self, data: Bytes, at: Ints) -> npt.NDArray[np.bool_]:
        """See Records: the length is found again at the end."""
        size = fields(data, at + 4, 1, self._field)[:, 0]
        end = at + size - 4
        inside = (size >= self.least) & (size & 3 == 0) & (end <= len(data) - 4)
        behind = fields(data, np.where(inside, end, 0), 1, self._field)[:, 0]
        found: npt.NDArray[np.bool_] = inside & (behind == size)
        return found


def fields(data: Bytes, at: Ints, count: int, field: np.dtype[np.uint32]) -> Ints:
    """(n, count): the 32-bit fields one after the other from each index; they must lie in ``data``.

    A row is one opaque value to copy: a third of the cost of an index a byte.
    """
    width = 4 * count
    if not len(at):
        return np.zeros((0, count), np.int64)
    windows = np.ndarray((len(data) - width + 1,), np.dtype((np.void, width)), buffer=data, strides=(1,))
    return windows[at].view(field).reshape(-1, count).astype(np.int64)


def _every(data: Bytes, field: np.dtype[np.uint32], at: int, head: int) -> Lengths:
    return np.ndarray((max(len(data) - head + 1, 0),), field, data, at, (1,))
