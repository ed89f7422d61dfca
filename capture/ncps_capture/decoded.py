"""A saved capture, or several as one, as a stream of decoded pieces in file order (edge).

It must not know what becomes of the segments. The one idea: one file that lies there plainly is read by several
processes where that pays, and every other by this one, and the pieces do not tell which it was.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from ncps_capture.acks import AckWatch
from ncps_capture.capfile import CHUNK_BYTES, CaptureFile
from ncps_capture.decode import decode
from ncps_capture.rows import join, pick
from ncps_capture.segments import SEGMENT, Batch, Books, Segments
from ncps_capture.stretches import STRETCH_BYTES, Stretch, StretchReader, Times

if TYPE_CHECKING:
    from ncps_capture.merged import MergedCapture

_MOST_WORKERS: Final = 4
"""As many as the one process that takes the stretches can keep busy."""
_WORTH: Final = 6  # stretches, from which on processes are begun


@dataclass(frozen=True)
class Piece:
    """Some frames, one behind the other."""

    segments: Segments  # SYN, RST, ICMP errors, and of the ACKs those that matter, or all
    books: Books
    times: Times | None  # None if no frame has a time
    source: int


def pieces(
    capture: CaptureFile | MergedCapture,
    every_ack: Callable[[], bool],
    workers: int | None = None,
    stretch_bytes: int = STRETCH_BYTES,
    chunk_bytes: int = CHUNK_BYTES,
) -> Iterator[Piece]:
    """All of ``capture``. ``every_ack``: whether from here on all ACKs are wanted, not only those that matter.

    ``workers``: processes to read with at most; default: as many as pay. FileFault as from ``batches``.
    """
    watches: dict[int, AckWatch] = {}
    if isinstance(capture, CaptureFile):
        with closing(capture):
            yield from _plainly(capture.batches(chunk_bytes, lambda: not every_ack()), every_ack, watches)
            yield from _ahead(capture, watches, workers, stretch_bytes)
            if not capture.ended:
                yield from _plainly(capture.batches(chunk_bytes), every_ack, watches)
    else:
        yield from _plainly(capture.batches(chunk_bytes), every_ack, watches)


def _plainly(batches: Iterator[Batch], every_ack: Callable[[], bool], watches: dict[int, AckWatch]) -> Iterator[Piece]:
    for batch in batches:
        watch = watches.setdefault(batch.source, AckWatch())
        segments, books = decode(batch, every_ack(), tunnels=True, acks=watch)
        t_ns = batch.t_ns
        yield Piece(
            segments, books, (int(t_ns[0]), int(t_ns[-1]), int(t_ns.max())) if len(t_ns) else None, batch.source
        )


def _ahead(
    capture: CaptureFile, watches: dict[int, AckWatch], workers: int | None, stretch_bytes: int
) -> Iterator[Piece]:
    size = capture.size
    reader = None if size is None else capture.stretch_reader()
    if size is None or reader is None:
        return
    if workers is None:
        workers = useful_workers(size - capture.position, stretch_bytes)
    if not workers:
        return
    from ncps_capture.ahead import read_ahead  # and with it all of multiprocessing, which few readings need

    watch = watches.setdefault(capture.source, AckWatch())
    for stretch in read_ahead(reader, capture.position, size, workers, stretch_bytes):
        if stretch is None:
            yield Piece(np.zeros(0, SEGMENT), Books(), None, capture.source)
            continue
        before = capture.packets
        capture.skip(stretch)
        yield Piece(_segments(reader, stretch, watch, before), stretch.books, stretch.times, capture.source)


def useful_workers(size: int, stretch_bytes: int = STRETCH_BYTES) -> int:
    """How many processes are worth beginning for so many bytes on this machine; 0 if none."""
    if size < _WORTH * stretch_bytes or not sys.platform.startswith("linux"):
        return 0
    if sum(1 for _ in Path("/proc/self/task").iterdir()) > 1:
        return 0  # forking is safe only where no thread can be in the middle of something
    cores = len(os.sched_getaffinity(0))
    return min(cores, _MOST_WORKERS) if cores > 1 else 0


def _segments(reader: StretchReader, stretch: Stretch, watch: AckWatch, before: int) -> Segments:
    """The segments with the ACKs that stretches before this one await, and the numbers frames have in the file."""
    segments = stretch.segments
    if watch.waits:
        acks = _awaited(reader, stretch, watch)
        if len(acks):
            segments = join([segments, pick(acks, ~np.isin(acks["frame"], segments["frame"]))])
            segments = pick(segments, np.argsort(segments["frame"], kind="stable"))
        watch.answered(stretch.segments)
    watch.go_on_with(stretch.awaited)
    segments["frame"] += before
    return segments


def _awaited(reader: StretchReader, stretch: Stretch, watch: AckWatch) -> Segments:
    watch.expect(np.zeros(0, SEGMENT))
    some = watch.may_matter(stretch.acks.words, stretch.acks.ports, np.zeros(0, np.int64))
    parts = [decode(batch, True, tunnels=True)[0] for batch in reader.frames(stretch, stretch.acks.rows[some])]
    found = join(parts) if parts else np.zeros(0, SEGMENT)
    found = pick(found, np.argsort(found["frame"], kind="stable"))
    now_ns = stretch.times[2] if stretch.times else 0
    return pick(found, watch.choose(found, now_ns))
