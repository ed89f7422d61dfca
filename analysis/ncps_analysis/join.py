"""Pure: which captured handshake belongs to which connection record.

It must not know files, reports or how either side came to be. The one idea: on one four-tuple the connections of a
host follow each other without overlap, so each has a window of time of its own, and a handshake belongs to the window
its first SYN lies in (definition D1). Never by ordinal: a single dropped packet would shift every later one.

Client: the window is from connect() to established or given up. Server: it ends when accept() returned and begins
after the accept before it on that tuple. Capture stamps are cut to microseconds and two clocks are compared, so a
SYN may lie up to a slack outside; it then goes to the nearest window, the later one on a tie. A handshake has one
nearest window and a record takes one handshake, so nothing is used twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from ncps_capture.addresses import address_words
from ncps_capture.segments import UNKNOWN, Handshakes, rtt_first_ns
from ncps_capture.tuples import mix

from ncps_analysis.records import NO_KERNEL_RTT, Connections

Rows = npt.NDArray[Any]
Ints = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]
Flags = npt.NDArray[np.bool_]

SLACK_NS: Final = 50_000
"""How far a SYN's stamp may lie outside its window: truncation (1 us) and the reading of two clocks (some us)."""

LATE_NS: Final = 200_000_000
"""While packets were dropped: the most a connect may last beyond the handshake on the wire and still agree with it.

Linux's least retransmission timeout. A SYN whose transmission was dropped by the capture makes the connect at least
one timeout longer than the wire tells (a first SYN's is 1 s), and a client's loop is rarely that late in noticing.
One that is merely loses a figure to "unknown", which is the safe side.
"""

RETRANS_SATURATED: Final = 255

UNMATCHED: Final = -1

_FAR: Final = 1 << 62
"""Later than any time, and differences with it still fit into 64 bits."""
_KEYS: Final = ("client_hi", "client_lo", "server_hi", "server_lo", "sport", "dport")


@dataclass(frozen=True)
class Tuples:
    """Four-tuples in the client's direction, one a row: six uint64 columns of one length.

    ``known`` is False where this side's address or port is not known, so that nothing can match.
    """

    columns: tuple[Words, ...]
    known: Flags

    def __len__(self) -> int:
        return len(self.known)


def tuples_of_handshakes(rows: Handshakes) -> Tuples:
    """The four-tuples of HANDSHAKE rows. Rows without a SYN (``synack_only``) have no time and are not known."""
    columns = tuple(rows[name].astype(np.uint64) for name in _KEYS)
    return Tuples(columns, rows["t_syn_first_ns"] != UNKNOWN)


def tuples_of_records(records: Connections, paths: Words, role: str) -> Tuples:
    """The four-tuples of CONNECTION rows.

    ``paths`` is uint64 of shape (number of paths, 4): this side's address (high, low), the other's (high, low);
    an address of two zero words is unknown, and so is a path beyond the table, whose worker died before it could
    tell. A server's record has the client at the other end.
    """
    table = np.concatenate((paths.reshape(-1, 4), np.zeros((1, 4), np.uint64)))
    ends = table[np.minimum(records["path"], len(paths))]
    here, there = (ends[:, 0], ends[:, 1]), (ends[:, 2], ends[:, 3])
    lport, rport = records["lport"].astype(np.uint64), records["rport"].astype(np.uint64)
    known = (lport != 0) & (rport != 0) & ((here[0] | here[1]) != 0) & ((there[0] | there[1]) != 0)
    if role == "server":
        return Tuples((*there, *here, rport, lport), known)
    return Tuples((*here, *there, lport, rport), known)


def path_words(paths: Sequence[tuple[str, str]]) -> Words:
    """(this side's address, the other's) as text -> uint64 of shape (number of paths, 4) for ``tuples_of_records``.

    "" is an unknown address. Raises UsageError for text that is no address.
    """
    words = [(*_words(here), *_words(there)) for here, there in paths]
    return np.array(words, np.uint64).reshape(-1, 4)


