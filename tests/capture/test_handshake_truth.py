"""Real captures against tshark's fields: frames to merged rows, judged by what is known of each file.

The truth is raw: it counts a repeat for every SYN. Where the definitions say otherwise they win, and each such file is
named in ``DIFFERENCES`` and has a test of its own.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
from ncps_capture import segments as sg
from ncps_capture.addresses import address_text
from ncps_capture.capfile import open_capture
from ncps_capture.decode import decode
from ncps_capture.handshake import HandshakeTable, books_of, merge_rows

pytestmark = pytest.mark.truth

PLAIN = {"eth", "raw", "sll", "null", "vlan", "ip", "ipv6", "tcp", "ipv6.dstopts"}
"""Layers the columns read; files with others in front of TCP are for the room that goes frame by frame."""


def records() -> dict[str, dict]:
    folder = os.environ.get("NCPS_TRUTH_PCAPS", "")
    truth = Path(folder) / "truth.jsonl"
    if not folder or not truth.is_file():
        return {}
    out = {}
    for line in truth.read_text().splitlines():
        record = json.loads(line)
        stacks = [stack.split(":") for stack in record["stacks"]]
        plain = all(set(stack) <= PLAIN and ("ip" in stack) != ("ipv6" in stack) for stack in stacks)
        whole = record["magic"].startswith("pcap-") and not record.get("times_unreliable")
        if plain and whole and record["tcp_packets"]:
            out[record["local"]] = record
    return out


RECORDS = records()
files = pytest.mark.parametrize("name", sorted(RECORDS) or ["no captures at hand"])

STEPPED = "OISF+suricata-verify__tests__bug-1450-04__tls_DER-incomplete-header.pcap"
INTERLEAVED = "OISF+suricata-verify__tests__bug-7657-01__input.pcap"
ROUTED = "OISF+suricata-verify__tests__detect-ipopts__input.pcap"
SPLIT = "OISF+suricata-verify__tests__tcp-split-handshake-01-4whs__split-handshake-4whs.pcap"
REORDERED = "zeek+zeek__testing__btest__Traces__tcp__handshake-reorder.pcap"
DIFFERENCES = {
    STEPPED: "D13: the SYN-ACK is stamped years before its SYN: a step of the clock, so no RTT, where a negative stood",
    INTERLEAVED: "D1: an ISN that comes again between SYNs of other ISNs is the same attempt, not a new one each time",
    ROUTED: "the address is that of the IP header, not the last hop a source route names; copies have one IP ID (D2)",
    SPLIT: "D9: SYNs both ways are simultaneous, where one answered and one unanswered attempt stood",
    REORDERED: "D5: the SYN-ACK is stamped before its SYN: clock error",
}


def read(name: str) -> tuple[sg.Handshakes, sg.Books]:
    table, books, parts = HandshakeTable(), sg.Books(), []
    last = 0
    for batch in open_capture(Path(os.environ["NCPS_TRUTH_PCAPS"]) / name).batches(1 << 12):
        segments, more = decode(batch)
        books += more
        table.add(segments)
        last = int(batch.t_ns.max())
        parts.append(table.settle(last))
    parts.append(table.finish(last))
    rows = merge_rows(np.concatenate(parts))
    books += books_of(rows)
    return rows, books


def key_of(row: np.void) -> tuple:
    ends = [address_text(row[f"{end}_hi"], row[f"{end}_lo"]) for end in ("client", "server")]
    isn = int(row["isn"])
    return (ends[0], int(row["sport"]), ends[1], int(row["dport"]), None if row["state"] == sg.SYNACK_ONLY else isn)


def key_of_truth(connection: dict) -> tuple:
    isn = None if connection["state"] == "synack_only" else connection["isn"]
    return (connection["src"], connection["sport"], connection["dst"], connection["dport"], isn)


@files
def test_counts(name):
    record = RECORDS[name]
    _, books = read(name)
    assert (books.packets, books.syn, books.synack) == (record["packets"], record["syn"], record["synack"])
    assert books.tcp_packets == record["tcp_packets"]
    assert books.problems() == []


@pytest.mark.parametrize("name", sorted(RECORDS.keys() - DIFFERENCES.keys()) or ["no captures at hand"])
def test_attempts(name):
    rows, _ = read(name)
    mine = {key_of(row): row for row in rows}
    assert len(mine) == len(rows)
    truth = {key_of_truth(connection): connection for connection in RECORDS[name]["connections"]}
    assert set(mine) == set(truth)
    for key, expected in truth.items():
        row = mine[key]
        assert sg.STATE_NAMES[row["state"]] == expected["state"], key
        if row["state"] == sg.SYNACK_ONLY:
            continue
        assert row["syn_n"] + row["dup_syn"] == expected["syn_n"]
        assert row["t_syn_first_ns"] == expected["syn_t"][0]
        assert row["frame"] == expected["syn_frames"][0]
        if row["state"] == sg.ANSWERED:
            one = np.array([row])
            assert sg.rtt_first_ns(one)[0] == expected["rtt_first_ns"]
            assert row["t_synack_ns"] - row["t_syn_before_ns"] == expected["rtt_last_ns"]
            if expected.get("rtt_tsecr_ns") is not None:
                assert row["rtt_ts_ns"] == expected["rtt_tsecr_ns"]
            assert row["synack_n"] + row["dup_synack"] == expected["synack_n"]
        if row["state"] == sg.REFUSED:
            assert row["t_refused_ns"] - row["t_syn_first_ns"] == expected["rst_after_first_ns"]


def test_the_files_with_differences_are_there():
    assert DIFFERENCES.keys() <= RECORDS.keys()


def test_d13_a_step_of_the_clock():
    rows, books = read(STEPPED)
    assert (rows["state"].tolist(), rows["flags"].tolist()) == ([sg.ANSWERED], [sg.F_CLOCK_STEP])
    assert (sg.rtt_first_ns(rows)[0], books.clock_step) == (sg.UNKNOWN, 1)
    (expected,) = RECORDS[STEPPED]["connections"]
    assert rows["t_synack_ns"][0] - rows["t_syn_first_ns"][0] == expected["rtt_first_ns"]


def test_d1_an_isn_between_others():
    rows, books = read(INTERLEAVED)
    (row,) = rows[rows["isn"] == 4291095205]
    parts = [c for c in RECORDS[INTERLEAVED]["connections"] if c["isn"] == 4291095205]
    assert row["syn_n"] == len(parts) == 3
    assert row["state"] == sg.ANSWERED
    assert row["t_syn_first_ns"] == parts[0]["syn_t"][0]
    assert row["t_synack_ns"] == parts[-1]["synack_t"][0]
    assert row["rtt_ts_ns"] == row["t_synack_ns"] - row["t_syn_before_ns"] == parts[-1]["rtt_first_ns"]
    assert books.attempts == len(RECORDS[INTERLEAVED]["connections"]) - 2


def test_d2_copies_that_differ_in_ip_options_alone():
    rows, books = read(ROUTED)
    assert (len(rows), rows["syn_n"][0], rows["dup_syn"][0]) == (1, 1, 7)
    assert sum(c["syn_n"] for c in RECORDS[ROUTED]["connections"]) == books.syn == 8


def test_d9_a_split_handshake():
    rows, _ = read(SPLIT)
    assert rows["state"].tolist() == [sg.SIMULTANEOUS, sg.SIMULTANEOUS]
    assert {key_of(row) for row in rows} == {key_of_truth(c) for c in RECORDS[SPLIT]["connections"]}


def test_d5_a_clock_error():
    rows, books = read(REORDERED)
    assert (rows["state"].tolist(), rows["flags"].tolist()) == ([sg.ANSWERED], [sg.F_CLOCK_ERROR])
    assert (sg.rtt_first_ns(rows)[0], books.clock_error) == (sg.UNKNOWN, 1)
    (expected,) = RECORDS[REORDERED]["connections"]
    assert rows["t_synack_ns"][0] == expected["synack_t"][0] < expected["syn_t"][0]
