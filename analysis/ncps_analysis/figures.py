"""Pure: what every report makes of counts: distributions, milestones, and the sums of definition D14.

It must not know runs or captures. The one idea: reports with and without a run share these figures, so they cannot
differ, and a report of a capture loads nothing that joins connections.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import numpy as np
from ncps_capture.segments import Books

from ncps_analysis.histogram import Histogram
from ncps_analysis.percentiles import PERCENTILES
from ncps_analysis.quantities import Distribution, Milestone

MILESTONE_STEP: Final = 100_000
MOST_MILESTONES: Final = 20_000
_OF_ATTEMPTS: Final = (
    "syn_counted",
    "syn_duplicate",
    "attempts",
    "answered",
    "refused",
    "icmp_refused",
    "unanswered",
    "simultaneous",
    "synack_only",
    "synack_duplicate",
    "synack_bad_ack",
    "rst_ignored",
    "clock_error",
    "clock_step",
)


def distribution(histogram: Histogram) -> Distribution:
    """The figures of a histogram under their names; all unknown if it is empty."""
    if histogram.n == 0:
        return Distribution()
    figures = dict(
        zip((name for name, _ in PERCENTILES), histogram.percentiles(p for _, p in PERCENTILES), strict=True)
    )
    return Distribution(n=histogram.n, min=histogram.min, mean=histogram.mean, max=histogram.max, **figures)


def milestones(established_ms: Histogram) -> tuple[Milestone, ...]:
    """When every 100,000th and the last connection was established; at most 20,000 and the last."""
    n = established_ms.n
    ranks = list(range(MILESTONE_STEP, min(n, MILESTONE_STEP * MOST_MILESTONES) + 1, MILESTONE_STEP))
    if n and (not ranks or ranks[-1] != n):
        ranks.append(n)
    at = established_ms.at_ranks(np.array(ranks, np.int64)).tolist() if ranks else []
    return tuple(Milestone(rank, t_ms) for rank, t_ms in zip(ranks, at, strict=True))


def with_attempts(captured: Books, attempts: Books) -> Books:
    """Books of packets as the capture counted them, of attempts as they are once their rows were merged.

    While it runs the capture counts an attempt once for every part of it that was settled apart.
    """
    return replace(captured, **{name: getattr(attempts, name) for name in _OF_ATTEMPTS})


def identities(books: Books) -> tuple[str, ...]:
    """The sums of definition D14 with their figures; terms of zero are left out, and sums of nothing."""
    states = {
        "answered": books.answered,
        "refused": books.refused,
        "refused by ICMP": books.icmp_refused,
        "unanswered": books.unanswered,
        "simultaneous": books.simultaneous,
    }
    syns = {
        "sent": books.syn_counted,
        "duplicate": books.syn_duplicate,
        "malformed": books.syn_malformed,
        "fragment": books.syn_fragment,
        "too short": books.syn_too_short,
    }
    return (*_identity("attempts", books.attempts, states), *_identity("SYNs captured", books.syn, syns))


def _identity(name: str, total: int, terms: dict[str, int]) -> Iterator[str]:
    right = " + ".join(f"{term} {value:,}" for term, value in terms.items() if value)
    if total or right:
        yield f"{name} {total:,} {'=' if total == sum(terms.values()) else '!='} {right or '0'}"
