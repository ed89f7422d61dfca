"""Pure: what a run was and what was counted -> the RunReport.

It must not know files, nor count anything itself. The one idea: here every figure gets its source or is declared
unknown, and every sum that must come out is checked; what that comes to in words stands in ``remarks.py``.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from ncps_capture.segments import UNKNOWN, Handshakes

from ncps_analysis import remarks
from ncps_analysis.disagree import Largest
from ncps_analysis.figures import distribution, identities, milestones
from ncps_analysis.halves import vantage, within_one_host
from ncps_analysis.histogram import Histogram
from ncps_analysis.join import SLACK_NS, path_words
from ncps_analysis.model import (
    APPLICATION,
    KERNEL,
    NO_SOURCE,
    WIRE,
    CaptureReport,
    Disagreement,
    ErrorCount,
    InTime,
    RepeatCauses,
    RunReport,
)
from ncps_analysis.offset import shifted, slack_ns
from ncps_analysis.quantities import Distribution
from ncps_analysis.records import ClockPairs, Connections, Run, WireFacts
from ncps_analysis.tally import Basis, Measured, Tally, count

EARLY_END: Final = "EARLY_END"
"""Name of errno 0: the other side ended an established connection before it should."""


def basis_of(run: Run) -> Basis:
    """What counting the parts of ``run`` needs to know."""
    offset = run.wire.offset if run.wire is not None else None
    return Basis(
        role=run.role,
        paths=path_words(run.paths),
        clock=run.clock if offset is None else shifted(run.clock, offset),
        record_start_ns=run.record_start_ns if run.recorded_ns else UNKNOWN,
        end_ns=run.end_ns,
        captured=run.wire is not None,
        complete=run.wire is not None and run.wire.dropped == 0,
        slack_ns=SLACK_NS + run.clock.step_ns() + (0 if offset is None else slack_ns(offset)),
        scheduled=run.schedule is not None,
        one_clock=offset is None,
    )


def summarise(run: Run, records: Connections, handshakes: Handshakes) -> RunReport:
    """The report of a run whose CONNECTION and HANDSHAKE rows are in memory."""
    return report_of(run, count(records, handshakes, basis_of(run)))


def report_of(run: Run, tally: Tally) -> RunReport:
    """The report of a run from the counts of all its parts."""
    wire, server = run.wire, run.role == "server"
    recorded_s = run.recorded_ns / 1e9
    recorded = tally.recorded
    blind = remarks.one_direction(wire, tally) is not None
    taken = wire is not None and not blind
    on_wire = recorded.wire_known > 0 and taken
    # What a server's capture shows between SYN and SYN-ACK is its own answer time, not a round trip: that is SYN-ACK to
    # ACK, where the capture admits ACKs, and else the kernel's first sample.
    timed = on_wire and (not server or recorded.synack_to_ack.n > 0)
    rtt_source = WIRE if timed else KERNEL if recorded.kernel_syn_rtt.n else NO_SOURCE
    retrans_source = WIRE if on_wire else KERNEL if recorded.kernel_known else NO_SOURCE
    from_wire, from_kernel = retrans_source == WIRE, retrans_source == KERNEL
    syn_rtt = _syn_rtt(recorded, rtt_source, server)
    retrans = _Retransmits.of(recorded, from_wire, server)
    first = _Retransmits.of(tally.in_time, from_wire, server)
    attempted = run.attempted - tally.not_started
    return RunReport(
        role=run.role,
        target=run.target,
        command_line=run.command_line,
        version=run.version,
        mode=run.mode,
        threads=run.threads,
        processes=run.processes,
        engine=run.engine,
        start_t_ns=_realtime(run.clock, run.t0_ns) or 0,
        duration_s=max(0, run.end_ns - run.t0_ns) / 1e9,
        warmup_s=run.warmup_s,
        recorded_s=recorded_s,
        planned_s=run.planned_s,
        interrupted=run.interrupted,
        attempted=attempted,
        established=tally.established,
        failed=tally.failed,
        unfinished=tally.unfinished,
        not_started=tally.not_started,
        io_failed=tally.io_failed,
        errors=_errors(run, tally),
        connections=recorded.connections,
        connections_late=tally.late.connections,
        in_time=InTime(
            connections=tally.in_time.connections,
            syn_rtt_us=distribution(_syn_rtt(tally.in_time, rtt_source, server)),
            retrans_share_percent=first.share_percent,
            retrans_per_connection=first.each,
        ),
        cps=tally.in_time.connections / recorded_s if recorded_s > 0 else None,
        milestones=milestones(tally.established_ms),
        rx_gbps=run.rx_bytes * 8 / 1e9 / recorded_s if recorded_s > 0 else None,
        tx_gbps=run.tx_bytes * 8 / 1e9 / recorded_s if recorded_s > 0 else None,
        rtt_source=rtt_source,
        syn_rtt_us=distribution(syn_rtt),
        rtt_unknown=recorded.connections - syn_rtt.n,
        kernel_replaced=recorded.kernel_replaced if rtt_source == KERNEL else 0,
        path_rtt_us=distribution(recorded.path_rtt),
        kernel_rtt_us=distribution(recorded.kernel_rtt),
        connect_us=distribution(recorded.connect),
        overhead_before_us=distribution(recorded.before),
        overhead_after_us=distribution(recorded.after),
        synack_to_ack_us=distribution(recorded.synack_to_ack),
        answer_us=distribution(recorded.answer),
        **_schedule(run, recorded),
        retrans_source=retrans_source,
        syn_retrans=sum(recorded.causes[:2])
        if from_wire
        else recorded.kernel_retrans
        if from_kernel and not server
        else None,
        synack_retrans=recorded.synack_retrans
        if from_wire
        else recorded.kernel_retrans
        if from_kernel and server
        else None,
        syn_repeats=recorded.syn_repeats if from_wire else None,
        syn_repeat_causes=_causes(recorded, wire) if wire is not None and from_wire else None,
        syn_retrans_failed=tally.syn_retrans_failed if wire is not None and wire.dropped == 0 and not blind else None,
        retrans_known=retrans.known,
        retrans_connections=retrans.connections,
        retrans_share_percent=retrans.share_percent,
        retrans_per_connection=retrans.each,
        retrans_disagree=recorded.disagreeing if on_wire and recorded.kernel_known else None,
        disagreements=(
            *_disagreements(run, KERNEL, recorded.kernel_apart),
            *_disagreements(run, APPLICATION, recorded.application_apart),
        ),
        capture=_capture(run, wire, tally) if wire is not None else None,
        capture_problem=run.capture_problem,
        dropped_by_capture=wire.dropped if wire is not None else None,
        matched=recorded.matched if taken else None,
        matched_share=recorded.matched / recorded.connections if taken and recorded.connections else None,
        problems=tuple(remarks.problems(run, tally, recorded, attempted)),
        notes=(*run.notes, *remarks.notes(run, recorded, rtt_source, blind)),
    )


def _schedule(run: Run, recorded: Measured) -> dict[str, Any]:
    """The fields of a schedule. Service time is connect time, named so where response time stands beside it."""
    kept, seconds = run.schedule, (run.end_ns - run.t0_ns) / 1e9
    if kept is None:
        names = ("rate_asked", "rate_achieved", "due", "missed", "late", "late_held_up", "lag_us_mean", "lag_us_max")
        return {**dict.fromkeys(names), "response_us": Distribution(), "service_us": Distribution()}
    return {
        "rate_asked": kept.per_second,
        "rate_achieved": kept.started / seconds if seconds > 0 else None,
        "due": kept.due,
        "missed": max(0, kept.due - kept.started),
        "late": kept.late,
        "late_held_up": kept.held_up,
        "lag_us_mean": kept.lag_ns / kept.started / 1000 if kept.started else None,
        "lag_us_max": kept.lag_max_ns // 1000 if kept.started else None,
        "response_us": distribution(recorded.response),
        "service_us": distribution(recorded.connect),
    }


def _syn_rtt(measured: Measured, rtt_source: str, server: bool) -> Histogram:
    if rtt_source != WIRE:
        return measured.kernel_syn_rtt
    return measured.synack_to_ack if server else measured.syn_rtt


def _causes(measured: Measured, wire: WireFacts) -> RepeatCauses:
    """What the level of the capture does not show is unknown, except that what was seen was seen."""
    timeout, after_synack, after_rst, after_challenge = measured.causes
    return RepeatCauses(
        timeout,
        after_synack,
        after_rst if after_rst or wire.level != "base" else None,
        after_challenge if after_challenge or wire.level == "acks" else None,
    )


@dataclass(frozen=True)
class _Retransmits:
    """What NCPS's last lines say of some connections: SYNs of a client, SYN-ACKs of a server."""

    known: int
    connections: int  # with at least one
    share_percent: float | None
    each: float | None  # mean of those with at least one

    @classmethod
    def of(cls, measured: Measured, from_wire: bool, server: bool) -> _Retransmits:
        if from_wire:
            known, some = measured.wire_known, measured.wire_retrans_connections
            total = measured.synack_retrans if server else sum(measured.causes[:2])
        else:
            known, some, total = measured.kernel_known, measured.kernel_retrans_connections, measured.kernel_retrans
        return cls(known, some, 100 * some / known if known else None, total / some if some else None)


