"""Frames to segment rows: scapy is the independent oracle, random and cut bytes the enemy."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from frame_stacks import ETHER, LINKS, QUOTE, QUOTE6, STACKS, SYN, TUNNELS, V4, V6, batch_of
from hypothesis import given, settings
from hypothesis import strategies as st
from ncps_capture import segments as sg
from ncps_capture.addresses import address_text
from ncps_capture.decode import Batch, decode
from ncps_capture.link import SUPPORTED
from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.inet6 import (
    ICMPv6DestUnreach,
    IPv6ExtHdrDestOpt,
    IPv6ExtHdrFragment,
    IPv6ExtHdrHopByHop,
)
from scapy.layers.l2 import Dot1Q, Ether
from scapy.packet import Packet, Raw, raw


def one(packet: Packet | bytes, link_type: int = 1, **options: bool) -> tuple[np.void, sg.Books]:
    rows, books = decode(batch_of([raw(packet)], link_type), **options)
    assert len(rows) == 1
    return rows[0], books


def none(packet: Packet | bytes, link_type: int = 1) -> sg.Books:
    rows, books = decode(batch_of([raw(packet)], link_type))
    assert len(rows) == 0
    return books


def check_syn(row: np.void, version: int) -> None:
    src, dst = ("192.0.2.1", "198.51.100.2") if version == 4 else ("2001:db8::1", "2001:db8::2")
    assert address_text(row["src_hi"], row["src_lo"]) == src
    assert address_text(row["dst_hi"], row["dst_lo"]) == dst
    assert (row["sport"], row["dport"], row["seq"], row["ack"]) == (40000, 443, 0xFEDCBA98, 0)
    assert (row["kind"], row["flags"], row["ip_version"]) == (sg.KIND_TCP, sg.SYN, version)
    assert (row["mss"], row["wscale"], row["tsval"], row["tsecr"]) == (1460, 7, 0xAABBCCDD, 7)
    assert row["bits"] == sg.BIT_TIMESTAMP
    assert (row["ttl"], row["ip_ident"]) == ((61, 0x1234) if version == 4 else (60, 3 << 20 | 0x12345))
    assert (row["payload"], row["source"], row["frame"], row["t_ns"]) == (0, 3, 1, 5)


@pytest.mark.parametrize(
    ("link_type", "packet", "version", "vlan"),
    [s[1:] for s in (*STACKS, *LINKS)],
    ids=[s[0] for s in (*STACKS, *LINKS)],
)
def test_a_syn_is_read_whole_in_every_stack(link_type, packet, version, vlan):
    row, books = one(packet, link_type)
    check_syn(row, version)
    assert row["vlan"] == vlan
    assert (books.packets, books.tcp_packets, books.syn, books.synack) == (1, 1, 1, 0)
    assert (books.malformed, books.fragments, books.too_short, books.unsupported_linktype) == (0, 0, 0, 0)


@pytest.mark.parametrize(
    ("link_type", "packet", "version", "vlan", "tunnel"), [s[1:] for s in TUNNELS], ids=[s[0] for s in TUNNELS]
)
def test_the_innermost_tcp_counts_where_tunnels_are_on(link_type, packet, version, vlan, tunnel):
    row, books = one(packet, link_type, tunnels=True)
    check_syn(row, version)
    assert (row["vlan"], row["tunnel"]) == (vlan, tunnel)
    assert (books.packets, books.tcp_packets, books.syn, books.synack) == (1, 1, 1, 0)
    assert (books.malformed, books.fragments, books.too_short) == (0, 0, 0)
    assert none(packet, link_type).tcp_packets == 0


@pytest.mark.parametrize(
    ("flags", "kept", "syn", "synack", "malformed", "syn_malformed"),
    [
        ("S", 1, 1, 0, 0, 0),
        ("SEC", 1, 1, 0, 0, 0),
        ("SPU", 1, 1, 0, 0, 0),
        ("SA", 1, 0, 1, 0, 0),
        ("SAE", 1, 0, 1, 0, 0),
        ("SF", 0, 1, 0, 1, 1),
        ("SR", 0, 1, 0, 1, 1),
        ("SAF", 0, 0, 0, 1, 0),
        ("SAR", 0, 0, 0, 1, 0),
        ("R", 1, 0, 0, 0, 0),
        ("RA", 1, 0, 0, 0, 0),
        ("A", 0, 0, 0, 0, 0),
        ("FA", 0, 0, 0, 0, 0),
        ("", 0, 0, 0, 0, 0),
    ],
)
def test_admission_by_flags(flags, kept, syn, synack, malformed, syn_malformed):
    rows, books = decode(batch_of([raw(ETHER / V4 / TCP(flags=flags))]))
    assert (len(rows), books.syn, books.synack) == (kept, syn, synack)
    assert (books.malformed, books.syn_malformed, books.tcp_packets) == (malformed, syn_malformed, 1)


@pytest.mark.parametrize(("flags", "kept"), [("A", 1), ("PA", 1), ("FA", 1), ("F", 0), ("", 0), ("S", 1), ("SF", 0)])
def test_acks_only_on_request(flags, kept):
    rows, _ = decode(batch_of([raw(ETHER / V4 / TCP(flags=flags) / b"data")]), want_acks=True)
    assert len(rows) == kept


def test_payload_is_what_the_headers_announce():
    row, _ = one(ETHER / V4 / SYN / Raw(b"x" * 33))
    assert row["payload"] == 33
    padded = raw(ETHER / V4 / TCP(flags="S")) + b"\0" * 6
    assert one(padded)[0]["payload"] == 0
    row, _ = one(ETHER / V6 / SYN / Raw(b"x" * 33))
    assert row["payload"] == 33


@pytest.mark.parametrize("network", [V4, V6])
def test_length_zero_is_offload_and_reaches_to_the_end_of_the_frame(network):
    packet = network.copy()
    setattr(packet, "len" if network is V4 else "plen", 0)
    row, books = one(ETHER / packet / SYN / Raw(b"x" * 50))
    assert row["payload"] == 50
    assert books.malformed == 0
    frame = raw(ETHER / packet / SYN / Raw(b"x" * 50))
    batch = batch_of([frame[:-50]])
    longer = Batch(batch.data, batch.offsets, batch.caplens, batch.lengths + 50, batch.t_ns, 1, 1, 0)
    assert decode(longer)[0]["payload"].tolist() == [50]


def test_malformed_network_headers_are_counted():
    short = bytearray(raw(V4 / SYN))
    short[0] = 0x44
    assert none(bytes(short), 101).malformed == 1
    small = bytearray(raw(V4 / SYN))
    small[2:4] = b"\0\x10"
    assert none(bytes(small), 101).malformed == 1
    version = bytearray(raw(ETHER / V4 / SYN))
    version[14] = 0x65
    assert none(bytes(version)).malformed == 1
    chain = V6
    for _ in range(17):
        chain = chain / IPv6ExtHdrDestOpt()
    assert none(ETHER / chain / SYN).malformed == 1


def test_a_tcp_header_smaller_than_itself_is_malformed():
    books = none(ETHER / V4 / TCP(flags="S", dataofs=4))
    assert (books.syn, books.syn_malformed, books.malformed) == (1, 1, 1)
    books = none(ETHER / V4 / TCP(flags="SA", dataofs=4))
    assert (books.syn, books.synack, books.malformed) == (0, 0, 1)


def test_fragments():
    assert none(ETHER / IP(frag=1) / SYN).fragments == 1
    assert none(ETHER / V6 / IPv6ExtHdrFragment(offset=1) / SYN).fragments == 1
    assert none(ETHER / IP(frag=1) / UDP()).fragments == 0
    row, books = one(ETHER / IP(frag=0, flags="MF") / SYN)
    assert (row["flags"], books.fragments) == (sg.SYN, 0)


def test_padding_is_not_a_header():
    """A first fragment of 8 bytes of TCP: what follows in the frame are Ethernet's pad bytes, not flags."""
    frame = bytearray(raw(ETHER / V4 / TCP(flags="S")))
    frame[16:18] = (28).to_bytes(2, "big")
    books = none(bytes(frame))
    assert (books.syn, books.too_short) == (0, 1)


