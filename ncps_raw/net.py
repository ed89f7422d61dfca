"""Names, routes and addresses: the questions about the network that come before a run.

The one idea: ask the kernel, not a configuration file. Which interface a packet to the target would leave by is the
kernel's own route lookup (rtnetlink on Linux), which also knows that an address of this machine means loopback.
"""

from __future__ import annotations

import errno
import ipaddress
import socket
import struct
import sys
import time
from collections.abc import Sequence
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
    resolved_ns: int | None = (
        None  # how long resolving took, which is no part of any connect; None = nothing to resolve
    )

    @property
    def host(self) -> str:
        """The numeric address."""
        return str(self.address[0])


def resolve(name: str, bind: tuple[str, ...] = (), port: int = 0) -> Target:
    """Resolve a name or numeric address; with ``bind`` only addresses of its family count.

    IPv4 comes first where a name has both, because servers of this kind listen on IPv4 unless told otherwise. Where the
    name means this machine, an address on which something listens on ``port`` comes before one on which nothing does.
    Raises UsageError for what does not resolve or does not fit ``bind``.
    """
    typed = name
    name, changed = plain_name(name)
    family = _family_of(bind[0]) if bind else socket.AF_UNSPEC
    begun = time.monotonic_ns()
    try:
        found = socket.getaddrinfo(name, None, family, socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        with_bind = f" for an address of the family of {bind[0]}" if bind else ""
        raise UsageError(f"cannot resolve {name}{with_bind}: {reason}; give a name or address that exists") from None
    took = time.monotonic_ns() - begun
    if _is_numeric(name):
        address, scope = str(found[0][4][0]), found[0][4][3] if len(found[0][4]) > 3 else 0
        if ":" in address and not scope and ipaddress.ip_address(address.partition("%")[0]).is_link_local:
            raise UsageError(f"{address} is link-local: say by which interface, as in {address}%eth0")
        return Target(int(found[0][0]), tuple(found[0][4]), changed)
    candidates = list(dict.fromkeys((int(entry[0]), tuple(entry[4])) for entry in found))
    if _is_localhost(name):
        candidates += [here for here in _HERE if here not in candidates and family in (socket.AF_UNSPEC, here[0])]
    candidates.sort(key=lambda candidate: candidate[0] != socket.AF_INET)
    chosen, why = _that_listens(candidates, port)
    others = sorted({str(entry[4][0]) for entry in found} - {str(chosen[1][0])})
    note = f"{typed} is {chosen[1][0]}"
    if why:
        note += f": {why}"
    elif others:
        note += f" (also {', '.join(others)})"
    return Target(*chosen, note if why or others else None, took)


_Candidate = tuple[int, tuple[object, ...]]
"""Family and address."""

_HERE: Final[tuple[_Candidate, ...]] = (
    (int(socket.AF_INET), ("127.0.0.1", 0)),
    (int(socket.AF_INET6), ("::1", 0, 0, 0)),
)
"""What ``localhost`` may mean (RFC 6761), whatever the file of hosts says."""


def _that_listens(candidates: Sequence[_Candidate], port: int) -> tuple[_Candidate, str | None]:
    """The first candidate, or the first on which something listens if they are of this machine; and why that one."""
    if not port or len(candidates) < 2 or not all(is_loopback(str(address[0])) for _, address in candidates):
        return candidates[0], None
    silent = [candidate for candidate in candidates if _nothing_listens(candidate, port)]
    listening = [candidate for candidate in candidates if candidate not in silent]
    if not silent or not listening:
        return candidates[0], None
    return listening[0], f"nothing listens on {' or '.join(str(a[0]) for _, a in silent)} port {port}"


def _nothing_listens(candidate: _Candidate, port: int) -> bool:
    """Whether a port of this machine is free to listen on: asked without a packet, so that no server counts it."""
    family, address = candidate
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            if family == socket.AF_INET6 and hasattr(socket, "IPV6_V6ONLY"):
                probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            if sys.platform.startswith("linux"):  # elsewhere it would also pass by a listener
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # what only is in TIME_WAIT does not listen
            probe.bind((address[0], port, *address[2:]))
    except OSError as error:
        # Without rights for a low port nothing is known; without the family nobody can listen.
        return error.errno not in (errno.EADDRINUSE, errno.EACCES, errno.EPERM)
    return True


def _is_numeric(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _is_localhost(name: str) -> bool:
    return name.rstrip(".").lower() == "localhost"


def means_loopback(name: str) -> bool:
    """Whether a target as typed is this machine's loopback, without resolving anything."""
    bare = name[1:-1] if name.startswith("[") and name.endswith("]") else name
    return _is_localhost(bare) or (_is_numeric(bare) and is_loopback(bare))


def plain_name(name: str) -> tuple[str, str | None]:
    """A target as ``getaddrinfo`` takes it, and a remark if that changed what it means.

    Brackets around an IPv6 address go, IPv4 written as ``::ffff:a.b.c.d`` becomes IPv4, and the address that means
    "any" when listening becomes this machine, which is what connecting to it does. Raises UsageError for a URL.
    """
    if "://" in name:
        raise UsageError(f"{name} is a URL: give the name or address alone, and the port apart")
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
    """Raise unless a socket can be bound to ``address`` here: EnvironmentFault, or UsageError for a missing scope."""
    family = _family_of(address)
    if "%" not in address and ipaddress.ip_address(address).is_link_local and family == socket.AF_INET6:
        raise UsageError(f"{address} is link-local: say by which interface, as in {address}%eth0")
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        try:
            probe.bind(socket_address(address, 0))
        except OSError as error:
            raise EnvironmentFault(
                f"cannot bind to {address}: {error.strerror}; give an address of this machine (ip addr lists them)"
            ) from None


def socket_address(address: str, port: int) -> tuple[object, ...]:
    """What ``bind`` takes for a numeric address, with its scope (``fe80::1%eth0``). OSError for an unknown one."""
    host, _, scope = address.partition("%")
    if not scope:
        return (host, port)
    return (host, port, 0, int(scope) if scope.isdecimal() else socket.if_nametoindex(scope))


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


def reserved_ports(first: int, last: int) -> int:
    """How many of these ports the system never gives to connecting sockets (ip_local_reserved_ports)."""
    try:
        text = Path("/proc/sys/net/ipv4/ip_local_reserved_ports").read_text(encoding="ascii").strip()
    except OSError:
        return 0
    count = 0
    for part in filter(None, text.split(",")):
        low, _, high = part.partition("-")
        count += max(0, min(last, int(high or low)) - max(first, int(low)) + 1)
    return count


def time_wait_reused(loopback: bool) -> bool:
    """Whether a new connection may soon take a port in TIME_WAIT (tcp_tw_reuse: 1 always, 2 on loopback)."""
    try:
        value = int(Path("/proc/sys/net/ipv4/tcp_tw_reuse").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return False
    return value == 1 or (value == 2 and loopback)


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
