"""Pumps: bytes and clocks of one direction of one connection."""

import socket
import sys
import threading
import time

import pytest
from link_pairs import pair, read_all

from ncps_raw.link import tcpinfo
from ncps_raw.link.plan import ZEROS
from ncps_raw.link.pumps import ACKNOWLEDGED, HANDED, Receiver, Sender, wake
from ncps_raw.link.sinks import Discard
from ncps_raw.link.sources import Memory

linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells what is acknowledged")


def test_both_ends_count_the_same_and_end() -> None:
    with pair() as (near, far):
        rung = threading.Semaphore(0)
        sender = Sender(near, Memory(ZEROS, copy=False), 20_000_000, rung.release)
        receiver = Receiver(far, Discard(copy=False), None, rung.release)
        receiver.start()
        sender.start()
        assert rung.acquire(timeout=30)
        assert rung.acquire(timeout=30)
        assert sender.moved == receiver.moved == 20_000_000
        assert sender.complete
        assert receiver.complete
        assert receiver.peer_ended
        assert sender.begin_ns is not None
        assert sender.moved_ns is not None
        assert sender.end_ns is not None
        assert sender.begin_ns <= sender.moved_ns <= sender.end_ns


@linux
def test_the_clock_of_a_sender_waits_for_the_peer_s_kernel_not_for_ours() -> None:
    with pair() as (near, far):
        sender = Sender(near, Memory(ZEROS, copy=True), 60_000_000, lambda: None)
        sender.start()
        deadline = time.monotonic() + 20
        while sender.moved < 100_000 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert not sender.finished  # the peer reads nothing: no speed is told
        assert sender.end_ns is None
        assert (sender.acknowledged(tcpinfo.read(near)) or 0) < 60_000_000
        assert len(read_all(far)) == 60_000_000
        assert sender.join(20)
        assert sender.clock_end == ACKNOWLEDGED


def test_a_peer_that_goes_is_a_failure() -> None:
    with pair() as (near, far):
        sender = Sender(near, Memory(ZEROS, copy=False), None, lambda: None)
        sender.start()
        assert far.recv(1000)
        far.close()
        assert sender.join(20)
        assert isinstance(sender.failure, OSError)
        assert not sender.complete


@linux
def test_a_peer_that_closed_its_side_first_and_takes_the_last_byte_between_two_looks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The connection is gone with the acknowledgement of our end: that is no reset, whenever it is seen."""
    with pair() as (near, far):
        far.shutdown(socket.SHUT_WR)
        far.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 200_000)  # so that all is handed over, and some is left
        ask = tcpinfo.unacknowledged
        emptied = threading.Event()

        def look_and_let_the_peer_read(sock: socket.socket) -> int | None:
            left = ask(sock)
            if left is not None and left > 1 and not emptied.is_set():
                assert len(read_all(far)) == 100_000
                deadline = time.monotonic() + 20
                while near.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] != tcpinfo.CLOSED:
                    assert time.monotonic() < deadline
                emptied.set()
            return left

        sender = Sender(near, Memory(ZEROS, copy=True), 100_000, lambda: None)
        monkeypatch.setattr(tcpinfo, "unacknowledged", look_and_let_the_peer_read)
        sender.start()
        assert sender.join(20)
        assert emptied.is_set()
        assert sender.failure is None
        assert sender.clock_end == ACKNOWLEDGED


@pytest.mark.parametrize("leave", [True, False])
def test_a_pump_that_hangs_is_woken(leave: bool) -> None:
    with pair() as (near, far):
        sender = Sender(near, Memory(ZEROS, copy=False), None, lambda: None)
        receiver = Receiver(near, Discard(copy=False), None, lambda: None)
        sender.start()
        receiver.start()
        wake(receiver, leave=True)
        assert receiver.join(20)
        wake(sender, leave=leave)
        if not leave:
            read_all(far)
        assert sender.join(20)
        assert sender.failure is None
        assert receiver.failure is None
        assert sender.clock_end == (HANDED if leave or sys.platform != "linux" else ACKNOWLEDGED)


def test_a_limit_is_kept_from_the_first_byte_on() -> None:
    with pair() as (near, far):
        sender = Sender(near, Memory(ZEROS, copy=False), 2_000_000, lambda: None, limit=10_000_000)
        sender.start()
        assert len(read_all(far)) == 2_000_000
        assert sender.join(20)
        assert sender.begin_ns is not None
        assert sender.moved_ns is not None
        # One part of 5 ms may go at once; what is late on a busy machine only makes it longer.
        assert sender.moved_ns - sender.begin_ns >= 190_000_000


@linux
@pytest.mark.parametrize("first", [None, (1234, 900)])
def test_a_receiver_knows_what_was_here_before_its_clock(first: tuple[int, int] | None) -> None:
    with pair() as (near, far):
        near.sendall(bytes(1000))
        assert far.recv(1000, socket.MSG_PEEK | socket.MSG_WAITALL) == bytes(1000)
        receiver = Receiver(far, Discard(copy=True), None, lambda: None, first)
        receiver.start()
        near.sendall(bytes(500))
        near.close()
        assert receiver.join(20)
        assert receiver.moved == 1500
        assert receiver.early is not None
        if first is None:
            assert 1000 <= receiver.early <= 1500
        else:
            assert (receiver.begin_ns, receiver.early) == first


def test_a_receiver_takes_what_it_was_told_and_no_more() -> None:
    with pair() as (near, far):
        near.sendall(bytes(1000))
        receiver = Receiver(far, Discard(copy=True), 600, lambda: None)
        receiver.start()
        assert receiver.join(20)
        assert receiver.moved == 600
        assert not receiver.peer_ended
        assert len(far.recv(1000)) == 400


def test_a_sender_ends_by_itself_when_its_time_is_up() -> None:
    with pair() as (near, far):
        receiver = Receiver(far, Discard(copy=False), None, lambda: None)
        receiver.start()
        sender = Sender(near, Memory(ZEROS, copy=False), None, lambda: None, lasts_ns=50_000_000)
        sender.start()
        assert sender.join(20)
        assert sender.failure is None
        assert receiver.join(20)
        assert receiver.moved == sender.moved > 0


@linux
def test_an_end_that_is_on_its_way_is_not_counted_as_a_byte() -> None:
    with pair() as (near, far):
        far.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1_000_000)
        sender = Sender(near, Memory(ZEROS, copy=True), 300_000, lambda: None)
        sender.start()
        deadline = time.monotonic() + 20
        while not sender._fin and time.monotonic() < deadline:
            time.sleep(0.001)
        wake(sender, leave=True)
        assert sender.join(20)
        left = tcpinfo.unacknowledged(near)
        assert left is not None
        assert left > 1
        assert sender.acknowledged(tcpinfo.read(near)) == 300_000 - (left - 1)


@linux
def test_a_receiver_that_has_all_it_was_promised_lets_the_peer_know_at_once() -> None:
    """Else the last acknowledgement waits 40 ms for company, and the sender's figure with it."""
    with pair() as (near, far):
        near.sendall(bytes(1000))
        calls: list[socket.socket] = []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(tcpinfo, "acknowledge_now", calls.append)
            receiver = Receiver(far, Discard(copy=True), 1000, lambda: None)
            receiver.start()
            assert receiver.join(20)
        assert calls == [far]
