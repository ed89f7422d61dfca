"""Connections per second on loopback: our client and server against the C NCPS's, and the price of the capture.

The C NCPS gets an open standard input: with a closed one it burns a core, and the comparison would be unfair.
"""

import contextlib
import os
import re
import subprocess
import sys
import time
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
            spared(server, settings, where)
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


def spared(server: str, settings: Settings, where: str) -> None:
    """The same where the capture process has a core that load and server do not use."""
    if not hasattr(os, "sched_getaffinity") or len(cores := sorted(os.sched_getaffinity(0))) < 2:
        could_not_run.append("the price of the capture with a core to spare: needs two cores")
        return
    busy, spare = {cores[0]}, {cores[1]}
    os.sched_setaffinity(0, busy)
    try:
        with serving(server, PORT + 20):
            pair = {
                "no capture": lambda: client(OURS, PORT + 20, settings.seconds, "--no-capture"),
                "with capture": lambda: client(OURS, PORT + 20, settings.seconds, "--capture", spare=spare),
            }
            contest(
                pair, settings.rounds, "no capture", "conn/s", f"the same on one core, the capture on another, {where}"
            )
    finally:
        os.sched_setaffinity(0, set(cores))


def client(program: str, port: int, seconds: int, *more: str, spare: set[int] | None = None) -> float:
    """Connections per second that a client of NCPS's dialect reports. ``spare``: cores for its capture process."""
    command = [program, "-c", "127.0.0.1", "-bp", str(port), *CLIENT, "-t", str(seconds + 1), *more]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        if spare is not None:
            os.sched_setaffinity(capturing_child(process.pid), spare)
        text = process.stdout.read()
    found = re.search(r"^###ENDCPS (\d+)", text, re.MULTILINE)
    if found is None:
        raise SystemExit(f"bench: {' '.join(command)} printed no result:\n{text}")
    return float(found[1])


def capturing_child(pid: int) -> int:
    """The child of a process that has a packet socket, once it has it."""
    for _ in range(500):
        packet = {line.split()[8] for line in Path("/proc/net/packet").read_text(encoding="ascii").splitlines()[1:]}
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split():
            with contextlib.suppress(OSError):
                links = [str(descriptor.readlink()) for descriptor in Path(f"/proc/{child}/fd").iterdir()]
                if any(link.removeprefix("socket:[").rstrip("]") in packet for link in links):
                    return int(child)
        time.sleep(0.01)
    raise SystemExit("bench: no capture process came up")


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
    wanted = f":{port:04X} 00000000:0000 0A"
    for _ in range(500):
        if wanted in Path("/proc/net/tcp").read_text(encoding="ascii"):
            return
        time.sleep(0.02)
    raise SystemExit(f"bench: no server came up on port {port}")
