"""The engines do what the rows say: each is held to a plain interpreter, with peers that speak as they are told."""

import socket

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from loads import SECOND, become, client, free_ports, peer, server, to_the_end
from mode_interpreter import CLOSED, FAILED, interpret
from ncps_analysis import records

from ncps_raw.conversation import CLIENT_MODES, SERVER_MODES
from ncps_raw.engine import base, endless_client

SIZE = 300
OUTCOMES = {CLOSED: records.CLOSED, FAILED: records.IO_FAILED}
ANSWERS = st.lists(st.integers(1, SIZE), max_size=6)
FEW = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(params=["edges", "network", "levels", "bare"])
def platform(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    become(request.param, monkeypatch)
    return str(request.param)


def exactly(sock: socket.socket, n: int) -> None:
    while n:
        data = sock.recv(n)
        assert data, f"it ended with {n} bytes to go"
        n -= len(data)


class Ages:
    """A clock by which the connection is old enough at the n-th look, and newly established before."""

    def __init__(self, old_at: int | None) -> None:
        self.old_at = old_at
        self.looks = 0

    def __call__(self) -> int:
        self.looks += 1
        return 1 << 62 if self.looks == self.old_at else 0


@FEW
@given(answers=ANSWERS, old_at=st.one_of(st.none(), st.integers(1, 6)), mode=st.sampled_from("01p"))
def test_rows_that_await_answers(platform: str, answers: list[int], old_at: int | None, mode: str) -> None:
    expected = interpret(CLIENT_MODES[mode], SIZE, answers, old_at)

    def script(sock: socket.socket) -> None:
        for unit, answer in zip(expected.sent, [*expected.received, 0], strict=False):
            exactly(sock, unit)
            sock.sendall(b"x" * answer)
        if expected.outcome == CLOSED:
            assert to_the_end(sock) == 0

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(endless_client, "clock", Ages(old_at))
        hold = SECOND * 3600 if mode == "p" else 0
        with peer(script) as other, client(other.port, mode=mode, size=SIZE, hold_ns=hold, reconnect=False) as running:
            (row,) = running.ended()
    assert row["outcome"] == OUTCOMES[expected.outcome]
    assert running.board.total(base.TX_BYTES) == sum(expected.sent)
    assert running.board.total(base.RX_BYTES) == sum(expected.received)


@FEW
@given(old_at=st.integers(1, 500))
def test_a_row_that_only_sends(platform: str, old_at: int) -> None:
    expected = interpret(CLIENT_MODES["s"], SIZE, (), old_at)
    got: list[int] = []

    def script(sock: socket.socket) -> None:
        got.append(to_the_end(sock))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(endless_client, "clock", Ages(old_at))
        with peer(script) as other, client(other.port, mode="s", size=SIZE, hold_ns=1, reconnect=False) as running:
            (row,) = running.ended()
    assert row["outcome"] == OUTCOMES[expected.outcome]
    assert got == [sum(expected.sent)] == [running.board.total(base.TX_BYTES)]


@FEW
@given(says=st.lists(st.integers(1, SIZE), max_size=6))
def test_a_row_that_only_receives_from_a_peer_that_ends(platform: str, says: list[int]) -> None:
    expected = interpret(CLIENT_MODES["r"], SIZE, says)

    def script(sock: socket.socket) -> None:
        for n in says:
            sock.sendall(b"x" * n)

    wishes = {"mode": "r", "size": SIZE, "hold_ns": 3600 * SECOND, "reconnect": False}
    with peer(script) as other, client(other.port, **wishes) as running:
        (row,) = running.ended()
    assert row["outcome"] == OUTCOMES[expected.outcome] == records.IO_FAILED
    assert running.board.total(base.RX_BYTES) == sum(expected.received)
    assert running.board.total(base.TX_BYTES) == sum(expected.sent) == 0


@pytest.mark.parametrize("mode", [name for name, row in SERVER_MODES.items() if row.rx is None])
@FEW
@given(says=ANSWERS)
def test_the_servers_rows(platform: str, mode: str, says: list[int]) -> None:
    expected = interpret(SERVER_MODES[mode], SIZE, says)
    (port,) = free_ports(1)
    with server([port], mode=mode, size=SIZE) as running:
        with socket.create_connection(("127.0.0.1", port), timeout=30) as sock:
            for n, back in zip(says, expected.sent or [0] * len(says), strict=True):
                sock.sendall(b"x" * n)
                exactly(sock, back)
        running.board.until_counted(base.CLOSED, 1)
        (row,) = running.stop()
    assert row["outcome"] == OUTCOMES[expected.outcome]
    assert running.board.total(base.RX_BYTES) == sum(expected.received)
    assert running.board.total(base.TX_BYTES) == sum(expected.sent)
