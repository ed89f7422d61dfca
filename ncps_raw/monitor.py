"""Watches a run: reads counters, makes interval rows, keeps the clock pairs, says aloud what goes wrong.

The one idea: it only reads. Rows are differences of cumulative totals, so a late tick loses nothing; a row waits
the fraction of a second until the capture process has published what the wire had done by its tick.
"""

from __future__ import annotations

import errno
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np
from ncps_analysis.assemble import EARLY_END
from ncps_analysis.records import ClockPairs, Interval

from ncps_raw.board import Failure, SharedBoard
from ncps_raw.engine.base import (
    ATTEMPTED,
    CLEAN,
    CLEAN_RTT,
    CLOSED,
    ESTABLISHED,
    FAILED,
    IO_FAILED,
    NOT_STARTED,
    REPEATED,
    REPEATED_RTT,
    RETRANSMITS,
    RX_BYTES,
    TX_BYTES,
    WRAPPED,
)
from ncps_raw.interrupts import Interrupts
from ncps_raw.plan import ClientPlan, Plan
from ncps_raw.stall import StallWatch
from ncps_raw.workers import Crew

if TYPE_CHECKING:
    from ncps_capture.process import CaptureProcess

SLICE_S: Final = 0.1
"""How long the monitor sleeps at most: a signal or a dead process is noticed within it."""
CLOCK_MOVED_NS: Final = 2_000
WIRE_PATIENCE_NS: Final = 600_000_000
REPEAT_WARNING_NS: Final = 10_000_000_000
WIRE: Final = "wire"
KERNEL: Final = "kernel"


@dataclass(frozen=True)
class Sample:
    """Cumulative totals at one moment. ``wire`` is None where there is no capture."""

    t_ns: int
    totals: list[int]
    wire: dict[str, int] | None


@dataclass(frozen=True)
class _Tick:
    """A sample whose wire columns the capture has not published yet."""

    t_ns: int
    real_ns: int
    totals: list[int]


