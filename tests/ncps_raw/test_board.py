"""Shared memory of a run: one writer a cell, sums and merges, and no load without a parent."""

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from multiprocessing.context import BaseContext

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ncps_raw.board import ERRNOS, Failure, SharedBoard, WorkerBoard
from ncps_raw.engine.base import COUNTERS, GO, LAG_MAX_NS, PAUSE, STOP

WIDTH = len(COUNTERS)


def attached(board: SharedBoard, worker: int) -> WorkerBoard:
    view = board.for_worker(worker)
    view.attach()
    return view


def board_of(loops: int, workers: int) -> SharedBoard:
    return SharedBoard(multiprocessing.get_context("spawn"), loops, workers)


def test_the_start_line_waits_goes_and_stops() -> None:
    board = board_of(1, 1)
    view = attached(board, 0)
    assert view.state() == 0
    board.set_state(GO)
    assert view.state() == GO
    board.set_state(STOP)
    assert view.state() == STOP


@pytest.mark.parametrize("ended_by", ["resume", "stop", "the end of the run"])
def test_a_pause_holds_whoever_asks_for_the_state(ended_by: str) -> None:
    board = board_of(1, 1)
    view = attached(board, 0)
    board.set_state(PAUSE)
    answers: list[int] = []
    asking = threading.Thread(target=lambda: answers.append(view.state()))
    asking.start()
    asking.join(0.05)
    assert asking.is_alive()
    if ended_by == "the end of the run":
        board.set_end(time.monotonic_ns())
    else:
        board.set_state(GO if ended_by == "resume" else STOP)
    asking.join(30)
    assert answers == [GO if ended_by == "resume" else STOP]


def together(*loops: list[int]) -> list[int]:
    """What several loops' counters come to: sums, but of the largest lag the largest."""
    totals = [sum(column) for column in zip(*loops, strict=True)]
    totals[LAG_MAX_NS] = max(counts[LAG_MAX_NS] for counts in loops)
    return totals


@given(st.lists(st.lists(st.integers(0, 1 << 40), min_size=WIDTH, max_size=WIDTH), min_size=1, max_size=6))
def test_totals_are_the_sums_over_loops(loops: list[list[int]]) -> None:
    board = board_of(len(loops), 2)
    for index, counts in enumerate(loops):
        view = attached(board, index % 2)
        view.publish(index, [0] * WIDTH)
        view.publish(index, counts)  # cumulative: the last word counts
    assert board.totals() == together(*loops)
    assert board.failures() == []


def test_the_times_of_the_load_reach_every_worker() -> None:
    board = board_of(1, 2)
    view = attached(board, 1)
    assert (view.begin_ns(), view.end_ns()) == (0, 0)
    board.set_begin(5)
    board.set_end(1 << 60)
    assert (view.begin_ns(), view.end_ns()) == (5, 1 << 60)


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 300), st.integers(1, 1 << 60)), max_size=40))
def test_failures_are_merged_over_workers(events: list[tuple[int, int, int]]) -> None:
    events = sorted(events, key=lambda event: event[2])  # a worker's clock does not run backwards
    board = board_of(2, 3)
    views = [attached(board, worker) for worker in range(3)]
    for worker, number, t_ns in events:
        views[worker].error(number, t_ns)
    merged: dict[int, list[int]] = {}
    for _, number, t_ns in events:
        merged.setdefault(min(number, ERRNOS - 1), []).append(t_ns)
    found = board.failures()
    assert {f.number: f for f in found} == {n: Failure(n, len(ts), ts[0], ts[-1]) for n, ts in merged.items()}
    assert [f.count for f in found] == sorted((f.count for f in found), reverse=True)
    assert board.totals() == [0] * WIDTH


def test_no_writer_touches_anothers_cells() -> None:
    board = board_of(3, 2)
    one, two = attached(board, 0), attached(board, 1)
    one.publish(0, [1] * WIDTH)
    two.publish(2, [100] * WIDTH)
    one.error(0, 5)
    two.error(ERRNOS - 1, 6)
    assert board.totals() == together([1] * WIDTH, [100] * WIDTH)
    assert board.failures() == [Failure(0, 1, 5, 5), Failure(ERRNOS - 1, 1, 6, 6)]
    one.publish(0, [0] * WIDTH)
    two.publish(2, [0] * WIDTH)
    assert board.totals() == [0] * WIDTH
    assert board.failures() == [Failure(0, 1, 5, 5), Failure(ERRNOS - 1, 1, 6, 6)]


def _in_a_worker(view: WorkerBoard, loop: int) -> None:
    view.attach()
    view.publish(loop, list(range(WIDTH)))
    view.error(111, 7)


@pytest.mark.parametrize("method", [m for m in ("fork", "spawn") if m in multiprocessing.get_all_start_methods()])
def test_the_parent_reads_what_processes_write(method: str) -> None:
    context: BaseContext = multiprocessing.get_context(method)
    board = SharedBoard(context, 2, 2)
    workers = [
        context.Process(target=_in_a_worker, args=(board.for_worker(i), i))  # type: ignore[attr-defined]
        for i in range(2)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
        assert worker.exitcode == 0
    assert board.totals() == together(list(range(WIDTH)), list(range(WIDTH)))
    assert board.failures() == [Failure(111, 2, 7, 7)]


ORPHAN = """
import multiprocessing, os, sys, time
from ncps_raw.board import SharedBoard
from ncps_raw.engine.base import GO, PAUSE, STOP

def work(view):
    view.attach()
    assert view.state() == GO
    print("working", flush=True)
    while view.state() != STOP:
        time.sleep(0.01)
    print("stopped", flush=True)

if __name__ == "__main__":
    context = multiprocessing.get_context("fork")
    board = SharedBoard(context, 1, 1)
    board.set_state(GO)
    context.Process(target=work, args=(board.for_worker(0),)).start()
    if sys.argv[1] == "paused":
        time.sleep(0.2)
        board.set_state(PAUSE)
        print("paused", flush=True)
    time.sleep(600)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="the load of a killed parent ends by other means there")
@pytest.mark.parametrize("state", ["working", "paused"])
def test_a_worker_stops_when_its_parent_is_gone(state: str) -> None:
    parent = subprocess.Popen([sys.executable, "-c", ORPHAN, state], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    assert parent.stdout.readline() == "working\n"
    if state == "paused":
        assert parent.stdout.readline() == "paused\n"
    os.kill(parent.pid, signal.SIGKILL)
    assert parent.stdout.read() == "stopped\n"  # and then nobody holds the pipe any more
    assert parent.wait(30) == -signal.SIGKILL
    parent.stdout.close()
