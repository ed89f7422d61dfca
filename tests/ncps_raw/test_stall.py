"""A load that stands still: what is said of which mode, when, and when nothing is said. Then with real engines."""

import pytest
from loads import SECOND, client, free_ports, server

from ncps_raw.conversation import CLIENT_MODES, SERVER_MODES
from ncps_raw.engine import base
from ncps_raw.engine.base import CLOSED, COUNTERS, ESTABLISHED, RX_BYTES, TX_BYTES
from ncps_raw.stall import QUIET_NS, StallWatch, stall_advice

HOUR = 3600 * SECOND


def totals(open_now: int = 5, closed: int = 0, rx: int = 0, tx: int = 0) -> list[int]:
    counts = [0] * len(COUNTERS)
    counts[ESTABLISHED], counts[CLOSED], counts[RX_BYTES], counts[TX_BYTES] = open_now + closed, closed, rx, tx
    return counts


MODES = [("client", mode) for mode in CLIENT_MODES if mode != "0"] + [("server", mode) for mode in SERVER_MODES]


@pytest.mark.parametrize(("role", "mode"), MODES)
def test_a_load_that_stands_still_is_told_once_within_two_seconds(role: str, mode: str) -> None:
    watch = StallWatch(role, mode)
    still = totals(rx=7, tx=5)
    said = {ms: watch.look(ms * 1_000_000, still) for ms in range(0, 10_000, 100)}
    lines = {ms: line for ms, line in said.items() if line}
    assert list(lines) == [QUIET_NS // 1_000_000] == [1500]
    assert lines[1500] == stall_advice(role, mode, 5)
    assert "5 open connections" in lines[1500]
    assert "-M" in lines[1500]


@pytest.mark.parametrize(("role", "mode"), MODES)
@pytest.mark.parametrize("change", ["moves", "closes", "nothing open"])
def test_a_load_that_moves_is_left_alone(role: str, mode: str, change: str) -> None:
    watch = StallWatch(role, mode)
    for s in range(20):
        now = {
            "moves": totals(rx=7 + s, tx=5 + s),
            "closes": totals(closed=s),
            "nothing open": totals(open_now=0),
        }[change]
        assert watch.look(s * SECOND, now) is None


@pytest.mark.parametrize(("mode", "way", "other"), [("s", "tx", "rx"), ("r", "rx", "tx")])
def test_what_the_mode_does_not_promise_does_not_count(mode: str, way: str, other: str) -> None:
    watch = StallWatch("client", mode)
    said = [watch.look(s * SECOND, totals(**{way: 3, other: s})) for s in range(4)]
    assert any(said)


def test_quiet_that_is_meant_is_none() -> None:
    quiet = (StallWatch("client", "0"), StallWatch("client", "1", hold_ns=HOUR), StallWatch("server", "echo"))
    for watch in quiet:
        assert [watch.look(s * SECOND, totals(rx=10, tx=10)) for s in range(10)] == [None] * 10
    paced = StallWatch("client", "p", pace_ns=10 * SECOND)
    assert [bool(paced.look(s * SECOND, totals(rx=10, tx=10))) for s in range(12)] == [False] * 12
    assert paced.look(12 * SECOND, totals(rx=10, tx=10))


def test_a_pause_does_not_count() -> None:
    watch = StallWatch("client", "s")
    for s in range(10):
        assert watch.look(s * SECOND, totals()) is None
        watch.rest()


@pytest.mark.parametrize(
    ("mode", "other", "hint"), [("s", "echo", "-M r"), ("r", "echo", "-M s"), ("p", "r", "without")]
)
def test_real_ends_that_do_not_fit(mode: str, other: str, hint: str) -> None:
    """Looked at now and two seconds later, as the engines' own turns tell that nothing more comes."""
    (port,) = free_ports(1)
    with (
        server([port], mode=other),
        client(port, mode=mode, n=2, hold_ns=HOUR, drain_ns=0) as here,
    ):
        here.board.until_counted(base.ESTABLISHED, 2)
        before = [-1]
        while before != here.board.totals():
            before = here.board.totals()
            here.board.after_turns(5)
        watch = StallWatch("client", mode)
        assert watch.look(0, here.board.totals()) is None
        here.board.after_turns(3)
        assert hint in (watch.look(2 * SECOND, here.board.totals()) or "")
