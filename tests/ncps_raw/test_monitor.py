"""Rows as differences of totals, and the watch of a run. Time is made up."""

import errno
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ncps_analysis.records import Interval
from ncps_capture.segments import WIRE_FIELDS

from ncps_raw import monitor
from ncps_raw.board import Failure
from ncps_raw.engine import base
from ncps_raw.interrupts import Interrupts
from ncps_raw.monitor import KERNEL, WIRE, Monitor, Sample, errno_name, interval
from ncps_raw.plan import ClientPlan, Plan, ServerPlan

S = 1_000_000_000
MS = 1_000_000
T0 = 1_000 * S


def totals(**counts: int) -> list[int]:
    return [counts.get(name, 0) for name in base.COUNTERS]


def wire(**counts: int) -> dict[str, int]:
    return {name: counts.get(name, 0) for name in WIRE_FIELDS}


# ---- one row ------------------------------------------------------------------------------------------------------


def test_a_row_from_the_kernels_figures() -> None:
    before = totals(attempted=100, established=80, closed=70, failed=5, not_started=1, rx_bytes=1000, clean=79)
    now = totals(
        attempted=300,
        established=250,
        closed=200,
        failed=15,
        not_started=3,
        io_failed=4,
        rx_bytes=5000,
        tx_bytes=700,
        clean=239,
        clean_rtt_us=1_601,
        repeated=11,
        repeated_rtt_us=2_200_021,
        retransmits=13,
        wrapped=1,
    )
    row = interval(Sample(T0 + S, before, None), Sample(T0 + 3 * S, now, None), T0)
    assert row == Interval(
        t_s=3.0,
        seconds=2.0,
        open_now=50,
        pending=32,
        failed_total=18,
        io_failed_total=4,
        established=170,
        closed=130,
        rx_bytes=4000,
        tx_bytes=700,
        retransmits=13,
        clean=160,
        clean_rtt_us=10,
        repeated=11,
        repeated_rtt_us=200_001,
        ports_wrapped=True,
        source=KERNEL,
    )


def test_without_connects_there_is_no_mean() -> None:
    row = interval(Sample(T0, totals(), None), Sample(T0 + S, totals(), None), T0)
    assert (row.clean, row.clean_rtt_us, row.repeated, row.repeated_rtt_us) == (0, None, 0, None)
    assert not row.ports_wrapped


def test_the_wire_takes_the_place_of_the_kernel() -> None:
    before = wire(repeats=1, answered_clean=10, answered_clean_rtt_ns=50_000, answered_repeated=1, syn=99)
    now = wire(
        repeats=4,
        answered_clean=14,
        answered_clean_rtt_ns=58_999,
        answered_repeated=3,
        answered_repeated_rtt_ns=6_000_001_000,
    )
    kernel = totals(established=9, clean=9, clean_rtt_us=900, repeated=7, repeated_rtt_us=7, retransmits=7)
    row = interval(Sample(T0, totals(), before), Sample(T0 + S, kernel, now), T0)
    assert row.source == WIRE
    assert (row.retransmits, row.clean, row.clean_rtt_us) == (3, 4, 2)  # 8,999 ns over four, in whole us
    assert (row.repeated, row.repeated_rtt_us) == (2, 3_000_000)
    assert row.established == 9


@pytest.mark.parametrize("before", [None, {}], ids=["none", "empty"])
def test_the_first_row_of_the_wire_counts_from_nothing(before: dict[str, int] | None) -> None:
    now = wire(answered_clean=2, answered_clean_rtt_ns=10_000)
    row = interval(Sample(T0, totals(), before), Sample(T0 + S, totals(), now), T0)
    assert (row.source, row.clean, row.clean_rtt_us) == (WIRE, 2, 5)


def test_after_the_wire_has_gone_the_kernel_speaks() -> None:
    row = interval(
        Sample(T0, totals(clean=5, clean_rtt_us=50), wire(answered_clean=6)),
        Sample(T0 + S, totals(clean=7, clean_rtt_us=110), None),
        T0,
    )
    assert (row.source, row.clean, row.clean_rtt_us) == (KERNEL, 2, 30)


STEPS = st.lists(
    st.tuples(
        st.integers(1, 5 * S),
        st.lists(st.integers(0, 1000), min_size=len(base.COUNTERS), max_size=len(base.COUNTERS)),
        st.lists(st.integers(0, 10**9), min_size=len(WIRE_FIELDS), max_size=len(WIRE_FIELDS)),
    ),
    min_size=1,
    max_size=10,
)


