"""SYNs that are alone on their tuple: a flood, or a black hole. Found and written in a few columns. Pure.

It must not decide anything ``attempts.py`` decides differently: a tuple with anything else on it is left to
``columns.py``. The one idea is that of ``pairs.py``: where there is one segment there is nothing to group and nothing
to decide, and ten million such SYNs cost a sort and some copies.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from ncps_capture.attempts import PATIENCE_NS
from ncps_capture.pairs import begun, neighbours
from ncps_capture.rows import pick
from ncps_capture.segments import ACK, HANDSHAKE, KIND_ICMP, SYN, UNANSWERED, UNKNOWN, Handshakes, Segments

Ints = npt.NDArray[np.int64]

_UNKNOWN: Final = ("t_syn_before_ns", "t_synack_ns", "t_ack_ns", "rtt_ts_ns", "t_refused_ns")


def _unanswered() -> Handshakes:
    row = np.zeros(1, HANDSHAKE)
    for name in _UNKNOWN:
        row[name] = UNKNOWN
    row["syn_n"] = 1
    row["state"] = UNANSWERED
    return row


_UNANSWERED: Final = _unanswered()


@dataclass(frozen=True)
class Lone:
    """One element a SYN, in the order of the segments."""

    syn: Ints  # index of the segment
    rows: Handshakes
    ready_ns: Ints  # as in Settled


def settle_lone(segments: Segments, order_ns: Ints) -> Lone:
    """The rows of SYNs without data that are alone on their tuple, equal to those of ``settle_tuple``.

    ``segments``: (n,) SEGMENT rows; ``order_ns``: (n,) their times with steps of the clock undone. A few may be
    missing: that two tuples share a number here makes neither wrong.
    """
    asks = (segments["flags"] & (SYN | ACK) == SYN) & (segments["kind"] != KIND_ICMP) & (segments["payload"] == 0)
    syn = np.zeros(0, np.int64)
    if asks.any():
        index, starts, sizes = neighbours(segments)
        alone = np.zeros(len(segments), np.bool_)
        alone[index[starts[sizes == 1]]] = True
        syn = np.flatnonzero(alone & asks)
    asked = pick(segments, syn)
    itself = asked["sport"] == asked["dport"]
    itself &= (asked["src_lo"] == asked["dst_lo"]) & (asked["src_hi"] == asked["dst_hi"])
    if itself.any():
        syn, asked = syn[~itself], pick(asked, ~itself)
    start = order_ns[syn]
    return Lone(syn, begun(_UNANSWERED, asked, start), start + PATIENCE_NS)
