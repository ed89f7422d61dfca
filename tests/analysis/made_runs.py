"""Runs as the tests need them: records, handshakes and what a run was, with a truth that is known beforehand."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from ncps_analysis.assemble import summarise
from ncps_analysis.join import path_words
from ncps_analysis.records import (
    CLOSED,
    CONNECT_FAILED,
    CONNECTION,
    NO_KERNEL_RTT,
    NOT_STARTED,
    PENDING,
    ClockPairs,
    Interval,
    Run,
    WireFacts,
)
from ncps_capture.segments import ANSWERED, HANDSHAKE, REFUSED, UNANSWERED, UNKNOWN, Books

S = 1_000_000_000
MONOTONIC = 5_000 * S  # t0 by the program's clock
EPOCH = 1_700_000_000 * S  # the same moment by the capture's
PATHS = (("127.0.0.1", "127.0.0.2"),)


@dataclass(frozen=True)
class Made:
    run: Run
    records: np.ndarray
    handshakes: np.ndarray

    def report(self, **changes):
        return summarise(replace(self.run, **changes), self.records, self.handshakes)


def interval(t_s: float, **changes) -> Interval:
    row = Interval(
        t_s=t_s,
        seconds=1.0,
        open_now=7,
        pending=1593,
        failed_total=0,
        io_failed_total=0,
        established=69_066,
        closed=69_059,
        rx_bytes=69_062_900,
        tx_bytes=69_065_900,
        retransmits=0,
        clean=69_204,
        clean_rtt_us=12_888,
        repeated=0,
        repeated_rtt_us=None,
    )
    return replace(row, **changes)


def a_run(**changes) -> Run:
    run = Run(
        role="client",
        command_line="ncps -c 127.0.0.2 -r 4 -t 10",
        version="0.1.0",
        target="127.0.0.2",
        mode="1",
        threads=4,
        processes=2,
        engine="selector",
        t0_ns=MONOTONIC,
        record_start_ns=MONOTONIC,
        end_ns=MONOTONIC + 10 * S,
        warmup_s=0.0,
        paths=PATHS,
        connection_files=(),
        clock=ClockPairs(np.array([MONOTONIC], np.int64), np.array([EPOCH], np.int64)),
        intervals=(),
        rx_bytes=125_000_000,
        tx_bytes=250_000_000,
        kernel_rtt=True,
        planned_s=10.0,
    )
    return replace(run, **changes)


def books_of_rows(rows: np.ndarray) -> Books:
    state = rows["state"]
    syns = int(rows["syn_n"].sum())
    return Books(
        packets=syns + int(rows["synack_n"].sum()),
        syn=syns,
        syn_counted=syns,
        synack=int(rows["synack_n"].sum()),
        attempts=len(rows),
        answered=int((state == ANSWERED).sum()),
        refused=int((state == REFUSED).sum()),
        unanswered=int((state == UNANSWERED).sum()),
    )


def facts(handshakes: np.ndarray, **changes) -> WireFacts:
    wire = WireFacts(
        interface="lo",
        link_type="EN10MB",
        filter_text="tcp",
        packets=2 * len(handshakes),
        dropped=0,
        books=books_of_rows(handshakes),
        handshake_files=(),
    )
    return replace(wire, **changes)


def rows(n: int, *, every_ns: int = 1_000_000, rtt_us: int = 20) -> tuple[np.ndarray, np.ndarray]:
    """``n`` connections, one each ``every_ns``; connection i has a SYN-RTT of ``rtt_us + i % 10`` us."""
    i = np.arange(n)
    records, handshakes = np.zeros(n, CONNECTION), np.zeros(n, HANDSHAKE)
    rtt = (rtt_us + i % 10) * 1000
    records["start_ns"] = MONOTONIC + i * every_ns
    records["connected_ns"] = records["start_ns"] + 5_000 + rtt + 10_000
    records["closed_ns"] = records["connected_ns"] + 50_000
    records["kernel_rtt_us"] = rtt // 1000 + 3
    records["lport"] = 20_000 + i % 40_000
    records["rport"] = 10_001
    records["outcome"] = CLOSED
    here, there = path_words(PATHS)[0, :2], path_words(PATHS)[0, 2:]
    handshakes["client_hi"], handshakes["client_lo"] = here
    handshakes["server_hi"], handshakes["server_lo"] = there
    handshakes["t_ack_ns"] = UNKNOWN
    handshakes["sport"], handshakes["dport"] = records["lport"], records["rport"]
    handshakes["t_syn_first_ns"] = records["start_ns"] - MONOTONIC + EPOCH + 5_000
    handshakes["t_syn_last_ns"] = handshakes["t_syn_before_ns"] = handshakes["t_syn_first_ns"]
    handshakes["t_synack_ns"] = handshakes["t_syn_first_ns"] + rtt
    handshakes["t_order_ns"] = handshakes["t_syn_first_ns"]
    handshakes["frame"] = 1 + 2 * i
    handshakes["isn"] = 1_000_000 + i
    handshakes["rtt_ts_ns"] = handshakes["t_refused_ns"] = UNKNOWN
    handshakes["syn_n"] = handshakes["synack_n"] = 1
    handshakes["state"] = ANSWERED
    return records, handshakes


def repeat_syn(records: np.ndarray, handshakes: np.ndarray, which, times: int = 1) -> None:
    """The first ``times`` SYNs of these connections were lost on the way: a second more for each, and one RTT."""
    for i in np.atleast_1d(which):
        records["connected_ns"][i] += times * S
        records["closed_ns"][i] += times * S
        records["kernel_retrans"][i] = times
        records["kernel_rtt_us"][i] = 1_000  # what a kernel says then
        handshakes["rtt_ts_ns"][i] = handshakes["t_synack_ns"][i] - handshakes["t_syn_first_ns"][i]
        handshakes["t_synack_ns"][i] += times * S
        handshakes["t_syn_last_ns"][i] += times * S
        handshakes["t_syn_before_ns"][i] += times * S
        handshakes["syn_n"][i] += times
        handshakes["retrans_timeout"][i] = times


def fail(records: np.ndarray, handshakes: np.ndarray, which, number: int = 111) -> None:
    """These connections were refused 30 us after their SYN."""
    records["connected_ns"][which] = UNKNOWN
    records["closed_ns"][which] = records["start_ns"][which] + 40_000
    records["kernel_rtt_us"][which] = NO_KERNEL_RTT
    records["outcome"][which] = CONNECT_FAILED
    records["error"][which] = number
    handshakes["state"][which] = REFUSED
    handshakes["t_synack_ns"][which] = UNKNOWN
    handshakes["t_refused_ns"][which] = handshakes["t_syn_first_ns"][which] + 30_000
    handshakes["synack_n"][which] = 0


def never_started(records: np.ndarray, which, number: int = 99) -> None:
    records["connected_ns"][which] = UNKNOWN
    records["closed_ns"][which] = records["start_ns"][which] + 1_000
    records["kernel_rtt_us"][which] = NO_KERNEL_RTT
    records["outcome"][which] = NOT_STARTED
    records["lport"][which] = 0
    records["error"][which] = number


def leave_pending(records: np.ndarray, handshakes: np.ndarray, which) -> None:
    records["connected_ns"][which] = records["closed_ns"][which] = UNKNOWN
    records["kernel_rtt_us"][which] = NO_KERNEL_RTT
    records["outcome"][which] = PENDING
    handshakes["state"][which] = UNANSWERED
    handshakes["t_synack_ns"][which] = UNKNOWN
    handshakes["synack_n"][which] = 0


def finish(records: np.ndarray, handshakes: np.ndarray | None, *, wire=None, **changes) -> Made:
    """A run of these rows; with ``handshakes`` it was captured, ``wire`` changes what the capture says of itself."""
    seen = np.empty(0, HANDSHAKE) if handshakes is None else handshakes
    changes.setdefault("attempted", len(records))
    captured = facts(seen, **(wire or {})) if handshakes is not None else None
    return Made(a_run(wire=captured, **changes), records, seen)


def clean(n: int = 1000, **changes) -> Made:
    return finish(*rows(n), **changes)


def lossy(n: int = 1000, **changes) -> Made:
    """One in a hundred lost its first SYN, the last its first two; ten were refused, one is pending."""
    records, handshakes = rows(n)
    repeat_syn(records, handshakes, np.arange(50, n, 100))
    repeat_syn(records, handshakes, n - 1, 2)
    fail(records, handshakes, np.arange(5, 15))
    leave_pending(records, handshakes, np.array([n - 2]))
    return finish(records, handshakes, **changes)


def none_established(n: int = 20, **changes) -> Made:
    records, handshakes = rows(n)
    fail(records, handshakes, np.arange(n))
    return finish(records, handshakes, **changes)


def unknown_rtt() -> Made:
    """A run of which neither a capture nor the kernel can tell a round trip."""
    records, _ = rows(50)
    records["kernel_rtt_us"] = NO_KERNEL_RTT
    return finish(records, None, kernel_rtt=False, capture_problem="no right to capture: try\nas root")
