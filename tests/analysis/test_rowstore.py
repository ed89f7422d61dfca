"""Rows kept in memory or on disk: the same come back, in the same order, and a tuple's lie together."""

from pathlib import Path

import numpy as np
import pytest
from made_attempts import attempt, rows
from ncps_analysis.rowstore import RowStore
from ncps_capture import segments as sg
from ncps_capture.merge import merge_rows

MADE = rows(
    *(
        attempt((n * 37) % 500, sg.UNANSWERED if n % 3 else sg.ANSWERED, sport=n % 40, isn=n % 60, frame=n + 1)
        for n in range(300)
    )
)


def filled(folder: Path, most: int, together: int = 1000) -> RowStore:
    store = RowStore(lambda: str(folder), most, 8, together)
    for part in np.array_split(MADE, 23):
        store.add(part)
    store.add(MADE[:0])
    return store


@pytest.mark.parametrize("together", [1000, 90, 20])
@pytest.mark.parametrize("most", [10_000, 50, 300])
def test_in_order_they_are_what_merging_all_at_once_gives(most: int, together: int, tmp_path: Path) -> None:
    with filled(tmp_path, most, together) as store:
        found = np.concatenate(list(store.in_order(store.parts(), chunk_rows=17)))
        again = np.concatenate(list(store.in_order(store.parts())))
    wanted = merge_rows(MADE)
    assert np.array_equal(found, wanted)
    assert np.array_equal(again, wanted)
    assert bool(list(tmp_path.glob("part-*"))) == (most < 10_000)


@pytest.mark.parametrize(("most", "together", "parts"), [(50, 50, 8), (10_000, 90, 3), (10_000, 1000, 1)])
def test_a_tuple_lies_in_one_part(most: int, together: int, parts: int, tmp_path: Path) -> None:
    with filled(tmp_path, most, together) as store:
        ports = [set(part["sport"].tolist()) for part in store.parts()]
    assert len(ports) == parts
    assert sum(map(len, ports)) == 40


def test_nothing_in_nothing_out(tmp_path: Path) -> None:
    with RowStore(lambda: str(tmp_path)) as store:
        assert [len(part) for part in store.in_order(store.parts())] == [0]


def test_parts_are_about_equal_whatever_the_tuples_have_in_common(tmp_path: Path) -> None:
    """One client and one server differ in one port, or two servers in an address: memory counts on even parts."""
    for made in (
        [attempt(n, sg.UNANSWERED, sport=1024 + n, isn=n, frame=n + 1) for n in range(4000)],
        [attempt(n, sg.UNANSWERED, client=f"10.{n >> 8}.{n & 255}.0", isn=n, frame=n + 1) for n in range(4000)],
    ):
        with RowStore(lambda: str(tmp_path), 1000, 8) as store:
            store.add(rows(*made))
            sizes = [len(part) for part in store.parts()]
        assert sum(sizes) == 4000
        assert max(sizes) < 2 * 4000 / 8
