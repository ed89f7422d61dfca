"""Pure: merged handshake rows of a capture -> counts and histograms that add up over its parts.

It must not know files, nor a run whose connections these are. The one idea is that of ``tally.py``: everything a report
says is made from what can be added, so the cut into parts cannot be seen in the result. Durations become whole
microseconds by rounding down, once, here.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import numpy.typing as npt
from ncps_capture.merge import books_of
from ncps_capture.rows import pick
from ncps_capture.segments import (
    ANSWERED,
    F_AMBIGUOUS,
    F_CENSORED,
    F_RTT_EXACT,
    ICMP_REFUSED,
    REFUSED,
    SYNACK_ONLY,
    UNANSWERED,
    UNKNOWN,
    Books,
    Handshakes,
    path_rtt_ns,
    rtt_first_ns,
    syn_retrans,
    synack_to_ack_ns,
)

from ncps_analysis.histogram import Histogram

CAUSES: Final = ("retrans_timeout", "retrans_after_synack", "retrans_after_rst", "retrans_after_challenge")
CENSORED_NS: Final = 3_000_000_000
"""A capture that ends so soon after an attempt's last SYN cannot tell that it stays unanswered (definition D8)."""


@dataclass
class AttemptTally:
    """Counts of one or several parts; ``+=`` adds another's. ``captured`` are all rows, the rest the chosen ones."""

    captured: Books = field(default_factory=Books)
    chosen: Books = field(default_factory=Books)
    censored: int = 0
    causes: tuple[int, int, int, int] = (0, 0, 0, 0)
    synack_retrans: int = 0
    synack_isn_changed: int = 0
    answered_retrans: int = 0  # headline retransmits of answered attempts
    retrans_connections: int = 0  # answered attempts that have some
    exact: int = 0
    ambiguous: int = 0
    syn_rtt: Histogram = field(default_factory=Histogram.empty)
    path_rtt: Histogram = field(default_factory=Histogram.empty)
    synack_to_ack: Histogram = field(default_factory=Histogram.empty)
    refuse_latency: Histogram = field(default_factory=Histogram.empty)
    established_ms: Histogram = field(default_factory=Histogram.empty)  # answered attempts, ms since the first packet

    def __iadd__(self, other: AttemptTally) -> AttemptTally:
        for name, value in vars(other).items():
            old = getattr(self, name)
            if isinstance(value, tuple):
                setattr(self, name, tuple(a + b for a, b in zip(old, value, strict=True)))
            elif isinstance(value, Books):
                old += value
            else:
                setattr(self, name, old + value)
        return self


def mark_censored(rows: Handshakes, end_ns: int) -> None:
    """Flag in place the unanswered attempts whose last SYN is less than 3 s before ``end_ns``, and no others (D8).

    By the last packet of the capture, so that packets and the file they were saved in say the same.
    """
    early = (rows["state"] == UNANSWERED) & (end_ns - rows["t_syn_last_ns"] < CENSORED_NS)
    rows["flags"] = np.where(early, rows["flags"] | F_CENSORED, rows["flags"] & ~np.uint16(F_CENSORED))


def refuse_latency_ns(rows: Handshakes) -> npt.NDArray[np.int64]:
    """First SYN to the RST or ICMP error that refused it, ns (D7). UNKNOWN where not known."""
    bad = ((rows["state"] != REFUSED) & (rows["state"] != ICMP_REFUSED)) | (rows["t_refused_ns"] == UNKNOWN)
    bad |= rows["t_refused_ns"] < rows["t_syn_first_ns"]
    return np.where(bad, UNKNOWN, rows["t_refused_ns"] - np.where(bad, 0, rows["t_syn_first_ns"]))


def syn_repeats(rows: Handshakes) -> npt.NDArray[np.int64]:
    """SYNs of an attempt after its first, duplicates left out. int64, one a row; 0 where there is no SYN."""
    return np.maximum(rows["syn_n"].astype(np.int64) - 1, 0)


def count_attempts(rows: Handshakes, chosen: npt.NDArray[np.bool_] | None, first_t_ns: int) -> AttemptTally:
    """Count merged rows; ``chosen``: those a person wants to see, None = all. ``first_t_ns``: the first packet's."""
    out = AttemptTally(captured=books_of(rows))
    if chosen is None or chosen.all():
        out.chosen = replace(out.captured, unsupported_linktypes={})
    else:
        rows = pick(rows, chosen)
        out.chosen = books_of(rows)
    are = rows["state"] != SYNACK_ONLY
    attempts = rows if are.all() else pick(rows, are)
    retrans = syn_retrans(attempts)
    answered = attempts["state"] == ANSWERED
    flags = attempts["flags"]
    out.censored = int(np.count_nonzero((attempts["state"] == UNANSWERED) & (flags & F_CENSORED != 0)))
    timeout, after_synack, after_rst, after_challenge = (int(attempts[n].astype(np.int64).sum()) for n in CAUSES)
    out.causes = (timeout, after_synack, after_rst, after_challenge)
    out.synack_retrans = int(attempts["synack_retrans"].astype(np.int64).sum())
    out.synack_isn_changed = int(attempts["synack_isn_changed"].astype(np.int64).sum())
    out.answered_retrans = int(retrans[answered].sum())
    out.retrans_connections = int(np.count_nonzero(retrans[answered]))
    out.exact = int(np.count_nonzero(flags & F_RTT_EXACT))
    out.ambiguous = int(np.count_nonzero(flags & F_AMBIGUOUS))
    out.syn_rtt = _us(rtt_first_ns(attempts))
    out.path_rtt = _us(path_rtt_ns(attempts))
    out.synack_to_ack = _us(synack_to_ack_ns(attempts))
    out.refuse_latency = _us(refuse_latency_ns(attempts))
    at = attempts["t_synack_ns"][answered]
    out.established_ms = Histogram.of(np.maximum(at[at != UNKNOWN] - first_t_ns, 0) // 1_000_000)
    return out


def _us(durations_ns: npt.NDArray[np.int64]) -> Histogram:
    return Histogram.of(durations_ns[durations_ns != UNKNOWN] // 1000)
