"""Edge: ``ncps send`` and ``ncps recv``: from a plan to a meeting, a transfer and its report.

The one idea: the four arrangements differ in how the ends meet and in nothing else.
"""

from __future__ import annotations

import contextlib
import socket
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Final

from ncps_capture.errors import FileFault, NcpsError

from ncps_raw import net
from ncps_raw.interrupts import Interrupts
from ncps_raw.link import measure, meeting
from ncps_raw.link.explain import Explanation, Speed
from ncps_raw.link.meeting import Arrival, Door, NobodyThere
from ncps_raw.link.plan import STREAM, LinkPlan
from ncps_raw.link.preamble import DATA
from ncps_raw.link.pumps import Pump
from ncps_raw.link.show import Show
from ncps_raw.link.sinks import Sink, open_sink
from ncps_raw.link.sources import Source, open_source
from ncps_raw.link.talk import Both, Guest
from ncps_raw.link.transfer import Transfer
from ncps_raw.link.views import Report
from ncps_raw.link.watch import Watch

_TURN_S: Final = 50e-6
_NOT_BEGUN: Final = "interrupted before the other end came: nothing was transferred"
_NOT_TOLD: Final = "it tells them when a transfer ends by itself, and this one was cut short here"
_NOT_ASKED: Final = "needs --both, and ncps at the other end"


class _Prepared:
    """Source and sink, opened before anybody comes: mistakes are told at once, and it costs no time later."""

    def __init__(self, plan: LinkPlan) -> None:
        self._plan = plan
        self._lock = threading.Lock()
        self._source: Source | None = open_source(plan) if plan.transmits else None
        self._sink: Sink | None = open_sink(plan) if plan.receives else None

    def source(self) -> Source:
        """The one prepared, then others like it."""
        with self._lock:
            prepared, self._source = self._source, None
        return prepared or open_source(self._plan)

    def sink(self, *, explain: bool) -> Sink:
        """The one prepared, then others like it. ``explain``: the time until it is on the device counts."""
        with self._lock:
            prepared, self._sink = self._sink, None
        sink = prepared or open_sink(self._plan)
        if explain:
            sink.until_lasting()
        return sink


class _Run:
    """What one command's parts share."""

    def __init__(self, plan: LinkPlan, show: Show, interrupts: Interrupts) -> None:
        self.plan = plan
        self.show = show
        self.interrupts = interrupts
        self.prepared = _Prepared(plan)
        self.alone: dict[str, Speed] = {}
        self.guest: Guest | None = None

    def make(self, plan: LinkPlan, peer: str, ring: object, most_in: int | None) -> Transfer:
        """A transfer that uses what was prepared."""
        assert callable(ring)
        return Transfer(
            plan,
            peer,
            ring,
            make_source=self.prepared.source,
            make_sink=lambda: self.prepared.sink(explain=plan.explain),
            streams=plan.streams,
            most_out=plan.size if plan.transmits else None,
            most_in=most_in,
        )

    def finish(self, transfer: Transfer, cpu_s: float) -> int:
        """Report one transfer. Returns its exit code."""
        sent, received = transfer.result
        problems, code = transfer.verdict
        if _reader_left(transfer):
            problems, code = ("whoever read what was received left before its end",), 1
        far: Both | None = None
        far_note = ""
        if self.guest is not None and transfer.ended_by is not None:
            far_note = _NOT_TOLD
        elif self.guest is not None:
            try:
                far, theirs = self.guest.result()
            except NobodyThere as error:
                far_note = str(error)
                problems, code = problems or (far_note,), max(code, 1)
            else:
                # A cause seen at one end looks like a cut at the other: only the cause is told.
                if theirs and (transfer.blames_peer or not problems):
                    problems = tuple(f"at the other end: {text}" for text in theirs)
                code = max(code, 1) if theirs else code
        report = Report(
            transfer.plan.command,
            transfer.peer,
            sent,
            received,
            far,
            self._explanation(transfer, far) if self.plan.explain else None,
            problems,
            transfer.ended_by,
            cpu_s,
            transfer.plan.warmup_ns,
            code,
            far_note,
            _warmed_up(transfer),
        )
        self.show.report(report)
        return code

    def measure(self) -> None:
        """Each part alone, as far as this end can."""
        plan, guest = self.plan, self.guest
        self.show.remark("measuring each part alone")
        near = "source" if plan.sends else "sink"
        other = "sink" if plan.sends else "source"
        self.alone[near] = measure.edge_alone(plan)
        self.alone[other] = Speed(None, _NOT_ASKED) if guest is None else guest.edge()
        self.alone["network"] = Speed(None, _NOT_ASKED) if guest is None else guest.network()

    def _explanation(self, transfer: Transfer, far: Both | None) -> Explanation:
        sent, received = transfer.result
        # Of the receiving end where that is known: its clock has what the sink does to the whole.
        taken = (None if far is None else far[1]) if self.plan.sends else received
        own = taken or sent
        return Explanation(
            self.alone["source"],
            self.alone["network"],
            self.alone["sink"],
            Speed(None, "nothing came through") if own is None else Speed(own.bytes_per_s, own.no_rate),
            None if sent is None else sent.rwnd_limited,
            None if sent is None else sent.busy,
            self.plan.limit if self.guest is None else self.guest.limit,
        )


