"""The walk itself: ends, bounds, numbers. What each header says is tested with its step."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ncps_capture import segments as sg
from ncps_capture import stack
from ncps_capture.link import LINK_STEPS
from ncps_capture.stack import CUT, ETHERNET, IPV4, LAYERS_MAX, LLC, NOWHERE, OF_ETHERTYPE, VLAN, Walk, run
from ncps_capture.tunnels import STEPS


def walk_of(kinds: list[int], sizes: list[int]) -> Walk:
    end = np.cumsum(np.array(sizes, np.int64))
    rows = len(sizes)
    return Walk(
        np.zeros(int(end[-1]), np.uint8),
        np.array(kinds, np.uint8),
        end - sizes,
        end,
        np.full(rows, sg.NO_VLAN, np.uint16),
        np.zeros(rows, np.uint32),
    )


def one_byte(walk: Walk, rows: np.ndarray) -> None:
    rows = walk.reach(rows, 1)
    walk.step(rows, VLAN, 1)


def test_frames_take_their_steps_together_and_end_for_themselves():
    calls = []

    def to_ip(walk, rows):
        calls.append(rows.tolist())
        rows = walk.reach(rows, 4)
        walk.step(rows, IPV4, 4)

    def to_vlan(walk, rows):
        calls.append(rows.tolist())
        walk.step(rows, VLAN, 2)

    walk = walk_of([ETHERNET, VLAN, NOWHERE, ETHERNET], [6, 4, 9, 5])
    run(walk, {ETHERNET: to_vlan, VLAN: to_ip})
    assert calls == [[0, 3], [1], [0, 3]]
    assert walk.kind.tolist() == [IPV4, IPV4, NOWHERE, CUT]
    assert (walk.at - np.array([0, 6, 10, 19])).tolist() == [6, 4, 0, 2]


def test_a_walk_without_end_is_given_up():
    walk = walk_of([VLAN, VLAN], [LAYERS_MAX + 9, LAYERS_MAX - 1])
    run(walk, {VLAN: one_byte})
    assert walk.kind.tolist() == [NOWHERE, CUT]
    assert walk.at[0] == LAYERS_MAX


@pytest.mark.parametrize("size", [2, np.array([2, 2, 2])])
def test_reach_leaves_out_what_is_cut(size):
    walk = walk_of([VLAN] * 3, [2, 1, 3])
    assert walk.reach(np.arange(3), size).tolist() == [0, 2]
    assert walk.kind.tolist() == [VLAN, CUT, VLAN]


def test_each_header_has_one_step():
    assert sorted(STEPS) == list(range(8, 8 + len(STEPS)))
    assert set(LINK_STEPS) < set(STEPS)
    assert {NOWHERE, CUT, IPV4, stack.IPV6}.isdisjoint(STEPS)
    announced = set(np.unique(OF_ETHERTYPE).tolist()) - {NOWHERE, IPV4, stack.IPV6}
    assert announced <= set(LINK_STEPS)


@pytest.mark.parametrize(
    ("ethertype", "kind"),
    [(0, LLC), (0x5FF, LLC), (0x600, NOWHERE), (0x800, IPV4), (0x806, NOWHERE), (0x8100, VLAN), (0xFFFF, NOWHERE)],
)
def test_what_an_ethertype_announces(ethertype, kind):
    assert OF_ETHERTYPE[ethertype] == kind


@given(st.binary(min_size=4, max_size=4))
def test_numbers_are_read_whole_and_unsigned(text):
    data, at = np.frombuffer(text, np.uint8), np.array([0])
    assert stack.be16(data, at).tolist() == [int.from_bytes(text[:2], "big")]
    assert stack.be24(data, at).tolist() == [int.from_bytes(text[:3], "big")]
    assert stack.le16(data, at).tolist() == [int.from_bytes(text[:2], "little")]
    assert stack.le32(data, at).tolist() == [int.from_bytes(text, "little")]
