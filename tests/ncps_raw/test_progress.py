"""The line that says how far a reading is: what it says, and that nobody but a terminal sees it."""

import io
import sys

import pytest

from ncps_raw import progress
from ncps_raw.progress import Progress, progress_line


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


@pytest.mark.parametrize(
    ("done", "size", "seconds", "line"),
    [
        (50, 100, 2.0, "[############------------]  50 %  1,234 packets  2 s left"),
        (100, 100, 2.0, "[########################] 100 %  1,234 packets  0 s left"),
        (0, 100, 2.0, "[------------------------]   0 %  1,234 packets"),
        (120, 100, 2.0, "[########################] 100 %  1,234 packets  0 s left"),
        (5_000_000, None, 2.0, "5 MB, 1,234 packets read"),
    ],
)
def test_what_it_says(done: int, size: int | None, seconds: float, line: str) -> None:
    assert progress_line(done, size, 1234, seconds) == line


def test_it_waits_a_second_and_leaves_nothing(clock: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    with Progress() as shown:
        shown(1, 100, 10)
        clock[0] += 0.9
        shown(2, 100, 20)
        assert terminal.getvalue() == ""
        clock[0] += 0.2
        shown(3, 100, 30)
        once = terminal.getvalue()
        assert once.startswith("\r[")
        clock[0] += 0.1
        shown(4, 100, 40)
        assert terminal.getvalue() == once
    width = len(once) - 1
    assert terminal.getvalue() == once + "\r" + " " * width + "\r"


@pytest.mark.parametrize(("stream", "wanted", "term"), [(io.StringIO, True, "xterm"), (Terminal, False, "xterm")])
def test_where_nobody_looks_there_is_nothing(
    stream: type[io.StringIO], wanted: bool, term: str, clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = stream()
    monkeypatch.setattr(sys, "stderr", out)
    monkeypatch.setenv("TERM", term)
    with Progress(wanted) as shown:
        clock[0] += 5
        shown(1, 2, 3)
    assert out.getvalue() == ""
