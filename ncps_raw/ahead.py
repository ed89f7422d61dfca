"""Edge: the items of an iterator made in a process of its own, while whoever wants them works on those before.

It must not know what the items are. The one idea: an iterator whose items can be pickled does not show where it runs,
so a long reading takes two cores without either side knowing; columns travel as the bytes they are.
"""

from __future__ import annotations

import gc
import os
import pickle
import signal
import struct
import sys
import warnings
from collections.abc import Iterator
from contextlib import suppress
from typing import IO, Any, Final, TypeVar

from ncps_capture.errors import NcpsError

T = TypeVar("T")

_PIPE_BYTES: Final = 1 << 20
"""As much as anybody may ask for: some batches of segments, so that neither side waits for the other's pace."""
_ITEM, _END, _ERROR = b"i", b"e", b"x"
_HEAD: Final = struct.Struct("<cII")  # what follows, its pickled bytes, how many buffers


def possible() -> bool:
    """Whether another process can be had for nothing: this one's copy, on a core of its own."""
    return sys.platform == "linux" and len(os.sched_getaffinity(0)) > 1


def ahead(items: Iterator[T]) -> Iterator[T]:
    """The same items. What was not begun must not be used here otherwise; it ends with this iterator.

    An NcpsError of the other process is raised here; one that ends otherwise is an NcpsError too.
    """
    ours, theirs = os.pipe()
    # A Ctrl-C is for the parent, whose end ends the child too; one between fork and that word would reach both.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT,))
    try:
        with warnings.catch_warnings():
            # Python 3.12 warns of forking beside threads: here those of numpy's linear algebra, which are idle.
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = _fork()
        if pid == 0:
            os.close(ours)
            _child(items, theirs)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    os.close(theirs)
    if pid is None:
        os.close(ours)
        yield from items
        return
    done = False
    try:
        with os.fdopen(ours, "rb", _PIPE_BYTES) as pipe:
            while True:
                kind, item = _receive(pipe)
                if kind == _ERROR:
                    raise item
                if kind == _END:
                    done = True
                    return
                yield item
    finally:
        if not done:
            os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _fork() -> int | None:
    try:
        return os.fork()
    except OSError:  # no more processes for this user: what was to be done there can be done here
        return None


def _child(items: Iterator[Any], descriptor: int) -> None:
    """Send everything and end, whatever happens: nothing of the parent's is closed, flushed or undone here."""
    code = 1
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        gc.freeze()  # what came with the fork stays shared
        _send_all(items, descriptor)
        code = 0
    finally:
        os._exit(code)


def _send_all(items: Iterator[Any], descriptor: int) -> None:
    import fcntl

    with suppress(OSError):  # more than this user may have
        fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
    with suppress(BrokenPipeError), os.fdopen(descriptor, "wb") as pipe:
        try:
            for item in items:
                _send(pipe, _ITEM, item)
        except BrokenPipeError:
            raise
        except NcpsError as error:
            _send(pipe, _ERROR, error)
        except Exception as error:
            _send(pipe, _ERROR, NcpsError(f"cannot go on: {type(error).__name__}: {' '.join(str(error).split())}"))
        else:
            _send(pipe, _END, None)


def _send(pipe: IO[bytes], kind: bytes, item: object) -> None:
    buffers: list[pickle.PickleBuffer] = []
    pickled = pickle.dumps(item, protocol=5, buffer_callback=buffers.append)
    pipe.write(_HEAD.pack(kind, len(pickled), len(buffers)))
    pipe.write(pickled)
    for buffer in buffers:
        raw = buffer.raw()
        pipe.write(struct.pack("<Q", len(raw)))
        pipe.write(raw)
    pipe.flush()


def _receive(pipe: IO[bytes]) -> tuple[bytes, Any]:
    kind, size, count = _HEAD.unpack(_exactly(pipe, _HEAD.size))
    pickled = _exactly(pipe, size)
    buffers = [_exactly(pipe, struct.unpack("<Q", _exactly(pipe, 8))[0]) for _ in range(count)]
    return kind, pickle.loads(pickled, buffers=buffers)


def _exactly(pipe: IO[bytes], size: int) -> bytearray:
    data = bytearray(size)
    view, filled = memoryview(data), 0
    while filled < size:
        count = pipe.readinto(view[filled:])  # type: ignore[attr-defined]
        if not count:
            raise NcpsError("the process that reads the capture was ended; run this again")
        filled += count
    return data
