"""Processes on processors: this machine's own, and made-up ones."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ncps_analysis.records import Interval
from ncps_capture.errors import EnvironmentFault

from ncps_raw import affinity
from ncps_raw.affinity import CANNOT, FindNonRss, check, pin, shares
from ncps_raw.softirq import received
from ncps_raw.workers import split_loops

linux = pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system cannot choose processors")
HERE = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []


# ---- a list -------------------------------------------------------------------------------------------------------


@linux
def test_processors_that_may_be_used_are_no_problem_and_change_nothing() -> None:
    before = os.sched_getaffinity(0)
    assert check((), "-aff") is None
    assert check((HERE[0], HERE[-1], HERE[0]), "-aff") is None
    assert os.sched_getaffinity(0) == before


@linux
@pytest.mark.parametrize("cpu", [1023, 100_000, 1 << 70])
def test_a_processor_that_cannot_be_had_is_named(cpu: int) -> None:
    before = os.sched_getaffinity(0)
    with pytest.raises(EnvironmentFault, match=rf"^cannot run on processor {cpu} \(--affinity\): .* may use {HERE[0]}"):
        check((HERE[0], cpu), "--affinity")
    assert os.sched_getaffinity(0) == before


def test_where_nothing_can_be_chosen_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_setaffinity", raising=False)
    assert check((0,), "-aff") == f"-aff: {CANNOT}"
    assert check((), "-aff") is None
    pin([os.getpid()], [{0}])


def test_loop_r_is_on_entry_r_modulo_the_count() -> None:
    assert shares([[0], [1], [2]], (4, 6)) == [{4}, {6}, {4}]
    assert shares(split_loops(16, 2), (0, 1)) == [{0}, {1}]
    assert shares(split_loops(6, 2), (0, 1, 2)) == [{0, 1, 2}, {0, 1, 2}]


@given(st.integers(1, 40), st.integers(1, 8), st.lists(st.integers(0, 63), min_size=1, max_size=10))
def test_each_process_has_the_entries_of_its_loops_and_no_other(loops: int, processes: int, cpus: list[int]) -> None:
    each = split_loops(loops, min(loops, processes))
    for mine, used in zip(each, shares(each, cpus), strict=True):
        assert used == {cpus[r % len(cpus)] for r in mine}


@pytest.fixture
def sleepers() -> Iterator[list[subprocess.Popen[bytes]]]:
    made = [subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) for _ in range(2)]
    yield made
    for process in made:
        process.communicate()


@linux
def test_processes_are_pinned_and_one_that_has_ended_is_no_matter(sleepers: list[subprocess.Popen[bytes]]) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait(30)
    pids = [gone.pid, *(process.pid for process in sleepers)]
    pin(pids, [{HERE[0]}, {HERE[0]}, {HERE[-1]}])
    assert [os.sched_getaffinity(pid) for pid in pids[1:]] == [{HERE[0]}, {HERE[-1]}]


# ---- those without network interrupts -----------------------------------------------------------------------------


class Machine:
    """Processors 0 to 3, of which 0 serves the card; remembers who was pinned where."""

    def __init__(self, patch: pytest.MonkeyPatch, path: Path, allowed: set[int]) -> None:
        self.path = path
        self.pinned: dict[int, set[int]] = {}
        self.said: list[str] = []
        self.counts = [0, 0, 0, 0]
        self.tell()
        patch.setattr(os, "sched_getaffinity", lambda pid: allowed, raising=False)
        patch.setattr(os, "sched_setaffinity", self.pinned.__setitem__, raising=False)

    def tell(self) -> None:
        names = " ".join(f"CPU{i}" for i in range(4))
        self.path.write_text(f"  {names}\n NET_RX: {' '.join(map(str, self.counts))}\n")

    def finder(self, *pids: int) -> FindNonRss:
        return FindNonRss(pids, self.said.append, self.path)

    def rows(self, finder: FindNonRss, n: int, established: int = 12_000) -> None:
        for _ in range(n):
            self.counts[0] += 1000
            self.tell()
            finder.row(Interval(1.0, 1.0, 0, 0, 0, 0, established, 0, 0, 0, None, None, None, None, None))


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Machine:
    return Machine(monkeypatch, tmp_path / "softirqs", {0, 1, 3})


def test_processes_go_to_the_free_processors_in_order_and_once(machine: Machine) -> None:
    finder = machine.finder(501, 502)
    machine.rows(finder, 3)
    assert (machine.pinned, machine.said) == ({}, [])
    machine.rows(finder, 1)
    assert machine.pinned == {501: {1}, 502: {3}}  # 2 may not be used
    assert machine.said == ["AFFINITY: 1,3"]
    machine.rows(finder, 8)
    assert machine.said == ["AFFINITY: 1,3"]


def test_a_slow_load_finds_nothing(machine: Machine) -> None:
    machine.rows(machine.finder(501), 20, established=9_999)
    assert (machine.pinned, machine.said) == ({}, [])


def test_too_few_are_said_in_one_line_and_nothing_is_pinned(machine: Machine) -> None:
    finder = machine.finder(501, 502, 503)
    machine.rows(finder, 12)
    assert machine.pinned == {}
    assert len(machine.said) == 1
    assert machine.said[0].startswith("AFFINITY: processors without network interrupts are fewer than the 3 processes")
    assert "(1,3)" in machine.said[0]


def test_an_interval_of_no_length_says_nothing(machine: Machine) -> None:
    finder = machine.finder(501)
    finder.row(Interval(1.0, 0.0, 0, 0, 0, 0, 12_000, 0, 0, 0, None, None, None, None, None))
    machine.rows(finder, 4)
    assert machine.said == ["AFFINITY: 1"]


def test_where_the_counts_are_not_told_it_is_said(machine: Machine, tmp_path: Path) -> None:
    absent = tmp_path / "absent"
    finder = FindNonRss([501], machine.said.append, absent)
    machine.rows(finder, 8)
    assert machine.said == [f"AFFINITY: {absent} does not tell of network interrupts: the load goes on unpinned"]


def test_where_nothing_can_be_pinned_nothing_is_looked_for(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_setaffinity")
    finder = machine.finder(501)
    machine.rows(finder, 8)
    assert machine.said == [f"AFFINITY: {CANNOT}"]


@linux
def test_the_kernels_own_file_is_understood() -> None:
    said: list[str] = []
    FindNonRss([1], said.append)
    assert said == []
    assert received(affinity.SOFTIRQS.read_text()).keys() >= set(HERE)
