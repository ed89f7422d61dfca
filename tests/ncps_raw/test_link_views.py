"""A link check's report as text and JSON."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from ncps_raw.link import books, views
from ncps_raw.link.books import Figures, Row
from ncps_raw.link.explain import Explanation, Speed
from ncps_raw.link.views import Report

SENT = Figures(True, 3_000_000, 2_000_000_000, 1500, "sendfile", "acknowledged", 3_000_000, 100_000_000)
READ = Figures(False, 3_000_000, 1_900_000_000, 1500, "splice", "read", fsync_ns=500_000_000)
REPORT = Report("send", "h:1", SENT, None, (None, READ), None, (), None, 0.3, 0, 0)


def test_keys_that_scripts_rely_on() -> None:
    plain = json.loads(views.dumps(REPORT))
    assert (plain["bytes"], plain["seconds"], plain["bytes_per_s"]) == (3_000_000, 2.0, 1_500_000.0)
    assert plain["sender_handed_over_s"] == plain["sent"]["sender_handed_over_s"] == 0.1
    assert plain["far"]["received"]["fsync_s"] == 0.5
    assert plain["cpu_s_per_gb"] is None
    assert (plain["received"], plain["interrupted"], plain["problems"], plain["exit_code"]) == (None, None, [], 0)


def test_every_key_is_told_on_the_page_of_the_link_check() -> None:
    page = (Path(__file__).parents[2] / "docs" / "link-check.md").read_text()
    _, _, told = page.partition("## Keys of `--format json`")
    keys = {*views.plain(REPORT), *books.plain(SENT), *books.row_plain(Row(0, 1, 0, None))}
    assert keys <= set(re.findall(r"\w+", told.partition("\n## ")[0]))


def test_of_recv_the_sender_s_time_comes_from_the_far_end() -> None:
    plain = views.plain(replace(REPORT, command="recv", sent=None, received=READ, far=(SENT, None)))
    assert (plain["seconds"], plain["sender_handed_over_s"]) == (1.9, 0.1)
    assert (
        views.plain(replace(REPORT, command="recv", sent=None, received=READ, far=None))["sender_handed_over_s"] is None
    )


@pytest.mark.parametrize(("moved", "told"), [(1, None), (99_999_999, None), (100_000_000, 3.0), (3_000_000_000, 0.1)])
def test_processor_time_per_gb_is_told_of_what_is_large_enough(moved: int, told: float | None) -> None:
    report = replace(REPORT, sent=replace(SENT, bytes=moved), far=None)
    assert views.plain(report)["cpu_s_per_gb"] == (None if told is None else pytest.approx(told))
    assert ("s per GB" in views.text(report)) is (told is not None)
    assert "0.3 s of processor time here" in views.text(report)


def test_an_end_by_idle_is_no_interrupt() -> None:
    text = views.text(replace(REPORT, ended_by="idle"))
    assert "ended by --idle: the figures so far" in text
    assert "interrupted" not in text


def test_a_warm_up_that_was_not_left_out_is_not_said_to_be() -> None:
    for warmup_ns, warmed_up, told, line in (
        (10**10, True, 10.0, "without the first 10 s"),
        (10**10, False, None, "shorter than --warmup: nothing was left out"),
        (0, True, 0.0, ""),
    ):
        report = replace(REPORT, warmup_ns=warmup_ns, warmed_up=warmed_up)
        assert views.plain(report)["warmup_s"] == told
        assert line in views.text(report)
        assert ("left out" in views.text(report)) is (not warmed_up)
        assert "warmup" not in views.text(replace(report, sent=None))


def test_text_holds_everything_once() -> None:
    explanation = Explanation(Speed(1e6), Speed(2e6), Speed(3e6), Speed(1e6))
    text = views.text(replace(REPORT, explanation=explanation, problems=("p",), ended_by="SIGINT", warmup_ns=10**9))
    for part in (
        "at the other end:",
        "is the bottleneck",
        "Problem: p",
        "interrupted by SIGINT",
        "without the first 1 s",
    ):
        assert text.count(part) == 1
    assert "0.5 s of it for fsync" in text
