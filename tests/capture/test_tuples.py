"""Numbers of four-tuples against tuples of Python: equal for equal ones, both ways, and never for different ones."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ncps_capture import segments as sg
from ncps_capture import tuples
from ncps_capture.tuples import mix, tuples_of_handshakes, tuples_of_segments

unhurried = settings(deadline=None, max_examples=50)  # a busy machine is no failure
WORDS = [0, 1, 2**63, 2**64 - 1]
ends = st.tuples(st.sampled_from(WORDS), st.sampled_from(WORDS), st.sampled_from([0, 1, 80, 65535]))
ways = st.lists(st.tuples(ends, ends, st.sampled_from([0, 1, 2**32 - 1])), max_size=12)


def segments_of(told: list[tuple]) -> sg.Segments:
    out = np.zeros(len(told), sg.SEGMENT)
    for row, (src, dst, tunnel) in zip(out, told, strict=True):
        row["src_hi"], row["src_lo"], row["sport"] = src
        row["dst_hi"], row["dst_lo"], row["dport"] = dst
        row["tunnel"] = tunnel
    return out


def handshakes_of(told: list[tuple]) -> sg.Handshakes:
    out = np.zeros(len(told), sg.HANDSHAKE)
    for row, (client, server, tunnel) in zip(out, told, strict=True):
        row["client_hi"], row["client_lo"], row["sport"] = client
        row["server_hi"], row["server_lo"], row["dport"] = server
        row["tunnel"] = tunnel
    return out


def naive(told: list[tuple]) -> list[tuple]:
    return [(min(src, dst), max(src, dst), tunnel) for src, dst, tunnel in told]


def check(told: list[tuple]) -> None:
    found = tuples_of_segments(segments_of(told))
    names, ids = naive(told), found.ids.tolist()
    assert len(set(ids)) == len(set(names)) == len(set(zip(ids, names, strict=True)))
    assert found.reverse.tolist() == [src > dst for src, dst, _ in told]
    assert found.alone.tolist() == [src == dst for src, dst, _ in told]


@unhurried
@given(ways)
def test_equal_numbers_mean_equal_tuples(told):
    check(told)


@pytest.mark.parametrize("bits", [0, 1, 3])
@unhurried
@given(told=ways)
def test_they_do_even_if_the_hash_is_poor(bits, told):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tuples, "mix", lambda parts: mix(parts) & np.uint64((1 << bits) - 1))
        check(told)


@unhurried
@given(ways, ways)
def test_the_hash_is_the_same_both_ways_in_every_call_and_for_both_kinds_of_row(told, others):
    hashes = tuples_of_segments(segments_of(told)).hashes.tolist()
    back = [(dst, src, tunnel) for src, dst, tunnel in told]
    assert tuples_of_segments(segments_of(back + others)).hashes.tolist()[: len(told)] == hashes
    rows = tuples_of_handshakes(handshakes_of(told))
    assert rows.hashes.tolist() == hashes
    assert rows.reverse.tolist() == [client > server for client, server, _ in told]


def test_the_hash_is_the_same_in_every_process():
    """Spools written by one process are divided by this number in another."""
    one = ((0, sg.V4_MAPPED | 0x0A000001, 40000), (0, sg.V4_MAPPED | 0x0A000002, 80), 0)
    words = [0, sg.V4_MAPPED | 0x0A000001, 0, sg.V4_MAPPED | 0x0A000002, (40000 << 16 | 80) << 32]
    out = 0
    for word in words:
        out = (out ^ word) * 0x9E3779B97F4A7C15 % 2**64
        out ^= out >> 29
    assert tuples_of_segments(segments_of([one])).hashes.tolist() == [out]


def test_many_clients_of_one_server_spread():
    """The low bits choose a part of a spool: neighbours in address and port must not crowd one of them."""
    server = (0, sg.V4_MAPPED | 0x0A000002, 80)
    told = [
        ((0, sg.V4_MAPPED | 0x0A000100 + host, port), server, 0) for host in range(64) for port in range(1024, 1088)
    ]
    hashes = tuples_of_segments(segments_of(told)).hashes
    assert len(np.unique(hashes)) == len(told)
    for shift in (0, 16, 32, 58):
        crowd = np.bincount((hashes >> np.uint64(shift)).astype(np.int64) & 15, minlength=16)
        assert crowd.min() > len(told) / 32
        assert crowd.max() < len(told) / 8


def test_no_rows():
    found = tuples_of_segments(np.zeros(0, sg.SEGMENT))
    assert [len(part) for part in (found.ids, found.reverse, found.hashes, found.alone)] == [0, 0, 0, 0]
