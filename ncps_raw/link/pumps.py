"""Edge: the data path. One thread moves the bytes of one connection in one direction; whoever watches reads its fields.

The one idea: a pump only moves and stamps. It blocks in the kernel, not in a loop of its own, and is woken by shutting
the socket down; totals, rows, time limits and signals belong to the watcher. One writer for each field.

The clock of a sender ends when the peer's kernel has acknowledged the last byte, not when this kernel took it.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Final

from ncps_capture.errors import NcpsError

from ncps_raw.link import tcpinfo
from ncps_raw.link.sinks import Sink
from ncps_raw.link.sources import NOTHING_NOW, Source
from ncps_raw.link.tcpinfo import TcpInfo

_FIRST_CHUNK: Final = 1 << 17
_LARGEST_CHUNK: Final = 1 << 24
_SHORT_NS: Final = 10_000_000
_LONG_NS: Final = 50_000_000
"""A call that takes longer than this is asked for less next time: what it moves is seen only when it returns."""
_TURN_S: Final = 0.005
"""A limited sender hands over what is due so often."""
_ENDLESS: Final = 1 << 62

ACKNOWLEDGED: Final = "acknowledged"
PEER_CLOSED: Final = "peer closed"
HANDED: Final = "handed over"
READ: Final = "read"


class Pump(ABC):
    """One direction of one connection. ``moved``: bytes handed over, or taken. Times: ``time.monotonic_ns``."""

    def __init__(self, sock: socket.socket, most: int | None, on_end: Callable[[], None]) -> None:
        self.sock = sock
        self.most = most
        self.moved = 0
        self.begin_ns: int | None = None
        self.moved_ns: int | None = None  # when the last byte was moved
        self.end_ns: int | None = None  # when the clock ended
        self.failure: OSError | NcpsError | None = None
        self.finished = False
        self.enough = False  # move no more; a sender still waits for the acknowledgement
        self.stopping = False  # leave at once
        self._on_end = on_end
        self._thread = threading.Thread(target=self._live, daemon=True)

    def start(self) -> None:
        """Begin to move."""
        self._thread.start()

    def join(self, timeout: float) -> bool:
        """Wait for the end; whether it came."""
        self._thread.join(timeout)
        return self.finished

    def _live(self) -> None:
        try:
            self._run()
        except (OSError, NcpsError) as error:
            # Shutting down a socket is how a pump is woken: what it says then is no failure.
            if not self.enough or isinstance(error, NcpsError):
                self.failure = error
        finally:
            self.finished = True
            self._on_end()

    @abstractmethod
    def _run(self) -> None:
        """Move until there is nothing left, or enough. OSError and NcpsError are kept as the failure."""

    @property
    def complete(self) -> bool:
        """Whether all that was to be moved has been, as far as it is known how much that is."""
        return self.failure is None and (self.most is None or self.moved >= self.most)


class Sender(Pump):
    """Source -> connection, at most ``limit`` bytes a second."""

    def __init__(
        self,
        sock: socket.socket,
        source: Source,
        most: int | None,
        on_end: Callable[[], None],
        limit: float | None = None,
        lasts_ns: int | None = None,
        beside: int = 1,
    ) -> None:
        """``lasts_ns``: it ends by itself after this time; ``beside``: senders on this machine, itself included."""
        super().__init__(sock, most, on_end)
        self._lasts_ns = lasts_ns
        self._beside = beside
        self._fin = 0  # sent behind the data
        self.source = source
        self.source_ended = False
        self.clock_end = HANDED
        self._before = _sent_before(sock)
        self._limit = limit
        self._chunk = _FIRST_CHUNK

    def _run(self) -> None:
        self.begin_ns = time.monotonic_ns()
        put, sock = self.source.put, self.sock
        left = _ENDLESS if self.most is None else self.most
        before = self.begin_ns
        until = _ENDLESS if self._lasts_ns is None else self.begin_ns + self._lasts_ns
        # Whoever watches may be late where many streams keep the machine busy: the time is looked at here too.
        while left and not self.enough and before < until:
            try:
                done = put(sock, min(left, self._chunk) if self._limit is None else min(left, self._due()))
            except OSError:
                if self._woken():
                    break
                raise
            if done == NOTHING_NOW:
                continue
            if not done:
                self.source_ended = True
                break
            self.moved += done
            left -= done
            self.moved_ns = now = time.monotonic_ns()
            took, before = now - before, now
            if took > _LONG_NS:
                self._chunk = max(self._chunk >> 1, _FIRST_CHUNK >> 3)
            elif took < _SHORT_NS:
                self._chunk = min(self._chunk << 1, _LARGEST_CHUNK)
        self.moved_ns = self.moved_ns or time.monotonic_ns()
        with contextlib.suppress(OSError):  # reset meanwhile: the wait says so
            sock.shutdown(socket.SHUT_WR)
            self._fin = 1
        self._await_acknowledgement()

    def _woken(self) -> bool:
        return self.enough

    def _due(self) -> int:
        """Bytes that the limit allows now; waits until it is worth a call."""
        assert self._limit is not None
        assert self.begin_ns is not None
        worth = max(1, min(int(self._limit * _TURN_S), _LARGEST_CHUNK))
        while not self.enough:
            due = int((time.monotonic_ns() - self.begin_ns) * self._limit / 1e9) + worth - self.moved
            if due >= worth:
                # After a stall the limit is kept on average, but never made up for in one burst.
                return min(due, 4 * worth)
            time.sleep((worth - due) / self._limit)
        return worth

    def _await_acknowledgement(self) -> None:
        """Until the last byte is acknowledged; where the system does not tell, until the peer closes too."""
        assert self.begin_ns is not None
        while True:
            # Whether it is over is asked first: of a connection that has ended, what is left changes no more. The
            # other way round, the last acknowledgement could come between the two, and look like a reset.
            error = self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            info = tcpinfo.read(self.sock)
            left = tcpinfo.unacknowledged(self.sock)
            if left is None:
                break
            now = time.monotonic_ns()
            if left <= 1:  # the FIN counts as one, and may stay alone for the peer's delayed acknowledgement
                self.end_ns, self.clock_end = now, ACKNOWLEDGED
                return
            if self.stopping:
                return
            if error or (info is not None and info.state == tcpinfo.CLOSED):
                raise ConnectionResetError(error, "the peer reset the connection")
            # Fine enough for one part in two thousand, coarse enough to cost nothing, also for many at once.
            time.sleep(min(max((now - self.begin_ns) / 2e12, 2e-5), 1e-3) * self._beside)
        while self.sock.recv(1 << 16):
            if self.stopping:
                return
        self.end_ns, self.clock_end = time.monotonic_ns(), PEER_CLOSED

    def acknowledged(self, info: TcpInfo | None) -> int | None:
        """Bytes the peer's kernel has; None where the system does not tell."""
        if self.clock_end in (ACKNOWLEDGED, PEER_CLOSED):
            return self.moved
        left = tcpinfo.unacknowledged(self.sock)
        if left is None:
            return None
        if not self.finished and info is not None:  # a call under way has moved more than is known here
            fin = info.state in tcpinfo.FIN_ACKNOWLEDGED
            return max(info.acked - 1 - fin - self._before, 0)
        return max(self.moved - max(left - self._fin, 0), 0)


