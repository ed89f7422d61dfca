"""Vocabulary of the first floor: what a report says about a run. Every view is a function of a ``RunReport``.

It must not know how figures were worked out nor how they will look. The one idea: ``None`` is unknown and is never
written as zero, and each figure that has more than one possible source names the one it came from.
Field names are the keys of the JSON view; each carries its unit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ncps_capture.segments import Books

from ncps_analysis.quantities import Distribution, Milestone

WIRE: Final = "wire"  # from captured packets
KERNEL: Final = "kernel"  # from TCP_INFO
NO_SOURCE: Final = "unknown"  # from neither
APPLICATION: Final = "application"


@dataclass(frozen=True)
class ErrorCount:
    """One errno: how often and when. Times are ns since the Unix epoch, None where no record told them."""

    errno: int
    name: str  # ECONNREFUSED; "E<number>" where this platform has no name for it
    count: int
    first_t_ns: int | None
    last_t_ns: int | None


@dataclass(frozen=True)
class RepeatCauses:
    """SYN repeats of the recorded connections by cause (definition D3). The first two are the headline figure.

    None: the level of the capture does not show this cause, and what had it is counted under another.
    """

    timeout: int = 0
    after_synack: int = 0
    after_rst: int | None = None
    after_challenge: int | None = None


@dataclass(frozen=True)
class CaptureReport:
    """What was captured and how it adds up. ``identities`` are the sums of definition D14, terms of zero left out."""

    interface: str | None  # None: a saved capture
    file: str | None  # the saved capture
    clock_offset_ns: int | None  # its clock minus the client's, estimated; None: one clock
    clock_offset_low_ns: int | None  # 5th and 95th percentile of what single connections say
    clock_offset_high_ns: int | None
    clock_offset_n: int | None  # connections
    clock_drift_ppm: float | None
    link_type: str
    filter_text: str
    level: str  # "base", "resets" or "acks": what it admitted, and so can tell of
    vantage: str  # "client" or "server": at which end the packets were seen
    vantage_suggested: str | None  # "client", "server" or "middle": where the halves of the handshakes suggest it was
    packets: int
    dropped: int | None  # None: the capture process died and cannot tell
    died: str | None
    runs_as: str | None  # who the capture process was once it had given up its rights
    claimed: int  # captured attempts that a connection of this run owns up to
    books: Books
    identities: tuple[str, ...]


@dataclass(frozen=True)
class Disagreement:
    """A connection that ``against`` timed otherwise than the wire: three clocks on one handshake."""

    against: str  # "kernel" (either way) or "application" (that waited longer)
    difference_us: int
    t_ns: int  # connect() called, ns since the Unix epoch by the client's clock
    src: str
    sport: int
    dst: str
    dport: int
    connect_us: int | None  # application
    kernel_rtt_us: int | None
    syn_rtt_us: int  # wire
    syn_repeats: int  # wire, all causes
    kernel_retrans: int | None


@dataclass(frozen=True)
class InTime:
    """Figures of the recorded connections that were established when the time was up: those NCPS counts."""

    connections: int
    syn_rtt_us: Distribution
    retrans_share_percent: float | None
    retrans_per_connection: float | None


@dataclass(frozen=True)
class RunReport:
    """A finished run in figures.

    Counts ``attempted`` to ``io_failed`` and ``errors`` are of the whole run; everything from ``connections`` on is
    of the recorded connections only: those established after the warm-up. Times and their distributions are whole
    microseconds, rounded down.
    """

    # what was run
    role: str  # "client" or "server"
    target: str
    command_line: str
    version: str
    mode: str
    threads: int
    processes: int
    engine: str
    start_t_ns: int  # start of the load, ns since the Unix epoch
    duration_s: float
    warmup_s: float
    recorded_s: float  # what rates are divided by; 0.0 if the warm-up never ended
    planned_s: float | None
    interrupted: str | None  # name of the signal

    # the whole run
    attempted: int
    established: int
    failed: int
    unfinished: int
    not_started: int  # failed on this machine before a SYN was sent: no attempts, outside the books
    io_failed: int  # established, but then a send, receive or unexpected end failed
    errors: tuple[ErrorCount, ...]  # most frequent first

    # recorded connections
    connections: int
    connections_late: int  # of these, under way when the time was up and let finish: in no rate and no milestone
    in_time: InTime
    cps: float | None
    milestones: tuple[Milestone, ...]
    rx_gbps: float | None
    tx_gbps: float | None

    # round trips
    rtt_source: str  # WIRE, KERNEL or NO_SOURCE
    syn_rtt_us: Distribution  # from rtt_source; wire: first SYN to first SYN-ACK, a server's first SYN-ACK to first ACK
    rtt_unknown: int  # recorded connections that have no part in syn_rtt_us
    kernel_replaced: int  # of rtt_source "kernel": retransmitted, so the application's connect time stands in
    path_rtt_us: Distribution  # wire: exact round trips only
    kernel_rtt_us: Distribution  # tcpi_rtt as the kernel says it, whatever the source above
    connect_us: Distribution  # application: connect() called until noticed as established
    overhead_before_us: Distribution  # connect() called until the SYN was on the wire
    overhead_after_us: Distribution  # SYN-ACK on the wire until noticed as established
    synack_to_ack_us: Distribution  # wire: first SYN-ACK to the client's first acknowledgement of it (definition D12)
    answer_us: Distribution  # captured at the server: first SYN to SYN-ACK, this host's own answer time

    # a schedule of starts; None and empty where there was none
    rate_asked: float | None  # connects a second
    rate_achieved: float | None  # connects begun in a second of the whole run
    due: int | None  # starts that the schedule had by the end
    missed: int | None  # of these, never begun
    late: int | None  # begun more than a millisecond after they were due
    late_held_up: int | None  # of these, while all connections or connects that were allowed were in use
    lag_us_mean: float | None  # of the starts behind the schedule
    lag_us_max: int | None
    response_us: Distribution  # from when the schedule wanted it until noticed as established
    service_us: Distribution  # from connect() called until then: without what the start was late

    # retransmits
    retrans_source: str
    syn_retrans: int | None
    synack_retrans: int | None
    syn_repeats: int | None  # all causes
    syn_repeat_causes: RepeatCauses | None
    syn_retrans_failed: int | None  # headline retransmits of attempts that were never established, whole run
    retrans_known: int  # recorded connections whose retransmits are known
    retrans_connections: int  # of these, connections with at least one
    retrans_share_percent: float | None
    retrans_per_connection: float | None  # mean of those with at least one; None if there is none
    retrans_disagree: int | None  # connections on which kernel and wire count different retransmits

    disagreements: tuple[Disagreement, ...]  # at most 10 with the kernel, then 10 with the application, largest first

    # capture
    capture: CaptureReport | None
    capture_problem: str | None  # why there was no capture
    dropped_by_capture: int | None
    matched: int | None  # recorded connections whose handshake was found; None: nothing is taken from a capture
    matched_share: float | None

    # what to be told
    problems: tuple[str, ...]  # figures contradict each other: do not trust the report
    notes: tuple[str, ...]
