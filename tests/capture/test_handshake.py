"""The definitions of docs/handshakes.md, one table each, and the table that keeps them while a capture runs."""

from __future__ import annotations

import numpy as np
import pytest
from ncps_capture import segments as sg
from ncps_capture.handshake import LIVE_FIELDS, HandshakeTable, books_of, merge_rows
from segment_maker import MS, SECOND, T0, X, Y, copy, icmp, only, rst, segment, stack, syn, synack, table_of

NONE = sg.UNKNOWN


def first(rows: list[np.void], **options: float) -> np.void:
    return table_of(rows, **options)[0]


def causes(row: np.void) -> tuple[int, int, int, int]:
    names = ("timeout", "after_synack", "after_rst", "after_challenge")
    return tuple(int(row[f"retrans_{name}"]) for name in names)


def states(rows: sg.Handshakes) -> list[str]:
    return [sg.STATE_NAMES[state] for state in rows["state"]]


# ---- D1 ----------------------------------------------------------------------------------------------------------


def test_d1_a_handshake():
    row = only([syn(0, mss=1460, wscale=7), synack(1.5), segment(1.6, ">", "A", X + 1, Y + 1)])
    assert (row["state"], row["attempt"], row["isn"], row["server_isn"]) == (sg.ANSWERED, 1, X, Y)
    assert (row["t_syn_first_ns"], row["t_synack_ns"]) == (T0, T0 + 1_500_000)
    assert (row["sport"], row["dport"], row["mss"], row["wscale"], row["ttl"]) == (40000, 80, 1460, 7, 64)
    assert (row["client_lo"], row["server_lo"]) == (sg.V4_MAPPED | 0x0A000001, sg.V4_MAPPED | 0x0A000002)
    assert (row["frame"], row["syn_n"], row["synack_n"], row["flags"]) == (1, 1, 1, sg.F_RTT_EXACT)


def test_d1_another_isn_is_another_attempt_at_once():
    rows = table_of([syn(0), syn(10, X + 5000), synack(11, X + 5000), synack(12), syn(20, X + 9000)])
    assert rows["attempt"].tolist() == [1, 2, 3]
    assert rows["isn"].tolist() == [X, X + 5000, X + 9000]
    assert states(rows) == ["answered", "answered", "unanswered"]


def test_d1_the_server_may_answer_with_any_port_and_both_families():
    six = ("2001:db8::9", 5, "2001:db8::1", 60000)  # the client is the larger endpoint here
    rows = table_of([syn(0, ends=six), synack(1, ends=six)])
    assert (states(rows), rows["sport"].tolist(), rows["client_lo"].tolist()) == (["answered"], [5], [9])


@pytest.mark.parametrize(("gap_s", "attempts"), [(139.9, 1), (140, 1), (140.001, 2)])
def test_d1_the_same_isn_is_the_same_attempt_for_140_s(gap_s, attempts):
    rows = table_of([syn(0), syn(gap_s * 1000)])
    assert len(rows) == attempts
    reused = [bool(flags & sg.F_ISN_REUSED) for flags in rows["flags"]]
    assert reused == [False, True][:attempts]
    assert rows["syn_n"].sum() == 2


def test_d1_tunnels_are_apart():
    rows = table_of([syn(0, tunnel=1), syn(1, tunnel=2), synack(2, tunnel=2)])
    assert (states(rows), rows["attempt"].tolist()) == (["unanswered", "answered"], [1, 1])


# ---- D2 ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("after_ms", "fields", "duplicate"),
    [
        (0, {}, True),
        (4.999, {}, True),
        (5, {}, False),
        (1, {"ttl": 63}, True),
        (1, {"ttl": 65}, False),
        (1, {"ip_ident": 9999}, False),
        (1, {"tsval": 6}, False),
        (1, {"flags": sg.SYN | 0x40}, False),
        (1, {"payload": 3}, False),
    ],
)
def test_d2_copies_of_the_capture(after_ms, fields, duplicate):
    one = syn(0, tsval=5)
    row = only([one, copy(one, after_ms, **fields), synack(9)])
    assert (row["syn_n"], row["dup_syn"]) == ((1, 1) if duplicate else (2, 0))
    assert row["t_syn_first_ns"] == T0
    assert causes(row) == ((0, 0, 0, 0) if duplicate else (1, 0, 0, 0))


