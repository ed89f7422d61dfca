"""Sinks: what was sent is what they hold."""

import os
import socket
import threading
from pathlib import Path

import pytest
from link_pairs import pair
from ncps_capture.errors import FileFault

from ncps_raw.link.plan import LinkPlan
from ncps_raw.link.sinks import Descriptor, Discard, Sink, open_sink

DATA = os.urandom(2_500_003)


def taken(sink: Sink, most: int = 1 << 24) -> int:
    """Bytes that ``sink`` took of DATA."""
    with pair() as (near, far):

        def send() -> None:
            near.sendall(DATA)
            near.shutdown(socket.SHUT_WR)

        sender = threading.Thread(target=send)
        sender.start()
        count = 0
        while done := sink.take(far, most):
            count += done
        sender.join()
    return count


@pytest.mark.parametrize("copy", [False, True])
def test_discarding_counts_all(copy: bool) -> None:
    sink = Discard(copy)
    assert taken(sink) == len(DATA)
    assert not sink.finish()


@pytest.mark.parametrize("copy", [False, True])
@pytest.mark.parametrize("fsync", [False, True])
def test_a_file_holds_what_came_and_nothing_of_before(tmp_path: Path, copy: bool, fsync: bool) -> None:
    path = tmp_path / "f"
    path.write_bytes(bytes(len(DATA) + 1000))
    sink = open_sink(LinkPlan(sends=False, sink=str(path), copy=copy, fsync=fsync))
    assert path.stat().st_size == len(DATA) + 1000  # until somebody comes
    assert taken(sink, 700_000) == len(DATA)
    assert sink.finish() is fsync
    sink.close()
    assert path.read_bytes() == DATA


def test_a_file_can_be_asked_for_to_count_when_it_is_on_the_device(tmp_path: Path) -> None:
    for name, lasting in ((str(tmp_path / "f"), True), ("/dev/null", False), (None, False)):
        sink = open_sink(LinkPlan(sends=False, sink=name))
        sink.until_lasting()
        assert taken(sink) == len(DATA)
        assert sink.finish() is lasting
        sink.close()


@pytest.mark.skipif(not hasattr(os, "splice"), reason="this system has no splice")
def test_a_file_opened_for_appending_is_written_without_splice(tmp_path: Path) -> None:
    path = tmp_path / "f"
    sink = Descriptor(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND), "f", copy=False, own=True)
    assert taken(sink) == len(DATA)
    sink.close()
    assert path.read_bytes()[-len(DATA) :] == DATA
    assert "recv and write" in sink.way


@pytest.mark.parametrize("copy", [False, True])
def test_a_pipe_whose_reader_has_left(copy: bool) -> None:
    read, write = os.pipe()
    os.close(read)
    sink = Descriptor(write, "standard output", copy, own=True)
    with pair() as (near, far):
        near.sendall(b"x")
        with pytest.raises(FileFault, match="cannot write standard output"):
            sink.take(far, 10)
    sink.close()


def test_a_full_device_is_told() -> None:
    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    sink = open_sink(LinkPlan(sends=False, sink="/dev/full"))
    with pair() as (near, far):
        near.sendall(b"x")
        with pytest.raises(FileFault, match="cannot write /dev/full: No space left"):
            sink.take(far, 10)
    sink.close()


def test_a_file_that_cannot_be_written() -> None:
    with pytest.raises(FileFault, match="cannot write /nonexistent/x"):
        open_sink(LinkPlan(sends=False, sink="/nonexistent/x"))
