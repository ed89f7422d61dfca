"""The first look changes nothing: every frame gives the rows and books that the slow way gives."""

from __future__ import annotations

import numpy as np
import pytest
from frame_stacks import ETHER, LINKS, QUOTE, SLL, STACKS, SYN, TUNNELS, V4, V6, batch_of
from hypothesis import given, settings
from hypothesis import strategies as st
from ncps_capture import decode as room
from ncps_capture import segments as sg
from ncps_capture.decode import AckWatch, decode
from ncps_capture.first_look import first_look
from ncps_capture.link import SUPPORTED
from scapy.layers.inet import ICMP, TCP, UDP
from scapy.layers.inet6 import IPv6ExtHdrHopByHop
from scapy.layers.l2 import ARP, Dot1Q
from scapy.packet import Raw, raw


def look(frames: list[bytes], link_type: int = 1, want_acks: bool = False):
    batch = batch_of(frames, link_type)
    return first_look(batch.data, batch.offsets, batch.caplens, link_type, want_acks)


def tcp(flags: str, size: int = 0):
    return TCP(sport=1, dport=2, seq=3, ack=0x01020304, flags=flags) / Raw(b"x" * size)


def test_it_tells_what_opens_what_is_tcp_and_what_is_neither():
    frames = [
        raw(ETHER / V4 / tcp("S")),
        raw(ETHER / V4 / tcp("A", 500)),
        raw(ETHER / ARP()),
        raw(ETHER / V6 / tcp("R")),
        raw(ETHER / V4 / UDP()),
        raw(ETHER / V6 / tcp("PA", 9)),
        raw(ETHER / Dot1Q() / V4 / tcp("S")),
    ]
    (four, six), rest = look(frames, want_acks=True)
    assert (four.version, four.count, four.chosen.tolist(), four.acks.tolist()) == (4, 2, [0], [1])
    assert (six.version, six.count, six.chosen.tolist(), six.acks.tolist()) == (6, 2, [3], [5])
    assert four.ack_words.tolist() == six.ack_words.tolist() == [0x04030201]
    assert rest is not None
    assert rest.tolist() == [2, 4, 6]


@pytest.mark.parametrize(
    ("link_type", "frame"),
    [
        (1, raw(ETHER / V4 / SYN)),
        (1, raw(ETHER / V6 / SYN)),
        (113, SLL + b"\x08\0" + raw(V4 / SYN)),
        (113, SLL + b"\x86\xdd" + raw(V6 / SYN)),
        (0, b"\2\0\0\0" + raw(V4 / SYN)),
        (101, b"--" + raw(V4 / SYN)),
    ],
)
def test_the_common_links_need_no_slow_way(link_type, frame):
    before, frame = (b"----", frame[2:]) if frame[:2] == b"--" else (b"", frame)
    batch = batch_of([frame, frame], link_type, before=before)
    plain, rest = first_look(batch.data, batch.offsets, batch.caplens, link_type, False)
    assert sum(one.count for one in plain) == 2
    assert rest is not None
    assert len(rest) == 0


@pytest.mark.parametrize(
    "packet",
    [
        V4 / UDP(),
        V4 / ICMP(type=3) / Raw(QUOTE),
        V6 / IPv6ExtHdrHopByHop() / SYN,
        V4.__class__(options=b"\1" * 4) / SYN,
        V4.__class__(frag=3) / SYN,
        V4.__class__(len=0) / SYN,
        V4.__class__(len=33) / SYN,
        V6.__class__(plen=13) / SYN,
        V4.__class__(version=6) / SYN,
    ],
)
def test_whatever_is_odd_is_left_to_the_slow_way(packet):
    plain, rest = look([raw(ETHER / packet)])
    assert [one.count for one in plain] == [0, 0]
    assert rest is not None
    assert rest.tolist() == [0]


def test_a_link_type_without_a_fixed_place_is_left_whole():
    assert look([raw(V4 / SYN)], 276) == ([], None)


def slow_and_fast(batch, monkeypatch, **options):
    fast = decode(batch, **options)
    with monkeypatch.context() as patch:
        patch.setattr(room, "first_look", lambda *_: ([], None))
        slow = decode(batch, **options)
    return fast, slow


SAMPLES = {link: [] for link in SUPPORTED}
for _name, _link, _packet, *_ in (*STACKS, *LINKS, *TUNNELS):
    SAMPLES[_link].append(raw(_packet))
for _link, _head in ((1, raw(ETHER / V4)[:14]), (113, SLL + b"\x08\0"), (0, b"\2\0\0\0"), (12, b"")):
    for _flags in ("A", "SA", "R", "SF", "FA", ""):
        SAMPLES[_link] += [_head + raw(V4 / tcp(_flags, 3)), _head + raw(V4 / tcp(_flags, 3))[:40]]
SAMPLES[1] += [raw(ETHER / V6 / tcp(flags)) for flags in ("A", "SA", "R", "SR")]


