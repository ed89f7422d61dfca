"""The budget: counted against a plain listing of four-tuples, and forecasts that come true where they say they do."""

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ncps_raw.budget import Machine, about, budget, forecast, plain, rate_text, run_out_ns, shortfall, warning
from ncps_raw.plan import SECOND, ClientPlan
from ncps_raw.ports import client_ports

MACHINE = Machine(2, (30_000, 30_049), reserved_ports=0, soft_files=1024, hard_files=4096)


def client(**fields: Any) -> ClientPlan:
    return ClientPlan(**{"target": "h", **fields})


@given(st.integers(1, 12), st.integers(1, 12), st.integers(0, 4), st.integers(0, 20), st.booleans())
def test_four_tuples_are_as_many_as_the_loops_use(
    threads: int, ports: int, sources: int, more: int, cross: bool
) -> None:
    plan = client(
        threads=threads,
        ports=ports,
        cross_connect=cross,
        local_port=2000,
        local_ports=threads + more,
        bind=tuple(f"10.0.0.{i}" for i in range(1, sources + 1)),
    )
    used = set()
    for loop in range(threads):
        mine = client_ports(plan, loop)
        used |= {mine.at(k) for k in range(mine.period or 0)}
    assert budget(plan, MACHINE).four_tuples == len(used)


def test_the_kernel_s_ports_meet_every_server_port_in_use() -> None:
    have = budget(client(threads=4, ports=9, bind=("10.0.0.1", "10.0.0.2")), MACHINE)
    assert (have.sources, have.local_ports, have.server_ports, have.four_tuples) == (2, 50, 4, 400)
    assert (have.first_local, have.last_local, have.kernel_chooses) == (30_000, 30_049, True)
    reserved = Machine(2, (30_000, 30_049), reserved_ports=10, soft_files=None, hard_files=None)
    assert budget(client(), reserved).local_ports == 40


def test_billions_are_counted_at_once() -> None:
    bind = tuple(f"10.{i >> 8}.{i & 255}.1" for i in range(60_000))
    have = budget(client(ports=50_000, bind=bind, cross_connect=True, local_port=1, local_ports=65_535), MACHINE)
    assert have.four_tuples == 60_000 * 50_000 * 65_535
    assert have.repeat_ns == have.four_tuples * SECOND // 10_000


@pytest.mark.parametrize(
    ("fields", "rate", "rate_is", "text"),
    [
        ({}, 10_000, "assumed", "10000/s (an example: no --rate is given)"),
        ({"rate": Fraction(750)}, 750, "asked", "750/s"),
        ({"rate": Fraction(1, 3)}, Fraction(1, 3), "asked", "0.333333/s"),
        ({"hold_ns": 10 * SECOND}, 160, "possible", "160/s (more the plan cannot make)"),
        ({"hold_ns": 10 * SECOND, "rate": Fraction(100)}, 100, "asked", "100/s"),
        ({"hold_ns": 10 * SECOND, "reconnect": False}, 10_000, "assumed", "10000/s (an example: no --rate is given)"),
    ],
)
def test_the_rate_is_named(fields: dict[str, Any], rate: Fraction, rate_is: str, text: str) -> None:
    have = budget(client(**fields), MACHINE)
    assert (have.rate, have.rate_is, rate_text(have)) == (rate, rate_is, text)


FEW: dict[str, Any] = {"threads": 1, "ports": 1, "connections": 40}
"""50 four-tuples."""


