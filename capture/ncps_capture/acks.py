"""Which bare ACKs of a saved capture matter: those that complete a handshake, or challenge one. Pure.

It must not know frames. The one idea: an ACK matters only for its number. The third ACK of a handshake carries the
server's ISN + 1 (definition D12), a challenge the number of the RST that the client answers it with (definition D3),
so the SYN-ACKs and RSTs of a capture name the few ACKs that its table needs. Where the RST is yet to come, the
challenge is told by its tuple: it goes back to a SYN that nothing answered so far. A small table of bits for numbers,
and one for ports, let nearly all others pass at the cost of a look; the few that are left are compared in full.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from ncps_capture.attempts import ACK_NS
from ncps_capture.rows import distinct, pick
from ncps_capture.segments import ACK, KIND_TCP, RST, SYN, Segments
from ncps_capture.tuples import mix

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Keys = npt.NDArray[np.uint64]
Words = npt.NDArray[np.uint32]

_ODD: Final = np.uint32(0x9E3779B1)
_BITS_LEAST, _BITS_MOST = 14, 22
_BITS_MORE_THAN_KEYS: Final = 5
"""The table has 32 to 64 places for each number: a few in a hundred of the others are read for nothing."""


Open = tuple[Keys, Ints, Words]
"""SYNs without an answer: the key of packets that go back to them, their time, the ports of such a packet."""


@dataclass(frozen=True)
class Awaited:
    """ACKs awaited at some time. One element a SYN-ACK, and one a SYN that is open: its key, time, number or ports."""

    keys: Keys
    since_ns: Ints
    numbers: Words
    open_keys: Keys
    open_since_ns: Ints
    open_ports: Words


class _Table:
    """A set of words that may say yes to a few in a hundred of the others."""

    def __init__(self, words: Words) -> None:
        bits = min(max(len(words).bit_length() + _BITS_MORE_THAN_KEYS, _BITS_LEAST), _BITS_MOST)
        self._shift = np.uint32(32 - bits)
        self._bits = np.zeros(1 << bits, np.bool_)
        self._bits[self._place(words)] = True

    def has(self, words: Words) -> Bools:
        """Whether each may be in the set; never no of one that is."""
        return self._bits[self._place(words)]

    def _place(self, words: Words) -> Words:
        return (words * _ODD) >> self._shift


class AckWatch:
    """Remembers the numbers that ACKs of one source are awaited with; every batch of the source passes it in order.

    Of the ACKs behind a SYN-ACK it lets the first through, of those before an RST the last, and all that go back to a
    SYN that was not answered when the batch ended. Not looked for in later batches is a third ACK that is stamped
    before one already found.
    """

    def __init__(self) -> None:
        self._keys: Keys = np.zeros(0, np.uint64)  # of the SYN-ACKs not acknowledged yet
        self._since: Ints = np.zeros(0, np.int64)
        self._numbers: Words = np.zeros(0, np.uint32)
        self._ends: tuple[Keys, Ints] = (self._keys, self._since)  # RSTs of this batch
        self._open: Open = (self._keys, self._since, self._numbers)  # of SYNs without an answer
        self._table = self._port_table = _Table(self._numbers)

    def expect(self, segments: Segments) -> None:
        """Take the rows of a batch that have SYN or RST, before its ACKs are looked at."""
        tcp = segments["kind"] == KIND_TCP
        flags = segments["flags"]
        answers = pick(segments, tcp & (flags & (SYN | ACK) == SYN | ACK))
        resets = pick(segments, tcp & (flags & (SYN | RST) == RST))
        number = answers["seq"] + np.uint32(1)
        self._ends = (_key(resets, False, resets["seq"]), resets["t_ns"])
        self._keys = np.concatenate((self._keys, _key(answers, False, number)))
        self._since = np.concatenate((self._since, answers["t_ns"]))
        self._numbers = np.concatenate((self._numbers, number))
        syns = pick(segments, tcp & (flags & (SYN | ACK) == SYN))
        ports = (syns["dport"].astype(np.uint32) << np.uint32(16) | syns["sport"]).byteswap()
        self._add_open((_key(syns, False, _none(syns)), syns["t_ns"], ports))
        self._drop_answered(answers)
        self._table = _Table(np.concatenate((self._numbers, resets["seq"])).byteswap())
        self._port_table = _Table(self._open[2])

    def answered(self, segments: Segments) -> None:
        """Take the SYN-ACKs of frames that another watch saw: no challenge comes before them any more."""
        if len(self._open[0]):
            self._drop_answered(
                pick(segments, (segments["kind"] == KIND_TCP) & (segments["flags"] & (SYN | ACK) == SYN | ACK))
            )

    def _add_open(self, more: Open) -> None:
        keys, since_ns, ports = self._open
        more_keys, more_ns, more_ports = more
        self._open = (
            np.concatenate((keys, more_keys)),
            np.concatenate((since_ns, more_ns)),
            np.concatenate((ports, more_ports)),
        )

    def _drop_answered(self, answers: Segments) -> None:
        keys, since_ns, _ = self._open
        if not len(answers) or not len(keys):
            return
        known = _key(answers, True, _none(answers))
        order = np.lexsort((answers["t_ns"], known))
        known, latest = known[order], answers["t_ns"][order]
        at = np.searchsorted(known, keys, "right") - 1  # of the last answer on the tuple
        done = (at >= 0) & (known[at] == keys) & (since_ns <= latest[at])
        self._keep_open(~done)

    def _keep_open(self, which: Bools) -> None:
        keys, since_ns, ports = self._open
        self._open = (keys[which], since_ns[which], ports[which])

    def may_matter(self, words: Words, ports: Words, rows: Ints) -> Ints:
        """Indices of the ACKs worth reading.

        ``words``: their numbers as they lie in memory, read as little-endian, ``ports``: both ports likewise; ``rows``:
        where they are in their batch, for a watch that notes them.
        """
        may = self._table.has(words)
        if len(self._open[0]):
            may |= self._port_table.has(ports)
        return np.flatnonzero(may)

    def choose(self, acks: Segments, now_ns: int) -> Ints:
        """Indices of the rows that matter, in order; forgets what they complete and what is too old at ``now_ns``."""
        of_open = np.zeros(0, np.int64)
        if len(self._open[0]):
            of_open = np.flatnonzero(np.isin(_key(acks, True, _none(acks)), self._open[0]))
            self._keep_open(self._open[1] >= now_ns - ACK_NS)
        if not len(acks):
            self._forget(self._since < now_ns - ACK_NS)
            return of_open
        ends, ends_ns = self._ends
        count = len(acks)
        keys = np.concatenate((_key(acks, True, acks["ack"]), self._keys, ends))
        times = np.concatenate((acks["t_ns"], self._since, ends_ns))
        # At one instant an ACK stands behind the SYN-ACK it acknowledges and before the RST it brings about.
        ranks = np.repeat(np.array([1, 0, 2], np.int8), [count, len(self._keys), len(ends)])
        order = np.lexsort((ranks, times, keys))
        sorted_keys, is_ack = keys[order], order < count
        place = np.arange(len(order))
        behind = np.minimum.accumulate(np.where(is_ack, place, len(order))[::-1])[::-1]
        before = np.maximum.accumulate(np.where(is_ack, place, -1))
        synacks = np.flatnonzero((order >= count) & (order < count + len(self._keys)))
        answer = behind[synacks]
        at = np.minimum(answer, len(order) - 1)
        done = (answer < len(order)) & (sorted_keys[at] == sorted_keys[synacks])
        done &= times[order[at]] - times[order[synacks]] <= ACK_NS
        resets = np.flatnonzero(order >= count + len(self._keys))
        challenge = before[resets]
        met = (challenge >= 0) & (sorted_keys[challenge] == sorted_keys[resets])
        chosen = distinct(np.concatenate((order[at[done]], order[challenge[met]], of_open)))
        gone = self._since < now_ns - ACK_NS
        gone[order[synacks[done]] - count] = True
        self._forget(gone)
        return chosen

    @property
    def waits(self) -> bool:
        """Whether any ACK is awaited."""
        return len(self._keys) > 0 or len(self._open[0]) > 0

    @property
    def awaited(self) -> Awaited:
        """What is awaited so far."""
        return Awaited(self._keys, self._since, self._numbers, *self._open)

    def go_on_with(self, awaited: Awaited) -> None:
        """Await what another watch did, that saw the frames behind those of this one."""
        self._keys = np.concatenate((self._keys, awaited.keys))
        self._since = np.concatenate((self._since, awaited.since_ns))
        self._numbers = np.concatenate((self._numbers, awaited.numbers))
        self._add_open((awaited.open_keys, awaited.open_since_ns, awaited.open_ports))

    def _forget(self, gone: Bools) -> None:
        self._keys, self._since, self._numbers = self._keys[~gone], self._since[~gone], self._numbers[~gone]


def _none(rows: Segments) -> Words:
    return np.zeros(len(rows), np.uint32)


def _key(rows: Segments, from_client: bool, number: Words) -> Keys:
    """One number an awaited ACK: its direction, tunnel and acknowledgement number.

    ``from_client``: the rows are the ACKs themselves; else they go the other way.
    """
    ends = (("src_hi", "src_lo", "sport"), ("dst_hi", "dst_lo", "dport"))
    (hi, lo, port), (hi2, lo2, port2) = ends if from_client else ends[::-1]
    ports = rows[port].astype(np.uint64) << np.uint64(16) | rows[port2]
    tail = rows["tunnel"].astype(np.uint64) << np.uint64(32) | number
    return mix([rows[hi], rows[lo], rows[hi2], rows[lo2], ports, tail])
