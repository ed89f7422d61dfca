"""Starts on a schedule: which starts are made, how late, and why; with made-up time, then with the engine."""

from fractions import Fraction
from math import floor

import pytest
from loads import PLATFORMS, SECOND, Board, answer_once, become, client, free_ports, peer, to_the_end
from ncps_analysis.records import CONNECT_FAILED

from ncps_raw.engine import base
from ncps_raw.engine.base import ATTEMPTED, DUE, HELD_UP, LAG_MAX_NS, LAG_NS, LATE, ClientLoop
from ncps_raw.engine.connection import ClientShare, Slot
from ncps_raw.engine.open_loop import OpenLoop
from ncps_raw.ports import ClientPorts

MS = 1_000_000
T0 = 1_000 * SECOND


class Stage:
    """Loops whose connections begin in no time and last until they are freed."""

    def __init__(self, rate: str, loops: int = 1, n: int = 100, pending: int = 100, once: bool = False) -> None:
        spec = [ClientLoop(i, n, pending, ClientPorts((7,), (), False)) for i in range(loops)]
        self.shares = [ClientShare(loop, ("h", 0)) for loop in spec]
        self.board = Board()
        self.board.begin = T0
        self.now = T0
        self.begun: list[tuple[int, int]] = []
        self.taken: list[Slot] = []
        self.open_loop = OpenLoop(self.shares, Fraction(rate), loops, self.board, self.begin, once)

    def begin(self, slot: Slot) -> None:
        slot.loop.counts[ATTEMPTED] += 1
        slot.start = self.now
        self.begun.append((slot.loop.index, slot.intended - T0))
        self.taken.append(slot)

    def turn(self, ms: float) -> bool:
        self.now = T0 + int(ms * MS)
        return self.open_loop.start(self.now)

    def total(self, counter: int) -> int:
        return sum(share.counts[counter] for share in self.shares)


def test_starts_are_made_when_they_are_due_in_turn() -> None:
    stage = Stage("1000", loops=3)
    for ms in range(6):
        stage.turn(ms)
    assert stage.begun == [(i % 3, i * MS) for i in range(6)]
    assert stage.open_loop.wait_s(stage.now) == pytest.approx(0.001)
    assert stage.total(LATE) == stage.total(LAG_NS) == 0
    assert stage.total(DUE) == 6


def test_a_late_turn_makes_up_for_all_of_it_and_says_how_late() -> None:
    stage = Stage("1000")
    while stage.turn(9.5):
        pass
    assert [at for _, at in stage.begun] == [i * MS for i in range(10)]
    assert stage.total(LAG_NS) == sum(int(9.5 * MS) - i * MS for i in range(10))
    assert stage.shares[0].counts[LAG_MAX_NS] == int(9.5 * MS)
    assert stage.total(LATE) == 9
    assert stage.total(HELD_UP) == 0


@pytest.mark.parametrize(("limit", "late", "held_up"), [("n", 2, 2), ("pending", 7, 4)])
def test_without_a_free_connection_a_start_waits_and_keeps_its_time(limit: str, late: int, held_up: int) -> None:
    stage = Stage("1000", **{limit: 2})  # type: ignore[arg-type]
    stage.turn(0)
    stage.turn(1)
    (share,) = stage.shares
    share.pending = 2
    stage.turn(5)
    assert len(stage.begun) == 2
    assert stage.open_loop.wait_s(stage.now) > 1  # what frees one is an event, not the time
    assert stage.total(DUE) == 6
    share.free.extend(stage.taken)
    share.pending = 0
    stage.turn(10)
    assert stage.begun[2:4] == [(0, 2 * MS), (0, 3 * MS)]
    assert (stage.total(LATE), stage.total(HELD_UP)) == (late, held_up)  # due before 5 ms: held up; later: late


def test_once_means_as_many_as_there_are_connections() -> None:
    stage = Stage("1000", n=3, once=True)
    stage.turn(50)
    stage.open_loop.wait_s(stage.now)
    assert len(stage.begun) == stage.total(DUE) == 3


def test_nothing_is_due_at_the_end_or_after_it() -> None:
    stage = Stage("1000")
    stage.board.end = T0 + 5 * MS
    stage.turn(7)
    stage.open_loop.end(stage.now)
    assert len(stage.begun) == stage.total(DUE) == 5
    stage.open_loop.end(stage.now + SECOND)
    assert stage.total(DUE) == 5


# ---- with the engine ----------------------------------------------------------------------------------------------


@pytest.fixture(params=PLATFORMS)
def platform(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    become(request.param, monkeypatch)
    return str(request.param)


def test_connects_follow_the_schedule_whatever_becomes_of_them(platform: str) -> None:
    rate = Fraction(400)
    (dead,) = free_ports(1)
    with peer(answer_once) as other, client([other.port, dead], n=200, rate=rate) as running:
        running.board.until_counted(base.ATTEMPTED, 100)
        records = running.stop()
    meant = sorted(int(t) - running.board.begin for t in records["intended_ns"])
    assert meant == [floor(k * SECOND / rate) for k in range(len(records))]
    assert (records["start_ns"] >= records["intended_ns"]).all()
    assert abs(int((records["outcome"] == CONNECT_FAILED).sum()) - len(records) // 2) <= 1
    counts = running.board.totals()
    assert counts[base.ATTEMPTED] == len(records) <= counts[base.DUE]
    lags = (records["start_ns"] - records["intended_ns"]).astype(int)
    assert counts[base.LAG_NS] == lags.sum()
    assert running.board.counts[0][base.LAG_MAX_NS] == lags.max()
    assert counts[base.LATE] == (lags > MS).sum()


def test_a_connection_that_does_not_end_holds_the_next_start_up(platform: str) -> None:
    with (
        peer(to_the_end) as other,
        client(other.port, mode="0", n=3, hold_ns=SECOND // 10, rate=Fraction(300)) as running,
    ):
        running.board.until_counted(base.HELD_UP, 3)
        records = running.stop()
    assert running.board.most_open <= 3
    assert running.board.total(base.DUE) >= running.board.total(base.ATTEMPTED)
    waited = records["start_ns"] - records["intended_ns"]
    assert waited.max() > SECOND // 20


def test_a_slow_schedule_does_not_spin() -> None:
    with peer(to_the_end) as other, client(other.port, mode="0", n=10, rate=Fraction(50), reconnect=False) as running:
        assert len(running.ended()) == 10
    assert running.board.turns < 100
