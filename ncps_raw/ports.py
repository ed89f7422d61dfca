"""Pure: who listens on and connects to which port, loop by loop. NCPS's partition, so that either end may be NCPS.

Must not know sockets, nor how many processes carry the loops: a loop is its number. The one idea: a loop's share
is a function of (plan, loop) alone, so processes need not agree on anything while they run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ncps_raw.plan import ClientPlan, Plan, ServerPlan


def split(total: int, loops: int, index: int) -> int:
    """Share of loop ``index`` when ``total`` things are split evenly: the first ``total % loops`` get one more."""
    return total // loops + (1 if index < total % loops else 0)


def server_ports(plan: ServerPlan, loop: int) -> list[int]:
    """Ports on which ``loop`` listens: every ``threads``-th from ``base_port + loop`` on."""
    return list(range(plan.base_port + loop, plan.base_port + plan.ports, plan.threads))


def remote_ports(plan: ClientPlan, loop: int) -> list[int]:
    """Server ports to which ``loop`` connects: all with ``cross_connect``, else ``loop mod ports`` alone."""
    if plan.cross_connect:
        return list(range(plan.base_port, plan.base_port + plan.ports))
    return [plan.base_port + loop % plan.ports]


def local_block(plan: ClientPlan, loop: int) -> range:
    """Local ports of ``loop``: contiguous blocks in the order of the loops. Empty if the kernel chooses."""
    if not plan.local_port:
        return range(0)
    each, more = divmod(plan.local_ports, plan.threads)
    start = plan.local_port + loop * each + min(loop, more)
    return range(start, start + split(plan.local_ports, plan.threads, loop))


class Pair(NamedTuple):
    """Ports and source of one attempt. ``local`` 0 = the kernel chooses; ``again`` = the loop has used all this before.

    ``source`` counts in the plan's source addresses.
    """

    local: int
    remote: int
    again: bool
    source: int = 0


@dataclass(frozen=True)
class ClientPorts:
    """A loop's ports in the order of use; every attempt, also a failed one, moves on.

    Cross: the inner loop runs over ``remote``, the outer over ``local``. Otherwise ``remote`` holds one port and
    ``local`` advances with each attempt. With several source addresses each attempt takes the next one, and each time
    all ports are through the sources are shifted by one, so that every pair of ports meets every source. After
    ``period`` attempts it starts again from the first (NCPS marks the rows ``REP`` from then on). Without local ports
    the rest goes round and nothing counts as again.
    """

    remote: tuple[int, ...]
    local: tuple[int, ...]
    cross: bool
    sources: int = 1  # number of source addresses
    first_source: int = 0

    @property
    def period(self) -> int | None:
        """Attempts until the first four-tuple comes again; None where the kernel chooses the local port."""
        return len(self.remote) * len(self.local) * self.sources if self.local else None

    def at(self, attempt: int) -> Pair:
        """What the loop's ``attempt``-th attempt uses, from 0: the order, which engines walk with indices."""
        turn, place = divmod(attempt, len(self.remote))
        rounds, row = divmod(turn, len(self.local) or 1)
        source = (self.first_source + row * len(self.remote) + place + rounds) % self.sources
        if not self.local:
            return Pair(0, self.remote[place], False, source)
        return Pair(self.local[row], self.remote[place], rounds >= self.sources, source)


def client_ports(plan: ClientPlan, loop: int) -> ClientPorts:
    """Ports of one client loop."""
    sources = max(1, len(plan.bind))
    remote, local = tuple(remote_ports(plan, loop)), tuple(local_block(plan, loop))
    return ClientPorts(remote, local, plan.cross_connect, sources, loop % sources)


def first_and_last(plan: Plan) -> tuple[int, int]:
    """The server's ports as an inclusive range: what a capture has to see."""
    return plan.base_port, plan.base_port + plan.ports - 1
