"""Options in columns against scapy, dpkt and a parser that reads one row byte by byte."""

from __future__ import annotations

import dpkt
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ncps_capture import segments as sg
from ncps_capture.tcp_options import ABSENT_WSCALE, OPTIONS_MAX, WIDTH, Options, parse_options
from scapy.layers.inet import TCP
from scapy.packet import raw

NAMES = ("mss", "wscale", "tsval", "tsecr", "bits")
unhurried = settings(deadline=None, max_examples=80)  # a busy machine is no failure


def parsed(rows: list[bytes]) -> Options:
    matrix = np.zeros((len(rows), WIDTH), np.uint8)
    for line, row in zip(matrix, rows, strict=True):
        line[: len(row)] = np.frombuffer(row, np.uint8)
    return parse_options(matrix, np.array([len(row) for row in rows], np.int64))


def told(options: Options, row: int) -> tuple[int, ...]:
    return tuple(int(getattr(options, name)[row]) for name in NAMES)


def naive(row: bytes) -> tuple[int, ...]:
    """One row as RFC 9293 reads it: kind, length, value, until the end, an end mark or a length that cannot be."""
    mss, wscale, tsval, tsecr, bits = 0, ABSENT_WSCALE, 0, 0, 0
    while row and row[0] != 0:
        if row[0] == 1:
            row = row[1:]
            continue
        if len(row) < 2 or not 2 <= row[1] <= len(row):
            break
        kind, value, row = row[0], row[2 : row[1]], row[row[1] :]
        if kind == 2 and len(value) == 2:
            mss = int.from_bytes(value, "big")
        elif kind == 3 and len(value) == 1:
            wscale = value[0]
        elif kind == 8 and len(value) == 8:
            tsval, tsecr = int.from_bytes(value[:4], "big"), int.from_bytes(value[4:], "big")
            bits |= sg.BIT_TIMESTAMP
        elif kind == 34 or (kind == 254 and value[:2] == b"\xf9\x89"):
            bits |= sg.BIT_TFO
    return mss, wscale, tsval, tsecr, bits


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], (0, 255, 0, 0, 0)),
        ([("MSS", 536)], (536, 255, 0, 0, 0)),
        (
            [("NOP", None)] * 20 + [("Timestamp", (5, 6))] + [("NOP", None)] * 2,
            (0, 255, 5, 6, sg.BIT_TIMESTAMP),
        ),
        ([("WScale", 0)], (0, 0, 0, 0, 0)),
        ([("EOL", None), ("MSS", 9)], (0, 255, 0, 0, 0)),
        ([(34, b"cookie88")], (0, 255, 0, 0, sg.BIT_TFO)),
        ([(34, b"")], (0, 255, 0, 0, sg.BIT_TFO)),
        ([(254, b"\xf9\x89abcd")], (0, 255, 0, 0, sg.BIT_TFO)),
        ([(254, b"\xf9\x88abcd")], (0, 255, 0, 0, 0)),
        ([(254, b"")], (0, 255, 0, 0, 0)),
        ([(30, b"x" * 10), ("MSS", 1440)], (1440, 255, 0, 0, 0)),
        ([("Timestamp", (0, 0))], (0, 255, 0, 0, sg.BIT_TIMESTAMP)),
    ],
)
def test_options_that_scapy_writes(options, expected):
    row = raw(TCP(flags="S", options=options))[20:]
    assert told(parsed([row]), 0) == expected == naive(row)


@pytest.mark.parametrize("bad", [b"\x02\x00", b"\x02\x01", b"\x02\xff", b"\x02", b"\x08\x0a\0\0"])
def test_a_broken_option_ends_the_row_and_no_other(bad):
    out = parsed([b"\x03\x03\x09" + bad, b"\x03\x03\x09\x02\x04\x05\xb4"])
    assert out.wscale.tolist() == [9, 9]
    assert out.mss.tolist() == [0, 1460]


