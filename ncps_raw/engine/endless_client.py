"""The selector engine's client for rows that end at an age: ping-pong, send without end, receive without end. Edge.

The one idea: such a connection lives for many units, so it is watched by level, not by edge: nothing has to be
remembered about what is left in a buffer, and a turn of the loop gives each connection its share and no more.
Connecting, records and closing are those of the finite rows.

Must not know: processes, shared memory, the capture, the report.
"""

from __future__ import annotations

import errno
from collections import deque
from typing import Final

from ncps_raw.engine.base import RX_BYTES, TX_BYTES, Board, ClientSetup, Ledger
from ncps_raw.engine.connection import PAUSED, R_CLOSED, R_IO_FAILED, RECEIVING, SENDING, ClientShare, Slot
from ncps_raw.engine.poller import IN, OUT
from ncps_raw.engine.selector_client import IDLE_S, SelectorClient, clock
from ncps_raw.pacing import Allowance, paced_per_second

TURN_BYTES: Final = 1 << 16
"""About how much one connection moves before the next one has its turn."""


class _AgedClient(SelectorClient):
    """What rows whose ``end`` is ``age`` have in common."""

    __slots__ = ()

    def __init__(self, setup: ClientSetup, board: Board, ledger: Ledger) -> None:
        super().__init__(setup, board, ledger)
        self._eager = -1  # looking for an established connection at once saves nothing over a long life

    def _old_enough(self, slot: Slot) -> bool:
        return self._draining or clock() - slot.connected >= self._hold_ns

    def _await(self, slot: Slot, state: int, events: int) -> None:
        slot.state = state
        self._poller.modify(slot.sock.fileno(), events)


