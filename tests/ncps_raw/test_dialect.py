"""NCPS's dialect: its flags and units, what it refuses, and our own options beside it."""

from typing import Any

import pytest
from ncps_capture.errors import UsageError

from ncps_raw import dialect
from ncps_raw.options import OPTIONS
from ncps_raw.plan import SECOND, ClientPlan, ServerPlan


def parse(line: str) -> dialect.Reading:
    return dialect.parse(line.split(), f"ncps {line}")


def client(flags: str) -> ClientPlan:
    plan = parse(f"-c 10.0.0.5 {flags}").plan
    assert isinstance(plan, ClientPlan)
    return plan


def server(flags: str) -> ServerPlan:
    plan = parse(f"-s {flags}").plan
    assert isinstance(plan, ServerPlan)
    return plan


def test_what_a_bare_client_and_a_bare_server_mean() -> None:
    plain = {"format": "ncps", "dialect": True}
    assert client("") == ClientPlan(target="10.0.0.5", command_line="ncps -c 10.0.0.5 ", **plain)
    assert server("") == ServerPlan(command_line="ncps -s ", **plain)


@pytest.mark.parametrize(
    ("flags", "field", "value"),
    [
        ("-r 8", "threads", 8),
        ("-b 10.0.0.7", "bind", ("10.0.0.7",)),
        ("-bp 9800", "base_port", 9800),
        ("-np 32", "ports", 32),
        ("-N 3200", "connections", 3200),
        ("-P 160", "pending", 160),
        ("-D 20", "hold_ns", 20_000_000),
        ("-D 0", "hold_ns", 0),
        ("-D 2s", "hold_ns", 2 * SECOND),
        ("-M 0", "mode", "0"),
        ("-len 4096", "size", 4096),
        ("-len 0", "size", 1000),
        ("-t 300", "duration_ns", 300 * SECOND),
        ("-t 300.0", "duration_ns", 300 * SECOND),
        ("-t 1m", "duration_ns", 60 * SECOND),
        ("-wt 0.5", "warmup_ns", SECOND // 2),
        ("-i 2", "interval_ns", 2 * SECOND),
        ("-sil", "silent_rows", True),
        ("-o out.txt", "output", "out.txt"),
        ("-dnrc", "reconnect", False),
        ("-xconnect", "cross_connect", True),
        ("-abortiveclose", "close", "rst"),
        ("-normalclose", "close", "fin"),
        ("-abortiveclose -normalclose", "close", "fin"),
        ("-r 4 -r 8", "threads", 8),
        ("-nodisconbc", "close", "fin"),
        ("-bcp 2000 -ncp 64", "local_port", 2000),
        ("-bcp 2000 -ncp 64", "local_ports", 64),
        ("-ncp 64", "local_ports", 64),
        ("-w run.pcap", "write", "run.pcap"),
        ("-w run.pcap", "capture", "required"),
        ("-q", "quiet", True),
        ("--no-capture", "capture", "off"),
        ("--capture", "capture", "required"),
        ("--capture --no-capture", "capture", "off"),
        ("--interface lo", "interface", "lo"),
        ("--interface=lo", "interface", "lo"),
        ("--format json", "format", "json"),
        ("--engine selector", "engine", "selector"),
        ("--processes 2", "processes", 2),
        ("--max-failed 1%", "max_failed", 0.01),
        ("--hold 2", "hold_ns", 2 * SECOND),
        ("--duration 5s", "duration_ns", 5 * SECOND),
    ],
)
def test_flags_of_the_client(flags: str, field: str, value: Any) -> None:
    assert getattr(client(flags), field) == value


@pytest.mark.parametrize(
    ("flags", "field", "value"),
    [
        ("-r 8 -np 9", "ports", 9),
        ("-b ::", "bind", ("::",)),
        ("-t 2.5", "duration_ns", 2_500_000_000),
        ("-normalclose", "close", "fin"),
        ("-abortiveclose", "close", "rst"),
        ("--capture", "capture", "required"),
    ],
)
def test_flags_of_the_server(flags: str, field: str, value: Any) -> None:
    assert getattr(server(flags), field) == value


def test_the_command_lines_of_the_programs_that_run_ncps() -> None:
    plan = client("-r 16 -bp 9800 -np 16 -N 1600 -P 1600 -D 0 -M 1 -i 1 -wt 60.0 -t 300.0")
    assert (plan.base_port, plan.ports, plan.connections, plan.pending) == (9800, 16, 1600, 1600)
    assert (plan.warmup_ns, plan.duration_ns) == (60 * SECOND, 300 * SECOND)
    assert server("-r 16 -bp 9800 -np 16 -i 1 -wt 60.0 -t 300.0").base_port == 9800
    assert client("-sil -r 10 -wt 5 -t 25").silent_rows


def test_a_name_is_a_target_too() -> None:
    plan = parse("-c localhost").plan
    assert isinstance(plan, ClientPlan)
    assert plan.target == "localhost"


def test_dry_run_stands_beside_the_plan() -> None:
    assert not parse("-s").dry_run
    assert parse("-s --dry-run").dry_run


def test_flags_of_the_client_are_ignored_by_a_server_and_named() -> None:
    reading = parse("-s -N 1600 -P 1600 -dnrc -r 4")
    assert reading.ignored == tuple(f"{f}: without meaning for a server, ignored" for f in ("-N", "-P", "-dnrc"))
    assert reading.plan.threads == 4
    assert parse("-c 10.0.0.5 -N 1600").ignored == ()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("-c", "-c needs the server's address"),
        ("-c -r 2", "-c needs the server's address"),
        ("-s -r", "-r needs a value"),
        ("-s -r abc", "-r must be a whole number such as"),
        ("-s -r 2.5", "-r must be a whole number such as"),
        ("-s -r 0", "-r must be 1 to 1024, not 0"),
        ("-s -np 4", "-np 4 is less than -r 16"),
        ("-s -t 0", "-t must be longer than 0 s"),
        ("-s -i 0", "-i must be longer than 0 s"),
        ("-s -t 5 -wt 5", "-wt must be shorter than -t"),
        ("-s -M 1", "-M must be s or r, not 1"),
        ("-s -M echo", "-M must be s or r, not e"),
        ("-c 10.0.0.5 -M 2", "-M must be 0 or 1 or p or s or r, not 2"),
        ("-c 10.0.0.5 -M echo", "-M must be 0 or 1 or p or s or r, not e"),
        ("-c 10.0.0.5 -N 4", "-N 4 is less than -r 16"),
        ("-c 10.0.0.5 -D -1", "-D must be a time such as 500ms, 10s, 2m or 1h (a plain number is in ms), not '-1'"),
        ("-c 10.0.0.5 -bcp 2000", "-bcp needs -ncp of at least -r (16), not 0"),
        ("-c 10.0.0.5 -b ::1", "-b ::1 and the target 10.0.0.5 are of different IP versions"),
        ("-s -xconnect", "-xconnect is for the client (-c), not for a server (-s)"),
        ("-s --hold 2", "--hold is for the client (-c), not for a server (-s)"),
        ("-s -c 10.0.0.5", "-c must be the first argument"),
        ("-c 10.0.0.5 -s", "-s must be the first argument"),
        ("-s 5", "unexpected argument '5'"),
        ("-s -wtt 5", "unknown flag -wtt, did you mean -wt?"),
        ("-s --durration 5", "unknown flag --durration, did you mean --duration?"),
        ("-s --zzzzzzz", "unknown flag --zzzzzzz; see ncps -c --help"),
        ("-s --quiet=1", "--quiet takes no value"),
        ("-s --duration=", "--duration needs a value"),
        ("-s --engine uring", "engine uring is not available"),
    ],
)
def test_one_line_says_what_is_wrong(line: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(line)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_the_table_knows_every_flag_of_ncps() -> None:
    ncps = (
        "-r -b -bp -np -bcp -ncp -xconnect -N -P -D -M -k -len -t -wt -ds -i -tka -dnrc -rup -aff -abortiveclose "
        "-normalclose -disconbc -nodisconbc -poll -sil -brief -o"
    )
    assert set(dialect.FLAGS) == {*ncps.split(), "-w", "-q"}


def test_flags_and_our_options_set_the_same_fields() -> None:
    ours = {option.field for option in OPTIONS.values()}
    assert {option.field for option in dialect.FLAGS.values()} - ours == {"silent_rows"}
