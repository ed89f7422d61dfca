"""Pure: the plan as understood, for ``--dry-run``.

Must not ask this machine anything: what it has is an argument. The one idea: it shows what follows from the plan
(shares of the loops, number of four-tuples, how long they last), not the options over again.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from fractions import Fraction

from ncps_raw import budget
from ncps_raw.budget import Budget, Machine
from ncps_raw.plan import SECOND, ClientPlan, Plan, ServerPlan
from ncps_raw.ports import server_ports, split

_MODES = {
    "0": "connect and close",
    "1": "send {size} bytes, receive once, close",
    "p": "send {size} bytes, await the answer, again and again, close",
    "s": "send {size} bytes again and again, close",
    "r": "receive again and again, close",
    "echo": "echo what one receive of up to {size} bytes returned",
}


def as_text(plan: ClientPlan | ServerPlan, machine: Machine) -> str:
    """Lines of ``name: value`` for a person, with a final newline."""
    rows = _client_rows(plan, machine) if isinstance(plan, ClientPlan) else _server_rows(plan, machine)
    processes = budget.plural(plan.process_count(machine.cores), "process")
    rows += [
        ("mode", f"{plan.mode}: {_does(plan)}"),
        ("loops", f"{plan.threads} in {processes}, engine {plan.engine}{_loops(plan)}"),
        ("time", _time(plan)),
        ("capture", _capture(plan)),
        (
            "results",
            f"{plan.format} to {plan.output or 'standard output'}" + (f", the run to {plan.run}" if plan.run else ""),
        ),
    ]
    return "".join(f"{name + ':':<14}{value}\n" for name, value in rows)


def as_json(plan: ClientPlan | ServerPlan, machine: Machine) -> str:
    """One JSON object in one line: the plan's fields, its role, the number of processes, a client's budget."""
    fields = dataclasses.asdict(plan)
    fields["processes"] = plan.process_count(machine.cores)
    if isinstance(plan, ClientPlan):
        fields["rate"] = None if plan.rate is None else float(plan.rate)
        fields["budget"] = _budget_fields(plan, budget.budget(plan, machine))
    return json.dumps({"role": plan.role, **fields}) + "\n"


def _budget_fields(plan: ClientPlan, have: Budget) -> dict[str, object]:
    after = budget.run_out_ns(plan, have)
    return {
        "source_addresses": have.sources,
        "local_ports": have.local_ports,
        "local_port_first": have.first_local,
        "local_port_last": have.last_local,
        "local_ports_by": "kernel" if have.kernel_chooses else "plan",
        "server_ports": have.server_ports,
        "four_tuples": have.four_tuples,
        "rate_per_s": float(have.rate),
        "rate_is": have.rate_is,
        "repeat_s": have.repeat_ns / SECOND,
        "run_out_in_time_wait_s": None if after is None else after / SECOND,
        "time_wait_s": have.time_wait_ns / SECOND,
        "files_needed": have.files_needed,
        "files_soft_limit": have.files_soft,
        "files_hard_limit": have.files_hard,
        "connections_possible": have.connections,
    }


def _client_rows(plan: ClientPlan, machine: Machine) -> list[tuple[str, str]]:
    have = budget.budget(plan, machine)
    chosen = "chosen by the kernel from " if have.kernel_chooses else ""
    connections = (
        f"{plan.connections} open, {_share(plan.connections, plan.threads)}; "
        f"at most {plan.pending} connecting, {_share(plan.pending, plan.threads)}"
    )
    tuples = f"{budget.counted_text(have)} = {have.four_tuples}"
    repeat = f"after {budget.about(have.repeat_ns)} at {budget.rate_text(have)}"
    rows = [
        ("client of", plan.target),
        ("server ports", _server_range(plan)),
        ("addresses", _bind(plan)),
        ("local ports", f"{chosen}{have.first_local} to {have.last_local}"),
        ("four-tuples", tuples),
        ("they repeat", repeat),
        ("ports last", budget.forecast(plan, have)),
        ("files", _files(plan, have)),
        ("connections", connections),
        ("life", f"{_seconds(plan.hold_ns)}, then {'a new one' if plan.reconnect else 'no new one'}"),
    ]
    if plan.rate is not None:
        short = budget.shortfall(plan)
        rows.append(("rate", f"{budget.plain(plan.rate)} connects a second" + (f"; {short}" if short else "")))
    return rows


def _files(plan: ClientPlan, have: Budget) -> str:
    """Descriptors of the fullest process against the limits."""
    needed = f"{have.files_needed} needed in a process"
    if have.files_soft is None:
        return f"{needed}, no limit"
    limits = f"soft limit {have.files_soft}, hard limit {'none' if have.files_hard is None else have.files_hard}"
    if have.connections < plan.threads:
        return f"{needed}, {limits}: not enough for one connection a loop, the run will be refused"
    if have.connections < plan.connections:
        return f"{needed}, {limits}: the run will be reduced to {have.connections} connections"
    raised = ": will be raised" if have.files_soft < have.files_needed else ""
    return f"{needed}, {limits}{raised}"


def _server_rows(plan: ServerPlan, machine: Machine) -> list[tuple[str, str]]:
    counts = [plan.ports if plan.reuse_port else len(server_ports(plan, loop)) for loop in (0, plan.threads - 1)]
    each = f"{counts[0]}" if counts[0] == counts[-1] else f"{counts[-1]} or {counts[0]}"
    shared = ", shared with all other loops" if plan.reuse_port else ""
    soft, hard = ("no limit" if n is None else n for n in (machine.soft_files, machine.hard_files))
    return [
        ("server on", _server_range(plan)),
        ("addresses", _bind(plan)),
        ("listeners", f"{each} port{'' if each == '1' else 's'} for each loop{shared}"),
        ("files", f"soft limit {soft}, hard limit {hard}"),
    ]


def _does(plan: Plan) -> str:
    """What a connection does in the plan's mode, and how it is closed."""
    text = _MODES[plan.mode].format(size=plan.size)
    if isinstance(plan, ClientPlan) and plan.pace_ns and plan.mode == "p":
        text += f", a round every {_seconds(plan.pace_ns)}"
    text += f", with {plan.close.upper()}" + (" after a FIN for the sending side" if plan.shutdown else "")
    return text + (f"; keep-alive after {_seconds(plan.keepalive_ns)}" if plan.keepalive_ns else "")


