"""Shared memory of a run: a start line, every loop's counters, every process's failures by errno.

The one idea: each cell has one writer, so nobody locks. A worker copies its loops' counters here between two polls;
the monitor only reads and takes differences.
"""

from __future__ import annotations

import os
import struct
import time
from dataclasses import dataclass
from multiprocessing.context import BaseContext
from typing import Final

from ncps_capture.errors import EnvironmentFault

from ncps_raw.engine.base import COUNTERS, LAG_MAX_NS, PAUSE, STOP

ERRNOS: Final = 256
_ERROR_CELLS: Final = 3  # count, first, last
_WIDTH: Final = len(COUNTERS)
_ROW: Final = struct.Struct(f"{_WIDTH}q")
"""A loop's counters; packing them in place is faster than a copy by way of an array."""
_STOP_AT: Final = 1  # cell 0 is the start line, cell 1 when the load ends (monotonic ns, 0 = when told)
_BEGIN_AT: Final = 2  # when the load began
_LOOPS_AT: Final = 3
_PARENT_CHECK_NS: Final = 500_000_000
_PAUSE_LOOK_S: Final = 0.01


@dataclass(frozen=True)
class Failure:
    """One errno of a run: 0 = the peer ended the connection early. Times are monotonic ns."""

    number: int
    count: int
    first_ns: int
    last_ns: int


class SharedBoard:
    """The parent's view: it sets the start line and reads totals."""

    def __init__(self, context: BaseContext, loops: int, workers: int) -> None:
        self.loops = loops
        self.workers = workers
        size = _LOOPS_AT + loops * _WIDTH + workers * ERRNOS * _ERROR_CELLS
        try:
            self._raw = context.RawArray("q", size)
        except OSError as error:
            raise EnvironmentFault(f"cannot make shared memory: {error.strerror}; is /dev/shm writable?") from None

    def set_state(self, state: int) -> None:
        """Move the start line: GO, then STOP; between them PAUSE and GO again, as often as wanted."""
        self._raw[0] = state

    def paused(self) -> bool:
        """Whether the load is held."""
        return bool(self._raw[0] == PAUSE)

    def set_end(self, t_ns: int) -> None:
        """Let the load end by itself at this time: a worker sees it between two polls, whatever the parent does."""
        self._raw[_STOP_AT] = t_ns

    def set_begin(self, t_ns: int) -> None:
        """When the load begins, for all workers the same; before the start line opens."""
        self._raw[_BEGIN_AT] = t_ns

    def totals(self) -> list[int]:
        """Sums over all loops, in the order of COUNTERS; of the largest lag the largest."""
        cells = memoryview(self._raw).cast("B").cast("q")
        end = _LOOPS_AT + self.loops * _WIDTH
        sums = [sum(cells[_LOOPS_AT + i : end : _WIDTH]) for i in range(_WIDTH)]
        sums[LAG_MAX_NS] = max(cells[_LOOPS_AT + LAG_MAX_NS : end : _WIDTH], default=0)
        return sums

    def failures(self) -> list[Failure]:
        """Failures of all workers by errno, the most frequent first."""
        cells = memoryview(self._raw).cast("B").cast("q")
        start = _LOOPS_AT + self.loops * _WIDTH
        span = ERRNOS * _ERROR_CELLS
        found = []
        for number in range(ERRNOS):
            at = [start + w * span + number * _ERROR_CELLS for w in range(self.workers)]
            used = [i for i in at if cells[i]]
            if used:
                count = sum(cells[i] for i in used)
                first, last = min(cells[i + 1] for i in used), max(cells[i + 2] for i in used)
                found.append(Failure(number, count, first, last))
        return sorted(found, key=lambda failure: -failure.count)

    def for_worker(self, worker: int) -> WorkerBoard:
        """The view of one worker process; it is made before the process and travels into it."""
        return WorkerBoard(self._raw, _LOOPS_AT + self.loops * _WIDTH + worker * ERRNOS * _ERROR_CELLS)


class WorkerBoard:
    """A worker's view: it writes its own loops and failures, and stops when told or when the parent is gone."""

    def __init__(self, raw: object, errors_at: int) -> None:
        self._raw = raw
        self._errors_at = errors_at
        self._cells: memoryview | None = None
        self._bytes: memoryview | None = None
        self._parent = 0
        self._check_at = 0

    def attach(self) -> None:
        """Call in the worker before anything else."""
        self._bytes = memoryview(self._raw).cast("B")  # type: ignore[arg-type]
        self._cells = self._bytes.cast("q")
        self._parent = os.getppid()

    def state(self) -> int:
        """The start line; STOP once the parent is gone, so that a killed run leaves no load behind.

        A pause is spent in here, so that no engine needs to know of it; the end of the run ends it too.
        """
        state = self._state_now()
        while state == PAUSE:
            time.sleep(_PAUSE_LOOK_S)
            state = self._state_now()
        return state

    def _state_now(self) -> int:
        assert self._cells is not None
        now = time.monotonic_ns()
        if now >= self._check_at:
            self._check_at = now + _PARENT_CHECK_NS
            if os.getppid() != self._parent:
                return STOP
        end = self._cells[_STOP_AT]
        return STOP if end and now >= end else self._cells[0]

    def begin_ns(self) -> int:
        """When the load began."""
        assert self._cells is not None
        return int(self._cells[_BEGIN_AT])

    def end_ns(self) -> int:
        """When the load ends by itself; 0 = when told."""
        assert self._cells is not None
        return int(self._cells[_STOP_AT])

    def publish(self, loop: int, counts: list[int]) -> None:
        """Copy one loop's counters."""
        assert self._bytes is not None
        _ROW.pack_into(self._bytes, (_LOOPS_AT + loop * _WIDTH) * 8, *counts)

    def error(self, number: int, t_ns: int) -> None:
        """Count one failure."""
        assert self._cells is not None
        at = self._errors_at + min(number, ERRNOS - 1) * _ERROR_CELLS
        if not self._cells[at]:
            self._cells[at + 1] = t_ns
        self._cells[at + 2] = t_ns
        self._cells[at] += 1
