"""The pcapng reader: sections, interfaces, clocks, losses; against tshark where it is installed."""

from __future__ import annotations

import random
import shutil
import struct
import subprocess
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from capture_maker import Frame, Ng, flat
from hypothesis import given
from hypothesis import strategies as st
from ncps_capture.capfile import CaptureFile, open_capture
from ncps_capture.pcapng import nanoseconds
from ncps_capture.segments import UNKNOWN

LE, BE = Ng("<"), Ng(">")
MICRO = 1_700_000_000_000_000
needs_tshark = pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed")


def read(path: Path, content: bytes, chunk_bytes: int = 1 << 20) -> tuple[CaptureFile, list[Frame]]:
    path.write_bytes(content)
    opened = open_capture(path)
    return opened, flat(opened.batches(chunk_bytes))


@pytest.mark.parametrize("chunk_bytes", [1, 37, 1 << 20])
def test_sections_have_their_own_order_and_interfaces(tmp_path: Path, chunk_bytes: int) -> None:
    content = (
        LE.section() + LE.interface(1) + LE.packet(MICRO, b"abcd", length=9)
        + BE.section() + BE.interface(101, tsresol=9) + BE.packet(5, b"efghi")
        + LE.section() + LE.interface(113) + LE.interface(1, tsresol=0) + LE.packet(7, b"", interface=1)
    )  # fmt: skip
    opened, frames = read(tmp_path / "x", content, chunk_bytes)
    assert frames == [(MICRO * 1000, b"abcd", 9, 1), (5, b"efghi", 5, 2), (7 * 10**9, b"", 0, 3)]
    assert [(each.link_type, each.packets) for each in opened.interfaces] == [(1, 1), (101, 1), (113, 0), (1, 1)]
    assert opened.warnings == []
    assert opened.drops is None


@pytest.mark.parametrize("packets", [1, 30, 3000])
def test_many_files_one_behind_the_other_are_one_capture(tmp_path: Path, packets: int) -> None:
    parts = [
        ng.section() + ng.interface(tsresol=9) + b"".join(ng.packet(i, bytes(i % 99)) for i in range(packets))
        for ng in (LE, BE, LE, BE, BE)
    ]
    opened, frames = read(tmp_path / "x", b"".join(parts))
    assert [frame[3] for frame in frames] == list(range(1, 5 * packets + 1))
    assert [frame[0] for frame in frames] == list(range(packets)) * 5
    assert (len(opened.interfaces), opened.warnings) == (5, [])


def test_more_interfaces_than_there_can_be_take_no_more_memory(tmp_path: Path) -> None:
    content = LE.section() + LE.interface() * 70_000 + LE.packet(MICRO, b"a", interface=65_535)
    opened, frames = read(tmp_path / "x", content + LE.packet(MICRO, b"b", interface=65_536))
    assert [frame[1] for frame in frames] == [b"a"]
    assert (opened.unclaimed, len(opened.interfaces)) == (1, 65_536)


def test_unknown_blocks_and_options_are_passed_over(tmp_path: Path) -> None:
    noise = LE.block(0x12345678, b"any") + LE.block(4, bytes(8)) + LE.block(10, bytes(40))
    options = LE.option(2, bytes(4)) + LE.option(2988, b"\x12\x34\x56\x78odd") + LE.option(0, b"")
    content = LE.section() + noise + LE.interface() + noise + LE.packet(MICRO, b"abc", options=options) + noise
    opened, frames = read(tmp_path / "x", content)
    assert frames == [(MICRO * 1000, b"abc", 3, 1)]
    assert opened.warnings == []


def test_the_old_block_and_the_simple_one(tmp_path: Path) -> None:
    content = LE.section() + LE.interface() + LE.simple(b"abc") + LE.old_packet(MICRO, b"defg") + LE.simple(b"x")
    opened, frames = read(tmp_path / "x", content)
    assert frames == [(MICRO * 1000, b"defg", 4, 2)]
    assert (opened.packets, opened.untimed) == (3, 2)
    assert opened.warnings == [f"{opened.name}: 2 packets with no time, or none that can be: counted, and no more"]


