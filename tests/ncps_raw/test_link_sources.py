"""Sources: what arrives is what they hold, by whatever way it went."""

import hashlib
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from link_pairs import pair, read_all
from ncps_capture.errors import FileFault

from ncps_raw.link.plan import RANDOM, STREAM, ZEROS, LinkPlan
from ncps_raw.link.sources import NOTHING_NOW, ROOM, Descriptor, Memory, Source, open_source, source_size


def sent(source: Source, most: int) -> bytes:
    """What comes out at the far end of ``most`` bytes from ``source``."""
    with pair() as (near, far):
        got: list[bytes] = []
        reader = threading.Thread(target=lambda: got.append(read_all(far)))
        reader.start()
        left = most
        while left:
            done = source.put(near, left)
            if not done:
                break
            left -= max(done, 0)
        near.shutdown(socket.SHUT_WR)
        reader.join()
        source.close()
        return got[0]


@pytest.mark.parametrize("copy", [False, True])
def test_zeros_and_random_go_round(copy: bool) -> None:
    assert sent(Memory(ZEROS, copy), 3 * ROOM + 5) == bytes(3 * ROOM + 5)
    data = sent(Memory(RANDOM, copy), 2 * ROOM + 5)
    assert data[:ROOM] == data[ROOM : 2 * ROOM]
    assert data[:5] == data[2 * ROOM :]
    assert len(set(data)) == 256


@pytest.mark.parametrize("copy", [False, True])
def test_a_file(tmp_path: Path, copy: bool) -> None:
    path = tmp_path / "f"
    data = os.urandom(3_000_001)
    path.write_bytes(data)
    plan = LinkPlan(sends=True, host="h", source=str(path), copy=copy)
    assert source_size(plan) == len(data)
    source = open_source(plan)
    assert ("sendfile" in source.way) is (not copy and sys.platform.startswith("linux"))
    assert hashlib.sha256(sent(source, 1 << 40)).digest() == hashlib.sha256(data).digest()
    assert sent(open_source(plan), 1_000_000) == data[:1_000_000]


@pytest.mark.parametrize("copy", [False, True])
def test_a_pipe_and_a_writer_that_is_slow(copy: bool) -> None:
    read, write = os.pipe()
    source = Descriptor(read, "standard input", copy, own=True)
    with pair() as (near, far):
        assert source.put(near, 100) == NOTHING_NOW
        os.write(write, b"hello")
        assert source.put(near, 3) == 3
        assert source.put(near, 100) == 2
        os.close(write)
        assert source.put(near, 100) == 0
        near.shutdown(socket.SHUT_WR)
        assert read_all(far) == b"hello"
        assert source.name == "standard input"
    source.close()


@pytest.mark.parametrize("name", ["missing", "."])
def test_a_file_that_cannot_be_read(tmp_path: Path, name: str) -> None:
    with pytest.raises(FileFault, match="cannot read"):
        open_source(LinkPlan(sends=True, host="h", source=str(tmp_path / name)))


def test_sizes_that_are_not_known() -> None:
    assert source_size(LinkPlan(sends=True, host="h")) is None
    assert source_size(LinkPlan(sends=True, host="h", source=STREAM)) is None
    assert source_size(LinkPlan(sends=True, host="h", source="/nonexistent/x")) is None


def test_importing_it_opens_nothing() -> None:
    done = subprocess.run([sys.executable, "-c", "import ncps_raw.link.sources"], check=False)
    assert done.returncode == 0
