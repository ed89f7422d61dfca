"""Frames of every layer that is read, built by scapy where it knows the layer, with what a SYN in them must give."""

from __future__ import annotations

import struct

import numpy as np
from ncps_capture import segments as sg
from ncps_capture.segments import Batch
from scapy.contrib.erspan import ERSPAN_I, ERSPAN_II, ERSPAN_III, ERSPAN_PlatformSpecific
from scapy.contrib.geneve import GENEVE, GeneveOptions
from scapy.contrib.gtp import GTP_U_Header, GTPPDUSessionContainer
from scapy.contrib.mpls import MPLS
from scapy.layers.dot11 import Dot11, Dot11QoS, PrismHeader, RadioTap
from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.inet6 import IPv6, IPv6ExtHdrDestOpt, IPv6ExtHdrFragment, IPv6ExtHdrHopByHop, IPv6ExtHdrRouting
from scapy.layers.ipsec import AH
from scapy.layers.l2 import GRE, GRE_PPTP, LLC, SNAP, Dot1AD, Dot1AH, Dot1Q, Ether
from scapy.layers.ppp import HDLC, PPP, PPPoE
from scapy.layers.vxlan import VXLAN
from scapy.packet import Raw, raw

V4 = IP(src="192.0.2.1", dst="198.51.100.2", id=0x1234, ttl=61)
V6 = IPv6(src="2001:db8::1", dst="2001:db8::2", fl=0x12345, tc=3, hlim=60)
ETHER = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")
LINUX = [("MSS", 1460), ("SAckOK", b""), ("Timestamp", (0xAABBCCDD, 7)), ("NOP", None), ("WScale", 7)]
SYN = TCP(sport=40000, dport=443, flags="S", seq=0xFEDCBA98, ack=0, options=LINUX)
SLL = b"\0\0\0\x01\0\x06\x02\0\0\0\0\x01\0\0"
SLL2_REST = b"\0\0" + b"\0\0\0\x02" + b"\0\x01" + b"\0\x06" + b"\x02\0\0\0\0\x01\0\0"


def batch_of(frames: list[bytes], link_type: int = 1, before: bytes = b"", after: bytes = b"") -> Batch:
    """Frames between strangers' bytes, as in a buffer of a capture."""
    sizes = np.array([len(frame) for frame in frames], np.int64)
    starts = np.zeros(len(frames), np.int64)
    text = b""
    for i, frame in enumerate(frames):
        text += before
        starts[i] = len(text)
        text += frame + after
    times = np.arange(len(frames), dtype=np.int64) * 1000 + 5
    return Batch(np.frombuffer(text, np.uint8), starts, sizes, sizes, times, link_type, 1, 3)


QUOTE = raw(IP(src="10.1.1.1", dst="10.2.2.2", ttl=1) / TCP(sport=1111, dport=22, seq=77, flags="S"))
QUOTE6 = raw(IPv6(src="2001:db8::a", dst="2001:db8::b") / TCP(sport=1111, dport=22, seq=77, flags="S"))

