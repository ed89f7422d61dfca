"""The capture process: from live frames to spooled handshakes, beside the load and out of its way (edge).

One idea: the parent owns the beginning and the end, the child owns everything between. The child answers to no
signal a terminal sends to the whole group, only to its parent: it drains when told to, and leaves when the parent
is gone. It wakes twice a second, and when the parent asks what the wire had done by a moment: frames in large
batches cost a few per cent of what they cost one by one. At every tick all that is settled is outside it: rows in
the spool, totals in shared memory. So killing it loses what is open and never the run. Once everything is open it
gives up all rights: only then it looks at what the network sends. Knows nothing of clients, modes or reports.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Final

# numpy.unique imports it when first called. By then this process may be somebody who cannot read the installation.
import numpy.ma  # noqa: F401

from ncps_capture.decode import decode
from ncps_capture.errors import CaptureUnavailable, FileFault, NcpsError, UsageError
from ncps_capture.handshake import HandshakeTable, books_of
from ncps_capture.live import HAND_OVER_MS, LiveSource, link_type_name, open_live
from ncps_capture.memory import keep_freed_memory
from ncps_capture.pcapngwrite import PcapngWriter
from ncps_capture.pcapwrite import PcapWriter
from ncps_capture.privileges import give_up_rights, hand_over, heir
from ncps_capture.segments import HANDSHAKE, UNKNOWN, WIRE_FIELDS, Batch, Books, CaptureSpec, Handshakes
from ncps_capture.spool import SpoolWriter, read_spool

_TICK_S: Final = 0.5
_DRAIN_TICK_S: Final = 0.02
_HAND_OVER_S: Final = 2 * HAND_OVER_MS / 1000
"""Frames older than this have been read, if there was nothing left to read."""
_QUIET_NS: Final = 20_000_000  # how far out of order the processors of a machine may hand frames over, amply
_READS_A_TICK: Final = 16  # full batches after which rows and counters are handed out although more is waiting
_IGNORED: Final = (signal.SIGINT, signal.SIGTERM)
_SILENCE_S: Final = 5.0  # without a tick and without using a processor: it is stopped, and nothing will come
_LOOK_S: Final = 0.2
_CPU_CLOCK: Final = 2  # in the number that Linux gives to the clock of a process (clock_getcpuclockid(3))
_LAST_WORDS_S: Final = 30.0  # for settling and writing what is open at the end of a long run


@dataclass(frozen=True)
class CaptureResult:
    """What a capture hands over when it is done. ``dropped`` is None where it cannot be told: the process died.

    ``books`` count packets and SYNs exactly, but an attempt once for every part of it that was settled apart; its
    truth is ``books_of(merge_rows(...))`` of the rows in ``handshake_files``.
    """

    interface: str
    link_type: str
    filter_text: str
    packets: int
    dropped: int | None
    books: Books
    handshake_files: tuple[str, ...]  # spools of HANDSHAKE rows
    first_t_ns: int = UNKNOWN  # first and last frame, by the capture's clock
    last_t_ns: int = UNKNOWN
    died: str | None = None  # why the capture ended early
    runs_as: str | None = None  # who looked at the packets, and with which rights; None if it never came to that
    level: str = "base"  # what the filter admitted
    write_problem: str | None = None  # why the file of packets is not whole; what was measured is


class Counters:
    """Totals by WIRE_FIELDS in shared memory: one writer, any number of readers, no lock.

    Two copies and a number that tells which is whole: a reader never sees fields of different ticks, and a writer
    killed half way leaves the last whole copy behind.
    """

    def __init__(self, context: BaseContext) -> None:
        self._cells = context.RawArray("q", 1 + 2 * len(WIRE_FIELDS))

    def publish(self, values: Mapping[str, int]) -> None:
        """Replace all totals at once. Only the capture process may do so."""
        following = self._cells[0] + 1
        start = 1 + following % 2 * len(WIRE_FIELDS)
        self._cells[start : start + len(WIRE_FIELDS)] = [values[name] for name in WIRE_FIELDS]
        self._cells[0] = following

    def read(self) -> dict[str, int]:
        """The totals of the last tick, by name; all 0 before the first."""
        while True:
            number = self._cells[0]
            start = 1 + number % 2 * len(WIRE_FIELDS)
            values = self._cells[start : start + len(WIRE_FIELDS)]
            if self._cells[0] == number:
                return dict(zip(WIRE_FIELDS, values, strict=True))


class CaptureProcess:
    """The parent's side of one capture process: start, wait_ready, then finish or kill.

    A handle that is let go, or still there when the interpreter ends, kills its process.
    """

    def __init__(self, spec: CaptureSpec, process: BaseProcess, pipe: Connection, counters: Counters) -> None:
        self.pid = process.pid
        self.counters = counters
        self.note: str | None = None  # what a reader of the figures should know, once ready
        self._spec = spec
        self._process = process
        self._pipe = pipe
        self._started_ns = time.time_ns()
        self._ready: tuple[str, str, str | None] | None = None  # link type, filter and who it runs as
        self._failure: str | None = None
        self._fault: type[NcpsError] = CaptureUnavailable  # whose the failure is
        self._remarks: list[str] = []
        self._result: CaptureResult | None = None
        self._asked_ns = 0
        # Before multiprocessing's own clean-up, which asks with SIGTERM and then waits without end.
        self._reaper = Finalize(self, _reap, (process, pipe), exitpriority=10)

    @classmethod
    def start(cls, spec: CaptureSpec, context: BaseContext | None = None) -> CaptureProcess:
        """Start the process; it is not ready yet. ``spec.spool_dir`` must exist."""
        context = context or _context()
        counters = Counters(context)
        ours, theirs = context.Pipe()
        process: BaseProcess = context.Process(  # type: ignore[attr-defined]
            target=_main, args=(spec, counters, theirs), name=f"capture {spec.interface}", daemon=True
        )
        # A Ctrl-C before the child has said that it ignores it would end it with a traceback.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _IGNORED)
        try:
            with _one_thread(), warnings.catch_warnings():
                # Python 3.12 warns of forking beside threads. Those here are the idle ones of numpy's linear
                # algebra, which are prepared for it.
                warnings.simplefilter("ignore", DeprecationWarning)
                process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        theirs.close()
        return cls(spec, process, ours, counters)

    def wait_ready(self, timeout_s: float = 5.0) -> None:
        """Return when nothing that matches is missed any more. CaptureUnavailable, with the reason, if never;
        UsageError if it was asked for what cannot be meant, such as a filter that is none.
        """
        deadline = time.monotonic() + timeout_s
        while self._ready is None and self._failure is None:
            if not self._listen(deadline - time.monotonic()):
                self._failure = f"cannot capture on {self._spec.interface}: not ready within {timeout_s:g} s"
        if self._failure is not None:
            self.kill()
            raise self._fault(self._failure)

    def alive(self) -> bool:
        """Whether the process still runs."""
        return self._reaper.still_active() and self._process.is_alive()

    def remarks(self) -> list[str]:
        """What has happened to the capture since this was last asked, without waiting; one line each."""
        while self._failure is None and self._result is None and self._reaper.still_active():
            if not self._pipe.poll():
                break
            self._listen(0)
        remarks, self._remarks = self._remarks, []
        return remarks

    def publish_by(self, t_ns: int) -> None:
        """Ask for counters that hold up to ``t_ns`` (CLOCK_REALTIME, about now) as soon as they can be had, some 50 ms
        later. Does nothing while an earlier question is open: a process that hears nothing must not fill the pipe.
        """
        if self.counters.read()["t_ns"] < self._asked_ns:
            return
        with suppress(OSError):  # it is gone, which ``alive`` tells
            self._pipe.send(t_ns)
            self._asked_ns = t_ns

    def finish(self, expected_answered: int | None, grace_s: float = 1.0) -> CaptureResult:
        """Drain, settle, close and take over the result; the process is gone afterwards.

        It goes on reading until it has seen ``expected_answered`` answered attempts in all, at most for
        ``grace_s``; for all of ``grace_s`` if None. Does not raise if the process has died: the result says so, and
        has the rows spooled until then. Asked again, it returns the same result.
        """
        if self._result is None and self._reaper.still_active():
            self._take_over(expected_answered, grace_s)
        if self._result is None:
            self._result = self._salvage(self._failure or "capture process was killed")
        return self._result

    def kill(self) -> None:
        """End the process at once, if it still runs."""
        self._reaper()

    def _take_over(self, expected_answered: int | None, grace_s: float) -> None:
        with suppress(OSError):  # it is gone; what it left in the pipe is read below
            self._pipe.send((expected_answered, grace_s))
        patience_s = grace_s + _LAST_WORDS_S
        waited_s = silent_s = 0.0  # in looks, not by a clock: that goes on while both are stopped, as by Ctrl-Z
        sign = self._sign_of_life()
        while self._result is None and self._failure is None:
            if self._listen(_LOOK_S):
                continue
            last, sign = sign, self._sign_of_life()
            waited_s += _LOOK_S
            silent_s = silent_s + _LOOK_S if sign == last else 0.0
            if silent_s >= _SILENCE_S:
                self._failure = f"capture process did not answer for {_SILENCE_S:g} s (stopped?) and was killed"
            elif waited_s >= patience_s:
                self._failure = f"capture process gave no result within {patience_s:g} s"
        if self._result is not None:
            self._process.join(_LAST_WORDS_S)
        self.kill()

    def _listen(self, timeout_s: float) -> bool:
        """Take one message of the child, or notice its end; False if neither happened in time."""
        if not wait([self._pipe, self._process.sentinel], max(timeout_s, 0)):
            return False
        try:
            # A child that has ended may have left its last words.
            if self._pipe.poll():
                kind, value = self._pipe.recv()
            else:
                kind, value = "failed", self._obituary()
        except (EOFError, OSError):
            kind, value = "failed", self._obituary()
        if kind == "ready":
            *ready, self.note = value
            self._ready = (ready[0], ready[1], ready[2])
        elif kind == "result":
            self._result = value
        elif kind == "remark":
            self._remarks.append(value)
        else:
            self._failure = value
            self._fault = UsageError if kind == "refused" else CaptureUnavailable
        return True

    def _sign_of_life(self) -> tuple[int, int]:
        """Something that changes while the process does anything: its ticks, and the time it has used a processor."""
        used_ns = 0
        if self.pid is not None and sys.platform.startswith("linux"):
            with suppress(OSError):  # it is gone, which its descriptor tells
                used_ns = time.clock_gettime_ns(~self.pid << 3 | _CPU_CLOCK)
        return self.counters.read()["t_ns"], used_ns

    def _obituary(self) -> str:
        self._process.join()
        code = self._process.exitcode or 0
        how = f"by signal {-code}" if code < 0 else f"with status {code}"
        seen_ns = max(self.counters.read()["t_ns"] - self._started_ns, 0)
        return f"capture process ended {how} after {seen_ns / 1e9:.1f} s"

    def _salvage(self, died: str) -> CaptureResult:
        """The result of a process that left none: the rows in its spool, and books about these alone."""
        link_type, filter_text, runs_as = self._ready or ("", "", None)
        path = _spool_path(self._spec, self.pid)
        books = Books()
        files: tuple[str, ...] = ()
        with suppress(FileFault):
            books, files = books_of(read_spool(path, HANDSHAKE)), (path,)
        books.syn = books.syn_counted + books.syn_duplicate  # those of open attempts are lost with the process
        totals = self.counters.read()
        return CaptureResult(
            interface=self._spec.interface,
            link_type=link_type,
            filter_text=filter_text,
            packets=totals["packets"],
            dropped=None,
            books=books,
            handshake_files=files,
            died=died,
            runs_as=runs_as,
            level=self._spec.level,
        )


class _Capturing:
    """The child's side: everything that is open while it captures. Made with all rights, used with none."""

    def __init__(self, spec: CaptureSpec, counters: Counters, remark: Callable[[str], None]) -> None:
        self.source = open_live(spec)
        self._spec = spec
        self._remark = remark
        self._counters = counters
        self._spool = SpoolWriter(_spool_path(spec, os.getpid()), HANDSHAKE)
        identity = heir(os.environ)
        self._writer: PcapWriter | PcapngWriter | None = None
        self._write_problem: str | None = None
        if spec.write_path is not None:
            new = not os.path.lexists(spec.write_path)
            self._writer = _writer(spec, spec.write_path, self.source)
            if new and identity is not None and identity.person:
                hand_over(spec.write_path, identity)
        self.standing = give_up_rights(identity)
        self._acks = spec.level == "acks"
        self._table = HandshakeTable(spec.dup_window_ns, spec.dup_window_ns + _QUIET_NS, self._acks)
        self._books = Books()
        self._first_t_ns = self._last_t_ns = UNKNOWN

    def tick(self) -> int:
        """Read what is at hand, spool what is settled, publish. Returns the number of answered attempts so far."""
        horizon_ns = time.time_ns() - round(_HAND_OVER_S * 1e9)
        for _ in range(_READS_A_TICK):
            batch = self.source.batch(0)
            if batch is None:
                break
            self._save(batch)
            segments, books = decode(batch, self._acks, self._spec.tunnels)
            self._books += books
            self._table.add(segments)
            if self._first_t_ns == UNKNOWN:
                self._first_t_ns = int(batch.t_ns[0])
            self._last_t_ns = max(self._last_t_ns, int(batch.t_ns.max()))
        else:
            horizon_ns = min(horizon_ns, self._last_t_ns)
        self._keep(self._table.settle(horizon_ns))
        return self._publish(horizon_ns)

    def finish(self) -> CaptureResult:
        """Settle what is open, close everything, say what there was."""
        now_ns = time.time_ns()
        self._keep(self._table.finish(now_ns))
        self._publish(now_ns)
        dropped = self.source.dropped()
        self.source.close()
        self._spool.close()
        self._save(None, dropped)
        return CaptureResult(
            interface=self._spec.interface,
            link_type=link_type_name(self.source.link_type),
            filter_text=self.source.filter_text,
            packets=self._books.packets,
            dropped=dropped,
            books=self._books,
            handshake_files=(str(self._spool.path),),
            first_t_ns=self._first_t_ns,
            last_t_ns=self._last_t_ns,
            runs_as=self.standing.runs_as,
            level=self._spec.level,
            write_problem=self._write_problem,
        )

    def _save(self, batch: Batch | None, dropped: int | None = None) -> None:
        """Append to the file of packets, or end it (None). A full disk ends the file, never the measurement."""
        if self._writer is None:
            return
        try:
            if batch is None:
                self._writer.close(dropped)
            else:
                self._writer.write(batch)
        except FileFault as fault:
            self._write_problem = f"{fault}: the packets from then on were measured, but not saved"
            self._remark(f"{fault}: what follows is measured, but not saved; make room, and begin another file")
            with suppress(FileFault):
                self._writer.close()
            self._writer = None

    def _keep(self, rows: Handshakes) -> None:
        self._books += books_of(rows)
        self._spool.append(rows)
        self._spool.flush()

    def _publish(self, t_ns: int) -> int:
        live = self._table.live()
        self._counters.publish(
            {
                "t_ns": t_ns,
                "packets": self._books.packets,
                "syn": self._books.syn,
                "synack": self._books.synack,
                "dropped": self.source.dropped(),
                "rows": self._spool.rows,
                **live,
            }
        )
        return live["answered_clean"] + live["answered_repeated"]


