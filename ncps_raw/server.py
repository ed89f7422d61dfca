"""``ncps server``: from a plan to tasks for workers, and what to say when accepting fails."""

from __future__ import annotations

import errno
from collections.abc import Sequence

from ncps_capture.errors import UsageError
from ncps_capture.segments import CaptureSpec

from ncps_raw import limits, net
from ncps_raw.board import Failure
from ncps_raw.conversation import SERVER_MODES
from ncps_raw.engine.base import ServerLoop, ServerSetup
from ncps_raw.interrupts import Interrupts
from ncps_raw.monitor import errno_name
from ncps_raw.plan import ServerPlan
from ncps_raw.ports import first_and_last, server_ports
from ncps_raw.session import Load, run, usable_cores
from ncps_raw.workers import Task, split_loops

BACKLOG = 1000
MOST_RECORDS = 25_000_000
"""Records a server keeps (48 bytes each): one that runs for weeks reports on its first connections."""
FILES_WANTED = 1_048_576


def run_server(plan: ServerPlan, interrupts: Interrupts | None = None) -> int:
    """Serve until the plan's end or an interrupt; the exit code. Raises NcpsError for what prevents a start."""
    return run(plan, prepare(plan), interrupts)


def prepare(plan: ServerPlan) -> Load:
    """Look at limits and addresses; the load of a server is what its clients make."""
    bind = plan.bind or ("0.0.0.0",)
    families = {net.family_of(address) for address in bind}
    if len(families) > 1:
        raise UsageError(f"{'-b' if plan.dialect else '--bind'} takes addresses of one IP version; -b :: accepts both")
    family = families.pop()
    for address in bind:
        net.check_bind(address)
    limit = limits.files_for(FILES_WANTED)
    shares = split_loops(plan.threads, plan.process_count(usable_cores()))
    first, last = first_and_last(plan)
    where = f"{', '.join(bind)} port{'s' if last > first else ''} {first}" + (f" to {last}" if last > first else "")

    def tasks(folder: str) -> Sequence[Task]:
        return [
            Task(
                number,
                ServerSetup(
                    mode=SERVER_MODES[plan.mode],
                    family=family,
                    bind=bind,
                    size=plan.size,
                    abortive=plan.close == "rst",
                    backlog=BACKLOG,
                    max_records=-(-MOST_RECORDS // len(shares)),
                    loops=tuple(ServerLoop(loop, _ports(plan, loop)) for loop in loops),
                    reuse_port=plan.reuse_port,
                    keepalive_ns=plan.keepalive_ns,
                    shutdown=plan.shutdown,
                    busy_poll=plan.busy_poll,
                ),
                f"{folder}/connections-{number}.spool",
            )
            for number, loops in enumerate(shares)
        ]

    spec, problem = _capture_spec(plan, bind)
    remarks = (f"listening on {where}", *((limit.note,) if limit.note else ()))

    def advise(failure: Failure) -> str:
        return _advice(failure, limit.allowed)

    def explain(failures: Sequence[Failure]) -> tuple[str, ...]:
        full = any(failure.number == errno.EMFILE for failure in failures)
        return (f"{_full(limit.allowed)}; raise it (ulimit -n) for more connections at once",) if full else ()

    return Load(
        plan.threads,
        tasks,
        advise,
        where,
        spec,
        problem,
        notes=(),
        remarks=remarks,
        most_records=MOST_RECORDS,
        explain=explain,
    )


def _ports(plan: ServerPlan, loop: int) -> tuple[int, ...]:
    """Ports on which ``loop`` listens: a share of them, or with SO_REUSEPORT all."""
    if plan.reuse_port:
        return tuple(range(plan.base_port, plan.base_port + plan.ports))
    return tuple(server_ports(plan, loop))


def _capture_spec(plan: ServerPlan, bind: Sequence[str]) -> tuple[CaptureSpec | None, str | None]:
    """What to capture, on request only: the interface that carries the bound address."""
    if plan.capture == "off":
        return None, None
    name = plan.interface
    if name is None:
        carriers = {net.interface_of(address) for address in bind}
        name = carriers.pop() if len(carriers) == 1 else None
    if name is None:
        return None, f"clients may come by any interface; name one with --interface: {', '.join(net.interfaces())}"
    return (
        CaptureSpec(
            interface=name,
            server_ports=(first_and_last(plan),),
            level=plan.admitted,
            loopback=name == net.loopback_name(),
            buffer_bytes=plan.capture_buffer,
            write_path=plan.write,
        ),
        None,
    )


def _full(allowed: int | None) -> str:
    """A process at its limit: the connections are established and in the queue, so nothing is lost but time."""
    limit = "the limit of" if allowed is None else f"the limit of {allowed:,}"
    return f"accepting was refused at {limit} open files a process and is tried again, connections wait meanwhile"


def _advice(failure: Failure, allowed: int | None) -> str:
    hints = {
        errno.EMFILE: f"{_full(allowed)}: raise it (ulimit -n)",
        errno.ENFILE: "this machine has no file descriptor left: raise fs.file-max",
        errno.ECONNRESET: "clients reset connections",
        errno.EPIPE: "clients closed before their answer",
    }
    return f"{errno_name(failure.number)} x {failure.count}: {hints.get(failure.number, 'see errno(3)')}"
