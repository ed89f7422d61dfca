"""Pure: a run over a path that loses SYNs, as a short table that shows the wire beside the kernel.

It must not know how the run was made. The one idea: three answers to "how long did a handshake take" stand under each
other, and beneath them what the path did, counted by the path itself. Whoever reads it sees which of the three knew.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping
from typing import Any, Final

Figures = Mapping[str, Any]

ROWS: Final = (
    ("syn_rtt_us", "SYN-RTT on the wire"),
    ("kernel_rtt_us", "tcpi_rtt of the kernel"),
    ("connect_us", "connect() in the program"),
)
COLUMNS: Final = ("p50", "p99", "max")
_UNKNOWN: Final = "unknown"
_WIDTH: Final = 80


def contrast(figures: Figures) -> list[str]:
    """Lines of the table and, after an empty one, what it means.

    ``figures``: a client's report and the relay's counters, with dotted names. Times are shown in whole microseconds,
    as reported. What is not known is called so.
    """
    head = f"{_count(figures.get('connections'))} connections, times in us"
    lines = [f"{head:<38}" + "".join(f"{name:>14}" for name in COLUMNS), "-" * _WIDTH]
    for stem, name in ROWS:
        lines.append(f"{name:<38}" + "".join(f"{_count(figures.get(f'{stem}.{column}')):>14}" for column in COLUMNS))
    lost, seen = figures.get("dropped.syn", 0), figures.get("syn_retrans")
    lines.append(f"SYNs the path dropped: {_count(lost)}; SYN retransmits seen on the wire: {_count(seen)}")
    meaning = meaning_of(lost, seen, figures.get("syn_rtt_us.max"), figures.get("kernel_rtt_us.max"))
    return [*lines, "", *_wrapped(meaning)]


def meaning_of(lost: int, seen: int | None, wire_us: int | None, kernel_us: int | None) -> str:
    """One sentence about lost SYNs, retransmits seen, and the longest round trip of the wire and of the kernel."""
    if seen is None:
        return "Without a capture nothing here shows that SYNs were lost."
    if wire_us is None:
        return "The capture found no whole handshake: there is nothing to set beside the kernel."
    if not lost:
        return "No SYN was lost in this short time: the wire and the kernel agree."
    if seen != lost:
        return (
            f"The path dropped {lost} SYNs and the capture saw {seen} retransmits: some were not sent before the end."
        )
    if kernel_us is None or kernel_us >= wire_us:
        return f"Each of the {lost} SYNs lost cost a timeout, and the wire shows every one."
    return (
        f"Each of the {lost} SYNs lost cost a timeout: on the wire a handshake took up to {wire_us / 1e6:.2f} s, while "
        f"the kernel times only the SYN that was answered and says {kernel_us / 1e6:.2f} s at most."
    )


def _wrapped(text: str) -> list[str]:
    """Lines of ``text`` that keep a figure and its unit together."""
    joined = re.sub(r"(\d) s\b", "\\1\N{NO-BREAK SPACE}s", text)
    return [line.replace("\N{NO-BREAK SPACE}", " ") for line in textwrap.wrap(joined, _WIDTH)]


def _count(value: int | None) -> str:
    return _UNKNOWN if value is None else f"{value:,}"
