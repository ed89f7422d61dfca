"""Edge: where the results of a command without a run go, and what it says beside them.

It must not know what it writes. The one idea: whatever prevents the results from being delivered is told in one line,
except that a reader of a pipe who has left wants no more and is not told anything.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self, TextIO

from ncps_capture.errors import FileFault, UsageError


class Results:
    """Standard output, or the file ``path``, which is replaced when this is made."""

    def __init__(self, path: str | None, *, coloured: bool = False) -> None:
        self._path = path
        self._file: TextIO | None = sys.stdout
        self._coloured = False
        if path is not None:
            try:
                self._file = open(path, "w", encoding="utf-8", newline="\n")  # noqa: SIM115, PTH123 - see __exit__
            except (OSError, ValueError) as error:
                reason = error.strerror if isinstance(error, OSError) else error
                raise FileFault(f"cannot write {path}: {reason}; choose another file (-o)") from None
        elif self._file is None:
            raise FileFault("cannot write standard output: it is closed; name a file with -o")
        elif coloured and self._file.isatty():
            self._coloured = True

    def write(self, text: str) -> None:
        """Write text. FileFault if it cannot be taken; BrokenPipeError if nobody reads standard output any more."""
        assert self._file is not None
        try:
            if self._coloured:
                from ncps_raw import colour

                colour.show(text, self._file)
                return
            if self._path is None:
                write_all(self._file, text)
            else:
                self._file.write(text)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise self._fault(error) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._file is not None
        if self._path is None:
            return  # the command line flushes it, and tells what cannot be delivered
        if error is not None:
            with contextlib.suppress(OSError):
                self._file.close()
            return
        try:
            self._file.close()
        except OSError as failure:
            raise self._fault(failure) from None

    def _fault(self, error: OSError) -> FileFault:
        advice = "make room, or choose another file (-o)"
        return FileFault(f"cannot write {self._path or 'standard output'}: {error.strerror}; {advice}")


def write_all(stream: TextIO, text: str) -> None:
    """Write text; a name that this terminal cannot show loses no report.

    Where Python was told not to buffer, its text layer drops what a pipe or a disk did not take of one large write.
    """
    data = text.encode(stream.encoding or "utf-8", "backslashreplace")
    below = getattr(stream, "buffer", None)
    if below is None:  # not a stream of the system
        stream.write(data.decode(stream.encoding or "utf-8"))
        return
    stream.flush()
    left = memoryview(data)
    while left:
        left = left[below.write(left) :]


def say(text: str) -> None:
    """A warning: one line on standard error."""
    if sys.stderr is None:  # closed by whoever started us
        return
    with contextlib.suppress(OSError):  # nobody to tell
        sys.stderr.write(f"ncps: {' '.join(text.split())}\n")
        sys.stderr.flush()


def not_over(output: str | None, sources: Sequence[str]) -> None:
    """UsageError if ``output`` is one of the files that are read."""
    for source in sources:
        same = False
        with contextlib.suppress(OSError, ValueError):  # one of them does not exist, or cannot
            same = output is not None and source != "-" and Path(source).samefile(output)
        if same:
            raise UsageError(f"--output would replace {source}, which is read: choose another file")
