"""Pure: from the relay's log to what a capture at either end must have seen.

It must not know how handshakes are found in captures. The one idea: it counts by other means, one attempt after the
other in plain loops over the relay's own stamps and numbers, so that an agreement with the capture means something.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from ncps_raw.lab.logbook import READ, WRITTEN, Log
from ncps_raw.lab.network import A_TO_B
from ncps_raw.lab.packets import SYN_KIND, SYNACK_KIND

DUP_WINDOW_NS: Final = 5_000_000
"""Definition D2: copies closer than this are the capture's, not the sender's."""

Row = np.void
Key = tuple[int, ...]


@dataclass
class Attempt:
    """What passed one end of the path of one attempt: stamps in ns, in the order of the log."""

    syns: list[int] = field(default_factory=list)
    synacks: list[int] = field(default_factory=list)
    syn_copies: int = 0
    synack_copies: int = 0


@dataclass(frozen=True)
class Seen:
    """What passed one end of the path. Durations in ns, one an answered attempt, sorted."""

    tuples: int  # different four-tuples among the attempts
    attempts: int
    answered: int
    syn_repeats: int
    syn_repeats_after_synack: int  # among them, those sent although a SYN-ACK had arrived
    synack_repeats: int
    syn_copies: int
    synack_copies: int
    rtt_ns: tuple[int, ...]  # first SYN to first SYN-ACK
    last_rtt_ns: tuple[
        int, ...
    ]  # last SYN before the first SYN-ACK to that: the path's round trip, if no answer is lost

    def figures(self, prefix: str) -> dict[str, int]:
        """The counts, and of both durations n, min, p50 and max in whole microseconds, by dotted names."""
        out: dict[str, int] = {}
        for name, value in vars(self).items():
            if isinstance(value, int):
                out[f"{prefix}.{name}"] = value
                continue
            stem = f"{prefix}.{name.removesuffix('_ns')}_us"
            out[f"{stem}.n"] = len(value)
            if value:
                middle = value[(len(value) + 1) // 2 - 1]
                for place, t_ns in (("min", value[0]), ("p50", middle), ("max", value[-1])):
                    out[f"{stem}.{place}"] = t_ns // 1000
        return out


def seen_at(log: Log, side: str) -> Seen:
    """What a capture at ``side`` ("a" or "b") must have seen of attempts from a to b."""
    attempts, tuples = _attempts(log, READ if side == "a" else WRITTEN)
    rtt, last_rtt = [], []
    for one in attempts:
        if one.synacks and one.syns:
            answer = one.synacks[0]
            rtt.append(answer - one.syns[0])
            last_rtt.append(answer - max([t for t in one.syns if t <= answer], default=one.syns[0]))
    with_syn = [one for one in attempts if one.syns]
    return Seen(
        tuples=tuples,
        attempts=len(with_syn),
        answered=len(rtt),
        syn_repeats=sum(len(one.syns) - 1 for one in with_syn),
        syn_repeats_after_synack=sum(sum(t > one.synacks[0] for t in one.syns) for one in with_syn if one.synacks),
        synack_repeats=sum(len(one.synacks) - 1 for one in attempts if one.synacks),
        syn_copies=sum(one.syn_copies for one in attempts),
        synack_copies=sum(one.synack_copies for one in attempts),
        rtt_ns=tuple(sorted(rtt)),
        last_rtt_ns=tuple(sorted(last_rtt)),
    )


def lateness_us(log: Log) -> dict[str, int]:
    """How much later than due the relay wrote packets, whole microseconds: ``late_us.p50`` and ``late_us.max``."""
    late = np.sort(log["late_ns"][log["event"] == WRITTEN])
    if not len(late):
        return {}
    return {"late_us.p50": int(late[(len(late) + 1) // 2 - 1]) // 1000, "late_us.max": int(late[-1]) // 1000}


def _attempts(log: Log, syn_event: int) -> tuple[list[Attempt], int]:
    """All attempts whose SYNs have ``syn_event`` at this end (their SYN-ACKs then have the other), and their tuples."""
    attempts: dict[Key, Attempt] = defaultdict(Attempt)
    last: dict[Key, int] = {}
    tuples: set[Key] = set()
    for row in log:
        direction, kind, event = int(row["direction"]), int(row["kind"]), int(row["event"])
        if direction == A_TO_B and kind == SYN_KIND and event == syn_event:
            ends = _ends(row, "src", "dst")
            tuples.add(ends)
            one = attempts[(*ends, int(row["seq"]))]
            times, copies = one.syns, "syn_copies"
        elif direction != A_TO_B and kind == SYNACK_KIND and event == READ + WRITTEN - syn_event:
            isn = (int(row["ack"]) - 1) & 0xFFFFFFFF
            one = attempts[(*_ends(row, "dst", "src"), isn)]
            times, copies = one.synacks, "synack_copies"
        else:
            continue
        t_ns = int(row["t_ns"])
        same = _same(row)
        if same in last and t_ns - last[same] < DUP_WINDOW_NS:
            setattr(one, copies, getattr(one, copies) + 1)
        else:
            times.append(t_ns)
        last[same] = t_ns
    return list(attempts.values()), len(tuples)


def _ends(row: Row, client: str, server: str) -> Key:
    ports = {"src": "sport", "dst": "dport"}
    names = (f"{client}_hi", f"{client}_lo", f"{server}_hi", f"{server}_lo", ports[client], ports[server])
    return tuple(int(row[name]) for name in names)


def _same(row: Row) -> Key:
    """What copies of one packet have in common (definition D2)."""
    return (*_ends(row, "src", "dst"), *(int(row[name]) for name in ("flags", "seq", "ack", "tsval", "ident")))
