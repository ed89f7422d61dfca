"""Edge: names of captures as typed -> what can be read, each once, and pipes for as long as nobody interrupts.

It must not know what a capture is. The one idea: a file is what the system says it is, not what it is called, so one
that is named twice is one; and a pipe is not read before there is something to read, since a signal, which is only a
flag, would not end the waiting.
"""

from __future__ import annotations

import errno
import io
import os
import select
import stat
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import BinaryIO, Final, cast

from ncps_analysis.wording import many
from ncps_capture.errors import FileFault, UsageError

STANDARD_INPUT: Final = "-"
MOST_SAID: Final = 3
"""Names of one file that are said each; of more there is only their number."""
GRACE_S: Final = 1.0
"""How long after an interrupt whoever writes into a pipe may still end it: the same Ctrl-C as a rule reaches both."""
_LOOK_S: Final = 0.1

Stopped = Callable[[], str | None]
"""What interrupted the reading; None as long as nothing did."""


class Interrupted(Exception):  # noqa: N818 - no error: it ends a reading
    """What may still come through a pipe is not waited for."""


class Ending:
    """Whether to stop reading: at once when interrupted, or after ``grace_s`` once there is a pipe to be ended."""

    def __init__(self, stopped: Stopped) -> None:
        self.grace_s = 0.0
        self._stopped = stopped
        self._since: float | None = None

    def due(self) -> str | None:
        """What interrupted, once nothing more is to be read."""
        reason = self._stopped()
        if reason is None:
            return None
        now = time.monotonic()
        if self._since is None:
            self._since = now
        return reason if now - self._since >= self.grace_s else None


class Pipe(io.RawIOBase):
    """The reading end of a pipe as a binary file, which raises Interrupted when its time is up."""

    def __init__(self, name: str, descriptor: int, ending: Ending) -> None:
        super().__init__()
        self.name = name
        self._descriptor = descriptor
        self._ending = ending

    def readinto(self, view: memoryview) -> int:  # type: ignore[override]
        """Fill ``view`` with what is there, at least a byte; 0 at the end."""
        while not select.select([self._descriptor], [], [], _LOOK_S)[0]:
            self._ask()
        self._ask()
        return os.readv(self._descriptor, [view])

    def readable(self) -> bool:
        """It is."""
        return True

    def fileno(self) -> int:
        """The descriptor that becomes readable."""
        return self._descriptor

    def close(self) -> None:
        """Close it, standard input excepted; closing twice is allowed."""
        if not self.closed and self._descriptor != 0:
            os.close(self._descriptor)
        super().close()

    def _ask(self) -> None:
        if self._ending.due():
            raise Interrupted


def distinct(paths: Sequence[str]) -> tuple[list[str], list[str]]:
    """The files that ``paths`` name, each once, and lines on the names of those that were named before.

    The first MOST_SAID such names have a line each, all others one together.
    FileFault, with what to do, for one that is not there or not allowed; UsageError for an empty name, and for a
    terminal as standard input.
    """
    first: dict[tuple[int, int], str] = {}
    again: list[str] = []
    more = 0
    for path in paths:
        if not path:
            raise UsageError("a FILE is an empty name: name a capture, or - for standard input")
        status = _status(path)
        key = (status.st_dev, status.st_ino)
        if key not in first:
            first[key] = path
        elif len(again) == MOST_SAID:
            more += 1
        elif first[key] == path:
            again.append(f"{path} is named twice: it is read once")
        else:
            again.append(f"{path} is {first[key]} by another name: it is read once")
    if more:
        again.append(f"{many(more, 'more name')} of files that were named before: each file is read once")
    return list(first.values()), again


def opened(path: str, ending: Ending) -> str | BinaryIO:
    """What to hand to whoever reads: the name of a file as it is, or a pipe that can be interrupted."""
    try:
        standard = path == STANDARD_INPUT
        kind = os.fstat(0).st_mode if standard else os.stat(path).st_mode  # noqa: PTH116 - a name as typed
        if stat.S_ISREG(kind) or not (standard or stat.S_ISFIFO(kind)):
            return path
        ending.grace_s = GRACE_S
        if standard:
            return cast(BinaryIO, Pipe("standard input", 0, ending))
        # Opening waits for the writer, and would go on waiting after a signal; Linux lets it wait when reading instead.
        wait = os.O_NONBLOCK if sys.platform.startswith("linux") else 0
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | wait)
        os.set_blocking(descriptor, True)
    except OSError as error:
        raise cannot_read(path, error) from None
    return cast(BinaryIO, Pipe(path, descriptor, ending))


def cannot_open(fault: FileFault) -> FileFault:
    """The fault of a capture that could not be opened, with what to do about it."""
    error = fault.__cause__
    if isinstance(error, OSError) and isinstance(error.filename, str):
        return cannot_read(error.filename, error)
    return fault if ";" in str(fault) else FileFault(f"{fault}; give a pcap or pcapng file, compressed or not")


def cannot_read(path: str, error: OSError | ValueError) -> FileFault:
    """The fault of a name that leads to nothing that can be read, with what to do about it."""
    reason = getattr(error, "strerror", None) or str(error)
    advice = {
        errno.ENOENT: "check the name, and the folder this runs in",
        errno.EACCES: "run it as somebody who may read it, such as with sudo",
        errno.EISDIR: f"name the captures in it, such as {Path(path, '*.pcap')}",
    }.get(getattr(error, "errno", None) or 0, "name another file")
    return FileFault(f"cannot read {path}: {reason}; {advice}")


def _status(path: str) -> os.stat_result:
    """What the system knows of the file of this name."""
    try:
        if path != STANDARD_INPUT:
            status = os.stat(path)  # noqa: PTH116 - a name as typed
            if stat.S_ISDIR(status.st_mode):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
            return status
        if sys.stdin is None:
            raise FileFault("cannot read standard input: it is closed; pipe a capture into it, or name a file")
        status = os.fstat(sys.stdin.fileno())
    except (OSError, ValueError) as error:
        raise cannot_read(path, error) from None
    if sys.stdin.isatty():
        raise UsageError("- is standard input, which is a terminal here: pipe a capture into it, or name a file")
    return status