def _words(text: str) -> tuple[int, int]:
    return address_words(text) if text else (0, 0)


def hash_of(tuples: Tuples) -> Words:
    """A 64-bit hash of each four-tuple: equal tuples have equal hashes, so parts by hash can be joined apart."""
    return mix(list(tuples.columns))


def match(records: Connections, handshakes: Handshakes, paths: Words, role: str, slack_ns: int = SLACK_NS) -> Ints:
    """Index into ``handshakes`` of each record's handshake, ``UNMATCHED`` (-1) where there is none: int64.

    ``records`` are CONNECTION rows whose times were converted to the capture's clock. Each handshake is used at most
    once. Of several in one window a client's record takes the first and a server's the last before accept().
    """
    found = np.full(len(records), UNMATCHED, np.int64)
    mine, theirs = tuples_of_records(records, paths, role), tuples_of_handshakes(handshakes)
    which_records, which_handshakes = np.flatnonzero(mine.known), np.flatnonzero(theirs.known)
    if not len(which_records) or not len(which_handshakes):
        return found
    ids = tuple_ids(mine, which_records, theirs, which_handshakes)
    record_ids, handshake_ids = ids[: len(which_records)], ids[len(which_records) :]
    begins, ends = _windows(records[which_records], record_ids, role)
    order = np.lexsort((begins, record_ids))
    times = handshakes["t_syn_first_ns"]
    window = nearest(record_ids[order], begins[order], ends[order], handshake_ids, times[which_handshakes], slack_ns)
    inside = np.flatnonzero(window != UNMATCHED)
    owner, taken = which_records[order[window[inside]]], which_handshakes[inside]
    by_time = np.lexsort((times[taken], owner))
    owner, taken = owner[by_time], taken[by_time]
    change = owner[1:] != owner[:-1]
    chosen = np.concatenate((change, [True]) if role == "server" else ([True], change))[: len(owner)]
    found[owner[chosen]] = taken[chosen]
    return found


def agrees(records: Connections, handshakes: Handshakes, found: Ints, role: str, slack_ns: int = SLACK_NS) -> Flags:
    """Whether each record's handshake can be believed although the capture dropped packets: bool, one a record.

    A lost first SYN leaves a plausible attempt with one SYN and a short RTT. So the kernel's count of retransmits
    must be that of the wire (a client's SYNs, a server's SYN-ACKs), and the application must have waited at least as
    long as the wire tells, and not longer by a retransmission timeout. Times of ``records`` as for ``match``.
    Unmatched records and those the kernel says nothing about do not agree. ``slack_ns`` is for where a time of one
    clock is compared with one of the other: a client's durations are each of one clock.
    """
    matched: Flags = found != UNMATCHED
    if not len(handshakes):
        return matched
    wire = handshakes[np.where(matched, found, 0)]
    told = (records["kernel_rtt_us"] != NO_KERNEL_RTT) & (records["kernel_retrans"] != RETRANS_SATURATED)
    established = records["connected_ns"] != UNKNOWN
    sent = wire["synack_n"] if role == "server" else wire["syn_n"]
    same_count = records["kernel_retrans"].astype(np.int64) == sent.astype(np.int64) - 1
    ok: Flags = matched & told & established & same_count
    if role == "server":
        ok &= (wire["t_synack_ns"] != UNKNOWN) & (wire["t_synack_ns"] <= records["connected_ns"] + slack_ns)
        return ok
    rtt = rtt_first_ns(wire)
    ok &= rtt != UNKNOWN
    beyond = np.where(ok, records["connected_ns"] - records["start_ns"], 0) - np.where(ok, rtt, 0)
    ok &= (beyond >= -SLACK_NS) & (beyond <= LATE_NS)
    return ok


