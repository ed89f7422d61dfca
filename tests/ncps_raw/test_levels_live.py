"""What each level of a live capture can tell, on packets that real kernels and scripted peers send over a real path."""

from __future__ import annotations

import json
import select
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import pytest
from made_packets import B, packet
from ncps_analysis.join import match, path_words
from ncps_analysis.records import CLOSED, CONNECTION
from ncps_capture import segments as sg
from ncps_capture.handshake import merge_rows
from ncps_capture.process import CaptureProcess
from ncps_capture.spool import read_spool

from ncps_raw.lab.lab import End, Lab
from ncps_raw.lab.network import Network, Rule

pytestmark = [pytest.mark.namespaces, pytest.mark.capture]

MS = 1_000_000
PATIENCE_S = 20.0
PORT = 10_001
ISN = 4_000_000_000
LOST = Rule("drop", "syn", "a>b", nth=(1,))


class Captures:
    """One capture a level at one end, and the merged rows of each once ``finish`` was called."""

    def __init__(self, end: End, folder: Path, levels: Sequence[str]) -> None:
        self._running = {}
        for level in levels:
            spool = folder / level
            spool.mkdir()
            spec = sg.CaptureSpec(end.device, (), level=level, spool_dir=str(spool))
            with end.entered():  # a process belongs where the thread was that started it
                self._running[level] = CaptureProcess.start(spec)
        for one in self._running.values():
            one.wait_ready()

    def finish(self) -> dict[str, sg.Handshakes]:
        results = {level: one.finish(None, 0.0) for level, one in self._running.items()}
        assert [(result.level, result.dropped, result.died) for result in results.values()] == [
            (level, 0, None) for level in results
        ]
        for result in results.values():
            books = result.books
            assert books.syn == books.syn_counted + books.syn_duplicate
        return {level: merge_rows(read_spool(r.handshake_files[0], sg.HANDSHAKE)) for level, r in results.items()}

    def kill(self) -> None:
        for one in self._running.values():
            one.kill()


@contextmanager
def captured(lab: Lab, folder: Path, *levels: str) -> Iterator[Captures]:
    captures = Captures(lab.a, folder, levels)
    try:
        yield captures
    finally:
        captures.kill()


class Scripted:
    """Segments written by hand at one end, for what no kernel would send."""

    def __init__(self, here: End, there: End) -> None:
        with here.entered():
            self._socket = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
        self._back = here.ipv4 == B[4]
        self._target = (there.ipv4, 0)

    def __enter__(self) -> Scripted:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def send(self, flags: str, sport: int, dport: int, seq: int, ack: int = 0) -> None:
        self._socket.sendto(packet(flags, sport, dport, seq=seq, ack=ack, back=self._back), self._target)


