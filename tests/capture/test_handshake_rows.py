"""How rows begin, field by field against the segments they are made of, and what is known of a round trip."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ncps_capture import segments as sg
from ncps_capture.handshake_rows import judge, put_last_syns, rows_of_synacks, rows_of_syns, stamps
from segment_maker import MS, T0, X, Y, stack, syn, synack
from segment_stories import unhurried

NONE = sg.UNKNOWN
SAME = ("tunnel", "frame", "mss", "vlan", "source", "ip_version", "wscale", "ttl")
TIMES = [name for name in sg.HANDSHAKE.names if name.startswith("t_") or name == "rtt_ts_ns"]


# ---- how a row begins --------------------------------------------------------------------------------------------


def test_a_row_of_a_syn_knows_its_syn_and_nothing_else():
    first, order = stack([syn(0), syn(7)]), np.array([T0 - 3, T0 + 5], np.int64)
    rows = rows_of_syns(first, order)
    for end, other in (("client", "src"), ("server", "dst")):
        for half in ("hi", "lo"):
            assert rows[f"{end}_{half}"].tolist() == first[f"{other}_{half}"].tolist()
    for name in (*SAME, "sport", "dport"):
        assert rows[name].tolist() == first[name].tolist(), name
    assert rows["isn"].tolist() == [X, X]
    assert rows["t_order_ns"].tolist() == order.tolist()
    assert rows["t_syn_first_ns"].tolist() == [T0, T0 + 7 * MS]
    assert all((rows[name] == NONE).all() for name in TIMES if name not in ("t_order_ns", "t_syn_first_ns"))
    assert rows["syn_n"].tolist() == rows["synack_n"].tolist() == [0, 0]


def test_a_row_of_a_synack_turns_its_ends_round_and_names_the_isn_it_would_answer():
    first = stack([synack(3)])
    first["ack"] = 0  # the ISN before it wraps
    (row,) = rows_of_synacks(first, first["t_ns"])
    assert (row["client_lo"], row["server_lo"]) == (first["dst_lo"][0], first["src_lo"][0])
    assert (row["sport"], row["dport"]) == (first["dport"][0], first["sport"][0])
    assert (row["isn"], row["server_isn"]) == (0xFFFFFFFF, Y)
    assert (row["state"], row["syn_n"], row["synack_n"]) == (sg.SYNACK_ONLY, 0, 1)
    assert row["t_synack_ns"] == T0 + 3 * MS
    assert all(row[name] == NONE for name in TIMES if name not in ("t_order_ns", "t_synack_ns"))


def test_timestamps_are_marked_where_there_are_any():
    segments = stack([syn(0), syn(1)])
    segments["bits"], segments["tsval"] = [0, sg.BIT_TIMESTAMP], [0, 77]
    assert stamps(segments, sg.STAMP_ANSWER).tolist() == [0, sg.STAMP_ANSWER]
    rows = rows_of_syns(segments, segments["t_ns"])
    assert (rows["stamps"].tolist(), rows["tsval_first"].tolist()) == ([0, sg.STAMP_FIRST], [0, 77])
    put_last_syns(rows, segments[::-1])
    assert rows["stamps"].tolist() == [sg.STAMP_LAST, sg.STAMP_FIRST]
    assert rows["tsval_last"].tolist() == [77, 0]
    assert rows["t_syn_last_ns"].tolist() == [T0 + MS, T0]


# ---- what is known of a round trip ----------------------------------------------------------------------


def naive_judge(state, syn_n, flags, first, answer, rtt_ts) -> tuple[int, int]:
    """D5 for one row: (rtt_ts, flags)."""
    kept = flags & ~(sg.F_RTT_EXACT | sg.F_AMBIGUOUS | sg.F_CLOCK_ERROR)
    if state != sg.ANSWERED or flags & sg.F_CLOCK_STEP:
        return NONE, kept & ~sg.F_TS_ECHO
    if answer < first:
        return NONE, kept & ~sg.F_TS_ECHO | sg.F_CLOCK_ERROR
    if syn_n == 1:
        return answer - first, kept | sg.F_RTT_EXACT
    if flags & sg.F_TS_ECHO and rtt_ts != NONE:
        return rtt_ts, kept | sg.F_RTT_EXACT
    return NONE, kept | sg.F_AMBIGUOUS


judged = st.tuples(
    st.sampled_from([sg.ANSWERED, sg.ANSWERED, sg.ANSWERED, sg.REFUSED, sg.SIMULTANEOUS, sg.SYNACK_ONLY]),
    st.integers(1, 3),
    st.sets(st.sampled_from([sg.F_CLOCK_STEP, sg.F_CLOCK_ERROR, sg.F_TS_ECHO, sg.F_TFO, sg.F_AMBIGUOUS])).map(sum),
    st.integers(0, 5),
    st.integers(0, 9),
    st.one_of(st.just(NONE), st.integers(0, 5)),
)


@unhurried
@given(st.lists(judged, max_size=6))
def test_d5_judged_row_by_row(told):
    rows = np.zeros(len(told), sg.HANDSHAKE)
    for i, values in enumerate(told):
        for name, value in zip(
            ("state", "syn_n", "flags", "t_syn_first_ns", "t_synack_ns", "rtt_ts_ns"), values, strict=True
        ):
            rows[name][i] = value
    judge(rows)
    wanted = [naive_judge(*values) for values in told]
    assert list(zip(rows["rtt_ts_ns"].tolist(), rows["flags"].tolist(), strict=True)) == wanted
    again = rows.copy()
    judge(again)
    assert again.tolist() == rows.tolist()


@pytest.mark.parametrize(
    ("state", "flags", "kept"),
    [
        (sg.ANSWERED, 0, True),
        (sg.SYNACK_ONLY, 0, True),
        (sg.ANSWERED, sg.F_CLOCK_STEP, False),
        (sg.SYNACK_ONLY, sg.F_CLOCK_STEP, False),
        (sg.SIMULTANEOUS, 0, False),
        (sg.REFUSED, 0, False),
        (sg.UNANSWERED, 0, False),
    ],
)
def test_d12_is_kept_where_there_is_a_synack_on_the_same_clock(state, flags, kept):
    rows = np.zeros(1, sg.HANDSHAKE)
    rows["state"], rows["flags"], rows["t_ack_ns"] = state, flags, 9
    judge(rows)
    assert rows["t_ack_ns"].tolist() == [9 if kept else NONE]
