"""Pure: NCPS's own command line (``-s ...`` and ``-c HOST ...``) to our plan.

Must not know how a run is made or what it prints. The one idea: a table from NCPS's flags to fields of the plan;
numbers without a unit keep NCPS's units, beside which times may be decimal and carry a unit, and our long options
are understood too. Where NCPS reads ``abc`` as 0 we refuse.
"""

from __future__ import annotations

import difflib
import re
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from ncps_capture.errors import UsageError

from ncps_raw import units
from ncps_raw.options import CLIENT_FIELDS, OPTIONS, SERVER_FIELDS, Given, Option, build, processors, word
from ncps_raw.plan import ClientPlan, ServerPlan


def _milliseconds(text: str, option: str) -> int:
    return units.duration(text, option, plain=units.MILLISECOND)


def _length(text: str, option: str) -> int:
    """0 means the default, as in NCPS."""
    return units.size(text, option) or 1_000


def _delay(text: str, option: str) -> int:
    """A delay of nothing is refused, as in NCPS."""
    delay_ns = units.duration(text, option)
    if not delay_ns:
        raise UsageError(f"{option} must be longer than 0 s")
    return delay_ns


def _mode(text: str, option: str) -> str:
    """Only the first character counts: ``-M ping`` is ``-M p``."""
    return text[:1]


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
    "-M": Option("mode", _mode),
    "-k": Option("pace_ns", units.duration),
    "-len": Option("size", _length),
    "-t": Option("duration_ns", units.duration),
    "-wt": Option("warmup_ns", units.duration),
    "-ds": Option("delay_ns", _delay),
    "-i": Option("interval_ns", units.duration),
    "-tka": Option("keepalive_ns", units.duration),
    "-rup": Option("reuse_port"),
    "-aff": Option("affinity", processors),
    "-dnrc": Option("reconnect", value=False),
    "-abortiveclose": Option("close", value="rst"),
    "-normalclose": Option("close", value="fin"),
    "-disconbc": Option("shutdown"),
    "-nodisconbc": Option("shutdown", value=False),
    "-poll": Option("busy_poll"),
    "-sil": Option("silent_rows"),
    "-brief": Option("brief"),
    "-o": Option("output", word),
    # Ours; NCPS has no flags of these names.
    "-w": OPTIONS["--write"],
    "-q": OPTIONS["--quiet"],
}

REFUSED: Final = ("-xconnect", "-rup")
"""Flags that NCPS refuses where they have no meaning; the others it takes without a word."""

_GLUED = re.compile(r"([0-9.]+)(-M)", re.ASCII)
"""``-ds 5-M s``: a program that runs NCPS forgets the blank between the delay and the mode."""


_OTHER: Final = {"server": "the client (-c), not for a server (-s)", "client": "a server (-s), not for the client (-c)"}


class Reading(NamedTuple):
    """What a command line in NCPS's dialect asks for."""

    plan: ClientPlan | ServerPlan
    dry_run: bool
    ignored: tuple[str, ...]  # what has no meaning here and NCPS takes without a word


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
    queue = deque(rest)
    while queue:
        token = queue.popleft()
        if token == "--dry-run":
            dry_run = True
            continue
        name, option = _look_up(token)
        value = _value(name, option, token, queue)
        if option.field in fields:
            given[option.field] = value  # the last of two contradicting flags wins
        elif token.startswith("--") or token in REFUSED:
            raise UsageError(f"{name} is for {_OTHER[role]}")
        else:
            ignored.append(f"{token}: without meaning for a {role}, ignored")
    plan = build(role, given)
    if isinstance(plan, ClientPlan) and plan.pace_ns and plan.mode != "p":
        ignored.append(f"-k: without meaning for mode {plan.mode}, ignored")
    return Reading(plan, dry_run, tuple(ignored))


def _look_up(token: str) -> tuple[str, Option]:
    name = token.partition("=")[0] if token.startswith("--") else token
    option = OPTIONS.get(name) or FLAGS.get(name)
    if option is not None:
        return name, option
    if name in ("-s", "-c"):
        raise UsageError(f"{name} must be the first argument, and only one of -s and -c can be given")
    if not name.startswith("-"):
        raise UsageError(f"unexpected argument {name!r}: flags begin with -; see ncps -c --help")
    alike = [flag for flag in (*FLAGS, *OPTIONS, "--dry-run") if len(flag) > 2]
    near = difflib.get_close_matches(name, alike, 1)
    raise UsageError(f"unknown flag {name}" + (f", did you mean {near[0]}?" if near else "; see ncps -c --help"))


def _value(name: str, option: Option, token: str, queue: deque[str]) -> Any:
    has_own = token != name
    if option.read is None:
        if has_own:
            raise UsageError(f"{name} takes no value")
        return option.value
    text = token.partition("=")[2] if has_own else queue.popleft() if queue else ""
    if not text:
        raise UsageError(f"{name} needs a value")
    if name == "-ds" and (glued := _GLUED.fullmatch(text)):
        text = glued[1]
        queue.appendleft(glued[2])
    return option.read(text, name)
