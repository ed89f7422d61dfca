"""The relay's loop between two pairs of sockets instead of devices: nothing here needs rights."""

import os
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import pytest
from made_packets import packet

from ncps_raw.lab.logbook import READ, RELAY_LOG, UNWRITTEN, WRITTEN
from ncps_raw.lab.network import A_TO_B, ACTIONS, B_TO_A, Network, Rule, Way
from ncps_raw.lab.packets import SYN_KIND, SYNACK_KIND
from ncps_raw.lab.relay import Relay

MS = 1_000_000
SYN = packet("S", options=[("Timestamp", (7, 0))])
SYNACK = packet("SA", 9000, 40000, seq=5, ack=1001, back=True)
PATIENCE_S = 20.0


class Path(NamedTuple):
    """A relay, the far ends of its two devices, and the descriptor that its orders would come by."""

    relay: Relay
    a: socket.socket
    b: socket.socket
    control: int
    log: int

    def until(self, done: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not done():
            assert time.monotonic() < deadline
            self.relay.wait(self.control)

    def rows(self) -> np.ndarray:
        self.relay.flush()
        return np.frombuffer(os.pread(self.log, 1 << 20, 0), RELAY_LOG)


@pytest.fixture
def path() -> Iterator[Callable[[Network], Path]]:
    ends = [socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM) for _ in range(2)]
    for ours, theirs in ends:
        ours.setblocking(False)
        theirs.settimeout(PATIENCE_S)
    read, write = os.pipe()
    with tempfile.TemporaryFile() as log:

        def make(network: Network) -> Path:
            devices = (ends[0][0].fileno(), ends[1][0].fileno())
            return Path(Relay(network, devices, log.fileno()), ends[0][1], ends[1][1], read, log.fileno())

        yield make
    for pair in ends:
        for end in pair:
            end.close()
    os.close(read)
    os.close(write)


def test_packets_arrive_unchanged_after_their_delay_and_the_log_says_so(path: Callable[[Network], Path]) -> None:
    it = path(Network(Way(3 * MS), Way(5 * MS)))
    before_ns = time.time_ns()
    it.a.send(SYN)
    it.b.send(SYNACK)
    it.until(lambda: it.relay.counts.total() == 4)
    assert it.b.recv(2000) == SYN
    assert it.a.recv(2000) == SYNACK
    assert it.relay.figures() == {
        **dict.fromkeys(("read.syn", "read.synack", "written.syn", "written.synack"), 1),
        "under_way": 0,
        "held": 0,
    }
    rows = it.rows()
    for direction, kind, delay_ns in ((A_TO_B, SYN_KIND, 3 * MS), (B_TO_A, SYNACK_KIND, 5 * MS)):
        read, written = rows[rows["direction"] == direction]
        assert (read["event"], written["event"]) == (READ, WRITTEN)
        assert read["kind"] == written["kind"] == kind
        assert before_ns <= read["t_ns"] <= time.time_ns()
        assert written["late_ns"] >= 0
        # Read stamps are taken before the decision's time, written stamps before lateness is: both on the safe side.
        assert written["t_ns"] - read["t_ns"] >= delay_ns - MS
    assert list(rows["t_ns"]) == sorted(rows["t_ns"])


def test_what_a_rule_drops_is_counted_and_logged(path: Callable[[Network], Path]) -> None:
    it = path(Network(rules=(Rule("delay", "ack"), Rule("drop", "syn", nth=(1,)))))
    it.a.send(SYN)
    it.a.send(SYN)
    it.until(lambda: it.relay.counts["written.syn"] == 1)
    counts = it.relay.counts
    assert (counts["read.syn"], counts["repeated.syn"], counts["dropped.syn"]) == (2, 1, 1)
    rows = it.rows()
    assert [ACTIONS[row["action"]] for row in rows if row["event"] == READ] == ["drop", "pass"]
    assert list(rows["nth"]) == [1, 2, 0]
    assert list(rows["rule"]) == [1, -1, -1]
    assert list(rows["number"]) == [0, 1, 1]
    assert list(rows["tsval"]) == [7, 7, 7]


def test_a_stall_holds_everything_and_lets_go_in_order(path: Callable[[Network], Path]) -> None:
    it = path(Network())
    packets = [packet("S", port) for port in range(20000, 20040)]
    it.relay.stall()
    for raw in packets:
        it.a.send(raw)
    it.until(lambda: it.relay.counts["read.syn"] == len(packets))
    it.relay.wait(it.control)
    assert it.relay.figures()["under_way"] == len(packets)
    assert it.relay.counts["written.syn"] == 0
    it.relay.resume()
    it.until(lambda: it.relay.counts["written.syn"] == len(packets))
    assert [it.b.recv(2000) for _ in packets] == packets


def test_what_a_device_does_not_take_is_counted_apart(path: Callable[[Network], Path]) -> None:
    it = path(Network())
    it.b.close()
    it.a.send(SYN)
    it.until(lambda: it.relay.counts["unwritten.syn"] == 1)
    assert it.relay.counts["written.syn"] == 0
    assert list(it.rows()["event"]) == [READ, UNWRITTEN]


def test_copies_and_answers_are_marked(path: Callable[[Network], Path]) -> None:
    it = path(Network(rules=(Rule("duplicate", "synack", delay_ns=MS), Rule("reset", "syn"))))
    it.a.send(SYN)
    it.b.send(SYNACK)
    it.until(lambda: it.relay.counts["written.rst"] + it.relay.counts["written.synack"] == 3)
    assert it.relay.counts["duplicated.synack"] == it.relay.counts["reset.syn"] == 1
    written = [row for row in it.rows() if row["event"] == WRITTEN]
    assert sorted((int(row["copy"]), int(row["answer"]), int(row["direction"])) for row in written) == [
        (0, 0, B_TO_A),
        (0, 1, B_TO_A),
        (1, 0, B_TO_A),
    ]


def test_an_order_ends_the_wait(path: Callable[[Network], Path]) -> None:
    it = path(Network())
    ready, hand = os.pipe()
    os.write(hand, b"counters\n")
    assert it.relay.wait(ready)
    os.close(ready)
    os.close(hand)
