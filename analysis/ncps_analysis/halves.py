"""Pure: where a capture stands on the path, told by the two halves of its handshakes (definition D12).

It must not know how the halves were counted. The one idea: at the client SYN to SYN-ACK is the whole round trip and the
ACK follows at once; at the server it is the other way round; in between the round trip is split in two.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from typing import Final

CLIENT: Final = "client"
SERVER: Final = "server"
MIDDLE: Final = "middle"
FAR_GREATER: Final = 4
"""So many times the other half is much longer than it: an answer takes tens of microseconds, a LAN some hundreds."""


def vantage(syn_to_synack_us: int | None, synack_to_ack_us: int | None) -> str | None:
    """CLIENT, SERVER or MIDDLE by the medians of both halves (us); None where one is unknown."""
    if syn_to_synack_us is None or synack_to_ack_us is None:
        return None
    if syn_to_synack_us > FAR_GREATER * synack_to_ack_us:
        return CLIENT
    if synack_to_ack_us > FAR_GREATER * syn_to_synack_us:
        return SERVER
    return MIDDLE


def within_one_host(paths: Iterable[tuple[str, str]]) -> bool:
    """Whether some connections stayed on this machine, with both ends alike: there is no path to stand on.

    ``paths``: (this side's address, the other's); "" is an unknown address.
    """
    return any(here == there or _is_loopback(here) for here, there in paths if here)


def _is_loopback(address: str) -> bool:
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback
