"""BPF text judged by libpcap itself: what it compiles to must admit and reject packets that scapy built."""

from __future__ import annotations

import pytest
from ncps_capture.errors import UsageError
from ncps_capture.filter import LEVELS, bpf_text
from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.inet6 import ICMPv6DestUnreach, ICMPv6EchoRequest, IPv6, IPv6ExtHdrHopByHop
from scapy.layers.l2 import ARP, Dot1Q, Ether
from scapy.packet import Raw, raw

pcapy = pytest.importorskip("pcapy")

PORTS = ((8000, 8009),)
ETHER = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")
V4, V6 = IP(src="192.0.2.1", dst="198.51.100.2"), IPv6(src="2001:db8::1", dst="2001:db8::2")
QUOTE = raw(V4 / TCP(sport=40000, dport=8000, flags="S"))
NULL, RAW, SLL, SLL2 = 0, 12, 113, 276


def tcp(flags: str, **fields: int) -> TCP:
    return TCP(**{"sport": 40000, "dport": 8005, "flags": flags, "seq": 1000, **fields})


def admits(packet: bytes, level: str = "base", link_type: int = 1, ports: tuple[tuple[int, int], ...] = PORTS) -> bool:
    program = pcapy.compile(link_type, 65535, bpf_text(link_type, ports, level), 1, 0)
    return bool(program.filter(packet))


BASE, RESETS, ACKS, NEVER = {"base", "resets", "acks"}, {"resets", "acks"}, {"acks"}, set()

PACKETS = [
    ("syn", tcp("S"), BASE),
    ("syn with ecn", tcp("SEC"), BASE),
    ("syn-ack", tcp("SA", sport=8009, dport=40000), BASE),
    ("syn+fin", tcp("SF"), BASE),
    ("refusing rst", tcp("RA", seq=0, sport=8000, dport=40000), BASE),
    ("rst of a middlebox", tcp("RA", seq=7, sport=8000, dport=40000), RESETS),
    ("rst without ack", tcp("R", seq=0), RESETS),
    ("bare ack", tcp("A"), ACKS),
    ("bare ack with options", tcp("A", options=[("Timestamp", (1, 2)), ("NOP", None), ("NOP", None)]), ACKS),
    ("data", tcp("PA") / Raw(b"x"), NEVER),
    ("syn to another port", tcp("S", dport=8010), NEVER),
    ("refusal from another port", tcp("RA", seq=0, sport=7999, dport=40000), NEVER),
    ("bare ack to another port", tcp("A", dport=80), NEVER),
    ("udp", UDP(sport=40000, dport=8005), NEVER),
]


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("tags", [0, 1, 2])
@pytest.mark.parametrize("network", [V4, V6], ids=["v4", "v6"])
@pytest.mark.parametrize(("segment", "levels"), [p[1:] for p in PACKETS], ids=[p[0] for p in PACKETS])
def test_what_each_level_admits_on_ethernet(segment, levels, network, tags, level):
    frame = ETHER
    for tag in range(tags):
        frame = frame / Dot1Q(vlan=tag, prio=3)
    assert admits(raw(frame / network / segment), level) == (level in levels)


ANY_PORT = [
    ("icmp", V4 / ICMP(type=3, code=1) / Raw(QUOTE), True),
    ("icmp prohibited", V4 / ICMP(type=3, code=13) / Raw(QUOTE), True),
    ("icmp about udp", V4 / ICMP(type=3, code=3) / Raw(raw(V4 / UDP())), False),
    ("icmp time exceeded", V4 / ICMP(type=11) / Raw(QUOTE), False),
    ("icmp echo", V4 / ICMP(type=8) / Raw(QUOTE), False),
    ("icmpv6", V6 / ICMPv6DestUnreach(code=1) / Raw(raw(V6 / tcp("S"))), True),
    ("icmpv6 echo", V6 / ICMPv6EchoRequest(), False),
    ("extension header", V6 / IPv6ExtHdrHopByHop() / tcp("S", dport=9), True),
]


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("tags", [0, 1, 2])
@pytest.mark.parametrize(("packet", "wanted"), [p[1:] for p in ANY_PORT], ids=[p[0] for p in ANY_PORT])
def test_what_hides_its_ports_is_admitted_whatever_they_are(packet, wanted, tags, level):
    frame = ETHER
    for tag in range(tags):
        frame = frame / Dot1Q(vlan=tag)
    assert admits(raw(frame / packet), level) == wanted


