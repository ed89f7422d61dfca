"""Whole runs in NCPS's dialect: what they print is taken by both readers of NCPS's output, whatever happens to them."""

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from ncps_readers import Metrics, read_metrics, read_tables
from running import NCPS, children, finish, run, serving, start, until

pytestmark = pytest.mark.usefixtures("scratch")

PORTS = count(24_601, 10)
QUICK = ("-r", "2", "-N", "20", "-i", "0.1", "--no-capture")


@pytest.fixture
def port() -> int:
    return next(PORTS)


@pytest.fixture
def server(port: int) -> Iterator["subprocess.Popen[str]"]:
    made = start("-s", "-b", "127.0.0.1", "-bp", str(port), "-r", "2", "-i", "0.1", "--no-capture")
    until(lambda: listening(port), "the server listens")
    yield made
    if made.poll() is None:
        made.terminate()
        finish(made)


def listening(port: int) -> bool:
    return f":{port:04X} 00000000:0000 0A" in Path("/proc/net/tcp").read_text()


def accepted(out: str, threads: int = 2) -> tuple[Metrics, dict[str, object]]:
    """Both readers get all they look for."""
    metrics, tables = read_metrics(out, -1), read_tables(out)
    assert len(metrics.figures) == 14
    assert {"times", "cps", "synrtt", "rtconnpercentage", "rtperconn", "received", "sent", "version"} < set(tables)
    assert tables["thread_count"] == threads
    assert tables["cps"] == metrics.figures["cps"]
    return metrics, tables


def rows(out: str) -> list[str]:
    return out.split("\n\n")[0].split("\n")[1:]


def client(port: int, *more: str, **how: Any) -> "subprocess.Popen[str]":
    return start("-c", "127.0.0.1", "-bp", str(port), *QUICK, *more, **how)


# ---- readers ------------------------------------------------------------------------------------------------------


