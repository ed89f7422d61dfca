"""Handshakes of one SYN and one SYN-ACK, which are nearly all of them: found and written in a few columns. Pure.

It must not decide anything ``attempts.py`` decides differently: whatever is not such a pair beyond doubt is left to
``columns.py``, with its whole tuple. The one idea: where a tuple has two segments, a SYN and its answer, or three with
the ACK that completes them, there is nothing to group and nothing to reduce; one sort of a number a segment tells that
they are so many, and every field of their row is a constant or a copy. A busy client soon takes the same port again,
so twice two or three segments are as good.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from ncps_capture.attempts import ACK_NS, LIFE_NS, NOBODY
from ncps_capture.rows import block, pick
from ncps_capture.segments import (
    ACK,
    ANSWERED,
    BIT_TFO,
    BIT_TIMESTAMP,
    F_RTT_EXACT,
    F_TFO,
    F_TS_ECHO,
    HANDSHAKE,
    KIND_ICMP,
    RST,
    STAMP_ANSWER,
    STAMP_FIRST,
    STAMP_LAST,
    SYN,
    UNKNOWN,
    Handshakes,
    Segments,
)

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Flags = npt.NDArray[np.uint8]

_ODD: Final = np.uint64(0x9E3779B97F4A7C15)
_ODD_PORT: Final = np.uint64(0xC2B2AE3D27D4EB4F)
_FOLD: Final = np.uint64(32)
_MIRRORED: Final = (("src_lo", "dst_lo"), ("src_hi", "dst_hi"), ("sport", "dport"))
_ADDRESSES: Final = (("src_hi", "dst_lo"), ("client_hi", "server_lo"))
_PORTS: Final = ("sport", "dport")
_KEPT: Final = ("mss", "source")
"""Neighbours in a segment that are neighbours in a handshake too, from the first to the last, copied as one block."""


def _usual() -> Handshakes:
    row = np.zeros(1, HANDSHAKE)
    row["t_refused_ns"] = UNKNOWN
    for name in ("syn_n", "synack_n"):
        row[name] = 1
    row["state"] = ANSWERED
    row["flags"] = F_RTT_EXACT
    return row


_USUAL: Final = _usual()
_OTHER, _SYN, _ANSWER, _ACK = 0, 1, 2, 3
_TURN: Final = np.array(
    [
        (_ANSWER if flags & ACK else _SYN) if flags & SYN else _ACK if flags & (ACK | RST) == ACK else _OTHER
        for flags in range(256)
    ],
    np.uint8,
)
"""What a segment can be in a handshake, by its flags."""
_STAMPS_SYN: Final = np.array(
    [STAMP_FIRST | STAMP_LAST if bits & BIT_TIMESTAMP else 0 for bits in range(256)], np.uint8
)
_STAMPS_ANSWER: Final = np.array([STAMP_ANSWER if bits & BIT_TIMESTAMP else 0 for bits in range(256)], np.uint8)
_ALL_STAMPS: Final = STAMP_FIRST | STAMP_LAST | STAMP_ANSWER


@dataclass(frozen=True)
class Pairs:
    """SYNs and their answers, on tuples that have nothing else. One element a pair, in the order of the SYNs."""

    syn: Ints  # index of the segment
    answer: Ints
    third: Ints  # of the ACK to the answer; NOBODY where there is none
    rows: Handshakes
    ready_ns: Ints  # as in Settled


def settle_pairs(segments: Segments, order_ns: Ints, third_ack: bool = False) -> Pairs:
    """The rows of all such pairs, equal to those of ``settle_tuple`` with the same ``third_ack``.

    ``segments``: (n,) SEGMENT rows; ``order_ns``: (n,) their times with steps of the clock undone. All segments of the
    tuple of a pair are in pairs, or are their third ACKs, of which there are none without ``third_ack``.
    """
    syn, answer, third, twins = _candidates(segments, order_ns, third_ack)
    asked, told = pick(segments, syn), pick(segments, answer)
    start, ready = order_ns[syn], order_ns[answer]
    t_syn, t_synack = asked["t_ns"], told["t_ns"]
    late = ready - start
    good = (late >= 0) & (late <= LIFE_NS) & (late == t_synack - t_syn)
    good &= told["ack"] - np.uint32(1) == asked["seq"]
    good &= asked["payload"] == 0
    good &= asked["tunnel"] == told["tunnel"]
    alone = np.ones(len(syn), np.bool_)
    for here, there in _MIRRORED:
        source, target = asked[here], asked[there]
        good &= (source == told[there]) & (target == told[here])
        alone &= source == target
    good &= ~alone
    t_ack = np.full(len(syn), UNKNOWN, np.int64)
    if third_ack:
        acked = np.flatnonzero(third != NOBODY)
        done = pick(segments, third[acked])
        t_ack[acked] = done["t_ns"]
        good[acked] &= _completed(pick(told, acked), done, ready[acked], order_ns[third[acked]])
        ready += ACK_NS
        ready[acked] = order_ns[third[acked]]
    if not good.all():
        if len(twins):
            bad = np.zeros(len(segments), np.bool_)
            bad[syn[~good]] = True
            bad[twins[bad[twins].any(axis=1)]] = True
            good = ~bad[syn]
        syn, answer, third, start, ready, t_ack = (each[good] for each in (syn, answer, third, start, ready, t_ack))
        asked, told = pick(asked, good), pick(told, good)
    return Pairs(syn, answer, third, _rows(asked, told, start, t_ack), ready)


def _completed(told: Segments, done: Segments, told_ns: Ints, done_ns: Ints) -> Bools:
    """Whether each of these ACKs acknowledges the SYN-ACK beside it (definition D12)."""
    late = done_ns - told_ns
    good: Bools = (late >= 0) & (late <= ACK_NS) & (late == done["t_ns"] - told["t_ns"])
    good &= done["ack"] - np.uint32(1) == told["seq"]
    good &= done["tunnel"] == told["tunnel"]
    for here, there in _MIRRORED:
        good &= (done[here] == told[there]) & (done[there] == told[here])
    return good


def _candidates(segments: Segments, order_ns: Ints, third_ack: bool) -> tuple[Ints, Ints, Ints, Ints]:
    """Indices of SYNs, of the SYN-ACK and the ACK behind each, and of the two SYNs, a row, of a tuple used again.

    Two or three segments, or twice as many, share a number here that as a rule is that of their tuple. Equal tuples
    have equal numbers, so no other segment is on theirs.
    """
    turns: Flags = _TURN[segments["flags"]]
    turns[segments["kind"] == KIND_ICMP] = _OTHER
    size = len(segments)
    if not (turns == _ANSWER).any():
        nothing = np.zeros(0, np.int64)
        return nothing, nothing, nothing, np.zeros((0, 2), np.int64)
    index, starts, sizes = neighbours(segments)
    mate, third = np.full((2, size), NOBODY, np.int64)
    twins = []
    for length in (2, 3) if third_ack else (2,):
        again = starts[sizes == 2 * length]
        again = again[_reused(segments, order_ns, turns, index, again, length)]
        first = np.concatenate((starts[sizes == length], again, again + length))
        one, other = index[first], index[first + 1]
        in_turn = turns[one] == _SYN
        asked, told = np.where(in_turn, one, other), np.where(in_turn, other, one)
        fits = (turns[asked] == _SYN) & (turns[told] == _ANSWER)
        if length == 3:
            done = index[first + 2]
            fits &= turns[done] == _ACK
            third[asked[fits]] = done[fits]
        mate[asked[fits]] = told[fits]
        twins.append(np.stack((index[again], index[again + length]), axis=1))
    syn = np.flatnonzero(mate != NOBODY)
    return syn, mate[syn], third[syn], np.concatenate(twins)


def neighbours(segments: Segments) -> tuple[Ints, Ints, Ints]:
    """Indices of all segments, each tuple's together and in their order; where each group begins, and its size.

    Two tuples may share a group, which is rare; no tuple is in two. There must be a segment.
    """
    size = len(segments)
    below = np.uint64((1 << size.bit_length()) - 1)
    # The index of a segment takes the low bits of its number, so that sorting needs no second array.
    numbers = _endpoints(segments, "src_lo", "sport")
    numbers += _endpoints(segments, "dst_lo", "dport")
    numbers += segments["src_hi"] ^ segments["dst_hi"]
    numbers *= _ODD
    numbers &= ~below
    numbers |= np.arange(size, dtype=np.uint64)
    numbers.sort()
    cuts = np.flatnonzero(numbers[1:] ^ numbers[:-1] > below) + 1
    starts = np.concatenate((np.zeros(1, np.int64), cuts))
    return (numbers & below).view(np.int64), starts, np.diff(starts, append=size)


def _reused(segments: Segments, order_ns: Ints, turns: Flags, index: Ints, start: Ints, length: int) -> Bools:
    """Whether the ``2 * length`` segments from each start are a handshake and, all decided, another one."""
    rows = [index[start + i] for i in range(2 * length)]
    good = np.ones(len(start), np.bool_)
    for i, row in enumerate(rows):
        good &= turns[row] == (_SYN, _ANSWER, _ACK)[i % length]
    first, decided, again = rows[0], rows[1], rows[length]
    for row in {1: decided, length - 1: rows[length - 1]}.values():
        good &= order_ns[row] < order_ns[again]
    good &= segments["seq"][first] != segments["seq"][again]
    return good


def _endpoints(segments: Segments, address: str, port: str) -> npt.NDArray[np.uint64]:
    out: npt.NDArray[np.uint64] = segments[port].astype(np.uint64)
    out *= _ODD_PORT
    out ^= segments[address]
    out *= _ODD
    out ^= out >> _FOLD
    out *= _ODD_PORT
    return out


def _rows(asked: Segments, told: Segments, order_ns: Ints, t_ack: Ints) -> Handshakes:
    rows = begun(_USUAL, asked, order_ns)
    t_syn, t_synack, tsecr = asked["t_ns"], told["t_ns"], told["tsecr"]
    rows["t_syn_before_ns"] = t_syn
    rows["t_synack_ns"] = t_synack
    rows["t_ack_ns"] = t_ack
    rows["rtt_ts_ns"] = t_synack - t_syn
    rows["server_isn"] = told["seq"]
    rows["tsecr"] = tsecr
    stamps = rows["stamps"] | _STAMPS_ANSWER[told["bits"]]
    rows["stamps"] = stamps
    rows["flags"][(stamps == _ALL_STAMPS) & (asked["tsval"] == tsecr)] |= F_TS_ECHO
    return rows


def begun(row: Handshakes, asked: Segments, order_ns: Ints) -> Handshakes:
    """Copies of ``row``, (1,) HANDSHAKE, each with all that one SYN without data tells. (n,) HANDSHAKE.

    ``asked``: (n,) SEGMENT rows; ``order_ns``: (n,) their times with steps of the clock undone.
    """
    rows = pick(row, np.zeros(len(asked), np.int64))
    t_syn, tsval, bits = asked["t_ns"], asked["tsval"], asked["bits"]
    block(rows, *_ADDRESSES[1])[:] = block(asked, *_ADDRESSES[0])
    block(rows, *_PORTS)[:] = block(asked, *_PORTS)
    block(rows, *_KEPT)[:] = block(asked, *_KEPT)
    rows["t_syn_first_ns"] = rows["t_syn_last_ns"] = t_syn
    rows["t_order_ns"] = order_ns
    rows["isn"] = asked["seq"]
    rows["tsval_first"] = rows["tsval_last"] = tsval
    for name in ("frame", "tunnel", "ip_version", "wscale", "ttl"):
        rows[name] = asked[name]
    rows["stamps"] = _STAMPS_SYN[bits]
    rows["flags"][bits & BIT_TFO != 0] |= F_TFO
    return rows