STACKS = [
    ("ethernet", 1, ETHER / V4 / SYN, 4, sg.NO_VLAN),
    ("ethernet v6", 1, ETHER / V6 / SYN, 6, sg.NO_VLAN),
    ("vlan", 1, ETHER / Dot1Q(vlan=7, prio=5) / V4 / SYN, 4, 7),
    ("priority tag", 1, ETHER / Dot1Q(vlan=0, prio=5) / V4 / SYN, 4, 0),
    ("qinq", 1, ETHER / Dot1AD(vlan=9) / Dot1Q(vlan=8) / V6 / SYN, 6, 8),
    ("three tags", 1, ETHER / Dot1Q(vlan=1) / Dot1Q(vlan=2) / Dot1Q(vlan=3) / V4 / SYN, 4, 3),
    ("0x9100", 1, b"\0" * 12 + b"\x91\x00\x00\x05\x08\x00" + raw(V4 / SYN), 4, 5),
    ("0x9200", 1, b"\0" * 12 + b"\x92\x00\x00\x06\x86\xdd" + raw(V6 / SYN), 6, 6),
    ("null le", 0, b"\2\0\0\0" + raw(V4 / SYN), 4, sg.NO_VLAN),
    ("null be", 0, b"\0\0\0\2" + raw(V4 / SYN), 4, sg.NO_VLAN),
    ("loop", 108, b"\0\0\0\2" + raw(V4 / SYN), 4, sg.NO_VLAN),
    *((f"null v6 family {f}", 0, bytes([f, 0, 0, 0]) + raw(V6 / SYN), 6, sg.NO_VLAN) for f in (10, 24, 28, 30)),
    *((f"loop v6 family {f}", 108, bytes([0, 0, 0, f]) + raw(V6 / SYN), 6, sg.NO_VLAN) for f in (10, 24, 28, 30)),
    *((f"raw {link}", link, raw(V4 / SYN), 4, sg.NO_VLAN) for link in (12, 14, 101, 228)),
    *((f"raw v6 {link}", link, raw(V6 / SYN), 6, sg.NO_VLAN) for link in (12, 14, 101, 229)),
    ("sll", 113, SLL + b"\x08\x00" + raw(V4 / SYN), 4, sg.NO_VLAN),
    ("sll vlan", 113, SLL + b"\x81\x00" + b"\x20\x07\x86\xdd" + raw(V6 / SYN), 6, 7),
    ("sll2", 276, b"\x08\x00" + SLL2_REST + raw(V4 / SYN), 4, sg.NO_VLAN),
    ("sll2 vlan", 276, b"\x81\x00" + SLL2_REST + b"\x00\x07\x08\x00" + raw(V4 / SYN), 4, 7),
    ("hop by hop", 1, ETHER / V6 / IPv6ExtHdrHopByHop() / SYN, 6, sg.NO_VLAN),
    ("many extensions", 1, ETHER / V6 / IPv6ExtHdrHopByHop() / IPv6ExtHdrRouting() / IPv6ExtHdrDestOpt() / SYN, 6,
     sg.NO_VLAN),
    ("authentication", 1, ETHER / V6 / AH(nh=6, payloadlen=4, icv=b"x" * 12, padding=b"") / SYN, 6, sg.NO_VLAN),
    ("first fragment v6", 1, ETHER / V6 / IPv6ExtHdrFragment(offset=0, m=1) / SYN, 6, sg.NO_VLAN),
]  # fmt: skip

WIRELESS = Dot11(type=2, FCfield=1, addr1="02:00:00:00:00:01") / LLC() / SNAP()
QOS = Dot11(type=2, subtype=8, FCfield=2) / Dot11QoS() / LLC() / SNAP()
SNAP4 = raw(LLC() / SNAP(code=0x0800))
DATA = raw(Dot11(type=2, FCfield=1)) + SNAP4
MAC = b"\2\0\0\0\0\1\2\0\0\0\0\2"


def typed(ethertype: int, *tags: bytes) -> bytes:
    """MAC addresses, an EtherType and what stands behind it before the packet."""
    return MAC + ethertype.to_bytes(2, "big") + b"".join(tags)


def nflog(order: str, packet: bytes) -> bytes:
    """A log prefix before the packet, as iptables writes it."""
    prefix = struct.pack(f"{order}HH", 7, 10) + b"in\0" + b"\0"
    return b"\2\0\0\0" + prefix + struct.pack(f"{order}HH", 4 + len(packet), 9) + packet


def pktap(link_type: int, frame: bytes) -> bytes:
    return struct.pack("<III", 108, 1, link_type) + bytes(96) + frame


def ppi(link_type: int, frame: bytes) -> bytes:
    return struct.pack("<BBHI", 0, 0, 20, link_type) + b"\2\0\x08\0" + bytes(8) + frame


