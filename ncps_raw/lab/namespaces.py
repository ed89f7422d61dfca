"""Edge: network namespaces and the devices in them, by ``ip`` and a few system calls.

It must not know rules or packets. The one idea: a namespace's name says whose it is (process number and the time
that process began), so whoever comes later can tell leftovers from living ones and removes only leftovers.
Everything that runs in a namespace of ours belongs to it and ends with it.
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ncps_capture.errors import EnvironmentFault

_FOLDER: Final = Path("/run/netns")
_NAME = re.compile(r"ncps-lab-(\d+)-(\d+)-[a-z]")
_CLONE_NEWNET: Final = 0x40000000
_IP_S: Final = 30.0
_TUNSETIFF: Final = 0x400454CA
_IFF_TUN, _IFF_TAP, _IFF_NO_PI = 0x0001, 0x0002, 0x1000


@dataclass(frozen=True)
class Side:
    """One namespace: its name, its one device to the path, and the addresses there."""

    name: str
    device: str
    ipv4: str
    ipv6: str
    mac: str


def sides(owner: int) -> tuple[Side, Side]:
    """The two namespaces of the lab that process ``owner`` keeps."""
    stem = f"ncps-lab-{owner}-{_began(owner)}"
    return (
        Side(f"{stem}-a", "wan0", "10.88.0.1", "fd88::1", "02:88:00:00:00:01"),
        Side(f"{stem}-b", "wan0", "10.88.0.2", "fd88::2", "02:88:00:00:00:02"),
    )


def check() -> None:
    """Raise EnvironmentFault, saying what would help, unless namespaces and TUN devices can be made here."""
    if not sys.platform.startswith("linux"):
        raise EnvironmentFault("cannot make a lab: network namespaces exist on Linux only")
    if shutil.which("ip") is None:
        raise EnvironmentFault("cannot make a lab: the program ip is missing; install iproute2")
    if os.geteuid() != 0:
        raise EnvironmentFault("cannot make a lab: network namespaces need root; run with sudo")
    try:
        os.close(os.open("/dev/net/tun", os.O_RDWR))
    except OSError as error:
        raise EnvironmentFault(
            f"cannot make a lab: /dev/net/tun cannot be opened: {error.strerror}; load it with modprobe tun"
        ) from None


def ip(*arguments: str, batch: str | None = None) -> None:
    """Run ``ip``; with ``batch`` it reads its commands there, one a line. EnvironmentFault if it fails."""
    command = ["ip", *arguments, *(() if batch is None else ("-batch", "-"))]
    try:
        subprocess.run(command, input=batch, check=True, capture_output=True, text=True, timeout=_IP_S)
    except FileNotFoundError:
        raise EnvironmentFault("cannot make a lab: the program ip is missing; install iproute2") from None
    except subprocess.CalledProcessError as error:
        said = " ".join(error.stderr.split()) or f"status {error.returncode}"
        raise EnvironmentFault(f"{' '.join(command)} failed: {said}; a lab needs root (sudo)") from None
    except subprocess.TimeoutExpired:
        raise EnvironmentFault(f"{' '.join(command)} did not end within {_IP_S:g} s") from None


def make(pair: tuple[Side, Side], ethernet: bool) -> tuple[int, int]:
    """Make both namespaces, a device in each, and addresses. Returns the devices' descriptors, non-blocking.

    The devices live as long as the descriptors. They are born in their namespaces, so their names meet nobody's.
    """
    descriptors: list[int] = []
    try:
        for side in pair:
            ip("netns", "add", side.name)
            with entered(side.name):
                _quiet()
                descriptors.append(_device(side.device, ethernet))
        for side, other in (pair, pair[::-1]):
            ip("-n", side.name, batch=_configuration(side, other, ethernet))
    except BaseException:
        for descriptor in descriptors:
            os.close(descriptor)
        raise
    return descriptors[0], descriptors[1]


def _quiet() -> None:
    """No router solicitations, no duplicate address detection: only what a test sends is on the path."""
    for place in ("all", "default"):
        folder = Path("/proc/sys/net/ipv6/conf", place)
        for name in ("accept_dad", "accept_ra", "router_solicitations", "dad_transmits"):
            with suppress(OSError):  # a kernel without IPv6
                (folder / name).write_text("0", encoding="ascii")


def _device(name: str, ethernet: bool) -> int:
    import fcntl  # Unix only, while this module can be imported everywhere
    import struct

    descriptor = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    kind = (_IFF_TAP if ethernet else _IFF_TUN) | _IFF_NO_PI
    try:
        fcntl.ioctl(descriptor, _TUNSETIFF, struct.pack("16sH22x", name.encode(), kind))
    except OSError as error:
        os.close(descriptor)
        raise EnvironmentFault(f"cannot make device {name}: {error.strerror}; a lab needs root (sudo)") from None
    return descriptor


def _configuration(side: Side, other: Side, ethernet: bool) -> str:
    device = side.device
    lines = ["link set lo up"]
    if ethernet:
        lines.append(f"link set {device} address {side.mac}")
    lines += [
        f"link set {device} addrgenmode none",
        # Bursts wait here and are not lost before the relay has seen them.
        f"link set {device} txqueuelen 10000",
        # Up before the addresses: the other way round IPv6 makes its routes some time later.
        f"link set {device} up",
        f"addr add {side.ipv4} peer {other.ipv4} dev {device}",
        f"addr add {side.ipv6} peer {other.ipv6} dev {device} nodad",
    ]
    if ethernet:
        lines += [
            f"neigh replace {address} lladdr {other.mac} nud permanent dev {device}"
            for address in (other.ipv4, other.ipv6)
        ]
    return "\n".join(lines) + "\n"


def remove(names: Sequence[str]) -> None:
    """End what runs in these namespaces, then remove them. What is gone already is no fault."""
    for name in names:
        if not (_FOLDER / name).exists():
            continue
        for pid in processes_in(name):
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        with suppress(EnvironmentFault):
            ip("netns", "del", name)
    left = [name for name in names if (_FOLDER / name).exists()]
    if left:
        raise EnvironmentFault(f"cannot remove network namespace {left[0]}; try: sudo ip netns del {left[0]}")


def processes_in(name: str) -> list[int]:
    """Processes that run in a namespace, this one excepted."""
    try:
        inside = (_FOLDER / name).stat()
    except OSError:
        return []
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal() or int(entry.name) == os.getpid():
            continue
        with suppress(OSError):  # it has ended meanwhile
            its = (entry / "ns" / "net").stat()
            if (its.st_dev, its.st_ino) == (inside.st_dev, inside.st_ino):
                found.append(int(entry.name))
    return found


def leftovers() -> list[str]:
    """Names of namespaces whose lab is dead."""
    try:
        names = sorted(path.name for path in _FOLDER.iterdir())
    except OSError:
        return []
    out = []
    for name in names:
        match = _NAME.fullmatch(name)
        if match and not _lives(int(match[1]), match[2]):
            out.append(name)
    return out


def sweep() -> list[str]:
    """Remove what dead labs left behind; their names."""
    names = leftovers()
    remove(names)
    return names


def _began(pid: int) -> str:
    """When a process began, in clock ticks since boot (proc_pid_stat(5), field 22); empty if there is none."""
    return _stat(pid)[19]


def _lives(pid: int, began: str) -> bool:
    # One that has ended stays in the table until its parent has asked for it, which it may never do.
    stat = _stat(pid)
    return stat[19] == began and stat[0] not in ("Z", "X")


def _stat(pid: int) -> list[str]:
    """Fields 3 and following of /proc/PID/stat."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return [""] * 50
    return text.rpartition(")")[2].split()


