"""The parts of a run that whole runs from the command line do not reach."""

import io
import json
import multiprocessing
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from loads import client_setup, free_ports, server_setup
from ncps_analysis.records import CONNECTION
from ncps_capture.errors import CaptureUnavailable, EnvironmentFault
from ncps_capture.spool import SpoolWriter, read_spool

from ncps_raw import affinity, session
from ncps_raw.engine import base
from ncps_raw.interrupts import Interrupts, LeaveNow
from ncps_raw.output import Output
from ncps_raw.plan import SECOND, ClientPlan, Plan, ServerPlan
from ncps_raw.session import Load, _Session, process_context, run, usable_cores
from ncps_raw.workers import Task, WorkerResult

PLAN = ClientPlan(target="127.0.0.1", threads=1, capture="off", format="json", duration_ns=SECOND)


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where runs make their folders; each test finds it empty."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def load(tasks: Callable[[str], list[Task]], **changes: object) -> Load:
    plain = Load(1, tasks, lambda failure: f"errno {failure.number}", "there", None, None, (), ())
    return replace(plain, **changes)  # type: ignore[arg-type]


def made(plan: Plan, folder: Path) -> _Session:
    output = Output("json", None, silent_rows=False, quiet=False)
    return _Session(plan, load(lambda folder: []), Interrupts(), output, str(folder))


# ---- whatever ends a run, nothing stays ---------------------------------------------------------------------------


def test_a_run_that_cannot_start_leaves_nothing(scratch: Path) -> None:
    (port,) = free_ports(1)
    setup = server_setup([[port, port]])  # twice: the second finds the address in use
    with pytest.raises(EnvironmentFault, match="cannot listen on"):
        run(PLAN, load(lambda folder: [Task(0, setup, f"{folder}/0")]))
    assert list(scratch.iterdir()) == []
    assert multiprocessing.active_children() == []


