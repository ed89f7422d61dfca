"""Edge: what the kernel says of one connection: TCP_INFO and the bytes not yet acknowledged.

The one idea: a system that does not tell gives None, and None is never taken for 0. Must not know who asks.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import sys
from dataclasses import dataclass
from typing import Final

try:  # at once: what is loaded when the first byte is there makes its clock late
    import fcntl
    import termios
except ImportError:  # not on Windows, where nothing is told anyway
    pass

_LINUX: Final = sys.platform == "linux"
_LENGTH: Final = 192
_FIELDS: Final = struct.Struct("=B67xI8xI16xI16xQ20xI16x3Q")
"""``struct tcp_info`` of linux/tcp.h: state at 0, rtt 68, snd_cwnd 80, total_retrans 100, bytes_acked 120, min_rtt 148,
busy_time 168, rwnd_limited 176, sndbuf_limited 184."""
CLOSED: Final = 7
PEER_ENDED: Final = 8
FIN_ACKNOWLEDGED: Final = (5, 6)
"""FIN_WAIT2 and TIME_WAIT: what is acknowledged includes our end."""


@dataclass(frozen=True)
class TcpInfo:
    """A moment of one connection. Times in microseconds; the last three are since it was opened."""

    state: int
    srtt_us: int
    cwnd: int  # segments
    retransmits: int
    acked: int  # bytes, SYN and FIN may be counted as one each
    min_rtt_us: int
    busy_us: int  # something was waiting to be sent or acknowledged
    rwnd_limited_us: int  # of that: the peer's window was full
    sndbuf_limited_us: int  # of that: the send buffer was too small


def parse(data: bytes) -> TcpInfo | None:
    """TCP_INFO as bytes -> TcpInfo; None where the kernel is too old to tell all of it (before Linux 4.10)."""
    if len(data) < _FIELDS.size:
        return None
    info = TcpInfo(*_FIELDS.unpack_from(data))
    if info.min_rtt_us == 0xFFFF_FFFF:  # no round trip was measured yet
        return None
    return info


def read(sock: socket.socket) -> TcpInfo | None:
    """The connection's TcpInfo, or None."""
    if not _LINUX:
        return None
    try:
        return parse(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _LENGTH))
    except OSError:
        return None


def acknowledge_now(sock: socket.socket) -> None:
    """Send an acknowledgement that is held back (up to 40 ms) for company."""
    if _LINUX:
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)


def waiting(sock: socket.socket) -> int | None:
    """Bytes that have come and were not read yet; None if that is not told."""
    return _queued(sock, "FIONREAD")


def unacknowledged(sock: socket.socket) -> int | None:
    """Bytes in the send queue that the peer has not acknowledged, a FIN counted as one; None if that is not told."""
    return _queued(sock, "TIOCOUTQ")


def _queued(sock: socket.socket, request: str) -> int | None:
    if not _LINUX:
        return None
    with contextlib.suppress(OSError, ValueError):
        return int(struct.unpack("=i", fcntl.ioctl(sock, getattr(termios, request), b"\0\0\0\0"))[0])
    return None
