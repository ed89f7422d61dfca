"""Captured reports for a person, and as JSON."""

import json

import pytest
from made_attempts import MS, T0, attempt, rows
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


LONG = "2001:db8:aaaa:bbbb:cccc:dddd:eeee:ffff"


@pytest.mark.parametrize(
    "shown",
    [
        text(report(rows(attempt(state=sg.REFUSED)))),  # a table without the lines that explain its columns
        text(report(rows(attempt(state=sg.REFUSED)), warnings=["cut"], by="client")),
        text(report(rows(attempt(flags=sg.F_CLOCK_ERROR, t_ack_ns=T0 + 5 * MS)))),
        text(report(top=5, by="server", warnings=["cut"])),
        text(report(MADE[:0], warnings=["cut"])),
    ],
)
def test_parts_are_one_blank_line_apart(shown: str) -> None:
    assert "\n\n\n" not in shown
    for label in ("Warning  ", "Note  "):
        before = shown.partition(f"\n{label}")[0]
        assert before == shown or before.endswith("\n") or "\nWarning  " in before


def test_what_cannot_be_told_of_an_answered_attempt_is_not_said_to_be_unanswered() -> None:
    shown = text(report(rows(attempt(flags=sg.F_CLOCK_ERROR, t_ack_ns=T0 + 5 * MS))))
    assert "SYN-RTT       unknown: the times of the answered attempts cannot be trusted, see\n" in shown
    assert "\n\nTimes in us     SYN-ACK to ACK\n" in shown
    assert "no round trip is known\n" in shown


def test_repeats_that_are_no_retransmits_are_not_called_none() -> None:
    shown = text(report(rows(attempt(state=sg.REFUSED, syn_n=3, retrans_after_rst=2))))
    assert (
        "Retransmits   none, but 2 SYNs sent again for another reason\n"
        "                         2  retry after an RST (not a retransmit)\n"
    ) in shown


def test_the_medians_of_a_vantage_have_the_unit_of_the_table() -> None:
    slow = rows(*(attempt(n, rtt_us=20_000, t_ack_ns=T0 + (n + 60) * MS, sport=n + 1) for n in range(3)))
    assert "SYN to SYN-ACK 20.000 ms, SYN-ACK to ACK 40.000 ms" in " ".join(text(report(slow)).split())
    fast = " ".join(text(report()).split())
    assert "SYN to SYN-ACK 2,000 us, SYN-ACK to ACK 30 us" in fast


def test_the_slowest_are_shown_without_repeats_and_with_their_file_where_there_are_several() -> None:
    made = rows(attempt(0, rtt_us=5000, frame=7), attempt(1, rtt_us=9000, sport=2, frame=3))
    last = text(report(made, top=2)).splitlines()[-2:]
    assert [line.split() for line in last] == [
        ["10.0.0.1:2", ">", "10.0.0.2:80", "9.000", "1", "3"],
        ["10.0.0.1:1000", ">", "10.0.0.2:80", "5.000", "1", "7"],
    ]
    made["source"] = (0, 1)
    shown = text(report(made, top=2, sources=[SourceFacts("a\x1b"), SourceFacts("b")])).splitlines()
    assert [line.split()[-3:] for line in shown[-2:]] == [["1", "3", "b"], ["1", "7", "a?"]]
    assert shown[-4].endswith(" frame  of file")
    assert "Slowest" not in text(report(made[:1], top=2))  # it stands in the table of times


def test_columns_stand_below_their_heads_whatever_the_length_of_addresses() -> None:
    made = rows(
        attempt(0, syn_n=2, retrans_timeout=1, client=LONG, server=LONG, sport=50_000, dport=50_000),
        attempt(1, syn_n=2, retrans_timeout=1, sport=2),
    )
    lines = text(report(made, top=2)).splitlines()
    for head in ("Most SYNs sent again", "Slowest handshakes"):
        at = next(i for i, line in enumerate(lines) if line.startswith(head))
        assert len({len(line) for line in lines[at : at + 4]}) == 1
        assert all(line[: line.rindex(":")] for line in lines[at + 2 : at + 4])


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
