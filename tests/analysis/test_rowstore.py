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


def filled(folder: Path, most: int) -> RowStore:
    store = RowStore(lambda: str(folder), most, 8)
    for part in np.array_split(MADE, 23):
        store.add(part)
    store.add(MADE[:0])
    return store


@pytest.mark.parametrize("most", [10_000, 50, 300])
def test_in_order_they_are_what_merging_all_at_once_gives(most: int, tmp_path: Path) -> None:
    with filled(tmp_path, most) as store:
        found = np.concatenate(list(store.in_order(store.parts(), chunk_rows=17)))
        again = np.concatenate(list(store.in_order(store.parts())))
    wanted = merge_rows(MADE)
    assert np.array_equal(found, wanted)
    assert np.array_equal(again, wanted)
    assert bool(list(tmp_path.iterdir())) == (most < 10_000)


def test_a_tuple_lies_in_one_part(tmp_path: Path) -> None:
    with filled(tmp_path, 50) as store:
        ports = [set(part["sport"].tolist()) for part in store.parts()]
    assert len(ports) == 8
    assert sum(map(len, ports)) == 40


def test_nothing_in_nothing_out(tmp_path: Path) -> None:
    with RowStore(lambda: str(tmp_path)) as store:
        assert [len(part) for part in store.in_order(store.parts())] == [0]