@dataclass
class Watched:
    """What the monitor leaves behind. Times are monotonic ns."""

    t0_ns: int
    end_ns: int = 0
    record_start_ns: int = 0
    intervals: list[Interval] = field(default_factory=list)
    bytes_at_start: tuple[int, int] = (0, 0)
    bytes_at_end: tuple[int, int] = (0, 0)
    capture_ended: bool = False
    clock_monotonic: list[int] = field(default_factory=list)
    clock_realtime: list[int] = field(default_factory=list)
    interrupted: str | None = None
    notes: list[str] = field(default_factory=list)
    _unmoved: tuple[int, int] | None = None

    def pair_clocks(self, only_if_moved: bool = False) -> None:
        """Read both clocks together: the tightest of five readings, its middle taken for the pair.

        With ``only_if_moved`` the pair is kept only if the clocks have moved against each other since the last one,
        and then together with the reading before it, so that a step lies between two close readings.
        """
        best = (1 << 62, 0, 0)
        for _ in range(5):
            before = time.monotonic_ns()
            real = time.time_ns()
            after = time.monotonic_ns()
            best = min(best, (after - before, (before + after) // 2, real))
        reading = best[1:]
        if only_if_moved:
            offset = self.clock_realtime[-1] - self.clock_monotonic[-1]
            if abs(reading[1] - reading[0] - offset) <= CLOCK_MOVED_NS:
                self._unmoved = reading
                return
        for monotonic, real in (self._unmoved, reading) if self._unmoved else (reading,):
            self.clock_monotonic.append(monotonic)
            self.clock_realtime.append(real)
        self._unmoved = None

    def clock(self) -> ClockPairs:
        """All pairs so far."""
        return ClockPairs(np.array(self.clock_monotonic, np.int64), np.array(self.clock_realtime, np.int64))


def interval(before: Sample, now: Sample, t0_ns: int) -> Interval:
    """The row between two samples (pure)."""
    then, here = before.totals, now.totals
    delta = [b - a for a, b in zip(then, here, strict=True)]
    established, failed = here[ESTABLISHED], here[FAILED] + here[NOT_STARTED]
    wire = _wire_delta(before.wire, now.wire)
    if wire is not None:
        retransmits, clean, repeated = wire["repeats"], wire["answered_clean"], wire["answered_repeated"]
        clean_us = wire["answered_clean_rtt_ns"] // 1000
        repeated_us = wire["answered_repeated_rtt_ns"] // 1000
    else:
        retransmits, clean, repeated = delta[RETRANSMITS], delta[CLEAN], delta[REPEATED]
        clean_us, repeated_us = delta[CLEAN_RTT], delta[REPEATED_RTT]
    return Interval(
        t_s=(now.t_ns - t0_ns) / 1e9,
        seconds=(now.t_ns - before.t_ns) / 1e9,
        open_now=established - here[CLOSED],
        pending=here[ATTEMPTED] - established - failed,
        failed_total=failed,
        io_failed_total=here[IO_FAILED],
        established=delta[ESTABLISHED],
        closed=delta[CLOSED],
        rx_bytes=delta[RX_BYTES],
        tx_bytes=delta[TX_BYTES],
        retransmits=retransmits,
        clean=clean,
        clean_rtt_us=clean_us // clean if clean else None,
        repeated=repeated,
        repeated_rtt_us=repeated_us // repeated if repeated else None,
        ports_wrapped=here[WRAPPED] > 0,
        source=WIRE if wire is not None else KERNEL,
    )


def _wire_delta(before: dict[str, int] | None, now: dict[str, int] | None) -> dict[str, int] | None:
    if now is None:
        return None
    return {name: value - (before or {}).get(name, 0) for name, value in now.items()}


class Monitor:
    """Ticks until the plan's end, an interrupt, or until all workers have ended."""

    def __init__(
        self,
        plan: Plan,
        board: SharedBoard,
        crew: Crew,
        capture: CaptureProcess | None,
        interrupts: Interrupts,
        *,
        row: Callable[[Interval], None],
        say: Callable[[str], None],
        advise: Callable[[Failure], str],
        look: Callable[[], None] = lambda: None,
    ) -> None:
        """``look`` is called between two waits, until the load ends: for a person who wants something of it."""
        self._plan = plan
        self._board = board
        self._crew = crew
        self._capture = capture
        # A server's capture sees between SYN and SYN-ACK its own answer time: its rows keep the kernel's round trip.
        self._wire_rows = plan.role == "client"
        self._interrupts = interrupts
        self._row = row
        self._say = say
        self._advise = advise
        self._look = look
        self._said: dict[int, tuple[int, int]] = {}  # errno -> (when, count then)
        hold_ns, pace_ns = (plan.hold_ns, plan.pace_ns) if isinstance(plan, ClientPlan) else (0, 0)
        self._stall = StallWatch(plan.role, plan.mode, hold_ns, pace_ns)
        self._working = 0
        self._ticks: deque[_Tick] = deque()
        self._before = Sample(0, [], None)

    def watch(self, t0_ns: int) -> Watched:
        """Open rows until the end of the load; the workers are still running when this returns."""
        plan, seen = self._plan, Watched(t0_ns, record_start_ns=t0_ns + self._plan.warmup_ns)
        end_at = None if plan.duration_ns is None else t0_ns + plan.duration_ns
        seen.pair_clocks()
        self._working = self._crew.working()
        self._before = Sample(t0_ns, [0] * len(self._board.totals()), {})
        next_tick = t0_ns + plan.interval_ns
        warming = plan.warmup_ns > 0
        while True:
            self._look()
            now = time.monotonic_ns()
            if warming and now >= seen.record_start_ns:
                totals = self._board.totals()
                seen.bytes_at_start = totals[RX_BYTES], totals[TX_BYTES]
                warming = False
            over = self._over(now, end_at)
            if now >= next_tick or (over and now - self._last_tick_ns(t0_ns) > plan.interval_ns // 10):
                self._ticks.append(_Tick(time.monotonic_ns(), time.time_ns(), self._board.totals()))
                if self._capture is not None and self._wire_rows:
                    self._capture.publish_by(self._ticks[-1].real_ns)
                seen.pair_clocks()
                next_tick += max(1, (now - next_tick) // plan.interval_ns + 1) * plan.interval_ns
            self._show_ticks(seen)
            if over:
                self._end(seen, now if end_at is None or now < end_at else end_at)
                return seen
            if self._ticks:
                self._crew.listen(SLICE_S / 5)
                self._notice(seen)
                continue
            wake = min([next_tick, *([end_at] if end_at else []), *([seen.record_start_ns] if warming else [])])
            self._crew.listen(min(SLICE_S, max(0, wake - now) / 1e9))
            self._notice(seen)

    def _over(self, now: int, end_at: int | None) -> bool:
        if self._interrupts.stopped() or (end_at is not None and now >= end_at):
            return True
        return not self._crew.working() and not (self._plan.stays and not self._crew.failures())

    def _end(self, seen: Watched, end_ns: int) -> None:
        """The time is up: let the workers drain while the last rows wait for the wire."""
        self._crew.stop()
        totals = self._board.totals()
        seen.end_ns = end_ns
        seen.bytes_at_end = totals[RX_BYTES], totals[TX_BYTES]
        seen.record_start_ns = min(seen.record_start_ns, seen.end_ns)
        seen.interrupted = self._interrupts.stopped_by
        while self._ticks:
            self._crew.listen(SLICE_S / 5)
            self._notice(seen)
            self._show_ticks(seen)
        seen.pair_clocks()
        self._warn(final=True)

    def _last_tick_ns(self, t0_ns: int) -> int:
        return self._ticks[-1].t_ns if self._ticks else max(self._before.t_ns, t0_ns)

    def _show_ticks(self, seen: Watched) -> None:
        """Rows whose wire columns are complete: the capture publishes up to when its totals hold.

        A row asks for that and waits, for about 50 ms; so what it shows of the wire is no less than what had happened
        when its tick came, and hardly more.
        """
        while self._ticks:
            tick = self._ticks[0]
            wire = self._capture.counters.read() if self._capture is not None and self._wire_rows else None
            if wire is not None and wire["t_ns"] < tick.real_ns and time.monotonic_ns() - tick.t_ns < WIRE_PATIENCE_NS:
                return
            self._ticks.popleft()
            now = Sample(tick.t_ns, tick.totals, wire)
            line = interval(self._before, now, seen.t0_ns)
            self._before = now
            seen.intervals.append(line)
            self._row(line)
            self._warn()

    def _notice(self, seen: Watched) -> None:
        """Clocks that moved, processes that ended, and a person who asks for totals."""
        seen.pair_clocks(only_if_moved=True)
        if self._capture is not None and not self._capture.alive():
            self._capture = None
            seen.capture_ended = True
            self._say(
                "the capture process has ended: rows show the kernel's figures from here on, and what the wire did "
                "from here on is unknown"
            )
        self._notice_stall(seen)
        working = self._crew.working()
        if working < self._working and not self._interrupts.stopped():
            for failure in self._crew.failures():
                if failure not in seen.notes:
                    seen.notes.append(failure)
                    self._say(failure)
            self._working = working
        if self._interrupts.totals_wanted:
            self._interrupts.totals_wanted = False
            totals = self._board.totals()
            failed = totals[FAILED] + totals[NOT_STARTED]
            self._say(
                f"{(time.monotonic_ns() - seen.t0_ns) / 1e9:.3f} s: {totals[ATTEMPTED]} attempted, "
                f"{totals[ESTABLISHED]} established, {totals[CLOSED]} closed, {failed} failed, "
                f"{totals[IO_FAILED]} I/O failed, {totals[RX_BYTES]} bytes received, {totals[TX_BYTES]} sent"
            )

    def _notice_stall(self, seen: Watched) -> None:
        """Two ends that do not fit: said once, and noted for the report."""
        if self._board.paused():
            self._stall.rest()
            return
        line = self._stall.look(time.monotonic_ns(), self._board.totals())
        if line is not None:
            seen.notes.append(line)
            self._say(line)

    def _warn(self, final: bool = False) -> None:
        """A line for each errno when it first appears, then every ten seconds with its count."""
        now = time.monotonic_ns()
        for failure in self._board.failures():
            when, count = self._said.get(failure.number, (0, 0))
            due = not count or (failure.count > count and now - when >= REPEAT_WARNING_NS)
            if due or (final and not count):
                self._said[failure.number] = (now, failure.count)
                self._say(self._advise(failure))


def errno_name(number: int) -> str:
    """ECONNREFUSED and so on, as the report names them."""
    return EARLY_END if number == 0 else errno.errorcode.get(number, f"E{number}")