def test_d2_window_zero_is_off():
    one = syn(0)
    assert only([one, copy(one, 0)], dup_window_ns=0)["syn_n"] == 2


def test_d2_copies_in_every_order_and_of_answers():
    one, two = syn(0), syn(1)
    answer = synack(2)
    row = only([one, two, copy(one, 2), answer, copy(two, 2.5), copy(answer, 2), copy(answer, 4)])
    assert (row["syn_n"], row["dup_syn"], row["synack_n"], row["dup_synack"]) == (2, 2, 1, 2)
    assert row["synack_retrans"] == 0
    assert row["t_synack_ns"] == T0 + 2 * MS


def test_d2_a_copy_that_arrives_after_the_answer_is_no_repeat():
    one = syn(0)
    row = only([one, synack(0.02), copy(one, 0.03)])
    assert (row["syn_n"], row["dup_syn"], causes(row)) == (1, 1, (0, 0, 0, 0))


# ---- D3 ----------------------------------------------------------------------------------------------------------

CHALLENGE = [segment(10, "<", "A", 5, 999), segment(11, ">", "R", 999)]


@pytest.mark.parametrize(
    ("story", "expected"),
    [
        ([syn(0), syn(990), syn(2000), syn(4000)], (3, 0, 0, 0)),
        ([syn(0), synack(1), syn(1000)], (0, 1, 0, 0)),
        ([syn(0), syn(1000), synack(1001), syn(3000), syn(7000)], (1, 2, 0, 0)),
        ([syn(0), rst(1), syn(500), rst(501), syn(1000), rst(1001)], (0, 0, 2, 0)),
        ([syn(0), rst(1), syn(500), syn(1500)], (1, 0, 1, 0)),
        ([syn(0), *CHALLENGE, syn(1000)], (0, 0, 0, 1)),
        ([syn(0), *CHALLENGE, syn(1000), syn(2000)], (1, 0, 0, 1)),
        ([syn(0), CHALLENGE[0], syn(1000)], (1, 0, 0, 0)),
        ([syn(0), CHALLENGE[1], syn(1000)], (1, 0, 0, 0)),
        ([syn(0), *[copy(s, -9.5) for s in CHALLENGE[::-1]], syn(1000)], (0, 0, 0, 1)),
        ([syn(0), segment(10, "<", "A", 5, X + 1), CHALLENGE[1], syn(1000)], (1, 0, 0, 0)),
        ([syn(0), *CHALLENGE, rst(20), syn(1000)], (0, 0, 1, 0)),
        ([syn(0), rst(1, seq=0, flags=sg.RST), syn(1000)], (1, 0, 0, 0)),
        ([syn(0), icmp(1), syn(1000)], (1, 0, 0, 0)),
        ([syn(0), rst(1), synack(2), syn(1000), syn(3000)], (0, 1, 1, 0)),
        ([syn(0), synack(1), rst(2), syn(1000)], (0, 1, 0, 0)),
    ],
)
def test_d3_each_repeat_has_a_cause(story, expected):
    row = only(story)
    assert causes(row) == expected
    assert row["syn_n"] == 1 + sum(expected)
    assert sg.syn_retrans(np.array([row]))[0] == expected[0] + expected[1]


# ---- D4 and D6 ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "acked", "valid"),
    [(0, 0, True), (0, 1, False), (0, -1, False), (7, 0, True), (7, 3, True), (7, 7, True), (7, 8, False)],
)
def test_d4_what_a_valid_synack_acknowledges(data, acked, valid):
    row = only([syn(0, payload=data), synack(1, data=acked)])
    assert (row["state"], row["synack_n"], row["synack_bad_ack"]) == (
        (sg.ANSWERED, 1, 0) if valid else (sg.UNANSWERED, 0, 1)
    )
    assert row["syn_len"] == data


