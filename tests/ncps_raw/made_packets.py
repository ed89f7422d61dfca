"""Packets for the lab's tests, made by scapy."""

import ipaddress
from typing import Any

from scapy.layers.inet import IP, TCP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether

A = {4: "10.88.0.1", 6: "fd88::1"}
B = {4: "10.88.0.2", 6: "fd88::2"}


def packet(
    flags: str = "S",
    sport: int = 40000,
    dport: int = 9000,
    *,
    seq: int = 1000,
    ack: int = 0,
    version: int = 4,
    back: bool = False,
    data: bytes = b"",
    ethernet: bool = False,
    **tcp: Any,
) -> bytes:
    """A segment from a to b; with ``back`` from b to a, the ports as given."""
    src, dst = (B, A) if back else (A, B)
    network = (IP if version == 4 else IPv6)(src=src[version], dst=dst[version])
    whole = network / TCP(sport=sport, dport=dport, seq=seq, ack=ack, flags=flags, **tcp) / data
    link = Ether(src="02:88:00:00:00:01", dst="02:88:00:00:00:02")
    return bytes(link / whole if ethernet else whole)


def packed(address: str) -> bytes:
    return ipaddress.ip_address(address).packed
