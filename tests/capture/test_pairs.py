"""Pairs have the rows the definitions give them, and what is not surely a pair is left alone, with its whole tuple."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ncps_capture import segments as sg
from ncps_capture.attempts import NOBODY
from ncps_capture.columns import settle_segments
from ncps_capture.pairs import settle_pairs
from segment_maker import MS, X, Y, copy, icmp, rst, segment, stack, syn, synack
from segment_stories import WINDOW_NS, anything, likely, stories, unhurried

PLAIN = [syn(0, tsval=5), synack(1, tsval=9, tsecr=5)]
LATER = X + 5000


ACKED = ["acked"] * 3 + ["acked again"] * 2 + ["acked twice", "acked late", "acked otherwise"]
STORIES = ["pair"] * 3 + ["reused"] * 2 + ["thrice", "copied", "syn", "answer", "refused", "tfo"] + ACKED


def order_of(segments: sg.Segments) -> np.ndarray:
    return segments["t_ns"].astype(np.int64)


def rows_and_owners(found):
    rows = found.rows.tolist()
    known = [None if i == NOBODY else (rows[i], found.ready_ns[i]) for i in found.owner.tolist()]
    return sorted(zip(rows, found.ready_ns.tolist(), strict=True)), known


@st.composite
def crowds(draw):
    """Stories among the handshakes of many other tuples: clean, reused, copied, without answer, refused."""
    rows = list(draw(stories(kinds=draw(st.sampled_from([anything, likely])), steps=False)))
    for i in range(draw(st.integers(0, 12))):
        six = draw(st.booleans())
        ends = (f"2001:db8::{i + 1:x}", 50000, "2001:db8::99", 443) if six else ("10.1.0.1", 50000 + i, "10.1.0.2", 443)
        at, isn = draw(st.sampled_from([0, 0.5, 20, 400])), draw(st.sampled_from([7, X, 2**32 - 1]))
        stamps = {"tsval": draw(st.integers(1, 2)), "ip_version": 6 if six else 4, "mss": 1460, "wscale": 7}
        answer = draw(st.sampled_from([0, 0.001, 1, 1, 1, 30, 141_000]))
        pair = [syn(at, isn, ends=ends, **stamps), synack(at + answer, isn, i, ends=ends, tsval=8, tsecr=1)]
        again = isn + draw(st.sampled_from([0, 1, 9000]))
        gap = at + answer + draw(st.sampled_from([0, 0.001, 50]))
        story = draw(st.sampled_from(STORIES))
        done = segment(gap, ">", "A", isn + 1, i + 1, ends)
        anew = [syn(gap + 1, again, ends=ends), synack(gap + 2, again, draw(st.sampled_from([i, 77])), ends=ends)]
        last = segment(gap + 3, ">", "A", again + 1, draw(st.sampled_from([i, 77])) + 1, ends)
        more = {
            "reused": [syn(gap, again, ends=ends), synack(gap + 1, again, 77, ends=ends)],
            "thrice": [syn(gap + k, again + k, ends=ends) for k in range(2)],
            "copied": [copy(draw(st.sampled_from(pair)), draw(st.sampled_from([0, 1, 4.9, 9])))],
            "refused": [rst(gap, isn, ends=ends)],
            "acked": [done],
            "acked again": [done, *anew, last],
            "acked twice": [done, copy(done, draw(st.sampled_from([0, 1, 9])))],
            "acked late": [copy(done, draw(st.sampled_from([3999, 4000, 4001])))],
            "acked otherwise": [segment(gap, draw(st.sampled_from("<>")), "A", isn + 1, i + draw(st.booleans()), ends)],
        }
        if story == "tfo":
            pair[0]["bits"] |= sg.BIT_TFO
        rows += pair[:1] if story == "syn" else pair[1:] if story == "answer" else pair
        rows += more.get(story, [])
    rows = draw(st.permutations(rows)) if draw(st.booleans()) else sorted(rows, key=lambda row: int(row["t_ns"]))
    return stack(rows)


@unhurried
@given(crowds(), st.booleans())
def test_pairs_among_anything_else_are_what_the_definitions_say(segments, third_ack):
    ways = [
        settle_segments(segments, order_of(segments), WINDOW_NS, third_ack, by_tuple=by_tuple)
        for by_tuple in (False, True)
    ]
    assert rows_and_owners(ways[0]) == rows_and_owners(ways[1])


@unhurried
@given(crowds(), st.booleans())
def test_a_tuple_is_in_pairs_with_all_its_segments_or_with_none(segments, third_ack):
    pairs = settle_pairs(segments, order_of(segments), third_ack)
    third = pairs.third[pairs.third != NOBODY]
    assert third_ack or not len(third)
    inside = np.zeros(len(segments), np.int64)
    np.add.at(inside, np.concatenate((pairs.syn, pairs.answer, third)), 1)
    seen: dict[object, set[int]] = {}
    for row, times in zip(segments.tolist(), inside.tolist(), strict=True):
        row = dict(zip(segments.dtype.names, row, strict=True))
        ends = [tuple(row[f"{end}{part}"] for part in ("_hi", "_lo")) for end in ("src", "dst")]
        seen.setdefault(frozenset(zip(ends, (row["sport"], row["dport"]), strict=True)), set()).add(times)
    assert all(len(times) == 1 for times in seen.values())
    assert inside.max(initial=0) <= 1


REUSED = [*PLAIN, syn(2, LATER), synack(3, LATER)]


@pytest.mark.parametrize(
    ("story", "pairs"),
    [
        pytest.param([], 0, id="nothing"),
        pytest.param(PLAIN, 1, id="a pair"),
        pytest.param(PLAIN[::-1], 1, id="a pair that the capture turned round"),
        pytest.param([syn(0, 2**32 - 1), synack(1, 2**32 - 1)], 1, id="an ISN at the end of its numbers"),
        pytest.param(REUSED, 2, id="the tuple used again"),
        pytest.param([PLAIN[0]], 0, id="a SYN alone"),
        pytest.param([PLAIN[1]], 0, id="an answer alone"),
        pytest.param([PLAIN[0], copy(PLAIN[0], 1)], 0, id="two SYNs"),
        pytest.param([PLAIN[1], copy(PLAIN[1], 1)], 0, id="two answers"),
        pytest.param([*PLAIN, copy(PLAIN[1], 1)], 0, id="three segments"),
        pytest.param([*REUSED, segment(4, ">", "R", 7)], 0, id="five segments"),
        pytest.param([syn(0), rst(1)], 0, id="refused"),
        pytest.param([syn(0), icmp(1)], 0, id="refused by ICMP"),
        pytest.param([copy(PLAIN[0], 0, kind=sg.KIND_ICMP), PLAIN[1]], 0, id="a quoted SYN"),
        pytest.param([syn(0), synack(1, X + 1)], 0, id="an answer to something else"),
        pytest.param([syn(0, payload=1), synack(1)], 0, id="data in the SYN"),
        pytest.param([syn(1), synack(0)], 0, id="an answer before its question"),
        pytest.param([syn(0), synack(141_000)], 0, id="an answer too late"),
        pytest.param([syn(0), segment(1, ">", "SA", Y, X + 1)], 0, id="an answer by the client itself"),
        pytest.param([syn(0, tunnel=4), synack(1, tunnel=5)], 0, id="an answer in another tunnel"),
        pytest.param([*PLAIN, syn(2), synack(3)], 0, id="the tuple used again with its ISN"),
        pytest.param([*PLAIN, syn(1, LATER), synack(3, LATER)], 0, id="a SYN at the moment of a decision"),
        pytest.param([*PLAIN, syn(2, LATER), synack(3, LATER + 1)], 0, id="the second pair is none"),
        pytest.param([syn(0), synack(1, X + 1), syn(2, LATER), synack(3, LATER)], 0, id="the first pair is none"),
    ],
)
def test_what_is_a_pair(story, pairs):
    beside = [syn(0, ends=("10.0.0.7", 5, "10.0.0.2", 80)), synack(1, ends=("10.0.0.7", 5, "10.0.0.2", 80))]
    alone, crowd = stack(story), stack([*story, *beside])
    assert len(settle_pairs(alone, order_of(alone)).rows) == pairs
    assert len(settle_pairs(crowd, order_of(crowd)).rows) == pairs + 1


DONE = segment(2, ">", "A", X + 1, Y + 1)
ANEW = [syn(3, LATER), synack(4, LATER)]


@pytest.mark.parametrize(
    ("story", "pairs"),
    [
        pytest.param([*PLAIN, DONE], 1, id="a pair and its ACK"),
        pytest.param(PLAIN, 1, id="no ACK yet"),
        pytest.param([*PLAIN, DONE, *ANEW, copy(DONE, 3)], 2, id="the tuple used again, with the same server ISN"),
        pytest.param([*PLAIN, DONE, *ANEW], 0, id="the tuple used again, not acknowledged yet"),
        pytest.param([*PLAIN, DONE, copy(DONE, 1)], 0, id="two ACKs"),
        pytest.param([*PLAIN, segment(2, ">", "RA", X + 1, Y + 1)], 0, id="an RST"),
        pytest.param([*PLAIN, segment(2, ">", "A", X + 1, Y + 2)], 0, id="another number"),
        pytest.param([*PLAIN, segment(2, "<", "A", X + 1, Y + 1)], 0, id="an ACK of the server"),
        pytest.param([*PLAIN, copy(DONE, 0, tunnel=3)], 0, id="an ACK in a tunnel"),
        pytest.param([*PLAIN, copy(DONE, -1.5)], 0, id="an ACK before the answer"),
        pytest.param([*PLAIN, copy(DONE, 3999)], 1, id="four seconds later"),
        pytest.param([*PLAIN, copy(DONE, 3999.1)], 0, id="later still"),
        pytest.param([*PLAIN, copy(DONE, 1), syn(3, LATER), synack(4, LATER), copy(DONE, 3)], 0, id="no order"),
    ],
)
def test_what_is_a_pair_that_was_acknowledged(story, pairs):
    segments = stack(story)
    found = settle_pairs(segments, order_of(segments), third_ack=True)
    assert len(found.rows) == pairs
    assert [row["t_ack_ns"] for row in found.rows] == [
        sg.UNKNOWN if i == NOBODY else segments["t_ns"][i] for i in found.third.tolist()
    ]


@pytest.mark.parametrize("ends", [("10.0.0.2", 80, "10.0.0.2", 80), ("10.0.0.2", 81, "10.0.0.2", 80)])
def test_a_socket_connected_to_itself_is_no_pair(ends):
    segments = stack([syn(0, ends=ends), synack(1, ends=ends)])
    assert len(settle_pairs(segments, order_of(segments)).rows) == (ends[1] != ends[3])


def test_a_step_of_the_clock_makes_no_pair():
    segments = stack([syn(0), synack(-5000)])
    assert not len(settle_pairs(segments, order_of(segments) + np.array([0, 5001 * MS])).rows)


def test_many_tuples_of_one_machine_are_told_apart():
    """Were their numbers to collide, each would be taken the slower way."""
    ends = [("127.0.0.1", 32768 + client, "127.0.0.1", 8000 + server) for client in range(60) for server in range(60)]
    asked, told = stack([PLAIN[0]] * len(ends)), stack([PLAIN[1]] * len(ends))
    for rows, here, there in ((asked, "sport", "dport"), (told, "dport", "sport")):
        rows[here], rows[there] = [end[1] for end in ends], [end[3] for end in ends]
    segments = np.concatenate((asked, told))
    assert len(settle_pairs(segments, order_of(segments)).rows) == len(ends)