@pytest.mark.parametrize("size", [28, 33, 34, 40])
@pytest.mark.parametrize("code", [0, 1, 3, 9, 10, 13])
def test_icmp_errors_give_the_quoted_segment(code, size):
    row, books = one(ETHER / V4 / ICMP(type=3, code=code) / Raw(QUOTE[:size]))
    assert (row["kind"], row["icmp_type"], row["icmp_code"]) == (sg.KIND_ICMP, 3, code)
    assert address_text(row["src_hi"], row["src_lo"]) == "10.1.1.1"
    assert address_text(row["dst_hi"], row["dst_lo"]) == "10.2.2.2"
    assert (row["sport"], row["dport"], row["seq"], row["ip_version"]) == (1111, 22, 77, 4)
    assert row["flags"] == (sg.SYN if size >= 34 else 0)
    assert (books.tcp_packets, books.syn) == (0, 0)


@pytest.mark.parametrize("code", [0, 1, 3, 4])
@pytest.mark.parametrize("middle", [b"", raw(IPv6ExtHdrHopByHop())])
def test_icmpv6_errors(code, middle):
    row, _ = one(ETHER / V6 / ICMPv6DestUnreach(code=code) / Raw(QUOTE6))
    assert (row["icmp_type"], row["icmp_code"], row["ip_version"], row["seq"]) == (1, code, 6, 77)
    assert address_text(row["src_hi"], row["src_lo"]) == "2001:db8::a"
    assert (row["sport"], row["dport"]) == (1111, 22)


