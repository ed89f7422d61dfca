"""Pure: what a plan needs of this machine, four-tuples and files, against what the machine has.

Must not know how the machine was asked: what it has is an argument. The one idea: everything is counted by
multiplying, never by listing, so that billions of four-tuples cost as little as ten; and a forecast names the
condition under which it comes true, because whether ports stay in TIME_WAIT is for the other side to decide.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Final

from ncps_raw.limits import SPARE_FILES, clamp, most_in_a_process
from ncps_raw.plan import SECOND, ClientPlan

ASSUMED_RATE: Final = Fraction(10_000)
"""Connects a second where the plan has no rate: an example, and labelled as one."""


@dataclass(frozen=True)
class Machine:
    """What this machine has. ``time_wait_ns``: how long it keeps a port that it closed first, towards this target."""

    cores: int
    local_ports: tuple[int, int]  # first and last port that the kernel gives to connecting sockets
    reserved_ports: int  # of these, ports that it never gives
    soft_files: int | None  # descriptors of a process; None = no limit
    hard_files: int | None
    time_wait_ns: int = 60 * SECOND


@dataclass(frozen=True)
class Budget:
    """What a client plan has to spend. Four-tuples are those of all loops together, until the first comes again."""

    sources: int  # source addresses
    first_local: int
    last_local: int
    local_ports: int
    kernel_chooses: bool  # the local ports
    server_ports: int  # that each local port meets
    four_tuples: int
    rate: Fraction  # connects a second that the plan can make at most
    rate_is: str  # "asked", "assumed", or "possible": what so many connections of such a life can make
    files_needed: int  # descriptors of the fullest process
    files_soft: int | None
    files_hard: int | None
    connections: int  # as many of the plan's as files allow
    time_wait_ns: int

    @property
    def repeat_ns(self) -> int:
        """Until the first four-tuple comes again, at ``rate``."""
        return int(self.four_tuples * SECOND / self.rate)


def budget(plan: ClientPlan, machine: Machine) -> Budget:
    """Count what ``plan`` may use and needs."""
    sources = max(1, len(plan.bind))
    if plan.local_port:
        first, n = plan.local_port, plan.local_ports
        last = first + n - 1
        server_ports = plan.ports if plan.cross_connect else 1  # a local port belongs to one loop
    else:
        first, last = machine.local_ports
        n = max(0, last - first + 1 - machine.reserved_ports)
        server_ports = plan.ports if plan.cross_connect else min(plan.ports, plan.threads)
    rate, rate_is = (ASSUMED_RATE, "assumed") if plan.rate is None else (plan.rate, "asked")
    if plan.hold_ns and plan.reconnect:
        possible = Fraction(plan.connections * SECOND, plan.hold_ns)
        if possible < rate:
            rate, rate_is = possible, "possible"
    processes = plan.process_count(machine.cores)
    return Budget(
        sources=sources,
        first_local=first,
        last_local=last,
        local_ports=n,
        kernel_chooses=not plan.local_port,
        server_ports=server_ports,
        four_tuples=sources * n * server_ports,
        rate=rate,
        rate_is=rate_is,
        files_needed=most_in_a_process(plan.connections, plan.threads, processes) + SPARE_FILES,
        files_soft=machine.soft_files,
        files_hard=machine.hard_files,
        connections=clamp(plan.connections, plan.threads, processes, machine.hard_files),
        time_wait_ns=machine.time_wait_ns,
    )


def run_out_ns(plan: ClientPlan, have: Budget) -> int | None:
    """Until no four-tuple is free, at ``have.rate``, if each that was used stays in TIME_WAIT on this side.

    None = never: this side closes with RST, or connects too seldom, or not often enough in all.
    """
    if plan.close == "rst" or (not plan.reconnect and plan.connections <= have.four_tuples):
        return None
    if have.rate * (plan.hold_ns + have.time_wait_ns) <= have.four_tuples * SECOND:
        return None
    return have.repeat_ns


def forecast(plan: ClientPlan, have: Budget) -> str:
    """Whether the ports last, in one line."""
    if plan.connections > have.four_tuples:
        return f"at most {have.four_tuples} of {plan.connections} connections can be open at once; {_more(plan)}"
    if plan.close == "rst":
        return "as long as the run: closed with RST, a port is free again at once"
    after = run_out_ns(plan, have)
    seldom = f"even if each stays in TIME_WAIT for {about(have.time_wait_ns)}"
    if after is None:
        return f"as long as the run, {seldom}"
    if plan.duration_ns is not None and plan.duration_ns <= after:
        return f"as long as the run of {about(plan.duration_ns)}: they would run out after {about(after)}"
    return (
        f"as long as the run if the server answers FIN with RST, as ncps server and NCPS do; else TIME_WAIT keeps each "
        f"for {about(have.time_wait_ns)}, and at {rate_text(have)} they run out after {about(after)}"
    )


def warning(plan: ClientPlan, have: Budget) -> str | None:
    """What a person should hear before the run: ports that cannot last, or may not. None = nothing."""
    counted = counted_text(have)
    if plan.connections > have.four_tuples:
        return f"local ports: {counted} = {have.four_tuples} four-tuples: {forecast(plan, have)}"
    after = run_out_ns(plan, have)
    foreseeable = plan.rate is not None or not have.kernel_chooses
    if after is None or not foreseeable or (plan.duration_ns is not None and plan.duration_ns <= after):
        return None
    at = rate_text(have, ",")
    return (
        f"local ports: {counted} run out after {about(after)} at {at}, unless the server answers FIN with "
        f"RST, as ncps server and NCPS do; {_more(plan)}"
    )


def shortfall(plan: ClientPlan, grouped: str = "") -> str | None:
    """Why the rate asked for cannot be reached whatever the target does; None = it can. ``grouped`` as of ``plain``."""
    if plan.rate is None or not plan.hold_ns or not plan.reconnect:
        return None
    alive = plan.hold_ns if plan.duration_ns is None else min(plan.hold_ns, plan.duration_ns)
    needed = -(-plan.rate * alive // SECOND)
    if needed <= plan.connections:
        return None
    return (
        f"{plain(plan.rate, grouped)} connects a second that live for {about(plan.hold_ns)} need {needed:{grouped}} "
        f"connections, not {plan.connections:{grouped}}: use more {'-N' if plan.dialect else '--connections'}"
    )


def counted_text(have: Budget) -> str:
    """The factors of the number of four-tuples."""
    factors = ((have.sources, "address"), (have.local_ports, "local port"), (have.server_ports, "server port"))
    return " x ".join(plural(n, noun) for n, noun in factors)


def plural(n: int, noun: str) -> str:
    """``1 port``, ``2 ports``, ``2 addresses``."""
    return f"{n} {noun}" if n == 1 else f"{n} {noun}{'es' if noun.endswith('s') else 's'}"


def rate_text(have: Budget, grouped: str = "") -> str:
    """The rate, and where it comes from unless it was asked for."""
    why = {"asked": "", "assumed": " (an example: no --rate is given)", "possible": " (more the plan cannot make)"}
    return f"{plain(have.rate, grouped)}/s{why[have.rate_is]}"


def plain(value: Fraction, grouped: str = "") -> str:
    """Never an exponent: a whole number, or 6 significant digits. With ``grouped`` a comma, thousands are apart."""
    if value.denominator == 1:
        return f"{value.numerator:{grouped}}"
    return f"{Decimal(f'{float(value):.6g}'):{grouped}f}"


def about(ns: int) -> str:
    """Seconds, as exact as a forecast deserves: three digits and more only before the point."""
    seconds = Fraction(ns, SECOND)
    return f"{float(seconds):.3g} s" if seconds < 1000 else f"{round(seconds)} s"


def _more(plan: ClientPlan) -> str:
    names = ("-np", "-ncp", "-b") if plan.dialect else ("--ports", "--local-ports", "--bind")
    return "use more {}, {} or {} addresses".format(*names)
