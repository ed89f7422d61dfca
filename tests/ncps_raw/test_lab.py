"""The lab with real connections: delays and losses are what was ordered, and nothing is ever left behind."""

import errno
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import numpy as np
import pytest
from ncps_capture.errors import EnvironmentFault

from ncps_raw.lab import namespaces
from ncps_raw.lab.lab import Lab
from ncps_raw.lab.logbook import READ, WRITTEN
from ncps_raw.lab.network import A_TO_B, ACTIONS, Network, Rule
from ncps_raw.lab.packets import SYN_KIND

pytestmark = pytest.mark.namespaces

MS = 1_000_000
PATIENCE_S = 30


def family(address: str) -> int:
    return socket.AF_INET6 if ":" in address else socket.AF_INET


@contextmanager
def listener(lab: Lab, address: str) -> Iterator[tuple[str, int]]:
    with lab.b.entered():
        server = socket.create_server((address, 0), family=family(address), backlog=1000)
    with server:
        yield server.getsockname()[:2]


def client(lab: Lab, address: str) -> socket.socket:
    with lab.a.entered():
        made = socket.socket(family(address))
    made.settimeout(PATIENCE_S)
    return made


def connect_ns(lab: Lab, target: tuple[str, int]) -> int:
    with client(lab, target[0]) as it:
        begin = time.monotonic_ns()
        it.connect(target)
        return time.monotonic_ns() - begin


def test_every_fiftieth_first_syn_of_two_hundred() -> None:
    rule = Rule("drop", "syn", "a>b", nth=(1,), attempts=50)
    with Lab(Network.symmetric(10 * MS, rule)) as lab, listener(lab, lab.b.ipv4) as target:
        with ThreadPoolExecutor(20) as threads:
            times = sorted(threads.map(lambda _: connect_ns(lab, target), range(200)))
        assert lab.a.device_losses() == lab.b.device_losses() == 0
    assert times[0] >= 20 * MS
    # Linux waits a second for the answer, a little less where timers are coarse.
    assert sum(took >= 900 * MS for took in times) == 4
    counters = lab.relay.counters()
    assert (counters["read.syn"], counters["dropped.syn"], counters["repeated.syn"]) == (204, 4, 4)
    assert counters["written.syn"] == counters["read.synack"] == counters["written.synack"] == 200
    assert not any(name.startswith("unwritten") for name in counters)
    log = lab.relay.log()
    dropped = log[(log["event"] == READ) & (log["action"] == ACTIONS.index("drop"))]
    assert len(dropped) == 4
    assert set(dropped["rule"]) == {0}
    assert set(dropped["nth"]) == {1}
    read = log[(log["event"] == READ) & (log["direction"] == A_TO_B)]
    for row in dropped:
        again = read[(read["sport"] == row["sport"]) & (read["seq"] == row["seq"]) & (read["kind"] == SYN_KIND)]
        assert list(again["nth"]) == [1, 2]


@pytest.mark.parametrize("ethernet", [False, True], ids=["tun", "tap"])
def test_a_connect_takes_both_delays_and_the_log_times_them(ethernet: bool) -> None:
    with Lab(Network.symmetric(10 * MS, ethernet=ethernet)) as lab:
        for number, address in enumerate((lab.b.ipv4, lab.b.ipv6), start=1):
            with listener(lab, address) as target:
                before_ns = time.time_ns()
                assert connect_ns(lab, target) >= 20 * MS
                after_ns = time.time_ns()
                log = lab.relay.log()
            log = log[log["kind"] == SYN_KIND]
            assert list(log["event"]) == [READ, WRITTEN] * number
            assert before_ns < log["t_ns"][-2] < log["t_ns"][-1] < after_ns
            assert log["sport"][-2] == log["sport"][-1] != target[1] == log["dport"][-1]


def test_answers_of_the_path_are_believed() -> None:
    rules = (
        Rule("reset", "syn", port=1),
        Rule("unreachable", "syn", port=2, code=1),
        Rule("unreachable", "syn", port=3, code=3),
    )
    with Lab(Network.symmetric(MS, *rules)) as lab:
        for address, port, expected in (
            (lab.b.ipv4, 1, errno.ECONNREFUSED),
            (lab.b.ipv6, 1, errno.ECONNREFUSED),
            (lab.b.ipv4, 2, errno.EHOSTUNREACH),
            (lab.b.ipv6, 3, errno.EHOSTUNREACH),
        ):
            with client(lab, address) as it:
                assert it.connect_ex((address, port)) == expected
        assert lab.relay.counters()["written.icmp"] >= 2


def test_a_stall_holds_a_handshake_until_it_is_resumed() -> None:
    with Lab(Network()) as lab, listener(lab, lab.b.ipv4) as target, client(lab, target[0]) as it:
        lab.relay.stall()
        it.setblocking(False)
        assert it.connect_ex(target) == errno.EINPROGRESS
        while not lab.relay.counters().get("read.syn"):
            pass
        assert select.select([], [it], [], 0.05)[1] == []
        assert "written.syn" not in lab.relay.counters()
        lab.relay.resume()
        assert select.select([], [it], [], PATIENCE_S)[1] == [it]
        assert it.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
        assert lab.relay.counters()["written.syn"] == 1


