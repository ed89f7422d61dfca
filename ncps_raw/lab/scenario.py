"""Pure: a scenario's TOML text as a frozen value, and whether what was expected came true.

It must not know how a scenario is run. The one idea: a scenario is data. What must come out is written as formulas
over what the path did (``syn_retrans = "dropped.syn"``), so adding one needs no code, and none repeats a number that
the lab counts anyway.

Names in formulas: the client's report by its JSON keys (``syn_rtt_us.p50``), the server's under ``server.``, the
relay's counters (``dropped.syn``), what a capture at either end must have seen (``at_a.attempts``, ``at_b. ...``).
"""

from __future__ import annotations

import ast
import operator
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from fractions import Fraction
from typing import Any, Final

from ncps_capture.errors import UsageError

from ncps_raw import units
from ncps_raw.lab.logbook import EVENTS
from ncps_raw.lab.network import DONE, Network, Rule, Way
from ncps_raw.lab.packets import KINDS

Figures = Mapping[str, int | float | str | bool | None]
Value = Fraction | None

UNKNOWN: Final = "unknown"
"""A formula: the report must say null."""

_COMPARISONS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
    "=": operator.eq,
}
_OPERATIONS: Final[dict[type[ast.operator], Callable[[Any, Any], Any]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
_TABLE: Final = ("about", "ip", "network", "rules", "client", "server", "server_stopped", "sysctls", "expect")
COUNTERS: Final = frozenset(f"{verb}.{kind}" for verb in ("repeated", *EVENTS, *DONE) for kind in KINDS)
"""Every counter the relay may have; one that never came about is 0."""


@dataclass(frozen=True)
class Expectation:
    """``name`` of a figure, and the formula it is held against, with its comparison in front."""

    name: str
    comparison: str
    formula: str


@dataclass(frozen=True)
class Verdict:
    """An expectation, and what came of it: ``text`` says both sides in figures."""

    holds: bool
    text: str


@dataclass(frozen=True)
class Scenario:
    """A network, a server at b, a client at a, and what must come out."""

    name: str
    about: str
    network: Network
    ip: int  # 4 or 6
    client: tuple[str, ...]  # options of ``ncps client`` beyond host and port
    server: tuple[str, ...]  # options of ``ncps server`` beyond address and port
    server_stopped_ns: int  # its processes stop before the first SYN, and go on so long after it
    sysctls_a: Mapping[str, int | str]
    sysctls_b: Mapping[str, int | str]
    expect: tuple[Expectation, ...]


# ---- reading -------------------------------------------------------------------------------------------------


def read_scenario(name: str, text: str) -> Scenario:
    """Read a scenario. UsageError naming it and what is wrong, for what is not one."""
    try:
        table = tomllib.loads(text)
        _only(table, "scenario", *_TABLE)
        sysctls = table.get("sysctls", {})
        _only(sysctls, "sysctls", "a", "b")
        expect = tuple(_expectation(left, right) for left, right in table.get("expect", {}).items())
        if not expect:
            raise UsageError("nothing is expected of it")
        ip = table.get("ip", 4)
        if ip not in (4, 6):
            raise UsageError(f"ip must be 4 or 6, not {ip!r}")
        return Scenario(
            name=name,
            about=table.get("about", ""),
            network=_network(table.get("network", {}), table.get("rules", [])),
            ip=ip,
            client=_options(table, "client"),
            server=_options(table, "server"),
            server_stopped_ns=_time(table.get("server_stopped", "0s"), "server_stopped"),
            sysctls_a=sysctls.get("a", {}),
            sysctls_b=sysctls.get("b", {}),
            expect=expect,
        )
    except (tomllib.TOMLDecodeError, UsageError, TypeError, AttributeError) as error:
        raise UsageError(f"scenario {name}: {error}") from None


def _network(table: dict[str, Any], rules: list[dict[str, Any]]) -> Network:
    shared = {key: value for key, value in table.items() if key in ("delay", "jitter", "rate", "queue")}
    _only(table, "network", "a_to_b", "b_to_a", "seed", "ethernet", "stalls", *shared)
    return Network(
        a_to_b=_way({**shared, **table.get("a_to_b", {})}),
        b_to_a=_way({**shared, **table.get("b_to_a", {})}),
        rules=tuple(_rule(rule) for rule in rules),
        stalls=tuple((_time(begin, "stalls"), _time(end, "stalls")) for begin, end in table.get("stalls", ())),
        seed=table.get("seed", 1),
        ethernet=table.get("ethernet", False),
    )


def _way(table: dict[str, Any]) -> Way:
    _only(table, "network", "delay", "jitter", "rate", "queue")
    return Way(
        delay_ns=_time(table.get("delay", "0s"), "delay"),
        jitter_ns=_time(table.get("jitter", "0s"), "jitter"),
        rate=units.size(str(table.get("rate", 0)), "rate"),
        queue_bytes=units.size(str(table.get("queue", 0)), "queue"),
    )


def _rule(table: dict[str, Any]) -> Rule:
    values = dict(table)
    delay = values.pop("delay", None)
    _only(values, "rules", *(one.name for one in fields(Rule) if one.name != "delay_ns"))
    if delay is not None:
        values["delay_ns"] = _time(delay, "delay")
    if "nth" in values:
        values["nth"] = tuple(values["nth"])
    return Rule(**values)


def _time(text: str, name: str) -> int:
    return units.duration(text, name)


def _options(table: dict[str, Any], name: str) -> tuple[str, ...]:
    words = table.get(name, "")
    if not isinstance(words, str):
        raise UsageError(f"{name} must be options in one text, not {words!r}")
    return tuple(words.split())


def _only(table: dict[str, Any], place: str, *names: str) -> None:
    unknown = sorted(set(table) - set(names))
    if unknown:
        raise UsageError(f"{unknown[0]!r} is nothing {place} can have; it can have {', '.join(names)}")


def _expectation(name: str, right: int | float | str) -> Expectation:
    formula = str(right).strip()
    comparison = next((sign for sign in _COMPARISONS if formula.startswith(sign)), "=")
    formula = formula.removeprefix(comparison).strip()
    if formula != UNKNOWN:
        _names(_parse(formula))
    return Expectation(name, comparison, formula)


# ---- judging -------------------------------------------------------------------------------------------------


def flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested tables as one, with dotted names. Lists stay out: no formula can name their elements."""
    out: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, Mapping):
            out.update(flatten(value, f"{prefix}{key}."))
        elif not isinstance(value, list):
            out[f"{prefix}{key}"] = value
    return out


def judge(expect: tuple[Expectation, ...], figures: Figures) -> list[Verdict]:
    """Hold figures against what was expected of them. A name that no figure has makes its expectation fail."""
    return [_judge(one, figures) for one in expect]


def _judge(one: Expectation, figures: Figures) -> Verdict:
    said = f"{one.name} {one.comparison} {one.formula}"
    try:
        left = _figure(one.name, figures)
        if one.formula == UNKNOWN:
            return Verdict(left is None, f"{said}: {_shown(left)}")
        right = _evaluate(_parse(one.formula), figures)
    except UsageError as error:
        return Verdict(False, f"{said}: {error}")
    holds = left is not None and _COMPARISONS[one.comparison](left, right)
    return Verdict(holds, f"{said}: {_shown(left)} against {_shown(right)}")


def _figure(name: str, figures: Figures) -> Value:
    if name not in figures:
        if name in COUNTERS:
            return Fraction(0)
        raise UsageError(f"there is no figure {name}")
    value = figures[name]
    if value is None:
        return None
    if isinstance(value, str):
        raise UsageError(f"{name} is no number but {value!r}")
    return Fraction(value)


def _parse(formula: str) -> ast.expr:
    try:
        return ast.parse(formula, mode="eval").body
    except SyntaxError:
        raise UsageError(f"{formula!r} is no formula") from None


def _dotted(node: ast.expr) -> str | None:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (stem := _dotted(node.value)):
        return f"{stem}.{node.attr}"
    return None


def _names(node: ast.expr) -> list[str]:
    """Names a formula uses; UsageError for what a formula cannot hold."""
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATIONS:
        return _names(node.left) + _names(node.right)
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return []
    if name := _dotted(node):
        return [name]
    raise UsageError(f"{ast.unparse(node)!r} cannot stand in a formula: numbers, names of figures, + - * / can")


def _evaluate(node: ast.expr, figures: Figures) -> Fraction:
    if isinstance(node, ast.BinOp):
        right = _evaluate(node.right, figures)
        if isinstance(node.op, ast.Div) and not right:
            raise UsageError(f"{ast.unparse(node)} divides by 0")
        value = _OPERATIONS[type(node.op)](_evaluate(node.left, figures), right)
        return Fraction(value)
    if isinstance(node, ast.Constant):
        assert isinstance(node.value, int | float)
        return Fraction(str(node.value))
    name = _dotted(node)
    assert name is not None
    value = _figure(name, figures)
    if value is None:
        raise UsageError(f"{name} is unknown")
    return value


def _shown(value: Value) -> str:
    if value is None:
        return UNKNOWN
    return str(value) if value.denominator == 1 else f"{float(value):.6g}"
