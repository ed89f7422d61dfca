"""Small captures whose truth was written by hand beside their packets: what our rooms together make of them."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lz4.frame
import numpy as np
import pytest
import zstandard
from ncps_capture import segments as sg
from ncps_capture.addresses import address_text
from ncps_capture.capfile import open_capture
from ncps_capture.decode import AckWatch, decode
from ncps_capture.handshake import HandshakeTable, books_of, merge_rows
from scapy.contrib import gtp, mpls
from scapy.layers import dot11
from scapy.layers.inet import TCP
from scapy.utils import PcapReader

FIXTURES = Path(__file__).parents[2] / "fixtures"
TRUTH: dict[str, dict[str, Any]] = json.loads((FIXTURES / "truth.json").read_text(encoding="utf-8"))
CROWDS: dict[str, dict[str, Any]] = json.loads((FIXTURES / "crowds.json").read_text(encoding="utf-8"))
UNPACK = {
    ".gz": gzip.decompress,
    ".xz": lzma.decompress,
    ".bz2": bz2.decompress,
    ".lz4": lz4.frame.decompress,
    ".zst": lambda data: zstandard.ZstdDecompressor().stream_reader(data).read(),
}
FORMS = ["modified.pcap", *(name for name in TRUTH if not name.endswith(".pcap"))]
"""Files that scapy does not read, or not as what they are."""
WHOLE, BY_RECORD = 1 << 20, 32
"""Bytes of a batch: all the file, or hardly a record at a time."""


@pytest.fixture(scope="module")
def remade(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fixtures")
    subprocess.run([sys.executable, str(FIXTURES / "make.py"), str(folder)], check=True)
    return folder


def analyzed(
    name: str, chunk_bytes: int, settling: bool, watch: AckWatch | None = None
) -> tuple[sg.Handshakes, sg.Books]:
    """Merged rows and books of a fixture, as reading a saved file makes them."""
    table, books, parts, end_ns = HandshakeTable(), sg.Books(), [], 0
    opened = open_capture(FIXTURES / name)
    for batch in opened.batches(chunk_bytes):
        segments, seen = decode(batch, want_acks=watch is None, tunnels=True, acks=watch)
        books += seen
        table.add(segments)
        end_ns = int(batch.t_ns[-1])
        if settling:
            parts.append(table.settle(end_ns))
    assert opened.warnings == []
    rows = merge_rows(np.concatenate([*parts, table.finish(end_ns)]))
    books += books_of(rows)
    return rows, books


def known(value: Any) -> int | None:
    return None if value == sg.UNKNOWN else int(value)


def attempts_of(rows: sg.Handshakes) -> Iterator[dict[str, Any]]:
    """Rows in the words of truth.json."""
    first, retrans = sg.rtt_first_ns(rows), sg.syn_retrans(rows)
    for i, row in enumerate(rows):
        state, flags = sg.STATE_NAMES[row["state"]], int(row["flags"])
        rtt_first = known(first[i])
        refused = state in ("refused", "icmp_refused")
        yield {
            **ends(row),
            "attempt": int(row["attempt"]),
            "state": state,
            "syn_repeats": int(row["syn_n"]) - 1,
            "syn_retrans": int(retrans[i]),
            **{name: int(row[name]) for name in COUNTS},
            **{name: known(row[name]) for name in ("t_syn_first_ns", "t_syn_last_ns", "t_synack_ns", "rtt_ts_ns")},
            "rtt_first_ns": rtt_first,
            "rtt_last_ns": None if rtt_first is None else int(row["t_synack_ns"] - row["t_syn_before_ns"]),
            **{name: bool(flags & bit) for name, bit in FLAGS.items()},
            "simultaneous": state == "simultaneous",
            "refuse_latency_ns": int(row["t_refused_ns"] - row["t_syn_first_ns"]) if refused else None,
            "icmp_type": int(row["icmp_type"]) if state == "icmp_refused" else None,
            "icmp_code": int(row["icmp_code"]) if state == "icmp_refused" else None,
            "syn_len": int(row["syn_len"]),
            "mss": int(row["mss"]) or None,
            "window_scale": None if row["wscale"] == 255 else int(row["wscale"]),
            "ttl": int(row["ttl"]),
            "vlan": None if row["vlan"] == sg.NO_VLAN else int(row["vlan"]),
        }


COUNTS = (
    "syn_n",
    "retrans_timeout",
    "retrans_after_synack",
    "retrans_after_rst",
    "retrans_after_challenge",
    "dup_syn",
    "synack_n",
    "synack_retrans",
    "dup_synack",
    "synack_isn_changed",
    "synack_bad_ack",
    "rst_ignored",
)
FLAGS = {
    "rtt_exact": sg.F_RTT_EXACT,
    "ambiguous": sg.F_AMBIGUOUS,
    "tfo": sg.F_TFO,
    "censored": sg.F_CENSORED,
    "clock_error": sg.F_CLOCK_ERROR,
    "clock_step": sg.F_CLOCK_STEP,
    "rst_seq": sg.F_RST_SEQ,
}


def ends(row: np.void) -> dict[str, Any]:
    return {
        "frame": int(row["frame"]),
        "src": address_text(row["client_hi"], row["client_lo"], row["ip_version"]),
        "sport": int(row["sport"]),
        "dst": address_text(row["server_hi"], row["server_lo"], row["ip_version"]),
        "dport": int(row["dport"]),
        "isn": int(row["isn"]),
    }


@pytest.mark.parametrize(
    ("chunk_bytes", "settling", "watching"),
    [(WHOLE, False, False), (BY_RECORD, True, False), (WHOLE, False, True)],
    ids=["whole", "settled record by record", "with the ACKs that matter"],
)
@pytest.mark.parametrize("name", TRUTH)
def test_what_is_made_of_a_capture_is_the_truth(name: str, chunk_bytes: int, settling: bool, watching: bool) -> None:
    rows, books = analyzed(name, chunk_bytes, settling, AckWatch() if watching else None)
    truth = TRUTH[name]
    asked = rows["state"] != sg.SYNACK_ONLY
    assert sorted(attempts_of(rows[asked]), key=lambda row: row["frame"]) == truth["attempts"]
    lone = [
        {**ends(row), "t_synack_ns": int(row["t_synack_ns"]), "synack_n": int(row["synack_n"])} for row in rows[~asked]
    ]
    assert sorted(lone, key=lambda row: row["frame"]) == truth["synack_only"]
    assert {count: value for count, value in vars(books).items() if value} == truth["books"]
    assert books.problems() == []


@pytest.mark.parametrize("name", TRUTH)
def test_the_truth_agrees_with_itself(name: str) -> None:
    truth = TRUTH[name]
    attempts = truth["attempts"]
    books = sg.Books(**truth["books"])
    assert books.problems() == []
    assert books.attempts == len(attempts)
    assert books.syn_counted == sum(row["syn_n"] for row in attempts)
    assert books.syn_duplicate == sum(row["dup_syn"] for row in attempts)
    assert books.synack_only == len(truth["synack_only"])
    for row in attempts:
        causes = [value for key, value in row.items() if key.startswith("retrans_")]
        assert row["syn_n"] - 1 == row["syn_repeats"] == sum(causes)
        assert row["syn_retrans"] == row["retrans_timeout"] + row["retrans_after_synack"]
        if row["rtt_first_ns"] is not None:
            assert row["rtt_first_ns"] == row["t_synack_ns"] - row["t_syn_first_ns"]
            assert row["rtt_exact"] is not row["ambiguous"]


def behind_what_scapy_does_not_know(frame: bytes, row: dict[str, Any]) -> TCP:
    """FabricPath, control words of pseudowires, all but one AF_INET6 a link type."""
    return TCP(frame[frame.index(struct.pack(">HHI", row["sport"], row["dport"], row["isn"])) :])


@pytest.mark.parametrize("chunk_bytes", [WHOLE, BY_RECORD])
@pytest.mark.parametrize("name", CROWDS)
def test_a_crowd_is_told_column_by_column(name: str, chunk_bytes: int) -> None:
    rows, books = analyzed(name, chunk_bytes, chunk_bytes == BY_RECORD)
    rows = np.sort(rows, order="frame")
    truth = CROWDS[name]
    assert rows["attempt"].tolist() == list(range(1, len(rows) + 1))
    assert [sg.STATE_NAMES[state] for state in rows["state"]] == truth["state"]
    for count in ("frame", "isn", "syn_n"):
        assert rows[count].tolist() == truth[count]
    assert (rows["t_syn_first_ns"] - 1_700_000_000 * 10**9).tolist() == truth["t_syn_first_ns"]
    assert [known(rtt) for rtt in sg.rtt_first_ns(rows)] == truth["rtt_first_ns"]
    assert {count: value for count, value in vars(books).items() if value} == truth["books"]


@pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed")
@pytest.mark.parametrize("name", [name for name in FORMS if not name.endswith((".xz", ".bz2"))])
def test_tshark_finds_the_syns_of_other_forms_where_the_truth_says(name: str) -> None:
    fields = ("frame.number", "frame.time_epoch", "tcp.seq_raw", "tcp.dstport")
    command = ["tshark", "-r", str(FIXTURES / name), "-Y", "tcp.flags.syn == 1 and tcp.flags.ack == 0", "-T", "fields"]
    done = subprocess.run(
        [*command, *(word for field in fields for word in ("-e", field))], capture_output=True, text=True, check=True
    )
    found = {int(line.split("\t")[0]): line.split("\t")[1:] for line in done.stdout.splitlines()}
    for row in TRUTH[name]["attempts"]:
        time, seq, port = found.pop(row["frame"])
        seconds, fraction = time.split(".")
        t_ns = int(seconds) * 10**9 + int(fraction.ljust(9, "0")[:9])
        if name == "resolutions.pcapng" and row["frame"] == 7:
            # It multiplies picoseconds by 10^9 before it divides, which overflows from 18.4 ms of a second on.
            t_ns += (30_000_001_999 * 10**9 - (30_000_001_999 * 10**9 & 0xFFFF_FFFF_FFFF_FFFF)) // 10**12
        assert (t_ns, int(seq), int(port)) == (row["t_syn_first_ns"], row["isn"], row["dport"])
    assert found == {}


@pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed")
def test_tshark_finds_all_behind_labels_and_sessions_once_it_is_told_of_the_control_word() -> None:
    """By itself it counts 12 TCP packets where there are 15, 4 SYNs where there are 5: a guess, and here a wrong one.

    Frames 4 to 6 are a pseudowire's: behind the label a control word (RFC 4448), then a frame. Nothing in the packet
    tells of either. tshark takes what follows for a frame without a control word wherever the places of both addresses
    begin like a vendor's; here the control word and a locally made address do, as 00:00:00 and 00:00:01 of Xerox.
    Ours asks what the EtherType would be, which would be 0 without the control word.
    """
    truth = TRUTH["labels_and_sessions.pcap"]

    def found(*told: str) -> dict[int, tuple[int, int]]:
        command = ["tshark", "-r", str(FIXTURES / "labels_and_sessions.pcap"), *told, "-Y", "tcp", "-T", "fields"]
        fields = ["-e", "frame.number", "-e", "tcp.flags", "-e", "tcp.srcport"]
        done = subprocess.run([*command, *fields], capture_output=True, text=True, check=True)
        lines = (line.split("\t") for line in done.stdout.splitlines())
        return {int(frame): (int(flags, 16), int(port)) for frame, flags, port in lines}

    every, guessed = found("-d", "mpls.label==102,pwethcw"), found()
    assert every.keys() - guessed.keys() == {4, 5, 6}
    assert guessed.items() <= every.items()
    assert len(every) == truth["books"]["tcp_packets"] == 15
    syns = {frame: port for frame, (flags, port) in every.items() if flags & 0x17 == sg.SYN}
    assert syns == {row["frame"]: row["sport"] for row in truth["attempts"]}


@pytest.mark.parametrize("name", [name for name in TRUTH if name not in FORMS])
def test_scapy_finds_the_first_syn_where_the_truth_says(name: str) -> None:
    assert all((gtp.GTP_U_Header, mpls.MPLS, dot11.RadioTap))  # scapy dissects what was imported
    with PcapReader(str(FIXTURES / name)) as reader:
        packets = list(reader)
    assert len(packets) == TRUTH[name]["books"]["packets"]
    for row in TRUTH[name]["attempts"]:
        packet = packets[row["frame"] - 1]
        tcp = packet.getlayer(TCP) or behind_what_scapy_does_not_know(bytes(packet), row)
        assert (tcp.flags, tcp.seq, tcp.dport) == ("S", row["isn"], row["dport"])
        assert round(packet.time * 10**9) == row["t_syn_first_ns"]


def test_the_script_makes_the_committed_bytes(remade: Path) -> None:
    made = {path.name: path for path in remade.iterdir()}
    assert made.keys() == {*TRUTH, *CROWDS, "truth.json", "crowds.json"}
    assert [name for name, path in made.items() if plain(path) != plain(FIXTURES / name)] == []


def plain(path: Path) -> bytes:
    """What is in it: how well it is compressed depends on the version of a library."""
    unpack = UNPACK.get(path.suffix)
    data = path.read_bytes()
    return gzip.decompress(data) if path.stem == "gzip_members" else unpack(data) if unpack else data


def test_the_captures_are_small_and_each_has_its_truth() -> None:
    sizes = {path.name: path.stat().st_size for path in FIXTURES.iterdir() if ".pcap" in path.suffixes[0]}
    assert sizes.keys() == {*TRUTH, *CROWDS}
    assert max(sizes[name] for name in TRUTH) < 4096
    assert max(sizes.values()) < 20_000


def test_every_kind_of_link_that_can_be_met_is_there() -> None:
    opened = {name: open_capture(FIXTURES / name) for name in TRUTH}
    for name, capture in opened.items():
        for _ in capture.batches():
            pass
        assert capture.link_type == TRUTH[name]["link_type"]
    kinds = {each.link_type for capture in opened.values() for each in capture.interfaces}
    assert kinds == {0, 1, 9, 101, 108, 113, 127, 258, 276}


def test_what_is_lost_is_told_of_the_file() -> None:
    told = {name: truth["facts"]["dropped_by_capture"] for name, truth in TRUTH.items() if "drops" in name}
    for name, drops in told.items():
        capture = open_capture(FIXTURES / name)
        assert sum(len(batch.offsets) for batch in capture.batches()) == TRUTH[name]["books"]["packets"]
        assert capture.drops == drops
    assert told == {"drops.pcapng": 19}
