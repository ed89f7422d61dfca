"""Scenario files as values, and formulas as verdicts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ncps_capture.errors import UsageError

from ncps_raw.lab.network import Network, Rule, Way
from ncps_raw.lab.scenario import Expectation, Verdict, flatten, judge, read_scenario

MS = 1_000_000

FULL = """
about = "Everything a scenario can have."
ip = 6
client = "-r 1 -N 5"
server = "-r 2"
server_stopped = "1500ms"

[network]
delay = "10ms"
rate = "1MB"
seed = 7
ethernet = true
stalls = [["1s", "2s"]]

[network.b_to_a]
delay = "20ms"
jitter = "500us"
queue = "4k"

[[rules]]
action = "delay"
kind = "syn"
direction = "a>b"
port = 9000
nth = [1, 2]
attempts = 3
every = 2
count = 9
delay = "1ms"

[[rules]]
action = "drop"

[sysctls.a]
"net.ipv4.tcp_timestamps" = 0
[sysctls.b]
"net.core.somaxconn" = 8

[expect]
syn_retrans = "dropped.syn"
failed = 0
"syn_rtt_us.min" = ">= 20000"
"""


def test_every_key_has_its_place() -> None:
    it = read_scenario("full", FULL)
    assert (it.name, it.about, it.ip) == ("full", "Everything a scenario can have.", 6)
    assert (it.client, it.server, it.server_stopped_ns) == (("-r", "1", "-N", "5"), ("-r", "2"), 1500 * MS)
    assert it.network == Network(
        Way(10 * MS, 0, 1_000_000, 0),
        Way(20 * MS, 500_000, 1_000_000, 4096),
        (
            Rule("delay", "syn", "a>b", port=9000, nth=(1, 2), attempts=3, every=2, count=9, delay_ns=MS),
            Rule("drop"),
        ),
        stalls=((1000 * MS, 2000 * MS),),
        seed=7,
        ethernet=True,
    )
    assert it.sysctls_a == {"net.ipv4.tcp_timestamps": 0}
    assert it.sysctls_b == {"net.core.somaxconn": 8}
    assert it.expect == (
        Expectation("syn_retrans", "=", "dropped.syn"),
        Expectation("failed", "=", "0"),
        Expectation("syn_rtt_us.min", ">=", "20000"),
    )


def test_what_is_left_out_has_a_default() -> None:
    it = read_scenario("small", "[expect]\nfailed = 0")
    assert (it.network, it.ip, it.client, it.server, it.server_stopped_ns) == (Network(), 4, (), (), 0)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("about = 'nothing'", "nothing is expected"),
        ("a = ", "Invalid value"),
        ("netwrok = 1\n[expect]\nx = 1", "'netwrok' is nothing scenario can have"),
        ("ip = 5\n[expect]\nx = 1", "ip must be 4 or 6"),
        ("client = ['-r']\n[expect]\nx = 1", "client must be options in one text"),
        ("[network]\nloss = 1\n[expect]\nx = 1", "'loss' is nothing network can have"),
        ("[network.a_to_b]\nseed = 1\n[expect]\nx = 1", "'seed' is nothing network can have"),
        ("[network]\ndelay = 'ten'\n[expect]\nx = 1", "delay must be a time"),
        ("[[rules]]\naction = 'drop'\ndelay_ns = 1\n[expect]\nx = 1", "'delay_ns' is nothing rules can have"),
        ("[[rules]]\nkind = 'syn'\n[expect]\nx = 1", "action"),
        ("[[rules]]\naction = 'lose'\n[expect]\nx = 1", "action of a lab rule must be one of"),
        ("[sysctls.c]\nx = 1\n[expect]\nx = 1", "'c' is nothing sysctls can have"),
        ("[expect]\nx = 'dropped.syn +'", r"'dropped.syn \+' is no formula"),
        ("[expect]\nx = 'f(1)'", r"'f\(1\)' cannot stand in a formula"),
        ("[expect]\nx = '2 ** 3'", "cannot stand in a formula"),
        ("[expect]\nx = '>= \"a\"'", "cannot stand in a formula"),
    ],
)
def test_what_is_wrong_is_said_with_the_scenario_s_name(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=f"^scenario mine: .*{said}"):
        read_scenario("mine", text)


FIGURES = {"a": 10, "b.c": 4, "half": 0.5, "none": None, "text": "x", "dropped.syn": 3}


def verdict(name: str, right: object, figures: dict[str, object] = FIGURES) -> Verdict:
    quoted = f'"{right}"' if isinstance(right, str) else right
    (one,) = judge(read_scenario("s", f'[expect]\n"{name}" = {quoted}').expect, figures)  # type: ignore[arg-type]
    return one


@pytest.mark.parametrize(
    ("name", "right", "holds"),
    [
        ("a", 10, True),
        ("a", 11, False),
        ("a", ">= 10", True),
        ("a", "> 10", False),
        ("a", "<= b.c + 6", True),
        ("a", "< b.c * 2.5", False),
        ("a", "b.c * 2 + dropped.syn - 1", True),
        ("half", "a / 20", True),
        ("half", 0.5, True),
        ("none", "unknown", True),
        ("a", "unknown", False),
        ("none", 0, False),
        ("none", ">= 0", False),
        ("a", "none", False),
        ("written.synack", 0, True),
        ("a", "10 + dropped.synack", True),
        ("dropped.sync", 0, False),
        ("a", "missing", False),
        ("text", 1, False),
        ("a", "b.c / dropped.ack", False),
    ],
)
def test_verdicts(name: str, right: object, holds: bool) -> None:
    assert verdict(name, right).holds is holds


@pytest.mark.parametrize(
    ("name", "right", "text"),
    [
        ("a", "> b.c * 3", "a > b.c * 3: 10 against 12"),
        ("none", 0, "none = 0: unknown against 0"),
        ("half", "1 / 3", "half = 1 / 3: 0.5 against 0.333333"),
        ("a", "missing", "a = missing: there is no figure missing"),
        ("a", "none", "a = none: none is unknown"),
        ("text", 1, "text = 1: text is no number but 'x'"),
        ("a", "1 / 0", "a = 1 / 0: 1 / 0 divides by 0"),
        ("a", "unknown", "a = unknown: 10"),
    ],
)
def test_a_verdict_says_both_sides(name: str, right: object, text: str) -> None:
    one = verdict(name, right)
    assert (one.holds, one.text) == (False, text)


@given(st.integers(0, 10**12), st.integers(0, 10**12), st.integers(1, 10**6))
def test_formulas_are_exact(a: int, b: int, c: int) -> None:
    figures: dict[str, object] = {"x": a * c + b, "a": a, "b": b, "c": c, "y": a * c}
    assert verdict("x", "a * c + b", figures).holds
    assert verdict("a", "y / c", figures).holds
    assert not verdict("x", "a * c + b + 1", figures).holds


def test_flatten_names_by_dots_and_leaves_lists_out() -> None:
    tree = {"a": 1, "b": {"c": 2, "d": {"e": None}}, "list": [1, 2]}
    assert flatten(tree) == {"a": 1, "b.c": 2, "b.d.e": None}
    assert flatten(tree, "server.")["server.b.c"] == 2