def test_d4_the_isn_may_wrap():
    row = only([syn(0, 2**32 - 1), synack(1, 2**32 - 1)])
    assert row["state"] == sg.ANSWERED


def test_d4_a_bad_ack_belongs_to_the_latest_attempt_even_after_its_answer():
    rows = table_of([syn(0), synack(1), syn(10, X + 10**6), synack(11, X + 10**6), synack(3000, 12345)])
    assert rows["synack_bad_ack"].tolist() == [0, 1]


def test_d6_repeats_of_the_answer():
    answer = synack(1)
    row = only([syn(0), answer, copy(answer, 1), synack(1001), synack(3001), synack(3002, server_isn=Y + 8)])
    assert (row["synack_n"], row["synack_retrans"], row["dup_synack"], row["synack_isn_changed"]) == (4, 2, 1, 1)
    assert row["server_isn"] == Y


# ---- D5 ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("story", "first_ms", "last_ms", "ts_ms", "flag"),
    [
        ([syn(0), synack(20)], 20, 20, 20, sg.F_RTT_EXACT),
        ([syn(0), synack(0)], 0, 0, 0, sg.F_RTT_EXACT),
        ([syn(0), syn(1000), synack(1020)], 1020, 20, None, sg.F_AMBIGUOUS),
        ([syn(0, tsval=1), syn(1000, tsval=2), synack(1020, tsval=9, tsecr=2)], 1020, 20, 20, sg.F_RTT_EXACT),
        ([syn(0, tsval=1), syn(1000, tsval=2), synack(1020, tsval=9, tsecr=1)], 1020, 20, 1020, sg.F_RTT_EXACT),
        ([syn(0, tsval=1), syn(1000, tsval=1), synack(1020, tsval=9, tsecr=1)], 1020, 20, None, sg.F_AMBIGUOUS),
        ([syn(0, tsval=1), syn(1000, tsval=2), synack(1020, tsval=9, tsecr=3)], 1020, 20, None, sg.F_AMBIGUOUS),
        ([syn(0, tsval=1), syn(1000, tsval=2), synack(1020)], 1020, 20, None, sg.F_AMBIGUOUS),
        ([syn(0), synack(20), syn(1000), synack(1020)], 20, 20, None, sg.F_AMBIGUOUS),
        ([syn(0, tsval=1), synack(20, tsval=9, tsecr=1), syn(1000, tsval=2)], 20, 20, 20, sg.F_RTT_EXACT),
        ([syn(0, tsval=1), synack(20, tsval=9, tsecr=1), syn(1000, tsval=1)], 20, 20, None, sg.F_AMBIGUOUS),
        ([syn(0), rst(1), syn(500), synack(520)], 520, 20, None, sg.F_AMBIGUOUS),
        ([syn(0, tsval=3), rst(1), syn(500, tsval=4), synack(520, tsval=9, tsecr=4)], 520, 20, 20, sg.F_RTT_EXACT),
        ([syn(0, tsval=3), rst(1), syn(500, tsval=4), synack(520, tsval=9, tsecr=3)], 520, 20, 520, sg.F_RTT_EXACT),
        ([syn(0, tsval=3), rst(1), syn(500, tsval=3), synack(520, tsval=9, tsecr=3)], 520, 20, None, sg.F_AMBIGUOUS),
    ],
)
def test_d5_round_trips(story, first_ms, last_ms, ts_ms, flag):
    rows = table_of(story)
    assert len(rows) == 1
    row = rows[0]
    assert sg.rtt_first_ns(rows)[0] == first_ms * MS
    assert row["t_synack_ns"] - row["t_syn_before_ns"] == last_ms * MS
    assert row["rtt_ts_ns"] == (NONE if ts_ms is None else ts_ms * MS)
    # The network's round trip only where the echo names the SYN right before A: else A may be the server's repeat.
    assert sg.path_rtt_ns(rows)[0] == (ts_ms * MS if ts_ms == last_ms else NONE)
    assert row["flags"] & (sg.F_RTT_EXACT | sg.F_AMBIGUOUS) == flag


