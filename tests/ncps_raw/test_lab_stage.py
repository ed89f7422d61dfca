"""Playing a scenario: what happens when its programs do not do their part. The scenarios have a test of their own."""

import re
import sys
import tempfile
from pathlib import Path

import pytest
from ncps_capture.errors import EnvironmentFault

from ncps_raw.lab.network import RULE_ACTIONS
from ncps_raw.lab.scenario import Verdict, read_scenario
from ncps_raw.lab.stage import NotBegun, Outcome, play, scenarios


def test_every_file_is_a_scenario_and_says_what_it_is_about(root: Path) -> None:
    found = scenarios()
    names = [one.name for one in found]
    assert names == sorted(path.stem for path in (root / "ncps_raw" / "lab" / "scenarios").glob("*.toml"))
    assert len(names) == len(set(names)) >= 10
    assert all(one.about.endswith(".") for one in found)


def test_the_documented_scenario_is_one_and_every_action_and_direct_test_is_told(root: Path) -> None:
    text = (root / "docs" / "lab.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    scenario = read_scenario("shown", shown)
    assert scenario.about == next(one for one in scenarios() if one.name == "syn_lost").about
    assert set(RULE_ACTIONS) <= set(re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE))
    for name in set(re.findall(r"test_lab_\w+\.py", text)):
        assert (root / "tests" / "ncps_raw" / name).is_file(), name


def test_failures_are_the_expectations_that_do_not_hold() -> None:
    verdicts = (Verdict(True, "a = 1: 1 against 1"), Verdict(False, "b = 1: 2 against 1"))
    assert Outcome(verdicts, {}, "").failures() == "b = 1: 2 against 1"
    assert Outcome(verdicts[:1], {}, "").failures() == ""


# Stands for ``ncps``: a server that listens and reports, or does not; a client that reports nothing it should.
PROGRAM = """
import signal, sys
if sys.argv[1] == "server":
    if "--bad" in sys.argv:
        sys.exit("ncps: no such option --bad")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(print("{}")))
    print("ncps: listening", file=sys.stderr, flush=True)
    signal.pause()
if "--mute" in sys.argv:
    sys.exit("ncps: I will not")
print('{"failed": 0, "syn_rtt_us": {"n": null}}')
"""


@pytest.mark.namespaces
def test_figures_of_all_sources_meet() -> None:
    text = "[expect]\nfailed = 0\n'syn_rtt_us.n' = 'unknown'\n'at_a.attempts' = 0\nexit_code = 1\n'at_b.answered' = 0"
    outcome = play(read_scenario("made", text), (sys.executable, "-c", PROGRAM))
    assert outcome.failures() == "exit_code = 1: 0 against 1"
    assert [verdict.holds for verdict in outcome.verdicts] == [True] * 5 + [False, True]


@pytest.mark.namespaces
@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("server = '--bad'", "the scenario's server has ended: ncps: no such option --bad"),
        ("client = '--mute'", "the scenario's client gave no report: ncps: I will not"),
        ("[sysctls.b]\n'net.no' = 1", "cannot set net.no to 1 in the lab"),
    ],
)
def test_a_program_that_fails_is_told(line: str, said: str) -> None:
    scenario = read_scenario("made", f"{line}\n[expect]\nfailed = 0")
    with pytest.raises(EnvironmentFault, match=said):
        play(scenario, (sys.executable, "-c", PROGRAM))


# Stands for ``ncps`` where the client runs until it is interrupted, once.
PATIENT = """
import signal, sys
if sys.argv[1] == "server":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(print("{}")))
    print("ncps: listening", file=sys.stderr, flush=True)
    signal.pause()
signal.signal(signal.SIGINT, lambda *_: signal.signal(signal.SIGINT, signal.SIG_DFL))
open(sys.argv[-1], "w").close()
signal.pause()
print('{"interrupted": "SIGINT", "failed": 0}')
"""


@pytest.mark.namespaces
def test_a_stopped_scenario_reports_what_its_client_did_until_then(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    scenario = read_scenario("made", f"client = '{ready}'\n[expect]\nfailed = 0\nexit_code = 0")
    outcome = play(scenario, (sys.executable, "-c", PATIENT), ready.exists)
    assert outcome.failures() == ""
    assert outcome.figures["interrupted"] == "SIGINT"


# Stands for ``ncps`` with a temporary folder at each end. The server removes its own if it may leave in order and tells
# where it was; the client is killed by an interrupt, before it could handle one.
MESSY = """
import os, signal, sys, tempfile
folder = tempfile.mkdtemp()
if sys.argv[1] == "server":
    def leave(*_):
        os.rmdir(folder)
        with open(sys.argv[-1], "w") as file:
            file.write(folder)
        sys.exit()
    signal.signal(signal.SIGTERM, leave)
    print("ncps: listening", file=sys.stderr, flush=True)
    signal.pause()
signal.signal(signal.SIGINT, signal.SIG_DFL)
open(sys.argv[-1], "w").close()
signal.pause()
"""


@pytest.mark.namespaces
def test_a_client_interrupted_too_early_has_not_begun_and_its_server_leaves_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "own"
    own.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(own))
    ready, told = tmp_path / "ready", tmp_path / "told"
    scenario = read_scenario("made", f"server = '{told}'\nclient = '{ready}'\n[expect]\nfailed = 0")
    with pytest.raises(NotBegun):
        play(scenario, (sys.executable, "-c", MESSY), ready.exists)
    assert Path(told.read_text(encoding="utf-8")).parent.parent == own
    assert list(own.iterdir()) == []


@pytest.mark.namespaces
def test_a_scenario_stopped_before_its_client_starts_none(tmp_path: Path) -> None:
    ready, told = tmp_path / "ready", tmp_path / "told"
    scenario = read_scenario("made", f"server = '{told}'\nclient = '{ready}'\n[expect]\nfailed = 0")
    with pytest.raises(NotBegun):
        play(scenario, (sys.executable, "-c", MESSY), lambda: True)
    assert (told.exists(), ready.exists()) == (True, False)
