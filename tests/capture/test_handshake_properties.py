"""What must hold for any segments: cuts, order and speed do not show in the result, and the books balance."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ncps_capture import columns, merge, tuples
from ncps_capture import segments as sg
from ncps_capture.attempts import NOBODY
from ncps_capture.columns import settle_segments
from ncps_capture.handshake import HandshakeTable, books_of, merge_rows
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


def order_of(segments: sg.Segments) -> np.ndarray:
    return segments["t_ns"].astype(np.int64)


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


@settings(unhurried, max_examples=150)
@given(stories(), st.lists(st.integers(0, 14), max_size=14), st.randoms(use_true_random=False))
def test_no_cut_and_no_order_of_parts_shows(segments, cuts, random):
    whole = in_one_go(segments)
    rows = np.concatenate(cut_up(segments, cuts))
    assert merge_rows(rows).tolist() == whole.tolist()
    mixed = list(range(len(rows)))
    random.shuffle(mixed)
    assert merge_rows(rows[mixed]).tolist() == whole.tolist()
    assert merge_rows(whole).tolist() == whole.tolist()


@settings(unhurried, max_examples=150)
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


@unhurried
@given(stories(steps=False))
def test_every_cut_at_once(segments):
    rows = np.concatenate(cut_up(segments, list(range(len(segments)))))
    assert merge_rows(rows).tolist() == in_one_go(segments).tolist()


@unhurried
@given(stories(), st.lists(st.integers(0, 14), max_size=3))
def test_the_books_balance(segments, cuts):
    rows = merge_rows(np.concatenate(cut_up(segments, cuts)))
    books = books_of(rows)
    flags = segments["flags"][segments["kind"] == sg.KIND_TCP]
    books.syn = int(np.count_nonzero(flags & (sg.SYN | sg.ACK) == sg.SYN))
    assert books.problems() == []
    synacks = int(np.count_nonzero(flags & (sg.SYN | sg.ACK) == sg.SYN | sg.ACK))
    assert synacks == int(rows["synack_n"].sum()) + books.synack_duplicate + books.synack_bad_ack
    attempts = rows[rows["state"] != sg.SYNACK_ONLY]
    causes = sum(attempts[f"retrans_{cause}"] for cause in ("timeout", "after_synack", "after_rst", "after_challenge"))
    assert (attempts["syn_n"] - 1 == causes).all()
    answered = rows["synack_n"] > 0
    assert (rows["synack_n"] - answered == rows["synack_retrans"] + rows["synack_isn_changed"])[answered].all()


def compare(segments: sg.Segments) -> None:
    order_ns = order_of(segments)
    fast = settle_segments(segments, order_ns, WINDOW_NS)
    slow = settle_segments(segments, order_ns, WINDOW_NS, by_tuple=True)
    key = lambda found: sorted(zip(found.rows.tolist(), found.ready_ns.tolist(), strict=True))  # noqa: E731
    assert key(fast) == key(slow)

    def owners(found):
        return [None if i == NOBODY else (found.rows[i].tolist(), found.ready_ns[i]) for i in found.owner.tolist()]

    assert owners(fast) == owners(slow)


@settings(unhurried, max_examples=150)
@given(stories(steps=False))
def test_the_columns_do_what_the_definitions_say(segments):
    compare(segments)


@settings(unhurried, max_examples=60)
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


@pytest.mark.parametrize("bits", [0, 4])
@unhurried
@given(segments=stories(steps=False))
def test_hash_collisions_are_found_and_harmless(bits, segments):
    """With a hash of almost no bits every pair of tuples and every pair of ISNs collides."""
    expected = in_one_go(segments).tolist()
    honest = tuples.mix
    poor = lambda parts: honest(parts) & np.uint64((1 << bits) - 1)  # noqa: E731
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tuples, "mix", poor)
        patch.setattr(columns, "mix", poor)
        assert in_one_go(segments).tolist() == expected
