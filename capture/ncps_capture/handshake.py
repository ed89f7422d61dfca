"""The handshake table: segments in, handshake rows out, while the capture still runs. Pure.

It must not know sockets, files or clocks: time is what the segments say and what the caller passes. What a handshake
*is* stands in ``attempts.py``, how it is found quickly in ``columns.py``. The one idea here: whatever can still change
keeps its segments and is settled anew with those to come; whatever cannot becomes a row and is forgotten. So the rows
do not depend on how the capture was cut, and the table holds the open attempts alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt

from ncps_capture.attempts import CENSORED_NS, NOBODY, Settled
from ncps_capture.columns import settle_segments
from ncps_capture.merge import books_of, merge_rows
from ncps_capture.rows import distinct, join, pick
from ncps_capture.segments import (
    ANSWERED,
    F_CENSORED,
    ICMP_REFUSED,
    REFUSED,
    SEGMENT,
    UNANSWERED,
    UNKNOWN,
    Handshakes,
    Segments,
    rtt_first_ns,
    syn_retrans,
)
from ncps_capture.tuples import Words, hashes_of_segments
from ncps_capture.waiting import Waiting

__all__ = ["HandshakeTable", "books_of", "merge_rows"]

Ints = npt.NDArray[np.int64]
_NOTHING: Final[Words] = np.zeros(0, np.uint64)

_STEP_NS: Final = 1_000_000_000
"""Time going back by more than this is a step of the clock, by less a capture out of order (D13)."""
_SET_ASIDE_NS: Final = 1_000_000_000
_SET_ASIDE_AT_LEAST: Final = 2048
"""Setting aside costs a copy of all that waits: worth it for many, and for those that have waited a while."""

_MOST_WAITING: Final = 4_000_000
"""Segments that wait, some 130 bytes each. Beyond that the oldest leave undecided, and ``merge_rows`` finds what
answers them later; a refusal that late is ignored, which a black hole that swallows millions does not send.
"""

_MOST_SYNS: Final = 1000
"""SYNs of a round that make it leave undecided: a flood of one SYN must neither fill memory nor be settled again and
again. ``merge_rows`` brings the pieces together."""

LIVE_FIELDS: Final = (
    "repeats",
    "answered_clean",
    "answered_clean_rtt_ns",
    "answered_repeated",
    "answered_repeated_rtt_ns",
    "refused",
)
"""What ``live`` returns; names of WIRE_FIELDS."""


class HandshakeTable:
    """Matches SYNs with what came of them.

    ``dup_window_ns``: two equal segments closer than this are copies made by the capture (D2), 0 = none are.
    ``quiet_ns``: a decided attempt leaves when nothing came for so long; the capture may be out of order by as much,
    less ``dup_window_ns``. ``third_ack``: the segments include ACKs of clients, so an answered attempt stays until it
    was acknowledged, at most four seconds (D12); without it bare ACKs can do no more than challenge (D3).
    The truth is ``merge_rows`` of all rows that ``settle`` and ``finish`` returned.
    ``most_waiting``: segments that may wait for something to come, those of the last second not counted.
    """

    def __init__(
        self,
        dup_window_ns: int = 5_000_000,
        quiet_ns: int = 100_000_000,
        third_ack: bool = False,
        most_waiting: int = _MOST_WAITING,
    ) -> None:
        self._most_waiting = most_waiting
        self._window_ns = dup_window_ns
        self._third_ack = third_ack
        self._quiet_ns = quiet_ns
        self._segments: Segments = np.zeros(0, SEGMENT)
        self._order_ns: Ints = np.zeros(0, np.int64)
        self._new: list[tuple[Segments, Ints]] = []
        self._settled = self._settle_all(self._segments, self._order_ns)
        self._waiting = Waiting()
        self._aside = dict.fromkeys(LIVE_FIELDS, 0)  # of the rows of what waits
        self._gone = dict.fromkeys(LIVE_FIELDS, 0)
        self._clock = _Clock()

    def add(self, segments: Segments) -> None:
        """Take the segments of one batch, in file order."""
        if len(segments):
            self._new.append((segments, self._clock.order(segments)))

    def settle(self, now_ns: int) -> Handshakes:
        """Rows that no segment stamped ``now_ns`` (capture time) or later can change; the table forgets them."""
        horizon = now_ns + self._clock.shift_ns - self._quiet_ns
        self._refresh(self._waiting.overdue(horizon))
        found = self._settled
        flood = (found.rows["state"] == UNANSWERED) & (
            found.rows["syn_n"].astype(np.int64) + found.rows["dup_syn"] > _MOST_SYNS
        )
        done = (found.ready_ns < horizon) | flood
        rows = found.rows if done.all() else pick(found.rows, done)
        held = np.append(~done, True)[found.owner] & ((found.owner != NOBODY) | (self._order_ns >= horizon))
        self._keep(~done, held)
        self._set_aside(horizon - _SET_ASIDE_NS)
        _add(self._gone, rows)
        return join((rows, *self._crowded_out())) if len(self._waiting) > self._most_waiting else rows

    def finish(self, end_ns: int) -> Handshakes:
        """All other rows, the capture having ended at ``end_ns``. The table is empty then."""
        return join(list(self.finish_in_parts(end_ns)))

    def finish_in_parts(self, end_ns: int) -> Iterator[Handshakes]:
        """What ``finish`` returns, a part at a time: for captures that end with millions of open attempts."""
        self._refresh()
        rows = self._settled.rows
        self._keep(np.zeros(len(rows), np.bool_), np.zeros(len(self._segments), np.bool_))
        yield self._ended(rows, end_ns)
        # Not at once: several times faster than a million of them together, which do not fit the cache.
        for part in self._waiting.take_all():
            yield self._ended(self._settle_all(*part).rows, end_ns)
        self._aside = dict.fromkeys(LIVE_FIELDS, 0)

    def _ended(self, rows: Handshakes, end_ns: int) -> Handshakes:
        early = (rows["state"] == UNANSWERED) & (end_ns - rows["t_syn_last_ns"] < CENSORED_NS)
        rows["flags"][early] |= F_CENSORED
        _add(self._gone, rows)
        return rows

    def _crowded_out(self) -> Iterator[Handshakes]:
        """Rows of the oldest that wait, while too much does."""
        while len(self._waiting) > self._most_waiting:
            rows = self._settle_all(*self._waiting.take_oldest()).rows
            _add(self._aside, rows, -1)
            _add(self._gone, rows)
            yield rows

    def live(self) -> dict[str, int]:
        """Totals so far by LIVE_FIELDS, attempts still open included.

        Provisional: a SYN repeated long after its attempt was settled is counted as a repeat by ``merge_rows`` alone.
        """
        self._refresh()
        parts = (self._gone, self._aside, _totals(self._settled.rows))
        return {name: sum(part[name] for part in parts) for name in LIVE_FIELDS}

    def open_segments(self) -> int:
        """Segments the table holds: what its memory is for."""
        return len(self._segments) + len(self._waiting) + sum(len(segments) for segments, _ in self._new)

    def _settle_all(self, segments: Segments, order_ns: Ints) -> Settled:
        return settle_segments(segments, order_ns, self._window_ns, self._third_ack)

    def _refresh(self, overdue: Words = _NOTHING) -> None:
        """Settle what came, with what waited for it or need not wait any longer."""
        parts, self._new = self._new, []
        if len(self._waiting):
            wanted = np.concatenate((overdue, *(hashes_of_segments(segments) for segments, _ in parts)))
            again, again_ns = self._waiting.take(wanted)
            if len(again):
                _add(self._aside, self._settle_all(again, again_ns).rows, -1)
                parts = [(again, again_ns), *parts]
        if not parts:
            return
        # One copy of everything, however it came.
        self._segments = join([self._segments, *(segments for segments, _ in parts)])
        self._order_ns = np.concatenate([self._order_ns, *(order_ns for _, order_ns in parts)])
        self._settled = self._settle_all(self._segments, self._order_ns)

    def _keep(self, rows: npt.NDArray[np.bool_], segments: npt.NDArray[np.bool_]) -> None:
        found = self._settled
        place = np.append(np.cumsum(rows) - 1, NOBODY)  # owner NOBODY, which is -1, finds itself at the end
        self._segments, self._order_ns = pick(self._segments, segments), self._order_ns[segments]
        self._settled = Settled(pick(found.rows, rows), found.ready_ns[rows], place[found.owner[segments]])

    def _set_aside(self, horizon: int) -> None:
        found = self._settled
        idle = found.rows["t_order_ns"] < horizon
        if np.count_nonzero(idle) < _SET_ASIDE_AT_LEAST:
            return
        hashes = hashes_of_segments(self._segments)
        waits = np.append(idle, False)[found.owner] & (self._order_ns < horizon)
        stay = distinct(hashes[~waits])
        if len(stay):  # a tuple goes whole or not at all
            waits &= stay[np.minimum(np.searchsorted(stay, hashes), len(stay) - 1)] != hashes
        going = np.zeros(len(found.rows), np.bool_)
        going[found.owner[waits]] = True
        if not going.any():
            return
        _add(self._aside, pick(found.rows, going))
        ready_ns = found.ready_ns[found.owner[waits]]
        self._waiting.put(pick(self._segments, waits), self._order_ns[waits], hashes[waits], ready_ns)
        self._keep(~going, ~waits)


class _Clock:
    """Undoes steps back of the capture's clock, source by source, so that order times only run on (D13)."""

    def __init__(self) -> None:
        self._last: dict[int, tuple[int, int]] = {}  # source: last time, shift in force
        self.shift_ns = 0

    def order(self, segments: Segments) -> Ints:
        """Times of the segments (in file order) plus all that was stepped back before each. int64, one a segment."""
        sources, t = segments["source"], segments["t_ns"]
        latest = int(sources[-1])
        if (sources == latest).all():
            out = self._order_of(latest, t)
        else:
            out = np.empty(len(t), np.int64)
            for source in np.unique(sources).tolist():
                which = sources == source
                out[which] = self._order_of(source, t[which])
        self.shift_ns = self._last[latest][1]
        return out

    def _order_of(self, source: int, t: Ints) -> Ints:
        last, shift = self._last.get(source, (int(t[0]), 0))
        back = np.concatenate(([last], t[:-1])) - t
        shifts = shift + np.cumsum(np.where(back > _STEP_NS, back, 0))
        self._last[source] = (int(t[-1]), int(shifts[-1]))
        out: Ints = t + shifts
        return out


def _add(totals: dict[str, int], rows: Handshakes, times: int = 1) -> None:
    for name, value in _totals(rows).items():
        totals[name] += times * value


def _totals(rows: Handshakes) -> dict[str, int]:
    rtt = rtt_first_ns(rows)
    known = (rows["state"] == ANSWERED) & (rtt != UNKNOWN)
    clean = known & (rows["syn_n"] == 1)
    repeated = known & ~clean
    refused = (rows["state"] == REFUSED) | (rows["state"] == ICMP_REFUSED)
    return {
        "repeats": int(syn_retrans(rows).sum()),
        "answered_clean": int(np.count_nonzero(clean)),
        "answered_clean_rtt_ns": int(rtt[clean].sum()),
        "answered_repeated": int(np.count_nonzero(repeated)),
        "answered_repeated_rtt_ns": int(rtt[repeated].sum()),
        "refused": int(np.count_nonzero(refused)),
    }