class StreamClient(_AgedClient):
    """Sends or receives without end, one direction only; whatever comes the other way is not read."""

    __slots__ = ("_turn",)

    def __init__(self, setup: ClientSetup, board: Board, ledger: Ledger) -> None:
        super().__init__(setup, board, ledger)
        self._turn = range(max(1, TURN_BYTES // setup.size))
        self._talk = self._begin_receiving if setup.mode.tx == 0 else self._begin_sending

    def _begin_sending(self, slot: Slot) -> None:
        self._await(slot, SENDING, OUT)
        self._send(slot)

    def _begin_receiving(self, slot: Slot) -> None:
        self._await(slot, RECEIVING, IN)

    def _handle(self, slot: Slot, events: int) -> None:
        state = slot.state
        if state == SENDING:
            self._send(slot)
        elif state == RECEIVING:
            self._receive(slot)
        else:
            SelectorClient._handle(self, slot, events)

    def _send(self, slot: Slot) -> None:
        counts, sock, sent = slot.loop.counts, slot.sock, slot.sent
        for _ in self._turn:
            try:
                n = sock.send(self._payload[sent:] if sent else self._payload)
            except BlockingIOError:
                break
            except OSError as error:
                self._ended(slot, R_IO_FAILED, error.errno or errno.EIO)
                return
            counts[TX_BYTES] += n
            sent += n
            if sent < self._size:
                break
            sent = 0
            if self._old_enough(slot):
                self._ended(slot, R_CLOSED, 0)
                return
        slot.sent = sent

    def _receive(self, slot: Slot) -> None:
        counts, sock = slot.loop.counts, slot.sock
        for _ in self._turn:
            try:
                n = sock.recv_into(self._inbox)
            except BlockingIOError:
                return
            except OSError as error:
                self._ended(slot, R_IO_FAILED, error.errno or errno.EIO)
                return
            if not n:
                self._ended(slot, R_IO_FAILED, 0)
                return
            counts[RX_BYTES] += n
            if self._old_enough(slot):
                self._ended(slot, R_CLOSED, 0)
                return
            if n < self._size:
                return


class _Pace:
    """What one loop may begin, and what waits for its next round. Connections never opened yet are kept back here."""

    __slots__ = ("allowance", "loop", "paused", "unopened")

    def __init__(self, loop: ClientShare, pace_ns: int) -> None:
        self.loop = loop
        self.allowance = Allowance(paced_per_second(loop.total, pace_ns))
        self.paused: deque[tuple[int, int, Slot]] = deque()  # (due, when its connection was established, slot)
        self.unopened: list[Slot] = loop.free
        loop.free = []


class PingPongClient(_AgedClient):
    """Sends, awaits whatever one read returns, sends as much again; the next round may have to wait for its time.

    With a pace a loop begins no more rounds a second than it has connections to a pace. Its first connects, which begin
    first rounds, are among them, so they are spread; a connect that replaces a closed connection is not.
    """

    __slots__ = ("_pace_ns", "_paces")

    def __init__(self, setup: ClientSetup, board: Board, ledger: Ledger) -> None:
        super().__init__(setup, board, ledger)
        self._pace_ns = setup.pace_ns
        self._paces: dict[ClientShare, _Pace] = {}
        self._talk = self._begin_talking
        if self._pace_ns:
            self._paces = {loop: _Pace(loop, self._pace_ns) for loop in self._loops}
            self._timers, self._due, self._start = self._loops, self._resume, self._start_paced

    def _start_paced(self, now: int) -> bool:
        """Let as many first connects go as their loops allow; then start as others do."""
        for pace in self._paces.values():
            if pace.unopened:
                for _ in range(min(pace.allowance.available(now), len(pace.unopened))):
                    pace.allowance.take()
                    pace.loop.free.append(pace.unopened.pop())
        return self._start_some(now)

    def _begin_talking(self, slot: Slot) -> None:
        slot.unit = self._size
        self._await(slot, SENDING, IN | OUT)
        self._send(slot)

    def _handle(self, slot: Slot, events: int) -> None:
        state = slot.state
        if state == RECEIVING:
            self._receive(slot)
        elif state == SENDING:
            # An echo server stops reading until its answers are taken: what comes before all is sent counts.
            if events & IN:
                self._receive(slot)
            if slot.sock is not None and slot.state == SENDING:
                self._send(slot)
        elif state == PAUSED:
            self._disturbed(slot)  # nothing but a reset is told of
        else:
            SelectorClient._handle(self, slot, events)

    def _send(self, slot: Slot) -> None:
        sent, unit = slot.sent, slot.unit
        try:
            n = slot.sock.send(self._payload[sent:unit])
        except BlockingIOError:
            n = 0
        except OSError as error:
            self._ended(slot, R_IO_FAILED, error.errno or errno.EIO)
            return
        slot.loop.counts[TX_BYTES] += n
        sent += n
        if sent < unit:
            slot.sent = sent
            if slot.state != SENDING:
                self._await(slot, SENDING, IN | OUT)
            return
        slot.sent = 0
        if slot.answered:
            self._answered(slot)
        elif slot.state != RECEIVING:
            self._await(slot, RECEIVING, IN)

    def _receive(self, slot: Slot) -> None:
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
        if slot.state == RECEIVING:
            self._answered(slot)

    def _answered(self, slot: Slot) -> None:
        """A round is over: close, go on, or go on later."""
        if self._old_enough(slot):
            self._ended(slot, R_CLOSED, 0)
            return
        slot.unit, slot.answered = slot.answered, 0
        if self._pace_ns:
            self._await(slot, PAUSED, 0)
            self._paces[slot.loop].paused.append((clock() + self._pace_ns, slot.connected, slot))
        else:
            self._send(slot)

    def _resume(self, now: int) -> float:
        """Go on with those whose time has come, at the end close them; seconds until the next is due."""
        return min(IDLE_S, *(self._resume_some(pace, now) / 1e9 for pace in self._paces.values()))

    def _resume_some(self, pace: _Pace, now: int) -> int:
        paused, allowance = pace.paused, pace.allowance
        available = allowance.available(now)
        while paused:
            due, connected, slot = paused[0]
            if slot.state == PAUSED and slot.sock is not None and slot.connected == connected:
                if self._draining:
                    self._ended(slot, R_CLOSED, 0)
                elif due > now or not available:
                    break
                else:
                    available -= 1
                    allowance.take()
                    self._await(slot, SENDING, IN | OUT)
                    self._send(slot)
            paused.popleft()
        waits = max(0, paused[0][0] - now) if paused else 1 << 62
        if not available and (waits == 0 or pace.unopened):
            return allowance.wait_ns()
        return waits


def client_engine(setup: ClientSetup, board: Board, ledger: Ledger) -> SelectorClient:
    """The engine for this plan's row."""
    if setup.mode.end == "units":
        return SelectorClient(setup, board, ledger)
    return (PingPongClient if setup.mode.gate == "window" else StreamClient)(setup, board, ledger)
