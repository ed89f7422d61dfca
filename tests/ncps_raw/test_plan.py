"""Plan: its defaults are NCPS's, and a plan that cannot be meant cannot be made."""

import dataclasses
from fractions import Fraction
from typing import Any

import pytest
from ncps_capture.errors import UsageError

from ncps_raw.plan import SECOND, ClientPlan, Plan, ServerPlan


def client(**fields: Any) -> ClientPlan:
    return ClientPlan(**{"target": "192.0.2.1", **fields})


def test_defaults_of_the_client() -> None:
    plan = client()
    assert (plan.role, plan.mode, plan.close, plan.capture) == ("client", "1", "fin", "auto")
    assert (plan.base_port, plan.ports, plan.threads, plan.connections, plan.pending) == (
        10_001,
        16,
        16,
        1600,
        1600,
    )
    assert (plan.size, plan.hold_ns, plan.warmup_ns, plan.interval_ns, plan.duration_ns) == (
        1000,
        0,
        0,
        SECOND,
        None,
    )
    assert (plan.local_port, plan.local_ports, plan.cross_connect, plan.reconnect) == (0, 0, False, True)


def test_defaults_of_the_server() -> None:
    plan = ServerPlan()
    assert (plan.role, plan.mode, plan.close, plan.capture) == ("server", "echo", "rst", "off")
    assert (plan.base_port, plan.ports, plan.threads) == (10_001, 16, 16)


def test_defaults_follow_what_is_given() -> None:
    plan = client(threads=3)
    assert (plan.ports, plan.connections, plan.pending) == (3, 300, 300)
    assert client(threads=3, connections=50).pending == 50
    assert client(threads=3, connections=50, pending=10).pending == 10
    assert ServerPlan(threads=3, ports=7).ports == 7


def test_a_plan_is_frozen_and_checked_again_when_changed() -> None:
    plan = client(connections=20)
    with pytest.raises(dataclasses.FrozenInstanceError):
        plan.threads = 2  # type: ignore[misc]
    with pytest.raises(UsageError, match="--connections 20 is less than --threads 30"):
        dataclasses.replace(plan, threads=30)


def test_processes_are_never_more_than_loops() -> None:
    assert client().process_count(4) == 4
    assert client(threads=2, connections=2).process_count(4) == 2
    assert client(processes=3).process_count(1) == 3
    assert client().process_count(0) == 1


