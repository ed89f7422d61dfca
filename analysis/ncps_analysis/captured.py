"""Vocabulary: what a report says about packets that were captured, live or long ago, with no run to join them to.

It must not know how figures were worked out nor how they will look. The one idea is that of ``model.py``: names are the
keys of the JSON view with their units, ``None`` is unknown and never zero. Everything captured is counted; where a
person asked for a part only, ``filter`` says which, and the attempts, states and times are those of the part.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from ncps_capture.segments import Books

from ncps_analysis.quantities import Distribution

CLIENT_TO_SERVER: Final = "client_to_server"
SERVER_TO_CLIENT: Final = "server_to_client"


@dataclass(frozen=True)
class SourceFacts:
    """One file or interface that packets came from."""

    name: str
    link_types: tuple[str, ...] = ()
    packets: int = 0
    dropped: int | None = None  # by the program that captured; None: it does not say
    damaged: bool = False  # read up to the damage


@dataclass
class CaptureFacts:
    """What reading one or several captures left behind, besides its rows. Adds up while it is read."""

    sources: list[SourceFacts] = field(default_factory=list)  # by ``source`` of the rows
    books: Books = field(default_factory=Books)  # of packets; those of attempts come from the merged rows
    warnings: list[str] = field(default_factory=list)
    level: str = "base"
    first_t_ns: int | None = None
    last_t_ns: int | None = None
    one_direction: str | None = None  # proven by clients that went on without a captured answer
    live: bool = False
    interrupted: str | None = None
    filter_text: str | None = None  # BPF of a live capture
    runs_as: str | None = None
    died: str | None = None
    tunnels: tuple[int, ...] | None = None  # by ``tunnel`` of the rows, where VLANs were a part of the key


@dataclass(frozen=True)
class LinkTypeCount:
    """Packets of a link type that this program cannot read."""

    number: int
    name: str
    packets: int


@dataclass(frozen=True)
class Group:
    """Attempts that have ``key`` in common: an address, a port or a minute (UTC)."""

    key: str
    attempts: int
    answered: int
    refused: int
    icmp_refused: int
    unanswered: int
    simultaneous: int
    syn_repeats: int
    syn_retrans: int
    synack_retrans: int
    syn_rtt_us: Distribution


@dataclass(frozen=True)
class Repeater:
    """A client and a server port between which SYNs were sent again: the most frequent first."""

    src: str
    dst: str
    dport: int
    attempts: int  # with a repeat
    syn_repeats: int
    syn_retrans: int


@dataclass(frozen=True)
class SlowHandshake:
    """An answered attempt that took long: where to look it up, and what it took."""

    file: str
    frame: int
    src: str
    sport: int
    dst: str
    dport: int
    t_syn_first_ns: int
    syn_n: int
    rtt_first_us: int


@dataclass(frozen=True)
class CapturedReport:
    """A capture in figures. Durations are whole microseconds rounded down, times ns since the Unix epoch."""

    role: str  # "capture"
    version: str
    command_line: str
    sources: tuple[SourceFacts, ...]
    level: str  # "base", "resets" or "acks": what the packets can tell of
    filter: str | None  # which attempts were asked for; None: all
    filter_text: str | None  # BPF of a live capture
    interrupted: str | None
    start_t_ns: int | None
    end_t_ns: int | None
    duration_s: float | None

    # everything captured
    packets: int
    tcp_packets: int
    syn: int
    synack: int
    synack_only: int
    malformed: int
    fragments: int
    too_short: int
    duplicates: int
    dup_syn: int
    dup_synack: int
    synack_bad_ack: int
    rst_ignored: int
    clock_error: int
    clock_step: int
    unsupported_linktype: int
    unsupported_linktypes: tuple[LinkTypeCount, ...]
    damaged: int  # files that end in damage
    dropped_by_capture: int | None
    attempts_captured: int  # before ``filter``

    # attempts, those of ``filter``
    attempts: int
    answered: int
    refused: int
    icmp_refused: int
    unanswered: int
    simultaneous: int
    censored: int  # unanswered because the capture ended soon after
    answered_share: float | None  # of attempts; None: one direction only, or no attempt
    one_direction: str | None  # CLIENT_TO_SERVER, SERVER_TO_CLIENT: the only direction captured

    # repeats
    syn_repeats: int
    syn_retrans: int
    retrans_timeout: int
    retrans_after_synack: int
    retrans_after_rst: int | None  # None: the level does not show it
    retrans_after_challenge: int | None
    synack_retrans: int
    synack_isn_changed: int
    retrans_connections: int  # answered attempts with headline retransmits
    retrans_share_percent: float | None
    retrans_per_connection: float | None

    # times
    syn_rtt_us: Distribution
    path_rtt_us: Distribution
    synack_to_ack_us: Distribution
    refuse_latency_us: Distribution
    rtt_exact: int
    rtt_ambiguous: int
    vantage_suggested: str | None  # "client", "server" or "middle"
    established_ms: tuple[tuple[int, int], ...]  # (n, ms since the first packet) of NCPS's milestones

    # breakdowns
    by: str | None
    groups: tuple[Group, ...]
    top_repeats: tuple[Repeater, ...]
    slowest: tuple[SlowHandshake, ...]

    identities: tuple[str, ...]
    problems: tuple[str, ...]
    warnings: tuple[str, ...]  # of the files themselves
    notes: tuple[str, ...]
