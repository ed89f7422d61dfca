"""The plan as understood: what it shows follows from the plan."""

import json
from fractions import Fraction
from typing import Any

import pytest

from ncps_raw.budget import Machine
from ncps_raw.dry_run import as_json, as_text
from ncps_raw.plan import CLIENT_MODES, SECOND, SERVER_MODES, ClientPlan, ServerPlan


def machine(cores: int = 2, soft: int | None = 1024, hard: int | None = 4096) -> Machine:
    return Machine(cores, (30_000, 30_999), reserved_ports=0, soft_files=soft, hard_files=hard)


def rows(plan: ClientPlan | ServerPlan, on: Machine | None = None) -> dict[str, str]:
    text = as_text(plan, on or machine())
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
        "local ports": "chosen by the kernel from 30000 to 30999",
        "four-tuples": "1 address x 1000 local ports x 16 server ports = 16000",
        "they repeat": "after 1.6 s at 10000/s (an example: no --rate is given)",
        "ports last": "as long as the run if the server answers FIN with RST, as ncps server and NCPS do; else "
        "TIME_WAIT keeps each for 60 s, and at 10000/s (an example: no --rate is given) they run out after 1.6 s",
        "files": "832 needed in a process, soft limit 1024, hard limit 4096",
        "connections": "1600 open, 100 a loop; at most 1600 connecting, 100 a loop",
        "life": "0 s, then a new one",
        "mode": "1: send 1000 bytes, receive once, close, with FIN",
        "loops": "16 in 2 processes, engine selector",
        "time": "until interrupted, a row every 1 s",
        "capture": "where this machine allows it, level base",
        "results": "text to standard output",
    }


def test_a_plain_server() -> None:
    assert rows(ServerPlan(threads=4), machine(cores=1)) == {
        "server on": "10001 to 10004 (4)",
        "addresses": "any",
        "listeners": "1 port for each loop",
        "files": "soft limit 1024, hard limit 4096",
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
            "1 address x 100 local ports x 16 server ports = 1600",
        ),
        (
            {"local_port": 2000, "local_ports": 100, "bind": ("10.0.0.1", "10.0.0.2")},
            "four-tuples",
            "2 addresses x 100 local ports x 1 server port = 200",
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
        ({"threads": 32}, "four-tuples", "1 address x 1000 local ports x 32 server ports = 32000"),
        ({"threads": 4, "ports": 9}, "four-tuples", "1 address x 1000 local ports x 4 server ports = 4000"),
        (
            {"threads": 4, "ports": 9, "cross_connect": True},
            "four-tuples",
            "1 address x 1000 local ports x 9 server ports = 9000",
        ),
        ({"rate": Fraction(1, 2)}, "rate", "0.5 connects a second"),
        ({"rate": Fraction(1, 2)}, "they repeat", "after 32000 s at 0.5/s"),
        ({"rate": Fraction(1, 2)}, "ports last", "as long as the run, even if each stays in TIME_WAIT for 60 s"),
        (
            {"rate": Fraction(1000), "hold_ns": 10 * SECOND},
            "rate",
            (
                "1000 connects a second; 1000 connects a second that live for 10 s need 10000 connections, not 1600: "
                "use more --connections"
            ),
        ),
        ({"processes": 1}, "files", "1632 needed in a process, soft limit 1024, hard limit 4096: will be raised"),
        (
            {"processes": 1, "connections": 9000},
            "files",
            "9040 needed in a process, soft limit 1024, hard limit 4096: the run will be reduced to 4064 connections",
        ),
        (
            {"affinity": (0, 2)},
            "loops",
            "16 in 2 processes, engine selector, on processors 0, 2",
        ),
        (
            {"affinity_nonrss": True, "busy_poll": True},
            "loops",
            (
                "16 in 2 processes, engine selector, on processors without network interrupts, "
                "looking for events all the time"
            ),
        ),
        (
            {"mode": "p", "pace_ns": SECOND, "shutdown": True, "keepalive_ns": 5 * SECOND},
            "mode",
            (
                "p: send 1000 bytes, await the answer, again and again, close, a round every 1 s, with FIN after a FIN "
                "for the sending side; keep-alive after 5 s"
            ),
        ),
        (
            {"delay_ns": 2 * SECOND, "duration_ns": 9 * SECOND, "brief": True},
            "time",
            "2 s of delay, then 9 s, a short row every 1 s",
        ),
        ({"silent_rows": True}, "time", "until interrupted, no rows"),
    ],
)
def test_what_a_choice_changes(fields: dict[str, Any], name: str, shown: str) -> None:
    assert client(**fields)[name] == shown


def test_uneven_listeners() -> None:
    assert rows(ServerPlan(threads=4, ports=6))["listeners"] == "1 or 2 ports for each loop"


def test_listeners_that_are_shared() -> None:
    shown = rows(ServerPlan(threads=4, ports=2, reuse_port=True))["listeners"]
    assert shown == "2 ports for each loop, shared with all other loops"


@pytest.mark.parametrize("mode", CLIENT_MODES)
def test_every_mode_of_the_client_is_described(mode: str) -> None:
    assert client(mode=mode)["mode"].startswith(f"{mode}: ")


@pytest.mark.parametrize("mode", SERVER_MODES)
def test_every_mode_of_the_server_is_described(mode: str) -> None:
    assert rows(ServerPlan(mode=mode))["mode"].startswith(f"{mode}: ")


def test_files_that_are_too_few_or_unlimited() -> None:
    assert rows(ClientPlan(target="h"), machine(hard=39, soft=39))["files"] == (
        "832 needed in a process, soft limit 39, hard limit 39: not enough for one connection a loop, the run will "
        "be refused"
    )
    assert rows(ClientPlan(target="h"), machine(soft=None, hard=None))["files"] == "832 needed in a process, no limit"
    assert rows(ServerPlan(), machine(hard=None))["files"] == "soft limit 1024, hard limit no limit"


def test_json_has_the_budget() -> None:
    plan = ClientPlan(target="h", rate=Fraction(750), duration_ns=SECOND, bind=("10.0.0.1", "10.0.0.2"))
    shown = json.loads(as_json(plan, machine()))
    assert shown["rate"] == 750
    assert shown["budget"] == {
        "source_addresses": 2,
        "local_ports": 1000,
        "local_port_first": 30_000,
        "local_port_last": 30_999,
        "local_ports_by": "kernel",
        "server_ports": 16,
        "four_tuples": 32_000,
        "rate_per_s": 750.0,
        "rate_is": "asked",
        "repeat_s": pytest.approx(42.6666666),
        "run_out_in_time_wait_s": pytest.approx(42.6666666),
        "time_wait_s": 60.0,
        "files_needed": 832,
        "files_soft_limit": 1024,
        "files_hard_limit": 4096,
        "connections_possible": 1600,
    }


def test_json_has_every_field_and_the_number_of_processes() -> None:
    plan = ClientPlan(target="::1", bind=("::2",), duration_ns=SECOND)
    shown = json.loads(as_json(plan, machine(4)))
    assert shown["role"] == "client"
    assert shown["processes"] == 4
    assert shown["duration_ns"] == SECOND
    assert shown["bind"] == ["::2"]
    assert {"target", "connections", "pending", "threads", "ports", "format"} <= set(shown)
    assert as_json(plan, machine(4)).count("\n") == 1
