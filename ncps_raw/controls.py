"""Edge: what the letters of NCPS do to a run: p holds the load, r lets it go on, b changes the form of the rows.

It must not know how letters are read, rows printed or loads held. The one idea: a pause is part of the run. The clock
goes on, rows go on, the run ends when it would have; the report says how long the load was held.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, Protocol

LETTERS: Final = "prb"


class Pressed(Protocol):
    """Whoever knows what was typed."""

    def pressed(self) -> str:
        """Letters since the last look."""


class Controls:
    """Carries out what was typed; ``note`` is what the report should say of it."""

    def __init__(
        self,
        keys: Pressed,
        *,
        hold: Callable[[bool], None],
        next_form: Callable[[], None],
        say: Callable[[str], None],
    ) -> None:
        self._keys = keys
        self._hold = hold
        self._next_form = next_form
        self._say = say
        self._pauses = 0
        self._paused_ns = 0
        self._since: int | None = None

    def look(self) -> None:
        """See what was typed since the last time, and do it."""
        for letter in self._keys.pressed():
            if letter == "b":
                self._next_form()
            elif letter == "p" and self._since is None:
                self._since = time.monotonic_ns()
                self._pauses += 1
                self._hold(True)
                self._say("PAUSE")
            elif letter == "r" and self._since is not None:
                self._paused_ns += time.monotonic_ns() - self._since
                self._since = None
                self._hold(False)
                self._say("RESUME")

    def note(self, end_ns: int) -> str | None:
        """How often and how long the load was held until the run's end at ``end_ns`` (monotonic); None if never."""
        if not self._pauses:
            return None
        held_ns = self._paused_ns + (max(0, end_ns - self._since) if self._since is not None else 0)
        times = "once" if self._pauses == 1 else f"{self._pauses} times"
        return f"paused {times} by key, {held_ns / 1e9:.1f} s in all, which times and rates include"
