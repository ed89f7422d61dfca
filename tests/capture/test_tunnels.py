"""From a transport header to the next IP header: frame by frame on any bytes, and by scapy on random stacks."""

from __future__ import annotations

import numpy as np
import pytest
from frame_stacks import ETHER, OUTER, SYN, V4, V6, batch_of
from frame_walker import PROTOCOLS, behind_transport
from hypothesis import given, settings
from hypothesis import strategies as st
from ncps_capture import segments as sg
from ncps_capture.decode import decode
from ncps_capture.tunnels import OF_PROTOCOL, unwrap
from scapy.contrib.geneve import GENEVE
from scapy.contrib.gtp import GTP_U_Header
from scapy.contrib.mpls import MPLS
from scapy.layers.inet import ICMP, IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import GRE, Dot1Q
from scapy.layers.vxlan import VXLAN
from scapy.packet import Raw, raw

unhurried = settings(deadline=None, max_examples=60)  # a busy machine is no failure


def found(packets: list[bytes], proto: int, stranger: bytes = b"") -> list[tuple[int, int, int, int, bool]]:
    """(offset of the inner packet, version, vlan, tunnel, cut) of each; the offset is 0 where there is none."""
    text, start = b"", []
    for packet in packets:
        text += stranger
        start.append(len(text))
        text += packet + stranger
    begin = np.array(start, np.int64)
    end = begin + np.array([len(packet) for packet in packets], np.int64)
    rows = len(packets)
    vlan, tunnel = np.full(rows, 11, np.uint16), np.full(rows, 12, np.uint32)
    out = unwrap(np.frombuffer(text, np.uint8), np.full(rows, proto, np.uint8), begin, end, vlan, tunnel)
    at = np.where(out.version != 0, out.at - begin, 0)
    columns = (at, out.version, out.vlan, out.tunnel, out.cut)
    return list(zip(*(column.tolist() for column in columns), strict=True))


HEADS = [
    b"", b"\0\0\x08\0", b"\xb0\0\x08\0" + bytes(11), b"\x20\0\x65\x58" + bytes(4), b"\x10\0\x88\xbe" + bytes(12),
    b"\x10\0\x22\xeb" + bytes(15) + b"\1", b"\x30\x81\x88\x0b" + bytes(12) + b"\xff\3", b"\x30\0", b"\0\1\1\0",
    b"\1\1\x12\xb5\0\0\0\0\x08\0\0\0\0\0\7\0", b"\1\1\x17\xc1\0\0\0\0\3\0\x65\x58\0\0\7\0",
    b"\x08\x68\1\1\0\0\0\0\x37\xff\0\0\0\0\0\7\0\0\0\x85", b"\x08\x68\1\1\0\0\0\0\x30\xff" + bytes(6),
    b"\x0d\xd8\1\1\0\0\0\0\0\1\1\2" + bytes(12), b"\x0d\xd8\1\1\0\0\0\0",
]  # fmt: skip
PIECES = [
    b"\x45", b"\x60", b"\0\0", b"\x08\0", b"\x86\xdd", b"\x81\0\0\5", bytes(12), bytes(14), b"\1\0\0\0", b"\1\0\0\x85",
    b"\x21", b"\x88\x47", b"\xaa\xaa\3\0\0\0",
]  # fmt: skip


@pytest.mark.parametrize("proto", sorted(PROTOCOLS))
@unhurried
@given(data=st.data())
def test_any_bytes_are_read_as_packet_by_packet(proto, data):
    piece = st.one_of(st.sampled_from(PIECES), st.binary(max_size=3))
    packet = st.builds(lambda head, more: head + b"".join(more), st.sampled_from(HEADS), st.lists(piece, max_size=8))
    packets = data.draw(st.lists(st.one_of(packet, st.binary(max_size=40)), max_size=6))
    seen = [behind_transport(packet, 0, proto, 11, 12) for packet in packets]
    wanted = [(one.at, one.version, one.vlan, one.tunnel, one.cut) for one in seen]
    for stranger in (b"", b"\x45" * 40, b"\xff" * 40, bytes(40)):
        assert found(packets, proto, stranger) == wanted


def test_the_protocols_are_those_that_carry_packets():
    assert set(np.flatnonzero(OF_PROTOCOL).tolist()) == PROTOCOLS.keys()


@pytest.mark.parametrize(
    ("what", "proto", "packet"),
    [
        ("gre with routing", 47, b"\x40\0\x08\0" + bytes(16)),
        ("gre of another version", 47, b"\0\2\x08\0" + bytes(16)),
        ("pptp without a call", 47, b"\0\1\x88\x0b" + bytes(16)),
        ("vxlan without its flag", 17, raw(UDP(sport=1, dport=4789))[:8] + bytes(60)),
        ("gtp control", 17, raw(UDP(sport=1, dport=2152))[:8] + raw(GTP_U_Header(gtp_type=1) / V4)),
        ("geneve of another version", 17, raw(UDP(sport=1, dport=6081))[:8] + b"\x40\0\x65\x58" + bytes(60)),
        ("teredo bubble of nothing", 17, raw(UDP(sport=1, dport=3544))[:8] + b"\x45" * 60),
        ("a name server", 17, raw(UDP(sport=53, dport=53) / Raw(raw(V4 / SYN)))),
        ("ether ip of another version", 97, b"\x20\0" + raw(ETHER / V4 / SYN)),
    ],
)
def test_what_is_no_tunnel_ends_nowhere(what, proto, packet):
    assert [(at, version, cut) for at, version, _, _, cut in found([packet], proto)] == [(0, 0, False)]


