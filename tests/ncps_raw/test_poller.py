"""Both pollers do what the engines ask of them."""

import select
import socket
from collections.abc import Callable, Iterator

import pytest

from ncps_raw.engine.poller import (
    ERR,
    ET,
    HUP,
    IN,
    MOST_SELECT,
    OUT,
    RDHUP,
    LevelPoller,
    Poller,
    make_poller,
    precise,
    restless,
)


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    one, other = socket.socketpair()
    with one, other:
        yield one, other


@pytest.fixture(params=[LevelPoller, getattr(select, "epoll", LevelPoller)], ids=["levels", "epoll"])
def poller(request: pytest.FixtureRequest) -> Iterator[Poller]:
    make: Callable[[], Poller] = request.param
    made = make()
    yield made
    made.close()


@pytest.mark.skipif(not hasattr(select, "epoll"), reason="epoll is Linux's")
def test_the_values_are_those_of_epoll() -> None:
    names = {"IN": IN, "OUT": OUT, "ERR": ERR, "HUP": HUP, "RDHUP": RDHUP, "ET": ET}
    assert names == {name: getattr(select, f"EPOLL{name}") & 0xFFFFFFFF for name in names}


def test_what_is_ready_is_reported(poller: Poller, pair: tuple[socket.socket, socket.socket]) -> None:
    one, other = pair
    poller.register(one.fileno(), IN)
    assert poller.poll(0) == []
    other.send(b"x")
    assert poller.poll(10) == [(one.fileno(), IN)]
    poller.modify(one.fileno(), IN | OUT)
    assert poller.poll(10) == [(one.fileno(), IN | OUT)]
    poller.modify(one.fileno(), OUT)
    assert poller.poll(10) == [(one.fileno(), OUT)]


def test_nothing_wanted_is_nothing_told_until_it_is_wanted_again(
    poller: Poller, pair: tuple[socket.socket, socket.socket]
) -> None:
    one, other = pair
    poller.register(one.fileno(), IN)
    other.send(b"x")
    poller.modify(one.fileno(), 0)
    assert poller.poll(0) == []
    poller.modify(one.fileno(), 0)
    assert poller.poll(0) == []
    poller.modify(one.fileno(), IN)
    assert poller.poll(10) == [(one.fileno(), IN)]


def test_what_is_not_watched_is_not_reported(poller: Poller, pair: tuple[socket.socket, socket.socket]) -> None:
    one, other = pair
    poller.register(one.fileno(), IN)
    other.send(b"x")
    poller.unregister(one.fileno())
    assert poller.poll(0) == []


def test_an_end_is_readable(poller: Poller, pair: tuple[socket.socket, socket.socket]) -> None:
    one, other = pair
    poller.register(one.fileno(), IN)
    other.close()
    ((fd, events),) = poller.poll(10)
    assert fd == one.fileno()
    assert events & IN


def test_at_most_so_many_events(poller: Poller) -> None:
    pairs = [socket.socketpair() for _ in range(5)]
    try:
        for one, other in pairs:
            poller.register(one.fileno(), IN)
            other.send(b"x")
        assert len(poller.poll(10, 3)) == 3
        assert {fd for fd, _ in poller.poll(10)} == {one.fileno() for one, _ in pairs}
    finally:
        for one, other in pairs:
            one.close()
            other.close()


def test_flags_of_edges_do_no_harm_to_levels(pair: tuple[socket.socket, socket.socket]) -> None:
    one, other = pair
    poller = LevelPoller()
    poller.register(one.fileno(), IN | RDHUP | ET)
    other.send(b"x")
    assert poller.poll(10) == poller.poll(10) == [(one.fileno(), IN)]  # a level comes again
    poller.close()


def test_the_best_poller_of_the_platform(monkeypatch: pytest.MonkeyPatch) -> None:
    if hasattr(select, "epoll"):
        best, edges = make_poller()
        best.close()
        assert isinstance(best, select.epoll)
        assert edges
        monkeypatch.delattr(select, "epoll")
    fallback, edges = make_poller()
    fallback.close()
    assert isinstance(fallback, LevelPoller)
    assert not edges


def test_a_precise_poll_sees_what_a_poll_sees(poller: Poller, pair: tuple[socket.socket, socket.socket]) -> None:
    one, other = pair
    poll = precise(poller)
    poller.register(one.fileno(), IN)
    assert poll(0, 10) == poll(0.000_1, 10) == []
    other.send(b"x")
    assert poll(10, 10) == poll(0, 10) == [(one.fileno(), IN)]
    poller.modify(one.fileno(), IN | ET)
    assert poll(10, 10) == [(one.fileno(), IN)]  # an edge is told once, by the poll and not by the look before


def test_a_descriptor_that_select_cannot_look_at_is_polled_as_usual() -> None:
    class Far:
        def fileno(self) -> int:
            return MOST_SELECT

        def poll(self, timeout: float, most: int) -> list[tuple[int, int]]:
            return [(most, IN)]

    assert precise(Far())(10, 7) == [(7, IN)]  # type: ignore[arg-type]


def test_a_restless_poll_waits_only_while_nothing_is_open() -> None:
    waits: list[float] = []

    def poll(timeout: float, most: int) -> list[tuple[int, int]]:
        waits.append(timeout)
        return []

    open_now: dict[int, str] = {}
    made = restless(poll, open_now)
    made(0.5, 1)
    open_now[3] = "connection"
    made(0.5, 1)
    open_now.clear()
    made(0.5, 1)
    assert waits == [0.5, 0, 0.5]
