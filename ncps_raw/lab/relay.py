"""Edge: the process between the two namespaces. It makes them, moves packets as the rules say, and removes them.

The one idea: the lab lives exactly as long as this process, and this process as long as its parent. Its standard
input is the parent's hand: orders come by it, one JSON line each, and its end, however it came about, is the order to
clear up. So no signal handler and no goodwill of the parent is needed. It must not know what is tested.

``select`` and not ``poll`` waits for the next packet: its time-out is in microseconds, poll's in milliseconds.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import heapq
import json
import os
import select
import signal
import sys
import time
from collections import Counter
from typing import Any, Final

from ncps_capture.errors import NcpsError

from ncps_raw.lab import logrow, namespaces
from ncps_raw.lab.network import DONE, PASS, Network
from ncps_raw.lab.packets import KINDS
from ncps_raw.lab.rules import Decider, Departure

_TURN: Final = 16  # packets read from one side before what is due is written
_LARGEST: Final = 65_536
_LOG_BYTES: Final = 1 << 16
_PARENT_S: Final = 0.5  # how often the parent is looked for


class Relay:
    """Moves packets between two descriptors. ``log`` is a descriptor that rows of RELAY_LOG are appended to."""

    def __init__(self, network: Network, devices: tuple[int, int], log: int) -> None:
        self._decider = Decider(network, time.monotonic_ns())
        self._devices = devices
        self._log = log
        self._rows = bytearray()
        self._due: list[tuple[int, int, Departure]] = []
        self._order = 0
        self._stalled = False
        self.counts: Counter[str] = Counter()

    def wait(self, control: int) -> bool:
        """Wait until there is something to do, do it; True if ``control`` has something to say."""
        readable, _, _ = select.select((control, *self._devices), (), (), self._patience_s())
        for direction, device in enumerate(self._devices):
            if device in readable:
                self._read(direction, device)
        if not self._stalled:
            self._write_due()
        return control in readable

    def stall(self) -> None:
        """Hold everything, what is on its way too."""
        self._stalled = True

    def resume(self) -> None:
        """Let go: what has become due meanwhile leaves at once, in order."""
        self._stalled = False

    def figures(self) -> dict[str, int]:
        """All counters, and how many packets are on their way or held."""
        return {**self.counts, "under_way": len(self._due), "held": self._decider.held}

    def flush(self) -> None:
        """Append the rows not yet in the log."""
        view = memoryview(bytes(self._rows))
        self._rows.clear()
        while view:
            view = view[os.write(self._log, view) :]

    def _patience_s(self) -> float:
        if not self._due or self._stalled:
            return _PARENT_S
        return min(max(self._due[0][0] - time.monotonic_ns(), 0) / 1e9, _PARENT_S)

    def _read(self, direction: int, device: int) -> None:
        for _ in range(_TURN):
            try:
                packet = os.read(device, _LARGEST)
            except BlockingIOError:
                return
            t_ns = time.time_ns()
            decision = self._decider.decide(direction, packet, time.monotonic_ns())
            head, action = decision.header, decision.action
            kind = KINDS[head.kind]
            self.counts[f"read.{kind}"] += 1
            if decision.nth > 1:
                self.counts[f"repeated.{kind}"] += 1
            if action != PASS:
                self.counts[f"{DONE[action]}.{kind}"] += 1
            for entry in decision.departures:
                heapq.heappush(self._due, (entry.due_ns, self._order, entry))
                self._order += 1
            self._rows += logrow.row(
                t_ns,
                head,
                len(packet),
                logrow.READ,
                direction,
                decision.number,
                nth=decision.nth,
                rule=decision.rule,
                action=action,
            )

    def _write_due(self) -> None:
        now_ns = time.monotonic_ns()
        while self._due and self._due[0][0] <= now_ns:
            due_ns, _, entry = heapq.heappop(self._due)
            t_ns, late_ns = time.time_ns(), time.monotonic_ns() - due_ns
            event = logrow.WRITTEN
            try:
                os.write(self._devices[1 - entry.direction], entry.packet)
            except OSError:
                event = logrow.UNWRITTEN
            self.counts[f"{logrow.EVENTS[event]}.{KINDS[entry.header.kind]}"] += 1
            self._rows += logrow.row(
                t_ns,
                entry.header,
                len(entry.packet),
                event,
                entry.direction,
                entry.number,
                late_ns=late_ns,
                copy=entry.copy,
                answer=entry.answer,
            )
        if len(self._rows) > _LOG_BYTES:
            self.flush()


class _Orders:
    """Standard input as lines; ``None`` is its end."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._text = b""

    def read(self) -> list[str | None]:
        data = os.read(self._descriptor, 4096)
        if not data:
            return [None]
        *lines, self._text = (self._text + data).split(b"\n")
        return [line.decode("ascii") for line in lines]


def _serve(relay: Relay, parent: int) -> None:
    """Relay until told to stop, or until process ``parent`` is gone.

    A process the parent has forked may hold the other end of the pipe longer than the parent lives; the number of
    the parent process changes all the same.
    """
    orders = _Orders(0)
    while os.getppid() == parent:
        if not relay.wait(0):
            continue
        for order in orders.read():
            if order in (None, "stop"):
                return
            if order == "stall":
                relay.stall()
            elif order == "resume":
                relay.resume()
            relay.flush()
            _say(relay.figures())


def _wake_promptly() -> None:
    """Run as soon as there is something to do: a relay that waits for the load it carries adds to each round trip.

    Ahead of all ordinary processes; and the kernel is not to let time-outs run 50 us over to save wake-ups
    (PR_SET_TIMERSLACK). Where that is not allowed packets are late, and the log says by how much.
    """
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_RR | os.SCHED_RESET_ON_FORK, os.sched_param(1))
    ctypes.CDLL(None).prctl(29, ctypes.c_ulong(1), 0, 0, 0)


def _say(message: dict[str, Any]) -> None:
    with contextlib.suppress(BrokenPipeError):
        os.write(1, json.dumps(message).encode("ascii") + b"\n")


def main(parent: int, log: int, network_json: str) -> int:
    """Life of the process. ``parent``: its process number; ``log``: descriptor for rows of RELAY_LOG."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    network = Network.from_plain(json.loads(network_json))
    pair = namespaces.sides(os.getpid())
    try:
        namespaces.check()
        namespaces.sweep()
        relay = Relay(network, namespaces.make(pair, network.ethernet), log)
        _wake_promptly()
        # A collection over a heap of packets takes longer than a packet may be late; nothing here makes cycles.
        gc.disable()
        _say({"ready": True})
        _serve(relay, parent)
        relay.flush()
        _say(relay.figures())
    except NcpsError as error:
        _say({"error": str(error)})
        return error.exit_code
    finally:
        namespaces.remove([side.name for side in pair])
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]))
