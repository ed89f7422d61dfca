"""Opening any capture: by any way in, of any kind, whole or cut or broken; never anything but frames or one line."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import os
import random
import shutil
import subprocess
import sys
import threading
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import lz4.frame
import numpy as np
import pytest
import zstandard
from capture_maker import Ng, flat, pcap
from hypothesis import given, settings
from hypothesis import strategies as st
from ncps_capture.capfile import CaptureFile, open_capture
from ncps_capture.errors import FileFault
from ncps_capture.pcapwrite import PcapWriter

FIXTURES = Path(__file__).parents[2] / "fixtures"
NG = Ng("<")
RECORDS = [(1_700_000_000 + i, 7 * i, bytes([i]) * (40 + 3 * i), 500) for i in range(14)]
STAMPS = [(seconds * 10**6 + micro, frame) for seconds, micro, frame, _ in RECORDS]
PLAIN = {
    "pcap": pcap(RECORDS),
    "nano": pcap(RECORDS, ">", "nano"),
    "modified": pcap(RECORDS, "<", "modified"),
    "pcapng": NG.section() + NG.interface() + b"".join(NG.packet(*each) for each in STAMPS[:7])
    + Ng(">").section() + Ng(">").interface(101, tsresol=9) + b"".join(Ng(">").packet(*each) for each in STAMPS[7:])
    + Ng(">").statistics(0, ifdrop=1),
}  # fmt: skip
PACK: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress,
    "zst": zstandard.ZstdCompressor().compress,
    "lz4": lz4.frame.compress,
    "xz": lzma.compress,
    "bz2": bz2.compress,
}
EVERY = PLAIN | {f"pcap.{kind}": pack(PLAIN["pcap"]) for kind, pack in PACK.items()}
every = pytest.mark.parametrize("kind", EVERY)


def count(content: bytes, chunk_bytes: int = 1 << 16) -> int:
    """Packets, of whatever bytes; 0 where they are no capture."""
    try:
        opened = open_capture(io.BytesIO(content))
    except FileFault:
        return 0
    frames = sum(len(batch.offsets) for batch in opened.batches(chunk_bytes))
    assert frames == opened.packets - opened.untimed - opened.unclaimed
    return opened.packets


@every
def test_the_first_bytes_tell_the_kind_not_the_name(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "named.txt"
    path.write_bytes(EVERY[kind])
    opened = open_capture(path, source=5)
    batches = list(opened.batches())
    assert [frame[1] for frame in flat(batches)] == [frame for _, _, frame, _ in RECORDS]
    assert {batch.source for batch in batches} == {5}
    assert (opened.packets, opened.warnings, opened.damaged) == (14, [], None)
    assert opened.size == opened.bytes_read == len(EVERY[kind])


def test_a_gzip_of_several_members_is_one_capture() -> None:
    content = PLAIN["pcap"]
    assert count(gzip.compress(content[:100]) + gzip.compress(content[100:])) == 14


def test_of_a_cut_gzip_what_was_decoded_is_kept(tmp_path: Path) -> None:
    chance = random.Random(1)
    packed = gzip.compress(pcap([(1, i, chance.randbytes(700), 700) for i in range(300)]))
    path = tmp_path / "x.gz"
    path.write_bytes(packed[: len(packed) // 2])
    opened = open_capture(path)
    assert 100 < len(flat(opened.batches())) < 160
    assert opened.damaged == f"cut at byte {len(packed) // 2} of its gzip data"
    assert f"{path}: {opened.damaged}" in opened.warnings


@every
@pytest.mark.parametrize("chunk_bytes", [1, 1 << 16])
def test_cut_at_any_byte_the_count_only_grows(kind: str, chunk_bytes: int) -> None:
    content = EVERY[kind]
    assert len(content) < 2048
    counts = [count(content[:cut], chunk_bytes) for cut in range(0, len(content) + 1, 1 if chunk_bytes > 1 else 41)]
    assert counts == sorted(counts)
    assert counts[0] == 0
    assert count(content, chunk_bytes) == 14


@settings(max_examples=400, deadline=None)
@given(st.sampled_from(list(EVERY)), st.lists(st.tuples(st.floats(0, 1), st.binary(min_size=1, max_size=8))))
def test_damaged_anywhere_nothing_is_raised_but_a_fault(kind: str, damage: list[tuple[float, bytes]]) -> None:
    content = bytearray(EVERY[kind])
    for where, put in damage:
        at = int(where * (len(content) - len(put)))
        content[at : at + len(put)] = put
    count(bytes(content))


@settings(max_examples=100, deadline=None)
@given(st.sampled_from([PLAIN["pcap"][:4], PLAIN["nano"][:4], NG.section(), b"\x1f\x8b\x08", b""]), st.binary())
def test_rubbish_behind_a_good_beginning(head: bytes, rest: bytes) -> None:
    count(head + rest)


@pytest.mark.parametrize("kind", PLAIN)
@pytest.mark.parametrize("length", [0xFFFFFFFF, 0x7FFFFFFC, 0x01000000])
def test_a_wrong_length_never_makes_much_of_a_small_file(kind: str, length: int) -> None:
    """A length at every place of the file in turn: what is held is a chunk and the longest frame there can be."""
    content = PLAIN[kind]
    tracemalloc.start()
    for at in range(4, 200, 4):
        count(content[:at] + length.to_bytes(4, "little" if kind != "nano" else "big") + content[at + 4 :])
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 40 << 20


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "it is empty"),
        (gzip.compress(b""), "it is empty"),
        (b"GET / HTTP/1.1\r\n\r\n and more", r"it is not a capture \(it starts with 47 45 54 20\)"),
        (gzip.compress(b"GET / HTTP/1.1\r\n\r\n and more"), r"it is not a capture \(it starts with 47 45 54 20\)"),
        (gzip.compress(PLAIN["pcap"])[:15], "it is cut at byte 15 of its gzip data"),
        (PLAIN["pcap"][:23], "it is cut inside the capture header, at byte 23"),
    ],
)
def test_what_is_no_capture_is_said_in_one_line(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "x"
    path.write_bytes(content)
    with pytest.raises(FileFault, match=f"^cannot read {path}: {reason}$"):
        open_capture(path)


def test_missing_files_folders_and_those_not_allowed_are_named(tmp_path: Path) -> None:
    with pytest.raises(FileFault, match=f"^cannot read {tmp_path}/none: No such file or directory$"):
        open_capture(tmp_path / "none")
    with pytest.raises(FileFault, match=f"^cannot read {tmp_path}: Is a directory$"):
        open_capture(str(tmp_path))


def test_a_file_that_may_not_be_read(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.touch(0o000)
    if os.access(path, os.R_OK):
        pytest.skip("this user may read everything")
    with pytest.raises(FileFault, match=f"^cannot read {path}: Permission denied$"):
        open_capture(path)


@every
def test_a_fifo_is_read_once_from_the_front(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "fifo"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_bytes, args=(EVERY[kind],))
    writer.start()
    opened = open_capture(path)
    assert len(flat(opened.batches())) == 14
    writer.join()
    assert (opened.size, opened.bytes_read) == (None, len(EVERY[kind]))


def test_what_a_slow_writer_wrote_is_handed_on_before_it_writes_more() -> None:
    read_end, write_end = os.pipe()
    content = PLAIN["pcap"]
    os.write(write_end, content[:200])
    opened = open_capture(os.fdopen(read_end, "rb", buffering=0))
    batches = opened.batches()
    first = next(batches)
    assert len(first.offsets) > 0
    os.write(write_end, content[200:])
    os.close(write_end)
    assert len(first.offsets) + len(flat(batches)) == 14


@pytest.mark.parametrize("kind", ["pcap", "pcapng", "pcap.zst"])
@pytest.mark.parametrize("way", ["pipe", "file"])
def test_standard_input(tmp_path: Path, kind: str, way: str) -> None:
    code = (
        "from ncps_capture.capfile import open_capture\n"
        "opened = open_capture('-')\n"
        "print(sum(len(batch.offsets) for batch in opened.batches()), opened.name, opened.size)"
    )
    path = tmp_path / "x"
    path.write_bytes(EVERY[kind])
    if way == "pipe":
        done = subprocess.run([sys.executable, "-c", code], input=EVERY[kind], capture_output=True, check=True)
    else:
        with path.open("rb") as file:
            done = subprocess.run([sys.executable, "-c", code], stdin=file, capture_output=True, check=True)
    size = None if way == "pipe" else len(EVERY[kind])
    assert done.stdout.decode() == f"14 standard input {size}\n"


def test_a_capture_may_be_left_before_its_end(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(PLAIN["pcap"])
    opened = open_capture(path)
    opened.close()
    opened.close()


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    """A file of many chunks needs no more than one of few, whatever its records are."""
    record = pcap([(1_700_000_000, 5, bytes(range(250)) * 4, 1000)])[24:]
    most = []
    for chunks in (4, 40):
        path = tmp_path / "x"
        path.write_bytes(PLAIN["pcap"][:24] + record * (chunks * (1 << 20) // len(record)))
        tracemalloc.start()
        assert sum(len(batch.offsets) for batch in open_capture(path).batches(1 << 20)) > 1000 * chunks
        most.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert most[1] < 1.5 * most[0] < 12 << 20


def all_fixtures() -> list[str]:
    return sorted(path.name for path in FIXTURES.glob("*.pcap"))


@pytest.mark.skipif(shutil.which("editcap") is None, reason="editcap is not installed")
@pytest.mark.parametrize("name", all_fixtures()[::6])
def test_a_capture_turned_into_pcapng_reads_the_same(tmp_path: Path, name: str) -> None:
    path = tmp_path / "x.pcapng"
    subprocess.run(["editcap", "-F", "pcapng", FIXTURES / name, path], check=True, capture_output=True)
    before, after = open_capture(FIXTURES / name), open_capture(path)
    assert flat(before.batches()) == flat(after.batches())
    assert before.link_type == after.link_type


@pytest.mark.skipif(shutil.which("capinfos") is None, reason="capinfos is not installed")
def test_capinfos_counts_the_same(tmp_path: Path) -> None:
    path = tmp_path / "x.pcapng"
    path.write_bytes(PLAIN["pcapng"])
    done = subprocess.run(["capinfos", "-Tmrc", path], capture_output=True, text=True, check=True)
    assert int(done.stdout.rsplit(",", 1)[-1]) == count(PLAIN["pcapng"])


def truth() -> dict[str, int]:
    folder = os.environ.get("NCPS_TRUTH_PCAPS")
    if not folder:
        return {}
    lines = Path(folder, "truth.jsonl").read_text(encoding="utf-8").splitlines()
    return {record["local"]: record["packets"] for record in map(json.loads, lines)}


@pytest.mark.truth
@pytest.mark.skipif("NCPS_TRUTH_PCAPS" not in os.environ, reason="NCPS_TRUTH_PCAPS is not set")
@pytest.mark.parametrize("name", sorted(truth()) or ["no captures at hand"])
@pytest.mark.parametrize("chunk_bytes", [100, 1 << 20])
def test_packets_of_real_captures(name: str, chunk_bytes: int) -> None:
    opened: CaptureFile = open_capture(Path(os.environ["NCPS_TRUTH_PCAPS"], name))
    frames = flat(opened.batches(chunk_bytes))
    assert opened.packets == truth()[name]
    assert len(frames) == opened.packets - opened.untimed


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "x.pcap"
    (batch,) = open_capture(io.BytesIO(PLAIN["nano"])).batches()
    with PcapWriter(path, 1, 65535, nanoseconds=True) as writer:
        writer.write(batch)
    (again,) = open_capture(path).batches()
    assert np.array_equal(again.t_ns, batch.t_ns)
    assert flat([again]) == flat([batch])


def test_a_file_that_is_cut_while_it_is_read_is_said_to_be(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(PLAIN["pcap"] + PLAIN["pcap"][24:] * 50)
    size = path.stat().st_size
    capture = open_capture(path)
    stream = capture.batches(200)
    next(stream)
    os.truncate(path, 24)
    list(stream)
    assert capture.damaged == f"cut to 24 of {size} bytes while it was read"
    assert any("cut to 24 of" in warning for warning in capture.warnings)
