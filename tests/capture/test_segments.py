"""The vocabulary: round trips, headline repeats and books against a naive re-statement, row by row."""

from __future__ import annotations

import dataclasses
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ncps_capture import segments as sg

unhurried = settings(deadline=None, max_examples=40)  # a busy machine is no failure
NONE = sg.UNKNOWN
times = st.one_of(st.just(NONE), st.integers(0, 50), st.integers(1_700_000_000 * 10**9, 1_700_000_000 * 10**9 + 50))
FIELDS = ("state", "syn_n", "flags", "t_syn_first_ns", "t_synack_ns", "rtt_ts_ns")
some_rows = st.lists(
    st.tuples(
        st.integers(0, 6),
        st.integers(0, 3),
        st.sampled_from([0, sg.F_CLOCK_STEP, sg.F_CLOCK_ERROR, sg.F_RTT_EXACT, sg.F_TFO | sg.F_CLOCK_STEP]),
        times,
        times,
        st.one_of(st.just(NONE), st.integers(0, 9)),
    ),
    max_size=8,
)


def rows_of(told: list[tuple]) -> sg.Handshakes:
    rows = np.zeros(len(told), sg.HANDSHAKE)
    for i, values in enumerate(told):
        for name, value in zip(FIELDS, values, strict=True):
            rows[name][i] = value
    rows["t_syn_before_ns"] = rows["t_syn_first_ns"]
    return rows


def naive_first(state, syn_n, flags, first, answer, rtt_ts):
    clock_is_right = not flags & (sg.F_CLOCK_STEP | sg.F_CLOCK_ERROR)
    if state == sg.ANSWERED and clock_is_right and NONE not in (first, answer):
        return answer - first
    return NONE


def naive_path(state, syn_n, flags, first, answer, rtt_ts):
    if flags & (sg.F_CLOCK_STEP | sg.F_CLOCK_ERROR):
        return NONE
    if rtt_ts != NONE:
        return rtt_ts if answer - first == rtt_ts else NONE  # ``rows_of``: the first SYN is the last before the answer
    return naive_first(state, syn_n, flags, first, answer, rtt_ts) if syn_n == 1 else NONE


@unhurried
@given(some_rows)
def test_round_trips_by_rows(told):
    rows = rows_of(told)
    assert sg.rtt_first_ns(rows).tolist() == [naive_first(*values) for values in told]
    assert sg.path_rtt_ns(rows).tolist() == [naive_path(*values) for values in told]
    assert rows.tolist() == rows_of(told).tolist()


@pytest.mark.parametrize("function", [sg.rtt_first_ns, sg.path_rtt_ns, sg.syn_retrans])
def test_no_rows_give_no_numbers(function):
    out = function(np.zeros(0, sg.HANDSHAKE))
    assert (out.dtype, out.shape) == (np.int64, (0,))


@unhurried
@given(st.lists(st.tuples(*[st.integers(0, 0xFFFF)] * 4), max_size=5))
def test_headline_repeats_are_two_of_the_four_causes_and_do_not_wrap(told):
    rows = np.zeros(len(told), sg.HANDSHAKE)
    for i, counts in enumerate(told):
        for cause, count in zip(("timeout", "after_synack", "after_rst", "after_challenge"), counts, strict=True):
            rows[f"retrans_{cause}"][i] = count
    assert sg.syn_retrans(rows).tolist() == [timeout + after for timeout, after, _, _ in told]


@pytest.mark.parametrize("prefix", ["F_", "BIT_", "STAMP_"])
def test_bits_are_single_distinct_and_fit_their_column(prefix):
    bits = [value for name, value in vars(sg).items() if name.startswith(prefix)]
    assert len(bits) > 2
    assert all(bit.bit_count() == 1 for bit in bits)
    assert len(set(bits)) == len(bits)
    column = {"F_": sg.HANDSHAKE["flags"], "BIT_": sg.SEGMENT["bits"], "STAMP_": sg.HANDSHAKE["stamps"]}[prefix]
    assert max(bits) <= np.iinfo(column).max


def test_each_state_has_its_name_and_number():
    for name in sg.STATE_NAMES[1:]:
        assert sg.STATE_NAMES[getattr(sg, name.upper())] == name


def test_unknown_is_no_time_anybody_can_mean():
    assert np.zeros(1, sg.HANDSHAKE)["t_synack_ns"].dtype == np.int64
    assert sg.UNKNOWN == -(2**63)


def test_names_stand_once_and_times_say_their_unit():
    for names in (sg.SEGMENT.names, sg.HANDSHAKE.names, sg.WIRE_FIELDS):
        assert len(set(names)) == len(names)
    for dtype in (sg.SEGMENT, sg.HANDSHAKE):
        times = {name for name in dtype.names if name.startswith(("t_", "rtt_"))}
        assert all(name.endswith("_ns") and dtype[name] == np.int64 for name in times)


# ---- books ---------------------------------------------------------------------------------------------------------

COUNTERS = [field.name for field in dataclasses.fields(sg.Books) if field.name != "unsupported_linktypes"]
some_books = st.builds(
    sg.Books,
    **dict.fromkeys(COUNTERS, st.integers(0, 9)),
    unsupported_linktypes=st.dictionaries(st.integers(0, 5), st.integers(1, 9)),
)


@unhurried
@given(st.lists(some_books, max_size=4))
def test_books_add_up(parts):
    before = [dataclasses.asdict(part) for part in parts]
    total = sg.Books()
    for part in parts:
        total += part
    for name in COUNTERS:
        assert getattr(total, name) == sum(part[name] for part in before)
    for link_type in range(6):
        counted = sum(part["unsupported_linktypes"].get(link_type, 0) for part in before)
        assert total.unsupported_linktypes.get(link_type, 0) == counted
    assert [dataclasses.asdict(part) for part in parts] == before


STATES = ("answered", "refused", "icmp_refused", "unanswered", "simultaneous")
SYNS = ("syn_counted", "syn_duplicate", "syn_malformed", "syn_fragment", "syn_too_short")


@unhurried
@given(some_books)
def test_d14_problems_are_named_one_by_one(books):
    states = sum(getattr(books, name) for name in STATES)
    syns = sum(getattr(books, name) for name in SYNS)
    wanted = []
    if books.attempts != states:
        wanted.append(f"attempts {books.attempts:,} != sum of states {states:,}")
    if books.syn != syns:
        wanted.append(f"SYNs captured {books.syn:,} != accounted for {syns:,}")
    assert books.problems() == wanted


@pytest.mark.parametrize("name", [*STATES, *SYNS, "attempts", "syn"])
def test_d14_no_count_can_be_off_by_one_unseen(name):
    whole = sg.Books(syn=15, attempts=15, **dict.fromkeys(STATES, 3), **dict.fromkeys(SYNS, 3))
    assert whole.problems() == []
    setattr(whole, name, getattr(whole, name) + 1)
    assert len(whole.problems()) == 1


def test_what_the_capture_process_is_asked_crosses_a_process():
    spec = sg.CaptureSpec("lo", ((80, 80), (9000, 9100)), "acks", loopback=True, write_path="x.pcap")
    assert pickle.loads(pickle.dumps(spec)) == spec
    with pytest.raises(dataclasses.FrozenInstanceError):
        spec.level = "base"
