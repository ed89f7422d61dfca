"""Edge: the conversation of two ends of this program (``--both``): the listener's side and the client's.

The one idea: the client orders, the listener answers, one line each; the data has connections of its own. A listener
that is asked nothing says nothing. Must not know the terminal.
"""

from __future__ import annotations

import contextlib
import os
import queue
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

from ncps_capture.errors import NcpsError

from ncps_raw import net
from ncps_raw.link import books, measure, meeting, preamble
from ncps_raw.link.books import Figures
from ncps_raw.link.explain import Speed
from ncps_raw.link.meeting import Arrival, NobodyThere
from ncps_raw.link.plan import LinkPlan
from ncps_raw.link.preamble import CONTROL, NETWORK, TOKEN, Wish
from ncps_raw.link.sources import source_size
from ncps_raw.link.transfer import DONE, GONE, PeerWord, Transfer

ANSWER_S: Final = 10.0
_DONE_S: Final = 30.0
_TURN_S: Final = 0.1
_LONGEST_WORD: Final = 20

Both = tuple[Figures | None, Figures | None]


class _Line:
    """A connection on which one line at a time is said."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._rest = b""

    def say(self, **message: Any) -> None:
        self.sock.sendall(preamble.line(message))

    def hear(self, timeout: float | None) -> dict[str, Any] | None:
        """The next message; None at the end. Raises OSError, or ValueError for what is none."""
        self.sock.settimeout(timeout)
        while b"\n" not in self._rest:
            if len(self._rest) > preamble.LONGEST_LINE:
                raise ValueError("a line without an end")
            part = self.sock.recv(preamble.LONGEST_LINE)
            if not part:
                return None
            self._rest += part
        data, _, self._rest = self._rest.partition(b"\n")
        return preamble.read_line(data)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.sock.close()


# ---- the listener's side -----------------------------------------------------------------------------------------


def adapted(plan: LinkPlan, wish: Wish) -> LinkPlan:
    """The listener's plan for one client: what the client wishes, where the listener was not told itself.

    A listener that sends sends no longer than the client takes, so that both ends come to a normal end.
    """
    whole = replace(
        plan,
        bidirectional=plan.bidirectional or wish.bidirectional,
        streams=wish.streams,
        warmup_ns=plan.warmup_ns or wish.warmup_ns,
        both=True,
        explain=wish.explain,
    )
    return whole if wish.sends else no_longer(whole, wish.size, wish.duration_ns)


def promised(plan: LinkPlan, wish: Wish) -> int | None:
    """Bytes that a client will send to a listener; None if not bytes but time ends it."""
    if not plan.receives or (wish.sends and (wish.duration_ns, plan.duration_ns) != (None, None)):
        return None
    return _least(wish.size, plan.expected)


def no_longer(plan: LinkPlan, size: int | None, duration_ns: int | None) -> LinkPlan:
    """A sender's plan, ended where the receiver's ends."""
    if plan.bidirectional and plan.size is not None:  # each end's size is what it sends itself
        size = None
    return replace(plan, size=_least(plan.size, size), duration_ns=_least(plan.duration_ns, duration_ns))


def _least(a: int | None, b: int | None) -> int | None:
    return min((value for value in (a, b) if value is not None), default=None)


class Host(threading.Thread):
    """One client's conversation. ``start``: begin a transfer with these connections, and show it."""

    def __init__(
        self,
        arrival: Arrival,
        plan: LinkPlan,
        start: Callable[[LinkPlan, Sequence[Arrival], int | None, PeerWord], Transfer],
        on_end: Callable[[], None],
    ) -> None:
        super().__init__(daemon=True)
        self._line = _Line(arrival.sock)
        self._plan = plan
        self._start_transfer = start
        self._on_end = on_end
        self.refused: str | None = None  # why nothing came of it, once it has ended
        self._peer = arrival.peer
        self._began = False
        self._arrivals: queue.Queue[Arrival] = queue.Queue()
        self.ended = False
        self.told = threading.Event()  # what became of the transfer

    def deliver(self, arrival: Arrival) -> None:
        """A connection with this client's token."""
        self._arrivals.put(arrival)

    def run(self) -> None:
        """The thread."""
        try:
            self._converse()
        except (OSError, ValueError, queue.Empty, NcpsError) as error:
            self._refuse(str(error) or "what was promised did not come")
        finally:
            self._line.close()
            self.ended = True
            self.told.set()
            self._on_end()

    @property
    def telling(self) -> bool:
        """Whether the client is still to be told what became of its transfer."""
        return self._began and not self.told.is_set()

    def _word(self, timeout: float) -> str | None:
        """See PeerWord. This thread waits for the transfer meanwhile, so that only one reads."""
        try:
            told = self._line.hear(timeout)
        except (TimeoutError, BlockingIOError):
            return None
        except (OSError, ValueError):
            return GONE
        if told is None:
            return GONE
        why = told.get("leaving")
        return why if isinstance(why, str) and why.isalnum() and len(why) < _LONGEST_WORD else DONE

    def _refuse(self, why: str) -> None:
        if not self._began:
            self.refused = f"{self._peer} was refused: {why}"
        with contextlib.suppress(OSError):
            self._line.say(error=why)

    def _converse(self) -> None:
        first = self._line.hear(ANSWER_S)
        if first is None:
            return
        wish = preamble.wish_of(first)
        if wish.sends == self._plan.sends:
            verb = "sends" if wish.sends else "receives"
            self._refuse(f"the listener {verb} too: start the other command at one end")
            return
        plan = adapted(self._plan, wish)
        takes_ns = plan.duration_ns if wish.sends else None
        self._line.say(ok=True, takes_bytes=plan.expected, takes_ns=takes_ns, limit=plan.limit)
        while (order := self._line.hear(None)) is not None:
            if order.get("do") == "edge":
                speed = measure.edge_alone(plan)
                self._line.say(bytes_per_s=speed.bytes_per_s, why=speed.why, unlimited=speed.unlimited)
            elif order.get("do") == "network":
                socks = [self._arrivals.get(timeout=ANSWER_S).sock for _ in range(plan.streams)]
                speed = measure.network_alone(socks, plan, sends=plan.sends)
                self._line.say(bytes_per_s=speed.bytes_per_s, why=speed.why, cpu=speed.cpu)
            elif order.get("do") == "go":
                arrivals = [self._arrivals.get(timeout=ANSWER_S) for _ in range(plan.streams)]
                transfer = self._start_transfer(plan, arrivals, promised(plan, wish), self._word)
                self._began = True
                transfer.done.wait()
                sent, received = transfer.result
                problems, _ = transfer.verdict
                self._line.say(
                    sent=None if sent is None else books.to_wire(sent),
                    received=None if received is None else books.to_wire(received),
                    problems=list(problems),
                    ended_by=transfer.ended_by,
                )
                self.told.set()
            else:
                raise ValueError("an order that is not known")


