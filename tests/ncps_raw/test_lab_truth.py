"""From logs written by hand to what a capture must have seen."""

from typing import Any

import numpy as np
from made_packets import packet

from ncps_raw.lab.logbook import READ, RELAY_LOG, WRITTEN, Log, row
from ncps_raw.lab.network import A_TO_B, B_TO_A
from ncps_raw.lab.packets import read_header
from ncps_raw.lab.truth import Seen, lateness_us, seen_at

MS = 1_000_000


class Diary:
    """Writes a log as the relay would; times in ms."""

    def __init__(self) -> None:
        self.rows = b""
        self.number = 0

    def syn(self, read: float | None, written: float | None, sport: int = 40000, isn: int = 1000, ts: int = 1) -> None:
        self._both(packet("S", sport, seq=isn, options=[("Timestamp", (ts, 0))]), A_TO_B, read, written)

    def synack(self, read: float, written: float | None, sport: int = 40000, isn: int = 1000, ts: int = 1) -> None:
        options: list[Any] = [("Timestamp", (ts, 1))]
        raw = packet("SA", 9000, sport, seq=5, ack=(isn + 1) % 2**32, back=True, options=options)
        self._both(raw, B_TO_A, read, written)

    def _both(self, raw: bytes, direction: int, read: float | None, written: float | None) -> None:
        for t_ms, event in ((read, READ), (written, WRITTEN)):
            if t_ms is not None:
                self.rows += row(
                    int(t_ms * MS), read_header(raw), len(raw), event, direction, self.number, late_ns=int(t_ms) * 1000
                )
        self.number += 1

    def log(self) -> Log:
        return np.sort(np.frombuffer(self.rows, RELAY_LOG), order="t_ns", kind="stable")


def seen(diary: Diary, side: str = "a") -> Seen:
    return seen_at(diary.log(), side)


def test_a_clean_handshake_at_both_ends() -> None:
    diary = Diary()
    diary.syn(0, 10)
    diary.synack(11, 21)
    a, b = seen(diary, "a"), seen(diary, "b")
    for one in (a, b):
        assert (one.tuples, one.attempts, one.answered) == (1, 1, 1)
        assert (one.syn_repeats, one.synack_repeats, one.syn_copies, one.synack_copies) == (0, 0, 0, 0)
    assert a.rtt_ns == a.last_rtt_ns == (21 * MS,)
    assert b.rtt_ns == b.last_rtt_ns == (1 * MS,)


def test_a_lost_syn_is_a_repeat_at_a_and_nothing_at_b() -> None:
    diary = Diary()
    diary.syn(0, None, ts=1)
    diary.syn(1000, 1010, ts=1001)
    diary.synack(1010, 1020)
    a, b = seen(diary, "a"), seen(diary, "b")
    assert (a.syn_repeats, b.syn_repeats) == (1, 0)
    assert a.rtt_ns == (1020 * MS,)
    assert a.last_rtt_ns == (20 * MS,)
    assert a.syn_repeats_after_synack == 0


def test_a_lost_synack_is_a_repeat_at_b_and_the_syn_after_it_too() -> None:
    diary = Diary()
    diary.syn(0, 10, ts=1)
    diary.synack(10, None, ts=1)
    diary.syn(1000, 1010, ts=1001)
    diary.synack(1011, 1021, ts=1002)
    a, b = seen(diary, "a"), seen(diary, "b")
    assert (a.syn_repeats, a.syn_repeats_after_synack, a.synack_repeats) == (1, 0, 0)
    assert (b.syn_repeats, b.syn_repeats_after_synack, b.synack_repeats) == (1, 1, 1)


def test_copies_within_5_ms_are_no_repeats_and_later_ones_are() -> None:
    diary = Diary()
    diary.syn(0, 10)
    for written in (20, 21, 24.9, 29.95):
        diary.synack(10, written)
    a = seen(diary)
    assert (a.synack_copies, a.synack_repeats) == (2, 1)
    other = Diary()
    other.syn(0, 10)
    other.synack(10, 20, ts=10)
    other.synack(11, 21, ts=11)  # close, but not the same packet
    assert (seen(other).synack_copies, seen(other).synack_repeats) == (0, 1)


def test_attempts_are_told_apart_by_isn_also_where_it_wraps() -> None:
    diary = Diary()
    for number, isn in enumerate((5, 2**32 - 1, 7)):
        diary.syn(100 * number, 100 * number + 10, isn=isn)
        diary.synack(100 * number + 10, 100 * number + 20, isn=isn)
    diary.syn(500, 510, sport=40001, isn=5)
    a = seen(diary)
    assert (a.tuples, a.attempts, a.answered) == (2, 4, 3)
    assert a.rtt_ns == (20 * MS,) * 3


def test_figures_have_names_and_units() -> None:
    diary = Diary()
    for number, took in enumerate((20, 30, 40.0005)):
        diary.syn(0, 10, sport=40000 + number)
        diary.synack(10, took, sport=40000 + number)
    figures = seen(diary).figures("at_a")
    assert figures["at_a.attempts"] == figures["at_a.rtt_us.n"] == 3
    assert [figures[f"at_a.rtt_us.{name}"] for name in ("min", "p50", "max")] == [20_000, 30_000, 40_000]
    assert figures["at_a.last_rtt_us.max"] == 40_000


def test_an_empty_log_has_counts_and_no_durations() -> None:
    log = np.zeros(0, RELAY_LOG)
    figures = seen_at(log, "a").figures("at_a")
    assert figures["at_a.attempts"] == figures["at_a.rtt_us.n"] == 0
    assert "at_a.rtt_us.min" not in figures
    assert lateness_us(log) == {}


def test_lateness_is_that_of_written_packets() -> None:
    diary = Diary()
    for written in (10, 20, 30):
        diary.syn(1000, written)
    assert lateness_us(diary.log()) == {"late_us.p50": 20, "late_us.max": 30}