@pytest.mark.parametrize(
    ("fields", "after"),
    [
        ({"rate": Fraction(100)}, SECOND // 2),
        ({"rate": Fraction(100), "close": "rst"}, None),
        ({"rate": Fraction(100), "reconnect": False}, None),
        ({"rate": Fraction(1, 2)}, None),
        ({"rate": Fraction(50, 60)}, None),
        ({"rate": Fraction(51, 60)}, 50 * 60 * SECOND // 51),
        ({"rate": Fraction(50, 60), "hold_ns": 2 * SECOND}, 60 * SECOND),
    ],
)
def test_ports_in_time_wait_run_out_at_a_rate(fields: dict[str, Any], after: int | None) -> None:
    plan = client(**FEW, **fields)
    assert run_out_ns(plan, budget(plan, MACHINE)) == after


@given(
    st.integers(1, 60),
    st.fractions(Fraction(1, 2), Fraction(50), max_denominator=8),
    st.integers(0, 5),
    st.integers(1, 20),
)
def test_a_forecast_holds_in_a_machine_where_ports_wait(tuples: int, rate: Fraction, hold: int, time_wait: int) -> None:
    """Against connects played one by one: each holds a four-tuple for its life and for TIME_WAIT."""
    machine = Machine(1, (1, tuples), 0, None, None, time_wait_ns=time_wait * SECOND)
    plan = client(threads=1, ports=1, connections=100_000, rate=rate, hold_ns=hold * SECOND, close="fin")
    after = run_out_ns(plan, budget(plan, machine))
    free, failed_at = [Fraction(0)] * tuples, None
    for k in range(2 * tuples + 2):
        now = k / rate
        if free[k % tuples] > now:
            failed_at = now
            break
        free[k % tuples] = now + hold + time_wait
    assert (failed_at is None) == (after is None)
    if failed_at is not None:
        assert after == int(failed_at * SECOND)


@pytest.mark.parametrize(
    ("fields", "said", "warned"),
    [
        (
            {"rate": Fraction(100)},
            (
                "as long as the run if the server answers FIN with RST, as ncps server and NCPS do; else TIME_WAIT "
                "keeps each for 60 s, and at 100/s they run out after 0.5 s"
            ),
            (
                "local ports: 1 address x 50 local ports x 1 server port run out after 0.5 s at 100/s, unless the "
                "server answers FIN with RST, as ncps server and NCPS do; use more --ports, --local-ports or --bind "
                "addresses"
            ),
        ),
        (
            {"rate": Fraction(10), "duration_ns": 4 * SECOND},
            "as long as the run of 4 s: they would run out after 5 s",
            None,
        ),
        ({"rate": Fraction(1, 2)}, "as long as the run, even if each stays in TIME_WAIT for 60 s", None),
        ({"close": "rst"}, "as long as the run: closed with RST, a port is free again at once", None),
        (
            {},
            (
                "as long as the run if the server answers FIN with RST, as ncps server and NCPS do; else TIME_WAIT "
                "keeps each for 60 s, and at 10000/s (an example: no --rate is given) they run out after 0.005 s"
            ),
            None,
        ),
        (
            {"connections": 51},
            "at most 50 of 51 connections can be open at once; use more --ports, --local-ports or --bind addresses",
            (
                "local ports: 1 address x 50 local ports x 1 server port = 50 four-tuples: at most 50 of 51 "
                "connections can be open at once; use more --ports, --local-ports or --bind addresses"
            ),
        ),
    ],
)
def test_what_a_person_is_told(fields: dict[str, Any], said: str, warned: str | None) -> None:
    plan = client(**FEW | fields)
    have = budget(plan, MACHINE)
    assert (forecast(plan, have), warning(plan, have)) == (said, warned)


def test_ports_of_the_plan_that_may_run_out_are_worth_a_warning_without_a_rate() -> None:
    plan = client(threads=1, ports=1, connections=10, local_port=2000, local_ports=10)
    assert (warning(plan, budget(plan, MACHINE)) or "").startswith(
        "local ports: 1 address x 10 local ports x 1 server port"
    )


def test_a_rate_that_so_many_connections_cannot_make() -> None:
    plan = client(rate=Fraction(1000), hold_ns=10 * SECOND)
    assert shortfall(plan) == (
        "1000 connects a second that live for 10 s need 10000 connections, not 1600: use more --connections"
    )
    for fields in (
        {"hold_ns": 10 * SECOND, "duration_ns": SECOND},
        {"hold_ns": 10 * SECOND, "connections": 10_000},
        {"hold_ns": 10 * SECOND, "reconnect": False},
        {"hold_ns": 0},
    ):
        assert shortfall(client(rate=Fraction(1000), **fields)) is None
    assert shortfall(client(hold_ns=10 * SECOND)) is None


def test_files_of_the_fullest_process() -> None:
    have = budget(client(threads=3, connections=301), MACHINE)
    assert have.files_needed == 2 * 101 + 32
    assert have.connections == 301
    few = Machine(2, (1, 65_535), 0, 64, 64)
    assert budget(client(threads=2, connections=100), few).connections == 64


@pytest.mark.parametrize(
    ("ns", "shown"),
    [(0, "0 s"), (1, "1e-09 s"), (45_171_200_000, "45.2 s"), (999_400_000_000, "999 s"), (10**18, "1000000000 s")],
)
def test_times_of_forecasts(ns: int, shown: str) -> None:
    assert about(ns) == shown


@pytest.mark.parametrize(
    ("value", "shown"), [(Fraction(10**8), "100000000"), (Fraction(1, 2), "0.5"), (Fraction(1, 10**7), "0.0000001")]
)
def test_plain_rates(value: Fraction, shown: str) -> None:
    assert plain(value) == shown


def test_advice_names_the_flags_that_were_typed() -> None:
    wish = {"target": "h", "threads": 1, "connections": 500, "local_port": 20_000, "local_ports": 10}
    for dialect, names in ((False, "--ports, --local-ports or --bind"), (True, "-np, -ncp or -b")):
        plan = ClientPlan(**wish, dialect=dialect)
        assert f"use more {names} addresses" in (warning(plan, budget(plan, MACHINE)) or "")


def test_what_is_said_before_a_run_groups_thousands() -> None:
    wish = {"target": "h", "threads": 1, "connections": 500, "rate": Fraction(10**7), "hold_ns": SECOND}
    for dialect, name in ((False, "--connections"), (True, "-N")):
        plan = ClientPlan(**wish, dialect=dialect)
        short = shortfall(plan, ",") or ""
        assert short.startswith("10,000,000 connects a second that live for 1 s need 10,000,000 connections, not 500")
        assert short.endswith(f"use more {name}")
    assert rate_text(budget(ClientPlan(**{**wish, "hold_ns": 0}), MACHINE), ",") == "10,000,000/s"
