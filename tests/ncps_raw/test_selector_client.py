"""The selector engine's client against peers with a script, on each kind of platform."""

import errno
import itertools
import select
import socket
import threading
from collections import Counter

import pytest
from loads import (
    PLATFORMS,
    SECOND,
    answer_once,
    become,
    client,
    echo,
    peer,
    reset,
    to_the_end,
)
from ncps_analysis.records import (
    CLOSED,
    IO_FAILED,
    NO_KERNEL_RTT,
    OPEN,
    PENDING,
    Connections,
)
from ncps_capture.segments import UNKNOWN

from ncps_raw.engine import base, kernel, selector_client
from ncps_raw.ports import ClientPorts

HOUR = 3600 * SECOND


@pytest.fixture(params=PLATFORMS)
def platform(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    become(request.param, monkeypatch)
    return str(request.param)


def rows_of(records: Connections, outcome: int) -> Connections:
    return records[records["outcome"] == outcome]


def wait(event: threading.Event) -> None:
    assert event.wait(30)


# ---- both modes, every connection recorded ------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["0", "1"])
def test_records_counters_and_the_peer_agree(platform: str, mode: str) -> None:
    with peer(echo) as other, client(other.port, mode=mode, n=20) as running:
        running.board.until_counted(base.ESTABLISHED, 150)
        records = running.stop()
    counts = running.board.totals()
    assert set(records["outcome"]) == {CLOSED}
    assert len(records) == counts[base.ESTABLISHED] == counts[base.CLOSED] == counts[base.ATTEMPTED] >= 150
    assert (records["start_ns"] <= records["connected_ns"]).all()
    assert (records["connected_ns"] <= records["closed_ns"]).all()
    assert (records["start_ns"] > 0).all()
    assert set(records["rport"]) == {other.port}
    assert Counter(int(p) for p in records["lport"]) == Counter(port for _, port in other.seen)
    assert running.paths == [("127.0.0.1", "127.0.0.1")]
    assert counts[base.FAILED] == counts[base.NOT_STARTED] == counts[base.IO_FAILED] == 0
    moved = 1000 * len(records) if mode == "1" else 0
    assert counts[base.TX_BYTES] == counts[base.RX_BYTES] == moved
    assert running.board.errors == []


def test_the_kernels_figures_are_counted_where_there_are_any(platform: str) -> None:
    with peer(echo) as other, client(other.port, n=5) as running:
        running.board.until_counted(base.ESTABLISHED, 50)
        records = running.stop()
    counts = running.board.totals()
    if platform == "bare":
        assert set(records["kernel_rtt_us"]) == {NO_KERNEL_RTT}
        assert counts[base.CLEAN] == counts[base.REPEATED] == counts[base.CLEAN_RTT] == 0
    else:
        assert counts[base.CLEAN] == counts[base.ESTABLISHED]
        assert counts[base.REPEATED] == counts[base.RETRANSMITS] == 0
        assert counts[base.CLEAN_RTT] == records["kernel_rtt_us"].astype(int).sum()
        assert (records["kernel_rtt_us"] < 10_000_000).all()
    assert not records["kernel_retrans"].any()


def test_ipv6(platform: str) -> None:
    v6 = {"family": socket.AF_INET6, "address": ("::1", 0, 0, 0)}
    with peer(echo, host="::1") as other, client(other.port, n=3, bind=("::1",), **v6) as running:
        running.board.until_counted(base.CLOSED, 10)
        records = running.stop()
    assert set(records["outcome"]) == {CLOSED}
    assert running.paths == [("::1", "::1")]
    assert Counter(int(p) for p in records["lport"]) == Counter(port for _, port in other.seen)


def test_several_loops_keep_apart(platform: str) -> None:
    with peer(echo) as one, peer(echo) as two:
        loops = tuple(
            base.ClientLoop(i, n, n, ClientPorts((other.port,), (), False))
            for i, n, other in ((3, 2, one), (5, 4, two))
        )
        with client(one.port, loops=loops) as running:
            running.board.until(lambda: all(c[base.CLOSED] > 20 for c in running.board.counts.values()), "20 each")
            running.board.until(lambda: len(running.board.counts) == 2, "both loops")
            records = running.stop()
    for loop, other in ((3, one), (5, two)):
        mine = records[records["loop"] == loop]
        assert set(mine["rport"]) == {other.port}
        assert len(mine) == running.board.counts[loop][base.ATTEMPTED] == len(other.seen)


# ---- caps ---------------------------------------------------------------------------------------------------------


def test_never_more_than_n_connections_at_once(platform: str) -> None:
    """The peer answers only once it has met N of them, and counts how many it ever has at once."""
    met = threading.Barrier(7)

    def together(sock: socket.socket) -> None:
        sock.recv(2000)
        met.wait(30)
        sock.sendall(b"answer")
        to_the_end(sock)

    with peer(together) as other, client(other.port, n=7, reconnect=False) as running:
        records = running.ended()
    assert len(records) == len(other.seen) == other.most_open == 7
    assert running.board.most_open <= 7


def test_a_closed_connection_is_replaced_and_no_more(platform: str) -> None:
    with peer(answer_once) as other, client(other.port, n=4, mode="1") as running:
        running.board.until_counted(base.CLOSED, 60)
        running.stop()
    assert running.board.most_open <= 4
    assert len(other.seen) >= 60


def test_never_more_than_p_in_flight(platform: str) -> None:
    """A full accept queue drops SYNs, so that connects stay in flight."""
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        with client(full.getsockname()[1], mode="0", n=10, pending=3, hold_ns=HOUR, drain_ns=0) as running:
            running.board.until(lambda: running.board.pending() == 3, "3 in flight")
            running.board.after_turns(5)
            records = running.stop()
    assert running.board.most_pending == 3
    left = rows_of(records, PENDING)
    assert len(left) == 3
    assert (left["connected_ns"] == UNKNOWN).all()
    assert (left["closed_ns"] == UNKNOWN).all()
    assert (left["lport"] > 0).all()
    assert len(records) == running.board.total(base.ATTEMPTED)


# ---- holding ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["0", "1"])
def test_a_held_connection_is_closed_at_its_age(platform: str, mode: str) -> None:
    hold = 30_000_000
    with peer(echo) as other, client(other.port, mode=mode, n=3, hold_ns=hold) as running:
        running.board.until_counted(base.CLOSED, 6)
        running.board.stop()
        records = running.ended()
    assert set(records["outcome"]) == {CLOSED}
    planned = records[:6]  # what the end of the run cut short comes after these
    assert (planned["closed_ns"] - planned["connected_ns"] >= hold).all()


def test_ages_count_from_the_connect_whatever_the_order_of_the_answers(platform: str) -> None:
    second_holds, numbers = threading.Event(), itertools.count()

    def script(sock: socket.socket) -> None:
        first = next(numbers) == 0
        sock.recv(2000)
        if first:
            wait(second_holds)
        sock.sendall(b"answer")
        to_the_end(sock)

    with peer(script) as other, client(other.port, n=2, hold_ns=SECOND // 4, reconnect=False) as running:
        running.board.until(lambda: running.board.total(base.RX_BYTES) == 6, "the second's answer")
        second_holds.set()
        records = running.ended()
    assert list(records["outcome"]) == [CLOSED, CLOSED]
    assert (records["closed_ns"] - records["connected_ns"] >= SECOND // 4).all()
    by_closing = records[records["closed_ns"].argsort()]
    assert list(by_closing["connected_ns"]) == sorted(records["connected_ns"])


def test_a_disturbed_connection_does_not_delay_the_others(platform: str) -> None:
    """Its slot holds a later connection by the time its place in the order comes."""
    numbers, all_in = itertools.count(), threading.Event()

    def script(sock: socket.socket) -> None:
        number = next(numbers)
        if number == 1:
            wait(all_in)
            sock.sendall(b"unexpected")
        if number == 2:
            all_in.set()
        to_the_end(sock)

    with peer(script) as other, client(other.port, mode="0", n=3, hold_ns=SECOND // 4) as running:
        running.board.until_counted(base.CLOSED, 4)
        records = running.stop()
    rest = rows_of(records, CLOSED)[:3]
    assert len(rows_of(records, IO_FAILED)) == 1
    assert list(rest["connected_ns"]) == sorted(rest["connected_ns"])


@pytest.mark.parametrize("mode", ["0", "1"])
@pytest.mark.parametrize(("last_word", "number"), [(b"unexpected", errno.EPROTO), (b"", 0)], ids=["data", "the end"])
def test_what_comes_while_held_is_a_failure(platform: str, mode: str, last_word: bytes, number: int) -> None:
    held = threading.Event()

    def script(sock: socket.socket) -> None:
        if mode == "1":
            sock.recv(2000)
            sock.sendall(b"answer")
        wait(held)
        if last_word:
            sock.sendall(last_word)
            to_the_end(sock)

    with peer(script) as other, client(other.port, mode=mode, hold_ns=HOUR, reconnect=False) as running:
        running.board.until_counted(base.RX_BYTES if mode == "1" else base.ESTABLISHED, 1)
        held.set()
        (row,) = running.ended()
    assert (row["outcome"], row["error"]) == (IO_FAILED, number)
    assert running.board.total(base.IO_FAILED) == running.board.total(base.CLOSED) == 1
    assert [n for n, _ in running.board.errors] == [number]


def test_an_end_together_with_the_answer_is_not_overlooked(platform: str) -> None:
    def script(sock: socket.socket) -> None:
        sock.recv(2000)
        sock.sendall(b"answer")

    with peer(script) as other, client(other.port, n=20, hold_ns=HOUR) as running:
        running.board.until_counted(base.IO_FAILED, 100)
        running.stop()


def test_a_peer_that_has_spoken_and_left_before_the_first_look_is_not_overlooked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Connected, data and end then come as one event, and no further one tells of the end."""
    become("network", monkeypatch)
    gone = threading.Event()

    class Late:
        def __init__(self) -> None:
            self._epoll = select.epoll()

        def __getattr__(self, name: str) -> object:
            return getattr(self._epoll, name)

        def poll(self, timeout: float, most: int) -> list[tuple[int, int]]:
            wait(gone)
            return self._epoll.poll(timeout, most)

    def script(sock: socket.socket) -> None:
        sock.sendall(b"x")
        sock.shutdown(socket.SHUT_WR)
        gone.set()
        to_the_end(sock)

    monkeypatch.setattr(selector_client, "make_poller", lambda: (Late(), True))
    with peer(script) as other, client(other.port, hold_ns=HOUR, drain_ns=0, reconnect=False) as running:
        (row,) = running.ended()
    assert (row["outcome"], row["error"]) == (IO_FAILED, 0)


# ---- failing conversations ----------------------------------------------------------------------------------------


def test_a_peer_that_leaves_instead_of_answering(platform: str) -> None:
    def leave(sock: socket.socket) -> None:
        sock.recv(2000)

    with peer(leave) as other, client(other.port, n=3, reconnect=False) as running:
        records = running.ended()
    assert [(r["outcome"], r["error"]) for r in records] == [(IO_FAILED, 0)] * 3
    assert (records["closed_ns"] >= records["connected_ns"]).all()


def test_a_reset_is_recorded_by_its_errno(platform: str) -> None:
    def rude(sock: socket.socket) -> None:
        sock.recv(2000)
        reset(sock)

    with peer(rude) as other, client(other.port, n=3, reconnect=False) as running:
        records = running.ended()
    assert [(r["outcome"], r["error"]) for r in records] == [(IO_FAILED, errno.ECONNRESET)] * 3
    counts = running.board.totals()
    assert counts[base.ESTABLISHED] == counts[base.CLOSED] == counts[base.IO_FAILED] == 3
    assert counts[base.FAILED] == 0


# ---- large units --------------------------------------------------------------------------------------------------


def test_a_large_unit_is_sent_whole_exactly_once_to_a_slow_reader(platform: str) -> None:
    size, got = 4 << 20, []

    def slow(sock: socket.socket) -> None:
        n = 0
        while n < size and (data := sock.recv(5_000)):
            n += len(data)
        got.append(n)
        sock.sendall(b"answer")
        got.append(to_the_end(sock))

    with peer(slow, buffer=10_000) as other, client(other.port, size=size, reconnect=False) as running:
        (row,) = running.ended()
    assert row["outcome"] == CLOSED
    assert got == [size, 0]
    assert running.board.total(base.TX_BYTES) == size
    assert running.board.total(base.RX_BYTES) == 6


def test_an_answer_before_all_was_sent_counts(platform: str) -> None:
    size = 4 << 20

    def early(sock: socket.socket) -> None:
        n = len(sock.recv(1000))
        sock.sendall(b"answer")
        while n < size:
            n += len(sock.recv(1 << 16))
        to_the_end(sock)

    with peer(early, buffer=10_000) as other, client(other.port, size=size, reconnect=False) as running:
        (row,) = running.ended()
    assert row["outcome"] == CLOSED
    assert running.board.total(base.TX_BYTES) == size
    assert running.board.total(base.RX_BYTES) == 6


def test_an_echo_server_and_a_unit_larger_than_all_buffers_do_not_block_each_other(platform: str) -> None:
    size = 32 << 20
    with peer(echo) as other, client(other.port, size=size, reconnect=False) as running:
        (row,) = running.ended()
    assert row["outcome"] == CLOSED
    assert running.board.total(base.TX_BYTES) == size
    assert running.board.total(base.RX_BYTES) > 0


def test_a_peer_that_ends_while_we_send(platform: str) -> None:
    def rude(sock: socket.socket) -> None:
        sock.recv(1000)
        reset(sock)

    def half(sock: socket.socket) -> None:
        sock.recv(1000)
        sock.shutdown(socket.SHUT_WR)
        to_the_end(sock)

    for script, numbers in ((rude, {errno.ECONNRESET, errno.EPIPE}), (half, {0})):
        with peer(script, buffer=10_000) as other, client(other.port, size=4 << 20, reconnect=False) as running:
            (row,) = running.ended()
        assert row["outcome"] == IO_FAILED
        assert row["error"] in numbers


# ---- closing and the end ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("abortive", [False, True])
def test_abortive_close_sends_a_reset(platform: str, abortive: bool) -> None:
    ends: list[str] = []

    def script(sock: socket.socket) -> None:
        try:
            ends.append("fin" if sock.recv(10) == b"" else "data")
        except ConnectionResetError:
            ends.append("rst")

    with peer(script) as other, client(other.port, mode="0", n=4, abortive=abortive, reconnect=False) as running:
        running.ended()
    assert ends == ["rst" if abortive else "fin"] * 4


def test_at_the_end_what_is_under_way_finishes(platform: str) -> None:
    all_in, stopped = threading.Barrier(4), threading.Event()

    def script(sock: socket.socket) -> None:
        sock.recv(2000)
        all_in.wait(30)
        wait(stopped)
        sock.sendall(b"answer")
        to_the_end(sock)

    with peer(script) as other, client(other.port, n=3) as running:
        all_in.wait(30)
        running.board.stop()
        stopped.set()
        records = running.ended()
    assert list(records["outcome"]) == [CLOSED] * 3
    assert running.board.total(base.RX_BYTES) == 18


def test_what_does_not_finish_in_time_is_recorded_as_open(platform: str) -> None:
    with peer(to_the_end) as other, client(other.port, n=3, drain_ns=0) as running:
        running.board.until_counted(base.TX_BYTES, 3000)
        records = running.stop()
    assert list(records["outcome"]) == [OPEN] * 3
    assert (records["closed_ns"] == UNKNOWN).all()
    assert (records["connected_ns"] >= records["start_ns"]).all()
    counts = running.board.totals()
    assert (counts[base.ESTABLISHED], counts[base.CLOSED]) == (3, 0)


def test_held_ones_are_closed_as_planned_at_the_end(platform: str) -> None:
    with peer(to_the_end) as other, client(other.port, mode="0", n=3, hold_ns=HOUR) as running:
        running.board.until_counted(base.ESTABLISHED, 3)
        records = running.stop()
    assert list(records["outcome"]) == [CLOSED] * 3


def test_without_reconnecting_each_connection_is_made_once_and_the_engine_ends(platform: str) -> None:
    with peer(echo) as other, client(other.port, n=100, pending=10, reconnect=False) as running:
        records = running.ended()
    assert list(records["outcome"]) == [CLOSED] * 100
    assert len(other.seen) == running.board.total(base.ATTEMPTED) == 100


@pytest.mark.skipif(not kernel.AVAILABLE, reason="TCP_INFO is Linux's")
def test_a_repeated_syn_is_counted_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """A full accept queue drops the SYN; the kernel sends it again a second later, when there is room."""
    become("edges", monkeypatch)
    with socket.socket() as full, socket.socket() as other:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        other.connect(full.getsockname())
        with client(full.getsockname()[1], mode="0", reconnect=False) as running:
            running.board.until(lambda: running.board.pending() == 1, "a connect in flight")
            full.accept()[0].close()
            (row,) = running.ended()
    counts = running.board.totals()
    assert (row["outcome"], row["kernel_retrans"]) == (CLOSED, counts[base.RETRANSMITS])
    assert counts[base.RETRANSMITS] >= 1
    assert (counts[base.CLEAN], counts[base.CLEAN_RTT], counts[base.REPEATED]) == (0, 0, 1)
    took_us = (row["connected_ns"] - row["start_ns"]) // 1000
    assert counts[base.REPEATED_RTT] == took_us > 500_000  # as the application saw it, not the kernel's estimate
    assert row["kernel_rtt_us"] < took_us
