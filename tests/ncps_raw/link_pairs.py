"""Helpers of the link check's tests: two connected TCP sockets, and both commands with what is at their other end."""

import contextlib
import json
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from running import NCPS, finish, start, until


@contextlib.contextmanager
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """(connecting, accepted) on loopback."""
    with socket.create_server(("127.0.0.1", 0)) as door:
        near = socket.create_connection(door.getsockname())
        far, _ = door.accept()
    with near, far:
        yield near, far


def read_all(sock: socket.socket) -> bytes:
    """Everything until the peer's end."""
    parts = []
    while part := sock.recv(1 << 16):
        parts.append(part)
    return b"".join(parts)


def free_port() -> int:
    """A port nobody listens on now."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def await_listener(port: int, process: "subprocess.Popen[str]") -> None:
    """Until something listens on ``port``, by the kernel's table: a probing connection would be taken for a client."""
    wanted = f":{port:04X} "

    def listens() -> bool:
        assert process.poll() is None, process.communicate()
        for table in ("/proc/net/tcp", "/proc/net/tcp6"):
            for line in Path(table).read_text().splitlines()[1:]:
                words = line.split()
                if f"{words[1]} ".endswith(wanted) and words[3] == "0A":
                    return True
        return False

    until(listens, f"a listener on port {port}")


HERE = "127.0.0.1"
NETCATS = {
    "nc.openbsd": (("-l",), ("-N",)),
    "nc.traditional": (("-l", "-p"), ("-q0",)),
    "ncat": (("-l",), ()),
}
"""How it listens, and what makes it end its side of the connection when its standard input ends."""


def installed(name: str) -> str:
    """``name``, or the test is skipped."""
    if shutil.which(name) is None:
        pytest.skip(f"{name} is not installed")
    return name


class Pairing:
    """A listener and a client that end by themselves."""

    def __init__(self, listener: Sequence[str], client: Sequence[str]) -> None:
        self.port = str(free_port())
        self.listener = self.begin(listener)
        await_listener(int(self.port), self.listener)
        self.client = self.begin(client)

    def begin(self, words: Sequence[str]) -> "subprocess.Popen[str]":
        words = [word.replace("PORT", self.port) for word in words]
        return start(*words[1:], "-p", self.port) if words[0] == NCPS else with_files(words)

    def end(self) -> tuple[tuple[int, str, str], tuple[int, str, str]]:
        """(client, listener)"""
        return ended(self.client), ended(self.listener)


def ended(process: "subprocess.Popen[str]") -> tuple[int, str, str]:
    if process.stdout is not None:
        return finish(process)
    try:
        return process.wait(timeout=30), "", ""
    except subprocess.TimeoutExpired:
        process.kill()
        raise AssertionError(f"{process.args} did not end") from None


def with_files(words: Sequence[str]) -> "subprocess.Popen[str]":
    """``nc ... < FILE > FILE``"""
    line = " ".join(words)
    command, _, out = line.partition(" > ")
    command, _, source = command.partition(" < ")
    with Path(source or os.devnull).open("rb") as stdin, Path(out or os.devnull).open("wb") as stdout:
        return subprocess.Popen(command.split(), stdin=stdin, stdout=stdout, text=True)


def both(listener: Sequence[str], client: Sequence[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """JSON reports of (client, listener), both of which must end with 0."""
    ends = Pairing([NCPS, *listener, "--format", "json"], [NCPS, *client, "--format", "json"]).end()
    assert [code for code, _, _ in ends] == [0, 0], ends
    return json.loads(ends[0][1]), json.loads(ends[1][1])


def problems(out: str) -> list[str]:
    return [line for line in out.splitlines() if line.startswith("Problem: ")]
