"""Helpers of the link check's tests: two connected TCP sockets, and both commands with what is at their other end."""

import contextlib
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

from running import until


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
