"""Frames to segment rows: link, network and TCP headers as numpy columns. Pure.

It must not know where frames come from nor what a handshake is. The one idea: the question that settles nearly every
frame (is this TCP, with SYN or RST?) costs a few byte columns over the whole batch; only the rows that answer yes are
read in full. A frame may be cut anywhere: nothing outside its captured bytes is ever read as if it were its own.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from ncps_capture.link import SUPPORTED, Bytes, Ints, be16, find_network
from ncps_capture.network import CUT, FRAGMENT, ICMP, ICMPV6, MALFORMED, OK, TCP, Transport, ipv4, ipv6
from ncps_capture.rows import join, pick
from ncps_capture.segments import (
    ACK,
    BIT_OPTIONS_CUT,
    FIN,
    KIND_ICMP,
    RST,
    SEGMENT,
    SYN,
    V4_MAPPED,
    Batch,
    Books,
    Segments,
)
from ncps_capture.tcp_options import ABSENT_WSCALE, OPTIONS_MAX, WIDTH, parse_options

__all__ = ["Batch", "decode"]

_TO_FLAGS: Final = 14
"""Bytes of a TCP header up to and with its flags: from there on it counts (definition "Admission")."""
_HEADER: Final = 20
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


def decode(batch: Batch, want_acks: bool = False) -> tuple[Segments, Books]:
    """Segment rows of a batch in frame order, and the books of its frames.

    Rows: TCP with SYN or RST set, and ICMP errors that quote TCP; with ``want_acks`` every other TCP segment with ACK
    too. Options are read where SYN is set. Books: ``packets``, ``tcp_packets``, ``syn``, ``synack``, the SYNs that
    make no row, ``malformed``, ``fragments``, ``too_short``, ``unsupported_linktype``. A SYN whose flags were not
    captured cannot be seen to be one, so ``syn_fragment`` and ``syn_too_short`` stay 0 here. Never raises on bytes.
    """
    books = Books(packets=len(batch.offsets))
    if batch.link_type not in SUPPORTED:
        books.unsupported_linktype = books.packets
        if books.packets:
            books.unsupported_linktypes[batch.link_type] = books.packets
        return np.zeros(0, SEGMENT), books
    data = np.ascontiguousarray(batch.data)
    start = batch.offsets
    end = start + batch.caplens
    network = find_network(data, start, end, batch.link_type)
    books.too_short += int(np.count_nonzero(network.cut))
    parts = []
    for version in (4, 6):
        rows = np.flatnonzero(network.version == version)
        if not len(rows):
            continue
        at = network.at[rows]
        inside = at < end[rows]
        if not inside.all():
            books.too_short += int(np.count_nonzero(~inside))
            rows, at = rows[inside], at[inside]
        wire_end = start[rows] + np.maximum(batch.lengths[rows], batch.caplens[rows])
        found = (ipv4 if version == 4 else ipv6)(data, at, end[rows], wire_end)
        parts += _of_version(batch, data, version, rows, at, end[rows], found, network.vlan[rows], books, want_acks)
    if not parts:
        return np.zeros(0, SEGMENT), books
    out = parts[0] if len(parts) == 1 else join(parts)
    if len(parts) > 1:
        out = pick(out, np.argsort(out["frame"], kind="stable"))
    return out, books


def _of_version(
    batch: Batch,
    data: Bytes,
    version: int,
    rows: Ints,
    net: Ints,
    end: Ints,
    found: Transport,
    vlan: npt.NDArray[np.uint16],
    books: Books,
    want_acks: bool,
) -> list[Segments]:
    verdict, proto = found.verdict, found.proto
    if verdict.any():
        books.too_short += int(np.count_nonzero(verdict == CUT))
        books.malformed += int(np.count_nonzero(verdict == MALFORMED))
        books.fragments += int(np.count_nonzero((verdict == FRAGMENT) & (proto == TCP)))
        usable = verdict == OK
        tcp = np.flatnonzero(usable & (proto == TCP))
        icmp = np.flatnonzero(usable & (proto == (ICMP if version == 4 else ICMPV6)))
    else:
        tcp = np.flatnonzero(proto == TCP)
        icmp = np.flatnonzero(proto == (ICMP if version == 4 else ICMPV6))
    at = found.at[tcp]
    stop = np.minimum(found.stop[tcp], end[tcp])
    whole = at + _TO_FLAGS <= stop
    if not whole.all():
        books.too_short += int(np.count_nonzero(~whole))
        tcp, at, stop = tcp[whole], at[whole], stop[whole]
    books.tcp_packets += len(tcp)
    flags = data[at + 13]
    # Few batches hold all 256 flag bytes: one histogram answers every count.
    seen = np.bincount(flags, minlength=256)
    books.syn += int(seen[_BARE_SYN].sum())
    books.synack += int(seen[_SYN_ACK].sum())
    books.malformed += int(seen[_SYN_BAD].sum())
    books.syn_malformed += int(seen[_SYN_BAD & _BARE_SYN].sum())
    keep = (_WITH_ACK if want_acks else _SYN_RST) & ~_SYN_BAD
    chosen = np.flatnonzero(keep[flags])
    parts = []
    if len(chosen):
        tcp = tcp[chosen]
        out = _rows(batch, rows[tcp], version, data, net[tcp], vlan[tcp])
        parts.append(_read_tcp(out, data, at[chosen], stop[chosen], found.stop[tcp], books))
    if len(icmp):
        quoted = _read_icmp(batch, data, version, rows[icmp], found.at[icmp], end[icmp], vlan[icmp])
        if len(quoted):
            parts.append(quoted)
    return parts


def _rows(batch: Batch, frames: Ints, version: int, data: Bytes, net: Ints, vlan: npt.NDArray[np.uint16]) -> Segments:
    """Rows with what the IP header says, which must have been captured whole."""
    out = np.zeros(len(frames), SEGMENT)
    out["t_ns"] = batch.t_ns[frames]
    out["frame"] = frames + batch.first_frame if batch.frames is None else batch.frames[frames]
    out["source"] = batch.source
    out["vlan"] = vlan
    out["ip_version"] = version
    out["wscale"] = ABSENT_WSCALE
    if version == 4:
        head = _window(data, net, 20)
        words = head.view(">u4")
        out["src_lo"] = words[:, 3].astype(np.uint64) | np.uint64(V4_MAPPED)
        out["dst_lo"] = words[:, 4].astype(np.uint64) | np.uint64(V4_MAPPED)
        out["ip_ident"] = head[:, 4:6].view(">u2")[:, 0]
        out["ttl"] = head[:, 8]
    else:
        head = _window(data, net, 40)
        words = head.view(">u8")
        for i, name in enumerate(("src_hi", "src_lo", "dst_hi", "dst_lo"), 1):
            out[name] = words[:, i]
        out["ip_ident"] = head.view(">u4")[:, 0] & 0x0FFFFFFF
        out["ttl"] = head[:, 7]
    return out


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
        matrix = head[syn, _HEADER:]
        matrix[np.arange(WIDTH) >= held[:, None]] = 0
        options = parse_options(matrix, held)
        out["mss"][syn] = options.mss
        out["wscale"][syn] = options.wscale
        out["tsval"][syn] = options.tsval
        out["tsecr"][syn] = options.tsecr
        out["bits"][syn] = options.bits | np.where(announced > captured, BIT_OPTIONS_CUT, 0).astype(np.uint8)
    if wrong.any():
        books.malformed += int(np.count_nonzero(wrong))
        books.syn_malformed += int(np.count_nonzero(wrong & _BARE_SYN[flags]))
        books.synack -= int(np.count_nonzero(wrong & _SYN_ACK[flags]))
        out = pick(out, ~wrong)
    return out


def _read_icmp(
    batch: Batch,
    data: Bytes,
    version: int,
    frames: Ints,
    at: Ints,
    end: Ints,
    vlan: npt.NDArray[np.uint16],
) -> Segments:
    """Errors that quote at least ports and sequence number of a TCP segment's first fragment.

    The quoted total length is that of the original packet, so what was captured alone says how far to read.
    """
    whole = at + _ICMP_HEADER + (20 if version == 4 else 40) <= end
    which = np.flatnonzero(whole)
    which = which[data[at[which]] == _UNREACHABLE[version]]
    inner, stop = at[which] + _ICMP_HEADER, end[which]
    quoted = (ipv4 if version == 4 else ipv6)(data, inner, stop, stop)
    good = np.flatnonzero((quoted.verdict == OK) & (quoted.proto == TCP) & (quoted.at + _QUOTED <= stop))
    which, inner, tcp, stop = which[good], inner[good], quoted.at[good], stop[good]
    out = _rows(batch, frames[which], version, data, inner, vlan[which])
    out["kind"] = KIND_ICMP
    out["icmp_type"] = data[at[which]]
    out["icmp_code"] = data[at[which] + 1]
    out["sport"] = be16(data, tcp)
    out["dport"] = be16(data, tcp + 2)
    out["seq"] = be16(data, tcp + 4) << 16 | be16(data, tcp + 6)
    flagged = np.flatnonzero(tcp + _TO_FLAGS <= stop)
    out["flags"][flagged] = data[tcp[flagged] + 13]
    return out


def _window(data: Bytes, at: Ints, width: int) -> Bytes:
    """(n, width) copy of the bytes at each index; zeros past the end of ``data``.

    A row a copy of ``width`` bytes, where a gather per byte would cost an index per byte.
    """
    last = len(data) - width
    if len(at) and int(at.max()) <= last:
        return np.ndarray((last + 1, width), np.uint8, data, 0, (1, 1))[at]
    near = at > last
    out = np.zeros((len(at), width), np.uint8)
    if last >= 0:
        out[~near] = np.ndarray((last + 1, width), np.uint8, data, 0, (1, 1))[at[~near]]
    tail_at = max(len(data) - width, 0)
    tail = np.zeros(2 * width, np.uint8)
    tail[: len(data) - tail_at] = data[tail_at:]
    out[near] = np.ndarray((width + 1, width), np.uint8, tail, 0, (1, 1))[at[near] - tail_at]
    return out
