"""Spools survive killed writers, refuse files of other columns and distribute rows without losing one."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ncps_capture.errors import FileFault
from ncps_capture.segments import HANDSHAKE, SEGMENT
from ncps_capture.spool import SpoolWriter, iter_spool, partition, read_spool

ROW = np.dtype([("key", "<u8"), ("value", "<i4")])


def rows(count: int, seed: int = 1) -> np.ndarray:
    random = np.random.default_rng(seed)
    out = np.zeros(count, ROW)
    out["key"] = random.integers(0, 1 << 63, count)
    out["value"] = np.arange(count)
    return out


def spool(path: Path, *chunks: np.ndarray) -> Path:
    with SpoolWriter(path, ROW) as writer:
        for chunk in chunks:
            writer.append(chunk)
    return path


def test_what_was_appended_is_read_back_in_order(tmp_path: Path) -> None:
    path = spool(tmp_path / "a", rows(3), rows(0), rows(5))
    expected = np.concatenate([rows(3), rows(5)])
    np.testing.assert_array_equal(read_spool(path, ROW), expected)
    chunks = list(iter_spool(path, ROW, chunk_rows=3))
    assert [len(chunk) for chunk in chunks] == [3, 3, 2]
    np.testing.assert_array_equal(np.concatenate(chunks), expected)


def test_rows_of_the_real_vocabulary_fit(tmp_path: Path) -> None:
    for dtype in (SEGMENT, HANDSHAKE):
        with SpoolWriter(tmp_path / "x", dtype) as writer:
            writer.append(np.ones(2, dtype))
        assert read_spool(tmp_path / "x", dtype)[1] == np.ones(1, dtype)[0]


def test_bytes_and_arrays_mix(tmp_path: Path) -> None:
    with SpoolWriter(tmp_path / "a", ROW) as writer:
        writer.append_bytes(rows(2).tobytes())
        writer.append(rows(4)[::2])  # not contiguous
        writer.append_bytes(bytearray())
        assert writer.rows == 4
    np.testing.assert_array_equal(read_spool(tmp_path / "a", ROW), np.concatenate([rows(2), rows(4)[::2]]))


def test_half_a_row_or_a_foreign_row_is_refused_before_it_is_written(tmp_path: Path) -> None:
    with SpoolWriter(tmp_path / "a", ROW) as writer:
        with pytest.raises(ValueError, match="1 bytes more than whole rows of 12"):
            writer.append_bytes(b"\0" * 13)
        with pytest.raises(ValueError, match="another dtype"):
            writer.append(np.zeros(1, SEGMENT))
    assert len(read_spool(tmp_path / "a", ROW)) == 0


@pytest.mark.parametrize("cut", [1, 11, 12, 13])
def test_a_file_cut_inside_a_row_reads_up_to_the_last_whole_row(tmp_path: Path, cut: int) -> None:
    path = spool(tmp_path / "a", rows(10))
    os.truncate(path, path.stat().st_size - cut)
    whole = 10 - -(-cut // 12)
    np.testing.assert_array_equal(read_spool(path, ROW), rows(10)[:whole])
    np.testing.assert_array_equal(np.concatenate(list(iter_spool(path, ROW))), rows(10)[:whole])


def test_what_a_killed_writer_had_flushed_is_there(tmp_path: Path) -> None:
    script = (
        "import os, signal, sys, numpy as np\n"
        "from ncps_capture.spool import SpoolWriter\n"
        "writer = SpoolWriter(sys.argv[1], np.dtype([('key', '<u8'), ('value', '<i4')]))\n"
        "writer.append_bytes(bytes(36)); writer.flush(); writer.append_bytes(bytes(12))\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", script, tmp_path / "a"], check=False)
    assert done.returncode == -9
    assert len(read_spool(tmp_path / "a", ROW)) == 3


def test_a_new_spool_without_rows_can_be_read_while_it_is_written(tmp_path: Path) -> None:
    with SpoolWriter(tmp_path / "a", ROW):
        assert len(read_spool(tmp_path / "a", ROW)) == 0
        assert list(iter_spool(tmp_path / "a", ROW)) == []


def test_wrong_files_are_refused_with_a_reason(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("hello")
    (tmp_path / "empty").write_text("")
    other = tmp_path / "other"
    SpoolWriter(other, SEGMENT).close()
    for name, reason in [("text", "not a spool"), ("empty", "not a spool"), ("none", "No such file")]:
        with pytest.raises(FileFault, match=f"cannot read .*{name}: .*{reason}"):
            read_spool(tmp_path / name, ROW)
    with pytest.raises(FileFault, match="other columns"):
        read_spool(other, ROW)
    with pytest.raises(FileFault, match="other columns"):
        next(iter_spool(other, ROW))


def test_a_place_that_takes_no_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileFault, match=f"cannot create {tmp_path}/none/a: No such file or directory"):
        SpoolWriter(tmp_path / "none" / "a", ROW)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_full_disk_is_one_line() -> None:
    with pytest.raises(FileFault, match="cannot write /dev/full: No space left on device"):
        SpoolWriter("/dev/full", ROW)


def test_a_writer_that_failed_once_does_not_go_on(tmp_path: Path) -> None:
    """The file may end inside a row, so later rows would be read shifted."""
    script = (
        "import resource, signal, sys, numpy as np\n"
        "from ncps_capture.errors import FileFault\n"
        "from ncps_capture.spool import SpoolWriter\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))\n"
        "writer = SpoolWriter(sys.argv[1], np.dtype([('key', '<u8'), ('value', '<i4')]))\n"
        "writer.append_bytes(bytes(1200))\n"
        "def failing(call):\n"
        "    try: call()\n"
        "    except FileFault as fault: print(fault)\n"
        "failing(writer.flush)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))\n"
        "failing(lambda: writer.append_bytes(bytes(12)))\n"
        "failing(writer.flush)\n"
    )
    done = subprocess.run([sys.executable, "-c", script, tmp_path / "a"], check=True, capture_output=True, text=True)
    assert done.stdout.splitlines() == [f"cannot write {tmp_path}/a: File too large"] * 3
    assert done.stderr == ""


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(0, 40), max_size=4), st.integers(1, 9))
def test_partition_keeps_every_row_once_and_in_order(
    tmp_path_factory: pytest.TempPathFactory, counts: list[int], parts: int
) -> None:
    folder = tmp_path_factory.mktemp("partition")
    inputs = [rows(count, seed) for seed, count in enumerate(counts)]
    paths = [spool(folder / f"in{i}", chunk) for i, chunk in enumerate(inputs)]
    outputs = partition(paths, ROW, lambda chunk: chunk["key"], parts, folder)
    assert len(outputs) == parts
    everything = np.concatenate([*inputs, rows(0)])
    for number, path in enumerate(outputs):
        np.testing.assert_array_equal(read_spool(path, ROW), everything[everything["key"] % parts == number])


def test_partition_runs_in_chunks(tmp_path: Path) -> None:
    path = spool(tmp_path / "in", rows(200_000))
    seen: list[int] = []

    def key(chunk: np.ndarray) -> np.ndarray:
        seen.append(len(chunk))
        return chunk["key"]

    outputs = partition([path], ROW, key, 3, tmp_path)
    assert max(seen) < 100_000
    assert sum(len(read_spool(output, ROW)) for output in outputs) == sum(seen) == 200_000
