"""Pure: the plan as understood, for ``--dry-run``.

Must not know this machine: the number of cores is an argument. The one idea: it shows what follows from the plan
(shares of the loops, number of four-tuples), not the options over again.
"""

from __future__ import annotations

import dataclasses
import json
from fractions import Fraction

from ncps_raw.plan import SECOND, ClientPlan, Plan, ServerPlan
from ncps_raw.ports import client_ports, server_ports, split

_MODES = {
    "0": "connect and close",
    "1": "send {size} bytes, receive once, close",
    "p": "send {size} bytes, await the answer, again and again, close",
    "s": "send {size} bytes again and again, close",
    "r": "receive again and again, close",
    "echo": "echo what one receive of up to {size} bytes returned",
}


def as_text(plan: ClientPlan | ServerPlan, cores: int) -> str:
    """Lines of ``name: value`` for a person, with a final newline. ``cores``: usable CPU cores."""
    rows = _client_rows(plan) if isinstance(plan, ClientPlan) else _server_rows(plan)
    processes = _plural(plan.process_count(cores), "process")
    rows += [
        ("mode", f"{plan.mode}: {_does(plan)}, with {plan.close.upper()}"),
        ("loops", f"{plan.threads} in {processes}, engine {plan.engine}"),
        ("time", _time(plan)),
        ("capture", _capture(plan)),
        (
            "results",
            f"{plan.format} to {plan.output or 'standard output'}" + (f", the run to {plan.run}" if plan.run else ""),
        ),
    ]
    return "".join(f"{name + ':':<14}{value}\n" for name, value in rows)


def as_json(plan: ClientPlan | ServerPlan, cores: int) -> str:
    """The plan's fields, its role and the number of processes as one JSON object in one line."""
    fields = dataclasses.asdict(plan)
    fields["processes"] = plan.process_count(cores)
    if isinstance(plan, ClientPlan) and plan.rate is not None:
        fields["rate"] = float(plan.rate)
    return json.dumps({"role": plan.role, **fields}) + "\n"


def _client_rows(plan: ClientPlan) -> list[tuple[str, str]]:
    loops = [client_ports(plan, loop) for loop in range(plan.threads)]
    remote = f"{_plural(len(loops[0].remote), 'server port')} for each loop"
    addresses = _plural(max(1, len(plan.bind)), "address")
    if plan.local_port:
        local = f"{plan.local_port} to {plan.local_port + plan.local_ports - 1}"
        total = max(1, len(plan.bind)) * sum(ports.period or 0 for ports in loops)
        tuples = f"{addresses} x {_plural(plan.local_ports, 'local port')} x {remote} = {total}"
    else:
        local = "chosen by the kernel"
        tuples = f"{addresses} x the kernel's local ports x {remote}"
    connections = (
        f"{plan.connections} open, {_share(plan.connections, plan.threads)}; "
        f"at most {plan.pending} connecting, {_share(plan.pending, plan.threads)}"
    )
    return [
        ("client of", plan.target),
        ("server ports", _server_range(plan)),
        ("addresses", _bind(plan)),
        ("local ports", local),
        ("four-tuples", tuples),
        ("connections", connections),
        ("life", f"{_seconds(plan.hold_ns)}, then {'a new one' if plan.reconnect else 'no new one'}"),
    ]


def _server_rows(plan: ServerPlan) -> list[tuple[str, str]]:
    counts = [len(server_ports(plan, loop)) for loop in range(plan.threads)]
    each = f"{counts[0]}" if counts[0] == counts[-1] else f"{counts[-1]} or {counts[0]}"
    return [
        ("server on", _server_range(plan)),
        ("addresses", _bind(plan)),
        ("listeners", f"{each} port{'' if each == '1' else 's'} for each loop"),
    ]


def _does(plan: Plan) -> str:
    """What a connection does in the plan's mode."""
    return _MODES[plan.mode].format(size=plan.size)


def _plural(n: int, noun: str) -> str:
    return f"{n} {noun}" if n == 1 else f"{n} {noun}{'es' if noun.endswith('s') else 's'}"


def _server_range(plan: Plan) -> str:
    return f"{plan.base_port} to {plan.base_port + plan.ports - 1} ({plan.ports})"


def _bind(plan: Plan) -> str:
    if not plan.bind:
        return "any"
    return ", ".join(plan.bind[:4]) + (f" and {len(plan.bind) - 4} more" if len(plan.bind) > 4 else "")


def _share(total: int, loops: int) -> str:
    most, least = split(total, loops, 0), split(total, loops, loops - 1)
    return f"{most} a loop" if most == least else f"{least} or {most} a loop"


def _seconds(ns: int) -> str:
    return f"{float(Fraction(ns, SECOND)):.12g} s"


def _time(plan: Plan) -> str:
    length = "until interrupted" if plan.duration_ns is None else _seconds(plan.duration_ns)
    warmup = f", the first {_seconds(plan.warmup_ns)} left out of the report" if plan.warmup_ns else ""
    return f"{length}{warmup}, a row every {_seconds(plan.interval_ns)}"


def _capture(plan: Plan) -> str:
    if plan.capture == "off":
        return "off"
    text = "where this machine allows it" if plan.capture == "auto" else "required"
    text += f", on {plan.interface}" if plan.interface else ""
    text += f", level {plan.admitted}"
    return text + (f", packets to {plan.write}" if plan.write else "")
