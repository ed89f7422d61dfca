"""Real captures against tshark's fields: every file, frames to merged rows, judged by what is known of it.

The truth is raw: it counts a repeat for every SYN and tells copies by time alone. Where the definitions say otherwise
they win: each such figure is named in ``DIFFERENCES`` with its reason, and must differ, or its name is too many.
"""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from ncps_capture import segments as sg
from ncps_capture.addresses import address_text
from ncps_capture.capfile import CaptureFile, open_capture
from ncps_capture.decode import AckWatch, decode
from ncps_capture.handshake import HandshakeTable, books_of, merge_rows

pytestmark = pytest.mark.truth


def records() -> dict[str, dict]:
    folder = os.environ.get("NCPS_TRUTH_PCAPS", "")
    truth = Path(folder) / "truth.jsonl"
    if not folder or not truth.is_file():
        return {}
    lines = truth.read_text(encoding="utf-8").splitlines()
    return {record["local"]: record for record in map(json.loads, lines)}


RECORDS = records()
NAMES = sorted(RECORDS) or ["no captures at hand"]
files = pytest.mark.parametrize("name", NAMES)

STEPPED = "OISF+suricata-verify__tests__bug-1450-04__tls_DER-incomplete-header.pcap"
INTERLEAVED = "OISF+suricata-verify__tests__bug-7657-01__input.pcap"
ROUTED = "OISF+suricata-verify__tests__detect-ipopts__input.pcap"
SPLIT = "OISF+suricata-verify__tests__tcp-split-handshake-01-4whs__split-handshake-4whs.pcap"
REORDERED = "zeek+zeek__testing__btest__Traces__tcp__handshake-reorder.pcap"
FRAGMENTED = "OISF+suricata-verify__tests__defrag__bug-6887-defrag-ppp-ipv4-tcp-syn__frag-ppp-ip-tcp-syn.pcap"
REPEATED = "OISF+suricata-verify__tests__bug-6269-01__input.pcap"
FAST_OPEN = "OISF+suricata-verify__tests__tcp-fastopen-10-syn-data-ignore__input.pcap"
IMPOSSIBLE = "the-tcpdump-group+tcpdump__tests__timestamp_invalid_micro.pcap"
PATIENT = "zeek+zeek__testing__btest__Traces__rdp__rdp-unknown-keyboard.pcap"
NUMBERLESS = "zeek+zeek__testing__btest__Traces__tunnels__4in6.pcap"
OTHER_ATTEMPTS = {
    INTERLEAVED: "D1: an ISN that comes again between SYNs of other ISNs is the same attempt, not a new one each time",
    ROUTED: "the address is that of the IP header, not the last hop a source route names; copies have one IP ID (D2)",
    FRAGMENTED: "admission: the flags lie in the second fragment; tshark puts fragments together",
}
DIFFERENCES = {
    STEPPED: {
        "rtt_first": "D13: the SYN-ACK is stamped years before its SYN: a step of the clock, so no RTT",
        "synack_to_ack": "D13: and the ACK years after it",
    },
    SPLIT: {
        "state": "D9: SYNs both ways are simultaneous, where one answered and one unanswered attempt stood",
        "rtt_first": "D9: no SYN-RTT",
        "synack_to_ack": "D9: nor a third ACK",
    },
    REPEATED: {"dup_synack": "D2: 0.2 ms apart, but with another TSval: sent twice"},
    FAST_OPEN: {
        "synack_retrans": "D6: three of them have another server ISN, two of which count there as repeats of the third",
        "synack_to_ack": "D12: the client acknowledges the other server ISN, not A's",
    },
    IMPOSSIBLE: {"synack_to_ack": "D12: the ACK is stamped a second before the SYN-ACK"},
    PATIENT: {"synack_to_ack": "D12: 7.1 s later, and the ACK is looked for 4 s"},
    NUMBERLESS: {"in_tunnel": "IP in IP has no id that could be part of a key"},
}


