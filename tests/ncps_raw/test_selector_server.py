"""The selector engine's server against plain sockets, on each kind of platform."""

import contextlib
import errno
import random
import socket
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from loads import RST_ON_CLOSE, Board, Ledger, Running, become, client, free_ports, server, server_setup, to_the_end
from ncps_analysis.records import CLOSED, IO_FAILED, NO_KERNEL_RTT, OPEN
from ncps_capture.segments import UNKNOWN

from ncps_raw.engine import base
from ncps_raw.engine.selector_server import SelectorServer

TCP_CLOSE = 7


@pytest.fixture(params=["edges", "levels", "bare"])
def platform(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    become(request.param, monkeypatch)
    return str(request.param)


@pytest.fixture
def port() -> int:
    return free_ports(1)[0]


def connect(port: int, host: str = "127.0.0.1") -> socket.socket:
    return socket.create_connection((host, port), timeout=30)


def read(sock: socket.socket, n: int, at_once: int = 1 << 16) -> bytes:
    got = bytearray()
    while len(got) < n and (data := sock.recv(min(at_once, n - len(got)))):
        got += data
    return bytes(got)


def close_hard(sock: socket.socket) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RST_ON_CLOSE)
    sock.close()


# ---- echo ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2, 999, 1000, 1001, 2000, 65_536, 300_000])
def test_echo_is_exact(platform: str, port: int, n: int) -> None:
    data = random.Random(n).randbytes(n)
    with server([port]) as running, connect(port) as sock:
        sock.sendall(data)
        assert read(sock, n) == data
        sock.sendall(b"and again")
        assert read(sock, 9) == b"and again"
        sock.close()
        running.board.until_counted(base.CLOSED, 1)
        (row,) = running.stop()
    counts = running.board.totals()
    assert counts[base.RX_BYTES] == counts[base.TX_BYTES] == n + 9
    assert (row["outcome"], row["error"]) == (CLOSED, 0)


def test_a_reader_slower_than_the_buffers_gets_every_byte(platform: str, port: int) -> None:
    n = 12 << 20  # more than both sides' buffers hold: the server has to keep some itself
    data = random.Random(1).randbytes(n)
    with server([port], size=50_000) as running:
        with socket.socket() as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 10_000)
            sock.settimeout(30)
            sock.connect(("127.0.0.1", port))
            sock.setblocking(False)
            sent, before = 0, -1
            while sent != before:  # until both directions are full
                before = sent
                with contextlib.suppress(BlockingIOError):
                    while sent < n:
                        sent += sock.send(data[sent : sent + 100_000])
                running.board.after_turns(3)
            assert sent < n
            got = bytearray()
            while len(got) < n:
                with contextlib.suppress(BlockingIOError):
                    sent += sock.send(data[sent : sent + 100_000]) if sent < n else 0
                with contextlib.suppress(BlockingIOError):
                    got += sock.recv(1 << 16)
        assert bytes(got) == data
        running.board.until_counted(base.CLOSED, 1)
        running.stop()
    assert running.board.total(base.TX_BYTES) == n


def test_data_and_end_together_are_both_noticed(platform: str, port: int) -> None:
    """The end brings no event of its own then."""
    times = 300
    with server([port]) as running:
        for i in range(times):
            sock = connect(port)
            sock.sendall(b"x" * (1 + i % 3 * 1000))  # less than, as much as and more than one read
            sock.close()
        running.board.until_counted(base.CLOSED, times)
        records = running.stop()
    assert len(records) == times
    assert set(records["outcome"]) <= {CLOSED, IO_FAILED}  # the answer may meet a closed socket
    assert set(records["error"]) <= {0, errno.ECONNRESET, errno.EPIPE}


@pytest.mark.skipif(not hasattr(socket, "TCP_CORK"), reason="TCP_CORK is Linux's")
def test_data_and_end_in_one_segment_are_both_noticed(platform: str, port: int) -> None:
    """On a connection that has been watched for a while they are one event, and no further one comes."""
    with server([port]) as running:
        socks = [connect(port) for _ in range(100)]
        running.board.until_counted(base.ESTABLISHED, 100)
        for sock in socks:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 1)
            sock.sendall(b"x" * 10)
            sock.shutdown(socket.SHUT_WR)
        running.board.until_counted(base.CLOSED, 100)
        running.stop()
        for sock in socks:
            sock.close()
    assert running.board.total(base.RX_BYTES) == 1000


