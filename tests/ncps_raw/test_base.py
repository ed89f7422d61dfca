"""Layouts that two sides rely on: records as packed and as read, counters by number and by name."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from ncps_analysis.records import CONNECTION

from ncps_raw.engine import base

NAMES = CONNECTION.names or ()


def limits(name: str) -> tuple[int, int]:
    info = np.iinfo(CONNECTION[name])
    return int(info.min), int(info.max)


@given(st.tuples(*(st.integers(*limits(name)) for name in NAMES)))
def test_a_packed_record_is_a_connection_row(values: tuple[int, ...]) -> None:
    packed = base.RECORD.pack(*values)
    (row,) = np.frombuffer(packed, CONNECTION)
    assert tuple(int(row[name]) for name in NAMES) == values


def test_a_record_has_no_room_for_more() -> None:
    assert base.RECORD.size == CONNECTION.itemsize == 48


def test_counters_have_the_numbers_of_their_names() -> None:
    for number, name in enumerate(base.COUNTERS):
        constant = {"clean_rtt_us": "CLEAN_RTT", "repeated_rtt_us": "REPEATED_RTT"}.get(name, name.upper())
        assert getattr(base, constant) == number


def test_the_start_line_begins_with_waiting() -> None:
    """Fresh shared memory is zero."""
    assert len({0, base.GO, base.STOP, base.PAUSE}) == 4
