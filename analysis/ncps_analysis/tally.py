"""Pure: one part of a run (records, handshakes) -> counts and histograms that add up over the parts.

It must not know files or how a report looks. The one idea: everything a report says is made from counts that can be
added, so a part of any size is counted, forgotten and added to the rest, and the cut into parts cannot be seen in
the result. The only condition is that a four-tuple's records and handshakes lie in the same part.

Durations become whole microseconds by rounding down, once, here: capture stamps are cut to microseconds already.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from ncps_capture.segments import (
    HANDSHAKE,
    UNKNOWN,
    Handshakes,
    path_rtt_ns,
    rtt_first_ns,
    syn_retrans,
    synack_to_ack_ns,
)
from ncps_capture.tuples import mix

from ncps_analysis.disagree import Largest, of_application, of_kernel
from ncps_analysis.histogram import Histogram
from ncps_analysis.join import UNMATCHED, Words, agrees, match
from ncps_analysis.records import (
    CLOSED,
    CONNECT_FAILED,
    IO_FAILED,
    NO_KERNEL_RTT,
    NOT_STARTED,
    OPEN,
    PENDING,
    ClockPairs,
    Connections,
)

Flags = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]

CAUSES: Final = ("retrans_timeout", "retrans_after_synack", "retrans_after_rst", "retrans_after_challenge")


@dataclass(frozen=True)
class Basis:
    """What all parts of a run share.

    ``paths`` is uint64 of shape (number of paths, 4), see ``join.tuples_of_records``. ``captured``: there is a
    capture to join with; ``complete``: it dropped nothing, so a handshake that was found can be believed. ``clock``
    leads to the capture's clock.
    """

    role: str
    paths: Words
    clock: ClockPairs
    record_start_ns: int  # monotonic; UNKNOWN: the warm-up never ended, nothing is recorded
    end_ns: int  # monotonic; connections under way then may finish: they are recorded, but in no rate
    captured: bool
    complete: bool
    slack_ns: int  # how far a SYN may lie outside its connection's window
    scheduled: bool  # connections were started by a schedule
    one_clock: bool  # stamped packets and records, so that one may be subtracted from the other


@dataclass
class Measured:
    """What is known of some recorded connections; ``+=`` and ``+`` add another's. Histograms are of us."""

    connections: int = 0
    connect: Histogram = field(default_factory=Histogram.empty)
    response: Histogram = field(default_factory=Histogram.empty)  # from when the schedule wanted it
    absurd: int = 0  # established before they started: clock trouble, in no histogram

    kernel_rtt: Histogram = field(default_factory=Histogram.empty)
    kernel_syn_rtt: Histogram = field(default_factory=Histogram.empty)
    kernel_replaced: int = 0
    kernel_known: int = 0
    kernel_retrans: int = 0
    kernel_retrans_connections: int = 0

    matched: int = 0
    wire_known: int = 0
    syn_rtt: Histogram = field(default_factory=Histogram.empty)  # captured at the client: first SYN to SYN-ACK
    answer: Histogram = field(default_factory=Histogram.empty)  # the same, captured at the server
    synack_to_ack: Histogram = field(default_factory=Histogram.empty)
    path_rtt: Histogram = field(default_factory=Histogram.empty)
    before: Histogram = field(default_factory=Histogram.empty)
    after: Histogram = field(default_factory=Histogram.empty)
    causes: tuple[int, int, int, int] = (0, 0, 0, 0)
    syn_repeats: int = 0
    synack_retrans: int = 0
    wire_retrans_connections: int = 0
    disagreeing: int = 0  # kernel and wire count different retransmits
    kernel_apart: Largest = field(default_factory=Largest)
    application_apart: Largest = field(default_factory=Largest)

    def __iadd__(self, other: Measured) -> Measured:
        _add(self, other)
        return self

    def __add__(self, other: Measured) -> Measured:
        both = Measured()
        both += self
        both += other
        return both


@dataclass
class Tally:
    """Counts of one or several parts; ``+=`` adds another's. Up to ``alike`` they are of the whole run."""

    established: int = 0
    failed: int = 0
    unfinished: int = 0
    not_started: int = 0
    io_failed: int = 0
    errors: dict[int, tuple[int, int, int]] = field(default_factory=dict)  # errno: count, first and last, monotonic ns
    syn_retrans_failed: int = 0
    claimed: int = 0  # handshakes some record owns up to
    alike: int = 0  # captured attempts that none owns up to, with an address of ours at one end: translated on the way?

    established_ms: Histogram = field(default_factory=Histogram.empty)  # of ``in_time``, ms since recording began
    in_time: Measured = field(default_factory=Measured)  # recorded connections established up to the end
    late: Measured = field(default_factory=Measured)  # recorded, but under way when the time was up, and let finish

    def __iadd__(self, other: Tally) -> Tally:
        _add(self, other)
        return self

    @property
    def recorded(self) -> Measured:
        """All recorded connections."""
        return self.in_time + self.late


