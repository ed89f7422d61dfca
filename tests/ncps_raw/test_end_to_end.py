"""Whole runs as a person makes them: server, client and capture as processes, judged by what they print and leave."""

import os
import signal
import socket
import subprocess
import sys
import time
from itertools import count
from pathlib import Path

import pytest
from running import (
    NCPS,
    NO_CAPTURE_RIGHTS,
    alive,
    capturing,
    children,
    finish,
    report,
    run,
    serving,
    start,
    time_waits,
    until,
)

pytestmark = pytest.mark.usefixtures("scratch")

PORTS = count(24_001, 10)


@pytest.fixture
def port() -> int:
    return next(PORTS)


def books_balance(figures: dict) -> None:
    assert figures["attempted"] == figures["established"] + figures["failed"] + figures["unfinished"]
    assert figures["problems"] == []


# ---- clean runs ------------------------------------------------------------------------------------------------


@pytest.mark.capture
@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
@pytest.mark.parametrize("mode", ["0", "1"])
def test_a_thousand_clean_connections_agree_everywhere(port: int, host: str, mode: str) -> None:
    with serving(port, "-b", host) as server:
        code, out, err = run(
            *("client", host, "-p", str(port), "-r", "2", "-N", "1000", "-P", "50", "--no-reconnect"),
            *("-M", mode, "--capture", "--format", "json"),
        )
        served = server.stop()
    assert (code, err) == (0, "")
    made = report(out)
    books_balance(made)
    books_balance(served)
    assert made["attempted"] == made["established"] == made["connections"] == served["established"] == 1000
    assert made["rtt_source"] == "wire"
    assert made["matched_share"] == 1.0
    assert made["rtt_unknown"] == 0
    assert made["dropped_by_capture"] == 0
    assert made["syn_retrans"] == made["synack_retrans"] == made["syn_repeats"] == 0
    assert made["syn_rtt_us"]["n"] == made["path_rtt_us"]["n"] == 1000
    assert made["capture"]["books"]["attempts"] == made["capture"]["claimed"] == 1000
    assert made["rx_gbps"] is not None
    assert time_waits(port, port + 1) == []


@pytest.mark.capture
def test_wire_time_lies_within_the_applications_time(port: int) -> None:
    with serving(port, "-b", "127.0.0.1"):
        code, out, _ = run(
            *("client", "127.0.0.1", "-p", str(port), "-r", "2", "-N", "50", "--no-reconnect"),
            *("--capture", "--format", "json"),
        )
    figures = report(out)
    assert code == 0
    assert figures["overhead_before_us"]["n"] == figures["overhead_after_us"]["n"] == 50
    assert figures["overhead_before_us"]["min"] >= 0
    assert figures["syn_rtt_us"]["max"] <= figures["connect_us"]["max"]


@pytest.mark.capture
def test_the_demo_shows_rows_and_a_joined_report() -> None:
    code, out, err = run("demo", "-t", "1s")
    assert code == 0, err
    assert "Traceback" not in err
    assert "wire" in out
    assert "handshake found for" in out


def test_without_the_right_to_capture_the_run_goes_on_and_says_what_would_help(port: int) -> None:
    with serving(port, "-b", "127.0.0.1"):
        code, out, err = run(
            *("client", "127.0.0.1", "-p", str(port), "-r", "2", "-N", "20", "--no-reconnect", "--format", "json"),
            before=NO_CAPTURE_RIGHTS if os.geteuid() == 0 else (),
        )
    figures = report(out)
    assert code == 0
    assert len(err.splitlines()) == 1
    assert "setcap" in err or "sudo" in err
    assert figures["rtt_source"] == "kernel"
    assert figures["established"] == 20
    assert figures["capture"] is None
    assert figures["dropped_by_capture"] is None
    assert figures["matched_share"] is None


def test_a_capture_that_must_work_and_cannot_is_refused(port: int) -> None:
    code, out, err = run(
        *("client", "127.0.0.1", "-p", str(port), "-t", "1s", "--capture", "--format", "json"),
        before=NO_CAPTURE_RIGHTS if os.geteuid() == 0 else (),
    )
    assert code == 3
    assert len(err.splitlines()) == 1
    assert set(report(out)) == {"error"}


# ---- ends ------------------------------------------------------------------------------------------------------


