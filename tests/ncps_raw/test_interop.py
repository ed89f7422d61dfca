"""Either end may be NCPS itself: every mode, both ways, with nothing failed at ours.

``NCPS_PEER`` names its program; without it these tests are skipped, and say so. It is given an open standard input,
because it burns a core where that is closed.
"""

import contextlib
import json
import os
import re
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from loads import free_ports
from running import NCPS

PEER = os.environ.get("NCPS_PEER", "")
# The client's mode, the server's, life in ms: ping-pong and one-way modes end after one unit at life 0.
ROUNDS = [
    ("0", None, 0),
    ("0", None, 150),
    ("1", None, 0),
    ("1", None, 150),
    ("p", None, 0),
    ("p", None, 150),
    ("s", "r", 0),
    ("s", "r", 150),
    ("r", "s", 0),
    ("r", "s", 150),
]

pytestmark = pytest.mark.skipif(not PEER, reason="NCPS_PEER does not name the program of NCPS")


def block(count: int) -> int:
    """First of ``count`` free ports in a row."""
    while True:
        (first,) = free_ports(1)
        with contextlib.ExitStack() as held, contextlib.suppress(OSError):
            for port in range(first, first + count):
                held.enter_context(socket.socket()).bind(("127.0.0.1", port))
            return first


@contextlib.contextmanager
def started(*command: str) -> Iterator["subprocess.Popen[str]"]:
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def listening(port: int, count: int) -> None:
    """Wait until all these ports are in the kernel's table of listeners."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        found = {int(words[1].rpartition(":")[2], 16) for words in lines if words[3] == "0A"}
        if found >= set(range(port, port + count)):
            return
        time.sleep(0.02)
    raise AssertionError("it does not listen")


def finished(process: "subprocess.Popen[str]") -> str:
    """Its standard output; its standard input stays open until it has ended."""
    assert process.stdout is not None
    out = process.stdout.read()
    process.wait(30)
    return out


def rows(out: str) -> list[list[float]]:
    """NCPS's periodic rows."""
    found = [line.split() for line in out.splitlines() if re.fullmatch(r"[ \d.]+(REP)?", line) and line.strip()]
    return [[float(word) for word in row if word != "REP"] for row in found if len(row) >= 14]


@pytest.mark.parametrize(("mode", "other", "life"), ROUNDS)
def test_our_client_with_its_server(mode: str, other: str | None, life: int) -> None:
    port = block(2)
    their_mode = ["-M", other] if other else []
    wishes = ("-M", mode, "-D", str(life), "-N", "10", "-t", "0.7", "--no-capture", "--format", "json")
    with started(PEER, "-s", "-b", "127.0.0.1", "-r", "2", "-np", "2", "-bp", str(port), *their_mode):
        listening(port, 2)
        ours = subprocess.run(
            (NCPS, "-c", "127.0.0.1", "-r", "2", "-np", "2", "-bp", str(port), *wishes),
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
    report = json.loads(ours.stdout)
    assert ours.returncode == 0, ours.stderr
    assert report["established"] == report["attempted"] >= 10
    assert (report["failed"], report["io_failed"], report["not_started"], report["unfinished"]) == (0, 0, 0, 0)
    assert report["errors"] == []
    moved = (report["tx_gbps"] > 0, report["rx_gbps"] > 0)
    assert moved == (mode in "1ps", mode in "1pr")


@pytest.mark.parametrize(("mode", "other", "life"), ROUNDS)
def test_its_client_with_our_server(mode: str, other: str | None, life: int) -> None:
    port = block(2)
    our_mode = ["-M", other] if other else []
    with started(
        *(NCPS, "-s", "-b", "127.0.0.1", "-r", "2", "-np", "2", "-bp", str(port), *our_mode),
        *("-t", "4", "--no-capture", "--format", "json"),
    ) as ours:
        listening(port, 2)
        life_of = ("-M", mode, "-D", str(life), "-N", "10", "-t", "1")
        with started(PEER, "-c", "127.0.0.1", "-r", "2", "-np", "2", "-bp", str(port), *life_of) as theirs:
            seen = finished(theirs)
        ours.send_signal(2)
        report = json.loads(finished(ours))
    last = rows(seen)[-1]
    assert last[3] == last[4] == 0, seen  # Failed, IOFail
    assert report["established"] >= 10
    # Its process ends with connections open, which the kernel resets for it: at most those, and nothing else.
    assert report["io_failed"] <= 10, report["errors"]
    assert {error["name"] for error in report["errors"]} <= {"ECONNRESET"}
    moved = (report["rx_gbps"] > 0, report["tx_gbps"] > 0)
    assert moved == (mode in "1ps", mode in "1pr")
