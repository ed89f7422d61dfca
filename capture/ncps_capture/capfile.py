"""Any saved capture as a stream of batches (edge).

One idea: three verbs in a row, each unaware of the others: read bytes (of a file, a pipe, standard input), decompress
them where their first bytes say so, let the format take what is whole of them. What is held at a time is a chunk and
the record that spans its end, so memory does not grow with the file.
"""

from __future__ import annotations

import io
import os
import select
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO, Final, Protocol, cast

import numpy as np

from ncps_capture.capfacts import Bytes, Facts, Format
from ncps_capture.compressed import Decompressed, kind_of
from ncps_capture.errors import FileFault
from ncps_capture.pcapfile import FILE_HEADER, MAGICS, Pcap
from ncps_capture.pcapng import MAGIC, Pcapng
from ncps_capture.segments import Batch
from ncps_capture.stretches import Stretch, StretchReader, read_at

CHUNK_BYTES: Final = 8 << 20


class _Stream(Protocol):
    damaged: str | None

    def readinto(self, view: memoryview) -> int:
        """Fill ``view`` as far as there is something; 0 only at the end."""


class CaptureFile(Facts):
    """One opened capture: iterate ``batches()`` once. Facts are complete afterwards.

    ``bytes_read`` of ``size`` tells the progress, in bytes of the file as it lies there, compressed or not; ``size``
    is None where it cannot be known (a pipe).
    """

    def __init__(self, name: str, source: int, file: BinaryIO, size: int | None) -> None:
        super().__init__(name, source)
        self.size = size
        self._raw = _Raw(name, file, pausing=size is None)
        try:
            self._stream: _Stream = self._raw
            head = self._raw.read_all(FILE_HEADER)
            kind = kind_of(head)
            if kind is not None:
                self._stream = Decompressed(name, kind, head, self._raw.read)
                head = _filled(self._stream, FILE_HEADER)
            self._format, used = self._recognise(head)
            self._rest: Bytes = np.frombuffer(head, np.uint8)[used:]
            self._start, self._needs, self._ended = FILE_HEADER - len(self._rest), 0, False
        except BaseException:
            file.close()
            raise

    @property
    def bytes_read(self) -> int:
        """Bytes of the file read so far."""
        return self._raw.count

    @property
    def ended(self) -> bool:
        """Whether all was read that can be."""
        return self._ended

    @property
    def link_type(self) -> int:
        """Of the first interface that has packets, or of the first at all; -1 if none is described."""
        used = [each for each in self.interfaces if each.packets] or self.interfaces
        return used[0].link_type if used else -1

    @property
    def position(self) -> int:
        """Byte of the file, or of what it was compressed from, that the next record starts at."""
        return self._start

    def batches(self, chunk_bytes: int = CHUNK_BYTES, pause: Callable[[], bool] = lambda: False) -> Iterator[Batch]:
        """Every frame that has a time, in file order; a batch is of one link type.

        About ``chunk_bytes`` are read at a time. FileFault if the file cannot be read; what is wrong *in* it ends the
        reading, or does not, and is told in ``warnings``. ``pause`` is asked behind each chunk: where it says so the
        reading ends early, and another call goes on there.
        """
        with ExitStack() as at_end:
            at_end.callback(self.close)
            while True:
                left = len(self._rest)
                data = np.empty(left + max(chunk_bytes, self._needs - left), np.uint8)
                data[:left] = self._rest
                self._rest = data[:0]  # and lets go of what was read before
                count = self._stream.readinto(data.data[left:])
                data = data[: left + count]
                taken = self._format.take(data, self._start)
                yield from taken.batches
                self._rest, self._start, self._needs = data[taken.used :], self._start + taken.used, taken.needs
                if taken.stop or not count:
                    break
                if pause():
                    at_end.pop_all()
                    return
            self._ended = True
            self._format.end(0 if taken.stop else len(self._rest), self._start)
            if not taken.stop and self.size is not None and (now := self._raw.size()) < self.size:
                self.damaged = f"cut to {now} of {self.size} bytes while it was read"
                self.warn(f"{self.damaged}; what is missing was not read")
            if self._stream.damaged:
                self.warn(self._stream.damaged)
                self.damaged = self._stream.damaged

    def stretch_reader(self) -> StretchReader | None:
        """Of the file from ``position`` on; None if it can only be read from its beginning to its end."""
        if self.size is None or self._stream is not self._raw or self._ended or not hasattr(os, "preadv"):
            return None
        like = np.zeros(64, np.uint8)
        read_at(self._raw.descriptor(), self._start, like)
        return StretchReader(self._raw.descriptor(), self._format, self.source, like)

    def skip(self, stretch: Stretch) -> None:
        """Take what begins at ``position`` as read: a stretch that was read otherwise."""
        self._rest = np.zeros(0, np.uint8)
        self._start, self._needs = stretch.end, 0
        self._raw.go_to(stretch.end)
        self.packets += stretch.packets
        self.untimed += stretch.untimed
        self.unclaimed += stretch.unclaimed
        for interface, count in zip(self._format.current, stretch.by_interface, strict=True):
            interface.packets += count

    def close(self) -> None:
        """Leave a capture whose batches are not wanted, or not all of them; closing twice is allowed."""
        self._rest = np.zeros(0, np.uint8)
        self._raw.close()

    def _recognise(self, head: bytes) -> tuple[Format, int]:
        """The format, and how much of the head it has used."""
        if head[:4] in MAGICS and len(head) == FILE_HEADER:
            return Pcap(self, head), FILE_HEADER
        if head[:4] == MAGIC:
            return Pcapng(self), 0
        if self._stream.damaged:
            reason = f"it is {self._stream.damaged}"
        elif not head:
            reason = "it is empty"
        elif head[:4] in MAGICS:
            reason = f"it is cut inside the capture header, at byte {len(head)}"
        else:
            reason = f"it is not a capture (it starts with {head[:4].hex(' ')})"
        raise FileFault(f"cannot read {self.name}: {reason}")


