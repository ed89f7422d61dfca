"""Pure: one IP packet as the lab sees it: what it is, whose it is, and the answers a path may give in its stead.

It must not know rules, clocks or devices. It reads packets one by one with ``struct`` and shares no line with the
decoder of the capture on purpose: the lab's log is the truth that the capture is held against.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

KINDS: Final = ("other", "syn", "synack", "ack", "data", "fin", "rst", "icmp", "malformed")
"""What a packet is, by number: the index is what the log holds. ``ack`` is a bare one; ``fin`` may carry data."""
OTHER, SYN_KIND, SYNACK_KIND, ACK_KIND, DATA_KIND, FIN_KIND, RST_KIND, ICMP_KIND, MALFORMED_KIND = range(len(KINDS))
TCP_KINDS: Final = frozenset(range(SYN_KIND, ICMP_KIND))

_FIN, _SYN, _RST, _PSH, _ACK = 0x01, 0x02, 0x04, 0x08, 0x10
_TCP, _ICMP, _ICMPV6 = 6, 1, 58
_ETHERNET: Final = 14
_HOP_LIMIT: Final = 64
_V4_QUOTE: Final = 28  # RFC 792: the IP header and 8 bytes after it
_V6_QUOTE: Final = 1232  # RFC 4443: as much as fits in the minimum MTU


class Header(NamedTuple):
    """What is in a packet's headers. Addresses are packed, 4 or 16 bytes, empty where the packet is not IP."""

    kind: int
    version: int  # 4, 6, or 0 for what is not IP
    src: bytes = b""
    dst: bytes = b""
    sport: int = 0
    dport: int = 0
    seq: int = 0
    ack: int = 0
    flags: int = 0
    payload: int = 0
    tsval: int = 0  # of SYNs and SYN-ACKs only, 0 where there is no timestamp
    ident: int = 0  # IPv4 identification; IPv6 flow label


_NOT_IP: Final = Header(OTHER, 0)


def read_header(packet: bytes, ethernet: bool = False) -> Header:
    """The headers of an IP packet, or of an Ethernet frame that holds one. Never raises: see kind ``malformed``."""
    try:
        if ethernet:
            (ether_type,) = struct.unpack_from("!H", packet, 12)
            if ether_type not in (0x0800, 0x86DD):
                return _NOT_IP
            packet = packet[_ETHERNET:]
        version = packet[0] >> 4
        if version == 4:
            return _read_v4(packet)
        return _read_v6(packet) if version == 6 else _NOT_IP
    except (IndexError, struct.error):
        return Header(MALFORMED_KIND, 0)


def _read_v4(packet: bytes) -> Header:
    ident, fragment, proto = struct.unpack_from("!4xHHxB", packet)
    src, dst, at = packet[12:16], packet[16:20], (packet[0] & 15) * 4
    if at < 20 or len(dst) < 4:
        return Header(MALFORMED_KIND, 4)
    if proto == _TCP and not fragment & 0x1FFF:
        return _read_tcp(packet, at, 4, src, dst, ident)
    return Header(ICMP_KIND if proto == _ICMP else OTHER, 4, src, dst, ident=ident)


def _read_v6(packet: bytes) -> Header:
    first, proto = struct.unpack_from("!IxxB", packet)
    src, dst, label = packet[8:24], packet[24:40], first & 0xFFFFF
    if len(dst) < 16:
        return Header(MALFORMED_KIND, 6)
    if proto == _TCP:
        return _read_tcp(packet, 40, 6, src, dst, label)
    return Header(ICMP_KIND if proto == _ICMPV6 else OTHER, 6, src, dst, ident=label)


