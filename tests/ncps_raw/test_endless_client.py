"""Rows that end at an age, against peers with a script, on each kind of platform."""

import itertools
import socket

import pytest
from loads import PLATFORMS, SECOND, become, client, echo, free_ports, peer, reset, server, to_the_end
from ncps_analysis.records import CLOSED, IO_FAILED, OPEN

from ncps_raw.engine import base

HOUR = 3600 * SECOND


@pytest.fixture(params=PLATFORMS)
def platform(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    become(request.param, monkeypatch)
    return str(request.param)


@pytest.mark.parametrize(("mode", "other"), [("p", "echo"), ("s", "r"), ("r", "s")])
@pytest.mark.parametrize("hold_ns", [0, 50_000_000])
def test_every_mode_with_its_server(platform: str, mode: str, other: str, hold_ns: int) -> None:
    (port,) = free_ports(1)
    with server([port], mode=other) as there, client(port, mode=mode, n=5, hold_ns=hold_ns) as here:
        here.board.until_counted(base.CLOSED, 20)
        records = here.stop()
        there.board.until_counted(base.CLOSED, len(records))
        theirs = there.stop()
    assert set(records["outcome"]) == set(theirs["outcome"]) == {CLOSED}
    mine, other_side = here.board.totals(), there.board.totals()
    assert mine[base.IO_FAILED] == other_side[base.IO_FAILED] == 0
    assert (records["closed_ns"] - records["connected_ns"])[:15].min() >= hold_ns
    if mode != "r":
        assert mine[base.TX_BYTES] == other_side[base.RX_BYTES] >= 1000 * len(records)
    if mode == "p":
        assert mine[base.RX_BYTES] == other_side[base.TX_BYTES] == mine[base.TX_BYTES]
    if mode == "r":
        assert len(records) <= mine[base.RX_BYTES] <= other_side[base.TX_BYTES]
        assert mine[base.TX_BYTES] == 0


def test_a_young_ping_pong_ends_after_one_exchange(platform: str) -> None:
    with peer(echo) as other, client(other.port, mode="p", n=3, size=10, reconnect=False) as running:
        records = running.ended()
    assert set(records["outcome"]) == {CLOSED}
    assert running.board.total(base.TX_BYTES) == running.board.total(base.RX_BYTES) == 30


def test_a_ping_is_as_long_as_the_last_pong(platform: str) -> None:
    got: list[int] = []

    def shrinking(sock: socket.socket) -> None:
        sock.recv(100)
        for n in (70, 30, 100, 5):
            sock.sendall(b"x" * n)
            got.append(len(sock.recv(1000)))
        reset(sock)

    with peer(shrinking) as other, client(other.port, mode="p", size=100, hold_ns=HOUR, reconnect=False) as running:
        (row,) = running.ended()
    assert got == [70, 30, 100, 5]
    assert row["outcome"] == IO_FAILED
    assert running.board.total(base.RX_BYTES) == 205


def test_pongs_larger_than_a_read_are_taken_read_by_read(platform: str) -> None:
    got: list[int] = []

    def generous(sock: socket.socket) -> None:
        sock.recv(100)
        sock.sendall(b"x" * 250)
        while sum(got) < 250:
            got.append(len(sock.recv(1000)))
        to_the_end(sock)

    with peer(generous) as other, client(other.port, mode="p", size=100, hold_ns=HOUR, drain_ns=0) as running:
        running.board.until_counted(base.TX_BYTES, 350)
        running.board.until_counted(base.RX_BYTES, 250)
        (row,) = running.stop()
    assert row["outcome"] == OPEN
    assert sum(got) == 250


def test_a_ping_larger_than_all_buffers_does_not_block(platform: str) -> None:
    with peer(echo) as other, client(other.port, mode="p", size=32 << 20, reconnect=False) as running:
        (row,) = running.ended()
    assert row["outcome"] == CLOSED
    assert running.board.total(base.TX_BYTES) == 32 << 20


def test_rounds_are_paced(platform: str) -> None:
    pace = 50_000_000
    with peer(echo) as other:
        wishes = {"hold_ns": 4 * pace - pace // 2, "pace_ns": pace, "reconnect": False, "size": 10}
        with client(other.port, mode="p", n=1, **wishes) as running:
            (row,) = running.ended()
    assert row["outcome"] == CLOSED
    assert 20 <= running.board.total(base.TX_BYTES) <= 50
    assert row["closed_ns"] - row["connected_ns"] >= 4 * pace - pace // 2


def test_the_end_of_a_run_does_not_wait_for_the_next_round(platform: str) -> None:
    with peer(echo) as other, client(other.port, mode="p", n=1, hold_ns=HOUR, pace_ns=HOUR // 1000) as running:
        running.board.until_counted(base.RX_BYTES, 1000)
        (row,) = running.stop()
    assert row["outcome"] == CLOSED


def test_a_reset_while_pausing_is_noticed(platform: str) -> None:
    def leave(sock: socket.socket) -> None:
        sock.sendall(sock.recv(2000))
        reset(sock)

    if platform in ("levels", "bare"):
        pytest.skip("a poller that watches nothing of a descriptor tells nothing of it")
    with peer(leave) as other, client(other.port, mode="p", hold_ns=HOUR, pace_ns=HOUR, reconnect=False) as running:
        (row,) = running.ended()
    assert row["outcome"] == IO_FAILED


@pytest.mark.parametrize("mode", ["p", "r"])
def test_an_end_before_ours_is_a_failure(platform: str, mode: str) -> None:
    def leave(sock: socket.socket) -> None:
        if mode == "p":
            sock.sendall(sock.recv(2000))
            sock.recv(2000)
        else:
            sock.sendall(b"x" * 300)

    with peer(leave) as other, client(other.port, mode=mode, hold_ns=HOUR, reconnect=False) as running:
        (row,) = running.ended()
    assert (row["outcome"], row["error"]) == (IO_FAILED, 0)


def test_a_sender_lets_its_neighbours_send(platform: str) -> None:
    """One reader takes all it can get; the others still get theirs."""
    numbers = itertools.count()

    def script(sock: socket.socket) -> None:
        if next(numbers):
            n = 0
            while n < 500_000:
                n += len(sock.recv(1000))
            enough.append(n)
        to_the_end(sock)

    enough: list[int] = []
    with peer(script) as other, client(other.port, mode="s", n=3, hold_ns=HOUR) as running:
        running.board.until(lambda: len(enough) == 2, "two readers have enough")
        records = running.stop()
    assert set(records["outcome"]) == {CLOSED}
