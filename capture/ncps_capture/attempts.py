"""The definitions of a handshake, segment by segment: what docs/handshakes.md says, in code. Pure.

It must not know batches, clocks or files. ``settle_tuple`` reads the segments of one four-tuple in time order and is
*the* definition; the columns in ``columns.py`` are a faster way to the same rows, and tests hold them to it.

The one idea is the **round**: the SYNs of one attempt between which nothing was decided, what decided them (the first
valid SYN-ACK, an RST or an ICMP error) and the repeats of that decision. An undecided round keeps all its segments,
and nothing after a decision changes the round, so a round can be settled once it has gone quiet, whatever else is
still to come. A SYN-ACK that decides no round is a row of its own. ``merge.py`` makes attempts of these rows, and
since it gets the same rows however the capture was cut, so is its result the same.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from ncps_capture.handshake_rows import judge, put_last_syns, rows_of_synacks, rows_of_syns
from ncps_capture.rows import join, pick
from ncps_capture.segments import (
    ACK,
    ANSWERED,
    BIT_TFO,
    BIT_TIMESTAMP,
    F_CLOCK_STEP,
    F_RST_SEQ,
    F_TFO,
    F_TS_ECHO,
    ICMP_REFUSED,
    KIND_ICMP,
    REFUSED,
    RST,
    SIMULTANEOUS,
    STAMP_ANSWER,
    SYN,
    SYNACK_ONLY,
    UNANSWERED,
    UNKNOWN,
    Handshakes,
    Segments,
)

Ints = npt.NDArray[np.int64]

LIFE_NS: Final = 140_000_000_000
"""How long the same ISN is the same attempt (D1): Linux gives up 131 s after its first SYN."""
EARLY_NS: Final = 1_000_000_000
"""How far ahead of its SYN a SYN-ACK may stand (D13)."""

ACK_NS: Final = 4_000_000_000
"""How long after a SYN-ACK its acknowledgement is looked for (D12): a lost one comes after a repeat, at 1 s or 3 s.

