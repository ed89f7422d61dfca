"""View: a captured report as CSV, for spreadsheets: its groups, or its figures one a line.

It must not know where the text goes. The one idea: names are those of the JSON view, nested ones joined by a point, so
that one table of meanings serves both; what is not known is empty.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from ncps_analysis.captured import CapturedReport


def dumps(report: CapturedReport) -> str:
    """With a breakdown one line a group under a head of names, else ``key,value`` lines of all single figures."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    if report.by is None:
        writer.writerow(("key", "value"))
        writer.writerows(_flat("", {k: v for k, v in asdict(report).items() if not isinstance(v, tuple)}))
        return out.getvalue()
    for number, group in enumerate(report.groups):
        facts = dict(_flat("", asdict(group)))
        key = facts.pop("key")
        if not number:
            writer.writerow((report.by, *facts))
        writer.writerow((key, *facts.values()))
    return out.getvalue()


def _flat(prefix: str, facts: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in facts.items():
        if isinstance(value, dict):
            yield from _flat(f"{prefix}{name}.", value)
        else:
            yield f"{prefix}{name}", value
