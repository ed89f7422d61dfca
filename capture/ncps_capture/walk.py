"""Where the records of a capture start, found in its bytes. Pure.

Knows of a record no more than how long it is.
"""

from __future__ import annotations

import struct
from typing import Protocol

import numpy as np

from ncps_capture.capfacts import Bytes, Ints


class Records(Protocol):
    """What the walk has to know of a kind of record."""

    def size(self, data: Bytes, at: int) -> int | None:
        """Bytes of the record at ``at``; 0 if it cannot be one, None if too little of it is there to tell."""


class PcapRecords:
    """Records of classic pcap: a header of ``head`` bytes, in it the captured length, at most ``limit``."""

    def __init__(self, order: str, head: int, limit: int) -> None:
        self._head = head
        self._limit = limit
        self._length_at = struct.Struct(f"{order}8xI").unpack_from

    def size(self, data: Bytes, at: int) -> int | None:
        """See Records."""
        if at + self._head > len(data):
            return None
        (caplen,) = self._length_at(data, at)
        return self._head + caplen if caplen <= self._limit else 0


def walk(records: Records, data: Bytes, at: int = 0) -> tuple[Ints, int]:
    """Starts of the records that lie whole in ``data``, from ``at`` on, and where the last of them ends (int64)."""
    found = []
    while (size := records.size(data, at)) and at + size <= len(data):
        found.append(at)
        at += size
    return np.array(found, np.int64), at