# ---- the client's side -------------------------------------------------------------------------------------------


class Guest:
    """The conversation with the listener. Raises NobodyThere if the other end does not talk."""

    def __init__(self, plan: LinkPlan, target: net.Target, stopped: Callable[[], bool]) -> None:
        sock = meeting.connect(plan, target, stopped)
        if sock is None:
            raise NobodyThere("interrupted before the other end was there")
        self.plan = plan
        self._target = target
        self._stopped = stopped
        self.token = os.urandom(TOKEN)
        self._line = _Line(sock)
        size = _least(plan.size, source_size(plan) if plan.transmits else None)
        with self._explained():
            sock.sendall(preamble.mark(CONTROL, self.token))
            self._line.say(
                sends=plan.sends,
                bidirectional=plan.bidirectional,
                streams=plan.streams,
                size=size,
                duration_ns=plan.duration_ns,
                warmup_ns=plan.warmup_ns,
                explain=plan.explain,
            )
            told = self._hear(ANSWER_S)
            takes = [_whole(told, name) for name in ("takes_bytes", "takes_ns")]
            self.limit = _whole(told, "limit") if not plan.sends else plan.limit
        if plan.sends:
            self.plan = no_longer(plan, *takes)

    def connect(self, kind: bytes) -> socket.socket | None:
        """A connection for data, marked; None if interrupted."""
        sock = meeting.connect(self.plan, self._target, self._stopped)
        if sock is not None:
            sock.sendall(preamble.mark(kind, self.token))
        return sock

    def edge(self) -> Speed:
        """The far end's source or sink, alone."""
        with self._explained():
            self._line.say(do="edge")
            told = self._hear(_DONE_S)  # a slow device takes its time
        return Speed(_rate(told), str(told.get("why", "")), unlimited=told.get("unlimited") is True)

    def network(self) -> Speed:
        """The network alone, as the receiving end saw it; the larger of both ends' shares of a core."""
        with self._explained():
            self._line.say(do="network")
            socks = [sock for _ in range(self.plan.streams) if (sock := self.connect(NETWORK)) is not None]
            if len(socks) < self.plan.streams:
                return Speed(None, "interrupted")
            here = measure.network_alone(socks, self.plan, sends=self.plan.sends)
            told = self._hear(ANSWER_S)
        cpu = told.get("cpu")
        share = max(here.cpu or 0.0, float(cpu) if isinstance(cpu, int | float) else 0.0)
        there = _rate(told)
        rate = there if self.plan.sends and there is not None else here.bytes_per_s
        return Speed(rate, here.why if rate is None else "", share)

    def go(self) -> None:
        """Begin the transfer: its connections follow."""
        with self._explained():
            self._line.say(do="go")

    def result(self) -> tuple[Both, tuple[str, ...]]:
        """What the far end counted, and its problems."""
        try:
            self._line.say(done=True)
            told = self._hear(_DONE_S)
            figures = [told.get(name) for name in ("sent", "received")]
            sent, received = (books.from_wire(found) if isinstance(found, dict) else None for found in figures)
        except (OSError, ValueError) as error:  # it has talked before, so it is not that it cannot
            self._line.close()
            raise NobodyThere(f"the other end left before it told its figures ({_reason(error)})") from None
        problems = tuple(str(problem) for problem in told.get("problems", []) if isinstance(problem, str))
        why = told.get("ended_by")
        if not problems and isinstance(why, str):
            problems = (f"interrupted by {why}",)
        return (sent, received), problems

    def leaving(self, why: str) -> None:
        """Say that the transfer is cut short here, before its connections end: else this looks like being killed."""
        with contextlib.suppress(OSError):
            self._line.say(leaving=why)

    def close(self) -> None:
        """End the conversation."""
        self._line.close()

    def _hear(self, timeout: float) -> dict[str, Any]:
        deadline = time.monotonic() + timeout
        while True:
            try:
                told = self._line.hear(min(timeout, _TURN_S))
                break
            except TimeoutError:
                if self._stopped():
                    raise NobodyThere("interrupted while waiting for the other end's answer") from None
                if time.monotonic() >= deadline:
                    raise
        if told is None:
            raise ValueError("it closed the connection")
        if "error" in told:
            raise NobodyThere(f"the other end refused: {told['error']}")
        return told

    @contextlib.contextmanager
    def _explained(self) -> Any:
        try:
            yield
        except (OSError, ValueError) as error:
            self._line.close()
            raise NobodyThere(
                f"the other end does not talk ({_reason(error)}): --both and its figures need ncps there; "
                "leave out --both"
            ) from None


def _reason(error: OSError | ValueError) -> str:
    return error.strerror if isinstance(error, OSError) and error.strerror else str(error)


def _whole(told: dict[str, Any], name: str) -> int | None:
    value = told.get(name)
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
        raise ValueError(f"{name} is no number")
    return value


def _rate(told: dict[str, Any]) -> float | None:
    value = told.get("bytes_per_s")
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
