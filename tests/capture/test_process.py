"""The capture process beside real connections: what it hands over, and how it ends, whoever is killed."""

import multiprocessing
import multiprocessing.synchronize
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from ncps_capture import process
from ncps_capture.capfile import open_capture
from ncps_capture.decode import decode
from ncps_capture.errors import CaptureUnavailable, FileFault, UsageError
from ncps_capture.handshake import HandshakeTable, books_of, merge_rows
from ncps_capture.pcapwrite import PcapWriter
from ncps_capture.process import CaptureProcess, CaptureResult, Counters
from ncps_capture.segments import (
    ANSWERED,
    HANDSHAKE,
    UNKNOWN,
    WIRE_FIELDS,
    Batch,
    Books,
    CaptureSpec,
    Handshakes,
)
from ncps_capture.spool import read_spool

LO = "lo" if sys.platform.startswith("linux") else "lo0"
ROOT = os.name == "posix" and os.geteuid() == 0
needs_root = pytest.mark.skipif(not ROOT, reason="needs root: capturing on the loopback interface")
DEADLINE_S = 15.0
FORK = multiprocessing.get_context("fork")


@pytest.fixture
def servers() -> Iterator[list[socket.socket]]:
    """One listening socket on 127.0.0.1 and one on ::1, at the same port."""
    with socket.create_server(("127.0.0.1", 0), backlog=512) as v4:
        port = v4.getsockname()[1]
        with socket.create_server(("::1", port), family=socket.AF_INET6, backlog=512) as v6:
            yield [v4, v6]


@pytest.fixture
def spec(servers: list[socket.socket], tmp_path: Path) -> CaptureSpec:
    port = servers[0].getsockname()[1]
    return CaptureSpec(LO, ((port, port),), loopback=True, spool_dir=str(tmp_path))


@pytest.fixture
def capture(spec: CaptureSpec) -> Iterator[CaptureProcess]:
    running = CaptureProcess.start(spec)
    running.wait_ready()
    yield running
    running.kill()


def connect(server: socket.socket, count: int) -> None:
    for _ in range(count):
        with socket.create_connection(server.getsockname()[:2]):
            server.accept()[0].close()