def _reader_left(transfer: Transfer) -> bool:
    """Whether a pipe behind the sink was closed: an end like a peer's, and no fault of this machine."""
    failures = [pump.failure for pump in transfer.pumps if isinstance(pump.failure, NcpsError)]
    return bool(failures) and all(isinstance(failure.__context__, BrokenPipeError) for failure in failures)


def _warmed_up(transfer: Transfer) -> bool:
    """Whether the figures are without the warm-up: whether that much of the time is missing from them."""
    warmup_ns, begin_ns = transfer.plan.warmup_ns, transfer.begin_ns()
    own = transfer.result[0 if transfer.plan.sends else 1]
    if not warmup_ns:
        return True
    if begin_ns is None or own is None or own.elapsed_ns is None:
        return False
    pumps: Sequence[Pump] = transfer.senders if transfer.plan.sends else transfer.receivers
    end_ns = max(begin_ns if pump.end_ns is None else pump.end_ns for pump in pumps)
    return end_ns - begin_ns - own.elapsed_ns - (own.round_trip_ns or 0) >= warmup_ns


@contextlib.contextmanager
def _prompt_threads() -> Iterator[None]:
    """A pump's clock must not wait for the watcher's turn: by default a thread may keep the interpreter for 5 ms."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(_TURN_S)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def _check_streams(plan: LinkPlan) -> None:
    """A closed stream is refused before something else is opened under its number."""
    if plan.transmits and plan.source == STREAM and sys.stdin is None:
        raise FileFault(
            "standard input is closed, so --source - has nothing to read: "
            f"connect it (ncps {plan.command} ... <FILE), or name a file with --source"
        )
    if STREAM in (plan.sink, plan.results) and sys.stdout is None:
        raise FileFault(
            "standard output is closed, so --output - has nowhere to write: "
            f"connect it (ncps {plan.command} ... >FILE), or name a file with --output"
        )


def run_link(plan: LinkPlan, interrupts: Interrupts) -> int:
    """Carry out ``plan`` and print its report. Returns the exit code; raises NcpsError for what prevents a start."""
    _check_streams(plan)
    with _prompt_threads(), Show(plan, lambda: interrupts.stop("SIGPIPE")) as show:
        run = _Run(plan, show, interrupts)
        code = _listen(run) if plan.listens else _connect(run)
        return max(code, 1) if show.gone else code


def _listen(run: _Run) -> int:
    plan = run.plan
    door = Door(meeting.listen(plan), speaks_first=plan.sends, idle_ns=plan.idle_ns)
    if plan.explain:
        run.measure()
    watch = Watch(plan, run.show, run.interrupts, run.make, run.finish, door)
    what = "sends to whoever connects" if plan.sends else "receives"
    run.show.remark(f"listening on port {plan.port}: {what}")
    code = watch.run()
    return code if watch.served else _not_begun(run)


def _connect(run: _Run) -> int:
    plan = run.plan
    assert plan.host is not None
    target = net.resolve(plan.host, (plan.bind,) if plan.bind else ())
    if target.note:
        run.show.remark(target.note)
    stopped = run.interrupts.stopped
    if plan.both:
        run.guest = Guest(plan, target, stopped)
        run.plan = plan = run.guest.plan
    try:
        if plan.explain:
            run.measure()
        if run.guest is not None:
            run.guest.go()
        begin_ns = time.monotonic_ns()
        socks: list[socket.socket] = []
        for _ in range(plan.streams):
            try:
                sock = meeting.connect(plan, target, stopped) if run.guest is None else run.guest.connect(DATA)
            except NobodyThere as error:
                if not socks:
                    raise
                raise NobodyThere(
                    f"only {len(socks)} of {plan.streams} streams were taken ({error}); start the other end with "
                    f"--streams {plan.streams}, or this one with --streams {len(socks)}"
                ) from None
            if sock is None or stopped():
                return _not_begun(run)
            socks.append(sock)
        peer = meeting.name_of((target.address[0], plan.port))
        run.show.remark(f"connected to {peer} after {(time.monotonic_ns() - begin_ns) / 1e9:.3f} s")
        watch = Watch(plan, run.show, run.interrupts, run.make, run.finish)
        expected = None if plan.both and plan.duration_ns is not None else plan.expected
        transfer = watch.begin(plan, peer, [Arrival(sock, peer, begin_ns) for sock in socks], expected)
        if run.guest is not None:
            transfer.on_leave = run.guest.leaving
        return watch.run()
    finally:
        if run.guest is not None:
            run.guest.close()


def _not_begun(run: _Run) -> int:
    """Interrupted while waiting: a report of nothing, as of any interrupted run. --keep has one for each client."""
    if run.plan.keep:
        run.show.remark(f"ended by {run.interrupts.stopped_by}: no transfer had begun")
        return 0
    run.show.report(
        Report(
            run.plan.command,
            "nobody",
            None,
            None,
            None,
            None,
            (_NOT_BEGUN,),
            run.interrupts.stopped_by,
            0.0,
            run.plan.warmup_ns,
            1,
            warmed_up=not run.plan.warmup_ns,
        )
    )
    return 1
