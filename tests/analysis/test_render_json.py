import json
from dataclasses import fields, replace

import pytest
from made_runs import MONOTONIC, S, clean, finish, interval, lossy, none_established, rows
from ncps_analysis.model import RunReport
from ncps_analysis.records import NO_KERNEL_RTT, Interval
from ncps_analysis.render.json import dumps, dumps_line, interval_json, report_json
from ncps_capture.segments import Books

RTT_KEYS = ["n", "min", "p25", "p50", "mean", "p75", "p90", "p95", "p99", "p99_9", "p99_99", "max"]


def unknown():
    records, _ = rows(10)
    records["kernel_rtt_us"] = NO_KERNEL_RTT
    return finish(records, None, end_ns=MONOTONIC, planned_s=None).report()


REPORTS = {
    "clean": clean(100).report(),
    "lossy": lossy(1000, interrupted="SIGINT").report(),
    "none": none_established().report(),
    "unknown": unknown(),
    "empty": clean(0).report(),
    "links": clean(10, wire={"books": Books(unsupported_linktypes={147: 3})}).report(),
}


@pytest.mark.parametrize("name", REPORTS)
def test_all_keys_always_in_one_order_and_the_text_gives_the_object_back(name):
    facts = report_json(REPORTS[name])
    assert list(facts) == [field.name for field in fields(RunReport)]
    assert json.loads(dumps(REPORTS[name])) == facts
    assert json.loads(dumps_line(REPORTS[name])) == {"type": "report", **facts}
    assert "\n" not in dumps_line(REPORTS[name])


def test_keys_that_scripts_rely_on():
    facts = report_json(REPORTS["lossy"])
    for key in (
        "connections", "attempted", "established", "failed", "cps", "syn_retrans", "synack_retrans", "syn_repeats",
        "dropped_by_capture", "matched_share", "unfinished", "rtt_source", "syn_rtt_us", "path_rtt_us", "errors",
    ):  # fmt: skip
        assert facts[key] is not None, key
    assert list(facts["syn_rtt_us"]) == list(facts["path_rtt_us"]) == RTT_KEYS
    assert facts["syn_rtt_us"]["max"] == 2_000_029
    assert [list(error) for error in facts["errors"]] == [["errno", "name", "count", "first_t_ns", "last_t_ns"]]
    assert list(facts["disagreements"][0]) == [
        "against", "difference_us", "t_ns", "src", "sport", "dst", "dport", "connect_us", "kernel_rtt_us", "syn_rtt_us",
        "syn_repeats", "kernel_retrans",
    ]  # fmt: skip
    assert facts["attempted"] == facts["established"] + facts["failed"] + facts["unfinished"]
    assert facts["syn_repeat_causes"] == {"timeout": 12, "after_synack": 0, "after_rst": None, "after_challenge": None}
    assert facts["capture"]["books"]["attempts"] == 1000
    assert report_json(REPORTS["links"])["capture"]["books"]["unsupported_linktypes"] == {"147": 3}


def test_the_unknown_is_null():
    facts = report_json(REPORTS["unknown"])
    for key in (
        "cps", "rx_gbps", "planned_s", "interrupted", "syn_retrans", "synack_retrans", "syn_repeats", "matched_share",
        "dropped_by_capture", "capture", "retrans_share_percent",
    ):  # fmt: skip
        assert facts[key] is None, key
    assert facts["syn_rtt_us"] == {"n": 0} | dict.fromkeys(RTT_KEYS[1:])
    assert '"cps":null' in dumps_line(REPORTS["unknown"])


def test_what_is_not_json_is_an_error_here_and_not_at_the_reader():
    with pytest.raises(ValueError, match="JSON compliant"):
        dumps(replace(REPORTS["clean"], cps=float("nan")))


def test_interval_rows_have_a_type_all_fields_and_a_rate():
    row = interval(1.002, seconds=2.0, ports_wrapped=True)
    facts = interval_json(row)
    assert list(facts) == ["type", *(field.name for field in fields(Interval)), "cps"]
    assert (facts["type"], facts["cps"], facts["repeated_rtt_us"], facts["ports_wrapped"]) == (
        "interval", 34_533.0, None, True,
    )  # fmt: skip
    assert json.loads(dumps_line(row)) == facts
    assert interval_json(replace(row, seconds=0.0))["cps"] is None


def test_times_are_nanoseconds_of_the_wall_clock():
    facts = report_json(REPORTS["none"])
    assert facts["errors"][0]["first_t_ns"] - facts["start_t_ns"] == 40_000
    assert facts["start_t_ns"] == 1_700_000_000 * S
