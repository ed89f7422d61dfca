"""Edge: the terminal and the streams: the moving line, rows, totals when asked, the report.

The one idea: results go to standard output unless the data does; everything that moves goes to standard error, and
moves only on a terminal.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self, TextIO

from ncps_capture.errors import FileFault

from ncps_raw import colour
from ncps_raw.link import books, progress, views
from ncps_raw.link.books import Row
from ncps_raw.link.plan import STREAM, LinkPlan
from ncps_raw.link.transfer import Transfer
from ncps_raw.link.views import Report

_FRAME_NS: Final = 100_000_000


class Show:
    """Everything a link check writes, but the data."""

    def __init__(self, plan: LinkPlan, on_gone: Callable[[], None]) -> None:
        self._plan = plan
        self._on_gone = on_gone
        self.gone = False
        self._file: TextIO = sys.stderr if plan.sink == STREAM else sys.stdout
        self._own = False
        if plan.results is not None and plan.results != STREAM:
            try:
                self._file = open(plan.results, "w", encoding="utf-8")  # noqa: SIM115, PTH123 - closed by __exit__
            except OSError as error:
                raise FileFault(f"cannot write {plan.results}: {error.strerror}; choose another --output") from None
            self._own = True
        text = plan.format == "text"
        terminal = sys.stderr is not None and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._bar = text and terminal and not plan.quiet and not plan.rows
        self.rows = plan.format == "jsonl" or (text and not plan.quiet and not self._bar)
        self._header = ""  # of the rows that stand there
        self._drawn_ns: int | None = None
        self._beat = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._wipe()
        if self._own:
            with contextlib.suppress(OSError):
                self._file.close()

    @property
    def frame_ns(self) -> int | None:
        """How often the moving line wants to be drawn; None: there is none."""
        return _FRAME_NS if self._bar else None

    def draw(self, transfer: Transfer, whole: int | None) -> None:
        """The moving line. ``whole``: bytes it will be, if that is known."""
        begin = transfer.begin_ns()
        now = time.monotonic_ns()
        if not self._bar or begin is None or (self._drawn_ns is not None and now - self._drawn_ns < _FRAME_NS):
            return
        shot = transfer.snapshot()
        count = (shot.sent if self._plan.sends else shot.received) or 0
        elapsed_ns = max(now - begin, 1)
        fraction = None
        if whole:
            fraction = count / whole
        elif transfer.plan.lasts_ns is not None:
            fraction = elapsed_ns / transfer.plan.lasts_ns
        # One column less: a line that fills the last one makes some terminals begin another.
        width = shutil.get_terminal_size().columns - 1
        line = progress.line(width, count, elapsed_ns / 1e9, count * 1e9 / elapsed_ns, fraction, self._beat)
        self._beat += 1
        self._drawn_ns = now
        self._to_person(progress.CLEAR + line)

    def row(self, row: Row, peer: str) -> None:
        """One interval."""
        if self._plan.format == "jsonl":
            self._write(json.dumps({**books.row_plain(row), "peer": peer}) + "\n")
            return
        if row.partial and not self._header and not self._plan.rows:
            return  # the report says the same
        header, before = books.row_header(row), self._header
        self._header = header
        head = "" if header == before else header + "\n"
        self._write(f"{head}{books.row_text(row)}{'  ' + peer if self._plan.keep else ''}\n")

    def totals(self, transfer: Transfer) -> None:
        """What is there so far, on standard error, and on with it."""
        self._wipe()
        for figures in transfer.figures():
            if figures is not None and figures.bytes is not None:
                verb = "sent" if figures.sent else "received"
                self._to_person(f"{verb}: {books.summary(figures)}\n")

    def report(self, report: Report) -> None:
        """The end."""
        self._wipe()
        if self._plan.format == "text":
            self._write(("\n" if self._header else "") + views.text(report))
            self._header = ""
        else:
            self._write(views.dumps(report, None if self._plan.format == "jsonl" else 2))

    def say(self, text: str) -> None:
        """A warning."""
        self._wipe()
        self._to_person(f"ncps: {text}\n")

    def remark(self, text: str) -> None:
        """Something good to know, left out with --quiet."""
        if not self._plan.quiet:
            self.say(text)

    def _wipe(self) -> None:
        if self._drawn_ns is not None:
            self._drawn_ns = None
            self._to_person(progress.CLEAR)

    def _to_person(self, text: str) -> None:
        if sys.stderr is not None:
            with contextlib.suppress(OSError):
                sys.stderr.write(text)
                sys.stderr.flush()

    def _write(self, text: str) -> None:
        if self.gone or self._file is None:
            return
        try:
            if self._plan.format == "text" and colour.wanted(self._file):
                colour.show(text, self._file)
            else:
                self._file.write(text)
            self._file.flush()
        except BrokenPipeError:
            self.gone = True
            self._on_gone()
        except OSError as error:
            self.gone = True
            raise FileFault(f"cannot write {self._plan.results or 'standard output'}: {error.strerror}") from None
