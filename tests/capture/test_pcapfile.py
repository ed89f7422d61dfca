"""The classic pcap reader against dpkt, over both byte orders and both resolutions, and over damaged files."""

import io
import struct
import tracemalloc
from pathlib import Path

import dpkt
import numpy as np
import pytest
from capture_maker import Frame, Record, flat, pcap
from hypothesis import given, settings
from hypothesis import strategies as st
from ncps_capture.capfile import CaptureFile, open_capture
from ncps_capture.errors import FileFault


def read(path: Path, content: bytes, chunk_bytes: int = 1 << 20) -> tuple[CaptureFile, list[Frame]]:
    path.write_bytes(content)
    opened = open_capture(path, source=3)
    batches = list(opened.batches(chunk_bytes))
    assert {batch.source for batch in batches} <= {3}
    return opened, flat(batches)


FRAMES = st.lists(
    st.tuples(st.integers(0, 0xFFFFFFFF), st.integers(0, 999_999), st.binary(max_size=90), st.integers(0, 70_000)),
    min_size=1,
    max_size=20,
)


@settings(max_examples=100, deadline=None)
@given(FRAMES, st.sampled_from("<>"), st.sampled_from(["micro", "nano", "modified"]), st.integers(1, 400))
def test_every_record_is_read_as_it_is_and_as_dpkt_reads_it(
    tmp_path_factory: pytest.TempPathFactory, records: list[Record], order: str, unit: str, chunk_bytes: int
) -> None:
    content = pcap(records, order, unit)
    opened, frames = read(tmp_path_factory.getbasetemp() / "x.pcap", content, chunk_bytes)
    scale = 1 if unit == "nano" else 1000
    assert frames == [(s * 10**9 + f * scale, b, n, i) for i, (s, f, b, n) in enumerate(records, 1)]
    assert opened.warnings == []
    assert (opened.link_type, opened.packets) == (1, len(records))
    if unit == "modified":  # which dpkt does not know
        return
    assert [frame[1] for frame in frames] == [bytes(b) for _, b in dpkt.pcap.Reader(io.BytesIO(content))]


def test_frames_are_numbered_across_batches(tmp_path: Path) -> None:
    path = tmp_path / "x.pcap"
    path.write_bytes(pcap([(1, 0, bytes(50), 50)] * 10))
    batches = list(open_capture(path).batches(chunk_bytes=140))
    assert len(batches) > 2
    assert [frame[3] for frame in flat(batches)] == list(range(1, 11))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "it is empty"),
        (b"GET / HTTP/1.1\r\n\r\n and more", r"it is not a capture \(it starts with 47 45 54 20\)"),
        (b"\xa1", r"it is not a capture \(it starts with a1\)"),
        (pcap([])[:23], "it is cut inside the capture header, at byte 23"),
    ],
)
def test_files_without_packets_say_what_they_are(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "x.pcap"
    path.write_bytes(content)
    with pytest.raises(FileFault, match=f"^cannot read {path}: {reason}$"):
        list(open_capture(path).batches())


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileFault, match=f"^cannot read {tmp_path}/none: No such file or directory$"):
        open_capture(tmp_path / "none")


@pytest.mark.parametrize("cut", [1, 59, 60, 61, 75])
@pytest.mark.parametrize("chunk_bytes", [50, 1 << 20])
def test_a_cut_last_record_is_reported_and_not_used(tmp_path: Path, cut: int, chunk_bytes: int) -> None:
    content = pcap([(1, 2, bytes(60), 60), (1, 3, bytes(60), 60)])
    opened, frames = read(tmp_path / "x.pcap", content[:-cut], chunk_bytes)
    assert [frame[3] for frame in frames] == [1]
    assert opened.warnings == [f"{opened.name}: cut inside record 2 at byte 100; not used"]


def test_a_first_record_that_is_cut_is_a_warning_and_no_packets(tmp_path: Path) -> None:
    opened, frames = read(tmp_path / "x.pcap", pcap([(1, 2, bytes(60), 60)])[:-1])
    assert frames == []
    assert opened.warnings == [f"{opened.name}: cut inside record 1 at byte 24; not used"]


