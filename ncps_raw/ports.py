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
    """Ports of one attempt. ``local`` 0 = the kernel chooses; ``again`` = the loop has used this pair before."""

    local: int
    remote: int
    again: bool


@dataclass(frozen=True)
class ClientPorts:
    """A loop's ports in the order of use; every attempt, also a failed one, moves on.

    Cross: the inner loop runs over ``remote``, the outer over ``local``. Otherwise ``remote`` holds one port and
    ``local`` advances with each attempt. After ``period`` attempts it starts again from the first pair (NCPS marks
    the rows ``REP`` from then on). Without local ports the remote ports go round and nothing counts as again.
    """

    remote: tuple[int, ...]
    local: tuple[int, ...]
    cross: bool

    @property
    def period(self) -> int | None:
        """Attempts until the first pair comes again; None where the kernel chooses the local port."""
        return len(self.remote) * len(self.local) if self.local else None

    def at(self, attempt: int) -> Pair:
        """Ports of the loop's ``attempt``-th attempt, from 0: the order, which engines walk with two indices."""
        turn, place = divmod(attempt, len(self.remote))
        if not self.local:
            return Pair(0, self.remote[place], False)
        rounds, row = divmod(turn, len(self.local))
        return Pair(self.local[row], self.remote[place], rounds > 0)


def client_ports(plan: ClientPlan, loop: int) -> ClientPorts:
    """Ports of one client loop."""
    return ClientPorts(tuple(remote_ports(plan, loop)), tuple(local_block(plan, loop)), plan.cross_connect)


def first_and_last(plan: Plan) -> tuple[int, int]:
    """The server's ports as an inclusive range: what a capture has to see."""
    return plan.base_port, plan.base_port + plan.ports - 1