@given(STEPS, st.booleans())
def test_rows_add_up_to_the_totals(steps: list[tuple[int, list[int], list[int]]], captured: bool) -> None:
    now, counts, packets = T0, totals(), wire()
    before = Sample(now, counts, packets if captured else None)
    rows = []
    for ns, more, more_packets in steps:
        now += ns
        counts = [a + b for a, b in zip(counts, more, strict=True)]
        packets = {name: packets[name] + n for name, n in zip(WIRE_FIELDS, more_packets, strict=True)}
        sample = Sample(now, counts, packets if captured else None)
        rows.append(interval(before, sample, T0))
        before = sample
    for name in ("established", "closed", "rx_bytes", "tx_bytes"):
        assert sum(getattr(row, name) for row in rows) == counts[base.COUNTERS.index(name)]
    assert sum(row.seconds for row in rows) == pytest.approx((now - T0) / 1e9)
    for name, kernel, captured_name in (
        ("clean", base.CLEAN, "answered_clean"),
        ("repeated", base.REPEATED, "answered_repeated"),
        ("retransmits", base.RETRANSMITS, "repeats"),
    ):
        total = packets[captured_name] if captured else counts[kernel]
        assert sum(getattr(row, name) or 0 for row in rows) == total
    last = rows[-1]
    assert last.failed_total == counts[base.FAILED] + counts[base.NOT_STARTED]
    assert last.io_failed_total == counts[base.IO_FAILED]
    # Attempts = pending + open + closed + failed.
    assert last.pending + last.open_now + counts[base.CLOSED] + last.failed_total == counts[base.ATTEMPTED]


# ---- the watch ----------------------------------------------------------------------------------------------------


