"""Modes, paces, rates and socket options from the plan to the report: whole runs, and what reaches the engines."""

import socket
from dataclasses import replace
from fractions import Fraction

import pytest
from loads import SECOND, client, echo, free_ports, peer
from running import report, run, serving

from ncps_raw import limits, session
from ncps_raw.client import prepare as prepare_client
from ncps_raw.conversation import CLIENT_MODES, SERVER_MODES
from ncps_raw.engine import base
from ncps_raw.limits import FileLimit
from ncps_raw.plan import ClientPlan, Plan, ServerPlan
from ncps_raw.server import prepare as prepare_server
from ncps_raw.session import schedule_facts


@pytest.fixture
def plenty_of_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "files_for", lambda needed: FileLimit(1_000_000, None))


CLIENT = ClientPlan(target="127.0.0.1", threads=5, processes=2, connections=52)
SERVER = ServerPlan(threads=3, processes=2, ports=4, base_port=12_000, bind=("127.0.0.1",))
WISHES = {"keepalive_ns": 7 * SECOND, "shutdown": True, "busy_poll": True}


# ---- to the engines -----------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("plenty_of_files")
@pytest.mark.parametrize("mode", CLIENT_MODES)
def test_a_clients_wishes_reach_every_process(mode: str) -> None:
    rate = Fraction(7, 3)
    for task in prepare_client(replace(CLIENT, mode=mode, rate=rate, **WISHES))[1].tasks("/f"):
        setup = task.setup
        assert isinstance(setup, base.ClientSetup)
        assert (setup.mode, setup.rate, setup.all_loops) == (CLIENT_MODES[mode], rate, 5)
        assert (setup.keepalive_ns, setup.shutdown, setup.busy_poll) == tuple(WISHES.values())
    (paced, *_) = prepare_client(replace(CLIENT, mode="p", pace_ns=9))[1].tasks("/f")
    assert isinstance(paced.setup, base.ClientSetup)
    assert (paced.setup.pace_ns, paced.setup.rate) == (9, None)


@pytest.mark.usefixtures("plenty_of_files")
@pytest.mark.parametrize("mode", SERVER_MODES)
def test_a_servers_wishes_reach_every_process(mode: str) -> None:
    for task in prepare_server(replace(SERVER, mode=mode, reuse_port=True, **WISHES)).tasks("/f"):
        setup = task.setup
        assert isinstance(setup, base.ServerSetup)
        assert (setup.mode, setup.reuse_port) == (SERVER_MODES[mode], True)
        assert (setup.keepalive_ns, setup.shutdown, setup.busy_poll) == tuple(WISHES.values())
        assert {loop.ports for loop in setup.loops} == {(12_000, 12_001, 12_002, 12_003)}


@pytest.mark.parametrize("plan", [CLIENT, SERVER])
def test_without_a_rate_there_is_no_schedule(plan: Plan) -> None:
    assert schedule_facts(plan, [9] * len(base.COUNTERS)) is None


def test_what_the_workers_counted_of_a_schedule() -> None:
    counts = list(range(100, 100 + len(base.COUNTERS)))
    facts = schedule_facts(replace(CLIENT, rate=Fraction(1, 2)), counts)
    assert facts is not None
    assert (facts.per_second, facts.started, facts.due) == (0.5, counts[base.ATTEMPTED], counts[base.DUE])
    assert (facts.late, facts.held_up) == (counts[base.LATE], counts[base.HELD_UP])
    assert (facts.lag_ns, facts.lag_max_ns) == (counts[base.LAG_NS], counts[base.LAG_MAX_NS])


def test_options_that_were_refused_are_noted() -> None:
    counts = [0] * len(base.COUNTERS)
    assert session._options_refused(counts) == []
    counts[base.OPTIONS_FAILED] = 1234
    (note,) = session._options_refused(counts)
    assert "1,234 times" in note


# ---- paced rounds -------------------------------------------------------------------------------------------------


