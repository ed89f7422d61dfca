"""Saved captures -> handshake rows and what is known of the files: the one way in for every command.

The one idea: files stream through decoder and table in time order, so that memory does not grow with them and a
handshake that begins in one file may end in the next; whoever calls says where the rows go. Nothing here counts
attempts or renders.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
from ncps_analysis.captured import CLIENT_TO_SERVER, CaptureFacts, SourceFacts
from ncps_capture.acks import AckWatch
from ncps_capture.capfile import CaptureFile, open_capture
from ncps_capture.decode import decode
from ncps_capture.errors import FileFault
from ncps_capture.handshake import HandshakeTable
from ncps_capture.live import link_type_name
from ncps_capture.memory import keep_freed_memory
from ncps_capture.segments import ACK, RST, SYN, Handshakes, Segments

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
    progress: Progress | None = None,
) -> CaptureFacts:
    """Read all of ``paths`` ("-" is standard input) and hand every handshake row to ``sink``.

    Files begin at once and are read in order of time; of each everything up to damage. FileFault, in one line, for one
    that cannot be read at all, and where not a single packet could be decoded.
    """
    keep_freed_memory()
    opened = _open(paths)
    table = HandshakeTable(dup_window_ns, third_ack=True)
    facts = CaptureFacts()
    books, level = facts.books, 0
    new_segments = new_packets = 0
    went_on = _WentOn()
    watches = [AckWatch() for _ in paths]
    for batch in opened.batches():
        # Of the ACKs those that complete or challenge a handshake; all, as long as nothing seems to be answered.
        every = not books.synack and not went_on.proven
        segments, of_batch = decode(batch, every, tunnels=True, acks=watches[batch.source])
        books += of_batch
        if not len(batch.t_ns):
            continue
        if facts.first_t_ns is None:
            facts.first_t_ns = int(batch.t_ns[0])
        facts.last_t_ns = max(facts.last_t_ns or int(batch.t_ns[0]), int(batch.t_ns.max()))
        new_packets += of_batch.packets
        if len(segments):
            table.add(segments)
            level = max(level, _level(segments))
            new_segments += len(segments)
            if every:
                went_on.look(segments)
        if new_segments >= _SETTLE_SEGMENTS or new_packets >= _SETTLE_PACKETS:
            sink(table.settle(int(batch.t_ns[-1])))
            new_segments = new_packets = 0
        if progress is not None:
            progress(opened.bytes_read, opened.size, books.packets)
    files = [opened] if isinstance(opened, CaptureFile) else opened.files
    _check(files, facts)
    for rows in table.finish_in_parts(facts.last_t_ns or 0):
        sink(rows)
    facts.level = LEVELS[level]
    facts.one_direction = CLIENT_TO_SERVER if went_on.proven and not books.synack else None
    books.packets = sum(file.packets for file in files)  # those without a time or an interface are in no batch
    facts.sources = [_source(file) for file in files]
    facts.warnings = [warning for file in files for warning in file.warnings]
    return facts


def _open(paths: Sequence[str]) -> CaptureFile | MergedCapture:
    if len(paths) == 1:
        return open_capture(paths[0])
    from ncps_capture.merged import MergedCapture  # not needed for one file, which nearly all are

    return MergedCapture(paths)


def _check(files: Sequence[CaptureFile], facts: CaptureFacts) -> None:
    """There must be something to report."""
    names = ", ".join(file.name for file in files)
    books = facts.books
    packets = sum(file.packets for file in files)
    if not packets:
        why = next((file.damaged for file in files if file.damaged), None)
        what = f"it is {why}" if why else "it has a capture header and no packets"
        raise FileFault(f"cannot analyze {names}: {what}")
    if books.packets == books.unsupported_linktype:
        numbers = sorted(books.unsupported_linktypes)
        types = ", ".join(str(n) if link_type_name(n) == str(n) else f"{link_type_name(n)} ({n})" for n in numbers)
        raise FileFault(
            f"cannot analyze {names}: 0 of {packets:,} packets decoded: "
            + (f"link type {types} is not supported" if numbers else "none has a time and an interface")
        )


def _source(file: CaptureFile) -> SourceFacts:
    types = dict.fromkeys(link_type_name(each.link_type) for each in file.interfaces if each.packets)
    return SourceFacts(file.name, tuple(types), file.packets, file.drops, file.damaged is not None)


def _level(segments: Segments) -> int:
    """Index into LEVELS: bare ACKs are in, or RSTs that refuse nothing, or neither."""
    flags = segments["flags"]
    if np.any((flags & (SYN | RST) == 0) & (flags & ACK != 0)):
        return 2
    return int(np.any((flags & RST != 0) & (flags & ACK == 0)))


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
