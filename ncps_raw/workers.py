"""Worker processes: started before any thread exists, held at a start line, stopped through shared memory.

The one idea: the parent never waits for a worker without also seeing its end. A worker that cannot begin says why in
one line; one that dies is noticed, named and survived by the others.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Final

from ncps_analysis.records import CONNECTION
from ncps_capture.errors import EnvironmentFault, NcpsError
from ncps_capture.spool import SpoolWriter

from ncps_raw.board import SharedBoard, WorkerBoard
from ncps_raw.engine.base import GO, PAUSE, STOP, ClientSetup, ServerSetup
from ncps_raw.engine.base import Path as AddressPair

IGNORED_SIGNALS: Final = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)
"""A terminal sends Ctrl-C to the whole group: the parent alone decides what it means."""


@dataclass(frozen=True)
class Task:
    """What one worker process does."""

    number: int
    setup: ClientSetup | ServerSetup
    spool: str | None  # where its records go; None = they are not kept


@dataclass(frozen=True)
class WorkerResult:
    """What a worker leaves: the pairs of addresses its records point at. ``failure`` is why it ended early."""

    spool: str | None
    paths: tuple[AddressPair, ...] = ()
    failure: str | None = None


@dataclass
class _Worker:
    task: Task
    process: BaseProcess
    pipe: Connection
    ready: bool = False
    result: WorkerResult | None = None


@dataclass
class Crew:
    """All workers of a run."""

    board: SharedBoard
    _workers: list[_Worker] = field(default_factory=list)

    def start(self, context: BaseContext, tasks: Sequence[Task]) -> None:
        """Start a process for each task; each prepares itself and waits for the start line."""
        for task in tasks:
            ours, theirs = context.Pipe()
            process: BaseProcess = context.Process(  # type: ignore[attr-defined]
                target=_work,
                args=(task, self.board.for_worker(task.number), theirs),
                name=f"worker {task.number}",
                daemon=True,
            )
            process.start()
            theirs.close()
            self._workers.append(_Worker(task, process, ours))

    def wait_ready(self, stop: Callable[[], bool], timeout_s: float = 30.0) -> bool:
        """True when all stand at the start line; False if ``stop`` said so first. Raises the first worker's reason."""
        deadline = time.monotonic() + timeout_s
        while not all(worker.ready for worker in self._workers):
            if stop():
                return False
            if time.monotonic() > deadline:
                raise EnvironmentFault(f"cannot start the workers: not ready within {timeout_s:g} s")
            self.listen(0.1)
            for worker in self._workers:
                if worker.result is not None:
                    raise EnvironmentFault(worker.result.failure or f"{worker.process.name} ended before the start")
        return True

    def go(self) -> None:
        """Open the start line."""
        self.board.set_state(GO)
        for worker in self._workers:
            try:
                worker.pipe.send(GO)
            except OSError:  # it has just died: listen() will say so
                continue

    def stop(self) -> None:
        """Ask all to drain and end."""
        self.board.set_state(STOP)

    def hold(self, held: bool) -> None:
        """Let all stand still where they are, or go on."""
        self.board.set_state(PAUSE if held else GO)

    def pids(self) -> list[int]:
        """Numbers of the processes, in the order of the tasks."""
        return [worker.process.pid or 0 for worker in self._workers]

    def working(self) -> int:
        """How many are still at it."""
        return sum(worker.result is None for worker in self._workers)

    def failures(self) -> list[str]:
        """Why workers ended early, if any did."""
        return [w.result.failure for w in self._workers if w.result is not None and w.result.failure]

    def listen(self, timeout_s: float) -> None:
        """Take messages and notice ends, for at most ``timeout_s``; returns at the first."""
        open_workers = {w.pipe: w for w in self._workers if w.result is None}
        if not open_workers:
            time.sleep(max(timeout_s, 0))
            return
        sentinels = {w.process.sentinel: w for w in open_workers.values()}
        for object_ in wait([*open_workers, *sentinels], max(timeout_s, 0)):
            worker = open_workers.get(object_) or sentinels[object_]  # type: ignore[call-overload, index]
            if worker.result is None:
                self._hear(worker)

    def finish(self, timeout_s: float) -> list[WorkerResult]:
        """Wait for all to end after ``stop``; one that does not is ended. The results in the order of the tasks."""
        deadline = time.monotonic() + timeout_s
        while self.working() and time.monotonic() < deadline:
            self.listen(deadline - time.monotonic())
        self.kill()
        return [
            w.result or WorkerResult(w.task.spool, failure=f"{w.process.name} did not stop and was ended")
            for w in self._workers
        ]

    def kill(self) -> None:
        """End what still runs, without asking."""
        for worker in self._workers:
            if worker.result is None and worker.process.is_alive():
                worker.process.kill()
            worker.process.join()
            worker.pipe.close()

    def _hear(self, worker: _Worker) -> None:
        try:
            message: tuple[str, Any] = worker.pipe.recv() if worker.pipe.poll() else ("gone", None)
        except (EOFError, OSError):
            message = ("gone", None)
        kind, value = message
        if kind == "ready":
            worker.ready = True
        elif kind == "done":
            worker.result = WorkerResult(worker.task.spool, tuple(value))
        elif kind == "failed":
            worker.result = WorkerResult(worker.task.spool, failure=value)
        else:
            worker.process.join(1)
            code = worker.process.exitcode
            how = f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"
            worker.result = WorkerResult(worker.task.spool, failure=f"{worker.process.name} ended early ({how})")


