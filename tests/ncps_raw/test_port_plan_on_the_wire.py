"""The port plan of NCPS's documentation, seen in the packets of real runs."""

from pathlib import Path

import dpkt
import pytest
from running import run, serving

pytestmark = [pytest.mark.capture, pytest.mark.usefixtures("scratch")]

SERVER, PORTS, THREADS = 20_000, 100, 3
LOCAL = (range(30_000, 30_014), range(30_014, 30_027), range(30_027, 30_040))
"""Forty local ports over three threads: contiguous, the first (40 mod 3) threads get one more."""


def syns(path: Path) -> list[tuple[int, int]]:
    """(client port, server port) of every SYN, in the order of the wire."""
    found = []
    with path.open("rb") as file:
        for _, frame in dpkt.pcap.Reader(file):
            tcp = dpkt.ethernet.Ethernet(frame).data.data
            if tcp.flags & (dpkt.tcp.TH_SYN | dpkt.tcp.TH_ACK) == dpkt.tcp.TH_SYN:
                found.append((tcp.sport, tcp.dport))
    return found


def on_the_wire(tmp_path: Path, connections: int, *more: str) -> list[tuple[int, int]]:
    saved = tmp_path / "x.pcap"
    with serving(SERVER, "-b", "127.0.0.1", "-r", str(THREADS), "--ports", str(PORTS)):
        code, _, err = run(
            *("client", "127.0.0.1", "-p", str(SERVER), "--ports", str(PORTS), "-r", str(THREADS), "-M", "0", "-q"),
            *("-N", str(connections), "-P", "60", "--no-reconnect", "-t", "20s", "-w", str(saved), *more),
        )
    assert code == 0, err
    seen = syns(saved)
    assert len(seen) == connections, err
    return seen


def test_without_cross_connect_each_thread_keeps_to_one_server_port(tmp_path: Path) -> None:
    seen = on_the_wire(tmp_path, 3 * 13, "--local-port", "30000", "--local-ports", "40")
    for thread, block in enumerate(LOCAL):
        mine = [pair for pair in seen if pair[0] in block]
        assert mine == [(block[i], SERVER + thread) for i in range(13)]


def test_with_cross_connect_server_ports_run_inside_and_local_ports_outside(tmp_path: Path) -> None:
    seen = on_the_wire(tmp_path, 3 * 1300, "--local-port", "30000", "--local-ports", "40", "--cross-connect")
    assert len(set(seen)) == len(seen)
    for block in LOCAL:
        mine = [pair for pair in seen if pair[0] in block]
        assert mine == [(block[i // PORTS], SERVER + i % PORTS) for i in range(1300)]


def test_where_the_system_chooses_local_ports_server_ports_are_used_in_turn(tmp_path: Path) -> None:
    seen = on_the_wire(tmp_path, 3 * 200, "--cross-connect")
    counts = [sum(pair[1] == SERVER + i for pair in seen) for i in range(PORTS)]
    assert counts == [6] * PORTS


def test_the_ports_used_round_are_marked_from_then_on(tmp_path: Path) -> None:
    with serving(SERVER, "-b", "127.0.0.1", "-r", str(THREADS), "--ports", str(PORTS)):
        code, out, err = run(
            *("-c", "127.0.0.1", "-bp", str(SERVER), "-np", str(PORTS), "-r", "3", "-M", "0", "-N", "30", "-P", "30"),
            *("-bcp", "30000", "-ncp", "40", "-t", "1", "-i", "0.25", "--no-capture"),
        )
    assert code == 0, err
    rows = out.split("\n\n")[0].splitlines()[1:]
    assert len(rows) >= 3
    assert all(row.endswith(" REP") for row in rows[1:])
