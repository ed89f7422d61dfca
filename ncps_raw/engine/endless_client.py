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
from ncps_raw.engine.connection import PAUSED, R_CLOSED, R_IO_FAILED, RECEIVING, SENDING, Slot
from ncps_raw.engine.poller import IN, OUT
from ncps_raw.engine.selector_client import IDLE_S, SelectorClient, clock

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


class PingPongClient(_AgedClient):
    """Sends, awaits whatever one read returns, sends as much again; the next round may have to wait for its time."""

    __slots__ = ("_pace_ns", "_paused")

    def __init__(self, setup: ClientSetup, board: Board, ledger: Ledger) -> None:
        super().__init__(setup, board, ledger)
        self._pace_ns = setup.pace_ns
        self._paused: deque[tuple[int, int, Slot]] = deque()  # (due, when its connection was established, slot)
        self._talk = self._begin_talking
        if self._pace_ns:
            self._timers, self._due = self._paused, self._resume

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
            self._paused.append((clock() + self._pace_ns, slot.connected, slot))
        else:
            self._send(slot)

    def _resume(self, now: int) -> float:
        """Go on with those whose time has come, at the end close them; seconds until the next is due."""
        paused = self._paused
        while paused:
            due, connected, slot = paused[0]
            if slot.state == PAUSED and slot.sock is not None and slot.connected == connected:
                if self._draining:
                    self._ended(slot, R_CLOSED, 0)
                elif due > now:
                    return (due - now) / 1e9
                else:
                    self._await(slot, SENDING, IN | OUT)
                    self._send(slot)
            paused.popleft()
        return IDLE_S


def client_engine(setup: ClientSetup, board: Board, ledger: Ledger) -> SelectorClient:
    """The engine for this plan's row."""
    if setup.mode.end == "units":
        return SelectorClient(setup, board, ledger)
    return (PingPongClient if setup.mode.gate == "window" else StreamClient)(setup, board, ledger)
