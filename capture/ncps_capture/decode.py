"""Frames to segment rows: link, network and TCP headers as numpy columns. Pure.

It must not know where frames come from nor what a handshake is. The one idea: ``first_look.py`` settles nearly every
frame for the cost of one glance; only what opens, refuses or is not plain is read, and read in full. A frame may be
cut anywhere: nothing outside its captured bytes is ever read as if it were its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from ncps_capture.acks import AckWatch
from ncps_capture.first_look import Plain, first_look
from ncps_capture.link import SUPPORTED, find_network
from ncps_capture.network import CUT, FRAGMENT, ICMP, ICMPV6, MALFORMED, OK, TCP, Transport, ipv4, ipv6
from ncps_capture.rows import join, pick
from ncps_capture.segments import (
    ACK,
    BIT_OPTIONS_CUT,
    FIN,
    KIND_ICMP,
    NO_VLAN,
    RST,
    SEGMENT,
    SYN,
    V4_MAPPED,
    Batch,
    Books,
    Segments,
)
from ncps_capture.stack import Bytes, Ints, be16
from ncps_capture.tcp_options import ABSENT_WSCALE, OPTIONS_MAX, WIDTH, parse_options, up_to
from ncps_capture.tunnels import OF_PROTOCOL, unwrap
from ncps_capture.usual import read_usual

__all__ = ["AckWatch", "Batch", "decode"]

_TO_FLAGS: Final = 14
"""Bytes of a TCP header up to and with its flags: from there on it counts (definition "Admission")."""
_HEADER: Final = 20
_TUNNELS_MAX: Final = 8
"""Tunnels in tunnels. Deeper ones are crafted; giving up keeps the loop bounded."""
_UNREACHABLE: Final = {4: 3, 6: 1}
"""ICMP type of "destination unreachable", prohibited included, by IP version."""
_ICMP_HEADER: Final = 8
_QUOTED: Final = 8
"""Bytes of TCP an ICMP error must quote: ports and sequence number."""
_SYN_RST: Final = np.array([flags & (SYN | RST) != 0 for flags in range(256)])
_BARE_SYN: Final = np.array([flags & (SYN | ACK) == SYN for flags in range(256)])
_SYN_ACK: Final = np.array([flags & (SYN | ACK | RST | FIN) == SYN | ACK for flags in range(256)])
_SYN_BAD: Final = np.array([bool(flags & SYN and flags & (RST | FIN)) for flags in range(256)])
_WITH_ACK: Final = np.array([flags & (SYN | RST) != 0 or flags & ACK != 0 for flags in range(256)])
_PACKET_NAMES: Final = ("rows", "net", "end", "wire_end", "version", "vlan", "tunnel")


@dataclass(frozen=True)
class _Packets:
    """Places where an IP header begins. One element a packet."""

    rows: Ints  # frame, as index into the batch
    net: Ints
    end: Ints  # of what was captured of it
    wire_end: Ints  # of what it may reach to at most
    version: Bytes  # 4, 6, or 0 = none after all
    vlan: npt.NDArray[np.uint16]
    tunnel: npt.NDArray[np.uint32]


@dataclass(frozen=True)
class _Tcp:
    """TCP headers captured up to their flags, all of one IP version. One element a segment."""

    version: int
    rows: Ints
    net: Ints
    at: Ints
    stop: Ints  # end of what was captured of the packet
    ip_end: Ints  # end of the packet as its header announces it
    vlan: npt.NDArray[np.uint16]
    tunnel: npt.NDArray[np.uint32]

    def pick(self, which: Ints) -> _Tcp:
        """Some of the segments, by index."""
        names = ("rows", "net", "at", "stop", "ip_end", "vlan", "tunnel")
        return _Tcp(self.version, *(getattr(self, name)[which] for name in names))


def decode(
    batch: Batch, want_acks: bool = False, tunnels: bool = False, acks: AckWatch | None = None
) -> tuple[Segments, Books]:
    """Segment rows of a batch in frame order, and the books of its frames.

    Rows: TCP with SYN or RST set, and ICMP errors that quote TCP; with ``want_acks`` every other TCP segment with ACK
    too, with ``acks`` those of them that matter to a handshake; with both all, and ``acks`` learns from them what it
    need not wait for. With ``tunnels`` the innermost TCP counts. Options are read where SYN is set.

    Books: ``packets``, ``tcp_packets``, ``syn``, ``synack``, the SYNs that make no row, ``malformed``, ``fragments``,
    ``too_short``, ``unsupported_linktype``. A SYN whose flags were not captured cannot be seen to be one, so
    ``syn_fragment`` and ``syn_too_short`` stay 0 here. Never raises on bytes.
    """
    usual = read_usual(batch) if acks is None else None
    if usual is not None:
        return usual.among(*decode(usual.rest, want_acks, tunnels))
    books = Books(packets=len(batch.offsets))
    if batch.link_type not in SUPPORTED:
        books.unsupported_linktype = books.packets
        if books.packets:
            books.unsupported_linktypes[batch.link_type] = books.packets
        return np.zeros(0, SEGMENT), books
    if not books.packets:
        return np.zeros(0, SEGMENT), books
    reader = _Reader(batch, books, want_acks, acks is not None and not want_acks)
    reader.read(tunnels)
    out = _in_order(reader.parts)
    if acks is not None:
        acks.expect(out)
        if want_acks:
            bare = pick(out, (out["flags"] & (SYN | RST) == 0) & (out["kind"] != KIND_ICMP))
            acks.choose(bare, int(batch.t_ns[-1]))
        else:
            chosen = _chosen_acks(reader, acks)
            out = _in_order([out, chosen]) if len(chosen) else out
    return out, books


def _in_order(parts: list[Segments]) -> Segments:
    parts = [part for part in parts if len(part)]
    if len(parts) <= 1:
        return parts[0] if parts else np.zeros(0, SEGMENT)
    out = join(parts)
    return pick(out, np.argsort(out["frame"], kind="stable"))


def _chosen_acks(reader: _Reader, acks: AckWatch) -> Segments:
    parts = []
    for plain in reader.plain:
        some = acks.may_matter(plain.ack_words, plain.ack_ports, plain.acks)
        if len(some):
            parts.append(reader.segments(reader.of_plain(plain, plain.acks[some])))
    for found in reader.acks:
        some = acks.may_matter(_le32(reader.data, found.at + 8), _le32(reader.data, found.at), found.rows)
        if len(some):
            parts.append(reader.segments(found.pick(some)))
    candidates = _in_order(parts)
    return pick(candidates, acks.choose(candidates, int(reader.batch.t_ns[-1])))


class _Reader:
    """One batch while it is read: what was found so far, and the books of it."""

    def __init__(self, batch: Batch, books: Books, want_acks: bool, note_acks: bool) -> None:
        self.batch, self.books = batch, books
        self.data: Bytes = np.ascontiguousarray(batch.data)
        self.parts: list[Segments] = []
        self.plain: list[Plain] = []
        self.acks: list[_Tcp] = []  # with ACK alone, noted and not read
        self._want_acks, self._note_acks = want_acks, note_acks
        self._keep = (_WITH_ACK if want_acks else _SYN_RST) & ~_SYN_BAD

    def read(self, tunnels: bool) -> None:
        batch = self.batch
        self.plain, rest = first_look(
            self.data, batch.offsets, batch.caplens, batch.link_type, self._want_acks or self._note_acks
        )
        for plain in self.plain:
            self.books.tcp_packets += plain.count
            rows = np.sort(np.concatenate((plain.chosen, plain.acks))) if self._want_acks else plain.chosen
            if len(rows):
                self._take(self.of_plain(plain, rows))
        packets = self._behind_links(np.arange(len(batch.offsets)) if rest is None else rest)
        for _ in range(_TUNNELS_MAX if tunnels else 1):
            if not len(packets):
                return
            packets = [inner for outer in packets for inner in self._walk(outer, tunnels)]

    def of_plain(self, plain: Plain, rows: Ints) -> _Tcp:
        start = self.batch.offsets[rows]
        net = start + plain.net
        ip_end = net + (be16(self.data, net + 2) if plain.version == 4 else 40 + be16(self.data, net + 4))
        stop = np.minimum(ip_end, start + self.batch.caplens[rows])
        vlan = np.full(len(rows), NO_VLAN, np.uint16)
        if plain.tagged:
            vlan[:] = be16(self.data, net - 4) & 0x0FFF
        return _Tcp(plain.version, rows, net, start + plain.tcp, stop, ip_end, vlan, np.zeros(len(rows), np.uint32))

    def _behind_links(self, rows: Ints) -> list[_Packets]:
        if not len(rows):
            return []
        batch = self.batch
        start, caplens = batch.offsets[rows], batch.caplens[rows]
        end = start + caplens
        network = find_network(self.data, start, end, batch.link_type)
        self.books.too_short += int(np.count_nonzero(network.cut))
        wire_end = start + np.maximum(batch.lengths[rows], caplens)
        tunnel = np.zeros(len(rows), np.uint32)
        return [_Packets(rows, network.at, end, wire_end, network.version, network.vlan, tunnel)]

    def _walk(self, packets: _Packets, tunnels: bool) -> list[_Packets]:
        """Read what the packets carry; those that carry packets give the packets inside."""
        inner = []
        for version in (4, 6):
            which = np.flatnonzero(packets.version == version)
            if not len(which):
                continue
            inside = packets.net[which] < packets.end[which]
            if not inside.all():
                self.books.too_short += int(np.count_nonzero(~inside))
                which = which[inside]
            mine = _Packets(*(getattr(packets, name)[which] for name in _PACKET_NAMES))
            found = (ipv4 if version == 4 else ipv6)(self.data, mine.net, mine.end, mine.wire_end)
            self._of_version(version, mine, found)
            if tunnels:
                inner += self._unwrap(mine, found)
        return inner

    def _of_version(self, version: int, packets: _Packets, found: Transport) -> None:
        books, verdict, proto = self.books, found.verdict, found.proto
        books.too_short += int(np.count_nonzero(verdict == CUT))
        books.malformed += int(np.count_nonzero(verdict == MALFORMED))
        books.fragments += int(np.count_nonzero((verdict == FRAGMENT) & (proto == TCP)))
        usable = verdict == OK
        tcp = np.flatnonzero(usable & (proto == TCP))
        if len(tcp):
            stop = np.minimum(found.stop[tcp], packets.end[tcp])
            whole = found.at[tcp] + _TO_FLAGS <= stop
            if not whole.all():
                books.too_short += int(np.count_nonzero(~whole))
                tcp, stop = tcp[whole], stop[whole]
            books.tcp_packets += len(tcp)
            headers = _Tcp(
                version,
                packets.rows[tcp],
                packets.net[tcp],
                found.at[tcp],
                stop,
                found.stop[tcp],
                packets.vlan[tcp],
                packets.tunnel[tcp],
            )
            flags = self.data[headers.at + 13]
            self._take(headers.pick(np.flatnonzero((self._keep | _SYN_RST)[flags])))
            if self._note_acks:
                self.acks.append(headers.pick(np.flatnonzero((_WITH_ACK & ~_SYN_RST)[flags])))
        icmp = np.flatnonzero(usable & (proto == (ICMP if version == 4 else ICMPV6)))
        if len(icmp):
            self._take_icmp(version, packets, icmp, found.at[icmp])

    def _unwrap(self, packets: _Packets, found: Transport) -> list[_Packets]:
        which = np.flatnonzero((found.verdict == OK) & (OF_PROTOCOL[found.proto] != 0))
        if not len(which):
            return []
        end, stop = packets.end[which], found.stop[which]
        inner = unwrap(
            self.data,
            found.proto[which],
            found.at[which],
            np.minimum(end, stop),
            packets.vlan[which],
            packets.tunnel[which],
        )
        # A packet that was captured whole and ends too early was no tunnel.
        self.books.too_short += int(np.count_nonzero(inner.cut & (stop > end)))
        yes = np.flatnonzero(inner.version != 0)
        if not len(yes):
            return []
        end = np.minimum(end, stop)[yes]
        return [
            _Packets(
                packets.rows[which[yes]], inner.at[yes], end, stop[yes], inner.version[yes], inner.vlan[yes],
                inner.tunnel[yes],
            )
        ]  # fmt: skip

    def _take(self, headers: _Tcp) -> None:
        """Count the flags of these segments, and read those that make a row."""
        if not len(headers.rows):
            return
        books, flags = self.books, self.data[headers.at + 13]
        # Few batches hold all 256 flag bytes: one histogram answers every count.
        seen = np.bincount(flags, minlength=256)
        books.syn += int(seen[_BARE_SYN].sum())
        books.synack += int(seen[_SYN_ACK].sum())
        books.malformed += int(seen[_SYN_BAD].sum())
        books.syn_malformed += int(seen[_SYN_BAD & _BARE_SYN].sum())
        if not self._keep[flags].all():
            headers = headers.pick(np.flatnonzero(self._keep[flags]))
        if len(headers.rows):
            self.parts.append(self.segments(headers))

    def segments(self, headers: _Tcp) -> Segments:
        out = self._rows(headers.rows, headers.version, headers.net, headers.vlan, headers.tunnel)
        return _read_tcp(out, self.data, headers.at, headers.stop, headers.ip_end, self.books)

    def _rows(
        self, frames: Ints, version: int, net: Ints, vlan: npt.NDArray[np.uint16], tunnel: npt.NDArray[np.uint32]
    ) -> Segments:
        """Rows with what the IP header says, which must have been captured whole."""
        batch = self.batch
        out = np.zeros(len(frames), SEGMENT)
        out["t_ns"] = batch.t_ns[frames]
        out["frame"] = frames + batch.first_frame if batch.frames is None else batch.frames[frames]
        out["source"] = batch.source
        out["vlan"] = vlan
        out["tunnel"] = tunnel
        out["ip_version"] = version
        out["wscale"] = ABSENT_WSCALE
        if version == 4:
            head = _window(self.data, net, 20)
            words = head.view(">u4")
            out["src_lo"] = words[:, 3].astype(np.uint64) | np.uint64(V4_MAPPED)
            out["dst_lo"] = words[:, 4].astype(np.uint64) | np.uint64(V4_MAPPED)
            out["ip_ident"] = head[:, 4:6].view(">u2")[:, 0]
            out["ttl"] = head[:, 8]
        else:
            head = _window(self.data, net, 40)
            words = head.view(">u8")
            for i, name in enumerate(("src_hi", "src_lo", "dst_hi", "dst_lo"), 1):
                out[name] = words[:, i]
            out["ip_ident"] = head.view(">u4")[:, 0] & 0x0FFFFFFF
            out["ttl"] = head[:, 7]
        return out

    def _take_icmp(self, version: int, packets: _Packets, which: Ints, at: Ints) -> None:
        """Errors that quote at least ports and sequence number of a TCP segment's first fragment.

        The quoted total length is that of the original packet, so what was captured alone says how far to read.
        """
        data, end = self.data, packets.end[which]
        whole = at + _ICMP_HEADER + (20 if version == 4 else 40) <= end
        which, at, end = which[whole], at[whole], end[whole]
        error = data[at] == _UNREACHABLE[version]
        which, at, end = which[error], at[error], end[error]
        if not len(which):
            return
        inner = at + _ICMP_HEADER
        quoted = (ipv4 if version == 4 else ipv6)(data, inner, end, end)
        good = np.flatnonzero((quoted.verdict == OK) & (quoted.proto == TCP) & (quoted.at + _QUOTED <= end))
        which, at, tcp, end = which[good], at[good], quoted.at[good], end[good]
        out = self._rows(packets.rows[which], version, inner[good], packets.vlan[which], packets.tunnel[which])
        out["kind"] = KIND_ICMP
        out["icmp_type"] = data[at]
        out["icmp_code"] = data[at + 1]
        out["sport"] = be16(data, tcp)
        out["dport"] = be16(data, tcp + 2)
        out["seq"] = be16(data, tcp + 4) << 16 | be16(data, tcp + 6)
        flagged = np.flatnonzero(tcp + _TO_FLAGS <= end)
        out["flags"][flagged] = data[tcp[flagged] + 13]
        if len(out):
            self.parts.append(out)


def _read_tcp(out: Segments, data: Bytes, at: Ints, stop: Ints, ip_end: Ints, books: Books) -> Segments:
    head = _window(data, at, _HEADER + WIDTH)
    flags = head[:, 13]
    size = (head[:, 12] >> 4).astype(np.int64) << 2
    wrong = size < _HEADER
    out["sport"] = head[:, 0:2].view(">u2")[:, 0]
    out["dport"] = head[:, 2:4].view(">u2")[:, 0]
    out["seq"] = head[:, 4:8].view(">u4")[:, 0]
    out["ack"] = head[:, 8:12].view(">u4")[:, 0]
    out["flags"] = flags
    out["payload"] = np.clip(ip_end - at - size, 0, 0xFFFF)
    syn = np.flatnonzero((flags & SYN != 0) & ~wrong)
    if len(syn):
        announced = size[syn] - _HEADER
        captured = np.clip(stop[syn] - at[syn] - _HEADER, 0, OPTIONS_MAX)
        held = np.minimum(announced, captured)
        matrix = head[:, _HEADER:] if len(syn) == len(head) else head[syn, _HEADER:]
        options = parse_options(up_to(matrix, held), held)
        out["mss"][syn] = options.mss
        out["wscale"][syn] = options.wscale
        out["tsval"][syn] = options.tsval
        out["tsecr"][syn] = options.tsecr
        out["bits"][syn] = options.bits | np.where(announced > captured, BIT_OPTIONS_CUT, 0).astype(np.uint8)
    if wrong.any():
        books.malformed += int(np.count_nonzero(wrong & _SYN_RST[flags]))
        books.syn_malformed += int(np.count_nonzero(wrong & _BARE_SYN[flags]))
        books.synack -= int(np.count_nonzero(wrong & _SYN_ACK[flags]))
        out = pick(out, ~wrong)
    return out


def _le32(data: Bytes, at: Ints) -> npt.NDArray[np.uint32]:
    out: npt.NDArray[np.uint32] = _window(data, at, 4).view("<u4")[:, 0]
    return out


def _window(data: Bytes, at: Ints, width: int) -> Bytes:
    """(n, width) copy of the bytes at each index; zeros past the end of ``data``.

    As one element of ``width`` bytes a row, which costs half of what a row of bytes does.
    """
    last = len(data) - width
    if len(at) and int(at.max()) <= last:
        return np.ndarray((last + 1,), f"V{width}", data, 0, (1,))[at].view(np.uint8).reshape(len(at), width)
    near = at > last
    out = np.zeros((len(at), width), np.uint8)
    if last >= 0:
        out[~near] = np.ndarray((last + 1, width), np.uint8, data, 0, (1, 1))[at[~near]]
    tail_at = max(len(data) - width, 0)
    tail = np.zeros(2 * width, np.uint8)
    tail[: len(data) - tail_at] = data[tail_at:]
    out[near] = np.ndarray((width + 1, width), np.uint8, tail, 0, (1, 1))[at[near] - tail_at]
    return out
