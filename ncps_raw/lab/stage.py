"""Edge: a scenario played: a lab, ``ncps server`` at one end, ``ncps client`` at the other, and what came out.

The one idea: the programs are started as a person would start them, and know nothing of the lab. What they report and
what the relay counted meet only afterwards, in the figures the expectations name.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any, Final

from ncps_capture.errors import EnvironmentFault

from ncps_raw.lab.lab import Lab
from ncps_raw.lab.scenario import Expectation, Scenario, Verdict, flatten, judge, read_scenario
from ncps_raw.lab.truth import lateness_us, seen_at

PROGRAM: Final = (sys.executable, "-m", "ncps_raw")
_PORT: Final = "10001"
_PATIENCE_S: Final = 60.0
_LOOK_S: Final = 0.02
_ASK_S: Final = 0.1
_NOT_BEGUN: Final = "the scenario was stopped before a connection was made"
_PIPES: Final[dict[str, Any]] = {
    "stdout": subprocess.PIPE,
    "stderr": subprocess.PIPE,
    "text": True,
    "process_group": 0,
}

TRUSTWORTHY: Final = (Expectation("lost_by_devices", "=", "0"), Expectation("unwritten", "=", "0"))
"""Expected of every scenario: nothing was lost beside the rules, or the relay's counts would not be the truth."""


class NotBegun(EnvironmentFault):
    """A scenario was stopped before its client sent a SYN: there is nothing to report."""


@dataclass(frozen=True)
class Outcome:
    """What a scenario came to."""

    verdicts: tuple[Verdict, ...]
    figures: dict[str, Any]  # all that formulas may name
    remarks: str  # what the client wrote to standard error

    def failures(self) -> str:
        """The expectations that do not hold, one a line; empty if all do."""
        return "\n".join(verdict.text for verdict in self.verdicts if not verdict.holds)


def scenarios() -> list[Scenario]:
    """All scenarios that come with the program, by name."""
    folder = resources.files("ncps_raw.lab") / "scenarios"
    found = (entry for entry in folder.iterdir() if entry.name.endswith(".toml"))
    return [
        read_scenario(entry.name.removesuffix(".toml"), entry.read_text(encoding="utf-8"))
        for entry in sorted(found, key=lambda entry: entry.name)
    ]


def play(scenario: Scenario, program: Sequence[str] = PROGRAM, stopped: Callable[[], bool] = lambda: False) -> Outcome:
    """Play a scenario with ``program`` as ``ncps``. EnvironmentFault where no lab can be made or a program fails.

    The client is interrupted once ``stopped`` says so, and what it reports then is the outcome; NotBegun if it cannot
    report because it never sent a SYN. Both programs are in
    groups of their own: a Ctrl-C at the terminal reaches the client by that way alone, and not twice.
    """
    offset_ns = time.time_ns() - time.monotonic_ns()
    with _own_folder() as folder, Lab(scenario.network, scenario.sysctls_a, scenario.sysctls_b) as lab:
        popen = {**_PIPES, "env": {**os.environ, "TMPDIR": folder}}
        address = lab.b.ipv4 if scenario.ip == 4 else lab.b.ipv6
        command = [*program, "server", "--bind", address, "--port", _PORT, "--format", "json", *scenario.server]
        server = lab.b.run(command, **popen)
        _wait_listening(server)
        if stopped():
            raise NotBegun(_NOT_BEGUN)
        if scenario.server_stopped_ns:
            lab.b.signal(signal.SIGSTOP)
        command = [*program, "client", address, "--port", _PORT, "--capture", "--format", "json", *scenario.client]
        client = lab.a.run(command, **popen)
        if scenario.server_stopped_ns:
            _go_on_later(lab, client, scenario.server_stopped_ns)
        try:
            report, remarks = _result(client, "client", stopped)
        except EnvironmentFault:
            if stopped() and not lab.relay.counters().get("read.syn"):  # interrupted before it could hear of it
                raise NotBegun(_NOT_BEGUN) from None
            raise
        server.send_signal(signal.SIGTERM)
        server_report, _ = _result(server, "server")
        lost = lab.a.device_losses() + lab.b.device_losses()
    counters = lab.relay.counters()
    log = lab.relay.log()
    figures = {
        **flatten(report),
        **flatten(server_report, "server."),
        **seen_at(log, "a").figures("at_a"),
        **seen_at(log, "b").figures("at_b"),
        **lateness_us(log),
        **counters,
        "lost_by_devices": lost,
        "unwritten": sum(count for name, count in counters.items() if name.startswith("unwritten.")),
        "exit_code": client.returncode,
        # Nothing of the scenario's: where this machine's clock was set meanwhile, figures that need two clocks suffer.
        "clock_moved_us": (time.time_ns() - time.monotonic_ns() - offset_ns) // 1000,
    }
    return Outcome(tuple(judge(TRUSTWORTHY + scenario.expect, figures)), figures, remarks)


@contextlib.contextmanager
def _own_folder() -> Iterator[str]:
    """A folder for the temporary files of both programs: what one that is killed leaves behind goes with it."""
    folder = tempfile.mkdtemp(prefix="ncps-lab-")
    try:
        yield folder
    finally:
        try:
            shutil.rmtree(folder, ignore_errors=True)
        except BaseException:  # an interrupt in the middle of it
            shutil.rmtree(folder, ignore_errors=True)
            raise


def _wait_listening(server: subprocess.Popen[str]) -> None:
    assert server.stderr is not None
    said = []
    for line in server.stderr:
        said.append(line.strip())
        if "listening" in line:
            return
    raise EnvironmentFault(f"the scenario's server has ended: {' '.join(said) or 'it said nothing'}")


def _go_on_later(lab: Lab, client: subprocess.Popen[str], stopped_ns: int) -> None:
    """Let the server go on so long after the first SYN; at once if the client never sends one."""
    while not lab.relay.counters().get("read.syn") and client.poll() is None:
        time.sleep(_LOOK_S)
    time.sleep(stopped_ns / 1e9)
    lab.b.signal(signal.SIGCONT)


def _result(
    process: subprocess.Popen[str], name: str, stopped: Callable[[], bool] = lambda: False
) -> tuple[dict[str, Any], str]:
    deadline = time.monotonic() + _PATIENCE_S
    told = False
    while True:
        try:
            out, remarks = process.communicate(timeout=_ASK_S)
            break
        except subprocess.TimeoutExpired:
            if time.monotonic() > deadline:
                raise EnvironmentFault(f"the scenario's {name} did not end within {_PATIENCE_S:g} s") from None
        if stopped() and not told:
            told = True
            process.send_signal(signal.SIGINT)
    try:
        report: dict[str, Any] = json.loads(out)
    except ValueError:
        said = " ".join(remarks.split()) or f"exit code {process.returncode}"
        raise EnvironmentFault(f"the scenario's {name} gave no report: {said}") from None
    return report, remarks