def test_d5_negative_is_a_clock_error_and_stays_known_as_answered():
    rows = table_of([synack(0), syn(0.4)])
    assert states(rows) == ["answered"]
    assert rows["flags"].tolist() == [sg.F_CLOCK_ERROR]
    assert sg.rtt_first_ns(rows).tolist() == sg.path_rtt_ns(rows).tolist() == [NONE]
    assert books_of(rows).clock_error == 1


# ---- D7 ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("story", "state", "ignored", "flag"),
    [
        ([syn(0), rst(3)], "refused", 0, 0),
        ([syn(0), rst(3, seq=5)], "refused", 0, sg.F_RST_SEQ),
        ([syn(0, payload=4), rst(3, X + 4)], "refused", 0, 0),
        ([syn(0), rst(3, X + 1)], "unanswered", 1, 0),
        ([syn(0), rst(3, flags=sg.RST)], "unanswered", 1, 0),
        ([syn(0), rst(2, flags=sg.RST), rst(3)], "refused", 1, 0),
        ([syn(0), rst(2, flags=sg.RST), synack(3)], "answered", 1, sg.F_RTT_EXACT),
        ([syn(0), synack(3), rst(4), rst(5, flags=sg.RST)], "answered", 0, sg.F_RTT_EXACT),
        ([syn(0), rst(3), synack(4)], "answered", 0, sg.F_RTT_EXACT),
        ([syn(0), rst(3), syn(500), rst(503)], "refused", 0, 0),
        ([syn(0), icmp(3, code=13)], "icmp_refused", 0, 0),
        ([syn(0), icmp(3, X + 1)], "unanswered", 0, 0),
        ([syn(0), icmp(3), synack(4)], "answered", 0, sg.F_RTT_EXACT),
        ([syn(0), synack(3), icmp(4)], "answered", 0, sg.F_RTT_EXACT),
    ],
)
def test_d7_refusals(story, state, ignored, flag):
    row = only(story)
    assert (sg.STATE_NAMES[row["state"]], row["rst_ignored"], row["flags"]) == (state, ignored, flag)
    refused = state in ("refused", "icmp_refused")
    assert row["t_refused_ns"] == (T0 + 3 * MS if refused else NONE)
    assert (row["icmp_type"], row["icmp_code"]) == ((3, 13) if state == "icmp_refused" else (0, 0))
    if refused:
        assert sg.rtt_first_ns(np.array([row]))[0] == NONE


# ---- D8, D9, D10 -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("end_ms", "censored"), [(2999, True), (3000, False), (500, True)])
def test_d8_unanswered_and_censored(end_ms, censored):
    row = only([syn(-1000), syn(0)], end_ms=end_ms)
    assert row["state"] == sg.UNANSWERED
    assert bool(row["flags"] & sg.F_CENSORED) == censored
    assert not only([syn(0), synack(1)], end_ms=2)["flags"] & sg.F_CENSORED


def test_d8_synacks_without_a_syn_are_no_attempts():
    rows = table_of([synack(0), synack(1000), synack(3000), synack(9, 55), syn(5000, 99)])
    assert states(rows) == ["synack_only", "synack_only", "unanswered"]
    assert rows["attempt"].tolist() == [0, 0, 1]
    assert rows["synack_n"].tolist() == [3, 1, 0]
    assert rows["synack_retrans"].tolist() == [2, 0, 0]
    assert rows["isn"].tolist() == [X, 55, 99]
    books = books_of(rows)
    assert (books.attempts, books.synack_only) == (1, 2)


