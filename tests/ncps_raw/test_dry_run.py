"""The plan as understood: what it shows follows from the plan."""

import json
from typing import Any

import pytest

from ncps_raw.dry_run import as_json, as_text
from ncps_raw.plan import SECOND, ClientPlan, ServerPlan


def rows(plan: ClientPlan | ServerPlan, cores: int = 2) -> dict[str, str]:
    text = as_text(plan, cores)
    assert text.endswith("\n")
    pairs = [line.split(":", 1) for line in text.splitlines()]
    return {name: value.strip() for name, value in pairs}


def client(**fields: Any) -> dict[str, str]:
    return rows(ClientPlan(**{"target": "10.0.0.5", **fields}))


def test_a_plain_client() -> None:
    assert client() == {
        "client of": "10.0.0.5",
        "server ports": "10001 to 10016 (16)",
        "addresses": "any",
        "local ports": "chosen by the kernel",
        "four-tuples": "1 address x the kernel's local ports x 1 server port for each loop",
        "connections": "1600 open, 100 a loop; at most 1600 connecting, 100 a loop",
        "life": "0 s, then a new one",
        "mode": "1: send 1000 bytes, receive once, close, with FIN",
        "loops": "16 in 2 processes, engine selector",
        "time": "until interrupted, a row every 1 s",
        "capture": "where this machine allows it, level base",
        "results": "text to standard output",
    }


def test_a_plain_server() -> None:
    assert rows(ServerPlan(threads=4), cores=1) == {
        "server on": "10001 to 10004 (4)",
        "addresses": "any",
        "listeners": "1 port for each loop",
        "mode": "echo: echo what one receive of up to 1000 bytes returned, with RST",
        "loops": "4 in 1 process, engine selector",
        "time": "until interrupted, a row every 1 s",
        "capture": "off",
        "results": "text to standard output",
    }


@pytest.mark.parametrize(
    ("fields", "name", "shown"),
    [
        (
            {"local_port": 2000, "local_ports": 100, "cross_connect": True},
            "four-tuples",
            "1 address x 100 local ports x 16 server ports for each loop = 1600",
        ),
        (
            {"local_port": 2000, "local_ports": 100, "bind": ("10.0.0.1", "10.0.0.2")},
            "four-tuples",
            "2 addresses x 100 local ports x 1 server port for each loop = 200",
        ),
        ({"local_port": 2000, "local_ports": 100}, "local ports", "2000 to 2099"),
        (
            {"threads": 3, "connections": 10, "pending": 6},
            "connections",
            "10 open, 3 or 4 a loop; at most 6 connecting, 2 a loop",
        ),
        (
            {"bind": tuple(f"10.0.0.{i}" for i in range(1, 7))},
            "addresses",
            "10.0.0.1, 10.0.0.2, 10.0.0.3, 10.0.0.4 and 2 more",
        ),
        ({"hold_ns": 1_500_000_000, "reconnect": False}, "life", "1.5 s, then no new one"),
        (
            {"duration_ns": 60 * SECOND, "warmup_ns": SECOND // 2},
            "time",
            "60 s, the first 0.5 s left out of the report, a row every 1 s",
        ),
        (
            {"capture": "required", "interface": "eth0", "write": "a.pcap"},
            "capture",
            "required, on eth0, level base, packets to a.pcap",
        ),
        ({"format": "jsonl", "output": "r.jsonl"}, "results", "jsonl to r.jsonl"),
        ({"run": "r.ncps"}, "results", "text to standard output, the run to r.ncps"),
        ({"mode": "0", "close": "rst"}, "mode", "0: connect and close, with RST"),
        ({"processes": 1}, "loops", "16 in 1 process, engine selector"),
    ],
)
def test_what_a_choice_changes(fields: dict[str, Any], name: str, shown: str) -> None:
    assert client(**fields)[name] == shown


def test_uneven_listeners() -> None:
    assert rows(ServerPlan(threads=4, ports=6))["listeners"] == "1 or 2 ports for each loop"


def test_json_has_every_field_and_the_number_of_processes() -> None:
    plan = ClientPlan(target="::1", bind=("::2",), duration_ns=SECOND)
    shown = json.loads(as_json(plan, 4))
    assert shown["role"] == "client"
    assert shown["processes"] == 4
    assert shown["duration_ns"] == SECOND
    assert shown["bind"] == ["::2"]
    assert {"target", "connections", "pending", "threads", "ports", "format"} <= set(shown)
    assert as_json(plan, 4).count("\n") == 1
