"""Saved captures -> handshake rows and what is known of the files: the one way in for every command.

The one idea: files stream through decoder and table in time order, so that memory does not grow with them and a
handshake that begins in one file may end in the next; whoever calls says where the rows go, and when to stop. Nothing
here counts attempts or renders.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
from ncps_analysis.captured import CLIENT_TO_SERVER, CaptureFacts, SourceFacts
from ncps_analysis.wording import many
from ncps_capture.capfile import CaptureFile, open_capture
from ncps_capture.decoded import Piece, pieces
from ncps_capture.errors import FileFault
from ncps_capture.handshake import HandshakeTable
from ncps_capture.live import link_type_name
from ncps_capture.memory import keep_freed_memory
from ncps_capture.segments import ACK, RST, SYN, Handshakes, Segments

from ncps_raw.inputs import Ending, Interrupted, Stopped, cannot_open, distinct, opened

if TYPE_CHECKING:
    from ncps_capture.merged import MergedCapture

LEVELS: Final = ("base", "resets", "acks")
_SETTLE_SEGMENTS: Final = 65_536
"""Settling looks at everything that is open: worth it once as much as this is new."""
_SETTLE_PACKETS: Final = 1_000_000
_MOST_SYNS: Final = 10_000
"""SYNs that are remembered as long as nothing answers: enough to prove that clients went on all the same."""

Sink = Callable[[Handshakes], None]
Progress = Callable[[int, int | None, int], None]
"""(bytes read, bytes of all files or None, packets)"""


def read_captures(
    paths: Sequence[str],
    sink: Sink,
    *,
    dup_window_ns: int = 5_000_000,
    vlan_key: bool = False,
    progress: Progress | None = None,
    stopped: Stopped = lambda: None,
) -> CaptureFacts:
    """Read all of ``paths`` ("-" is standard input) and hand every handshake row to ``sink``.

    Files begin at once and are read in order of time; of each everything up to damage, or until ``stopped`` gives a
    reason. A file that is named twice is read once. FileFault, in one line, for one that cannot be read at all, and
    where not a single packet could be decoded.

    ``vlan_key``: the VLAN is a part of what makes an attempt (definition D1, on request). Then ``tunnel`` of the rows
    is an index into ``tunnels`` of the facts.
    """
    keep_freed_memory()
    names, again = distinct(paths)
    ending = Ending(stopped)
    reader = _Reader(sink, dup_window_ns, len(names), _Networks() if vlan_key else None)
    captures: CaptureFile | MergedCapture | None = None
    try:
        captures = _open(names, ending)
        for piece in pieces(captures, reader.every_ack):
            if ending.due():
                raise Interrupted
            reader.take(piece)
            if progress is not None:
                progress(captures.bytes_read, captures.size, reader.facts.books.packets)
    except Interrupted:
        reader.facts.interrupted = ending.due()
    if captures is None or (reader.facts.interrupted and not reader.facts.books.packets):
        raise FileFault(f"cannot analyze {', '.join(names)}: interrupted before its first packet; run it again")
    facts = reader.finish([captures] if isinstance(captures, CaptureFile) else captures.files)
    if facts.interrupted:
        share = f", {100 * captures.bytes_read // captures.size} % of the bytes" if captures.size else ""
        again.append(f"interrupted: only the first {many(facts.books.packets, 'packet')}{share} were read")
    facts.warnings[:0] = again
    return facts


def _open(names: Sequence[str], ending: Ending) -> CaptureFile | MergedCapture:
    ways = [opened(name, ending) for name in names]
    try:
        if len(ways) == 1:
            return open_capture(ways[0])
        from ncps_capture.merged import MergedCapture  # not needed for one file, which nearly all are

        return MergedCapture(ways)
    except FileFault as fault:
        raise cannot_open(fault) from None


class _Reader:
    """One reading: the table, the rows it hands out, and what is learnt beside them."""

    def __init__(self, sink: Sink, dup_window_ns: int, files: int, networks: _Networks | None) -> None:
        self.facts = CaptureFacts()
        self._networks = networks
        self._sink = sink
        self._table = HandshakeTable(dup_window_ns, third_ack=True)
        self._packets = [0] * files  # taken so far, of each file
        self._went_on = _WentOn()
        self._level = 0
        self._new_segments = self._new_packets = 0

    def every_ack(self) -> bool:
        """Of the ACKs those matter that complete or challenge a handshake; all, as long as nothing seems answered."""
        # Which of them matter is told without VLANs: of two copies in two VLANs one would be left out.
        return self._networks is not None or (not self.facts.books.synack and not self._went_on.proven)

    def take(self, piece: Piece) -> None:
        """Count a piece, and keep what matters to handshakes."""
        facts, segments = self.facts, piece.segments
        every = self.every_ack()
        facts.books += piece.books
        self._packets[piece.source] += piece.books.packets
        if piece.times is None:
            return
        first_ns, last_ns, latest_ns = piece.times
        if facts.first_t_ns is None:
            facts.first_t_ns = first_ns
        facts.last_t_ns = max(facts.last_t_ns or first_ns, latest_ns)
        self._new_packets += piece.books.packets
        if len(segments):
            if self._networks is not None:
                segments = self._networks.numbered(segments)
            self._table.add(segments)
            self._level = max(self._level, _level(segments))
            self._new_segments += len(segments)
            if every:
                self._went_on.look(segments)
        if self._new_segments >= _SETTLE_SEGMENTS or self._new_packets >= _SETTLE_PACKETS:
            self._sink(self._table.settle(last_ns))
            self._new_segments = self._new_packets = 0

    def finish(self, files: Sequence[CaptureFile]) -> CaptureFacts:
        """Hand out what is open; the facts. An interrupted reading has looked at more of its files than was taken."""
        facts = self.facts
        if not facts.interrupted:  # those without a time or an interface are in no batch
            self._packets = [file.packets for file in files]
            facts.books.packets = sum(self._packets)
        _check(files, facts)
        for rows in self._table.finish_in_parts(facts.last_t_ns or 0):
            self._sink(rows)
        facts.level = LEVELS[self._level]
        facts.tunnels = None if self._networks is None else self._networks.tunnels()
        facts.one_direction = CLIENT_TO_SERVER if self._went_on.proven and not facts.books.synack else None
        facts.sources = [_source(file, n) for file, n in zip(files, self._packets, strict=True)]
        facts.warnings = [warning for file in files for warning in file.warnings]
        return facts


def _check(files: Sequence[CaptureFile], facts: CaptureFacts) -> None:
    """There must be something to report."""
    names = ", ".join(file.name for file in files)
    books = facts.books
    if not books.packets:
        why = next((file.damaged for file in files if file.damaged), None)
        what = f"it is {why}" if why else "it has a capture header and no packets"
        raise FileFault(f"cannot analyze {names}: {what}; see whether whatever wrote it is still at work, or failed")
    if books.packets == books.unsupported_linktype:
        numbers = sorted(books.unsupported_linktypes)
        types = ", ".join(str(n) if link_type_name(n) == str(n) else f"{link_type_name(n)} ({n})" for n in numbers)
        raise FileFault(
            f"cannot analyze {names}: 0 of {books.packets:,} packets decoded: "
            + (
                f"link type {types} is not supported; capture on an interface whose packets are"
                if numbers
                else "none has a time and an interface; capture again with a program that stamps packets"
            )
        )


def _source(file: CaptureFile, packets: int) -> SourceFacts:
    types = dict.fromkeys(link_type_name(each.link_type) for each in file.interfaces if each.packets)
    return SourceFacts(file.name, tuple(types), packets, file.drops, file.damaged is not None)


def _level(segments: Segments) -> int:
    """Index into LEVELS: bare ACKs are in, or RSTs that refuse nothing, or neither."""
    flags = segments["flags"]
    if np.any((flags & (SYN | RST) == 0) & (flags & ACK != 0)):
        return 2
    return int(np.any((flags & RST != 0) & (flags & ACK == 0)))


class _Networks:
    """A number for each tunnel and VLAN in place of the tunnel: so all that keeps tunnels apart keeps VLANs apart."""

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}

    def numbered(self, segments: Segments) -> Segments:
        """A copy of the rows with ``tunnel`` replaced."""
        words = segments["tunnel"].astype(np.uint64) << np.uint64(16) | segments["vlan"]
        distinct, place = np.unique(words, return_inverse=True)
        numbers = [self._numbers.setdefault(word, len(self._numbers)) for word in distinct.tolist()]
        out = segments.copy()
        out["tunnel"] = np.array(numbers, np.uint32)[place.reshape(-1)]
        return out

    def tunnels(self) -> tuple[int, ...]:
        """The tunnel of each number."""
        return tuple(word >> 16 for word in self._numbers)


class _WentOn:
    """Whether clients that no captured SYN-ACK answered went on as if one had: ACKs that follow their SYN's number."""

    def __init__(self) -> None:
        self.proven = False
        self._syns: set[tuple[int, ...]] = set()

    def look(self, segments: Segments) -> None:
        if self.proven:
            return
        flags = segments["flags"]
        syns = np.flatnonzero((flags & (SYN | ACK) == SYN) & (segments["kind"] == 0))
        for i in syns[: max(0, _MOST_SYNS - len(self._syns))].tolist():
            self._syns.add(self._key(segments[i], 1))
        acks = np.flatnonzero((flags & (SYN | RST) == 0) & (flags & ACK != 0))
        self.proven = any(self._key(segments[i], 0) in self._syns for i in acks[:_MOST_SYNS].tolist())

    @staticmethod
    def _key(segment: Segments, step: int) -> tuple[int, ...]:
        names = ("src_hi", "src_lo", "sport", "dst_hi", "dst_lo", "dport")
        return (*(int(segment[name]) for name in names), (int(segment["seq"]) + step) & 0xFFFFFFFF)
