"""Frames to a classic pcap file, whole batches at a time (edge).

One idea: frames of equal length are copied in one assignment, and a capture of handshakes has very few
lengths; so no loop runs over packets. What the source could not tell, the length of a frame before it was cut, is
taken from the IP header. Knows nothing of TCP.
"""

from __future__ import annotations

import struct
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import numpy as np
import numpy.typing as npt

from ncps_capture.errors import FileFault
from ncps_capture.link import SUPPORTED, be16, find_network
from ncps_capture.segments import Batch

_RECORD_HEADER: Final = 16
_MICROSECONDS: Final = 0xA1B2C3D4
_NANOSECONDS: Final = 0xA1B23C4D
LINKTYPE_OF_DLT: Final = {12: 101, 14: 101}
"""What libpcap calls raw IP differs between systems; a file says 101 on all of them."""


class FrameFile:
    """A new file of packets, unbuffered; an existing one is replaced. FileFault when it cannot be made or written."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.packets = 0
        try:
            self._file = self.path.open("wb", buffering=0)
        except OSError as error:
            raise FileFault(f"cannot create {self.path}: {error.strerror or error}; choose another file") from error

    def close(self) -> None:
        """Close the file; closing twice is allowed."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _begin(self, head: bytes) -> None:
        """Write what the file begins with; it is closed if that fails."""
        try:
            self._write(head)
        except FileFault as fault:
            self._file.close()
            raise FileFault(f"{fault}; choose another file") from fault

    def _write(self, buffer: bytes | memoryview) -> None:
        view = memoryview(buffer)
        try:
            while view.nbytes:  # a nearly full disk takes a part
                view = view[self._file.write(view) :]
        except OSError as error:
            raise FileFault(f"cannot write {self.path}: {error.strerror or error}") from error


class PcapWriter(FrameFile):
    """Writes batches of one link type to a new pcap file; an existing file is replaced.

    ``snaplen`` is the length at which the source cut frames. Times are truncated to microseconds, unless
    ``nanoseconds``. FileFault when the file cannot be made or written.
    """

    def __init__(self, path: str | Path, link_type: int, snaplen: int, *, nanoseconds: bool = False) -> None:
        super().__init__(path)
        self._snaplen = snaplen
        self._unit_ns = 1 if nanoseconds else 1000
        network = LINKTYPE_OF_DLT.get(link_type, link_type)
        magic = _NANOSECONDS if nanoseconds else _MICROSECONDS
        self._begin(struct.pack("<IHHiIII", magic, 2, 4, 0, 0, snaplen, network))

    def write(self, batch: Batch) -> None:
        """Append every frame of ``batch``; it is with the operating system afterwards."""
        if len(batch.offsets) == 0:
            return
        heads = np.empty((len(batch.offsets), 4), "<u4")
        seconds, fraction = np.divmod(batch.t_ns, 1_000_000_000)
        heads[:, 0] = seconds
        heads[:, 1] = fraction // self._unit_ns
        heads[:, 2] = batch.caplens
        heads[:, 3] = original_lengths(batch, self._snaplen)
        ends = np.cumsum(batch.caplens + _RECORD_HEADER)
        starts = ends - batch.caplens - _RECORD_HEADER
        out = np.empty(int(ends[-1]), np.uint8)
        windows(out, _RECORD_HEADER)[starts] = heads.view(f"V{_RECORD_HEADER}")[:, 0]
        for caplen in np.unique(batch.caplens[batch.caplens > 0]):
            same = np.flatnonzero(batch.caplens == caplen)
            frames = windows(batch.data, caplen)[batch.offsets[same]]
            windows(out, caplen)[starts[same] + _RECORD_HEADER] = frames
        self._write(out.data)
        self.packets += len(heads)

    def close(self, dropped: int | None = None) -> None:
        """Close the file; closing twice is allowed. This format has no place for ``dropped``."""
        self._file.close()


def original_lengths(batch: Batch, snaplen: int) -> npt.NDArray[np.int64]:
    """Length of each frame on the wire, bytes (int64): what the source says, or what the IP header says if more.

    Only a frame as long as ``snaplen`` can have been cut. Where its link layer is not one of the plain ones, or
    its IP length is 0 (segmentation offload), the source's figure stands.
    """
    lengths = np.maximum(batch.lengths, batch.caplens)
    cut = np.flatnonzero(batch.caplens >= snaplen)
    if len(cut) == 0 or batch.link_type not in SUPPORTED:
        return lengths
    start = batch.offsets[cut]
    end = start + batch.caplens[cut]
    network = find_network(batch.data, start, end, batch.link_type)
    for version, field_at, beside in ((4, 2, 0), (6, 4, 40)):  # an IPv6 length leaves out its header
        told = np.flatnonzero((network.version == version) & (network.at + field_at + 2 <= end))
        at = network.at[told]
        said = at - start[told] + beside + be16(batch.data, at + field_at)
        lengths[cut[told]] = np.maximum(lengths[cut[told]], said)
    return lengths


def windows(data: npt.NDArray[np.uint8], width: int) -> npt.NDArray[np.void]:
    """Element i is the ``width`` bytes from byte i of ``data``, as one opaque value: a third of the cost of rows."""
    return np.ndarray((len(data) - width + 1,), np.dtype((np.void, width)), buffer=data.data, strides=(1,))
