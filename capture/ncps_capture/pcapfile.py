"""Saved captures, classic pcap, as batches of frames (edge).

One idea: find where the records start by a walk that looks at nothing but the lengths, then read all other
fields of a chunk of records as columns. Knows the file format and nothing of what is in the frames; never
libpcap, which refuses files that are perfectly readable. What is wrong with a file but does not stop the reading
is collected in ``warnings``, one line each.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Final

import numpy as np
import numpy.typing as npt

from ncps_capture.errors import FileFault
from ncps_capture.segments import Batch

_FILE_HEADER: Final = 24
_RECORD_HEADER: Final = 16
_SANE_CAPLEN: Final = 256 << 10  # libpcap's own limit; writers with a larger snaplen say so in the header
_CHUNK_BYTES: Final = 1 << 20  # the columns of a larger chunk no longer fit the cache

_MAGICS: Final = {
    bytes.fromhex("a1b2c3d4"): (">", 1000),
    bytes.fromhex("d4c3b2a1"): ("<", 1000),
    bytes.fromhex("a1b23c4d"): (">", 1),
    bytes.fromhex("4d3cb2a1"): ("<", 1),
}
"""First four bytes -> byte order, nanoseconds in one unit of the fraction of a second."""

_OTHERS: Final = {
    bytes.fromhex("0a0d0d0a"): "it is pcapng; convert it: editcap -F pcap IN OUT",
    bytes.fromhex("1f8b"): "it is gzip; gunzip it first",
}
"""What captures are often kept as instead: how it begins -> what it is and what to do."""


@dataclass
class PcapFile:
    """One opened capture. Iterate ``batches()`` once; ``warnings`` and ``packets`` are complete afterwards."""

    path: Path
    link_type: int
    snaplen: int  # as the header claims; 0 and lies occur
    source: int
    warnings: list[str] = field(default_factory=list)
    packets: int = 0
    _order: str = "<"
    _unit_ns: int = 1000
    _late_fractions: int = 0
    _header_only: bool = False

    def batches(self, chunk_bytes: int = _CHUNK_BYTES) -> Iterator[Batch]:
        """Every whole record, in file order, in batches of about ``chunk_bytes``.

        A record that the file ends in is reported and not used. A record whose length cannot be true stops the
        reading; all records before it have been handed on. FileFault if the file holds no record at all.
        """
        try:
            with self.path.open("rb") as file:
                file.seek(_FILE_HEADER)
                yield from self._walk(file, chunk_bytes)
        except OSError as error:
            raise FileFault(f"cannot read {self.path}: {error.strerror or error}") from error
        if self._header_only:
            raise FileFault(f"cannot read {self.path}: it has a capture header and no packets")
        if self._late_fractions:
            self.warnings.append(
                f"{self.path}: {self._late_fractions} records have a fraction of a second of 1 s or more; "
                f"it was added to the seconds"
            )

    def _walk(self, file: BinaryIO, chunk_bytes: int) -> Iterator[Batch]:
        lengths_at = struct.Struct(f"{self._order}8xI4x").unpack_from
        limit = _SANE_CAPLEN + self.snaplen
        rest, start = b"", _FILE_HEADER  # bytes not yet used, and where in the file they begin
        while True:
            more = file.read(chunk_bytes)
            chunk = rest + more
            heads: list[int] = []
            at, damaged = 0, False
            while at + _RECORD_HEADER <= len(chunk):
                (caplen,) = lengths_at(chunk, at)
                if caplen > limit:
                    damaged = True
                    break
                behind = at + _RECORD_HEADER + caplen
                if behind > len(chunk):
                    break
                heads.append(at)
                at = behind
            if heads:
                yield self._batch(chunk, np.array(heads, np.int64))
            rest, start = chunk[at:], start + at
            if damaged:
                self.warnings.append(f"{self.path}: damaged at byte {start}, record {self.packets + 1}; stopped there")
                return
            if not more:
                if rest:
                    self.warnings.append(f"{self.path}: cut inside record {self.packets + 1} at byte {start}; not used")
                self._header_only = start == _FILE_HEADER and not rest
                return

    def _batch(self, chunk: bytes, heads: npt.NDArray[np.int64]) -> Batch:
        data = np.frombuffer(chunk, np.uint8)
        record = np.dtype(f"{self._order}u4")
        fields = np.lib.stride_tricks.sliding_window_view(data, _RECORD_HEADER)[heads].view(record).astype(np.int64)
        fraction_ns = fields[:, 1] * self._unit_ns
        self._late_fractions += int(np.count_nonzero(fraction_ns >= 1_000_000_000))
        first_frame = self.packets + 1
        self.packets += len(heads)
        return Batch(
            data=data,
            offsets=heads + _RECORD_HEADER,
            caplens=fields[:, 2],
            lengths=fields[:, 3],
            t_ns=fields[:, 0] * 1_000_000_000 + fraction_ns,
            link_type=self.link_type,
            first_frame=first_frame,
            source=self.source,
        )


def open_pcap(path: str | Path, source: int = 0) -> PcapFile:
    """Open a classic pcap file (microseconds or nanoseconds, either byte order).

    ``source`` is the number its segments carry. FileFault says whether the file is missing, empty, of
    another kind (and how to convert it), or no capture.
    """
    path = Path(path)
    try:
        with path.open("rb") as file:
            head = file.read(_FILE_HEADER)
    except OSError as error:
        raise FileFault(f"cannot read {path}: {error.strerror or error}") from error
    if not head:
        raise FileFault(f"cannot read {path}: it is empty")
    if head[:4] not in _MAGICS:
        what = next((what for start, what in _OTHERS.items() if head.startswith(start)), None)
        if what is None:
            what = f"it is not a pcap capture (it starts with {head[:4].hex(' ')})"
        raise FileFault(f"cannot read {path}: {what}")
    if len(head) < _FILE_HEADER:
        raise FileFault(f"cannot read {path}: it is cut inside the capture header, at byte {len(head)}")
    order, unit_ns = _MAGICS[head[:4]]
    zone, _, snaplen, network = struct.unpack(f"{order}iIII", head[8:])
    opened = PcapFile(
        path,
        link_type=network & 0xFFFF,  # the upper bits tell the length of a frame check sequence
        snaplen=snaplen,
        source=source,
        _order=order,
        _unit_ns=unit_ns,
    )
    if zone:
        opened.warnings.append(f"{path}: the header's time zone of {zone} s is ignored: times are taken as UTC")
    return opened
