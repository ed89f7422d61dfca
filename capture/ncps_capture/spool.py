"""Files of rows of one fixed numpy dtype: how processes hand over what is too much for memory or a pipe (edge).

One idea: append only, and a header that is a pure function of the dtype. A row is either whole or ignored, so a
writer may be killed at any moment and what it had flushed is still good; and a file of other columns is refused
by comparing bytes, before a single wrong number is computed. Knows nothing of handshakes or connections.
"""

from __future__ import annotations

import errno
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt

from ncps_capture.errors import FileFault

Rows = npt.NDArray[Any]

_MAGIC: Final = b"ncps spool 1\n"
_ALIGN: Final = 64  # rows start on a cache line, whatever the length of the dtype's description
_BUFFER_BYTES: Final = 1 << 18
CHUNK_ROWS: Final = 1 << 16


class SpoolWriter:
    """Appends rows of ``dtype`` to a new file; an existing file is replaced.

    Rows are in the file for other processes after ``flush``. After a failed write the writer refuses to go on:
    the file may end inside a row, and rows appended behind that would all be shifted.
    """

    def __init__(self, path: str | Path, dtype: np.dtype[Any]) -> None:
        self.path = Path(path)
        self.dtype = dtype
        self.rows = 0
        self._fault: FileFault | None = None
        try:
            self._file = self.path.open("wb", buffering=_BUFFER_BYTES)
        except OSError as error:
            raise _cannot("create", self.path, error) from error
        try:
            self._write(_header(dtype))
            self.flush()  # from here on the file is a spool, if one without rows
        except FileFault:
            self._discard()
            raise

    def append(self, rows: Rows) -> None:
        """Append an array of ``dtype``. Raises FileFault when the file cannot take it."""
        if rows.dtype != self.dtype:
            raise ValueError(f"rows of another dtype for {self.path}: {rows.dtype}")
        if rows.size:
            self._write(np.ascontiguousarray(rows).view(np.uint8).data)
            self.rows += rows.size

    def append_bytes(self, buffer: bytes | bytearray | memoryview) -> None:
        """Append whole rows that the caller has packed itself, in the dtype's byte layout."""
        count, rest = divmod(memoryview(buffer).nbytes, self.dtype.itemsize)
        if rest:
            raise ValueError(f"{rest} bytes more than whole rows of {self.dtype.itemsize} for {self.path}")
        self._write(buffer)
        self.rows += count

    def flush(self) -> None:
        """Hand everything appended to the operating system, so that it outlives this process."""
        if self._fault is not None:
            raise self._fault
        try:
            self._file.flush()
        except OSError as error:
            raise self._broken(error) from error

    def close(self) -> None:
        """Flush and close; closing twice is allowed. Raises FileFault if rows could not be written."""
        try:
            self._file.close()
        except OSError as error:
            raise self._broken(error) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _write(self, buffer: bytes | bytearray | memoryview) -> None:
        if self._fault is not None:
            raise self._fault
        try:
            self._file.write(buffer)
        except OSError as error:
            raise self._broken(error) from error

    def _discard(self) -> None:
        with suppress(OSError):  # closing flushes once more, and fails once more
            self._file.close()

    def _broken(self, error: OSError) -> FileFault:
        self._fault = _cannot("write", self.path, error)
        return self._fault


def read_spool(path: str | Path, dtype: np.dtype[Any]) -> Rows:
    """All whole rows of a spool, as a read-only map of the file (no copy). FileFault for any other file."""
    start, count = _measure(Path(path), dtype)
    if count == 0:
        return np.empty(0, dtype)  # an empty range cannot be mapped
    return np.memmap(path, dtype=dtype, mode="r", offset=start, shape=(count,)).view(np.ndarray)


def iter_spool(path: str | Path, dtype: np.dtype[Any], chunk_rows: int = CHUNK_ROWS) -> Iterator[Rows]:
    """The whole rows of a spool in order, in arrays of at most ``chunk_rows`` that belong to the caller."""
    path = Path(path)
    start, left = _measure(path, dtype)
    with path.open("rb") as file:
        file.seek(start)
        while left:
            rows = np.fromfile(file, dtype, min(chunk_rows, left))
            if rows.size == 0:
                raise FileFault(f"cannot read {path}: it became shorter while it was read")
            left -= rows.size
            yield rows


def partition(
    paths: Sequence[str | Path],
    dtype: np.dtype[Any],
    key: Callable[[Rows], npt.NDArray[np.uint64]],
    parts: int,
    out_dir: str | Path,
) -> list[str]:
    """Distribute the rows of ``paths`` over ``parts`` new spools ``part-0000.spool`` ... in ``out_dir``.

    Row r goes to part ``key(r) % parts`` and keeps its order there. Two partitions by equal keys can then be
    joined part by part: memory is bounded by the largest part and one chunk, whatever the length of the run.
    Returns the paths of the parts, empty parts included. One file is open for every part.
    """
    names = [Path(out_dir) / f"part-{number:04d}.spool" for number in range(parts)]
    with ExitStack() as stack:
        writers = [stack.enter_context(SpoolWriter(name, dtype)) for name in names]
        for path in paths:
            for rows in iter_spool(path, dtype):
                part = key(rows) % np.uint64(parts)
                order = np.argsort(part, kind="stable")
                ends = np.cumsum(np.bincount(part.astype(np.int64), minlength=parts))
                for writer, mine in zip(writers, np.split(rows[order], ends[:-1]), strict=True):
                    writer.append(mine)
    return [str(name) for name in names]


def _header(dtype: np.dtype[Any]) -> bytes:
    text = _MAGIC + json.dumps(dtype.descr).encode()
    return text.ljust(-(-(len(text) + 1) // _ALIGN) * _ALIGN - 1) + b"\n"


def _measure(path: Path, dtype: np.dtype[Any]) -> tuple[int, int]:
    """Check the header of a spool; where its rows start (bytes) and how many are whole."""
    wanted = _header(dtype)
    try:
        with path.open("rb") as file:
            found = file.read(len(wanted))
            size = file.seek(0, 2)
    except OSError as error:
        raise _cannot("read", path, error) from error
    if not found.startswith(_MAGIC):
        raise FileFault(f"cannot read {path}: it is not a spool of this program")
    if found != wanted:
        raise FileFault(f"cannot read {path}: its rows have other columns; it was written by another version")
    return len(wanted), (size - len(wanted)) // dtype.itemsize


def _cannot(verb: str, path: Path, error: OSError) -> FileFault:
    advice = "; set TMPDIR to a folder with more room" if error.errno in (errno.ENOSPC, errno.EDQUOT) else ""
    return FileFault(f"cannot {verb} {path}: {error.strerror or error}{advice}")
