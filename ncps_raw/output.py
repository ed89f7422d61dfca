"""Where results and remarks go: results to standard output or a file, everything else to standard error.

The one idea: a format decides what a row and a report look like, once; the rest of the program only has rows, a report
and remarks. In a machine format standard output holds nothing but that format.
"""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Self, TextIO

from ncps_analysis.model import RunReport
from ncps_analysis.records import Interval
from ncps_analysis.render import json as json_view
from ncps_analysis.render import ncps as ncps_view
from ncps_analysis.render import text as text_view
from ncps_capture.errors import FileFault

from ncps_raw import colour
from ncps_raw.results import write_all


@dataclass(frozen=True)
class _View:
    header: Callable[[int], str] | None
    row: Callable[[Interval, int], str] | None
    report: Callable[[RunReport], str]


def _text_header(form: int) -> str:
    return ncps_view.header_of(form) if form else text_view.interval_header()


def _text_row(interval: Interval, form: int) -> str:
    return ncps_view.row_of(interval, form, unknown="-") if form else text_view.interval_row(interval)


def _line(interval: Interval, form: int) -> str:
    return json_view.dumps_line(interval)


_VIEWS = {
    "text": _View(_text_header, _text_row, text_view.report),
    "ncps": _View(ncps_view.header_of, ncps_view.row_of, ncps_view.report),
    "json": _View(None, None, json_view.dumps),
    "jsonl": _View(None, _line, json_view.dumps_line),
}


class Output:
    """Writes rows as they come (each is flushed: a pipe sees it at once) and the report at the end."""

    def __init__(
        self,
        format_: str,
        path: str | None,
        *,
        silent_rows: bool,
        quiet: bool,
        brief: bool = False,
        on_gone: Callable[[], None] = lambda: None,
    ) -> None:
        """``on_gone`` is called when the reader of standard output has left."""
        if path is None and sys.stdout is None:
            raise FileFault("cannot write standard output: it is closed; name a file with -o")
        self._view = _VIEWS[format_]
        self._rows = self._view.row is not None and not silent_rows
        self._quiet = quiet
        self._path = path
        self._began = False
        self._form = 1 if brief else 0
        # NCPS started with -brief prints no names of columns; for a person a figure without its name says little.
        self._header_due = not (brief and format_ == "ncps")
        self.gone = False
        self._on_gone = on_gone
        self._file: TextIO = sys.stdout
        self._coloured = format_ == "text" and path is None and sys.stdout is not None and colour.wanted(sys.stdout)
        if path is None and isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="backslashreplace")  # a name that this terminal cannot show loses no report
        if path is not None:
            try:
                self._file = open(path, "w", encoding="utf-8")  # noqa: SIM115, PTH123 - closed by __exit__
            except OSError as error:
                raise FileFault(f"cannot write {path}: {error.strerror}; choose another file (-o)") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._path is not None:
            with contextlib.suppress(OSError):  # what it could not take has been said by ``_write``
                self._file.close()

    def row(self, interval: Interval) -> None:
        """One interval row, after the header if it is the first, or the first of a new form."""
        if not self._rows or self._view.row is None:
            return
        text = self._view.row(interval, self._form)
        if self._header_due and self._view.header is not None:
            text = self._view.header(self._form) + "\n" + text
        self._header_due = False
        self._began = True
        self._write(text + "\n")

    def next_form(self) -> None:
        """From the next row on: from all columns to brief rows, to the rate alone, and round again."""
        self._form = (self._form + 1) % ncps_view.FORMS
        self._header_due = True

    def report(self, report: RunReport) -> None:
        """The final report; its text ends with one line end."""
        text = self._view.report(report)
        if self._began and self._view.header is _text_header:
            text = "\n" + text
        elif self._rows and self._header_due and self._view.header is ncps_view.header_of:
            text = ncps_view.header_of(self._form) + "\n" + text  # a run without a row has the header all the same
        self._write(text if text.endswith("\n") else text + "\n")

    def say(self, text: str) -> None:
        """A warning: one line on standard error."""
        if sys.stderr is None:  # closed by whoever started us
            return
        with contextlib.suppress(OSError):  # nobody to tell
            sys.stderr.write(f"ncps: {text}\n")
            sys.stderr.flush()

    def remark(self, text: str) -> None:
        """Something good to know, left out with --quiet."""
        if not self._quiet:
            self.say(text)

    def _write(self, text: str) -> None:
        if self.gone:
            return
        try:
            if self._coloured:
                colour.show(text, self._file)
            elif self._path is None:
                write_all(self._file, text)
            else:
                self._file.write(text)
            self._file.flush()
        except BrokenPipeError:
            self.gone = True
            self._on_gone()
        except OSError as error:
            self.gone = True
            raise FileFault(f"cannot write {self._path or 'standard output'}: {error.strerror}") from None
