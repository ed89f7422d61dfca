"""Classic pcap, in every variant, as batches of frames. Pure: bytes in, batches out.

One idea: where records start is found by a walk that looks at nothing but the lengths (``walk.py``); all other fields
of a chunk of records are then read as columns. Knows the file format and nothing of what is in the frames; never
libpcap, which refuses files that are perfectly readable.
"""

from __future__ import annotations

import copy
import struct
from dataclasses import replace
from typing import Final

import numpy as np

from ncps_capture.capfacts import (
    BATCH_BYTES,
    BATCH_ROWS,
    MOST_SNAPLEN,
    SANE_CAPLEN,
    Bytes,
    Facts,
    Interface,
    Ints,
    Taken,
)
from ncps_capture.segments import Batch
from ncps_capture.walk import PcapRecords, fields, meets, walk

FILE_HEADER: Final = 24

MAGICS: Final = {
    bytes.fromhex("a1b2c3d4"): (">", 1000, 16),
    bytes.fromhex("d4c3b2a1"): ("<", 1000, 16),
    bytes.fromhex("a1b23c4d"): (">", 1, 16),
    bytes.fromhex("4d3cb2a1"): ("<", 1, 16),
    bytes.fromhex("a1b2cd34"): (">", 1000, 24),
    bytes.fromhex("34cdb2a1"): ("<", 1000, 24),
}
"""First four bytes -> byte order, nanoseconds in one unit of the fraction of a second, bytes of a record's header.

The last two are the "modified" format of Alexey Kuznetzov's libpcap patch, which appends eight bytes to the header.
"""


class Pcap:
    """Format of one classic pcap file; ``header`` is its first FILE_HEADER bytes, whose magic is in MAGICS."""

    def __init__(self, facts: Facts, header: bytes) -> None:
        self._facts = facts
        order, self._unit_ns, self._head = MAGICS[header[:4]]
        zone, _, snaplen, network = struct.unpack(f"{order}iIII", header[8:FILE_HEADER])
        # The upper bits of the network field tell the length of a frame check sequence.
        self._interface = Interface(network & 0xFFFF, snaplen)
        facts.interfaces.append(self._interface)
        if zone:
            facts.warn(f"the header's time zone of {zone} s is ignored: times are taken as UTC")
        self._field = np.dtype(f"{order}u4")
        limit = SANE_CAPLEN + min(snaplen, MOST_SNAPLEN)
        self._records = PcapRecords(order, self._head, limit, 1_000_000_000 // self._unit_ns)
        self._late_fractions = 0

    def take(self, data: Bytes, start: int) -> Taken:
        """Every whole record, up to one whose length cannot be true."""
        heads, end = walk(self._records, data)
        batches = [self._batch(data, part) for part in _parts(heads)]
        size = self._records.size(data, end)
        if size is None or size > 0:
            return Taken(batches, end, needs=size or 0)
        facts = self._facts
        facts.damaged = f"damaged at byte {start + end}, record {facts.packets + 1}"
        facts.warn(f"{facts.damaged}; stopped there")
        return Taken(batches, end, stop=True)

    def end(self, rest: int, start: int) -> None:
        """A record that the file ends in is reported, and not used."""
        facts = self._facts
        if rest:
            facts.damaged = f"cut inside record {facts.packets + 1} at byte {start}"
            facts.warn(f"{facts.damaged}; not used")
        elif not facts.packets and not facts.damaged:
            facts.warn("it has a capture header and no packets")
        if count := self._late_fractions:
            facts.warn(
                f"{count} record{'s have' if count > 1 else ' has'} a fraction of a second of 1 s or more; "
                f"it was added to the seconds"
            )

    @property
    def current(self) -> list[Interface]:
        """See Format."""
        return [self._interface]

    @property
    def odd(self) -> bool:
        """See Format."""
        return bool(self._late_fractions)

    def twin(self, facts: Facts) -> Pcap:
        """See Format."""
        out = copy.copy(self)
        out._facts, out._interface, out._late_fractions = facts, replace(self._interface, packets=0), 0
        facts.interfaces.append(out._interface)
        return out

    def meets(self, data: Bytes, boundary: int, like: Bytes) -> int | None:
        """See Format."""
        return meets(self._records, self._records.looks(like, 0), data, boundary)

    def _batch(self, data: Bytes, heads: Ints) -> Batch:
        head = fields(data, heads, 4, self._field)
        fraction_ns = head[:, 1] * self._unit_ns
        self._late_fractions += int(np.count_nonzero(fraction_ns >= 1_000_000_000))
        first_frame = self._facts.packets + 1
        self._facts.packets += len(heads)
        self._interface.packets += len(heads)
        return Batch(
            data=data,
            offsets=heads + self._head,
            caplens=head[:, 2],
            lengths=head[:, 3],
            t_ns=head[:, 0] * 1_000_000_000 + fraction_ns,
            link_type=self._interface.link_type,
            first_frame=first_frame,
            source=self._facts.source,
        )


def _parts(heads: Ints) -> list[Ints]:
    if not len(heads):
        return []
    rows = np.arange(len(heads)) // BATCH_ROWS + (heads - heads[0]) // BATCH_BYTES
    return np.split(heads, np.flatnonzero(np.diff(rows)) + 1)
