"""``ncps demo``: a server, a client and a capture on loopback, then the same over a path that loses SYNs.

The one idea: it shows the real thing. The servers are processes of this program started as a person would start them,
the clients are ``ncps client``; nothing is simulated but the path of the second part, which says what it lost.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Final

from ncps_capture.errors import EnvironmentFault

from ncps_raw import net
from ncps_raw.client import run_client
from ncps_raw.interrupts import LEFT_BY_SECOND, Interrupts, LeaveNow
from ncps_raw.lab import namespaces, stage
from ncps_raw.lab.contrast import contrast
from ncps_raw.output import Output
from ncps_raw.plan import ClientPlan

THREADS = 2
CONNECTIONS = 200
SERVER_START_S = 15.0
SERVER_END_S = 10.0
ORPHAN_S = 60.0
"""A server left behind by a killed demo ends this much later by itself."""

SCENARIO: Final = "demo"
LOSSY: Final = """
Now between two network namespaces: 10 ms each way, every 50th first SYN is lost.
This takes about 5 seconds."""


def run_demo(duration_ns: int) -> int:
    """The loopback part for ``duration_ns``, then the lossy path where one can be made; the first part's exit code.

    Raises NcpsError if the server cannot be started. An interrupt ends the part it comes in, and there is no next.
    """
    try:
        namespaces.check()
    except EnvironmentFault as error:
        code = _loopback(duration_ns)
        _leave_out(error)
        return code
    with _heard() as stopped:
        code = _loopback(duration_ns)
        if stopped():
            return code
    try:
        with Interrupts() as interrupts:
            _lossy_path(interrupts.stopped)
    except LeaveNow:
        return LEFT_BY_SECOND
    return code


def _lossy_path(stopped: Callable[[], bool]) -> None:
    _show(LOSSY)
    scenario = next(one for one in stage.scenarios() if one.name == SCENARIO)
    try:
        figures = stage.play(scenario, stopped=stopped).figures
        if "error.message" in figures:
            raise EnvironmentFault(str(figures["error.message"]))
        _show("", *contrast(figures))
    except EnvironmentFault as error:
        if not stopped():  # one that is stopped as it begins may have nothing to report
            _leave_out(error)
    if stopped():
        _show("(interrupted)")


def _leave_out(error: EnvironmentFault) -> None:
    output = Output("text", None, silent_rows=True, quiet=False)
    output.say(f"the path that loses SYNs is left out: {error}")


def _show(*lines: str) -> None:
    if sys.stdout is not None:  # closed by whoever started us
        sys.stdout.write("\n".join(lines) + "\n")
        sys.stdout.flush()


def _loopback(duration_ns: int) -> int:
    port = net.free_port_block(THREADS)
    command = [sys.executable, "-m", "ncps_raw", "server", "--bind", "127.0.0.1", "--port", str(port)]
    command += ["--threads", str(THREADS), "--duration", f"{duration_ns / 1e9 + ORPHAN_S:.3f}"]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, process_group=0)
    try:
        assert server.stderr is not None
        first = server.stderr.readline().strip()  # it says so once it listens
        if "listening" not in first:
            server.wait(SERVER_START_S)
            raise EnvironmentFault(f"cannot start the demo's server: {first.removeprefix('ncps: ') or 'it ended'}")
        return run_client(
            ClientPlan(
                target="127.0.0.1",
                base_port=port,
                threads=THREADS,
                connections=CONNECTIONS,
                duration_ns=duration_ns,
                command_line="ncps demo",
            )
        )
    finally:
        server.terminate()
        try:
            server.communicate(timeout=SERVER_END_S)
        except subprocess.TimeoutExpired:
            server.kill()
            server.communicate()


@contextlib.contextmanager
def _heard() -> Iterator[Callable[[], bool]]:
    """Whether a signal that ends a run has come meanwhile.

    The run handles its signals itself and its exit code does not tell of them. The interpreter writes the number of
    every signal that is handled into a descriptor, whoever handles it.
    """
    reader, writer = os.pipe()
    for end in (reader, writer):
        os.set_blocking(end, False)
    before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)

    def came() -> bool:
        with contextlib.suppress(BlockingIOError):
            return any(number in (signal.SIGINT, signal.SIGTERM) for number in os.read(reader, 1024))
        return False

    try:
        yield came
    finally:
        signal.set_wakeup_fd(before)
        os.close(reader)
        os.close(writer)