def read(name: str, every_ack: bool = False) -> tuple[sg.Handshakes, sg.Books, CaptureFile]:
    table, watch, books, parts = HandshakeTable(third_ack=True), AckWatch(), sg.Books(), []
    opened = open_capture(Path(os.environ["NCPS_TRUTH_PCAPS"]) / name)
    last = 0
    for batch in opened.batches(1 << 12):
        segments, more = decode(batch, every_ack, tunnels=True, acks=watch)
        books += more
        table.add(segments)
        last = int(batch.t_ns.max())
        parts.append(table.settle(last))
    parts.append(table.finish(last))
    rows = merge_rows(np.concatenate(parts))
    books += books_of(rows)
    return rows, books, opened


def key_of(row: np.void) -> tuple:
    ends = [address_text(row[f"{end}_hi"], row[f"{end}_lo"]) for end in ("client", "server")]
    isn = int(row["isn"])
    return (ends[0], int(row["sport"]), ends[1], int(row["dport"]), None if row["state"] == sg.SYNACK_ONLY else isn)


def key_of_truth(connection: dict) -> tuple:
    isn = None if connection["state"] == "synack_only" else connection["isn"]
    return (connection["src"], connection["sport"], connection["dst"], connection["dport"], isn)


def known(value: int) -> int | None:
    return None if value == sg.UNKNOWN else int(value)


def told(row: np.void, truth: dict) -> dict[str, tuple]:
    """What we say and what is true, figure by figure."""
    out: dict[str, tuple] = {"state": (sg.STATE_NAMES[row["state"]], truth["state"])}
    if truth["state"] == "synack_only":
        return out | {"t_synack": (row["t_synack_ns"], truth["synack_t"][0])}
    one = np.array([row])
    out |= {
        "syn": (row["syn_n"] + row["dup_syn"], truth["syn_n"]),
        "dup_syn": (row["dup_syn"], truth.get("syn_dup_lt_5ms", 0)),
        "syn_repeats": (row["syn_n"] - 1, truth.get("syn_retrans_net", truth["syn_retrans"])),
        "t_syn_first": (row["t_syn_first_ns"], truth["syn_t"][0]),
        "frame": (row["frame"], truth["syn_frames"][0]),
        "syn_len": (row["syn_len"], truth["syn_len"]),
        "in_tunnel": (row["tunnel"] != 0, truth["tunnel"]),
        "rtt_first": (known(sg.rtt_first_ns(one)[0]), truth.get("rtt_first_ns")),
        "synack_to_ack": (known(sg.synack_to_ack_ns(one)[0]), truth.get("synack_to_ack_ns")),
    }
    if truth["state"] == "answered":
        last = known(row["t_syn_before_ns"])
        out |= {
            "rtt_last": (None if last is None else row["t_synack_ns"] - last, truth.get("rtt_last_ns")),
            "synack": (row["synack_n"] + row["dup_synack"], truth["synack_n"]),
            "dup_synack": (row["dup_synack"], truth.get("synack_dup_lt_5ms", 0)),
            "synack_retrans": (row["synack_retrans"] + row["dup_synack"], truth["synack_retrans"]),
        }
        if truth.get("rtt_tsecr_ns") is not None:
            out["rtt_ts"] = (row["rtt_ts_ns"], truth["rtt_tsecr_ns"])
    if truth["state"] == "refused":
        out["refuse_latency"] = (row["t_refused_ns"] - row["t_syn_first_ns"], truth["rst_after_first_ns"])
    return out


@files
def test_counts(name):
    record = RECORDS[name]
    _, books, opened = read(name)
    wanted = [record[count] for count in ("packets", "tcp_packets", "syn", "synack")]
    if name == FRAGMENTED:
        assert wanted[1:] == [1, 1, 0]
        assert (books.too_short, books.fragments) == (1, 2)
        wanted[1:] = [0, 0, 0]
    assert [opened.packets, books.tcp_packets, books.syn, books.synack] == wanted
    assert books.packets + opened.untimed + opened.unclaimed == opened.packets
    assert books.problems() == []


@pytest.mark.parametrize("name", [name for name in NAMES if name not in OTHER_ATTEMPTS])
def test_attempts(name):
    rows, _, _ = read(name)
    mine = {key_of(row): row for row in rows}
    assert len(mine) == len(rows)
    truth = {key_of_truth(connection): connection for connection in RECORDS[name]["connections"]}
    assert set(mine) == set(truth)
    different = {
        figure
        for key, expected in truth.items()
        for figure, (ours, true) in told(mine[key], expected).items()
        if ours != true
    }
    assert different == DIFFERENCES.get(name, {}).keys()