def until(lab: Lab, **counters: int) -> None:
    """Wait for the relay to have counted so much, ``written_rst=1``."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        have = lab.relay.counters()
        if all(have.get(name.replace("_", "."), 0) >= n for name, n in counters.items()):
            return
        assert time.monotonic() < deadline, have
        time.sleep(0.01)


@contextmanager
def listener(lab: Lab, options: Sequence[tuple[int, int, int]] = ()) -> Iterator[socket.socket]:
    with lab.b.entered():
        server = socket.socket()
    with server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind((lab.b.ipv4, PORT))
        for option in options:
            server.setsockopt(*option)
        server.listen(16)
        yield server


def one(rows: sg.Handshakes) -> dict[str, int]:
    assert len(rows) == 1, rows
    names = ("syn_n", "retrans_timeout", "retrans_after_rst", "retrans_after_challenge")
    return {name: int(rows[0][name]) for name in names}


def test_a_retry_after_a_middleboxs_rst_is_no_retransmit_to_who_sees_rsts(tmp_path: Path) -> None:
    with Lab(Network.symmetric(2 * MS, LOST)) as lab, ExitStack() as stack:
        captures = stack.enter_context(captured(lab, tmp_path, "base", "resets", "acks"))
        stack.enter_context(listener(lab))
        client = stack.enter_context(Scripted(lab.a, lab.b))
        middlebox = stack.enter_context(Scripted(lab.b, lab.a))
        client.send("S", 20_000, PORT, ISN)
        until(lab, read_syn=1)
        middlebox.send("RA", PORT, 20_000, 77, ISN + 1)
        until(lab, written_rst=1)
        client.send("S", 20_000, PORT, ISN)
        until(lab, written_synack=1)
        rows = captures.finish()
    for level, after_rst in (("base", 0), ("resets", 1), ("acks", 1)):
        assert rows[level]["state"].tolist() == [sg.ANSWERED]
        assert one(rows[level]) == {
            "syn_n": 2,
            "retrans_timeout": 1 - after_rst,
            "retrans_after_rst": after_rst,
            "retrans_after_challenge": 0,
        }


def test_a_retry_after_a_challenge_is_no_retransmit_to_who_sees_acks(tmp_path: Path) -> None:
    """The client's kernel knows nothing of the scripted SYN, and answers the challenge with an RST as it should."""
    with Lab(Network.symmetric(2 * MS, LOST)) as lab, ExitStack() as stack:
        captures = stack.enter_context(captured(lab, tmp_path, "base", "resets", "acks"))
        stack.enter_context(listener(lab))
        client = stack.enter_context(Scripted(lab.a, lab.b))
        old = stack.enter_context(Scripted(lab.b, lab.a))
        client.send("S", 20_000, PORT, ISN)
        until(lab, read_syn=1)
        old.send("A", PORT, 20_000, 500, 999)
        until(lab, read_rst=1)
        client.send("S", 20_000, PORT, ISN)
        until(lab, written_synack=1)
        rows = captures.finish()
    for level, after_challenge in (("base", 0), ("resets", 0), ("acks", 1)):
        assert rows[level]["state"].tolist() == [sg.ANSWERED]
        assert one(rows[level]) == {
            "syn_n": 2,
            "retrans_timeout": 1 - after_challenge,
            "retrans_after_rst": 0,
            "retrans_after_challenge": after_challenge,
        }


def test_syns_that_cross_have_no_round_trip(tmp_path: Path) -> None:
    with Lab(Network.symmetric(100 * MS)) as lab, captured(lab, tmp_path, "base", "acks") as captures, ExitStack() as s:
        ends = []
        for end, port in ((lab.a, 20_000), (lab.b, 20_001)):
            with end.entered():
                made = s.enter_context(socket.socket())
            made.bind((end.ipv4, port))
            made.setblocking(False)
            ends.append(made)
        with pytest.raises(BlockingIOError):
            ends[0].connect((lab.b.ipv4, 20_001))
        with pytest.raises(BlockingIOError):
            ends[1].connect((lab.a.ipv4, 20_000))
        for made in ends:
            assert select.select([], [made], [], PATIENCE_S)[1]
            assert made.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
        rows = captures.finish()
    for found in rows.values():
        assert found["state"].tolist() == [sg.SIMULTANEOUS] * 2
        assert set(found["sport"].tolist()) == {20_000, 20_001}
        for figure in (sg.rtt_first_ns, sg.path_rtt_ns, sg.synack_to_ack_ns):
            assert (figure(found) == sg.UNKNOWN).all()