@pytest.mark.capture
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupt_drains_reports_and_leaves_nothing(port: int, number: signal.Signals) -> None:
    with serving(port, "-b", "127.0.0.1") as server:
        client = start(
            *("client", "127.0.0.1", "-p", str(port), "-r", "2", "-N", "50", "-i", "0.1", "--capture"),
            *("--format", "jsonl"),
            start_new_session=True,
        )
        assert client.stdout is not None
        for _ in range(3):
            assert '"interval"' in client.stdout.readline()
        family = children(client.pid)
        assert len(family) >= 2
        os.killpg(client.pid, number)  # a terminal sends it to the whole group
        code, out, err = finish(client)
        served = server.stop()
    assert code == 0, err
    figures = report(out.splitlines()[-1])
    assert figures["interrupted"] == number.name
    books_balance(figures)
    assert figures["rtt_source"] == "wire"
    assert figures["matched_share"] == 1.0
    assert served["established"] == figures["established"] + figures["unfinished"]
    assert not any(alive(pid) for pid in family)
    assert time_waits(port, port + 1) == []


@pytest.mark.capture
def test_the_run_survives_its_capture_process(port: int) -> None:
    with serving(port, "-b", "127.0.0.1"):
        client = start(
            *("client", "127.0.0.1", "-p", str(port), "-r", "2", "-N", "20", "-i", "0.1", "--capture"),
            *("--format", "jsonl"),
        )
        assert client.stdout is not None
        for _ in range(5):
            client.stdout.readline()
        pid = until(lambda: capturing(client.pid), "the capture process holds a packet socket")
        os.kill(pid, signal.SIGKILL)
        until(lambda: '"kernel"' in client.stdout.readline(), "rows with the kernel's figures")
        client.send_signal(signal.SIGINT)
        code, out, err = finish(client)
    assert code == 3, err  # --capture asked for a measurement on the wire, and it is not whole
    assert len(err.splitlines()) == 1
    assert "the capture process has ended" in err
    figures = report(out.splitlines()[-1])
    assert figures["attempted"] == figures["established"] + figures["failed"] + figures["unfinished"]
    first, *share = figures["problems"]
    assert "signal 9" in first
    assert all("are unknown" in problem for problem in share)  # said too where it is more than a tenth
    assert figures["rtt_unknown"] > 0
    assert figures["capture"]["died"] is not None
    assert figures["dropped_by_capture"] is None
    assert figures["established"] > 0


def test_a_lost_worker_is_a_problem_and_no_success(port: int) -> None:
    with serving(port, "-b", "127.0.0.1"):
        client = start(
            *("client", "127.0.0.1", "-p", str(port), "-r", "2", "--processes", "2", "-N", "20", "-i", "0.1"),
            *("--no-capture", "--format", "jsonl"),
        )
        assert client.stdout is not None
        client.stdout.readline()
        os.kill(children(client.pid)[0], signal.SIGKILL)
        until(lambda: "interval" in client.stdout.readline(), "the other worker goes on")
        client.send_signal(signal.SIGINT)
        code, out, err = finish(client)
    assert code == 1
    assert "signal 9" in err
    assert "signal 9" in report(out.splitlines()[-1])["problems"][0]


def test_a_reader_that_leaves_ends_the_run(port: int) -> None:
    with serving(port, "-b", "127.0.0.1"):
        client = start("client", "127.0.0.1", "-p", str(port), "-r", "2", "-N", "5", "-i", "0.1", "--no-capture")
        assert client.stdout is not None
        client.stdout.readline()
        client.stdout.close()
        client.stdout = None
        assert client.wait(60) == 1
        assert client.stderr is not None
        assert client.stderr.read() == ""


def test_nothing_starts_when_the_time_is_up_however_late_the_parent_is(port: int) -> None:
    with serving(port, "-b", "127.0.0.1"):
        client = start(
            *("client", "127.0.0.1", "-p", str(port), "-r", "2", "-N", "10", "-t", "1s", "-i", "0.1"),
            *("--no-capture", "--format", "jsonl"),
        )
        assert client.stdout is not None
        client.stdout.readline()
        family = children(client.pid)
        client.send_signal(signal.SIGSTOP)
        until(lambda: all(sleeping(pid) for pid in family), "the workers have ended their load by themselves")
        client.send_signal(signal.SIGCONT)
        code, out, _ = finish(client)
    figures = report(out.splitlines()[-1])
    assert code == 0
    assert figures["established"] - figures["connections"] + figures["connections_late"] <= 10
    assert figures["connections_late"] <= 10


