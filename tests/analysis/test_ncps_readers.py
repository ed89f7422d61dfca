"""What two public programs take from NCPS's output, by their rules: each must get from ours what it expects.

The two stand in ``ncps_readers``, and are first held to a report of NCPS itself, so that an easy-going reader cannot
make the tests pass.
"""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from made_runs import MONOTONIC, S, clean, finish, interval, lossy, none_established, unknown_rtt
from ncps_output import NCPS_ITSELF, printed
from ncps_readers import RTT_NAMES, read_metrics, read_tables

# ---- the readers themselves, on NCPS's own output -------------------------------------------------------------------


def test_readers_take_from_ncps_what_they_are_known_to():
    metrics = read_metrics(NCPS_ITSELF, 1)
    assert metrics.rates == [(2.002, 69987.0)]
    assert metrics.figures == {
        "rx": 0.45, "tx": 0.45, "cps": 55683, "25": 2342, "median": 4441, "mean": 15996, "75": 13249, "90": 24443,
        "95": 38198, "99": 79657, "99.9": 1038000, "99.99": 1057000, "rtconnpercentage": 1.7278, "rtperconn": 1.0138,
    }  # fmt: skip
    tables = read_tables(NCPS_ITSELF)
    assert tables["times"] == [(100000, 1678, 59594), (556947, 10002, 55683)]
    assert list(tables["synrtt"]) == ["P25", "Median", "Mean", "P75", "P90", "P95", "P99", "P99.9", "P99.99"]
    assert "thread_count" not in tables


@pytest.mark.parametrize("line", ["warning: no capture", "AFFINITY: 2,3", "ncps 0.1.0 is listening"])
def test_the_reader_of_rows_loses_everything_at_foreign_text_before_the_first_empty_line(line):
    with pytest.raises(ValueError, match="could not convert"):
        read_metrics(line + "\n" + NCPS_ITSELF, 0)
    assert read_metrics(NCPS_ITSELF.replace("\n\n", f"\n\n{line}\n", 1), 0).rates


def test_the_readers_use_the_first_match_only_and_need_truly_empty_lines_and_integers():
    assert read_metrics(NCPS_ITSELF + "###ENDCPS 1\n", 0).figures["cps"] == 55683
    blank = read_tables(NCPS_ITSELF.replace("\n\n", "\n \n"))
    assert "times" not in blank
    assert "synrtt" not in blank
    with pytest.raises(ValueError, match="invalid literal"):
        read_tables(NCPS_ITSELF.replace("   4441 ", " 4441.5 "))
    with pytest.raises(ValueError, match="could not convert"):
        read_tables(NCPS_ITSELF.replace("RXGBPS 0.45", "RXGBPS 0.45 Gbps"))
    with pytest.raises(ValueError, match="could not convert"):
        read_tables(NCPS_ITSELF.replace("rtperconn:1.0138", "rtperconn:none"))


# ---- our output, through both readers --------------------------------------------------------------------------------


ROWS = [interval(t + 0.002, retransmits=None if t == 2 else t) for t in range(1, 6)]
RUNS = {
    "clean": clean(1000).report(),
    "retransmits": lossy(1000).report(),
    "hundred thousands": clean(250_000, end_ns=MONOTONIC + 250 * S).report(),
    "interrupted": clean(1000, interrupted="SIGINT", end_ns=MONOTONIC + 3 * S).report(),
    "drops": lossy(1000, wire={"dropped": 5}, notes=("file limit 64: at most 40 at once",)).report(),
    "no capture": finish(lossy(1000).records, None, capture_problem="no right to capture").report(),
    "books broken": clean(1000, attempted=1003).report(),
    "let finish": lossy(1000, end_ns=MONOTONIC + S).report(),
    "one connection": clean(1).report(),
    "nothing known": unknown_rtt().report(),
}


