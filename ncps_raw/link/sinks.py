"""Edge: where the bytes that are received go.

The one idea: a sink is one verb, ``take``: move at most so many bytes out of the socket, say how many, 0 at the peer's
end. What is discarded is never copied where the kernel can drop it (``MSG_TRUNC``); what is kept goes by splice.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import stat
import sys
from typing import Final, Protocol

from ncps_capture.errors import FileFault

from ncps_raw.link.plan import STREAM, LinkPlan

_TRUNC_ROOM: Final = 1 << 24
COPY_BLOCK: Final = 1 << 16  # larger ones leave the processor's cache and are slower
_PIPE: Final = 1 << 20
_NOT_HERE: Final = (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSOCK)


class Sink(Protocol):
    """``take`` moves up to ``most`` bytes; 0 = the peer has ended."""

    @property
    def way(self) -> str:
        """What moves the bytes, in words."""

    def take(self, sock: socket.socket, most: int) -> int:
        """Take; raises OSError of the connection, FileFault of the sink."""

    def until_lasting(self) -> None:
        """A file counts as finished when it is on the device."""

    def finish(self) -> bool:
        """All has been taken: make it lasting if that was asked for; whether it was."""

    def close(self) -> None:
        """Let go of what is open."""


class Discard:
    """Nothing is kept."""

    def __init__(self, copy: bool) -> None:
        self._flags = 0
        self.way = "recv, discarded"
        if not copy and sys.platform == "linux":
            import mmap

            # Never written to, so it takes no memory.
            self._room = memoryview(mmap.mmap(-1, _TRUNC_ROOM))
            self._flags = socket.MSG_TRUNC
            self.way = "MSG_TRUNC, discarded in the kernel"
        else:
            self._room = memoryview(bytearray(COPY_BLOCK))
        self._most = len(self._room)

    def take(self, sock: socket.socket, most: int) -> int:
        """See Sink."""
        return sock.recv_into(self._room, min(most, self._most), self._flags)

    def until_lasting(self) -> None:
        """See Sink."""

    def finish(self) -> bool:
        """See Sink."""
        return False

    def close(self) -> None:
        """See Sink."""


class Descriptor:
    """A file or standard output."""

    def __init__(self, file: int, name: str, copy: bool, own: bool, fsync: bool = False) -> None:
        self._file = file
        self._name = name
        self._own = own
        self._fsync = fsync
        self._room = memoryview(bytearray(COPY_BLOCK))
        self._pipe: tuple[int, int] | None = None
        mode = os.fstat(file).st_mode
        self._direct = stat.S_ISFIFO(mode)
        self._regular = own and stat.S_ISREG(mode)
        self._fresh = self._regular
        self._splices = not copy and hasattr(os, "splice") and (self._direct or stat.S_ISREG(mode))
        if self._splices and not self._direct:
            self._pipe = os.pipe()
            with contextlib.suppress(OSError):
                import fcntl

                fcntl.fcntl(self._pipe[1], fcntl.F_SETPIPE_SZ, _PIPE)

    @property
    def way(self) -> str:
        """See Sink."""
        return f"{'splice' if self._splices else 'recv and write'} to {self._name}"

    def take(self, sock: socket.socket, most: int) -> int:
        """See Sink."""
        if self._fresh:
            # Not before somebody has come: what was in the file outlives a run that nobody answered.
            self._fresh = False
            os.ftruncate(self._file, 0)
        if self._splices:
            try:
                if self._direct:
                    return os.splice(sock.fileno(), self._file, most)
                assert self._pipe is not None
                done = os.splice(sock.fileno(), self._pipe[1], min(most, _PIPE))
            except OSError as error:
                if error.errno == errno.EPIPE:
                    raise self._fault(error) from None
                if error.errno not in _NOT_HERE:
                    raise
                self._splices = False
            else:
                self._empty_pipe(done)
                return done
        done = sock.recv_into(self._room, min(most, COPY_BLOCK))
        self._write(self._room[:done])
        return done

    def _empty_pipe(self, left: int) -> None:
        assert self._pipe is not None
        while left:
            try:
                left -= os.splice(self._pipe[0], self._file, left)
            except OSError as error:
                if error.errno not in _NOT_HERE:  # such as a file opened for appending
                    raise self._fault(error) from None
                self._splices = False
                data = os.read(self._pipe[0], left)
                self._write(memoryview(data))
                left -= len(data)

    def _write(self, data: memoryview) -> None:
        try:
            while data:
                data = data[os.write(self._file, data) :]
        except OSError as error:
            raise self._fault(error) from None

    def _fault(self, error: OSError) -> FileFault:
        return FileFault(f"cannot write {self._name}: {error.strerror}")

    def until_lasting(self) -> None:
        """See Sink."""
        self._fsync = self._fsync or self._regular

    def finish(self) -> bool:
        """See Sink."""
        if not self._fsync:
            return False
        try:
            os.fsync(self._file)
        except OSError as error:
            raise self._fault(error) from None
        return True

    def close(self) -> None:
        """See Sink."""
        if self._own and self._file >= 0:
            os.close(self._file)
            self._file = -1
        if self._pipe is not None:
            for end in self._pipe:
                os.close(end)
            self._pipe = None


def open_sink(plan: LinkPlan) -> Sink:
    """The plan's sink. Raises FileFault for a file that cannot be written."""
    if plan.sink is None:
        return Discard(plan.copy)
    if plan.sink == STREAM:
        return Descriptor(1, "standard output", plan.copy, own=False)
    try:
        file = os.open(plan.sink, os.O_WRONLY | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o666)
    except OSError as error:
        raise FileFault(f"cannot write {plan.sink}: {error.strerror}; name another file with --output") from None
    return Descriptor(file, plan.sink, plan.copy, own=True, fsync=plan.fsync)
