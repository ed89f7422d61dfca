"""Pure: NCPS's own command line (``-s ...`` and ``-c HOST ...``) to our plan.

Must not know how a run is made or what it prints. The one idea: a table from NCPS's flags to fields of the plan;
numbers without a unit keep NCPS's units, beside which times may be decimal and carry a unit, and our long options
are understood too. Where NCPS reads ``abc`` as 0 we refuse; a flag of NCPS that does not exist here yet is named.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from ncps_capture.errors import UsageError

from ncps_raw import units
from ncps_raw.options import CLIENT_FIELDS, OPTIONS, SERVER_FIELDS, Given, Option, build, word
from ncps_raw.plan import ClientPlan, ServerPlan


def _milliseconds(text: str, option: str) -> int:
    return units.duration(text, option, plain=units.MILLISECOND)


def _length(text: str, option: str) -> int:
    """0 means the default, as in NCPS."""
    return units.size(text, option) or 1_000


FLAGS: Final[Mapping[str, Option]] = {
    "-r": Option("threads", units.count),
    "-b": Option("bind", units.addresses),
    "-bp": Option("base_port", units.count),
    "-np": Option("ports", units.count),
    "-bcp": Option("local_port", units.count),
    "-ncp": Option("local_ports", units.count),
    "-xconnect": Option("cross_connect"),
    "-N": Option("connections", units.count),
    "-P": Option("pending", units.count),
    "-D": Option("hold_ns", _milliseconds),
    "-M": Option("mode", word),
    "-len": Option("size", _length),
    "-t": Option("duration_ns", units.duration),
    "-wt": Option("warmup_ns", units.duration),
    "-i": Option("interval_ns", units.duration),
    "-dnrc": Option("reconnect", value=False),
    "-abortiveclose": Option("close", value="rst"),
    "-normalclose": Option("close", value="fin"),
    "-sil": Option("silent_rows"),
    "-o": Option("output", word),
    # Ours; NCPS has no flags of these names.
    "-w": OPTIONS["--write"],
    "-q": OPTIONS["--quiet"],
}

UNAVAILABLE: Final = ("-k", "-ds", "-tka", "-rup", "-aff", "-disconbc", "-poll", "-brief")
"""Flags of NCPS that do not exist here."""

NO_EFFECT: Final = ("-nodisconbc",)
"""Flags of NCPS that ask for what is done anyway."""


class Reading(NamedTuple):
    """What a command line in NCPS's dialect asks for."""

    plan: ClientPlan | ServerPlan
    dry_run: bool
    ignored: tuple[str, ...]  # flags of the client given to a server; NCPS takes them without a word


def parse(args: Sequence[str], command_line: str) -> Reading:
    """Read ``-s ...`` or ``-c HOST ...``. ``command_line`` is for the report. Raises ``UsageError``."""
    given: Given = {"format": "ncps", "command_line": command_line, "dialect": True}
    role, rest = "server", list(args[1:])
    if args[0] == "-c":
        if not rest or rest[0].startswith("-"):
            raise UsageError("-c needs the server's address: ncps -c 10.0.0.1")
        role, given["target"] = "client", rest.pop(0)
    fields = CLIENT_FIELDS if role == "client" else SERVER_FIELDS

    dry_run = False
    ignored = []
    queue = iter(rest)
    for token in queue:
        if token == "--dry-run":
            dry_run = True
            continue
        if token in NO_EFFECT:
            continue
        name, option = _look_up(token)
        value = _value(name, option, token, queue)
        if option.field in fields:
            given[option.field] = value  # the last of two contradicting flags wins
        elif token.startswith("--") or token == "-xconnect":
            raise UsageError(f"{name} is for the client (-c), not for a server (-s)")
        else:
            ignored.append(token)
    return Reading(build(role, given), dry_run, tuple(ignored))


def _look_up(token: str) -> tuple[str, Option]:
    name = token.partition("=")[0] if token.startswith("--") else token
    option = OPTIONS.get(name) or FLAGS.get(name)
    if option is not None:
        return name, option
    if name in UNAVAILABLE:
        raise UsageError(f"NCPS's flag {name} is not available")
    if name in ("-s", "-c"):
        raise UsageError(f"{name} must be the first argument, and only one of -s and -c can be given")
    if not name.startswith("-"):
        raise UsageError(f"unexpected argument {name!r}: flags begin with -; see ncps -c --help")
    alike = [flag for flag in (*FLAGS, *OPTIONS, "--dry-run") if len(flag) > 2]
    near = difflib.get_close_matches(name, alike, 1)
    raise UsageError(f"unknown flag {name}" + (f", did you mean {near[0]}?" if near else "; see ncps -c --help"))


def _value(name: str, option: Option, token: str, queue: Iterator[str]) -> Any:
    has_own = token != name
    if option.read is None:
        if has_own:
            raise UsageError(f"{name} takes no value")
        return option.value
    text = token.partition("=")[2] if has_own else next(queue, None)
    if text is None or text == "":
        raise UsageError(f"{name} needs a value")
    return option.read(text, name)
