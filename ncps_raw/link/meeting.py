"""Edge: how the two ends meet: listening, connecting, and telling a plain stream from an end of this program.

The one idea: a listener decides by a connection's first bytes, and only as long as it must: one that sends takes a
client that stays silent for a tenth of a second for a plain one. Must not know what is done with a connection.
"""

from __future__ import annotations

import contextlib
import errno
import os
import selectors
import socket
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ncps_capture.errors import EnvironmentFault, NcpsError

from ncps_raw import net
from ncps_raw.link import preamble, tcpinfo
from ncps_raw.link.plan import CONNECT_NS, LinkPlan
from ncps_raw.link.preamble import Mark

SILENCE_NS: Final = 100_000_000
_LOOK_NS: Final = 5_000_000
_AGAIN_S: Final = 0.05
_BACKLOG: Final = 1024


class NobodyThere(NcpsError):  # noqa: N818 - a state of the world, told as it is
    """The other end never came: the run was tried, and failed."""


@dataclass
class Arrival:
    """An accepted connection. ``mark`` None: a plain stream."""

    sock: socket.socket
    peer: str
    t_ns: int
    mark: Mark | None = None
    first: tuple[int, int] | None = None  # a plain stream's first bytes: when they were seen, and how many
    silent: bool = False  # it was to send, and has said nothing for as long as --idle allows


def name_of(address: tuple[object, ...]) -> str:
    """``10.0.0.5:40000``, ``[::1]:40000``; IPv4 in IPv6 as IPv4."""
    host = str(address[0]).removeprefix("::ffff:")
    return f"[{host}]:{address[1]}" if ":" in host else f"{host}:{address[1]}"


def tune(sock: socket.socket, plan: LinkPlan) -> None:
    """Buffers as asked for: before connecting, because the window's scale is agreed on then."""
    for option, value in ((socket.SO_SNDBUF, plan.sndbuf), (socket.SO_RCVBUF, plan.rcvbuf)):
        if value is not None:
            try:
                sock.setsockopt(socket.SOL_SOCKET, option, value)
            except (OSError, OverflowError):
                raise EnvironmentFault(f"this machine refused a socket buffer of {value} bytes; ask for less") from None


def reset(sock: socket.socket) -> None:
    """Close so that the peer knows that nothing came of it: an orderly end would look like an empty transfer."""
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    with contextlib.suppress(OSError):
        sock.close()


def listen(plan: LinkPlan) -> socket.socket:
    """A listening socket; IPv4 and IPv6 unless --bind names an address. EnvironmentFault if the port is taken."""
    both = plan.bind is None and socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if both or ":" in (plan.bind or "") else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        if os.name == "posix":
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if both else 1)
        tune(sock, plan)
        host, _, scope = (plan.bind or "").partition("%")
        address = (host, plan.port, 0, socket.if_nametoindex(scope)) if scope else (host, plan.port)
        sock.bind(address)
        sock.listen(_BACKLOG)
    except OSError as error:
        sock.close()
        where = f"port {plan.port}" + (f" of {plan.bind}" if plan.bind else "")
        raise EnvironmentFault(f"cannot listen on {where}: {error.strerror}; choose another --port or --bind") from None
    except NcpsError:
        sock.close()
        raise
    return sock


def connect(plan: LinkPlan, target: net.Target, stopped: Callable[[], bool]) -> socket.socket | None:
    """A connection to the plan's host; None if ``stopped`` first. With --wait it tries until then.

    Raises NobodyThere if nobody answers in time, or refuses and there is nothing to wait for.
    """
    begin = time.monotonic_ns()
    deadline = begin + (CONNECT_NS if plan.wait_ns is None else plan.wait_ns)
    where = name_of((target.address[0], plan.port))
    while True:
        sock = socket.socket(target.family, socket.SOCK_STREAM)
        try:
            tune(sock, plan)
            if plan.bind is not None:
                net.bind_targets((plan.bind,), target.family)
                sock.bind((plan.bind, 0))
            if _connected(sock, (target.address[0], plan.port, *target.address[2:]), deadline, stopped):
                return sock
            sock.close()
            return None
        except TimeoutError:
            sock.close()
            raise NobodyThere(
                f"{where} did not answer within {(deadline - begin) / 1e9:g} s; is it up, or behind a firewall?"
            ) from None
        except OSError as error:
            sock.close()
            if stopped():
                return None
            if plan.wait_ns is None or time.monotonic_ns() >= deadline:
                advice = "start ncps recv (or nc -l) there first, or wait for it with --wait"
                if plan.wait_ns is not None:
                    advice = f"waited {plan.wait_ns / 1e9:g} s"
                raise NobodyThere(f"cannot connect to {where}: {error.strerror}; {advice}") from None
            time.sleep(min(_AGAIN_S, max((deadline - time.monotonic_ns()) / 1e9, 0.001)))
        except NcpsError:
            sock.close()
            raise


