"""Addresses as two words and as text. Pure.

A row keeps an address as (high, low) 64-bit words of its 16-byte form, IPv4 as ``::ffff:a.b.c.d``. This is the one
place that turns them into what a person reads and back; it knows nothing of packets.
"""

from __future__ import annotations

import ipaddress
from typing import Final

from ncps_capture.errors import UsageError
from ncps_capture.segments import V4_MAPPED

_LOW: Final = (1 << 64) - 1
_V4_LAST: Final = V4_MAPPED + 0xFFFFFFFF


def address_text(hi: int, lo: int, ip_version: int = 0) -> str:
    """Text of an address: dotted for IPv4, RFC 5952 for IPv6.

    ``ip_version`` 6 keeps a mapped address that really travelled in IPv6 packets as ``::ffff:a.b.c.d``;
    0 or 4 shows it dotted.
    """
    hi, lo = int(hi), int(lo)
    if hi == 0 and V4_MAPPED <= lo <= _V4_LAST:
        dotted = str(ipaddress.IPv4Address(lo - V4_MAPPED))
        return f"::ffff:{dotted}" if ip_version == 6 else dotted
    return str(ipaddress.IPv6Address(hi << 64 | lo))


def address_words(text: str) -> tuple[int, int]:
    """(high, low) words of an IPv4 or IPv6 address; a zone (``%eth0``) is dropped, it is not on the wire.

    Raises UsageError when ``text`` is no address.
    """
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        raise UsageError(f"cannot read the address {text!r}: give it as 192.0.2.1 or 2001:db8::1") from None
    if isinstance(address, ipaddress.IPv4Address):
        return 0, V4_MAPPED | int(address)
    return int(address) >> 64, int(address) & _LOW