@pytest.mark.parametrize("name", RUNS)
def test_the_reader_of_rows_and_lines_accepts_ours(name):
    report = RUNS[name]
    metrics = read_metrics(printed(report, ROWS), 2)
    assert [at for at, _ in metrics.rates] == [3.002, 4.002, 5.002]
    assert {rate for _, rate in metrics.rates} == {69066.0}
    first = report.in_time
    d = first.syn_rtt_us
    expected = (d.p25, d.p50, d.mean, d.p75, d.p90, d.p95, d.p99, d.p99_9, d.p99_99)
    assert [metrics.figures[key] for key in RTT_NAMES] == [int(value or 0) for value in expected]
    assert metrics.figures["cps"] == report.milestones[-1].cps
    assert metrics.figures["rx"] == pytest.approx(report.rx_gbps, abs=0.005)
    assert metrics.figures["rtconnpercentage"] == pytest.approx(first.retrans_share_percent or 0, abs=0.00005)
    assert metrics.figures["rtperconn"] == pytest.approx(first.retrans_per_connection or 0, abs=0.00005)
    assert len(metrics.figures) == 14


@pytest.mark.parametrize("silent", [True, False])
@pytest.mark.parametrize("name", RUNS)
def test_the_reader_of_tables_accepts_ours(name, silent):
    report = RUNS[name]
    tables = read_tables(printed(report, () if silent else ROWS))
    assert tables["cmd"] == report.command_line
    assert tables["thread_count"] == 4
    assert tables["version"] == report.version
    assert tables["times"] == [(m.n, m.t_ms, m.cps) for m in report.milestones]
    assert tables["times"][-1][0] == report.in_time.connections
    assert tables["cps"] == report.milestones[-1].cps
    assert tables["synrtt"]["Median"] == (report.in_time.syn_rtt_us.p50 or 0)
    assert list(tables["synrtt"]) == ["P25", "Median", "Mean", "P75", "P90", "P95", "P99", "P99.9", "P99.99"]
    assert set(tables) == {
        "cmd", "thread_count", "version", "received", "sent", "times", "cps", "synrtt", "rtconnpercentage", "rtperconn",
    }  # fmt: skip


@pytest.mark.parametrize("name", RUNS)
def test_what_is_new_comes_after_rexmit_and_no_line_that_is_read_comes_twice(name):
    lines = printed(RUNS[name], ROWS).split("\n")
    marks = [re.match(r"###[A-Z]+", line)[0] for line in lines if line.startswith("###")]
    old = ["###RXGBPS", "###TXGBPS", "###ENDCPS", "###CPS", "###SYNRTT", "###REXMIT"]
    assert marks[: len(old)] == old
    assert not set(marks[len(old) :]) & set(old)
    assert {"###SOURCE", "###BOOKS"} <= set(marks)
    assert all(line == "" or line.strip() for line in lines)
    assert lines.index("") == 1 + len(ROWS)
    assert lines[-1] == ""
    assert not any(line.startswith(" ") for line in lines[lines.index("") :])


def test_silent_output_begins_with_the_empty_line_and_has_no_rows():
    text = printed(RUNS["clean"])
    assert text.startswith("\n=== CMDLINE: ")
    assert read_metrics(text, 0).rates == []


def test_the_marker_for_used_ports_is_harmless():
    marked = [replace(row, ports_wrapped=True) for row in ROWS]
    assert read_metrics(printed(RUNS["clean"], marked), 0) == read_metrics(printed(RUNS["clean"], ROWS), 0)
    assert printed(RUNS["clean"], marked).split("\n")[1].endswith("0 REP")


def test_no_connections_has_the_line_of_ncps_and_no_figures():
    text = printed(none_established().report(), ROWS)
    assert "\n\n!!!NO CONNECTIONS WERE ESTABLISHED!!!\n\n" in text
    assert not re.search(r"^###(ENDCPS|CPS|SYNRTT|REXMIT)", text, re.MULTILINE)
    metrics = read_metrics(text, 0)
    assert set(metrics.figures) == {"rx", "tx"}
    assert len(metrics.rates) == 5
    assert set(read_tables(text)) == {"cmd", "thread_count", "version", "received", "sent"}
    assert "###ERROR,ECONNREFUSED:20" in text
