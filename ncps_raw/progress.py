"""Edge: how far a long reading is, on a terminal: one line on standard error that is gone when the reading ends.

It must not know what is read. The one idea: nobody waits for a bar, so there is none in the first second, it is written
four times a second at most, and where standard error is no terminal there is nothing at all.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from types import TracebackType
from typing import Final, Self

PATIENCE_S: Final = 1.0
EVERY_S: Final = 0.25
_CELLS: Final = 24


class Progress:
    """Call it with (bytes read, bytes of all or None, packets) as often as you like."""

    def __init__(self, wanted: bool = True) -> None:
        self._on = wanted and _terminal()
        self._began = time.monotonic()
        self._due = self._began + PATIENCE_S
        self._shown = 0

    def __call__(self, done: int, size: int | None, packets: int) -> None:
        """Show how far it is, if that is due."""
        if not self._on:
            return
        now = time.monotonic()
        if now < self._due:
            return
        self._due = now + EVERY_S
        columns = shutil.get_terminal_size().columns
        line = progress_line(done, size, packets, now - self._began)[: max(columns - 1, 0)]
        self._write("\r" + line.ljust(self._shown))
        self._shown = len(line)

    def close(self) -> None:
        """Take the line away."""
        if self._shown:
            self._write("\r" + " " * self._shown + "\r")
            self._shown = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _write(self, text: str) -> None:
        try:
            sys.stderr.write(text)
            sys.stderr.flush()
        except (OSError, ValueError):  # nobody looks any more
            self._on = False


def progress_line(done: int, size: int | None, packets: int, seconds: float) -> str:
    """``[######------]  42 %  1,234,567 packets  3 s left``; without a size what was read so far."""
    if not size:
        return f"{done / 1e6:,.0f} MB, {packets:,} packets read"
    share = min(done / size, 1.0)
    filled = int(share * _CELLS)
    left = f"  {seconds / share - seconds:,.0f} s left" if share > 0 else ""
    return f"[{'#' * filled}{'-' * (_CELLS - filled)}] {int(share * 100):>3} %  {packets:,} packets{left}"


def _terminal() -> bool:
    try:
        return sys.stderr is not None and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
    except ValueError:  # closed
        return False
