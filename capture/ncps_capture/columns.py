"""Rounds of many tuples at once: one sort and a few reductions where the key tells everything. Pure.

It must not decide anything ``attempts.py`` decides differently: what it cannot settle surely it hands over, tuple by
tuple. The one idea: a SYN's answer mirrors its tuple and carries ISN + 1, so (tuple, client, ISN) brings question
and answer side by side in one sort, and separates the reuses of a tuple. Handed over are data in the SYN, another
server ISN, SYNs after a decision, SYNs both ways, steps of the clock, RSTs and ACKs that meet an undecided round, and
SYN-ACKs of one number that one ACK acknowledges together.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from ncps_capture.attempts import (
    ACK_NS,
    EARLY_NS,
    LIFE_NS,
    NOBODY,
    PATIENCE_NS,
    Settled,
    settle_tuple,
)
from ncps_capture.handshake_rows import judge, put_last_syns, rows_of_synacks, rows_of_syns, stamps
from ncps_capture.lone import settle_lone
from ncps_capture.pairs import settle_pairs
from ncps_capture.rows import distinct, join, pick
from ncps_capture.segments import (
    ACK,
    ANSWERED,
    BIT_TFO,
    BIT_TIMESTAMP,
    F_RST_SEQ,
    F_TFO,
    F_TS_ECHO,
    HANDSHAKE,
    ICMP_REFUSED,
    KIND_ICMP,
    REFUSED,
    RST,
    STAMP_ANSWER,
    SYN,
    UNANSWERED,
    UNKNOWN,
    Segments,
)
from ncps_capture.tuples import Tuples, Words, mix, tuples_of_segments

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_SYNS, _ANSWERS, _REFUSALS = 0, 1, 2
"""Classes of segments with a key, in the order in which they stand inside a group."""
_CLASS: Final = np.uint64(3)
_LEAST: Final = np.iinfo(np.int64).min
_COUNT_MAX: Final = 0xFFFF


def settle_segments(
    segments: Segments, order_ns: Ints, window_ns: int, third_ack: bool = False, by_tuple: bool = False
) -> Settled:
    """Rows of any segments: equal to ``settle_tuple`` on each tuple, in another order.

    ``segments``: (n,) SEGMENT rows; ``order_ns``: (n,) their times with steps of the clock undone; ``window_ns``: the
    window of D2; ``third_ack``: see ``settle_tuple``. ``by_tuple`` takes the slow way for every tuple: the reference of
    the tests.
    """
    if by_tuple:
        return _settle(segments, order_ns, window_ns, third_ack, by_tuple)
    pairs = settle_pairs(segments, order_ns, third_ack)
    if not len(pairs.rows):
        return _unpaired(segments, order_ns, window_ns, third_ack)
    owner = np.full(len(segments), NOBODY, np.int64)
    owner[pairs.syn] = owner[pairs.answer] = np.arange(len(pairs.rows))
    acked = np.flatnonzero(pairs.third != NOBODY)
    owner[pairs.third[acked]] = acked
    rest = np.flatnonzero(owner == NOBODY)
    if not len(rest):
        return Settled(pairs.rows, pairs.ready_ns, owner)
    found = _unpaired(pick(segments, rest), order_ns[rest], window_ns, third_ack)
    owner[rest] = np.where(found.owner == NOBODY, NOBODY, found.owner + len(pairs.rows))
    return Settled(join((pairs.rows, found.rows)), np.concatenate((pairs.ready_ns, found.ready_ns)), owner)


def _unpaired(segments: Segments, order_ns: Ints, window_ns: int, third_ack: bool) -> Settled:
    lone = settle_lone(segments, order_ns)
    if not len(lone.rows):
        return _settle(segments, order_ns, window_ns, third_ack, by_tuple=False)
    others = np.ones(len(segments), np.bool_)
    others[lone.syn] = False
    rest = np.flatnonzero(others)
    found = _settle(pick(segments, rest), order_ns[rest], window_ns, third_ack, by_tuple=False)
    return _join(
        len(segments), [(lone.syn, Settled(lone.rows, lone.ready_ns, np.arange(len(lone.rows)))), (rest, found)]
    )


def _settle(segments: Segments, order_ns: Ints, window_ns: int, third_ack: bool, by_tuple: bool) -> Settled:
    if not len(segments):
        nothing = np.zeros(0, np.int64)
        return Settled(np.zeros(0, HANDSHAKE), nothing, nothing)
    tuples = tuples_of_segments(segments)
    if by_tuple:
        return _join(len(segments), _hand_over(segments, order_ns, tuples, np.unique(tuples.ids), window_ns, third_ack))
    keyed = _Keyed(segments, order_ns, tuples, window_ns, third_ack)
    odd = keyed.odd_tuples()
    parts = keyed.settle(odd)
    if len(odd):
        parts += _hand_over(segments, order_ns, tuples, odd, window_ns, third_ack)
    return _join(len(segments), parts)


def _join(size: int, parts: list[tuple[Ints, Settled]]) -> Settled:
    """One result of several, each about the segments named with it."""
    owner = np.full(size, NOBODY, np.int64)
    base = 0
    for which, part in parts:
        owner[which] = np.where(part.owner == NOBODY, NOBODY, part.owner + base)
        base += len(part.rows)
    rows = join([part.rows for _, part in parts])
    return Settled(rows, np.concatenate([part.ready_ns for _, part in parts]), owner)


def _hand_over(
    segments: Segments, order_ns: Ints, tuples: Tuples, odd: Words, window_ns: int, third_ack: bool
) -> list[tuple[Ints, Settled]]:
    which = np.flatnonzero(np.isin(tuples.ids, odd))
    which = which[np.argsort(tuples.ids[which], kind="stable")]
    ids = tuples.ids[which]
    parts = []
    for mine in np.split(which, np.flatnonzero(ids[1:] != ids[:-1]) + 1):
        alone, reverse = bool(tuples.alone[mine[0]]), tuples.reverse[mine]
        found = settle_tuple(pick(segments, mine), order_ns[mine], reverse, alone, window_ns, third_ack)
        parts.append((mine, found))
    return parts


class _Keyed:
    """Segments sorted into groups of one (tuple, client, ISN), each with its SYNs, SYN-ACKs and refusals in time order.

    Attributes named ``row_*`` have one element a keyed segment in this order, those named ``g_*`` one a group.
    """

    def __init__(self, segments: Segments, order_ns: Ints, tuples: Tuples, window_ns: int, third_ack: bool) -> None:
        self._segments, self._order_ns, self._tuples = segments, order_ns, tuples
        self._third_ack = third_ack
        flags = segments["flags"]
        icmp = segments["kind"] == KIND_ICMP
        syn = (flags & SYN != 0) & ~icmp
        ack = (flags & ACK != 0) & ~icmp
        answer = syn & ack
        rst = (flags & RST != 0) & ~icmp & ~syn
        has_key = syn | icmp | (rst & ack)
        mirrored = answer | (rst & ack)
        client = tuples.reverse ^ mirrored
        isn = np.where(mirrored, segments["ack"] - np.uint32(1), segments["seq"])
        kind = np.where(answer, _ANSWERS, np.where(syn, _SYNS, _REFUSALS))
        key = (mix([tuples.ids, isn.astype(np.uint64) << np.uint64(1) | client]) & ~_CLASS) | kind.astype(np.uint64)

        keyed = np.flatnonzero(has_key)
        by_key = np.lexsort((segments["frame"][keyed], order_ns[keyed], key[keyed]))
        self._keyless = np.flatnonzero(~has_key)
        self.place = place = keyed[by_key]  # index into the segments
        row_key = key[place]
        self.row_class = kind[place]
        self.row_order = order_ns[place]
        self.row_t = segments["t_ns"][place]
        same_group = row_key[1:] & ~_CLASS == row_key[:-1] & ~_CLASS
        same_run = row_key[1:] == row_key[:-1]
        names = (tuples.ids[place], isn[place], client[place])
        self._collided = any(bool(np.any(same_group & (name[1:] != name[:-1]))) for name in names)
        self.start = np.flatnonzero(np.concatenate((np.ones(min(1, len(place)), np.bool_), ~same_group)))
        self.row_group = np.zeros(len(place), np.int64)
        self.row_group[self.start[1:]] = 1
        np.cumsum(self.row_group, out=self.row_group)
        self.g_ids = names[0][self.start]
        self.g_client = names[2][self.start]
        self.row_third = np.full(len(place), NOBODY, np.int64)
        self._find_copies(same_run, window_ns)
        self._reduce(same_run)
        self._twins = self._acknowledge() if third_ack else tuples.ids[:0]

    def _find_copies(self, same_run: Bools, window_ns: int) -> None:
        """D2 for neighbours. Three or more segments close together that are not all copies are for the slow way."""
        segments, place = self._segments, self.place
        self.row_copy = np.zeros(len(place), np.bool_)
        self._row_near = np.zeros(len(place), np.bool_)
        near = same_run & (self.row_order[1:] - self.row_order[:-1] < window_ns) & (self.row_class[1:] != _REFUSALS)
        if not near.any():
            return
        later, former = place[1:], place[:-1]
        copy = near & (segments["ttl"][later] <= segments["ttl"][former])
        for name in ("flags", "seq", "ack", "tsval", "ip_ident", "payload"):
            copy &= segments[name][later] == segments[name][former]
        self.row_copy[1:] = copy
        self._row_near[1:] = near & ~copy

    def _reduce(self, same_run: Bools) -> None:
        segments, place, start = self._segments, self.place, self.start
        size = len(place)
        is_syn, is_answer = self.row_class == _SYNS, self.row_class == _ANSWERS
        real_syn = is_syn & ~self.row_copy
        self.g_syns = self._sum(is_syn)
        self.g_answers = self._sum(is_answer)
        self.g_asked = self.g_syns > 0
        answer_at = start + self.g_syns
        refusal_at = answer_at + self.g_answers
        rows = np.append(start[1:], size) - start
        refusals = rows - self.g_syns - self.g_answers
        self.g_answered = self.g_asked & (self.g_answers > 0)
        self.answer_at = np.where(self.g_answers > 0, answer_at, start)
        self.g_refused = self.g_asked & (self.g_answers == 0) & (refusals > 0)
        self.refusal_at = np.where(refusals > 0, refusal_at, start)
        index = np.arange(size)
        self.last_syn_at = np.maximum(self._max(np.where(real_syn, index, -1)), start)
        self.g_decided = np.where(
            self.g_answered,
            self.row_order[self.answer_at],
            np.where(self.g_refused, self.row_order[self.refusal_at], self.row_order[start] + LIFE_NS + 1),
        )
        self.row_refuser = np.zeros(size, np.bool_)
        self.row_refuser[self.refusal_at[self.g_refused]] = True

        seq = segments["seq"][place]
        other_isn = np.zeros(size, np.bool_)
        other_isn[1:] = same_run & is_answer[1:] & (seq[1:] != seq[:-1])
        shift = self.row_order - self.row_t
        stepped = shift != shift[start][self.row_group]
        with_data = is_syn & (segments["payload"][place] > 0)
        first, last_syn = self.row_order[start], self.row_order[self.last_syn_at]
        last = self._max(np.where(self.row_class == _REFUSALS, _LEAST, self.row_order))
        last = np.where(self.g_refused, np.maximum(last, self.row_order[self.refusal_at]), last)
        self.g_latest = last
        refusal = self.row_order[self.refusal_at]
        crowded = self._any(self._row_near & is_syn) & (self.g_syns > 2)
        crowded |= self._any(self._row_near & is_answer) & (self.g_answers > 2)
        self._odd = crowded | (
            self.g_asked
            & (
                self._any(other_isn | stepped | with_data)
                | (last > first + LIFE_NS)
                | (self.g_answered & (last_syn > self.row_order[self.answer_at]))
                | ((refusals > 0) & ((refusal < last_syn) | (self.g_answered & (refusal < self.g_decided))))
            )
        )

    def _sum(self, values: Bools | Ints) -> Ints:
        out: Ints = np.zeros(0, np.int64)
        return np.add.reduceat(values.astype(np.int64), self.start) if len(self.start) else out

    def _any(self, flags: Bools) -> Bools:
        return self._sum(flags) > 0

    def _max(self, values: Ints) -> Ints:
        return np.maximum.reduceat(values, self.start) if len(self.start) else np.zeros(0, np.int64)

    def odd_tuples(self) -> Words:
        """Ids of the tuples that one key does not settle, sorted."""
        tuples = self._tuples
        if self._collided:
            return distinct(tuples.ids)
        asked = self.g_asked
        one_way, other_way = self.g_ids[asked & self.g_client], self.g_ids[asked & ~self.g_client]
        crossed = np.intersect1d(one_way, other_way) if len(one_way) and len(other_way) else one_way[:0]
        return distinct(
            np.concatenate(
                (self.g_ids[self._odd], crossed, tuples.ids[tuples.alone], self._twins, self._meeting_undecided())
            )
        )

    def _acknowledge(self) -> Words:
        """D12: put the index of its third ACK at the row of each A and lone SYN-ACK.

        Returns the tuples on which two of these have one number.
        """
        segments, tuples = self._segments, self._tuples
        lone = ~self.g_asked[self.row_group] & (self.row_class == _ANSWERS) & ~self.row_copy
        which = np.concatenate((self.answer_at[self.g_answered], np.flatnonzero(lone)))
        synack = self.place[which]
        key = self._ack_key(synack, ~tuples.reverse[synack], segments["seq"][synack])
        order = np.argsort(key, kind="stable")
        key, which, synack = key[order], which[order], synack[order]
        twin = np.flatnonzero(key[1:] == key[:-1])
        flags = segments["flags"][self._keyless]
        acks = self._keyless[flags & (ACK | RST) == ACK]
        if len(key) and len(acks):
            server_isn = segments["ack"][acks] - np.uint32(1)
            wanted = self._ack_key(acks, tuples.reverse[acks], server_isn)
            at = np.minimum(np.searchsorted(key, wanted), len(key) - 1)
            late = self._order_ns[acks] - self._order_ns[synack[at]]
            # A key is a hash: what it stands for is compared too.
            mine = (key[at] == wanted) & (tuples.ids[acks] == tuples.ids[synack[at]])
            mine &= (tuples.reverse[acks] != tuples.reverse[synack[at]]) & (segments["seq"][synack[at]] == server_isn)
            mine &= (late >= 0) & (late <= ACK_NS)
            at, acks = at[mine], acks[mine]
            by_time = np.lexsort((segments["frame"][acks], self._order_ns[acks], at))
            at, first = np.unique(at[by_time], return_index=True)
            self.row_third[which[at]] = acks[by_time][first]
        return np.concatenate((tuples.ids[synack[twin]], tuples.ids[synack[twin + 1]]))

    def _ack_key(self, rows: Ints, client: Bools, server_isn: npt.NDArray[np.uint32]) -> Words:
        return mix([self._tuples.ids[rows], server_isn.astype(np.uint64) << np.uint64(1) | client])

    def _t_ack(self, at: Ints) -> tuple[Ints, Ints]:
        """Of the SYN-ACKs at these rows: time and order time of the third ACK; UNKNOWN and what to wait for if none."""
        third = self.row_third[at]
        none = third == NOBODY
        t, order = self._segments["t_ns"][third], self._order_ns[third]
        stepped = order - t != self.row_order[at] - self.row_t[at]
        return np.where(none | stepped, UNKNOWN, t), np.where(none, self.row_order[at] + ACK_NS, order)

    def _meeting_undecided(self) -> Words:
        """Tuples with an RST or ACK that has no round of its own, while some round of the tuple was undecided."""
        spare = (self.row_class == _REFUSALS) & ~self.row_refuser
        loose = np.concatenate((self._keyless, self.place[spare]))
        asked = np.flatnonzero(self.g_asked)
        if not len(loose) or not len(asked):
            return np.zeros(0, np.uint64)
        asked = asked[np.argsort(self.g_ids[asked], kind="stable")]
        ids = self.g_ids[asked]
        cut = np.flatnonzero(np.concatenate((np.ones(1, np.bool_), ids[1:] != ids[:-1])))
        known = ids[cut]
        since = np.minimum.reduceat(self.row_order[self.start[asked]], cut)
        until = np.maximum.reduceat(self.g_decided[asked], cut)
        loose_ids, at = self._tuples.ids[loose], self._order_ns[loose]
        where = np.minimum(np.searchsorted(known, loose_ids), len(known) - 1)
        near = (known[where] == loose_ids) & (since[where] <= at) & (at < until[where])
        if not near.any():
            return np.zeros(0, np.uint64)
        # Near is not in: a busy tuple has rounds long decided beside one that was not. Count what had begun and ended.
        asked = asked[np.isin(ids, loose_ids[near])]
        loose_ids, at = loose_ids[near], at[near]
        begun, ended = self.row_order[self.start[asked]], self.g_decided[asked]
        times, rank = np.unique(np.concatenate((begun, ended, at)), return_inverse=True)
        number = np.searchsorted(known, np.concatenate((self.g_ids[asked], self.g_ids[asked], loose_ids)))
        begun, ended, at = np.split(number * len(times) + rank, [len(begun), 2 * len(begun)])
        begun.sort()
        ended.sort()
        still_open = np.searchsorted(begun, at, side="right") > np.searchsorted(ended, at, side="right")
        met: Words = loose_ids[still_open]
        return met

    def settle(self, odd: Words) -> list[tuple[Ints, Settled]]:
        """Rounds and lone SYN-ACKs of all other tuples."""
        mine = ~np.isin(self.g_ids, odd) if len(odd) else np.ones(len(self.g_ids), np.bool_)
        return [self._rounds(np.flatnonzero(mine & self.g_asked)), self._lone(mine & ~self.g_asked)]

    def _rounds(self, groups: Ints) -> tuple[Ints, Settled]:
        segments, place, start = self._segments, self.place, self.start[groups]
        rows = rows_of_syns(pick(segments, place[start]), self.row_order[start])
        real = ~self.row_copy
        is_syn, is_answer = self.row_class == _SYNS, self.row_class == _ANSWERS
        syn_n = self._sum(is_syn & real)[groups]
        put_last_syns(rows, pick(segments, place[self.last_syn_at[groups]]))
        rows["syn_n"] = syn_n
        rows["retrans_timeout"] = syn_n - 1
        rows["dup_syn"] = self.g_syns[groups] - syn_n
        answered, refused = self.g_answered[groups], self.g_refused[groups]
        bits = segments["bits"][place]
        flags = np.where(self._any(is_syn & real & (bits & BIT_TFO != 0))[groups], F_TFO, 0).astype(np.uint16)

        yes = np.flatnonzero(answered)
        at = self.answer_at[groups[yes]]
        synack_n = self._sum(is_answer & real)[groups[yes]]
        rows["t_synack_ns"][yes] = self.row_t[at]
        rows["t_syn_before_ns"][yes] = rows["t_syn_last_ns"][yes]
        answers = pick(segments, place[at])
        rows["server_isn"][yes] = answers["seq"]
        rows["tsecr"][yes] = answers["tsecr"]
        rows["stamps"][yes] |= stamps(answers, STAMP_ANSWER)
        rows["synack_n"][yes] = np.minimum(synack_n, _COUNT_MAX)
        rows["synack_retrans"][yes] = np.minimum(synack_n - 1, _COUNT_MAX)
        rows["dup_synack"][yes] = np.minimum(self.g_answers[groups[yes]] - synack_n, _COUNT_MAX)
        rtt_ts = self._rtt_ts(bits, is_syn & real)[groups]
        rows["rtt_ts_ns"] = rtt_ts
        flags[rtt_ts != UNKNOWN] |= F_TS_ECHO

        no = np.flatnonzero(refused)
        refuser = place[self.refusal_at[groups[no]]]
        by_icmp = segments["kind"][refuser] == KIND_ICMP
        rows["t_refused_ns"][no] = segments["t_ns"][refuser]
        rows["icmp_type"][no] = segments["icmp_type"][refuser]
        rows["icmp_code"][no] = segments["icmp_code"][refuser]
        flags[no[~by_icmp & (segments["seq"][refuser] != 0)]] |= F_RST_SEQ
        rows["state"] = np.where(answered, ANSWERED, UNANSWERED)
        rows["state"][no] = np.where(by_icmp, ICMP_REFUSED, REFUSED)
        rows["flags"] = flags
        judge(rows)

        ready = np.where(answered | refused, self.g_latest[groups], self.row_order[start] + PATIENCE_NS)
        if self._third_ack:
            rows["t_ack_ns"][yes], acked_ns = self._t_ack(at)
            ready[yes] = np.maximum(ready[yes], acked_ns)
        row_of = np.full(len(self.start), NOBODY, np.int64)
        row_of[groups] = np.arange(len(groups))
        owner = row_of[self.row_group]
        owner[(self.row_class == _REFUSALS) & ~self.row_refuser] = NOBODY
        held = np.flatnonzero(owner != NOBODY)
        third = self.row_third[at]
        acked = third != NOBODY
        which = np.concatenate((place[held], third[acked]))
        return which, Settled(rows, ready, np.concatenate((owner[held], yes[acked])))

    def _rtt_ts(self, bits: npt.NDArray[np.uint8], real_syn: Bools) -> Ints:
        """One a group: A minus the only SYN of the round whose TSval it echoes (D5), or UNKNOWN."""
        segments, place = self._segments, self.place
        answer = self.answer_at[self.row_group]
        stamped = self.g_answered[self.row_group] & (bits & bits[answer] & BIT_TIMESTAMP != 0)
        told = real_syn & stamped & (segments["tsval"][place] == segments["tsecr"][place][answer])
        sent = self._sum(np.where(told, self.row_t - self.row_t[answer], 0))
        return np.where(self._sum(told) == 1, -sent, UNKNOWN)

    def _lone(self, groups: Bools) -> tuple[Ints, Settled]:
        which = np.flatnonzero(groups[self.row_group] & (self.row_class == _ANSWERS))
        first = which[~self.row_copy[which]]
        rows = rows_of_synacks(pick(self._segments, self.place[first]), self.row_order[first])
        owner = np.cumsum(~self.row_copy[which]) - 1  # a copy stands right behind what it copies
        rows["dup_synack"] = np.minimum(np.bincount(owner, minlength=len(first)) - 1, _COUNT_MAX)
        ready = self.row_order[first] + EARLY_NS
        if self._third_ack:
            rows["t_ack_ns"], acked_ns = self._t_ack(first)
            ready = np.maximum(ready, acked_ns)
        judge(rows)
        third = self.row_third[first]
        acked = third != NOBODY
        which = np.concatenate((self.place[which], third[acked]))
        return which, Settled(rows, ready, np.concatenate((owner, np.flatnonzero(acked))))
