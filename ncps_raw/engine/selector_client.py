"""The selector engine's client: one thread, one poller, the connections of several loops.

The one idea: spend system calls only where something uses the answer. A connection is registered once (edges); on
loopback it is found established right after ``connect`` without waiting for an event (tried only while that works);
its local port is asked for only where the system chose it; the rest is Python of a few microseconds.

Must not know: processes, shared memory, the capture, the report. It counts, keeps records and stops when told.
"""

from __future__ import annotations

import errno
import gc
import socket
import time
from collections.abc import Callable, Sequence
from fractions import Fraction
from heapq import heappop, heappush
from typing import Any, Final

from ncps_raw.engine.base import (
    ATTEMPTED,
    CLEAN,
    CLEAN_RTT,
    CLOSED,
    ESTABLISHED,
    FAILED,
    IO_FAILED,
    NOT_STARTED,
    OPTIONS_FAILED,
    REPEATED,
    REPEATED_RTT,
    RETRANSMITS,
    RX_BYTES,
    STOP,
    TX_BYTES,
    WRAPPED,
    Board,
    ClientSetup,
    Ledger,
    Path,
)
from ncps_raw.engine.connection import (
    CONNECTING,
    HOLDING,
    NO_RTT,
    R_CLOSED,
    R_CONNECT_FAILED,
    R_IO_FAILED,
    R_NOT_STARTED,
    R_OPEN,
    R_PENDING,
    RECEIVING,
    SENDING,
    UNKNOWN,
    ClientShare,
    Paths,
    Records,
    Slot,
)
from ncps_raw.engine.kernel import (
    AVAILABLE,
    INFO_LEN,
    RTT_AND_RETRANS,
    STATE_ESTABLISHED,
    TCP_INFO,
    keep_alive,
    last_words,
    late_port_choice,
)
from ncps_raw.engine.open_loop import OpenLoop
from ncps_raw.engine.poller import ERR, ET, HUP, IN, OUT, RDHUP, Poll, make_poller, precise, restless
from ncps_raw.net import socket_address

LOCAL_FAULTS: Final = frozenset(
    {errno.EADDRNOTAVAIL, errno.EADDRINUSE, errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EPERM}
)
"""Errors of ``socket``, ``bind`` and ``connect`` that say: this machine could not even send a SYN."""
PORT_FAULTS: Final = frozenset({errno.EADDRNOTAVAIL, errno.EADDRINUSE})
IN_PROGRESS: Final = frozenset({0, errno.EINPROGRESS, getattr(errno, "WSAEWOULDBLOCK", errno.EINPROGRESS)})
KIND: Final = socket.SOCK_STREAM | getattr(socket, "SOCK_NONBLOCK", 0)
BLOCKS: Final = not hasattr(socket, "SOCK_NONBLOCK")
make_socket: Final[Any] = socket.socket.__base__
"""The C type: ``socket.socket`` itself adds Python to every call."""

NOT_TOLD: Final = b"\0"

EVENTS_A_ROUND: Final = 64
STARTS_A_ROUND: Final = 128
IDLE_S: Final = 0.05
EAGER_CREDIT: Final = 16
EAGER_RETRY: Final = 1024
WAIT_CONNECTED: Final = IN | OUT | RDHUP | ET
WAIT_ANSWER: Final = IN | RDHUP | ET

clock = time.monotonic_ns
read_info = RTT_AND_RETRANS.unpack


