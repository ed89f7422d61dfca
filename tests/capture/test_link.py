"""Where the network layer starts: scapy and dpkt name the place, and a walk frame by frame agrees on any bytes."""

from __future__ import annotations

import dpkt
import numpy as np
import pytest
from frame_walker import LINKS, behind_link
from hypothesis import given, settings
from hypothesis import strategies as st
from ncps_capture import segments as sg
from ncps_capture.link import ETHERNET, SUPPORTED, be16, find_network
from scapy.layers.inet import IP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import ARP, CookedLinux, CookedLinuxV2, Dot1AD, Dot1Q, Ether, Loopback
from scapy.packet import Packet, raw

unhurried = settings(deadline=None, max_examples=15)  # a busy machine is no failure
TYPES = (0x8100, 0x88A8, 0x9100, 0x0800, 0x86DD, 0x0806, 0x8847, 0x8864, 0x8903, 0x88E7, 0x8926, 0x6558, 0x0021)


def found(frames: list[bytes], link_type: int, stranger: bytes = b"") -> list[tuple[int, int, int, bool]]:
    """(offset of the network layer in the frame, version, vlan, cut) of each; the offset is 0 where it is not IP."""
    text, start = b"", []
    for frame in frames:
        text += stranger
        start.append(len(text))
        text += frame + stranger
    begin = np.array(start, np.int64)
    end = begin + np.array([len(frame) for frame in frames], np.int64)
    out = find_network(np.frombuffer(text, np.uint8), begin, end, link_type)
    at = np.where(out.version != 0, out.at - begin, 0)
    return list(zip(at.tolist(), out.version.tolist(), out.vlan.tolist(), out.cut.tolist(), strict=True))


def naive(frame: bytes, link_type: int) -> tuple[int, int, int, bool]:
    """One frame as its link headers say."""
    seen = behind_link(frame, link_type)
    return seen.at, seen.version, seen.vlan, seen.cut


@pytest.mark.parametrize("network", [IP(), IPv6()])
@pytest.mark.parametrize(
    ("link_type", "link", "vlan"),
    [
        (1, Ether(), None),
        (1, Ether() / Dot1Q(vlan=7, prio=5), 7),
        (1, Ether() / Dot1Q(vlan=0, prio=7, dei=1), 0),
        (1, Ether() / Dot1AD(vlan=9) / Dot1Q(vlan=4095), 4095),
        (1, Ether() / Dot1Q(vlan=1) / Dot1Q(vlan=2) / Dot1AD(vlan=3), 3),
        (113, CookedLinux(), None),
        (113, CookedLinux() / Dot1Q(vlan=12), 12),
        (276, CookedLinuxV2(), None),
        (276, CookedLinuxV2() / Dot1Q(vlan=12), 12),
        (0, Loopback(), None),
    ],
)
def test_scapy_puts_it_there(link_type, link: Packet, vlan, network):
    frame = raw(link / network)
    place = len(frame) - len(raw(network))
    version = 4 if isinstance(network, IP) else 6
    assert found([frame], link_type) == [(place, version, sg.NO_VLAN if vlan is None else vlan, False)]


@pytest.mark.parametrize("link_type", [0, 108])
@pytest.mark.parametrize(("family", "version"), [(2, 4), (10, 6), (24, 6), (28, 6), (30, 6), (0, 0), (7, 0)])
def test_the_address_family_in_either_byte_order(link_type, family, version):
    frames = [family.to_bytes(4, order) + b"\x45" for order in ("little", "big")]
    assert found(frames, link_type) == [(4 if version else 0, version, sg.NO_VLAN, False)] * 2


@pytest.mark.parametrize("link_type", [12, 14, 101, 228, 229])
@pytest.mark.parametrize(("first", "version"), [(0x45, 4), (0x4F, 4), (0x60, 6), (0x50, 0), (0x00, 0), (0xFF, 0)])
def test_raw_ip_goes_by_the_version_nibble(link_type, first, version):
    assert found([bytes([first])], link_type) == [(0, version, sg.NO_VLAN, False)]


