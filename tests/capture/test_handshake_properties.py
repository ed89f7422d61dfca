"""What must hold for any segments: cuts, order and speed do not show in the result, and the books balance."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ncps_capture import columns, tuples
from ncps_capture import segments as sg
from ncps_capture.handshake import books_of, merge_rows
from segment_stories import cut_up, in_one_go, stories, unhurried


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
