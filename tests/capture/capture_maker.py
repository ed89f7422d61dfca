"""Captures byte by byte, for the tests of their readers; and batches as plain rows."""

from __future__ import annotations

import struct
from collections.abc import Iterable

from ncps_capture.segments import Batch

MAGICS = {"micro": 0xA1B2C3D4, "nano": 0xA1B23C4D, "modified": 0xA1B2CD34}
Record = tuple[int, int, bytes, int]  # seconds, fraction, captured bytes, original length
Frame = tuple[int, bytes, int, int]  # t_ns, captured bytes, original length, frame number


def pcap(
    records: Iterable[Record],
    order: str = "<",
    unit: str = "micro",
    zone: int = 0,
    snaplen: int = 65535,
    network: int = 1,
) -> bytes:
    extra = bytes(8) if unit == "modified" else b""
    out = [struct.pack(f"{order}IHHiIII", MAGICS[unit], 2, 4, zone, 0, snaplen, network)]
    for seconds, fraction, frame, length in records:
        out += [struct.pack(f"{order}IIII", seconds, fraction, len(frame), length), extra, frame]
    return b"".join(out)


def flat(batches: Iterable[Batch]) -> list[Frame]:
    out = []
    for batch in batches:
        for i, offset in enumerate(batch.offsets):
            frame = batch.data[offset : offset + batch.caplens[i]].tobytes()
            number = batch.first_frame + i if batch.frames is None else int(batch.frames[i])
            out.append((int(batch.t_ns[i]), frame, int(batch.lengths[i]), number))
    return out


class Ng:
    """Blocks of a pcapng section of one byte order."""

    def __init__(self, order: str = "<") -> None:
        self.order = order

    def block(self, kind: int, body: bytes) -> bytes:
        body += bytes(-len(body) % 4)
        size = struct.pack(f"{self.order}I", len(body) + 12)
        return struct.pack(f"{self.order}I", kind) + size + body + size

    def option(self, code: int, value: bytes) -> bytes:
        return struct.pack(f"{self.order}HH", code, len(value)) + value + bytes(-len(value) % 4)

    def section(self) -> bytes:
        return self.block(0x0A0D0D0A, struct.pack(f"{self.order}IHHq", 0x1A2B3C4D, 1, 0, -1))

    def interface(self, link: int = 1, snaplen: int = 65535, tsresol: int | None = None, offset: int = 0) -> bytes:
        options = b"" if tsresol is None else self.option(9, bytes([tsresol]))
        if offset:
            options += self.option(14, struct.pack(f"{self.order}q", offset))
        return self.block(1, struct.pack(f"{self.order}HHI", link, 0, snaplen) + options)

    def packet(
        self, stamp: int, frame: bytes, interface: int = 0, length: int | None = None, options: bytes = b""
    ) -> bytes:
        fields = interface, stamp >> 32, stamp & 0xFFFFFFFF, len(frame), len(frame) if length is None else length
        return self.block(6, struct.pack(f"{self.order}IIIII", *fields) + frame + bytes(-len(frame) % 4) + options)

    def old_packet(self, stamp: int, frame: bytes, interface: int = 0, drops: int = 0xFFFF) -> bytes:
        fields = interface, drops, stamp >> 32, stamp & 0xFFFFFFFF, len(frame), len(frame)
        return self.block(2, struct.pack(f"{self.order}HHIIII", *fields) + frame)

    def simple(self, frame: bytes) -> bytes:
        return self.block(3, struct.pack(f"{self.order}I", len(frame)) + frame)

    def statistics(self, interface: int, **counts: int) -> bytes:
        codes = {"ifrecv": 4, "ifdrop": 5, "osdrop": 7}
        options = b"".join(self.option(codes[name], struct.pack(f"{self.order}Q", n)) for name, n in counts.items())
        return self.block(5, struct.pack(f"{self.order}III", interface, 0, 0) + options)
