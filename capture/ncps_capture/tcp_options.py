"""TCP options of many segments at once. Pure.

It must not know where a header was found. The one idea: the options of all rows stand in one matrix, and one step of
the loop reads the next option of every row that still has one, 40 steps at most; rows as Linux writes them take none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from ncps_capture.segments import BIT_TFO, BIT_TIMESTAMP

OPTIONS_MAX: Final = 40
WIDTH: Final = OPTIONS_MAX + 10
"""Columns of the matrix: an option that begins in the last byte can still be read without a look at the edge."""

_END, _NOP, _MSS, _WSCALE, _TIMESTAMP, _TFO, _EXPERIMENT = 0, 1, 2, 3, 8, 34, 254
_TFO_MAGIC: Final = 0xF989
_USUAL_SIZE: Final = 20
_USUAL: Final = (
    (0, bytes([_MSS, 4, 0, 0, 4, 2, _TIMESTAMP, 10]), bytes.fromhex("ffff0000ffffffff")),
    (12, bytes([0, 0, 0, 0, _NOP, _WSCALE, 3, 0]), bytes.fromhex("00000000ffffff00")),
)
"""MSS, SACK permitted, timestamps, padding, window scale: where eight bytes of their kinds and lengths stand, these
bytes, and which of their bits count."""
ABSENT_WSCALE: Final = 255
_WITHIN: Final = np.where(np.arange(WIDTH) < np.arange(OPTIONS_MAX + 1)[:, None], 0xFF, 0).astype(np.uint8)
"""By the number of bytes of options: the bits that are theirs."""


@dataclass(frozen=True)
class Options:
    """What a handshake table wants of the options. One element a row, 0 or ABSENT_WSCALE where absent."""

    mss: npt.NDArray[np.uint16]
    wscale: npt.NDArray[np.uint8]
    tsval: npt.NDArray[np.uint32]
    tsecr: npt.NDArray[np.uint32]
    bits: npt.NDArray[np.uint8]  # BIT_TIMESTAMP, BIT_TFO


def up_to(matrix: npt.NDArray[np.uint8], size: npt.NDArray[np.int64]) -> npt.NDArray[np.uint8]:
    """A copy of the matrix with 0 from ``size`` on: what ``parse_options`` takes."""
    return matrix & _WITHIN.take(size, axis=0)


def parse_options(matrix: npt.NDArray[np.uint8], size: npt.NDArray[np.int64]) -> Options:
    """Read the options of every row.

    ``matrix``: (n, WIDTH) uint8, the bytes after the 20-byte TCP header, 0 from ``size`` on. ``size``: (n,) int64, at
    most OPTIONS_MAX. An option that announces more bytes than there are ends its row, as in the kernels' parsers.
    """
    rows = len(matrix)
    out = Options(
        np.zeros(rows, np.uint16),
        np.full(rows, ABSENT_WSCALE, np.uint8),
        np.zeros(rows, np.uint32),
        np.zeros(rows, np.uint32),
        np.zeros(rows, np.uint8),
    )
    usual = _usual(matrix, size)
    if usual.any():
        out.mss[usual] = matrix[:, 2:4].view(">u2")[usual, 0]
        out.tsval[usual] = matrix[:, 8:12].view(">u4")[usual, 0]
        out.tsecr[usual] = matrix[:, 12:16].view(">u4")[usual, 0]
        out.wscale[usual] = matrix[usual, 19]
        out.bits[usual] = BIT_TIMESTAMP
    flat = np.ascontiguousarray(matrix).reshape(-1)
    row = np.flatnonzero(~usual & (size > 0))
    at = row * WIDTH
    stop = at + size[row]
    while len(row):
        kind = flat[at]
        length = flat[at + 1].astype(np.int64)
        nop = kind == _NOP
        length[nop] = 1
        fits = (kind != _END) & (nop | (length >= 2)) & (at + length <= stop)
        if not fits.all():
            row, at, stop, kind, length = row[fits], at[fits], stop[fits], kind[fits], length[fits]
        _take(out, flat, row, at, kind, length)
        at = at + length
        more = at < stop
        if not more.all():
            row, at, stop = row[more], at[more], stop[more]
    return out


def _usual(matrix: npt.NDArray[np.uint8], size: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Which rows are as Linux and most others write them, so that everything in them has its place."""
    fits: npt.NDArray[np.bool_] = size == _USUAL_SIZE
    for at, value, mask in _USUAL:
        wanted, counts = (np.frombuffer(text, np.uint64)[0] for text in (value, mask))
        fits &= matrix[:, at : at + 8].view(np.uint64)[:, 0] & counts == wanted
    return fits


def _take(
    out: Options,
    flat: npt.NDArray[np.uint8],
    row: npt.NDArray[np.int64],
    at: npt.NDArray[np.int64],
    kind: npt.NDArray[np.uint8],
    length: npt.NDArray[np.int64],
) -> None:
    # Most steps see one or two kinds of option; the others cost one comparison each.
    seen = np.bincount(kind, minlength=256)
    if seen[_MSS]:
        hit = (kind == _MSS) & (length == 4)
        out.mss[row[hit]] = _number(flat, at[hit] + 2, 2)
    if seen[_WSCALE]:
        hit = (kind == _WSCALE) & (length == 3)
        out.wscale[row[hit]] = flat[at[hit] + 2]
    if seen[_TIMESTAMP]:
        hit = (kind == _TIMESTAMP) & (length == 10)
        out.tsval[row[hit]] = _number(flat, at[hit] + 2, 4)
        out.tsecr[row[hit]] = _number(flat, at[hit] + 6, 4)
        out.bits[row[hit]] |= BIT_TIMESTAMP
    if seen[_TFO]:
        out.bits[row[kind == _TFO]] |= BIT_TFO
    if seen[_EXPERIMENT]:
        hit = np.flatnonzero((kind == _EXPERIMENT) & (length >= 4))
        magic = _number(flat, at[hit] + 2, 2) == _TFO_MAGIC
        out.bits[row[hit[magic]]] |= BIT_TFO


def _number(flat: npt.NDArray[np.uint8], at: npt.NDArray[np.int64], size: int) -> npt.NDArray[np.int64]:
    value = flat[at].astype(np.int64)
    for i in range(1, size):
        value = (value << 8) | flat[at + i]
    return value
