"""Edge: letters that a person types while a run goes on, each with Enter, as NCPS reads them from standard input.

It must not know what a letter does. The one idea: looking never waits, never stops the program and never changes the
terminal. The terminal keeps its line mode, so there is nothing to put back after Ctrl-Z or a kill; a program in the
background does not read (it would be stopped for it); an input at its end is left alone, where NCPS spins.
"""

from __future__ import annotations

import os
import select
import signal
import sys
from types import TracebackType
from typing import Any, Final, Self

if sys.platform != "win32":
    import termios

_MOST_A_LOOK: Final = 4096
_LONGEST_LINE: Final = 4096
"""More than this without an end of line is no letter: a file or another program's input, of which nothing is kept."""


class Keys:
    """While entered, ``pressed`` says what was typed. Empty where standard input cannot be looked at."""

    def __init__(self, wanted: str, descriptor: int | None, *, pipes: bool) -> None:
        """Letters to listen for. Other inputs than a terminal are read only with ``pipes``.

        Reading a pipe eats what may be meant for others, as in ``while read host; do ...; done < hosts``.
        """
        self._wanted = wanted
        self._rest = b""
        self._before: Any = None
        self._fd: int | None = None
        if descriptor is None or sys.platform == "win32":
            return
        try:
            self._terminal = os.isatty(descriptor)
            os.fstat(descriptor)
        except OSError:
            return
        if self._terminal or pipes:
            self._fd = descriptor

    def __enter__(self) -> Self:
        # Between looking who has the foreground and reading, the person may send the program to the background: then
        # the read fails instead of stopping the run.
        if self._fd is not None and self._terminal and hasattr(signal, "SIGTTIN"):
            self._before = signal.signal(signal.SIGTTIN, signal.SIG_IGN)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._before is not None:
            signal.signal(signal.SIGTTIN, self._before)
            self._before = None

    def pressed(self) -> str:
        """The wanted letters of whole lines since the last look, in their order."""
        if self._fd is None or not self._may_read(self._fd):
            return ""
        try:
            if not select.select([self._fd], [], [], 0)[0]:
                return ""
            text = os.read(self._fd, _MOST_A_LOOK)
        except OSError:  # in the background by now, or a terminal that has gone
            if not self._terminal:
                self._fd = None
            return ""
        if not text:  # the end; a terminal goes on after Ctrl-D
            self._fd = self._fd if self._terminal else None
            text, self._rest = self._rest + b"\n", b""
        found, self._rest = letters(self._rest + text, self._wanted)
        return found

    def _may_read(self, fd: int) -> bool:
        """Whether the terminal is ours to read, and reads lines: not while a pager has it letter by letter."""
        if not self._terminal:
            return True
        try:
            if not termios.tcgetattr(fd)[3] & termios.ICANON:
                return False
        except termios.error:
            return False
        try:
            return os.tcgetpgrp(fd) == os.getpgrp()
        except OSError:  # not the terminal of this session, so nobody stops us
            return True


def letters(text: bytes, wanted: str) -> tuple[str, bytes]:
    """Wanted letters that stand alone on a line, and the line not yet ended (pure). Case does not matter."""
    *lines, rest = text.split(b"\n")
    words = (line.strip().lower().decode("ascii", "replace") for line in lines)
    found = "".join(word for word in words if len(word) == 1 and word in wanted)
    return found, rest if len(rest) <= _LONGEST_LINE else b""
