"""The fast way does what the definitions say, takes itself what it can and hands over what it cannot settle surely."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from ncps_capture import columns
from ncps_capture import segments as sg
from ncps_capture.attempts import NOBODY, settle_tuple
from ncps_capture.columns import settle_segments
from segment_maker import MS, X, Y, copy, icmp, rst, segment, stack, syn, synack
from segment_stories import WINDOW_NS, likely, stories, unhurried


def order_of(segments: sg.Segments) -> np.ndarray:
    return segments["t_ns"].astype(np.int64)


def compare(segments: sg.Segments) -> None:
    order_ns = order_of(segments)
    fast = settle_segments(segments, order_ns, WINDOW_NS)
    slow = settle_segments(segments, order_ns, WINDOW_NS, by_tuple=True)
    key = lambda found: sorted(zip(found.rows.tolist(), found.ready_ns.tolist(), strict=True))  # noqa: E731
    assert key(fast) == key(slow)

    def owners(found):
        return [None if i == NOBODY else (found.rows[i].tolist(), found.ready_ns[i]) for i in found.owner.tolist()]

    assert owners(fast) == owners(slow)


@settings(unhurried, max_examples=60)
@given(stories(steps=False))
def test_the_columns_do_what_the_definitions_say(segments):
    compare(segments)


@settings(unhurried, max_examples=30)
@given(stories(kinds=likely, steps=False))
def test_the_columns_on_clean_traffic(segments):
    compare(segments)


def test_clean_traffic_takes_the_fast_way(monkeypatch):
    """Or the comparison above would compare the slow way with itself."""
    rows = []
    for port, ends in enumerate([(f"10.0.0.{i}", 40000 + i, "10.0.0.99", 80) for i in range(1, 40)]):
        rows.append(segment(port, ">", "S", 7, 0, ends, tsval=port))
        if port % 4 == 1:
            rows += [segment(port + 1, "<", "SA", 5, 8, ends), segment(port + 1.5, ">", "A", 8, 6, ends)]
        elif port % 4 == 2:
            rows += [segment(port + 1, "<", "RA", 0, 8, ends)]
        elif port % 4 == 3:
            rows += [segment(port + 50, ">", "S", 7, 0, ends, tsval=99), copy(rows[-1], 1)]
            rows += [segment(port + 60, "<", "SA", 5, 8, ends, tsval=1, tsecr=99), copy(rows[-1], 1)]
            rows += [segment(port + 1000, "<", "SA", 5, 8, ends)]
    segments = stack(rows)
    expected = settle_segments(segments, order_of(segments), WINDOW_NS, by_tuple=True)
    monkeypatch.setattr(columns, "settle_tuple", None)
    fast = settle_segments(segments, order_of(segments), WINDOW_NS)
    assert sorted(fast.rows.tolist()) == sorted(expected.rows.tolist())
    assert np.bincount(fast.rows["state"]).tolist() == [0, 19, 10, 0, 10]
    assert (fast.rows["rtt_ts_ns"] == 10 * MS).sum() == 9


ELSEWHERE = ("10.0.0.7", 5, "10.0.0.2", 80)


@pytest.fixture
def handed(monkeypatch) -> list[int]:
    """Ports of the clients whose tuples were handed over."""
    out: list[int] = []

    def told(segments, *rest):
        out.append(int(min(segments["sport"].min(), segments["dport"].min())))
        return settle_tuple(segments, *rest)

    monkeypatch.setattr(columns, "settle_tuple", told)
    return out


TWINS = [syn(0), syn(1), syn(2)]


@pytest.mark.parametrize(
    "story",
    [
        pytest.param([syn(0, payload=4), synack(1)], id="data in the SYN"),
        pytest.param([syn(0), synack(1), synack(2, server_isn=Y + 1)], id="another server ISN"),
        pytest.param([syn(0), synack(1), syn(1000)], id="a SYN after the answer"),
        pytest.param([syn(0), rst(1), syn(500)], id="a SYN after a refusal"),
        pytest.param([syn(0), rst(1), synack(2)], id="an answer after a refusal"),
        pytest.param([syn(0), segment(1, "<", "S", Y)], id="SYNs both ways"),
        pytest.param([syn(0), rst(1, X + 7)], id="an RST that is nobody's"),
        pytest.param([syn(0), segment(1, "<", "R", 9)], id="an RST without ACK"),
        pytest.param([syn(0), segment(1, "<", "A", 5, 99)], id="a challenge"),
        pytest.param([syn(0), synack(141_000)], id="an answer too late"),
        pytest.param([syn(0), syn(1), copy(TWINS[1], 2), syn(2)], id="close SYNs, some of them copies"),
        pytest.param(
            [syn(0, ends=("10.0.0.2", 80, "10.0.0.2", 80)), synack(1, ends=("10.0.0.2", 80, "10.0.0.2", 80))],
            id="a socket connected to itself",
        ),
    ],
)
def test_what_one_key_does_not_settle_is_handed_over(handed, story):
    """And nothing else is: a stranger's handshake beside it goes the fast way."""
    segments = stack([*story, syn(0, ends=ELSEWHERE), synack(1, ends=ELSEWHERE)])
    found = settle_segments(segments, order_of(segments), WINDOW_NS)
    assert handed == [80]
    assert (found.rows["sport"] == 5).sum() == 1


