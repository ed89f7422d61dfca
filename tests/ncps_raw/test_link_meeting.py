"""How the ends meet."""

import os
import socket
import time

import pytest
from link_pairs import free_port
from ncps_capture.errors import EnvironmentFault
from running import until

from ncps_raw import net
from ncps_raw.link import meeting, preamble
from ncps_raw.link.meeting import Arrival, Door, NobodyThere
from ncps_raw.link.plan import LinkPlan

HERE = "127.0.0.1"


def door_on(port: int, *, speaks_first: bool = False) -> Door:
    plan = LinkPlan(sends=speaks_first, port=port, bind=HERE)
    return Door(meeting.listen(plan), speaks_first=speaks_first)


def arrivals(door: Door, count: int = 1) -> list[Arrival]:
    found: list[Arrival] = []
    until(lambda: found.extend(door.come_in(accept=True)) or len(found) >= count, "an arrival")
    return found


def test_a_plain_stream_loses_no_byte() -> None:
    port = free_port()
    door = door_on(port)
    with socket.create_connection((HERE, port)) as client:
        assert door.come_in(accept=True) == []  # it has said nothing yet
        client.sendall(b"\0ncpX")
        (arrival,) = arrivals(door)
        assert arrival.mark is None
        assert arrival.peer == meeting.name_of(client.getsockname())
        assert arrival.first is not None
        assert arrival.t_ns <= arrival.first[0] <= time.monotonic_ns()
        assert arrival.first[1] == 5
        assert arrival.sock.recv(100) == b"\0ncpX"
        arrival.sock.close()
    door.close()


def test_a_mark_is_taken_off_and_the_data_behind_it_stays() -> None:
    port = free_port()
    door = door_on(port)
    token = os.urandom(preamble.TOKEN)
    with socket.create_connection((HERE, port)) as client:
        mark = preamble.mark(preamble.DATA, token)
        client.sendall(mark[:7])
        time.sleep(0)
        assert door.come_in(accept=True) == []
        client.sendall(mark[7:] + b"data")
        (arrival,) = arrivals(door)
        assert arrival.mark == preamble.Mark(preamble.DATA, token)
        assert arrival.first is None  # the mark's bytes are not the data's
        assert arrival.sock.recv(100) == b"data"
        arrival.sock.close()
    door.close()


def test_whoever_sends_takes_silence_for_a_plain_client_after_a_while() -> None:
    port = free_port()
    door = door_on(port, speaks_first=True)
    with socket.create_connection((HERE, port)):
        until(lambda: door.come_in(accept=True) or len(door.watched()) > 1, "somebody in the door")
        patience = door.patience_ns(time.monotonic_ns())
        assert patience is not None
        assert patience <= meeting.SILENCE_NS
        (arrival,) = arrivals(door)
        assert arrival.mark is None
        assert time.monotonic_ns() - arrival.t_ns >= meeting.SILENCE_NS
        arrival.sock.close()
    door.close()


def test_one_that_is_to_send_and_does_not_is_waited_for_as_long_as_idle_allows() -> None:
    port = free_port()
    plan = LinkPlan(sends=False, port=port, bind=HERE)
    door = Door(meeting.listen(plan), speaks_first=False, idle_ns=50_000_000)
    with socket.create_connection((HERE, port)):
        until(lambda: door.come_in(accept=True) or len(door.watched()) > 1, "somebody in the door")
        patience = door.patience_ns(time.monotonic_ns())
        assert patience is not None
        assert patience <= 50_000_000
        (arrival,) = arrivals(door)
        assert arrival.silent
        assert time.monotonic_ns() - arrival.t_ns >= 50_000_000
        arrival.sock.close()
    door.close()


def test_whoever_is_turned_away_knows_it() -> None:
    """An orderly end would look like an empty transfer."""
    port = free_port()
    door = door_on(port)
    with socket.create_connection((HERE, port)) as inside, socket.create_connection((HERE, port)) as outside:
        until(lambda: door.come_in(accept=True) or len(door.watched()) > 1, "somebody in the door")
        assert len(door.turn_away()) == 2
        for client in (inside, outside):
            with pytest.raises(ConnectionResetError):
                client.recv(1)
    door.close()


def test_a_port_in_use_is_told() -> None:
    port = free_port()
    door = door_on(port)
    with pytest.raises(EnvironmentFault, match=f"cannot listen on port {port} of 127.0.0.1: Address already in use"):
        door_on(port)
    door.close()


def test_all_addresses_means_both_versions() -> None:
    port = free_port()
    with meeting.listen(LinkPlan(sends=False, port=port)) as sock:
        socket.create_connection((HERE, port)).close()
        peer, address = sock.accept()
        peer.close()
        assert meeting.name_of(address).startswith("127.0.0.1:")


def test_nobody_there_says_what_to_do() -> None:
    plan = LinkPlan(sends=True, host=HERE, port=free_port())
    with pytest.raises(NobodyThere, match="Connection refused; start ncps recv") as caught:
        meeting.connect(plan, net.resolve(HERE), lambda: False)
    assert caught.value.exit_code == 1


def test_it_waits_as_long_as_it_was_told() -> None:
    plan = LinkPlan(sends=True, host=HERE, port=free_port(), wait_ns=200_000_000)
    begin = time.monotonic_ns()
    with pytest.raises(NobodyThere, match=r"waited 0\.2 s"):
        meeting.connect(plan, net.resolve(HERE), lambda: False)
    assert time.monotonic_ns() - begin >= 200_000_000
    assert meeting.connect(plan, net.resolve(HERE), lambda: True) is None


def test_buffers_are_set_before_connecting() -> None:
    port = free_port()
    door = door_on(port)
    plan = LinkPlan(sends=True, host=HERE, port=port, sndbuf=20_000, rcvbuf=30_000)
    sock = meeting.connect(plan, net.resolve(HERE), lambda: False)
    assert sock is not None
    with sock:
        assert 20_000 <= sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) <= 40_000
        assert 30_000 <= sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) <= 60_000
        assert sock.gettimeout() is None
    door.close()


def test_names() -> None:
    assert meeting.name_of(("10.0.0.1", 5)) == meeting.name_of(("::ffff:10.0.0.1", 5, 0, 0)) == "10.0.0.1:5"
    assert meeting.name_of(("::1", 5, 0, 0)) == "[::1]:5"