def sleeping(pid: int) -> bool:
    """Whether a worker has ended, or does nothing any more for a tenth of a second."""
    try:
        before = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        time.sleep(0.1)
        after = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return True
    return after[0] == "Z" or before[11:13] == after[11:13]


def test_an_interrupt_before_the_load_began_is_no_fault(port: int) -> None:
    """Until the report of a run without connections there is a moment between the handlers and the start line."""
    for delay_s in (0.2, 0.3, 0.4, 0.5, 0.6):
        client = start("client", "127.0.0.1", "-p", str(port), "-r", "2", "-N", "4", "--no-capture", "--format", "json")
        try:
            client.wait(delay_s)
        except subprocess.TimeoutExpired:
            client.send_signal(signal.SIGINT)
        code, out, err = finish(client)
        if code == 130:  # before the program had its handlers
            assert (out, err) == ("", "")
            continue
        figures = report(out)
        assert figures["problems"] == []
        assert figures["interrupted"] == "SIGINT"
        assert code == (1 if figures["attempted"] else 0)  # nobody listens: what was attempted has failed


@pytest.mark.capture
@pytest.mark.namespaces
def test_a_capture_asked_for_that_saw_nothing_is_no_success(port: int) -> None:
    script = (
        "ip link set lo up; ip link add v0 type veth peer name v1; ip link set v0 up; ip link set v1 up;"
        f"{NCPS} server -b 127.0.0.1 -p {port} -r 1 -q > /dev/null & "
        f"until grep -q ':{port:04X} 00000000:0000 0A' /proc/net/tcp; do :; done; "
        f"{NCPS} client 127.0.0.1 -p {port} -r 1 -N 20 --no-reconnect --interface v0 --format json; "
        "echo $? >&2; kill $!; wait"
    )
    done = subprocess.run(
        ["unshare", "-n", "sh", "-c", script], capture_output=True, text=True, check=False, timeout=60
    )
    figures = report(done.stdout)
    assert done.stderr.split() == ["3"]
    assert figures["matched"] == 0
    assert len(figures["problems"]) == 1


def test_a_second_interrupt_leaves_at_once(port: int) -> None:
    """The drain waits up to a second for an exchange that never comes: the second interrupt does not."""
    with socket.create_server(("127.0.0.1", port)):
        client = start("client", "127.0.0.1", "-p", str(port), "--ports", "1", "-r", "1", "-N", "5", "--no-capture")
        until(lambda: len(children(client.pid)) >= 1, "a worker")
        until(lambda: "000000" and established(port) == 5, "five connections")
        family = children(client.pid)
        client.send_signal(signal.SIGINT)
        client.send_signal(signal.SIGTERM)
        code, out, err = finish(client)
    assert code == 130, (out, err)
    until(lambda: not any(alive(pid) for pid in family), "the end of all workers")


def established(port: int) -> int:
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    return sum(line.split()[2].endswith(f":{port:04X}") and line.split()[3] == "01" for line in lines)


def test_a_killed_client_leaves_no_load_behind_and_its_folder_goes_with_the_next(port: int, scratch: Path) -> None:
    with serving(port, "-b", "127.0.0.1"):
        client = start("client", "127.0.0.1", "-p", str(port), "-r", "2", "-N", "20", "-i", "0.1")
        assert client.stdout is not None
        client.stdout.readline()
        family = children(client.pid)
        client.kill()
        client.communicate()
        until(lambda: not any(alive(pid) for pid in family), "the end of workers and capture")
    assert len(list(scratch.glob("ncps-*"))) == 1  # nobody was left to remove it
    run("client", "127.0.0.1", "-p", str(port), "-r", "1", "-N", "1", "--no-reconnect", "--no-capture")
    assert list(scratch.iterdir()) == []


def test_rows_reach_a_pipe_at_once(port: int) -> None:
    with serving(port, "-b", "127.0.0.1"):
        client = start("-c", "127.0.0.1", "-bp", str(port), "-r", "2", "-N", "20", "-i", "0.1", "--no-capture")
        assert client.stdout is not None
        assert "Conn/s" in client.stdout.readline()
        assert float(client.stdout.readline().split()[5]) > 0
        client.send_signal(signal.SIGINT)
        code, out, _ = finish(client)
    assert code == 0
    assert "###REXMIT" in out


@pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="this platform has no SIGUSR1")
def test_a_signal_asks_for_totals_and_the_run_goes_on(port: int) -> None:
    with serving(port, "-b", "127.0.0.1"):
        client = start("client", "127.0.0.1", "-p", str(port), "-r", "2", "-N", "20", "-i", "0.1", "--no-capture")
        assert client.stdout is not None
        assert client.stderr is not None
        client.stdout.readline()
        client.send_signal(signal.SIGUSR1)
        assert "established" in client.stderr.readline()
        client.send_signal(signal.SIGINT)
        code, out, _ = finish(client)
    assert code == 0
    assert "Books" in out or "Whole run" in out


# ---- what goes wrong ---------------------------------------------------------------------------------------------


def test_a_refused_port_is_counted_by_errno_without_spinning(port: int) -> None:
    code, out, err = run(
        *("client", "127.0.0.1", "-p", str(port), "-r", "2", "-N", "10", "-t", "1s", "--no-capture"),
        *("--format", "json"),
    )
    figures = report(out)
    assert code == 1
    assert [line for line in err.splitlines() if "ECONNREFUSED" in line] == err.splitlines()
    assert len(err.splitlines()) == 1
    books_balance(figures)
    assert figures["established"] == 0
    error = figures["errors"][0]
    assert error["name"] == "ECONNREFUSED"
    assert error["count"] == figures["failed"] == figures["attempted"]
    assert error["first_t_ns"] <= error["last_t_ns"]
    # Two loops, ten tries a second each when nothing succeeds, and the first round: far from a spinning loop.
    assert figures["attempted"] < 200


@pytest.mark.capture
def test_a_refused_port_is_seen_on_the_wire(port: int) -> None:
    code, out, _ = run(
        *("client", "127.0.0.1", "-p", str(port), "-r", "2", "-N", "10", "-t", "0.5s", "--capture"),
        *("--format", "json"),
    )
    figures = report(out)
    assert code == 1
    assert figures["capture"]["books"]["attempts"] == figures["capture"]["books"]["refused"] == figures["attempted"]


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("client", "no-such-host.invalid", "-t", "1s"), 2, "no-such-host.invalid"),
        (("client", "127.0.0.1", "-t", "1s", "-b", "192.0.2.77"), 3, "192.0.2.77"),
        (("client", "127.0.0.1", "-t", "1s", "-b", "::1"), 2, "::1"),
        (("server", "-t", "1s", "-b", "192.0.2.77"), 3, "192.0.2.77"),
        (("client", "127.0.0.1", "-t", "1s", "--interface", "nosuchdev0"), 3, "nosuchdev0"),
        (("client", "127.0.0.1", "-t", "1s", "-o", "/nosuch/folder/out"), 3, "/nosuch/folder/out"),
    ],
)
def test_what_cannot_start_says_why_in_one_line(arguments: tuple[str, ...], code: int, words: str) -> None:
    found, out, err = run(*arguments)
    assert (found, out) == (code, "")
    assert len(err.splitlines()) == 1
    assert words in err


def test_a_port_in_use_is_named(port: int) -> None:
    with socket.create_server(("127.0.0.1", port)):
        code, out, err = run("server", "-b", "127.0.0.1", "-p", str(port), "-r", "1", "-t", "1s")
    assert (code, out) == (3, "")
    assert len(err.splitlines()) == 1
    assert str(port) in err


def test_a_file_limit_of_64_is_clamped_and_said(port: int) -> None:
    limited = ("prlimit", "--nofile=64:64")
    with serving(port, "-b", "127.0.0.1"):
        code, out, err = run(
            *("client", "127.0.0.1", "-p", str(port), "-r", "2", "--processes", "2", "-N", "200", "-t", "0.5s"),
            *("--no-capture", "--format", "json"),
            before=limited,
        )
    figures = report(out)
    assert code == 0, err
    books_balance(figures)
    assert figures["established"] > 0
    assert figures["not_started"] == 0
    assert len(err.splitlines()) == 1
    assert "200" in err
    assert "64" in err
    assert any("64" in note for note in figures["notes"])