@pytest.mark.namespaces
def test_runs_with_retransmits_on_both_sides(tmp_path: Path, port: int) -> None:
    lost = "numgen inc mod 8 == 0 drop"
    script = (
        "ip link set lo up; nft add table t; nft 'add chain t i { type filter hook input priority 0; }'; "
        f"nft 'add rule t i tcp dport {port} tcp flags & (syn|ack) == syn {lost}'; "
        f"nft 'add rule t i tcp sport {port} tcp flags & (syn|ack) == (syn|ack) {lost}'; "
        f"{NCPS} -s -r 1 -bp {port} -t 2.5 -i 0.5 -q --no-capture > {tmp_path}/server & "
        f"until grep -q ':{port:04X} 00000000:0000 0A' /proc/net/tcp; do :; done; "
        f"{NCPS} -c 127.0.0.1 -r 1 -bp {port} -N 40 -t 1.7 -i 0.5 -q --no-capture > {tmp_path}/client; wait"
    )
    done = subprocess.run(
        ["unshare", "-n", "sh", "-c", script], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    for side in ("client", "server"):
        metrics, _ = accepted((tmp_path / side).read_text(), threads=1)
        assert metrics.figures["rtconnpercentage"] > 0, side
        assert metrics.figures["rtperconn"] >= 1, side


@pytest.mark.usefixtures("server")
def test_a_silent_run_has_no_rows(port: int) -> None:
    code, out, _ = finish(client(port, "-sil", "-t", "0.5"))
    metrics, _ = accepted(out)
    assert (code, metrics.rates) == (0, [])
    assert out.startswith("\n=== CMDLINE: ")


@pytest.mark.usefixtures("server")
def test_a_run_that_uses_its_local_ports_again_is_marked_from_there_on(port: int) -> None:
    local = ("-bcp", str(port + 4), "-ncp", "4")
    code, out, _ = finish(client(port, "-N", "2", *local, "-t", "0.6"))
    metrics, _ = accepted(out)
    assert code == 0
    assert len(metrics.rates) == len(rows(out)) >= 5
    marked = [row.endswith(" REP") for row in rows(out)]
    assert marked[-1]
    assert marked == sorted(marked)  # sticky
    assert all(row.endswith((" REP", " ")) for row in rows(out))


def test_interrupted_runs_on_both_sides(port: int, server: "subprocess.Popen[str]") -> None:
    made = client(port)
    assert made.stdout is not None
    head = [made.stdout.readline() for _ in range(3)]
    made.send_signal(signal.SIGINT)
    code, out, _ = finish(made)
    server.terminate()
    server_code, served, _ = finish(server)
    assert (code, server_code) == (0, 0)
    for text, reason in (("".join(head) + out, "SIGINT"), (served, "SIGTERM")):
        metrics, _ = accepted(text)
        assert len(metrics.rates) >= 2
        assert f"###INTERRUPTED,{reason}\n" in text


@pytest.mark.usefixtures("server")
def test_brief_rows_have_no_names_and_the_report_is_as_ever(port: int) -> None:
    code, out, _ = finish(client(port, "-brief", "-t", "0.5"))
    metrics, _ = accepted(out)
    assert code == 0
    for row in out.split("\n\n")[0].split("\n"):
        assert re.fullmatch(r"[ \d]{8} [ \d]{6}\.\d [ \d]{7} [ \d]{8}", row), row
    # Without the name of its column the reader of rows takes the first figure, N, for the rate.
    assert all(at == rate for at, rate in metrics.rates)


# ---- keys ---------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("server")
def test_a_paused_run_stands_still_goes_on_and_is_read_like_any_other(port: int) -> None:
    made = client(port, stdin=subprocess.PIPE)
    assert made.stdin is not None
    assert made.stdout is not None
    assert made.stderr is not None
    printed = [made.stdout.readline() for _ in range(3)]
    assert rate(printed[-1]) > 0
    made.stdin.write("p\n")
    made.stdin.flush()
    assert made.stderr.readline() == "ncps: PAUSE\n"
    until(lambda: rate(following(made, printed)) == 0, "a row of a load that stands still")
    made.stdin.write("r\n")
    made.stdin.flush()
    assert made.stderr.readline() == "ncps: RESUME\n"
    until(lambda: rate(following(made, printed)) > 0, "a row of a load that goes on")
    made.send_signal(signal.SIGTERM)
    code, out, err = finish(made)
    text = "".join(printed) + out
    metrics, _ = accepted(text)
    assert (code, err) == (0, "")
    assert len(metrics.rates) == len(rows(text))
    assert re.search(r"^###NOTE,paused once by key, \d+\.\d s in all, which", text, re.MULTILINE)


def following(made: "subprocess.Popen[str]", printed: list[str]) -> str:
    assert made.stdout is not None
    printed.append(made.stdout.readline())
    return printed[-1]


def rate(row: str) -> float:
    return float(row.split()[5])


@pytest.mark.usefixtures("server")
def test_a_paused_run_ends_when_it_should(port: int) -> None:
    code, out, err = finish(fed(client(port, "-t", "0.8", stdin=subprocess.PIPE), "p\n"))
    assert (code, err) == (0, "ncps: PAUSE\n")
    assert [round(at, 1) for at, _ in read_metrics(out, -1).rates][-1] == 0.8


def fed(made: "subprocess.Popen[str]", text: str) -> "subprocess.Popen[str]":
    """Type ``text`` and leave the input open: it ends when the run has."""
    assert made.stdin is not None
    made.stdin.write(text)
    made.stdin.flush()
    return made


@pytest.mark.usefixtures("server")
def test_letters_from_a_pipe_that_has_ended_change_the_rows(port: int) -> None:
    made = fed(client(port, "-t", "0.5", stdin=subprocess.PIPE), "b\nb\n")
    assert made.stdin is not None
    made.stdin.close()
    made.stdin = None
    code, out, _ = finish(made)
    names, *figures = out.split("\n\n")[0].split("\n")
    assert (code, names) == (0, "CPS")
    assert all(re.fullmatch(r"\d+\.\d", row) for row in figures)
    assert len(figures) >= 4


@pytest.mark.usefixtures("server")
def test_our_own_command_leaves_a_pipe_to_whom_it_is_meant_for(port: int) -> None:
    reader, writer = os.pipe()
    os.write(writer, b"p\nnext host\n")
    os.close(writer)
    wishes = ("-p", str(port), "-r", "2", "-N", "4", "-t", "0.3s", "--no-capture")
    code, out, err = finish(start("client", "127.0.0.1", *wishes, stdin=reader))
    assert (code, err) == (0, "")
    assert "paused" not in out
    assert os.read(reader, 100) == b"p\nnext host\n"
    os.close(reader)


@pytest.mark.usefixtures("server")
def test_a_terminal_is_heard_by_our_own_command_too(port: int) -> None:
    pty = pytest.importorskip("pty", reason="this system has no pseudo-terminals")
    person, program = pty.openpty()
    os.write(person, b"b\n")
    wishes = ("-p", str(port), "-r", "2", "-N", "4", "-i", "0.1s", "-t", "0.4s", "--no-capture")
    code, out, _ = finish(start("client", "127.0.0.1", *wishes, stdin=program))
    os.close(person)
    os.close(program)
    assert (code, out.split("\n")[0].split()) == (0, ["N", "CPS", "SYNRTT0", "SYNRTTx"])


# ---- time, delay, processors --------------------------------------------------------------------------------------


@pytest.mark.usefixtures("server")
def test_a_run_lasts_as_long_as_it_was_told_and_not_to_the_next_row(port: int) -> None:
    code, out, _ = finish(client(port, "-i", "0.6", "-wt", "0.3", "-t", "0.8"))
    _, tables = accepted(out)
    assert code == 0
    assert [row.split()[0][:3] for row in rows(out)] == ["0.6", "0.8"]
    times = tables["times"]
    assert isinstance(times, list)
    assert times[-1][1] <= 500  # recorded from 0.3 s to 0.8 s


@pytest.mark.usefixtures("server")
def test_nothing_starts_before_the_delay_is_over(port: int, tmp_path: Path) -> None:
    path = tmp_path / "results"
    made = client(port, "-ds", "30", "-o", str(path))
    assert made.stderr is not None
    assert made.stderr.readline() == "ncps: starting in 30 s\n"
    assert path.read_text() == ""
    assert children(made.pid) == []
    made.send_signal(signal.SIGINT)  # and the 30 s are not waited for
    code, out, err = finish(made)
    assert (code, out) == (0, "")
    assert "interrupted by SIGINT before the load began" in err
    text = path.read_text()
    assert "!!!NO CONNECTIONS WERE ESTABLISHED!!!" in text
    assert "###INTERRUPTED,SIGINT" in text


@pytest.mark.usefixtures("server")
def test_after_the_delay_the_run_is_as_long_as_ever(port: int) -> None:
    code, out, err = finish(client(port, "-ds", "0.3", "-t", "0.5"))
    metrics, _ = accepted(out)
    assert (code, err) == (0, "ncps: starting in 0.3 s\n")
    assert round(metrics.rates[-1][0], 1) == 0.5


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system cannot choose processors")
@pytest.mark.usefixtures("server")
def test_processes_run_where_they_are_told(port: int) -> None:
    last = max(os.sched_getaffinity(0))
    made = client(port, "-aff", str(last), "--processes", "2")
    assert made.stdout is not None
    made.stdout.readline()
    family = children(made.pid)
    assert [os.sched_getaffinity(pid) for pid in family] == [{last}] * 2
    assert os.sched_getaffinity(made.pid) == os.sched_getaffinity(0)
    made.send_signal(signal.SIGINT)
    finish(made)


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system cannot choose processors")
def test_a_processor_that_is_not_there_is_refused_before_anything_is_written(port: int, tmp_path: Path) -> None:
    path = tmp_path / "results"
    path.write_text("from before")
    code, out, err = finish(client(port, "-aff", "1000", "-t", "0.5", "-o", str(path)))
    assert (code, out) == (3, "")
    assert err.startswith("ncps: cannot run on processor 1000 (-aff): ")
    assert len(err.splitlines()) == 1
    assert path.read_text() == "from before"


# ---- a server's round trips from the wire -------------------------------------------------------------------------


@pytest.mark.capture
def test_a_server_with_a_capture_reports_its_round_trips_from_the_wire(port: int) -> None:
    served = start("-s", "-b", "127.0.0.1", "-bp", str(port), "-r", "2", "-i", "0.1", "--capture")
    until(lambda: listening(port), "the server listens")
    finish(client(port, "-t", "0.5"))
    served.terminate()
    code, out, err = finish(served)
    metrics, _ = accepted(out)
    assert code == 0, err
    assert "###SOURCE,rtt:wire,retransmits:wire\n" in out
    own = re.search(r"^###SYNACKTOACK,n:\d+,min:\d+,(25:.*)$", out, re.MULTILINE)
    shown = re.search(r"^###SYNRTT,(.*)$", out, re.MULTILINE)
    assert own is not None
    assert shown is not None
    assert own[1] == shown[1]
    assert metrics.figures["99.99"] > 0


def test_without_reconnecting_ncps_goes_on_until_its_time_is_over(port: int) -> None:
    with serving(port, "-b", "127.0.0.1"):
        code, out, err = run(
            *("-c", "127.0.0.1", "-bp", str(port), "-r", "2", "-N", "20", "-dnrc", "-t", "0.9", "-i", "0.3"),
            "--no-capture",
        )
    assert code == 0, err
    rows = [line.split() for line in out.split("\n\n")[0].splitlines()[1:]]
    assert [round(float(row[0]), 1) for row in rows] == [0.3, 0.6, 0.9]
    assert [row[1] for row in rows] == ["0"] * 3
    assert "first 20 connections" in out


@pytest.mark.parametrize("seconds", ["0.01", "0.05"])
def test_a_run_too_short_for_a_row_has_its_header(port: int, seconds: str) -> None:
    with serving(port, "-b", "127.0.0.1"):
        code, out, err = run(
            "-c", "127.0.0.1", "-bp", str(port), "-r", "2", "-N", "20", "-t", seconds, "-i", "9", "--no-capture"
        )
    assert code == 0, err
    assert out.startswith("   T(sec)")


def test_a_share_of_failures_given_counts_beside_ncps_flags(port: int) -> None:
    command = ("-c", "127.0.0.1", "-bp", str(port), "-r", "1", "-N", "4", "-t", "0.3", "-sil", "--no-capture")
    assert run(*command)[0] == 0
    assert run(*command, "--max-failed", "5%")[0] == 1


def test_a_schedule_is_told_beside_ncps_lines(port: int) -> None:
    with serving(port, "-b", "127.0.0.1"):
        code, out, err = run(
            *("-c", "127.0.0.1", "-bp", str(port), "-r", "2", "-t", "1", "--rate", "100", "-sil", "--no-capture")
        )
    assert code == 0, err
    (schedule,) = re.findall(r"^###SCHEDULE,(.*)$", out, re.M)
    facts = dict(fact.split(":") for fact in schedule.split(","))
    assert (facts["asked"], facts["due"], facts["missed"]) == ("100", "100", "0")
    assert facts.keys() == {"asked", "achieved", "due", "missed", "late", "lagmean", "lagmax"}
    assert all(re.search(rf"^###{line},n:\d+,min:\d+", out, re.M) for line in ("RESPONSE", "SERVICE"))
    assert out.index("###REXMIT") < out.index("###SCHEDULE")
