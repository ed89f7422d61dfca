"""Edge: a lab from the side of whoever uses it: two ends to run programs at, and the relay between them.

The one idea: everything is in the hands of the relay's process; this side holds a pipe to it. Leaving the ``with``
block stops it in order; dying with or without notice closes the pipe, and it clears up by itself.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict
from types import TracebackType
from typing import Any, Final, Self

import numpy as np
from ncps_capture.errors import EnvironmentFault

from ncps_raw.lab import namespaces
from ncps_raw.lab.logbook import RELAY_LOG, Log
from ncps_raw.lab.namespaces import Side
from ncps_raw.lab.network import Network

_ANSWER_S: Final = 30.0
_END_S: Final = 10.0
_LEAVE_S: Final = 3.0
"""So long programs have to leave by themselves when the lab ends."""


class End:
    """One end of the path: a network namespace with one device. Programs run there end with the lab at the latest."""

    def __init__(self, side: Side) -> None:
        self.name = side.name
        self.device = side.device
        self.ipv4 = side.ipv4
        self.ipv6 = side.ipv6
        self._side = side
        self._running: list[subprocess.Popen[Any]] = []

    def command(self, argv: Sequence[str]) -> list[str]:
        """The command line that runs ``argv`` here."""
        return namespaces.command(self.name, argv)

    def run(self, argv: Sequence[str], **popen: Any) -> subprocess.Popen[Any]:
        """Start ``argv`` here; ``popen`` are options of ``subprocess.Popen``."""
        process = subprocess.Popen(self.command(argv), **popen)
        self._running.append(process)
        return process

    def entered(self) -> AbstractContextManager[None]:
        """This thread is here meanwhile: sockets it opens belong here."""
        return namespaces.entered(self.name)

    def sysctl(self, key: str) -> str:
        """The value of a network sysctl such as ``net.ipv4.tcp_timestamps`` here."""
        return namespaces.sysctl(self.name, key)

    def set_sysctl(self, key: str, value: int | str) -> None:
        """Set a network sysctl here."""
        namespaces.set_sysctl(self.name, key, value)

    def device_losses(self) -> int:
        """Packets the device dropped by itself, so that the relay never saw them or nobody got them."""
        return namespaces.device_losses(self._side)

    def signal(self, number: int) -> None:
        """Send a signal to every process that runs here, the children of those started too."""
        for pid in namespaces.processes_in(self.name):
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def ask_to_end(self) -> None:
        """Ask the programs started here to end: SIGTERM, so that they remove what is theirs alone."""
        asked = [process for process in self._running if process.poll() is None]
        for process in asked:
            process.terminate()
        if asked:
            self.signal(signal.SIGCONT)  # one that is stopped hears nothing

    def end_all(self, deadline: float) -> None:
        """Wait for the programs started here until ``time.monotonic()`` is ``deadline``, then end them."""
        try:
            for process in self._running:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(max(0.0, deadline - time.monotonic()))
        finally:
            for process in self._running:
                if process.poll() is None:
                    process.kill()
            for process in self._running:
                process.wait()
                for pipe in (process.stdin, process.stdout, process.stderr):
                    if pipe is not None:
                        with suppress(OSError):
                            pipe.close()


class RelayHandle:
    """The relay as seen by its parent: orders, counters, log. All of it stays readable after the lab has ended."""

    def __init__(self, network: Network) -> None:
        self._lock = threading.Lock()
        self._log: Log | None = None
        with tempfile.TemporaryFile() as file:  # without a name: nothing is left of it whatever happens
            self._log_file = log = os.dup(file.fileno())
        command = [sys.executable, "-m", "ncps_raw.lab.relay", str(os.getpid()), str(log), json.dumps(asdict(network))]
        # A group of its own: a Ctrl-C is for the programs under test; the relay must outlive them.
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, pass_fds=(log,), process_group=0
        )
        self.pid = self._process.pid
        self._counters: dict[str, int] = {}

    def wait_ready(self) -> None:
        """Return when packets pass. Raises EnvironmentFault with the reason if they never will."""
        answer = self._answer()
        if "error" in answer:
            raise EnvironmentFault(answer["error"])

    def counters(self) -> dict[str, int]:
        """What the relay did, by ``verb.kind``; a name that never came about is missing.

        Verbs: ``read``, ``repeated`` (read, and not the first transmission), the actions in their past form
        (``dropped``, ``duplicated``, ``queue_full`` ...), ``written``, ``unwritten`` (the device did not take it).
        Kinds are those of ``packets.KINDS``. ``under_way`` and ``held`` are packets still inside.
        """
        return dict(self._order("counters"))

    def stall(self) -> None:
        """Hold every packet, those on their way too, until ``resume``. In force when this returns."""
        self._order("stall")

    def resume(self) -> None:
        """Let go what ``stall`` held: what is due leaves at once, in order."""
        self._order("resume")

    def log(self) -> Log:
        """Everything up to now, as rows of RELAY_LOG in the order it happened."""
        if self._log is not None:
            return self._log
        self._order("flush")
        return self._read_log()

    def stop(self) -> None:
        """Stop in order, and take over the last figures. Kills the relay if it does not end."""
        if self._log is not None:
            return
        with suppress(EnvironmentFault):
            self._order("stop")
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._log = self._read_log()
        os.close(self._log_file)

    def _read_log(self) -> Log:
        size = os.fstat(self._log_file).st_size
        rows = size // RELAY_LOG.itemsize
        return np.frombuffer(os.pread(self._log_file, rows * RELAY_LOG.itemsize, 0), RELAY_LOG)

    def _order(self, order: str) -> Mapping[str, int]:
        with self._lock:
            if self._log is None:
                assert self._process.stdin is not None
                with suppress(BrokenPipeError):  # the answer's absence says more
                    self._process.stdin.write(order.encode("ascii") + b"\n")
                self._counters = self._answer()
            return self._counters

    def _answer(self) -> dict[str, Any]:
        pipe = self._process.stdout
        assert pipe is not None
        line = b""
        while not line.endswith(b"\n"):
            ready, _, _ = select.select([pipe], [], [], _ANSWER_S)
            piece = pipe.read(65_536) if ready else None
            if piece is None:
                raise EnvironmentFault(f"the lab's relay did not answer within {_ANSWER_S:g} s")
            if not piece:
                raise EnvironmentFault("the lab's relay has ended unexpectedly; what it said stands above")
            line += piece
        answer: dict[str, Any] = json.loads(line)
        return answer


class Lab:
    """``with Lab(Network.symmetric(10_000_000)) as lab:`` gives two ends, ``lab.a`` and ``lab.b``, and ``lab.relay``.

    Raises EnvironmentFault where namespaces cannot be made; the message says what would help.
    """

    def __init__(
        self,
        network: Network,
        sysctls_a: Mapping[str, int | str] | None = None,
        sysctls_b: Mapping[str, int | str] | None = None,
    ) -> None:
        namespaces.check()
        self.network = network
        self.relay = RelayHandle(network)
        try:
            self._sides = namespaces.sides(self.relay.pid)
            self.a, self.b = (End(side) for side in self._sides)
            self.relay.wait_ready()
            for end, sysctls in ((self.a, sysctls_a), (self.b, sysctls_b)):
                for key, value in (sysctls or {}).items():
                    end.set_sysctl(key, value)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End all programs of the lab, stop the relay, remove everything. Counters and log stay readable.

        Programs are asked first (SIGTERM), and killed if they have not left a little later.
        """
        try:
            for end in (self.a, self.b):
                end.ask_to_end()
            deadline = time.monotonic() + _LEAVE_S
            for end in (self.a, self.b):
                end.end_all(deadline)
        finally:
            self.relay.stop()
            # Nothing to do unless the relay was killed.
            namespaces.remove([side.name for side in self._sides])
