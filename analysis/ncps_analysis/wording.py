"""Pure: pieces of the reports that people read: counts with their nouns, wrapped lines, the table of percentiles.

Must not know what a report is about. The one idea: what two views would write alike stands here once, so that a unit,
a plural or a width is right in all of them or in none.
"""

from __future__ import annotations

import textwrap
from decimal import Decimal
from typing import Final

WIDTH: Final = 80
LABEL: Final = 14
"""Columns of a label before its text."""
UNKNOWN: Final = "-"
ROWS: Final = (
    ("minimum", "min"),
    ("25 %", "p25"),
    ("median", "p50"),
    ("mean", "mean"),
    ("75 %", "p75"),
    ("90 %", "p90"),
    ("95 %", "p95"),
    ("99 %", "p99"),
    ("99.9 %", "p99_9"),
    ("99.99 %", "p99_99"),
    ("maximum", "max"),
)
"""Rows of a table of times: what a person reads, and the field of a Distribution."""
MS_FROM_US: Final = 10_000
"""From this smallest median on a table is in ms, with three decimals: the same digits, easier to read."""
PLACES: Final = {"client": "at the client", "server": "at the server", "middle": "from somewhere between the two"}
"""Where a capture stands -> in words."""


def wrap(label: str, text: str) -> list[str]:
    """Lines of at most WIDTH with the label before the first; words and option names stay whole."""
    return textwrap.wrap(
        one_line(text),
        WIDTH,
        initial_indent=f"{label:<{LABEL}}",
        subsequent_indent=" " * LABEL,
        break_long_words=False,
        break_on_hyphens=False,
    )


def one_line(text: str) -> str:
    """The text with every run of white space as one blank."""
    return " ".join(text.split())


def time_cell(figure: float | None, key: str, in_ms: bool) -> str:
    """A figure in us of the row ``key``, as it stands in a table; two blanks where the mean has its fraction."""
    if figure is None:
        return UNKNOWN
    if in_ms:
        return f"{figure / 1000:,.3f}"
    return f"{figure:,.1f}" if key == "mean" else f"{figure:,}  "


def many(n: int, noun: str) -> str:
    """A count and what it counts, in the plural where it is one."""
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}{'es' if noun.endswith('s') else 's'}"


def count(value: int | None) -> str:
    """A count with its thousands apart, or the sign for unknown."""
    return UNKNOWN if value is None else f"{value:,}"


def end(address: str, port: int) -> str:
    """One end of a connection."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def plain(figure: float, grouped: str = ",") -> str:
    """A figure without an exponent: to three decimals, below 1 to three digits. ``grouped``: "," or ""."""
    text = f"{figure:{grouped}.3f}" if figure >= 1 else f"{Decimal(f'{figure:.3g}'):f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