def wait_for(condition: Callable[[], bool]) -> None:
    """The totals have no event to wait on: look until they say so, or fail."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, "did not happen in time"
        time.sleep(0.005)


def rows_of(result: CaptureResult) -> Handshakes:
    return merge_rows(np.concatenate([read_spool(path, HANDSHAKE) for path in result.handshake_files]))


def rows_of_file(path: Path, end_ns: int) -> tuple[Handshakes, Books]:
    """The same packets by way of a file."""
    books = Books()
    table = HandshakeTable()
    for batch in open_capture(path).batches():
        segments, found = decode(batch)
        books += found
        table.add(segments)
    rows = merge_rows(table.finish(end_ns))
    books += books_of(rows)
    return rows, books


# ---- what is handed over ----------------------------------------------------------------------------------


@pytest.mark.capture
@needs_root
def test_clean_connections_of_both_families_are_all_answered_and_nothing_else(
    capture: CaptureProcess, servers: list[socket.socket]
) -> None:
    before_ns = time.time_ns()
    for server in servers:
        connect(server, 200)
    result = capture.finish(expected_answered=400)
    after_ns = time.time_ns()
    rows = rows_of(result)
    assert len(rows) == result.books.attempts == result.books.answered == 400
    assert (rows["state"] == ANSWERED).all()
    assert np.bincount(rows["ip_version"]).nonzero()[0].tolist() == [4, 6]
    assert (rows["syn_n"] == 1).all()
    assert (rows["synack_n"] == 1).all()
    assert (rows["dup_syn"] == 0).all()
    assert (rows["dup_synack"] == 0).all()
    assert ((rows["t_synack_ns"] - rows["t_syn_first_ns"]) >= 0).all()
    assert before_ns // 1000 * 1000 <= rows["t_syn_first_ns"].min() == result.first_t_ns
    assert rows["t_synack_ns"].max() == result.last_t_ns <= after_ns
    assert result.books.problems() == []
    assert (result.packets, result.books.syn, result.books.synack) == (800, 400, 400)
    assert (result.dropped, result.died, result.link_type, result.interface) == (0, None, "EN10MB", LO)
    assert str(servers[0].getsockname()[1]) in result.filter_text


@pytest.mark.capture
@needs_root
def test_totals_tell_what_the_result_tells(capture: CaptureProcess, servers: list[socket.socket]) -> None:
    assert set(capture.counters.read()) == set(WIRE_FIELDS)
    connect(servers[0], 30)
    wait_for(lambda: capture.counters.read()["answered_clean"] == 30)
    result = capture.finish(expected_answered=30)
    totals = capture.counters.read()
    rows = rows_of(result)
    assert totals["answered_clean_rtt_ns"] == (rows["t_synack_ns"] - rows["t_syn_first_ns"]).sum()
    assert totals["rows"] == len(rows) == 30
    assert totals["t_ns"] >= result.last_t_ns
    assert {name: totals[name] for name in ("packets", "syn", "synack", "repeats", "refused", "dropped")} == {
        "packets": 60,
        "syn": 30,
        "synack": 30,
        "repeats": 0,
        "refused": 0,
        "dropped": 0,
    }


@pytest.mark.capture
@needs_root
def test_asked_it_tells_up_to_that_moment_though_its_own_tick_is_far_away(
    spec: CaptureSpec, servers: list[socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "_TICK_S", 1000.0)
    capture = CaptureProcess.start(spec)
    capture.wait_ready()
    for count in (10, 20):
        connect(servers[0], 10)
        now_ns = time.time_ns()
        capture.publish_by(now_ns)
        wait_for(lambda until=now_ns: capture.counters.read()["t_ns"] >= until)
        assert capture.counters.read()["answered_clean"] == count
    assert capture.finish(expected_answered=20).books.answered == 20
    capture.publish_by(time.time_ns())  # the process is gone: nothing happens


@pytest.mark.capture
@needs_root
def test_questions_to_a_stopped_process_do_not_pile_up(capture: CaptureProcess) -> None:
    assert capture.pid is not None
    os.kill(capture.pid, signal.SIGSTOP)
    for _ in range(100_000):  # many times what the pipe holds
        capture.publish_by(time.time_ns())
    os.kill(capture.pid, signal.SIGCONT)
    assert capture.finish(expected_answered=0).died is None


@pytest.mark.capture
@needs_root
def test_one_handshake_on_an_idle_link_is_told_without_a_second_one(
    capture: CaptureProcess, servers: list[socket.socket]
) -> None:
    connect(servers[0], 1)
    wait_for(lambda: capture.counters.read()["answered_clean"] == 1)
    assert capture.alive()


@pytest.mark.capture
@needs_root
def test_finish_leaves_when_all_is_seen_and_waits_for_what_is_not(
    capture: CaptureProcess, servers: list[socket.socket]
) -> None:
    connect(servers[0], 5)
    begin = time.monotonic()
    result = capture.finish(expected_answered=5, grace_s=60.0)
    assert time.monotonic() - begin < 30.0
    assert result.books.answered == 5
    assert capture.finish(expected_answered=9) is result


@pytest.mark.capture
@needs_root
@pytest.mark.parametrize("expected", [None, 7])
def test_finish_reads_on_through_its_grace(
    capture: CaptureProcess, servers: list[socket.socket], expected: int | None
) -> None:
    late = threading.Timer(0.3, connect, (servers[0], 2))
    late.start()
    result = capture.finish(expected, grace_s=1.5)
    late.join()
    assert result.books.answered == 2


@pytest.mark.capture
@needs_root
def test_a_capture_without_packets_is_empty_and_not_an_error(capture: CaptureProcess) -> None:
    result = capture.finish(expected_answered=0)
    assert (result.packets, result.books.attempts, result.dropped, len(rows_of(result))) == (0, 0, 0, 0)
    assert (result.first_t_ns, result.last_t_ns) == (UNKNOWN, UNKNOWN)


@pytest.mark.capture
@needs_root
def test_saved_packets_give_the_rows_that_were_live(spec: CaptureSpec, servers: list[socket.socket]) -> None:
    saved = Path(spec.spool_dir) / "saved.pcap"
    capture = CaptureProcess.start(replace(spec, write_path=str(saved)))
    capture.wait_ready()
    for server in servers:
        connect(server, 100)
    result = capture.finish(expected_answered=200)
    live = rows_of(result)
    rows, books = rows_of_file(saved, end_ns=capture.counters.read()["t_ns"])
    assert len(live) == 200
    for name in HANDSHAKE.names:
        np.testing.assert_array_equal(rows[name], live[name], err_msg=name)
    assert books == result.books


@pytest.mark.capture
@needs_root
@pytest.mark.skipif(shutil.which("tcpdump") is None, reason="tcpdump is not installed")
def test_tcpdump_beside_it_saw_the_same_handshakes(
    capture: CaptureProcess, spec: CaptureSpec, servers: list[socket.socket]
) -> None:
    """Equal in all but time: every packet socket stamps for itself when a packet reaches it, microseconds apart."""
    saved = Path(spec.spool_dir) / "tcpdump.pcap"
    port = spec.server_ports[0][0]
    expression = f"port {port} and (tcp[13] & 2 != 0 or (ip6[6] = 6 and ip6[53] & 2 != 0))"
    with subprocess.Popen(
        ["tcpdump", "-i", LO, "-Q", "in", "-U", "-s", "160", "-Z", "root", "-w", saved, expression],
        stderr=subprocess.PIPE,
        text=True,
    ) as tcpdump:
        assert tcpdump.stderr is not None
        while "listening on" not in tcpdump.stderr.readline():
            assert tcpdump.poll() is None
        for server in servers:
            connect(server, 100)
        wait_for(lambda: saved.stat().st_size == 24 + 100 * 2 * (16 + 74) + 100 * 2 * (16 + 94))
        tcpdump.terminate()
        tcpdump.stderr.read()
    result = capture.finish(expected_answered=200)
    live = rows_of(result)
    rows, _ = rows_of_file(saved, end_ns=capture.counters.read()["t_ns"])
    assert len(live) == len(rows) == 200
    by_tuple = ["client_hi", "client_lo", "sport", "isn"]
    live, rows = np.sort(live, order=by_tuple), np.sort(rows, order=by_tuple)
    for name in HANDSHAKE.names:
        if name.endswith("_ns"):
            unknown = rows[name] == UNKNOWN
            np.testing.assert_array_equal(unknown, live[name] == UNKNOWN, err_msg=name)
            assert (abs(rows[name] - live[name])[~unknown] < 1_000_000).all(), name
        elif name != "frame":  # in its file or on its wire: two sockets may swap neighbours of two processors
            np.testing.assert_array_equal(rows[name], live[name], err_msg=name)


# ---- how it begins ------------------------------------------------------------------------------------------


def test_a_wrong_interface_is_never_ready(spec: CaptureSpec) -> None:
    capture = CaptureProcess.start(replace(spec, interface="nosuch0"))
    with pytest.raises(CaptureUnavailable, match=r"^cannot capture on nosuch0: no "):
        capture.wait_ready()
    assert not capture.alive()
    with pytest.raises(CaptureUnavailable, match=r"^cannot capture on nosuch0: no "):
        capture.wait_ready()


@pytest.mark.capture
@needs_root
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"write_path": "/nonexistent/x"}, "^cannot create /nonexistent/x: No such file or directory; choose another"),
        ({"write_path": "/dev/full"}, "^cannot write /dev/full: No space left on device; choose another file$"),
        ({"spool_dir": "/nonexistent"}, "^cannot create /nonexistent/handshakes-.*: No such file or directory$"),
    ],
)
def test_a_file_that_cannot_be_written_is_told_before_the_load_begins(
    spec: CaptureSpec, change: dict[str, str], reason: str
) -> None:
    with pytest.raises(CaptureUnavailable, match=reason):
        CaptureProcess.start(replace(spec, **change)).wait_ready()


@pytest.mark.capture
@needs_root
def test_a_filter_that_is_none_is_the_fault_of_who_typed_it(spec: CaptureSpec) -> None:
    with pytest.raises(UsageError, match="the filter 'tcp port of call' is not accepted"):
        CaptureProcess.start(replace(spec, own_filter="tcp port of call")).wait_ready()


@pytest.mark.capture
@needs_root
def test_a_file_that_can_take_no_more_is_remarked_when_it_happens(
    spec: CaptureSpec, servers: list[socket.socket], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what remarks were not asked for do not stand in the way of the result."""

    def full(writer: PcapWriter, batch: Batch) -> None:
        raise FileFault("cannot write it")

    monkeypatch.setattr(PcapWriter, "write", full)
    for asked in (True, False):
        capture = CaptureProcess.start(replace(spec, write_path=str(tmp_path / "x.pcap")), FORK)
        capture.wait_ready()
        assert capture.remarks() == []
        connect(servers[0], 3)
        said: list[str] = []
        while asked and not said:
            wait_for(capture._pipe.poll)
            said = capture.remarks()
        result = capture.finish(expected_answered=3)
        assert result.books.answered == 3
        assert [*said, *capture.remarks()] == [
            "cannot write it: what follows is measured, but not saved; make room, and begin another file"
        ]
        assert result.write_problem is not None
        assert capture.remarks() == []