def _main(spec: CaptureSpec, counters: Counters, pipe: Connection) -> None:
    """Life of the child. Whatever goes wrong reaches the parent as one line; nothing is printed."""
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _IGNORED)
    keep_freed_memory()
    try:
        capturing = _Capturing(spec, counters, lambda text: _say(pipe, text, "remark"))
        source, standing = capturing.source, capturing.standing
        notes = "; ".join(note for note in (source.note, standing.note) if note) or None
        pipe.send(("ready", (link_type_name(source.link_type), source.filter_text, standing.runs_as, notes)))
        order = _until_told(capturing, pipe)
        if order is not None:
            _drain(capturing, *order)
            pipe.send(("result", capturing.finish()))
    except UsageError as error:
        _say(pipe, str(error), "refused")
    except NcpsError as error:
        _say(pipe, str(error))
    except BaseException as error:
        _say(pipe, f"capture process failed: {type(error).__name__}: {' '.join(str(error).split())}")


def _until_told(capturing: _Capturing, pipe: Connection) -> tuple[int | None, float] | None:
    """Capture until the parent says how to finish (its order), or is gone (None). A time alone asks for a tick then.

    A worker forked by the parent holds a copy of the descriptor that tells of the parent's end, and may outlive
    it; the number of the parent process changes all the same.
    """
    parent = multiprocessing.parent_process()
    gone = [] if parent is None else [parent.sentinel]
    parent_pid = os.getppid()
    pause_s = _TICK_S
    while True:
        happened = wait([pipe, *gone], pause_s)
        if os.getppid() != parent_pid or any(sentinel in happened for sentinel in gone):
            return None
        if not happened:
            capturing.tick()
            pause_s = _TICK_S
            continue
        try:
            order: tuple[int | None, float] | int = pipe.recv()
        except (EOFError, OSError):
            return None
        if isinstance(order, tuple):
            return order
        # The kernel may keep frames of that moment for a while yet; a clock that was set must not let it wait for long.
        pause_s = min(max((order - time.time_ns()) / 1e9 + _HAND_OVER_S + 0.001, 0.0), _TICK_S)