@pytest.mark.parametrize(
    "packet",
    [
        ETHER / V4 / ICMP(type=11, code=0) / Raw(QUOTE),
        ETHER / V4 / ICMP(type=3, code=3) / Raw(QUOTE[:27]),
        ETHER / V4 / ICMP(type=3, code=3) / Raw(raw(IP() / UDP())),
        ETHER / V4 / ICMP(type=3, code=3) / Raw(raw(IP(frag=3) / TCP())),
        ETHER / V4 / ICMP(type=3, code=3),
        ETHER / V6 / ICMPv6DestUnreach() / Raw(QUOTE6[:47]),
    ],
)
def test_icmp_that_is_not_an_error_about_tcp(packet):
    assert none(packet).tcp_packets == 0


def test_unsupported_link_types_are_counted_and_named():
    rows, books = decode(batch_of([b"abc", b"de"], 147))
    assert (len(rows), books.packets, books.unsupported_linktype) == (0, 2, 2)
    assert books.unsupported_linktypes == {147: 2}
    assert decode(batch_of([], 147))[1].unsupported_linktypes == {}


def test_an_empty_batch():
    rows, books = decode(batch_of([]))
    assert (len(rows), rows.dtype, books) == (0, sg.SEGMENT, sg.Books())


def test_frame_order_survives_both_families_and_icmp():
    frames = [ETHER / V6 / SYN, ETHER / V4 / SYN, ETHER / V4 / ICMP(type=3) / Raw(QUOTE), ETHER / V6 / SYN]
    rows, _ = decode(batch_of([raw(frame) for frame in frames]))
    assert rows["frame"].tolist() == [1, 2, 3, 4]
    assert rows["ip_version"].tolist() == [6, 4, 4, 6]


def test_frames_may_be_numbered_with_gaps():
    batch = batch_of([raw(frame) for frame in (ETHER / V4 / SYN, ETHER / Raw(b"x"), ETHER / V6 / SYN)])
    rows, _ = decode(replace(batch, frames=np.array([7, 9, 12])))
    assert rows["frame"].tolist() == [7, 12]


SAMPLES = {link: [] for link in SUPPORTED}
for _name, _link, _packet, *_ in (*STACKS, *LINKS, *TUNNELS):
    SAMPLES[_link].append(raw(_packet))
SAMPLES[1] += [
    raw(ETHER / V4 / ICMP(type=3) / Raw(QUOTE)),
    raw(ETHER / V6 / ICMPv6DestUnreach() / Raw(QUOTE6)),
    raw(ETHER / V4 / TCP(flags="R")),
]


