"""The demo's server is a real one, and gone afterwards however the client ends; so is the path that loses SYNs."""

import contextlib
import os
import signal
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from loads import free_ports
from ncps_capture.errors import EnvironmentFault
from running import alive, children, finish, start, until

from ncps_raw import demo, net
from ncps_raw.interrupts import Interrupts, LeaveNow
from ncps_raw.lab import namespaces, stage
from ncps_raw.lab.scenario import Scenario
from ncps_raw.lab.stage import Outcome
from ncps_raw.plan import SECOND, ClientPlan

NO_PATH = "cannot make a lab: network namespaces need root; run with sudo"


@pytest.fixture(autouse=True)
def no_path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """No second part, as for a person without rights."""

    def check() -> None:
        raise EnvironmentFault(NO_PATH)

    monkeypatch.setattr(namespaces, "check", check)


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Rights for the second part, and what was played there; nothing is."""
    names: list[str] = []

    def play(scenario: Scenario, *, stopped: Callable[[], bool]) -> Outcome:
        assert not stopped()
        names.append(scenario.name)
        return Outcome((), {"connections": 7, "dropped.syn": 1, "syn_retrans": 1, "syn_rtt_us.max": 1_020_000}, "")

    monkeypatch.setattr(namespaces, "check", lambda: None)
    monkeypatch.setattr(stage, "play", play)
    return names


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[ClientPlan]:
    """What the client was asked to do; it exchanges a message with each port of the server."""
    asked: list[ClientPlan] = []

    def client(plan: ClientPlan) -> int:
        asked.append(plan)
        for port in range(plan.base_port, plan.base_port + plan.ports):
            with socket.create_connection((plan.target, port), timeout=30) as sock:
                sock.sendall(b"x")
                assert sock.recv(10) == b"x"
        return 5

    monkeypatch.setattr(demo, "run_client", client)
    return asked


def test_the_client_meets_a_server_that_ends_with_the_demo(plans: list[ClientPlan]) -> None:
    assert demo.run_demo(2 * SECOND) == 5
    (plan,) = plans
    assert (plan.threads, plan.connections, plan.duration_ns) == (demo.THREADS, demo.CONNECTIONS, 2 * SECOND)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((plan.target, plan.base_port), timeout=30)


@pytest.mark.parametrize("fault", [EnvironmentFault, LeaveNow])
def test_the_server_ends_when_the_client_fails(monkeypatch: pytest.MonkeyPatch, fault: type[BaseException]) -> None:
    ports = []

    def client(plan: ClientPlan) -> int:
        ports.append(plan.base_port)
        raise fault

    monkeypatch.setattr(demo, "run_client", client)
    with pytest.raises(fault):
        demo.run_demo(SECOND)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", ports[0]), timeout=30)


def test_a_server_that_cannot_start_is_the_reason_in_one_line(
    monkeypatch: pytest.MonkeyPatch, plans: list[ClientPlan]
) -> None:
    (port,) = free_ports(1)
    monkeypatch.setattr(net, "free_port_block", lambda count: port)
    with socket.create_server(("127.0.0.1", port)), pytest.raises(EnvironmentFault) as caught:
        demo.run_demo(SECOND)
    message = str(caught.value)
    assert message.startswith(f"cannot start the demo's server: cannot listen on 127.0.0.1 port {port}: ")
    assert "\n" not in message
    assert plans == []


# ---- the path that loses SYNs ------------------------------------------------------------------------------------


def test_where_no_path_can_be_made_one_line_says_why(
    plans: list[ClientPlan], capsys: pytest.CaptureFixture[str]
) -> None:
    assert demo.run_demo(SECOND) == 5
    out, err = capsys.readouterr()
    assert (out, err) == ("", f"ncps: the path that loses SYNs is left out: {NO_PATH}\n")


def test_the_path_follows_the_loopback_part_and_ends_in_a_table(
    plans: list[ClientPlan], played: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert demo.run_demo(SECOND) == 5
    assert (len(plans), played) == (1, ["demo"])
    out, err = capsys.readouterr()
    assert "SYNs the path dropped: 1; SYN retransmits seen on the wire: 1" in out
    assert err == ""


def test_a_path_that_fails_is_told_in_one_line(
    plans: list[ClientPlan],
    played: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    figures = {"error.message": "cannot capture on wan0: no right to capture packets"}
    monkeypatch.setattr(stage, "play", lambda scenario, stopped: Outcome((), figures, ""))
    assert demo.run_demo(SECOND) == 5
    out, err = capsys.readouterr()
    assert "connections" not in out
    assert err == "ncps: the path that loses SYNs is left out: cannot capture on wan0: no right to capture packets\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_of_the_first_part_leaves_the_second_out(
    number: signal.Signals, played: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def client(plan: ClientPlan) -> int:
        with Interrupts() as interrupts:  # as a run has them
            os.kill(os.getpid(), number)
            assert interrupts.stopped()
        return 0

    monkeypatch.setattr(demo, "run_client", client)
    assert demo.run_demo(SECOND) == 0
    assert played == []
    assert signal.set_wakeup_fd(-1) == -1


def test_a_second_interrupt_of_the_path_leaves(
    plans: list[ClientPlan], played: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def play(scenario: Scenario, *, stopped: Callable[[], bool]) -> Outcome:
        os.kill(os.getpid(), signal.SIGINT)
        assert stopped()
        os.kill(os.getpid(), signal.SIGINT)
        raise AssertionError("the second interrupt was not obeyed")

    monkeypatch.setattr(stage, "play", play)
    assert demo.run_demo(SECOND) == 130


def lab_of(pid: int) -> list[str]:
    """The namespaces whose relay is a child of process ``pid``, once programs run in both."""
    stems = tuple(f"ncps-lab-{child}-" for child in children(pid))
    names = [path.name for path in Path("/run/netns").iterdir() if path.name.startswith(stems)]
    return names if len(names) == 2 and all(namespaces.processes_in(name) for name in names) else []


@pytest.mark.namespaces
@pytest.mark.capture
@pytest.mark.parametrize("times", [1, 2])
def test_an_interrupt_of_the_path_ends_it_and_leaves_nothing(times: int) -> None:
    process = start("demo", "-t", "500ms", process_group=0)
    names = until(lambda: Path("/run/netns").is_dir() and lab_of(process.pid), "a lab with a client and a server")
    inside = [pid for name in names for pid in namespaces.processes_in(name)]
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    if times == 2:
        with contextlib.suppress(ProcessLookupError):
            until(lambda: "ShdPnd:\t0000000000000000" in status(process), "the first interrupt being taken")
            os.kill(process.pid, signal.SIGINT)
    code, out, err = finish(process)
    # Two interrupts may become one before the first is looked at.
    assert (code, err) in ([(0, "")] if times == 1 else [(130, ""), (0, "")])
    assert "Now between two network namespaces" in out
    if code == 0:
        assert out.endswith("(interrupted)\n")
    left = subprocess.run(["ip", "netns"], capture_output=True, text=True, check=True).stdout
    assert not [name for name in names if name in left]
    until(lambda: not any(map(alive, inside)), "the end of the programs in the lab")


def status(process: subprocess.Popen[str]) -> str:
    return Path(f"/proc/{process.pid}/status").read_text()
