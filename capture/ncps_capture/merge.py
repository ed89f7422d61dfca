"""Handshake rows of parts to one row an attempt, and the books of these. Pure.

It must not see segments: rows are all that is left of a capture once it is spooled. The one idea: the table's rows are
rounds and lone SYN-ACKs (``attempts.py``), the same ones however the capture was cut, so laying the rows of a tuple in
order of time and adding them up is exact. Most tuples have nothing to bring together and are only numbered.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from ncps_capture.attempts import ACK_NS, EARLY_NS, LIFE_NS
from ncps_capture.handshake_rows import judge
from ncps_capture.rows import distinct, join, pick
from ncps_capture.segments import (
    ANSWERED,
    F_CENSORED,
    F_CLOCK_ERROR,
    F_CLOCK_STEP,
    F_ISN_REUSED,
    F_RST_SEQ,
    F_TFO,
    F_TS_ECHO,
    ICMP_REFUSED,
    REFUSED,
    SIMULTANEOUS,
    STAMP_ANSWER,
    STAMP_FIRST,
    STAMP_LAST,
    SYNACK_ONLY,
    UNANSWERED,
    UNKNOWN,
    Books,
    Handshakes,
)
from ncps_capture.tuples import Words, tuples_of_handshakes

_MODULUS: Final = 1 << 32
_COUNT_MAX: Final = 0xFFFF
_NEVER: Final = np.iinfo(np.int64).max
_ADDED: Final = ("dup_syn", "dup_synack", "synack_bad_ack", "rst_ignored")


def merge_rows(rows: Handshakes) -> Handshakes:
    """One row an attempt, numbered from 1 on each four-tuple, and SYNACK_ONLY rows (number 0) for what answers none.

    ``rows``: what ``HandshakeTable.settle`` and ``finish`` returned, of any number of captures, in any order. The
    result is sorted by the time of the first segment; it does not depend on that order, and merging it again
    changes nothing.
    """
    if not len(rows):
        return rows.copy()
    tuples = tuples_of_handshakes(rows)
    alone, others = _alone(tuples.ids)
    if len(alone):  # as a rule nearly all, and only to be numbered
        single = pick(rows, alone)
        single["attempt"] = single["state"] != SYNACK_ONLY
        rows = join((single, merge_rows(pick(rows, others)))) if len(others) else single
        return _in_order(rows)
    # Ties are broken by what tells two rows apart, so that the order of the input cannot show.
    order = np.lexsort(
        (rows["server_isn"], rows["isn"], tuples.reverse, rows["frame"], rows["source"], rows["t_order_ns"], tuples.ids)
    )
    rows, ids, reverse = _with_late_answers(pick(rows, order), tuples.ids[order], tuples.reverse[order])
    tangled = np.isin(ids, _tangled(rows, ids, reverse))
    plain = pick(rows, ~tangled)
    parts = [plain]
    which = np.flatnonzero(tangled)
    cuts = np.flatnonzero(ids[which][1:] != ids[which][:-1]) + 1
    parts += [_Merge(pick(rows, mine), reverse[mine]).rows() for mine in np.split(which, cuts) if len(mine)]
    return _numbered(join(parts))


def _in_order(rows: Handshakes) -> Handshakes:
    """Rows by time, source and frame; where all three are equal the tuple decides: the input order never shows."""
    keys = ("frame", "source", "t_order_ns")
    rows = pick(rows, np.lexsort([rows[key] for key in keys]))
    tied = np.ones(len(rows) - 1, np.bool_)
    for key in keys:
        tied &= rows[key][1:] == rows[key][:-1]
    if not tied.any():
        return rows
    return pick(rows, np.lexsort((tuples_of_handshakes(rows).ids, *(rows[key] for key in keys))))


def _alone(ids: Words) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Indices of the rows whose tuple no other row has, and of the others; rising: what is in order stays so."""
    order = np.argsort(ids, kind="stable")
    twin = ids[order[1:]] == ids[order[:-1]]
    crowd = np.zeros(len(ids), np.bool_)
    crowd[order[1:]] = twin
    crowd[order[:-1]] |= twin
    return np.flatnonzero(~crowd), np.flatnonzero(crowd)


