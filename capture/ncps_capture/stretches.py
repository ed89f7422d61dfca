"""One stretch of a saved capture, read without what stands before it. Edge: reads a file at places.

It must not know who asks. The one idea: a stretch is the records that are whole before its end and not before its
beginning; where the first of them starts is guessed from a chain of records that leads there. A guess is proven by
the stretch before, which must end where this one begins; so stretches can be read at the same time, and what comes
of them is the same as if they had been read in order. Whatever is out of the ordinary (damage, a new interface, a
guess that fails) makes no stretch at all: a plain reader is for that.

ACKs that answer what an earlier stretch awaits are known to that one only: each stretch tells the numbers and the
places of all its ACKs, and ``frames`` reads the few that are asked for afterwards.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ncps_capture.acks import AckWatch, Awaited, Ints, Words
from ncps_capture.capfacts import Bytes, Facts, Format
from ncps_capture.decode import decode
from ncps_capture.rows import distinct, join
from ncps_capture.segments import SEGMENT, Batch, Books, Segments

STRETCH_BYTES: Final = 8 << 20
LEAD: Final = 64 << 10
"""Bytes before a stretch that a guess may begin in: some hundred records lead to the boundary, and prove it well."""

_AT_ONCE: Final = 1 << 20

Times = tuple[int, int, int]
"""First, last and latest of some frames, ns."""


U4 = npt.NDArray[np.uint32]


@dataclass(frozen=True)
class Frames:
    """Where the frames of a stretch are, those without a time left out. One element a frame."""

    at: U4  # its first byte, from the stretch's first
    caplens: U4
    lengths: U4
    links: U4  # link type
    numbers: U4
    t_ns: Ints


@dataclass(frozen=True)
class Acks:
    """All with ACK and neither SYN nor RST. One element an ACK."""

    words: U4  # its number as it lies in memory, read as little-endian
    ports: U4  # both ports likewise
    rows: U4  # which of the frames it is


@dataclass(frozen=True)
class Stretch:
    """What was read. Frame numbers count from 1 at the first record of the stretch."""

    start: int  # byte of the file that its first record starts at
    end: int  # ... that the first record behind it starts at
    segments: Segments  # in frame order, as ``decode`` makes them
    frames: Frames
    acks: Acks
    awaited: Awaited
    books: Books
    packets: int  # all records, those without a time included
    untimed: int
    unclaimed: int
    by_interface: tuple[int, ...]  # packets of each of the format's current interfaces
    times: Times | None  # None if no frame has a time


class StretchReader:
    """Reads stretches of one file, whose format has been met: ``form`` is as it is behind the record ``like``."""

    def __init__(self, descriptor: int, form: Format, source: int, like: Bytes) -> None:
        self._descriptor = descriptor
        self._form = form
        self._source = source
        self._like = like
        self._data: Bytes = np.zeros(0, np.uint8)
        self._afresh()

    def _afresh(self) -> None:
        self._facts = Facts("", self._source)
        self._twin = self._form.twin(self._facts)
        self._current = self._twin.current

    def read(self, begin: int, end: int, exact: bool = False) -> Stretch | None:
        """The stretch of the bytes ``begin`` to ``end``; ``exact``: a record starts at ``begin``. None if it is odd."""
        lead = 0 if exact else min(LEAD, begin)
        if len(self._data) < end - begin + lead:
            self._data = np.empty(end - begin + lead, np.uint8)
        data = self._data[: end - begin + lead]  # used again for the next stretch: all that is told of one is copied
        if read_at(self._descriptor, begin - lead, data) < len(data):
            return None
        first = 0 if exact else self._twin.meets(data, lead, self._like)
        if first is None:
            return None
        start = begin - lead + first
        facts = self._facts
        facts.packets = facts.untimed = facts.unclaimed = 0
        for interface in self._current:
            interface.packets = 0
        taken = self._twin.take(data[first:], start)
        now = self._twin.current
        same = len(now) == len(self._current) and all(a is b for a, b in zip(now, self._current, strict=True))
        if taken.stop or not same or self._twin.odd or facts.warnings or not facts.packets:
            self._afresh()
            return None
        self._like = data[first : first + 64].copy()
        watch = _NotingWatch()
        books = Books()
        parts = []
        times: Times | None = None
        for batch in taken.batches:
            segments, of_batch = decode(batch, tunnels=True, acks=watch)
            watch.behind(len(batch.t_ns))
            books += of_batch
            if len(segments):
                parts.append(segments)
            if len(batch.t_ns):
                times = joined(times, (int(batch.t_ns[0]), int(batch.t_ns[-1]), int(batch.t_ns.max())))
        return Stretch(
            start,
            start + taken.used,
            join(parts) if parts else np.zeros(0, SEGMENT),
            _places(taken.batches),
            watch.noted(),
            watch.awaited,
            books,
            facts.packets,
            facts.untimed,
            facts.unclaimed,
            tuple(interface.packets for interface in self._current),
            times,
        )

    def frames(self, stretch: Stretch, rows: U4) -> list[Batch]:
        """Some of the frames of a stretch, read again: a batch of each link type."""
        links = stretch.frames.links[rows]
        return [self._frames(stretch, rows[links == kind], kind) for kind in distinct(links).tolist()]

    def _frames(self, stretch: Stretch, rows: U4, link_type: int) -> Batch:
        frames = stretch.frames
        caplens = frames.caplens[rows].astype(np.int64)
        ends = np.cumsum(caplens)
        data = np.zeros(int(ends[-1]), np.uint8)
        for at, low, high in zip(frames.at[rows].tolist(), (ends - caplens).tolist(), ends.tolist(), strict=True):
            read_at(self._descriptor, stretch.start + at, data[low:high])
        return Batch(
            data=data,
            offsets=ends - caplens,
            caplens=caplens,
            lengths=frames.lengths[rows].astype(np.int64),
            t_ns=frames.t_ns[rows],
            link_type=link_type,
            first_frame=1,
            source=self._source,
            frames=frames.numbers[rows].astype(np.int64),
        )


class _NotingWatch(AckWatch):
    """Notes all ACKs, for watches that know more."""

    def __init__(self) -> None:
        super().__init__()
        self._words: list[Words] = []
        self._ports: list[Words] = []
        self._rows: list[Ints] = []
        self._before = 0  # rows of earlier batches

    def behind(self, count: int) -> None:
        """A batch of so many rows is done."""
        self._before += count

    def may_matter(self, words: Words, ports: Words, rows: Ints) -> Ints:
        """See AckWatch."""
        self._words.append(words)
        self._ports.append(ports)
        self._rows.append(rows + self._before)
        return super().may_matter(words, ports, rows)

    def noted(self) -> Acks:
        """All so far."""
        return Acks(_column(self._words), _column(self._ports), _column(self._rows))


def _places(batches: Sequence[Batch]) -> Frames:
    numbers = [
        np.arange(batch.first_frame, batch.first_frame + len(batch.t_ns)) if batch.frames is None else batch.frames
        for batch in batches
    ]
    return Frames(
        _column([batch.offsets for batch in batches]),
        _column([batch.caplens for batch in batches]),
        _column([batch.lengths for batch in batches]),
        _column([np.full(len(batch.t_ns), batch.link_type) for batch in batches]),
        _column(numbers),
        np.concatenate([batch.t_ns for batch in batches]) if batches else np.zeros(0, np.int64),
    )


def _column(parts: Sequence[npt.NDArray[Any]]) -> U4:
    out = np.empty(sum(map(len, parts)), np.uint32)
    at = 0
    for part in parts:
        out[at : at + len(part)] = part
        at += len(part)
    return out


def joined(before: Times | None, behind: Times) -> Times:
    """Times of frames that stand one behind the other."""
    return behind if before is None else (before[0], behind[1], max(before[2], behind[2]))


def read_at(descriptor: int, at: int, data: Bytes) -> int:
    """Fill ``data`` with what the file has from byte ``at`` on; how much that is."""
    view: Any = data.data
    filled = 0
    while filled < len(data) and (more := os.preadv(descriptor, [view[filled : filled + _AT_ONCE]], at + filled)):
        filled += more
    return filled