def test_an_interface_that_is_described_later_is_unknown(tmp_path: Path) -> None:
    late = LE.packet(MICRO, b"a", interface=1) + LE.interface() + LE.packet(MICRO, b"b", interface=1)
    opened, frames = read(tmp_path / "x", LE.section() + LE.interface() + late)
    assert frames == [(MICRO * 1000, b"b", 1, 2)]
    assert (opened.packets, opened.unclaimed, opened.untimed) == (2, 1, 0)


@pytest.mark.parametrize("ng", [LE, BE])
def test_losses_of_statistics_and_of_packets_are_summed(tmp_path: Path, ng: Ng) -> None:
    lost = ng.option(2, bytes(4)) + ng.option(4, struct.pack(f"{ng.order}Q", 3)) + ng.option(0, b"")
    content = (
        ng.section() + ng.interface() + ng.interface()
        + ng.packet(MICRO, b"abc", options=lost) + ng.old_packet(MICRO, b"abc", drops=4)
        + ng.statistics(0, ifrecv=1000, ifdrop=5) + ng.statistics(0, ifdrop=7) + ng.statistics(1, ifdrop=10, osdrop=20)
    )  # fmt: skip
    opened, _ = read(tmp_path / "x", content)
    assert opened.drops == 3 + 4 + 7 + 10 + 20


def test_no_losses_is_a_statement_too(tmp_path: Path) -> None:
    opened, _ = read(
        tmp_path / "x", LE.section() + LE.interface() + LE.packet(MICRO, b"a") + LE.statistics(0, ifdrop=0)
    )
    assert opened.drops == 0


