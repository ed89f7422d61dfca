"""Connections per second on loopback: our client and server against the C NCPS's, and the price of the capture.

The C NCPS gets an open standard input: with a closed one it burns a core, and the comparison would be unfair.
"""

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from contest import Settings, contest, could_not_run

OURS = str(Path(sys.executable).with_name("ncps"))
PORT = 23_101
CLIENT = ("-r", "2", "-N", "200", "-wt", "1")


def suite(settings: Settings) -> None:
    peer = os.environ.get("NCPS_PEER", "")
    here = bool(peer) and os.access(peer, os.X_OK)
    if not here:
        could_not_run.append("C NCPS as client and server: set NCPS_PEER to its path")
    server = peer if here else OURS
    where = "the C server" if here else "our server"
    with serving(server, PORT):
        contenders = {"ours, no capture": lambda: client(OURS, PORT, settings.seconds, "--no-capture")}
        if here:
            contenders = {"C NCPS": lambda: client(peer, PORT, settings.seconds)} | contenders
        contest(contenders, settings.rounds, next(iter(contenders)), "conn/s", f"clients of {where}, -r 2 -N 200")
        if os.geteuid() == 0:
            pair = {
                "no capture": lambda: client(OURS, PORT, settings.seconds, "--no-capture"),
                "with capture": lambda: client(OURS, PORT, settings.seconds, "--capture"),
            }
            contest(pair, settings.rounds, "no capture", "conn/s", f"the price of the capture, our client of {where}")
        else:
            could_not_run.append("the price of the capture: needs the right to capture (run as root)")
    if here:
        with serving(peer, PORT), serving(OURS, PORT + 10):
            contest(
                {
                    "C server": lambda: client(peer, PORT, settings.seconds),
                    "our server": lambda: client(peer, PORT + 10, settings.seconds),
                },
                settings.rounds,
                "C server",
                "conn/s",
                "servers of the C client, -r 2 -N 200",
            )


def client(program: str, port: int, seconds: int, *more: str) -> float:
    """Connections per second that a client of NCPS's dialect reports."""
    command = [program, "-c", "127.0.0.1", "-bp", str(port), *CLIENT, "-t", str(seconds + 1), *more]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        text = process.stdout.read()
    found = re.search(r"^###ENDCPS (\d+)", text, re.MULTILINE)
    if found is None:
        raise SystemExit(f"bench: {' '.join(command)} printed no result:\n{text}")
    return float(found[1])


@contextlib.contextmanager
def serving(program: str, port: int) -> Iterator[None]:
    """A server of NCPS's dialect on ``port`` and the one after it."""
    command = [program, "-s", "-r", "2", "-bp", str(port), "-sil"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as process:
        try:
            await_listener(port)
            await_listener(port + 1)
            yield
        finally:
            process.terminate()


def await_listener(port: int) -> None:
    """Until something listens, by the kernel's table: a probing connection would be counted by the server."""
    import time

    wanted = f":{port:04X} 00000000:0000 0A"
    for _ in range(500):
        if wanted in Path("/proc/net/tcp").read_text(encoding="ascii"):
            return
        time.sleep(0.02)
    raise SystemExit(f"bench: no server came up on port {port}")
