"""``ncps demo``: a server, a client and a capture on this machine's loopback, then the joined report.

The one idea: it shows the real thing. The server is a process of this program started as a person would start it, the
client is the same code as ``ncps client``; nothing is simulated.
"""

from __future__ import annotations

import subprocess
import sys

from ncps_capture.errors import EnvironmentFault

from ncps_raw import net
from ncps_raw.client import run_client
from ncps_raw.plan import ClientPlan

THREADS = 2
CONNECTIONS = 200
SERVER_START_S = 15.0
SERVER_END_S = 10.0
ORPHAN_S = 60.0
"""A server left behind by a killed demo ends this much later by itself."""


def run_demo(duration_ns: int) -> int:
    """Run for ``duration_ns``; the client's exit code. Raises NcpsError if the server cannot be started."""
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
