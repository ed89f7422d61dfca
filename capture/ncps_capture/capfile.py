"""Any saved capture as a stream of batches (edge).

One idea: three verbs in a row, each unaware of the others: read bytes (a file, a pipe, standard input), decompress
them where their first bytes say so, let the format take what is whole of them. What is held at a time is a chunk and
the record that spans its end, so memory does not grow with the file.
"""

from __future__ import annotations

import io
import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

import numpy as np

from ncps_capture.capfacts import Facts, Format
from ncps_capture.errors import FileFault
from ncps_capture.pcapfile import FILE_HEADER, MAGICS, Pcap
from ncps_capture.segments import Batch

CHUNK_BYTES: Final = 8 << 20


class CaptureFile(Facts):
    """One opened capture: iterate ``batches()`` once. Facts are complete afterwards.

    ``bytes_read`` of ``size`` tells the progress, in bytes of the file as it lies there, compressed or not; ``size``
    is None where it cannot be known (a pipe).
    """

    def __init__(self, name: str, source: int, file: BinaryIO, size: int | None) -> None:
        super().__init__(name, source)
        self.size = size
        self.bytes_read = 0
        self._file = file
        try:
            self._head = np.frombuffer(self._read(FILE_HEADER), np.uint8)
            self._format: Format = self._recognise(self._head.tobytes())
        except BaseException:
            file.close()
            raise

    @property
    def link_type(self) -> int:
        """Of the first interface that has packets, or of the first at all."""
        used = [each for each in self.interfaces if each.packets]
        return (used or self.interfaces)[0].link_type

    def batches(self, chunk_bytes: int = CHUNK_BYTES) -> Iterator[Batch]:
        """Every frame that has a time, in file order; a batch is of one link type.

        About ``chunk_bytes`` are read at a time. FileFault if the file cannot be read; what is wrong *in* it ends the
        reading, or does not, and is told in ``warnings``.
        """
        with self._file:
            rest, start = self._head[FILE_HEADER:], FILE_HEADER
            needs = 0
            while True:
                more = self._read(max(chunk_bytes, needs - len(rest)))
                data = (
                    np.concatenate((rest, np.frombuffer(more, np.uint8)))
                    if len(rest)
                    else np.frombuffer(more, np.uint8)
                )
                taken = self._format.take(data, start)
                yield from taken.batches
                rest, start, needs = data[taken.used :], start + taken.used, taken.needs
                if taken.stop or not more:
                    self._format.end(0 if taken.stop else len(rest), start)
                    return

    def _recognise(self, head: bytes) -> Format:
        if not head:
            raise FileFault(f"cannot read {self.name}: it is empty")
        if head[:4] in MAGICS:
            if len(head) < FILE_HEADER:
                raise FileFault(f"cannot read {self.name}: it is cut inside the capture header, at byte {len(head)}")
            return Pcap(self, head)
        raise FileFault(f"cannot read {self.name}: it is not a capture (it starts with {head[:4].hex(' ')})")

    def _read(self, count: int) -> bytes:
        try:
            data = self._file.read(count)
        except OSError as error:
            raise FileFault(f"cannot read {self.name}: {error.strerror or error}") from error
        self.bytes_read += len(data)
        return data


def open_capture(path: str | Path | BinaryIO, source: int = 0) -> CaptureFile:
    """Open a capture: a path, ``"-"`` for standard input, or a binary file object (which is closed at the end).

    pcap and pcapng, as they are or compressed, told by their first bytes. ``source`` is the number its frames carry.
    FileFault, in one line, if it is missing, a directory, not allowed, empty, or no capture.
    """
    if not isinstance(path, (str, Path)):
        return CaptureFile(str(getattr(path, "name", "the capture")), source, path, None)
    if str(path) == "-":
        return CaptureFile("standard input", source, sys.stdin.buffer, None)
    try:
        file = io.FileIO(str(path))
        kind = os.fstat(file.fileno())
    except OSError as error:
        raise FileFault(f"cannot read {path}: {error.strerror or error}") from error
    return CaptureFile(str(path), source, file, kind.st_size if stat.S_ISREG(kind.st_mode) else None)