def erf(kind: int, body: bytes, extensions: int = 0) -> bytes:
    top = 0x80 if extensions else 0
    head = bytes(8) + struct.pack(">BBHHH", kind | top, 4, 16 + len(body), 0, len(body))
    for left in reversed(range(extensions)):
        head += bytes([0x80 if left else 0]) + bytes(7)
    return head + body


_NONE = sg.NO_VLAN
IP4, IP6 = raw(V4 / SYN), raw(V6 / SYN)
PLAIN = raw(ETHER / V4 / SYN)
LINKS = [
    ("mpls", 1, ETHER / MPLS(label=16, s=1) / V4 / SYN, 4, _NONE),
    ("two labels", 1, ETHER / MPLS(label=16, s=0) / MPLS(label=17, s=1) / V6 / SYN, 6, _NONE),
    ("multicast label", 1, typed(0x8848, b"\0\1\1\x40") + IP4, 4, _NONE),
    ("vlan mpls", 1, ETHER / Dot1Q(vlan=4) / MPLS(s=1) / V4 / SYN, 4, 4),
    ("pseudowire", 1, ETHER / MPLS(s=1) / ETHER / V4 / SYN, 4, _NONE),
    ("control word", 1, typed(0x8847, b"\0\1\1\x40", b"\0\0\0\0") + raw(ETHER / Dot1Q(vlan=3) / V4 / SYN), 4, 3),
    ("pppoe", 1, ETHER / PPPoE(sessionid=7) / PPP() / V4 / SYN, 4, _NONE),
    ("pppoe v6", 1, ETHER / Dot1Q(vlan=5) / PPPoE(sessionid=7) / PPP() / V6 / SYN, 6, 5),
    ("fabric path", 1, typed(0x8903, b"\0\x40") + PLAIN, 4, _NONE),
    ("provider backbone", 1, ETHER / Dot1AD(vlan=2) / Dot1AH(isid=77) / ETHER / V4 / SYN, 4, 2),
    ("vntag", 1, typed(0x8926, b"\0\0\0\0\x08\0") + IP4, 4, _NONE),
    ("snap", 1, MAC + (8 + len(IP4)).to_bytes(2, "big") + SNAP4 + IP4, 4, _NONE),
    ("snap of a bridge", 1, MAC + b"\0\x40\xaa\xaa\3\0\0\xf8\x86\xdd" + IP6, 6, _NONE),
    ("llc ip", 1, MAC + b"\0\x40\6\6\3" + IP4, 4, _NONE),
    ("sll llc", 113, SLL + b"\0\4" + SNAP4 + IP4, 4, _NONE),
    ("sll mpls", 113, SLL + b"\x88\x47\0\1\1\x40" + IP4, 4, _NONE),
    ("ppp", 9, PPP() / V4 / SYN, 4, _NONE),
    ("ppp hdlc", 9, HDLC() / PPP() / V6 / SYN, 6, _NONE),
    ("ppp short", 50, b"\xff\3\x21" + IP4, 4, _NONE),
    ("ppp mpls", 50, b"\xff\3\2\x81\0\1\1\x40" + IP4, 4, _NONE),
    ("cisco in ppp hdlc", 50, b"\x0f\0\x08\0" + IP4, 4, _NONE),
    ("cisco hdlc", 104, b"\x8f\0\x86\xdd" + IP6, 6, _NONE),
    ("ppp over ethernet", 51, PPPoE(sessionid=7) / PPP() / V4 / SYN, 4, _NONE),
    ("802.11", 105, WIRELESS / V4 / SYN, 4, _NONE),
    ("802.11 qos", 105, QOS / V6 / SYN, 6, _NONE),
    ("802.11 four addresses", 105, Dot11(type=2, FCfield=3, addr4=None) / LLC() / SNAP() / V4 / SYN,
     4, _NONE),
    ("802.11 high throughput", 105, b"\x88\x81" + bytes(22) + b"\0\0" + bytes(4) + SNAP4 + IP4, 4, _NONE),
    ("802.11 aggregated", 105, b"\x88\1" + bytes(22) + b"\x80\0" + bytes(14) + SNAP4 + IP4, 4, _NONE),
    ("prism", 119, PrismHeader() / WIRELESS / V4 / SYN, 4, _NONE),
    ("avs in prism", 119, struct.pack(">II", 0x80211001, 64) + bytes(56) + DATA + IP4, 4, _NONE),
    ("avs", 163, struct.pack(">II", 0x80211002, 64) + bytes(56) + raw(WIRELESS / V6 / SYN), 6, _NONE),
    ("radiotap", 127, RadioTap(present="TSFT+Flags+Rate") / WIRELESS / V4 / SYN, 4, _NONE),
    ("radiotap bare", 127, RadioTap() / QOS / V4 / SYN, 4, _NONE),
    ("radiotap padded", 127, b"\0\0\x09\0\2\0\0\0\x20" + b"\x88\1" + bytes(22) + b"\0\0\0\0"
     + SNAP4 + IP4, 4, _NONE),
    ("radiotap two words", 127, b"\0\0\x1a\0\3\0\0\x80\0\0\0\0" + bytes(4) + bytes(8) + b"\0\0" + DATA + IP4, 4, _NONE),
    ("nflog", 239, nflog("<", IP4), 4, _NONE),
    ("nflog big-endian", 239, nflog(">", IP6), 6, _NONE),
    ("pktap ethernet", 258, pktap(1, raw(ETHER / Dot1Q(vlan=6) / V4 / SYN)), 4, 6),
    ("pktap raw", 258, pktap(12, IP6), 6, _NONE),
    ("ppi 802.11", 192, ppi(105, DATA + IP4), 4, _NONE),
    ("ppi in pktap", 258, pktap(192, ppi(1, PLAIN)), 4, _NONE),
    ("erf ethernet", 197, erf(2, b"\0\0" + PLAIN), 4, _NONE),
    ("erf extensions", 197, erf(16, b"\0\0" + PLAIN, extensions=3), 4, _NONE),
    ("erf ppp", 197, erf(1, b"\xff\3\0\x21" + IP4), 4, _NONE),
    ("erf v4", 197, erf(22, IP4), 4, _NONE),
    ("erf v6", 197, erf(23, IP6), 6, _NONE),
    ("fddi", 10, b"\x51" + MAC + SNAP4 + IP4, 4, _NONE),
    ("infiniband", 242, bytes(40) + b"\x08\0\0\0" + IP4, 4, _NONE),
]  # fmt: skip

