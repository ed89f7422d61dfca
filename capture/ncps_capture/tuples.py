"""One number a four-tuple, the same for both directions. Pure.

It must not know what travels on the tuple. The one idea: put the smaller endpoint first, mix both into 64 bits, and
check after sorting that equal numbers mean equal endpoints; if they ever do not, number the endpoints themselves.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from ncps_capture.segments import Handshakes, Segments

Words = npt.NDArray[np.uint64]
Bools = npt.NDArray[np.bool_]
Names = tuple[str, str, str]

_ODD: Final = np.uint64(0x9E3779B97F4A7C15)
_SHIFT: Final = np.uint64(29)
_SEGMENT: Final = (("src_hi", "src_lo", "sport"), ("dst_hi", "dst_lo", "dport"))
_HANDSHAKE: Final = (("client_hi", "client_lo", "sport"), ("server_hi", "server_lo", "dport"))


@dataclass(frozen=True)
class Tuples:
    """Four-tuple of each row. One element a row."""

    ids: Words  # equal for equal tuples and tunnels, whichever way the row goes; different for different ones
    reverse: Bools  # the row goes from the larger endpoint to the smaller
    hashes: Words  # equal for equal tuples, as a rule different for different ones; the same in every call
    alone: Bools  # both endpoints are the same: a socket connected to itself


def tuples_of_segments(segments: Segments) -> Tuples:
    """Tuples of segment rows; an ICMP row goes the way of the packet it quotes."""
    return _tuples(segments, *_SEGMENT)


def tuples_of_handshakes(rows: Handshakes) -> Tuples:
    """Tuples of handshake rows, in the direction from client to server."""
    return _tuples(rows, *_HANDSHAKE)


def mix(parts: list[Words]) -> Words:
    """64 well-mixed bits of several words a row: multiply and fold, word by word."""
    out = np.zeros(len(parts[0]), np.uint64)
    for part in parts:
        out ^= part
        out *= _ODD
        out ^= out >> _SHIFT
    return out


def hashes_of_segments(segments: Segments) -> Words:
    """``tuples_of_segments(segments).hashes``, without the sort that tells tuples of equal hashes apart."""
    return _mixed(segments, *_SEGMENT)[0]


def hashes_of_handshakes(rows: Handshakes) -> Words:
    """``tuples_of_handshakes(rows).hashes``, likewise."""
    return _mixed(rows, *_HANDSHAKE)[0]


def _tuples(rows: npt.NDArray[np.void], one: Names, other: Names) -> Tuples:
    hashes, words, reverse, alone = _mixed(rows, one, other)
    return Tuples(_distinct(hashes, words), reverse, hashes, alone)


def _mixed(rows: npt.NDArray[np.void], one: Names, other: Names) -> tuple[Words, list[Words], Bools, Bools]:
    hi, lo, port = (rows[name].astype(np.uint64) for name in one)
    hi2, lo2, port2 = (rows[name].astype(np.uint64) for name in other)
    same_hi, same_lo, same_port = hi == hi2, lo == lo2, port == port2
    reverse = np.where(same_hi, np.where(same_lo, port > port2, lo > lo2), hi > hi2)
    ports = np.where(reverse, port2 << np.uint64(16) | port, port << np.uint64(16) | port2)
    words = [
        np.where(reverse, hi2, hi),
        np.where(reverse, lo2, lo),
        np.where(reverse, hi, hi2),
        np.where(reverse, lo, lo2),
        ports << np.uint64(32) | rows["tunnel"],
    ]
    return mix(words), words, reverse, same_hi & same_lo & same_port


def _distinct(ids: Words, words: list[Words]) -> Words:
    """``ids`` if they tell all tuples apart, else numbers that do."""
    order = np.argsort(ids, kind="stable")
    twins = np.flatnonzero(ids[order[1:]] == ids[order[:-1]])
    left, right = order[twins], order[twins + 1]
    if all(np.array_equal(word[left], word[right]) for word in words):
        return ids
    table = np.stack(words, axis=1)
    return np.unique(table, axis=0, return_inverse=True)[1].reshape(-1).astype(np.uint64)
