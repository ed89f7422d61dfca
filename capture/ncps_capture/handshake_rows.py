"""Rows of handshakes as they begin, from their first segment, and what is known of a round trip at the end. Pure.

It must not know which segment decides what, nor how a round was found: reading one tuple (``attempts.py``), many at
once (``columns.py``) and merging parts (``merge.py``) share these lines, so that their rows are the same bit by bit.
The one idea: a time nobody has seen is UNKNOWN from the first moment on, and judging a row a second time changes
nothing, so parts that were judged apart may be judged again when they are one attempt.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from ncps_capture.segments import (
    ANSWERED,
    BIT_TIMESTAMP,
    F_AMBIGUOUS,
    F_CLOCK_ERROR,
    F_CLOCK_STEP,
    F_RTT_EXACT,
    F_TS_ECHO,
    HANDSHAKE,
    STAMP_ANSWER,
    STAMP_FIRST,
    STAMP_LAST,
    SYNACK_ONLY,
    UNKNOWN,
    Handshakes,
    Segments,
)

_TIMES: Final = (
    "t_syn_first_ns",
    "t_syn_last_ns",
    "t_syn_before_ns",
    "t_synack_ns",
    "t_ack_ns",
    "rtt_ts_ns",
    "t_refused_ns",
)


def rows_of_syns(first: Segments, order_ns: npt.NDArray[np.int64]) -> Handshakes:
    """Handshake rows that know nothing but their first SYN; ``state`` and counts are left to the caller.

    ``first``: (n,) SEGMENT rows; ``order_ns``: (n,) their times with steps of the clock undone, ns. (n,) HANDSHAKE.
    """
    rows = _rows_of(first, order_ns, ("src", "dst"), ("sport", "dport"))
    rows["t_syn_first_ns"] = first["t_ns"]
    rows["isn"] = first["seq"]
    rows["tsval_first"] = first["tsval"]
    rows["stamps"] = stamps(first, STAMP_FIRST)
    return rows


def put_last_syns(rows: Handshakes, last: Segments) -> None:
    """Write in place what a row keeps of the last SYN of its round: its time and its timestamp."""
    rows["t_syn_last_ns"] = last["t_ns"]
    rows["tsval_last"] = last["tsval"]
    rows["stamps"] |= stamps(last, STAMP_LAST)


def stamps(segments: Segments, bit: int) -> npt.NDArray[np.uint8]:
    """``bit`` where a segment has a timestamp, else 0. uint8, one a segment."""
    return np.where(segments["bits"] & BIT_TIMESTAMP != 0, np.uint8(bit), np.uint8(0))


def rows_of_synacks(first: Segments, order_ns: npt.NDArray[np.int64]) -> Handshakes:
    """Rows of SYN-ACKs that answer no round: SYNACK_ONLY, each with the ISN it would answer.

    ``first``, ``order_ns`` and the result as in ``rows_of_syns``.
    """
    rows = _rows_of(first, order_ns, ("dst", "src"), ("dport", "sport"))
    rows["t_synack_ns"] = first["t_ns"]
    rows["isn"] = first["ack"] - np.uint32(1)
    rows["server_isn"] = first["seq"]
    rows["tsecr"] = first["tsecr"]
    rows["stamps"] = stamps(first, STAMP_ANSWER)
    rows["synack_n"] = 1
    rows["state"] = SYNACK_ONLY
    return rows


def _rows_of(
    first: Segments, order_ns: npt.NDArray[np.int64], ends: tuple[str, str], ports: tuple[str, str]
) -> Handshakes:
    rows = np.zeros(len(first), HANDSHAKE)
    for name, end in zip(("client", "server"), ends, strict=True):
        rows[f"{name}_hi"] = first[f"{end}_hi"]
        rows[f"{name}_lo"] = first[f"{end}_lo"]
    rows["sport"], rows["dport"] = first[ports[0]], first[ports[1]]
    for name in ("tunnel", "frame", "mss", "vlan", "source", "ip_version", "wscale", "ttl"):
        rows[name] = first[name]
    for name in _TIMES:
        rows[name] = UNKNOWN
    rows["t_order_ns"] = order_ns
    return rows


def judge(rows: Handshakes) -> None:
    """Decide in place what is known of each row's round trip (D5, D12), from its times, counts and flags."""
    flags = rows["flags"] & ~np.uint16(F_RTT_EXACT | F_AMBIGUOUS | F_CLOCK_ERROR)
    answered = rows["state"] == ANSWERED
    step = (flags & F_CLOCK_STEP) != 0
    error = answered & ~step & (rows["t_synack_ns"] < rows["t_syn_first_ns"])
    usable = answered & ~step & ~error
    flags[~usable] &= ~np.uint16(F_TS_ECHO)
    single = usable & (rows["syn_n"] == 1)
    told = usable & (flags & F_TS_ECHO != 0)
    rtt = np.where(told, rows["rtt_ts_ns"], UNKNOWN)
    rtt[single] = (rows["t_synack_ns"] - rows["t_syn_first_ns"])[single]
    rows["rtt_ts_ns"] = rtt
    rows["t_ack_ns"][step | ~(answered | (rows["state"] == SYNACK_ONLY))] = UNKNOWN
    flags[error] |= F_CLOCK_ERROR
    flags[usable & (rtt != UNKNOWN)] |= F_RTT_EXACT
    flags[usable & (rtt == UNKNOWN)] |= F_AMBIGUOUS
    rows["flags"] = flags
