"""Which bare ACKs of a saved capture matter: those that complete a handshake, or challenge one. Pure.

It must not know frames. The one idea: an ACK matters only for its number. The third ACK of a handshake carries the
server's ISN + 1 (definition D12), a challenge the number of the RST that the client answers it with (definition D3),
so the SYN-ACKs and RSTs of a capture name the few ACKs that its table needs. A small table of bits lets nearly all
others pass at the cost of one look; the few that are left are compared in full.
"""

from __future__ import annotations

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


class AckWatch:
    """Remembers the numbers that ACKs of one source are awaited with; every batch of the source passes it in order.

    Of the ACKs behind a SYN-ACK it lets the first through, of those before an RST the last. Looked for in earlier
    batches is no challenge, and in later ones no third ACK that is stamped before one already found.
    """

    def __init__(self) -> None:
        self._keys: Keys = np.zeros(0, np.uint64)  # of the SYN-ACKs not acknowledged yet
        self._since: Ints = np.zeros(0, np.int64)
        self._numbers: Words = np.zeros(0, np.uint32)
        self._ends: tuple[Keys, Ints] = (self._keys, self._since)  # RSTs of this batch
        self._table: Bools = np.zeros(0, np.bool_)
        self._shift = np.uint32(0)

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
        wanted = np.concatenate((self._numbers, resets["seq"])).byteswap()
        bits = min(max(len(wanted).bit_length() + _BITS_MORE_THAN_KEYS, _BITS_LEAST), _BITS_MOST)
        self._shift = np.uint32(32 - bits)
        self._table = np.zeros(1 << bits, np.bool_)
        self._table[self._place(wanted)] = True

    def _place(self, words: Words) -> Words:
        return (words * _ODD) >> self._shift

    def may_matter(self, words: Words, rows: Ints) -> Ints:
        """Indices of the ACKs worth reading.

        ``words``: their numbers as they lie in memory, read as little-endian; ``rows``: where they are in their batch,
        for a watch that notes them.
        """
        return np.flatnonzero(self._table[self._place(words)])

    def choose(self, acks: Segments, now_ns: int) -> Ints:
        """Indices of the rows that matter, in order; forgets what they complete and what is too old at ``now_ns``."""
        if not len(acks):
            self._forget(self._since < now_ns - ACK_NS)
            return np.zeros(0, np.int64)
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
        chosen = distinct(order[np.concatenate((at[done], challenge[met]))])
        gone = self._since < now_ns - ACK_NS
        gone[order[synacks[done]] - count] = True
        self._forget(gone)
        return chosen

    @property
    def waits(self) -> bool:
        """Whether any ACK is awaited."""
        return len(self._keys) > 0

    @property
    def awaited(self) -> tuple[Keys, Ints, Words]:
        """What SYN-ACKs await so far: key, time and number of the acknowledgement; for ``go_on_with``."""
        return self._keys, self._since, self._numbers

    def go_on_with(self, keys: Keys, since_ns: Ints, numbers: Words) -> None:
        """Await what another watch did, that saw the frames behind those of this one."""
        self._keys = np.concatenate((self._keys, keys))
        self._since = np.concatenate((self._since, since_ns))
        self._numbers = np.concatenate((self._numbers, numbers))

    def _forget(self, gone: Bools) -> None:
        self._keys, self._since, self._numbers = self._keys[~gone], self._since[~gone], self._numbers[~gone]


def _key(rows: Segments, from_client: bool, number: Words) -> Keys:
    """One number an awaited ACK: its direction, tunnel and acknowledgement number.

    ``from_client``: the rows are the ACKs themselves; else they go the other way.
    """
    ends = (("src_hi", "src_lo", "sport"), ("dst_hi", "dst_lo", "dport"))
    (hi, lo, port), (hi2, lo2, port2) = ends if from_client else ends[::-1]
    ports = rows[port].astype(np.uint64) << np.uint64(16) | rows[port2]
    tail = rows["tunnel"].astype(np.uint64) << np.uint64(32) | number
    return mix([rows[hi], rows[lo], rows[hi2], rows[lo2], ports, tail])
