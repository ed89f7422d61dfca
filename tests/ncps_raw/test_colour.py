"""Colour is laid over the text and never changes it."""

import io
import re

import pytest

from ncps_raw import colour

REPORT = """\
ncps-raw 0.1.0, report of a client
Whole run     attempted 3 = established 1 + failed 2 + unfinished 0
Capture       lo (EN10MB), at the client: 4 packets, 12 dropped
"""


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def without_escapes(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    monkeypatch.setenv("TERM", "xterm-256color")
    for name in ("NO_COLOR", "FORCE_COLOR", "COLORTERM", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    return Terminal()


def test_a_terminal_gets_the_same_characters_with_emphasis(terminal: Terminal) -> None:
    colour.show(REPORT, terminal)
    assert without_escapes(terminal.getvalue()) == REPORT
    assert "\x1b[" in terminal.getvalue()


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_no_colour_is_obeyed(terminal: Terminal, monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(name, value)
    colour.show(REPORT, terminal)
    assert not re.search(r"\x1b\[(3|9|4)\d", terminal.getvalue())
    assert without_escapes(terminal.getvalue()) == REPORT


def test_long_lines_are_not_broken(terminal: Terminal) -> None:
    colour.show("x" * 500 + "\n", terminal)
    assert without_escapes(terminal.getvalue()) == "x" * 500 + "\n"


def test_pipes_and_closed_files_are_no_terminals() -> None:
    closed = io.StringIO()
    closed.close()
    assert not colour.wanted(io.StringIO())
    assert not colour.wanted(closed)
    assert colour.wanted(Terminal())
