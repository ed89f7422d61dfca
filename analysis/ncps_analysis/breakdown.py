"""Pure: attempts by what they have in common, and those that stand out: whose SYNs were sent again, which were slow.

It must not know views. The one idea: a table of keys with counts is added like any other count, so all of this is
gathered part by part; percentiles of a group are exact, from (group, microseconds, count) triples.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

import numpy as np
import numpy.typing as npt
from ncps_capture.addresses import address_text
from ncps_capture.errors import UsageError
from ncps_capture.rows import join, pick
from ncps_capture.segments import (
    ANSWERED,
    HANDSHAKE,
    ICMP_REFUSED,
    REFUSED,
    SIMULTANEOUS,
    STATE_NAMES,
    SYNACK_ONLY,
    UNANSWERED,
    UNKNOWN,
    V4_MAPPED,
    Handshakes,
    rtt_first_ns,
    syn_retrans,
)

from ncps_analysis.attempt_tally import syn_repeats
from ncps_analysis.captured import Group, Repeater, SlowHandshake
from ncps_analysis.figures import distribution
from ncps_analysis.histogram import Histogram

Ints = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]

KINDS: Final = ("client", "server", "port", "minute")
_MINUTE_NS: Final = 60_000_000_000
_STATES: Final = (ANSWERED, REFUSED, ICMP_REFUSED, UNANSWERED, SIMULTANEOUS)
_COUNTED: Final = (
    "attempts",
    *(STATE_NAMES[state] for state in _STATES),
    "syn_repeats",
    "syn_retrans",
    "synack_retrans",
)
_COUNTS: Final = len(_COUNTED)


def check_kind(kind: str) -> str:
    """``kind`` if attempts can be grouped by it, else UsageError."""
    if kind not in KINDS:
        raise UsageError(f"--by must be {', '.join(KINDS[:-1])} or {KINDS[-1]}, not {kind!r}")
    return kind


@dataclass
class Breakdown:
    """Attempts grouped by one of KINDS."""

    kind: str
    _keys: Words = field(default_factory=lambda: np.zeros((0, 2), np.uint64))
    _counts: Ints = field(default_factory=lambda: np.zeros((0, _COUNTS), np.int64))
    _times: Ints = field(default_factory=lambda: np.zeros((0, 3), np.int64))  # group, us, how many

    def add(self, rows: Handshakes) -> None:
        """Count merged rows; lone SYN-ACKs are no attempts."""
        rows = rows[rows["state"] != SYNACK_ONLY]
        if not len(rows):
            return
        keys, group = _unique(_keys_of(rows, self.kind))
        n = len(keys)
        columns = [np.bincount(group, minlength=n)]
        columns += [np.bincount(group[rows["state"] == state], minlength=n) for state in _STATES]
        for amounts in (syn_repeats(rows), syn_retrans(rows), rows["synack_retrans"].astype(np.int64)):
            columns.append(np.bincount(group, amounts, n).astype(np.int64))
        rtt = rtt_first_ns(rows)
        known = rtt != UNKNOWN
        times = np.stack((group[known], rtt[known] // 1000, np.ones(int(known.sum()), np.int64)), axis=1)
        self._merge(keys, np.stack(columns, axis=1).astype(np.int64), _summed(times))

    def groups(self) -> tuple[Group, ...]:
        """The groups: minutes in order of time, others by attempts, the most first."""
        order = np.lexsort((self._keys[:, 1], self._keys[:, 0]))
        if self.kind != "minute":
            order = order[np.argsort(-self._counts[order, 0], kind="stable")]
        times = self._times[np.argsort(self._times[:, 0], kind="stable")]
        ends = np.searchsorted(times[:, 0], np.arange(len(self._keys) + 1))
        out = []
        for i in order.tolist():
            mine = times[ends[i] : ends[i + 1]]
            name = _name(self.kind, int(self._keys[i, 0]), int(self._keys[i, 1]))
            histogram = Histogram(mine[:, 1].copy(), mine[:, 2].copy())
            facts = dict(zip(_COUNTED, self._counts[i].tolist(), strict=True))
            out.append(Group(key=name, syn_rtt_us=distribution(histogram), **facts))
        return tuple(out)

    def _merge(self, keys: Words, counts: Ints, times: Ints) -> None:
        both, place = _unique(np.concatenate((self._keys, keys)))
        total = np.zeros((len(both), _COUNTS), np.int64)
        mine, theirs = place[: len(self._keys)], place[len(self._keys) :]
        total[mine] += self._counts  # keys are unique on either side, so no index comes twice
        total[theirs] += counts
        old, new = self._times.copy(), times.copy()
        old[:, 0], new[:, 0] = mine[old[:, 0]], theirs[new[:, 0]]
        self._keys, self._counts = both, total
        self._times = _summed(np.concatenate((old, new)))


@dataclass
class Outstanding:
    """The ``most`` pairs of ends with the most repeats, and the ``most`` slowest handshakes."""

    most: int
    _slow: Handshakes = field(default_factory=lambda: np.zeros(0, HANDSHAKE))
    _pairs: dict[tuple[int, ...], list[int]] = field(default_factory=dict)

    def add(self, rows: Handshakes) -> None:
        """Look at merged rows."""
        if not self.most:
            return
        rtt = rtt_first_ns(rows)
        best = np.argsort(-np.where(rtt == UNKNOWN, -1, rtt), kind="stable")[: self.most]
        slow = join((self._slow, pick(rows, best[rtt[best] != UNKNOWN])))
        order = np.lexsort((slow["frame"], slow["source"], -rtt_first_ns(slow)))
        self._slow = pick(slow, order[: self.most])
        repeats = syn_repeats(rows)
        some = np.flatnonzero((repeats > 0) & (rows["state"] != SYNACK_ONLY))
        if not len(some):
            return
        names = ("client_hi", "client_lo", "server_hi", "server_lo", "dport", "ip_version")
        keys = np.stack([rows[name][some].astype(np.uint64) for name in names], axis=1)
        pairs, group = _unique(keys)
        sums = [
            np.bincount(group, amounts, len(pairs)).astype(np.int64)
            for amounts in (repeats[some], syn_retrans(rows)[some])
        ]
        for key, *counts in zip(pairs.tolist(), np.bincount(group).tolist(), *(s.tolist() for s in sums), strict=True):
            old = self._pairs.setdefault(tuple(key), [0, 0, 0])
            for i, n in enumerate(counts):
                old[i] += n

    def repeaters(self) -> tuple[Repeater, ...]:
        """By SYN repeats, the most first."""
        ranked = sorted(self._pairs.items(), key=lambda item: (-item[1][1], item[0]))[: self.most]
        return tuple(
            Repeater(address_text(chi, clo, v), address_text(shi, slo, v), port, *counts)
            for (chi, clo, shi, slo, port, v), counts in ranked
        )

    def slowest(self, files: tuple[str, ...]) -> tuple[SlowHandshake, ...]:
        """By ``rtt_first``, the slowest first. ``files``: name of each source."""
        out = []
        for row, rtt in zip(self._slow, rtt_first_ns(self._slow).tolist(), strict=True):
            version = int(row["ip_version"])
            out.append(
                SlowHandshake(
                    file=files[int(row["source"])],
                    frame=int(row["frame"]),
                    src=address_text(row["client_hi"], row["client_lo"], version),
                    sport=int(row["sport"]),
                    dst=address_text(row["server_hi"], row["server_lo"], version),
                    dport=int(row["dport"]),
                    t_syn_first_ns=int(row["t_syn_first_ns"]),
                    syn_n=int(row["syn_n"]),
                    rtt_first_us=rtt // 1000,
                )
            )
        return tuple(out)


def _keys_of(rows: Handshakes, kind: str) -> Words:
    if kind in ("client", "server"):
        return np.stack((rows[f"{kind}_hi"], rows[f"{kind}_lo"]), axis=1)
    one = (
        rows["dport"].astype(np.uint64) if kind == "port" else (rows["t_syn_first_ns"] // _MINUTE_NS).astype(np.uint64)
    )
    return np.stack((np.zeros(len(rows), np.uint64), one), axis=1)


def _name(kind: str, high: int, low: int) -> str:
    if kind == "port":
        return str(low)
    if kind == "minute":
        return datetime.fromtimestamp(low * 60, UTC).strftime("%Y-%m-%dT%H:%MZ")
    return address_text(high, low, 4 if high == 0 and low >> 32 == V4_MAPPED >> 32 else 6)


def _unique(keys: Words) -> tuple[Words, Ints]:
    """Distinct rows of a two-dimensional array, sorted, and the place of each row among them."""
    order = np.lexsort(keys.T[::-1])
    ordered = keys[order]
    first = np.ones(len(keys), np.bool_)
    first[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    place = np.empty(len(keys), np.int64)
    place[order] = np.cumsum(first) - 1
    return ordered[first], place


def _summed(times: Ints) -> Ints:
    """Triples with equal group and microseconds as one."""
    if not len(times):
        return times
    distinct, place = _unique(times[:, :2].astype(np.uint64))
    return np.column_stack((distinct.astype(np.int64), np.bincount(place, times[:, 2]).astype(np.int64)))
