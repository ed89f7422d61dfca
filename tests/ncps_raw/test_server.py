"""From a server's plan to its load."""

import errno
import socket
from dataclasses import replace

import pytest
from ncps_capture.errors import EnvironmentFault, UsageError

from ncps_raw import limits, net, server
from ncps_raw.board import Failure
from ncps_raw.conversation import SERVER_MODES
from ncps_raw.engine.base import ServerSetup
from ncps_raw.limits import FileLimit
from ncps_raw.plan import ServerPlan
from ncps_raw.ports import server_ports
from ncps_raw.server import prepare
from ncps_raw.session import Load

PLAN = ServerPlan(threads=3, processes=2, ports=7, base_port=12_000, bind=("127.0.0.1",))


@pytest.fixture(autouse=True)
def plenty_of_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "files_for", lambda needed: FileLimit(needed, None))


def setups(load: Load) -> list[ServerSetup]:
    made = []
    for task in load.tasks("/folder"):
        assert isinstance(task.setup, ServerSetup)
        made.append(task.setup)
    return made


def test_each_loop_listens_on_its_ports_in_one_process() -> None:
    load = prepare(PLAN)
    loops = sorted((loop for setup in setups(load) for loop in setup.loops), key=lambda loop: loop.index)
    assert [loop.ports for loop in loops] == [tuple(server_ports(PLAN, i)) for i in range(3)]
    assert sorted(port for loop in loops for port in loop.ports) == list(range(12_000, 12_007))
    assert [len(setup.loops) for setup in setups(load)] == [2, 1]
    assert [task.spool for task in load.tasks("/f")] == ["/f/connections-0.spool", "/f/connections-1.spool"]


def test_the_rest_of_the_plan_reaches_every_process() -> None:
    for setup in setups(prepare(replace(PLAN, size=77, close="fin"))):
        assert (setup.mode, setup.size, setup.abortive) == (SERVER_MODES["echo"], 77, False)
        assert (setup.family, setup.bind) == (socket.AF_INET, ("127.0.0.1",))
    assert all(setup.abortive for setup in setups(prepare(PLAN)))


def test_records_are_limited_for_all_processes_together() -> None:
    load = prepare(PLAN)
    assert load.most_records is not None
    assert sum(setup.max_records for setup in setups(load)) >= load.most_records


@pytest.mark.parametrize(
    ("bind", "family", "shown"),
    [((), socket.AF_INET, ("0.0.0.0",)), (("::1",), socket.AF_INET6, ("::1",)), (("::",), socket.AF_INET6, ("::",))],
)
def test_where_it_listens(bind: tuple[str, ...], family: int, shown: tuple[str, ...]) -> None:
    load = prepare(replace(PLAN, bind=bind))
    assert {(setup.family, setup.bind) for setup in setups(load)} == {(family, shown)}
    assert load.remarks == (f"listening on {shown[0]} ports 12000 to 12006",)


def test_what_is_said_when_it_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "files_for", lambda needed: FileLimit(needed, "raised"))
    load = prepare(replace(PLAN, threads=1, processes=1, ports=1))
    assert load.remarks == ("listening on 127.0.0.1 port 12000", "raised")
    assert load.target == "127.0.0.1 port 12000"


def test_addresses_that_cannot_be_listened_on() -> None:
    with pytest.raises(UsageError, match="one IP version"):
        prepare(replace(PLAN, bind=("127.0.0.1", "::1")))
    with pytest.raises(EnvironmentFault, match=r"cannot bind to 192\.0\.2\.1"):
        prepare(replace(PLAN, bind=("192.0.2.1",)))


def test_a_server_captures_on_request_only() -> None:
    load = prepare(PLAN)
    assert (load.capture, load.capture_problem) == (None, None)


def test_the_capture_of_a_server_on_loopback() -> None:
    load = prepare(replace(PLAN, capture="required", write="/x.pcap"))
    assert load.capture is not None
    assert (load.capture.interface, load.capture.loopback) == (net.loopback_name(), True)
    assert (load.capture.server_ports, load.capture.write_path) == (((12_000, 12_006),), "/x.pcap")


def test_the_capture_of_a_server_on_any_address_needs_a_name() -> None:
    load = prepare(replace(PLAN, bind=(), capture="required"))
    assert load.capture is None
    assert load.capture_problem == "clients may come by any interface; name one with --interface: " + ", ".join(
        net.interfaces()
    )
    load = prepare(replace(PLAN, bind=(), capture="required", interface="eth7"))
    assert load.capture is not None
    assert (load.capture.interface, load.capture.loopback) == ("eth7", False)


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (
            errno.EMFILE,
            "EMFILE x 2: accepting was refused at the limit of 1,048,576 open files a process and is tried again",
        ),
        (errno.ECONNRESET, "clients reset connections"),
        (errno.EXDEV, "EXDEV x 2: see errno(3)"),
    ],
)
def test_a_failure_is_one_line(number: int, words: str) -> None:
    line = prepare(PLAN).advise(Failure(number, 2, 0, 0))
    assert words in line
    assert "\n" not in line


def test_a_report_explains_the_limit_only_where_it_was_met() -> None:
    explain = prepare(PLAN).explain
    assert explain([Failure(errno.ECONNRESET, 2, 0, 0)]) == ()
    (note,) = explain([Failure(errno.ECONNRESET, 2, 0, 0), Failure(errno.EMFILE, 69, 0, 0)])
    assert "the limit of 1,048,576 open files a process" in note
    assert "raise it (ulimit -n)" in note


def test_a_plan_is_carried_out_as_prepared(monkeypatch: pytest.MonkeyPatch) -> None:
    ran = []
    monkeypatch.setattr(server, "run", lambda plan, load, interrupts: ran.append((plan, load.loops)) or 17)
    assert server.run_server(PLAN) == 17
    assert ran == [(PLAN, 3)]