@files
def test_the_acks_that_matter_say_as_much_as_all(name):
    assert np.array_equal(read(name)[0], read(name, every_ack=True)[0])


@files
def test_real_frames_with_changed_bytes_are_survived(name):
    random = np.random.default_rng(1)
    for batch in open_capture(Path(os.environ["NCPS_TRUTH_PCAPS"]) / name).batches():
        for share in (0.005, 0.05, 0.05, 0.3):
            data = batch.data.copy()
            where = np.flatnonzero(random.random(len(data)) < share)
            data[where] = random.integers(0, 256, len(where), np.uint8)
            table = HandshakeTable(third_ack=True)
            rows, books = decode(replace(batch, data=data), tunnels=True, acks=AckWatch())
            table.add(rows)
            books += books_of(merge_rows(table.finish(int(batch.t_ns.max()))))
            assert books.problems() == []
            assert books.packets == len(batch.offsets)


def test_the_files_with_differences_are_there():
    assert DIFFERENCES.keys() | OTHER_ATTEMPTS.keys() <= RECORDS.keys()
    assert len(RECORDS) == 40


def test_d13_a_step_of_the_clock():
    rows, books, _ = read(STEPPED)
    assert (rows["state"].tolist(), rows["flags"].tolist()) == ([sg.ANSWERED], [sg.F_CLOCK_STEP])
    assert (sg.rtt_first_ns(rows)[0], books.clock_step) == (sg.UNKNOWN, 1)
    (expected,) = RECORDS[STEPPED]["connections"]
    assert rows["t_synack_ns"][0] - rows["t_syn_first_ns"][0] == expected["rtt_first_ns"]


def test_d1_an_isn_between_others():
    rows, books, _ = read(INTERLEAVED)
    (row,) = rows[rows["isn"] == 4291095205]
    parts = [c for c in RECORDS[INTERLEAVED]["connections"] if c["isn"] == 4291095205]
    assert row["syn_n"] == len(parts) == 3
    assert row["state"] == sg.ANSWERED
    assert row["t_syn_first_ns"] == parts[0]["syn_t"][0]
    assert row["t_synack_ns"] == parts[-1]["synack_t"][0]
    assert row["rtt_ts_ns"] == row["t_synack_ns"] - row["t_syn_before_ns"] == parts[-1]["rtt_first_ns"]
    assert books.attempts == len(RECORDS[INTERLEAVED]["connections"]) - 2


def test_d2_copies_that_differ_in_ip_options_alone():
    rows, books, _ = read(ROUTED)
    assert (len(rows), rows["syn_n"][0], rows["dup_syn"][0]) == (1, 1, 7)
    assert sum(c["syn_n"] for c in RECORDS[ROUTED]["connections"]) == books.syn == 8


def test_d9_a_split_handshake():
    rows, _, _ = read(SPLIT)
    assert rows["state"].tolist() == [sg.SIMULTANEOUS, sg.SIMULTANEOUS]
    assert {key_of(row) for row in rows} == {key_of_truth(c) for c in RECORDS[SPLIT]["connections"]}


def test_d5_a_clock_error():
    rows, books, _ = read(REORDERED)
    assert (rows["state"].tolist(), rows["flags"].tolist()) == ([sg.ANSWERED], [sg.F_CLOCK_ERROR])
    assert (sg.rtt_first_ns(rows)[0], books.clock_error) == (sg.UNKNOWN, 1)
    (expected,) = RECORDS[REORDERED]["connections"]
    assert rows["t_synack_ns"][0] == expected["synack_t"][0] < expected["syn_t"][0]


def test_d6_two_numbers_of_one_server():
    rows, _, _ = read(FAST_OPEN)
    (expected,) = RECORDS[FAST_OPEN]["connections"]
    assert rows["synack_isn_changed"].tolist() == [3]
    assert rows["synack_retrans"][0] + 3 - 1 == expected["synack_retrans"]
    assert (rows["flags"][0] & sg.F_TFO, rows["syn_len"][0]) == (sg.F_TFO, expected["syn_len"])
