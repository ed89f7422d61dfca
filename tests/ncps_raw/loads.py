"""Helpers of the engine tests: a board and a ledger in memory, engines in threads, peers that follow a script."""

from __future__ import annotations

import contextlib
import itertools
import random
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from ncps_analysis.records import CONNECTION, Connections

from ncps_raw.conversation import CLIENT_MODES, SERVER_MODES
from ncps_raw.engine import selector_client, selector_server
from ncps_raw.engine.base import (
    ATTEMPTED,
    CLOSED,
    COUNTERS,
    ESTABLISHED,
    FAILED,
    GO,
    NOT_STARTED,
    STOP,
    ClientLoop,
    ClientSetup,
    Path,
    ServerLoop,
    ServerSetup,
)
from ncps_raw.engine.endless_client import client_engine
from ncps_raw.engine.poller import LevelPoller
from ncps_raw.ports import ClientPorts

PATIENCE_S = 30.0
RST_ON_CLOSE = struct.pack("ii", 1, 0)
SECOND = 1_000_000_000


class Board:
    """What shared memory is in a run. Each look of the engine at the state is a turn of its loop."""

    def __init__(self) -> None:
        self.counts: dict[int, list[int]] = {}
        self.errors: list[tuple[int, int]] = []
        self.turns = 0
        self.most_open = 0
        self.most_pending = 0
        self.begin = time.monotonic_ns()
        self.end = 0
        self._state = GO
        self._changed = threading.Condition()

    # ---- what an engine sees --------------------------------------------------------------------------------

    def state(self) -> int:
        with self._changed:
            self.turns += 1
            self._changed.notify_all()
            return self._state

    def begin_ns(self) -> int:
        return self.begin

    def end_ns(self) -> int:
        return self.end

    def publish(self, loop: int, counts: list[int]) -> None:
        with self._changed:
            self.counts[loop] = list(counts)
            self.most_open = max(self.most_open, self.total(ESTABLISHED) - self.total(CLOSED))
            self.most_pending = max(self.most_pending, self.pending())
            self._changed.notify_all()

    def error(self, number: int, t_ns: int) -> None:
        self.errors.append((number, t_ns))

    # ---- what a test sees -----------------------------------------------------------------------------------

    def total(self, counter: int) -> int:
        return sum(counts[counter] for counts in self.counts.values())

    def totals(self) -> list[int]:
        return [self.total(counter) for counter in range(len(COUNTERS))]

    def pending(self) -> int:
        return self.total(ATTEMPTED) - self.total(ESTABLISHED) - self.total(FAILED) - self.total(NOT_STARTED)

    def stop(self) -> None:
        with self._changed:
            self._state = STOP

    def until(self, condition: Callable[[], object], what: str) -> None:
        """Wait until the engine has published what makes ``condition`` true."""
        with self._changed:
            assert self._changed.wait_for(condition, PATIENCE_S), f"{what} did not happen: {self.counts}"

    def until_counted(self, counter: int, least: int) -> None:
        self.until(lambda: self.total(counter) >= least, f"{least} {COUNTERS[counter]}")

    def after_turns(self, turns: int) -> None:
        """Let the engine's loop go round so many times more."""
        end = self.turns + turns
        self.until(lambda: self.turns >= end, f"{turns} turns")


class Ledger:
    """Keeps rows in memory."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def append_bytes(self, rows: memoryview) -> None:
        self._bytes += rows

    def rows(self) -> Connections:
        return np.frombuffer(bytes(self._bytes), CONNECTION)


class Running:
    """An engine at work in a thread."""

    def __init__(self, engine: Any, board: Board, ledger: Ledger) -> None:
        self.board = board
        self.engine = engine
        self.ledger = ledger
        self.paths: list[Path] = []
        self._fault: BaseException | None = None
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def _work(self) -> None:
        try:
            self.paths = self.engine.run()
        except BaseException as fault:
            self._fault = fault

    def ended(self) -> Connections:
        """Wait until the engine has ended by itself; its records."""
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive(), "the engine does not end"
        if self._fault is not None:
            raise self._fault
        return self.ledger.rows()

    def stop(self) -> Connections:
        """Tell it to stop; its records."""
        self.board.stop()
        return self.ended()

    def here(self, row: Any) -> str:
        """This side's address of a record."""
        return self.paths[row["path"]][0]


def one_loop(
    port: int | Sequence[int], connections: int, pending: int | None, local: Sequence[int], sources: int = 1
) -> ClientLoop:
    remote = (port,) if isinstance(port, int) else tuple(port)
    ports = ClientPorts(remote, tuple(local), len(remote) > 1, sources)
    return ClientLoop(0, connections, pending or connections, ports)


def client_setup(
    port: int | Sequence[int],
    *,
    mode: str = "1",
    n: int = 1,
    pending: int | None = None,
    local: Sequence[int] = (),
    size: int = 1000,
    **other: Any,
) -> ClientSetup:
    plain: dict[str, Any] = {
        "family": socket.AF_INET,
        "address": ("127.0.0.1", 0),
        "bind": (),
        "hold_ns": 0,
        "reconnect": True,
        "abortive": False,
        "drain_ns": 10 * SECOND,
        "loops": (one_loop(port, n, pending, local, max(1, len(other.get("bind", ())))),),
    }
    return ClientSetup(mode=CLIENT_MODES[mode], size=size, **{**plain, **other})