@pytest.mark.parametrize("frame", [raw(Ether() / ARP()), raw(Ether(type=0x88CC)), b"\0" * 12 + b"\0\x26" + b"x" * 38])
def test_what_is_not_ip_is_neither_found_nor_cut(frame):
    assert found([frame], ETHERNET) == [(0, 0, sg.NO_VLAN, False)]


def test_a_vlan_stack_without_end_is_given_up():
    tag, end = b"\x81\x00\x00\x01", b"\x08\x00\x45"
    frames = [b"\0" * 12 + tag * count + end for count in (15, 16, 60)]
    assert found(frames, ETHERNET) == [(14 + 60, 4, 1, False), (0, 0, 1, False), (0, 0, 1, False)]


@unhurried
@given(st.lists(st.integers(0, 4095), max_size=3), st.sampled_from([dpkt.ip.IP(), dpkt.ip6.IP6(nxt=59)]))
def test_dpkt_agrees_on_tagged_frames(tags, network):
    kind = 0x0800 if isinstance(network, dpkt.ip.IP) else 0x86DD
    types = [*[0x8100] * len(tags), kind]
    frame = bytes(12) + types[0].to_bytes(2, "big")
    for tag, following in zip(tags, types[1:], strict=True):
        frame += tag.to_bytes(2, "big") + following.to_bytes(2, "big")
    seen = dpkt.ethernet.Ethernet(frame + bytes(network))
    ((place, version, vlan, cut),) = found([frame + bytes(network)], ETHERNET)
    assert isinstance(seen.data, type(network))
    assert (place, cut) == (len(frame), False)
    assert version == seen.data.v
    assert vlan == (seen.vlan_tags[-1].id if tags else sg.NO_VLAN)


HEADS = [
    b"", b"\0" * 12, b"\0" * 14, b"\x81\0" + b"\0" * 18, b"\2\0\0\0", b"\xff\3\0\x21", b"\x0f\0\x08\0",
    b"\x50" + b"\0" * 12, b"\0" * 40, b"\0" * 8 + b"\x82" + b"\0" * 7, b"\x0c\0\0\0\1\0\0\0\1\0\0\0",
    b"\0\0\x08\0\1\0\0\0",
    b"\2\0\0\0\x08\0\1\0\0\0\0\0", b"\2\0\0\0\0\x05\0\1\0\0\0\0", b"\2\0\0\0\0\x08\0\x09",
    b"\x80\x21\x10\1\0\0\0\x0a\0\0",
    b"\x44\0\0\0\x08\0\0\0", b"\0\0\x0a\0\2\0\0\0\x20\0\x88\1", b"\0\0\x10\0\3\0\0\x80\0\0\0\0\0\0\0\0\x08\0",
    b"\x08\1" + b"\0" * 22, b"\x88\3" + b"\0" * 28 + b"\x80\0", b"\x88\x81" + b"\0" * 28,
]  # fmt: skip


@pytest.mark.parametrize("link_type", sorted(SUPPORTED))
@unhurried
@given(data=st.data())
def test_any_bytes_are_read_as_frame_by_frame(link_type, data):
    """Whatever lies between the frames."""
    kinds = st.sampled_from([*(kind.to_bytes(2, "big") for kind in TYPES), b"\xaa\xaa", b"\3\0", b"\0\0"])
    tagged = st.builds(
        lambda head, mixed, cut: (head + b"".join(mixed))[:cut],
        st.sampled_from(HEADS),
        st.lists(st.one_of(kinds, st.binary(min_size=2, max_size=2)), max_size=24),
        st.integers(0, 70),
    )
    frames = data.draw(st.lists(st.one_of(st.binary(max_size=30), tagged), max_size=6))
    wanted = [naive(frame, link_type) for frame in frames]
    assert LINKS.keys() == SUPPORTED
    for stranger in (b"", b"\x81\x00\x08\x00" * 8, b"\xff" * 32, b"\2" * 32):
        assert found(frames, link_type, stranger) == wanted


def test_numbers_of_two_bytes_are_big_endian_and_do_not_wrap():
    assert be16(np.array([1, 0xFF, 0xFE, 0], np.uint8), np.array([0, 1, 2])).tolist() == [0x01FF, 0xFFFE, 0xFE00]
