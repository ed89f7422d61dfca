"""Handshakes that no scenario file can order: both ends are played by the test, with real kernels and sockets.

A capture process at one end sees them as the client's would; what it must find is what was done, step by step.
"""

import errno
import select
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_packets import packet
from ncps_capture.handshake import books_of, merge_rows
from ncps_capture.process import CaptureProcess
from ncps_capture.segments import (
    ANSWERED,
    F_TFO,
    HANDSHAKE,
    REFUSED,
    SIMULTANEOUS,
    UNKNOWN,
    CaptureSpec,
    Handshakes,
    rtt_first_ns,
    syn_retrans,
)
from ncps_capture.spool import read_spool
from running import until

from ncps_raw.lab.lab import End, Lab
from ncps_raw.lab.logbook import WRITTEN
from ncps_raw.lab.network import Network, Rule
from ncps_raw.lab.packets import SYNACK_KIND

pytestmark = [pytest.mark.namespaces, pytest.mark.capture]

MS = 1_000_000
PATIENCE_S = 30
PORT, LOCAL = 9000, 40000
RESET = struct.pack("ii", 1, 0)  # SO_LINGER: close with an RST

both_families = pytest.mark.parametrize("ip", [4, 6])


class Seen:
    """What the capture found; there once its block is left."""

    rows: Handshakes


@contextmanager
def captured(end: End, folder: Path, level: str = "base") -> Iterator[Seen]:
    """Capture at ``end`` meanwhile, as a client does."""
    spec = CaptureSpec(end.device, ((PORT, PORT),), level=level, spool_dir=str(folder))
    with end.entered():
        capture = CaptureProcess.start(spec)
    seen = Seen()
    try:
        capture.wait_ready()
        yield seen
        result = capture.finish(None, 0.3)
    finally:
        capture.kill()
    assert (result.died, result.dropped) == (None, 0)
    seen.rows = merge_rows(np.concatenate([read_spool(path, HANDSHAKE) for path in result.handshake_files]))
    books = books_of(seen.rows)
    assert (books.attempts, books.synack_only) == (len(seen.rows), 0)


def addresses(lab: Lab, ip: int) -> tuple[str, str]:
    return (lab.a.ipv4, lab.b.ipv4) if ip == 4 else (lab.a.ipv6, lab.b.ipv6)


def tcp(end: End, address: str, port: int = 0) -> socket.socket:
    """A TCP socket at ``end``, bound to an address of it."""
    with end.entered():
        made = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
    made.settimeout(PATIENCE_S)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.bind((address, port))
    return made


@contextmanager
def listening(
    end: End, address: str, before: Callable[[socket.socket], Any] = lambda made: None
) -> Iterator[socket.socket]:
    with tcp(end, address, PORT) as made:
        before(made)
        made.listen(100)
        yield made


# ---- one tuple, again and again --------------------------------------------------------------------------------


@both_families
def test_two_hundred_connections_on_one_four_tuple_are_two_hundred_attempts(ip: int, tmp_path: Path) -> None:
    with Lab(Network()) as lab:
        here, there = addresses(lab, ip)
        with captured(lab.a, tmp_path) as seen, listening(lab.b, there) as listener:
            for _ in range(200):
                with tcp(lab.a, here, LOCAL) as made:
                    made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                    made.connect((there, PORT))
                    listener.accept()[0].close()
        isns = {int(row["seq"]) for row in lab.relay.log() if row["nth"] == 1 and row["dport"] == PORT}
    rows = seen.rows
    assert sorted(rows["attempt"]) == list(range(1, 201))
    assert set(rows["isn"].tolist()) == isns
    assert len(isns) == 200
    assert set(rows["state"]) == {ANSWERED}
    assert set(rows["syn_n"]) == set(rows["synack_n"]) == {1}
    assert set(rows["sport"]) == {LOCAL}


# ---- refused, and tried again with the same number -------------------------------------------------------------


@contextmanager
def syn_sender(lab: Lab, ip: int, isn: int) -> Iterator[Callable[[], int]]:
    """Sends one SYN over and over, as Windows does: by a raw socket, since no TCP of this kernel would."""
    _, there = addresses(lab, ip)
    raw = packet("S", LOCAL, PORT, seq=isn, version=ip)
    with lab.a.entered():
        sender = socket.socket(socket.AF_INET if ip == 4 else socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_RAW)
    with sender:
        yield partial(sender.sendto, raw, (there, 0))


def arrived(lab: Lab, kind: str, count: int) -> bool:
    return lab.relay.counters().get(f"written.{kind}", 0) >= count


@both_families
@pytest.mark.parametrize("level", ["base", "resets", "acks"])
def test_the_same_syn_after_a_refusal_is_a_retry_and_no_retransmit(ip: int, level: str, tmp_path: Path) -> None:
    # The way is so long that no retry is taken for a copy of the SYN before (definition D2).
    with (
        Lab(Network.symmetric(5 * MS)) as lab,
        syn_sender(lab, ip, 7_000) as send,
        captured(lab.a, tmp_path, level) as seen,
    ):
        for refusals in (1, 2, 3):
            send()
            until(partial(arrived, lab, "rst", refusals), "the refusal arriving")
    (row,) = seen.rows
    assert (row["isn"], row["state"]) == (7_000, REFUSED)
    assert (row["syn_n"], row["retrans_after_rst"], row["retrans_timeout"]) == (3, 2, 0)
    assert syn_retrans(seen.rows)[0] == 0
    assert rtt_first_ns(seen.rows)[0] == UNKNOWN