@pytest.mark.parametrize("end", ["open", "shut", "reset"])
def test_what_came_before_the_accept_is_found(platform: str, port: int, end: str) -> None:
    """Nothing arrives afterwards that could tell of it."""
    board, ledger = Board(), Ledger()
    serving = SelectorServer(server_setup([[port]]), board, ledger)
    serving.listen()
    socks = [connect(port) for _ in range(100)]  # more than are accepted in a round
    sizes = [1 + i % 3 * 1000 for i in range(100)]
    for sock, n in zip(socks, sizes, strict=True):
        sock.sendall(b"x" * n)
        if end == "shut":
            sock.shutdown(socket.SHUT_WR)
        elif end == "reset":
            close_hard(sock)
    running = Running(serving, board, ledger)
    try:
        if end == "open":
            for sock, n in zip(socks, sizes, strict=True):
                assert len(read(sock, n)) == n
                sock.close()
        board.until_counted(base.CLOSED, 100)
    finally:
        records = running.stop()
        for sock in socks:
            sock.close()
    assert set(records["outcome"]) == {IO_FAILED if end == "reset" else CLOSED}
    if end != "reset":  # there the answer to the first read fails, and how much that is, is the system's
        assert board.total(base.RX_BYTES) == sum(sizes)


def test_several_loops_serve_their_own_ports(platform: str) -> None:
    one, two, three = free_ports(3)
    with server([one, three], [two]) as running:
        for port in (one, two, three, three):
            with connect(port) as sock:
                sock.sendall(b"x")
                assert sock.recv(10) == b"x"
        running.board.until_counted(base.CLOSED, 4)
        records = running.stop()
    assert Counter((int(r["loop"]), int(r["lport"])) for r in records) == {(0, one): 1, (0, three): 2, (1, two): 1}
    assert running.board.counts[0][base.ESTABLISHED] == 3
    assert running.board.counts[1][base.ESTABLISHED] == 1


@pytest.mark.parametrize(
    ("bind", "host", "here"),
    [("127.0.0.1", "127.0.0.1", "127.0.0.1"), ("::1", "::1", "::1"), ("::", "::1", "::1"), ("::", "127.0.0.2", "")],
)
def test_both_ip_versions(platform: str, port: int, bind: str, host: str, here: str) -> None:
    family = socket.AF_INET6 if ":" in bind else socket.AF_INET
    with server([port], bind=(bind,), family=family) as running:
        with connect(port, host) as sock:
            sock.sendall(b"x")
            assert sock.recv(10) == b"x"
            other, mine = sock.getsockname(), sock.getpeername()[0]
        running.board.until_counted(base.CLOSED, 1)
        (row,) = running.stop()
    mapped = "::ffff:" if bind == "::" and "." in host else ""
    assert running.paths[row["path"]] == (mapped + (here or mine), mapped + other[0])
    assert (row["lport"], row["rport"]) == (port, other[1])


# ---- records ------------------------------------------------------------------------------------------------------


def test_records_and_counters_agree_with_the_client(platform: str, port: int) -> None:
    with server([port]) as running, client(port, n=20, reconnect=False, size=500) as load:
        theirs = load.ended()
        running.board.until_counted(base.CLOSED, 20)
        mine = running.stop()
    assert sorted(mine["rport"]) == sorted(theirs["lport"])
    assert set(mine["lport"]) == {port}
    assert set(mine["outcome"]) == set(theirs["outcome"]) == {CLOSED}
    assert (mine["start_ns"] == mine["connected_ns"]).all()
    assert (mine["closed_ns"] >= mine["connected_ns"]).all()
    counts = running.board.totals()
    assert counts[base.ATTEMPTED] == counts[base.ESTABLISHED] == counts[base.CLOSED] == 20
    assert counts[base.RX_BYTES] == counts[base.TX_BYTES] == 10_000
    if platform == "bare":
        assert set(mine["kernel_rtt_us"]) == {NO_KERNEL_RTT}
        assert counts[base.CLEAN] == 0
    else:
        assert counts[base.CLEAN] == 20
        assert counts[base.CLEAN_RTT] == mine["kernel_rtt_us"].astype(int).sum()


def test_what_is_open_at_the_end_is_recorded_as_open(platform: str, port: int) -> None:
    with server([port]) as running, connect(port) as sock:
        running.board.until_counted(base.ESTABLISHED, 1)
        (row,) = running.stop()
        assert to_the_end(sock) == 0
    assert (row["outcome"], row["closed_ns"]) == (OPEN, UNKNOWN)