@pytest.mark.parametrize(
    "story",
    [
        pytest.param([syn(0), synack(1), segment(2, ">", "A", X + 1, Y + 1)], id="a handshake"),
        pytest.param([syn(0), syn(1000), syn(3000), synack(3001), synack(4001)], id="repeats of both"),
        pytest.param([syn(0), rst(1)], id="refused"),
        pytest.param([syn(0), icmp(1)], id="refused by ICMP"),
        pytest.param([syn(0), synack(1), rst(2), segment(3, ">", "R", X + 1)], id="an RST after the answer"),
        pytest.param([syn(0), synack(1), syn(9, X + 99), synack(10, X + 99)], id="the tuple used again"),
        pytest.param([TWINS[0], copy(TWINS[0], 1), synack(2)], id="a copy"),
        pytest.param([synack(0), synack(1000)], id="answers alone"),
        pytest.param([rst(0), segment(1, ">", "A", 1)], id="nothing of a handshake"),
    ],
)
def test_what_one_key_settles_is_not_handed_over(handed, story):
    segments = stack(story)
    compare(segments)
    handed.clear()
    settle_segments(segments, order_of(segments), WINDOW_NS)
    assert handed == []


def test_a_step_of_the_clock_is_handed_over(handed):
    segments = stack([syn(0), synack(-5000)])
    order_ns = order_of(segments) + np.array([0, 5001 * MS])
    found = settle_segments(segments, order_ns, WINDOW_NS)
    assert (handed, found.rows["flags"].tolist()) == ([80], [sg.F_CLOCK_STEP])


def test_nothing_settles_to_nothing():
    found = settle_segments(stack([]), np.zeros(0, np.int64), WINDOW_NS)
    assert (len(found.rows), found.rows.dtype, len(found.ready_ns), len(found.owner)) == (0, sg.HANDSHAKE, 0, 0)


def test_many_tuples_keep_their_own_rows_whatever_the_order():
    """Rows are found by tuple: shuffled segments give the same rows, each owned by the segments of its tuple."""
    ends = [("10.0.0.1", port, "10.0.0.2", 80) for port in range(1000, 1200)]
    rows = [syn(0, X + port, ends=end) for port, end in enumerate(ends)]
    rows += [synack(1 + port / 1000, X + port, ends=end) for port, end in enumerate(ends[:150])]
    straight = stack(rows)
    shuffled = straight[np.random.default_rng(3).permutation(len(straight))]
    one, other = (settle_segments(s, order_of(s), WINDOW_NS) for s in (straight, shuffled))
    assert sorted(one.rows.tolist()) == sorted(other.rows.tolist())
    client_port = np.where(shuffled["dport"] == 80, shuffled["sport"], shuffled["dport"])
    assert other.rows["sport"][other.owner].tolist() == client_port.tolist()
