"""Rounds that wait long for an answer, set aside so that a tick costs what is new and not what is old. Pure.

It must not know definitions. The one idea: as long as no segment of a tuple comes, its rows stay what they were; so
thousands of SYNs into a black hole are looked at again only when their tuple is heard of, or their time is up.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ncps_capture.attempts import Settled
from ncps_capture.rows import join, pick
from ncps_capture.segments import HANDSHAKE, SEGMENT, Handshakes, Segments
from ncps_capture.tuples import Words

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


class Waiting:
    """Whole tuples, each with its segments and rows; sorted by the hash of the tuple."""

    def __init__(self) -> None:
        self._segments = np.zeros(0, SEGMENT)
        self._order_ns: Ints = np.zeros(0, np.int64)
        self._hashes: Words = np.zeros(0, np.uint64)
        self._owner: Ints = np.zeros(0, np.int64)
        self._ready_ns: Ints = np.zeros(0, np.int64)
        self.rows: Handshakes = np.zeros(0, HANDSHAKE)

    def __len__(self) -> int:
        """Segments that wait."""
        return len(self._segments)

    def put(self, segments: Segments, order_ns: Ints, hashes: Words, settled: Settled) -> None:
        """Set segments and their rows aside; every segment has an owner, and no other segment is on these tuples."""
        all_hashes = np.concatenate((self._hashes, hashes))
        order = np.argsort(all_hashes, kind="stable")
        self._hashes = all_hashes[order]
        self._segments = pick(join((self._segments, segments)), order)
        self._order_ns = np.concatenate((self._order_ns, order_ns))[order]
        self._owner = np.concatenate((self._owner, settled.owner + len(self.rows)))[order]
        self._ready_ns = np.concatenate((self._ready_ns, settled.ready_ns))
        self.rows = join((self.rows, settled.rows))

    def take(self, hashes: Words) -> tuple[Segments, Ints]:
        """Segments and order times of the tuples with one of these hashes; they wait here no longer."""
        if not len(self._hashes):
            return self._segments, self._order_ns
        asked = np.unique(hashes)
        low = np.searchsorted(self._hashes, asked)
        high = np.searchsorted(self._hashes, asked, side="right")
        if np.array_equal(low, high):
            return self._segments[:0], self._order_ns[:0]
        # +1 where a run begins and -1 where it ends: their sum marks the runs.
        edges = np.zeros(len(self._hashes) + 1, np.int64)
        np.add.at(edges, low, 1)
        np.add.at(edges, high, -1)
        chosen = np.cumsum(edges[:-1]) > 0
        segments, order_ns = pick(self._segments, chosen), self._order_ns[chosen]
        gone = np.zeros(len(self.rows), np.bool_)
        gone[self._owner[chosen]] = True
        self._drop(gone)
        return segments, order_ns

    def expire(self, horizon_ns: int) -> Handshakes:
        """Rows that nothing can change once the capture's time has passed ``horizon_ns``."""
        over = self._ready_ns < horizon_ns
        rows = pick(self.rows, over)
        if len(rows):
            self._drop(over)
        return rows

    def _drop(self, gone: Bools) -> None:
        keep = ~gone[self._owner]
        place = np.cumsum(~gone) - 1
        self._segments, self._order_ns = pick(self._segments, keep), self._order_ns[keep]
        self._hashes, self._owner = self._hashes[keep], place[self._owner[keep]]
        self.rows, self._ready_ns = pick(self.rows, ~gone), self._ready_ns[~gone]
