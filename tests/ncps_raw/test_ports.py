"""Ports: NCPS's partition against a plain retelling of it, and what must hold for any plan."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ncps_raw.plan import ClientPlan, ServerPlan
from ncps_raw.ports import (
    ClientPorts,
    Pair,
    client_ports,
    first_and_last,
    local_block,
    remote_ports,
    server_ports,
    split,
)


@st.composite
def clients(draw: st.DrawFn, cross: bool | None = None) -> ClientPlan:
    threads = draw(st.integers(1, 40))
    ports = draw(st.integers(1, 50))
    local_ports = draw(st.integers(threads, threads + 60))
    sources = draw(st.integers(0, 6))
    return ClientPlan(
        target="192.0.2.1",
        threads=threads,
        ports=ports,
        base_port=draw(st.integers(1, 65_536 - ports)),
        local_ports=local_ports,
        local_port=draw(st.integers(1, 65_536 - local_ports)),
        cross_connect=draw(st.booleans()) if cross is None else cross,
        bind=tuple(f"10.0.0.{i + 1}" for i in range(sources)),
    )


@pytest.mark.parametrize(
    ("total", "loops", "shares"),
    [(10, 4, [3, 3, 2, 2]), (4, 4, [1, 1, 1, 1]), (1600, 3, [534, 533, 533]), (7, 1, [7])],
)
def test_split_gives_the_first_loops_one_more(total: int, loops: int, shares: list[int]) -> None:
    assert [split(total, loops, i) for i in range(loops)] == shares


@given(st.integers(0, 10**9), st.integers(1, 1024))
def test_split_loses_nothing_and_is_even(total: int, loops: int) -> None:
    shares = [split(total, loops, i) for i in range(loops)]
    assert sum(shares) == total
    assert max(shares) - min(shares) <= 1
    assert shares == sorted(shares, reverse=True)


def test_server_loops_take_every_nth_port() -> None:
    plan = ServerPlan(threads=4, ports=10, base_port=9800)
    assert server_ports(plan, 0) == [9800, 9804, 9808]
    assert server_ports(plan, 1) == [9801, 9805, 9809]
    assert server_ports(plan, 3) == [9803, 9807]


@given(st.integers(1, 64), st.integers(0, 200), st.integers(1, 60_000))
def test_server_ports_are_shared_out_completely(threads: int, more: int, base: int) -> None:
    plan = ServerPlan(threads=threads, ports=threads + more, base_port=base)
    all_ports = [port for loop in range(threads) for port in server_ports(plan, loop)]
    assert sorted(all_ports) == list(range(base, base + plan.ports))
    assert first_and_last(plan) == (min(all_ports), max(all_ports))


def test_without_cross_connect_a_loop_has_one_server_port() -> None:
    plan = ClientPlan(target="h", threads=5, ports=2, base_port=100)
    assert [remote_ports(plan, loop) for loop in range(5)] == [[100], [101], [100], [101], [100]]


def test_local_blocks_follow_each_other() -> None:
    plan = ClientPlan(target="h", threads=3, local_port=1000, local_ports=8)
    assert [local_block(plan, loop) for loop in range(3)] == [
        range(1000, 1003),
        range(1003, 1006),
        range(1006, 1008),
    ]


@given(clients())
def test_local_blocks_cover_the_range_once(plan: ClientPlan) -> None:
    blocks = [list(local_block(plan, loop)) for loop in range(plan.threads)]
    assert list(itertools.chain(*blocks)) == list(range(plan.local_port, plan.local_port + plan.local_ports))
    assert max(map(len, blocks)) - min(map(len, blocks)) <= 1


def retold(plan: ClientPlan, loop: int, turns: int) -> list[Pair]:
    """The order as nested loops, run through ``turns`` times; sources as a deck that each attempt deals from."""
    out = []
    sources = max(1, len(plan.bind))
    for turn in range(turns):
        source = (loop + turn) % sources
        for local in local_block(plan, loop):
            for remote in range(plan.ports) if plan.cross_connect else [loop % plan.ports]:
                out.append(Pair(local, plan.base_port + remote, turn >= sources, source))
                source = (source + 1) % sources
    return out


@given(clients(), st.data())
def test_order_of_attempts(plan: ClientPlan, data: st.DataObject) -> None:
    loop = data.draw(st.integers(0, plan.threads - 1))
    sources = max(1, len(plan.bind))
    expected = retold(plan, loop, sources + 2)
    ports = client_ports(plan, loop)
    assert [ports.at(k) for k in range(len(expected))] == expected
    assert ports.period == len(expected) // (sources + 2) * sources


def tuples_of(plan: ClientPlan) -> list[Pair]:
    """What all loops use until their first four-tuple comes again."""
    out = []
    for loop in range(plan.threads):
        ports = client_ports(plan, loop)
        assert ports.period is not None
        out += [ports.at(k) for k in range(ports.period)]
        again = ports.at(ports.period)
        assert (again._replace(again=False), again.again) == (ports.at(0), True)
    return out


@given(clients(cross=True))
def test_the_first_ncp_times_np_connections_are_distinct(plan: ClientPlan) -> None:
    """... from each source address, and so many more with several."""
    used = tuples_of(plan)
    sources = max(1, len(plan.bind))
    assert len(set(used)) == len(used) == sources * plan.local_ports * plan.ports
    for loop in range(plan.threads):
        ports = client_ports(plan, loop)
        first = [ports.at(k)[:2] for k in range(len(ports.local) * len(ports.remote))]
        assert len(set(first)) == len(first)  # already the pairs of ports are, whatever the source


@given(clients(cross=False))
def test_without_cross_connect_local_ports_are_distinct_until_the_wrap(plan: ClientPlan) -> None:
    used = tuples_of(plan)
    assert len({(pair.local, pair.source) for pair in used}) == len(used) == max(1, len(plan.bind)) * plan.local_ports


@given(clients())
def test_source_addresses_are_used_evenly(plan: ClientPlan) -> None:
    sources = max(1, len(plan.bind))
    for loop in range(plan.threads):
        ports = client_ports(plan, loop)
        some = [ports.at(k).source for k in range(len(ports.local) * len(ports.remote))]
        counts = [some.count(source) for source in range(sources)]
        assert max(counts) - min(counts) <= 1


@given(st.integers(1, 30), st.integers(1, 30), st.integers(1, 40), st.booleans())
def test_where_the_kernel_chooses_ports_every_source_meets_every_server_port(
    ports: int, sources: int, loop: int, cross: bool
) -> None:
    bind = tuple(f"10.0.0.{i}" for i in range(1, sources + 1))
    plan = ClientPlan(target="h", threads=loop, ports=ports, bind=bind, cross_connect=cross)
    mine = client_ports(plan, loop - 1)
    seen = {mine.at(k) for k in range(len(mine.remote) * sources)}
    assert len(seen) == len(mine.remote) * sources


def test_kernel_chosen_local_ports_never_count_as_used_again() -> None:
    ports = client_ports(ClientPlan(target="h", threads=2, ports=3, base_port=7, cross_connect=True), 1)
    assert ports == ClientPorts((7, 8, 9), (), True)
    assert ports.period is None
    assert [ports.at(k) for k in (0, 1, 2, 3, 3_000_000)] == [Pair(0, remote, False) for remote in (7, 8, 9, 7, 7)]


@given(st.integers(1, 50), st.integers(0, 5000), st.integers(0, 5000))
def test_connections_and_pending_add_up(threads: int, more_n: int, more_p: int) -> None:
    plan = ClientPlan(target="h", threads=threads, connections=threads + more_n, pending=threads + more_p)
    for total in (plan.connections, plan.pending):
        assert sum(split(total, threads, loop) for loop in range(threads)) == total