def test_data_in_the_syn_is_answered_like_any_other(tmp_path: Path) -> None:
    """TCP Fast Open: the first connection asks for a cookie, the second sends data in its SYN."""
    fast_open = {"net.ipv4.tcp_fastopen": 3}
    records = np.zeros(2, CONNECTION)
    with (
        Lab(Network.symmetric(10 * MS), fast_open, fast_open) as lab,
        listener(lab, [(socket.IPPROTO_TCP, socket.TCP_FASTOPEN, 16)]) as server,
        captured(lab, tmp_path, "base", "acks") as captures,
    ):
        for record in records:
            with lab.a.entered():
                client = socket.socket()
            with client:
                # Not settimeout: that makes a socket non-blocking to the kernel, which then sends no data in the SYN.
                client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", int(PATIENCE_S), 0))
                record["start_ns"] = time.time_ns()
                client.sendto(b"hello", socket.MSG_FASTOPEN, (lab.b.ipv4, PORT))
                with server.accept()[0] as taken:
                    taken.settimeout(PATIENCE_S)
                    assert taken.recv(5, socket.MSG_WAITALL) == b"hello"
                    taken.sendall(b"!")
                    assert client.recv(1) == b"!"
                record["connected_ns"] = time.time_ns()
                record["lport"] = client.getsockname()[1]
        rows = captures.finish()
        paths = path_words([(lab.a.ipv4, lab.b.ipv4)])
    records["closed_ns"], records["rport"], records["outcome"] = records["connected_ns"], PORT, CLOSED
    for level, found in rows.items():
        found = found[found["t_syn_first_ns"].argsort()]
        assert found["state"].tolist() == [sg.ANSWERED] * 2
        assert found["syn_len"].tolist() == [0, 5]
        assert (found["flags"] & sg.F_TFO != 0).all()
        assert found["synack_bad_ack"].tolist() == [0, 0]
        assert (sg.rtt_first_ns(found) >= 20 * MS).all()
        assert (sg.path_rtt_ns(found) == sg.rtt_first_ns(found)).all()
        assert match(records, found, paths, "client").tolist() == [0, 1]
        # The first one's third ACK carries the data that waited, and a live capture admits no data.
        assert (sg.synack_to_ack_ns(found) != sg.UNKNOWN).tolist() == [False, level == "acks"]


def test_each_end_names_itself_and_measures_its_own_round_trip(ncps: str) -> None:
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with Lab(Network.symmetric(10 * MS)) as lab:
        shared = ["--port", str(PORT), "-r", "1", "--format", "json"]
        server = lab.b.run([ncps, "server", "--bind", lab.b.ipv4, "--interface", lab.b.device, *shared], **pipes)
        assert server.stderr is not None
        assert any("listening" in line for line in server.stderr)
        load = ["-N", "40", "-P", "5", "-M", "0", "--no-reconnect", "-t", "10s", "--capture-level", "acks"]
        client = lab.a.run([ncps, "client", lab.b.ipv4, *shared, *load], **pipes)
        out, said = client.communicate(timeout=PATIENCE_S)
        server.send_signal(signal.SIGTERM)
        server_out, server_said = server.communicate(timeout=PATIENCE_S)
    here, there = json.loads(out), json.loads(server_out)
    for name, report, remarks in (("client", here, said), ("server", there, server_said)):
        assert report["connections"] == 40, remarks
        assert report["capture"]["level"] == "acks"
        assert report["capture"]["vantage_suggested"] == name
        assert report["rtt_source"] == "wire"
        assert report["rtt_unknown"] == 0
        assert report["synack_to_ack_us"]["n"] == 40
        assert report["syn_rtt_us"]["n"] == 40
        assert report["syn_rtt_us"]["min"] >= 20_000
        assert report["syn_repeat_causes"] == {"timeout": 0, "after_synack": 0, "after_rst": 0, "after_challenge": 0}
        assert report["capture"]["books"]["answered"] == 40
    assert here["synack_to_ack_us"]["p50"] < 20_000
    assert there["syn_rtt_us"] == there["synack_to_ack_us"]
    assert there["answer_us"]["p50"] < 20_000


def test_what_a_level_does_not_show_is_null(ncps: str) -> None:
    with Lab(Network.symmetric(MS)) as lab, listener(lab) as server:
        for level, causes in (
            ("base", {"after_rst": None, "after_challenge": None}),
            ("resets", {"after_rst": 0, "after_challenge": None}),
        ):
            load = ["-r", "1", "-N", "3", "-M", "0", "--no-reconnect", "-t", "5s", "--capture-level", level]
            client = lab.a.run(
                [ncps, "client", lab.b.ipv4, "--port", str(PORT), "--format", "json", *load],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for _ in range(3):
                server.accept()[0].close()
            out, said = client.communicate(timeout=PATIENCE_S)
            report = json.loads(out)
            assert report["connections"] == 3, said
            assert report["capture"]["level"] == level
            assert report["syn_repeat_causes"] == {"timeout": 0, "after_synack": 0, **causes}
            assert report["synack_to_ack_us"]["p50"] is None
            assert report["capture"]["vantage_suggested"] is None
