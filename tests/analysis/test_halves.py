"""Where a capture stands, by the two halves of its handshakes; and what a report makes of them at each level."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from made_runs import clean, finish, rows
from ncps_analysis.assemble import summarise
from ncps_analysis.halves import CLIENT, MIDDLE, SERVER, vantage, within_one_host
from ncps_analysis.render import ncps, text
from ncps_capture.segments import UNKNOWN


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (20_000, 40, CLIENT),
        (40, 20_000, SERVER),
        (10_000, 10_000, MIDDLE),
        (8_000, 12_000, MIDDLE),
        (400, 100, MIDDLE),
        (401, 100, CLIENT),
        (100, 401, SERVER),
        (20, 0, CLIENT),
        (0, 0, MIDDLE),
        (None, 40, None),
        (40, None, None),
        (None, None, None),
    ],
)
def test_the_longer_half_is_the_far_one(first, second, expected):
    assert vantage(first, second) == expected


@pytest.mark.parametrize(
    ("paths", "expected"),
    [
        ([], False),
        ([("10.0.0.1", "10.0.0.2")], False),
        ([("10.0.0.1", "10.0.0.1")], True),
        ([("127.0.0.1", "127.0.0.2")], True),
        ([("::1", "::1")], True),
        ([("fe80::1%eth0", "fe80::2")], False),
        ([("", ""), ("10.0.0.1", "10.0.0.2")], False),
        ([("10.0.0.1", "10.0.0.2"), ("127.0.0.1", "127.0.0.1")], True),
    ],
)
def test_within_one_host_there_is_no_path(paths, expected):
    assert within_one_host(paths) == expected


def acknowledged(ack_us: int, level: str = "acks", **changes):
    """A hundred connections with 20 to 29 us from SYN to SYN-ACK, and ``ack_us`` from there to the third ACK."""
    records, handshakes = rows(100)
    handshakes["t_ack_ns"] = np.where(np.arange(100) < 99, handshakes["t_synack_ns"] + ack_us * 1000, UNKNOWN)
    made = finish(records, handshakes)
    assert made.run.wire is not None
    return replace(made, run=replace(made.run, wire=replace(made.run.wire, level=level, **changes)))


def test_both_halves_and_what_they_suggest(monkeypatch):
    monkeypatch.setattr("ncps_analysis.assemble.within_one_host", lambda paths: False)
    report = acknowledged(10).report()
    assert (report.synack_to_ack_us.n, report.synack_to_ack_us.p50) == (99, 10)
    assert report.capture.vantage_suggested == MIDDLE
    assert acknowledged(1).report().capture.vantage_suggested == CLIENT
    assert acknowledged(500).report().capture.vantage_suggested == SERVER
    assert report.syn_rtt_us == clean(100).report().syn_rtt_us
    assert "SYN-ACK to ACK 1 us, as seen at the client" in " ".join(text.report(acknowledged(1).report()).split())
    assert "from somewhere between the two" in " ".join(text.report(report).split())
    printed = ncps.report(report)
    assert "\n###SYNACKTOACK,n:99,min:10," in printed
    assert "###CAPTURE,interface:lo,level:acks,packets:200,dropped:0,vantage:middle,matched:1.0000" in printed


def test_on_one_machine_nothing_is_suggested():
    report = acknowledged(1).report()
    assert report.synack_to_ack_us.p50 == 1
    assert report.capture.vantage_suggested is None
    assert "SYN-ACK to ACK 1 us" in " ".join(text.report(report).split())
    assert "as seen" not in text.report(report)


def test_without_acks_the_second_half_is_unknown():
    report = clean(100).report()
    assert report.synack_to_ack_us.p50 is None
    assert report.capture.vantage_suggested is None
    assert "SYN-ACK to ACK" not in text.report(report)


@pytest.mark.parametrize("dropped", [3, None])
def test_where_packets_were_dropped_no_ack_is_known_to_be_the_first(dropped):
    assert acknowledged(5, dropped=dropped).report().synack_to_ack_us.n == 0


@pytest.mark.parametrize(
    ("level", "after_rst", "after_challenge"), [("base", None, None), ("resets", 0, None), ("acks", 0, 0)]
)
def test_a_cause_that_the_level_does_not_show_is_unknown(level, after_rst, after_challenge):
    causes = acknowledged(5, level).report().syn_repeat_causes
    assert (causes.timeout, causes.after_synack, causes.after_rst, causes.after_challenge) == (
        0, 0, after_rst, after_challenge,
    )  # fmt: skip


def test_what_was_seen_was_seen():
    made = acknowledged(5, "base")
    made.handshakes["syn_n"][0], made.handshakes["retrans_after_rst"][0] = 2, 1
    report = summarise(made.run, made.records, made.handshakes)
    assert report.syn_repeat_causes.after_rst == 1
    assert report.syn_repeats == 1
    assert report.syn_retrans == 0


def served(made):
    """The run as its server tells it."""
    records = made.records.copy()
    records["lport"], records["rport"] = made.records["rport"], made.records["lport"]
    records["start_ns"] = records["connected_ns"]
    paths = tuple((there, here) for here, there in made.run.paths)
    return replace(made, records=records, run=replace(made.run, role="server", paths=paths))


def test_a_servers_round_trip_is_the_second_half_from_the_wire():
    report = served(acknowledged(700)).report()
    assert report.matched == 100
    assert report.rtt_source == "wire"
    assert report.syn_rtt_us == report.synack_to_ack_us == report.in_time.syn_rtt_us
    assert (report.syn_rtt_us.n, report.syn_rtt_us.p50, report.rtt_unknown) == (99, 700, 1)
    assert report.answer_us.p50 == 24
    assert "SYN-ACK to ACK on the wire" in " ".join(text.report(report).split())


def test_a_server_without_acks_has_its_kernels_round_trip():
    report = served(clean(100)).report()
    assert report.matched == 100
    assert report.rtt_source == "kernel"
    assert report.syn_rtt_us == report.kernel_rtt_us