def _connected(sock: socket.socket, address: tuple[object, ...], deadline_ns: int, stopped: Callable[[], bool]) -> bool:
    """Whether it came to a connection; False if ``stopped`` first. Raises OSError, TimeoutError at the deadline."""
    sock.setblocking(False)
    error = sock.connect_ex(address)
    if error in (errno.EINPROGRESS, errno.EWOULDBLOCK):
        with selectors.DefaultSelector() as selector:
            selector.register(sock, selectors.EVENT_WRITE)
            while not selector.select(min(max((deadline_ns - time.monotonic_ns()) / 1e9, 0.001), _AGAIN_S)):
                if stopped():
                    return False
                if time.monotonic_ns() >= deadline_ns:
                    raise TimeoutError
        error = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    if error:
        raise OSError(error, os.strerror(error))
    sock.setblocking(True)
    return True


class Door:
    """The listening socket with those who stand in it: accepted, but not yet known to be plain or not."""

    def __init__(self, sock: socket.socket, *, speaks_first: bool, idle_ns: int | None = None) -> None:
        """``speaks_first``: this end sends, so a plain client says nothing. ``idle_ns``: of one that is to send."""
        self.sock = sock
        self._speaks_first = speaks_first
        self._silence_ns = SILENCE_NS if speaks_first else idle_ns
        self._waiting: list[Arrival] = []
        sock.setblocking(False)

    def watched(self) -> list[socket.socket]:
        """What to wait for readable."""
        return [self.sock, *(arrival.sock for arrival in self._waiting if arrival.first is None)]

    def patience_ns(self, now_ns: int) -> int | None:
        """Until somebody's silence decides; None if nobody's does."""
        due = []
        for arrival in self._waiting:
            if arrival.first is not None:  # readable already: nothing wakes for the rest of a mark
                due.append(min(arrival.first[0] + SILENCE_NS, now_ns + _LOOK_NS))
            elif self._silence_ns is not None:
                due.append(arrival.t_ns + self._silence_ns)
        return max(min(due) - now_ns, 0) if due else None

    def come_in(self, *, accept: bool) -> list[Arrival]:
        """Those who are known now. Never blocks. ``accept`` False: whoever is new waits outside."""
        if accept:
            self._let_in()
        known = []
        for arrival in list(self._waiting):
            decided = self._decide(arrival)
            if decided is None:
                continue
            self._waiting.remove(arrival)
            if decided:
                known.append(arrival)
        return known

    def _let_in(self) -> None:
        while True:
            try:
                sock, address = self.sock.accept()
            except OSError:  # nobody there, or gone again
                return
            sock.setblocking(True)
            self._waiting.append(Arrival(sock, name_of(address), time.monotonic_ns()))

    def turn_away(self) -> list[str]:
        """Reset whoever stands here or outside: the names of all of them."""
        self._let_in()
        turned, self._waiting = self._waiting, []
        for arrival in turned:
            reset(arrival.sock)
        return [arrival.peer for arrival in turned]

    def _decide(self, arrival: Arrival) -> bool | None:
        """True: known; False: not worth to be let in; None: wait."""
        try:
            first = arrival.sock.recv(preamble.LENGTH, socket.MSG_PEEK | getattr(socket, "MSG_DONTWAIT", 0))
        except BlockingIOError:
            first = None
        except OSError:
            first = b""  # reset: whoever receives from it will say so
        if first is None:
            if self._silence_ns is None or time.monotonic_ns() - arrival.t_ns < self._silence_ns:
                return None
            arrival.silent = not self._speaks_first
            return True
        now = time.monotonic_ns()
        if first and arrival.first is None:
            arrival.first = (now, max(tcpinfo.waiting(arrival.sock) or 0, len(first)))
        found = preamble.recognise(first) if first else False
        if found is None:
            # A stream may begin like a mark, or be as short as its beginning: its end or its silence decides.
            assert arrival.first is not None
            info = tcpinfo.read(arrival.sock)
            ended = info is not None and info.state == tcpinfo.PEER_ENDED
            return True if ended or now - arrival.first[0] >= SILENCE_NS else None
        if isinstance(found, Mark):
            arrival.sock.recv(preamble.LENGTH)
            arrival.mark, arrival.first = found, None
        return True

    def youngest_ns(self, now_ns: int) -> int:
        """How long the last one has stood here without a word; a very long time if nobody does."""
        return min((now_ns - arrival.t_ns for arrival in self._waiting), default=1 << 62)

    def close(self) -> None:
        """Let go of everybody and listen no more."""
        self.sock.close()
        for arrival in self._waiting:
            with contextlib.suppress(OSError):
                arrival.sock.close()
        self._waiting.clear()
