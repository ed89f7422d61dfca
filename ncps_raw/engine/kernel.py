"""What the kernel says of a connection: TCP_INFO on Linux, nothing elsewhere.

``tcpi_rtt`` is the smoothed estimate after its first sample, about one path round trip even when the handshake took
a second (after a repeated SYN the kernel may not time it), so it is recorded beside the wire's figure, never as it.
"""

from __future__ import annotations

import socket
import struct
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

INFO_LEN: Final = 104
"""Bytes of ``struct tcp_info`` up to and with ``tcpi_total_retrans``."""
STATE_ESTABLISHED: Final = 1
RTT_AND_RETRANS: Final = struct.Struct("=68xI28xI")
"""``tcpi_rtt`` (us) at byte 68 and ``tcpi_total_retrans`` at byte 100: linux/tcp.h, unchanged since 2.6."""

AVAILABLE: Final = sys.platform == "linux"
TCP_INFO: Final = getattr(socket, "TCP_INFO", 11)
IP_BIND_ADDRESS_NO_PORT: Final = 24
"""Choose the local port at connect, when the whole 4-tuple is known: bound sockets then share ports (Linux 4.2)."""


def late_port_choice(sock: socket.socket) -> None:
    """Let ``bind((address, 0))`` leave the port to ``connect``. Nothing where the platform has no such option."""
    if AVAILABLE:
        sock.setsockopt(socket.IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1)


KEEP_IDLE: Final = getattr(socket, "TCP_KEEPIDLE", getattr(socket, "TCP_KEEPALIVE", None))
"""macOS has the same option by another name."""
KEEP_INTERVAL_S: Final = 1
KEEP_PROBES: Final = 10


def keep_alive(sock: Any, idle_ns: int) -> None:
    """Probe an idle connection: after ``idle_ns`` (whole seconds, at least one) every second, ten times. OSError."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if KEEP_IDLE is not None:
        sock.setsockopt(socket.IPPROTO_TCP, KEEP_IDLE, max(1, -(-idle_ns // 1_000_000_000)))
    for name, value in (("TCP_KEEPINTVL", KEEP_INTERVAL_S), ("TCP_KEEPCNT", KEEP_PROBES)):
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def last_words(shutdown: bool, abortive: bool) -> Callable[[Any], None] | None:
    """What is done with a socket before it is closed; None = nothing. It never raises: the close counts."""
    if not shutdown and not abortive:
        return None

    def say(sock: Any) -> None:
        if shutdown:
            with suppress(OSError):  # the peer may have gone
                sock.shutdown(socket.SHUT_WR)
        if abortive:
            with suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_0)

    return say


LINGER_0: Final = struct.pack("hh" if sys.platform == "win32" else "ii", 1, 0)
"""SO_LINGER on with zero seconds: close sends RST and leaves no TIME_WAIT."""
