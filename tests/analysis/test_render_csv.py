"""Reports as tables for spreadsheets."""

import csv
import io

from made_captures import report
from ncps_analysis.render.csv import dumps


def test_single_figures_are_lines_of_key_and_value() -> None:
    table = dict(csv.reader(io.StringIO(dumps(report()))))
    assert (table["key"], table["attempts"], table["syn_rtt_us.p50"]) == ("value", "4", "2000")
    assert table["dropped_by_capture"] == ""
    assert "slowest" not in table


def test_groups_are_lines_under_one_head() -> None:
    lines = list(csv.DictReader(io.StringIO(dumps(report(by="client")))))
    assert [(line["client"], line["attempts"], line["syn_rtt_us.max"]) for line in lines] == [
        ("10.0.0.1", "3", "2000"),
        ("2001:db8::1", "1", "1000500"),
    ]