def test_a_second_interrupt_leaves_with_130_and_nothing_behind(
    scratch: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Leaving:
        def __init__(self, *a: object, **k: object) -> None:
            pass

        def watch(self, t0_ns: int) -> None:
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(session, "Monitor", Leaving)
    before = signal.getsignal(signal.SIGINT)
    assert run(PLAN, load(lambda folder: [Task(0, client_setup(9), f"{folder}/0")])) == 130
    assert list(scratch.iterdir()) == []
    assert multiprocessing.active_children() == []
    assert signal.getsignal(signal.SIGINT) is before
    assert capsys.readouterr() == ("", "ncps: left at once by a second interrupt, without a report\n")


def test_a_whole_run_reports_what_its_workers_left(scratch: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (dead,) = free_ports(1)
    setup = client_setup(dead, n=4, reconnect=False)
    code = run(PLAN, load(lambda folder: [Task(0, setup, f"{folder}/0")], notes=("cut",), remarks=("good",)))
    out, err = capsys.readouterr()
    figures = json.loads(out)
    assert code == 1  # all of them failed
    assert (figures["attempted"], figures["failed"], figures["established"]) == (4, 4, 0)
    assert figures["target"] == "there"
    assert "cut" in figures["notes"]
    assert figures["duration_s"] < 1  # the workers had nothing more to do
    assert err.splitlines() == ["ncps: cut", "ncps: good", "ncps: errno 111"]
    assert list(scratch.iterdir()) == []


# ---- capture ------------------------------------------------------------------------------------------------------


def test_a_capture_that_must_work_ends_the_run(scratch: Path) -> None:
    with pytest.raises(CaptureUnavailable, match="no route"):
        run(replace(PLAN, capture="required"), load(lambda folder: [], capture_problem="no route"))
    assert list(scratch.iterdir()) == []


def test_a_capture_that_may_fail_is_said(scratch: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made_ = _Session(
        replace(PLAN, capture="auto"),
        load(lambda folder: [], capture_problem="no route"),
        Interrupts(),
        Output("json", None, silent_rows=False, quiet=True),
        str(scratch),
    )
    assert made_._start_capture() is None
    assert capsys.readouterr() == ("", "ncps: no capture, figures are the kernel's: no route\n")


# ---- before the start -----------------------------------------------------------------------------------------------


class Crew:
    """Processes as far as placing them goes."""

    def pids(self) -> list[int]:
        return [501, 502]


def test_processes_are_placed_by_the_loops_they_drive(monkeypatch: pytest.MonkeyPatch, scratch: Path) -> None:
    pinned: dict[int, set[int]] = {}
    monkeypatch.setattr(os, "sched_setaffinity", pinned.__setitem__, raising=False)
    loops = [(0, 2), (1, 3)]
    tasks = [
        Task(n, client_setup(9, loops=tuple(replace(client_setup(9).loops[0], index=i) for i in each)), None)
        for n, each in enumerate(loops)
    ]
    session_ = made(replace(PLAN, threads=4, affinity=(5, 6, 7)), scratch)
    row = session_._placed(Crew(), tasks)  # type: ignore[arg-type]
    assert pinned == {501: {5, 7}, 502: {6, 5}}
    assert row == session_._output.row


def test_rows_go_to_whoever_looks_for_free_processors_too(monkeypatch: pytest.MonkeyPatch, scratch: Path) -> None:
    fed: list[object] = []

    class Finder:
        def __init__(self, pids: list[int], say: object) -> None:
            fed.append(pids)

        def row(self, interval: object) -> None:
            fed.append(interval)

    monkeypatch.setattr(affinity, "FindNonRss", Finder)
    session_ = made(replace(PLAN, affinity_nonrss=True), scratch)
    shown: list[object] = []
    monkeypatch.setattr(session_._output, "row", shown.append)
    row = session_._placed(Crew(), [])  # type: ignore[arg-type]
    row("a row")  # type: ignore[arg-type]
    assert fed == [[501, 502], "a row"]
    assert shown == ["a row"]


def test_a_system_that_cannot_choose_processors_says_so_and_goes_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delattr(os, "sched_setaffinity", raising=False)
    (dead,) = free_ports(1)
    plan = replace(PLAN, affinity=(0,), format="jsonl", silent_rows=True)
    setup = client_setup(dead, n=1, reconnect=False)
    run(plan, load(lambda folder: [Task(0, setup, f"{folder}/0")]))
    assert capsys.readouterr().err.splitlines()[0].startswith("ncps: --affinity: this system does not let")


@pytest.mark.parametrize("stream", [None, "closed", "no file"])
def test_an_input_that_is_not_there(stream: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    made_: object = None
    if stream is not None:
        made_ = io.StringIO("p")
        if stream == "closed":
            made_.close()
    monkeypatch.setattr(sys, "stdin", made_)
    assert session._standard_input() is None


def test_a_delay_ends_at_once_with_an_interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    interrupts, naps = Interrupts(), []

    def sleep(seconds: float) -> None:
        naps.append(seconds)
        if len(naps) == 3:
            interrupts.stop("SIGINT")

    monkeypatch.setattr(session, "time", SimpleNamespace(monotonic_ns=lambda: 0, sleep=sleep))
    out = Output("json", None, silent_rows=False, quiet=True)
    session._delay(replace(PLAN, delay_ns=3600 * SECOND), interrupts, out)
    assert len(naps) == 3
    assert max(naps) <= 0.1
    session._delay(PLAN, Interrupts(), out)  # none wanted
    assert len(naps) == 3


# ---- exit codes ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("attempted", "failed", "not_started", "max_failed", "dialect", "code"),
    [
        (0, 0, 0, None, False, 0),
        (10, 9, 0, None, False, 0),
        (10, 10, 0, None, False, 1),
        (10, 6, 4, None, False, 1),
        (10, 0, 0, 0.0, False, 0),
        (10, 1, 0, 0.0, False, 1),
        (1000, 4, 1, 0.005, False, 0),
        (1000, 5, 1, 0.005, False, 1),
        (0, 0, 0, 0.0, False, 0),
        (10, 10, 0, 1.0, False, 0),
        (10, 10, 0, None, True, 0),
    ],
)
def test_exit_codes(
    scratch: Path,
    attempted: int,
    failed: int,
    not_started: int,
    max_failed: float | None,
    dialect: bool,
    code: int,
) -> None:
    plan = replace(PLAN, max_failed=max_failed, dialect=dialect)
    totals = [0] * len(base.COUNTERS)
    totals[base.ATTEMPTED], totals[base.FAILED], totals[base.NOT_STARTED] = attempted, failed, not_started
    totals[base.ESTABLISHED] = attempted - failed - not_started
    assert made(plan, scratch)._exit_code(totals, incomplete=False) == code
    assert made(plan, scratch)._exit_code(totals, incomplete=True) == 1


@pytest.mark.parametrize(("max_failed", "code"), [(None, 1), (0.0, 1), (1.0, 0)])
def test_a_target_that_never_answers_has_failed(scratch: Path, max_failed: float | None, code: int) -> None:
    totals = [0] * len(base.COUNTERS)
    totals[base.ATTEMPTED] = 10
    assert made(replace(PLAN, max_failed=max_failed), scratch)._exit_code(totals, incomplete=False) == code


# ---- bringing the records together --------------------------------------------------------------------------------

A, B = ("10.0.0.1", "10.0.0.9"), ("10.0.0.2", "10.0.0.9")


def worker(folder: Path, name: str, numbers: list[int], *paths: tuple[str, str], died: bool = False) -> WorkerResult:
    rows = np.zeros(len(numbers), CONNECTION)
    rows["path"] = numbers
    with SpoolWriter(folder / name, CONNECTION) as out:
        out.append(rows)
    return WorkerResult(str(folder / name), paths, "killed" if died else None)


def gathered(plan: Plan, folder: Path, *workers: WorkerResult) -> list[list[tuple[str, str]]]:
    files, table = made(plan, folder)._gather(workers)
    return [[table[number] for number in read_spool(file, CONNECTION)["path"]] for file in files]


def test_the_same_table_everywhere_is_left_as_it_is(scratch: Path) -> None:
    one, two = worker(scratch, "one", [0, 1], A, B), worker(scratch, "two", [1], A, B)
    files, table = made(PLAN, scratch)._gather([one, two])
    assert files == (one.spool, two.spool)
    assert table == (A, B)


def test_different_tables_become_one(scratch: Path) -> None:
    one, two = worker(scratch, "one", [0, 1], A, B), worker(scratch, "two", [0, 0], B)
    assert gathered(PLAN, scratch, one, two) == [[A, B], [B, B]]


def test_workers_that_kept_nothing_are_left_out(scratch: Path) -> None:
    absent = WorkerResult(str(scratch / "absent"), (B,))
    assert gathered(PLAN, scratch, worker(scratch, "one", [0], A), absent, WorkerResult(None)) == [[A]]


def test_a_client_that_died_can_only_have_used_the_one_pair(scratch: Path) -> None:
    one, dead = worker(scratch, "one", [0], A), worker(scratch, "dead", [0, 0], died=True)
    assert gathered(PLAN, scratch, one, dead) == [[A], [A, A]]


@pytest.mark.parametrize(
    "plan",
    [replace(PLAN, bind=("10.0.0.1", "10.0.0.2")), ServerPlan(threads=1)],
    ids=["a client with two addresses", "a server"],
)
def test_otherwise_the_addresses_of_one_that_died_are_unknown(scratch: Path, plan: Plan) -> None:
    one, dead = worker(scratch, "one", [0], A), worker(scratch, "dead", [0, 3], died=True)
    assert gathered(plan, scratch, one, dead) == [[A], [("", ""), ("", "")]]


def test_when_all_have_died_nothing_is_known(scratch: Path) -> None:
    assert gathered(PLAN, scratch, worker(scratch, "dead", [0, 1], died=True)) == [[("", ""), ("", "")]]


# ---- this machine -------------------------------------------------------------------------------------------------


def test_cores_are_those_this_process_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {3, 5, 6}, raising=False)
    assert usable_cores() == 3
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert usable_cores() == 1


def test_fork_only_where_it_is_safe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "sys", SimpleNamespace(platform="linux"))
    monkeypatch.setattr(threading, "active_count", lambda: 1)
    assert process_context().get_start_method() == "fork"
    monkeypatch.setattr(threading, "active_count", lambda: 2)
    assert process_context().get_start_method() == "spawn"
    monkeypatch.setattr(session, "sys", SimpleNamespace(platform="darwin"))
    monkeypatch.setattr(threading, "active_count", lambda: 1)
    assert process_context().get_start_method() == "spawn"


def test_leaving_is_not_swallowed_on_the_way(scratch: Path) -> None:
    def tasks(folder: str) -> list[Task]:
        raise LeaveNow

    assert run(PLAN, load(tasks)) == 130
    assert list(scratch.iterdir()) == []
