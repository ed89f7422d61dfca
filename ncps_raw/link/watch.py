"""Edge: the watcher: waits for connections, time, signals and the end of transfers; the bytes move on other threads.

The one idea: it owns nothing of the data path. It looks a few times a second, or when a bell rings, and all that is
decided (enough, leave, a row, a report) is decided here, on one thread.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import time
from collections.abc import Callable, Sequence
from typing import Final

from ncps_raw.interrupts import Interrupts
from ncps_raw.link import meeting
from ncps_raw.link.meeting import Arrival, Door, NobodyThere
from ncps_raw.link.plan import LinkPlan
from ncps_raw.link.preamble import CONTROL
from ncps_raw.link.show import Show
from ncps_raw.link.sources import source_size
from ncps_raw.link.talk import Host
from ncps_raw.link.transfer import IDLE, PeerWord, Transfer, too_few_streams

_LOOK_NS: Final = 100_000_000
_LATE_NS: Final = 1_000_000_000
"""So long a connection that has said nothing yet is waited for when all others have ended."""
_TELL_S: Final = 1.0
MISSING_NS: Final = 3_000_000_000
"""So long streams that were promised and did not come are waited for, unless --wait says how long."""

Make = Callable[[LinkPlan, str, Callable[[], None], int | None], Transfer]
Finish = Callable[[Transfer, float], int]


class Bell:
    """What other threads ring to wake the watcher."""

    def __init__(self) -> None:
        self.inside, self._outside = socket.socketpair()
        self.inside.setblocking(False)
        self._outside.setblocking(False)

    def ring(self) -> None:
        """Wake it; from any thread."""
        with contextlib.suppress(OSError):
            self._outside.send(b"!")

    def quiet(self) -> None:
        """Rung often or once is the same."""
        with contextlib.suppress(OSError):
            while self.inside.recv(4096):
                pass

    def close(self) -> None:
        """Nobody rings any more."""
        self.inside.close()
        self._outside.close()


class Watch:
    """One command's run. ``make`` makes a transfer, ``finish`` reports one and returns its exit code."""

    def __init__(
        self, plan: LinkPlan, show: Show, interrupts: Interrupts, make: Make, finish: Finish, door: Door | None = None
    ) -> None:
        self._plan = plan
        self._show = show
        self._interrupts = interrupts
        self._make = make
        self._finish = finish
        self._door = door
        self.bell = Bell()
        self._active: list[Transfer] = []
        self._gathered: list[Arrival] = []
        self._extra: list[Arrival] = []  # more than there is room for
        self._hosts: dict[bytes, Host] = {}
        self._main: Transfer | None = None  # of a listener without --keep: others may join it
        self._missing_ns: int | None = None  # since when nothing is under way but streams are missing
        self._came = False  # whether a plain stream ever did
        self._begin_ns = time.monotonic_ns()
        self._seen: dict[Transfer, tuple[int, int]] = {}  # progress, and when it last changed
        self._row_ns: dict[Transfer, int] = {}
        self._cpu: dict[Transfer, float] = {}
        self.served = 0
        self._code = 0

    def begin(
        self,
        plan: LinkPlan,
        peer: str,
        arrivals: Sequence[Arrival],
        most_in: int | None,
        peer_word: PeerWord | None = None,
    ) -> Transfer:
        """A transfer over these connections; it is watched from now on. ``peer_word``: of a peer that talks."""
        transfer = self._make(plan, peer, self.bell.ring, most_in)
        transfer.peer_word = peer_word
        self._cpu[transfer] = time.process_time()
        for arrival in arrivals:
            transfer.add(arrival.sock, arrival.first)
        if arrivals[0].silent:  # it has been idle before it began
            self._seen[transfer] = (0, arrivals[0].t_ns)
        self._active.append(transfer)
        self.bell.ring()
        return transfer

    def run(self) -> int:
        """Until everything has ended. Returns the worst exit code of all transfers; raises NobodyThere."""
        with selectors.DefaultSelector() as selector:
            try:
                while self._step(selector):
                    pass
            finally:
                self.bell.close()
                if self._door is not None:
                    self._door.close()
        return self._code

    # ---- one turn --------------------------------------------------------------------------------------------

    def _step(self, selector: selectors.BaseSelector) -> bool:
        self._wait(selector)
        now = time.monotonic_ns()
        if self._interrupts.stopped():
            self._leave_all()
            return False
        if self._door is not None:
            for arrival in self._door.come_in(accept=self._accepts()):
                self._arrived(arrival)
            self._check_wait(now)
            self._check_gathered(now)
        if self._interrupts.totals_wanted:
            self._interrupts.totals_wanted = False
            for transfer in self._active:
                self._show.totals(transfer)
        for transfer in list(self._active):
            self._tend(transfer, now)
        return self._goes_on(now)

    def _wait(self, selector: selectors.BaseSelector) -> None:
        now = time.monotonic_ns()
        patience = [_LOOK_NS, *(due for t in self._active if (due := t.due_in(now)) is not None)]
        wanted: dict[int, socket.socket] = {self.bell.inside.fileno(): self.bell.inside}
        if self._door is not None:
            if (silence := self._door.patience_ns(now)) is not None:
                patience.append(silence)
            watched = self._door.watched()
            for sock in watched if self._accepts() else watched[1:]:
                wanted[sock.fileno()] = sock
        for key in list(selector.get_map().values()):
            if wanted.pop(key.fd, None) is not key.fileobj:
                selector.unregister(key.fileobj)
        for sock in wanted.values():
            if sock.fileno() not in selector.get_map():
                selector.register(sock, selectors.EVENT_READ)
        selector.select(min(patience) / 1e9)
        self.bell.quiet()

    def _accepts(self) -> bool:
        """Whether whoever is new is let in."""
        return self._plan.keep or bool(self._hosts) or self._has_room()

    def _has_room(self) -> bool:
        """Whether one more plain stream can be counted with those that are here."""
        if self._main is None:
            return True
        if self._plan.streams > 1:
            return self._main.connections < self._plan.streams
        return not self._plan.transmits and self._plan.sink is None

    def _arrived(self, arrival: Arrival) -> None:
        mark = arrival.mark
        plan = self._plan
        if mark is not None and mark.kind == CONTROL:
            host = Host(arrival, plan, self._begin_for, self.bell.ring)
            self._hosts[mark.token] = host
            host.start()
        elif mark is not None:
            if mark.token in self._hosts:
                self._hosts[mark.token].deliver(arrival)
            else:
                arrival.sock.close()
        elif self._main is not None and not plan.keep:
            if not self._has_room():
                self._extra.append(arrival)
                return
            self._main.add(arrival.sock, arrival.first)
            self._missing_ns = None
        else:
            self._came = True
            self._gathered.append(arrival)
            self._missing_ns = time.monotonic_ns()
            if plan.transmits and len(self._gathered) < plan.streams:
                return
            gathered, self._gathered, self._missing_ns = self._gathered, [], None
            transfer = self.begin(plan, gathered[0].peer, gathered, plan.expected)
            if not plan.keep:
                self._main = transfer

    def _begin_for(
        self, plan: LinkPlan, arrivals: Sequence[Arrival], most_in: int | None, peer_word: PeerWord
    ) -> Transfer:
        return self.begin(plan, arrivals[0].peer, arrivals, most_in, peer_word)

    def _check_wait(self, now: int) -> None:
        wait = self._plan.wait_ns
        came = self._came or self._active or self.served or self._hosts
        if wait is not None and not came and now - self._begin_ns >= wait:
            raise NobodyThere(
                f"nobody connected to port {self._plan.port} within {wait / 1e9:g} s; does the other end use it?"
            )

    def _patience_ns(self) -> int:
        return MISSING_NS if self._plan.wait_ns is None else self._plan.wait_ns

    def _check_gathered(self, now: int) -> None:
        """Of a listener that sends: begin only with as many streams as were asked for, but do not wait for ever."""
        if not self._gathered or self._missing_ns is None or now - self._missing_ns < self._patience_ns():
            return
        gathered, self._gathered = self._gathered, []
        for arrival in gathered:
            meeting.reset(arrival.sock)
        why = too_few_streams(len(gathered), self._plan.streams)
        if not self._plan.keep:
            raise NobodyThere(why)
        self._show.say(f"{gathered[0].peer}: {why}; still listening")

    def _tend(self, transfer: Transfer, now: int) -> None:
        transfer.tend(now)
        self._rows(transfer, now)
        self._show.draw(transfer, self._whole(transfer))
        idle = self._plan.idle_ns
        if idle is not None:
            moved, since = self._seen.get(transfer, (-1, now))
            if (progress := transfer.progress()) != moved:
                self._seen[transfer] = (progress, now)
            elif now - since >= idle:
                transfer.leave(IDLE)
        if transfer.ended_by is not None or (transfer.finished and not self._missing(transfer, now)):
            self._end(transfer)

    def _missing(self, transfer: Transfer, now: int) -> bool:
        """Whether more streams are to come, and still may."""
        if transfer is not self._main or transfer.connections >= self._plan.streams:
            return False
        self._missing_ns = self._missing_ns or now
        return now - self._missing_ns < self._patience_ns()

    def _rows(self, transfer: Transfer, now: int) -> None:
        begin = transfer.begin_ns()
        if not self._show.rows or begin is None:
            return
        due = self._row_ns.setdefault(transfer, begin + self._plan.interval_ns)
        if now < due or transfer.finished:
            return
        row = transfer.row()
        if row is not None:
            self._show.row(row, transfer.peer)
        missed = (now - due) // self._plan.interval_ns
        self._row_ns[transfer] = due + (missed + 1) * self._plan.interval_ns

    def _whole(self, transfer: Transfer) -> int | None:
        plan = transfer.plan
        if not plan.sends:
            return transfer.most_in
        size = source_size(plan)
        return size if plan.size is None else plan.size if size is None else min(size, plan.size)

    def _end(self, transfer: Transfer) -> None:
        if transfer is self._main and self._door is not None:
            if self._late_ones(transfer):
                return
            if transfer.ended_by is None and not self._accepts():
                transfer.surplus = self._turn_away(self._door, transfer.peer)
        self._active.remove(transfer)
        transfer.close()
        if self._show.rows and (row := transfer.last_row()) is not None:
            self._show.row(row, transfer.peer)
        self.served += 1
        code = self._finish(transfer, time.process_time() - self._cpu.pop(transfer))
        self._code = max(self._code, code)
        self._seen.pop(transfer, None)
        self._row_ns.pop(transfer, None)

    def _turn_away(self, door: Door, peer: str) -> int:
        """Reset those for whom there was no room; how many are of the same host as ``peer``."""
        others = [arrival.peer for arrival in self._extra]
        for arrival in self._extra:
            meeting.reset(arrival.sock)
        self._extra.clear()
        host = peer.rpartition(":")[0]
        return sum(other.rpartition(":")[0] == host for other in [*others, *door.turn_away()])

    def _late_ones(self, transfer: Transfer) -> bool:
        """Whether a connection made meanwhile has joined, or is still to say its first byte."""
        assert self._door is not None
        if transfer.ended_by is not None or self._missing_ns is not None or not self._accepts():
            return False
        for arrival in self._door.come_in(accept=True):
            self._arrived(arrival)
        now = time.monotonic_ns()
        return not transfer.finished or self._door.youngest_ns(now) < _LATE_NS

    def _leave_all(self) -> None:
        why = self._interrupts.stopped_by
        for transfer in list(self._active):
            transfer.leave(why)
        for transfer in list(self._active):
            self._end(transfer)
        for host in self._hosts.values():
            if host.telling:
                host.told.wait(_TELL_S)

    def _goes_on(self, now: int) -> bool:
        for host in self._hosts.values():
            if host.ended and host.refused is not None:
                stays = "" if self.served and not self._plan.keep else "; still listening"
                self._show.remark(f"{host.refused}{stays}")
        self._hosts = {token: host for token, host in self._hosts.items() if not host.ended}
        if self._active or self._hosts:
            return True
        return self._door is not None and (self._plan.keep or not self.served)
