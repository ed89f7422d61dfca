"""Stretches of one saved capture, read ahead by processes of their own. Edge: processes, pipes, shared memory.

It must not know what a stretch holds beyond its arrays. The one idea: the order of the stretches is kept here, so
that whoever takes them does not see that they were read at the same time. A worker gets the place of its next stretch
before it has finished the one before, and leaves what it found in memory that both share. Nothing depends on a worker:
a stretch that does not fit, or did not begin where the one before ended, is read here again, and where workers are
gone, the stretches end early.
"""

from __future__ import annotations

import mmap
import multiprocessing
import signal
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ncps_capture.stretches import STRETCH_BYTES, Stretch, StretchReader

_SLOT_BYTES: Final = 2 * STRETCH_BYTES
"""More than the rows of the shortest packets there are; of what is not used there is no memory."""
_PATIENCE_S: Final = 0.2
_SLOTS: Final = 2  # a worker: one to fill, one that is being emptied


def read_ahead(
    reader: StretchReader, begin: int, size: int, workers: int, stretch_bytes: int = STRETCH_BYTES
) -> Iterator[Stretch | None]:
    """Stretches one behind the other from byte ``begin`` of a file of ``size`` bytes, at which a record starts.

    They end before the last bytes, and before anything that makes no stretch. None: there is none yet, for a while, so
    that whoever waits can leave.
    """
    places = range(begin, size - stretch_bytes + 1, stretch_bytes)
    expected = begin
    # What is caught is a system without room for processes, a worker that is gone, or a file that cannot be read: which
    # of them, and whether it matters, a plain reading will say.
    with suppress(OSError, EOFError), closing(_Pool(reader, min(workers, len(places)), stretch_bytes)) as pool:
        for number in range(min(pool.depth, len(places))):
            pool.order(number, places[number])
        for number, place in enumerate(places):
            while not pool.ready(number):
                yield None
            stretch = pool.answer(number)
            if number + pool.depth < len(places):
                pool.order(number + pool.depth, places[number + pool.depth])
            if stretch is None or stretch.start != expected:
                stretch = reader.read(expected, place + stretch_bytes, exact=True)
            if stretch is None:
                return
            expected = stretch.end
            yield stretch


class _Pool:
    """The workers. Stretch ``number`` is read by worker ``number`` modulo how many there are."""

    def __init__(self, reader: StretchReader, count: int, stretch_bytes: int) -> None:
        self.depth = count * _SLOTS
        self._bytes = stretch_bytes
        self._memory = mmap.mmap(-1, self.depth * _SLOT_BYTES)
        context = multiprocessing.get_context("fork")
        pipes = [context.Pipe() for _ in range(count)]
        self._pipes = [ours for ours, _ in pipes]
        self._processes: list[BaseProcess] = []
        try:
            for number, (_, theirs) in enumerate(pipes):
                others = [pipe for pair in pipes for pipe in pair if pipe is not theirs]
                process = context.Process(
                    target=_work, args=(reader, theirs, others, self._memory), daemon=True, name=f"reader {number}"
                )
                process.start()
                self._processes.append(process)
        except OSError:
            self.close()
            raise
        finally:
            for _, theirs in pipes:
                theirs.close()

    def order(self, number: int, begin: int) -> None:
        self._pipes[number % len(self._pipes)].send((begin, begin + self._bytes, self._slot(number)))

    def ready(self, number: int) -> bool:
        """Whether there is an answer, or will never be one; waits for it a little."""
        return self._pipes[number % len(self._pipes)].poll(_PATIENCE_S)

    def answer(self, number: int) -> Stretch | None:
        said: tuple[Stretch, tuple[int, ...]] | None = self._pipes[number % len(self._pipes)].recv()
        if said is None:
            return None
        stretch, counts = said
        return _taken(stretch, counts, self._memory, self._slot(number))

    def _slot(self, number: int) -> int:
        return number % self.depth * _SLOT_BYTES

    def close(self) -> None:
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.join()
            process.close()
        for pipe in self._pipes:
            pipe.close()
        self._memory.close()


def _work(reader: StretchReader, pipe: Connection, others: Sequence[Connection], memory: mmap.mmap) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever asked for the stretches decides when to end
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for other in others:
        other.close()  # or a parent that was killed would not be missed
    with suppress(EOFError, OSError):
        while True:
            begin, end, slot = pipe.recv()
            pipe.send(_read(reader, begin, end, memory, slot))


def _read(
    reader: StretchReader, begin: int, end: int, memory: mmap.mmap, slot: int
) -> tuple[Stretch, tuple[int, ...]] | None:
    try:
        stretch = reader.read(begin, end)
    except (OSError, MemoryError):
        return None
    if stretch is None:
        return None
    arrays = _arrays(stretch)
    if sum(array.nbytes for array in arrays) > _SLOT_BYTES:
        return None
    for array in arrays:
        room = _opaque(array.dtype, len(array), memory, slot)
        room[:] = array.view(room.dtype)
        slot += array.nbytes
    return _filled(stretch, [array[:0] for array in arrays]), tuple(len(array) for array in arrays)


def _taken(stretch: Stretch, counts: tuple[int, ...], memory: mmap.mmap, slot: int) -> Stretch:
    arrays = []
    for empty, count in zip(_arrays(stretch), counts, strict=True):
        arrays.append(_opaque(empty.dtype, count, memory, slot).copy().view(empty.dtype))
        slot += arrays[-1].nbytes
    return _filled(stretch, arrays)


def _opaque(kind: np.dtype[Any], count: int, memory: mmap.mmap, at: int) -> npt.NDArray[np.void]:
    """Rows to be copied as what they are, which costs a small part of a copy field by field."""
    return np.ndarray((count,), np.dtype((np.void, kind.itemsize)), memory, at)


def _arrays(stretch: Stretch) -> list[Any]:
    return [stretch.segments, *(array for part in _parts(stretch) for array in vars(part).values())]


def _filled(stretch: Stretch, arrays: Sequence[Any]) -> Stretch:
    """The stretch with other arrays, given in the order of ``_arrays``."""
    rest = iter(arrays)
    segments = next(rest)
    frames, acks, awaited = (replace(part, **{name: next(rest) for name in vars(part)}) for part in _parts(stretch))
    return replace(stretch, segments=segments, frames=frames, acks=acks, awaited=awaited)


def _parts(stretch: Stretch) -> tuple[Any, Any, Any]:
    return stretch.frames, stretch.acks, stretch.awaited
