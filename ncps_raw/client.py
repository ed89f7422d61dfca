"""``ncps client``: from a plan to tasks for workers, and what to say when connects fail."""

from __future__ import annotations

import dataclasses
import errno
from collections.abc import Sequence

from ncps_analysis.wording import many
from ncps_capture.errors import EnvironmentFault
from ncps_capture.segments import CaptureSpec

from ncps_raw import budget, limits, net
from ncps_raw.board import Failure
from ncps_raw.conversation import CLIENT_MODES
from ncps_raw.engine.base import ClientLoop, ClientSetup
from ncps_raw.interrupts import Interrupts
from ncps_raw.machine import machine_for
from ncps_raw.monitor import errno_name
from ncps_raw.plan import ClientPlan
from ncps_raw.ports import client_ports, first_and_last, split
from ncps_raw.session import DRAIN_NS, Load, run, usable_cores
from ncps_raw.workers import Task, split_loops


def run_client(plan: ClientPlan, interrupts: Interrupts | None = None) -> int:
    """Carry out a client plan; the exit code. Raises NcpsError for what prevents a start."""
    return run(*prepare(plan), interrupts)


def prepare(plan: ClientPlan) -> tuple[ClientPlan, Load]:
    """Resolve names, look at limits and routes: the plan as this machine allows it, and its load."""
    target = net.resolve(plan.target, plan.bind, plan.base_port)
    net.bind_targets(plan.bind, target.family)
    processes = plan.process_count(usable_cores())
    plan, clamped, raised = _within_limits(plan, processes)
    spec, problem = capture_spec(plan, target)
    shares = split_loops(plan.threads, processes)

    def tasks(folder: str) -> Sequence[Task]:
        return [
            Task(number, _setup(plan, target, loops), f"{folder}/connections-{number}.spool")
            for number, loops in enumerate(shares)
        ]

    def advise(failure: Failure) -> str:
        return _advice(failure, plan, target)

    load = Load(
        loops=plan.threads,
        tasks=tasks,
        advise=advise,
        target=plan.target if plan.target.partition("%")[0] == target.host else f"{plan.target} ({target.host})",
        capture=spec,
        capture_problem=problem,
        notes=tuple(text for text in (clamped,) if text),
        remarks=tuple(text for text in (_resolved(plan, target), target.note, raised, *_foreseen(plan)) if text),
    )
    return plan, load


def _resolved(plan: ClientPlan, target: net.Target) -> str | None:
    """Resolving is no part of any connect: its time stands apart."""
    if target.resolved_ns is None:
        return None
    return f"{plan.target} is {target.host}, resolved in {target.resolved_ns / 1e6:.3g} ms before the run"


def _foreseen(plan: ClientPlan) -> tuple[str | None, str | None]:
    """What can be said of ports and rate before the run."""
    return budget.warning(plan, budget.budget(plan, machine_for(plan))), budget.shortfall(plan, ",")


def _within_limits(plan: ClientPlan, processes: int) -> tuple[ClientPlan, str | None, str | None]:
    """The plan with as many connections as files allow, what was cut, and what was raised."""
    most = limits.most_in_a_process(plan.connections, plan.threads, processes)
    limit = limits.files_for(most + limits.SPARE_FILES)
    possible = limits.clamp(plan.connections, plan.threads, processes, limit.allowed)
    if possible >= plan.connections:
        return plan, None, limit.note
    if possible < plan.threads:
        raise EnvironmentFault(
            f"cannot hold a connection for each of {plan.threads} threads: the open-file limit is {limit.allowed}; "
            "raise it (ulimit -n) or use fewer threads (-r)"
        )
    text = (
        f"{plan.connections} connections need more files than this machine's hard limit of {limit.allowed} a process "
        f"allows: reduced to {possible}; raise it (ulimit -Hn) for more"
    )
    return (
        dataclasses.replace(plan, connections=possible, pending=min(plan.pending, possible)),
        text,
        limit.note,
    )