def test_a_cut_tunnel_is_too_short_only_where_the_capture_cut_it():
    frame = raw(OUTER / UDP(sport=1) / VXLAN(vni=3) / ETHER / V4 / SYN)
    for size in range(len(frame) - 40 - 20 + 14):
        _, books = decode(batch_of([frame[:size]]), tunnels=True)
        assert (books.too_short, books.tcp_packets) == (1, 0), size
    small = raw(OUTER / UDP(sport=1) / VXLAN(vni=3) / Raw(b"short"))
    assert decode(batch_of([small]), tunnels=True)[1].too_short == 0


def test_icmp_inside_a_tunnel_quotes_in_that_tunnel():
    quote = raw(IP(src="10.1.1.1", dst="10.2.2.2") / SYN)
    frame = raw(OUTER / UDP() / VXLAN(vni=9) / ETHER / V4 / ICMP(type=3, code=1) / Raw(quote))
    rows, _ = decode(batch_of([frame]), tunnels=True)
    assert (rows["kind"].tolist(), rows["tunnel"].tolist()) == ([sg.KIND_ICMP], [9])


def test_padding_behind_the_outer_packet_is_not_the_inner_ones():
    inner = raw(V4 / SYN)
    frame = raw(ETHER / IP(proto=4, len=20 + 30) / Raw(inner))
    rows, books = decode(batch_of([frame]), tunnels=True)
    assert (len(rows), books.too_short) == (0, 1)


def test_tunnels_without_end_are_given_up():
    def deep(count: int) -> bytes:
        packet = V4 / SYN
        for _ in range(count):
            packet = IP(src="203.0.113.1", dst="203.0.113.2") / packet
        return raw(ETHER / packet)

    assert [len(decode(batch_of([deep(n)]), tunnels=True)[0]) for n in (7, 8, 60)] == [1, 0, 0]


LAYERS = st.sampled_from(["vlan", "mpls", "gre", "key", "vxlan", "geneve", "gtp", "v4", "v6"])


@settings(deadline=None, max_examples=120)
@given(st.lists(st.lists(LAYERS, max_size=5), min_size=1, max_size=4), st.booleans())
def test_scapy_builds_random_stacks(stacks, six):
    frames, wanted = [], []
    for layers in stacks:
        packet, at_link, tunnel, vlan = ETHER, True, 0, sg.NO_VLAN
        for number, layer in enumerate(layers, 1):
            if layer in ("vlan", "mpls"):
                if not at_link or packet.haslayer(MPLS):
                    continue
                if layer == "vlan":
                    packet, vlan = packet / Dot1Q(vlan=number), number
                else:
                    packet = packet / MPLS(s=1)
                continue
            packet = packet / (IPv6() if layer == "v6" else IP())
            at_link = layer in ("vxlan", "geneve")
            if layer == "gre":
                packet = packet / GRE()
            elif layer == "key":
                packet, tunnel = packet / GRE(key_present=1, key=number), number
            elif layer == "vxlan":
                packet, tunnel = packet / UDP(sport=1) / VXLAN(vni=number) / ETHER, number
            elif layer == "geneve":
                packet, tunnel = packet / UDP(sport=1) / GENEVE(vni=number) / ETHER, number
            elif layer == "gtp":
                packet = packet / UDP(sport=1, dport=2152) / GTP_U_Header(teid=number, gtp_type=255)
        frames.append(raw(packet / (V6 if six else V4) / SYN))
        wanted.append((6 if six else 4, tunnel, vlan))
    rows, books = decode(batch_of(frames), tunnels=True)
    names = ("ip_version", "tunnel", "vlan")
    assert list(zip(*(rows[name].tolist() for name in names), strict=True)) == wanted
    assert rows["frame"].tolist() == list(range(1, len(frames) + 1))
    assert set(rows["seq"].tolist()) == {SYN.seq}
    assert (books.syn, books.too_short, books.malformed) == (len(frames), 0, 0)


def test_the_two_ways_of_a_tunnel_have_one_key():
    """GTP's ends name each way for themselves."""
    there = raw(OUTER / UDP(dport=2152) / GTP_U_Header(teid=1, gtp_type=255) / V4 / SYN)
    back = raw(OUTER / UDP(dport=2152) / GTP_U_Header(teid=2, gtp_type=255) / V4 / SYN)
    assert set(decode(batch_of([there, back]), tunnels=True)[0]["tunnel"].tolist()) == {0}
