"""Pure: how far the clock of a capture made elsewhere is ahead of the client's, from the connections alone.

It must not know files, nor what a report does with the answer. The one idea: every pair of a connect and a first SYN
on the same four-tuple proposes an offset; the true one is proposed by all of them at once, a wrong one (another use
of the tuple) only here and there. So the offsets are put to the vote, and the winners are measured: tuples that were
used again and packets that are missing cost votes and no more. Where two offsets explain as much, none is given.

The clocks may drift apart, by at most DRIFT_PPM; the drift is estimated where it shows above the scatter.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
from ncps_capture.segments import UNKNOWN, Handshakes

from ncps_analysis.join import SLACK_NS, UNMATCHED, Tuples, Words, match, nearest, tuple_ids
from ncps_analysis.records import ClockOffset, ClockPairs, Connections

Ints = npt.NDArray[np.int64]

DRIFT_PPM: Final = 100  # of two free quartz clocks; disciplined ones stay far below
SCATTER_NS: Final = 20_000_000
"""How far single differences may lie apart: a busy client calls connect() that long before its SYN leaves."""
NARROW_NS: Final = 200_000
"""The vote is held twice. Where tuples are used again within milliseconds, the true offset stands out of the wrong ones
in a narrow window only; where the clocks drift, in a wide one only."""
MOST_PAIRS: Final = 2_000_000
MOST_OF_A_TUPLE: Final = 64  # connects that vote for a tuple which was used more often
MOST_PEAKS: Final = 6
NEAR_NS: Final = 500_000
"""A client calls connect() and within this its SYN is on the wire, in the median: then one clock stamped both."""
ACCEPT_NS: Final = 1_000_000_000  # a server's accept() returns at most this long after the SYN, in the median
READING_NS: Final = 5_000
"""How far one clock's stamps of packets and of calls may contradict each other: cut to 1 us, and two clocks read."""
INSIDE_SHARE: Final = (
    0.95  # of handshakes lie within their connect by one clock; the rest are stragglers of the pairing
)