@pytest.mark.parametrize("chunk_bytes", [50, 1 << 20])
def test_a_length_that_cannot_be_true_stops_the_reading_and_keeps_what_was_before(
    tmp_path: Path, chunk_bytes: int
) -> None:
    good = pcap([(1, 2, bytes(60), 60), (1, 3, bytes(60), 60)], snaplen=100)
    damaged = struct.pack("<IIII", 1, 4, (256 << 10) + 101, 60) + bytes(1 << 20)
    opened, frames = read(tmp_path / "x.pcap", good + damaged, chunk_bytes)
    assert [frame[3] for frame in frames] == [1, 2]
    assert opened.warnings == [f"{opened.name}: damaged at byte {len(good)}, record 3; stopped there"]


def test_a_long_record_spans_chunks(tmp_path: Path) -> None:
    frame = np.arange(200_000, dtype=np.uint32).astype(np.uint8).tobytes()
    opened, frames = read(tmp_path / "x.pcap", pcap([(1, 2, frame, 300_000)], snaplen=0), chunk_bytes=4096)
    assert frames == [(1_000_002_000, frame, 300_000, 1)]
    assert opened.warnings == []


def test_a_fraction_of_a_second_or_more_is_added_and_counted(tmp_path: Path) -> None:
    opened, frames = read(tmp_path / "x.pcap", pcap([(5, 1_000_001, b"x", 1), (5, 999_999, b"x", 1)]))
    assert [frame[0] for frame in frames] == [6_000_001_000, 5_999_999_000]
    assert opened.warnings == [
        f"{opened.name}: 1 record has a fraction of a second of 1 s or more; it was added to the seconds"
    ]


def test_several_such_fractions_are_in_the_plural(tmp_path: Path) -> None:
    opened, _ = read(tmp_path / "x.pcap", pcap([(5, 1_000_001, b"x", 1)] * 2))
    assert opened.warnings == [
        f"{opened.name}: 2 records have a fraction of a second of 1 s or more; it was added to the seconds"
    ]


def test_time_zone_is_ignored_with_a_warning_and_flags_above_the_link_type_are_masked(tmp_path: Path) -> None:
    opened, frames = read(tmp_path / "x.pcap", pcap([(5, 0, b"x", 1)], zone=3600, network=0x1400_0071))
    assert opened.link_type == 113
    assert frames[0][0] == 5_000_000_000
    assert opened.warnings == [f"{opened.name}: the header's time zone of 3600 s is ignored: times are taken as UTC"]


def test_a_header_alone_is_a_warning(tmp_path: Path) -> None:
    opened, frames = read(tmp_path / "x.pcap", pcap([], zone=60))
    assert (frames, opened.packets) == ([], 0)
    assert opened.warnings[-1] == f"{opened.name}: it has a capture header and no packets"


def test_a_claim_of_four_gibibytes_takes_no_memory(tmp_path: Path) -> None:
    """The header allows frames of any length: what is held for one that is not there is bounded all the same."""
    content = pcap([(1, 2, bytes(60), 60)], snaplen=0xFFFFFFFF)
    damaged = struct.pack("<IIII", 1, 4, 0xFFFFFFFF, 60) + bytes(100)
    tracemalloc.start()
    opened, frames = read(tmp_path / "x.pcap", content + damaged, chunk_bytes=4096)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(frames) == 1
    assert opened.damaged == f"damaged at byte {len(content)}, record 2"
    assert most < 5 << 20


def test_a_frame_longer_than_it_was_on_the_wire_is_kept(tmp_path: Path) -> None:
    opened, frames = read(tmp_path / "x.pcap", pcap([(1, 2, b"abc", 2), (1, 3, b"d", 1)]))
    assert frames == [(1_000_002_000, b"abc", 2, 1), (1_000_003_000, b"d", 1, 2)]
    assert opened.warnings == []