def test_a_reset_is_an_io_failure_by_its_errno(platform: str, port: int) -> None:
    with server([port]) as running, connect(port) as sock:
        sock.sendall(b"x")
        assert sock.recv(10) == b"x"
        close_hard(sock)
        running.board.until_counted(base.CLOSED, 1)
        (row,) = running.stop()
    assert (row["outcome"], row["error"]) == (IO_FAILED, errno.ECONNRESET)
    assert [n for n, _ in running.board.errors] == [errno.ECONNRESET]


def test_no_more_records_than_wanted(platform: str, port: int) -> None:
    with server([port], max_records=3) as running:
        for _ in range(5):
            connect(port).close()
        running.board.until_counted(base.CLOSED, 5)
        records = running.stop()
    assert len(records) == 3
    assert running.board.total(base.CLOSED) == 5


def test_without_a_ledger_only_counters_are_kept(platform: str, port: int) -> None:
    board = Board()
    engine = SelectorServer(server_setup([[port]]), board, None)
    engine.listen()
    board.stop()
    assert engine.run() == []


# ---- closing ------------------------------------------------------------------------------------------------------


def time_waits(*ports: int) -> list[str]:
    """Sockets in TIME_WAIT that have all these ports."""
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    ends = [(line, [int(word.split(":")[1], 16) for word in line.split()[1:3]]) for line in lines]
    return [line for line, pair in ends if line.split()[3] == "06" and set(ports) <= set(pair)]


def test_the_answer_to_an_end_is_a_reset_and_nobody_waits(platform: str, port: int) -> None:
    with server([port]) as running:
        with connect(port) as sock:
            sock.sendall(b"x")
            assert sock.recv(10) == b"x"
            sock.shutdown(socket.SHUT_WR)
            with pytest.raises(ConnectionResetError):
                sock.recv(10)
        for _ in range(20):
            connect(port).close()
        running.board.until_counted(base.CLOSED, 21)
        assert time_waits(port) == []
        running.stop()
    assert time_waits(port) == []


def test_a_normal_close_answers_with_an_end(platform: str, port: int) -> None:
    with server([port], abortive=False) as running, connect(port) as sock:
        sock.shutdown(socket.SHUT_WR)
        assert sock.recv(10) == b""
        mine = sock.getsockname()[1]
        sock.close()
        running.board.until_counted(base.CLOSED, 1)
        running.stop()
    assert len(time_waits(mine, port)) == 1  # the side that closed first


# ---- what this machine refuses ------------------------------------------------------------------------------------


@pytest.mark.parametrize("bind", ["127.0.0.1", "::1"])
def test_an_address_in_use_is_named(port: int, bind: str) -> None:
    family = socket.AF_INET6 if ":" in bind else socket.AF_INET
    with socket.socket(family) as busy:
        busy.bind((bind, port))
        busy.listen()
        (other,) = free_ports(1)
        engine = SelectorServer(server_setup([[other, port]], bind=(bind,), family=family), Board(), Ledger())
        with pytest.raises(OSError, match="in use") as caught:
            engine.listen()
    assert caught.value.errno == errno.EADDRINUSE
    assert caught.value.filename == f"{bind} port {port}"


FEW_FILES = """
import os, resource, socket, sys
sys.path.insert(0, {helpers!r})
from _pytest.monkeypatch import MonkeyPatch
from loads import become, free_ports, server
from ncps_raw.engine import base
become({platform!r}, MonkeyPatch())
(port,) = free_ports(1)
with server([port]) as running:
    clients = [socket.socket() for _ in range(30)]
    taken = len(os.listdir("/proc/self/fd")) - 1
    resource.setrlimit(resource.RLIMIT_NOFILE, (taken + 10, taken + 10))
    for sock in clients:
        sock.connect(("127.0.0.1", port))
    board = running.board
    board.until_counted(base.NOT_STARTED, 4)
    met = [t for _, t in board.errors]
    failed, established, attempted = (board.total(c) for c in (base.NOT_STARTED, base.ESTABLISHED, base.ATTEMPTED))
    assert attempted == failed + established, board.totals()
    assert established == 10, board.totals()
    assert {{n for n, _ in board.errors}} == {{24}}, board.errors
    pauses = [b - a for a, b in zip(met, met[1:])]
    assert min(pauses) >= 100_000_000, pauses
    for sock in clients[:10]:
        sock.close()
    board.until_counted(base.ESTABLISHED, 20)
    for sock in clients[10:]:
        sock.close()
    board.until_counted(base.CLOSED, 30)
"""


def test_without_files_accepting_rests_and_recovers(platform: str) -> None:
    code = FEW_FILES.format(helpers=str(Path(__file__).parent), platform=platform)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