def split_loops(loops: int, processes: int) -> list[list[int]]:
    """Which loops each process drives: loop i goes to process i modulo ``processes``."""
    return [list(range(first, loops, processes)) for first in range(processes)]


def _work(task: Task, board: WorkerBoard, pipe: Connection) -> None:
    """Life of a worker process."""
    for number in IGNORED_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    if hasattr(signal, "SIGUSR1"):
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, IGNORED_SIGNALS)
    board.attach()
    try:
        spool = SpoolWriter(Path(task.spool), CONNECTION) if task.spool else None
        engine = _engine(task, board, spool)
        pipe.send(("ready", None))
        paths = engine.run() if _told_to_go(pipe, board) else []  # stopped before the start: nothing is missing
        if spool is not None:
            spool.close()
        pipe.send(("done", paths))
    except (EOFError, BrokenPipeError):
        return  # the parent is gone
    except NcpsError as error:
        pipe.send(("failed", str(error)))
    except Exception as error:
        where = error.__traceback__
        while where is not None and where.tb_next is not None:
            where = where.tb_next
        line = f" ({Path(where.tb_frame.f_code.co_filename).name}:{where.tb_lineno})" if where is not None else ""
        pipe.send(("failed", f"worker {task.number} failed: {type(error).__name__}: {error}{line}"))


def _told_to_go(pipe: Connection, board: WorkerBoard) -> bool:
    """Wait at the start line; False if the run ends before it opens.

    Workers forked later hold copies of the parent's end of this pipe, so its end alone does not tell.
    """
    while board.state() != STOP:
        if pipe.poll(0.5):
            return bool(pipe.recv() == GO)
    # A run that is stopped as soon as it began is still one: the engine sees the stop and reports as usual.
    return pipe.poll() and bool(pipe.recv() == GO)


def _engine(task: Task, board: WorkerBoard, spool: SpoolWriter | None) -> Any:
    """The engine of this task, ready to run."""
    if isinstance(task.setup, ClientSetup):
        from ncps_raw.engine.endless_client import client_engine

        assert spool is not None
        return client_engine(task.setup, board, spool)
    from ncps_raw.engine.selector_server import SelectorServer

    server = SelectorServer(task.setup, board, spool)
    try:
        server.listen()
    except OSError as error:
        raise EnvironmentFault(
            f"cannot listen on {error.filename}: {error.strerror}; is another server running there? "
            "Choose another port or address"
        ) from None
    return server
