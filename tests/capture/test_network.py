"""IPv4 and IPv6 headers: scapy and dpkt say where the transport starts, a walk packet by packet judges any bytes."""

from __future__ import annotations

import dpkt
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ncps_capture.network import CUT, FRAGMENT, ICMP, ICMPV6, MALFORMED, OK, TCP, ipv4, ipv6
from scapy.layers import inet
from scapy.layers.inet import IP
from scapy.layers.inet6 import (
    ICMPv6EchoRequest,
    IPv6,
    IPv6ExtHdrDestOpt,
    IPv6ExtHdrFragment,
    IPv6ExtHdrHopByHop,
    IPv6ExtHdrRouting,
)
from scapy.layers.ipsec import AH
from scapy.packet import Raw, raw

unhurried = settings(deadline=None, max_examples=80)  # a busy machine is no failure
EXTENSIONS = (0, 43, 44, 51, 60, 135, 139, 140)


def read(version: int, packets: list[bytes], stranger: bytes = b"", offload: int = 0) -> list[tuple[int, ...]]:
    """(verdict, protocol, offset of the transport, of its end) of each; what the verdict leaves open is 0."""
    text, start = b"", []
    for packet in packets:
        text += stranger
        start.append(len(text))
        text += packet + stranger
    at = np.array(start, np.int64)
    end = at + np.array([len(packet) for packet in packets], np.int64)
    out = (ipv4 if version == 4 else ipv6)(np.frombuffer(text, np.uint8), at.copy(), end, end + offload)
    return [
        (int(v), int(p), int(t - a), int(s - a)) if v == OK else (int(v), 0, 0, 0)
        for v, p, t, s, a in zip(out.verdict, out.proto, out.at, out.stop, at, strict=True)
    ]


def naive4(packet: bytes) -> tuple[int, ...]:
    """RFC 791, one packet."""
    if len(packet) < 20:
        return CUT, 0, 0, 0
    header, total = (packet[0] & 15) * 4, int.from_bytes(packet[2:4], "big")
    if packet[0] >> 4 != 4 or header < 20 or 0 < total < header:
        return MALFORMED, 0, 0, 0
    if int.from_bytes(packet[6:8], "big") & 0x1FFF:
        return FRAGMENT, 0, 0, 0
    return OK, packet[9], header, total or len(packet)


def naive6(packet: bytes) -> tuple[int, ...]:
    """RFC 8200, one packet."""
    if len(packet) < 40:
        return CUT, 0, 0, 0
    if packet[0] >> 4 != 6:
        return MALFORMED, 0, 0, 0
    size, proto, at = int.from_bytes(packet[4:6], "big"), packet[6], 40
    for _ in range(16):
        if proto not in EXTENSIONS:
            break
        if len(packet) < at + 8:
            return CUT, 0, 0, 0
        if proto == 44 and int.from_bytes(packet[at + 2 : at + 4], "big") >> 3:
            return FRAGMENT, 0, 0, 0
        length = {44: 8, 51: (packet[at + 1] + 2) * 4}.get(proto, (packet[at + 1] + 1) * 8)
        proto, at = packet[at], at + length
    if proto in EXTENSIONS:
        return MALFORMED, 0, 0, 0
    return OK, proto, at, 40 + size if size else len(packet)


@pytest.mark.parametrize(
    ("network", "transport", "proto"),
    [
        (IP(), inet.TCP(), TCP),
        (IP(options=b"\1" * 4), inet.TCP(), TCP),
        (IP(options=b"\1" * 40), inet.TCP() / b"data", TCP),
        (IP(), inet.ICMP(), ICMP),
        (IP(), inet.UDP(), 17),
        (IP(flags="MF"), inet.TCP(), TCP),
        (IP(flags="DF+evil"), inet.TCP(), TCP),
        (IPv6(), inet.TCP(), TCP),
        (IPv6(), ICMPv6EchoRequest(), ICMPV6),
        (IPv6() / IPv6ExtHdrHopByHop(), inet.TCP(), TCP),
        (IPv6() / IPv6ExtHdrHopByHop() / IPv6ExtHdrRouting(addresses=["::1", "::2"]), inet.TCP(), TCP),
        (IPv6() / AH(nh=6, payloadlen=4, icv=b"x" * 12, padding=b""), inet.TCP(), TCP),
        (IPv6() / IPv6ExtHdrFragment(offset=0, m=1) / IPv6ExtHdrDestOpt(), inet.TCP(), TCP),
        (IPv6(nh=59), Raw(b"x"), 59),
        (IPv6(nh=50), Raw(b"x" * 20), 50),
    ],
)
def test_scapy_puts_the_transport_there(network, transport, proto):
    whole = raw(network / transport)
    place = len(whole) - len(raw(transport))
    assert read(network.version, [whole + b"padding"]) == [(OK, proto, place, len(whole))]


