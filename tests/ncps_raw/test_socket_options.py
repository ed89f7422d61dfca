"""What a plan asks of sockets: keep-alive, an end before the close, ports shared by loops; and that none ends a run."""

import socket
import sys
from typing import Any

import pytest
from loads import PLATFORMS, SECOND, become, client, free_ports, peer, server, to_the_end
from ncps_analysis.records import CLOSED, NO_KERNEL_RTT

from ncps_raw.engine import base, kernel, selector_client, selector_server

HOUR = 3600 * SECOND
linux = pytest.mark.skipif(sys.platform != "linux", reason="options of Linux")


@pytest.fixture(params=PLATFORMS)
def platform(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    become(request.param, monkeypatch)
    return str(request.param)


def options_of(sock: Any) -> tuple[int, int, int, int]:
    tcp = socket.IPPROTO_TCP
    return (
        sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE),
        sock.getsockopt(tcp, socket.TCP_KEEPIDLE),
        sock.getsockopt(tcp, socket.TCP_KEEPINTVL),
        sock.getsockopt(tcp, socket.TCP_KEEPCNT),
    )


@linux
@pytest.mark.parametrize(("idle_ns", "seconds"), [(1, 1), (SECOND, 1), (7 * SECOND, 7), (7 * SECOND + 1, 8)])
def test_keep_alive_in_whole_seconds(idle_ns: int, seconds: int) -> None:
    with socket.socket() as sock:
        kernel.keep_alive(sock, idle_ns)
        assert options_of(sock) == (1, seconds, 1, 10)


@linux
def test_both_ends_keep_their_connections_alive(platform: str) -> None:
    (port,) = free_ports(1)
    with (
        server([port], keepalive_ns=30 * SECOND) as there,
        client(port, mode="0", n=2, hold_ns=HOUR, keepalive_ns=20 * SECOND) as here,
    ):
        there.board.until_counted(base.ESTABLISHED, 2)
        here.board.until_counted(base.ESTABLISHED, 2)
        assert {options_of(slot.sock) for slot in here.engine._by_fd.values()} == {(1, 20, 1, 10)}
        assert {options_of(accepted.sock) for accepted in there.engine._by_fd.values()} == {(1, 30, 1, 10)}


def refuse(*_: object) -> None:
    raise OSError(92, "Protocol not available")


def test_a_system_without_keep_alive_connects_without(platform: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (selector_client, selector_server):
        monkeypatch.setattr(module, "keep_alive", refuse)
    (port,) = free_ports(1)
    with server([port], keepalive_ns=SECOND) as there, client(port, n=3, keepalive_ns=SECOND, reconnect=False) as here:
        assert set(here.ended()["outcome"]) == {CLOSED}
        there.board.until_counted(base.CLOSED, 3)
    assert here.board.total(base.OPTIONS_FAILED) == 3
    assert there.board.total(base.OPTIONS_FAILED) == 1  # its listener


class Untold(selector_client.make_socket):  # type: ignore[misc, name-defined]
    """A socket whose TCP_INFO cannot be had."""

    def getsockopt(self, level: int, option: int, *more: int) -> Any:
        if (level, option) == (6, kernel.TCP_INFO):
            refuse()
        return super().getsockopt(level, option, *more)


@linux
@pytest.mark.parametrize("platform", ["edges", "network", "levels"], indirect=True)
def test_without_tcp_info_the_kernels_figures_are_unknown_and_no_more(
    platform: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (selector_client, selector_server):
        monkeypatch.setattr(module, "make_socket", Untold)
    (port,) = free_ports(1)
    with server([port]) as there, client(port, n=4, reconnect=False) as here:
        mine = here.ended()
        there.board.until_counted(base.CLOSED, 4)
        theirs = there.stop()
    for running, records in ((here, mine), (there, theirs)):
        assert set(records["outcome"]) == {CLOSED}
        assert set(records["kernel_rtt_us"]) == {NO_KERNEL_RTT}
        assert running.board.total(base.OPTIONS_FAILED) == 4
        assert running.board.total(base.CLEAN) == running.board.total(base.REPEATED) == 0


@pytest.mark.parametrize(
    ("shutdown", "abortive", "said"),
    [(False, False, []), (True, False, ["shutdown"]), (False, True, ["linger"]), (True, True, ["shutdown", "linger"])],
)
def test_last_words(shutdown: bool, abortive: bool, said: list[str]) -> None:
    heard: list[str] = []

    class Sock:
        def shutdown(self, how: int) -> None:
            assert how == socket.SHUT_WR
            heard.append("shutdown")
            raise OSError(107, "not connected")

        def setsockopt(self, level: int, option: int, value: bytes) -> None:
            assert (level, option, value) == (socket.SOL_SOCKET, socket.SO_LINGER, kernel.LINGER_0)
            heard.append("linger")

    words = kernel.last_words(shutdown, abortive)
    assert (words is None) is (not said)
    if words is not None:
        words(Sock())
    assert heard == said


@pytest.mark.parametrize("abortive", [False, True])
def test_an_end_is_sent_before_the_close(platform: str, abortive: bool) -> None:
    """With a reset alone the peer would read none."""
    ends: list[str] = []

    def script(sock: socket.socket) -> None:
        ends.append("end" if sock.recv(10) == b"" else "data")

    wishes = {"mode": "0", "n": 4, "shutdown": True, "abortive": abortive, "reconnect": False}
    with peer(script) as other, client(other.port, **wishes) as running:
        records = running.ended()
    assert set(records["outcome"]) == {CLOSED}
    if not abortive:
        assert ends == ["end"] * 4


@linux
def test_loops_share_ports() -> None:
    """Every loop listens on every port, and the kernel deals the connections out."""
    ports = free_ports(2)
    with server(ports, ports, reuse_port=True) as there:
        for port in ports * 40:
            with socket.create_connection(("127.0.0.1", port), timeout=30) as sock:
                sock.sendall(b"x")
                assert sock.recv(10) == b"x"
        there.board.until_counted(base.CLOSED, 80)
        records = there.stop()
    assert {(int(row["loop"]), int(row["lport"])) for row in records} == {(i, port) for i in (0, 1) for port in ports}


@pytest.mark.parametrize("side", ["client", "server"])
def test_busy_polling_never_sleeps_while_connections_are_open(side: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it a loop with nothing to do has its next turn after a second."""
    for module in (selector_client, selector_server):
        monkeypatch.setattr(module, "IDLE_S", 1.0)
    if side == "client":
        with peer(to_the_end) as other, client(other.port, mode="0", hold_ns=HOUR, busy_poll=True) as running:
            running.board.until_counted(base.ESTABLISHED, 1)
            running.board.after_turns(1000)
        return
    (port,) = free_ports(1)
    with server([port], busy_poll=True) as running, socket.create_connection(("127.0.0.1", port), timeout=30):
        running.board.until_counted(base.ESTABLISHED, 1)
        running.board.after_turns(1000)
