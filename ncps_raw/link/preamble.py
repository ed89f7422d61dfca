"""Pure: what two ends of this program say to each other when asked to (``--both``), and how a listener knows it.

The one idea: a connection is a plain stream of bytes unless its first bytes are a magic word that no client sends by
chance. The client opens one connection to talk (lines of JSON) and marks the others with the same token; the bytes
behind a mark are data. Nothing of it is ever sent unless asked for. Must not know sockets.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

MAGIC: Final = b"\0ncps link v1\r\n\0"
TOKEN: Final = 16
LENGTH: Final = len(MAGIC) + 1 + TOKEN
CONTROL: Final = b"C"
DATA: Final = b"D"
NETWORK: Final = b"N"
"""A connection for measuring the network alone: memory to nowhere."""
_KINDS: Final = (CONTROL, DATA, NETWORK)
LONGEST_LINE: Final = 1 << 16


@dataclass(frozen=True)
class Mark:
    """A connection's first bytes, read."""

    kind: bytes
    token: bytes


def mark(kind: bytes, token: bytes) -> bytes:
    """The first LENGTH bytes of a connection."""
    if kind not in _KINDS or len(token) != TOKEN:
        raise ValueError("a mark has one of three kinds and a token of 16 bytes")
    return MAGIC + kind + token


def recognise(data: bytes) -> Mark | bool | None:
    """First bytes of a connection -> its Mark; False: a plain stream; None: too few bytes to say."""
    if not data:
        return None
    if data[: len(MAGIC)] != MAGIC[: len(data)]:
        return False
    if len(data) < LENGTH:
        return None
    kind = data[len(MAGIC) : len(MAGIC) + 1]
    if kind not in _KINDS:
        return False
    return Mark(kind, data[len(MAGIC) + 1 : LENGTH])


def line(message: Mapping[str, Any]) -> bytes:
    """A message of the talking connection."""
    return json.dumps(message, separators=(",", ":")).encode("ascii") + b"\n"


def read_line(data: bytes) -> dict[str, Any]:
    """A message again. Raises ValueError for anything else."""
    found = json.loads(data.decode("ascii"))
    if not isinstance(found, dict):
        raise ValueError("a message is an object")
    return found


@dataclass(frozen=True)
class Wish:
    """What a client wants of the listener."""

    sends: bool  # the client
    bidirectional: bool
    streams: int
    size: int | None
    duration_ns: int | None
    warmup_ns: int
    explain: bool = False  # what goes into a file counts when it is on the device


def wish_of(message: Mapping[str, Any]) -> Wish:
    """Read a client's first message. Raises ValueError for one that cannot be meant."""
    sends, bidirectional = message.get("sends"), message.get("bidirectional")
    streams, warmup = message.get("streams"), message.get("warmup_ns")
    size, duration = message.get("size"), message.get("duration_ns")
    whole = (streams, warmup, *(value for value in (size, duration) if value is not None))
    if not isinstance(sends, bool) or not isinstance(bidirectional, bool):
        raise ValueError("a direction is missing")
    if any(isinstance(value, bool) or not isinstance(value, int) or value < 0 for value in whole):
        raise ValueError("a number is missing")
    if not isinstance(streams, int) or not isinstance(warmup, int) or not 0 < streams <= 1000:
        raise ValueError("streams must be 1 to 1000")
    return Wish(sends, bidirectional, streams, size, duration, warmup, message.get("explain") is True)
