"""SYNs alone on their tuple have the rows the definitions give them; what has company, or is none, is left alone."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ncps_capture import segments as sg
from ncps_capture.attempts import settle_tuple
from ncps_capture.lone import settle_lone
from segment_maker import MS, X, copy, rst, segment, stack, syn, synack
from segment_stories import WINDOW_NS, stories, unhurried

THERE = ("10.0.0.7", 5, "10.0.0.2", 80)
BACK = (*THERE[2:], *THERE[:2])
SIX = ("2001:db8::1", 5, "2001:db8::2", 80)


def order_of(segments: sg.Segments) -> np.ndarray:
    return segments["t_ns"].astype(np.int64) + 7 * MS


@pytest.mark.parametrize("third_ack", [False, True])
@pytest.mark.parametrize(
    "one",
    [
        pytest.param(syn(3), id="plain"),
        pytest.param(segment(3, ">", "S", 2**32 - 1, 0, SIX, ip_version=6), id="IPv6 and the last number"),
        pytest.param(syn(3, tsval=9, mss=1460, wscale=7, ttl=63, vlan=5, frame=8, source=2), id="all that is kept"),
        pytest.param(syn(3, tunnel=77), id="in a tunnel"),
        pytest.param(copy(syn(3), 0, bits=sg.BIT_TFO), id="a request for fast open"),
        pytest.param(segment(3, "<", "S", X), id="from the larger endpoint"),
    ],
)
def test_the_row_is_that_of_the_definitions(one: np.void, third_ack: bool) -> None:
    segments = stack([one])
    found = settle_lone(segments, order_of(segments))
    for reverse in (False, True):
        told = settle_tuple(segments, order_of(segments), np.array([reverse]), False, WINDOW_NS, third_ack)
        assert found.rows.tolist() == told.rows.tolist()
        assert found.ready_ns.tolist() == told.ready_ns.tolist()
    assert found.rows["state"].tolist() == [sg.UNANSWERED]
    assert found.syn.tolist() == [0]


@pytest.mark.parametrize(
    "story",
    [
        pytest.param([], id="nothing"),
        pytest.param([syn(0), synack(1)], id="answered"),
        pytest.param([syn(0), rst(1)], id="refused"),
        pytest.param([syn(0), syn(1000)], id="repeated"),
        pytest.param([syn(0), copy(syn(0), 1)], id="copied"),
        pytest.param([syn(0), syn(1, X + 9)], id="two attempts"),
        pytest.param([syn(0), segment(1, "<", "A", 5, 6)], id="challenged"),
        pytest.param([syn(0), segment(1, "<", "S", 5)], id="crossed"),
        pytest.param([syn(0, payload=1)], id="data"),
        pytest.param([synack(0)], id="an answer"),
        pytest.param([rst(0)], id="an RST"),
        pytest.param([segment(0, ">", "A", 5, 6)], id="an ACK"),
        pytest.param([syn(0, kind=sg.KIND_ICMP)], id="quoted"),
        pytest.param([segment(0, ">", "S", X, 0, ("10.0.0.1", 5, "10.0.0.1", 5))], id="to itself"),
    ],
)
def test_what_is_not_alone(story: list[np.void]) -> None:
    alone, crowd = stack(story), stack([*story, segment(2, ">", "S", X, 0, THERE)])
    assert not len(settle_lone(alone, order_of(alone)).rows)
    assert settle_lone(crowd, order_of(crowd)).syn.tolist() == [len(story)]


def test_either_way_is_one_tuple() -> None:
    segments = stack(
        [segment(0, ">", "S", X, 0, THERE), segment(1, ">", "S", X, 0, BACK), segment(2, ">", "S", X, 0, SIX)]
    )
    assert settle_lone(segments, order_of(segments)).syn.tolist() == [2]


@unhurried
@given(stories(), st.integers(0, 40))
def test_those_found_are_alone_and_in_order(story: list[np.void], others: int) -> None:
    segments = stack(
        [*story, *(segment(i, ">", "S", X, 0, ("10.9.0.1", 1000 + i, "10.9.0.2", 80)) for i in range(others))]
    )
    found = settle_lone(segments, order_of(segments)).syn
    ends = [
        frozenset([(row["src_hi"], row["src_lo"], row["sport"]), (row["dst_hi"], row["dst_lo"], row["dport"])])
        for row in segments
    ]
    assert all(ends.count(ends[i]) == 1 for i in found.tolist())
    assert found.tolist() == sorted(found.tolist())
    assert len(found) >= others
