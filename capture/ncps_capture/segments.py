"""Vocabulary of the ground floor: one row a TCP segment, one row a handshake, what to capture, live counters.

Times are integer nanoseconds since the Unix epoch, by the capture's clock. An unknown time or duration is
``UNKNOWN``, never 0: zero is a value. Addresses are two native 64-bit words (high, low) of the 16-byte form;
IPv4 is written as ``::ffff:a.b.c.d``, so that one comparison serves both families.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

UNKNOWN: Final = np.iinfo(np.int64).min
"""An unknown time or duration (int64)."""

V4_MAPPED: Final = 0xFFFF << 32
"""Low word of an IPv4 address is this plus the 32-bit address; its high word is 0."""

NO_VLAN: Final = 0xFFFF

# ---- what a segment row is -------------------------------------------------------------------------------

KIND_TCP: Final = 0
KIND_ICMP: Final = 1
"""An ICMP or ICMPv6 error that quotes a TCP segment: addresses, ports and ``seq`` are the quoted ones."""

FIN: Final = 0x01
SYN: Final = 0x02
RST: Final = 0x04
PSH: Final = 0x08
ACK: Final = 0x10

BIT_TIMESTAMP: Final = 0x01
"""``tsval`` and ``tsecr`` are from the packet (TCP option 8)."""
BIT_TFO: Final = 0x02
"""TCP Fast Open: option 34, or 254 with magic 0xF989."""
BIT_OPTIONS_CUT: Final = 0x04
"""The options were not captured whole."""

SEGMENT: Final = np.dtype(
    [
        ("t_ns", "<i8"),  # capture time
        ("frame", "<i8"),  # number of the frame in its source, from 1, as Wireshark counts
        ("src_hi", "<u8"),
        ("src_lo", "<u8"),
        ("dst_hi", "<u8"),
        ("dst_lo", "<u8"),
        ("seq", "<u4"),
        ("ack", "<u4"),
        ("tsval", "<u4"),
        ("tsecr", "<u4"),
        ("ip_ident", "<u4"),  # IPv4 identification; IPv6: traffic class and flow label
        ("tunnel", "<u4"),  # VNI, GRE key or TEID; 0 = none
        ("sport", "<u2"),
        ("dport", "<u2"),
        ("payload", "<u2"),  # bytes of TCP data the headers announce
        ("mss", "<u2"),  # 0 = absent
        ("vlan", "<u2"),  # innermost VLAN id, NO_VLAN = untagged
        ("source", "<u2"),  # index of the file or interface
        ("kind", "u1"),
        ("flags", "u1"),
        ("ttl", "u1"),
        ("bits", "u1"),
        ("wscale", "u1"),  # 255 = absent
        ("ip_version", "u1"),
        ("icmp_type", "u1"),
        ("icmp_code", "u1"),
    ]
)

Segments = npt.NDArray[np.void]


@dataclass(frozen=True)
class Batch:
    """Some frames of one source, as bytes end to end: what a live source or a file reader hands to ``decode``.

    Row i is ``data[offsets[i] : offsets[i] + caplens[i]]``. All arrays but ``data`` are int64 with one element a row.
    """

    data: npt.NDArray[np.uint8]
    offsets: npt.NDArray[np.int64]
    caplens: npt.NDArray[np.int64]  # bytes captured
    lengths: npt.NDArray[np.int64]  # bytes on the wire; equal to ``caplens`` where unknown
    t_ns: npt.NDArray[np.int64]
    link_type: int  # LINKTYPE number of pcap; the DLT number of a live handle is understood too
    first_frame: int  # frame number of row 0, from 1
    source: int
    frames: npt.NDArray[np.int64] | None = None  # frame numbers of the rows, where they do not count up by one


# ---- what a handshake row is -------------------------------------------------------------------------------

STATE_NAMES: Final = ("none", "answered", "refused", "icmp_refused", "unanswered", "simultaneous", "synack_only")
ANSWERED: Final = 1
REFUSED: Final = 2
ICMP_REFUSED: Final = 3
UNANSWERED: Final = 4
SIMULTANEOUS: Final = 5
SYNACK_ONLY: Final = 6
"""Not an attempt: a SYN-ACK whose SYN was not captured (D8)."""

F_RTT_EXACT: Final = 0x0001  # ``rtt_ts_ns`` is known, or there was one SYN (D5)
F_AMBIGUOUS: Final = 0x0002  # several SYNs and no timestamp that tells which was answered (Karn)
F_CENSORED: Final = 0x0004  # the capture ended less than 3 s after the last SYN (D8)
F_TFO: Final = 0x0008
F_CLOCK_STEP: Final = 0x0010  # open across a step of the capture's clock: no RTT (D13)
F_CLOCK_ERROR: Final = 0x0020  # SYN-ACK stamped before its SYN: negative, counted, no RTT (D5)
F_ISN_REUSED: Final = 0x0040  # same ISN again later than 140 s (D1)
F_RST_SEQ: Final = 0x0080  # refused by an RST with a sequence number other than 0: possible middlebox (D7)
F_TS_ECHO: Final = 0x0100  # ``rtt_ts_ns`` was told by the timestamps, not only by there being one SYN (D5)

STAMP_FIRST: Final = 0x01
STAMP_LAST: Final = 0x02
STAMP_ANSWER: Final = 0x04
"""Bits of ``stamps``: which of ``tsval_first``, ``tsval_last`` and ``tsecr`` are from a packet."""

HANDSHAKE: Final = np.dtype(
    [
        ("client_hi", "<u8"),
        ("client_lo", "<u8"),
        ("server_hi", "<u8"),
        ("server_lo", "<u8"),
        ("t_syn_first_ns", "<i8"),
        ("t_syn_last_ns", "<i8"),  # last SYN that is not a duplicate
        ("t_syn_before_ns", "<i8"),  # last SYN before the first valid SYN-ACK
        ("t_synack_ns", "<i8"),  # first valid SYN-ACK; UNKNOWN if none
        ("t_ack_ns", "<i8"),  # the client's first acknowledgement of it (D12); UNKNOWN if none, or not looked for
        ("rtt_ts_ns", "<i8"),  # SYN-ACK minus the SYN whose TSval it echoes; UNKNOWN if it cannot be told
        ("t_refused_ns", "<i8"),  # the RST or ICMP error that refused it
        ("frame", "<i8"),  # of the first SYN, in ``source``
        ("t_order_ns", "<i8"),  # its first segment's time, with steps back of the clock undone: puts parts in order
        ("isn", "<u4"),
        ("server_isn", "<u4"),
        ("tsval_first", "<u4"),  # of the SYN at ``t_syn_first_ns``
        ("tsval_last", "<u4"),  # of the SYN at ``t_syn_last_ns``
        ("tsecr", "<u4"),  # of the first valid SYN-ACK
        ("tunnel", "<u4"),
        ("attempt", "<u4"),  # 1, 2, 3 ... on one four-tuple, for display
        # Wide enough for a flood of one SYN: were these to saturate, the books of D14 would not balance.
        ("syn_n", "<u4"),  # SYNs minus duplicates
        ("retrans_timeout", "<u4"),
        ("retrans_after_synack", "<u4"),
        ("retrans_after_rst", "<u4"),
        ("retrans_after_challenge", "<u4"),
        ("dup_syn", "<u4"),
        ("sport", "<u2"),  # client port
        ("dport", "<u2"),  # server port
        ("synack_n", "<u2"),  # valid SYN-ACKs minus duplicates
        ("synack_retrans", "<u2"),
        ("dup_synack", "<u2"),
        ("synack_isn_changed", "<u2"),
        ("synack_bad_ack", "<u2"),
        ("rst_ignored", "<u2"),
        ("flags", "<u2"),
        ("syn_len", "<u2"),
        ("mss", "<u2"),
        ("vlan", "<u2"),
        ("source", "<u2"),
        ("state", "u1"),
        ("stamps", "u1"),  # STAMP_FIRST, STAMP_LAST, STAMP_ANSWER
        ("ip_version", "u1"),
        ("wscale", "u1"),
        ("ttl", "u1"),
        ("icmp_type", "u1"),
        ("icmp_code", "u1"),
    ]
)

Handshakes = npt.NDArray[np.void]


def syn_retrans(rows: Handshakes) -> npt.NDArray[np.int64]:
    """Headline retransmits of each handshake: causes ``timeout`` and ``after_synack`` (D3). int64, one a row."""
    total: npt.NDArray[np.int64] = rows["retrans_timeout"].astype(np.int64) + rows["retrans_after_synack"]
    return total


def rtt_first_ns(rows: Handshakes) -> npt.NDArray[np.int64]:
    """First SYN to first valid SYN-ACK, ns (D5): what the user waited for on the wire. UNKNOWN where not known."""
    bad = (
        (rows["state"] != ANSWERED)
        | (rows["t_synack_ns"] == UNKNOWN)
        | (rows["t_syn_first_ns"] == UNKNOWN)
        | ((rows["flags"] & (F_CLOCK_STEP | F_CLOCK_ERROR)) != 0)
    )
    return np.where(bad, UNKNOWN, rows["t_synack_ns"] - np.where(bad, 0, rows["t_syn_first_ns"]))


def path_rtt_ns(rows: Handshakes) -> npt.NDArray[np.int64]:
    """The network's round trips only, ns (D5): of a single SYN, or of the last SYN before A if A echoes that one.

    A that echoes an earlier SYN although a later one was sent may be the server's own repeat of a lost SYN-ACK, which
    carries the first SYN's timestamp: ``rtt_ts`` then holds the server's timer. UNKNOWN for these and all others.
    """
    single = np.where(rows["syn_n"] == 1, rtt_first_ns(rows), UNKNOWN)
    bad = (rows["flags"] & (F_CLOCK_STEP | F_CLOCK_ERROR)) != 0
    told = rows["rtt_ts_ns"] != UNKNOWN
    from_last = np.where(told, rows["t_synack_ns"] - np.where(told, rows["t_syn_before_ns"], 0), UNKNOWN)
    path = np.where(told & (rows["rtt_ts_ns"] == from_last), rows["rtt_ts_ns"], np.where(told, UNKNOWN, single))
    return np.where(bad, UNKNOWN, path)


def synack_to_ack_ns(rows: Handshakes) -> npt.NDArray[np.int64]:
    """First valid SYN-ACK to the client's first acknowledgement of it, ns (D12). UNKNOWN where not known."""
    bad = (rows["state"] != ANSWERED) | (rows["t_ack_ns"] == UNKNOWN)
    return np.where(bad, UNKNOWN, rows["t_ack_ns"] - np.where(bad, 0, rows["t_synack_ns"]))


