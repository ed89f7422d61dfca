"""The conversation of two ends: a listener that knows, one that does not, and wishes that cannot be met."""

import socket
import threading
from collections.abc import Sequence

import pytest
from link_pairs import pair

from ncps_raw import net
from ncps_raw.link import preamble, talk
from ncps_raw.link.meeting import Arrival, NobodyThere
from ncps_raw.link.plan import LinkPlan
from ncps_raw.link.preamble import Wish
from ncps_raw.link.talk import Guest, Host
from ncps_raw.link.transfer import PeerWord, Transfer


def never(plan: LinkPlan, arrivals: Sequence[Arrival], most_in: int | None, word: PeerWord) -> Transfer:
    raise AssertionError("no transfer was asked for")


def answers(plan: LinkPlan, *messages: bytes) -> list[dict[str, object]]:
    """What a host says to these messages."""
    with pair() as (near, far):
        host = Host(Arrival(far, "peer", 0), plan, never, lambda: None)
        host.start()
        near.sendall(b"".join(messages))
        near.shutdown(socket.SHUT_WR)
        with near.makefile("rb") as lines:
            said = [preamble.read_line(line) for line in lines]
        host.join(20)
        assert host.ended
    return said


def wish(**change: object) -> bytes:
    plain = {"sends": True, "bidirectional": False, "streams": 1, "size": None, "duration_ns": None, "warmup_ns": 0}
    return preamble.line({**plain, **change})


def test_an_order_is_answered() -> None:
    said = answers(LinkPlan(sends=False), wish(), preamble.line({"do": "edge"}))
    assert said[0] == {"ok": True, "takes_bytes": None, "takes_ns": None, "limit": None}
    assert said[1]["unlimited"] is True


@pytest.mark.parametrize(
    ("messages", "error"),
    [
        ((wish(sends=False),), "the listener receives too"),
        ((wish(streams=0),), "streams must be 1 to 1000"),
        ((b"hello\n",), "Expecting value"),
        ((wish(), preamble.line({"do": "dance"})), "not known"),
    ],
)
def test_what_cannot_be_meant_is_refused(messages: tuple[bytes, ...], error: str) -> None:
    assert error in str(answers(LinkPlan(sends=False), *messages)[-1]["error"])


def test_a_listener_s_own_words_come_before_the_client_s_wish() -> None:
    asked = Wish(False, True, 3, 1000, 5_000_000, 7)
    plan = talk.adapted(LinkPlan(sends=True), asked)
    assert (plan.size, plan.duration_ns, plan.bidirectional, plan.streams, plan.warmup_ns) == (
        1000,
        5_000_000,
        True,
        3,
        7,
    )
    assert talk.adapted(LinkPlan(sends=True, size=5, duration_ns=9_000_000, warmup_ns=1), asked).size == 5


@pytest.mark.parametrize(
    ("own", "takes", "size", "duration"),
    [
        ((None, None), (None, None), None, None),
        ((None, None), (9, 8_000_000), 9, 8_000_000),
        ((5, 7_000_000), (9, 8_000_000), 5, 7_000_000),
        ((10, 9_000_000), (9, 8_000_000), 9, 8_000_000),
    ],
)
def test_a_sender_ends_where_its_receiver_does(
    own: tuple[int | None, int | None], takes: tuple[int | None, int | None], size: int | None, duration: int | None
) -> None:
    plan = LinkPlan(sends=True, host="h", size=own[0], duration_ns=own[1])
    found = talk.no_longer(plan, *takes)
    assert (found.size, found.duration_ns) == (size, duration)
    asked = Wish(False, False, 1, *takes, 0)
    listening = talk.adapted(LinkPlan(sends=True, size=own[0], duration_ns=own[1]), asked)
    assert (listening.size, listening.duration_ns, listening.both) == (size, duration, True)


@pytest.mark.parametrize(
    ("plan", "size", "duration", "expected"),
    [
        (LinkPlan(sends=False), 9, None, 9),
        (LinkPlan(sends=False, size=5), 9, None, 5),
        (LinkPlan(sends=False, size=5), None, None, 5),
        (LinkPlan(sends=False), 9, 1_000_000, None),
        (LinkPlan(sends=False, duration_ns=1_000_000), 9, None, None),
        (LinkPlan(sends=True), 9, None, None),
    ],
)
def test_bytes_are_promised_where_time_does_not_end_it(
    plan: LinkPlan, size: int | None, duration: int | None, expected: int | None
) -> None:
    assert talk.promised(plan, Wish(not plan.sends, False, 1, size, duration, 0)) == expected


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (b"", "does not talk .it closed the connection.: --both and its figures need ncps there"),
        (b"plain data\n", "does not talk"),
        (preamble.line({"error": "busy"}), "refused: busy"),
    ],
)
def test_an_end_that_is_not_ours(answer: bytes, message: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as door:

        def serve() -> None:
            peer, _ = door.accept()
            with peer, peer.makefile("rb") as lines:
                lines.read(preamble.LENGTH)
                lines.readline()
                peer.sendall(answer)

        server = threading.Thread(target=serve)
        server.start()
        plan = LinkPlan(sends=True, host="127.0.0.1", port=door.getsockname()[1], both=True)
        with pytest.raises(NobodyThere, match=message):
            Guest(plan, net.resolve("127.0.0.1"), lambda: False)
        server.join()
