"""The selector engine's server: accept, talk as the row says, close with RST when the peer has closed.

The one idea: the listener carries what each accepted socket inherits (linger 0 on Linux), so that an accepted
connection costs accept, TCP_INFO, one read and one write, one registration, the read that finds the end, and close.
The RST on seeing the client's FIN frees the client's socket at once: neither side keeps TIME_WAIT.

Must not know: processes, shared memory, the capture, the report.
"""

from __future__ import annotations

import errno
import gc
import socket
import sys
import time
from collections.abc import Callable
from typing import Any, Final

from ncps_raw.engine.base import (
    ATTEMPTED,
    CLEAN,
    CLEAN_RTT,
    CLOSED,
    COUNTERS,
    ESTABLISHED,
    IO_FAILED,
    NOT_STARTED,
    OPTIONS_FAILED,
    REPEATED,
    REPEATED_RTT,
    RETRANSMITS,
    RX_BYTES,
    STOP,
    TX_BYTES,
    Board,
    Ledger,
    Path,
    ServerSetup,
)
from ncps_raw.engine.connection import (
    NO_PATH,
    NO_RTT,
    R_CLOSED,
    R_IO_FAILED,
    R_NOT_STARTED,
    R_OPEN,
    UNKNOWN,
    Paths,
    Records,
    local_name,
)
from ncps_raw.engine.kernel import (
    AVAILABLE,
    INFO_LEN,
    LINGER_0,
    RTT_AND_RETRANS,
    TCP_INFO,
    keep_alive,
    last_words,
)
from ncps_raw.engine.poller import ET, IN, OUT, RDHUP, make_poller, restless
from ncps_raw.net import socket_address

ACCEPTS_A_ROUND: Final = 64
EVENTS_A_ROUND: Final = 64
IDLE_S: Final = 0.05
RETRY_ACCEPT_NS: Final = 100_000_000
LINGER_IS_INHERITED: Final = sys.platform == "linux"
TURN_BYTES: Final = 1 << 16
"""About how much one connection moves before the next one has its turn."""
LEFT: Final = frozenset({errno.ECONNRESET, errno.EPIPE})
"""How sending ends at a peer that has closed."""
NO_FILES: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})

clock = time.monotonic_ns
read_info = RTT_AND_RETRANS.unpack
accept_one: Final[Any] = socket.socket._accept  # type: ignore[attr-defined]  # the C method: no Python object for the listener's copy
make_socket: Final[Any] = socket.socket.__base__
DONT_WAIT: Final = getattr(socket, "MSG_DONTWAIT", 0)
"""Where it exists it saves the call that makes each accepted socket non-blocking."""


class _Share:
    """A server loop at work."""

    __slots__ = ("counts", "index", "listeners")

    def __init__(self, index: int) -> None:
        self.index = index
        self.counts = [0] * len(COUNTERS)
        self.listeners: list[socket.socket] = []


class _Accepted:
    """One accepted connection; what ``Records`` packs has the names that ``Slot`` gives it."""

    intended = UNKNOWN  # nobody schedules what is accepted

    __slots__ = ("backlog", "connected", "loop", "lport", "path", "retrans", "rport", "rtt", "sock", "start")

    def __init__(self, loop: _Share, sock: Any, now: int) -> None:
        self.loop = loop
        self.sock = sock
        self.start = self.connected = now
        self.rtt = NO_RTT
        self.retrans = 0
        self.backlog = b""
        self.lport = self.rport = self.path = 0


