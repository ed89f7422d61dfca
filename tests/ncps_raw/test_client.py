"""From a client's plan to its load: shares, limits, the capture's spec, and words for failures."""

import errno
import socket
from dataclasses import replace
from fractions import Fraction

import pytest
from ncps_capture.errors import EnvironmentFault, UsageError

from ncps_raw import client, limits, net
from ncps_raw.board import Failure
from ncps_raw.budget import Machine
from ncps_raw.client import prepare
from ncps_raw.conversation import CLIENT_MODES
from ncps_raw.engine.base import ClientSetup
from ncps_raw.limits import SPARE_FILES, FileLimit
from ncps_raw.plan import SECOND, ClientPlan
from ncps_raw.ports import client_ports, split
from ncps_raw.session import DRAIN_NS, Load
from ncps_raw.workers import Task

PLAN = ClientPlan(target="127.0.0.1", threads=5, processes=2, connections=52, pending=7, base_port=12_000)


@pytest.fixture(autouse=True)
def plenty_of_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "files_for", lambda needed: FileLimit(1_000_000, None))


def setups(load: Load) -> list[ClientSetup]:
    made = []
    for task in load.tasks("/folder"):
        assert isinstance(task.setup, ClientSetup)
        made.append(task.setup)
    return made


# ---- shares -------------------------------------------------------------------------------------------------------


def test_each_loop_has_its_share_and_one_process() -> None:
    plan, load = prepare(PLAN)
    assert plan == PLAN
    assert load.loops == 5
    shares = sorted((loop for setup in setups(load) for loop in setup.loops), key=lambda loop: loop.index)
    assert [loop.index for loop in shares] == [0, 1, 2, 3, 4]
    assert [loop.connections for loop in shares] == [split(52, 5, i) for i in range(5)]
    assert [loop.max_pending for loop in shares] == [split(7, 5, i) for i in range(5)]
    assert [loop.ports for loop in shares] == [client_ports(PLAN, i) for i in range(5)]
    tasks: list[Task] = list(load.tasks("/folder"))
    assert [(task.number, task.spool) for task in tasks] == [
        (0, "/folder/connections-0.spool"),
        (1, "/folder/connections-1.spool"),
    ]


def test_the_rest_of_the_plan_reaches_every_process() -> None:
    plan = replace(PLAN, mode="0", size=77, hold_ns=3 * SECOND, close="rst", reconnect=False, bind=("127.0.0.1",))
    for setup in setups(prepare(plan)[1]):
        assert setup.mode == CLIENT_MODES["0"]
        assert (setup.size, setup.hold_ns, setup.abortive, setup.reconnect) == (77, 3 * SECOND, True, False)
        assert (setup.family, setup.address, setup.bind) == (socket.AF_INET, ("127.0.0.1", 0), ("127.0.0.1",))
        assert setup.drain_ns == DRAIN_NS
    assert not setups(prepare(PLAN)[1])[0].abortive


def test_a_name_is_shown_with_its_address(monkeypatch: pytest.MonkeyPatch) -> None:
    target = net.Target(socket.AF_INET, ("127.0.0.1", 0), "host is 127.0.0.1 (also ::1)")
    monkeypatch.setattr(net, "resolve", lambda name, bind, port: target)
    _, load = prepare(replace(PLAN, target="host"))
    assert load.target == "host (127.0.0.1)"
    assert load.remarks == ("host is 127.0.0.1 (also ::1)",)
    took = replace(target, note=None, resolved_ns=1_234_567)
    monkeypatch.setattr(net, "resolve", lambda name, bind, port: took)
    assert prepare(replace(PLAN, target="host"))[1].remarks == (
        "host is 127.0.0.1, resolved in 1.23 ms before the run",
    )
    monkeypatch.undo()
    _, load = prepare(PLAN)
    assert load.target == "127.0.0.1"
    assert prepare(replace(PLAN, target=f"fe80::1%{net.loopback_name()}"))[1].target == f"fe80::1%{net.loopback_name()}"


def test_ports_that_may_run_out_are_foreseen(monkeypatch: pytest.MonkeyPatch) -> None:
    few = Machine(2, (30_000, 30_049), reserved_ports=0, soft_files=None, hard_files=None)
    monkeypatch.setattr(client, "machine_for", lambda plan: few)
    plan = replace(PLAN, threads=1, ports=1, processes=1, connections=40, pending=40, rate=Fraction(100))
    (remark,) = prepare(plan)[1].remarks
    assert remark.startswith(
        "local ports: 1 address x 50 local ports x 1 server port run out after 0.5 s at 100/s, unless"
    )
    (remark,) = prepare(replace(plan, hold_ns=10 * SECOND, close="rst"))[1].remarks
    assert remark.startswith("100 connects a second that live for 10 s need 1,000 connections, not 40")
    assert prepare(replace(plan, close="rst"))[1].remarks == ()