def _realtime(clock: ClockPairs, monotonic_ns: int) -> int | None:
    if monotonic_ns == UNKNOWN:
        return None
    return int(clock.to_realtime(np.array([monotonic_ns], np.int64))[0])


def _errors(run: Run, tally: Tally) -> tuple[ErrorCount, ...]:
    """Failures by errno, most frequent first.

    The workers' table counts each failure when it happens, the records keep one row each; where a worker
    died between the two, the larger count is the true one.
    """
    table = dict(tally.errors)
    for number, times, first, last in run.first_errors:
        seen = table.get(number)
        table[number] = (times, first, last) if seen is None else (max(times, seen[0]), first, last)
    counts = [
        ErrorCount(
            number,
            errno.errorcode.get(number, f"E{number}") if number else EARLY_END,
            times,
            _realtime(run.clock, first),
            _realtime(run.clock, last),
        )
        for number, (times, first, last) in table.items()
    ]
    return tuple(sorted(counts, key=lambda e: (-e.count, e.errno)))


def _disagreements(run: Run, against: str, largest: Largest) -> Iterator[Disagreement]:
    for row in largest.rows:
        facts = {name: value for name, value in vars(row).items() if name != "start_ns"}
        yield Disagreement(against=against, t_ns=_realtime(run.clock, row.start_ns) or 0, **facts)


def _capture(run: Run, wire: WireFacts, tally: Tally) -> CaptureReport:
    offset = wire.offset
    return CaptureReport(
        interface=wire.interface or None,
        file=wire.file,
        clock_offset_ns=None if offset is None else offset.offset_ns,
        clock_offset_low_ns=None if offset is None else offset.low_ns,
        clock_offset_high_ns=None if offset is None else offset.high_ns,
        clock_offset_n=None if offset is None else offset.n,
        clock_drift_ppm=None if offset is None else offset.drift_ppm,
        link_type=wire.link_type,
        filter_text=wire.filter_text,
        level=wire.level,
        vantage="server" if run.role == "server" else wire.vantage,
        vantage_suggested=_vantage(run, tally.recorded),
        packets=wire.packets,
        dropped=wire.dropped,
        died=wire.died,
        runs_as=wire.runs_as,
        claimed=tally.claimed,
        books=wire.books,
        identities=identities(wire.books),
    )


def _vantage(run: Run, recorded: Measured) -> str | None:
    if within_one_host(run.paths):
        return None
    first, second = recorded.answer if run.role == "server" else recorded.syn_rtt, recorded.synack_to_ack
    return vantage(distribution(first).p50, distribution(second).p50)
