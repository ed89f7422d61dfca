"""Vocabulary of the first floor: a client's or server's connection record, an interval row, what a run was.

Record times are integer nanoseconds of CLOCK_MONOTONIC; ``ClockPairs`` converts them to the capture's clock.
Unknown is ``UNKNOWN`` (int64) as on the ground floor.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt
from ncps_capture.segments import UNKNOWN, Books

PENDING: Final = 0  # connect still in flight when the run ended
OPEN: Final = 1  # established, still open when the run ended
CLOSED: Final = 2  # established and closed as planned
CONNECT_FAILED: Final = 3  # ``error`` is the errno of the connect
IO_FAILED: Final = 4  # established, then a send, receive or unexpected end failed
NOT_STARTED: Final = 5  # failed on this machine before any SYN: no local port, no file descriptor
OUTCOME_NAMES: Final = ("pending", "open", "closed", "connect_failed", "io_failed", "not_started")

NO_KERNEL_RTT: Final = 0xFFFFFFFF

CONNECTION: Final = np.dtype(
    [
        ("intended_ns", "<i8"),  # when a schedule wanted it to start; UNKNOWN = there was no schedule
        ("start_ns", "<i8"),  # just before connect(); server: the moment accept() returned
        ("connected_ns", "<i8"),  # noticed as established; UNKNOWN = never
        ("closed_ns", "<i8"),  # close() called; UNKNOWN = still open, or never established
        ("kernel_rtt_us", "<u4"),  # tcpi_rtt once established; NO_KERNEL_RTT = not available
        ("error", "<u2"),  # errno, 0 = none
        ("lport", "<u2"),  # this side's port, 0 = unknown
        ("rport", "<u2"),
        ("path", "<u2"),  # index into Run.paths: (this side's address, the other's)
        ("loop", "<u2"),  # which of the -r loops
        ("outcome", "u1"),
        ("kernel_retrans", "u1"),  # tcpi_total_retrans once established, 255 = that or more
    ]
)

CONNECTION_2: Final = np.dtype([(name, CONNECTION[name].str) for name in (CONNECTION.names or ())[1:]])
"""The same in run files of format 2, which knew no schedule."""

Connections = npt.NDArray[np.void]


@dataclass(frozen=True)
class Interval:
    """One row a tick. Cumulative figures are named so; the others belong to the interval of ``seconds``."""

    t_s: float  # since the load began
    seconds: float
    open_now: int  # N: established and not yet closed
    pending: int
    failed_total: int
    io_failed_total: int
    established: int
    closed: int
    rx_bytes: int
    tx_bytes: int
    retransmits: int | None
    clean: int | None  # connects without retransmit
    clean_rtt_us: int | None  # their mean, truncated; None if there were none
    repeated: int | None
    repeated_rtt_us: int | None
    ports_wrapped: bool = False  # REP
    source: str = "kernel"  # where the last five come from: "wire" or "kernel"


@dataclass(frozen=True)
class ScheduleFacts:
    """How a schedule of starts was kept."""

    per_second: float  # asked
    due: int  # starts that the schedule had by the end of the load
    started: int
    late: int  # begun more than a millisecond after they were due
    held_up: int  # of these: because all connections or all connects that the plan allows were in use
    lag_ns: int  # sum over all that were started
    lag_max_ns: int


@dataclass(frozen=True)
class ClockPairs:
    """Readings of CLOCK_MONOTONIC and CLOCK_REALTIME taken together, in time order (int64 ns arrays)."""

    monotonic_ns: npt.NDArray[np.int64]
    realtime_ns: npt.NDArray[np.int64]

    def step_ns(self) -> int:
        """The most the two clocks moved against each other between neighbouring readings, ns.

        Some microseconds where a clock is only slewed. More is a step of CLOCK_REALTIME, and a time converted between
        those two readings may be wrong by as much.
        """
        moved = np.abs(np.diff(self.realtime_ns - self.monotonic_ns))
        return int(moved.max()) if moved.size else 0

    def to_realtime(self, monotonic_ns: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Convert; between two readings by a straight line, outside by the nearest offset. UNKNOWN stays UNKNOWN.

        Integer arithmetic on offsets: the offset changes by microseconds, so float64 is exact for it.
        """
        known = monotonic_ns != UNKNOWN
        base = int(self.realtime_ns[0] - self.monotonic_ns[0])
        drift = (self.realtime_ns - self.monotonic_ns - base).astype(np.float64)
        origin = int(self.monotonic_ns[0])
        at = np.where(known, monotonic_ns - origin, 0).astype(np.float64)
        moved = np.interp(at, (self.monotonic_ns - origin).astype(np.float64), drift)
        return np.where(known, monotonic_ns + base + np.rint(moved).astype(np.int64), UNKNOWN)


