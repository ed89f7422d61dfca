"""The lab's reading and answering of packets, against scapy's."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_packets import A, B, packed, packet
from scapy.layers.inet import ICMP, IP, TCP, UDP, IPerror, TCPerror
from scapy.layers.inet6 import ICMPv6DestUnreach, IPv6
from scapy.layers.l2 import ARP, Ether
from scapy.packet import Packet

from ncps_raw.lab.packets import KINDS, Header, checksum, read_header, reset_for, unreachable_for

versions = pytest.mark.parametrize("version", [4, 6])
links = pytest.mark.parametrize("ethernet", [False, True])


def kind(data: bytes) -> str:
    return KINDS[read_header(data).kind]


def dissect(data: bytes, version: int, ethernet: bool) -> Packet:
    return Ether(data) if ethernet else (IP if version == 4 else IPv6)(data)


@pytest.mark.parametrize(
    ("flags", "data", "expected"),
    [
        ("S", b"", "syn"),
        ("SEC", b"", "syn"),
        ("S", b"early", "syn"),
        ("SA", b"", "synack"),
        ("A", b"", "ack"),
        ("A", b"x", "data"),
        ("PA", b"x", "data"),
        ("FA", b"", "fin"),
        ("FPA", b"x", "fin"),
        ("SF", b"", "fin"),
        ("R", b"", "rst"),
        ("RA", b"", "rst"),
        ("", b"", "ack"),
    ],
)
def test_what_a_segment_is(flags: str, data: bytes, expected: str) -> None:
    assert kind(packet(flags, data=data)) == expected


def test_what_is_not_tcp() -> None:
    ends = {"src": A[4], "dst": B[4]}
    assert kind(bytes(IP(**ends) / UDP())) == "other"
    assert kind(bytes(IP(**ends) / ICMP())) == "icmp"
    assert kind(bytes(IPv6() / ICMPv6DestUnreach())) == "icmp"
    assert kind(bytes(IP(**ends, frag=100, proto=6) / (b"\x02" * 40))) == "other"
    assert read_header(bytes(Ether() / ARP()), ethernet=True) == Header(0, 0)


@given(
    version=st.sampled_from([4, 6]),
    ethernet=st.booleans(),
    sport=st.integers(0, 65535),
    dport=st.integers(0, 65535),
    seq=st.integers(0, 2**32 - 1),
    ack=st.integers(0, 2**32 - 1),
    flags=st.integers(0, 255),
    tsval=st.none() | st.integers(0, 2**32 - 1),
    data=st.binary(max_size=20),
)
def test_headers_are_read_as_scapy_wrote_them(
    version: int,
    ethernet: bool,
    sport: int,
    dport: int,
    seq: int,
    ack: int,
    flags: int,
    tsval: int | None,
    data: bytes,
) -> None:
    options = [("MSS", 1460), ("NOP", None)] + ([] if tsval is None else [("Timestamp", (tsval, 0))])
    raw = packet(
        flags,  # type: ignore[arg-type]
        sport,
        dport,
        seq=seq,
        ack=ack,
        version=version,
        ethernet=ethernet,
        data=data,
        options=options,
    )
    head = read_header(raw, ethernet)
    assert (head.version, head.src, head.dst) == (version, packed(A[version]), packed(B[version]))
    assert (head.sport, head.dport, head.seq, head.ack, head.flags) == (sport, dport, seq, ack, flags)
    assert head.payload == len(data)
    if KINDS[head.kind] in ("syn", "synack"):
        assert head.tsval == (tsval or 0)


@given(data=st.binary(max_size=80), ethernet=st.booleans())
def test_no_bytes_make_it_raise(data: bytes, ethernet: bool) -> None:
    head = read_header(data, ethernet)
    for made in (reset_for(data, ethernet), unreachable_for(data, 1, ethernet)):
        assert made is None or head.version in (4, 6)


@given(version=st.sampled_from([4, 6]), cut=st.integers(0, 59))
def test_a_cut_segment_is_malformed_not_misread(version: int, cut: int) -> None:
    raw = packet("S", version=version, options=[("Timestamp", (7, 0))])
    whole = read_header(raw)
    head = read_header(raw[: min(cut, len(raw) - 1)])
    assert KINDS[head.kind] in ("malformed", "other")
    assert KINDS[whole.kind] == "syn"


def test_options_that_never_end_are_left() -> None:
    raw = bytearray(packet("S", options=[("MSS", 1460)]))
    raw[41] = 0  # an option of length 0
    assert read_header(bytes(raw)).tsval == 0


@given(st.binary(max_size=64))
def test_checksum_over_a_right_one_is_zero(data: bytes) -> None:
    padded = data + b"\0" * (len(data) % 2)
    assert checksum(padded + struct.pack("!H", checksum(padded))) == 0


def right_checksums(whole: Packet) -> bool:
    """Whether scapy fills in what is there already."""
    again = whole.copy()
    for layer in (IP, TCP, ICMP, ICMPv6DestUnreach):
        if layer in again:
            for name in ("chksum", "cksum"):
                if name in again[layer].fields:
                    del again[layer].fields[name]
    return bytes(again) == bytes(whole)


@versions
@links
def test_a_syn_is_refused_as_a_closed_port_does(version: int, ethernet: bool) -> None:
    raw = packet("S", seq=2**32 - 1, version=version, ethernet=ethernet)
    answer = reset_for(raw, ethernet)
    assert answer is not None
    whole = dissect(answer, version, ethernet)
    tcp = whole[TCP]
    assert (tcp.sport, tcp.dport, tcp.seq, tcp.ack, str(tcp.flags)) == (9000, 40000, 0, 0, "RA")
    network = whole[IP if version == 4 else IPv6]
    assert (network.src, network.dst) == (B[version], A[version])
    assert right_checksums(whole)
    if ethernet:
        assert (whole.src, whole.dst) == ("02:88:00:00:00:02", "02:88:00:00:00:01")


@pytest.mark.parametrize(
    ("flags", "data", "expected"),
    [
        ("A", b"", (500, 0, "R")),
        ("PA", b"xyz", (500, 0, "R")),
        ("F", b"xyz", (0, 1004, "RA")),
        ("S", b"xyz", (0, 1004, "RA")),
    ],
)
def test_a_reset_fits_what_it_answers(flags: str, data: bytes, expected: tuple[int, int, str]) -> None:
    answer = reset_for(packet(flags, ack=500 if "A" in flags else 0, data=data))
    assert answer is not None
    tcp = IP(answer)[TCP]
    assert (tcp.seq, tcp.ack, str(tcp.flags)) == expected


def test_what_gets_no_answer() -> None:
    assert reset_for(packet("R")) is None
    assert reset_for(bytes(IP() / UDP())) is None
    assert unreachable_for(bytes(IP() / ICMP()), 1) is None
    assert unreachable_for(bytes(Ether() / ARP()), 1, ethernet=True) is None


@versions
@links
def test_unreachable_quotes_the_segment(version: int, ethernet: bool) -> None:
    raw = packet("S", seq=77, version=version, ethernet=ethernet)
    answer = unreachable_for(raw, 3, ethernet)
    assert answer is not None
    whole = dissect(answer, version, ethernet)
    assert right_checksums(whole)
    icmp = whole[ICMP if version == 4 else ICMPv6DestUnreach]
    assert (icmp.type, icmp.code) == ((3, 3) if version == 4 else (1, 3))
    assert bytes(icmp)[8:] == (raw[14:] if ethernet else raw)[: 28 if version == 4 else None]
    if version == 4:
        assert whole[IPerror].src == A[4]
        assert (whole[TCPerror].sport, whole[TCPerror].dport, whole[TCPerror].seq) == (40000, 9000, 77)