def _with_late_answers(
    rows: Handshakes, ids: Words, reverse: npt.NDArray[np.bool_]
) -> tuple[Handshakes, Words, npt.NDArray[np.bool_]]:
    """Add lone repeats of the answer to their round where nobody else can claim them: D6 in columns.

    A listener whose queue is full makes one such repeat or more of every connection, too many to go tuple by tuple.
    """
    lone = rows["state"] == SYNACK_ONLY
    if not lone.any():
        return rows, ids, reverse
    order = np.lexsort((lone, reverse, rows["isn"], ids))
    same = np.ones(len(rows), np.bool_)
    same[0] = False
    for column in (ids, rows["isn"], reverse):
        ordered = column[order]
        same[1:] &= ordered[1:] == ordered[:-1]
    start = np.maximum.accumulate(np.where(same, 0, np.arange(len(rows))))
    head, rounds = order[start], np.bincount(start[~lone[order]], minlength=len(rows))[start]
    asks_more = np.isin(ids, ids[rows["syn_len"] > 0])[order]  # data in a SYN: other numbers may answer it too
    late = rows["t_order_ns"][order] - rows["t_order_ns"][head]
    mine = (
        lone[order] & (rounds == 1) & (rows["state"][head] == ANSWERED) & ~asks_more & (late >= 0) & (late <= LIFE_NS)
    )
    mine &= (rows["server_isn"][order] == rows["server_isn"][head]) & (rows["synack_isn_changed"][order] == 0)
    to, extra = head[mine], order[mine]
    for name, of in (("synack_n", "synack_n"), ("synack_retrans", "synack_n"), ("dup_synack", "dup_synack")):
        total = rows[name].astype(np.int64)
        np.add.at(total, to, rows[of][extra].astype(np.int64))
        rows[name] = np.minimum(total, _COUNT_MAX)
    first = _acked(rows, np.arange(len(rows)))
    np.minimum.at(first, to, np.where(_shift(rows[extra]) == _shift(rows[to]), first[extra], _NEVER))
    _put_ack(rows, to, first[to])
    keep = np.ones(len(rows), np.bool_)
    keep[extra] = False
    return pick(rows, keep), ids[keep], reverse[keep]


def _shift(rows: Handshakes) -> npt.NDArray[np.int64]:
    """What the clock had stepped back before each row; where it stepped inside the row there is no D12."""
    begin = np.where(rows["state"] == SYNACK_ONLY, rows["t_synack_ns"], rows["t_syn_first_ns"])
    return np.asarray(rows["t_order_ns"] - begin)


