"""Rows of parts to attempts: what may be brought together, what may not, and the books of it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ncps_capture import merge
from ncps_capture import segments as sg
from ncps_capture.handshake import HandshakeTable
from ncps_capture.merge import books_of, merge_rows
from segment_maker import MS, SECOND, T0, X, Y, copy, icmp, rst, segment, stack, syn, synack, table_of
from segment_stories import cut_up, stories, unhurried

NONE = sg.UNKNOWN


def parts_of(*batches: list[np.void]) -> sg.Handshakes:
    """Unmerged rows of batches, each settled long before the next: every round and lone SYN-ACK a row of its own."""
    parts = []
    for batch in batches:
        table = HandshakeTable()
        table.add(stack(batch))
        parts.append(table.finish(T0 + 10**6 * SECOND))
    return np.concatenate(parts)


# ---- late answers ------------------------------------------------------------------------------------------------


@settings(unhurried, max_examples=40)
@given(stories())
def test_late_answers_in_columns_are_those_of_the_slow_way(segments):
    rows = np.concatenate(cut_up(segments, list(range(len(segments)))))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(merge, "_with_late_answers", lambda *columns: columns)
        slow = merge_rows(rows)
    assert merge_rows(rows).tolist() == slow.tolist()


def test_late_answers_take_the_fast_way(monkeypatch):
    early = [segment(0, ">", "S", 7), segment(1, "<", "SA", 5, 8), segment(500, ">", "A", 8, 6)]
    rows = np.concatenate(cut_up(stack([*early, segment(1000, "<", "SA", 5, 8)]), [3]))
    assert rows["state"].tolist() == [sg.ANSWERED, sg.SYNACK_ONLY]
    monkeypatch.setattr(merge, "_Merge", None)
    assert merge_rows(rows)["synack_retrans"].tolist() == [1]


@pytest.mark.parametrize(
    ("parts", "synacks"),
    [
        pytest.param(([syn(0), synack(1)], [synack(9, server_isn=Y + 1)]), [2], id="another server ISN"),
        pytest.param(([syn(0, payload=3), synack(1)], [synack(9, data=3)]), [2], id="data in the SYN"),
        pytest.param(
            ([syn(0), synack(1)], [syn(100, X - 3, payload=5)], [synack(200)]), [1, 1], id="data in a later SYN"
        ),
        pytest.param(([syn(0)], [synack(9)]), [1], id="no answer yet"),
        pytest.param(([syn(5), synack(6)], [synack(0)]), [2], id="earlier than the round"),
        pytest.param(([syn(0), rst(1)], [syn(500), synack(501)], [synack(900)]), [2], id="two rounds"),
    ],
)
def test_late_answers_that_must_go_the_slow_way(parts, synacks, monkeypatch):
    rows = parts_of(*parts)
    assert merge_rows(rows)["synack_n"].tolist() == synacks
    monkeypatch.setattr(merge, "_Merge", None)
    with pytest.raises(TypeError):
        merge_rows(rows)


# ---- what belongs together -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("gap_s", "attempts"), [(1, [(1, 2, False)]), (140, [(1, 2, False)]), (140.001, [(1, 1, False), (2, 1, True)])]
)
def test_d1_rounds_of_one_isn_are_one_attempt_for_140_s(gap_s, attempts):
    later = gap_s * 1000
    rows = merge_rows(parts_of([syn(0), rst(1)], [syn(later), synack(later + 1)]))
    assert [(r["attempt"], r["syn_n"], bool(r["flags"] & sg.F_ISN_REUSED)) for r in rows] == attempts


def test_d1_attempts_are_numbered_by_time_on_each_tuple_alone():
    other = ("10.0.0.1", 40001, "10.0.0.2", 80)
    rows = merge_rows(
        parts_of([syn(30, 3)], [syn(10, 1), synack(11, 1)], [syn(20, 9, ends=other)], [synack(25, 77)], [syn(40, 4)])
    )
    assert rows["t_order_ns"].tolist() == sorted(rows["t_order_ns"])
    told = rows[rows["sport"] == 40000][["isn", "attempt", "state"]].tolist()
    # The SYN-ACK nobody asked for is a stray of the attempt that was running, not an attempt.
    assert told == [(1, 1, sg.ANSWERED), (3, 2, sg.UNANSWERED), (4, 3, sg.UNANSWERED)]
    assert rows[rows["sport"] == 40001]["attempt"].tolist() == [1]
    assert rows["synack_bad_ack"].tolist() == [1, 0, 0, 0]


@pytest.mark.parametrize(
    ("parts", "state", "t_refused", "syns"),
    [
        (([syn(0), rst(1)], [syn(500), icmp(501)]), sg.REFUSED, 1, 2),
        (([syn(0), icmp(1)], [syn(500), rst(501)]), sg.ICMP_REFUSED, 1, 2),
        (([syn(0), rst(1)], [syn(500)]), sg.REFUSED, 1, 2),
        (([syn(0), rst(1)], [syn(500), synack(501)]), sg.ANSWERED, None, 2),
        (([syn(0), icmp(1)], [synack(2)]), sg.ANSWERED, None, 1),
        (([syn(0), rst(1)], [syn(500), segment(501, "<", "S", Y)]), sg.SIMULTANEOUS, None, 3),
    ],
)
def test_d7_what_came_first_names_the_refusal_and_an_answer_outdoes_it(parts, state, t_refused, syns):
    rows = merge_rows(parts_of(*parts))
    assert (rows["state"][0], rows["syn_n"].sum()) == (state, syns)
    assert rows["t_refused_ns"][0] == (NONE if t_refused is None else T0 + t_refused * MS)
    assert rows["icmp_type"][0] == (3 if state == sg.ICMP_REFUSED else 0)


@pytest.mark.parametrize(
    ("at_ms", "states"), [(-1000, [sg.ANSWERED]), (-1001, [sg.SYNACK_ONLY, sg.UNANSWERED]), (140_000, [sg.ANSWERED])]
)
def test_d13_how_far_an_answer_may_stand_from_its_syn(at_ms, states):
    rows = merge_rows(parts_of([synack(at_ms)], [syn(0)]))
    assert rows["state"].tolist() == states
    assert bool(rows["flags"][-1] & sg.F_CLOCK_ERROR) == (at_ms == -1000)


def test_counts_end_at_their_column_and_do_not_wrap():
    rows = parts_of([syn(0), rst(1)], [syn(500), synack(501)], [synack(900)])
    for name in ("syn_n", "retrans_timeout", "dup_syn", "rst_ignored", "synack_n", "dup_synack"):
        rows[name][rows[name] > 0] = 65000
        rows[name] = np.maximum(rows[name], 1000)
    (row,) = merge_rows(rows)
    wanted = {"syn_n": 130_000, "synack_n": 130_000, "retrans_timeout": 2000, "dup_syn": 3000, "rst_ignored": 3000}
    assert {name: row[name] for name in wanted} == {
        name: min(count, np.iinfo(sg.HANDSHAKE[name]).max) for name, count in wanted.items()
    }


def test_the_input_is_left_as_it_was():
    rows = parts_of([syn(0), rst(1)], [syn(500), synack(501)], [synack(900)])
    before = rows.copy()
    merge_rows(rows)
    assert rows.tolist() == before.tolist()


# ---- D5 across rounds ----------------------------------------------------------------------------------------------


@st.composite
def echoes(draw):
    """SYNs of one attempt with rising TSvals and RSTs between, one SYN-ACK somewhere; and in which batch each is."""
    story, batches, stamp = [], [], 10
    kinds = [*draw(st.lists(st.sampled_from(["syn", "syn", "rst"]), max_size=5)), "synack"]
    kinds = ["syn", *kinds, *draw(st.lists(st.just("syn"), max_size=2))]
    for i, kind in enumerate(kinds):
        stamp += draw(st.integers(0, 1))
        stamped = draw(st.sampled_from([True, True, True, False]))
        if kind == "syn":
            story.append(syn(i * 200, **({"tsval": stamp} if stamped else {})))
        elif kind == "rst":
            story.append(rst(i * 200))
        else:
            echo = {"tsval": 1, "tsecr": draw(st.integers(9, stamp + 1))}
            story.append(synack(i * 200, **(echo if stamped else {})))
        batches.append(draw(st.booleans()))
    return story, [i for i, cut in enumerate(batches) if cut]


def naive_rtt_ts(story: list[np.void]) -> int:
    """Definition D5 read aloud, with all packets at hand."""
    syns = [one for one in story if one["flags"] == sg.SYN]
    (answer,) = (one for one in story if one["flags"] == sg.SYN | sg.ACK)
    if len(syns) == 1:
        return int(answer["t_ns"] - syns[0]["t_ns"])
    if not answer["bits"]:
        return NONE
    told = [one for one in syns if one["bits"] and one["tsval"] == answer["tsecr"]]
    return int(answer["t_ns"] - told[0]["t_ns"]) if len(told) == 1 and told[0]["t_ns"] < answer["t_ns"] else NONE


@settings(unhurried, max_examples=40)
@given(echoes())
def test_d5_all_syns_of_the_attempt_are_asked(told):
    story, cuts = told
    rows = merge_rows(np.concatenate(cut_up(stack(story), cuts)))
    wanted = naive_rtt_ts(story)
    (found,) = rows["rtt_ts_ns"].tolist()
    rounds = parts_of(story)
    rounds = rounds[(rounds["state"] != sg.SYNACK_ONLY) & (rounds["t_synack_ns"] == NONE)]
    if (rounds["syn_n"] > 2).any():
        assert found in (wanted, NONE)  # of such a round not all TSvals are kept
    else:
        assert found == wanted
    assert bool(rows["flags"][0] & sg.F_RTT_EXACT) == (found != NONE)
    assert merge_rows(rows).tolist() == rows.tolist()


@pytest.mark.parametrize(
    ("stamps", "echo", "exact"),
    [((1, 5, 9), 20, True), ((1, 5, 9), 5, False), ((1, 5, 9), 1, False), ((20, 20, 20), 20, False)],
)
def test_d5_a_refused_round_of_many_syns_claims_what_it_cannot_tell(stamps, echo, exact):
    refused = [*(syn(i * 1000, tsval=stamp) for i, stamp in enumerate(stamps)), rst(2001)]
    rows = merge_rows(parts_of(refused, [syn(2500, tsval=20), synack(2520, tsval=1, tsecr=echo)]))
    assert rows["rtt_ts_ns"].tolist() == [20 * MS if exact else NONE]


# ---- books -----------------------------------------------------------------------------------------------------------


def test_d14_the_books():
    one = syn(0)
    ends = [("10.0.0.1", port, "10.0.0.2", 80) for port in range(6)]
    rows = table_of(
        [
            copy(one, 0),
            copy(one, 1),
            syn(1000),
            synack(1001),
            syn(0, ends=ends[1]),
            rst(1, ends=ends[1]),
            syn(0, ends=ends[2]),
            icmp(1, ends=ends[2]),
            syn(0, ends=ends[3]),
            synack(0, ends=ends[4]),
        ]
    )
    books = books_of(rows)
    books.syn = 6
    assert books.problems() == []
    assert (books.syn_counted, books.syn_duplicate, books.attempts) == (5, 1, 4)
    assert (books.answered, books.refused, books.icmp_refused, books.unanswered) == (1, 1, 1, 1)
    assert books.synack_only == 1
    books.syn = 7
    assert books.problems() == ["SYNs captured 7 != accounted for 6"]


@unhurried
@given(stories())
def test_books_are_what_a_person_would_count(segments):
    rows = merge_rows(np.concatenate(cut_up(segments, [])))
    books = books_of(rows)
    for name in sg.STATE_NAMES[1:]:
        assert getattr(books, name) == sum(sg.STATE_NAMES[row["state"]] == name for row in rows)
    assert books.attempts == sum(int(row["attempt"]) > 0 for row in rows)
    columns = {
        "syn_counted": "syn_n",
        "syn_duplicate": "dup_syn",
        "synack_duplicate": "dup_synack",
        "synack_bad_ack": "synack_bad_ack",
        "rst_ignored": "rst_ignored",
    }
    for counter, column in columns.items():
        assert getattr(books, counter) == sum(int(row[column]) for row in rows)
    for counter, flag in (("clock_error", sg.F_CLOCK_ERROR), ("clock_step", sg.F_CLOCK_STEP)):
        assert getattr(books, counter) == sum(bool(row["flags"] & flag) for row in rows)


def test_nothing_merges_to_nothing():
    none = np.zeros(0, sg.HANDSHAKE)
    assert (len(merge_rows(none)), merge_rows(none).dtype, books_of(none)) == (0, sg.HANDSHAKE, sg.Books())


def test_rows_of_one_time_and_frame_come_in_one_order_whatever_the_input():
    table = HandshakeTable()
    asked = np.repeat(stack([syn(0)]), 50)
    asked["sport"], asked["frame"] = np.arange(50), 0
    table.add(asked)
    rows = table.finish(T0)
    backwards = merge_rows(rows[::-1].copy())
    assert np.array_equal(merge_rows(rows), backwards)
    assert np.array_equal(merge_rows(backwards), backwards)
    assert len(backwards) == 50