class SelectorServer:
    """Serves the loops of one process. ``listen`` may raise OSError; ``run`` returns the paths of its records."""

    def __init__(self, setup: ServerSetup, board: Board, ledger: Ledger | None) -> None:
        self._setup = setup
        self._board = board
        self._records = Records(ledger) if ledger is not None else None
        self._room = setup.max_records
        self._paths = Paths()
        self._poller, self._edges = make_poller()
        self._listeners: dict[int, tuple[socket.socket, _Share, int]] = {}
        self._by_fd: dict[int, _Accepted] = {}
        self._here: dict[str, int] = {}  # peer's address -> path: one question to the system a peer
        self._shares = [_Share(spec.index) for spec in setup.loops]
        self._inbox = bytearray(setup.size)
        self._view = memoryview(self._inbox)
        self._resting_until = 0
        self._last_words = last_words(setup.shutdown, setup.abortive and not LINGER_IS_INHERITED)
        self._poll = restless(self._poller.poll, self._by_fd) if setup.busy_poll else self._poller.poll
        # Chosen by the row, once. Those that only send or only receive are watched by level: a turn is a share each.
        self._talk: Callable[[_Accepted, int], None] = self._receive
        self._watched = IN | RDHUP | ET
        if setup.mode.gate != "peer":
            self._talk, self._watched = (self._pour, OUT) if setup.mode.rx == 0 else (self._swallow, IN)
        self._payload = memoryview(bytes(setup.size))
        self._turn = range(max(1, TURN_BYTES // setup.size))

    def listen(self) -> None:
        """Open every listening socket of the plan. OSError carries (errno, text, address)."""
        setup = self._setup
        for share, spec in zip(self._shares, setup.loops, strict=True):
            for host in setup.bind:
                for port in spec.ports:
                    listener = socket.socket(setup.family, socket.SOCK_STREAM)
                    try:
                        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                        if setup.family == socket.AF_INET6 and hasattr(socket, "IPV6_V6ONLY"):
                            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
                        if setup.reuse_port:
                            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
                        if setup.keepalive_ns:
                            self._keep_alive(listener, share)
                        if setup.abortive and LINGER_IS_INHERITED:
                            listener.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_0)
                        listener.setblocking(False)
                        listener.bind(socket_address(host, port))
                        listener.listen(setup.backlog)
                    except OSError as error:
                        listener.close()
                        raise OSError(error.errno, error.strerror, f"{host} port {port}") from None
                    share.listeners.append(listener)
                    self._listeners[listener.fileno()] = (listener, share, port)

    def _keep_alive(self, listener: socket.socket, share: _Share) -> None:
        """What is accepted inherits it. A system that cannot serves without."""
        try:
            keep_alive(listener, self._setup.keepalive_ns)
        except OSError:
            share.counts[OPTIONS_FAILED] += 1

    def run(self) -> list[Path]:
        """Serve until the board says stop."""
        gc.disable()
        try:
            for fd in self._listeners:
                self._poller.register(fd, IN)
            self._serve()
            self._finish()
        finally:
            gc.enable()
            self._poller.close()
        return self._paths.table()

    def _serve(self) -> None:
        poll, lookup, listeners = self._poll, self._by_fd.get, self._listeners
        state, publish, shares = self._board.state, self._board.publish, self._shares
        talk = self._talk
        while state() != STOP:
            for fd, events in poll(IDLE_S, EVENTS_A_ROUND):
                peer = lookup(fd)
                if peer is not None:
                    if peer.backlog and events & OUT and not self._send_backlog(peer):
                        continue
                    talk(peer, events & RDHUP)
                elif fd in listeners:
                    self._accept(*listeners[fd])
            if self._resting_until and clock() >= self._resting_until:
                self._listen_again()
            for share in shares:
                publish(share.index, share.counts)

    def _finish(self) -> None:
        for listener, _, _ in self._listeners.values():
            listener.close()
        for peer in self._by_fd.values():
            peer.sock.close()
            self._record(peer, R_OPEN, 0, UNKNOWN)
        self._by_fd.clear()
        if self._records is not None:
            self._records.flush()
        for share in self._shares:
            self._board.publish(share.index, share.counts)

    # ---- accepting ------------------------------------------------------------------------------------------

    def _accept(self, listener: socket.socket, share: _Share, port: int) -> None:
        family = self._setup.family
        for _ in range(ACCEPTS_A_ROUND):
            try:
                fd, address = accept_one(listener)
            except BlockingIOError:
                return
            except OSError as error:
                self._not_accepted(share, error.errno or errno.EIO)
                return
            sock = make_socket(family, socket.SOCK_STREAM, 0, fd)
            if not DONT_WAIT:
                sock.setblocking(False)
            self._begin(share, sock, fd, port, address)

    def _not_accepted(self, share: _Share, number: int) -> None:
        self._board.error(number, clock())
        if number in NO_FILES:
            # The listener stays readable: waiting for it would spin. Look again when files may be free.
            share.counts[ATTEMPTED] += 1
            share.counts[NOT_STARTED] += 1
            failed = _Accepted(share, None, clock())
            failed.connected, failed.path = UNKNOWN, NO_PATH
            self._record(failed, R_NOT_STARTED, number, failed.start)
            self._resting_until = clock() + RETRY_ACCEPT_NS
            for fd in self._listeners:
                self._poller.modify(fd, 0)

    def _listen_again(self) -> None:
        self._resting_until = 0
        for fd in self._listeners:
            self._poller.modify(fd, IN)

    def _begin(self, share: _Share, sock: Any, fd: int, port: int, address: tuple[Any, ...]) -> None:
        counts = share.counts
        peer = _Accepted(share, sock, clock())
        counts[ATTEMPTED] += 1
        counts[ESTABLISHED] += 1
        peer.lport, peer.rport = port, address[1]
        if AVAILABLE:
            try:
                peer.rtt, retrans = read_info(sock.getsockopt(6, TCP_INFO, INFO_LEN))
            except OSError:  # the connection is no worse for it
                counts[OPTIONS_FAILED] += 1
            else:
                if retrans:
                    peer.retrans = min(retrans, 255)
                    counts[REPEATED] += 1
                    counts[REPEATED_RTT] += peer.rtt
                    counts[RETRANSMITS] += retrans
                else:
                    counts[CLEAN] += 1
                    counts[CLEAN_RTT] += peer.rtt
        host = address[0]
        here = self._here.get(host)
        if here is None:
            here = self._here[host] = self._paths.number(local_name(sock)[0], host)
        peer.path = here
        self._by_fd[fd] = peer
        # What is there already is told by the next poll. To look for it now would find nothing, and cost an
        # exception: what a peer sends is a trip behind the ACK that made the connection.
        self._poller.register(fd, self._watched)

    # ---- the conversation -----------------------------------------------------------------------------------

    def _receive(self, peer: _Accepted, to_the_end: int) -> None:
        """Echo what there is.

        A short read has emptied the socket, and what arrives later is a new edge: no second read to be told so. Only
        an end that was there together with the data (``to_the_end``) brings no further edge and is read at once.
        """
        sock, view, counts = peer.sock, self._view, peer.loop.counts
        size = len(view)
        while not peer.backlog:
            try:
                n = sock.recv_into(view, size, DONT_WAIT)
            except BlockingIOError:
                return
            except OSError as error:
                self._ended(peer, error.errno or errno.EIO)
                return
            if n == 0:
                self._ended(peer, 0)
                return
            counts[RX_BYTES] += n
            try:
                sent = sock.send(view[:n], DONT_WAIT)
            except BlockingIOError:
                sent = 0
            except OSError as error:
                self._ended(peer, error.errno or errno.EIO)
                return
            counts[TX_BYTES] += sent
            if sent < n:
                peer.backlog = bytes(view[sent:n])
                self._poller.modify(sock.fileno(), OUT | ET | (IN | RDHUP if self._edges else 0))
            elif n < size and not to_the_end:
                return

    def _send_backlog(self, peer: _Accepted) -> bool:
        """Send what an earlier send left over; True when all is sent."""
        try:
            sent = peer.sock.send(peer.backlog, DONT_WAIT)
        except BlockingIOError:
            return False
        except OSError as error:
            self._ended(peer, error.errno or errno.EIO)
            return False
        peer.loop.counts[TX_BYTES] += sent
        peer.backlog = peer.backlog[sent:]
        if peer.backlog:
            return False
        self._poller.modify(peer.sock.fileno(), IN | RDHUP | ET)
        return True

    def _pour(self, peer: _Accepted, _: int) -> None:
        """Send without end. The peer ends it as it likes: with what it has not read it can only reset."""
        counts, sock = peer.loop.counts, peer.sock
        for _ in self._turn:
            try:
                counts[TX_BYTES] += sock.send(self._payload, DONT_WAIT)
            except BlockingIOError:
                return
            except OSError as error:
                number = error.errno or errno.EIO
                self._ended(peer, 0 if number in LEFT else number)
                return

    def _swallow(self, peer: _Accepted, _: int) -> None:
        """Read and discard."""
        counts, sock, size = peer.loop.counts, peer.sock, len(self._view)
        for _ in self._turn:
            try:
                n = sock.recv_into(self._view, size, DONT_WAIT)
            except BlockingIOError:
                return
            except OSError as error:
                self._ended(peer, error.errno or errno.EIO)
                return
            if n == 0:
                self._ended(peer, 0)
                return
            counts[RX_BYTES] += n
            if n < size:
                return

    def _ended(self, peer: _Accepted, number: int) -> None:
        """The peer has closed (``number`` 0), or sending or receiving failed."""
        sock = peer.sock
        fd = sock.fileno()
        del self._by_fd[fd]
        if not self._edges:
            self._poller.unregister(fd)
        if self._last_words is not None:
            self._last_words(sock)
        sock.close()
        now = clock()
        counts = peer.loop.counts
        counts[CLOSED] += 1
        if number:
            counts[IO_FAILED] += 1
            self._board.error(number, now)
        self._record(peer, R_IO_FAILED if number else R_CLOSED, number, now)

    def _record(self, peer: _Accepted, outcome: int, number: int, closed: int) -> None:
        if self._records is not None and self._room > 0:
            self._room -= 1
            self._records.add(peer, peer.loop.index, outcome, number, closed)
