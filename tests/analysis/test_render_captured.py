"""Captured reports for a person, and as JSON."""

import json

import pytest
from made_attempts import attempt, rows
from made_captures import MADE, report
from ncps_analysis.captured import SourceFacts
from ncps_analysis.filters import selection
from ncps_analysis.render.captured import WIDTH, as_json, dumps, dumps_line, text
from ncps_capture import segments as sg

EXPECTED = """\
ncps-raw 1.2, report of a capture
================================================================================
Captured      a,b.pcap (EN10MB): 20 packets
Time          2023-11-14 22:13:20.000000 UTC, 2.000 s
Packets       20, of which 20 TCP: 7 SYNs, 2 SYN-ACKs
              attempts 4 = answered 2 + refused 1 + unanswered 1
              SYNs captured 7 = sent 7

Attempts                 4
  answered               2     50.0000 %
  refused                1     25.0000 %
  unanswered             1     25.0000 %
              1 of the unanswered had less than 3 s until the capture ended

Retransmits   3 SYNs sent again
              on 1 of 2 answered (50.0000 %), 1.0000 each on average
                         3  time-out

Times in us            SYN-RTT        path RTT  SYN-ACK to ACK   refused after
------------------------------------------------------------------------------
minimum                2,000           2,000              30              40
25 %                   2,000           2,000              30              40
median                 2,000           2,000              30              40
mean                 501,250.0       501,250.0            30.0            40.0
"""


def test_a_person_reads_this() -> None:
    assert text(report()).startswith(EXPECTED)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"interrupted": "SIGINT"}, "Interrupted   by SIGINT"),
        ({"warnings": ["a.pcap: cut\n\x1b[31m inside"]}, "Warning       a.pcap: cut??[31m inside"),
        ({"sources": [SourceFacts("x", (), 0, 3, True)]}, "x (no packets): 0 packets, 3 dropped while it was captured"),
        ({"sources": [SourceFacts(f"{n}.pcap") for n in range(12)]}, "and 4 more"),
        ({"by": "client"}, "2001:db8::1         1         1         0         0         1 1,000,500 1,000,500"),
        ({"by": "minute"}, "By minute"),
        ({"top": 3}, "Slowest handshakes"),
        ({"top": 3}, "[2001:db8::1]:2 > 10.0.0.2:80"),
        ({"filter_text": "tcp", "level": "base"}, "Level         base"),
    ],
)
def test_what_else_is_shown(changes: dict, said: str) -> None:
    shown = text(report(**changes))
    assert said in shown
    assert not any(ord(letter) < 32 and letter != "\n" for letter in shown)


def test_a_filter_is_named() -> None:
    shown = text(report(MADE, selection(port="80", state="answered")))
    assert "Filter        port 80, state answered: 2 of 4 attempts" in shown


def test_long_round_trips_are_in_milliseconds() -> None:
    shown = text(report(rows(attempt(rtt_us=20_000))))
    assert "Times in ms" in shown
    assert "median                  20.000" in shown


def test_where_there_is_nothing_it_says_so() -> None:
    shown = text(report(MADE[:0]))
    assert "Attempts      none" in shown
    assert "SYN-RTT       unknown: no answered attempt in the capture" in shown


def test_one_direction_has_no_shares() -> None:
    shown = text(report(rows(attempt(state=sg.UNANSWERED)), one_direction="client_to_server"))
    assert "PROBLEM" in shown
    assert "unanswered means not seen to be answered" in " ".join(shown.split())
    assert "%" not in shown


def test_lines_fit() -> None:
    shown = text(report(top=5, by="server", one_direction="client_to_server"))
    assert max(map(len, shown.splitlines())) <= max(WIDTH, 92)


def test_json_is_the_model() -> None:
    made = report(top=1, by="port")
    facts = as_json(made)
    assert json.loads(dumps(made)) == facts
    line = dumps_line(made)
    assert "\n" not in line
    assert json.loads(line) == {"type": "report", **facts}
    assert facts["slowest"][0]["rtt_first_us"] == 1_000_500
    assert facts["dropped_by_capture"] is None
