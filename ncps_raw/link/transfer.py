"""Edge: one transfer: the pumps of all its connections, and what they come to.

The one idea: whenever it is asked, at the end or in the middle, it gives the figures as they are then; an interrupted
transfer is one that was asked earlier. Must not know the terminal, nor how the connections came about.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from ncps_capture.errors import NcpsError

from ncps_raw.link import books, tcpinfo
from ncps_raw.link.books import Figures, Row
from ncps_raw.link.plan import LinkPlan
from ncps_raw.link.pumps import ACKNOWLEDGED, HANDED, READ, Pump, Receiver, Sender, wake
from ncps_raw.link.sinks import Sink
from ncps_raw.link.sources import Source, source_size
from ncps_raw.link.tcpinfo import TcpInfo

_GRACE_NS: Final = 200_000_000
"""So long a pump that was told "enough" has to return by itself, before its socket is shut."""
_DRAIN_NS: Final = 2_000_000_000
"""So long what is in the send buffer has to be acknowledged after the time is up."""
IDLE: Final = "idle"

PeerWord = Callable[[float], str | None]
"""What a peer that talks has said of its end, waiting so many seconds for it: DONE, GONE if it left without a word, why
it left early (a signal's name, IDLE), or None if it is there and says nothing."""
DONE: Final = "done"
GONE: Final = ""
_WORD_S: Final = 2.0


@dataclass(frozen=True)
class Snapshot:
    """All connections at one moment. None: not told, or no such direction."""

    t_ns: int
    sent: int | None
    received: int | None
    retransmits: int | None
    srtt_us: int | None
    cwnd: int | None


class Transfer:
    """Connections that are counted together. ``most_out``/``most_in``: bytes over all of them."""

    def __init__(
        self,
        plan: LinkPlan,
        peer: str,
        on_change: Callable[[], None],
        *,
        make_source: Callable[[], Source],
        make_sink: Callable[[], Sink],
        streams: int = 1,
        most_out: int | None = None,
        most_in: int | None = None,
    ) -> None:
        self.plan = plan
        self.peer = peer
        self.streams = streams
        self._most = (most_out, most_in)
        self._source_size = source_size(plan) if plan.transmits else None
        self._on_change = on_change
        self._make_source = make_source
        self._make_sink = make_sink
        self.senders: list[Sender] = []
        self.receivers: list[Receiver] = []
        self._socks: list[socket.socket] = []
        self._base: Snapshot | None = None  # at the end of the warm-up
        self._enough_ns: int | None = None
        self._time_up = False  # this end's own time ended it
        self._left_ns: int | None = None
        self.surplus = 0  # connections of the same peer that nobody has taken
        self.ended_by: str | None = None  # why it was cut short: a signal, idle
        self._final: Snapshot | None = None
        self._first = self._last = Snapshot(time.monotonic_ns(), 0, 0, 0, None, None)
        self.peer_word: PeerWord | None = None
        self.on_leave: Callable[[str], None] | None = None  # tells a peer that talks, before the connections end
        self.blames_peer = False  # whether what went wrong is only seen here, and may have its cause there
        self.done = threading.Event()
        self.result: tuple[Figures | None, Figures | None] = (None, None)
        self.verdict: tuple[tuple[str, ...], int] = ((), 0)

    # ---- from outside -------------------------------------------------------------------------------------------

    def add(self, sock: socket.socket, first: tuple[int, int] | None = None) -> None:
        """One more connection; it begins at once. The sources and sinks are made on this thread.

        ``first``: when its first bytes were seen, and how many, if they were.
        """
        place = len(self._socks)
        self._socks.append(sock)
        pumps: list[Pump] = []
        if self.plan.transmits:
            sender = Sender(
                sock,
                self._make_source(),
                _share(self._most[0], self.streams, place),
                self._on_change,
                None if self.plan.limit is None else self.plan.limit / self.streams,
                self.plan.lasts_ns,
                self.streams,
            )
            self.senders.append(sender)
            pumps.append(sender)
        if self.plan.receives:
            # Of several connections one may bring more than another: only the sum is expected.
            most = self._most[1] if self.streams == 1 else None
            receiver = Receiver(sock, self._make_sink(), most, self._on_change, first)
            self.receivers.append(receiver)
            pumps.append(receiver)
        for pump in pumps:
            pump.start()

    @property
    def most_in(self) -> int | None:
        """Bytes that are expected here, over all connections, if that is known."""
        return self._most[1]

    @property
    def connections(self) -> int:
        """How many there are."""
        return len(self._socks)

    @property
    def pumps(self) -> list[Pump]:
        """All of them."""
        return [*self.senders, *self.receivers]

    @property
    def finished(self) -> bool:
        """Whether nothing moves any more."""
        return all(pump.finished for pump in self.pumps)

    def begin_ns(self) -> int | None:
        """When the first byte moved."""
        return min((pump.begin_ns for pump in self.pumps if pump.begin_ns is not None), default=None)

    def enough(self) -> None:
        """Hand over no more; what is on its way is still waited for."""
        if self._enough_ns is None:
            self._enough_ns = time.monotonic_ns()
        for sender in self.senders:
            sender.enough = True
        if not self.senders:  # else the peer ends too, once it sees our end
            self._end_receiving()

    def _end_receiving(self) -> None:
        for receiver in self.receivers:
            if not receiver.finished and not receiver.enough:
                wake(receiver, leave=True)

    def leave(self, why: str | None) -> None:
        """End now, with the figures as they are."""
        if self._left_ns is not None:
            return
        self._left_ns = time.monotonic_ns()
        self.ended_by = self.ended_by or why
        self._fix()
        if self.on_leave is not None and why is not None:
            self.on_leave(why)
        for pump in self.pumps:
            wake(pump, leave=True)

    def tend(self, now_ns: int) -> None:
        """What time brings: warm-up, duration, an end that waits for the other direction, pumps that hang."""
        begin = self.begin_ns()
        plan = self.plan
        if begin is None:
            return
        if plan.warmup_ns and self._base is None and now_ns >= begin + plan.warmup_ns and not self.finished:
            self._base = self.snapshot()
        lasts = self._lasts_ns
        if lasts is not None and now_ns >= begin + lasts:
            self._time_up = not self.finished or self._time_up
            self.enough()
        follows = not plan.sends and plan.size is None and plan.endless_source
        if follows and self.senders and all(pump.finished for pump in self.receivers):
            # What recv sends has no end of its own: it ends with what the peer sends.
            for sender in self.senders:
                sender.enough = True
            self._enough_ns = self._enough_ns or now_ns
        if any(pump.failure is not None for pump in self.pumps):
            self.enough()
            self._end_receiving()
        if self._enough_ns is None:
            return
        if now_ns > self._enough_ns + _DRAIN_NS:
            self._end_receiving()
        for sender in self.senders:
            if now_ns > self._enough_ns + _GRACE_NS and not sender.finished and sender.clock_end == HANDED:
                wake(sender, leave=now_ns > self._enough_ns + _DRAIN_NS)

    @property
    def _lasts_ns(self) -> int | None:
        """When this end stops. A receiver whose sender was told lets that one end it, and takes what is on its way."""
        lasts = self.plan.lasts_ns
        return lasts if lasts is None or self.senders or not self.plan.both else lasts + _DRAIN_NS

    def due_in(self, now_ns: int) -> int | None:
        """Nanoseconds until ``tend`` has something to do; None: nothing is known to come."""
        begin = self.begin_ns()
        if begin is None:
            return None
        marks = [begin + self.plan.warmup_ns] if self.plan.warmup_ns and self._base is None else []
        if self._lasts_ns is not None:
            marks.append(begin + self._lasts_ns)
        return min((max(mark - now_ns, 0) for mark in marks if mark >= now_ns), default=None)

    def progress(self) -> int:
        """A number that grows as long as anything moves."""
        shot = self.snapshot()
        return sum(pump.moved for pump in self.pumps) + (shot.sent or 0)

    def close(self) -> None:
        """Fix the result and let go of everything. Nothing of it is asked afterwards."""
        if self._left_ns is None:
            self._fix()
        self.verdict = self.problems()
        for pump in self.pumps:
            if not pump.join(1.0):
                wake(pump, leave=True)
                pump.join(1.0)
        for sock in self._socks:
            with contextlib.suppress(OSError):
                sock.close()
        for sender in self.senders:
            if sender.finished:
                sender.source.close()
        for receiver in self.receivers:
            if receiver.finished:
                receiver.sink.close()
        self.done.set()

    # ---- figures ---------------------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """Counts of this moment."""
        infos = [tcpinfo.read(sock) for sock in self._socks]
        known = [info for info in infos if info is not None]
        sent: int | None = None
        if self.senders:
            counts = [sender.acknowledged(info) for sender, info in zip(self.senders, infos, strict=True)]
            handed = [sender.moved for sender in self.senders]
            sent = sum(moved if count is None else count for count, moved in zip(counts, handed, strict=True))
        told = bool(known) and len(known) == len(infos)
        return Snapshot(
            time.monotonic_ns(),
            sent,
            sum(receiver.moved for receiver in self.receivers) if self.receivers else None,
            sum(info.retransmits for info in known) if told else None,
            max(info.srtt_us for info in known) if told else None,
            sum(info.cwnd for info in known) if told else None,
        )

    def row(self) -> Row | None:
        """What happened since the last row; None before the first byte."""
        begin = self.begin_ns()
        if begin is None:
            return None
        return self._row_until(self.snapshot(), begin)

    def last_row(self) -> Row | None:
        """What has happened since the last row until the end, if anything; of a transfer that has its result."""
        begin, final = self.begin_ns(), self._final
        if begin is None or final is None:
            return None
        row = self._row_until(replace(final, t_ns=max(final.t_ns, self._last.t_ns, begin)), begin)
        return replace(row, partial=True) if row.end_ns > row.begin_ns or row.sent or row.received else None

    def _fix(self) -> None:
        """The result, and a moment of the end that agrees with it."""
        self.result = self.figures()
        shot, base = self.snapshot(), self._base
        sent, received = (None if figures is None else figures.bytes for figures in self.result)
        if sent is not None:
            shot = replace(shot, sent=sent + ((base.sent or 0) if base else 0))
        if received is not None:
            shot = replace(shot, received=received + ((base.received or 0) if base else 0))
        ends = [pump.end_ns for pump in self.pumps if pump.end_ns is not None]
        self._final = replace(shot, t_ns=max(ends)) if len(ends) == len(self.pumps) else shot

    def _row_until(self, now: Snapshot, begin: int) -> Row:
        last, self._last = self._last, now
        if last is self._first:
            last = replace(last, t_ns=begin)

        def more(a: int | None, b: int | None) -> int | None:
            return None if a is None else a - (b or 0)

        return Row(
            last.t_ns - begin,
            now.t_ns - begin,
            more(now.sent, last.sent),
            more(now.received, last.received),
            more(now.retransmits, last.retransmits),
            now.srtt_us,
            now.cwnd,
            len(self._socks),
        )

    def figures(self) -> tuple[Figures | None, Figures | None]:
        """(sent, received) as they are now."""
        now = time.monotonic_ns()
        sent = self._together([self._sent(sender, now) for sender in self.senders], self.senders, now)
        received = self._together([self._received(receiver) for receiver in self.receivers], self.receivers, now)
        return sent, received

    def _together(self, parts: list[Figures], pumps: list[Sender] | list[Receiver], now: int) -> Figures | None:
        if not parts:
            return None
        whole = books.added(parts) if len(parts) > 1 else parts[0]
        begins = [pump.begin_ns for pump in pumps if pump.begin_ns is not None]
        if not begins or whole.elapsed_ns is None:
            return whole
        sending = whole.sent
        end = max((pump.end_ns or (now if sending else begins[0])) for pump in pumps)
        base = self._base
        if base is not None:
            before = (base.sent if sending else base.received) or 0
            count = None if whole.bytes is None else max(whole.bytes - before, 0)
            return replace(whole, bytes=count, elapsed_ns=max(end - base.t_ns, 0), round_trip_ns=None, early=0)
        elapsed = end - min(begins)
        if sending and whole.clock_end == ACKNOWLEDGED:
            elapsed -= whole.round_trip_ns or 0
        return replace(whole, elapsed_ns=elapsed)

    def _sent(self, sender: Sender, now: int) -> Figures:
        info = tcpinfo.read(sender.sock)
        count = sender.acknowledged(info)
        elapsed = round_trip = handed_ns = None
        if sender.begin_ns is not None:
            elapsed = (sender.end_ns or now) - sender.begin_ns
            if sender.clock_end == ACKNOWLEDGED:
                elapsed, round_trip = books.between_acknowledgements(elapsed, None if info is None else info.min_rtt_us)
            handed_ns = (sender.moved_ns or now) - sender.begin_ns
        return Figures(
            True,
            count,
            elapsed,
            self.plan.block,
            sender.source.way,
            sender.clock_end,
            max(sender.moved, count or 0),  # a call under way: more than it has told yet
            handed_ns,
            round_trip,
            0,
            *_kernel(info),
            *_shares(info, elapsed),
            min_rtt_us=None if info is None else info.min_rtt_us,
        )

    def _received(self, receiver: Receiver) -> Figures:
        elapsed = None
        if receiver.begin_ns is not None:
            elapsed = (receiver.end_ns or receiver.begin_ns) - receiver.begin_ns
        return Figures(
            False,
            receiver.moved,
            elapsed,
            self.plan.block,
            receiver.sink.way,
            READ,
            fsync_ns=receiver.fsync_ns,
            early=receiver.early,
        )

    # ---- what went wrong ----------------------------------------------------------------------------------------

    def problems(self) -> tuple[tuple[str, ...], int]:
        """Sentences, and the exit code they make: 0 if there are none."""
        failures = [pump.failure for pump in self.pumps if isinstance(pump.failure, NcpsError)]
        found = [str(failure) for failure in failures]
        found += [
            f"{sender.source.name} had only {sender.moved} of the {_bytes(sender.most)} that were to be sent"
            for sender in self.senders
            if sender.source_ended and not sender.complete and not sender.failure
        ]
        found += [
            f"{sender.source.name} had only {sender.moved} of the {_bytes(self._source_size)} it had at the beginning"
            for sender in self.senders
            if sender.source_ended and sender.complete and sender.moved < (self._source_size or 0)
        ]
        if self.connections < self.streams and not self.plan.keep and self.ended_by in (None, IDLE):
            found.append(too_few_streams(self.connections, self.streams))
        if self.surplus:
            found.append(self._too_many_streams())
        if self.ended_by == IDLE:
            found.append("nothing moved for as long as --idle allows")
        if self.ended_by is None and not found:
            found = self._seen_of_the_peer()
            self.blames_peer = bool(found)
        code = max((failure.exit_code for failure in failures), default=1)
        return tuple(dict.fromkeys(found)), code if found else 0

    def _seen_of_the_peer(self) -> list[str]:
        """What looks like the peer's doing, and what the peer itself says of it."""
        found = [
            f"{_ended_early(pump)}: {pump.failure.strerror or pump.failure} ({_what_it_may_be(pump)})"
            + self._on_some(lambda one: one.failure is not None)
            for pump in self.pumps
            if isinstance(pump.failure, OSError)
        ]
        expected, got = self._most[1], sum(receiver.moved for receiver in self.receivers)
        short = expected is not None and got < expected and not found
        sent = self.result[0]
        missing = 0 if sent is None or sent.clock_end != HANDED else (sent.handed_bytes or 0) - (sent.bytes or 0)
        if self._base is None and missing > 0 and not found:
            found.append(
                f"{_bytes(missing)} handed over, but not acknowledged when the time was up"
                + self._on_some(lambda one: isinstance(one, Sender) and one.clock_end == HANDED)
            )
        word: str | None = None
        if self.peer_word is not None:
            word = self.peer_word(_WORD_S if found or self.receivers else 0)
        if word == IDLE:
            return ["the other end gave up: nothing moved for as long as its --idle allows"]
        if word not in (None, DONE, GONE):
            return [f"the other end was interrupted ({word})"]
        if short:
            why = "the other end had no more" if word == DONE else "the peer ended early"
            if self._time_up:
                why = "--duration ended it first"
            found.append(f"received {got} of {_bytes(expected)}: {why}")
        if word == GONE and not found:
            found.append("the peer left before it said that it had finished: it was killed")
        return found

    def _on_some(self, bad: Callable[[Pump], bool]) -> str:
        """Where only some of several streams went wrong: how many, and what it may be."""
        count = sum(map(bad, self.pumps))
        if self.connections == 1 or count == len(self.pumps):
            return ""
        return f", on {count} of {len(self.pumps)} streams: does the other end take as many (--streams)?"

    def _too_many_streams(self) -> str:
        more = (
            f"{self.surplus} more {'connection' if self.surplus == 1 else 'connections'} of the same peer got nothing"
        )
        if self.plan.receives and self.plan.sink is not None:
            return f"{more}: one file holds one stream; start the other end with --streams 1"
        both = self.connections + self.surplus
        return f"{more}: start this end with --streams {both}, or the other one with --streams {self.connections}"


def too_few_streams(came: int, wanted: int) -> str:
    """What a listener says that waited for more."""
    return (
        f"only {came} of {wanted} streams came: start the other end with --streams {wanted}, "
        f"or this one with --streams {came}"
    )


def _bytes(count: int | None) -> str:
    return books.counted(count or 0, "byte")


def _ended_early(pump: Pump) -> str:
    return f"{'sending' if isinstance(pump, Sender) else 'receiving'} ended early"


def _what_it_may_be(pump: Pump) -> str:
    if isinstance(pump, Sender):
        return "the peer was killed, or closed before it took all, which may be meant: its own --size or --duration"
    if not pump.moved:
        return "the peer was killed, or wanted another number of --streams"
    return "the peer was killed"


def _kernel(info: TcpInfo | None) -> tuple[int | None, int | None, int | None]:
    return (None, None, None) if info is None else (info.retransmits, info.srtt_us, info.cwnd)


def _shares(info: TcpInfo | None, elapsed_ns: int | None) -> tuple[float | None, float | None]:
    """Shares of the time in which the peer's window was full, and in which anything waited to be sent."""
    if info is None or not elapsed_ns:
        return None, None
    return min(info.rwnd_limited_us * 1000 / elapsed_ns, 1.0), min(info.busy_us * 1000 / elapsed_ns, 1.0)


def _share(total: int | None, parts: int, place: int) -> int | None:
    return None if total is None else total // parts + (1 if place < total % parts else 0)
