"""Worker processes: ready, held, stopped; and what is heard of those that fail or die."""

import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from loads import client_setup, free_ports, server_setup
from ncps_analysis.records import CLOSED, CONNECTION, Connections
from ncps_capture.errors import EnvironmentFault
from ncps_capture.spool import read_spool

from ncps_raw import workers
from ncps_raw.board import SharedBoard
from ncps_raw.engine import base
from ncps_raw.engine.base import CLOSED as CLOSED_COUNT
from ncps_raw.engine.base import ESTABLISHED, ClientLoop, ServerSetup
from ncps_raw.ports import ClientPorts
from ncps_raw.workers import Crew, Task, split_loops

pytestmark = pytest.mark.skipif(
    "fork" not in multiprocessing.get_all_start_methods(), reason="these tests patch what workers inherit by fork"
)
FORK = multiprocessing.get_context("fork") if sys.platform != "win32" else multiprocessing.get_context()
PATIENCE_S = 30.0


@pytest.fixture
def crew() -> Iterator[Callable[[int, int], Crew]]:
    made = []

    def make(loops: int, count: int) -> Crew:
        made.append(Crew(SharedBoard(FORK, loops, count)))
        return made[-1]

    yield make
    for each in made:
        each.kill()


def serving(number: int, port: int, folder: Path) -> Task:
    setup = server_setup([[port]])
    return Task(number, with_index(setup, number), str(folder / f"{number}.spool"))


def with_index(setup: ServerSetup, index: int) -> ServerSetup:
    loops = (base.ServerLoop(index, setup.loops[0].ports),)
    return ServerSetup(**{**vars(setup), "loops": loops})


def loading(number: int, port: int, folder: Path, **wishes: object) -> Task:
    loop = ClientLoop(number, 5, 5, ClientPorts((port,), (), False))
    return Task(number, client_setup(port, loops=(loop,), **wishes), str(folder / f"{number}.spool"))


def never() -> bool:
    return False


