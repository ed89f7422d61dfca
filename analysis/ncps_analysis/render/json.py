"""View: the RunReport and interval rows as JSON, for programs.

It must not know where the text goes. The one idea: keys are the names of the model, each with its unit, always all
of them and always in one order; unknown is null. NaN and infinity are not JSON and would be an error here.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from ncps_analysis.model import RunReport
from ncps_analysis.records import Interval


def report_json(report: RunReport) -> dict[str, Any]:
    """The report as what ``json.loads`` would give back: all fields of RunReport, nested ones as objects and lists."""
    facts: dict[str, Any] = _plain(asdict(report))
    return facts


def interval_json(interval: Interval) -> dict[str, Any]:
    """One interval row: ``type`` is ``interval``, then all fields of Interval, then ``cps``, its rate."""
    cps = interval.established / interval.seconds if interval.seconds > 0 else None
    return {"type": "interval", **asdict(interval), "cps": cps}


def dumps(report: RunReport) -> str:
    """The report as one JSON object over several lines, without a last end of line."""
    return json.dumps(report_json(report), indent=2, allow_nan=False)


def dumps_line(row: RunReport | Interval) -> str:
    """One line of a jsonl stream: interval rows while the load runs, the report (``type`` ``report``) at its end."""
    facts = interval_json(row) if isinstance(row, Interval) else {"type": "report", **report_json(row)}
    return json.dumps(facts, allow_nan=False, separators=(",", ":"))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, tuple):
        return [_plain(inner) for inner in value]
    return value
