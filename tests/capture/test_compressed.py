"""Decompression: every kind, several members, cut and damaged streams, and files that blow up."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import random
import sys
import tracemalloc
from collections.abc import Callable

import lz4.frame
import pytest
import zstandard
from ncps_capture.compressed import KINDS, Decompressed, kind_of
from ncps_capture.errors import FileFault

PACK: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "zstd": zstandard.ZstdCompressor(write_checksum=True).compress,
    "lz4": lz4.frame.compress,
    "xz": lzma.compress,
    "bzip2": bz2.compress,
}
TEXT = random.Random(4).randbytes(5_000) * 3 + bytes(300_000)
kinds = pytest.mark.parametrize("kind", PACK)


def unpack(packed: bytes, kind: str, view_bytes: int = 50_000, piece: int = 1 << 20) -> tuple[bytes, str | None]:
    file = io.BytesIO(packed)
    stream = Decompressed("x", kind, file.read(24), lambda count: file.read(min(count, piece)))
    out, view = [], memoryview(bytearray(view_bytes))
    while count := stream.readinto(view):
        out.append(bytes(view[:count]))
    assert stream.readinto(view) == 0
    return b"".join(out), stream.damaged


@kinds
@pytest.mark.parametrize(("view_bytes", "piece"), [(1 << 20, 1 << 20), (1000, 7), (1, 300)])
def test_what_was_packed_comes_out(kind: str, view_bytes: int, piece: int) -> None:
    text = TEXT[:20_000] if view_bytes == 1 else TEXT
    packed = PACK[kind](text)
    assert kind_of(packed[:24]) == kind
    assert unpack(packed, kind, view_bytes, piece) == (text, None)


@kinds
@pytest.mark.parametrize("piece", [1, 1 << 20])
def test_members_one_after_the_other_are_one_stream(kind: str, piece: int) -> None:
    parts = [b"one", b"", b"three" * 100]
    assert unpack(b"".join(map(PACK[kind], parts)), kind, piece=piece) == (b"".join(parts), None)


@kinds
def test_zeros_behind_it_are_padding_and_anything_else_is_said(kind: str) -> None:
    packed = PACK[kind](b"text")
    assert unpack(packed + bytes(512) + packed, kind) == (b"texttext", None)
    damaged = f"followed by bytes that are not {kind}; not used"
    assert unpack(packed + b"and more", kind) == (b"text", damaged)


@kinds
def test_of_a_cut_stream_all_that_was_whole_is_kept(kind: str) -> None:
    packed = PACK[kind](TEXT)
    lengths = []
    for cut in range(24, len(packed), len(packed) // 40):
        text, damaged = unpack(packed[:cut], kind)
        assert TEXT.startswith(text)
        assert damaged == f"cut at byte {cut} of its {kind} data"
        lengths.append(len(text))
    assert lengths == sorted(lengths)
    first = PACK[kind](b"first member")
    assert unpack(first + packed[: len(packed) // 2], kind)[0].startswith(b"first member")


@kinds
def test_rubbish_ends_the_stream_and_never_raises(kind: str) -> None:
    chance = random.Random(1)
    packed = PACK[kind](TEXT)
    said = set()
    for _ in range(150):
        broken = bytearray(packed)
        for _ in range(3):
            broken[chance.randrange(6, len(broken))] = chance.randrange(256)
        _, damaged = unpack(bytes(broken), kind)
        said.add(damaged and damaged.split(" near")[0])
    assert "damaged" in said


@kinds
def test_a_small_file_that_becomes_a_large_one_is_taken_piece_by_piece(kind: str) -> None:
    packed = PACK[kind](bytes(64 << 20))
    file = io.BytesIO(packed)
    stream = Decompressed("x", kind, file.read(24), file.read)
    view = memoryview(bytearray(1 << 20))
    tracemalloc.start()
    for _ in range(20):
        assert stream.readinto(view) == len(view)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 56 << 20


def test_other_beginnings_are_not_compressed() -> None:
    assert [kind_of(head) for head in (b"", b"\x1f", b"\xa1\xb2\xc3\xd4")] == [None] * 3
    assert {kind_of(magic + bytes(20)) for magic in KINDS} == set(PACK)


@pytest.mark.parametrize(("kind", "module"), [("zstd", "zstandard"), ("lz4", "lz4.frame")])
def test_a_package_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch, kind: str, module: str) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    wanted = (
        f"^cannot read x: it is compressed with {kind}; pip install 'ncps-raw\\[compressed\\]', or decompress it first$"
    )
    with pytest.raises(FileFault, match=wanted):
        unpack(PACK[kind](b"text"), kind)
