"""Of all ACKs only those that matter pass, and the table makes the same of them as of all."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ncps_capture import segments as sg
from ncps_capture.acks import AckWatch
from ncps_capture.handshake import HandshakeTable, merge_rows
from ncps_capture.tuples import tuples_of_segments
from segment_maker import SECOND, T0, X, Y, segment, stack, syn, synack
from segment_stories import stories, unhurried

SPECIAL = sg.SYN | sg.RST


def watched(batches: list[sg.Segments], watch: AckWatch | None = None) -> list[sg.Segments]:
    """Each batch without the ACKs that do not matter."""
    watch = watch or AckWatch()
    out = []
    for batch in batches:
        bare = (batch["flags"] & SPECIAL == 0) & (batch["kind"] == sg.KIND_TCP)
        watch.expect(batch[~bare])
        seen = batch[bare]
        may = watch.may_matter(seen["ack"].byteswap(), port_words(seen), np.arange(len(seen)))
        kept = seen[may][watch.choose(seen[may], int(batch["t_ns"][-1]) if len(batch) else T0)]
        part = np.concatenate((batch[~bare], kept))
        out.append(part[np.argsort(part["frame"], kind="stable")])
    return out


def port_words(rows: sg.Segments) -> np.ndarray:
    return (rows["sport"].astype(np.uint32) << np.uint32(16) | rows["dport"]).byteswap()


def frames(parts: list[sg.Segments]) -> list[int]:
    return [int(frame) for part in parts for frame in part["frame"]]


def ack(t_ms: float, number: int = Y + 1, way: str = ">", **fields) -> np.void:
    return segment(t_ms, way, "A", X + 1, number, **fields)


def test_the_first_ack_of_a_handshake_passes_and_no_other():
    rows = stack([syn(0), synack(10), ack(20), ack(21), ack(22, Y + 2), ack(23, Y + 1, way="<")])
    assert frames(watched([rows])) == [1, 2, 3]


def test_it_may_come_in_a_later_batch_and_is_then_forgotten():
    rows = stack([syn(0), synack(10), ack(20), ack(30), synack(40), ack(50)])
    assert frames(watched(np.split(rows, [2, 3, 4]))) == [1, 2, 3, 5, 6]


@pytest.mark.parametrize("cut", range(1, 6))
def test_a_challenge_passes_wherever_a_batch_ends(cut):
    """What the server says to a SYN that it will not answer yet; the RST to it may be in a later batch."""
    rows = stack(
        [
            syn(0),
            ack(10, 77, way="<"),
            segment(20, ">", "R", 77, 0),
            syn(1000),
            synack(1010),
            ack(1020, X + 50, way="<"),  # data: it goes back to a SYN that was answered
        ]
    )
    batches = [part for part in np.split(rows, [cut]) if len(part)]
    assert frames(watched(batches)) == [1, 2, 3, 4, 5]
    merged = outcome(watched(batches))
    assert merged["retrans_after_challenge"].tolist() == [1]
    assert merged["retrans_timeout"].tolist() == [0]


def test_a_syn_that_is_answered_in_a_later_batch_is_open_no_more():
    rows = stack([syn(0), synack(10), ack(20, X + 1, way="<"), ack(30, X + 9, way="<")])
    assert frames(watched(np.split(rows, [1, 2, 3]))) == [1, 2]


def test_a_new_syn_on_a_tuple_is_open_whatever_was_answered_before():
    rows = stack([syn(0), synack(10), ack(20), syn(500, isn=X + 1000), ack(510, 5, way="<")])
    assert frames(watched(np.split(rows, [4]))) == [1, 2, 3, 4, 5]


def test_a_syn_stays_open_for_four_seconds():
    for late_ms, passes in ((4000, True), (4001, False)):
        rows = stack([syn(0), segment(late_ms, ">", "A", 1, 1, sport=5), ack(late_ms, 77, way="<")])
        assert (3 in frames(watched(np.split(rows, [1, 2])))) is passes


@pytest.mark.parametrize(("late_ms", "passes"), [(0, True), (4000, True), (4001, False)])
def test_it_is_awaited_for_four_seconds(late_ms, passes):
    rows = stack([syn(0), synack(10), ack(10 + late_ms)])
    for batches in ([rows], np.split(rows, [2])):
        assert (frames(watched(batches)) == [1, 2, 3]) is passes


def test_what_was_not_acknowledged_does_not_stay():
    watch = AckWatch()
    flood = [synack(i / 1000, server_isn=Y + i) for i in range(500)]
    watched([stack(flood)], watch)
    assert len(watch.may_matter(np.array([Y + 9], np.uint32).byteswap(), np.zeros(1, np.uint32), np.arange(1))) == 1
    watched([stack([ack(5000, 3)])], watch)
    watched([stack([syn(5001)])], watch)
    others = np.array([Y + i for i in range(500)], np.uint32).byteswap()
    assert len(watch.may_matter(others, others * 0, np.arange(500))) == 0


def test_an_ack_of_another_tunnel_or_tuple_is_another():
    other = ("10.0.0.1", 40001, "10.0.0.2", 80)
    rows = stack([syn(0), synack(10), ack(20, tunnel=5), ack(21, ends=other), ack(22)])
    assert frames(watched([rows])) == [1, 2, 5]


def test_a_challenge_passes_and_the_repeat_has_its_cause():
    """The server acknowledges an old connection; the client resets that one with the number it was told."""
    rows = stack([syn(0), ack(9, 554, "<"), ack(10, 555, "<"), segment(11, ">", "R", 555), syn(1000), synack(1010)])
    (kept,) = watched([rows])
    assert kept["frame"].tolist() == [1, 3, 4, 5, 6]
    table = HandshakeTable(third_ack=True)
    table.add(kept)
    (row,) = merge_rows(table.finish(T0 + SECOND * 10))
    assert row["retrans_after_challenge"] == 1


def test_an_upload_costs_one_row():
    rows = stack([syn(0), synack(10), *(ack(20 + i / 100, payload=1000) for i in range(1000))])
    assert frames(watched([rows])) == [1, 2, 3]


def outcome(parts: list[sg.Segments]) -> sg.Handshakes:
    table = HandshakeTable(third_ack=True)
    for part in parts:
        table.add(part)
    rows = merge_rows(table.finish(T0 + 10**6 * SECOND))
    return rows[np.lexsort((rows["frame"], rows["t_order_ns"]))]


@unhurried
@given(stories(steps=False), st.lists(st.integers(0, 14), max_size=3))
def test_the_table_makes_the_same_of_what_passes(segments, cuts):
    """In time order, and with at most one client asking at a time where a server challenges."""
    segments = segments[np.argsort(segments["t_ns"], kind="stable")]
    tuples = tuples_of_segments(segments)
    objecting = segments["flags"] == sg.RST
    for one in np.unique(tuples.ids[objecting]):
        segments = segments[(tuples.ids != one) | (segments["flags"] & sg.SYN == 0) | (segments["seq"] == 1000)]
        tuples = tuples_of_segments(segments)
    segments["frame"] = np.arange(1, len(segments) + 1)
    passed = watched([segments])
    everything = outcome([segments])
    assert np.array_equal(outcome(passed), everything)
    assert np.array_equal(outcome(watched(np.split(segments, sorted(cuts)))), everything)


def test_a_round_trip_of_nothing_is_one():
    rows = stack([syn(0), synack(0), ack(0)])
    assert frames(watched([rows])) == [1, 2, 3]
