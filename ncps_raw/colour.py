"""Emphasis for a person at a terminal: the same text, with what matters standing out. Nothing where it is no terminal.

The one idea: colour is laid over the finished text, so a terminal, a pipe and a file always hold the same characters.
``NO_COLOR`` and ``TERM=dumb`` are obeyed by rich itself.
"""

from __future__ import annotations

from typing import Final, TextIO

EMPHASIS: Final = (
    (r"^ncps-raw .*$", "bold"),
    (r"^[A-Z][A-Za-z_ -]{0,12}(?=  )", "cyan"),
    (r"^Problem.*(\n +.*)*", "bold red"),
    (r"\b(?:wire)\b", "green"),
    (r"\binterrupted by \w+", "yellow"),
    (r"\b[1-9][\d,]* dropped\b", "bold yellow"),
    (r"\bfailed [1-9][\d,]*", "yellow"),
    (r"\bE[A-Z]{4,}\b", "yellow"),
)
"""(pattern in the text, style of rich); later ones win."""


def wanted(file: TextIO) -> bool:
    """Whether ``file`` is a terminal that a person looks at."""
    try:
        return file.isatty()
    except ValueError:  # closed
        return False


def show(text: str, file: TextIO) -> None:
    """Write ``text`` to a terminal with emphasis. Raises OSError as ``file.write`` does."""
    from rich.console import Console
    from rich.text import Text

    styled = Text(text)
    for pattern, style in EMPHASIS:
        styled.highlight_regex(r"(?m)" + pattern, style)
    Console(file=file, highlight=False, soft_wrap=True).print(styled, end="")