def test_d9_syns_both_ways_are_simultaneous():
    rows = table_of(
        [
            syn(0),
            segment(1, "<", "S", Y),
            segment(2, ">", "SA", X, Y + 1),
            synack(2.5),
        ]
    )
    assert states(rows) == ["simultaneous", "simultaneous"]
    assert rows["attempt"].tolist() == [1, 2]
    assert sg.rtt_first_ns(rows).tolist() == sg.path_rtt_ns(rows).tolist() == [NONE, NONE]
    assert books_of(rows).simultaneous == 2


def test_d9_the_tuple_used_the_other_way_later_is_not_simultaneous():
    rows = table_of([syn(0), synack(1), segment(900, "<", "S", Y + 5), segment(901, ">", "SA", 7, Y + 6)])
    assert states(rows) == ["answered", "answered"]
    assert rows["sport"].tolist() == [40000, 80]


def test_d9_a_socket_connected_to_itself():
    ends = ("10.0.0.1", 40000, "10.0.0.1", 40000)
    row = only([syn(0, ends=ends), synack(0.01, server_isn=X, ends=ends)])
    assert row["state"] == sg.SIMULTANEOUS


def test_d10_data_in_the_syn():
    row = only([syn(0, payload=9, bits=sg.BIT_TFO), synack(1, data=9)])
    assert (row["syn_len"], row["flags"]) == (9, sg.F_TFO | sg.F_RTT_EXACT)
    refused = only([syn(0, payload=9), synack(1)])
    assert (refused["state"], sg.rtt_first_ns(np.array([refused]))[0]) == (sg.ANSWERED, MS)


# ---- D13 ---------------------------------------------------------------------------------------------------------


def test_d13_the_order_in_the_file_does_not_matter():
    row = only([synack(1), syn(0)])
    assert (row["t_synack_ns"] - row["t_syn_first_ns"], row["frame"]) == (MS, 2)


@pytest.mark.parametrize(("early_ms", "state"), [(999, ["answered"]), (1001, ["synack_only", "unanswered"])])
def test_d13_a_synack_may_stand_one_second_before_its_syn(early_ms, state):
    assert states(table_of([synack(0), syn(early_ms)])) == state


def test_d13_a_late_syn_finds_its_answer_after_settling():
    """The SYN stands 0.9 s after its answer in the file, though it was sent before."""
    table = HandshakeTable()
    table.add(stack([synack(1), syn(600, 5), syn(900, 6)]))
    parts = [table.settle(T0 + 900 * MS)]
    table.add(stack([syn(0)]))
    parts.append(table.finish(T0 + 10 * SECOND))
    rows = merge_rows(np.concatenate(parts))
    assert states(rows) == ["answered", "unanswered", "unanswered"]
    assert sg.rtt_first_ns(rows)[0] == MS


@pytest.mark.parametrize(
    ("story", "state", "stepped"),
    [
        ([syn(5000), synack(1000)], ["answered"], [True]),
        ([syn(5000), synack(5001), syn(2000, 9), synack(2001, 9)], ["answered", "answered"], [False, False]),
        ([syn(5000), syn(6000), rst(2000)], ["refused"], [True]),
        ([syn(5000), rst(5001), syn(1000), synack(1001)], ["answered"], [True]),
        ([syn(5000), syn(4001), synack(4002)], ["answered"], [False]),
    ],
)
def test_d13_a_step_of_the_clock_takes_the_rtt_of_what_was_open(story, state, stepped):
    rows = table_of(story)
    assert states(rows) == state
    assert [bool(flags & sg.F_CLOCK_STEP) for flags in rows["flags"]] == stepped
    rtt = sg.rtt_first_ns(rows)
    assert [value == NONE for value in rtt] == [flag or s == "refused" for flag, s in zip(stepped, state, strict=True)]
    assert books_of(rows).clock_step == sum(stepped)


