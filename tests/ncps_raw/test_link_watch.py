"""The watcher: a bell that other threads ring; its whole runs are in test_link_command.py."""

import select
import socket
import threading

from link_pairs import free_port

from ncps_raw.interrupts import Interrupts
from ncps_raw.link import meeting
from ncps_raw.link.meeting import Door
from ncps_raw.link.plan import ZEROS, LinkPlan
from ncps_raw.link.show import Show
from ncps_raw.link.sinks import Discard
from ncps_raw.link.sources import Memory
from ncps_raw.link.transfer import Transfer
from ncps_raw.link.watch import Bell, Watch


def test_a_bell_rung_often_is_heard_once_and_never_blocks() -> None:
    bell = Bell()
    for _ in range(100_000):
        bell.ring()
    assert select.select([bell.inside], [], [], 0)[0]
    bell.quiet()
    assert not select.select([bell.inside], [], [], 0)[0]
    bell.close()
    bell.ring()  # somebody is always late


def test_connections_made_while_another_lives_are_counted_with_it() -> None:
    plan = LinkPlan(sends=False, port=free_port(), bind="127.0.0.1", quiet=True)
    ended: list[Transfer] = []

    def make(plan: LinkPlan, peer: str, ring: object, most_in: int | None) -> Transfer:
        assert callable(ring)
        return Transfer(
            plan, peer, ring, make_source=lambda: Memory(ZEROS, True), make_sink=lambda: Discard(True), most_in=most_in
        )

    def finish(transfer: Transfer, cpu_s: float) -> int:
        ended.append(transfer)
        return 0

    def clients() -> None:
        socks = [socket.create_connection(("127.0.0.1", plan.port)) for _ in range(5)]
        for sock in socks:
            sock.sendall(bytes(1000))
            sock.close()

    with Show(plan, lambda: None) as show:
        watch = Watch(plan, show, Interrupts(), make, finish, Door(meeting.listen(plan), speaks_first=False))
        connecting = threading.Thread(target=clients)
        connecting.start()
        assert watch.run() == 0
        connecting.join()
    assert len(ended) == watch.served == 1
    received = ended[0].result[1]
    assert received is not None
    assert (received.bytes, received.streams) == (5000, 5)
