"""Figures that reports of runs and of captures share."""

import numpy as np
from ncps_analysis.figures import distribution, identities, milestones, with_attempts
from ncps_analysis.histogram import Histogram
from ncps_analysis.quantities import Distribution, Milestone
from ncps_capture.segments import Books


def test_nothing_has_no_figures() -> None:
    assert distribution(Histogram.empty()) == Distribution()
    assert milestones(Histogram.empty()) == ()
    assert identities(Books()) == ()


def test_percentiles_are_nearest_ranks() -> None:
    found = distribution(Histogram.of(np.array([1, 2, 3, 10])))
    assert (found.n, found.min, found.p25, found.p50, found.mean, found.p75, found.p90, found.max) == (
        4,
        1,
        1,
        2,
        4.0,
        3,
        10,
        10,
    )


def test_every_hundred_thousandth_and_the_last() -> None:
    assert milestones(Histogram.of(np.arange(150_000) // 100)) == (Milestone(100_000, 999), Milestone(150_000, 1499))


def test_packets_are_the_captures_and_attempts_those_of_the_rows() -> None:
    books = with_attempts(Books(packets=9, syn=3, attempts=7), Books(packets=1, syn_counted=3, attempts=2, answered=2))
    assert (books.packets, books.syn, books.attempts, books.answered) == (9, 3, 2, 2)
    assert identities(books) == ("attempts 2 = answered 2", "SYNs captured 3 = sent 3")
    assert identities(Books(attempts=1)) == ("attempts 1 != 0",)
