"""Segments set aside against a plain list: what is put is taken whole, once, and whose time is up is named."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ncps_capture import segments as sg
from ncps_capture import waiting
from ncps_capture.waiting import Waiting

unhurried = settings(deadline=None, max_examples=50)  # a busy machine is no failure


class Model:
    """The same, one segment an element, and everything looked through every time."""

    def __init__(self) -> None:
        self.waits: list[tuple[int, int, int, int]] = []  # hash, frame, order time, ready

    def take(self, hashes: list[int]) -> list[tuple[int, int]]:
        gone = [one for one in self.waits if one[0] in hashes]
        self.waits = [one for one in self.waits if one[0] not in hashes]
        return sorted((frame, order) for _, frame, order, _ in gone)

    def overdue(self, horizon: int) -> set[int]:
        return {one[0] for one in self.waits if one[3] < horizon}


def put(table: Waiting, told: list[tuple[int, int, int, int]]) -> None:
    segments = np.zeros(len(told), sg.SEGMENT)
    segments["frame"] = [frame for _, frame, _, _ in told]
    columns = [np.array([one[i] for one in told], np.int64) for i in (2, 0, 3)]
    table.put(segments, columns[0], columns[1].astype(np.uint64), columns[2])


def taken(found: tuple[sg.Segments, np.ndarray]) -> list[tuple[int, int]]:
    segments, order_ns = found
    assert segments.dtype == sg.SEGMENT
    return sorted(zip(segments["frame"].tolist(), order_ns.tolist(), strict=True))


def hashes_of(values: list[int]) -> np.ndarray:
    return np.array(values, np.uint64)


steps = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.lists(st.tuples(st.integers(0, 30), st.integers(0, 9)), min_size=1, max_size=9)),
        st.tuples(st.just("take"), st.lists(st.integers(0, 32), max_size=6)),
        st.tuples(st.just("overdue"), st.integers(0, 11)),
    ),
    max_size=25,
)


@pytest.mark.parametrize("block", [waiting.BLOCK, 8, 1])
@unhurried
@given(told=steps)
def test_it_is_a_list_of_segments_by_tuple(block, told):
    """Whatever the size of the blocks, which is a matter of cost."""
    table, model, frame = Waiting(), Model(), 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(waiting, "BLOCK", block)
        for what, value in told:
            if what == "put":
                known = {one[0] for one in model.waits}
                fresh = [(h, ready) for h, ready in value if h not in known]
                if not fresh:
                    continue
                new = [(h, frame + i, 1000 + frame + i, ready) for i, (h, ready) in enumerate(fresh)]
                frame += len(new)
                put(table, new)
                model.waits += new
            elif what == "take":
                assert taken(table.take(hashes_of(value))) == model.take(value)
            else:
                assert set(table.overdue(value).tolist()) == model.overdue(value)
            assert len(table) == len(model.waits)
        rest = [one for part in table.take_all() for one in taken(part)]
        assert sorted(rest) == model.take(list(range(31)))
        assert (len(table), list(table.take_all())) == (0, [])


def test_nothing_waits():
    table = Waiting()
    assert (len(table), len(table.overdue(10**18)), taken(table.take(hashes_of([1, 2])))) == (0, 0, [])
    assert table.overdue(0).dtype == np.uint64


def test_a_time_is_up_once_it_lies_behind():
    table = Waiting()
    put(table, [(7, 1, 1, 100)])
    assert table.overdue(100).tolist() == []
    assert table.overdue(101).tolist() == [7]
    assert len(table) == 1  # naming takes nothing


def test_large_hashes_keep_their_order():
    """Hashes are 64 bits wide: as signed or floating numbers they would be misplaced."""
    table = Waiting()
    values = [2**64 - 1, 2**63, 2**63 - 1, 2**64 - 2, 0]
    segments = np.zeros(5, sg.SEGMENT)
    segments["frame"] = range(5)
    table.put(segments, np.arange(5), hashes_of(values), np.full(5, 9))
    for frame, value in enumerate(values):
        assert taken(table.take(hashes_of([value]))) == [(frame, frame)]


def test_what_comes_in_ticks_is_moved_few_times(monkeypatch):
    """A tick must not cost what is old: the segments copied while a thousand ticks pass are some ten times them all."""
    moved = 0
    honest = waiting.pick

    def counting(rows, index):
        nonlocal moved
        out = honest(rows, index)
        moved += len(out)
        return out

    monkeypatch.setattr(waiting, "pick", counting)
    table = Waiting()
    for tick in range(1000):
        put(table, [(tick * 8 + i, tick, 0, 10**9) for i in range(8)])
        assert len(table.take(hashes_of([10**9]))[0]) == 0
    assert len(table) == 8000
    assert moved < 30 * 8000


def test_the_oldest_leave_first_whole() -> None:
    some = Waiting()
    for start in (0, 400_000):
        segments = np.zeros(waiting.BLOCK, sg.SEGMENT)
        segments["frame"] = np.arange(waiting.BLOCK) + start
        hashes = np.arange(waiting.BLOCK, dtype=np.uint64) + np.uint64(start)
        some.put(segments, segments["frame"].copy(), hashes, segments["frame"].copy())
    segments, order_ns = some.take_oldest()
    assert np.array_equal(segments["frame"], np.arange(waiting.BLOCK))
    assert np.array_equal(order_ns, np.arange(waiting.BLOCK))
    assert len(some) == waiting.BLOCK


def test_what_is_not_there_is_hardly_searched_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is anything missed that begins alike: hashes are looked up by their first bits before they are searched."""
    random = np.random.default_rng(5)
    hashes = random.integers(0, 2**64, waiting.BLOCK, np.uint64)
    others = random.integers(0, 2**64, 50_000, np.uint64)
    alike = hashes[:100] ^ np.uint64(1)
    table, segments = Waiting(), np.zeros(len(hashes), sg.SEGMENT)
    segments["frame"] = np.arange(len(hashes))
    table.put(segments, np.arange(len(hashes)), hashes, np.full(len(hashes), 9))
    searched, honest = [], np.searchsorted

    def counting(*given, **named):
        searched.append(len(given[1]))
        return honest(*given, **named)

    monkeypatch.setattr(np, "searchsorted", counting)
    found = table.take(np.concatenate((others, alike, hashes[:1000])))
    assert taken(found) == [(frame, frame) for frame in range(1000)]
    assert sum(searched) < 0.2 * len(others)