def test_first_connects_are_spread_over_a_pace() -> None:
    n, pace = 20, SECOND // 2  # 40 a second, of which the first is free
    with peer(echo) as other, client(other.port, mode="p", n=n, pace_ns=pace, hold_ns=3600 * SECOND) as running:
        running.board.until_counted(base.ESTABLISHED, n)
        records = running.stop()
    starts = sorted(records["start_ns"].tolist())
    assert len(starts) == n
    for i, start in enumerate(starts):
        assert start - starts[0] >= (i - 1) * SECOND // 40


def test_connects_that_replace_others_are_not_paced() -> None:
    with peer(echo) as other, client(other.port, mode="p", n=2, pace_ns=3600 * SECOND) as running:
        running.board.until_counted(base.ESTABLISHED, 50)
        records = running.stop()
    assert len(records) >= 50


# ---- whole runs ---------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("scratch")
@pytest.mark.parametrize("rate", ["75", "1/4"])
def test_a_schedule_is_kept_over_loops_and_processes(rate: str) -> None:
    (port,) = free_ports(1)
    typed = rate if "/" not in rate else "0.25"
    with serving(port, "-r", "1"):
        code, out, err = run(
            *("client", "127.0.0.1", "-p", str(port), "--ports", "1", "-r", "3", "--processes", "2"),
            *("--rate", typed, "-t", "2s", "--no-capture", "--format", "json"),
        )
    assert code == 0, err
    made = report(out)
    assert made["due"] == -(-2 * Fraction(rate).numerator // Fraction(rate).denominator)
    assert made["attempted"] + made["missed"] == made["due"]
    assert made["rate_asked"] == float(Fraction(rate))
    assert made["rate_achieved"] == pytest.approx(made["attempted"] / made["duration_s"])
    if made["established"]:
        assert made["response_us"]["n"] == made["service_us"]["n"] == made["connections"]
        assert made["response_us"]["max"] >= made["service_us"]["min"]
        assert made["lag_us_max"] >= int(made["lag_us_mean"])


@pytest.mark.usefixtures("scratch")
@pytest.mark.parametrize(("mode", "other"), [("p", None), ("s", "r"), ("r", "s")])
def test_each_mode_as_a_person_starts_it(mode: str, other: str | None) -> None:
    (port,) = free_ports(1)
    with serving(port, "-r", "1", *(("-M", other) if other else ())) as server:
        code, out, err = run(
            *("client", "127.0.0.1", "-p", str(port), "--ports", "1", "-r", "2", "-N", "6", "-M", mode),
            *("--hold", "100ms", "-t", "500ms", "--no-capture", "--format", "json"),
        )
        served = server.stop()
    assert code == 0, err
    made = report(out)
    assert made["problems"] == made["errors"] == served["errors"] == []
    assert made["established"] == served["established"] >= 6
    assert (made["tx_gbps"] > 0, made["rx_gbps"] > 0) == (mode in "ps", mode in "pr")
    assert made["notes"] == served["notes"] == []


@pytest.mark.usefixtures("scratch")
def test_ends_that_do_not_fit_are_told_before_two_seconds_are_over() -> None:
    (port,) = free_ports(1)
    with serving(port, "-r", "1"):
        code, out, err = run(
            *("client", "127.0.0.1", "-p", str(port), "--ports", "1", "-r", "1", "-N", "2", "-M", "r"),
            *("--hold", "1h", "-t", "2s", "--no-capture", "--format", "json"),
        )
    assert code == 0
    (note,) = report(out)["notes"]
    assert "-M s" in note
    assert note in err


def test_a_port_in_use_by_a_stopped_server_can_be_listened_on_again() -> None:
    """SO_REUSEADDR: connections in TIME_WAIT at the server's end do not keep its successor away."""
    (port,) = free_ports(1)
    for _ in range(2):
        with serving(port, "-r", "1", "--close", "fin"):
            held = socket.create_connection(("127.0.0.1", port), timeout=30)
            held.sendall(b"x")
            assert held.recv(10) == b"x"
        held.close()