def test_not_ip_is_not_admitted():
    assert not admits(raw(ETHER / ARP()))
    assert not admits(raw(ETHER / Dot1Q(vlan=5) / ARP()))


def test_ip_options_are_stepped_over():
    frame = bytearray(raw(V4 / tcp("S")))
    frame[0] = 0x46
    frame[3] += 4
    frame[20:20] = b"\x01" * 4
    assert admits(bytes(frame), link_type=RAW)
    assert not admits(bytes(frame), link_type=RAW, ports=((1, 2),))


def headed(link_type: int, version: int) -> bytes:
    protocol = b"\x08\x00" if version == 4 else b"\x86\xdd"
    return {
        NULL: bytes([2 if version == 4 else 10, 0, 0, 0]),
        RAW: b"",
        SLL: b"\0\0\0\x01\0\x06" + b"\2\0\0\0\0\1\0\0" + protocol,
        SLL2: protocol + b"\0\0\0\0\0\2\0\1\0\6" + b"\2\0\0\0\0\1\0\0",
    }[link_type]


def known(link_type: int) -> bool:
    try:
        pcapy.compile(link_type, 65535, "tcp", 1, 0)
    except pcapy.PcapError:
        return False
    return True


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("link_type", [NULL, RAW, SLL, SLL2], ids=["null", "raw", "sll", "sll2"])
@pytest.mark.parametrize(("network", "version"), [(V4, 4), (V6, 6)], ids=["v4", "v6"])
def test_other_link_types(network, version, link_type, level):
    if not known(link_type):
        pytest.skip(f"this libpcap does not know link type {link_type}")
    head = headed(link_type, version)
    for _, segment, levels in PACKETS:
        assert admits(head + raw(network / segment), level, link_type) == (level in levels), segment
    for _, packet, wanted in ANY_PORT:
        if isinstance(packet, IP) == (version == 4):
            assert admits(head + raw(packet), level, link_type) == wanted, packet


def test_no_ports_means_any_port():
    assert admits(raw(ETHER / V4 / tcp("S", sport=1, dport=2)), ports=())
    assert admits(raw(ETHER / Dot1Q(vlan=3) / V6 / tcp("S", sport=1, dport=2)), ports=())
    assert not admits(raw(ETHER / V4 / tcp("A")), ports=())


def test_several_ranges():
    ports = ((80, 80), (443, 443), (8000, 8100), (8101, 8200), (8050, 8060))
    assert bpf_text(12, ports, "base").count("portrange") == 3
    for port, inside in ((79, False), (80, True), (443, True), (8100, True), (8101, True), (8201, False)):
        assert admits(raw(ETHER / V4 / tcp("S", dport=port)), ports=ports) == inside
        assert admits(raw(ETHER / V6 / tcp("SA", sport=port, dport=40000)), ports=ports) == inside


def test_where_no_frame_has_a_tag_the_text_has_no_vlan_term():
    plain = bpf_text(1, PORTS, "base", tagged=False)
    assert plain == bpf_text(RAW, PORTS, "base")
    program = pcapy.compile(1, 65535, plain, 1, 0)
    assert program.filter(raw(ETHER / V4 / tcp("S")))
    assert not program.filter(raw(ETHER / Dot1Q(vlan=3) / V4 / tcp("S")))


def test_bad_requests_are_usage_errors():
    with pytest.raises(UsageError, match="unknown capture level 'all': give one of base, resets, acks"):
        bpf_text(1, PORTS, "all")
    for bad in ((9, 8), (-1, 5), (5, 65536)):
        with pytest.raises(UsageError, match="give a range inside 0-65535"):
            bpf_text(1, (bad,), "base")
