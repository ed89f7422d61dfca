"""SYNs and SYN-ACKs as Linux sends them over Ethernet or loopback, read at fixed places. Pure.

It must not know what is made of frames that look otherwise: ``decode.py`` reads these, and would read the frames
taken here to the same rows. The one idea: whatever moves the fields of a frame shows in a few bytes of it, so five
words compared with a pattern prove where everything is, and each field is one strided copy.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from ncps_capture.link import ETHERNET
from ncps_capture.rows import join, pick
from ncps_capture.segments import ACK, BIT_TIMESTAMP, NO_VLAN, SEGMENT, V4_MAPPED, Batch, Books, Segments

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Frames = npt.NDArray[np.void]

_WORD: Final = 8

_TCP: Final = (
    ("sport", 0, ">u2"),
    ("dport", 2, ">u2"),
    ("seq", 4, ">u4"),
    ("ack", 8, ">u4"),
    ("flags", 13, "u1"),
    ("mss", 22, ">u2"),
    ("tsval", 28, ">u4"),
    ("tsecr", 32, ">u4"),
    ("wscale", 39, "u1"),
)
_TCP_PATTERN: Final = (
    (12, "a002", "f007"),  # 40 bytes of header; SYN, and neither RST nor FIN
    (20, "02040000 0402 080a", "ffff0000 ffff ffff"),  # maximum segment size, SACK permitted, timestamps ...
    (36, "010303", "ffffff"),  # ... and the window scale behind one byte of padding
)
"""Offset in the TCP header, bytes in hexadecimal and which of their bits count."""


class _Layout:
    """Where everything is in one kind of frame."""

    def __init__(
        self,
        version: int,
        header: int,
        pattern: tuple[tuple[int, str, str], ...],
        fields: tuple[tuple[str, int, str], ...],
    ) -> None:
        self.size = 14 + header + 40
        value, mask = np.zeros((2, self.size), np.uint8)
        moved = tuple((14 + header + at, wanted, counts) for at, wanted, counts in _TCP_PATTERN)
        for offset, wanted, counts in (*pattern, *moved):
            for whole, text in ((value, wanted), (mask, counts)):
                part = np.frombuffer(bytes.fromhex(text), np.uint8)
                whole[offset : offset + len(part)] = part
        fields = (*fields, *((name, 14 + header + at, kind) for name, at, kind in _TCP))
        self.names = [name for name, _, _ in fields]
        self.words = []
        formats, offsets = [kind for _, _, kind in fields], [at for _, at, _ in fields]
        at = 0
        while mask[at:].any():
            at = min(at + int(np.flatnonzero(mask[at:])[0]), self.size - _WORD)
            word = slice(at, at + _WORD)
            self.words.append((f"word {at}", value[word].view("<u8")[0], mask[word].view("<u8")[0]))
            formats.append("<u8")
            offsets.append(at)
            at += _WORD
        names = [*self.names, *(name for name, _, _ in self.words)]
        self.dtype = np.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": self.size})
        self.row = np.zeros(1, SEGMENT)
        self.row["ip_version"], self.row["vlan"], self.row["bits"] = version, NO_VLAN, BIT_TIMESTAMP


_LAYOUTS: Final = (
    _Layout(
        4,
        20,
        (
            (12, "0800 45 00 003c", "ffff ff 00 ffff"),  # no options, 60 bytes in all
            (20, "0000 00 06", "1fff 00 ff"),  # the first fragment; TCP
        ),
        (("ip_ident", 18, ">u2"), ("ttl", 22, "u1"), ("src_lo", 26, ">u4"), ("dst_lo", 30, ">u4")),
    ),
    _Layout(
        6,
        40,
        ((12, "86dd 60", "ffff f0"), (18, "0028 06", "ffff ff")),  # 40 bytes behind the header, which is TCP
        (
            ("ip_ident", 14, ">u4"),
            ("ttl", 21, "u1"),
            ("src_hi", 22, ">u8"),
            ("src_lo", 30, ">u8"),
            ("dst_hi", 38, ">u8"),
            ("dst_lo", 46, ">u8"),
        ),
    ),
)


@dataclass(frozen=True)
class Usual:
    """What was read of a batch here, and what was not."""

    rows: Segments  # in frame order
    books: Books  # of these frames alone
    rest: Batch  # all other frames
    which: Ints  # their indices in the batch, ascending

    def among(self, others: Segments, books: Books) -> tuple[Segments, Books]:
        """Rows and books of the whole batch; ``others`` and ``books`` were made of ``rest``, and are used up."""
        books += self.books
        if not len(others):
            return self.rows, books
        others["frame"] = self.which[others["frame"] - self.rest.first_frame] + self.rest.first_frame
        return _in_order([self.rows, others]), books


def read_usual(batch: Batch) -> Usual | None:
    """Rows and books of all frames of a usual look, the same as ``decode`` has of them.

    None where that is not the quicker way: there are none, or most frames have another size; and where frames are not
    numbered one after the other.
    """
    if batch.link_type != ETHERNET or batch.frames is not None or not len(batch.caplens):
        return None
    sized = [np.flatnonzero(batch.caplens == layout.size) for layout in _LAYOUTS]
    if 2 * sum(len(which) for which in sized) < len(batch.caplens):
        return None
    left = np.ones(len(batch.caplens), np.bool_)
    parts = []
    for layout, which in zip(_LAYOUTS, sized, strict=True):
        if not len(which):
            continue
        frames = _frames(batch, which, layout)
        fits = _fits(frames, layout)
        if not fits.all():
            which, frames = which[fits], pick(frames, fits)
        if len(which):
            parts.append(_rows(batch, layout, frames, which))
            left[which] = False
    if not parts:
        return None
    rows = _in_order(parts)
    answers = int(np.count_nonzero(rows["flags"] & ACK))
    books = Books(packets=len(rows), tcp_packets=len(rows), syn=len(rows) - answers, synack=answers)
    which = np.flatnonzero(left)
    rest = {name: getattr(batch, name)[which] for name in ("offsets", "caplens", "lengths", "t_ns")}
    return Usual(rows, books, replace(batch, **rest), which)


def _in_order(parts: list[Segments]) -> Segments:
    if len(parts) == 1:
        return parts[0]
    rows = join(parts)
    return pick(rows, np.argsort(rows["frame"], kind="stable"))


def _frames(batch: Batch, which: Ints, layout: _Layout) -> Frames:
    """The frames as records: a view where they lie equally far apart, else a copy."""
    data, offsets = np.ascontiguousarray(batch.data), batch.offsets[which]
    first, step = int(offsets[0]), int(offsets[1] - offsets[0]) if len(offsets) > 1 else 0
    if step >= 0 and (offsets == first + step * np.arange(len(offsets))).all():
        return np.ndarray((len(offsets),), layout.dtype, data, first, (step,))
    places = np.ndarray((len(data) - layout.size + 1,), np.dtype((np.void, layout.size)), data, 0, (1,))
    return places[offsets].view(layout.dtype)


def _fits(frames: Frames, layout: _Layout) -> Bools:
    wrong: npt.NDArray[np.uint64] = np.zeros(len(frames), np.uint64)
    for name, value, mask in layout.words:
        word = frames[name] ^ value
        word &= mask
        wrong |= word
    fits: Bools = wrong == 0
    return fits


def _rows(batch: Batch, layout: _Layout, frames: Frames, which: Ints) -> Segments:
    rows = pick(layout.row, np.zeros(len(which), np.int64))
    whole = len(which) == len(batch.t_ns)
    rows["t_ns"] = batch.t_ns if whole else batch.t_ns[which]
    rows["frame"] = which + batch.first_frame
    rows["source"] = batch.source
    for name in layout.names:
        rows[name] = frames[name]
    if "src_hi" not in layout.names:
        for name in ("src_lo", "dst_lo"):
            rows[name] |= np.uint64(V4_MAPPED)
    else:
        rows["ip_ident"] &= np.uint32(0x0FFFFFFF)
    return rows