LIMITS = [
    ({"threads": 0}, "--threads must be 1 to 1024, not 0"),
    ({"threads": 1025}, "--threads must be 1 to 1024, not 1025"),
    ({"base_port": 0}, "--port must be 1 to 65535"),
    ({"base_port": 65_536}, "--port must be 1 to 65535"),
    ({"ports": 0}, "--ports must be 1 to 65535"),
    ({"base_port": 65_520, "ports": 17}, "--port 65520 and --ports 17 pass the last port, 65535: at most 16 ports"),
    ({"processes": 0}, "--processes must be 1 to 16"),
    ({"processes": 17}, "--processes must be 1 to 16"),
    ({"size": 0}, "--size must be 1 to"),
    ({"interval_ns": 0}, "--interval must be longer than 0 s"),
    ({"duration_ns": 0}, "--duration must be longer than 0 s"),
    ({"duration_ns": 400 * 86_400 * SECOND}, "--duration must be longer than 0 s and at most a year"),
    ({"warmup_ns": -1}, "--warmup must be 0 s to a year"),
    ({"warmup_ns": SECOND, "duration_ns": SECOND}, "--warmup must be shorter than --duration"),
    ({"mode": "x"}, "--mode must be "),
    ({"delay_ns": -1}, "--delay must be 0 s to a year"),
    ({"keepalive_ns": -SECOND}, "--keepalive must be whole seconds, 0 (off) to 32767"),
    ({"keepalive_ns": SECOND // 2}, "--keepalive must be whole seconds"),
    ({"keepalive_ns": 32_768 * SECOND}, "--keepalive must be whole seconds"),
    ({"affinity": (0, -1)}, "--affinity must be numbers of processors, from 0 on, not -1"),
    ({"affinity": (0,) * 1025}, "--affinity names 1025 processors: at most 1024"),
    ({"affinity": (0,), "affinity_nonrss": True}, "--affinity must be a list of processors or nonrss, not both"),
    ({"close": "drop"}, "--close must be fin or rst, not drop"),
    ({"engine": "uring"}, "engine uring is not available: there is selector"),
    ({"format": "xml"}, "--format must be text or ncps or json or jsonl, not xml"),
    ({"capture": "maybe"}, "--capture must be auto or required or off, not maybe"),
    ({"capture_buffer": 4096}, "--capture-buffer must be 1048576 to"),
    ({"capture": "off", "write": "x.pcap"}, "--write needs the capture, which --no-capture switches off"),
    ({"capture": "off", "interface": "lo"}, "--interface needs the capture"),
    ({"max_failed": 1.5}, "--max-failed must be 0 % to 100 %, not 1.5"),
    ({"bind": ("localhost",)}, "--bind must be a numeric IPv4 or IPv6 address of this machine, not 'localhost'"),
]


@pytest.mark.parametrize(("fields", "message"), LIMITS)
@pytest.mark.parametrize("kind", [client, ServerPlan])
def test_limits_of_both(kind: Any, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        kind(**fields)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"connections": 15}, "--connections 15 is less than --threads 16: each thread needs at least one"),
        ({"connections": 0}, "--connections must be 1 to"),
        ({"pending": 15}, "--pending 15 is less than --threads 16"),
        ({"hold_ns": -1}, "--hold must be 0 s to a year"),
        ({"local_ports": 20}, "--local-ports needs --local-port"),
        ({"local_port": 5000}, "--local-port needs --local-ports of at least --threads (16), not 0"),
        ({"local_port": 5000, "local_ports": 15}, "--local-port needs --local-ports of at least --threads (16)"),
        ({"local_port": 65_530, "local_ports": 16}, "--local-port 65530 and --local-ports 16 pass the last port"),
        ({"local_port": 65_536, "local_ports": 16}, "--local-port must be 0 to 65535"),
        ({"target": ""}, "HOST must be a name or an IP address"),
        ({"target": "-r"}, "HOST must be a name or an IP address"),
        ({"target": "a b"}, "HOST must be a name or an IP address"),
        ({"target": "example.net:80"}, "HOST is an address without a port: example.net --port 80"),
        (
            {"target": "::1", "bind": ("127.0.0.1",)},
            "--bind 127.0.0.1 and the target ::1 are of different IP versions",
        ),
        ({"mode": "echo"}, "--mode must be 0 or 1 or p or s or r, not echo"),
        ({"pace_ns": -1, "mode": "p"}, "--pace must be 0 s to a year"),
        ({"pace_ns": SECOND}, "--pace is the time between the rounds of --mode p; mode 1 has no rounds"),
        ({"rate": Fraction(0)}, "--rate must be one a year to 100,000,000 a second, not 0/s"),
        ({"rate": Fraction(100_000_001)}, "--rate must be one a year to 100,000,000 a second, not 100,000,001/s"),
        (
            {"rate": Fraction(5), "pace_ns": SECOND, "mode": "p"},
            "--rate and --pace contradict each other: each sets when connects happen; leave out one of them",
        ),
    ],
)
def test_limits_of_the_client(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        client(**fields)
    assert str(caught.value).startswith(message)


def test_each_thread_of_a_server_needs_a_port() -> None:
    with pytest.raises(UsageError, match="--ports 3 is less than --threads 4"):
        ServerPlan(threads=4, ports=3)


def test_threads_that_share_their_ports_need_no_port_each() -> None:
    assert ServerPlan(threads=4, ports=1, reuse_port=True).ports == 1


@pytest.mark.parametrize(
    ("dialect", "offered"), [(False, "--mode must be echo or s or r"), (True, "-M must be s or r")]
)
def test_the_modes_of_a_server(dialect: bool, offered: str) -> None:
    for mode in ("echo", "s", "r"):
        assert ServerPlan(mode=mode, dialect=dialect).mode == mode
    with pytest.raises(UsageError, match=f"^{offered}, not 1$"):
        ServerPlan(mode="1", dialect=dialect)


def test_the_dialect_takes_a_pace_with_any_mode_as_ncps_does() -> None:
    assert client(dialect=True, pace_ns=SECOND).pace_ns == SECOND
    with pytest.raises(UsageError, match="--rate and -k contradict each other"):
        client(dialect=True, pace_ns=SECOND, mode="p", rate=Fraction(5))


def test_a_client_may_have_fewer_ports_than_threads() -> None:
    assert client(ports=1).ports == 1


@pytest.mark.parametrize(
    "fields",
    [
        {"base_port": 65_520, "ports": 16},
        {"base_port": 1, "ports": 65_535},
        {"local_port": 65_520, "local_ports": 16},
        {"threads": 1024},
        {"target": "fe80::1%eth0", "bind": ("fe80::2%eth0",)},
        {"target": "example.net", "bind": ("::1",)},
        {"max_failed": 0.0},
        {"max_failed": 1.0},
        {"warmup_ns": SECOND},
        {"hold_ns": 0},
        {"affinity": (0,) * 1024},
        {"keepalive_ns": 32_767 * SECOND},
        {"rate": Fraction(1, 366 * 86_400)},
        {"rate": Fraction(100_000_000)},
        {"mode": "p", "pace_ns": SECOND},
    ],
)
def test_the_edges_are_allowed(fields: dict[str, Any]) -> None:
    plan = client(**fields)
    assert all(getattr(plan, name) == value for name, value in fields.items())


@pytest.mark.parametrize(
    ("plan", "fields", "message"),
    [
        (client, {"threads": 0}, "-r must be 1 to 1024, not 0"),
        (client, {"connections": 3, "threads": 4}, "-N 3 is less than -r 4"),
        (client, {"local_port": 9, "local_ports": 1}, "-bcp needs -ncp of at least -r (16), not 1"),
        (client, {"warmup_ns": 2 * SECOND, "duration_ns": SECOND}, "-wt must be shorter than -t"),
        (ServerPlan, {"ports": 2}, "-np 2 is less than -r 16"),
    ],
)
def test_the_dialect_is_answered_in_the_dialect(plan: Any, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        plan(dialect=True, **fields)
    assert str(caught.value).startswith(message)


def test_the_dialect_ignores_a_number_of_local_ports_without_a_first_as_ncps_does() -> None:
    assert client(dialect=True, local_ports=20).local_port == 0


def test_every_checked_field_has_names() -> None:
    from ncps_raw.plan import _NAMES

    fields = {f.name for kind in (ClientPlan, ServerPlan) for f in dataclasses.fields(kind)}
    assert set(_NAMES) <= fields
    assert issubclass(ClientPlan, Plan)


@pytest.mark.parametrize("target", ["1.2.3", "127.1", "2130706433", "0x7f000001", "0177.0.0.1", "0", "1.2.3.4."])
def test_an_address_in_an_old_form_is_not_guessed_at(target: str) -> None:
    with pytest.raises(UsageError, match=r"must be a name or a whole IP address such as 10\.0\.0\.1, not"):
        ClientPlan(target=target)


def test_a_link_local_target_needs_its_interface() -> None:
    with pytest.raises(UsageError, match="say by which interface, as in fe80::1%eth0"):
        ClientPlan(target="fe80::1")
    assert ClientPlan(target="fe80::1%eth0").target == "fe80::1%eth0"
