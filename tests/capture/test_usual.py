"""Frames of a usual look give the rows and books of the general way, and no others are taken for them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ncps_capture import decode as decoding
from ncps_capture import segments as sg
from ncps_capture.usual import read_usual
from scapy.layers.inet import ICMP, IP, TCP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Dot1Q, Ether
from scapy.packet import raw

ETHER = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")
V4 = IP(src="192.0.2.1", dst="198.51.100.2", id=0x1234, ttl=61, flags="DF")
V6 = IPv6(src="2001:db8::1", dst="2001:db8:7::2", fl=0x12345, tc=3, hlim=60)
LINUX = [("MSS", 1460), ("SAckOK", b""), ("Timestamp", (0xAABBCCDD, 7)), ("NOP", None), ("WScale", 9)]
SYN = TCP(sport=40000, dport=443, flags="S", seq=0xFEDCBA98, ack=0, options=LINUX)
SYNACK = TCP(sport=443, dport=40000, flags="SA", seq=5, ack=0xFEDCBA99, options=LINUX)
USUAL = [raw(ETHER / network / transport) for network in (V4, V6) for transport in (SYN, SYNACK)]
OTHERS = [
    raw(ETHER / V4 / TCP(flags="RA", ack=9)),
    raw(ETHER / V4 / TCP(flags="A", ack=9, options=LINUX[2:3])),
    raw(ETHER / V4 / TCP(flags="S", options=LINUX[:1])),
    raw(ETHER / Dot1Q(vlan=7) / V4 / SYN),
    raw(ETHER / V4 / SYN / b"data"),
    raw(ETHER / V4 / ICMP(type=3, code=1) / V4 / SYN),
    raw(ETHER / IP(src="10.0.0.1", dst="10.0.0.2", proto=4) / V4 / SYN),
    b"\0" * 74,
    b"",
]


def batch_of(frames: list[bytes], gap: int = 0, cut: int = 999, link_type: int = 1) -> sg.Batch:
    """Frames with ``gap`` strange bytes in front of each, cut after ``cut``."""
    held = [frame[:cut] for frame in frames]
    text = b"".join(b"\x45" * gap + frame for frame in held)
    sizes = np.array([len(frame) for frame in held], np.int64)
    lengths = np.array([len(frame) for frame in frames], np.int64)
    starts = np.cumsum(sizes + gap) - sizes
    times = np.arange(len(frames), dtype=np.int64) * 1000 + 5
    return sg.Batch(np.frombuffer(text, np.uint8), starts, sizes, lengths, times, link_type, 11, 3)


def general(batch: sg.Batch, **options: bool) -> tuple[sg.Segments, sg.Books]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decoding, "read_usual", lambda batch: None)
        return decoding.decode(batch, **options)


def compare(batch: sg.Batch) -> None:
    for options in ({}, {"want_acks": True}, {"tunnels": True}):
        rows, books = decoding.decode(batch, **options)
        expected, expected_books = general(batch, **options)
        assert rows.tolist() == expected.tolist()
        assert books == expected_books


@pytest.mark.parametrize("gap", [0, 16])
def test_usual_frames_are_all_read_here(gap):
    batch = batch_of(USUAL * 3, gap)
    usual = read_usual(batch)
    assert (len(usual.rows), len(usual.rest.offsets)) == (12, 0)
    assert usual.rows["frame"].tolist() == list(range(11, 23))
    assert usual.books == sg.Books(packets=12, tcp_packets=12, syn=6, synack=6)
    compare(batch)


@st.composite
def frames(draw):
    """Mostly usual frames, some of them with a byte changed or cut short, among others."""
    out = []
    for _ in range(draw(st.integers(0, 12))):
        frame = bytearray(draw(st.sampled_from(USUAL * 4 + OTHERS)))
        if frame and draw(st.booleans()):
            frame[draw(st.integers(0, len(frame) - 1))] = draw(st.integers(0, 255))
        elif draw(st.integers(0, 9)) == 0:
            frame = frame[: draw(st.integers(0, len(frame)))]
        out.append(bytes(frame))
    return out


@settings(deadline=None, max_examples=150)
@given(frames(), st.sampled_from([0, 0, 3, 16]), st.sampled_from([999, 999, 999, 73, 74, 90]))
def test_any_mixture_is_read_as_the_general_way_reads_it(some, gap, cut):
    compare(batch_of(some, gap, cut))


@pytest.mark.parametrize("usual", range(len(USUAL)))
def test_every_byte_changed_in_any_bit_is_read_as_the_general_way_reads_it(usual):
    frame = USUAL[usual]
    changed = [frame]
    for at in range(len(frame)):
        for bit in range(8):
            other = bytearray(frame)
            other[at] ^= 1 << bit
            changed.append(bytes(other))
    batch = batch_of(changed)
    found = read_usual(batch)
    assert 0 < len(found.rest.offsets) < len(changed)
    compare(batch)


@pytest.mark.parametrize("seed", [1, 2])
def test_random_fields_are_read_as_the_general_way_reads_them(seed):
    """Everything at once that a usual frame leaves open."""
    noise = np.random.default_rng(seed)
    for frame in USUAL:
        size = len(frame)
        data = np.tile(np.frombuffer(frame, np.uint8), (64, 1))
        free = [*range(12), 15, *range(18, 20), 22, *range(24, 46), *range(48, 54), 56, 57, *range(62, 70), 73]
        if size == 94:
            free = [*range(12), *range(15, 18), *range(21, 66), *range(68, 74), 76, 77, *range(82, 90), 93]
        data[:, free] = noise.integers(0, 256, (64, len(free)), np.uint8)
        batch = batch_of([row.tobytes() for row in data])
        assert len(read_usual(batch).rows) == 64
        compare(batch)


def test_frames_with_numbers_of_their_own_are_left_to_the_general_way():
    assert read_usual(replace(batch_of(USUAL), frames=np.array([3, 9, 27, 81]))) is None


def test_where_most_frames_have_another_size_the_general_way_reads_them_all():
    assert read_usual(batch_of(USUAL[:1] + OTHERS[:2])) is None
    assert read_usual(batch_of(USUAL[:1] + OTHERS[:1])) is not None


@pytest.mark.parametrize(
    "batch", [batch_of([]), batch_of(USUAL, link_type=101), batch_of(OTHERS), batch_of([b"\0" * 74])]
)
def test_no_usual_frame(batch):
    assert read_usual(batch) is None
    compare(batch)