@given(
    st.lists(st.integers(0, (1 << 64) - 1), min_size=1, max_size=5),
    st.integers(0, 255),
    st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(-(10**10), 10**10),
)
def test_times_are_exact_in_every_resolution(stamps: list[int], tsresol: int, tsoffset: int) -> None:
    units = 2 ** (tsresol & 0x7F) if tsresol & 0x80 else 10**tsresol
    found = nanoseconds(np.array(stamps, np.uint64), tsresol, tsoffset).tolist()
    for stamp, t_ns in zip(stamps, found, strict=True):
        seconds = stamp // units + tsoffset
        exact = Fraction(stamp * 10**9, units) // 1 + tsoffset * 10**9
        assert t_ns == (exact if abs(seconds) <= (1 << 62) // 10**9 else UNKNOWN)


@pytest.mark.parametrize("tsresol", [0, 3, 6, 9, 12, 0x80, 0x88, 0xA0, 0xBF])
def test_times_stay_exact_through_a_file(tmp_path: Path, tsresol: int) -> None:
    units = 2 ** (tsresol & 0x7F) if tsresol & 0x80 else 10**tsresol
    stamp = (1 << 64) // 3 if units > 1 << 33 else 1_700_000_000 * units + units // 3
    content = LE.section() + LE.interface(tsresol=tsresol, offset=-5) + LE.packet(stamp, b"a")
    _, frames = read(tmp_path / "x", content)
    assert frames[0][0] == stamp * 10**9 // units - 5 * 10**9


def test_a_time_no_clock_shows_is_unknown(tmp_path: Path) -> None:
    content = LE.section() + LE.interface(tsresol=0) + LE.packet(1 << 63, b"a") + LE.packet(5, b"b")
    opened, frames = read(tmp_path / "x", content)
    assert frames == [(5 * 10**9, b"b", 1, 2)]
    assert (opened.packets, opened.untimed) == (2, 1)


def test_frames_between_which_the_link_type_changes_keep_file_order(tmp_path: Path) -> None:
    runs = [LE.packet(MICRO + i, b"abc", interface=i // 50 % 2) for i in range(200)]
    path = tmp_path / "x"
    path.write_bytes(LE.section() + LE.interface(1) + LE.interface(101) + b"".join(runs))
    batches = list(open_capture(path).batches())
    assert [batch.link_type for batch in batches] == [1, 101, 1, 101]
    assert [frame[3] for frame in flat(batches)] == list(range(1, 201))


def test_frames_of_link_types_that_alternate_come_in_few_batches_and_nearly_in_order(tmp_path: Path) -> None:
    mixed = [LE.packet(MICRO + 100 * i, bytes([i & 255]), interface=i % 2) for i in range(2000)]  # 200 ms
    path = tmp_path / "x"
    path.write_bytes(LE.section() + LE.interface(1) + LE.interface(101) + b"".join(mixed))
    batches = list(open_capture(path).batches())
    assert len(batches) <= 12
    frames = flat(batches)
    assert sorted(frame[3] for frame in frames) == list(range(1, 2001))
    assert all(frame[0] == (MICRO + 100 * (frame[3] - 1)) * 1000 for frame in frames)
    times = np.array([frame[0] for frame in frames])
    assert (np.maximum.accumulate(times) - times).max() <= 50_000_000


@pytest.mark.parametrize(
    "damaged",
    [
        LE.packet(MICRO, bytes(60))[:-4] + struct.pack("<I", 96),  # lengths differ
        struct.pack("<III", 6, 8, 8),  # shorter than its own frame
        struct.pack("<II", 6, 0xFFFFFFF0) + bytes(64),
        LE.block(6, struct.pack("<IIIII", 0, 0, 0, 61, 61) + bytes(60)),  # more bytes than the block has
        LE.block(6, bytes(16)),
        LE.block(1, bytes(4)),
        struct.pack("<III", 0x0A0D0D0A, 28, 0x11223344) + bytes(16),  # no byte order
        struct.pack("<III", 0x0A0D0D0A, 12, 0x1A2B3C4D),
    ],
)  # fmt: skip
@pytest.mark.parametrize("chunk_bytes", [1, 1 << 20])
def test_damage_stops_the_reading_and_keeps_what_was_before(tmp_path: Path, damaged: bytes, chunk_bytes: int) -> None:
    good = LE.section() + LE.interface() + LE.packet(MICRO, bytes(60))
    opened, frames = read(tmp_path / "x", good + damaged + LE.packet(MICRO, b"b"), chunk_bytes)
    assert [frame[3] for frame in frames] == [1]
    assert opened.damaged == f"damaged at byte {len(good)}, record 2"
    assert opened.warnings == [f"{opened.name}: damaged at byte {len(good)}, record 2; stopped there"]


def test_a_header_alone_is_a_warning(tmp_path: Path) -> None:
    opened, frames = read(tmp_path / "x", LE.section() + LE.interface())
    assert (frames, opened.warnings) == ([], [f"{opened.name}: it has a capture header and no packets"])


@needs_tshark
@pytest.mark.parametrize("ng", [LE, BE])
@pytest.mark.parametrize("resolutions", [(6, 9, 3), (6, 0x8A, 0), (0xA0, 7, 9)])
def test_tshark_numbers_and_times_them_alike(tmp_path: Path, ng: Ng, resolutions: tuple[int, int, int]) -> None:
    """But for units shorter than a nanosecond, whose fraction tshark lets overflow."""
    chance = random.Random(7)
    content = ng.section() + b"".join(ng.interface(147 + i, tsresol=each) for i, each in enumerate(resolutions))
    for _ in range(40):
        interface, frame = chance.randrange(3), chance.randbytes(chance.randrange(40))
        tsresol = resolutions[interface]
        units = 2 ** (tsresol & 0x7F) if tsresol & 0x80 else 10**tsresol
        stamp = 10**9 * units + chance.randrange(10**6 * units)
        content += chance.choice(
            (
                ng.packet(stamp, frame, interface),
                ng.old_packet(stamp, frame, interface),
                ng.simple(frame),
                ng.block(0xBAD, struct.pack(f"{ng.order}I", 32473) + frame),
            )
        )
    path = tmp_path / "tshark.pcapng"
    opened, frames = read(path, content)
    done = subprocess.run(
        ["tshark", "-r", path, "-T", "fields", "-e", "frame.number", "-e", "frame.time_epoch", "-e", "frame.cap_len"],
        capture_output=True,
        text=True,
        check=True,
    )
    lines = [line.split("\t") for line in done.stdout.splitlines()]
    assert len(lines) == opened.packets == 40
    theirs = {
        int(number): (int(seconds) * 10**9 + int(fraction.ljust(9, "0")), int(size))
        for number, t, size in lines
        if t
        for seconds, fraction in [t.split(".")]
    }
    mine = {frame[3]: (frame[0], len(frame[1])) for frame in frames}
    assert mine == {number: found for number, found in theirs.items() if number in mine}
    assert len(mine) == opened.packets - opened.untimed > 10
