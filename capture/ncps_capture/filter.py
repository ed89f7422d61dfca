"""The BPF text of a live capture: which packets the kernel hands over. Pure.

It must not know how a capture is opened. The one idea: a *level* states which definitions a capture can support, and
what the filter keeps away is unknown to the handshake table, never zero. Offsets are written out because
``tcp[tcpflags]`` silently means IPv4.

===========  =================================================  =======================================================
level        admits besides SYN and SYN-ACK                     supports
===========  =================================================  =======================================================
``base``     RSTs of a closed port (ACK set, sequence 0),       everything but the rest of this table
             ICMP and ICMPv6 unreachable
``resets``   every RST                                          cause ``after_rst`` and refusals by middleboxes
``acks``     every RST, segments with ACK and no payload        the same, cause ``after_challenge``, third ACK
===========  =================================================  =======================================================
"""

from __future__ import annotations

from typing import Final

from ncps_capture.errors import UsageError

LEVELS: Final = ("base", "resets", "acks")

_V4_SYN: Final = "tcp[13] & 2 != 0"
_V6_SYN: Final = "ip6[53] & 2 != 0"
_V4_REFUSAL: Final = "(tcp[13] & 0x14 = 0x14 and tcp[4:4] = 0)"
_V6_REFUSAL: Final = "(ip6[53] & 0x14 = 0x14 and ip6[44:4] = 0)"
_V4_RST: Final = "tcp[13] & 4 != 0"
_V6_RST: Final = "ip6[53] & 4 != 0"
_V4_ACK: Final = "(tcp[13] & 0x10 != 0 and ip[2:2] - ((ip[0] & 0xf) << 2) = (tcp[12] & 0xf0) >> 2)"
_V6_ACK: Final = "(ip6[53] & 0x10 != 0 and ip6[4:2] = (ip6[52] & 0xf0) >> 2)"

_V4: Final = {"base": (_V4_SYN, _V4_REFUSAL), "resets": (_V4_SYN, _V4_RST), "acks": (_V4_SYN, _V4_RST, _V4_ACK)}
_V6: Final = {"base": (_V6_SYN, _V6_REFUSAL), "resets": (_V6_SYN, _V6_RST), "acks": (_V6_SYN, _V6_RST, _V6_ACK)}

# Both stand outside the port term: an error quotes the ports deeper than BPF looks, and behind IPv6 extension
# headers BPF finds no TCP at all. The decoder drops what is not ours.
_ERRORS: Final = "(icmp[0] = 3 and icmp[17] = 6) or (ip6[6] = 58 and ip6[40] = 1)"
_EXTENDED: Final = "(ip6 and ip6[6] != 6 and ip6[6] != 17 and ip6[6] != 58)"


def bpf_text(link_type: int, server_ports: tuple[tuple[int, int], ...], level: str, tagged: bool = True) -> str:
    """Filter for ``pcap_compile`` on a handle of this link type (LINKTYPE or DLT number).

    ``server_ports``: inclusive ranges, of which the source or the destination port must be in one; () = any port.
    On Ethernet untagged, tagged and doubly tagged frames are admitted; a VLAN term would not compile on ``any`` or
    loopback types. ``tagged=False`` leaves it out where no frame can have a tag: it makes the program three times as
    long, and every packet of the interface runs through it. Raises UsageError for an unknown level or an impossible
    range.
    """
    from ncps_capture.link import ETHERNET  # not before: whoever needs the names of levels should not wait for numpy

    if level not in LEVELS:
        raise UsageError(f"unknown capture level {level!r}: give one of {', '.join(LEVELS)}")
    tcp = f"({' or '.join(_V4[level])} or (ip6[6] = 6 and ({' or '.join(_V6[level])})))"
    ports = " or ".join(f"tcp portrange {low}-{high}" for low, high in _joined(server_ports))
    wanted = f"({tcp} and ({ports}))" if ports else tcp
    plain = f"{wanted} or {_ERRORS} or {_EXTENDED}"
    if link_type != ETHERNET or not tagged:
        return plain
    # ``vlan`` shifts every offset after it, to the end of the text: so untagged first, and each tag inside the last.
    return f"({plain}) or (vlan and (({plain}) or (vlan and ({plain}))))"


def _joined(ranges: tuple[tuple[int, int], ...]) -> list[tuple[int, int]]:
    """The same ports in as few ranges as will do: a classic BPF program has room for 4096 instructions."""
    out: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if not 0 <= low <= high <= 65535:
            raise UsageError(f"cannot capture the ports {low}-{high}: give a range inside 0-65535")
        if out and low <= out[-1][1] + 1:
            out[-1] = (out[-1][0], max(out[-1][1], high))
        else:
            out.append((low, high))
    return out