# ---- books -------------------------------------------------------------------------------------------------


@dataclass
class Books:
    """Everything captured and what became of it. Adds up by ``+=``; ``problems`` names broken identities (D14)."""

    packets: int = 0
    tcp_packets: int = 0
    syn: int = 0  # every bare SYN captured, duplicates and SYN+FIN / SYN+RST included
    synack: int = 0
    syn_counted: int = 0  # SYNs that are transmissions of an attempt
    syn_duplicate: int = 0
    syn_malformed: int = 0  # SYN+FIN or SYN+RST
    syn_fragment: int = 0
    syn_too_short: int = 0
    attempts: int = 0
    answered: int = 0
    refused: int = 0
    icmp_refused: int = 0
    unanswered: int = 0
    simultaneous: int = 0
    synack_only: int = 0
    synack_duplicate: int = 0
    synack_bad_ack: int = 0
    rst_ignored: int = 0
    clock_error: int = 0
    clock_step: int = 0
    malformed: int = 0
    fragments: int = 0
    too_short: int = 0
    unsupported_linktype: int = 0
    unsupported_linktypes: dict[int, int] = field(default_factory=dict)

    def __iadd__(self, other: Books) -> Books:
        for name, value in vars(other).items():
            if isinstance(value, dict):
                mine = getattr(self, name)
                for key, count in value.items():
                    mine[key] = mine.get(key, 0) + count
            else:
                setattr(self, name, getattr(self, name) + value)
        return self

    def problems(self) -> list[str]:
        """Name each identity of D14 that does not hold; an empty list means the books balance."""
        out = []
        states = self.answered + self.refused + self.icmp_refused + self.unanswered + self.simultaneous
        if self.attempts != states:
            out.append(f"attempts {self.attempts:,} != sum of states {states:,}")
        syns = self.syn_counted + self.syn_duplicate + self.syn_malformed + self.syn_fragment + self.syn_too_short
        if self.syn != syns:
            out.append(f"SYNs captured {self.syn:,} != accounted for {syns:,}")
        return out


