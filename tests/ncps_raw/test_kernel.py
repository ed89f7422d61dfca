"""What is read from the kernel, against what the kernel tells others."""

import re
import shutil
import socket
import subprocess
from collections.abc import Iterator

import pytest

from ncps_raw.engine import kernel

pytestmark = pytest.mark.skipif(not kernel.AVAILABLE, reason="TCP_INFO and its options are Linux's")


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        with socket.create_connection(listener.getsockname()) as one:
            other, _ = listener.accept()
            with other:
                yield one, other


def info_of(sock: socket.socket) -> bytes:
    return sock.getsockopt(socket.IPPROTO_TCP, kernel.TCP_INFO, kernel.INFO_LEN)


def test_the_state_is_the_first_byte(pair: tuple[socket.socket, socket.socket]) -> None:
    assert info_of(pair[0])[0] == kernel.STATE_ESTABLISHED
    with socket.socket() as fresh:
        assert info_of(fresh)[0] != kernel.STATE_ESTABLISHED


@pytest.mark.skipif(shutil.which("ss") is None, reason="ss (iproute2) is not installed")
def test_the_round_trip_is_what_ss_shows(pair: tuple[socket.socket, socket.socket]) -> None:
    one, other = pair
    for _ in range(20):  # let the estimate move away from its first value
        one.sendall(b"x")
        other.recv(1)
        other.sendall(b"x")
        one.recv(1)
    port = one.getsockname()[1]
    shown = subprocess.run(["ss", "-tinH", "sport", "=", f":{port}"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"\brtt:([0-9.]+)/", shown)
    assert found, shown
    rtt, retrans = kernel.RTT_AND_RETRANS.unpack(info_of(one))
    assert rtt == round(float(found[1]) * 1000)
    assert retrans == 0


def test_the_layout_ends_with_the_retransmits(pair: tuple[socket.socket, socket.socket]) -> None:
    assert kernel.RTT_AND_RETRANS.size == kernel.INFO_LEN == len(info_of(pair[0]))


@pytest.mark.parametrize("host", ["127.0.0.2", "::1"])
def test_a_late_choice_leaves_the_port_to_connect(host: str) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as listener, socket.socket(family) as sock:
        listener.bind((host, 0))
        listener.listen()
        kernel.late_port_choice(sock)
        sock.bind((host, 0))
        assert sock.getsockname()[:2] == (host, 0)
        sock.connect(listener.getsockname())
        assert sock.getsockname()[0] == host
        assert sock.getsockname()[1] > 0


def test_without_the_option_nothing_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "AVAILABLE", False)
    with socket.socket() as sock:
        kernel.late_port_choice(sock)
        sock.bind(("127.0.0.1", 0))
        assert sock.getsockname()[1] > 0


def test_linger_0_closes_with_a_reset(pair: tuple[socket.socket, socket.socket]) -> None:
    one, other = pair
    one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, kernel.LINGER_0)
    one.close()
    with pytest.raises(ConnectionResetError):
        other.recv(1)
