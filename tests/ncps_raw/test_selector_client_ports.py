"""The selector engine's client: connects that fail, local ports and source addresses, on each kind of platform."""

import errno
import socket
import sys
from collections import Counter

import pytest
from loads import (
    PLATFORMS,
    SECOND,
    become,
    client,
    free_ports,
    peer,
    server,
    to_the_end,
)
from ncps_analysis.records import (
    CLOSED,
    CONNECT_FAILED,
    NOT_STARTED,
    Connections,
)
from ncps_capture.segments import UNKNOWN

from ncps_raw.engine import base
from ncps_raw.ports import ClientPorts

HOUR = 3600 * SECOND


@pytest.fixture(params=PLATFORMS)
def platform(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    become(request.param, monkeypatch)
    return str(request.param)


def rows_of(records: Connections, outcome: int) -> Connections:
    return records[records["outcome"] == outcome]


# ---- connects that fail -------------------------------------------------------------------------------------------


def test_a_refused_connect_is_recorded_by_its_errno(platform: str) -> None:
    (port,) = free_ports(1)
    with client(port, n=5, reconnect=False) as running:
        records = running.ended()
    assert [(r["outcome"], r["error"]) for r in records] == [(CONNECT_FAILED, errno.ECONNREFUSED)] * 5
    assert (records["connected_ns"] == UNKNOWN).all()
    assert (records["lport"] > 0).all()
    assert {running.here(row) for row in records} == {"127.0.0.1"}
    counts = running.board.totals()
    assert counts[base.FAILED] == counts[base.ATTEMPTED] == 5
    assert counts[base.ESTABLISHED] == counts[base.CLOSED] == 0
    assert Counter(n for n, _ in running.board.errors) == {errno.ECONNREFUSED: 5}


def test_an_absent_server_is_waited_for_without_spinning_and_found_at_once(platform: str) -> None:
    (port,) = free_ports(1)
    with client(port, n=20) as running:
        running.board.until_counted(base.FAILED, 24)
        with server([port]):
            running.board.until_counted(base.ESTABLISHED, 100)
            records = running.stop()
    failed, good = rows_of(records, CONNECT_FAILED), rows_of(records, CLOSED)
    # A whole round fails, then pauses of 10, 20, 40, 80, 100, 100 ... ms between single tries.
    gaps = failed["start_ns"][20:] - failed["closed_ns"][19:-1]
    assert len(gaps) >= 4
    assert all(gap >= least * 1_000_000 for gap, least in zip(gaps, (10, 20, 40, 80, *[100] * 1000), strict=False))
    assert len(good) >= 100
    # Once one is established the pause is over: nobody waits for anything.
    assert running.board.most_open <= 20


def test_held_connections_do_not_keep_a_loop_from_looking_for_the_target(platform: str) -> None:
    """As many failures in a row as the loop has connections, while one of them lives for long."""
    dead = free_ports(2)
    with peer(to_the_end) as other, client([other.port, *dead], mode="0", n=2, hold_ns=HOUR) as running:
        running.board.until_counted(base.ESTABLISHED, 2)
        running.stop()
    assert running.board.total(base.FAILED) >= 2


def test_a_target_without_a_route_is_a_failed_connect(platform: str) -> None:
    """The kernel refuses the broadcast address before any SYN."""
    with client(9, n=3, reconnect=False, address=("255.255.255.255", 0)) as running:
        records = running.ended()
    assert set(records["outcome"]) == {CONNECT_FAILED}
    assert set(records["error"]) <= {errno.ENETUNREACH, errno.EACCES}


# ---- local ports and addresses ------------------------------------------------------------------------------------


def test_ports_are_used_in_the_order_of_the_plan(platform: str) -> None:
    local = free_ports(4)
    with peer(to_the_end) as one, peer(to_the_end) as two:
        order = ClientPorts((one.port, two.port), tuple(local), cross=True)
        loops = (base.ClientLoop(0, 8, 1, order),)
        with client(one.port, mode="0", hold_ns=HOUR, reconnect=False, loops=loops) as running:
            running.board.until_counted(base.ESTABLISHED, 8)
            records = running.stop()
    records = records[records["start_ns"].argsort()]
    assert [(r["lport"], r["rport"]) for r in records] == [order.at(i)[:2] for i in range(8)]
    assert [p for _, p in one.seen] == [p for _, p in two.seen] == local
    assert {running.here(row) for row in records} == {"127.0.0.1"}


LINUX = sys.platform.startswith("linux")


@pytest.mark.skipif(not LINUX, reason="all of 127.0.0.0/8 is here on Linux only")
@pytest.mark.parametrize("n_local", [0, 2, 3])
def test_source_addresses_are_used_in_the_order_of_the_plan(platform: str, n_local: int) -> None:
    """Every pair of ports from every address before anything comes again, also where their numbers share a factor."""
    local, bind = free_ports(n_local), ("127.0.0.1", "127.0.0.2", "127.0.0.3", "127.0.0.4")
    with peer(to_the_end) as one, peer(to_the_end) as two:
        order = ClientPorts((one.port, two.port), tuple(local), cross=True, sources=4, first_source=3)
        n = 4 * 2 * max(1, n_local)
        loops = (base.ClientLoop(0, n, 1, order),)
        with client(one.port, mode="0", hold_ns=HOUR, reconnect=False, loops=loops, bind=bind) as running:
            running.board.until_counted(base.ESTABLISHED, n)
            records = running.stop()
        assert running.board.total(base.WRAPPED) == (1 if local else 0)
    records = records[records["start_ns"].argsort()]
    planned = [order.at(i) for i in range(n)]
    assert [running.here(row) for row in records] == [bind[pair.source] for pair in planned]
    assert [r["rport"] for r in records] == [pair.remote for pair in planned]
    if local:
        assert [r["lport"] for r in records] == [pair.local for pair in planned]
    assert len({(running.here(r), r["lport"], r["rport"]) for r in records}) == n


def test_local_ports_go_round_and_that_is_flagged(platform: str) -> None:
    local = free_ports(3)
    with server([port := free_ports(1)[0]]):
        with client(port, n=1, local=local, reconnect=False) as running:
            running.ended()
        assert running.board.total(base.WRAPPED) == 0
        with client(port, n=1, local=local, abortive=True) as running:
            running.board.until(lambda: running.board.total(base.WRAPPED) == 1, "going round")
            running.board.until_counted(base.CLOSED, 7)
            records = running.stop()
    good = rows_of(records, CLOSED)
    assert set(good["lport"]) <= set(local)
    assert [r["lport"] for r in records[:6]] == local * 2


def test_a_local_port_in_use_is_not_started_and_not_blamed_on_the_target(platform: str) -> None:
    local = free_ports(2)
    with socket.socket() as busy, peer(to_the_end) as other:
        busy.bind(("127.0.0.1", local[0]))
        busy.listen()
        with client(other.port, mode="0", n=2, local=local, bind=("127.0.0.1",), reconnect=False) as running:
            records = running.ended()
    assert [(r["outcome"], r["error"], r["lport"]) for r in sorted(records, key=lambda r: r["start_ns"])] == [
        (NOT_STARTED, errno.EADDRINUSE, local[0]),
        (CLOSED, 0, local[1]),
    ]
    counts = running.board.totals()
    assert (counts[base.NOT_STARTED], counts[base.FAILED], counts[base.ATTEMPTED]) == (1, 0, 2)
    assert running.here(rows_of(records, CLOSED)[0]) == "127.0.0.1"


@pytest.mark.parametrize("platform", ["edges"], indirect=True)
def test_exhausted_local_ports_are_lived_with_and_taken_when_they_come_free(platform: str) -> None:
    local = free_ports(4)
    holders = [socket.socket() for _ in local[:3]]
    for holder, port in zip(holders, local[:3], strict=True):
        holder.bind(("127.0.0.1", port))
        holder.listen()
    try:
        with (
            peer(to_the_end) as other,
            client(other.port, mode="0", n=4, local=local, bind=("127.0.0.1",), hold_ns=HOUR) as running,
        ):
            running.board.until_counted(base.NOT_STARTED, 4)
            assert running.board.total(base.ESTABLISHED) == 1
            for holder in holders:
                holder.close()
            running.board.until_counted(base.ESTABLISHED, 4)
            records = running.stop()
    finally:
        for holder in holders:
            holder.close()
    waits = rows_of(records, NOT_STARTED)
    # The loop also comes back to the port that it uses itself.
    assert set(waits["error"]) <= {errno.EADDRINUSE, errno.EADDRNOTAVAIL}
    # No spinning: after a round of busy ports the loop pauses, though not between the ports of a round. The success
    # in the first round begins another one at once.
    starts = sorted(int(t) for t in waits["start_ns"])
    assert all(later - earlier >= 10_000_000 for earlier, later in zip(starts, starts[2 * len(local) :], strict=False))
    assert set(rows_of(records, CLOSED)["lport"]) == set(local)


def test_source_addresses_are_used_in_turn(platform: str) -> None:
    binds = ("127.0.0.2", "127.0.0.3", "127.0.0.4")
    with (
        peer(to_the_end) as other,
        client(other.port, mode="0", n=6, bind=binds, hold_ns=HOUR, reconnect=False) as running,
    ):
        running.board.until_counted(base.ESTABLISHED, 6)
        records = running.stop()
    assert Counter(running.here(row) for row in records) == dict.fromkeys(binds, 2)
    assert {(running.here(row), int(row["lport"])) for row in records} == set(other.seen)
    in_order = records[records["start_ns"].argsort()]
    assert [running.here(row) for row in in_order] == [*binds, *binds]


def test_failed_connects_name_the_address_they_came_from(platform: str) -> None:
    binds, local = ("127.0.0.2", "127.0.0.3"), free_ports(4)
    (dead,) = free_ports(1)
    with client(dead, n=4, bind=binds, local=local, reconnect=False) as running:
        records = running.ended()
    in_order = records[records["start_ns"].argsort()]
    assert [running.here(row) for row in in_order] == [*binds, *binds]
    assert [row["lport"] for row in in_order] == local
