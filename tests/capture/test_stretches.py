"""Stretches: where they begin and end, what they tell of their frames, and what makes none."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from capture_maker import flat, pcap
from capture_stretches import STRETCH, traffic
from ncps_capture.capfile import CaptureFile, open_capture
from ncps_capture.segments import ACK, RST, SYN
from ncps_capture.stretches import LEAD, Stretch, StretchReader, joined, read_at

RECORDS = traffic(20)
CONTENT = pcap(RECORDS)
STARTS = np.cumsum([24, *(16 + len(data) for _, _, data, _ in RECORDS)])


@contextmanager
def opened(path: Path, content: bytes = CONTENT) -> Iterator[tuple[CaptureFile, StretchReader]]:
    path.write_bytes(content)
    capture = open_capture(path)
    reader = capture.stretch_reader()
    assert reader is not None
    yield capture, reader
    capture.close()


def taken(stretch: Stretch | None) -> Stretch:
    assert stretch is not None
    return stretch


def test_a_stretch_is_what_is_whole_before_its_end_and_not_before_its_beginning(tmp_path: Path) -> None:
    with opened(tmp_path / "x") as (_, reader):
        for begin in range(LEAD, len(CONTENT) - STRETCH, 77_777):
            stretch = taken(reader.read(begin, begin + STRETCH))
            assert stretch.start == STARTS[np.searchsorted(STARTS, begin, "right") - 1]
            assert stretch.end == STARTS[np.searchsorted(STARTS, begin + STRETCH, "right") - 1]
            assert stretch.packets == np.count_nonzero((stretch.start <= STARTS) & (stretch.end > STARTS))


def test_a_boundary_on_which_a_record_begins(tmp_path: Path) -> None:
    begin = int(STARTS[np.searchsorted(STARTS, LEAD + 1000)])
    with opened(tmp_path / "x") as (_, reader):
        assert taken(reader.read(begin, begin + STRETCH)).start == begin
        assert taken(reader.read(begin, begin + STRETCH, exact=True)).start == begin


def test_all_acks_are_told_and_their_frames_can_be_read_again(tmp_path: Path) -> None:
    path = tmp_path / "x"
    with opened(path) as (_, reader):
        stretch = taken(reader.read(24, 24 + 3 * STRETCH, exact=True))
        batches = reader.frames(stretch, stretch.acks.rows)
    said = [each for each in flat(open_capture(path).batches()) if each[3] <= stretch.packets]
    assert flat(batches) == [each for each in said if each[1][47] & (SYN | RST | ACK) == ACK]
    assert stretch.acks.words.byteswap().tolist() == [int.from_bytes(each[1][42:46], "big") for each in flat(batches)]


def test_what_syn_acks_await_at_the_end(tmp_path: Path) -> None:
    with opened(tmp_path / "x") as (_, reader):
        stretch = taken(reader.read(24, 24 + STRETCH, exact=True))
    answers = stretch.segments[stretch.segments["flags"] == SYN | ACK]
    done = set(stretch.acks.words.byteswap().tolist())
    awaited = {int(seq) + 1 & 0xFFFFFFFF for seq in answers["seq"]} - done
    assert awaited
    assert set(stretch.awaited.numbers.tolist()) == awaited


@pytest.mark.parametrize("content", [CONTENT[: LEAD + STRETCH // 2], CONTENT[:LEAD] + b"\xff" * len(CONTENT)])
def test_the_end_of_the_file_and_rubbish_make_no_stretch(tmp_path: Path, content: bytes) -> None:
    with opened(tmp_path / "x", content) as (_, reader):
        assert reader.read(LEAD + 10_000, LEAD + 10_000 + STRETCH) is None


def test_only_a_plain_file_has_stretches(tmp_path: Path) -> None:
    import gzip

    path = tmp_path / "x.gz"
    path.write_bytes(gzip.compress(CONTENT))
    capture = open_capture(path)
    assert capture.stretch_reader() is None
    capture.close()


def test_read_at_tells_how_much_there_is(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(bytes(range(100)))
    descriptor = os.open(path, os.O_RDONLY)
    data = np.zeros(50, np.uint8)
    assert read_at(descriptor, 70, data) == 30
    assert data[:31].tolist() == [*range(70, 100), 0]
    os.close(descriptor)


def test_times_of_frames_one_behind_the_other() -> None:
    assert joined(None, (5, 7, 9)) == (5, 7, 9)
    assert joined((5, 7, 9), (6, 8, 8)) == (5, 8, 9)
