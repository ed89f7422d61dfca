"""Edge: where the bytes that are sent come from, and how they reach the socket with as few copies as there can be.

The one idea: a source is one verb, ``put``: hand at most so many bytes to the socket, say how many, 0 at the end. It
chooses the cheapest way the platform has and falls back by itself; ``way`` says which one it was.
"""

from __future__ import annotations

import errno
import os
import select
import stat
import sys
from typing import Final, Protocol

from ncps_capture.errors import FileFault

from ncps_raw.link.plan import RANDOM, STREAM, ZEROS, LinkPlan

ROOM: Final = 1 << 20
"""Bytes of prepared memory: fits into a processor's cache."""
COPY_BLOCK: Final = 1 << 17
NOTHING_NOW: Final = -1
"""What ``put`` returns if the source may have more, but not now: standard input whose writer is slow."""
_PATIENCE_S: Final = 0.05
_NOT_HERE: Final = (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSOCK, errno.EBADF)


class Socket(Protocol):
    """What a source needs of a connection."""

    def fileno(self) -> int:
        """Its descriptor."""

    def send(self, data: memoryview, /) -> int:
        """Hand over a part of ``data``; how much."""


class Source(Protocol):
    """``put`` hands over up to ``most`` bytes; 0 = there is no more, NOTHING_NOW = ask again."""

    @property
    def name(self) -> str:
        """What it is, in words."""

    @property
    def way(self) -> str:
        """What moves the bytes, in words."""

    def put(self, sock: Socket, most: int) -> int:
        """Hand over; raises OSError of the connection, FileFault of the source."""

    def close(self) -> None:
        """Let go of what is open."""


class Memory:
    """Prepared bytes, over and over: zeros, or random ones drawn once."""

    def __init__(self, kind: str, copy: bool) -> None:
        self.name = kind
        data = bytes(ROOM) if kind == ZEROS else os.urandom(ROOM)
        self._view = memoryview(data)
        self._at = 0
        self._file = -1
        self.way = f"send from memory ({kind})"
        if not copy and hasattr(os, "memfd_create") and hasattr(os, "sendfile"):
            self._file = os.memfd_create("ncps-source")
            left = self._view
            while left:
                left = left[os.write(self._file, left) :]
            self.way = f"sendfile from memory ({kind})"

    def put(self, sock: Socket, most: int) -> int:
        """See Source."""
        at = self._at
        if self._file >= 0:
            done = os.sendfile(sock.fileno(), self._file, at, min(ROOM - at, most))
        else:
            done = sock.send(self._view[at : at + min(most, COPY_BLOCK)])
        self._at = (at + done) % ROOM
        return done

    def close(self) -> None:
        """See Source."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


class Descriptor:
    """A file or standard input: sendfile from what is a file, splice from a pipe, read and send from anything else."""

    def __init__(self, file: int, name: str, copy: bool, own: bool) -> None:
        self._file = file
        self.name = name
        self._own = own
        self._rest = memoryview(b"")
        mode = os.fstat(file).st_mode
        self._waits = os.name == "posix" and not stat.S_ISREG(mode)
        self._call = ""
        if not copy and stat.S_ISREG(mode) and hasattr(os, "sendfile") and sys.platform.startswith("linux"):
            self._call = "sendfile"
        elif not copy and stat.S_ISFIFO(mode) and hasattr(os, "splice"):
            self._call = "splice"

    @property
    def way(self) -> str:
        """See Source."""
        return f"{self._call or 'read and send'} from {self.name}"

    def put(self, sock: Socket, most: int) -> int:
        """See Source."""
        if self._waits and not self._rest and not select.select([self._file], [], [], _PATIENCE_S)[0]:
            return NOTHING_NOW
        if self._call:
            try:
                if self._call == "sendfile":
                    # Without an offset the file's own position moves on, so a fallback continues where this ended.
                    return os.sendfile(sock.fileno(), self._file, None, most)
                return os.splice(self._file, sock.fileno(), most)
            except OSError as error:
                if error.errno not in _NOT_HERE:
                    raise
                self._call = ""
        if not self._rest:
            try:
                self._rest = memoryview(os.read(self._file, min(most, COPY_BLOCK)))
            except OSError as error:
                raise FileFault(f"cannot read {self.name}: {error.strerror}") from None
            if not self._rest:
                return 0
        done = sock.send(self._rest[:most])
        self._rest = self._rest[done:]
        return done

    def close(self) -> None:
        """See Source."""
        if self._own and self._file >= 0:
            os.close(self._file)
            self._file = -1


def open_source(plan: LinkPlan) -> Source:
    """The plan's source, ready to send from. Raises FileFault for a file that cannot be read."""
    if plan.source in (ZEROS, RANDOM):
        return Memory(plan.source, plan.copy)
    if plan.source == STREAM:
        return Descriptor(0, "standard input", plan.copy, own=False)
    try:
        file = os.open(plan.source, os.O_RDONLY | getattr(os, "O_BINARY", 0))
        if stat.S_ISDIR(os.fstat(file).st_mode):
            os.close(file)
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    except OSError as error:
        raise FileFault(f"cannot read {plan.source}: {error.strerror}; name another file with --source") from None
    return Descriptor(file, plan.source, plan.copy, own=True)


def source_size(plan: LinkPlan) -> int | None:
    """Bytes the plan's source has, if it is a file; None if that is not known."""
    if plan.endless_source or plan.source == STREAM:
        return None
    try:
        found = os.stat(plan.source)  # noqa: PTH116 - a name as typed
    except OSError:
        return None
    return found.st_size if stat.S_ISREG(found.st_mode) else None