@contextlib.contextmanager
def client(port: int | Sequence[int], **wishes: Any) -> Iterator[Running]:
    board, ledger = Board(), Ledger()
    running = Running(client_engine(client_setup(port, **wishes), board, ledger), board, ledger)
    try:
        yield running
    finally:
        board.stop()
        running.ended()


def server_setup(ports: Sequence[Sequence[int]], *, mode: str = "echo", **other: Any) -> ServerSetup:
    plain: dict[str, Any] = {
        "family": socket.AF_INET,
        "bind": ("127.0.0.1",),
        "size": 1000,
        "abortive": True,
        "backlog": 100,
        "max_records": 1_000_000,
    }
    loops = tuple(ServerLoop(i, tuple(each)) for i, each in enumerate(ports))
    return ServerSetup(mode=SERVER_MODES[mode], loops=loops, **{**plain, **other})


@contextlib.contextmanager
def server(*ports: Sequence[int], **wishes: Any) -> Iterator[Running]:
    board, ledger = Board(), Ledger()
    engine = selector_server.SelectorServer(server_setup(ports, **wishes), board, ledger)
    engine.listen()
    running = Running(engine, board, ledger)
    try:
        yield running
    finally:
        board.stop()
        running.ended()


class Peer:
    """A listener whose connections each follow ``script`` in a thread of their own, then are closed."""

    def __init__(self, script: Callable[[socket.socket], None], *, host: str = "127.0.0.1", buffer: int = 0) -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._script = script
        self._listener = socket.socket(family, socket.SOCK_STREAM)
        if buffer:
            self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        self._listener.bind((host, 0))
        self._listener.listen(1000)
        self.port: int = self._listener.getsockname()[1]
        self.seen: list[tuple[str, int]] = []  # addresses of the connecting sides, in the order of acceptance
        self.open_now = 0
        self.most_open = 0
        self.faults: list[BaseException] = []
        self._last: object = None
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def _accept(self) -> None:
        while True:
            try:
                sock, address = self._listener.accept()
            except OSError:
                return
            if address == self._last:
                sock.close()
                return
            with self._lock:
                self.seen.append(address[:2])
                self.open_now += 1
                self.most_open = max(self.most_open, self.open_now)
            thread = threading.Thread(target=self._follow, args=(sock,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _follow(self, sock: socket.socket) -> None:
        sock.settimeout(PATIENCE_S)
        with sock:
            try:
                self._script(sock)
            except ConnectionError:
                pass  # the other side may leave as it likes
            except BaseException as fault:
                self.faults.append(fault)
        with self._lock:
            self.open_now -= 1

    def close(self) -> None:
        """Refuse from now on; what has connected before is accepted first."""
        with socket.socket(self._listener.family, socket.SOCK_STREAM) as last:
            here = self._listener.getsockname()
            last.bind((here[0], 0))
            self._last = last.getsockname()
            last.connect(here)
            self._accepting.join(PATIENCE_S)
        self._listener.close()


@contextlib.contextmanager
def peer(script: Callable[[socket.socket], None], **wishes: Any) -> Iterator[Peer]:
    made = Peer(script, **wishes)
    try:
        yield made
    finally:
        made.close()
        for thread in made._threads:
            thread.join(PATIENCE_S)
        assert made.faults == []


def to_the_end(sock: socket.socket) -> int:
    """Read until the other side has closed; how many bytes came."""
    n = 0
    with contextlib.suppress(ConnectionResetError):
        while data := sock.recv(1 << 16):
            n += len(data)
    return n


def echo(sock: socket.socket) -> None:
    """The other side's echo server, written without the engines."""
    while data := sock.recv(1 << 16):
        sock.sendall(data)


def answer_once(sock: socket.socket) -> None:
    sock.recv(1 << 16)
    sock.sendall(b"answer")
    to_the_end(sock)


def reset(sock: socket.socket) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RST_ON_CLOSE)
    sock.close()


_candidates = itertools.cycle(range(10_000, 32_000))
for _ in range(random.SystemRandom().randrange(22_000)):
    next(_candidates)


def free_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    """Ports that nothing uses now, below those that the system gives to connecting sockets.

    A connect to a free port among the latter may be given that very port and meet itself.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    found: list[int] = []
    while len(found) < count:
        port = next(_candidates)
        with socket.socket(family, socket.SOCK_STREAM) as probe, contextlib.suppress(OSError):
            probe.bind((host, port))
            found.append(port)
    return found


PLATFORMS = ("edges", "network", "levels", "bare")
"""Linux on loopback; Linux where no connect is done at once; a poller that knows levels only; that without TCP_INFO,
as on macOS and Windows."""


def become(platform: str, patch: pytest.MonkeyPatch) -> None:
    """Let the engines of this process find what they would find on ``platform``."""
    for module in (selector_client, selector_server):
        patch.setattr(module, "IDLE_S", 0.005)  # the tests wait for the end of each engine
    if platform == "network":
        patch.setattr(selector_client, "EAGER_CREDIT", -1)
    if platform in ("levels", "bare"):
        for module in (selector_client, selector_server):
            patch.setattr(module, "make_poller", lambda: (LevelPoller(), False))
    if platform == "bare":
        for module in (selector_client, selector_server):
            patch.setattr(module, "AVAILABLE", False)