def tuple_ids(mine: Tuples, at: Ints, theirs: Tuples, there: Ints) -> Ints:
    """A number for each row of both sides, equal exactly where the four-tuples are equal: records, then handshakes.

    By one sort of the hashes. The full keys are compared; in the unlikely case that two tuples share a hash,
    all six columns are sorted instead.
    """
    columns = [np.concatenate((a[at], b[there])) for a, b in zip(mine.columns, theirs.columns, strict=True)]
    order = np.argsort(hash_of(Tuples(tuple(columns), np.ones(len(columns[0]), np.bool_))), kind="stable")
    hashes_differ, keys_differ = _steps(columns, order)
    if (keys_differ & ~hashes_differ).any():
        order = np.lexsort(columns)
        _, keys_differ = _steps(columns, order)
    ids = np.empty(len(order), np.int64)
    ids[order] = np.concatenate(([0], np.cumsum(keys_differ)))
    return ids


def _steps(columns: list[Words], order: Ints) -> tuple[Flags, Flags]:
    """Between each row in ``order`` and the next: do the hashes differ, do the keys differ."""
    ordered = [column[order] for column in columns]
    hashes = hash_of(Tuples(tuple(ordered), np.ones(len(order), np.bool_)))
    keys = np.zeros(max(len(order) - 1, 0), np.bool_)
    for column in ordered:
        keys |= column[1:] != column[:-1]
    return hashes[1:] != hashes[:-1], keys


def _windows(records: Connections, ids: Ints, role: str) -> tuple[Ints, Ints]:
    """First and last moment (inclusive, ns) at which each record's first SYN may have been sent.

    A client's record that was never established nor given up is bounded by the next on its tuple: two sockets
    cannot own one tuple at once. A server's window reaches back to the accept before.
    """
    start = records["start_ns"].astype(np.int64)
    order = np.lexsort((start, ids))
    same = ids[order][1:] == ids[order][:-1]
    if role == "server":
        begins = np.full(len(records), -_FAR, np.int64)
        begins[order[1:][same]] = start[order[:-1][same]] + 1
        return begins, start
    connected, closed = records["connected_ns"], records["closed_ns"]
    ends = np.where(connected != UNKNOWN, connected, np.where(closed != UNKNOWN, closed, _FAR)).astype(np.int64)
    latest = np.full(len(records), _FAR, np.int64)
    latest[order[:-1][same]] = start[order[1:][same]] - 1
    return start, np.maximum(start, np.minimum(ends, latest))


def nearest(ids: Ints, begins: Ints, ends: Ints, wanted: Ints, times: Ints, slack_ns: int) -> Ints:
    """Position of the nearest window of the same id at most ``slack_ns`` away from each time, else UNMATCHED.

    Windows come sorted by (id, begin) and do not overlap within an id, so only two can be nearest: the last that
    begins at or before the time, and the next. Both are found by sorting times and begins into one sequence.
    """
    n = len(ids)
    merged = np.lexsort(
        (
            np.concatenate((np.zeros(n, np.int8), np.ones(len(wanted), np.int8))),
            np.concatenate((begins, times)),
            np.concatenate((ids, wanted)),
        )
    )
    passed = np.cumsum(merged < n)  # windows at or before, over all ids
    after = np.empty(len(wanted), np.int64)
    is_time = merged >= n
    after[merged[is_time] - n] = passed[is_time]
    before = after - 1
    has_before = (before >= 0) & (ids[np.maximum(before, 0)] == wanted)
    has_after = (after < n) & (ids[np.minimum(after, n - 1)] == wanted)
    beyond = np.where(has_before, np.maximum(times - ends[np.maximum(before, 0)], 0), _FAR)
    short = np.where(has_after, begins[np.minimum(after, n - 1)] - times, _FAR)
    choice = np.where(short <= beyond, after, before)
    return np.where(np.minimum(short, beyond) <= slack_ns, choice, UNMATCHED)
