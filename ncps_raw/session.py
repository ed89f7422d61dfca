"""One run from start to report: scratch folder, capture process, workers, start line, watch, drain, join, render.

The one idea: whatever ends the run, the order of leaving is the same. Workers drain, then the capture drains, then both
spools are joined, and nothing stays behind: no process, no shared memory, no file.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.context import BaseContext
from pathlib import Path
from typing import TYPE_CHECKING

from ncps_analysis.records import Interval, Run, ScheduleFacts, WireFacts
from ncps_capture.errors import CaptureUnavailable, EnvironmentFault
from ncps_capture.segments import CaptureSpec

from ncps_raw import __version__, affinity
from ncps_raw.board import Failure, SharedBoard
from ncps_raw.controls import LETTERS, Controls
from ncps_raw.engine.base import (
    ATTEMPTED,
    DUE,
    ESTABLISHED,
    FAILED,
    HELD_UP,
    LAG_MAX_NS,
    LAG_NS,
    LATE,
    NOT_STARTED,
    OPTIONS_FAILED,
)
from ncps_raw.engine.base import Path as AddressPair
from ncps_raw.engine.kernel import AVAILABLE
from ncps_raw.interrupts import LEFT_BY_SECOND, Interrupts, LeaveNow
from ncps_raw.keys import Keys
from ncps_raw.monitor import Monitor, Watched
from ncps_raw.output import Output
from ncps_raw.plan import ClientPlan, Plan
from ncps_raw.scratch import scratch_folder
from ncps_raw.workers import Crew, Task, WorkerResult

if TYPE_CHECKING:
    from ncps_analysis.model import RunReport
    from ncps_analysis.runfile import RunWriter
    from ncps_capture.process import CaptureProcess

WORKER_PATIENCE_S = 20.0
CAPTURE_GRACE_S = 1.0
DRAIN_NS = 1_000_000_000
DELAY_SLICE_S = 0.05


@dataclass(frozen=True)
class Load:
    """What makes the load of one run: a task for each process, and how failures are explained."""

    loops: int
    tasks: Callable[[str], Sequence[Task]]  # folder for spools -> tasks
    advise: Callable[[Failure], str]
    target: str
    capture: CaptureSpec | None  # what to capture; None = capture was not wanted
    capture_problem: str | None  # why it cannot be captured, where that is known before
    notes: tuple[str, ...]  # for the report: what was changed about the plan
    remarks: tuple[str, ...]  # for the person, once everything stands ready
    most_records: int | None = None  # more connections than these leave no record
    explain: Callable[[Sequence[Failure]], tuple[str, ...]] = lambda failures: ()  # for the report: what failed here


def schedule_facts(plan: Plan, totals: Sequence[int]) -> ScheduleFacts | None:
    """How the schedule of a plan with a rate was kept, by the workers' counters."""
    if not isinstance(plan, ClientPlan) or plan.rate is None:
        return None
    return ScheduleFacts(
        per_second=float(plan.rate),
        due=max(totals[DUE], totals[ATTEMPTED]),
        started=totals[ATTEMPTED],
        late=totals[LATE],
        held_up=totals[HELD_UP],
        lag_ns=totals[LAG_NS],
        lag_max_ns=totals[LAG_MAX_NS],
    )


def _options_refused(totals: Sequence[int]) -> list[str]:
    """What to say of connections that the system would not tell of or keep alive."""
    n = totals[OPTIONS_FAILED]
    return [f"the system refused TCP_INFO or keep-alive {n:,} times: the connections went on without"] if n else []


