"""Rare link headers: what they do not carry, what cannot be, and the truth of their cuts."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from frame_stacks import IP4, LINKS, PLAIN, SNAP4, batch_of, erf, pktap, ppi
from ncps_capture import stack
from ncps_capture.decode import decode
from ncps_capture.exotic import steps
from scapy.packet import raw


def counts(frame: bytes, link_type: int) -> tuple[int, int, int]:
    _, books = decode(batch_of([frame], link_type))
    return books.tcp_packets, books.too_short, books.malformed


RARE = (10, 192, 197, 239, 242, 258)


@pytest.mark.parametrize(
    ("link_type", "frame"),
    [
        (258, pktap(147, PLAIN)),
        (258, pktap(1 << 31, PLAIN)),
        (258, struct.pack("<III", 11, 1, 1) + PLAIN),
        (192, ppi(147, PLAIN)),
        (192, struct.pack("<BBHI", 0, 0, 7, 1) + PLAIN),
        (197, erf(3, PLAIN)),
        (197, erf(21, PLAIN)),
        (239, b"\2\0\0\0" + struct.pack("<HH", 3, 9) + IP4),
        (239, b"\2\0\0\0" + struct.pack("<HH", 4 + 20, 9) + b"\x15" + IP4),
        (10, b"\x41" + bytes(12) + SNAP4 + IP4),
        (242, bytes(40) + b"\x08\6\0\0" + IP4),
        (242, bytes(40) + b"\0\4\0\0" + SNAP4 + IP4),
    ],
)
def test_what_is_no_ip_or_cannot_be(link_type, frame):
    assert counts(frame, link_type) == (0, 0, 0)


@pytest.mark.parametrize(
    ("name", "link_type", "packet"), [row[:3] for row in LINKS if row[1] in RARE], ids=lambda value: str(value)[:30]
)
def test_every_cut_before_the_flags_is_too_short(name, link_type, packet):
    frame = raw(packet)
    flags_end = len(frame) - 40 + 14
    assert [counts(frame[:size], link_type)[:2] for size in range(flags_end)] == [(0, 1)] * flags_end
    assert counts(frame[:flags_end], link_type)[:2] == (1, 0)


@pytest.mark.parametrize(("count", "tcp"), [(1, 1), (16, 1), (17, 0)])
def test_extension_headers_of_erf_are_bounded(count, tcp):
    assert counts(erf(2, b"\0\0" + PLAIN, extensions=count), 197)[0] == tcp


@pytest.mark.parametrize(("count", "tcp"), [(31, 1), (32, 0)])
def test_values_of_nflog_are_bounded(count, tcp):
    value = struct.pack("<HH", 5, 1) + b"x\0\0\0"
    frame = b"\2\0\0\0" + value * count + struct.pack("<HH", 4 + len(IP4), 9) + IP4
    assert counts(frame, 239)[0] == tcp


def test_a_pseudo_header_in_itself_is_bounded():
    frame = PLAIN
    for _ in range(40):
        frame = ppi(192, frame)
    assert counts(frame, 192) == (0, 0, 0)


def test_a_length_of_four_gigabytes_reads_nothing():
    assert counts(struct.pack("<III", 0xFFFFFFFF, 1, 1) + PLAIN, 258) == (0, 1, 0)


def test_inner_link_types_are_those_of_the_table_given():
    data = np.frombuffer(ppi(1, PLAIN), np.uint8)
    for links, kind in (({1: stack.RAW}, stack.RAW), ({}, stack.NOWHERE)):
        walk = stack.Walk(
            data,
            np.array([stack.PPI], np.uint8),
            np.zeros(1, np.int64),
            np.array([len(data)]),
            np.zeros(1, np.uint16),
            np.zeros(1, np.uint32),
        )
        steps(links)[stack.PPI](walk, np.zeros(1, np.int64))
        assert (walk.kind.tolist(), walk.at.tolist()) == ([kind], [20])
