"""Several captures as one stream in time order (edge).

One idea: a batch may go out as far as the next capture's next frame, and a little further: so far as the handshake
table puts right what comes out of order. The files of a ring buffer then pass whole, one behind the other, and
captures of the same time take turns by pieces instead of frame by frame. A file is looked into at the start, for the
time of its first frame, and opened again when that time comes, so a thousand files need no thousand descriptors.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO, Final

import numpy as np

from ncps_capture.capfacts import Interface
from ncps_capture.capfile import CHUNK_BYTES, CaptureFile, open_capture
from ncps_capture.segments import Batch

SLACK_NS: Final = 50_000_000
"""How far frames may be out of order between files: half of what the handshake table puts right again."""
_LOOK_BYTES: Final = 64 << 10

Named = str | Path | BinaryIO


class MergedCapture:
    """Captures to be read as one; the facts are those of a CaptureFile, summed over ``files``, given order.

    The number of a frame counts in its own file, whose index is ``source``.
    """

    def __init__(self, names: Iterable[Named], slack_ns: int = SLACK_NS) -> None:
        self._slack_ns = slack_ns
        self._waiting = [_Waiting(name, source) for source, name in enumerate(names)]

    @property
    def files(self) -> list[CaptureFile]:
        """One a name, in the order given."""
        return [waiting.file for waiting in self._waiting]

    @property
    def warnings(self) -> list[str]:
        """All files', each line with the name of its file."""
        return [line for file in self.files for line in file.warnings]

    @property
    def packets(self) -> int:
        """Packets in all files."""
        return sum(waiting.file.packets for waiting in self._waiting if waiting.begun)

    @property
    def untimed(self) -> int:
        """Of ``packets``, those without a usable time."""
        return sum(file.untimed for file in self.files)

    @property
    def unclaimed(self) -> int:
        """Of ``packets``, those of interfaces that are not described."""
        return sum(file.unclaimed for file in self.files)

    @property
    def interfaces(self) -> list[Interface]:
        """Interfaces of all files."""
        return [each for file in self.files for each in file.interfaces]

    @property
    def drops(self) -> int | None:
        """Losses that the files tell of; None if none of them tells."""
        told = [file.drops for file in self.files if file.drops is not None]
        return sum(told) if told else None

    @property
    def damaged(self) -> str | None:
        """The first damage, with the name of its file."""
        return next((f"{file.name}: {file.damaged}" for file in self.files if file.damaged), None)

    @property
    def bytes_read(self) -> int:
        """Bytes of the files read so far."""
        return sum(waiting.file.bytes_read for waiting in self._waiting if waiting.begun)

    @property
    def size(self) -> int | None:
        """Bytes of all files; None if one is a pipe."""
        sizes = [file.size for file in self.files]
        known = [size for size in sizes if size is not None]
        return sum(known) if len(known) == len(sizes) else None

    @property
    def link_type(self) -> int:
        """Of the first file."""
        return self.files[0].link_type

    def batches(self, chunk_bytes: int = CHUNK_BYTES) -> Iterator[Batch]:
        """Every frame that has a time, in time order within ``slack_ns``; of one file in its own order."""
        # (time of the next frame, source, its batch, the rest): no two entries are of one source.
        heads: list[tuple[int, int, Batch | None, Iterator[Batch] | None]] = [
            (t_ns, source, None, None)
            for source, waiting in enumerate(self._waiting)
            if (t_ns := waiting.first_t_ns) is not None
        ]
        heapq.heapify(heads)
        while heads:
            _, source, batch, rest = heapq.heappop(heads)
            if rest is None:
                rest = self._waiting[source].batches(chunk_bytes)
            if batch is None:
                batch = next(rest, None)
            if batch is None:
                continue
            count = _until(batch, heads[0][0] + self._slack_ns) if heads else len(batch.t_ns)
            yield _rows(batch, 0, count)
            left = _rows(batch, count, len(batch.t_ns)) if count < len(batch.t_ns) else next(rest, None)
            if left is not None:
                heapq.heappush(heads, (int(left.t_ns[0]), source, left, rest))


class _Waiting:
    """A capture that has been looked into; it is read when its time comes."""

    def __init__(self, name: Named, source: int) -> None:
        self._name = name
        self.file = open_capture(name, source)
        # What gives its bytes only once stays open, and what was seen of it is kept.
        self._again = isinstance(name, (str, Path)) and str(name) != "-" and self.file.size is not None
        self._seen = self.file.batches(_LOOK_BYTES if self._again else CHUNK_BYTES)
        self._first = next(self._seen, None)
        self.first_t_ns = None if self._first is None else int(self._first.t_ns[0])
        self.begun = self._first is None or not self._again
        if self._again and self._first is not None:
            self.file.close()
            self._seen, self._first = iter(()), None  # which hold the bytes that were looked at

    def batches(self, chunk_bytes: int) -> Iterator[Batch]:
        """All batches of the file, the one looked at included."""
        self.begun = True
        if self._again:
            self.file = open_capture(self._name, self.file.source)
            yield from self.file.batches(chunk_bytes)
        elif self._first is not None:
            yield self._first
            yield from self._seen


def open_captures(names: Sequence[Named], slack_ns: int = SLACK_NS) -> CaptureFile | MergedCapture:
    """Open one capture or several: names as for ``open_capture``. FileFault names the first that cannot be read."""
    return open_capture(names[0]) if len(names) == 1 else MergedCapture(names, slack_ns)


def _until(batch: Batch, t_ns: int) -> int:
    """Rows before the first that is later than this; the first row is not."""
    late = batch.t_ns > t_ns
    return max(int(np.argmax(late)), 1) if late.any() else len(late)


def _rows(batch: Batch, start: int, stop: int) -> Batch:
    """Some rows in a row of a batch, which shares its bytes."""
    if start == 0 and stop == len(batch.t_ns):
        return batch
    part = slice(start, stop)
    return replace(
        batch,
        offsets=batch.offsets[part],
        caplens=batch.caplens[part],
        lengths=batch.lengths[part],
        t_ns=batch.t_ns[part],
        first_frame=batch.first_frame + start if batch.frames is None else int(batch.frames[start]),
        frames=None if batch.frames is None else batch.frames[part],
    )
