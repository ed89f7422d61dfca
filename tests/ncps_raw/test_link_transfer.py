"""A transfer over several connections: shares, figures at any moment, what went wrong."""

import socket
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest
from link_pairs import pair, read_all
from running import until

from ncps_raw.link.plan import ZEROS, LinkPlan
from ncps_raw.link.pumps import wake
from ncps_raw.link.sinks import Discard
from ncps_raw.link.sources import Memory
from ncps_raw.link.transfer import Transfer

SEND = LinkPlan(sends=True, host="h", size=1_000_001)


def transfer_of(plan: LinkPlan, streams: int = 1, most_in: int | None = None) -> Transfer:
    return Transfer(
        plan,
        "peer",
        lambda: None,
        make_source=lambda: Memory(ZEROS, copy=False),
        make_sink=lambda: Discard(copy=False),
        streams=streams,
        most_out=plan.size if plan.transmits else None,
        most_in=most_in,
    )


def tended(transfer: Transfer) -> Callable[[], bool]:
    def look() -> bool:
        transfer.tend(time.monotonic_ns())
        return transfer.finished

    return look


def test_streams_share_the_bytes() -> None:
    transfer = transfer_of(SEND, streams=3)
    with ExitStack() as stack:
        got: list[bytes] = []
        readers: list[threading.Thread] = []
        for _ in range(3):
            near, far = stack.enter_context(pair())
            readers.append(threading.Thread(target=lambda far=far: got.append(read_all(far))))
            readers[-1].start()
            transfer.add(near)
        for reader in readers:
            reader.join()
        until(tended(transfer), "the end")
        transfer.close()
    assert sorted(map(len, got)) == [333_333, 333_334, 333_334]
    sent, received = transfer.result
    assert received is None
    assert sent is not None
    assert (sent.bytes, sent.streams, sent.handed_bytes) == (1_000_001, 3, 1_000_001)
    assert transfer.verdict == ((), 0)


def test_fewer_bytes_than_expected_are_a_problem() -> None:
    transfer = transfer_of(LinkPlan(sends=False, size=1000), most_in=1000)
    with pair() as (near, far):
        near.sendall(bytes(999))
        near.close()
        transfer.add(far)
        until(tended(transfer), "the end")
        transfer.close()
    assert transfer.verdict == (("received 999 of 1000 bytes: the peer ended early",), 1)


def test_one_byte_that_is_missing_is_said_in_the_singular() -> None:
    transfer = transfer_of(LinkPlan(sends=False, size=1), most_in=1)
    with pair() as (near, far):
        near.close()
        transfer.add(far)
        until(tended(transfer), "the end")
        transfer.close()
    assert transfer.verdict == (("received 0 of 1 byte: the peer ended early",), 1)


def test_left_in_the_middle_it_has_the_figures_so_far() -> None:
    transfer = transfer_of(LinkPlan(sends=False))
    with pair() as (near, far):
        near.sendall(bytes(5000))
        transfer.add(far)
        until(lambda: transfer.progress() == 5000, "5000 bytes")
        transfer.leave("SIGINT")
        transfer.close()
    assert transfer.result[1] is not None
    assert transfer.result[1].bytes == 5000
    assert (transfer.ended_by, transfer.verdict) == ("SIGINT", ((), 0))


class InOneCall:
    """A source whose only call hands over all its bytes, and comes back much later."""

    name = way = "one call"

    def __init__(self, count: int) -> None:
        self.count = count
        self.back = threading.Event()

    def put(self, sock: Any, most: int) -> int:
        sock.sendall(bytes(self.count))
        assert self.back.wait(60)
        return self.count

    def close(self) -> None:
        """Nothing is open."""


@pytest.mark.parametrize("streams", [1, 2])
def test_never_more_is_acknowledged_than_was_handed_over(streams: int) -> None:
    """Interrupted in the middle of a call: what the kernel took is known before the call says so."""
    sources = [InOneCall(50_000) for _ in range(streams)]
    left = list(sources)
    transfer = Transfer(
        LinkPlan(sends=True, host="h", streams=streams),
        "peer",
        lambda: None,
        make_source=left.pop,
        make_sink=lambda: Discard(copy=False),
        streams=streams,
    )
    with ExitStack() as stack:
        fars = []
        for _ in range(streams):
            near, far = stack.enter_context(pair())
            fars.append(far)
            transfer.add(near)
        until(lambda: transfer.snapshot().sent == streams * 50_000, "the acknowledgement of all")
        assert [sender.moved for sender in transfer.senders] == [0] * streams
        transfer.leave("SIGINT")
        for source in sources:
            source.back.set()
        transfer.close()
    sent = transfer.result[0]
    assert sent is not None
    assert sent.bytes == sent.handed_bytes == streams * 50_000
    assert sent.handed_ns is not None


