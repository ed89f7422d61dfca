"""Pure: which processors the network card leaves in peace, from the kernel's counts of receive interrupts.

It must not know where the counts are read or what is done with the answer. The one idea is NCPS's rule: under load,
a processor that handles less than a tenth of the busiest one's receive interrupts (NET_RX in ``/proc/softirqs``)
serves no queue of the card, and the load runs better there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

BUSY_RATE: Final = 10_000.0
"""Connections a second from which an interval says something about interrupts."""
BUSY_INTERVALS: Final = 3
SHARE: Final = 10
"""One in so many of the busiest processor's interrupts is as good as none."""


def received(text: str) -> dict[int, int]:
    """Receive interrupts so far by processor, from the text of ``/proc/softirqs``; empty if it has none."""
    lines = [line.split() for line in text.splitlines()]
    names = next((words for words in lines if words and words[0].startswith("CPU")), [])
    for words in lines:
        if words[:1] == ["NET_RX:"]:
            return {int(name[3:]): int(count) for name, count in zip(names, words[1:], strict=False)}
    return {}


class NonRss:
    """NCPS's rule, fed with each interval: the first busy one begins a count, which ends after three more in a row."""

    def __init__(self) -> None:
        self._before: Mapping[int, int] | None = None
        self._busy = 0

    def feed(self, rate: float, now: Mapping[int, int]) -> tuple[int, ...] | None:
        """Connections a second of an interval and the interrupts at its end.

        None while the answer is open, and it begins anew with each interval that is not busy. Then the processors
        without a share, in the order of their numbers.
        """
        if rate < BUSY_RATE:
            self._before = None
            return None
        if self._before is None:
            self._before, self._busy = now, 0
            return None
        self._busy += 1
        if self._busy < BUSY_INTERVALS:
            return None
        more = {cpu: count - self._before.get(cpu, 0) for cpu, count in now.items()}
        most = max(more.values(), default=0)
        return tuple(cpu for cpu in sorted(more) if more[cpu] * SHARE < most)
