"""What users of such tools have reported about load, ports and limits, each with the right value.

The name in brackets says where it was reported. Whole runs as a person makes them, in namespaces where something has
to be short. Reports that a test elsewhere answers (percentiles of few samples, interval rows on a pipe, errors by
number) are not told twice.
"""

import json
import os
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from running import NCPS, report, run, serving

PORTS = count(27_001, 10)
S = 1_000_000_000


@pytest.fixture
def port() -> int:
    return next(PORTS)


def books_balance(figures: dict[str, Any]) -> None:
    assert figures["attempted"] == figures["established"] + figures["failed"] + figures["unfinished"]
    assert figures["problems"] == []


def alone(script: str, timeout_s: float = 60) -> subprocess.CompletedProcess[str]:
    """Run a script in a network namespace of its own, whose loopback is up."""
    done = subprocess.run(
        ["unshare", "-n", "sh", "-c", f"ip link set lo up; {script}"],
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout_s,
        stdin=subprocess.DEVNULL,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done


def beside_server(
    port: int, client: str, *, before: str = "", server: str = "-r 1"
) -> subprocess.CompletedProcess[str]:
    """The client's command line beside a server of the same namespace; ``before`` sets the scene."""
    return alone(
        f"{before}{NCPS} server -b 127.0.0.1 -p {port} {server} --format json > /dev/null 2>&1 & server=$!; "
        f"until grep -q ':{port:04X} 00000000:0000 0A' /proc/net/tcp; do :; done; {client}; kill $server; wait"
    )


def local_range(first: int, last: int) -> str:
    return f"echo {first} {last} > /proc/sys/net/ipv4/ip_local_port_range; "


@contextmanager
def slow_server(backlog: int, every_s: float) -> Iterator[int]:
    """A server that accepts one connection every ``every_s`` seconds behind a short queue."""
    with socket.create_server(("127.0.0.1", 0), backlog=backlog) as server:
        over = threading.Event()
        held: list[socket.socket] = []

        def accept() -> None:
            server.settimeout(0.1)
            while not over.is_set():
                try:
                    held.append(server.accept()[0])
                except TimeoutError:
                    continue
                over.wait(every_s)

        thread = threading.Thread(target=accept)
        thread.start()
        try:
            yield server.getsockname()[1]
        finally:
            over.set()
            thread.join()
            for one in held:
                one.close()


# ---- ports -------------------------------------------------------------------------------------------------


@pytest.mark.namespaces
def test_a_source_address_does_not_use_up_ports_that_another_destination_can_use(port: int) -> None:
    """[google/neper 87] Two server ports and twelve local ports are 24 connections, with a source address too."""
    done = beside_server(
        port,
        f"{NCPS} client 127.0.0.1 -b 127.0.0.1 -p {port} --ports 2 -r 1 --cross-connect -M 0 -N 24 --hold 30s "
        "--no-reconnect -t 1s --no-capture --format json",
        before=local_range(30_000, 30_011),
        server="-r 1 --ports 2",
    )
    figures = report(done.stdout)
    books_balance(figures)
    assert (figures["established"], figures["failed"]) == (24, 0), done.stderr


@pytest.mark.namespaces
def test_ports_that_ran_out_are_a_count_of_their_own_and_few_lines(port: int) -> None:
    """[grafana/k6 826, golang/go 16012, aerospike/act 46] Neither the target, nor a time-out, and few lines."""
    done = beside_server(
        port,
        f"{NCPS} client 127.0.0.1 -p {port} --ports 1 -r 1 -M 0 -N 200 --hold 400ms -t 3s --no-capture --format json",
        before=local_range(30_000, 30_049),
    )
    figures = report(done.stdout)
    books_balance(figures)
    assert [error["name"] for error in figures["errors"]] == ["EADDRNOTAVAIL"]
    assert figures["not_started"] == figures["errors"][0]["count"] > 0
    assert figures["failed"] == 0
    lines = done.stderr.splitlines()
    assert 0 < len(lines) < 20
    (line,) = [line for line in lines if "EADDRNOTAVAIL" in line]
    assert "50 local ports" in line
    assert "TIME_WAIT" in line


@pytest.mark.namespaces
def test_no_answer_is_a_time_out_and_no_lack_of_ports(port: int) -> None:
    """[golang/go 16012] A kernel that has given up says ETIMEDOUT, and that stands apart."""
    done = alone(
        "cd /proc/sys/net/ipv4; echo 0 > tcp_syn_linear_timeouts; echo 1 > tcp_syn_retries; nft add table t; "
        "nft 'add chain t i { type filter hook input priority 0; }'; "
        f"nft add rule t i tcp dport {port} drop; "
        f"{NCPS} client 127.0.0.1 -p {port} --ports 1 -r 1 -N 3 -t 4s --no-reconnect --no-capture --format json"
    )
    figures = report(done.stdout)
    books_balance(figures)
    assert [(error["name"], error["count"]) for error in figures["errors"]] == [("ETIMEDOUT", 3)]
    assert figures["not_started"] == 0
    assert done.returncode == 1


# ---- files -------------------------------------------------------------------------------------------------


def test_a_soft_limit_below_the_need_is_raised_and_said(port: int) -> None:
    """[locustio/locust 1368, tsenart/vegeta 219]"""
    with serving(port, "-b", "127.0.0.1"):
        code, out, err = run(
            *("client", "127.0.0.1", "-p", str(port), "-r", "2", "-N", "200", "-t", "0.5s", "--no-capture"),
            *("--format", "json"),
            before=("prlimit", "--nofile=64:4096"),
        )
    figures = report(out)
    assert code == 0
    books_balance(figures)
    assert figures["not_started"] == 0
    assert len([line for line in err.splitlines() if "64" in line]) == 1, err


def test_the_servers_file_limit_is_the_servers(port: int) -> None:
    """[satori-com/tcpkali 29] Both sides tell their half: one its limit, the other who was never answered."""
    with serving(port, "-b", "127.0.0.1", before=("prlimit", "--nofile=64:64")) as server:
        code, out, _ = run(
            *("client", "127.0.0.1", "-p", str(port), "-r", "1", "-N", "150", "--hold", "5s", "-t", "1s"),
            *("--no-capture", "--format", "json"),
        )
        served = server.stop()
    figures = report(out)
    assert code == 0
    books_balance(figures)
    assert "EMFILE" in [error["name"] for error in served["errors"]]
    assert any("the limit of 64 open files a process" in note for note in served["notes"])
    # The kernel completes handshakes for the server's queue: these are established, and nobody answered them.
    assert figures["established"] == 150
    assert figures["tx_gbps"] > 2 * figures["rx_gbps"] > 0


# ---- time --------------------------------------------------------------------------------------------------


@pytest.mark.capture
def test_an_accept_queue_that_overflows_shows_as_connects_over_a_second() -> None:
    """[sledge-serverless-framework 395, bcc 2636] Counts and times agree with the packets, and none is absurd."""
    with slow_server(8, 0.02) as port:
        code, out, err = run(
            *("client", "127.0.0.1", "-p", str(port), "--ports", "1", "-r", "1", "-N", "40", "-M", "0", "--hold", "9s"),
            *("--no-reconnect", "-t", "5s", "--format", "json", "--capture"),
        )
    figures = report(out)
    assert code == 0, err
    books_balance(figures)
    slow = figures["retrans_connections"]
    assert slow > 0
    assert figures["syn_retrans"] >= slow
    assert figures["syn_rtt_us"]["max"] >= 990_000
    assert 0 <= figures["syn_rtt_us"]["min"] < 900_000
    assert figures["syn_rtt_us"]["max"] < 6_000_000


@pytest.mark.namespaces
@pytest.mark.capture
def test_a_hundred_lost_first_syns_are_waited_for_together(port: int) -> None:
    """[esnet/iperf 254] Connections opened one after another would take a hundred seconds."""
    lose_firsts = (
        "nft add table t; nft 'add set t seen { type inet_service; flags dynamic; size 4096; timeout 60s; }'; "
        "nft 'add chain t i { type filter hook input priority 0; }'; "
        f"nft add rule t i tcp dport {port} 'tcp flags & (syn|ack) == syn' tcp sport != @seen "
        "add @seen '{ tcp sport }' drop; "
    )
    done = beside_server(
        port,
        f"{NCPS} client 127.0.0.1 -p {port} --ports 1 -r 1 -M 0 -N 100 --no-reconnect -t 10s --capture --format json",
        before=lose_firsts,
    )
    figures = report(done.stdout)
    books_balance(figures)
    assert (figures["established"], figures["syn_retrans"]) == (100, 100), done.stderr
    assert 990_000 <= figures["syn_rtt_us"]["min"] <= figures["syn_rtt_us"]["max"] < 1_900_000
    assert figures["duration_s"] < 3


@pytest.mark.capture
def test_a_clean_run_has_no_retransmits(port: int) -> None:
    """[Mellanox/libvma 879]"""
    with serving(port, "-b", "127.0.0.1"):
        code, out, _ = run("-c", "127.0.0.1", "-bp", str(port), "-r", "2", "-t", "1", "-sil", "--capture")
    assert code == 0
    assert "###REXMIT,rtconnpercentage:0.0000,rtperconn:0.0000" in out


@pytest.mark.parametrize("format_", ["text", "json", "ncps"])
def test_a_fifth_of_a_second_gives_finite_figures(port: int, format_: str) -> None:
    """[giltene/wrk2 138, 117]"""
    with serving(port, "-b", "127.0.0.1"):
        code, out, _ = run(
            *("client", "127.0.0.1", "-p", str(port), "-r", "2", "-t", "0.2s", "--no-capture", "--format", format_)
        )
    assert code == 0
    words = out.replace(",", " ").replace(":", " ").lower().split()
    assert not {"nan", "inf", "-inf", "-1"} & set(words), out
    if format_ == "json":
        figures = report(out)
        assert 0 < figures["cps"] < 1_000_000
        assert figures["recorded_s"] == pytest.approx(0.2, abs=0.05)


# ---- a rate --------------------------------------------------------------------------------------------------


def at_rate(port: int, rate: str, seconds: float, *more: str) -> tuple[dict[str, Any], str]:
    with serving(port, "-b", "127.0.0.1"):
        code, out, err = run(
            *("client", "127.0.0.1", "-p", str(port), "-r", "2", "--rate", rate, "-t", f"{seconds}s"),
            *("--no-capture", "--format", "json", *more),
        )
    assert code == 0, err
    figures = report(out)
    books_balance(figures)
    return figures, err


@pytest.mark.parametrize("rate", [750, 1500, 3333])
def test_a_rate_is_kept(port: int, rate: int) -> None:
    """[linkedin/rest.li 1139] 750 a second must not become 1,000 by rounding: to the connection, over any time."""
    figures, _ = at_rate(port, str(rate), 2)
    assert abs(figures["attempted"] - 2 * rate) <= max(2, rate * 0.01)


def test_less_than_one_a_second_works(port: int) -> None:
    """[esnet/iperf 1052] At 0.5/s: one at once, the next after two seconds."""
    figures, _ = at_rate(port, "0.5", 2.5)
    assert figures["attempted"] == 2


def test_a_rate_that_cannot_be_made_is_not_missed_in_silence(port: int) -> None:
    """[tsenart/vegeta 120] Ten times what any machine makes: achieved, missed and lag are told."""
    figures, err = at_rate(port, "2M", 1)
    assert figures["rate_asked"] == 2_000_000
    assert figures["rate_achieved"] < 1_000_000
    assert figures["lag_us_max"] > 0
    assert "limited by the generator" in err + json.dumps(figures)


@pytest.mark.namespaces
def test_a_stalled_path_shows_in_the_response_time(port: int) -> None:
    """[hatoo/oha 211, wg/wrk 485] One second of nothing at 100 a second: about 100 connects saw 0 to 1 s of it.

    The first SYN of each is lost while the path is shut, and sent again a second later.
    """
    shut = "nft add table t; nft 'add chain t i { type filter hook input priority 0; }'; "
    client = (
        f"{NCPS} client 127.0.0.1 -p {port} --ports 1 -r 1 -M 0 -N 1000 --rate 100 -t 4s --no-capture --format json & "
        "client=$!; sleep 1; "
        f"nft add rule t i tcp dport {port} 'tcp flags & (syn|ack) == syn' drop; sleep 1; nft flush chain t i; "
        "wait $client"
    )
    done = beside_server(port, client, before=shut)
    figures = report(done.stdout)
    books_balance(figures)
    assert abs(figures["attempted"] - 400) <= 4
    assert 60 <= figures["retrans_connections"] <= 140
    # Service and response time stand side by side; the schedule went on while the path was shut.
    assert figures["service_us"]["n"] == figures["response_us"]["n"] == figures["established"]
    assert figures["response_us"]["max"] >= 990_000
    assert figures["response_us"]["p50"] < 500_000


# ---- names and streams ---------------------------------------------------------------------------------------


@pytest.mark.namespaces
def test_a_link_local_address_needs_its_scope(port: int) -> None:
    """[esnet/iperf 406] Accepted, shown and bound."""
    done = alone(
        "ip link add v0 type veth peer name v1; ip link set v0 up; ip link set v1 up; "
        "until ip -6 addr show dev v0 scope link | grep -q inet6 && ! ip -6 addr show dev v0 | grep -q tentative; "
        "do :; done; "
        "here=$(ip -6 -o addr show dev v0 scope link | awk '{print $4}' | cut -d/ -f1); "
        f"{NCPS} server -b $here%v0 -p {port} -r 1 --format json > /dev/null 2>&1 & "
        f"until grep -q ':{port:04X} ' /proc/net/tcp6; do :; done; "
        "here=$(ip -6 -o addr show dev v0 scope link | awk '{print $4}' | cut -d/ -f1); "
        f"{NCPS} client $here%v0 -b $here%v0 -p {port} --ports 1 -r 1 -N 10 --no-reconnect -t 3s --no-capture "
        "--format json; kill $!; wait"
    )
    figures = report(done.stdout)
    books_balance(figures)
    assert figures["established"] == 10, done.stderr
    assert "%v0" in figures["target"]


def test_a_name_falls_back_to_the_family_that_answers(port: int) -> None:
    """[fortio 458] localhost may be ::1 first: where only 127.0.0.1 listens the run uses that, and says so."""
    names = socket.getaddrinfo("localhost", port, type=socket.SOCK_STREAM)
    if not {socket.AF_INET, socket.AF_INET6} <= {family for family, *_ in names}:
        pytest.skip("localhost has one family here")
    with serving(port, "-b", "127.0.0.1"):
        code, out, err = run(
            *("client", "localhost", "-p", str(port), "-r", "1", "-N", "10", "--no-reconnect", "-t", "2s"),
            *("--no-capture", "--format", "json"),
        )
    figures = report(out)
    assert code == 0, err
    assert (figures["established"], figures["failed"]) == (10, 0)
    assert "127.0.0.1" in figures["target"]
    if names[0][0] == socket.AF_INET6:
        assert "127.0.0.1" in err


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("client", "127.0.0.1", "-p", "1", "--ports", "1", "-r", "1", "-N", "1", "-t", "0.3s", "--no-capture"), 1),
        (("client", "no.such.host.invalid", "-t", "0.3s"), 2),
        (("client", "127.0.0.1", "-t", "0"), 2),
        (("server", "-b", "192.0.2.1", "-t", "0.3s"), 3),
    ],
    ids=["refused", "no such host", "usage", "foreign address"],
)
def test_machine_output_holds_nothing_else_also_on_failure(arguments: tuple[str, ...], code: int) -> None:
    """[esnet/iperf 1405, 1631]"""
    got, out, _ = run(*arguments, "--format", "json")
    assert got == code
    assert isinstance(json.loads(out), dict)


def test_an_accept_loop_at_the_limit_rests_and_recovers(port: int) -> None:
    """[yesodweb/wai 928] Below 5 % of a processor while nothing can be accepted, and back when files are free."""
    with serving(port, "-b", "127.0.0.1", before=("prlimit", "--nofile=64:64")) as server:
        held = [socket.create_connection(("127.0.0.1", port)) for _ in range(80)]
        before, begun = _cpu_s(server.process.pid), time.monotonic()
        threading.Event().wait(1.0)
        spent = (_cpu_s(server.process.pid) - before) / (time.monotonic() - begun)
        for one in held:
            one.close()
        with socket.create_connection(("127.0.0.1", port), timeout=10) as again:
            again.sendall(b"there?")
            assert again.recv(6) == b"there?"
    assert spent < 0.05


def _cpu_s(pid: int) -> float:
    """Seconds of a processor that a process and its children have used."""
    total = 0.0
    for one in (pid, *(int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split())):
        words = Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()
        total += (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")
    return total