@pytest.mark.capture
@needs_root
def test_beside_threads_it_starts_in_a_fresh_interpreter(spec: CaptureSpec, servers: list[socket.socket]) -> None:
    leave = threading.Event()
    thread = threading.Thread(target=leave.wait)
    thread.start()
    capture = CaptureProcess.start(spec)
    capture.wait_ready(timeout_s=DEADLINE_S)
    connect(servers[0], 3)
    assert capture.finish(expected_answered=3).books.answered == 3
    leave.set()
    thread.join()


@pytest.mark.capture
@needs_root
def test_nothing_is_left_behind(spec: CaptureSpec) -> None:
    def held() -> tuple[int, set[str]]:
        shared = Path("/dev/shm")
        return len(list(Path("/proc/self/fd").iterdir())), {path.name for path in shared.glob("py*")}

    CaptureProcess.start(spec, multiprocessing.get_context("fork")).kill()  # what is made once and kept
    before = held()
    capture = CaptureProcess.start(spec, multiprocessing.get_context("fork"))
    capture.wait_ready()
    capture.finish(expected_answered=0)
    pid = capture.pid
    assert pid is not None
    del capture
    assert held() == before
    assert multiprocessing.active_children() == []
    with pytest.raises(ChildProcessError):  # not even a dead child
        os.waitpid(pid, os.WNOHANG)