class World:
    """Clock, board, crew and capture in one: ``at`` says what happens when. Listening lets the time pass."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.now = T0
        self.counts = totals()
        self.found: list[Failure] = []
        self.ended: list[str] = []
        self.workers = 2
        self.captured: dict[str, int] | None = None
        self.at: dict[int, Callable[[], None]] = {}
        self.slept: list[float] = []
        self.asked: list[int] = []
        self.stopped_at: list[int] = []
        self.interrupts = Interrupts()
        self.paused = False
        self.rows: list[Interval] = []
        self.said: list[str] = []
        clock = SimpleNamespace(monotonic_ns=lambda: self.now, time_ns=lambda: self.now + 7 * S)
        patch.setattr(monitor, "time", clock)

    def listen(self, timeout_s: float) -> None:
        self.slept.append(timeout_s)
        self.now += max(1, round(timeout_s * S))
        for due in sorted(t for t in self.at if t <= self.now):
            self.at.pop(due)()

    # A board, a crew and a capture process as the monitor sees them.
    def totals(self) -> list[int]:
        return list(self.counts)

    def failures(self) -> list[Any]:
        return list(self.ended)

    def working(self) -> int:
        return self.workers

    def stop(self) -> None:
        self.stopped_at.append(self.now)

    def alive(self) -> bool:
        return self.captured is not None

    def read(self) -> dict[str, int] | None:
        return self.captured

    def publish_by(self, t_ns: int) -> None:
        self.asked.append(t_ns)

    @property
    def counters(self) -> "World":
        return self

    def watch(self, plan: Plan) -> monitor.Watched:
        board = SimpleNamespace(totals=self.totals, failures=lambda: self.found, paused=lambda: self.paused)
        made = Monitor(
            plan,
            board,  # type: ignore[arg-type]
            self,  # type: ignore[arg-type]
            self if self.captured is not None else None,  # type: ignore[arg-type]
            self.interrupts,
            row=self.rows.append,
            say=self.said.append,
            advise=lambda failure: f"errno {failure.number} x {failure.count}",
        )
        return made.watch(T0)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


PLAN = ClientPlan(target="192.0.2.1", duration_ns=3 * S)


def test_a_row_each_interval_until_the_end(world: World) -> None:
    world.at[T0 + 1_500 * MS] = lambda: world.counts.__setitem__(base.ESTABLISHED, 5)
    seen = world.watch(PLAN)
    assert [round(row.t_s, 6) for row in world.rows] == [1.0, 2.0, 3.0]
    assert [row.established for row in world.rows] == [0, 5, 0]
    assert seen.intervals == world.rows
    assert (seen.t0_ns, seen.record_start_ns, seen.end_ns) == (T0, T0, T0 + 3 * S)
    assert seen.interrupted is None
    assert max(world.slept) <= monitor.SLICE_S
    pairs = seen.clock()
    assert (pairs.realtime_ns - pairs.monotonic_ns == 7 * S).all()
    assert len(pairs.monotonic_ns) >= 2


@pytest.mark.parametrize(
    ("duration_ms", "rows"),
    [(2_050, [1.0, 2.0]), (2_100, [1.0, 2.0]), (2_200, [1.0, 2.0, 2.2])],
    ids=["a scrap", "a tenth", "a fifth"],
)
def test_a_last_row_for_what_is_worth_one(world: World, duration_ms: int, rows: list[float]) -> None:
    world.watch(replace(PLAN, duration_ns=duration_ms * MS))
    assert [round(row.t_s, 3) for row in world.rows] == rows


def test_a_late_tick_loses_nothing_and_keeps_to_the_grid(world: World) -> None:
    def stall() -> None:
        world.now = T0 + 3_400 * MS
        world.counts[base.ESTABLISHED] = 9

    world.at[T0 + 1_200 * MS] = stall
    world.watch(replace(PLAN, duration_ns=5 * S))
    assert [round(row.t_s, 6) for row in world.rows] == [1.0, 3.4, 4.0, 5.0]
    assert sum(row.seconds for row in world.rows) == pytest.approx(5)
    assert sum(row.established for row in world.rows) == 9


def test_the_warm_up_is_not_recorded(world: World) -> None:
    world.at[T0 + 500 * MS] = lambda: world.counts.__setitem__(base.RX_BYTES, 100)
    world.at[T0 + 1_500 * MS] = lambda: world.counts.__setitem__(base.RX_BYTES, 1000)
    seen = world.watch(replace(PLAN, warmup_ns=S))
    assert seen.record_start_ns == T0 + S
    assert seen.bytes_at_start == (100, 0)


def test_an_interrupt_ends_the_watch_and_is_named(world: World) -> None:
    world.at[T0 + 1_700 * MS] = lambda: setattr(world.interrupts, "stopped_by", "SIGINT")
    seen = world.watch(replace(PLAN, duration_ns=None, warmup_ns=10 * S))
    assert seen.interrupted == "SIGINT"
    assert T0 + 1_700 * MS <= seen.end_ns <= T0 + 1_900 * MS
    assert seen.record_start_ns == seen.end_ns  # the warm-up never ended
    assert [round(row.t_s, 1) for row in world.rows] == [1.0, 1.7]


def test_when_all_workers_have_ended_the_run_has(world: World) -> None:
    world.at[T0 + 400 * MS] = lambda: setattr(world, "workers", 0)
    seen = world.watch(PLAN)
    assert T0 + 400 * MS <= seen.end_ns <= T0 + 600 * MS


def test_a_worker_that_died_is_named_once(world: World) -> None:
    def die() -> None:
        world.workers = 1
        world.ended = ["worker 0 ended early (signal 9)"]

    world.at[T0 + 400 * MS] = die
    seen = world.watch(PLAN)
    assert world.said == seen.notes == ["worker 0 ended early (signal 9)"]
    assert seen.end_ns == T0 + 3 * S


def test_each_errno_is_said_when_new_and_then_every_ten_seconds_if_it_grows(world: World) -> None:
    def fail(number: int, count: int) -> Callable[[], None]:
        def happen() -> None:
            world.found = [f for f in world.found if f.number != number] + [Failure(number, count, T0, T0)]

        return happen

    world.at[T0 + 500 * MS] = fail(errno.ECONNREFUSED, 3)
    world.at[T0 + 2_500 * MS] = fail(errno.ECONNREFUSED, 8)
    world.at[T0 + 3_500 * MS] = fail(errno.ETIMEDOUT, 1)
    world.at[T0 + 24_500 * MS] = fail(0, 1)
    world.watch(replace(PLAN, duration_ns=24_600 * MS))
    refused, timed_out = f"errno {errno.ECONNREFUSED}", f"errno {errno.ETIMEDOUT}"
    assert world.said == [f"{refused} x 3", f"{timed_out} x 1", f"{refused} x 8", "errno 0 x 1"]


@pytest.mark.parametrize("paused", [False, True])
def test_a_load_that_stands_still_is_told_once_and_noted(world: World, paused: bool) -> None:
    world.counts = totals(attempted=9, established=7, tx_bytes=80)
    world.paused = paused
    seen = world.watch(ClientPlan(target="192.0.2.1", mode="s", hold_ns=3600 * S, duration_ns=5 * S))
    assert len(world.said) == (0 if paused else 1)
    assert seen.notes == world.said
    assert all("-M r" in line for line in world.said)


def test_totals_on_request(world: World) -> None:
    def ask() -> None:
        world.counts = totals(attempted=9, established=7, closed=5, failed=1, not_started=1, rx_bytes=70, tx_bytes=80)
        world.interrupts.totals_wanted = True

    world.at[T0 + 1_500 * MS] = ask
    world.watch(replace(PLAN, mode="0"))
    assert world.said == [
        "1.500 s: 9 attempted, 7 established, 5 closed, 2 failed, 0 I/O failed, 70 bytes received, 80 sent"
    ]
    assert not world.interrupts.totals_wanted


def test_rows_are_the_wires_until_the_capture_ends(world: World) -> None:
    world.captured = wire(answered_clean=4, t_ns=1 << 62)
    world.counts = totals(clean=3)
    world.at[T0 + 1_500 * MS] = lambda: setattr(world, "captured", None)
    world.watch(PLAN)
    assert [(row.source, row.clean) for row in world.rows] == [(WIRE, 4), (KERNEL, 0), (KERNEL, 0)]
    assert len(world.said) == 1
    assert "the capture process has ended" in world.said[0]


def test_a_row_waits_until_the_wire_has_been_told_up_to_its_tick(world: World) -> None:
    """What the capture has published by the tick holds up to a moment before it: the row asks for more and waits."""
    world.captured = wire(answered_clean=4, t_ns=T0 + 7 * S + 900 * MS)
    world.at[T0 + 1_200 * MS] = lambda: setattr(world, "captured", wire(answered_clean=6, t_ns=T0 + 7 * S + 1_100 * MS))
    world.at[T0 + 2_100 * MS] = lambda: setattr(world, "captured", wire(answered_clean=9, t_ns=1 << 62))
    seen = world.watch(replace(PLAN, duration_ns=2 * S))
    assert [(round(row.t_s, 1), row.clean) for row in world.rows] == [(1.0, 6), (2.0, 3)]
    assert [round(t_ns / S, 1) for t_ns in world.asked] == [(T0 / S) + 8.0, (T0 / S) + 9.0]
    assert world.stopped_at == [T0 + 2 * S]  # the last row waits while the workers drain
    assert seen.end_ns == T0 + 2 * S


def test_a_row_does_not_wait_for_ever(world: World) -> None:
    world.captured = wire(answered_clean=4, t_ns=0)
    world.watch(replace(PLAN, duration_ns=2 * S))
    assert [(row.source, row.clean) for row in world.rows] == [(WIRE, 4), (WIRE, 0)]
    assert world.now <= T0 + 3 * S


def test_bytes_are_those_of_the_recorded_time(world: World) -> None:
    world.counts = totals(rx_bytes=10, tx_bytes=20)
    world.at[T0 + 3 * S + 1] = lambda: world.counts.__setitem__(base.RX_BYTES, 999)
    assert world.watch(PLAN).bytes_at_end == (10, 20)


def test_rows_of_a_server_are_the_kernels(world: World) -> None:
    """Between SYN and SYN-ACK a server's capture sees its own answer time."""
    world.captured = wire(answered_clean=4)
    world.counts = totals(clean=3)
    world.watch(ServerPlan(duration_ns=S))
    assert [(row.source, row.clean) for row in world.rows] == [(KERNEL, 3)]


def test_a_clock_pair_is_the_tightest_of_five(monkeypatch: pytest.MonkeyPatch) -> None:
    monotonic = iter([0, 100, 200, 260, 300, 310, 400, 480, 500, 590])
    realtime = iter([1050, 1230, 1305, 1440, 1545])
    clock = SimpleNamespace(monotonic_ns=lambda: next(monotonic), time_ns=lambda: next(realtime))
    monkeypatch.setattr(monitor, "time", clock)
    seen = monitor.Watched(0)
    seen.pair_clocks()
    assert (seen.clock_monotonic, seen.clock_realtime) == ([305], [1305])


@pytest.mark.parametrize(
    ("number", "name"), [(errno.ECONNREFUSED, "ECONNREFUSED"), (0, "EARLY_END"), (250, "E250"), (-3, "E-3")]
)
def test_names_of_errors(number: int, name: str) -> None:
    assert errno_name(number) == name
