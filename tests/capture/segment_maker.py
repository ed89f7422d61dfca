"""Segments for the tests of the handshake rooms, written as a person would tell them."""

from __future__ import annotations

import itertools

import numpy as np
from ncps_capture import segments as sg
from ncps_capture.addresses import address_words
from ncps_capture.handshake import HandshakeTable, merge_rows

MS = 1_000_000
SECOND = 1000 * MS
T0 = 1_700_000_000 * SECOND
X = 4_000_000_000  # an ISN of a client
Y = 77_000_000  # and of a server

_idents = itertools.count(1)
FLAGS = {"S": sg.SYN, "A": sg.ACK, "R": sg.RST, "F": sg.FIN, "P": sg.PSH}


def segment(
    t_ms: float,
    way: str,
    letters: str,
    seq: int = 0,
    ack: int = 0,
    ends: tuple[str, int, str, int] = ("10.0.0.1", 40000, "10.0.0.2", 80),
    **fields: int,
) -> np.void:
    """One segment at ``t_ms`` after T0, from the client (``way`` ">") or to it ("<"); ``stamps`` via tsval, tsecr."""
    row = np.zeros(1, sg.SEGMENT)[0]
    src, sport, dst, dport = ends if way == ">" else (*ends[2:], *ends[:2])
    row["src_hi"], row["src_lo"] = address_words(src)
    row["dst_hi"], row["dst_lo"] = address_words(dst)
    row["sport"], row["dport"] = sport, dport
    row["t_ns"] = T0 + round(t_ms * MS)
    row["seq"], row["ack"] = seq % 2**32, ack % 2**32
    row["flags"] = sum(FLAGS[letter] for letter in letters)
    row["ip_ident"] = next(_idents) & 0xFFFF
    row["ttl"], row["wscale"], row["vlan"], row["ip_version"] = 64, 255, sg.NO_VLAN, 4
    if "tsval" in fields:
        row["bits"] = sg.BIT_TIMESTAMP
    for name, value in fields.items():
        row[name] = value
    return row


def syn(t_ms: float, isn: int = X, **fields: int) -> np.void:
    return segment(t_ms, ">", "S", isn, **fields)


def synack(t_ms: float, isn: int = X, server_isn: int = Y, data: int = 0, **fields: int) -> np.void:
    return segment(t_ms, "<", "SA", server_isn, isn + 1 + data, **fields)


def rst(t_ms: float, isn: int = X, seq: int = 0, **fields: int) -> np.void:
    return segment(t_ms, "<", "RA", seq, isn + 1, **fields)


def icmp(t_ms: float, isn: int = X, code: int = 1, **fields: int) -> np.void:
    return segment(t_ms, ">", "S", isn, kind=sg.KIND_ICMP, icmp_type=3, icmp_code=code, **fields)


def copy(of: np.void, after_ms: float, **fields: int) -> np.void:
    """A copy made by the capture, with fields changed."""
    row = of.copy()
    row["t_ns"] += round(after_ms * MS)
    for name, value in fields.items():
        row[name] = value
    return row


def stack(rows: list[np.void]) -> sg.Segments:
    """Segments in file order, numbered as frames."""
    out = np.array(rows, sg.SEGMENT) if rows else np.zeros(0, sg.SEGMENT)
    out["frame"] = np.arange(1, len(out) + 1)
    return out


def table_of(rows: list[np.void], end_ms: float = 1e9, **options: int) -> sg.Handshakes:
    """What one ``add`` and ``finish`` make of segments in file order, merged."""
    table = HandshakeTable(**options)
    table.add(stack(rows))
    return merge_rows(table.finish(T0 + round(end_ms * MS)))


def only(rows: list[np.void], **options: float) -> np.void:
    out = table_of(rows, **options)
    assert len(out) == 1, out
    return out[0]