def estimate(mine: Tuples, start_ns: Ints, theirs: Tuples, first_syn_ns: Ints) -> ClockOffset | None:
    """The capture's clock minus the client's. None if no tuple is on both sides or several offsets explain as much.

    ``start_ns`` of each record (realtime by the client's clock; a server's is its accept) with its tuple in ``mine``;
    ``first_syn_ns`` of each handshake with its tuple in ``theirs``. Includes the median time from connect() to SYN.
    """
    at, there = np.flatnonzero(mine.known), np.flatnonzero(theirs.known)
    if not len(at) or not len(there):
        return None
    ids = tuple_ids(mine, at, theirs, there)
    start, first = start_ns[at], first_syn_ns[there]
    by_record = np.lexsort((start, ids[: len(at)]))
    by_syn = np.lexsort((first, ids[len(at) :]))
    records = _Side(ids[: len(at)][by_record], start[by_record])
    syns = _Side(ids[len(at) :][by_syn], first[by_syn])
    proposals = _proposals(records, syns)
    found: list[ClockOffset] = []
    for window in (NARROW_NS, SCATTER_NS + int(np.ptp(start)) * DRIFT_PPM // 1_000_000):
        for peak in _peaks(proposals, window):
            one = _measure(records, syns, peak, window)
            if one is not None and not any(_same(one, other) for other in found):
                found.append(one)
    return _one_of(found, records)


def shifted(clock: ClockPairs, offset: ClockOffset) -> ClockPairs:
    """Pairs that convert the client's monotonic times to the clock that is ``offset`` ahead."""
    drifted = np.rint((clock.realtime_ns - offset.at_ns) * (offset.drift_ppm / 1e6)).astype(np.int64)
    return ClockPairs(clock.monotonic_ns, clock.realtime_ns + offset.offset_ns + drifted)


def slack_ns(offset: ClockOffset) -> int:
    """How much farther than on one clock a SYN may lie outside its connection's window: three times the scatter."""
    return 3 * (offset.high_ns - offset.low_ns)


def one_clock(
    offset: ClockOffset, records: Connections, handshakes: Handshakes, paths: Words, role: str, clock: ClockPairs
) -> bool:
    """Whether the records and the handshakes show one clock, so that times of one may be taken from the other's.

    ``records`` in the client's monotonic times, which ``clock`` leads to its realtime; ``paths`` as for ``join.match``.
    A median offset near zero alone does not tell: on loopback a whole connect is shorter than clocks differ. By one
    clock (nearly) every handshake also lies between connect() and established (a server's before accept), and none
    of those that the offset finds is lost without it.
    """
    near = -ACCEPT_NS <= offset.offset_ns <= SLACK_NS if role == "server" else -SLACK_NS <= offset.offset_ns <= NEAR_NS
    if not near:
        return False
    here = timed(records, clock)
    slack = SLACK_NS + clock.step_ns()
    by_one = match(here, handshakes, paths, role, slack)
    by_two = match(timed(records, shifted(clock, offset)), handshakes, paths, role, slack)
    if np.count_nonzero(by_one != UNMATCHED) < np.count_nonzero(by_two != UNMATCHED):
        return False
    # Paired by the offset: paired without it, only such could be asked as lie near their window already.
    pair = np.where(by_two != UNMATCHED, by_two, by_one)
    at = np.flatnonzero((pair != UNMATCHED) & (here["connected_ns"] != UNKNOWN))
    mine, theirs = here[at], handshakes[pair[at]]
    last = np.where(theirs["t_synack_ns"] != UNKNOWN, theirs["t_synack_ns"], theirs["t_syn_first_ns"])
    inside = last <= mine["connected_ns"] + READING_NS
    if role != "server":
        inside &= theirs["t_syn_first_ns"] >= mine["start_ns"] - READING_NS
    return bool(np.count_nonzero(inside) >= INSIDE_SHARE * len(at))


def timed(records: Connections, clock: ClockPairs) -> Connections:
    """A copy of ``records`` whose times are of the clock that ``clock`` leads to."""
    out = records.copy()
    for name in ("start_ns", "connected_ns", "closed_ns"):
        out[name] = clock.to_realtime(records[name])
    return out


class _Side:
    """Rows of one side in order of (tuple, time)."""

    def __init__(self, ids: Ints, t_ns: Ints) -> None:
        self.ids = ids
        self.t_ns = t_ns


def _proposals(records: _Side, syns: _Side) -> Ints:
    """Sorted differences of all pairs on one tuple; of tuples used often only some connects, rare tuples first."""
    low = np.searchsorted(syns.ids, records.ids, "left")
    many = np.searchsorted(syns.ids, records.ids, "right") - low
    starts = np.flatnonzero(np.concatenate(([True], records.ids[1:] != records.ids[:-1])))
    uses = np.diff(np.append(starts, len(records.ids)))
    place = np.arange(len(records.ids)) - np.repeat(starts, uses)
    every = np.repeat(-(-uses // MOST_OF_A_TUPLE), uses)
    voters = np.flatnonzero((many > 0) & (place % every == 0))
    voters = voters[np.argsort(many[voters], kind="stable")]
    enough = max(1, int(np.searchsorted(np.cumsum(many[voters]), MOST_PAIRS, "right")))
    voters = voters[:enough]
    n = many[voters]
    ends = np.cumsum(n)
    which = np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - n, n) + np.repeat(low[voters], n)
    return np.sort(syns.t_ns[which] - np.repeat(records.t_ns[voters], n))


def _peaks(proposals: Ints, window: int) -> list[int]:
    """Medians of the windows with most proposals, those of less than half of the best left out."""
    found: list[int] = []
    best = 0
    while len(proposals) and len(found) < MOST_PEAKS:
        counts = np.searchsorted(proposals, proposals + window, "right") - np.arange(len(proposals))
        first = int(np.argmax(counts))
        n = int(counts[first])
        best = max(best, n)
        if 2 * n < best:
            break
        found.append(int(proposals[first + n // 2]))
        proposals = proposals[(proposals < proposals[first]) | (proposals > proposals[first] + window)]
    return found


def _measure(records: _Side, syns: _Side, peak: int, window: int) -> ClockOffset | None:
    """The offset near ``peak``: from the nearest SYN on the tuple of each connect; then again, along the drift."""
    expected = np.full(len(records.ids), peak, np.int64)
    offset: ClockOffset | None = None
    for tolerance in (window, SCATTER_NS):
        t_ns = records.t_ns + expected
        found = nearest(syns.ids, syns.t_ns, syns.t_ns, records.ids, t_ns, tolerance)
        hit = found != UNMATCHED
        if not hit.any():
            break
        offset = _line(records.t_ns[hit], syns.t_ns[found[hit]] - records.t_ns[hit])
        expected = offset.offset_ns + np.rint((records.t_ns - offset.at_ns) * (offset.drift_ppm / 1e6)).astype(np.int64)
    return offset


def _line(t_ns: Ints, difference_ns: Ints) -> ClockOffset:
    """Median and scatter of differences, their drift removed if that at least halves the scatter.

    The drift is that of the medians of the first and the last third: single stragglers do not bend it.
    """
    order = np.argsort(t_ns, kind="stable")
    at = int(t_ns[order[len(order) // 2]])
    centre = _percentile(difference_ns, 50)
    plain = difference_ns - centre
    drift_ppm, residual = 0.0, plain
    third = len(order) // 3
    if third:
        early, late = order[:third], order[-third:]
        run = float(np.median(t_ns[late] - at) - np.median(t_ns[early] - at))
        if run > 0:
            ppm = (float(np.median(plain[late])) - float(np.median(plain[early]))) / run * 1e6
            without = plain - np.rint((t_ns - at) * (ppm / 1e6)).astype(np.int64)
            if abs(ppm) <= DRIFT_PPM and 2 * _scatter(without) <= _scatter(plain):
                drift_ppm, residual = ppm, without
    middle = centre + _percentile(residual, 50)
    low, high = centre + _percentile(residual, 5), centre + _percentile(residual, 95)
    return ClockOffset(middle, low, high, len(order), drift_ppm, at)


def _percentile(values: Ints, percent: int) -> int:
    """Nearest rank."""
    rank = max(-(-len(values) * percent // 100), 1) - 1
    return int(np.partition(values, rank)[rank])


def _scatter(values: Ints) -> int:
    return _percentile(values, 95) - _percentile(values, 5)


def _same(one: ClockOffset, other: ClockOffset) -> bool:
    scatter = max(one.high_ns - one.low_ns, other.high_ns - other.low_ns)
    return abs(one.offset_ns - other.offset_ns) <= SLACK_NS + scatter


def _one_of(found: list[ClockOffset], records: _Side) -> ClockOffset | None:
    """The offset that explains most connections, if no other explains as many as closely.

    Neighbouring uses of a tuple must lie farther apart than the scatter, or a SYN could be any of several connects'.
    """
    if not found:
        return None
    # A wrong offset pairs connects with other uses of their tuples, whose distances scatter more than one path does.
    least = min(one.high_ns - one.low_ns for one in found)
    close = [one for one in found if one.high_ns - one.low_ns <= 4 * least + SLACK_NS]
    close.sort(key=lambda one: -one.n)
    if len(close) > 1 and close[0].n == close[1].n:
        return None
    again = np.diff(records.t_ns)[records.ids[1:] == records.ids[:-1]]
    chosen = close[0]
    if len(again) and chosen.high_ns - chosen.low_ns >= int(np.median(again)):
        return None
    return chosen