def _add(mine: Any, other: Any) -> None:
    """Add every field of one of the above to the field of the same name."""
    for name, value in vars(other).items():
        old = getattr(mine, name)
        if isinstance(value, dict):
            for number, seen in value.items():
                old[number] = add_errors(old[number], seen) if number in old else seen
        elif isinstance(value, tuple):
            setattr(mine, name, tuple(a + b for a, b in zip(old, value, strict=True)))
        else:
            setattr(mine, name, old + value)


def add_errors(a: tuple[int, int, int], b: tuple[int, int, int]) -> tuple[int, int, int]:
    """Two (count, first, last) of one errno together."""
    return a[0] + b[0], min(a[1], b[1]), max(a[2], b[2])


def count(records: Connections, handshakes: Handshakes, basis: Basis) -> Tally:
    """Count one part: CONNECTION rows (monotonic times) and the HANDSHAKE rows of the same four-tuples."""
    tally = Tally()
    outcome = records["outcome"]
    tally.failed = int((outcome == CONNECT_FAILED).sum())
    tally.unfinished = int((outcome == PENDING).sum())
    tally.not_started = int((outcome == NOT_STARTED).sum())
    tally.io_failed = int((outcome == IO_FAILED).sum())
    established = (outcome == OPEN) | (outcome == CLOSED) | (outcome == IO_FAILED)
    tally.established = int(established.sum())
    _errors(tally, records)
    recorded = _recorded(records, established, basis)
    on_wire = _join(tally, records, handshakes, basis) if basis.captured else None
    in_time = recorded & (records["connected_ns"] <= basis.end_ns)
    tally.established_ms = Histogram.of((records["connected_ns"][in_time] - basis.record_start_ns) // 1_000_000)
    for measured, which in ((tally.in_time, in_time), (tally.late, recorded & ~in_time)):
        measured.connections = int(which.sum())
        _application_and_kernel(measured, records[which], basis)
        if on_wire is not None:
            measured.matched = int((on_wire.matched & which).sum())
            known = on_wire.known & which
            theirs = handshakes[on_wire.found[known]]
            _wire(measured, on_wire.timed[known], theirs, basis)
            if basis.role == "client" and len(theirs):
                measured.kernel_apart = of_kernel(records[known], theirs)
                measured.application_apart = of_application(records[known], theirs)
    return tally


def count_records(records: Connections, basis: Basis) -> Tally:
    """Count one part of a run without a capture."""
    return count(records, np.empty(0, HANDSHAKE), basis)


def _recorded(records: Connections, established: Flags, basis: Basis) -> Flags:
    if basis.record_start_ns == UNKNOWN:
        return np.zeros(len(records), np.bool_)
    recorded: Flags = established & (records["connected_ns"] >= basis.record_start_ns)
    return recorded


def _errors(tally: Tally, records: Connections) -> None:
    """Failures by errno. An I/O failure with errno 0 is an end that came too early."""
    outcome = records["outcome"]
    bad = records[(outcome == CONNECT_FAILED) | (outcome == NOT_STARTED) | (outcome == IO_FAILED)]
    when = np.where(bad["closed_ns"] != UNKNOWN, bad["closed_ns"], bad["start_ns"])
    for number in np.unique(bad["error"]).tolist():
        times = when[bad["error"] == number]
        tally.errors[number] = (len(times), int(times.min()), int(times.max()))


def _application_and_kernel(measured: Measured, rows: Connections, basis: Basis) -> None:
    """Connect times and what the kernel says, of recorded connections.

    After a repeated SYN ``tcpi_rtt`` is about one path round trip, or 0 for "no sample", although the handshake took
    seconds: there the application's connect time stands in. A server has none (it learns of a connection when
    it is over), so there the figure is unknown.
    """
    retrans = rows["kernel_retrans"].astype(np.int64)
    rtt = rows["kernel_rtt_us"].astype(np.int64)
    told = rtt != NO_KERNEL_RTT
    sampled = told & (rtt > 0)
    measured.kernel_known = int(told.sum())
    measured.kernel_retrans = int(retrans[told].sum())
    repeated = told & (retrans > 0)
    measured.kernel_retrans_connections = int(repeated.sum())
    measured.kernel_rtt = Histogram.of(rtt[sampled])
    syn_rtt = rtt[sampled & ~repeated]
    if basis.role != "server":
        took = (rows["connected_ns"] - rows["start_ns"]) // 1000
        sane = took >= 0
        measured.absurd = int((~sane).sum())
        measured.connect = Histogram.of(took[sane])
        if basis.scheduled:
            meant = sane & (rows["intended_ns"] != UNKNOWN)
            measured.response = Histogram.of((rows["connected_ns"][meant] - rows["intended_ns"][meant]) // 1000)
        replaced = took[repeated & sane]
        measured.kernel_replaced = len(replaced)
        syn_rtt = np.concatenate((syn_rtt, replaced))
    measured.kernel_syn_rtt = Histogram.of(syn_rtt)


@dataclass(frozen=True)
class _OnWire:
    """Records on the capture's clock, the index of their handshakes, whether there is one, whether it is believed."""

    timed: Connections
    found: Ints
    matched: Flags
    known: Flags


def _join(tally: Tally, records: Connections, handshakes: Handshakes, basis: Basis) -> _OnWire:
    timed = records.copy()
    for name in ("start_ns", "connected_ns", "closed_ns"):
        timed[name] = basis.clock.to_realtime(records[name])
    found = match(timed, handshakes, basis.paths, basis.role, basis.slack_ns)
    matched = found != UNMATCHED
    known = matched if basis.complete else agrees(timed, handshakes, found, basis.role, basis.slack_ns)
    tally.claimed = int(matched.sum())
    tally.alike = _alike(handshakes, found[matched], basis)
    outcome = records["outcome"]
    lost = handshakes[found[known & ((outcome == CONNECT_FAILED) | (outcome == PENDING))]]
    tally.syn_retrans_failed = int(syn_retrans(lost).sum())
    return _OnWire(timed, found, matched, known)


def _alike(handshakes: Handshakes, claimed: Ints, basis: Basis) -> int:
    """How many attempts but the ``claimed`` have a client or a server whose address is that of a connection's."""
    free = handshakes["t_syn_first_ns"] != UNKNOWN
    free[claimed] = False
    here, there = basis.paths[:, :2], basis.paths[:, 2:]
    clients, servers = (there, here) if basis.role == "server" else (here, there)
    ours = np.zeros(int(free.sum()), np.bool_)
    for end, addresses in (("client", clients), ("server", servers)):
        known = addresses[addresses.any(axis=1)]
        theirs = mix([handshakes[f"{end}_hi"][free], handshakes[f"{end}_lo"][free]])
        ours |= np.isin(theirs, mix([known[:, 0], known[:, 1]]))
    return int(ours.sum())


def _wire(measured: Measured, rows: Connections, wire: Handshakes, basis: Basis) -> None:
    """What the capture says of recorded connections ``rows`` (its clock); ``wire`` has the handshake of each."""
    measured.wire_known = len(wire)
    if not len(wire):
        return
    headline = syn_retrans(wire)
    first, second, third, fourth = (int(wire[name].sum(dtype=np.int64)) for name in CAUSES)
    measured.causes = (first, second, third, fourth)
    measured.syn_repeats = int((wire["syn_n"].astype(np.int64) - 1).sum())
    measured.synack_retrans = int(wire["synack_retrans"].sum(dtype=np.int64))
    sent = wire["synack_n"] if basis.role == "server" else wire["syn_n"]
    told = rows["kernel_rtt_us"] != NO_KERNEL_RTT
    measured.disagreeing = int((told & (rows["kernel_retrans"].astype(np.int64) != sent.astype(np.int64) - 1)).sum())
    rtt = Histogram.of(_us(rtt_first_ns(wire)))
    if basis.complete:  # where packets were lost, a later ACK may look like the first
        measured.synack_to_ack = Histogram.of(_us(synack_to_ack_ns(wire)))
    if basis.role == "server":
        measured.answer = rtt
        measured.wire_retrans_connections = int((wire["synack_retrans"] > 0).sum())
        return
    measured.wire_retrans_connections = int((headline > 0).sum())
    measured.syn_rtt = rtt
    measured.path_rtt = Histogram.of(_us(path_rtt_ns(wire)))
    if not basis.one_clock:
        return
    # Below zero is the cut stamp or the reading of two clocks, at most the slack of the join: no time at all.
    measured.before = Histogram.of(np.maximum(wire["t_syn_first_ns"] - rows["start_ns"], 0) // 1000)
    answered = wire["t_synack_ns"] != UNKNOWN
    late = rows["connected_ns"][answered] - wire["t_synack_ns"][answered]
    measured.after = Histogram.of(np.maximum(late, 0) // 1000)


def _us(durations_ns: Ints) -> Ints:
    """Known durations (ns) in whole us, rounded down."""
    known: Ints = durations_ns[durations_ns != UNKNOWN] // 1000
    return known
