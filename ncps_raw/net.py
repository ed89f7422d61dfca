"""Names, routes and addresses: the questions about the network that come before a run.

The one idea: ask the kernel, not a configuration file. Which interface a packet to the target would leave by is the
kernel's own route lookup (rtnetlink on Linux), which also knows that an address of this machine means loopback.
"""

from __future__ import annotations

import ipaddress
import socket
import struct
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ncps_capture.errors import EnvironmentFault, UsageError

_RTM_GETADDR: Final = 22
_RTM_GETROUTE: Final = 26
_NLM_F_REQUEST: Final = 1
_NLM_F_DUMP: Final = 0x300
_NLMSG_ERROR: Final = 2
_NLMSG_DONE: Final = 3
_IFA_ADDRESS: Final = 1
_IFA_LOCAL: Final = 2
_RTA_DST: Final = 1
_RTA_OIF: Final = 4


@dataclass(frozen=True)
class Target:
    """A resolved target: ``address`` is what ``connect`` takes, with port 0."""

    family: int
    address: tuple[object, ...]
    note: str | None = None

    @property
    def host(self) -> str:
        """The numeric address."""
        return str(self.address[0])


def resolve(name: str, bind: tuple[str, ...] = ()) -> Target:
    """Resolve a name or numeric address; with ``bind`` only addresses of its family count.

    IPv4 comes first where a name has both, because servers of this kind listen on IPv4 unless told otherwise.
    Raises UsageError for what does not resolve or does not fit ``bind``.
    """
    name, changed = plain_name(name)
    family = _family_of(bind[0]) if bind else socket.AF_UNSPEC
    try:
        found = socket.getaddrinfo(name, None, family, socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        with_bind = f" for an address of the family of {bind[0]}" if bind else ""
        raise UsageError(f"cannot resolve {name}{with_bind}: {reason}; give a name or address that exists") from None
    found.sort(key=lambda entry: entry[0] != socket.AF_INET)
    chosen = found[0]
    others = {str(entry[4][0]) for entry in found} - {str(chosen[4][0])}
    note = f"{name} is {chosen[4][0]} (also {', '.join(sorted(others))})" if others else None
    address = str(chosen[4][0])
    scope = chosen[4][3] if len(chosen[4]) > 3 else 0
    if ":" in address and not scope and ipaddress.ip_address(address.partition("%")[0]).is_link_local:
        raise UsageError(f"{address} is link-local: say by which interface, as in {address}%eth0")
    return Target(int(chosen[0]), tuple(chosen[4]), note or changed)


def plain_name(name: str) -> tuple[str, str | None]:
    """A target as ``getaddrinfo`` takes it, and a remark if that changed what it means.

    Brackets around an IPv6 address go, IPv4 written as ``::ffff:a.b.c.d`` becomes IPv4, and the address that means
    "any" when listening becomes this machine, which is what connecting to it does. Raises UsageError for a URL.
    """
    if "://" in name:
        raise UsageError(f"{name} is a URL: give the name or address alone, and the port with --port")
    if name.startswith("[") and name.endswith("]"):
        name = name[1:-1]
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return name, None
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return str(address.ipv4_mapped), f"{name} is the IPv4 address {address.ipv4_mapped}"
    if address.is_unspecified:
        here = "127.0.0.1" if address.version == 4 else "::1"
        return here, f"{name} as a target means this machine: {here}"
    return name, None


def bind_targets(bind: tuple[str, ...], family: int) -> tuple[str, ...]:
    """Check that each address of ``bind`` is of ``family`` and of this machine. Raises for one that is not."""
    for address in bind:
        if _family_of(address) != family:
            raise UsageError(f"cannot use source address {address}: the target is of the other IP version")
        check_bind(address)
    return bind


def check_bind(address: str) -> None:
    """Raise EnvironmentFault unless a socket can be bound to ``address`` here."""
    family = _family_of(address)
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        try:
            probe.bind((address, 0))
        except OSError as error:
            raise EnvironmentFault(
                f"cannot bind to {address}: {error.strerror}; give an address of this machine (ip addr lists them)"
            ) from None


def _family_of(address: str) -> int:
    return socket.AF_INET6 if ipaddress.ip_address(address).version == 6 else socket.AF_INET


def family_of(address: str) -> int:
    """AF_INET or AF_INET6 of a numeric address."""
    return _family_of(address)


@dataclass(frozen=True)
class Route:
    """Where packets to a target leave: the interface, and whether it is loopback."""

    interface: str
    loopback: bool


def route_to(target: Target) -> Route | None:
    """The interface by which ``target`` is reached; None where it cannot be found out."""
    host, _, scope = target.host.partition("%")
    if scope:
        return Route(scope, loopback=False)
    if ipaddress.ip_address(host).is_loopback:
        name = loopback_name()
        return Route(name, loopback=True) if name else None
    if not sys.platform.startswith("linux"):
        return None
    index = _route_index(host)
    if not index:
        return None
    name = socket.if_indextoname(index)
    return Route(name, loopback=name == loopback_name())


def loopback_name() -> str | None:
    """Name of the loopback interface: ``lo`` on Linux, ``lo0`` on macOS and the BSDs."""
    names = [name for _, name in socket.if_nameindex()]
    return next((name for name in ("lo", "lo0") if name in names), None)


def interfaces() -> list[str]:
    """Names of this machine's interfaces."""
    return [name for _, name in socket.if_nameindex()]


def _route_index(host: str) -> int:
    """Interface index of the kernel's route to ``host`` (RTM_GETROUTE of rtnetlink(7)); 0 = there is none."""
    address = ipaddress.ip_address(host)
    family = socket.AF_INET6 if address.version == 6 else socket.AF_INET
    packed = address.packed
    body = struct.pack("=BBBBBBBBI", family, len(packed) * 8, 0, 0, 0, 0, 0, 0, 0)
    body += struct.pack("=HH", 4 + len(packed), _RTA_DST) + packed
    header = struct.pack("=IHHII", 16 + len(body), _RTM_GETROUTE, _NLM_F_REQUEST, 1, 0)
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as netlink:
            netlink.settimeout(1)
            netlink.send(header + body)
            answer = netlink.recv(65536)
    except OSError:
        return 0
    if len(answer) < 28 or struct.unpack_from("=H", answer, 4)[0] == _NLMSG_ERROR:
        return 0
    return next((struct.unpack("=I", value)[0] for value in _attributes(answer[28:], (_RTA_OIF,))), 0)


def interface_of(address: str) -> str | None:
    """The interface that carries a numeric address of this machine (RTM_GETADDR of rtnetlink(7)); None if none does."""
    if is_loopback(address):
        return loopback_name()
    host, _, scope = address.partition("%")
    if scope:
        return scope
    if not sys.platform.startswith("linux"):
        return None
    wanted = ipaddress.ip_address(host).packed
    body = struct.pack("=BBBBI", family_of(host), 0, 0, 0, 0)
    header = struct.pack("=IHHII", 16 + len(body), _RTM_GETADDR, _NLM_F_REQUEST | _NLM_F_DUMP, 1, 0)
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as netlink:
            netlink.settimeout(1)
            netlink.send(header + body)
            while True:
                answer, at = netlink.recv(1 << 17), 0
                while at + 16 <= len(answer):
                    length, kind = struct.unpack_from("=IH", answer, at)
                    if kind in (_NLMSG_DONE, _NLMSG_ERROR) or length < 16:
                        return None
                    index = int(struct.unpack_from("=I", answer, at + 20)[0])
                    if wanted in _attributes(answer[at + 24 : at + length], (_IFA_ADDRESS, _IFA_LOCAL)):
                        return socket.if_indextoname(index)
                    at += (length + 3) & ~3
    except OSError:
        return None


def _attributes(data: bytes, kinds: tuple[int, ...]) -> list[bytes]:
    """Values of the netlink attributes of these kinds, the last of them first: IFA_LOCAL beats the peer's address."""
    found: dict[int, bytes] = {}
    at = 0
    while at + 4 <= len(data):
        length, kind = struct.unpack_from("=HH", data, at)
        if length < 4:
            break
        if kind in kinds:
            found[kind] = data[at + 4 : at + length]
        at += (length + 3) & ~3
    return [found[max(found)]] if found else []


def is_loopback(address: str) -> bool:
    """Whether a numeric address is of the loopback network."""
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback


def local_port_range() -> tuple[int, int]:
    """First and last port the system gives to connecting sockets."""
    try:
        low, high = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii").split()
        return int(low), int(high)
    except (OSError, ValueError):
        return 49152, 65535  # IANA's range, which other systems use


def time_wait_count() -> int | None:
    """Sockets in TIME_WAIT, IPv4 and IPv6 together (/proc/net/sockstat); None where that is not told."""
    try:
        words = Path("/proc/net/sockstat").read_text(encoding="ascii").split()
        return int(words[words.index("tw") + 1])
    except (OSError, ValueError, IndexError):
        return None


def free_port_block(count: int) -> int:
    """First of ``count`` consecutive TCP ports that nothing on 127.0.0.1 uses now. Raises EnvironmentFault if none."""
    for first in range(20_001, 32_000, 100):
        held = []
        try:
            for port in range(first, first + count):
                probe = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
                held.append(probe)
                probe.bind(("127.0.0.1", port))
            return first
        except OSError:
            continue
        finally:
            for probe in held:
                probe.close()
    raise EnvironmentFault(f"no {count} consecutive ports from 20001 to 32000 are free; end something that listens")