def _read_tcp(packet: bytes, at: int, version: int, src: bytes, dst: bytes, ident: int) -> Header:
    sport, dport, seq, ack, size, flags = struct.unpack_from("!HHIIBB", packet, at)
    data = at + (size >> 4) * 4
    payload = len(packet) - data
    if data < at + 20 or payload < 0:
        return Header(MALFORMED_KIND, version, src, dst)
    tsval = 0
    if flags & _RST:
        kind = RST_KIND
    elif flags & _FIN:
        kind = FIN_KIND
    elif flags & _SYN:
        kind = SYNACK_KIND if flags & _ACK else SYN_KIND
        tsval = _timestamp(packet, at + 20, data)
    else:
        kind = DATA_KIND if payload else ACK_KIND
    return Header(kind, version, src, dst, sport, dport, seq, ack, flags, payload, tsval, ident)


def _timestamp(packet: bytes, at: int, stop: int) -> int:
    while at < stop:
        option = packet[at]
        if option == 0:
            break
        if option == 1:
            at += 1
            continue
        length = packet[at + 1]
        if length < 2:
            break
        if option == 8 and length == 10:
            return int(struct.unpack_from("!I", packet, at + 2)[0])
        at += length
    return 0


# ---- answers in place of the packet ----------------------------------------------------------------------------


def reset_for(packet: bytes, ethernet: bool = False) -> bytes | None:
    """The RST a closed port would answer with (RFC 9293, 3.10.7.1); None for what gets no answer: RST, not TCP."""
    head = read_header(packet, ethernet)
    if head.kind not in TCP_KINDS or head.kind == RST_KIND:
        return None
    if head.flags & _ACK:
        seq, ack, flags = head.ack, 0, _RST
    else:
        length = head.payload + bool(head.flags & _SYN) + bool(head.flags & _FIN)
        seq, ack, flags = 0, (head.seq + length) & 0xFFFFFFFF, _RST | _ACK
    tcp = struct.pack("!HHIIBBHHH", head.dport, head.sport, seq, ack, 5 << 4, flags, 0, 0, 0)
    return _reply(packet, head, ethernet, _TCP, tcp, checksum_at=16, pseudo=True)


def unreachable_for(packet: bytes, code: int, ethernet: bool = False) -> bytes | None:
    """ICMP destination unreachable (type 3; ICMPv6: type 1) with ``code``, quoting the packet; None for ICMP itself.

    It comes from the packet's own destination, as from a host that answers for itself.
    """
    head = read_header(packet, ethernet)
    if head.version not in (4, 6) or head.kind == ICMP_KIND or not head.src:
        return None
    network = packet[_ETHERNET:] if ethernet else packet
    if head.version == 4:
        quote = network[: _V4_QUOTE - 20 + (network[0] & 15) * 4]
        return _reply(packet, head, ethernet, _ICMP, struct.pack("!BBHI", 3, code, 0, 0) + quote, 2, pseudo=False)
    body = struct.pack("!BBHI", 1, code, 0, 0) + network[: _V6_QUOTE - 48]
    return _reply(packet, head, ethernet, _ICMPV6, body, 2, pseudo=True)


def _reply(
    packet: bytes, head: Header, ethernet: bool, proto: int, body: bytes, checksum_at: int, pseudo: bool
) -> bytes:
    """An IP packet from ``head``'s destination to its source, with its checksums."""
    src, dst = head.dst, head.src
    cover = body
    if pseudo:
        cover = src + dst + struct.pack("!II" if head.version == 6 else "!HH", proto, len(body)) + body
    body = body[:checksum_at] + struct.pack("!H", checksum(cover)) + body[checksum_at + 2 :]
    if head.version == 4:
        ip = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + len(body), 0, 0x4000, _HOP_LIMIT, proto, 0, src, dst)
        ip = ip[:10] + struct.pack("!H", checksum(ip)) + ip[12:]
    else:
        ip = struct.pack("!IHBB16s16s", 6 << 28, len(body), proto, _HOP_LIMIT, src, dst)
    link = packet[6:12] + packet[0:6] + packet[12:14] if ethernet else b""
    return link + ip + body


def checksum(data: bytes) -> int:
    """The Internet checksum (RFC 1071) of ``data``; 0 over data that holds a right one."""
    if len(data) % 2:
        data += b"\0"
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF
