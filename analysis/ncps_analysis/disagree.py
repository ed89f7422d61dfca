"""Pure: the connections on which two of the three clocks differ most.

The wire (first SYN to SYN-ACK), the kernel (``tcpi_rtt``) and the application (connect called until noticed) time the
same handshake. Their distributions hide on which connections they differ; those few are what to look at in a packet
trace. It must not know files nor how a report looks. The one idea: the largest of a whole are the largest of the
largest of its parts, so a bounded table adds up like a count, and ties are broken by what tells connections apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
from ncps_capture.addresses import address_text
from ncps_capture.segments import UNKNOWN, Handshakes, rtt_first_ns

from ncps_analysis.records import NO_KERNEL_RTT, Connections

Ints = npt.NDArray[np.int64]

KEPT: Final = 10


@dataclass(frozen=True)
class Apart:
    """One connection. ``difference_us`` is what the table is ordered by; the three times are whole us."""

    difference_us: int
    start_ns: int  # connect() called, by CLOCK_MONOTONIC
    src: str
    sport: int
    dst: str
    dport: int
    connect_us: int | None  # None: connected before it started, so the clock is not to be trusted
    kernel_rtt_us: int | None  # None: no TCP_INFO, or no sample
    syn_rtt_us: int
    syn_repeats: int
    kernel_retrans: int | None  # None: no TCP_INFO

    def rank(self) -> tuple[int, int, str, int, str, int]:
        """Sorts the largest difference first; equal ones by time, then by four-tuple."""
        return (-self.difference_us, self.start_ns, self.src, self.sport, self.dst, self.dport)


@dataclass(frozen=True)
class Largest:
    """At most KEPT connections, largest difference first; ``+`` keeps the largest of both."""

    rows: tuple[Apart, ...] = ()

    def __add__(self, other: Largest) -> Largest:
        return Largest(tuple(sorted((*self.rows, *other.rows), key=Apart.rank)[:KEPT]))


def of_kernel(records: Connections, wire: Handshakes) -> Largest:
    """Where wire and kernel differ most, either way. CONNECTION rows of a client and the HANDSHAKE row of each."""
    rtt = rtt_first_ns(wire)
    kernel = records["kernel_rtt_us"].astype(np.int64)
    known = (rtt != UNKNOWN) & (kernel != NO_KERNEL_RTT) & (kernel > 0)
    return _largest(np.where(known, np.abs(np.where(known, rtt, 0) // 1000 - kernel), 0), records, wire)


def of_application(records: Connections, wire: Handshakes) -> Largest:
    """Where the application waited longest beyond what the wire took. Arguments as for ``of_kernel``."""
    rtt = rtt_first_ns(wire)
    took = (records["connected_ns"] - records["start_ns"]) // 1000
    return _largest(np.where(rtt != UNKNOWN, took - np.where(rtt != UNKNOWN, rtt, 0) // 1000, 0), records, wire)


def _largest(difference_us: Ints, records: Connections, wire: Handshakes) -> Largest:
    """The KEPT largest of those above 0; with all that tie with the last, since only their rank decides."""
    candidates = np.flatnonzero(difference_us > 0)
    if len(candidates) > KEPT:
        least = np.partition(difference_us[candidates], -KEPT)[-KEPT]
        candidates = candidates[difference_us[candidates] >= least]
        by_time = np.lexsort((records["start_ns"][candidates], -difference_us[candidates]))
        last = candidates[by_time[KEPT - 1]]
        # A run in which all differ alike must not become a table of all: of one difference the earliest are enough.
        earlier = records["start_ns"][candidates] <= records["start_ns"][last]
        candidates = candidates[(difference_us[candidates] > least) | earlier]
    return Largest() + Largest(tuple(_apart(int(difference_us[i]), records[i], wire[i]) for i in candidates))


def _apart(difference_us: int, record: np.void, handshake: np.void) -> Apart:
    version = int(handshake["ip_version"])
    took = (int(record["connected_ns"]) - int(record["start_ns"])) // 1000
    kernel = int(record["kernel_rtt_us"])
    told = kernel != NO_KERNEL_RTT
    return Apart(
        difference_us=difference_us,
        start_ns=int(record["start_ns"]),
        src=address_text(handshake["client_hi"], handshake["client_lo"], version),
        sport=int(handshake["sport"]),
        dst=address_text(handshake["server_hi"], handshake["server_lo"], version),
        dport=int(handshake["dport"]),
        connect_us=took if took >= 0 else None,
        kernel_rtt_us=kernel if told and kernel > 0 else None,
        syn_rtt_us=int(rtt_first_ns(np.array([handshake]))[0]) // 1000,
        syn_repeats=int(handshake["syn_n"]) - 1,
        kernel_retrans=int(record["kernel_retrans"]) if told else None,
    )