@pytest.mark.parametrize("link_type", sorted(SUPPORTED))
def test_every_cut_is_survived_and_never_reads_a_neighbour(link_type):
    """The same cut frames between zeros and between ones: equal rows, or something foreign was read."""
    cuts = [sample[:size] for sample in SAMPLES[link_type] for size in range(len(sample) + 1)]
    rows, books = decode(batch_of(cuts, link_type), want_acks=True)
    for stranger in (b"\0", b"\xff", b"\x45", b"\x02"):
        again, others = decode(batch_of(cuts, link_type, stranger * 70, stranger * 70), want_acks=True)
        assert np.array_equal(rows, again)
        assert books == others


@pytest.mark.parametrize("link_type", sorted(SUPPORTED))
@settings(deadline=None, max_examples=20)
@given(data=st.data())
def test_any_bytes_are_survived_and_rows_do_not_depend_on_their_neighbours(link_type, data):
    def broken(sample: bytes) -> st.SearchStrategy[bytes]:
        flips = st.lists(st.tuples(st.integers(0, len(sample) - 1), st.integers(0, 255)), max_size=6)
        return st.builds(
            lambda changes, cut: bytes(dict(changes).get(i, byte) for i, byte in enumerate(sample))[:cut],
            flips,
            st.integers(0, len(sample)),
        )

    frame = st.one_of(st.binary(max_size=120), st.sampled_from(SAMPLES[link_type]).flatmap(broken))
    frames = data.draw(st.lists(frame, max_size=5))
    rows, books = decode(batch_of(frames, link_type), want_acks=True)
    again, _ = decode(batch_of(frames, link_type, b"\xff" * 70, b"\x06" * 70), want_acks=True)
    assert np.array_equal(rows, again)
    singles = [decode(batch_of([frame], link_type), want_acks=True) for frame in frames]
    assert [len(part) for part, _ in singles].count(1) == len(rows)
    assert sum(part.syn for _, part in singles) == books.syn
    good = (rows["flags"] & (sg.SYN | sg.ACK) == sg.SYN) & (rows["kind"] == sg.KIND_TCP)
    assert books.syn == books.syn_malformed + np.count_nonzero(good)


@settings(deadline=None)
@given(st.data())
def test_scapy_agrees_on_random_syns(data):
    options = data.draw(
        st.lists(
            st.one_of(
                st.just(("NOP", None)),
                st.tuples(st.just("MSS"), st.integers(1, 65535)),
                st.tuples(st.just("WScale"), st.integers(0, 14)),
                st.tuples(st.just("Timestamp"), st.tuples(st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1))),
            ),
            max_size=3,
        )
    )
    tags = data.draw(st.lists(st.integers(0, 4095), max_size=3))
    tcp = TCP(
        sport=data.draw(st.integers(0, 65535)),
        dport=data.draw(st.integers(0, 65535)),
        seq=data.draw(st.integers(0, 2**32 - 1)),
        ack=data.draw(st.integers(0, 2**32 - 1)),
        flags=data.draw(st.sampled_from(["S", "SA"])),
        options=options,
    )
    packet = ETHER
    for tag in tags:
        packet = packet / Dot1Q(vlan=tag)
    size = data.draw(st.integers(0, 40))
    frame = raw(packet / data.draw(st.sampled_from([V4, V6])) / tcp / Raw(b"x" * size))
    row, _ = one(frame)
    seen = Ether(frame)
    assert (row["sport"], row["dport"], row["seq"], row["ack"]) == (tcp.sport, tcp.dport, tcp.seq, tcp.ack)
    known = dict(option for option in seen[TCP].options if option[0] != "NOP")
    assert row["mss"] == known.get("MSS", 0)
    assert row["wscale"] == known.get("WScale", 255)
    assert (row["tsval"], row["tsecr"]) == known.get("Timestamp", (0, 0))
    assert row["payload"] == size
    assert row["vlan"] == (tags[-1] if tags else sg.NO_VLAN)
