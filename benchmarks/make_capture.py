"""Write a large capture of mixed traffic: python make_capture.py FILE [PACKETS] [--pcapng] [--syn-only]

Ten packets a connection: SYN, SYN-ACK, ACK, six with data, FIN; about 550 bytes a packet. Sequence and acknowledgement
numbers run on as TCP's do; checksums are left 0. With --syn-only every packet is a bare SYN. The bytes depend on the
arguments alone.
"""

from __future__ import annotations

import struct
import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt

FLAGS = np.array([0x02, 0x12, 0x10, 0x18, 0x18, 0x18, 0x18, 0x18, 0x18, 0x11], np.uint8)
PAYLOADS = np.array([0, 0, 0, 120, 1400, 1400, 600, 900, 460, 0])
FROM_CLIENT = np.array([1, 0, 1, 1, 0, 0, 1, 0, 1, 1], bool)
USED = PAYLOADS + (FLAGS & 0x03 != 0)  # SYN and FIN take a number each
SENT = [np.append(0, np.cumsum(np.where(side, USED, 0)))[:-1].astype(np.uint32) for side in (FROM_CLIENT, ~FROM_CLIENT)]
"""Numbers used by client and by server before each packet."""
HEADERS = 14 + 20 + 32  # Ethernet, IPv4, TCP with twelve bytes of options
CHUNK = 100_000
START_NS = 1_700_000_000 * 10**9
STEP_NS = 10_000


def frames(first: int, count: int, syn_only: bool) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """(count, longest) bytes and the length of each, of packets ``first`` onwards; connections take turns by ten."""
    number = np.arange(first, first + count)
    kind = np.zeros(count, np.int64) if syn_only else number % 10
    connection = (number if syn_only else number // 10).astype(np.uint32)
    length = HEADERS + PAYLOADS[kind]
    out = np.zeros((count, HEADERS + int(PAYLOADS[kind].max(initial=0))), np.uint8)
    out[:, HEADERS:] = (np.arange(out.shape[1] - HEADERS) * 7).astype(np.uint8)
    out[:, 12:14] = (8, 0)
    out[:, 14] = 0x45
    put(out, 16, (length - 14).astype(">u2"))
    put(out, 18, (number & 0xFFFF).astype(">u2"))
    out[:, 22], out[:, 23] = 64, 6
    client = 0x0A000000 + connection // 50_000
    server = np.full(count, 0xC0A80001, np.uint32)
    outward = FROM_CLIENT[kind]
    put(out, 26, np.where(outward, client, server).astype(">u4"))
    put(out, 30, np.where(outward, server, client).astype(">u4"))
    port = 10_000 + connection % 50_000
    put(out, 34, np.where(outward, port, 80).astype(">u2"))
    put(out, 36, np.where(outward, 80, port).astype(">u2"))
    isn = connection * np.uint32(2654435761)
    from_client, from_server = isn + SENT[0][kind], ~isn + SENT[1][kind]
    put(out, 38, np.where(outward, from_client, from_server).astype(">u4"))
    put(out, 42, np.where(kind == 0, 0, np.where(outward, from_server, from_client)).astype(">u4"))
    out[:, 46], out[:, 47] = 0x80, FLAGS[kind]
    out[:, 48:50] = 0xFF
    out[:, 54:66] = np.frombuffer(bytes.fromhex("020405b40103030701010101"), np.uint8)  # MSS, window scale, padding
    return out, length


def put(out: npt.NDArray[np.uint8], at: int, values: npt.NDArray[np.generic]) -> None:
    out[:, at : at + values.itemsize] = values.view(np.uint8).reshape(-1, values.itemsize)


def records(first: int, count: int, syn_only: bool, pcapng: bool) -> bytes:
    frame, length = frames(first, count, syn_only)
    t_ns = START_NS + np.arange(first, first + count) * STEP_NS
    head, tail = (28, 4) if pcapng else (16, 0)
    padded = (length + 3) & ~3 if pcapng else length
    fields = np.zeros((count, head // 4), "<u4")
    if pcapng:
        fields[:, 0], fields[:, 1] = 6, head + padded + tail
        fields[:, 3], fields[:, 4] = t_ns >> 32, t_ns & 0xFFFFFFFF
    else:
        fields[:, 0], fields[:, 1] = t_ns // 10**9, t_ns % 10**9 // 1000
    fields[:, -2] = fields[:, -1] = length
    ends = np.cumsum(head + padded + tail)
    starts = ends - (head + padded + tail)
    out = np.zeros(int(ends[-1]), np.uint8)
    for size in np.unique(length):
        same = np.flatnonzero(length == size)
        block = np.concatenate((fields[same].view(np.uint8), frame[same, :size]), axis=1)
        windows(out, head + int(size))[starts[same]] = block.view(f"V{head + size}")[:, 0]
    if pcapng:
        windows(out, 4)[ends - 4] = np.ascontiguousarray(fields[:, 1]).view("V4")
    return out.tobytes()


def windows(data: npt.NDArray[np.uint8], width: int) -> npt.NDArray[np.void]:
    return np.ndarray((len(data) - width + 1,), f"V{width}", data, 0, (1,))


def main() -> None:
    words = [word for word in sys.argv[1:] if not word.startswith("--")]
    pcapng, syn_only = "--pcapng" in sys.argv, "--syn-only" in sys.argv
    path, packets = Path(words[0]), int(words[1]) if len(words) > 1 else 1_000_000
    with path.open("wb") as file:
        if pcapng:
            file.write(struct.pack("<IIIHHqI", 0x0A0D0D0A, 28, 0x1A2B3C4D, 1, 0, -1, 28))
            file.write(struct.pack("<IIHHIHHB3xII", 1, 32, 1, 0, 262144, 9, 1, 9, 0, 32))
        else:
            file.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 262144, 1))
        for first in range(0, packets, CHUNK):
            file.write(records(first, min(CHUNK, packets - first), syn_only, pcapng))
    print(f"{path}: {packets:,} packets, {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