def _loops(plan: Plan) -> str:
    """Where the loops run, and how they wait."""
    text = f", on processors {_few([str(n) for n in plan.affinity])}" if plan.affinity else ""
    text += ", on processors without network interrupts" if plan.affinity_nonrss else ""
    return text + (", looking for events all the time" if plan.busy_poll else "")


def _server_range(plan: Plan) -> str:
    return f"{plan.base_port} to {plan.base_port + plan.ports - 1} ({plan.ports})"


def _bind(plan: Plan) -> str:
    if not plan.bind:
        return "any"
    return _few(plan.bind)


def _few(items: Sequence[str]) -> str:
    """The first four, and how many more."""
    return ", ".join(items[:4]) + (f" and {len(items) - 4} more" if len(items) > 4 else "")


def _share(total: int, loops: int) -> str:
    most, least = split(total, loops, 0), split(total, loops, loops - 1)
    return f"{most} a loop" if most == least else f"{least} or {most} a loop"


def _seconds(ns: int) -> str:
    return f"{float(Fraction(ns, SECOND)):.12g} s"


def _time(plan: Plan) -> str:
    length = "until interrupted" if plan.duration_ns is None else _seconds(plan.duration_ns)
    warmup = f", the first {_seconds(plan.warmup_ns)} left out of the report" if plan.warmup_ns else ""
    delay = f"{_seconds(plan.delay_ns)} of delay, then " if plan.delay_ns else ""
    rows = (
        "no rows" if plan.silent_rows else f"a {'short ' if plan.brief else ''}row every {_seconds(plan.interval_ns)}"
    )
    return f"{delay}{length}{warmup}, {rows}"


def _capture(plan: Plan) -> str:
    if plan.capture == "off":
        return "off"
    text = "where this machine allows it" if plan.capture == "auto" else "required"
    text += f", on {plan.interface}" if plan.interface else ""
    text += f", level {plan.admitted}"
    return text + (f", packets to {plan.write}" if plan.write else "")
