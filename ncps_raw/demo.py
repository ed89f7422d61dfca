"""``ncps demo``: a server, a client and a capture on loopback, then the same over a path that loses SYNs.

The one idea: it shows the real thing. The servers are processes of this program started as a person would start them,
the clients are ``ncps client``; nothing is simulated but the path of the second part, which says what it lost.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
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
NOT_BEGUN: Final = "interrupted before a connection was made"


def run_demo(duration_ns: int, interrupts: Interrupts | None = None) -> int:
    """The loopback part for ``duration_ns``, then the lossy path where one can be made; the first part's exit code.

    Raises NcpsError if the server cannot be started. An interrupt ends the part it comes in, and there is no next;
    ``interrupts`` may have been entered before, so that one during start-up is not lost.
    """
    with interrupts or Interrupts() as interrupts:
        code = _loopback(duration_ns, interrupts)
        if interrupts.stopped():
            return code
        try:
            namespaces.check()
            _lossy_path(interrupts.stopped)
        except EnvironmentFault as error:
            _leave_out(error)
        except LeaveNow:
            return LEFT_BY_SECOND
    return code


def _lossy_path(stopped: Callable[[], bool]) -> None:
    _show(LOSSY)
    scenario = next(one for one in stage.scenarios() if one.name == SCENARIO)
    try:
        figures = stage.play(scenario, stopped=stopped).figures
    except stage.NotBegun:
        figures = {}
    if "error.message" in figures:
        raise EnvironmentFault(str(figures["error.message"]))
    if stopped() and not figures.get("connections"):
        _show(f"({NOT_BEGUN})")
        return
    _show("", *contrast(figures))
    if stopped():
        _show("(interrupted)")


def _leave_out(error: EnvironmentFault) -> None:
    _say(f"the path that loses SYNs is left out: {error}")


def _say(text: str) -> None:
    Output("text", None, silent_rows=True, quiet=False).say(text)


def _show(*lines: str) -> None:
    if sys.stdout is not None:  # closed by whoever started us
        sys.stdout.write("\n".join(lines) + "\n")
        sys.stdout.flush()


def _loopback(duration_ns: int, interrupts: Interrupts) -> int:
    if interrupts.stopped():
        _say(NOT_BEGUN)
        return 0
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
        if interrupts.stopped():
            _say(NOT_BEGUN)
            return 0
        return run_client(
            ClientPlan(
                target="127.0.0.1",
                base_port=port,
                threads=THREADS,
                connections=CONNECTIONS,
                duration_ns=duration_ns,
                command_line="ncps demo",
            ),
            interrupts,
        )
    finally:
        server.terminate()
        try:
            server.communicate(timeout=SERVER_END_S)
        except subprocess.TimeoutExpired:
            server.kill()
            server.communicate()
