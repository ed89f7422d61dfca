"""What an engine knows of one connection and of one loop while they live, and how a finished one becomes a record."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

from ncps_raw.engine.backoff import Backoff
from ncps_raw.engine.base import COUNTERS, RECORD, RECORDS_A_WRITE, UNKNOWN_PATH, ClientLoop, Ledger, Path

if TYPE_CHECKING:
    import socket

UNKNOWN: Final = -(1 << 63)
NO_RTT: Final = 0xFFFFFFFF
NO_PATH: Final = 0xFFFF
"""A path beyond every table: the addresses are not known."""
MOST_PATHS: Final = 0xFFFF
"""Pairs of addresses that a record's two bytes can tell apart; the number after the last stands for all others."""

# Outcomes of a record: the values of ncps_analysis.records, kept equal by a test.
R_PENDING: Final = 0
R_OPEN: Final = 1
R_CLOSED: Final = 2
R_CONNECT_FAILED: Final = 3
R_IO_FAILED: Final = 4
R_NOT_STARTED: Final = 5

# States of a slot.
CONNECTING: Final = 0
SENDING: Final = 1
RECEIVING: Final = 2
HOLDING: Final = 3
PAUSED: Final = 4


class Slot:
    """One of a loop's N connections; used again for the next one when it has ended."""

    __slots__ = (
        "answered",
        "connected",
        "deadline",
        "intended",
        "loop",
        "lport",
        "path",
        "retrans",
        "rport",
        "rtt",
        "sent",
        "sock",
        "start",
        "state",
        "unit",
    )

    def __init__(self, loop: ClientShare) -> None:
        self.loop = loop
        self.sock: Any = None  # the C socket type, or None
        self.state = CONNECTING
        self.intended = UNKNOWN  # when it was due, by a schedule
        self.start = 0
        self.connected = UNKNOWN
        self.deadline = 0
        self.rtt = NO_RTT
        self.retrans = 0
        self.lport = 0
        self.rport = 0
        self.path = 0
        self.sent = 0
        self.unit = 0  # bytes of the unit that is being sent, where that depends on the last receipt
        self.answered = 0  # bytes of the last receipt, where the peer spoke before all was sent


class ClientShare:
    """A client loop at work: its counters, its free slots and its place in the port plan."""

    __slots__ = (
        "backoff",
        "counts",
        "first_source",
        "free",
        "index",
        "local",
        "local_at",
        "max_pending",
        "pending",
        "remote_at",
        "rounds",
        "source_at",
        "sources",
        "steps",
        "targets",
        "total",
    )

    def __init__(self, spec: ClientLoop, address: tuple[object, ...]) -> None:
        self.index = spec.index
        self.counts = [0] * len(COUNTERS)
        self.total = spec.connections
        self.max_pending = spec.max_pending
        self.pending = 0
        self.backoff = Backoff(spec.connections)
        self.local = spec.ports.local
        self.targets = [(port, (address[0], port, *address[2:])) for port in spec.ports.remote]
        self.sources = spec.ports.sources
        self.first_source = self.source_at = spec.ports.first_source
        self.rounds = 0  # how often all ports were through
        self.steps = len(self.targets) > 1 or bool(self.local) or self.sources > 1
        self.local_at = 0
        self.remote_at = 0
        self.free = [Slot(self) for _ in range(spec.connections)]


class Ended(Protocol):
    """What a record is made from."""

    intended: int
    start: int
    connected: int
    rtt: int
    lport: int
    rport: int
    path: int
    retrans: int


class Records:
    """Packs records into one buffer and hands it on when it is full: no object a connection, no copy."""

    __slots__ = ("_at", "_buffer", "_end", "_keep", "_pack", "_view")

    def __init__(self, ledger: Ledger) -> None:
        self._buffer = bytearray(RECORD.size * RECORDS_A_WRITE)
        self._view = memoryview(self._buffer)
        self._end = len(self._buffer)
        self._at = 0
        self._keep = ledger.append_bytes
        self._pack = RECORD.pack_into

    def add(self, slot: Ended, loop: int, outcome: int, number: int, closed: int) -> None:
        """One finished connection; ``number`` is its errno, ``closed`` the time of its close."""
        at = self._at
        self._pack(
            self._buffer,
            at,
            slot.intended,
            slot.start,
            slot.connected,
            closed,
            slot.rtt,
            number,
            slot.lport,
            slot.rport,
            slot.path,
            loop,
            outcome,
            slot.retrans,
        )
        self._at = at = at + RECORD.size
        if at == self._end:
            self.flush()

    def flush(self) -> None:
        """Hand on what is there."""
        self._keep(self._view[: self._at])
        self._at = 0


class Paths:
    """Pairs of addresses that records point at by number, in the order they were first seen.

    A server that has seen ``MOST_PATHS`` peers goes on: the records of further ones have no addresses.
    """

    __slots__ = ("_numbers",)

    def __init__(self) -> None:
        self._numbers: dict[Path, int] = {}

    def number(self, here: str, there: str) -> int:
        """The number of this pair; ``MOST_PATHS`` if the table is full."""
        numbers = self._numbers
        if len(numbers) == MOST_PATHS:
            return numbers.get((here, there), MOST_PATHS)
        return numbers.setdefault((here, there), len(numbers))

    def table(self) -> list[Path]:
        """All pairs; CONNECTION.path is an index into it."""
        full = len(self._numbers) == MOST_PATHS
        return [*self._numbers, UNKNOWN_PATH] if full else list(self._numbers)

    def __len__(self) -> int:
        return len(self._numbers)


def local_name(sock: socket.socket) -> tuple[str, int]:
    """Address and port of this side; ("", 0) where the socket is too dead to say."""
    try:
        name = sock.getsockname()
    except OSError:
        return "", 0
    return name[0], name[1]
