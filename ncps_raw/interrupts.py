"""Signals of a run: the first Ctrl-C or SIGTERM drains and reports, the second leaves, SIGUSR1 asks for totals.

The one idea: signals only set flags, from before the first heavy import on, so that an interrupt never strikes in the
middle of something and a run interrupted before it began ends as any other.
"""

from __future__ import annotations

import signal
from types import FrameType, TracebackType
from typing import Any, Final, NoReturn, Self

LEFT_BY_SECOND: Final = 130


class LeaveNow(BaseException):
    """A second interrupt: end everything, print nothing. Not an Exception, so that nothing swallows it."""


class Interrupts:
    """While entered, signals become flags; handlers found before are put back on leaving.

    It may be entered again inside: the outermost alone counts.
    """

    def __init__(self) -> None:
        self.stopped_by: str | None = None
        self.leaving = False  # LeaveNow was raised; an import of C code may have made another error of it
        self.totals_wanted = False
        self._before: dict[int, Any] = {}
        self._depth = 0
        self._first_drains = True  # and only the second leaves

    def __enter__(self) -> Self:
        self._depth += 1
        if self._depth > 1:  # entered early, by whoever imports the rest of the program
            return self
        for name in ("SIGINT", "SIGTERM", "SIGBREAK"):
            if hasattr(signal, name):
                self._install(getattr(signal, name), self._stop)
        # A terminal that is gone ends the run; under nohup it was told not to matter.
        if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
            self._install(signal.SIGHUP, self._stop)
        for name in ("SIGUSR1", "SIGINFO"):
            if hasattr(signal, name):
                self._install(getattr(signal, name), self._totals)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._depth -= 1
        if self._depth:
            return
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before.clear()

    def stop(self, reason: str) -> None:
        """End the run as a first interrupt does, for a reason that is no signal of a person."""
        if self.stopped_by is None:
            self.stopped_by = reason

    def leave_at_once(self) -> None:
        """From now on the first interrupt leaves as a second does: there is nothing yet that could be reported."""
        self._first_drains = False
        if self.stopped_by is not None:
            self._leave()

    def stopped(self) -> bool:
        """Whether the run is to end now."""
        return self.stopped_by is not None

    def _install(self, number: int, handler: Any) -> None:
        self._before[number] = signal.signal(number, handler)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        if self.stopped_by is not None or not self._first_drains:
            self._leave()
        self.stopped_by = signal.Signals(number).name

    def _leave(self) -> NoReturn:
        self.leaving = True
        raise LeaveNow

    def _totals(self, number: int, frame: FrameType | None) -> None:
        self.totals_wanted = True