def usable_cores() -> int:
    """Cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def process_context() -> BaseContext:
    """Fork where it is safe (Linux, no threads yet): ready sooner, and nothing is pickled."""
    if sys.platform.startswith("linux") and threading.active_count() == 1:
        return multiprocessing.get_context("fork")
    return multiprocessing.get_context("spawn")


def run(plan: Plan, load: Load, interrupts: Interrupts | None = None) -> int:
    """Carry out ``plan`` and print its report. Returns the exit code; raises NcpsError for what prevents a start.

    ``interrupts`` may have been entered before, so that a signal during start-up is not lost.
    """
    cannot_pin = affinity.check(plan.affinity, "-aff" if plan.dialect else "--affinity")
    try:
        with (
            interrupts or Interrupts() as interrupts,
            _place_for_the_run(plan) as place,
            Output(
                plan.format,
                plan.output,
                silent_rows=plan.silent_rows,
                quiet=plan.quiet,
                brief=plan.brief,
                on_gone=lambda: interrupts.stop("SIGPIPE"),
            ) as output,
            Keys(LETTERS, _standard_input(), pipes=plan.dialect) as keys,
        ):
            if cannot_pin is not None:
                output.say(cannot_pin)
            _delay(plan, interrupts, output)
            with scratch_folder() as folder:
                return _Session(plan, load, interrupts, output, folder, place, keys).carry_out()
    except LeaveNow:
        with contextlib.suppress(OSError, AttributeError):
            sys.stderr.write("ncps: left at once by a second interrupt, without a report\n")
        return LEFT_BY_SECOND


def _standard_input() -> int | None:
    """None where it is closed, or is no file at all."""
    try:
        return sys.stdin.fileno() if sys.stdin is not None else None
    except (OSError, ValueError):
        return None


def _delay(plan: Plan, interrupts: Interrupts, output: Output) -> None:
    """Sleep before anything starts. An interrupt ends the sleep, and then a run that ends before it has begun."""
    if not plan.delay_ns:
        return
    output.remark(f"starting in {plan.delay_ns / 1e9:g} s")
    start_ns = time.monotonic_ns() + plan.delay_ns
    while not interrupts.stopped() and (left_ns := start_ns - time.monotonic_ns()) > 0:
        time.sleep(min(DELAY_SLICE_S, left_ns / 1e9))


def _place_for_the_run(plan: Plan) -> contextlib.AbstractContextManager[RunWriter | None]:
    """Taken before anything starts or is truncated: a long run must not end in "cannot write"."""
    if plan.run is None:
        return contextlib.nullcontext()
    from ncps_analysis.runfile import RunWriter

    return RunWriter(plan.run)


class _Session:
    """The parts of one run while it lasts."""

    def __init__(
        self,
        plan: Plan,
        load: Load,
        interrupts: Interrupts,
        output: Output,
        folder: str,
        place: RunWriter | None = None,
        keys: Keys | None = None,
    ) -> None:
        self._plan = plan
        self._load = load
        self._interrupts = interrupts
        self._output = output
        self._folder = folder
        self._place = place
        self._keys = keys or Keys(LETTERS, None, pipes=False)
        self._context = process_context()
        self._processes = 0
        self._capture_problem = load.capture_problem

    def carry_out(self) -> int:
        """From the first process to the last line of the report."""
        plan, load = self._plan, self._load
        capture = self._start_capture()
        tasks = load.tasks(self._folder)
        self._processes = len(tasks)
        board = SharedBoard(self._context, load.loops, len(tasks))
        crew = Crew(board)
        try:
            crew.start(self._context, tasks)
            row = self._placed(crew, tasks)
            capture = self._await_capture(capture)
            ready = crew.wait_ready(self._interrupts.stopped)
            controls = Controls(self._keys, hold=crew.hold, next_form=self._output.next_form, say=self._output.say)
            monitor = Monitor(
                plan,
                board,
                crew,
                capture,
                self._interrupts,
                row=row,
                say=self._output.say,
                advise=load.advise,
                look=controls.look,
            )
            for text in (*load.notes, *load.remarks):
                self._output.remark(text)
            t0_ns = time.monotonic_ns()  # before the line opens: no connection is older than the run
            board.set_begin(t0_ns)
            if plan.duration_ns is not None:
                board.set_end(t0_ns + plan.duration_ns)
            if ready:  # else interrupted before it began: the report of a run without connections
                crew.go()
            else:
                self._output.say(f"interrupted by {self._interrupts.stopped_by} before the load began")
            seen = monitor.watch(t0_ns)
            seen.notes += [note for note in (controls.note(seen.end_ns),) if note]
            workers = crew.finish(WORKER_PATIENCE_S)
            seen.pair_clocks()
            wire = self._finish_capture(capture, board.totals()[ESTABLISHED], seen.capture_ended) if ready else None
        finally:
            crew.kill()
            if capture is not None:
                capture.kill()
        return self._report(seen, workers, board, wire)

    def _placed(self, crew: Crew, tasks: Sequence[Task]) -> Callable[[Interval], None]:
        """Put the processes on the processors wished for; what takes the rows, and may still do so later."""
        plan, row = self._plan, self._output.row
        if plan.affinity:
            loops = [[loop.index for loop in task.setup.loops] for task in tasks]
            affinity.pin(crew.pids(), affinity.shares(loops, plan.affinity))
        if not plan.affinity_nonrss:
            return row
        finder = affinity.FindNonRss(crew.pids(), self._output.say)

        def show_and_find(interval: Interval) -> None:
            row(interval)
            finder.row(interval)

        return show_and_find

    # ---- capture --------------------------------------------------------------------------------------------

    def _start_capture(self) -> CaptureProcess | None:
        """Start it first; whether it is ready is asked later, so that both sides prepare at the same time."""
        spec = self._load.capture
        if spec is None:
            if self._capture_problem is not None:
                self._no_capture(CaptureUnavailable(self._capture_problem))
            return None
        from ncps_capture.process import CaptureProcess  # numpy-heavy, and not needed without a capture

        return CaptureProcess.start(CaptureSpec(**{**vars(spec), "spool_dir": self._folder}), self._context)

    def _await_capture(self, capture: CaptureProcess | None) -> CaptureProcess | None:
        if capture is None:
            return None
        try:
            capture.wait_ready()
        except CaptureUnavailable as error:
            self._no_capture(error)
            return None
        if capture.note is not None:
            self._output.remark(capture.note)
        return capture

    def _no_capture(self, error: CaptureUnavailable) -> None:
        """Fail if the capture is required; else go on with the kernel's figures and say so in one line."""
        if self._plan.capture == "required":
            raise error
        self._capture_problem = str(error)
        self._output.say(f"no capture, figures are the kernel's: {error}")

    def _finish_capture(self, capture: CaptureProcess | None, established: int, known_ended: bool) -> WireFacts | None:
        if capture is None:
            return None
        result = capture.finish(established, CAPTURE_GRACE_S)
        if result.died is not None and not known_ended:
            self._output.say(f"{result.died}: handshakes after that are unknown")
        if result.write_problem is not None:
            self._output.say(result.write_problem)
        return WireFacts(**{**vars(result), "vantage": self._plan.role})

    # ---- report ---------------------------------------------------------------------------------------------

    def _report(
        self, seen: Watched, workers: Sequence[WorkerResult], board: SharedBoard, wire: WireFacts | None
    ) -> int:
        from ncps_analysis.records import CONNECTION
        from ncps_capture.spool import read_spool

        plan, load, totals = self._plan, self._load, board.totals()
        files, paths = self._gather(workers)
        attempted = totals[ATTEMPTED]
        kept = sum(len(read_spool(path, CONNECTION)) for path in files)
        if kept < attempted and load.most_records is not None and kept >= load.most_records:
            seen.notes.append(f"the report covers the first {kept} of {attempted} connections")
            attempted = kept
        faults = tuple(w.failure for w in workers if w.failure)
        options = _options_refused(totals)
        notes = [
            *load.notes,
            *load.explain(board.failures()),
            *options,
            *(note for note in seen.notes if note not in faults),
        ]
        if not totals[ESTABLISHED] and totals[ATTEMPTED] > totals[FAILED] + totals[NOT_STARTED]:
            self._output.say(f"no answer from {load.target} to {totals[ATTEMPTED]} connects: is it up, is it filtered?")
        report = self._tell(
            Run(
                role=plan.role,
                command_line=plan.command_line,
                version=__version__,
                target=load.target,
                mode=plan.mode,
                threads=plan.threads,
                processes=self._processes,
                engine=plan.engine,
                t0_ns=seen.t0_ns,
                record_start_ns=seen.record_start_ns,
                end_ns=seen.end_ns,
                warmup_s=plan.warmup_ns / 1e9,
                paths=paths,
                connection_files=files,
                clock=seen.clock(),
                intervals=tuple(seen.intervals),
                rx_bytes=seen.bytes_at_end[0] - seen.bytes_at_start[0],
                tx_bytes=seen.bytes_at_end[1] - seen.bytes_at_start[1],
                kernel_rtt=AVAILABLE,
                wire=wire,
                capture_problem=self._capture_problem,
                interrupted=seen.interrupted,
                planned_s=None if plan.duration_ns is None else plan.duration_ns / 1e9,
                attempted=attempted,
                notes=tuple(notes),
                faults=faults,
                schedule=schedule_facts(plan, totals),
                first_errors=tuple((f.number, f.count, f.first_ns, f.last_ns) for f in board.failures()),
            )
        )
        blind = wire is None or wire.died is not None or wire.write_problem is not None
        if plan.capture == "required" and report.attempted and (blind or (report.connections and not report.matched)):
            return EnvironmentFault.exit_code
        return self._exit_code(totals, bool(faults) or self._output.gone)

    def _tell(self, finished: Run) -> RunReport:
        """Report, then save: a person waits for the first. The run is saved even if its report cannot be written."""
        from ncps_analysis.summary import build_report

        try:
            report = build_report(finished, self._folder)
            self._output.report(report)
        finally:
            if self._place is not None:
                self._place.save(finished)
        return report

    def _gather(self, workers: Sequence[WorkerResult]) -> tuple[tuple[str, ...], tuple[AddressPair, ...]]:
        """All spools, and one table of paths for all of them.

        Each worker numbered the pairs of addresses for itself; where there is more than one pair in all, the records
        are numbered again as they are copied into one table. A worker that ended early has not told its numbers: its
        records have no addresses, unless a client can only have used the pair that the others used.
        """
        kept = [w for w in workers if w.spool is not None and Path(w.spool).exists()]
        tables = {w.paths for w in kept if w.paths}
        paths = next(iter(tables), ())
        only_pair = self._plan.role == "client" and len(self._plan.bind) <= 1 and len(paths) == 1
        if len(tables) <= 1 and (only_pair or not any(w.failure for w in kept)):
            return tuple(str(w.spool) for w in kept), paths
        from ncps_raw.paths import renumber

        return renumber(kept)

    def _exit_code(self, totals: list[int], incomplete: bool) -> int:
        if incomplete:
            return 1
        if self._plan.dialect and self._plan.max_failed is None:
            return 0
        attempted, failed = totals[ATTEMPTED], totals[FAILED] + totals[NOT_STARTED]
        if not totals[ESTABLISHED]:
            failed = attempted  # what nobody has answered until the drain was over is as good as failed
        if self._plan.max_failed is not None:
            return 1 if attempted and failed > self._plan.max_failed * attempted else 0
        return 1 if attempted and failed == attempted else 0
