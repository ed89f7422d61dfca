"""Several captures read as one: handshakes that straddle files come out as from one file, by mergecap too."""

from __future__ import annotations

import io
import shutil
import subprocess
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from capture_maker import Record, flat, pcap
from hypothesis import given, settings
from hypothesis import strategies as st
from ncps_capture.capfile import CaptureFile, open_capture
from ncps_capture.decode import decode
from ncps_capture.errors import FileFault
from ncps_capture.handshake import HandshakeTable, merge_rows
from ncps_capture.merged import MergedCapture, open_captures
from ncps_capture.segments import Batch, Handshakes

FIXTURES = Path(__file__).parents[2] / "fixtures"
START = 1_700_000_000


def at_ms(*times: int) -> bytes:
    return pcap([(START + t // 1000, t % 1000 * 1000, str(t).encode(), 60) for t in times])


def save(folder: Path, *contents: bytes) -> list[Path]:
    paths = [folder / f"{i}.pcap" for i in range(len(contents))]
    for path, content in zip(paths, contents, strict=True):
        path.write_bytes(content)
    return paths


def order(batches: list[Batch]) -> list[tuple[int, int]]:
    """(source, number of the frame) as they come."""
    return [(batch.source, batch.first_frame + i) for batch in batches for i in range(len(batch.t_ns))]


def test_consecutive_files_come_one_behind_the_other_whatever_their_order(tmp_path: Path) -> None:
    paths = save(tmp_path, at_ms(4000, 4001), at_ms(0, 10), at_ms(900, 1000, 2000))
    merged = open_captures(paths)
    batches = list(merged.batches())
    assert [(batch.source, len(batch.t_ns)) for batch in batches] == [(1, 2), (2, 3), (0, 2)]
    assert (merged.packets, merged.warnings, merged.damaged, merged.drops) == (7, [], None, None)
    assert merged.size == merged.bytes_read == sum(path.stat().st_size for path in paths)
    assert [file.name for file in merged.files] == [str(path) for path in paths]


def test_files_of_the_same_time_take_turns(tmp_path: Path) -> None:
    paths = save(tmp_path, at_ms(*range(0, 1000, 100)), at_ms(*range(50, 1000, 100)))
    batches = list(MergedCapture(paths, slack_ns=0).batches())
    assert order(batches) == [(i % 2, i // 2 + 1) for i in range(20)]
    batches = list(MergedCapture(paths, slack_ns=200_000_000).batches())
    assert len(batches) < 8
    assert sorted(order(batches)) == [(i // 10, i % 10 + 1) for i in range(20)]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.integers(0, 3000), max_size=12).map(sorted), min_size=2, max_size=4), st.integers(30, 300))
def test_time_goes_back_no_further_than_the_slack(
    tmp_path_factory: pytest.TempPathFactory, files: list[list[int]], chunk_bytes: int
) -> None:
    paths = save(tmp_path_factory.getbasetemp(), *(at_ms(*times) for times in files))
    batches = list(open_captures(paths).batches(chunk_bytes))
    times = [t for batch in batches for t in batch.t_ns.tolist()]
    assert sorted(times) == sorted(START * 10**9 + t * 10**6 for file in files for t in file)
    if times:
        assert (np.maximum.accumulate(times) - np.array(times)).max() <= 50_000_000
    for source in range(len(files)):
        mine = [number for of, number in order(batches) if of == source]
        assert mine == list(range(1, len(files[source]) + 1))


def handshakes(batches: list[Batch]) -> Handshakes:
    table, parts, last = HandshakeTable(third_ack=True), [], 0
    for batch in batches:
        table.add(decode(batch, want_acks=True)[0])
        last = max(last, int(batch.t_ns.max()))
        parts.append(table.settle(last))
    rows = merge_rows(np.concatenate([*parts, table.finish(last)]))
    rows["source"], rows["frame"] = 0, 0
    return np.sort(rows, order=["t_order_ns", "client_lo", "sport", "isn"])


def split(path: Path, way: str) -> list[bytes]:
    """The records of a capture dealt to two files: by turns, or the first half and the second."""
    opened = open_capture(path)
    records: list[Record] = [(t // 10**9, t % 10**9, frame, length) for t, frame, length, _ in flat(opened.batches())]
    half = len(records) // 2
    parts = (records[::2], records[1::2]) if way == "by turns" else (records[:half], records[half:])
    return [pcap(part, unit="nano", network=opened.link_type) for part in parts]


@pytest.mark.parametrize("way", ["by turns", "by halves"])
@pytest.mark.parametrize(
    "name", ["clean_ipv4", "clean_ipv6", "retrans_echo_second", "synack_slow", "tfo", "refused_rst", "tuple_reused"]
)
def test_handshakes_that_straddle_files_are_those_of_one_file(tmp_path: Path, name: str, way: str) -> None:
    path = FIXTURES / f"{name}.pcap"
    paths = save(tmp_path, *split(path, way))
    whole = handshakes(list(open_capture(path).batches()))
    assert len(whole) > 0
    assert handshakes(list(open_captures(paths).batches())).tolist() == whole.tolist()
    assert handshakes(list(open_captures(paths[::-1]).batches())).tolist() == whole.tolist()


@pytest.mark.skipif(shutil.which("mergecap") is None, reason="mergecap is not installed")
def test_mergecap_finds_the_same_frames(tmp_path: Path) -> None:
    paths = save(tmp_path, at_ms(*range(0, 900, 7)), at_ms(*range(100, 2000, 11)), at_ms(5))
    subprocess.run(["mergecap", "-w", tmp_path / "all", *paths], check=True, capture_output=True)
    theirs = [frame[:3] for frame in flat(open_capture(tmp_path / "all").batches())]
    mine = [frame[:3] for frame in flat(MergedCapture(paths, slack_ns=0).batches())]
    assert sorted(mine) == sorted(theirs)
    assert [frame[0] for frame in mine] == [frame[0] for frame in theirs]


def test_a_file_without_packets_is_a_warning_and_no_hindrance(tmp_path: Path) -> None:
    paths = save(tmp_path, pcap([]), at_ms(5, 6))
    merged = open_captures(paths)
    assert len(flat(merged.batches())) == 2
    assert merged.warnings == [f"{paths[0]}: it has a capture header and no packets"]


def test_a_file_that_is_no_capture_is_named_at_once(tmp_path: Path) -> None:
    paths = save(tmp_path, at_ms(5, 6), b"no capture")
    with pytest.raises(FileFault, match=f"^cannot read {paths[1]}: it is not a capture"):
        open_captures(paths)


def test_damage_names_its_file(tmp_path: Path) -> None:
    paths = save(tmp_path, at_ms(5, 6), at_ms(7, 8)[:-1])
    merged = open_captures(paths)
    assert len(flat(merged.batches())) == 3
    assert merged.damaged == f"{paths[1]}: cut inside record 2 at byte 41"


def test_what_can_be_read_only_once_is_merged_too(tmp_path: Path) -> None:
    (path,) = save(tmp_path, at_ms(0, 300, 600))
    merged = open_captures([path, io.BytesIO(at_ms(100, 400))])
    assert [source for source, _ in order(list(merged.batches()))] == [0, 1, 0, 1, 0]
    assert merged.size is None


def test_one_name_is_one_file(tmp_path: Path) -> None:
    (path,) = save(tmp_path, at_ms(5))
    assert isinstance(open_captures([path]), CaptureFile)


def test_many_files_need_neither_descriptors_nor_memory_at_once(tmp_path: Path) -> None:
    paths = save(tmp_path, *(at_ms(*range(1000 * i, 1000 * i + 900, 9)) for i in range(300)))
    open_now = len(list(Path("/proc/self/fd").iterdir())) if Path("/proc/self/fd").exists() else None
    tracemalloc.start()
    merged = open_captures(paths)
    if open_now is not None:
        assert len(list(Path("/proc/self/fd").iterdir())) < open_now + 10
    times = [int(batch.t_ns[0]) for batch in merged.batches(1 << 16)]
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (len(times), times) == (300, sorted(times))
    assert most < 8 << 20