@pytest.mark.parametrize(
    "row", [b"\x02\x03\x05", b"\x03\x04\x05\x05", b"\x08\x09" + b"\1" * 7, b"\x08\x0b" + b"\1" * 9, b"\xfe\x03\xf9\x89"]
)
def test_an_option_of_another_length_is_stepped_over(row):
    assert told(parsed([row]), 0) == (0, 255, 0, 0, 0)
    assert parsed([row[: row[1]] + b"\x02\x04\x05\xb4"]).mss.tolist() == [1460]


def test_an_option_in_the_last_byte_reads_no_neighbour():
    """The last row's option stands at the edge of the matrix; the first row's must not run into the second."""
    full = b"\x01" * (OPTIONS_MAX - 1)
    for last in (b"\x02", b"\x08", b"\x22", b"\xfe", b"\x01", b"\x00"):
        out = parsed([full + last, b"\x04\x02\x05\xb4", full + last])
        assert [told(out, i) for i in range(3)] == [(0, 255, 0, 0, 0)] * 3


def test_what_comes_twice_counts_as_it_came_last():
    assert parsed([b"\x02\x04\0\x05\x02\x04\0\x07"]).mss.tolist() == [7]


pieces = st.one_of(
    st.sampled_from([b"\0", b"\1", b"\2\4\5\xb4", b"\3\3\7", b"\4\2", b"\x22\2", b"\xfe\4\xf9\x89", b"\2\0", b"\3"]),
    st.binary(min_size=8, max_size=8).map(lambda value: b"\x08\x0a" + value),
    st.binary(max_size=6),
)
USUAL = bytes.fromhex("020405b4 0402 080a 01020304 05060708 01 030307")
nearly = st.builds(
    lambda changes, cut: bytes(dict(changes).get(i, byte) for i, byte in enumerate(USUAL + b"\1\1"))[:cut],
    st.lists(st.tuples(st.integers(0, 19), st.integers(0, 255)), max_size=2),
    st.sampled_from([20, 20, 20, 19, 21, 22]),
)
anything = st.lists(pieces, max_size=8).map(lambda row: b"".join(row)[:OPTIONS_MAX])
rows = st.lists(st.one_of(anything, nearly), max_size=6)


@unhurried
@given(rows)
def test_any_bytes_are_read_as_row_by_row(many):
    out = parsed(many)
    assert [told(out, i) for i in range(len(many))] == [naive(row) for row in many]
    assert [len(getattr(out, name)) for name in NAMES] == [len(many)] * 5


whole = st.one_of(
    st.just((1, None)),
    st.tuples(st.just(2), st.binary(min_size=2, max_size=2)),
    st.tuples(st.just(3), st.binary(min_size=1, max_size=1)),
    st.tuples(st.just(4), st.just(b"")),
    st.tuples(st.just(8), st.binary(min_size=8, max_size=8)),
    st.tuples(st.sampled_from([5, 30, 34]), st.binary(max_size=6)),
)


@unhurried
@given(st.lists(whole, max_size=4))
def test_dpkt_agrees_on_options_without_fault(options):
    row = b"".join(b"\1" if value is None else bytes([kind, len(value) + 2]) + value for kind, value in options)
    seen = {kind: value for kind, value in dpkt.tcp.parse_opts(row[:OPTIONS_MAX]) if kind != 1}
    mss, wscale, tsval, tsecr, bits = told(parsed([row[:OPTIONS_MAX]]), 0)
    assert mss == int.from_bytes(seen.get(2, b""), "big")
    assert wscale == (seen[3][0] if 3 in seen else ABSENT_WSCALE)
    assert tsval.to_bytes(4, "big") + tsecr.to_bytes(4, "big") == seen.get(8, bytes(8))
    assert (bool(bits & sg.BIT_TIMESTAMP), bool(bits & sg.BIT_TFO)) == (8 in seen, 34 in seen)
