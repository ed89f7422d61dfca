"""One numbering of addresses for the records of all workers."""

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ncps_analysis.records import CONNECTION
from ncps_capture.spool import SpoolWriter, read_spool

from ncps_raw import paths
from ncps_raw.engine.connection import MOST_PATHS
from ncps_raw.paths import renumber
from ncps_raw.workers import WorkerResult


def spool(folder: Path, name: str, numbers: list[int]) -> str:
    rows = np.zeros(len(numbers), CONNECTION)
    rows["path"] = numbers
    rows["start_ns"] = np.arange(len(numbers))
    with SpoolWriter(folder / name, CONNECTION) as out:
        out.append(rows)
    return str(folder / name)


def addresses(file: str, table: tuple[tuple[str, str], ...]) -> list[tuple[str, str]]:
    return [table[number] for number in read_spool(file, CONNECTION)["path"]]


A, B, C = ("10.0.0.1", "10.0.0.9"), ("10.0.0.2", "10.0.0.9"), ("10.0.0.3", "10.0.0.9")


def test_records_keep_their_addresses_under_new_numbers(tmp_path: Path) -> None:
    one = WorkerResult(spool(tmp_path, "one", [0, 1, 1]), (A, B))
    two = WorkerResult(spool(tmp_path, "two", [0, 1, 2, 0]), (B, C, A))
    files, table = renumber([one, two])
    assert addresses(files[0], table) == [A, B, B]
    assert addresses(files[1], table) == [B, C, A, B]
    assert len(set(table)) == len(table)


def test_nothing_else_changes_and_nothing_stays_behind(tmp_path: Path) -> None:
    one = WorkerResult(spool(tmp_path, "one", [1, 0]), (A, B))
    before = read_spool(one.spool or "", CONNECTION).copy()
    (file,), _ = renumber([one])
    after = read_spool(file, CONNECTION)
    for name in set(CONNECTION.names or ()) - {"path"}:
        assert (after[name] == before[name]).all()
    assert [str(path) for path in tmp_path.iterdir()] == [file]


def test_the_records_of_a_worker_that_died_have_no_addresses(tmp_path: Path) -> None:
    good = WorkerResult(spool(tmp_path, "good", [0, 1]), (A, B))
    dead = WorkerResult(spool(tmp_path, "dead", [0, 1, 5]), (), "worker 1 ended early (signal 9)")
    files, table = renumber([good, dead])
    assert addresses(files[0], table) == [A, B]
    assert addresses(files[1], table) == [("", "")] * 3


def test_many_rows_go_through_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "CHUNK_ROWS", 64)
    numbers = [i % 2 for i in range(1000)]
    files, table = renumber(
        [
            WorkerResult(spool(tmp_path, "one", [0]), (A,)),
            WorkerResult(spool(tmp_path, "two", numbers), (B, A)),
        ]
    )
    assert addresses(files[1], table) == [(B, A)[number] for number in numbers]


def test_more_pairs_than_records_can_number(tmp_path: Path) -> None:
    many = tuple((f"a{i}", "h") for i in range(40_000))
    more = tuple((f"b{i}", "h") for i in range(40_000))
    one = WorkerResult(spool(tmp_path, "one", [0, 39_999]), many)
    two = WorkerResult(spool(tmp_path, "two", [0, 39_999, 20_000]), more)
    files, table = renumber([one, two])
    assert addresses(files[0], table) == [many[0], many[-1]]
    assert addresses(files[1], table) == [more[0], ("", ""), more[20_000]]
    assert len(table) == MOST_PATHS + 1


PAIRS = st.sampled_from([A, B, C, ("::1", "::1"), ("", "")])


@given(
    st.lists(st.tuples(st.lists(PAIRS, unique=True, min_size=1), st.lists(st.integers(0, 4), max_size=20)), max_size=4)
)
def test_whatever_the_workers_saw(workers: list[tuple[list[tuple[str, str]], list[int]]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        made, expected = [], []
        for i, (pairs, numbers) in enumerate(workers):
            inside = [number % len(pairs) for number in numbers]
            made.append(WorkerResult(spool(Path(folder), str(i), inside), tuple(pairs)))
            expected.append([pairs[number] for number in inside])
        files, table = renumber(made)
        assert [addresses(file, table) for file in files] == expected
