"""Handshake rows of a capture of any length, kept until the whole of it was read (edge).

It must not know what is counted of them. The one idea: as long as they are few they stay in memory; more are
cut into parts by the hash of their four-tuple, from a limit on on disk, so that what belongs together is merged and
counted part by part and ten million unanswered SYNs need no more memory than a hundred thousand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import numpy as np
from ncps_capture.merge import merge_rows
from ncps_capture.rows import join, pick
from ncps_capture.segments import HANDSHAKE, Handshakes
from ncps_capture.spool import SpoolWriter, read_spool
from ncps_capture.tuples import hashes_of_handshakes

MOST_ROWS: Final = 600_000
"""Rows kept in memory, 113 MB of them."""
PARTS: Final = 64
"""Files open at once, well below the usual limit of 1024; of ten million rows a part has 30 MB."""
TOGETHER: Final = 65_536
"""Rows cut, and merged, at once: as many as the cache holds, and enough that the calls cost nothing beside them."""


class RowStore:
    """Takes rows as the handshake table hands them out; gives them back merged, part by part.

    ``folder`` is asked for a folder when it is needed; what is put there is left to whoever made it.
    """

    def __init__(
        self,
        folder: Callable[[], str],
        most_rows: int = MOST_ROWS,
        parts: int = PARTS,
        together: int = TOGETHER,
    ) -> None:
        self._make_folder = folder
        self._most, self._together = most_rows, min(together, most_rows)
        self._new: list[Handshakes] = []  # not cut yet
        self._cut: list[list[Handshakes]] = [[] for _ in range(parts)]
        self._new_n = self._cut_n = 0
        self._folder: str | None = None
        self._writers: list[SpoolWriter] = []

    def add(self, rows: Handshakes) -> None:
        """Keep rows. FileFault if the disk cannot take them."""
        if not len(rows):
            return
        self._new.append(rows)
        self._new_n += len(rows)
        full = self._cut_n + self._new_n >= self._most
        if full or self._new_n >= self._together:
            self._cut_new()
        if full:
            self._spill()

    def parts(self) -> Iterator[Handshakes]:
        """One row an attempt (``merge_rows``), all rows of a four-tuple in one part; may be asked for again."""
        if self._in_one:
            self._new = [join(self._new)] if self._new else [np.zeros(0, HANDSHAKE)]
            yield merge_rows(self._new[0])
            return
        self._cut_new()
        if self._writers:
            self._spill()
            for writer in self._writers:
                writer.flush()
                yield merge_rows(np.array(read_spool(writer.path, HANDSHAKE)))
            return
        some: list[Handshakes] = []
        for part in self._cut:
            some += part
            if sum(map(len, some)) >= self._together:
                yield merge_rows(join(some))
                some = []
        if some:
            yield merge_rows(join(some))

    def in_order(self, parts: Iterator[Handshakes], chunk_rows: int = 65_536) -> Iterator[Handshakes]:
        """The rows of ``parts``, merged ones, in order of time over all parts, in arrays of at most ``chunk_rows``."""
        if self._in_one:
            yield from parts
            return
        path = Path(self._temporary(), "ordered.spool")
        keys = []
        with SpoolWriter(path, HANDSHAKE) as writer:
            for rows in parts:
                writer.append(rows)
                keys.append(pick_keys(rows))
        whole = np.concatenate(keys)
        order = np.lexsort((whole["frame"], whole["source"], whole["t_order_ns"]))
        rows = read_spool(path, HANDSHAKE)
        for start in range(0, len(order), chunk_rows):
            yield pick(rows, order[start : start + chunk_rows])

    def close(self) -> None:
        """Close the files."""
        for writer in self._writers:
            writer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def _in_one(self) -> bool:
        """Whether there is but one part, which is in order by itself."""
        return not self._cut_n and not self._writers

    def _temporary(self) -> str:
        if self._folder is None:
            self._folder = self._make_folder()
        return self._folder

    def _spill(self) -> None:
        if not self._writers:
            folder = self._temporary()
            self._writers = [SpoolWriter(Path(folder, f"part-{n:02d}.spool"), HANDSHAKE) for n in range(len(self._cut))]
        for writer, part in zip(self._writers, self._cut, strict=True):
            for rows in part:
                writer.append(rows)
            part.clear()
        self._cut_n = 0

    def _cut_new(self) -> None:
        if not self._new_n:
            return
        rows = join(self._new)
        # By the upper bits: the lower ones of a product know only those of its factors, as the same port in all.
        half = np.uint64(32)
        part = (hashes_of_handshakes(rows) >> half) * np.uint64(len(self._cut)) >> half
        rows = pick(rows, np.argsort(part, kind="stable"))
        ends = np.cumsum(np.bincount(part.astype(np.int64), minlength=len(self._cut)))
        for held, mine in zip(self._cut, np.split(rows, ends[:-1]), strict=True):
            held.append(mine)
        self._cut_n += self._new_n
        self._new, self._new_n = [], 0


def pick_keys(rows: Handshakes) -> Handshakes:
    """What puts rows in order: ``t_order_ns``, ``source`` and ``frame``, as a small array of their own."""
    out = np.empty(len(rows), [("t_order_ns", "<i8"), ("frame", "<i8"), ("source", "<u2")])
    for name in out.dtype.names or ():
        out[name] = rows[name]
    return out