# ---- what to capture ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CaptureSpec:
    """What the capture process is asked to see and where it puts it. Everything in it can be pickled."""

    interface: str
    server_ports: tuple[tuple[int, int], ...]  # inclusive ranges; () = any port
    level: str = "base"  # "base", "resets" or "acks": see the levels in the documentation of the filter
    loopback: bool = False  # each packet passes the tap twice: ignore the outgoing copies
    snaplen: int = 160
    buffer_bytes: int = 64 << 20
    spool_dir: str = ""  # folder for handshake rows
    write_path: str | None = None  # also save the packets
    write_format: str = "pcap"  # or "pcapng"
    own_filter: str | None = None  # BPF text instead of the one that ports and level make
    tunnels: bool = False  # look for TCP inside tunnels
    dup_window_ns: int = 5_000_000


# ---- live counters -------------------------------------------------------------------------------------------

WIRE_FIELDS: Final = (
    "t_ns",  # capture clock up to which the counters hold
    "packets",
    "syn",
    "synack",
    "repeats",  # headline causes: timeout + after_synack
    "answered_clean",  # answered attempts without repeats
    "answered_clean_rtt_ns",  # sum of their rtt_first
    "answered_repeated",
    "answered_repeated_rtt_ns",
    "refused",
    "dropped",  # packets the kernel could not hand over
    "rows",  # handshake rows spooled
)
"""Names of the cumulative wire counters in shared memory, all int64. One writer: the capture process."""
