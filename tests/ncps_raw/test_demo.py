"""The demo's server is a real one, and gone afterwards however the client ends; so is the path that loses SYNs."""

import contextlib
import os
import signal
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

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

    def client(plan: ClientPlan, interrupts: Interrupts) -> int:
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

    def client(plan: ClientPlan, interrupts: Interrupts) -> int:
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


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupt_of_the_first_part_leaves_the_second_out(
    number: signal.Signals, played: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def client(plan: ClientPlan, interrupts: Interrupts) -> int:
        with interrupts:  # as a run does
            pass
        os.kill(os.getpid(), number)  # while its server is ended
        assert interrupts.stopped()
        return 0

    monkeypatch.setattr(demo, "run_client", client)
    before = signal.getsignal(number)
    assert demo.run_demo(SECOND) == 0
    assert played == []
    assert signal.getsignal(number) == before


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


def test_a_demo_interrupted_before_it_began_says_so(
    plans: list[ClientPlan], played: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with Interrupts() as interrupts:
        os.kill(os.getpid(), signal.SIGINT)
        assert demo.run_demo(SECOND, interrupts) == 0
    assert (plans, played) == ([], [])
    assert capsys.readouterr() == ("", "ncps: interrupted before a connection was made\n")


def test_an_interrupt_while_the_server_starts_leaves_the_client_out(
    plans: list[ClientPlan], played: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Interrupting(subprocess.Popen[str]):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(subprocess, "Popen", Interrupting)
    assert demo.run_demo(SECOND) == 0
    assert (plans, played) == ([], [])
    assert capsys.readouterr() == ("", "ncps: interrupted before a connection was made\n")


@pytest.mark.parametrize("connections", [None, 0, 7])
def test_an_interrupted_path_gives_a_table_if_it_had_a_connection(
    connections: int | None,
    plans: list[ClientPlan],
    played: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def play(scenario: Scenario, *, stopped: Callable[[], bool]) -> Outcome:
        os.kill(os.getpid(), signal.SIGINT)
        if connections is None:
            raise stage.NotBegun("stopped")
        return Outcome((), {"connections": connections, "syn_retrans": 0}, "")

    monkeypatch.setattr(stage, "play", play)
    assert demo.run_demo(SECOND) == 5
    out, err = capsys.readouterr()
    assert err == ""
    assert ("7 connections, times in us" in out) == bool(connections)
    said = "(interrupted)" if connections else "(interrupted before a connection was made)"
    assert out.endswith(f"\n{said}\n")


def lab_of(pid: int) -> list[str]:
    """The namespaces whose relay is a child of process ``pid``, once programs run in both."""
    stems = tuple(f"ncps-lab-{child}-" for child in children(pid))
    names = [path.name for path in Path("/run/netns").iterdir() if path.name.startswith(stems)]
    return names if len(names) == 2 and all(namespaces.processes_in(name) for name in names) else []


def imports_numpy(process: subprocess.Popen[str]) -> bool:
    return "/numpy/" in Path(f"/proc/{process.pid}/maps").read_text()


def test_one_interrupt_during_the_imports_ends_in_one_line() -> None:
    process = start("demo", "-t", "500ms", process_group=0)
    until(lambda: imports_numpy(process), "an import that takes long")
    os.killpg(process.pid, signal.SIGINT)
    assert finish(process) == (0, "", "ncps: interrupted before a connection was made\n")


@pytest.mark.namespaces
@pytest.mark.capture
@pytest.mark.parametrize("numbers", [(signal.SIGINT,), (signal.SIGHUP,), (signal.SIGINT, signal.SIGINT)])
def test_an_interrupt_of_the_path_ends_it_and_leaves_nothing(
    numbers: tuple[signal.Signals, ...], tmp_path: Path
) -> None:
    process = start("demo", "-t", "500ms", process_group=0, env={**os.environ, "TMPDIR": str(tmp_path)})
    names = until(lambda: Path("/run/netns").is_dir() and lab_of(process.pid), "a lab with a client and a server")
    inside = [pid for name in names for pid in namespaces.processes_in(name)]
    os.killpg(process.pid, numbers[0])  # as a terminal does
    for number in numbers[1:]:
        with contextlib.suppress(ProcessLookupError, FileNotFoundError):
            until(lambda: "ShdPnd:\t0000000000000000" in status(process), "the first interrupt being taken")
            os.kill(process.pid, number)
    code, out, err = finish(process)
    # Two interrupts may become one before the first is looked at.
    assert (code, err) in ([(0, "")] if len(numbers) == 1 else [(130, ""), (0, "")])
    assert "Now between two network namespaces" in out
    if code == 0:
        assert out.endswith(("(interrupted)\n", "(interrupted before a connection was made)\n"))
        assert ("connections, times in us" in out) == out.endswith("(interrupted)\n")
    left = subprocess.run(["ip", "netns"], capture_output=True, text=True, check=True).stdout
    assert not [name for name in names if name in left]
    until(lambda: not any(map(alive, inside)), "the end of the programs in the lab")
    assert list(tmp_path.iterdir()) == []


def status(process: subprocess.Popen[str]) -> str:
    return Path(f"/proc/{process.pid}/status").read_text()