class SelectorClient:
    """Drives the loops of one process. ``run`` returns the paths its records point at."""

    __slots__ = (
        "_binds",
        "_board",
        "_by_fd",
        "_draining",
        "_due",
        "_eager",
        "_eager_wait",
        "_edges",
        "_family",
        "_held",
        "_held_number",
        "_here",
        "_hold_ns",
        "_inbox",
        "_last_words",
        "_local_ends",
        "_loops",
        "_make",
        "_masks",
        "_path",
        "_paths",
        "_payload",
        "_poll",
        "_poller",
        "_receives",
        "_reconnect",
        "_records",
        "_remote",
        "_setup",
        "_size",
        "_start",
        "_talk",
        "_timers",
    )

    def __init__(self, setup: ClientSetup, board: Board, ledger: Ledger) -> None:
        self._setup = setup
        self._board = board
        self._records = Records(ledger)
        self._loops = [ClientShare(spec, setup.address) for spec in setup.loops]
        self._paths = Paths()
        self._remote = str(setup.address[0])
        self._here, self._path = "", 0  # the local address seen last and the number of its path
        self._poller, self._edges = make_poller()
        self._by_fd: dict[int, Slot] = {}
        self._held: list[tuple[int, int, Slot]] = []  # a heap of (deadline, number, slot)
        self._held_number = 0  # keeps the heap from comparing slots
        self._family = setup.family
        # (host, what follows the port): a scope is lost in the text alone.
        self._binds = [(a[0], a[2:]) for a in (socket_address(host, 0) for host in setup.bind)]
        self._hold_ns = setup.hold_ns
        self._reconnect = setup.reconnect
        self._local_ends = setup.local_ends
        self._size = setup.size
        self._payload = memoryview(bytes(setup.size))
        self._inbox = bytearray(setup.size)
        self._receives = setup.mode.rx != 0
        # What differs from plan to plan is chosen here, once, so that nothing on the way of a connection asks again.
        self._talk: Callable[[Slot], None] = self._send if setup.mode.tx != 0 else self._exchanged
        self._masks: tuple[int, ...] = (WAIT_CONNECTED, WAIT_CONNECTED, WAIT_ANSWER, WAIT_ANSWER)
        self._timers: Sequence[object] = self._held
        self._due: Callable[[int], float] = self._release
        self._start: Callable[[int], bool] = self._start_some
        self._poll: Poll = self._poller.poll
        self._make = make_socket if not setup.keepalive_ns else self._make_kept_alive
        self._last_words = last_words(setup.shutdown, setup.abortive)
        self._draining = False
        self._eager = EAGER_CREDIT if AVAILABLE and self._edges else -1
        self._eager_wait = 0

    # ---- the loop -------------------------------------------------------------------------------------------

    def run(self) -> list[Path]:
        """Make connections until the board says stop, let those under way finish, record the rest.

        Without reconnecting it also ends when each connection of the plan was attempted and none is left.
        """
        if self._setup.rate is not None:
            self._follow(self._setup.rate)
        if self._setup.busy_poll:
            self._poll = restless(self._poll, self._by_fd)
        gc.disable()  # slots and records make no cycles; a collection would only cost
        try:
            self._drive()
            self._record_rest()
        finally:
            gc.enable()
            self._poller.close()
        return self._paths.table() or [("", self._remote)]

    def _drive(self) -> None:
        poll, lookup, handle = self._poll, self._by_fd.get, self._handle
        state, publish, start = self._board.state, self._board.publish, self._start
        timers, due, loops = self._timers, self._due, self._loops
        deadline, wait = 0, 0.0
        while True:
            busy = not self._draining and start(clock())
            for fd, events in poll(0 if busy else wait, EVENTS_A_ROUND):
                slot = lookup(fd)
                if slot is not None:
                    handle(slot, events)
            now = clock()
            wait = min(IDLE_S, due(now)) if timers else IDLE_S
            for loop in loops:
                publish(loop.index, loop.counts)
                if loop.backoff.not_before_ns > now:
                    wait = min(wait, (loop.backoff.not_before_ns - now) / 1e9)
            if self._draining:
                if not self._by_fd or now >= deadline:
                    return
            elif state() == STOP:
                self._draining = True
                deadline = now + self._setup.drain_ns
                wait = 0.0
                due(now)
            elif not self._reconnect and not self._by_fd and self._all_attempted():
                return

    def _follow(self, rate: Fraction) -> None:
        """Start on a schedule instead of whenever a connection is free."""
        setup, others = self._setup, self._due
        schedule = OpenLoop(self._loops, rate, setup.all_loops, self._board, self._begin, once=not setup.reconnect)

        def due(now: int) -> float:
            if self._draining:
                schedule.end(now)
                return others(now)
            return min(others(now), schedule.wait_s(now))

        self._start, self._timers, self._due = schedule.start, (schedule,), due
        if self._edges:
            self._poll = precise(self._poller)

    def _start_some(self, now: int) -> bool:
        """Start what each loop may start; True if some loop could start more at once."""
        more = False
        for loop in self._loops:
            free = loop.free
            if not free:
                continue
            allowed = loop.backoff.allowed(now, loop.total - len(free), loop.pending)
            n = min(len(free), loop.max_pending - loop.pending, allowed)
            if not self._reconnect:
                n = min(n, loop.total - loop.counts[ATTEMPTED])
            if n <= 0:
                continue
            # A connection that ends inside ``begin`` frees its slot again: the bound keeps the poll in turn.
            failures = loop.backoff.failures
            for _ in range(min(n, STARTS_A_ROUND)):
                self._begin(free.pop())
                if loop.backoff.failures > failures:
                    break  # failed at once, as the next would: ask again what is allowed
            more = more or (len(free) > 0 and not loop.backoff.failures and loop.pending < loop.max_pending)
        return more

    def _all_attempted(self) -> bool:
        return all(loop.counts[ATTEMPTED] >= loop.total for loop in self._loops)

    def _record_rest(self) -> None:
        """What is still connecting or open after the drain becomes a record, and is closed."""
        for slot in list(self._by_fd.values()):
            if slot.state == CONNECTING:
                self._know_local_end(slot)
            slot.sock.close()
            self._records.add(slot, slot.loop.index, R_PENDING if slot.state == CONNECTING else R_OPEN, 0, UNKNOWN)
        self._by_fd.clear()
        self._records.flush()
        for loop in self._loops:
            self._board.publish(loop.index, loop.counts)

    # ---- connecting -----------------------------------------------------------------------------------------

    def _begin(self, slot: Slot) -> None:
        """One attempt: socket, the ports of the plan, connect."""
        loop = slot.loop
        loop.counts[ATTEMPTED] += 1
        slot.connected = UNKNOWN
        slot.rtt = NO_RTT
        slot.retrans = slot.sent = slot.lport = slot.answered = 0
        slot.state = CONNECTING
        slot.rport, target = loop.targets[loop.remote_at]
        source = loop.source_at
        if loop.steps:
            self._step(loop, slot)
        slot.start = clock()
        try:
            sock = slot.sock = self._make(self._family, KIND)
            if BLOCKS:
                sock.setblocking(False)
            if loop.local or self._binds:
                self._bind(sock, source, slot.lport)
            number = sock.connect_ex(target)
        except OSError as error:
            self._not_connected(slot, error.errno or errno.EIO)
            return
        if number not in IN_PROGRESS:
            self._not_connected(slot, number)
            return
        fd = sock.fileno()
        self._by_fd[fd] = slot
        loop.pending += 1
        if self._eager > 0 or (self._eager == 0 and self._eager_due()):
            try:
                info = sock.getsockopt(6, TCP_INFO, INFO_LEN)
            except OSError:
                info = NOT_TOLD
            if info[0] == STATE_ESTABLISHED:
                self._eager = EAGER_CREDIT
                self._established(slot, info)
                if slot.sock is sock:
                    self._poller.register(fd, self._masks[slot.state])
                return
            self._eager -= self._eager > 0
        self._poller.register(fd, WAIT_CONNECTED)

    def _make_kept_alive(self, family: int, kind: int) -> Any:
        sock = make_socket(family, kind)
        try:
            keep_alive(sock, self._setup.keepalive_ns)
        except OSError:
            self._loops[0].counts[OPTIONS_FAILED] += 1
        return sock

    def _eager_due(self) -> bool:
        """Where connects are not done at once (any real network), look again only now and then."""
        self._eager_wait += 1
        if self._eager_wait < EAGER_RETRY:
            return False
        self._eager_wait = 0
        return True

    def _step(self, loop: ClientShare, slot: Slot) -> None:
        """Move the loop to its next four-tuple: remote ports inside, local ports outside, sources beside both."""
        local = loop.local
        if local:
            slot.lport = local[loop.local_at]
        loop.remote_at += 1
        loop.source_at += 1
        if loop.remote_at == len(loop.targets):
            loop.remote_at = 0
            loop.local_at += 1
            if loop.local_at >= len(local):
                loop.local_at = 0
                loop.rounds += 1
                loop.source_at = loop.first_source + loop.rounds
                if local and loop.rounds >= loop.sources:
                    loop.counts[WRAPPED] = 1
        loop.source_at %= loop.sources

    def _bind(self, sock: Any, source: int, lport: int) -> None:
        host, scope = self._binds[source] if self._binds else ("", ())
        if lport:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        else:
            late_port_choice(sock)
        sock.bind((host, lport, *scope))

    def _not_connected(self, slot: Slot, number: int) -> None:
        """The attempt ended before it was established; ``number`` is its errno."""
        loop, now = slot.loop, clock()
        in_use = loop.total - len(loop.free) - 1
        outcome = R_CONNECT_FAILED
        if number in LOCAL_FAULTS:
            outcome = R_NOT_STARTED
            loop.counts[NOT_STARTED] += 1
            if loop.local and number in PORT_FAULTS:
                loop.backoff.port_busy(now, in_use, len(loop.local) * len(loop.targets) * loop.sources)
            else:
                loop.backoff.machine_failed(now, in_use)
        else:
            loop.counts[FAILED] += 1
            loop.backoff.target_failed(now)
        self._board.error(number, now)
        sock, slot.sock = slot.sock, None
        if sock is not None:
            slot.sock = sock
            self._know_local_end(slot)
            slot.sock = None
            fd = sock.fileno()
            if self._by_fd.pop(fd, None) is not None:
                loop.pending -= 1
                if not self._edges:
                    self._poller.unregister(fd)
            sock.close()
        self._records.add(slot, loop.index, outcome, number, now)
        loop.free.append(slot)

    def _know_local_end(self, slot: Slot) -> None:
        """Which address and port the system chose: asked only where the plan does not say."""
        if (self._local_ends and (not slot.lport or len(self._binds) > 1)) or not len(self._paths):
            try:
                name = slot.sock.getsockname()
            except OSError:
                return
            if name[1]:  # a socket that could not be bound has neither
                slot.lport = name[1]
                if name[0] != self._here:  # nearly always the same as before, and then nothing is looked up
                    self._here = name[0]
                    self._path = self._paths.number(self._here, self._remote)
                slot.path = self._path

    def _established(self, slot: Slot, info: bytes) -> None:
        loop = slot.loop
        counts = loop.counts
        slot.connected = now = clock()
        loop.pending -= 1
        counts[ESTABLISHED] += 1
        if loop.backoff.failures or loop.backoff.busy:
            loop.backoff.success()
        if info:
            slot.rtt, retrans = read_info(info)
            if retrans:
                slot.retrans = min(retrans, 255)
                counts[REPEATED] += 1
                counts[REPEATED_RTT] += (now - slot.start) // 1000
                counts[RETRANSMITS] += retrans
            else:
                counts[CLEAN] += 1
                counts[CLEAN_RTT] += slot.rtt
        self._know_local_end(slot)
        self._talk(slot)

    # ---- the conversation -----------------------------------------------------------------------------------

    def _handle(self, slot: Slot, events: int) -> None:
        state = slot.state
        if state == RECEIVING:
            self._receive(slot)
            if events & RDHUP and slot.state == HOLDING and slot.sock is not None:
                self._disturbed(slot)  # the end came with the answer: no further edge tells of it
        elif state == CONNECTING:
            sock = slot.sock
            if events & (ERR | HUP) or not AVAILABLE or not self._edges:  # levels do not tell of errors
                number = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                if number:
                    self._not_connected(slot, number)
                    return
            info = b""
            if AVAILABLE:
                try:
                    info = sock.getsockopt(6, TCP_INFO, INFO_LEN)
                except OSError:  # the connection is no worse for it
                    slot.loop.counts[OPTIONS_FAILED] += 1
            self._established(slot, info)
            if slot.sock is sock and events & IN:  # the edge will not come again
                self._handle(slot, events & (IN | RDHUP))
        elif state == SENDING:
            if events & (OUT | ERR | HUP):
                self._send(slot)
            if events & IN and slot.sock is not None:
                if slot.state == SENDING:
                    self._receive_early(slot)
                else:
                    self._handle(slot, events & (IN | RDHUP))
        elif events & (IN | ERR | HUP):
            self._disturbed(slot)

    def _send(self, slot: Slot) -> None:
        sent = slot.sent
        try:
            n = slot.sock.send(self._payload[sent:] if sent else self._payload)
        except BlockingIOError:
            slot.state = SENDING
            return
        except OSError as error:
            self._ended(slot, R_IO_FAILED, error.errno or errno.EIO)
            return
        slot.loop.counts[TX_BYTES] += n
        sent += n
        if sent < self._size:
            slot.sent = sent
            slot.state = SENDING
        elif self._receives and not slot.answered:
            slot.state = RECEIVING
            if not self._edges:
                self._poller.modify(slot.sock.fileno(), IN)
        else:
            self._exchanged(slot)

    def _receive(self, slot: Slot) -> None:
        try:
            n = slot.sock.recv_into(self._inbox)
        except BlockingIOError:
            return
        except OSError as error:
            self._ended(slot, R_IO_FAILED, error.errno or errno.EIO)
            return
        if n:
            slot.loop.counts[RX_BYTES] += n
            self._exchanged(slot)
        else:
            self._ended(slot, R_IO_FAILED, 0)

    def _receive_early(self, slot: Slot) -> None:
        """Take what the peer says before all was sent: an echo server stops reading until its answers are taken."""
        n = size = self._size
        while n == size:
            try:
                n = slot.sock.recv_into(self._inbox)
            except BlockingIOError:
                return
            except OSError as error:
                self._ended(slot, R_IO_FAILED, error.errno or errno.EIO)
                return
            if not n:
                self._ended(slot, R_IO_FAILED, 0)
                return
            slot.loop.counts[RX_BYTES] += n
            slot.answered = n

    def _exchanged(self, slot: Slot) -> None:
        """The conversation is over: close, or hold until the connection is old enough."""
        if self._hold_ns and not self._draining:
            slot.deadline = slot.connected + self._hold_ns
            if slot.deadline > clock():
                slot.state = HOLDING
                self._held_number += 1
                heappush(self._held, (slot.deadline, self._held_number, slot))
                if not self._edges:
                    self._poller.modify(slot.sock.fileno(), IN)
                return
        self._ended(slot, R_CLOSED, 0)

    def _disturbed(self, slot: Slot) -> None:
        """Data or an end while the connection was to be left alone: NCPS's IOFail."""
        number = 0
        try:
            n = slot.sock.recv_into(self._inbox)
            slot.loop.counts[RX_BYTES] += n
            if n:
                number = errno.EPROTO
        except BlockingIOError:
            return
        except OSError as error:
            number = error.errno or errno.EIO
        self._ended(slot, R_IO_FAILED, number)

    def _release(self, now: int) -> float:
        """Close what has been held long enough, at the end all of it; seconds until the next is due.

        An entry whose connection was disturbed stays behind, and its slot may hold another one by now: the deadline
        tells. Answers come in any order, so the order of connecting would not do.
        """
        held = self._held
        while held:
            deadline, _, slot = held[0]
            if slot.state == HOLDING and slot.sock is not None and slot.deadline == deadline:
                if deadline > now and not self._draining:
                    return (deadline - now) / 1e9
                self._ended(slot, R_CLOSED, 0)
            heappop(held)
        return IDLE_S

    def _ended(self, slot: Slot, outcome: int, number: int) -> None:
        """Close an established connection and free its slot."""
        sock, slot.sock = slot.sock, None
        fd = sock.fileno()
        del self._by_fd[fd]
        if not self._edges:
            self._poller.unregister(fd)
        if self._last_words is not None:
            self._last_words(sock)
        sock.close()
        now = clock()
        loop = slot.loop
        loop.counts[CLOSED] += 1
        if outcome == R_IO_FAILED:
            loop.counts[IO_FAILED] += 1
            self._board.error(number, now)
        self._records.add(slot, loop.index, outcome, number, now)
        loop.free.append(slot)