def _acked(rows: Handshakes, which: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Times of the third ACKs; later than any where there is none."""
    t = rows["t_ack_ns"][which]
    return np.where(t == UNKNOWN, _NEVER, t)


def _put_ack(rows: Handshakes, at: npt.NDArray[np.int64], t: npt.NDArray[np.int64]) -> None:
    """Note the third ACK of these rows, unless it comes too late after their SYN-ACK (D12)."""
    bad = (t == _NEVER) | (rows["flags"][at] & F_CLOCK_STEP != 0)
    late = np.where(bad, 0, t) - rows["t_synack_ns"][at]
    rows["t_ack_ns"][at] = np.where(bad | (late > ACK_NS), UNKNOWN, t)


def _tangled(rows: Handshakes, ids: Words, reverse: npt.NDArray[np.bool_]) -> Words:
    """Tuples with something to bring together: a lone SYN-ACK beside other rows, or the same ISN twice."""
    if len(rows) == 1:
        return np.zeros(0, np.uint64)
    twins = ids[1:] == ids[:-1]
    crowd = np.zeros(len(rows), np.bool_)
    crowd[1:] |= twins
    crowd[:-1] |= twins
    lone = crowd & (rows["state"] == SYNACK_ONLY)
    order = np.lexsort((reverse, rows["isn"], ids))
    again = np.flatnonzero(
        (ids[order[1:]] == ids[order[:-1]])
        & (rows["isn"][order[1:]] == rows["isn"][order[:-1]])
        & (reverse[order[1:]] == reverse[order[:-1]])
    )
    out: Words = distinct(np.concatenate((ids[lone], ids[order[again]])))
    return out


def _numbered(rows: Handshakes) -> Handshakes:
    tuples = tuples_of_handshakes(rows)
    order = np.lexsort((rows["frame"], rows["source"], rows["t_order_ns"], tuples.ids))
    ids = tuples.ids[order]
    attempt = rows["state"][order] != SYNACK_ONLY
    count = np.cumsum(attempt)
    first = np.concatenate((np.ones(1, np.bool_), ids[1:] != ids[:-1]))
    before = np.maximum.accumulate(np.where(first, count - attempt, 0))
    rows["attempt"][order] = np.where(attempt, count - before, 0)
    return pick(rows, np.lexsort((rows["frame"], rows["source"], rows["t_order_ns"])))


@dataclass(slots=True, eq=False)
class _Attempt:
    """Rows of one attempt, in order of time: indices into the rows of the tuple."""

    start: int
    isn: int
    reverse: bool
    reused: bool
    syn_len: int = 0
    rounds: list[int] = field(default_factory=list)
    answers: list[int] = field(default_factory=list)
    strays: list[int] = field(default_factory=list)

    def alive(self, now: int) -> bool:
        return self.start <= now <= self.start + LIFE_NS

    def covers(self, isn: int) -> bool:
        return (isn - self.isn) % _MODULUS <= self.syn_len


class _Merge:
    """Brings the rows of one four-tuple together. ``rows`` are in order of time."""

    def __init__(self, rows: Handshakes, reverse: npt.NDArray[np.bool_]) -> None:
        self._rows = rows
        self._at: list[int] = rows["t_order_ns"].tolist()
        self._isn: list[int] = rows["isn"].tolist()
        self._reverse: list[bool] = reverse.tolist()
        self._attempts: list[_Attempt] = []
        self._lone: list[list[int]] = []
        lone = rows["state"] == SYNACK_ONLY
        for i in np.flatnonzero(~lone).tolist():
            self._add_round(i)
        for i in np.flatnonzero(lone).tolist():
            self._add_synack(i)

    def _add_round(self, i: int) -> None:
        """D1: the same ISN is the same attempt for 140 s after its first SYN."""
        same = [a for a in self._attempts if a.isn == self._isn[i] and a.reverse == self._reverse[i]]
        if same and same[-1].alive(self._at[i]):
            attempt = same[-1]
        else:
            reused = bool(same) or bool(self._rows["flags"][i] & F_ISN_REUSED)
            attempt = _Attempt(self._at[i], self._isn[i], self._reverse[i], reused)
            self._attempts.append(attempt)
        attempt.rounds.append(i)
        attempt.syn_len = max(attempt.syn_len, int(self._rows["syn_len"][i]))

    def _add_synack(self, i: int) -> None:
        """D4, D8 and D13: whose SYN it answers, soon after or up to a second before; else whom it fails to answer."""
        at, isn = self._at[i], self._isn[i]
        toward = [a for a in self._attempts if a.reverse == self._reverse[i]]
        running = [a for a in reversed(toward) if any(self._at[k] <= at <= self._at[k] + LIFE_NS for k in a.rounds)]
        answered = next((a for a in running if a.covers(isn)), None)
        answered = answered or next((a for a in toward if at < a.start <= at + EARLY_NS and a.covers(isn)), None)
        if answered is not None:
            answered.answers.append(i)
        elif running:
            running[0].strays.append(i)
        else:
            for group in self._lone:
                k = group[0]
                if (self._isn[k], self._reverse[k]) == (isn, self._reverse[i]) and at - self._at[k] <= LIFE_NS:
                    group.append(i)
                    return
            self._lone.append([i])

    def rows(self) -> Handshakes:
        """The attempts and what answers none."""
        whole = [self._attempt_row(attempt) for attempt in self._attempts]
        whole += [self._lone_row(group) for group in self._lone]
        out = np.stack(whole)
        judge(out)
        return out

    def _lone_row(self, group: list[int]) -> Handshakes:
        rows = self._rows[group]
        out: Handshakes = rows[0].copy()
        same = rows["server_isn"] == out["server_isn"]
        self._add_ack(out, [k for k, fits in zip(group, same.tolist(), strict=True) if fits])
        _put(out, "synack_n", int(rows["synack_n"].sum()))
        _put(out, "dup_synack", int(rows["dup_synack"].sum()))
        changed = int(rows["synack_n"][~same].sum() + rows["synack_isn_changed"][same].sum())
        _put(out, "synack_isn_changed", changed)
        _put(out, "synack_retrans", int(rows["synack_n"].sum()) - changed - 1)
        return out

    def _attempt_row(self, attempt: _Attempt) -> Handshakes:
        rows = self._rows
        out: Handshakes = rows[attempt.rounds[0]].copy()
        last = rows[attempt.rounds[-1]]
        everything = rows[attempt.rounds + attempt.answers + attempt.strays]
        for name in _ADDED:
            _put(out, name, int(everything[name].astype(np.int64).sum()))
        strays = rows[attempt.strays]
        _put(out, "synack_bad_ack", int(out["synack_bad_ack"]) + int(strays["synack_n"].sum()))
        out["t_syn_last_ns"], out["tsval_last"] = last["t_syn_last_ns"], last["tsval_last"]
        out["stamps"] = int(out["stamps"]) & STAMP_FIRST | int(last["stamps"]) & STAMP_LAST
        out["syn_len"] = attempt.syn_len
        self._add_causes(attempt, out)
        out["t_ack_ns"] = UNKNOWN
        answer = self._add_answers(attempt, out)
        flags = int(np.bitwise_or.reduce(everything["flags"] & np.uint16(F_TFO)))
        flags |= F_ISN_REUSED if attempt.reused else 0
        states = rows["state"][attempt.rounds].tolist()
        refusals = [i for i, state in zip(attempt.rounds, states, strict=True) if state in (REFUSED, ICMP_REFUSED)]
        decision = attempt.rounds[-1]
        if SIMULTANEOUS in states:
            out["state"] = SIMULTANEOUS
            decision = attempt.rounds[states.index(SIMULTANEOUS)]
        elif answer is not None:
            out["state"] = ANSWERED
            decision = answer
        elif refusals:
            decision = refusals[0]
            for name in ("state", "t_refused_ns", "icmp_type", "icmp_code"):
                out[name] = rows[name][decision]
            flags |= int(rows["flags"][decision]) & F_RST_SEQ
        else:
            out["state"] = UNANSWERED
            flags |= int(last["flags"]) & F_CENSORED
        if out["state"] not in (REFUSED, ICMP_REFUSED):
            out["t_refused_ns"], out["icmp_type"], out["icmp_code"] = UNKNOWN, 0, 0
        flags |= self._step_between(attempt.rounds[0], decision)
        flags |= F_TS_ECHO if answer is not None and out["rtt_ts_ns"] != UNKNOWN else 0
        out["flags"] = flags
        return out

    def _step_between(self, first: int, decision: int) -> int:
        """F_CLOCK_STEP if the clock stepped inside the deciding row or between it and the first SYN (D13)."""
        row = self._rows[decision]
        t = row["t_synack_ns"] if row["state"] == SYNACK_ONLY else row["t_syn_first_ns"]
        start = self._rows[first]
        moved = int(row["t_order_ns"]) - int(t) != int(start["t_order_ns"]) - int(start["t_syn_first_ns"])
        return F_CLOCK_STEP if moved else int(row["flags"]) & F_CLOCK_STEP

    def _add_causes(self, attempt: _Attempt, out: Handshakes) -> None:
        """D3 across rounds: what stands between a round's first SYN and the SYN before it."""
        rows = self._rows
        timeout = after_synack = after_rst = after_challenge = syns = 0
        answered_at = min((self._at[i] for i in attempt.answers), default=None)
        refused = False
        for n, i in enumerate(attempt.rounds):
            row = rows[i]
            late = answered_at is not None and answered_at < self._at[i]
            syns += int(row["syn_n"])
            if n:
                if refused:
                    after_rst += 1
                elif late:
                    after_synack += 1
                else:
                    timeout += 1
            if late:
                after_synack += int(row["retrans_timeout"])
            else:
                timeout += int(row["retrans_timeout"])
            after_challenge += int(row["retrans_after_challenge"])
            after_synack += int(row["retrans_after_synack"])
            after_rst += int(row["retrans_after_rst"])
            if row["t_synack_ns"] != UNKNOWN:
                answered_at = self._at[i] if answered_at is None else min(answered_at, self._at[i])
            refused = row["state"] == REFUSED
        _put(out, "syn_n", syns)
        _put(out, "retrans_timeout", timeout)
        _put(out, "retrans_after_synack", after_synack)
        _put(out, "retrans_after_rst", after_rst)
        _put(out, "retrans_after_challenge", after_challenge)

    def _add_answers(self, attempt: _Attempt, out: Handshakes) -> int | None:
        """D5 and D6: the row that holds A, and the other SYN-ACKs by their ISN. Fills in what A tells."""
        rows = self._rows
        units = [i for i in attempt.rounds if rows["t_synack_ns"][i] != UNKNOWN] + attempt.answers
        if not units:
            return None
        # A lone SYN-ACK inside a round would have decided it, so the order of rows is the order of their answers.
        answer = min(units, key=self._at.__getitem__)
        chosen = rows[answer]
        lone = chosen["state"] == SYNACK_ONLY
        before = [i for i in attempt.rounds if self._at[i] <= self._at[answer]] or attempt.rounds[:1]
        for name in ("t_synack_ns", "server_isn", "tsecr"):
            out[name] = chosen[name]
        out["stamps"] |= chosen["stamps"] & STAMP_ANSWER
        out["rtt_ts_ns"] = self._rtt_ts(attempt, answer)
        out["t_syn_before_ns"] = rows["t_syn_last_ns"][before[-1]] if lone else chosen["t_syn_before_ns"]
        if self._at[answer] < self._at[attempt.rounds[0]]:
            out["t_syn_before_ns"] = UNKNOWN
        n = int(rows["synack_n"][units].sum())
        same = [i for i in units if rows["server_isn"][i] == chosen["server_isn"]]
        self._add_ack(out, [answer, *same])
        repeats = sum(int(rows["synack_n"][i]) - int(rows["synack_isn_changed"][i]) for i in same) - 1
        _put(out, "synack_n", n)
        _put(out, "synack_retrans", repeats)
        _put(out, "synack_isn_changed", n - repeats - 1)
        return answer

    def _rtt_ts(self, attempt: _Attempt, answer: int) -> int:
        """A minus the only SYN of all rounds whose TSval it echoes (D5), or UNKNOWN.

        A round keeps two of its SYNs' timestamps. Where it had more SYNs and the echo lies between the two, whether
        one of those answers to it cannot be told, unless it is A's own round, which knew all its SYNs.
        """
        chosen = self._rows[answer]
        if not chosen["stamps"] & STAMP_ANSWER:
            return UNKNOWN
        echo, t = int(chosen["tsecr"]), int(chosen["t_synack_ns"])
        round_trips = []
        for i in attempt.rounds:
            row = self._rows[i]
            if i == answer and row["flags"] & F_TS_ECHO:
                round_trips.append(int(row["rtt_ts_ns"]))
                continue
            first, last, stamps = int(row["tsval_first"]), int(row["tsval_last"]), int(row["stamps"])
            if row["syn_n"] > 2:
                if stamps & STAMP_FIRST and stamps & STAMP_LAST:
                    between = (echo - first) % _MODULUS <= (last - first) % _MODULUS
                else:
                    between = bool(stamps & (STAMP_FIRST | STAMP_LAST))
                if between:
                    return UNKNOWN
                continue
            if stamps & STAMP_FIRST and first == echo:
                round_trips.append(t - int(row["t_syn_first_ns"]))
            if row["syn_n"] > 1 and stamps & STAMP_LAST and last == echo:
                round_trips.append(t - int(row["t_syn_last_ns"]))
        return round_trips[0] if len(round_trips) == 1 and round_trips[0] >= 0 else UNKNOWN

    def _add_ack(self, out: Handshakes, units: list[int]) -> None:
        """D12: the first of the ACKs to the SYN-ACKs of one number; the first of these units holds A."""
        which = np.array(units, np.int64)
        shift = _shift(self._rows[which])
        same = (shift == shift[0]) & (self._rows["flags"][which] & F_CLOCK_STEP == 0)
        t = int(_acked(self._rows, which)[same].min(initial=_NEVER))
        late = t - int(self._rows["t_synack_ns"][which[0]])
        out["t_ack_ns"] = t if t != _NEVER and late <= ACK_NS else UNKNOWN


def _put(row: Handshakes, name: str, value: int) -> None:
    row[name] = min(value, np.iinfo(row.dtype[name]).max)


def books_of(rows: Handshakes) -> Books:
    """What became of the SYNs and attempts in merged rows (D14); packets are the decoder's to count.

    On rows that were not merged the SYNs are right, but an attempt is counted once for every part of it.
    """
    counted = np.bincount(rows["state"], minlength=SYNACK_ONLY + 1).tolist()
    flags = rows["flags"]

    def total(name: str) -> int:
        return int(rows[name].astype(np.int64).sum())

    return Books(
        syn_counted=total("syn_n"),
        syn_duplicate=total("dup_syn"),
        attempts=len(rows) - counted[SYNACK_ONLY],
        answered=counted[ANSWERED],
        refused=counted[REFUSED],
        icmp_refused=counted[ICMP_REFUSED],
        unanswered=counted[UNANSWERED],
        simultaneous=counted[SIMULTANEOUS],
        synack_only=counted[SYNACK_ONLY],
        synack_duplicate=total("dup_synack"),
        synack_bad_ack=total("synack_bad_ack"),
        rst_ignored=total("rst_ignored"),
        clock_error=int(np.count_nonzero(flags & F_CLOCK_ERROR)),
        clock_step=int(np.count_nonzero(flags & F_CLOCK_STEP)),
    )