def test_d13_an_answer_across_a_step_stays_the_answer_when_a_later_one_arrives_alone():
    story = stack([synack(2_000_000), syn(0), synack(150), syn(300, 9)])
    table = HandshakeTable()
    parts = []
    for batch in (story[:2], story[2:]):
        table.add(batch)
        parts.append(table.settle(T0 + 140 * MS))
    parts.append(table.finish(T0 + 10 * SECOND))
    rows = merge_rows(np.concatenate(parts))
    assert rows.tolist() == table_of(list(story), end_ms=10_000).tolist()
    assert (rows["t_synack_ns"][0], rows["synack_retrans"][0]) == (T0 + 2000 * SECOND, 1)
    assert rows["flags"][0] == sg.F_CLOCK_STEP


def test_d13_another_file_is_no_step():
    rows = table_of([syn(5000), synack(5001), syn(0, 8, source=1), synack(1, 8, source=1)])
    assert rows["flags"].tolist() == [sg.F_RTT_EXACT, sg.F_RTT_EXACT]


# ---- the table while it runs -------------------------------------------------------------------------------------


def test_an_answered_attempt_leaves_when_it_went_quiet():
    table = HandshakeTable()
    table.add(stack([syn(0), synack(1)]))
    assert len(table.settle(T0 + 101 * MS)) == 0
    assert len(table.settle(T0 + 101 * MS + 1)) == 1
    assert (table.open_segments(), len(table.settle(T0 + SECOND)), len(table.finish(T0 + SECOND))) == (0, 0, 0)


def test_what_the_table_forgets_and_what_it_keeps():
    table = HandshakeTable()
    ends = [("10.0.0.1", port, "10.0.0.2", 80) for port in range(4)]
    table.add(stack([syn(0, ends=ends[0]), rst(0, ends=ends[1]), synack(0, ends=ends[2]), segment(0, ">", "A", 1)]))
    assert len(table.settle(T0 + 500 * MS)) == 0
    assert table.open_segments() == 2
    assert states(table.settle(T0 + 1101 * MS)) == ["synack_only"]
    assert len(table.settle(T0 + 143 * SECOND)) == 0
    assert states(table.settle(T0 + 144 * SECOND)) == ["unanswered"]
    assert table.open_segments() == 0


def test_late_segments_find_their_attempt_when_merged():
    table = HandshakeTable()
    parts = []
    for at, one in ((0, syn(0)), (1, synack(1)), (1000, synack(1000)), (1010, syn(1010)), (1011, synack(1011))):
        table.add(stack([one]))
        parts.append(table.settle(T0 + at * MS + 500 * MS))
    parts.append(table.finish(T0 + 10 * SECOND))
    assert len(np.concatenate(parts)) > 2
    (row,) = merge_rows(np.concatenate(parts))
    assert (row["state"], row["syn_n"], causes(row)) == (sg.ANSWERED, 2, (0, 1, 0, 0))
    assert (row["synack_n"], row["synack_retrans"], row["t_synack_ns"]) == (3, 2, T0 + MS)


def test_live_counts_what_is_open():
    table = HandshakeTable()
    ends = [("10.0.0.1", port, "10.0.0.2", 80) for port in range(4)]
    assert table.live() == dict.fromkeys(LIVE_FIELDS, 0)
    table.add(stack([syn(0), synack(2), syn(0, ends=ends[1]), syn(0, ends=ends[2]), rst(1, ends=ends[2])]))
    assert table.live() == {
        "repeats": 0,
        "answered_clean": 1,
        "answered_clean_rtt_ns": 2 * MS,
        "answered_repeated": 0,
        "answered_repeated_rtt_ns": 0,
        "refused": 1,
    }
    table.settle(T0 + SECOND)
    table.add(stack([syn(1000, ends=ends[1]), synack(1001, ends=ends[1])]))
    wanted = {
        "repeats": 1,
        "answered_clean": 1,
        "answered_clean_rtt_ns": 2 * MS,
        "answered_repeated": 1,
        "answered_repeated_rtt_ns": 1001 * MS,
        "refused": 1,
    }
    assert table.live() == wanted
    table.settle(T0 + 2 * SECOND)
    assert table.live() == wanted
    table.finish(T0 + 3 * SECOND)
    assert table.live() == wanted
    assert set(LIVE_FIELDS) <= set(sg.WIRE_FIELDS)


