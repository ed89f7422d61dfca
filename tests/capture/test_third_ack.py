"""D12: a client's first acknowledgement of the SYN-ACK: in both ways to the rows, across cuts, in bounded memory."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ncps_capture import columns
from ncps_capture import segments as sg
from ncps_capture.attempts import ACK_NS, NOBODY
from ncps_capture.columns import settle_segments
from ncps_capture.handshake import HandshakeTable, merge_rows
from segment_maker import MS, SECOND, T0, X, Y, only, segment, stack, syn, synack, table_of
from segment_stories import DISORDER_MS, TUPLES, WINDOW_NS, anything, stories, unhurried

END = T0 + 10**6 * SECOND


def ack(t_ms: float, server_isn: int = Y, isn: int = X, letters: str = "A", **fields: int) -> np.void:
    return segment(t_ms, ">", letters, isn + 1, server_isn + 1, **fields)


def halves(rows: list[np.void]) -> list[int]:
    return [t if t == sg.UNKNOWN else t // MS for t in sg.synack_to_ack_ns(table_of(rows, third_ack=True)).tolist()]


@pytest.mark.parametrize(
    ("name", "rows", "expected"),
    [
        ("the usual", [syn(0), synack(10), ack(30)], 20),
        ("at the same instant", [syn(0), synack(10), ack(10)], 0),
        ("before it in the file", [ack(30), syn(0), synack(10)], 20),
        ("the first of several", [syn(0), synack(10), ack(30), ack(31), ack(12)], 2),
        ("with data", [syn(0), synack(10), ack(30, letters="PA", payload=100)], 20),
        ("with FIN", [syn(0), synack(10), ack(30, letters="FA")], 20),
        ("none", [syn(0), synack(10)], sg.UNKNOWN),
        ("an RST is no acknowledgement", [syn(0), synack(10), ack(30, letters="RA")], sg.UNKNOWN),
        ("of something else", [syn(0), synack(10), ack(30, server_isn=Y + 500)], sg.UNKNOWN),
        ("the other way", [syn(0), synack(10), segment(30, "<", "A", Y + 1, Y + 1)], sg.UNKNOWN),
        ("stamped before the SYN-ACK", [syn(0), synack(10), ack(9)], sg.UNKNOWN),
        ("after a repeat", [syn(0), synack(10), synack(1010), ack(1030)], 1020),
        ("after a SYN repeat", [syn(0), synack(10), syn(1000), synack(1010), ack(1020)], 1010),
        ("in time", [syn(0), synack(10), ack(4010)], 4000),
        ("too late", [syn(0), synack(10), ack(4011)], sg.UNKNOWN),
        ("too late, and a repeat would do", [syn(0), synack(10), synack(3010), ack(5000)], sg.UNKNOWN),
        ("of another answer", [syn(0), synack(10), synack(20, server_isn=9), ack(30, server_isn=9)], sg.UNKNOWN),
        ("beside another answer", [syn(0), synack(10), synack(20, server_isn=9), ack(30)], 20),
    ],
)
def test_d12(name, rows, expected):
    assert halves(rows) == [expected]


def test_d12_is_not_looked_for_unless_asked():
    row = only([syn(0), synack(10), ack(30)])
    assert row["t_ack_ns"] == sg.UNKNOWN


def test_d12_leaves_syn_rtt_alone():
    row = only([syn(0), synack(10), ack(30)], third_ack=True)
    bare = only([syn(0), synack(10)])
    assert (row["t_synack_ns"], row["rtt_ts_ns"]) == (bare["t_synack_ns"], bare["rtt_ts_ns"])


def test_d12_of_each_attempt_on_one_tuple():
    rows = [syn(0), synack(10), ack(13), syn(500, X + 9), synack(510, X + 9, 99), ack(515, 99, X + 9)]
    assert halves(rows) == [3, 5]


def test_no_d12_across_a_step_of_the_clock():
    rows = [syn(5000), synack(5010), ack(20)]
    assert halves(rows) == [sg.UNKNOWN]


def test_no_d12_where_there_is_no_syn_rtt_by_definition():
    ends = ("10.0.0.1", 40000, "10.0.0.2", 80)
    crossed = [syn(0), segment(1, "<", "S", 8, 0, ends), segment(2, "<", "SA", 8, X + 1, ends), ack(3, 8)]
    rows = table_of(crossed, third_ack=True)
    assert rows["state"].tolist() == [sg.SIMULTANEOUS] * 2
    assert (rows["t_ack_ns"] == sg.UNKNOWN).all()


# ---- both ways, any cuts -----------------------------------------------------------------------------------------


@st.composite
def acknowledged(draw, steps=True):
    """Stories with several acknowledgements in them."""
    segments = draw(stories(steps=False))
    rows = list(segments)
    last = max(int(row["t_ns"]) for row in rows) if rows else T0
    for _ in range(draw(st.integers(1, 6))):
        near = int(draw(st.sampled_from(rows))["t_ns"]) if rows else last
        after_ms = draw(st.sampled_from([0, 0.001, 2, 30, 99, 900, 3000, 3999, 4000, 4001, 5000]))
        t_ms = (near - T0) / MS + after_ms
        number = draw(st.sampled_from([6, 6, 6, 10, 10**6 + 1001]))
        way = draw(st.sampled_from([">", ">", ">", "<"]))
        letters = draw(st.sampled_from(["A", "A", "PA", "RA"]))
        rows.append(segment(t_ms, way, letters, 1001, number, draw(st.sampled_from(TUPLES[:1] * 4 + TUPLES))))
    rows.sort(key=lambda row: int(row["t_ns"]) + draw(st.integers(0, DISORDER_MS)) * MS)
    if steps and draw(st.booleans()):
        for row in rows[draw(st.integers(0, len(rows))) :]:
            row["t_ns"] -= 2000 * SECOND
    return stack(rows)


def whole(segments: sg.Segments) -> sg.Handshakes:
    table = HandshakeTable(third_ack=True)
    table.add(segments)
    return merge_rows(table.finish(END))


def in_pieces(segments: sg.Segments, cuts: list[int]) -> sg.Handshakes:
    table = HandshakeTable(third_ack=True)
    parts, now = [], None
    for batch in np.split(segments, sorted(cuts)):
        table.add(batch)
        for t in batch["t_ns"].tolist():
            now = t if now is None or t < now - SECOND else max(t, now)
        if now is not None:
            parts.append(table.settle(now))
            table.live()
    return np.concatenate((*parts, table.finish(END)))


@unhurried
@given(acknowledged(), st.lists(st.integers(0, 20), max_size=20), st.randoms(use_true_random=False))
def test_no_cut_and_no_order_of_parts_shows(segments, cuts, random):
    expected = whole(segments).tolist()
    rows = in_pieces(segments, [cut for cut in cuts if cut <= len(segments)])
    mixed = list(range(len(rows)))
    random.shuffle(mixed)
    assert merge_rows(rows[mixed]).tolist() == expected
    assert merge_rows(merge_rows(rows)).tolist() == expected


@unhurried
@given(acknowledged())
def test_every_cut_at_once(segments):
    rows = in_pieces(segments, list(range(len(segments))))
    assert merge_rows(rows).tolist() == whole(segments).tolist()


@unhurried
@given(acknowledged(steps=False))
def test_the_columns_do_what_the_definition_says(segments):
    order_ns = segments["t_ns"].astype(np.int64)
    fast, slow = (
        settle_segments(segments, order_ns, WINDOW_NS, third_ack=True, by_tuple=by_tuple) for by_tuple in (False, True)
    )
    key = lambda found: sorted(zip(found.rows.tolist(), found.ready_ns.tolist(), strict=True))  # noqa: E731
    assert key(fast) == key(slow)

    def owners(found):
        return [None if i == NOBODY else found.rows[i].tolist() for i in found.owner.tolist()]

    assert owners(fast) == owners(slow)


@unhurried
@given(stories(kinds=anything, steps=False))
def test_looking_for_it_changes_nothing_else(segments):
    plain, looked = HandshakeTable(), HandshakeTable(third_ack=True)
    plain.add(segments)
    looked.add(segments)
    without, rows = merge_rows(plain.finish(END)), merge_rows(looked.finish(END))
    names = [name for name in sg.HANDSHAKE.names or () if name not in ("t_ack_ns", "retrans_after_challenge")]
    names.remove("retrans_timeout")  # what acknowledges a SYN-ACK challenges nobody
    assert rows[names].tolist() == without[names].tolist()


def test_clean_traffic_takes_the_fast_way(monkeypatch):
    monkeypatch.setattr(columns, "settle_tuple", None)
    rows = []
    for port in range(50):
        ends = ("10.0.0.1", 40000 + port, "10.0.0.2", 80)
        rows += [
            syn(port, ends=ends),
            segment(port + 1, "<", "SA", Y, X + 1, ends),
            segment(port + 3, ">", "A", X + 1, Y + 1, ends),
            segment(port + 4, ">", "A", X + 1, Y + 300, ends),
            segment(port + 5, "<", "A", Y + 1, X + 20, ends),
        ]
    assert halves(rows) == [2] * 50


# ---- what the table holds ----------------------------------------------------------------------------------------


def test_an_attempt_waits_for_its_acknowledgement():
    table = HandshakeTable(third_ack=True)
    table.add(stack([syn(0), synack(10)]))
    assert len(table.settle(T0 + 3 * SECOND)) == 0
    table.add(stack([ack(3900)]))
    rows = table.settle(T0 + 5 * SECOND)
    assert sg.synack_to_ack_ns(rows).tolist() == [3890 * MS]
    assert table.open_segments() == 0


def test_an_attempt_does_not_wait_for_ever():
    table = HandshakeTable(third_ack=True)
    table.add(stack([syn(0), synack(10)]))
    rows = table.settle(T0 + ACK_NS + SECOND)
    assert rows["t_ack_ns"].tolist() == [sg.UNKNOWN]
    assert table.open_segments() == 0


def test_acknowledgements_of_long_connections_do_not_accumulate():
    table = HandshakeTable(third_ack=True)
    table.add(stack([syn(0), synack(10), ack(20)]))
    rows = [table.settle(T0 + SECOND)]
    held = []
    for second in range(1, 40):
        stream = [ack(second * 1000 + i, server_isn=Y + 1000 * i) for i in range(200)]
        stream += [segment(second * 1000 + i, "<", "A", Y + 1, X + 1 + 7 * i) for i in range(200)]
        table.add(stack(stream))
        rows.append(table.settle(T0 + (second + 1) * SECOND))
        held.append(table.open_segments())
    assert held == [0] * 39
    assert sum(map(len, rows)) == 1
