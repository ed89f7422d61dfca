"""One tuple read segment by segment: who owns what, and when a row is ready.

The definitions themselves are tested from end to end in ``test_handshake.py``.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ncps_capture import segments as sg
from ncps_capture.attempts import EARLY_NS, NOBODY, PATIENCE_NS, Settled, settle_tuple
from ncps_capture.tuples import tuples_of_segments
from segment_maker import MS, SECOND, T0, X, Y, copy, icmp, rst, segment, stack, syn, synack
from segment_stories import TUPLES, WINDOW_NS, stories, unhurried

NONE = sg.UNKNOWN


def settled(rows: list[np.void]) -> tuple[sg.Segments, Settled]:
    segments = stack(rows)
    tuples = tuples_of_segments(segments)
    assert len(set(tuples.ids.tolist())) == 1
    order_ns = segments["t_ns"].astype(np.int64)
    return segments, settle_tuple(segments, order_ns, tuples.reverse, bool(tuples.alone[0]), WINDOW_NS)


def states(found: Settled) -> list[str]:
    return [sg.STATE_NAMES[state] for state in found.rows["state"]]


# ---- rounds ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("story", "rounds", "owners"),
    [
        ([syn(0), syn(1000), synack(1001), synack(2000)], ["answered"], [0, 0, 0, 0]),
        ([syn(0), synack(1), syn(1000), synack(1001)], ["answered", "answered"], [0, 0, 1, 1]),
        ([syn(0), rst(1), syn(500), rst(501)], ["refused", "refused"], [0, 0, 1, 1]),
        ([syn(0), rst(1), rst(2)], ["refused"], [0, 0, NOBODY]),
        ([syn(0), icmp(1), icmp(2)], ["icmp_refused"], [0, 0, NOBODY]),
        ([syn(0), segment(1, "<", "R"), segment(2, "<", "A", 5, 99)], ["unanswered"], [0, 0, 0]),
        ([syn(0), segment(1, "<", "A", 5, X + 1)], ["unanswered"], [0, NOBODY]),
        ([syn(0), segment(1, ">", "R", 99)], ["unanswered"], [0, 0]),
        ([synack(0), synack(500)], ["synack_only", "synack_only"], [0, 1]),
        ([synack(0), syn(500)], ["unanswered", "synack_only"], [1, 0]),
        ([rst(0), icmp(1), segment(2, ">", "A", 1)], [], [NOBODY] * 3),
        ([syn(0, 1), syn(1, 2), rst(2, 1), synack(3, 2)], ["refused", "answered"], [0, 1, 0, 1]),
    ],
)
def test_rounds_and_who_is_part_of_them(story, rounds, owners):
    _, found = settled(story)
    assert states(found) == rounds
    assert found.owner.tolist() == owners


def test_a_copy_is_owned_by_what_it_copies():
    one, answer = syn(0), synack(1)
    _, found = settled([one, copy(one, 2), answer, copy(answer, 1), copy(answer, 3)])
    assert found.owner.tolist() == [0] * 5
    assert (found.rows["dup_syn"][0], found.rows["dup_synack"][0]) == (1, 2)


def test_at_one_instant_a_syn_comes_before_its_answer_and_that_before_a_refusal():
    for story in ([syn(0), synack(0), rst(0)], [rst(0), synack(0), syn(0)]):
        _, found = settled(story)
        assert (states(found), found.rows["rst_ignored"][0]) == (["answered"], 0)


@settings(unhurried, max_examples=30)
@given(stories(steps=False))
def test_rows_say_what_their_segments_are(segments):
    """Every SYN and SYN-ACK is part of exactly one row; a row's counts and times are those of its segments."""
    ids = tuples_of_segments(segments).ids
    for one in np.unique(ids):
        mine = segments[ids == one]
        mine, found = settled(list(mine))
        tcp = mine["kind"] == sg.KIND_TCP
        syn_like = tcp & (mine["flags"] & sg.SYN != 0)
        answer = syn_like & (mine["flags"] & sg.ACK != 0)
        assert (found.owner[syn_like] != NOBODY).all()
        for i, row in enumerate(found.rows):
            owned = found.owner == i
            assert row["syn_n"] + row["dup_syn"] == (owned & syn_like & ~answer).sum()
            assert row["synack_n"] + row["dup_synack"] == (owned & answer).sum()
            assert row["t_order_ns"] == mine["t_ns"][owned & syn_like].min()
            assert found.ready_ns[i] >= mine["t_ns"][owned & syn_like].max() or row["state"] == sg.UNANSWERED
            refused = row["t_refused_ns"] != NONE
            others = int((owned & ~syn_like & (~tcp | (mine["flags"] & sg.RST != 0))).sum())
            assert others >= refused + row["rst_ignored"]


@settings(unhurried, max_examples=30)
@given(stories(steps=False), st.randoms(use_true_random=False))
def test_the_order_in_memory_does_not_matter(segments, random):
    tuples = tuples_of_segments(segments)
    mine = np.flatnonzero(tuples.ids == tuples.ids[0]).tolist() if len(segments) else []
    mixed = random.sample(mine, len(mine))

    def read(which: list[int]) -> list[tuple]:
        part = segments[which]
        alone = bool(tuples.alone[mine[0]])
        found = settle_tuple(part, part["t_ns"].astype(np.int64), tuples.reverse[which], alone, WINDOW_NS)
        return sorted(zip(found.rows.tolist(), found.ready_ns.tolist(), strict=True))

    if mine:
        assert read(mixed) == read(mine)


# ---- when a row is ready --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("story", "ready_ms"),
    [
        ([syn(0), synack(5)], [5]),
        ([syn(0), synack(5), synack(900)], [900]),
        ([syn(0), rst(7)], [7]),
        ([syn(0), icmp(7)], [7]),
        ([syn(3)], [3 + PATIENCE_NS // MS]),
        ([syn(3), syn(5000)], [3 + PATIENCE_NS // MS]),
        ([synack(2)], [2 + EARLY_NS // MS]),
        ([syn(0, 1), syn(1, 2), synack(2, 2)], [PATIENCE_NS // MS, 2]),
    ],
)
def test_a_row_is_ready_when_nothing_can_change_it(story, ready_ms):
    _, found = settled(story)
    assert ((found.ready_ns - T0) // MS).tolist() == ready_ms


def test_crossed_syns_are_ready_together():
    _, found = settled([syn(0), segment(1, "<", "S", Y), synack(2), segment(50, ">", "SA", 4, Y + 1), syn(60, 5)])
    assert states(found) == ["simultaneous", "simultaneous", "unanswered"]
    assert found.ready_ns.tolist() == [T0 + 50 * MS, T0 + 50 * MS, T0 + 60 * MS + PATIENCE_NS]


def test_a_step_of_the_clock_is_seen_by_the_order_times_alone():
    segments = stack([syn(0), synack(-5000)])
    order_ns = np.array([T0, T0 + 3 * MS])
    found = settle_tuple(segments, order_ns, tuples_of_segments(segments).reverse, False, WINDOW_NS)
    assert (found.rows["flags"].tolist(), found.rows["t_synack_ns"].tolist()) == (
        [sg.F_CLOCK_STEP],
        [T0 - 5 * SECOND],
    )
    assert found.ready_ns.tolist() == [T0 + 3 * MS]


def test_a_socket_connected_to_itself_is_simultaneous():
    (alone,) = [ends for ends in TUPLES if ends[:2] == ends[2:]]
    _, found = settled([syn(0, ends=alone), synack(1, ends=alone)])
    assert states(found) == ["simultaneous"]
