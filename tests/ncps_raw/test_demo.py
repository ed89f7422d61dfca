"""The demo's server is a real one, and gone afterwards however the client ends."""

import socket

import pytest
from loads import free_ports
from ncps_capture.errors import EnvironmentFault

from ncps_raw import demo, net
from ncps_raw.interrupts import LeaveNow
from ncps_raw.plan import SECOND, ClientPlan


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
