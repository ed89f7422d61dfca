"""Segments that wait long for something to come, set aside so that a tick costs what is new and not what is old. Pure.

It must not know definitions. The one idea: as long as no segment of a tuple comes, its rows stay what they were; so
thousands of SYNs into a black hole are looked at again only when their tuple is heard of, or their time is up. They lie
in sorted blocks, of which neighbours of like size are merged up to a limit: each segment is moved some ten times in
all, however many wait, and no tick moves more than a block.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt

from ncps_capture.rows import distinct, join, pick
from ncps_capture.segments import SEGMENT, Segments
from ncps_capture.tuples import Words

Ints = npt.NDArray[np.int64]

BLOCK: Final = 1 << 17
"""Segments of the largest block. Looking for new tuples costs a glance at each block, merging one costs its copy."""
_BEGINNING: Final = 20
"""Bits by which a hash is looked up before it is searched: seven of eight that a full block has not got end here."""


class _Block:
    """Segments in the order of their hashes; those that were taken stay as gaps until half of them are."""

    def __init__(self, segments: Segments, order_ns: Ints, hashes: Words, ready_ns: Ints) -> None:
        order = np.argsort(hashes, kind="stable")
        self.segments = pick(segments, order)
        self.order_ns, self.hashes, self.ready_ns = order_ns[order], hashes[order], ready_ns[order]
        self.here = np.ones(len(hashes), np.bool_)
        self.left = len(hashes)
        self.soonest_ns = int(ready_ns.min())  # or earlier, once some were taken
        self._begin = np.zeros(1 << _BEGINNING, np.bool_)
        self._begin[_beginnings(self.hashes)] = True

    def take(self, asked: Words, beginnings: Words) -> Ints:
        """Indices of the segments with one of these sorted hashes, which are gaps from now on."""
        asked = asked[self._begin[beginnings]]
        low = np.searchsorted(self.hashes, asked)
        hit = self.hashes[np.minimum(low, len(self.hashes) - 1)] == asked  # mostly none, in most blocks
        low = low[hit]
        runs = np.searchsorted(self.hashes, asked[hit], side="right") - low
        found = np.repeat(low - np.cumsum(runs) + runs, runs) + np.arange(int(runs.sum()))
        found = found[self.here[found]]
        self.here[found] = False
        self.left -= len(found)
        return found

    def overdue(self, horizon_ns: int) -> Words:
        """Hashes of the segments whose time is up."""
        if self.soonest_ns >= horizon_ns:
            return self.hashes[:0]
        over = self.here & (self.ready_ns < horizon_ns)
        hashes = self.hashes[over]
        if not len(hashes):
            self.soonest_ns = int(self.ready_ns[self.here].min())
        return hashes


class Waiting:
    """Whole tuples with all their segments."""

    def __init__(self) -> None:
        self._blocks: list[_Block] = []

    def __len__(self) -> int:
        """Segments that wait."""
        return sum(block.left for block in self._blocks)

    def put(self, segments: Segments, order_ns: Ints, hashes: Words, ready_ns: Ints) -> None:
        """Set segments aside, at least one; no other segment is on their tuples.

        ``order_ns``, ``hashes``: of each segment; ``ready_ns``: when its time is up.
        """
        self._blocks.append(_Block(segments, order_ns, hashes, ready_ns))
        while len(self._blocks) > 1:
            former, latter = self._blocks[-2:]
            if former.left > 2 * latter.left or former.left + latter.left > BLOCK:
                break
            self._blocks[-2:] = [_merged([former, latter])]

    def overdue(self, horizon_ns: int) -> Words:
        """Hashes of the tuples of which some segment's time is up once the capture's time has passed ``horizon_ns``."""
        return np.concatenate([np.zeros(0, np.uint64), *(block.overdue(horizon_ns) for block in self._blocks)])

    def take(self, hashes: Words) -> tuple[Segments, Ints]:
        """Segments and order times of the tuples with one of these hashes; they wait here no longer."""
        asked = distinct(hashes)
        beginnings = _beginnings(asked)
        segments, order_ns = [np.zeros(0, SEGMENT)], [np.zeros(0, np.int64)]
        for i, block in enumerate(self._blocks):
            found = block.take(asked, beginnings)
            if len(found):
                segments.append(pick(block.segments, found))
                order_ns.append(block.order_ns[found])
                if 0 < block.left < len(block.here) // 2:
                    self._blocks[i] = _merged([block])
        self._blocks = [block for block in self._blocks if block.left]
        return join(segments), np.concatenate(order_ns)

    def take_oldest(self) -> tuple[Segments, Ints]:
        """The block that was set aside first, whole tuples; there must be one."""
        block = _merged([self._blocks.pop(0)])
        return block.segments, block.order_ns

    def take_all(self) -> Iterator[tuple[Segments, Ints]]:
        """Everything that waits, whole tuples at a time; nothing does any longer."""
        while self._blocks:
            block = _merged([self._blocks.pop()])
            yield block.segments, block.order_ns


def _beginnings(hashes: Words) -> Words:
    return hashes >> np.uint64(64 - _BEGINNING)


def _merged(blocks: list[_Block]) -> _Block:
    return _Block(
        join([pick(block.segments, block.here) for block in blocks]),
        np.concatenate([block.order_ns[block.here] for block in blocks]),
        np.concatenate([block.hashes[block.here] for block in blocks]),
        np.concatenate([block.ready_ns[block.here] for block in blocks]),
    )
