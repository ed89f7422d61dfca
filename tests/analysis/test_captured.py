"""The vocabulary of captured reports: every key says its unit or is a count, and nothing can be changed."""

import dataclasses

import pytest
from made_captures import report
from ncps_analysis.captured import CapturedReport, Group
from ncps_capture.segments import STATE_NAMES


def test_the_keys_that_scripts_rely_on_are_there() -> None:
    names = {field.name for field in dataclasses.fields(CapturedReport)}
    assert names >= {"packets", "tcp_packets", "syn", "synack", "attempts", "synack_only", "malformed", "fragments"}
    assert names >= set(STATE_NAMES[1:6])
    assert names >= {"syn_retrans", "synack_retrans", "syn_repeats", "dropped_by_capture", "syn_rtt_us", "path_rtt_us"}
    assert {field.name for field in dataclasses.fields(Group)} >= set(STATE_NAMES[1:6])


def test_a_report_is_a_value() -> None:
    assert report() == report()
    with pytest.raises(dataclasses.FrozenInstanceError):
        report().attempts = 3  # type: ignore[misc]
