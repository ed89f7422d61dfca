"""What letters do to a run, by a made-up clock."""

from types import SimpleNamespace

import pytest

from ncps_raw import controls
from ncps_raw.controls import LETTERS, Controls

S = 1_000_000_000


class Run:
    """Keys, load, rows and clock of a run; ``at`` types something at a second."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.now = 0
        self.typed = ""
        self.held: list[bool] = []
        self.forms = 0
        self.said: list[str] = []
        patch.setattr(controls, "time", SimpleNamespace(monotonic_ns=lambda: self.now))
        self.controls = Controls(self, hold=self.held.append, next_form=self.next_form, say=self.said.append)

    def next_form(self) -> None:
        self.forms += 1

    def pressed(self) -> str:
        typed, self.typed = self.typed, ""
        return typed

    def at(self, second: float, typed: str) -> None:
        self.now, self.typed = round(second * S), typed
        self.controls.look()


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    return Run(monkeypatch)


def test_the_load_is_held_and_let_go(run: Run) -> None:
    run.at(1, "p")
    assert (run.held, run.said) == ([True], ["PAUSE"])
    run.at(3.25, "r")
    assert (run.held, run.said) == ([True, False], ["PAUSE", "RESUME"])
    assert run.controls.note(10 * S) == "paused once by key, 2.2 s in all, which times and rates include"


def test_what_is_so_already_is_not_done_again(run: Run) -> None:
    run.at(1, "r")
    run.at(2, "pp")
    run.at(3, "rr")
    assert run.held == [True, False]
    assert run.said == ["PAUSE", "RESUME"]


def test_a_pause_until_the_end_counts_until_the_end(run: Run) -> None:
    run.at(1, "pr")
    run.at(2, "p")
    assert run.controls.note(5 * S) == "paused 2 times by key, 3.0 s in all, which times and rates include"
    assert run.controls.note(1 * S) == "paused 2 times by key, 0.0 s in all, which times and rates include"


def test_rows_change_their_form_and_nothing_is_noted(run: Run) -> None:
    run.at(1, "bb")
    run.at(2, "b")
    assert (run.forms, run.held, run.said, run.controls.note(5 * S)) == (3, [], [], None)


def test_every_letter_does_something(run: Run) -> None:
    for letter in LETTERS:
        run.at(1, "p" if letter == "r" else "")
        before = (len(run.held), run.forms)
        run.at(2, letter)
        assert (len(run.held), run.forms) != before
