"""Frames to a pcapng file of one interface, whole batches at a time (edge).

One idea: the same as in ``pcapwrite.py``, frames of equal length are copied in one assignment. What classic pcap has no
place for is what this format is worth: the interface's name, the filter, and at the end how many packets were dropped.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Final

import numpy as np

from ncps_capture.pcapwrite import LINKTYPE_OF_DLT, FrameFile, original_lengths, windows
from ncps_capture.segments import Batch

_SECTION, _INTERFACE, _STATISTICS, _PACKET = 0x0A0D0D0A, 1, 5, 6
_ORDER: Final = 0x1A2B3C4D
_HEAD: Final = 28  # of a packet block, before its frame
_TAIL: Final = 4
_OPT_END, _SHB_USERAPPL, _IF_NAME, _IF_TSRESOL, _IF_FILTER, _ISB_IFDROP = 0, 4, 2, 9, 11, 5


class PcapngWriter(FrameFile):
    """Writes batches of one link type to a new pcapng file; an existing file is replaced.

    Times keep their nanoseconds where ``nanoseconds``, else they are truncated to microseconds. FileFault when the file
    cannot be made or written.
    """

    def __init__(
        self,
        path: str | Path,
        link_type: int,
        snaplen: int,
        *,
        nanoseconds: bool = False,
        interface: str = "",
        filter_text: str = "",
    ) -> None:
        super().__init__(path)
        self._snaplen = snaplen
        self._unit_ns = 1 if nanoseconds else 1000
        self._last_t_ns = 0
        self._open = True
        about = (
            _option(_IF_NAME, interface.encode())
            + _option(_IF_TSRESOL, bytes([9 if nanoseconds else 6]))
            + (_option(_IF_FILTER, b"\0" + filter_text.encode()) if filter_text else b"")
        )
        network = LINKTYPE_OF_DLT.get(link_type, link_type)
        self._begin(
            _block(_SECTION, struct.pack("<IHHq", _ORDER, 1, 0, -1), _option(_SHB_USERAPPL, b"ncps-raw"))
            + _block(_INTERFACE, struct.pack("<HHI", network, 0, snaplen), about)
        )

    def write(self, batch: Batch) -> None:
        """Append every frame of ``batch``; it is with the operating system afterwards."""
        if len(batch.offsets) == 0:
            return
        padded = (batch.caplens + 3) & ~3
        sizes = padded + _HEAD + _TAIL
        stamps = batch.t_ns // self._unit_ns
        heads = np.empty((len(sizes), _HEAD // 4), "<u4")
        columns = (_PACKET, sizes, 0, stamps >> 32, stamps & 0xFFFFFFFF, batch.caplens)
        for number, column in enumerate((*columns, original_lengths(batch, self._snaplen))):
            heads[:, number] = column
        ends = np.cumsum(sizes)
        starts = ends - sizes
        out = np.zeros(int(ends[-1]), np.uint8)
        windows(out, _HEAD)[starts] = heads.view(f"V{_HEAD}")[:, 0]
        windows(out, _TAIL)[ends - _TAIL] = sizes.astype("<u4").view(f"V{_TAIL}")
        for caplen in np.unique(batch.caplens[batch.caplens > 0]):
            same = np.flatnonzero(batch.caplens == caplen)
            windows(out, caplen)[starts[same] + _HEAD] = windows(batch.data, caplen)[batch.offsets[same]]
        self._write(out.data)
        self.packets += len(sizes)
        self._last_t_ns = int(batch.t_ns[-1])

    def close(self, dropped: int | None = None) -> None:
        """Close the file; closing twice is allowed. ``dropped``: packets that matched and were lost, if known."""
        if not self._open:
            return
        self._open = False
        try:
            if dropped is not None:
                stamp = self._last_t_ns // self._unit_ns
                fixed = struct.pack("<III", 0, stamp >> 32, stamp & 0xFFFFFFFF)
                self._write(_block(_STATISTICS, fixed, _option(_ISB_IFDROP, struct.pack("<Q", dropped))))
        finally:
            self._file.close()


def _option(code: int, value: bytes) -> bytes:
    return struct.pack("<HH", code, len(value)) + value + bytes(-len(value) % 4)


def _block(kind: int, fixed: bytes, options: bytes) -> bytes:
    body = fixed + options + struct.pack("<HH", _OPT_END, 0)
    size = len(body) + 12
    return struct.pack("<II", kind, size) + body + struct.pack("<I", size)
