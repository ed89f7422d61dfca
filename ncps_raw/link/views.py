"""Pure: a finished link check -> text and JSON.

The one idea: one record, ``Report``, holds all there is to say; a view only puts it into words. Keys and figures are
those of ``books`` and ``explain``.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

from ncps_raw.link import books, explain
from ncps_raw.link.books import Figures
from ncps_raw.link.explain import Explanation

LEAST_FOR_CPU: Final = 100_000_000
"""Bytes from which on processor time per GB says something."""


@dataclass(frozen=True)
class Report:
    """One link check at its end. ``far``: what the other end said of (its sending, its receiving)."""

    command: str
    peer: str
    sent: Figures | None
    received: Figures | None
    far: tuple[Figures | None, Figures | None] | None
    explanation: Explanation | None
    problems: tuple[str, ...]
    ended_by: str | None
    cpu_s: float
    warmup_ns: int
    exit_code: int
    far_note: str = ""  # why ``far`` is not there, where it was asked for
    warmed_up: bool = True  # False: it was over before ``warmup_ns``, so the figures are of all of it

    @property
    def own(self) -> Figures | None:
        """The direction the command is named after."""
        return self.sent if self.command == "send" else self.received

    @property
    def cpu_s_per_gb(self) -> float | None:
        """None of a run so small that the time is that of beginning and ending."""
        moved = sum(figures.bytes or 0 for figures in (self.sent, self.received) if figures is not None)
        return self.cpu_s * 1e9 / moved if moved >= LEAST_FOR_CPU else None


def plain(report: Report) -> dict[str, Any]:
    """All keys. ``bytes seconds bytes_per_s`` at the top are those of the command's own direction."""
    own = report.own
    out: dict[str, Any] = {
        "type": "report",
        "command": report.command,
        "peer": report.peer,
        "bytes": own.bytes if own else None,
        "seconds": books.plain(own)["seconds"] if own else None,
        "bytes_per_s": own.bytes_per_s if own else None,
        "sender_handed_over_s": _handed_over(report),
        "sent": None if report.sent is None else books.plain(report.sent),
        "received": None if report.received is None else books.plain(report.received),
        "far": None,
        "warmup_s": report.warmup_ns / 1e9 if report.warmed_up else None,
        "cpu_s": report.cpu_s,
        "cpu_s_per_gb": report.cpu_s_per_gb,
        "interrupted": report.ended_by,
        "problems": list(report.problems),
        "exit_code": report.exit_code,
    }
    if report.far is not None:
        sent, received = report.far
        out["far"] = {
            "sent": None if sent is None else books.plain(sent),
            "received": None if received is None else books.plain(received),
        }
    if report.far_note:
        out["far_note"] = report.far_note
    if report.explanation is not None:
        out["explain"] = explain.plain(report.explanation)
    return out


def _handed_over(report: Report) -> float | None:
    far_sent = None if report.far is None else report.far[0]
    sender = report.sent if report.command == "send" else far_sent
    return None if sender is None or sender.handed_ns is None else sender.handed_ns / 1e9


def dumps(report: Report, indent: int | None = 2) -> str:
    """The report as JSON, one line end behind it."""
    return json.dumps(plain(report), indent=indent) + "\n"


def text(report: Report) -> str:
    """The report for a person."""
    lines: list[str] = []
    for figures in (report.sent, report.received):
        if figures is not None:
            lines += books.text(figures)
    if report.far is not None:
        for figures in report.far:
            if figures is not None:
                lines += ["at the other end:", *(f"  {line}" for line in books.text(figures))]
    if report.far_note and report.far_note not in report.problems:
        lines.append(f"without the other end's figures: {report.far_note}")
    each = "" if report.cpu_s_per_gb is None else f", {report.cpu_s_per_gb:.3g} s per GB"
    lines.append(f"  with {report.peer}; {report.cpu_s:.3g} s of processor time here{each}")
    if report.warmup_ns and report.own is not None:
        left_out = f"without the first {report.warmup_ns / 1e9:g} s"
        lines.append(f"  {left_out if report.warmed_up else 'shorter than --warmup: nothing was left out'}")
    if report.ended_by is not None:
        why = "ended by --idle" if report.ended_by == "idle" else f"interrupted by {report.ended_by}"
        lines.append(f"  {why}: the figures so far")
    if report.explanation is not None:
        lines += ["", *explain.text(report.explanation)]
    lines += [f"Problem: {problem}" for problem in report.problems]
    return "\n".join(lines) + "\n"
