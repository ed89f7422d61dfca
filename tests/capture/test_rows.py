"""Blocks of bytes against numpy's own indexing and concatenation, field by field."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ncps_capture.rows import block, distinct, join, pick
from ncps_capture.segments import HANDSHAKE, SEGMENT

unhurried = settings(deadline=None, max_examples=40)  # a busy machine is no failure
DTYPES = [SEGMENT, HANDSHAKE, np.dtype([("a", "<u2"), ("b", "<i8")], align=True)]
dtypes = pytest.mark.parametrize("dtype", DTYPES, ids=["segment", "handshake", "aligned"])


def some(dtype: np.dtype, size: int, seed: int = 1) -> np.ndarray:
    return np.frombuffer(np.random.default_rng(seed).bytes(size * dtype.itemsize), dtype)


def same(one: np.ndarray, other: np.ndarray) -> bool:
    return one.dtype == other.dtype and one.shape == other.shape and one.tolist() == other.tolist()


@dtypes
@unhurried
@given(data=st.data())
def test_pick_is_indexing(dtype, data):
    rows = some(dtype, data.draw(st.integers(0, 9)))
    places = st.lists(st.integers(-len(rows), len(rows) - 1), max_size=12) if len(rows) else st.just([])
    index = np.array(data.draw(places), np.int64)
    assert same(pick(rows, index), rows[index])
    mask = np.array(data.draw(st.lists(st.booleans(), min_size=len(rows), max_size=len(rows))), np.bool_)
    assert same(pick(rows, mask), rows[mask])


@dtypes
@unhurried
@given(sizes=st.lists(st.integers(0, 5), min_size=1, max_size=5))
def test_join_is_concatenation(dtype, sizes):
    parts = [some(dtype, size, seed) for seed, size in enumerate(sizes)]
    assert same(join(parts), np.concatenate(parts))


@dtypes
def test_rows_that_do_not_lie_side_by_side(dtype):
    rows = some(dtype, 12)
    for view in (rows[::3], rows[::-1], rows[2:2]):
        assert same(pick(view, np.arange(len(view))), view)
        assert same(join((view, rows)), np.concatenate((view, rows)))


@dtypes
def test_the_result_is_a_copy_that_may_be_written(dtype):
    rows = some(dtype, 3).copy()
    before, name = rows.tolist(), dtype.names[0]
    for out in (pick(rows, np.arange(3)), pick(rows, np.ones(3, np.bool_)), join((rows,)), join((rows, rows))):
        out[name] += np.ones(1, out[name].dtype)
        assert out[name][0] != rows[name][0]
    assert rows.tolist() == before


@dtypes
def test_a_block_is_its_fields(dtype):
    one, other = some(dtype, 4, 1).copy(), some(dtype, 4, 2)
    first, last = dtype.names[0], dtype.names[-1]
    expected = one.copy()
    expected[first] = other[first]
    block(one, first, first)[:] = block(other, first, first)
    assert same(one, expected)
    block(one, first, last)[:] = block(other, first, last)
    assert same(one, other)


def test_a_block_of_another_dtype_with_the_same_fields():
    one, other = np.zeros(3, HANDSHAKE), some(SEGMENT, 3)
    block(one, "mss", "source")[:] = block(other, "mss", "source")
    for name in HANDSHAKE.names:
        assert one[name].tolist() == (other[name].tolist() if name in ("mss", "vlan", "source") else [0, 0, 0])


def test_an_index_outside_is_refused_as_numpy_refuses_it():
    with pytest.raises(IndexError):
        pick(some(SEGMENT, 3), np.array([3]))
    with pytest.raises(IndexError):
        pick(some(SEGMENT, 3), np.ones(2, np.bool_))


def test_the_dtypes_of_the_floor_hold_no_objects():
    """Seen as bytes, an object would be a pointer that nobody counts."""
    assert not any(dtype.hasobject for dtype in (SEGMENT, HANDSHAKE))


@pytest.mark.parametrize("values", [[], [3], [3, 1, 3, 2, 1], [2, 2, 2]])
def test_distinct_is_unique(values: list[int]) -> None:
    assert distinct(np.array(values, np.int64)).tolist() == sorted(set(values))