# ---- how it ends --------------------------------------------------------------------------------------------


@pytest.mark.capture
@needs_root
def test_killed_it_leaves_the_rows_it_had_spooled_and_says_it_died(
    capture: CaptureProcess, servers: list[socket.socket]
) -> None:
    connect(servers[0], 40)
    wait_for(lambda: capture.counters.read()["rows"] == 40)
    assert capture.pid is not None
    os.kill(capture.pid, signal.SIGKILL)
    result = capture.finish(expected_answered=40)
    assert result.died is not None
    assert result.died.startswith("capture process ended by signal 9 after ")
    assert (result.dropped, result.packets, result.link_type) == (None, 80, "EN10MB")
    assert len(rows_of(result)) == result.books.answered == result.books.attempts == 40
    assert result.books.problems() == []
    assert not capture.alive()
    assert capture.finish(expected_answered=40) is result


@pytest.mark.capture
@needs_root
def test_stopped_it_loses_what_does_not_fit_and_says_how_much(spec: CaptureSpec, servers: list[socket.socket]) -> None:
    """The kernel counts what found no room, also while nobody reads: 1 MiB holds some thousands of handshakes."""
    capture = CaptureProcess.start(replace(spec, buffer_bytes=1 << 20))
    capture.wait_ready()
    assert capture.pid is not None
    connect(servers[0], 10)
    wait_for(lambda: capture.counters.read()["rows"] == 10)
    os.kill(capture.pid, signal.SIGSTOP)
    connect(servers[0], 6000)
    os.kill(capture.pid, signal.SIGCONT)
    wait_for(lambda: capture.counters.read()["dropped"] > 0)
    connect(servers[0], 10)
    result = capture.finish(expected_answered=None, grace_s=0.1)
    assert result.died is None
    assert result.dropped is not None
    assert result.dropped > 0
    assert result.packets + result.dropped == 2 * (10 + 6000 + 10)
    assert result.books.problems() == []
    seen = set(rows_of(result)["frame"].tolist())
    assert 20 < len(seen) < 6020