@pytest.mark.parametrize(
    ("version", "packet", "verdict"),
    [
        (4, raw(IP(ihl=4) / inet.TCP()), MALFORMED),
        (4, raw(IP(len=19) / inet.TCP()), MALFORMED),
        (4, raw(IP(ihl=6, len=20) / inet.TCP()), MALFORMED),
        (4, raw(IP(version=5) / inet.TCP()), MALFORMED),
        (4, raw(IP(len=20) / inet.TCP()), OK),
        (4, raw(IP(frag=1) / inet.TCP()), FRAGMENT),
        (4, raw(IP(frag=0x1F00) / inet.TCP()), FRAGMENT),
        (4, raw(IP(frag=1, ihl=4) / inet.TCP()), MALFORMED),
        (4, raw(IP())[:19], CUT),
        (4, b"", CUT),
        (6, raw(IPv6(version=4) / inet.TCP()), MALFORMED),
        (6, raw(IPv6() / IPv6ExtHdrFragment(offset=1) / inet.TCP()), FRAGMENT),
        (6, raw(IPv6() / IPv6ExtHdrDestOpt())[:47], CUT),
        (6, raw(IPv6())[:39], CUT),
    ],
)
def test_verdicts(version, packet, verdict):
    assert read(version, [packet])[0][0] == verdict


@pytest.mark.parametrize(("count", "verdict"), [(16, OK), (17, MALFORMED)])
def test_extension_headers_are_walked_sixteen_times(count, verdict):
    chain = IPv6()
    for _ in range(count):
        chain = chain / IPv6ExtHdrDestOpt()
    assert read(6, [raw(chain / inet.TCP())])[0][0] == verdict


@pytest.mark.parametrize(
    ("version", "packet"), [(4, IP(len=0) / inet.TCP() / b"abc"), (6, IPv6(plen=0) / inet.TCP() / b"abc")]
)
def test_length_zero_reaches_to_the_end_of_the_frame_on_the_wire(version, packet):
    whole = raw(packet)
    ((verdict, proto, at, stop),) = read(version, [whole], offload=1000)
    assert (verdict, proto, at, stop) == (OK, TCP, 20 if version == 4 else 40, len(whole) + 1000)


def ip4_like(packet: bytes) -> bytes:
    return bytes([packet[0] & 1 | 0x44, *packet[1:]])


mostly4 = st.one_of(st.binary(max_size=28), st.binary(min_size=20, max_size=28).map(ip4_like))
chains = st.lists(st.tuples(st.sampled_from([*EXTENSIONS, 6]), st.integers(0, 2), st.booleans()), max_size=18)


@st.composite
def mostly6(draw):
    """A chain of extension headers, cut somewhere and perhaps with a byte changed."""
    chain = draw(chains)
    kinds = [*[kind for kind, _, _ in chain], 6]
    out = bytearray(b"\x60\0\0\0" + draw(st.integers(0, 90)).to_bytes(2, "big") + bytes([kinds[0]]) + bytes(33))
    for following, (kind, units, later) in zip(kinds[1:], chain, strict=True):
        size = 8 if kind == 44 else (units + 2) * 4 if kind == 51 else (units + 1) * 8
        body = bytearray(max(size, 8))
        body[0], body[1] = following, units
        if kind == 44 and later:
            body[2] = 1
        out += body
    if draw(st.booleans()):
        out[draw(st.integers(0, len(out) - 1))] = draw(st.integers(0, 255))
    return bytes(out[: draw(st.integers(0, len(out) + 20))])


@unhurried
@given(st.lists(mostly4, max_size=6))
def test_any_ipv4_is_judged_as_packet_by_packet(packets):
    for stranger in (b"", b"\x45" * 64, b"\xff" * 64):
        assert read(4, packets, stranger) == [naive4(packet) for packet in packets]


@unhurried
@given(st.lists(st.one_of(mostly6(), st.binary(max_size=60)), max_size=6))
def test_any_ipv6_is_judged_as_packet_by_packet(packets):
    for stranger in (b"", b"\x2c" * 64, b"\xff" * 64):
        assert read(6, packets, stranger) == [naive6(packet) for packet in packets]


@unhurried
@given(st.integers(0, 10), st.integers(0, 255), st.binary(max_size=30), st.booleans(), st.sampled_from([0, 0, 1, 8000]))
def test_dpkt_agrees_on_ipv4(options, proto, data, more, offset):
    packet = dpkt.ip.IP(p=proto, opts=b"\1" * options * 4, data=data, hl=5 + options)
    packet.len = packet.hl * 4 + len(data)
    packet.mf, packet.offset = int(more), offset
    whole = bytes(packet)
    seen = dpkt.ip.IP(whole)
    wanted = (FRAGMENT, 0, 0, 0) if seen.offset else (OK, seen.p, seen.hl * 4, seen.len)
    assert read(4, [whole + b"pad"]) == [wanted]