# ---- being in a namespace --------------------------------------------------------------------------------------


def command(name: str, argv: Sequence[str]) -> list[str]:
    """The command line that runs ``argv`` in a namespace."""
    return ["ip", "netns", "exec", name, *argv]


@contextmanager
def entered(name: str) -> Iterator[None]:
    """This thread is in the namespace meanwhile: sockets it opens belong there, and stay there afterwards."""
    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    try:
        there = os.open(_FOLDER / name, os.O_RDONLY)
        try:
            _setns(there)
        finally:
            os.close(there)
        try:
            yield
        finally:
            _setns(home)
    finally:
        os.close(home)


def _setns(descriptor: int) -> None:
    if sys.version_info >= (3, 12):
        os.setns(descriptor, _CLONE_NEWNET)
        return
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(descriptor, _CLONE_NEWNET):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def set_sysctl(name: str, key: str, value: int | str) -> None:
    """Set a network sysctl such as ``net.ipv4.tcp_timestamps`` in a namespace."""
    with entered(name):
        try:
            _sysctl_path(key).write_text(f"{value}\n", encoding="ascii")
        except OSError as error:
            raise EnvironmentFault(f"cannot set {key} to {value} in the lab: {error.strerror}") from None


def sysctl(name: str, key: str) -> str:
    """The value of a network sysctl in a namespace."""
    with entered(name):
        try:
            return _sysctl_path(key).read_text(encoding="ascii").strip()
        except OSError as error:
            raise EnvironmentFault(f"cannot read {key} in the lab: {error.strerror}") from None


def _sysctl_path(key: str) -> Path:
    return Path("/proc/sys", *key.split("."))


def device_losses(side: Side) -> int:
    """Packets that a side's device has dropped in either direction since it was made: the relay never saw them."""
    # /sys shows the namespace it was mounted in; /proc/net follows the thread.
    with entered(side.name):
        table = Path("/proc/thread-self/net/dev").read_text(encoding="ascii")
    for line in table.splitlines():
        device, _, figures = line.partition(":")
        if device.strip() == side.device:
            counts = figures.split()
            return int(counts[3]) + int(counts[11])
    raise EnvironmentFault(f"device {side.device} of the lab is gone")
