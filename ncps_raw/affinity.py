"""Edge: which processors the workers run on: those the person names, or those without network interrupts.

It must not know what workers do. The one idea: what can be pinned here is a process, and it drives several loops. So
loop r belongs on entry r modulo the count, as NCPS has it, and a process may use the entries of all its loops; with as
many processes as loops that is one for each.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from ncps_analysis.records import Interval
from ncps_capture.errors import EnvironmentFault

from ncps_raw.softirq import NonRss, received

SOFTIRQS: Final = Path("/proc/softirqs")
CANNOT: Final = "this system does not let a program choose its processors: the load goes on unpinned"


def check(cpus: Sequence[int], option: str) -> str | None:
    """Try each of ``cpus``: EnvironmentFault for one that cannot be had; a line to say if none can be chosen here."""
    if not cpus:
        return None
    if not hasattr(os, "sched_setaffinity"):
        return f"{option}: {CANNOT}"
    before = os.sched_getaffinity(0)
    for cpu in sorted(set(cpus)):
        try:
            os.sched_setaffinity(0, {cpu})
        except (OSError, ValueError, OverflowError):
            have = ",".join(str(c) for c in sorted(before))
            raise EnvironmentFault(
                f"cannot run on processor {cpu} ({option}): it does not exist, is off or not allowed here; "
                f"this process may use {have}"
            ) from None
        finally:
            os.sched_setaffinity(0, before)
    return None


def shares(loops: Sequence[Sequence[int]], cpus: Sequence[int]) -> list[set[int]]:
    """Processors of each process (pure): ``loops`` are the numbers of the loops it drives."""
    return [{cpus[loop % len(cpus)] for loop in each} for each in loops]


def pin(pids: Sequence[int], each: Sequence[set[int]]) -> None:
    """Let each process run on its processors alone. One that has just ended is left to whoever watches it."""
    if not hasattr(os, "sched_setaffinity"):
        return
    for pid, cpus in zip(pids, each, strict=True):
        with contextlib.suppress(ProcessLookupError):
            os.sched_setaffinity(pid, cpus)


class FindNonRss:
    """Fed with each row; pins the processes once, when NCPS's rule has its answer, and says what it did."""

    def __init__(self, pids: Sequence[int], say: Callable[[str], None], softirqs: Path = SOFTIRQS) -> None:
        self._pids = pids
        self._say = say
        self._softirqs = softirqs
        self._rule: NonRss | None = NonRss()
        if not hasattr(os, "sched_setaffinity"):
            self._give_up(CANNOT)
        elif not self._counts():
            self._give_up(f"{softirqs} does not tell of network interrupts: the load goes on unpinned")

    def row(self, interval: Interval) -> None:
        """Take note of an interval that has just ended."""
        if self._rule is None or interval.seconds <= 0:
            return
        free = self._rule.feed(interval.established / interval.seconds, self._counts())
        if free is None:
            return
        if len(free) < len(self._pids):
            which = ",".join(str(cpu) for cpu in free) or "none"
            self._give_up(
                f"processors without network interrupts are fewer than the {len(self._pids)} processes of the load "
                f"({which}): it goes on unpinned; use fewer --processes, or name processors"
            )
            return
        used = free[: len(self._pids)]
        pin(self._pids, [{cpu} for cpu in used])
        self._say("AFFINITY: " + ",".join(str(cpu) for cpu in used))
        self._rule = None

    def _counts(self) -> dict[int, int]:
        """Of the processors that this process may use: the file also lists those that are off."""
        try:
            text = self._softirqs.read_text(encoding="ascii")
        except OSError:
            return {}
        allowed = os.sched_getaffinity(0)
        return {cpu: count for cpu, count in received(text).items() if cpu in allowed}

    def _give_up(self, why: str) -> None:
        self._rule = None
        self._say(f"AFFINITY: {why}")
