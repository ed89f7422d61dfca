"""What the kernel tells of a connection."""

import socket
import struct
import sys

import pytest
from link_pairs import pair
from running import until

from ncps_raw.link import tcpinfo

linux = pytest.mark.skipif(sys.platform != "linux", reason="TCP_INFO is read on Linux only")


def test_fields_are_read_where_the_kernel_puts_them() -> None:
    data = bytearray(232)
    places = {"state": (0, "B", 1), "srtt_us": (68, "I", 2), "cwnd": (80, "I", 3), "retransmits": (100, "I", 4)}
    places |= {"acked": (120, "Q", 5), "min_rtt_us": (148, "I", 6), "busy_us": (168, "Q", 7)}
    places |= {"rwnd_limited_us": (176, "Q", 8), "sndbuf_limited_us": (184, "Q", 9)}
    for offset, form, value in places.values():
        struct.pack_into("=" + form, data, offset, value)
    info = tcpinfo.parse(bytes(data))
    assert info is not None
    assert {name: getattr(info, name) for name in places} == {name: value for name, (_, _, value) in places.items()}


def test_what_is_not_told_is_none() -> None:
    assert tcpinfo.parse(bytes(104)) is None
    data = bytearray(232)
    struct.pack_into("=I", data, 148, 0xFFFF_FFFF)
    assert tcpinfo.parse(bytes(data)) is None


@linux
def test_bytes_are_unacknowledged_until_the_peer_s_kernel_has_them() -> None:
    with pair() as (near, far):
        near.setblocking(False)
        sent = 0
        while True:
            try:
                sent += near.send(bytes(1 << 16))
            except BlockingIOError:
                break
        waiting = tcpinfo.unacknowledged(near)
        assert waiting is not None
        assert 0 < waiting <= sent
        until(lambda: tcpinfo.waiting(far), "something to read")
        near.setblocking(True)
        near.shutdown(socket.SHUT_WR)
        got = 0
        while data := far.recv(1 << 16):
            got += len(data)
        assert got == sent
        assert tcpinfo.waiting(far) == 0
        tcpinfo.acknowledge_now(far)
        left = tcpinfo.unacknowledged(near)
        info = tcpinfo.read(near)
        assert left is not None
        assert left <= 1
        assert info is not None
        assert abs(info.acked - sent) <= 2
        assert info.min_rtt_us > 0
