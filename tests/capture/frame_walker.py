"""One frame at a time, as its headers say: what ``link.py`` and ``tunnels.py`` do in columns, written anew.

Slow and recursive; the columns are held to it on any bytes.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from ncps_capture.segments import NO_VLAN

DEPTH = 16
TAGS = (0x8100, 0x88A8, 0x9100, 0x9200)
RAW_LINKS = (12, 14, 101, 228, 229)
ERF_ETHERNET, ERF_HDLC = (2, 11, 16, 20), (1, 10, 15, 19)


class ShortError(Exception):
    """A header does not end before the frame."""


@dataclass
class Found:
    at: int = 0
    version: int = 0
    vlan: int = NO_VLAN
    cut: bool = False
    tunnel: int = 0


class Walker:
    def __init__(self, frame: bytes, vlan: int = NO_VLAN, tunnel: int = 0) -> None:
        self.frame, self.vlan, self.tunnel = frame, vlan, tunnel

    def need(self, at: int, size: int) -> bytes:
        if len(self.frame) < at + size:
            raise ShortError
        return self.frame[at : at + size]

    def run(self, name: str, at: int) -> Found:
        """``name`` is the method for the header at ``at``."""
        try:
            for _ in range(DEPTH):
                if name in ("", "ip4", "ip6"):
                    break
                name, at = getattr(self, name)(at)
        except ShortError:
            return Found(0, 0, self.vlan, True, self.tunnel)
        version = {"ip4": 4, "ip6": 6}.get(name, 0)
        return Found(at if version else 0, version, self.vlan, False, self.tunnel)

    @staticmethod
    def named(kind: int, low: str = "llc") -> str:
        if kind < 0x600:
            return low
        if kind in TAGS:
            return "tag"
        return {
            0x0800: "ip4", 0x86DD: "ip6", 0x8847: "mpls", 0x8848: "mpls", 0x8864: "pppoe", 0x8903: "fabric",
            0x88E7: "pbb", 0x8926: "vntag", 0x6558: "ether", 0x880B: "ppp",
        }.get(kind, "")  # fmt: skip

    def ether(self, at: int):
        return self.named(int.from_bytes(self.need(at, 14)[12:], "big")), at + 14

    def tag(self, at: int):
        tci, kind = struct.unpack(">HH", self.need(at, 4))
        self.vlan = tci & 0xFFF
        return self.named(kind), at + 4

    def sll(self, at: int):
        kind = int.from_bytes(self.need(at, 16)[14:], "big")
        return self.named(kind, "llc" if kind == 4 else ""), at + 16

    def sll2(self, at: int):
        kind = int.from_bytes(self.need(at, 20)[:2], "big")
        return self.named(kind, "llc" if kind == 4 else ""), at + 20

    def llc(self, at: int):
        head = self.need(at, 3)
        if head == b"\6\6\3":
            return "ip4", at + 3
        if head != b"\xaa\xaa\3":
            return "", at
        snap = self.need(at + 3, 5)
        if snap[:3] not in (b"\0\0\0", b"\0\0\xf8"):
            return "", at
        return self.named(int.from_bytes(snap[3:], "big"), ""), at + 8

    def mpls(self, at: int):
        label = self.need(at, 4)
        return ("labelled" if label[2] & 1 else "mpls"), at + 4

    def labelled(self, at: int):
        nibble = self.need(at, 1)[0] >> 4
        if nibble in (4, 6):
            return f"ip{nibble}", at
        kind = int.from_bytes(self.frame[at + 12 : at + 14], "big") if len(self.frame) >= at + 14 else 0
        bare = nibble or self.named(kind, "")
        return "ether", at + (0 if bare else 4)

    def pppoe(self, at: int):
        return ("" if self.need(at, 6)[1] else "ppp"), at + 6

    def ppp(self, at: int):
        head = self.need(at, 2)
        if head == b"\xff\3":
            return "ppp", at + 2
        number, size = (head[0], 1) if head[0] & 1 else (int.from_bytes(head, "big"), 2)
        return {0x21: "ip4", 0x57: "ip6", 0x281: "mpls", 0x283: "mpls"}.get(number, ""), at + size

    def hdlc(self, at: int):
        return ("chdlc" if self.need(at, 1)[0] in (0x0F, 0x8F) else "ppp"), at

    def chdlc(self, at: int):
        return self.named(int.from_bytes(self.need(at, 4)[2:], "big"), ""), at + 4

    def family(self, at: int):
        head = self.need(at, 4)
        return {2: "ip4", 10: "ip6", 24: "ip6", 28: "ip6", 30: "ip6"}.get(head[0] or head[3], ""), at + 4

    def raw(self, at: int):
        nibble = self.need(at, 1)[0] >> 4
        return (f"ip{nibble}" if nibble in (4, 6) else ""), at

    def fabric(self, at: int):
        self.need(at, 2)
        return "ether", at + 2

    def pbb(self, at: int):
        self.need(at, 4)
        return "ether", at + 4

    def vntag(self, at: int):
        return self.named(int.from_bytes(self.need(at, 6)[4:], "big")), at + 6

    def nflog(self, at: int):
        self.need(at, 4)
        at += 4
        for _ in range(32):
            head = self.need(at, 4)
            size, kind = struct.unpack("<HH" if head[2] else ">HH", head)
            if size < 4:
                return "", at
            if kind & 0x7FFF == 9:
                return "raw", at + 4
            at += size + -size % 4
        return "", at

    def pktap(self, at: int):
        size, _, link = struct.unpack("<III", self.need(at, 12))
        return (LINKS.get(link, "") if size >= 12 else ""), at + size

    def ppi(self, at: int):
        _, size, link = struct.unpack("<HHI", self.need(at, 8))
        return (LINKS.get(link, "") if size >= 8 else ""), at + size

    def erf(self, at: int):
        kind = self.need(at, 16)[8]
        at += 16
        more, count = kind & 0x80, 0
        while more:
            if count == 16:
                return "", at
            more, at, count = self.need(at, 8)[0] & 0x80, at + 8, count + 1
        kind &= 0x7F
        if kind in ERF_ETHERNET:
            return "ether", at + 2
        return ("hdlc" if kind in ERF_HDLC else {22: "ip4", 23: "ip6"}.get(kind, "")), at

    def fddi(self, at: int):
        return ("llc" if self.need(at, 13)[0] & 0xF0 == 0x50 else ""), at + 13

    def ipoib(self, at: int):
        return self.named(int.from_bytes(self.need(at, 44)[40:42], "big"), ""), at + 44

    def wlan(self, at: int, padded: bool = False):
        control, flags = self.need(at, 2)
        if control & 0x0F != 8 or control & 0x40 or flags & 0x40:
            return "", at
        size = 30 if flags & 3 == 3 else 24
        qos_at = size
        if control & 0x80:
            size += 6 if flags & 0x80 else 2
        if padded:
            size += -size % 4
        head = self.need(at, size)
        if control & 0x80 and head[qos_at] & 0x80:
            size += 14
        return "llc", at + size

    def prism(self, at: int):
        head = self.need(at, 8)
        if head[:2] == b"\x80\x21":
            return "avs", at
        size = int.from_bytes(head[4:], "little")
        return "wlan", at + (size if 8 <= size < 65536 else 144)

    def avs(self, at: int):
        magic, size = struct.unpack(">II", self.need(at, 8))
        return ("wlan" if magic >> 16 == 0x8021 and 8 <= size < 65536 else ""), at + (size & 0xFFFF)

    def radiotap(self, at: int):
        head = self.need(at, 8)
        size = int.from_bytes(head[2:4], "little")
        if head[0] or size < 8:
            return "", at
        head = self.need(at, size)
        words = 1
        while words <= 8 and head[3 + 4 * words] & 0x80 and 8 + 4 * words <= size:
            words += 1
        flags_at = 4 + 4 * words
        if head[4] & 1:
            flags_at += -flags_at % 8 + 8
        padded = bool(head[4] & 2) and flags_at < size and bool(head[flags_at] & 0x20)
        return self.wlan(at + size, padded)

    # ---- tunnels: from a transport header to the next IP header

    def udp(self, at: int):
        back, there = struct.unpack(">HH", self.need(at, 8)[:4])
        ports = {4789: "vxlan", 8472: "vxlan", 6081: "geneve", 2152: "gtp", 3544: "teredo"}
        return ports.get(there) or ports.get(back, ""), at + 8

    def gre(self, at: int):
        flags, kind = struct.unpack(">HH", self.need(at, 4))
        has = {name: flags & bit != 0 for name, bit in (("c", 0x8000), ("k", 0x2000), ("s", 0x1000), ("a", 0x80))}
        if flags & 7 == 0 and not flags & 0x4000:
            size = 4 + 4 * has["c"] + 4 * has["k"] + 4 * has["s"]
            head = self.need(at, size)
            if has["k"]:
                self.tunnel = int.from_bytes(head[4 + 4 * has["c"] :][:4], "big")
        elif flags & 7 == 1 and kind == 0x880B and has["k"]:
            size = 8 + 4 * has["s"] + 4 * has["a"]
            self.need(at, size)
        else:
            return "", at
        if kind == 0x88BE:
            return ("erspan2" if has["s"] else "ether"), at + size
        return ("erspan3" if kind == 0x22EB else self.named(kind, "")), at + size

    def erspan2(self, at: int):
        self.need(at, 8)
        return "ether", at + 8

    def erspan3(self, at: int):
        return "ether", at + (20 if self.need(at, 12)[11] & 1 else 12)

    def etherip(self, at: int):
        return ("ether" if self.need(at, 2)[0] >> 4 == 3 else ""), at + 2

    def vxlan(self, at: int):
        head = self.need(at, 8)
        if not head[0] & 8:
            return "", at
        self.tunnel = int.from_bytes(head[4:7], "big")
        return "ether", at + 8

    def geneve(self, at: int):
        head = self.need(at, 8)
        kind = int.from_bytes(head[2:4], "big")
        if head[0] >> 6 or kind < 0x600:
            return "", at
        self.tunnel = int.from_bytes(head[4:7], "big")
        return self.named(kind), at + 8 + 4 * (head[0] & 63)

    def gtp(self, at: int):
        head = self.need(at, 8)
        if head[0] & 0xF0 != 0x30 or head[1] != 255:
            return "", at
        if not head[0] & 7:
            return "raw", at + 8
        following = self.need(at, 12)[11] if head[0] & 4 else 0 * len(self.need(at, 12))
        at += 12
        for _ in range(8):
            if not following:
                return "raw", at
            size = self.need(at, 1)[0] * 4
            if not size:
                return "", at
            following = self.need(at, size)[-1]
            at += size
        return ("" if following else "raw"), at

    def teredo(self, at: int):
        head = self.need(at, 4)
        if head[:2] == b"\0\1":
            at += 13 + head[2] + head[3]
        if self.need(at, 2) == b"\0\0":
            at += 8
        return ("ip6" if self.need(at, 1)[0] >> 4 == 6 else ""), at


LINKS = {
    1: "ether", 0: "family", 108: "family", 113: "sll", 276: "sll2", 9: "hdlc", 50: "hdlc", 51: "pppoe",
    104: "chdlc", 105: "wlan", 119: "prism", 127: "radiotap", 163: "avs", 10: "fddi", 192: "ppi", 197: "erf",
    239: "nflog", 242: "ipoib", 258: "pktap", **dict.fromkeys(RAW_LINKS, "raw"),
}  # fmt: skip
PROTOCOLS = {4: "ip4", 41: "ip6", 47: "gre", 17: "udp", 97: "etherip", 137: "mpls"}


def behind_link(frame: bytes, link_type: int) -> Found:
    return Walker(frame).run(LINKS[link_type], 0)


def behind_transport(packet: bytes, at: int, proto: int, vlan: int = NO_VLAN, tunnel: int = 0) -> Found:
    return Walker(packet, vlan, tunnel).run(PROTOCOLS[proto], at)