class _Raw:
    """The bytes as they lie there. From a pipe no more is waited for than the first of what a reader wants."""

    damaged: str | None = None

    def __init__(self, name: str, file: BinaryIO, pausing: bool) -> None:
        self.count = 0
        self._name = name
        self._file = file
        self._pausing = pausing

    def readinto(self, view: memoryview) -> int:
        """See _Stream."""
        filled = 0
        try:
            while filled < len(view) and (not filled or self._more_at_hand()):
                count = self._file.readinto(view[filled:])  # type: ignore[attr-defined]
                if not count:
                    break
                filled += count
        except OSError as error:
            raise FileFault(f"cannot read {self._name}: {error.strerror or error}") from error
        self.count += filled
        return filled

    def read(self, count: int) -> bytes:
        """At most ``count`` bytes; none only at the end."""
        data = bytearray(count)
        return bytes(memoryview(data)[: self.readinto(memoryview(data))])

    def read_all(self, count: int) -> bytes:
        """``count`` bytes, or fewer if the file ends."""
        return _filled(self, count)

    def _more_at_hand(self) -> bool:
        """Whether a read would not wait: what a slow writer has written is used before the next is waited for."""
        if not self._pausing:
            return True
        try:
            return bool(select.select([self._file], [], [], 0)[0])
        except (OSError, ValueError):  # no descriptor, or none that can be asked
            return False

    def descriptor(self) -> int:
        """Of the file."""
        return self._file.fileno()

    def size(self) -> int:
        """Bytes the file has now."""
        return os.fstat(self._file.fileno()).st_size

    def go_to(self, at: int) -> None:
        """Read from this byte on."""
        self.count = self._file.seek(at)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _filled(stream: _Stream, count: int) -> bytes:
    data = bytearray(count)
    view, filled = memoryview(data), 0
    while filled < count and (more := stream.readinto(view[filled:])):
        filled += more
    return bytes(view[:filled])


def open_capture(path: str | Path | BinaryIO, source: int = 0) -> CaptureFile:
    """Open a capture: a path, ``"-"`` for standard input, or a binary file object (which is closed at the end).

    pcap and pcapng, as they are or compressed, told by their first bytes. ``source`` is the number its frames carry.
    FileFault, in one line, if it is missing, a directory, not allowed, empty, or no capture.
    """
    if not isinstance(path, (str, Path)):
        return CaptureFile(str(getattr(path, "name", "the capture")), source, path, None)
    name = str(path)
    try:
        # Unbuffered: what a buffer has taken from a pipe, a question whether there is more would not see.
        file = io.FileIO(sys.stdin.fileno(), closefd=False) if name == "-" else io.FileIO(name)
        kind = os.fstat(file.fileno())
    except (OSError, ValueError) as error:
        raise FileFault(f"cannot read {name}: {getattr(error, 'strerror', None) or error}") from error
    size = kind.st_size if stat.S_ISREG(kind.st_mode) else None
    return CaptureFile("standard input" if name == "-" else name, source, cast(BinaryIO, file), size)