@pytest.mark.namespaces
def test_a_range_of_50_local_ports_is_foreseen_explained_once_and_waited_out(port: int) -> None:
    script = (
        "ip link set lo up; echo 20000 20049 > /proc/sys/net/ipv4/ip_local_port_range; "
        f"{NCPS} server -b 127.0.0.1 -p {port} -r 1 --format json > /dev/null 2>&1 & "
        f"until grep -q ':{port:04X} 00000000:0000 0A' /proc/net/tcp; do :; done; "
        f"{NCPS} client 127.0.0.1 -p {port} -r 1 -N 100 --hold 200ms -t 1s --no-capture --format json; kill $!; wait"
    )
    done = subprocess.run(
        ["unshare", "-n", "sh", "-c", script], capture_output=True, text=True, check=False, timeout=60
    )
    figures = report(done.stdout)
    before, after = done.stderr.splitlines()
    assert "50 local ports" in before
    assert "at most 50 of 100 connections can be open at once" in before
    assert "EADDRNOTAVAIL" in after
    assert "50 local ports" in after
    books_balance(figures)
    assert figures["established"] >= 50
    # A try for more four times a second, not a try for every free slot at every turn.
    assert 0 < figures["not_started"] < 100
    assert [error["name"] for error in figures["errors"]] == ["EADDRNOTAVAIL"]


@pytest.mark.namespaces
def test_a_target_that_never_answers_is_said_and_has_failed(port: int) -> None:
    script = (
        "ip link set lo up; nft add table t; nft 'add chain t i { type filter hook input priority 0; }'; "
        f"nft add rule t i tcp dport {port} drop; "
        f"{NCPS} client 127.0.0.1 -p {port} --ports 1 -r 1 -N 5 -t 0.5s --no-capture --format json"
    )
    done = subprocess.run(
        ["unshare", "-n", "sh", "-c", script], capture_output=True, text=True, check=False, timeout=60
    )
    figures = report(done.stdout)
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert "no answer from 127.0.0.1 to 5 connects" in done.stderr
    books_balance(figures)
    assert (figures["established"], figures["unfinished"]) == (0, 5)


@pytest.mark.capture
@pytest.mark.namespaces
def test_a_full_disk_ends_the_saved_packets_and_not_the_measurement(port: int, tmp_path: Path) -> None:
    with serving(port, "-b", "127.0.0.1"):
        script = (
            f"mount -t tmpfs -o size=64k none {tmp_path} && "
            f"{NCPS} client 127.0.0.1 -p {port} -r 2 -N 1000 -P 50 --no-reconnect --format json -w {tmp_path}/x.pcap"
        )
        done = subprocess.run(
            ["unshare", "-m", "sh", "-c", script],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
            env={**os.environ, "TMPDIR": "/dev/shm"},
        )
    figures = report(done.stdout)
    assert done.returncode == 3  # -w was asked for, and the file is not whole
    assert len(done.stderr.splitlines()) == 1
    assert "No space left on device" in done.stderr
    assert figures["matched_share"] == 1.0
    assert figures["syn_rtt_us"]["n"] == 1000
    assert any("No space left on device" in note for note in figures["notes"])


def test_a_server_at_its_file_limit_says_so_and_its_books_balance(port: int) -> None:
    with serving(port, "-b", "127.0.0.1", before=("prlimit", "--nofile=64:64")) as server:
        code, out, _ = run(
            *("client", "127.0.0.1", "-p", str(port), "-r", "2", "-N", "200", "--hold", "2s", "-t", "0.5s"),
            *("--no-capture", "--format", "json"),
        )
        served = server.stop()
    assert code == 0
    books_balance(report(out))
    books_balance(served)
    assert served["not_started"] > 0
    assert "EMFILE" in [error["name"] for error in served["errors"]]


def test_one_file_for_two_purposes_is_refused(port: int, tmp_path: Path) -> None:
    code, out, err = run("client", "127.0.0.1", "-o", str(tmp_path / "x"), "-w", str(tmp_path / "x"), "-t", "1s")
    assert (code, out) == (2, "")
    assert len(err.splitlines()) == 1


def test_the_module_is_the_same_program() -> None:
    done = subprocess.run([sys.executable, "-m", "ncps_raw", "--version"], capture_output=True, text=True, check=False)
    assert done.stdout == run("--version")[1]