@dataclass(frozen=True)
class ClockOffset:
    """How far the clock of a capture made elsewhere is ahead of the client's: an estimate from the connections."""

    offset_ns: int  # median, at ``at_ns``
    low_ns: int  # 5th and 95th percentile of the single differences, drift removed
    high_ns: int
    n: int  # connections it was estimated from
    drift_ppm: float  # what the offset grows by in a second, us
    at_ns: int  # ns since the Unix epoch, by the client's clock


@dataclass(frozen=True)
class WireFacts:
    """What the capture process handed over when it was done. ``None`` everywhere it could not be told."""

    interface: str
    link_type: str
    filter_text: str
    packets: int
    dropped: int | None  # None: the process died and its drops are unknown
    books: Books
    handshake_files: tuple[str, ...]  # spools of HANDSHAKE rows
    first_t_ns: int = UNKNOWN
    last_t_ns: int = UNKNOWN
    died: str | None = None  # why the capture ended early
    vantage: str = "client"
    write_problem: str | None = None  # why the file of packets is not whole; what was measured is
    runs_as: str | None = None  # who looked at the packets, and with which rights
    file: str | None = None  # a saved capture, made elsewhere or at another time; ``interface`` is "" then
    offset: ClockOffset | None = None  # None: one clock stamped packets and records

    @property
    def where(self) -> str:
        """The file or interface, for messages."""
        return self.file or self.interface

    level: str = "base"  # "base", "resets" or "acks": what the capture admitted besides SYNs, and so can tell of


@dataclass(frozen=True)
class Run:
    """Everything a finished run leaves behind: a report is a function of it."""

    role: str  # "client" or "server"
    command_line: str  # as NCPS prints it
    version: str
    target: str  # what the person typed, for display
    mode: str
    threads: int
    processes: int
    engine: str
    t0_ns: int  # monotonic, start of the load
    record_start_ns: int  # monotonic, end of the warm-up
    end_ns: int  # monotonic, end of the load
    warmup_s: float
    paths: tuple[tuple[str, str], ...]  # (this side's address, the other's) of CONNECTION.path
    connection_files: tuple[str, ...]  # spools of CONNECTION rows
    clock: ClockPairs
    intervals: tuple[Interval, ...]
    rx_bytes: int  # within the recorded time
    tx_bytes: int
    kernel_rtt: bool  # this platform has TCP_INFO
    wire: WireFacts | None = None
    capture_problem: str | None = None  # why there is no wire, in one line
    interrupted: str | None = None  # name of the signal
    planned_s: float | None = None
    attempted: int = 0  # by the workers' counters, NOT_STARTED among them
    notes: tuple[str, ...] = field(default=())  # what the person should know: limits clamped, ports exhausted
    faults: tuple[str, ...] = ()  # worker processes that ended early: what they had not handed over is missing
    schedule: ScheduleFacts | None = None  # None: as fast as it went
    first_errors: tuple[
        tuple[int, int, int, int], ...
    ] = ()  # all failures: (errno, count, first_ns, last_ns), monotonic

    @property
    def recorded_ns(self) -> int:
        """How long was recorded; 0 if the run ended within its warm-up."""
        return 0 if self.record_start_ns == UNKNOWN else max(0, self.end_ns - self.record_start_ns)
