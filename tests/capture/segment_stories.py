"""Random segments of a few tuples, as hypothesis strategies: what the rooms of the handshake must agree on."""

from __future__ import annotations

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from ncps_capture import segments as sg
from ncps_capture.handshake import HandshakeTable, merge_rows
from segment_maker import MS, SECOND, T0, copy, segment, stack

WINDOW_NS = 5 * MS
DISORDER_MS = 40
"""The table allows its quiet time less the duplicate window, 95 ms by default."""

TUPLES = [
    ("10.0.0.1", 40000, "10.0.0.2", 80),
    ("10.0.0.1", 40001, "10.0.0.2", 80),
    ("2001:db8::2", 40000, "2001:db8::1", 80),
    ("10.0.0.1", 40000, "10.0.0.1", 40000),
]
ISNS = [1000, 2_000_000, 2**32 - 1]
GAPS_MS = [0, 0.001, 0.5, 4.9, 5, 20, 60, 99, 150, 400, 990, 1200, 3000, 30000, 70000, 139000, 141000]

likely = st.sampled_from(["syn"] * 4 + ["synack"] * 4 + ["rst"] * 2)
RARE = (
    "copy,far copy,other isn,bad synack,data synack,bad rst,no ack rst,client rst,ack,good ack,icmp,tfo,back syn,"
    "back synack,third ack"
)
anything = st.one_of(likely, st.sampled_from(RARE.split(",")))
unhurried = settings(deadline=None, max_examples=60)  # a busy machine is no failure


@st.composite
def stories(draw, kinds=anything, steps=True):
    """Segments in file order: out of order by up to DISORDER_MS, and perhaps with a clock that steps back."""
    now = 0.0
    rows: list[np.void] = []
    for _ in range(draw(st.integers(1, 14))):
        now += draw(st.sampled_from(GAPS_MS))
        kind = draw(kinds)
        ends = draw(st.sampled_from(TUPLES[:1] * 4 + TUPLES))
        isn = draw(st.sampled_from(ISNS[:1] * 3 + ISNS))
        stamps = {"tsval": draw(st.integers(1, 3)), "tsecr": draw(st.integers(0, 3))} if draw(st.booleans()) else {}
        server_isn = draw(st.sampled_from([5, 5, 5, 9]))
        if kind in ("copy", "far copy"):
            if rows:
                original = draw(st.sampled_from(rows))
                gap = (T0 + round(now * MS) - int(original["t_ns"])) / MS
                near = draw(st.sampled_from([0.0, 1.0, 4.9]))
                rows.append(
                    copy(original, gap if kind == "far copy" else near, ttl=draw(st.sampled_from([63, 64, 65])))
                )
            continue
        made = {
            "syn": (">", "S", isn, 0, stamps),
            "tfo": (">", "S", isn, 0, {"payload": 6, "bits": sg.BIT_TFO}),
            "synack": ("<", "SA", 5, isn + 1, stamps),
            "other isn": ("<", "SA", server_isn, isn + 1, stamps),
            "bad synack": ("<", "SA", 5, isn + 77, {}),
            "data synack": ("<", "SA", 5, isn + 1 + draw(st.integers(0, 7)), {}),
            "rst": ("<", "RA", draw(st.sampled_from([0, 0, 3])), isn + 1, {}),
            "bad rst": ("<", "RA", 0, isn + 300, {}),
            "no ack rst": ("<", "R", 0, 0, {}),
            "client rst": (">", "R", 999, 0, {}),
            "ack": ("<", "A", 5, 999, {}),
            "good ack": ("<", "A", 5, isn + 1, {}),
            "third ack": (">", "A", isn + 1, 6, {}),
            "icmp": (">", "S", isn, 0, {"kind": sg.KIND_ICMP, "icmp_type": 3, "icmp_code": 1}),
            "back syn": ("<", "S", isn + 10**6, 0, {}),
            "back synack": (">", "SA", isn, isn + 10**6 + 1, {}),
        }[kind]
        way, letters, seq, ack, fields = made
        rows.append(segment(now, way, letters, seq, ack, ends, ip_ident=draw(st.integers(1, 2)), **fields))
    rows.sort(key=lambda row: int(row["t_ns"]) + draw(st.integers(0, DISORDER_MS)) * MS)
    if steps and draw(st.booleans()) and rows:
        at = draw(st.integers(0, len(rows)))
        for row in rows[at:]:
            row["t_ns"] -= 2000 * SECOND
    return stack(rows)


def in_one_go(segments: sg.Segments) -> sg.Handshakes:
    table = HandshakeTable()
    table.add(segments)
    return merge_rows(table.finish(T0 + 10**6 * SECOND))


def cut_up(segments: sg.Segments, cuts: list[int]) -> list[sg.Handshakes]:
    """Rows of each settle: after every batch, up to the latest time seen in this epoch of the clock."""
    table = HandshakeTable()
    parts = []
    now = None
    for batch in np.split(segments, sorted(cuts)):
        table.add(batch)
        for t in batch["t_ns"].tolist():
            now = t if now is None or t < now - SECOND else max(t, now)
        if now is not None:
            parts.append(table.settle(now))
            table.live()
    parts.append(table.finish(T0 + 10**6 * SECOND))
    assert table.open_segments() == 0
    return parts
