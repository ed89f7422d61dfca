"""Pure: our long options as a table, from typed text to a plan's fields.

Must not know docopt, help texts or NCPS's flags. The one idea: an option is a field of the plan and a function
that reads its text, so the native commands and NCPS's dialect, beside which our options are understood too,
cannot drift apart. Units are named in ``units``, limits and defaults stand in ``plan`` alone.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from ncps_raw import units
from ncps_raw.plan import ClientPlan, ServerPlan

Given = dict[str, Any]
"""Field of the plan -> value, for what the person typed."""

NONRSS: Final = "nonrss"

Read = Callable[[str, str], Any]
"""(text, name of the option) -> value; raises ``UsageError``."""


class Option(NamedTuple):
    """What an option sets: ``read`` of its text, or for a switch (``read`` None) ``value``."""

    field: str
    read: Read | None = None
    value: Any = True


def word(text: str, option: str) -> str:
    """The text itself; whether it is one of the choices is for the plan to say."""
    return text


def max_failed(text: str, option: str) -> float:
    """Share of the attempts; the float nearest to what was typed."""
    return float(units.share(text, option))


def processors(text: str, option: str) -> tuple[int, ...] | str:
    """Numbers of processors, or the word ``nonrss``, which ``build`` turns into a field of its own."""
    return NONRSS if text.strip() == NONRSS else units.processors(text, option)


OPTIONS: Final[Mapping[str, Option]] = {
    "--duration": Option("duration_ns", units.duration),
    "--warmup": Option("warmup_ns", units.duration),
    "--interval": Option("interval_ns", units.duration),
    "--bind": Option("bind", units.addresses),
    "--port": Option("base_port", units.count),
    "--ports": Option("ports", units.count),
    "--threads": Option("threads", units.count),
    "--processes": Option("processes", units.count),
    "--connections": Option("connections", units.count),
    "--pending": Option("pending", units.count),
    "--mode": Option("mode", word),
    "--hold": Option("hold_ns", units.duration),
    "--size": Option("size", units.size),
    "--rate": Option("rate", units.rate),
    "--pace": Option("pace_ns", units.duration),
    "--local-port": Option("local_port", units.count),
    "--local-ports": Option("local_ports", units.count),
    "--cross-connect": Option("cross_connect"),
    "--no-reconnect": Option("reconnect", value=False),
    "--close": Option("close", word),
    "--shutdown": Option("shutdown"),
    "--reuse-port": Option("reuse_port"),
    "--keepalive": Option("keepalive_ns", units.duration),
    "--delay": Option("delay_ns", units.duration),
    "--affinity": Option("affinity", processors),
    "--busy-poll": Option("busy_poll"),
    "--brief": Option("brief"),
    "--engine": Option("engine", word),
    "--capture": Option("capture", value="required"),
    "--no-capture": Option("capture", value="off"),
    "--interface": Option("interface", word),
    "--write": Option("write", word),
    "--capture-level": Option("capture_level", word),
    "--capture-buffer": Option("capture_buffer", units.size),
    "--format": Option("format", word),
    "--output": Option("output", word),
    "--run": Option("run", word),
    "--max-failed": Option("max_failed", max_failed),
    "--quiet": Option("quiet"),
}

CLIENT_FIELDS: Final = frozenset(f.name for f in dataclasses.fields(ClientPlan))
SERVER_FIELDS: Final = frozenset(f.name for f in dataclasses.fields(ServerPlan))


def long_name(option: Option) -> str | None:
    """Our option that can ask for what ``option``, another name's, asks for."""
    return next(
        (
            name
            for name, ours in OPTIONS.items()
            if ours.field == option.field and (ours.read is not None or ours.value == option.value)
        ),
        None,
    )


def build(role: str, given: Given) -> ClientPlan | ServerPlan:
    """Make the plan, with what some options imply. Raises ``UsageError``.

    Who names an interface, a level or a file for the packets wants the capture: it must work. Quiet is without rows
    too.
    """
    fields = dict(given)
    if fields.get("quiet"):
        fields["silent_rows"] = True
    if fields.get("affinity") == NONRSS:
        fields.update(affinity=(), affinity_nonrss=True)
    if fields.get("write") or fields.get("interface") or fields.get("capture_level"):
        fields.setdefault("capture", "required")
    return ClientPlan(**fields) if role == "client" else ServerPlan(**fields)
