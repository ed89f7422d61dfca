"""SYNs that nobody answers, very many of them: exact counts, and a table whose work and memory stay in bounds."""

from __future__ import annotations

import numpy as np
import pytest
from ncps_capture import handshake, rows, waiting
from ncps_capture import segments as sg
from ncps_capture.handshake import HandshakeTable, books_of, merge_rows
from segment_maker import MS, SECOND, T0

TICK_NS = 100 * MS
PER_TICK = 2500


def syns(first: int, n: int, t_ns: int) -> sg.Segments:
    """``n`` SYNs within one tick, each on a tuple of its own: those from ``first`` on."""
    number = np.arange(first, first + n)
    out = np.zeros(n, sg.SEGMENT)
    out["t_ns"] = t_ns + np.arange(n) * TICK_NS // n
    out["frame"] = number + 1
    out["src_lo"] = sg.V4_MAPPED | (10 << 24) | (number // 50_000)
    out["dst_lo"] = sg.V4_MAPPED | (10 << 24) | (1 << 16)
    out["sport"] = 1024 + number % 50_000
    out["dport"], out["flags"], out["seq"], out["ttl"], out["ip_version"] = 80, sg.SYN, 7, 64, 4
    out["ip_ident"] = number & 0xFFFF
    return out


@pytest.fixture
def moved(monkeypatch):
    """Rows and segments copied or settled, as a list of one number that grows: the work, whatever the machine."""
    count = [0]

    def counting(function, size):
        def counted(*given, **named):
            out = function(*given, **named)
            count[0] += size(out)
            return out

        return counted

    for module in (handshake, waiting):
        monkeypatch.setattr(module, "pick", counting(rows.pick, len))
        monkeypatch.setattr(module, "join", counting(rows.join, len))
    monkeypatch.setattr(handshake, "settle_segments", counting(handshake.settle_segments, lambda out: len(out.owner)))
    return count


def test_a_tick_costs_what_is_new_however_many_wait(moved):
    table = HandshakeTable(third_ack=True)
    work, ticks = [], 80
    for tick in range(ticks):
        begin = moved[0]
        now_ns = T0 + (tick + 1) * TICK_NS
        table.add(syns(tick * PER_TICK, PER_TICK, T0 + tick * TICK_NS))
        assert len(table.settle(now_ns)) == 0
        assert table.live()["repeats"] == 0
        work.append(moved[0] - begin)
    assert table.open_segments() == ticks * PER_TICK
    early, late = sum(work[20:40]), sum(work[60:80])  # of 100,000 that wait at most, and of 200,000
    assert late < 1.6 * early
    assert max(work[60:80]) <= max(work[:60])  # a block more or less
    books = books_of(merge_rows(table.finish(now_ns)))
    books.syn = ticks * PER_TICK
    assert (books.unanswered, books.problems()) == (ticks * PER_TICK, [])
    assert table.open_segments() == 0


def test_nothing_waits_longer_than_it_may():
    table = HandshakeTable()
    found = []
    for second in range(0, 450, 5):
        table.add(syns(second * 500, 2500, T0 + second * SECOND))
        found.append(table.settle(T0 + (second + 5) * SECOND))
        assert table.open_segments() <= 30 * 2500
    total = sum(map(len, found)) + len(table.finish(T0 + 450 * SECOND))
    assert total == 90 * 2500


def test_what_waits_is_answered_all_the_same():
    table = HandshakeTable()
    asked = syns(0, 5000, T0)
    table.add(asked)
    assert len(table.settle(T0 + 5 * SECOND)) == 0
    again = asked[:3000].copy()
    again["t_ns"] += 6 * SECOND
    again["ip_ident"] += 1
    answers = asked[1000:4000].copy()
    answers["t_ns"] += 7 * SECOND
    for one, other in (("src_lo", "dst_lo"), ("sport", "dport")):
        answers[one], answers[other] = asked[other][1000:4000], asked[one][1000:4000]
    answers["flags"], answers["ack"], answers["seq"] = sg.SYN | sg.ACK, 8, 99
    table.add(again)
    assert table.live()["repeats"] == 3000
    table.settle(T0 + 6 * SECOND + 500 * MS)
    assert table.live()["repeats"] == 3000
    table.add(answers)
    rows_answered = table.settle(T0 + 8 * SECOND)
    live = table.live()
    assert (live["repeats"], live["answered_clean"], live["answered_repeated"]) == (3000, 1000, 2000)
    assert rows_answered["state"].tolist() == [sg.ANSWERED] * 3000
    left = table.finish(T0 + 9 * SECOND)
    assert left["state"].tolist() == [sg.UNANSWERED] * 2000
    assert table.live() == live


@pytest.mark.parametrize("ident", [0, 1], ids=["copies", "repeats"])
def test_a_flood_of_one_syn_keeps_the_books_and_fills_no_memory(ident):
    """More of one SYN than 16 bits count."""
    table = HandshakeTable(dup_window_ns=5 * MS)
    each, ticks = 2000, 45
    parts = []
    for tick in range(ticks):
        flood = syns(0, each, T0 + tick * TICK_NS)
        flood["src_lo"], flood["sport"] = flood["src_lo"][0], flood["sport"][0]
        flood["ip_ident"] = np.arange(each) * ident
        flood["frame"] += tick * each
        table.add(flood)
        parts.append(table.settle(T0 + (tick + 1) * TICK_NS))
        assert table.open_segments() <= 2 * each
    parts.append(table.finish(T0 + ticks * TICK_NS))
    attempts = merge_rows(np.concatenate(parts))
    assert attempts["state"].tolist() == [sg.UNANSWERED]
    row = attempts[0]
    assert int(row["syn_n"]) + int(row["dup_syn"]) == ticks * each > 0xFFFF
    assert int(row["syn_n"]) - 1 == int(row["retrans_timeout"])
    assert row["t_syn_first_ns"] == T0
    books = books_of(attempts)
    books.syn = ticks * each
    assert books.problems() == []
