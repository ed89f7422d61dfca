"""What every engine is given and what it leaves behind: set-ups, counters, the record ledger. Vocabulary.

An engine drives a few *loops*. A loop is a share of the plan (its connections, ports and counters); how many loops a
thread serves is the engine's choice. Counters have one writer: the engine's process copies them to shared memory.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, Protocol

from ncps_raw.conversation import Mode
from ncps_raw.ports import ClientPorts

# Counters of one loop, cumulative int64, in this order in shared memory.
COUNTERS: Final = (
    "attempted",
    "established",
    "closed",
    "failed",  # connects that failed on the network or at the target
    "not_started",  # failed on this machine before a SYN: no port, no file descriptor
    "io_failed",
    "rx_bytes",
    "tx_bytes",
    "clean",  # established, kernel says no SYN was repeated
    "clean_rtt_us",  # sum
    "repeated",
    "repeated_rtt_us",  # sum of application connect times: tcpi_rtt is false for these
    "retransmits",
    "wrapped",  # 1 once the local ports have been used round
    "options_failed",  # connections that the system would not tell of, or keep alive; they go on
    # Of a schedule of starts:
    "due",
    "late",  # begun more than a millisecond after they were due
    "held_up",  # of these, those that had to wait for one of the N connections or P connects
    "lag_ns",  # sum
    "lag_max_ns",  # the only counter whose total is the largest, not the sum
)
(
    ATTEMPTED,
    ESTABLISHED,
    CLOSED,
    FAILED,
    NOT_STARTED,
    IO_FAILED,
    RX_BYTES,
    TX_BYTES,
    CLEAN,
    CLEAN_RTT,
    REPEATED,
    REPEATED_RTT,
    RETRANSMITS,
    WRAPPED,
    OPTIONS_FAILED,
    DUE,
    LATE,
    HELD_UP,
    LAG_NS,
    LAG_MAX_NS,
) = range(len(COUNTERS))

RECORD: Final = struct.Struct("<qqqqIHHHHHBB")
"""One CONNECTION row as the ledger writes it; the order of fields is that of ``ncps_analysis.records.CONNECTION``."""

RECORDS_A_WRITE: Final = 4096

GO: Final = 1
STOP: Final = 2
PAUSE: Final = 3
"""States of the start line in shared memory; 0 = wait. An engine never sees PAUSE: asking for the state holds it."""


class Board(Protocol):
    """The engine's view of shared memory. One writer: this engine's process."""

    def state(self) -> int:
        """0 = wait, GO or STOP. Returns only when the load may go on: a pause is spent in here."""

    def begin_ns(self) -> int:
        """When the load began (monotonic): what a schedule of starts counts from, the same for all processes."""

    def end_ns(self) -> int:
        """When it is to end; 0 = when told."""

    def publish(self, loop: int, counts: list[int]) -> None:
        """Copy one loop's cumulative counters, in the order of COUNTERS."""

    def error(self, number: int, t_ns: int) -> None:
        """Count one failure by errno (0 = the peer ended the connection early)."""


class Ledger(Protocol):
    """Takes finished records, packed by RECORD, and keeps them."""

    def append_bytes(self, rows: memoryview) -> None:
        """Write whole rows; the memory may be used again when this returns."""


@dataclass(frozen=True)
class ClientLoop:
    """One loop's share of a client plan."""

    index: int
    connections: int
    max_pending: int
    ports: ClientPorts


@dataclass(frozen=True)
class ClientSetup:
    """What all client loops of one process share."""

    mode: Mode
    family: int
    address: tuple[object, ...]  # as resolved: (host, port) or (host, port, flow, scope); the port is replaced
    bind: tuple[str, ...]  # source addresses, used in turn; () = the system chooses
    size: int
    hold_ns: int
    reconnect: bool
    abortive: bool
    drain_ns: int  # how long after the end connections under way may finish
    loops: tuple[ClientLoop, ...]
    rate: Fraction | None = None  # connects a second of all loops together, on a schedule; None = as fast as it goes
    all_loops: int = 1  # of the plan, those of other processes with them
    keepalive_ns: int = 0  # idle time before the first probe; 0 = no keep-alive
    shutdown: bool = False  # end the sending side before closing
    busy_poll: bool = False  # never sleep while connections are open
    pace_ns: int = 0  # from one round of a connection to its next; never together with a rate
    local_ends: bool = True  # whether anything will use the local port of a record: if not, it stays 0 (unknown)


@dataclass(frozen=True)
class ServerLoop:
    """One loop's share of a server plan."""

    index: int
    ports: tuple[int, ...]


@dataclass(frozen=True)
class ServerSetup:
    """What all server loops of one process share."""

    mode: Mode
    family: int
    bind: tuple[str, ...]
    size: int
    abortive: bool
    backlog: int
    max_records: int
    loops: tuple[ServerLoop, ...]
    reuse_port: bool = False  # several loops listen on the same port
    keepalive_ns: int = 0
    shutdown: bool = False
    busy_poll: bool = False


Path = tuple[str, str]
"""(this side's address, the other side's): what CONNECTION.path points at."""

UNKNOWN_PATH: Final[Path] = ("", "")
