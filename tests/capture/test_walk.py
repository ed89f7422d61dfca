"""The walk by many chains against a plain one: on mixed traffic, on captures inside captures, and on rubbish."""

from __future__ import annotations

import random
import struct

import numpy as np
import pytest
from capture_maker import Ng, pcap
from hypothesis import given, settings
from hypothesis import strategies as st
from ncps_capture import walk as walking
from ncps_capture.walk import PcapngBlocks, PcapRecords, Records, fields, walk

LIMIT = 1 << 18
HEAD = {"micro": 16, "nano": 16, "modified": 24}
FRACTIONS = {"micro": 10**6, "nano": 10**9, "modified": 10**6}


def plainly(records: Records, content: bytes) -> tuple[list[int], int]:
    """A walk link by link."""
    data, at, found = np.frombuffer(content, np.uint8), 0, []
    while (size := records.size(data, at)) and at + size <= len(data):  # type: ignore[attr-defined]
        if content[at : at + 4] == b"\n\r\r\n" and isinstance(records, PcapngBlocks):
            break
        found.append(at)
        at += size
    return found, at


def check(records: Records, content: bytes) -> tuple[list[int], int]:
    expected = plainly(records, content)
    starts, end = walk(records, np.frombuffer(content, np.uint8))
    assert starts.dtype == np.int64
    assert (starts.tolist(), end) == expected
    return expected


def traffic(seed: int, order: str, unit: str, count: int, nested: float, second: int = 1_700_000_000) -> bytes:
    """Records of every length, ``nested`` of them with payloads that are themselves records of the same time."""
    chance = random.Random(seed)
    records = []
    for i in range(count):
        size = chance.choice((0, 40, 66, 66, 66, 590, 1514, 1514, chance.randrange(9000)))
        frame = chance.randbytes(size)
        if chance.random() < nested:
            inner = [(second + i // 50, i % 1000, frame[:70], 99)] * 12
            frame = frame[: chance.randrange(20)] + pcap(inner, order, unit)[24:] + bytes(chance.randrange(4))
        records.append((second + i // 50, chance.randrange(FRACTIONS[unit]), frame, max(len(frame), size)))
    return pcap(records, order, unit)[24:]


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("unit", ["micro", "nano", "modified"])
@pytest.mark.parametrize("nested", [0, 0.1, 0.9])
@pytest.mark.parametrize("cut", [0, 1, 700])
def test_chains_find_what_a_plain_walk_finds(order: str, unit: str, nested: float, cut: int) -> None:
    content = traffic(cut, order, unit, 1200, nested)
    starts, _ = check(PcapRecords(order, HEAD[unit], LIMIT, FRACTIONS[unit]), content[: len(content) - cut])
    assert 1180 < len(starts) <= 1200


def test_a_large_mixed_capture_is_walked_by_chains(monkeypatch: pytest.MonkeyPatch) -> None:
    content = traffic(7, "<", "micro", 1500, 0)
    records = PcapRecords("<", 16, LIMIT, 10**6)
    used = []
    follow = walking._follow_all
    monkeypatch.setattr(walking, "_follow_all", lambda *given: used.append(len(given[2])) or follow(*given))
    check(records, content)
    assert used
    assert used[0] >= 32


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 1 << 32), st.lists(st.tuples(st.floats(0, 1), st.integers(0, 255)), max_size=40), st.booleans())
def test_damaged_bytes_end_both_walks_at_one_place(seed: int, damage: list[tuple[float, int]], big: bool) -> None:
    order = ">" if big else "<"
    content = bytearray(traffic(seed, order, "micro", 400, 0.3))
    for where, value in damage:
        content[int(where * (len(content) - 1))] = value
    check(PcapRecords(order, 16, LIMIT, 10**6), bytes(content))


@pytest.mark.parametrize("filler", [b"\0", b"\xff", struct.pack("<IIII", 1_700_000_000, 5, 16, 16)])
def test_what_looks_like_nothing_but_headers(filler: bytes) -> None:
    for at in range(0, 16, 3):
        check(PcapRecords("<", 16, LIMIT, 10**6), (bytes(at) + filler * (700_000 // len(filler)))[:700_000])


@pytest.mark.parametrize("order", ["<", ">"])
def test_a_record_too_long_for_any_stops_a_walk_by_chains(order: str) -> None:
    before, behind = traffic(1, order, "micro", 600, 0), traffic(2, order, "micro", 600, 0)
    damaged = struct.pack(f"{order}IIII", 1_700_000_000, 5, LIMIT + 1, 60)
    starts, end = check(PcapRecords(order, 16, LIMIT, 10**6), before + damaged + behind)
    assert (len(starts), end) == (600, len(before))


def blocks(seed: int, order: str, count: int, nested: float = 0.2) -> bytes:
    chance, ng = random.Random(seed), Ng(order)
    out = []
    for i in range(count):
        frame = chance.randbytes(chance.choice((0, 60, 66, 1514, chance.randrange(4000))))
        if chance.random() < nested:
            frame = bytes(chance.randrange(5)) + ng.packet(i, frame[:100]) * 20
        out.append(ng.packet(i, frame) if chance.random() < 0.95 else ng.block(chance.randrange(5, 12), frame))
    return b"".join(out)


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("cut", [0, 1, 5, 700])
def test_blocks_are_walked_alike(order: str, cut: int) -> None:
    content = blocks(cut, order, 900)
    starts, _ = check(PcapngBlocks(order, LIMIT), content[: len(content) - cut])
    assert 880 < len(starts) <= 900


def test_a_section_header_ends_a_walk_of_blocks() -> None:
    before = blocks(1, "<", 600)
    _, end = check(PcapngBlocks("<", LIMIT), before + Ng("<").section() + blocks(2, "<", 600))
    assert end == len(before)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 1 << 32), st.lists(st.tuples(st.floats(0, 1), st.integers(0, 255)), max_size=20))
def test_damaged_blocks_end_both_walks_at_one_place(seed: int, damage: list[tuple[float, int]]) -> None:
    content = bytearray(blocks(seed, "<", 300))
    for where, value in damage:
        content[int(where * (len(content) - 1))] = value
    check(PcapngBlocks("<", LIMIT), bytes(content))


@given(st.binary(max_size=200))
def test_few_bytes_are_walked_too(content: bytes) -> None:
    check(PcapRecords("<", 16, LIMIT, 10**6), content)
    check(PcapngBlocks("<", LIMIT), content)


def test_fields_are_read_in_either_order() -> None:
    data = np.frombuffer(bytes(range(9)), np.uint8)
    at = np.array([0, 1])
    assert fields(data, at, 2, np.dtype(">u4")).tolist() == [[0x00010203, 0x04050607], [0x01020304, 0x05060708]]
    assert fields(data, at, 1, np.dtype("<u4")).tolist() == [[0x03020100], [0x04030201]]
    assert fields(data, at[:0], 3, np.dtype("<u4")).shape == (0, 3)
