"""Captures of mixed traffic, and both ways of reading them: by one process, and by several."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from capture_maker import Ng, Record, pcap
from ncps_capture import stretches
from ncps_capture.capfile import CaptureFile, open_capture
from ncps_capture.decoded import pieces
from ncps_capture.handshake import HandshakeTable
from ncps_capture.merge import merge_rows
from ncps_capture.segments import HANDSHAKE, Books, Handshakes

SECOND = 1_700_000_000
STRETCH = 100_000
Result = tuple[Handshakes, Books, CaptureFile]


def frame(client: int, sport: int, outward: bool, flags: int, seq: int, ack: int, payload: bytes) -> bytes:
    ends = (0x0A000000 | client, 0x0A630001)
    ports = (sport, 443)
    if not outward:
        ends, ports = ends[::-1], ports[::-1]
    tcp = struct.pack(">HHIIBBHHH", *ports, seq, ack, 5 << 4, flags, 1000, 0, 0) + payload
    ip = struct.pack(">BBHHHBBHII", 0x45, 0, 20 + len(tcp), 0, 0, 64, 6, 0, *ends)
    return bytes(12) + b"\x08\x00" + ip + tcp


def traffic(seed: int, count: int = 400, nested: float = 0.0, speed: int = 200) -> list[Record]:
    """Connections of all fates, their packets mixed over a second or two of each other; times run on."""
    chance = random.Random(seed)
    out: list[tuple[float, bytes]] = []
    for number in range(count):
        client, sport, t = number % 250, 1024 + number, number / speed
        isn, server = chance.getrandbits(32), chance.getrandbits(32)

        def say(after: float, outward: bool, flags: int, seq: int, ack: int, payload: bytes = b"") -> None:
            nonlocal t
            t += after
            whole = frame(client, sport, outward, flags, seq & 0xFFFFFFFF, ack & 0xFFFFFFFF, payload)  # noqa: B023
            out.append((t, whole))

        say(0, True, 2, isn, 0)
        fate = chance.random()
        if fate < 0.1:
            say(1, True, 2, isn, 0)
            continue
        if fate < 0.15:
            say(chance.random(), False, 0x10, server, 77)  # a challenge, and what the client makes of it
            say(chance.random(), True, 4, 77, 0)
            say(0.01, True, 2, isn, 0)
        elif fate < 0.2:
            say(0.001, False, 0x14, 0, isn + 1)
            continue
        say(chance.random(), False, 0x12, server, isn + 1)
        if fate < 0.3:
            say(1, False, 0x12, server, isn + 1)
        if fate > 0.9:
            continue  # never acknowledged
        say(2 * chance.random(), True, 0x10, isn + 1, server + 1)
        for _ in range(chance.randrange(12)):
            payload = chance.randbytes(chance.randrange(1460))
            if chance.random() < nested:
                inner = [(SECOND + int(t), 7, frame(1, 2, True, 2, 3, 4, b""), 99)] * 12
                payload = payload[: chance.randrange(20)] + pcap(inner)[24:]
            say(0.01, True, 0x18, isn + 1, server + 1, payload)
        say(0.01, False, 0x14 if fate < 0.5 else 0x11, server + 1, isn + 1)
    out.sort(key=lambda each: each[0])
    return [(SECOND + int(t), int(t % 1 * 1e6), data, len(data)) for t, data in out]


def as_pcapng(records: Sequence[Record], order: str = "<", between: Callable[[Ng, int], bytes] | None = None) -> bytes:
    ng = Ng(order)
    parts = [ng.section(), ng.interface(), ng.interface(101, tsresol=9)]
    for number, (seconds, fraction, data, length) in enumerate(records):
        if between is not None:
            parts.append(between(ng, number))
        if sum(data[34:38]) % 7 == 3:  # by its ports; the second interface has no Ethernet header, and finer time
            parts.append(ng.packet(seconds * 10**9 + fraction * 1000, data[14:], 1, length - 14))
        else:
            parts.append(ng.packet(seconds * 10**6 + fraction, data, 0, length))
    return b"".join(parts)


def read(
    path: Path, workers: int, stretch_bytes: int = STRETCH, disturb: Callable[[int], None] | None = None
) -> Result:
    capture, books, table = open_capture(path), Books(), HandshakeTable(third_ack=True)
    rows: list[Handshakes] = []
    latest = 0
    # In small chunks: else the whole file is read before there is a SYN-ACK.
    stream = pieces(capture, lambda: not books.synack, workers, stretch_bytes, 20_000)
    for number, piece in enumerate(stream):
        books.__iadd__(piece.books)
        table.add(piece.segments)
        if piece.times is not None:
            latest = max(latest, piece.times[2])
        if piece.times is not None and number % 9 == 8:
            rows.append(table.settle(piece.times[1]))
        if disturb is not None:
            disturb(number)
    rows.append(table.finish(latest))
    whole = np.concatenate([part.view(np.dtype((np.void, HANDSHAKE.itemsize))) for part in rows]).view(HANDSHAKE)
    return merge_rows(whole), books, capture


def check(path: Path, content: bytes) -> int:
    """Both ways; how many stretches were read by processes."""
    path.write_bytes(content)
    skipped: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        skip = CaptureFile.skip

        def noted(self: CaptureFile, stretch: stretches.Stretch) -> None:
            skipped.append(stretch.packets)
            skip(self, stretch)

        patch.setattr(CaptureFile, "skip", noted)
        rows, books, capture = read(path, 2)
    expected, all_books, plain = read(path, 0)
    assert books == all_books
    assert rows.tobytes() == expected.tobytes()
    assert len(rows) > 0
    for name in ("packets", "untimed", "unclaimed", "drops", "damaged", "warnings", "interfaces"):
        assert getattr(capture, name) == getattr(plain, name), name
    assert plain.damaged or capture.bytes_read == plain.bytes_read
    return len(skipped)