def test_a_source_address_of_another_machine_prevents_the_start() -> None:
    with pytest.raises(EnvironmentFault, match=r"cannot bind to 192\.0\.2\.1"):
        prepare(replace(PLAN, bind=("192.0.2.1",)))
    with pytest.raises(UsageError, match="cannot resolve"):
        prepare(replace(PLAN, target="x..y"))


# ---- files --------------------------------------------------------------------------------------------------------


def test_the_fullest_process_decides_how_many_files_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def files_for(needed: int) -> FileLimit:
        asked.append(needed)
        return FileLimit(needed, "raised")

    monkeypatch.setattr(limits, "files_for", files_for)
    plan, load = prepare(replace(PLAN, threads=3, connections=300, pending=300, processes=2))
    assert asked == [200 + SPARE_FILES]
    assert plan.connections == 300
    assert (load.notes, load.remarks) == ((), ("raised",))


def test_what_does_not_fit_is_cut_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "files_for", lambda needed: FileLimit(64, None))
    plan, load = prepare(replace(PLAN, threads=2, connections=200, pending=200))
    assert (plan.connections, plan.pending) == (64, 64)
    (note,) = load.notes
    assert "200 connections" in note
    assert "reduced to 64" in note
    shares = [loop.connections for setup in setups(load) for loop in setup.loops]
    assert shares == [32, 32]


def test_not_even_one_for_each_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "files_for", lambda needed: FileLimit(SPARE_FILES + 2, None))
    with pytest.raises(EnvironmentFault, match="cannot hold a connection for each of 5 threads"):
        prepare(PLAN)


# ---- capture ------------------------------------------------------------------------------------------------------


def test_the_capture_is_where_the_route_leads() -> None:
    _, load = prepare(replace(PLAN, ports=3, write="/x.pcap", capture_buffer=1 << 21))
    spec = load.capture
    assert spec is not None
    assert (spec.interface, spec.loopback) == (net.loopback_name(), True)
    assert (spec.server_ports, spec.write_path, spec.buffer_bytes) == (((12_000, 12_002),), "/x.pcap", 1 << 21)
    assert load.capture_problem is None


def test_an_interface_by_name_is_taken() -> None:
    _, load = prepare(replace(PLAN, interface="eth7"))
    assert load.capture is not None
    assert (load.capture.interface, load.capture.loopback) == ("eth7", False)
    _, load = prepare(replace(PLAN, interface=net.loopback_name()))
    assert load.capture is not None
    assert load.capture.loopback


def test_no_route_is_a_reason_not_to_capture(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(net, "route_to", lambda target: None)
    _, load = prepare(PLAN)
    assert load.capture is None
    assert load.capture_problem == "the interface to 127.0.0.1 cannot be found; name it with --interface"


def test_no_capture_is_no_problem() -> None:
    _, load = prepare(replace(PLAN, capture="off"))
    assert (load.capture, load.capture_problem) == (None, None)


# ---- advice -------------------------------------------------------------------------------------------------------


def advice(number: int, **changes: object) -> str:
    _, load = prepare(replace(PLAN, **changes))  # type: ignore[arg-type]
    return load.advise(Failure(number, 3, 0, 0))


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.ECONNREFUSED, "ECONNREFUSED x 3: refused at 127.0.0.1 ports 12000 to 12004"),
        (errno.ETIMEDOUT, "127.0.0.1 does not answer"),
        (errno.EHOSTUNREACH, "127.0.0.1 cannot be reached"),
        (errno.EMFILE, "ulimit -n"),
        (0, "EARLY_END x 3: 127.0.0.1 closed connections before the exchange was complete"),
        (errno.EXDEV, "EXDEV x 3: see errno(3)"),
    ],
)
def test_a_failure_is_one_line_with_what_to_do(number: int, words: str) -> None:
    line = advice(number)
    assert words in line
    assert "\n" not in line


def test_one_port_is_called_one() -> None:
    assert "127.0.0.1 port 12000:" in advice(errno.ECONNREFUSED, ports=1)


def test_the_port_budget_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(net, "local_port_range", lambda: (100, 149))
    monkeypatch.setattr(net, "time_wait_count", lambda: 41)
    line = advice(errno.EADDRNOTAVAIL, ports=2)
    assert "50 local ports (100 to 149) x 2 server ports for 52 connections, 41 sockets in TIME_WAIT" in line
    monkeypatch.setattr(net, "time_wait_count", lambda: None)
    line = advice(errno.EADDRNOTAVAIL, local_port=5000, local_ports=10, ports=9, cross_connect=True)
    assert "still in use" in line
    assert "10 local ports (5000 to 5009) x 9 server ports for 52 connections;" in line
    one_each = advice(errno.EADDRINUSE, local_port=5000, local_ports=10, ports=9)
    assert "10 local ports (5000 to 5009) x 1 server port for 52 connections" in one_each


def test_a_plan_is_carried_out_as_prepared(monkeypatch: pytest.MonkeyPatch) -> None:
    ran = []
    monkeypatch.setattr(client, "run", lambda plan, load, interrupts: ran.append((plan, load.loops)) or 17)
    assert client.run_client(PLAN) == 17
    assert ran == [(PLAN, 5)]