def test_an_end_that_is_acknowledged_is_no_byte() -> None:
    """Woken in the middle of a call, the connection's end may be acknowledged before the call is back."""
    source = InOneCall(50_000)
    transfer = Transfer(
        LinkPlan(sends=True, host="h"),
        "peer",
        lambda: None,
        make_source=lambda: source,
        make_sink=lambda: Discard(False),
    )
    with pair() as (near, far):
        transfer.add(near)
        until(lambda: transfer.snapshot().sent == 50_000, "the acknowledgement of all")
        wake(transfer.senders[0], leave=False)
        assert len(read_all(far)) == 50_000
        until(lambda: near.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == 5, "the end's acknowledgement")
        assert transfer.snapshot().sent == 50_000
        source.back.set()
        until(tended(transfer), "the end")
        transfer.close()
    assert transfer.result[0] is not None
    assert transfer.result[0].bytes == transfer.result[0].handed_bytes == 50_000


def test_a_reset_is_a_problem_and_counts_what_was_acknowledged() -> None:
    transfer = transfer_of(LinkPlan(sends=True, host="h"))
    with pair() as (near, far):
        transfer.add(near)
        far.recv(100_000)
        far.close()
        until(tended(transfer), "the end")
        transfer.close()
    sent = transfer.result[0]
    assert sent is not None
    assert sent.bytes is not None
    assert 0 < sent.bytes <= (sent.handed_bytes or 0)
    problems, code = transfer.verdict
    assert code == 1
    assert problems[0].startswith("sending ended early")


def test_the_warm_up_is_left_out_and_the_duration_ends_it() -> None:
    plan = LinkPlan(sends=True, host="h", duration_ns=400_000_000, warmup_ns=200_000_000)
    transfer = transfer_of(plan)
    with pair() as (near, far):
        got: list[int] = []
        reader = threading.Thread(target=lambda: got.append(len(read_all(far))))
        transfer.add(near)
        reader.start()
        until(tended(transfer), "the end")
        reader.join()
        transfer.close()
    sent = transfer.result[0]
    assert sent is not None
    assert sent.bytes is not None
    assert sent.handed_bytes == got[0]
    assert 0 < sent.bytes < got[0]
    assert sent.elapsed_ns is not None
    assert sent.elapsed_ns < 0.9 * (sent.handed_ns or 0)


def test_rows_add_up() -> None:
    transfer = transfer_of(LinkPlan(sends=False))
    assert transfer.row() is None
    with pair() as (near, far):
        transfer.add(far)
        counts = []
        for _ in range(3):
            near.sendall(bytes(1000))
            until(lambda: transfer.receivers[0].moved == 1000 * (len(counts) + 1), "1000 bytes more")
            row: Any = transfer.row()
            counts.append(row.received)
            assert row.sent is None
        near.sendall(bytes(77))
        near.close()
        until(tended(transfer), "the end")
        transfer.close()
    assert counts == [1000, 1000, 1000]
    last = transfer.last_row()
    assert last is not None
    assert (last.received, last.begin_ns, last.partial) == (77, row.end_ns, True)
    assert transfer.last_row() is None


@pytest.mark.parametrize("first", [True, False])
def test_what_recv_sends_ends_with_what_it_receives(first: bool) -> None:
    transfer = transfer_of(LinkPlan(sends=False, bidirectional=True))
    with pair() as (near, far):
        transfer.add(far)
        near.sendall(bytes(1000))
        if first:
            assert near.recv(1000)
        near.shutdown(1)
        got: list[bytes] = []
        reader = threading.Thread(target=lambda: got.append(read_all(near)))
        reader.start()
        until(tended(transfer), "the end")
        reader.join()
        transfer.close()
    assert transfer.verdict == ((), 0)