def test_programs_run_at_their_end_with_its_sysctls_and_end_with_the_lab() -> None:
    code = "import socket, sys; print([n for _, n in socket.if_nameindex()], flush=True); sys.stdin.read()"
    with Lab(Network(), {"net.ipv4.tcp_timestamps": 0}, {"net.core.somaxconn": 7}) as lab:
        assert (lab.a.sysctl("net.ipv4.tcp_timestamps"), lab.b.sysctl("net.core.somaxconn")) == ("0", "7")
        lab.a.set_sysctl("net.ipv4.tcp_syn_retries", 2)
        assert lab.a.sysctl("net.ipv4.tcp_syn_retries") == "2"
        one, other = (
            lab.b.run([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            for _ in range(2)
        )
        for process in (one, other):
            assert process.stdout is not None
            assert process.stdout.readline().strip() == "['lo', 'wan0']"
        assert sorted(namespaces.processes_in(lab.b.name)) == sorted([one.pid, other.pid])
        lab.a.signal(signal.SIGTERM)  # nobody is there
        os.kill(other.pid, signal.SIGUSR1)
        assert other.wait() == -signal.SIGUSR1
        assert one.poll() is None
    assert one.returncode == -signal.SIGTERM


@pytest.mark.parametrize("number", [signal.SIGSTOP, None])
def test_programs_may_leave_in_order_and_are_killed_if_they_do_not(
    number: signal.Signals | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    orderly = "import signal, sys; signal.signal(15, lambda *_: sys.exit(7)); print(flush=True); signal.pause()"
    deaf = "import signal; signal.signal(15, signal.SIG_IGN); print(flush=True); signal.pause()"
    monkeypatch.setattr("ncps_raw.lab.lab._LEAVE_S", PATIENCE_S if number else 1.0)
    with Lab(Network()) as lab:
        codes = [orderly] if number else [orderly, deaf]
        programs = [lab.a.run([sys.executable, "-c", code], stdout=subprocess.PIPE) for code in codes]
        for program in programs:
            assert program.stdout is not None
            program.stdout.readline()
            if number:
                program.send_signal(number)
    assert [program.returncode for program in programs] == [7, -signal.SIGKILL][: len(programs)]


def test_a_signal_reaches_whatever_runs_at_an_end() -> None:
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'print(flush=True); input()'])"
    with Lab(Network()) as lab:
        process = lab.b.run([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert process.stdout is not None
        process.stdout.readline()
        assert len(namespaces.processes_in(lab.b.name)) == 2
        lab.b.signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
        assert process.stdout.read() == b""  # its child had the other end, and is gone too


# ---- nothing is left behind ------------------------------------------------------------------------------------


def exist(names: list[str]) -> list[bool]:
    present = subprocess.run(["ip", "netns"], capture_output=True, text=True, check=True).stdout.split()
    return [name in present for name in names]


def test_a_lab_that_cannot_be_made_leaves_nothing() -> None:
    before = namespaces_now()
    with pytest.raises(EnvironmentFault, match=r"cannot set net.ipv4.no_such to 1 in the lab"):
        Lab(Network(), {"net.ipv4.no_such": 1})
    assert namespaces_now() <= before


def namespaces_now() -> set[str]:
    return set(subprocess.run(["ip", "netns"], capture_output=True, text=True, check=True).stdout.split())


HOLDER = """
import json, sys
from ncps_raw.lab.lab import Lab
from ncps_raw.lab.network import Network
with Lab(Network()) as lab:
    child = lab.b.run([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=-1)
    print(json.dumps([lab.relay.pid, child.pid, lab.a.name, lab.b.name]), flush=True)
    sys.stdin.read()
"""


@contextmanager
def holder() -> Iterator[tuple[subprocess.Popen[str], int, int, list[str]]]:
    """A process that holds a lab, its relay, a program in the lab, and the names of the namespaces."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        relay, child, *names = json.loads(process.stdout.readline())
        try:
            yield process, relay, child, names
        finally:
            process.kill()


def wait_gone(pid: int) -> None:
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    ended, _, _ = select.select([handle], [], [], PATIENCE_S)
    os.close(handle)
    assert ended


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_signal_to_the_holder_removes_everything(number: signal.Signals) -> None:
    with holder() as (process, relay, child, names):
        assert exist(names) == [True, True]
        process.send_signal(number)
        assert process.wait(PATIENCE_S) == -number
        wait_gone(relay)
        wait_gone(child)
        assert exist(names) == [False, False]


def test_an_interrupt_of_the_holder_removes_everything() -> None:
    with holder() as (process, relay, child, names):
        os.kill(process.pid, signal.SIGINT)
        process.wait(PATIENCE_S)
        wait_gone(relay)
        wait_gone(child)
        assert exist(names) == [False, False]


def test_the_next_lab_sweeps_what_a_killed_relay_left() -> None:
    with holder() as (process, relay, child, names):
        process.kill()
        os.kill(relay, signal.SIGKILL)
        process.wait(PATIENCE_S)
        wait_gone(relay)
        if exist(names) == [False, False]:
            pytest.fail("the relay cleared up although it was killed: this test shows nothing")
        with Lab(Network()):
            assert exist(names) == [False, False]
        wait_gone(child)


def test_a_killed_relay_is_told_and_its_lab_still_removed() -> None:
    with Lab(Network()) as lab:
        os.kill(lab.relay.pid, signal.SIGKILL)
        with pytest.raises(EnvironmentFault, match="relay has ended unexpectedly"):
            lab.relay.counters()
    assert exist([lab.a.name, lab.b.name]) == [False, False]
    assert isinstance(lab.relay.log(), np.ndarray)
