"""A capture as NCPS prints a run: what reads NCPS must read it."""

import re
from pathlib import Path

from made_captures import MADE, report
from ncps_analysis.render.captured_ncps import report as view


def test_the_lines_that_readers_look_for() -> None:
    shown = view(report())
    assert shown.startswith(
        "\n=== CMDLINE: ncps analyze a,b.pcap\n\n=== VERSION 1.2\n\n###RXGBPS 0.00\n###TXGBPS 0.00\n"
    )
    table = re.search(
        r"for first 2 connections:\n=== +N +T\(ms\) +CPS\n((?:===(?: +\d+){3}\n)+)\n###ENDCPS (\d+)", shown
    )
    assert table is not None
    assert (table[1].split(), table[2]) == (["===", "2", "1050", "1"], "1")
    times = re.search(r"SYN RTT \(us\) stats for first 2 connections:\n=== .*\n=== (.*)\n\n###SYNRTT,", shown)
    assert times is not None
    assert [int(value) for value in times[1].split()] == [2000, 2000, 501250, *[1000500] * 6]
    assert "###REXMIT,rtconnpercentage:50.0000,rtperconn:1.0000\n" in shown
    for prefix in ("###RXGBPS", "###ENDCPS", "###SYNRTT", "###REXMIT"):
        assert shown.count(prefix) == 1
    assert all(line == line.rstrip() for line in shown.splitlines())


def test_what_is_new_comes_after() -> None:
    shown = view(report(warnings=["a: cut\nhere"], died="killed", interrupted="SIGTERM"))
    new = shown.partition("###REXMIT")[2].splitlines()
    assert "###ATTEMPTS,attempts:4,answered:2,refused:1,icmprefused:0,unanswered:1,simultaneous:0,synackonly:0" in new
    assert "###CAPTURE,level:acks,packets:20,dropped:unknown,duplicates:0,vantage:client" in new
    assert "###NOTE,a: cut here" in new
    assert "###INTERRUPTED,SIGTERM" in new
    assert any(line.startswith("###PROBLEM,the capture ended early (killed)") for line in new)


def test_without_an_answer_it_says_what_ncps_says() -> None:
    assert "!!!NO CONNECTIONS WERE ESTABLISHED!!!" in view(report(MADE[2:]))


def test_the_page_names_every_line() -> None:
    page = (Path(__file__).parents[2] / "docs" / "ncps-output.md").read_text(encoding="utf-8")
    shown = view(report(warnings=["a"], died="killed", interrupted="SIGTERM"))
    lines = set(re.findall("^###([A-Z]+)", shown, re.MULTILINE))
    assert {"ATTEMPTS", "REFUSED", "INTERRUPTED", "PROBLEM", "NOTE"} <= lines
    assert not {name for name in lines if f"###{name}" not in page}