@pytest.mark.parametrize("link_type", sorted(SUPPORTED))
@settings(deadline=None, max_examples=15)  # a busy machine is no failure
@given(data=st.data())
def test_both_ways_agree_on_any_frames(link_type, data):
    def broken(sample: bytes) -> st.SearchStrategy[bytes]:
        changes = st.lists(st.tuples(st.integers(0, len(sample) - 1), st.integers(0, 255)), max_size=3)
        return st.builds(
            lambda changed, cut: bytes(dict(changed).get(i, byte) for i, byte in enumerate(sample))[
                : len(sample) - cut
            ],
            changes,
            st.sampled_from([0, 0, 0, 5, 20, 30, 60]),
        )

    frame = st.sampled_from(SAMPLES[link_type]).flatmap(broken)
    batch = batch_of(
        data.draw(st.lists(frame, max_size=6)), link_type, before=data.draw(st.sampled_from([b"", b"1234"]))
    )
    tunnels = data.draw(st.booleans())
    with pytest.MonkeyPatch.context() as monkeypatch:
        for options in ({}, {"want_acks": True}):
            (rows, books), (slow_rows, slow_books) = slow_and_fast(batch, monkeypatch, tunnels=tunnels, **options)
            assert np.array_equal(rows, slow_rows)
            assert books == slow_books
        watches = AckWatch(), AckWatch()
        fast = decode(batch, tunnels=tunnels, acks=watches[0])
        monkeypatch.setattr(room, "first_look", lambda *_: ([], None))
        assert np.array_equal(fast[0], decode(batch, tunnels=tunnels, acks=watches[1])[0])


def test_many_blocks_are_one_look():
    syn, ack, arp = (raw(ETHER / packet) for packet in (V4 / tcp("S"), V4 / tcp("A"), ARP()))
    frames = [(ack if i % 50 else syn) if i % 7 else arp for i in range(9000)]
    (four, *_), rest = look(frames, want_acks=True)
    assert rest is not None
    assert rest.tolist() == list(range(0, 9000, 7))
    assert four.chosen.tolist() == [i for i in range(0, 9000, 50) if i % 7]
    assert four.acks.tolist() == [i for i in range(9000) if i % 7 and i % 50]
    assert four.count == 9000 - len(rest)


@pytest.mark.parametrize("version", [4, 6])
def test_many_tagged_frames_are_settled_by_a_look_too(version):
    network = V4 if version == 4 else V6
    frames = [raw(ETHER / Dot1Q(vlan=4000 + i % 2, prio=5) / network / (SYN if i % 2 else tcp("A"))) for i in range(4)]
    frames = frames * 200 + [raw(ETHER / Dot1Q(vlan=1) / Dot1Q(vlan=2) / network / SYN)]
    plain, rest = look(frames)
    assert rest is not None
    assert rest.tolist() == [800]
    assert [(one.version, one.count) for one in plain if one.count] == [(version, 800)]
    rows, _ = decode(batch_of(frames))
    assert rows["vlan"].tolist() == [4001] * 400 + [2]
    with pytest.MonkeyPatch.context() as monkeypatch:
        for options in ({}, {"want_acks": True}):
            (rows, books), (slow_rows, slow_books) = slow_and_fast(batch_of(frames), monkeypatch, **options)
            assert np.array_equal(rows, slow_rows)
            assert books == slow_books


def test_acks_that_matter_come_with_the_rest_in_frame_order():
    answer = TCP(sport=443, dport=40000, flags="SA", seq=77, ack=SYN.seq + 1)
    third = TCP(sport=40000, dport=443, flags="A", seq=SYN.seq + 1, ack=78)
    back = V4.__class__(src=V4.dst, dst=V4.src)
    frames = [ETHER / V4 / SYN, ETHER / V4 / tcp("A", 9), ETHER / back / answer, ETHER / V4 / third, ETHER / V4 / third]
    frames += [ETHER / Dot1Q(vlan=3) / V4 / SYN, ETHER / Dot1Q(vlan=3) / V4 / third]
    rows, books = decode(batch_of([raw(frame) for frame in frames]), acks=AckWatch())
    assert rows["frame"].tolist() == [1, 3, 4, 6]
    assert rows["flags"].tolist() == [sg.SYN, sg.SYN | sg.ACK, sg.ACK, sg.SYN]
    assert books.tcp_packets == 7


def test_a_watch_learns_of_acks_that_are_all_wanted():
    answer = TCP(sport=443, dport=40000, flags="SA", seq=77, ack=SYN.seq + 1)
    third = TCP(sport=40000, dport=443, flags="A", seq=SYN.seq + 1, ack=78)
    back = V4.__class__(src=V4.dst, dst=V4.src)
    watch = AckWatch()
    first = [raw(frame) for frame in (ETHER / V4 / SYN, ETHER / back / answer, ETHER / V4 / third, ETHER / V4 / third)]
    assert decode(batch_of(first), want_acks=True, acks=watch)[0]["frame"].tolist() == [1, 2, 3, 4]
    assert len(decode(batch_of(first[2:]), acks=watch)[0]) == 0