@both_families
def test_a_server_that_opens_after_a_refusal_answers_the_same_attempt(ip: int, tmp_path: Path) -> None:
    with Lab(Network.symmetric(5 * MS)) as lab, syn_sender(lab, ip, 7_000) as send, captured(lab.a, tmp_path) as seen:
        send()
        until(partial(arrived, lab, "rst", 1), "the refusal arriving")
        with listening(lab.b, addresses(lab, ip)[1]):
            send()
            until(partial(arrived, lab, "synack", 1), "the answer arriving")
    (row,) = seen.rows
    assert row["state"] == ANSWERED
    assert (row["syn_n"], row["retrans_after_rst"], row["synack_n"]) == (2, 1, 1)
    assert syn_retrans(seen.rows)[0] == 0


# ---- a connection that one end has forgotten -------------------------------------------------------------------


@both_families
@pytest.mark.parametrize("level", ["acks", "base"])
def test_a_syn_into_a_half_open_connection_is_challenged(ip: int, level: str, tmp_path: Path) -> None:
    """The client's RST is lost, so the server holds on; it challenges the next SYN, and the repeat is let in.

    What is between the two SYNs is a bare ACK and a RST: a capture without those can only call it a time-out.
    """
    rule = Rule("drop", "rst", "a>b", count=1)
    with Lab(Network.symmetric(MS, rule)) as lab:
        here, there = addresses(lab, ip)
        with captured(lab.a, tmp_path, level) as seen, listening(lab.b, there) as listener:
            with tcp(lab.a, here, LOCAL) as made:
                made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                made.connect((there, PORT))
                held, _ = listener.accept()
            with tcp(lab.a, here, LOCAL) as made, held:
                made.connect((there, PORT))
        assert lab.relay.counters()["dropped.rst"] == 1
        assert lab.relay.counters()["repeated.syn"] == 1
    first, second = seen.rows
    assert (first["attempt"], second["attempt"]) == (1, 2)
    assert (first["syn_n"], first["state"], second["syn_n"], second["state"]) == (1, ANSWERED, 2, ANSWERED)
    assert (second["retrans_after_challenge"], second["retrans_timeout"]) == ((1, 0) if level == "acks" else (0, 1))
    assert syn_retrans(seen.rows).tolist() == [0, 0 if level == "acks" else 1]


# ---- data in the SYN -------------------------------------------------------------------------------------------

FASTOPEN, ENABLED = "net.ipv4.tcp_fastopen", 3


@both_families
def test_fast_open_is_told_by_its_option_and_its_data(ip: int, tmp_path: Path) -> None:
    """Asking for a cookie, data taken, data refused by a server that has changed its mind, a SYN with data lost."""
    both = {FASTOPEN: ENABLED}
    rule = Rule("drop", "syn", port=LOCAL + 3, nth=(1,))
    with Lab(Network.symmetric(MS, rule), both, both) as lab:
        here, there = addresses(lab, ip)

        def queue(made: socket.socket) -> None:
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_FASTOPEN, 5)

        with captured(lab.a, tmp_path) as seen, listening(lab.b, there, queue) as listener:
            for number in range(4):
                lab.b.set_sysctl(FASTOPEN, 0 if number == 2 else ENABLED)
                with tcp(lab.a, here, LOCAL + number) as made:
                    made.settimeout(None)  # a time-out makes it non-blocking, and this would not wait
                    made.sendto(b"hello", socket.MSG_FASTOPEN, (there, PORT))
                    served, _ = listener.accept()
                    with served:
                        served.settimeout(PATIENCE_S)
                        assert served.recv(10) == b"hello"
        acks = {}
        for row in lab.relay.log():
            if row["kind"] == SYNACK_KIND and row["event"] == WRITTEN:
                acks[int(row["dport"])] = int(row["ack"])
    rows = np.sort(seen.rows, order="sport")
    assert rows["sport"].tolist() == [LOCAL + number for number in range(4)]
    assert set(rows["state"]) == {ANSWERED}
    assert ((rows["flags"] & F_TFO) != 0).all()
    assert rows["syn_len"].tolist() == [0, 5, 5, 5]
    taken = [(acks[int(row["sport"])] - int(row["isn"]) - 1) % 2**32 for row in rows]
    assert taken[:3] == [0, 5, 0]
    assert rows["syn_n"].tolist() == [1, 1, 1, 2]
    assert rows["retrans_timeout"].tolist() == [0, 0, 0, 1]
    assert (rtt_first_ns(rows)[:3] > 2 * MS).all()
    assert rtt_first_ns(rows)[3] > 900 * MS


# ---- both ends at once -----------------------------------------------------------------------------------------


@both_families
def test_syns_that_cross_are_a_simultaneous_open_without_a_round_trip(ip: int, tmp_path: Path) -> None:
    with Lab(Network.symmetric(MS)) as lab:
        here, there = addresses(lab, ip)
        with captured(lab.a, tmp_path) as seen, tcp(lab.a, here, LOCAL) as one, tcp(lab.b, there, PORT) as other:
            lab.relay.stall()  # until both SYNs are on their way
            for made, target in ((one, (there, PORT)), (other, (here, LOCAL))):
                made.setblocking(False)
                assert made.connect_ex(target) == errno.EINPROGRESS
            until(lambda: lab.relay.counters().get("read.syn") == 2, "both SYNs")
            lab.relay.resume()
            for made in (one, other):
                assert select.select([], [made], [], PATIENCE_S)[1] == [made]
                assert made.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
    assert sorted(seen.rows["sport"]) == [PORT, LOCAL]
    assert set(seen.rows["state"]) == {SIMULTANEOUS}
    assert set(rtt_first_ns(seen.rows)) == {UNKNOWN}
    assert syn_retrans(seen.rows).tolist() == [0, 0]