def until(crew: Crew, condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not happen"
        crew.listen(0.01)


def rows(spool: str | None) -> Connections:
    assert spool is not None
    return read_spool(spool, CONNECTION)


def pids(crew: Crew) -> list[int]:
    return [worker.process.pid or 0 for worker in crew._workers]


# ---- a whole life -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_server_and_client_workers_from_start_to_results(method: str, tmp_path: Path) -> None:
    context = multiprocessing.get_context(method)
    one, two = free_ports(2)
    crew = Crew(SharedBoard(context, 4, 4))
    tasks = [serving(0, one, tmp_path), serving(1, two, tmp_path)]
    tasks += [loading(2, one, tmp_path), loading(3, two, tmp_path)]
    try:
        crew.start(context, tasks)
        assert crew.wait_ready(never)
        assert crew.working() == 4
        assert crew.board.totals() == [0] * len(base.COUNTERS)  # nobody has moved
        crew.go()
        until(crew, lambda: crew.board.totals()[CLOSED_COUNT] > 200, "200 connections")
        crew.stop()
        results = crew.finish(PATIENCE_S)
    finally:
        crew.kill()
    assert [result.spool for result in results] == [task.spool for task in tasks]
    assert [result.failure for result in results] == [None] * 4
    assert [result.paths for result in results] == [(("127.0.0.1", "127.0.0.1"),)] * 4
    kept = [rows(result.spool) for result in results]
    for number, records in enumerate(kept):
        assert set(records["loop"]) == {number}
    assert sum(len(records) for records in kept) == crew.board.totals()[base.ATTEMPTED]
    for served, loaded in ((0, 2), (1, 3)):
        mine = kept[loaded][kept[loaded]["outcome"] == CLOSED]
        assert not Counter(mine["lport"].tolist()) - Counter(kept[served]["rport"].tolist())
    assert crew.working() == 0
    assert crew.failures() == []


def test_workers_listen_before_the_start_and_accept_after_it(crew: Callable[[int, int], Crew], tmp_path: Path) -> None:
    (port,) = free_ports(1)
    made = crew(1, 1)
    made.start(FORK, [serving(0, port, tmp_path)])
    assert made.wait_ready(never)
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as sock:
        sock.sendall(b"early")
        assert made.board.totals()[ESTABLISHED] == 0
        made.go()
        assert sock.recv(10) == b"early"
    made.stop()
    assert len(rows(made.finish(PATIENCE_S)[0].spool)) == 1


def test_a_client_that_has_made_all_ends_without_being_told(crew: Callable[[int, int], Crew], tmp_path: Path) -> None:
    (port,) = free_ports(1)
    made = crew(1, 1)
    made.start(FORK, [loading(0, port, tmp_path, reconnect=False)])
    assert made.wait_ready(never)
    made.go()
    until(made, lambda: made.working() == 0, "the end")
    assert made.failures() == []
    assert len(rows(made.finish(0)[0].spool)) == 5


# ---- what can go wrong --------------------------------------------------------------------------------------------


def test_a_worker_that_cannot_begin_says_why_in_one_line(crew: Callable[[int, int], Crew], tmp_path: Path) -> None:
    (free,) = free_ports(1)
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        port = busy.getsockname()[1]
        made = crew(2, 2)
        made.start(FORK, [serving(0, free, tmp_path), serving(1, port, tmp_path)])
        with pytest.raises(EnvironmentFault) as caught:
            made.wait_ready(never)
    assert str(caught.value) == (
        f"cannot listen on 127.0.0.1 port {port}: Address already in use; is another server running there? "
        "Choose another port or address"
    )


def test_no_place_for_records_is_said(crew: Callable[[int, int], Crew], tmp_path: Path) -> None:
    made = crew(1, 1)
    made.start(FORK, [loading(0, 9, tmp_path / "absent")])
    with pytest.raises(EnvironmentFault, match=r"cannot create .*absent"):
        made.wait_ready(never)


def test_a_fault_of_ours_names_its_place(
    crew: Callable[[int, int], Crew], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*a: object) -> None:
        raise ValueError("no such thing")

    monkeypatch.setattr(workers, "_engine", broken)
    made = crew(1, 1)
    made.start(FORK, [loading(0, 9, tmp_path)])
    with pytest.raises(
        EnvironmentFault, match=r"^worker 0 failed: ValueError: no such thing \(test_workers\.py:\d+\)$"
    ):
        made.wait_ready(never)


def test_a_fault_in_the_middle_of_a_run_is_a_failure_of_that_worker(
    crew: Callable[[int, int], Crew], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Breaking:
        def run(self) -> None:
            raise KeyError("x")

    monkeypatch.setattr(workers, "_engine", lambda *a: Breaking())
    made = crew(1, 1)
    made.start(FORK, [loading(0, 9, tmp_path)])
    assert made.wait_ready(never)
    made.go()
    until(made, lambda: made.working() == 0, "the end")
    (failure,) = made.failures()
    assert failure.startswith("worker 0 failed: KeyError: 'x'")
    assert made.finish(0)[0].failure == failure


def test_a_worker_that_is_killed_is_noticed_and_survived(crew: Callable[[int, int], Crew], tmp_path: Path) -> None:
    one, two = free_ports(2)
    made = crew(2, 2)
    made.start(FORK, [serving(0, one, tmp_path), serving(1, two, tmp_path)])
    assert made.wait_ready(never)
    made.go()
    os.kill(pids(made)[0], signal.SIGKILL)
    until(made, lambda: made.working() == 1, "the death")
    assert made.failures() == ["worker 0 ended early (signal 9)"]
    with socket.create_connection(("127.0.0.1", two), timeout=PATIENCE_S) as sock:
        sock.sendall(b"x")
        assert sock.recv(10) == b"x"
    made.stop()
    dead, alive = made.finish(PATIENCE_S)
    assert (dead.paths, dead.failure) == ((), "worker 0 ended early (signal 9)")
    assert alive.failure is None
    assert len(rows(alive.spool)) == 1
    assert len(rows(dead.spool)) == 0  # the spool of the dead is still one


def test_a_worker_that_dies_before_the_start_is_the_reason(
    crew: Callable[[int, int], Crew], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "_engine", lambda *a: os._exit(7))
    made = crew(1, 1)
    made.start(FORK, [loading(0, 9, tmp_path)])
    with pytest.raises(EnvironmentFault, match=r"^worker 0 ended early \(exit code 7\)$"):
        made.wait_ready(never)


def test_one_that_does_not_stop_is_ended(
    crew: Callable[[int, int], Crew], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Deaf:
        def run(self) -> None:
            while True:
                signal.pause()

    monkeypatch.setattr(workers, "_engine", lambda *a: Deaf())
    made = crew(1, 1)
    made.start(FORK, [loading(0, 9, tmp_path)])
    assert made.wait_ready(never)
    made.go()
    made.stop()
    (result,) = made.finish(0.05)
    assert result.failure == "worker 0 did not stop and was ended"
    assert not made._workers[0].process.is_alive()


def test_a_stop_right_after_the_start_is_an_ordinary_end(crew: Callable[[int, int], Crew], tmp_path: Path) -> None:
    made = crew(2, 2)
    made.start(FORK, [loading(i, 9, tmp_path) for i in range(2)])
    assert made.wait_ready(never)
    made.go()
    made.stop()
    assert [result.failure for result in made.finish(PATIENCE_S)] == [None, None]


def test_not_ready_in_time(crew: Callable[[int, int], Crew], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "_engine", lambda *a: signal.pause())
    made = crew(1, 1)
    made.start(FORK, [loading(0, 9, tmp_path)])
    with pytest.raises(EnvironmentFault, match=r"cannot start the workers: not ready within 0\.05 s"):
        made.wait_ready(never, 0.05)


def test_an_interrupt_before_the_start(
    crew: Callable[[int, int], Crew], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "_engine", lambda *a: signal.pause())
    made = crew(1, 1)
    made.start(FORK, [loading(0, 9, tmp_path)])
    assert not made.wait_ready(lambda: True)


def test_signals_of_the_terminal_are_the_parents_business(crew: Callable[[int, int], Crew], tmp_path: Path) -> None:
    (port,) = free_ports(1)
    made = crew(1, 1)
    made.start(FORK, [serving(0, port, tmp_path)])
    assert made.wait_ready(never)
    made.go()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
        os.kill(pids(made)[0], number)
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as sock:
        sock.sendall(b"x")
        assert sock.recv(10) == b"x"
    made.stop()
    assert made.finish(PATIENCE_S)[0].failure is None


ORPHANS = """
import multiprocessing, sys, time
sys.path.insert(0, {helpers!r})
from loads import client_setup
from ncps_raw.board import SharedBoard
from ncps_raw.workers import Crew, Task

context = multiprocessing.get_context("fork")
crew = Crew(SharedBoard(context, 1, 3))
crew.start(context, [Task(i, client_setup(9), {folder!r} + f"/{{i}}") for i in range(3)])
crew.wait_ready(lambda: False)
print("ready", flush=True)
time.sleep(600)
"""


def test_workers_at_the_start_line_leave_when_the_parent_is_gone(tmp_path: Path) -> None:
    code = ORPHANS.format(helpers=str(Path(__file__).parent), folder=str(tmp_path))
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "ready\n"
        os.kill(parent.pid, signal.SIGKILL)
        assert parent.stdout.read() == ""  # the end comes when the last worker has gone


# ---- shares -------------------------------------------------------------------------------------------------------


def test_loops_go_round_the_processes() -> None:
    assert split_loops(5, 2) == [[0, 2, 4], [1, 3]]
    assert split_loops(2, 2) == [[0], [1]]


@given(st.integers(1, 100), st.data())
def test_each_loop_has_one_process(loops: int, data: st.DataObject) -> None:
    processes = data.draw(st.integers(1, loops))
    shares = split_loops(loops, processes)
    assert len(shares) == processes
    assert sorted(loop for share in shares for loop in share) == list(range(loops))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1