def _sent_before(sock: socket.socket) -> int:
    """Bytes that were handed over on this connection before its transfer, such as a mark; 0 where it is not told."""
    info, left = tcpinfo.read(sock), tcpinfo.unacknowledged(sock)
    return 0 if info is None or left is None else max(info.acked - 1 + left, 0)


class Receiver(Pump):
    """Connection -> sink. ``moved`` may end at ``most``; the peer's bytes beyond it are not taken."""

    def __init__(
        self,
        sock: socket.socket,
        sink: Sink,
        most: int | None,
        on_end: Callable[[], None],
        first: tuple[int, int] | None = None,
    ) -> None:
        """``first``: when the first bytes were seen, and how many, where somebody has looked before."""
        super().__init__(sock, most, on_end)
        self.sink = sink
        self.early: int | None = None  # bytes that were here when the clock began
        self._first = first
        self.fsync_ns = 0
        self.peer_ended = False

    def _run(self) -> None:
        # The clock begins with the first byte: the peer may be slow to start, and that is no speed.
        self.peer_ended = not self.sock.recv(1, socket.MSG_PEEK)
        if self._first is None:
            self.begin_ns, self.early = time.monotonic_ns(), tcpinfo.waiting(self.sock)
        else:
            self.begin_ns, self.early = self._first
        take, sock = self.sink.take, self.sock
        left = _ENDLESS if self.most is None else self.most
        while left and not self.enough:
            done = take(sock, min(left, _LARGEST_CHUNK))
            if not done:
                self.peer_ended = not self.enough
                break
            self.moved += done
            left -= done
            self.moved_ns = self.end_ns = time.monotonic_ns()
        tcpinfo.acknowledge_now(sock)  # the peer's clock waits for it, whether its end was seen or is not waited for
        before = time.monotonic_ns()
        if self.sink.finish():
            self.fsync_ns = time.monotonic_ns() - before
        if self.end_ns is not None:
            self.end_ns += self.fsync_ns


def wake(pump: Pump, *, leave: bool) -> None:
    """Stop moving: the pump's thread returns from the kernel soon. ``leave``: without waiting for acknowledgements."""
    pump.enough = True
    pump.stopping = leave
    with contextlib.suppress(OSError):
        pump.sock.shutdown(socket.SHUT_WR if isinstance(pump, Sender) else socket.SHUT_RD)