def _drain(capturing: _Capturing, expected_answered: int | None, grace_s: float) -> None:
    """Read until all expected answers have been seen, but no longer than ``grace_s``.

    Never less than what the kernel may still hold back: the last refusals are as late as the last answers.
    """
    begin = time.monotonic()
    while True:
        answered = capturing.tick()
        waited = time.monotonic() - begin
        complete = expected_answered is not None and answered >= expected_answered
        if waited >= (_HAND_OVER_S if complete else max(grace_s, _HAND_OVER_S)):
            return
        time.sleep(_DRAIN_TICK_S)


def _say(pipe: Connection, text: str, kind: str = "failed") -> None:
    with suppress(OSError):  # nobody is left to hear it
        pipe.send((kind, text))


def _reap(process: BaseProcess, pipe: Connection) -> None:
    process.kill()
    process.join()
    process.close()
    pipe.close()


def _writer(spec: CaptureSpec, path: str, source: LiveSource) -> PcapWriter | PcapngWriter:
    if spec.write_format == "pcapng":
        return PcapngWriter(
            path, source.link_type, spec.snaplen, interface=spec.interface, filter_text=source.filter_text
        )
    return PcapWriter(path, source.link_type, spec.snaplen)


def _spool_path(spec: CaptureSpec, pid: int | None) -> str:
    return str(Path(spec.spool_dir) / f"handshakes-{pid}.spool")


@contextmanager
def _one_thread() -> Iterator[None]:
    """A fresh interpreter starts no threads for numpy's linear algebra: capabilities belong to threads, and one thread
    cannot give up another's.
    """
    name = "OPENBLAS_NUM_THREADS"
    before = os.environ.get(name)
    os.environ[name] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def _context() -> BaseContext:
    """Fork where it is safe, since it is ready 0.3 s sooner; else a fresh interpreter."""
    if sys.platform.startswith("linux") and threading.active_count() == 1:
        return multiprocessing.get_context("fork")
    return multiprocessing.get_context("spawn")