def capture_spec(plan: ClientPlan, target: net.Target) -> tuple[CaptureSpec | None, str | None]:
    """What to capture for this plan, or why that cannot be said."""
    if plan.capture == "off":
        return None, None
    name, loopback = plan.interface, False
    if name is None:
        route = net.route_to(target)
        if route is None:
            return None, f"the interface to {target.host} cannot be found; name it with --interface"
        name, loopback = route.interface, route.loopback
    else:
        loopback = name == net.loopback_name()
    return (
        CaptureSpec(
            interface=name,
            server_ports=(first_and_last(plan),),
            level=plan.admitted,
            loopback=loopback,
            buffer_bytes=plan.capture_buffer,
            write_path=plan.write,
        ),
        None,
    )


def _setup(plan: ClientPlan, target: net.Target, loops: Sequence[int]) -> ClientSetup:
    return ClientSetup(
        mode=CLIENT_MODES[plan.mode],
        family=target.family,
        address=target.address,
        bind=plan.bind,
        size=plan.size,
        hold_ns=plan.hold_ns,
        reconnect=plan.reconnect,
        abortive=plan.close == "rst",
        drain_ns=DRAIN_NS,
        rate=plan.rate,
        all_loops=plan.threads,
        keepalive_ns=plan.keepalive_ns,
        shutdown=plan.shutdown,
        busy_poll=plan.busy_poll,
        pace_ns=plan.pace_ns,
        # The join with packets is what needs them, and a saved run may be joined with a capture made elsewhere.
        local_ends=plan.capture != "off" or plan.run is not None,
        loops=tuple(
            ClientLoop(
                index=loop,
                connections=split(plan.connections, plan.threads, loop),
                max_pending=split(plan.pending, plan.threads, loop),
                ports=client_ports(plan, loop),
            )
            for loop in loops
        ),
    )


def _advice(failure: Failure, plan: ClientPlan, target: net.Target) -> str:
    """One line for an errno: how often, of what, and what to do."""
    first, last = first_and_last(plan)
    ports = f"port {first}" if first == last else f"ports {first} to {last}"
    name = errno_name(failure.number)
    names = "-bp, -np" if plan.dialect else "--port, --ports"
    if failure.number in (errno.EADDRNOTAVAIL, errno.EADDRINUSE):
        return f"{name} x {failure.count}: {_busy_ports(plan, failure.number)}"
    hints = {
        errno.ECONNREFUSED: f"refused at {target.host} {ports}: a server must listen on each of them ({names})",
        errno.ETIMEDOUT: f"{target.host} does not answer: is it up, and does a firewall drop SYNs?",
        errno.ENETUNREACH: f"there is no route to {target.host}",
        errno.EHOSTUNREACH: f"{target.host} cannot be reached: no neighbour answers, or a router says so",
        errno.EMFILE: "this process has no file descriptor left: raise the limit (ulimit -n)",
        errno.ENFILE: "this machine has no file descriptor left: raise fs.file-max",
        errno.ECONNRESET: f"{target.host} reset established connections",
        errno.EPERM: "the packet was refused on this machine: see its firewall (nft list ruleset)",
        0: f"{target.host} closed connections before the exchange was complete",
    }
    return f"{name} x {failure.count}: {hints.get(failure.number, 'see errno(3)')}"


def _busy_ports(plan: ClientPlan, number: int) -> str:
    """What it means that a local port was not to be had, with the budget and what to change."""
    have = budget.budget(plan, machine_for(plan))
    waiting = net.time_wait_count()
    ports = "port" if have.server_ports == 1 else "ports"
    held = "" if waiting is None else f", {many(waiting, 'socket')} in TIME_WAIT"
    counted = f"{many(have.local_ports, 'local port')} ({have.first_local} to {have.last_local})"
    counted += f" x {have.server_ports} server {ports} for {many(plan.connections, 'connection')}{held}"
    names = ("-np", "-ncp", "-b", "-N") if plan.dialect else ("--ports", "--local-ports", "--bind", "--connections")
    advice = "use more {} or {}, more {} addresses, or fewer {}".format(*names)
    if have.kernel_chooses:
        return f"no local port is free: {counted}; {advice}"
    whose = "something else" if number == errno.EADDRINUSE else "an earlier connection or something else"
    return f"local ports still in use by {whose} were passed over: {counted}; if it is many, {advice}"
