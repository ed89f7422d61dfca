"""Helpers of the tests of ``ncps analyze``: run it in this process, and captures made by hand."""

import contextlib
import io
import json
import struct
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from ncps_raw import cli

FIXTURES = Path(__file__).parents[2] / "fixtures"
T0 = 1_700_000_000 * 10**9
CLIENT, SERVER = "192.0.2.10", "198.51.100.20"


def analyze(*arguments: str | Path) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of ``ncps analyze``."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = cli.main(["analyze", *map(str, arguments)])
    return code, out.getvalue(), err.getvalue()


def figures(*arguments: str | Path) -> dict[str, Any]:
    """The JSON report."""
    code, out, err = analyze(*arguments, "--format", "json")
    assert code == 0, err
    found: dict[str, Any] = json.loads(out)
    return found


def attempts(*arguments: str | Path) -> list[dict[str, Any]]:
    """The records of ``--connections``."""
    code, out, err = analyze(*arguments, "--connections")
    assert code == 0, err
    return [json.loads(line) for line in out.splitlines()]


def tcp(
    flags: int,
    seq: int,
    ack: int = 0,
    *,
    back: bool = False,
    sport: int = 40_000,
    dport: int = 443,
    ident: int = 1,
    ttl: int = 64,
    client: str = CLIENT,
    data: bytes = b"",
) -> bytes:
    """A raw IPv4 packet from client to server, or ``back``."""
    ends = [(bytes(map(int, client.split("."))), sport), (bytes(map(int, SERVER.split("."))), dport)]
    (src, from_port), (dst, to_port) = ends[::-1] if back else ends
    ip = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 40 + len(data), ident, 0, ttl, 6, 0, src, dst)
    return ip + struct.pack(">HHIIBBHHH", from_port, to_port, seq, ack, 0x50, flags, 1024, 0, 0) + data


def save(path: Path, packets: Iterable[tuple[int, bytes]], link_type: int = 101) -> Path:
    """A pcap file of (ns after T0, packet), times in nanoseconds."""
    whole = struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 262_144, link_type)
    for t_ns, packet in packets:
        seconds, fraction = divmod(T0 + t_ns, 10**9)
        whole += struct.pack("<IIII", seconds, fraction, len(packet), len(packet)) + packet
    path.write_bytes(whole)
    return path


def handshake(t_ns: int, rtt_ns: int = 1_000_000, isn: int = 1000, **ends: Any) -> Sequence[tuple[int, bytes]]:
    """SYN, SYN-ACK and ACK."""
    return (
        (t_ns, tcp(2, isn, **ends)),
        (t_ns + rtt_ns, tcp(0x12, 77, isn + 1, back=True, **ends)),
        (t_ns + rtt_ns + 10_000, tcp(0x10, isn + 1, 78, **ends)),
    )