def test_many_that_wait_are_set_aside_and_come_back():
    """Thousands of SYNs without an answer: some are answered late, some repeated, the rest expire."""
    table, whole = HandshakeTable(), HandshakeTable()
    count = 5000
    syns = np.repeat(stack([syn(0)]), count)
    syns["sport"] = np.arange(count)
    late = np.repeat(stack([synack(5000)]), 300)
    late["dport"] = np.arange(300) * 7
    again = np.repeat(stack([syn(6000)]), 200)
    again["sport"] = np.arange(200) * 7 + 1
    parts = []
    for batch, now_s in ((syns, 0.1), (late[:0], 2), (late, 5.01), (again, 6.01), (late[:0], 9), (late[:0], 200)):
        for number in (table, whole):
            number.add(batch)
        parts.append(table.settle(T0 + round(now_s * SECOND)))
        if now_s == 2:
            assert len(table._waiting) == count
        if now_s == 6.01:
            assert table.live()["answered_clean"] == 300
            assert table.live()["repeats"] == 200
    assert table.open_segments() == 0
    parts.append(table.finish(T0 + 300 * SECOND))
    one = merge_rows(np.concatenate(parts))
    assert np.array_equal(one, merge_rows(whole.finish(T0 + 300 * SECOND)))
    assert (one["state"] == sg.ANSWERED).sum() == 300
    assert one["syn_n"].sum() == count + 200


def test_nothing_at_all():
    table = HandshakeTable()
    table.add(stack([]))
    assert len(table.settle(T0)) == 0
    rows = table.finish(T0)
    assert (len(rows), rows.dtype) == (0, sg.HANDSHAKE)
    assert len(merge_rows(rows)) == 0
    assert books_of(rows) == sg.Books()


def test_a_crowd_that_waits_leaves_early_and_is_counted_all_the_same() -> None:
    """A black hole: 12,000 SYNs in four seconds, of which every 100th is answered long after it had to leave."""
    segments = np.zeros(12_120, sg.SEGMENT)
    n = 12_000
    segments["t_ns"][:n] = np.arange(n) * 333_333 + 10**18
    segments["src_lo"] = 0xFFFF_0A00_0001
    segments["dst_lo"] = 0xFFFF_0A00_0002
    segments["src_hi"][:n] = np.arange(n)
    segments["sport"], segments["dport"], segments["flags"] = 1000, 80, 2
    segments["seq"][:n] = np.arange(n)
    segments["frame"] = np.arange(len(segments)) + 1
    late = segments[n:]
    late["t_ns"] = 10**18 + 5 * 10**9 + np.arange(120) * 1000
    late["src_hi"], late["dst_hi"] = 0, np.arange(0, n, 100)
    late["src_lo"], late["dst_lo"] = 0xFFFF_0A00_0002, 0xFFFF_0A00_0001
    late["sport"], late["dport"], late["flags"] = 80, 1000, 18
    late["ack"] = np.arange(0, n, 100) + 1
    table = HandshakeTable(most_waiting=3_000)
    rows, most = [], 0
    for part in np.array_split(segments, 40):
        table.add(part)
        rows.append(table.settle(int(part["t_ns"][-1])))
        most = max(most, table.open_segments())
    live = table.live()
    rows += table.finish_in_parts(int(segments["t_ns"][-1]))
    reference = HandshakeTable()
    reference.add(segments)
    found = merge_rows(np.concatenate(rows))
    wanted = merge_rows(reference.finish(int(segments["t_ns"][-1])))
    assert int((wanted["state"] == sg.ANSWERED).sum()) == 120
    for each in (found, wanted):  # who left before the end was known cannot say how soon it came
        each["flags"] &= ~np.uint16(sg.F_CENSORED)
    assert np.array_equal(found, wanted)
    assert most < 9_000
    assert live["answered_clean"] <= 120
    assert table.open_segments() == 0