OUTER = ETHER / IP(src="203.0.113.1", dst="203.0.113.2", id=9, ttl=9)
OUTER6 = ETHER / IPv6(src="2001:db8:f::1", dst="2001:db8:f::2", hlim=9)
TUNNELS = [
    ("ip in ip", 1, OUTER / V4 / SYN, 4, _NONE, 0),
    ("6in4", 1, OUTER / V6 / SYN, 6, _NONE, 0),
    ("4in6", 1, OUTER6 / V4 / SYN, 4, _NONE, 0),
    ("6in6", 1, OUTER6 / V6 / SYN, 6, _NONE, 0),
    ("4in6 behind an extension", 1, OUTER6 / IPv6ExtHdrDestOpt() / V4 / SYN, 4, _NONE, 0),
    ("ip in ip in ip", 1, OUTER / IP() / IP() / V4 / SYN, 4, _NONE, 0),
    ("gre", 1, OUTER / GRE() / V4 / SYN, 4, _NONE, 0),
    ("gre all", 1, OUTER / GRE(chksum_present=1, key_present=1, key=0xFEDC1234, seqnum_present=1) / V6 / SYN, 6, _NONE,
     0xFEDC1234),
    ("gre ethernet", 1, OUTER6 / GRE(key_present=1, key=5, proto=0x6558) / ETHER / Dot1Q(vlan=8) / V4 / SYN, 4, 8, 5),
    ("pptp", 1, OUTER / GRE_PPTP(call_id=7, seqnum_present=1, acknum_present=1) / PPP() / V4 / SYN, 4, _NONE, 0),
    ("erspan 1", 1, OUTER / GRE() / ERSPAN_I() / ETHER / V4 / SYN, 4, _NONE, 0),
    ("erspan 2", 1, OUTER / GRE(seqnum_present=1) / ERSPAN_II(session_id=3) / ETHER / V4 / SYN, 4, _NONE, 0),
    ("erspan 3", 1, OUTER / GRE(seqnum_present=1) / ERSPAN_III() / ETHER / V6 / SYN, 6, _NONE, 0),
    ("erspan 3 extended", 1, OUTER / GRE(seqnum_present=1) / ERSPAN_III(o=1) / ERSPAN_PlatformSpecific() / ETHER / V4
     / SYN, 4, _NONE, 0),
    ("vxlan", 1, OUTER / UDP(sport=50000) / VXLAN(vni=0xABCDEF) / ETHER / V4 / SYN, 4, _NONE, 0xABCDEF),
    ("vxlan linux", 1, OUTER6 / UDP(dport=8472) / VXLAN(vni=5) / ETHER / Dot1Q(vlan=9) / V6 / SYN, 6, 9, 5),
    ("geneve", 1, OUTER / UDP() / GENEVE(vni=77) / ETHER / V4 / SYN, 4, _NONE, 77),
    ("geneve ip", 1, OUTER / UDP() / GENEVE(vni=77, proto=0x0800) / V4 / SYN, 4, _NONE, 77),
    ("geneve options", 1, OUTER / UDP() / GENEVE(vni=1, options=[GeneveOptions(data=b"x" * 12)] * 3) / ETHER / V6 / SYN,
     6, _NONE, 1),
    ("gtp", 1, OUTER / UDP(sport=2152, dport=2152) / GTP_U_Header(teid=9, gtp_type=255) / V4 / SYN, 4, _NONE, 0),
    ("gtp sequence", 1, OUTER / UDP(dport=2152) / GTP_U_Header(gtp_type=255, S=1, seq=4) / V6 / SYN, 6, _NONE, 0),
    ("gtp extended", 1, OUTER / UDP(dport=2152) / GTP_U_Header(teid=9, gtp_type=255, E=1, next_ex=0x85)
     / GTPPDUSessionContainer(type=1, QFI=3) / V4 / SYN, 4, _NONE, 0),
    ("teredo", 1, OUTER / UDP(sport=50000, dport=3544) / V6 / SYN, 6, _NONE, 0),
    ("teredo back", 1, OUTER / UDP(sport=3544, dport=50000) / V6 / SYN, 6, _NONE, 0),
    ("teredo origin", 1, OUTER / UDP(sport=1, dport=3544) / Raw(bytes(8) + IP6), 6, _NONE, 0),
    ("teredo both", 1, OUTER / UDP(sport=1, dport=3544) / Raw(b"\0\1\2\3" + bytes(5 + 9 + 8) + IP6), 6, _NONE, 0),
    ("ether ip", 1, ETHER / IP(proto=97) / Raw(b"\x30\0" + PLAIN), 4, _NONE, 0),
    ("mpls in ip", 1, ETHER / IP(proto=137) / Raw(b"\0\1\1\x40" + IP4), 4, _NONE, 0),
    ("vxlan in gre in mpls", 1, ETHER / MPLS(s=1) / IP() / GRE(key_present=1, key=3) / IP() / UDP(sport=9)
     / VXLAN(vni=4) / ETHER / V4 / SYN, 4, _NONE, 4),
    ("raw 6in4", 101, IP() / V6 / SYN, 6, _NONE, 0),
    ("sll vxlan", 113, SLL + b"\x08\0" + raw(IP() / UDP() / VXLAN(vni=6) / ETHER / V4 / SYN), 4, _NONE, 6),
]  # fmt: skip
"""With the tunnel's id at the end."""
