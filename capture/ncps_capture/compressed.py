"""Decompression as a stream: compressed bytes in by pieces, plain bytes out by pieces.

Knows nothing of captures. The one idea: whatever the kind, a step makes a bounded number of bytes of a bounded number
of bytes, so neither a large file nor a small one that blows up fills memory. Members that follow one another are one
stream; where the data are cut or damaged, all that came out before is kept.
"""

from __future__ import annotations

import bz2
import importlib
import lzma
import zlib
from collections.abc import Callable
from typing import Any, Final

from ncps_capture.errors import FileFault

_PIECE: Final = 256 << 10
_ZSTD_PIECE: Final = 1 << 10
"""zstandard cannot be told how much to give. 128 KiB may be made of four bytes, so this much makes 32 MiB at worst."""
_XZ_MEMORY: Final = 256 << 20

KINDS: Final = {
    b"\x1f\x8b": "gzip",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\x04\x22\x4d\x18": "lz4",
    b"\xfd7zXZ\x00": "xz",
    b"BZh": "bzip2",
}
"""How a compressed file begins -> what it is."""
_MAGIC_MOST: Final = max(map(len, KINDS))
_PACKAGES: Final = {"zstd": "zstandard", "lz4": "lz4.frame"}


def kind_of(head: bytes) -> str | None:
    """Kind of compression by the first bytes, six of them or more; None if none."""
    return next((kind for magic, kind in KINDS.items() if head.startswith(magic)), None)


_NOT_DATA: Final = (zlib.error, lzma.LZMAError, OSError, EOFError, ValueError, RuntimeError)
"""What the libraries say of data that are not theirs; zstandard has an error of its own besides."""


class Decompressed:
    """Plain bytes of a compressed stream of ``kind``, whose bytes are ``head`` and then what ``read(count)`` gives.

    FileFault if the kind needs a package that is not installed. ``damaged`` says, at the end, what was wrong.
    """

    def __init__(self, name: str, kind: str, head: bytes, read: Callable[[int], bytes]) -> None:
        self.damaged: str | None = None
        self._kind = kind
        self._read = read
        self._input = memoryview(head)
        self._taken = len(head)
        self._ready = memoryview(b"")
        self._over = False
        self._new, self._not_data = _maker(name, kind)
        self._member: Any = self._new()

    def readinto(self, view: memoryview) -> int:
        """Fill ``view``, if there is so much; 0 only at the end."""
        filled = 0
        while filled < len(view):
            if not self._ready:
                if self._over:
                    break
                self._ready = self._step(max(len(view) - filled, _PIECE))
                continue
            some = self._ready[: len(view) - filled]
            view[filled : filled + len(some)] = some
            self._ready = self._ready[len(some) :]
            filled += len(some)
        return filled

    def _step(self, want: int) -> memoryview:
        """At most ``want`` bytes more (of zstd, some more); perhaps none, but then the input has moved on."""
        if self._member is None and not self._next_member():
            return memoryview(b"")
        member = self._member
        piece, kept = self._input, memoryview(b"")
        try:
            if self._kind == "zstd":
                piece, kept = piece[:_ZSTD_PIECE], piece[_ZSTD_PIECE:]
                out = member.decompress(piece)
            else:
                out = member.decompress(piece, want)
        except self._not_data:
            return self._end(f"damaged near byte {self._taken - len(self._input)} of its {self._kind} data")
        if member.eof:
            self._member = None
            rest = member.unused_data
        else:
            rest = getattr(member, "unconsumed_tail", b"")  # zlib alone hands back what it has not used yet
        self._input = memoryview(bytes(rest) + kept) if rest else kept
        if not out and not self._input and self._member is not None and not self._fill():
            return self._end(f"cut at byte {self._taken} of its {self._kind} data")
        return memoryview(out)

    def _next_member(self) -> bool:
        """Whether another member follows; zeros between them are padding."""
        head = bytes(self._input).lstrip(b"\0")
        while len(head) < _MAGIC_MOST and self._fill():
            head = (head + self._input).lstrip(b"\0")
        self._input = memoryview(head)
        if kind_of(head) == self._kind:
            self._member = self._new()
            return True
        self._end(f"followed by bytes that are not {self._kind}; not used" if head else None)
        return False

    def _fill(self) -> bool:
        more = self._read(_PIECE)
        self._input = memoryview(more)
        self._taken += len(more)
        return bool(more)

    def _end(self, damaged: str | None) -> memoryview:
        self.damaged = damaged
        self._over = True
        return memoryview(b"")


def _maker(name: str, kind: str) -> tuple[Callable[[], Any], tuple[type[Exception], ...]]:
    """What makes a decompressor of one member, and what it raises on data that are not its own."""
    if kind == "gzip":
        return lambda: zlib.decompressobj(wbits=31), _NOT_DATA
    if kind == "xz":
        return lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_XZ_MEMORY), _NOT_DATA
    if kind == "bzip2":
        return bz2.BZ2Decompressor, _NOT_DATA
    try:
        module = importlib.import_module(_PACKAGES[kind])
    except ImportError:
        raise FileFault(
            f"cannot read {name}: it is compressed with {kind}; pip install 'ncps-raw[compressed]', "
            f"or decompress it first"
        ) from None
    if kind == "zstd":
        return lambda: module.ZstdDecompressor().decompressobj(), (*_NOT_DATA, module.ZstdError)
    return module.LZ4FrameDecompressor, _NOT_DATA
