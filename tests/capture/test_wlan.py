"""802.11: what carries no data, or none that can be read, ends nowhere. ``frame_stacks.py`` has what is read."""

from __future__ import annotations

import struct

import pytest
from frame_stacks import DATA, IP4, QOS, SNAP4, SYN, V4, WIRELESS, batch_of
from ncps_capture.decode import decode
from ncps_capture.wlan import STEPS
from scapy.layers.dot11 import Dot11, RadioTap
from scapy.packet import raw


def counts(frame: bytes, link_type: int) -> tuple[int, int]:
    _, books = decode(batch_of([frame], link_type))
    return books.tcp_packets, books.too_short


@pytest.mark.parametrize(
    "head",
    [
        raw(Dot11(type=2, FCfield=0x41)),
        raw(Dot11(type=2, subtype=4, FCfield=1)),
        raw(Dot11(type=2, subtype=12, FCfield=1)) + b"\0\0",
        raw(Dot11(type=0, subtype=8)),
        raw(Dot11(type=1, subtype=13)),
        b"\x09" + raw(Dot11(type=2, FCfield=1))[1:],
    ],
    ids=["encrypted", "null", "qos null", "beacon", "acknowledgement", "another version"],
)
def test_what_carries_no_data_to_read(head):
    assert counts(head + SNAP4 + IP4, 105) == (0, 0)
    assert counts(raw(RadioTap()) + head + SNAP4 + IP4, 127) == (0, 0)


@pytest.mark.parametrize("distribution", [0, 1, 2])
def test_every_direction_of_an_infrastructure_network(distribution):
    assert counts(raw(Dot11(type=2, FCfield=distribution)) + SNAP4 + IP4, 105) == (1, 0)


@pytest.mark.parametrize(
    ("link_type", "head"),
    [
        (119, struct.pack("<II", 0x44, 144) + bytes(136)),
        (119, struct.pack(">II", 0x44, 144) + bytes(136)),
        (119, struct.pack("<II", 0x44, 200) + bytes(192)),
        (163, struct.pack(">II", 0x80211001, 64) + bytes(56)),
        (127, struct.pack("<BBHI", 0, 0, 8, 0)),
        (127, struct.pack("<BBHI", 0, 0, 9, 2) + b"\x10"),
        (127, struct.pack("<BBHI", 0, 0, 17, 3) + bytes(8) + b"\x10"),
    ],
)
def test_pseudo_headers_tell_their_length(link_type, head):
    assert counts(head + DATA + IP4, link_type) == (1, 0)
    for size in range(len(head)):
        assert counts(head[:size], link_type) == (0, 1)


@pytest.mark.parametrize(
    ("link_type", "head"),
    [
        (163, struct.pack(">II", 0x12345678, 64) + bytes(56)),
        (163, struct.pack(">II", 0x80211001, 7) + bytes(56)),
        (127, struct.pack("<BBHI", 1, 0, 8, 0)),
        (127, struct.pack("<BBHI", 0, 0, 7, 0)),
    ],
)
def test_a_pseudo_header_that_cannot_be(link_type, head):
    assert counts(head + DATA + IP4, link_type) == (0, 0)


def test_present_words_beyond_the_header_are_not_read():
    head = struct.pack("<BBHI", 0, 0, 8, 0x80000002)
    assert counts(head + raw(QOS / V4 / SYN), 127) == (1, 0)


@pytest.mark.parametrize("frame", [raw(WIRELESS / V4 / SYN), raw(QOS / V4 / SYN)])
def test_a_cut_header_is_too_short(frame):
    for size in range(len(frame) - 60 + 14 + 20):
        assert counts(frame[:size], 105) == (0, 1)


def test_each_header_has_its_step():
    assert len(STEPS) == 4