Longer would let a flood of SYNs whose answers are never acknowledged fill the memory.
"""
CENSORED_NS: Final = 3_000_000_000
"""A capture that ends sooner after the last SYN has not waited for its answer (D8)."""
PATIENCE_NS: Final = LIFE_NS + CENSORED_NS
"""After this an undecided round stays so, and how it ended can be told."""

_MODULUS: Final = 1 << 32
_COUNT_MAX: Final = 0xFFFF

NOBODY: Final = -1
"""Owner of a segment that decides nothing and is no part of anything."""


@dataclass(frozen=True)
class Settled:
    """Rows found among some segments, and what each segment is part of."""

    rows: Handshakes
    ready_ns: Ints  # one a row: once the capture's time has passed this, no segment can change the row
    owner: Ints  # one a segment: index of its row, or NOBODY


@dataclass(slots=True, eq=False)
class _Part:
    """A round, or a SYN-ACK by itself, while its tuple is read. ``first`` is an index into the segments."""

    first: int
    reverse: bool  # direction of the client
    isn: int
    start: int  # order time of the first segment
    state: int = UNANSWERED
    latest: int = 0
    syns: list[int] = field(default_factory=list)
    syn_len: int = 0
    tfo: bool = False
    dup_syn: int = 0
    after_challenge: int = 0
    challenged: bool = False  # a bare ACK the client cannot accept since the last SYN ...
    objected: bool = False  # ... and the client's RST in answer
    synack: int | None = None
    synack_n: int = 0
    dup_synack: int = 0
    third: int | None = None  # the client's first acknowledgement of ``synack``
    sharing: list[_Part] = field(default_factory=list)  # parts that were acknowledged by the same segment
    refusal: int | None = None
    rst_ignored: int = 0
    partners: list[_Part] = field(default_factory=list)

    @property
    def decided(self) -> bool:
        return self.state != UNANSWERED

    def alive(self, now: int) -> bool:
        return self.start <= now <= self.start + LIFE_NS

    def covers(self, ack: int) -> bool:
        """Whether ``ack`` acknowledges the SYN, and at most the data in it (D4)."""
        return (ack - self.isn - 1) % _MODULUS <= self.syn_len


class _Tuple:
    """Reads the segments of one four-tuple in time order."""

    def __init__(
        self, segments: Segments, order_ns: Ints, reverse: npt.NDArray[np.bool_], alone: bool, third_ack: bool
    ) -> None:
        self._columns = {
            name: segments[name].tolist()
            for name in ("t_ns", "seq", "ack", "tsval", "tsecr", "ip_ident", "payload", "flags", "ttl", "bits")
        }
        self._order: list[int] = order_ns.tolist()
        self._reverse: list[bool] = reverse.tolist()
        self._alone = alone
        self._third_ack = third_ack
        self._copies: dict[tuple[object, ...], tuple[int, int, _Part]] = {}
        self._current: dict[tuple[bool, int], _Part] = {}
        self.rounds: list[_Part] = []
        self.lone: list[_Part] = []
        self.owner: list[_Part | None] = [None] * len(segments)

    def copy_of(self, i: int, window_ns: int) -> _Part | None:
        """The part this SYN or SYN-ACK was already counted in, if it is a duplicate of the capture (D2)."""
        at = self._order[i]
        ttl = self._columns["ttl"][i]
        signature = self._signature(i)
        seen = self._copies.get(signature)
        if seen is None or at - seen[0] >= window_ns or ttl > seen[1]:
            return None
        self._copies[signature] = (at, ttl, seen[2])
        return seen[2]

    def _signature(self, i: int) -> tuple[object, ...]:
        names = ("flags", "seq", "ack", "tsval", "ip_ident", "payload")
        return (self._reverse[i], *(self._columns[name][i] for name in names))

    def _own(self, i: int, part: _Part) -> None:
        self.owner[i] = part
        part.latest = max(part.latest, self._order[i])

    def _undecided(self, reverse: bool, now: int) -> list[_Part]:
        """Rounds of one client still waiting at ``now``, the latest first."""
        return [r for r in reversed(self.rounds) if r.reverse == reverse and not r.decided and r.alive(now)]

    def syn(self, i: int, window_ns: int) -> None:
        part = self.copy_of(i, window_ns)
        if part is not None:
            part.dup_syn += 1
            self._own(i, part)
            return
        now, reverse, isn = self._order[i], self._reverse[i], self._columns["seq"][i]
        part = self._current.get((reverse, isn))
        if part is None or part.decided or not part.alive(now):
            part = _Part(i, reverse, isn, now)
            if self._alone:
                part.partners.append(part)
            for other in self._undecided(not reverse, now):  # D9: SYNs have crossed
                other.partners.append(part)
                part.partners.append(other)
            self._current[reverse, isn] = part
            self.rounds.append(part)
        else:
            part.after_challenge += part.objected
        part.challenged = part.objected = False
        part.syns.append(i)
        part.syn_len = max(part.syn_len, self._columns["payload"][i])
        part.tfo = part.tfo or bool(self._columns["bits"][i] & BIT_TFO)
        self._own(i, part)
        self._copies[self._signature(i)] = (now, self._columns["ttl"][i], part)

    def synack(self, i: int, window_ns: int) -> None:
        part = self.copy_of(i, window_ns)
        if part is not None:
            part.dup_synack += 1
            self._own(i, part)
            return
        now, client, ack = self._order[i], not self._reverse[i], self._columns["ack"][i]
        fits = (
            r for r in reversed(self.rounds) if (self._alone or r.reverse == client) and r.alive(now) and r.covers(ack)
        )
        part = next(fits, None)
        if part is not None and not part.decided:  # D5: this is A
            part.state, part.synack, part.synack_n = ANSWERED, i, 1
        elif part is not None and part.synack is not None and self._same_isn(i, part.synack):
            part.synack_n += 1  # D6
        else:
            part = _Part(i, client, (ack - 1) % _MODULUS, now, SYNACK_ONLY, synack=i, synack_n=1)
            self.lone.append(part)
        self._own(i, part)
        self._copies[self._signature(i)] = (now, self._columns["ttl"][i], part)

    def _same_isn(self, i: int, k: int) -> bool:
        return bool(self._columns["seq"][i] == self._columns["seq"][k])

    def rst(self, i: int) -> None:
        now, reverse, ack = self._order[i], self._reverse[i], self._columns["ack"][i]
        asked = self._undecided(not reverse, now)
        for part in asked:
            if self._columns["flags"][i] & ACK and part.covers(ack):  # D7
                part.state, part.refusal = REFUSED, i
                self._own(i, part)
                return
        if asked:
            asked[0].rst_ignored += 1
            self._own(i, asked[0])
            return
        for part in self._undecided(reverse, now)[:1]:  # the client's own
            part.objected = part.challenged
            self._own(i, part)

    def ack(self, i: int) -> None:
        if self._acknowledges(i):
            return
        for part in self._undecided(not self._reverse[i], self._order[i])[:1]:
            if not part.covers(self._columns["ack"][i]):
                part.challenged = True
                self._own(i, part)

    def _acknowledges(self, i: int) -> bool:
        """D12, for each SYN-ACK that has this number and was not acknowledged yet."""
        if not self._third_ack or self._alone or not self._columns["flags"][i] & ACK:
            return False
        now, reverse, server_isn = self._order[i], self._reverse[i], (self._columns["ack"][i] - 1) % _MODULUS
        taken = []
        for part in (*self.rounds, *self.lone):
            k = part.synack
            if (
                k is not None
                and part.third is None
                and part.reverse == reverse
                and self._columns["seq"][k] == server_isn
                and now <= self._order[k] + ACK_NS
            ):
                part.third = i
                self._own(i, part)
                taken.append(part)
        for part in taken:
            part.sharing = taken
        return bool(taken)

    def t_ack(self, part: _Part) -> int:
        """Time of the third ACK; UNKNOWN where there is none or the clock stepped before it came."""
        if part.third is None or part.synack is None:
            return UNKNOWN
        t, order = self._columns["t_ns"], self._order
        stepped = order[part.third] - t[part.third] != order[part.synack] - t[part.synack]
        return UNKNOWN if stepped else int(t[part.third])

    def icmp(self, i: int) -> None:
        for part in self._undecided(self._reverse[i], self._order[i]):
            if part.isn == self._columns["seq"][i]:
                part.state, part.refusal = ICMP_REFUSED, i
                self._own(i, part)
                return

    def rtt_ts(self, part: _Part) -> int:
        """A minus the one SYN of the round whose TSval it echoes (D5), or UNKNOWN."""
        bits, tsval = self._columns["bits"], self._columns["tsval"]
        if part.synack is None or not bits[part.synack] & BIT_TIMESTAMP:
            return UNKNOWN
        echo = self._columns["tsecr"][part.synack]
        told = [i for i in part.syns if bits[i] & BIT_TIMESTAMP and tsval[i] == echo]
        return self._columns["t_ns"][part.synack] - self._columns["t_ns"][told[0]] if len(told) == 1 else UNKNOWN

    def ready_ns(self, part: _Part) -> int:
        if not part.decided:
            return part.start + PATIENCE_NS
        acknowledged = part.latest
        if self._third_ack and part.synack is not None and part.third is None:
            acknowledged = max(part.latest, self._order[part.synack] + ACK_NS)
        return max(acknowledged, part.start + EARLY_NS) if part.state == SYNACK_ONLY else acknowledged


def settle_tuple(
    segments: Segments,
    order_ns: Ints,
    reverse: npt.NDArray[np.bool_],
    alone: bool,
    window_ns: int,
    third_ack: bool = False,
) -> Settled:
    """Rows of one four-tuple by the definitions.

    ``segments``: (n,) SEGMENT rows of one tuple, in any order; ``order_ns``: (n,) their times with steps of the clock
    undone; ``reverse``: (n,) their directions; ``alone``: the two endpoints are one; ``window_ns``: D2's window;
    ``third_ack``: look for D12, which keeps an answered round open until it was acknowledged.
    """
    tcp = segments["kind"] != KIND_ICMP
    syn = tcp & (segments["flags"] & SYN != 0)
    synack = syn & (segments["flags"] & ACK != 0)
    # At one instant a SYN comes first and its answer next: zero is a round trip, and no order is known.
    rank = np.where(synack, 1, np.where(syn, 0, 2))
    read = _Tuple(segments, order_ns, reverse, alone, third_ack)
    flags = segments["flags"].tolist()
    is_tcp = tcp.tolist()
    for i in np.lexsort((segments["frame"], rank, order_ns)).tolist():
        if not is_tcp[i]:
            read.icmp(i)
        elif flags[i] & SYN:
            (read.synack if flags[i] & ACK else read.syn)(i, window_ns)
        elif flags[i] & RST:
            read.rst(i)
        else:
            read.ack(i)
    parts = read.rounds + read.lone
    ready = _together(parts, [read.ready_ns(part) for part in parts])
    place = {id(part): i for i, part in enumerate(parts)}
    owner = [NOBODY if part is None else place[id(part)] for part in read.owner]
    return Settled(_rows(read, segments, order_ns), np.array(ready, np.int64), np.array(owner, np.int64))


def _together(parts: list[_Part], ready: list[int]) -> list[int]:
    """Crossed SYNs leave together, or the one left behind would no longer be seen to have crossed.

    So do parts that one segment acknowledged: it leaves with the last of them.
    """
    ready_of = {id(part): time for part, time in zip(parts, ready, strict=True)}
    for head in parts:
        group, queue = {id(head): head}, [head]
        while queue:
            part = queue.pop()
            for other in (*part.partners, *part.sharing):
                if id(other) not in group:
                    group[id(other)] = other
                    queue.append(other)
        last = max(ready_of[key] for key in group)
        ready_of.update(dict.fromkeys(group, last))
    return [ready_of[id(part)] for part in parts]


def _rows(read: _Tuple, segments: Segments, order_ns: Ints) -> Handshakes:
    t = segments["t_ns"].tolist()
    order = order_ns.tolist()
    first = np.array([part.first for part in read.rounds], np.int64)
    rows = rows_of_syns(pick(segments, first), order_ns[first])
    put_last_syns(rows, pick(segments, np.array([part.syns[-1] for part in read.rounds], np.int64)))
    for row, part in zip(rows, read.rounds, strict=True):
        repeats = len(part.syns) - 1
        row["syn_n"] = repeats + 1
        row["retrans_after_challenge"] = part.after_challenge
        row["retrans_timeout"] = repeats - part.after_challenge
        row["dup_syn"] = part.dup_syn
        row["rst_ignored"] = min(part.rst_ignored, _COUNT_MAX)
        row["syn_len"] = part.syn_len
        row["state"] = SIMULTANEOUS if part.partners else part.state
        row["flags"] = F_TFO if part.tfo else 0
        decision = part.syns[-1]
        if part.synack is not None:
            decision = part.synack
            row["t_synack_ns"] = t[decision]
            row["t_ack_ns"] = read.t_ack(part)
            row["t_syn_before_ns"] = t[part.syns[-1]]
            row["server_isn"] = segments["seq"][decision]
            row["tsecr"] = segments["tsecr"][decision]
            row["stamps"] |= STAMP_ANSWER if segments["bits"][decision] & BIT_TIMESTAMP else 0
            row["synack_n"] = min(part.synack_n, _COUNT_MAX)
            row["synack_retrans"] = min(part.synack_n - 1, _COUNT_MAX)
            row["dup_synack"] = min(part.dup_synack, _COUNT_MAX)
            row["rtt_ts_ns"] = read.rtt_ts(part)
            row["flags"] |= F_TS_ECHO if row["rtt_ts_ns"] != UNKNOWN else 0
        elif part.refusal is not None and not part.partners:
            decision = part.refusal
            row["t_refused_ns"] = t[decision]
            row["icmp_type"] = segments["icmp_type"][decision]
            row["icmp_code"] = segments["icmp_code"][decision]
            if part.state == REFUSED and segments["seq"][decision] != 0:
                row["flags"] |= F_RST_SEQ
        if order[decision] - t[decision] != order[part.first] - t[part.first]:
            row["flags"] |= F_CLOCK_STEP  # D13
    lone = np.array([part.first for part in read.lone], np.int64)
    answers = rows_of_synacks(pick(segments, lone), order_ns[lone])
    answers["dup_synack"] = [min(part.dup_synack, _COUNT_MAX) for part in read.lone]
    answers["t_ack_ns"] = [read.t_ack(part) for part in read.lone]
    out = join((rows, answers))
    judge(out)
    return out