@pytest.mark.capture
@needs_root
def test_stopped_for_good_it_is_ended_and_the_rows_so_far_are_used(
    capture: CaptureProcess, servers: list[socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ncps_capture.process._SILENCE_S", 0.4)
    connect(servers[0], 30)
    wait_for(lambda: capture.counters.read()["rows"] == 30)
    assert capture.pid is not None
    os.kill(capture.pid, signal.SIGSTOP)
    connect(servers[0], 5)
    if LO == "lo":
        assert capture._sign_of_life()[1] > 0  # time on a processor, which a process at work without a tick uses
    result = capture.finish(expected_answered=35, grace_s=60.0)
    assert result.died == "capture process did not answer for 0.4 s (stopped?) and was killed"
    assert (result.dropped, result.books.answered, len(rows_of(result))) == (None, 30, 30)
    assert result.runs_as is not None
    assert not capture.alive()


@pytest.mark.capture
@needs_root
def test_stopped_for_a_while_it_is_waited_for(
    capture: CaptureProcess, servers: list[socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ncps_capture.process._SILENCE_S", 30.0)
    assert capture.pid is not None
    os.kill(capture.pid, signal.SIGSTOP)
    connect(servers[0], 5)
    again = threading.Timer(0.7, os.kill, (capture.pid, signal.SIGCONT))
    again.start()
    result = capture.finish(expected_answered=5)
    again.join()
    assert (result.died, result.dropped, result.books.answered) == (None, 0, 5)


@pytest.mark.capture
@needs_root
def test_signals_for_the_whole_group_do_not_end_it(
    capture: CaptureProcess, servers: list[socket.socket], capfd: pytest.CaptureFixture[str]
) -> None:
    assert capture.pid is not None
    for number in (signal.SIGINT, signal.SIGTERM):
        os.kill(capture.pid, number)
    connect(servers[0], 10)
    result = capture.finish(expected_answered=10)
    assert (result.died, result.books.answered) == (None, 10)
    assert capfd.readouterr() == ("", "")


PARENT = """
import os, sys
from ncps_capture.process import CaptureProcess
from ncps_capture.segments import CaptureSpec
capture = CaptureProcess.start(CaptureSpec("lo", ((1, 1),), loopback=True, spool_dir=sys.argv[1]))
capture.wait_ready()
print("ready", flush=True)
"""
WORKER = """
if os.fork() == 0:
    os.close(1)
    os.read(0, 1)
    os._exit(0)
"""


@pytest.mark.capture
@needs_root
@pytest.mark.parametrize("worker", ["", WORKER], ids=["alone", "beside a worker that lives on"])
def test_it_ends_when_its_parent_is_killed(tmp_path: Path, worker: str) -> None:
    """Its copy of the parent's standard output is the last one: when that is closed, it has ended."""
    with subprocess.Popen(
        [sys.executable, "-c", PARENT + worker + "os.read(0, 1)\n", tmp_path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as parent:
        assert parent.stdout is not None
        assert parent.stdin is not None
        assert parent.stdout.readline() == b"ready\n"
        parent.kill()
        assert parent.stdout.read() == b""
        parent.stdin.close()
        assert parent.stderr is not None
        assert parent.stderr.read() == b""


@pytest.mark.capture
@needs_root
def test_an_interpreter_that_ends_takes_it_along(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import tempfile\nkeep = tempfile.TemporaryDirectory()\n" + PARENT, tmp_path],
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"ready\n", b"")


@needs_root
def test_without_the_right_the_reason_arrives_in_the_parent(tmp_path: Path) -> None:
    script = (
        "import os, pcapy\n"  # a user without rights may be unable to read where this is installed
        + PARENT.replace("print", "os.setresuid(65534, 65534, 65534)\ncapture.finish(0)\nprint")
        + "from ncps_capture.errors import CaptureUnavailable\n"
        "again = CaptureProcess.start(CaptureSpec('lo', (), spool_dir=sys.argv[1]))\n"
        "try:\n    again.wait_ready()\nexcept CaptureUnavailable as fault:\n    print(fault)\n"
    )
    done = subprocess.run([sys.executable, "-c", script, tmp_path], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert done.stdout.startswith("ready\ncannot capture on lo: no right to capture packets; run it with sudo, or ")


# ---- totals in shared memory ----------------------------------------------------------------------------------


def _count(counters: Counters, stop: multiprocessing.synchronize.Event) -> None:
    number = 0
    while not stop.is_set():
        for _ in range(100):
            number += 1
            counters.publish(dict.fromkeys(WIRE_FIELDS, number))


def test_a_reader_never_sees_totals_of_two_ticks() -> None:
    context = multiprocessing.get_context("spawn")
    counters, stop = Counters(context), context.Event()
    assert counters.read() == dict.fromkeys(WIRE_FIELDS, 0)
    writer = context.Process(target=_count, args=(counters, stop))
    writer.start()
    wait_for(lambda: counters.read()["t_ns"] > 0)
    seen = [counters.read() for _ in range(20_000)]
    stop.set()
    writer.join()
    assert {len(set(totals.values())) for totals in seen} == {1}
    numbers = [totals["t_ns"] for totals in seen]
    assert numbers == sorted(numbers)
    assert len(set(numbers)) > 10
