"""``ncps analyze`` by its command line: files in, reports and records out, compared with what is known of the files."""

import csv
import gzip
import io
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from analyses import CLIENT, FIXTURES, T0, analyze, attempts, figures, handshake, save, tcp
from ncps_capture.errors import UsageError
from running import NCPS, run, serving

from ncps_raw.analyze import view_of

TRUTH = json.loads((FIXTURES / "truth.json").read_text(encoding="utf-8"))
MS = 1_000_000


@pytest.mark.parametrize("name", TRUTH)
def test_every_attempt_of_a_made_capture_is_told_as_it_was_made(name: str) -> None:
    told = attempts(FIXTURES / name)
    assert len(told) == len(TRUTH[name]["attempts"])
    for mine, true in zip(told, TRUTH[name]["attempts"], strict=True):
        assert mine["file"] == str(FIXTURES / name)
        common = mine.keys() & true.keys()
        assert len(common) > 30
        assert {key: mine[key] for key in common} == {key: true[key] for key in common}


@pytest.mark.parametrize("name", TRUTH)
def test_the_books_of_a_made_capture_balance(name: str) -> None:
    report = figures(FIXTURES / name)
    books = TRUTH[name]["books"]
    for key in ("packets", "tcp_packets", "syn", "synack", "attempts", "answered", "refused", "unanswered"):
        assert report[key] == books.get(key, 0), key
    assert not any("balance" in problem for problem in report["problems"])
    assert all("!=" not in identity for identity in report["identities"])


RECORD_KEYS = (
    "file frame src sport dst dport isn attempt "
    "state syn_n syn_repeats syn_retrans retrans_timeout retrans_after_synack retrans_after_rst "
    "retrans_after_challenge "
    "dup_syn synack_n synack_retrans dup_synack synack_isn_changed t_syn_first_ns t_syn_last_ns t_synack_ns "
    "rtt_first_ns rtt_last_ns rtt_ts_ns rtt_exact ambiguous synack_to_ack_ns refuse_latency_ns simultaneous "
    "tfo syn_len mss window_scale ttl censored tunnel vlan "
)


def test_both_forms_of_records_hold_the_same() -> None:
    path = FIXTURES / "retrans_ambiguous.pcap"
    lines = attempts(path)
    code, out, _ = analyze(path, "--connections", "--format", "csv")
    table = list(csv.DictReader(io.StringIO(out)))
    assert code == 0
    assert [*lines[0]] == [*table[0]] == RECORD_KEYS.split()
    for line, row in zip(lines, table, strict=True):
        plain = {key: "" if value is None else str(value) for key, value in line.items()}
        assert {key: value.lower() if value in ("True", "False") else value for key, value in plain.items()} == row


def test_a_tuple_used_a_thousand_times_is_a_thousand_attempts(tmp_path: Path) -> None:
    packets = [p for n in range(1000) for p in handshake(n * 5 * MS, isn=n * 100_000 + 1, ident=n + 1)]
    path = save(tmp_path / "reused.pcap", packets)
    report = figures(path)
    assert (report["attempts"], report["answered"], report["syn_repeats"]) == (1000, 1000, 0)
    assert report["syn_rtt_us"]["n"] == report["synack_to_ack_us"]["n"] == 1000
    assert [record["attempt"] for record in attempts(path)] == list(range(1, 1001))


def test_a_mirror_port_that_copies_three_of_ten_is_said_loudly(tmp_path: Path) -> None:
    packets = []
    for n in range(100):
        for number, (t_ns, packet) in enumerate(handshake(n * MS * 10, sport=1000 + n, ident=n + 1)):
            packets.append((t_ns, packet))
            if n % 10 < 3 and number < 2:  # the copy has been through one router more
                packets.append((t_ns + 30_000, packet[:8] + bytes([63]) + packet[9:]))
    report = figures(save(tmp_path / "span.pcap", sorted(packets)))
    assert (report["attempts"], report["answered"]) == (100, 100)
    assert (report["dup_syn"], report["dup_synack"], report["duplicates"]) == (30, 30, 60)
    assert (report["syn_repeats"], report["synack_retrans"]) == (0, 0)
    assert "60 of 260 SYNs and SYN-ACKs (23 %) are copies" in report["problems"][0]
    without = figures(tmp_path / "span.pcap", "--dup-window", "0")
    assert (without["duplicates"], without["syn_repeats"], without["synack_retrans"]) == (0, 30, 30)


def tagged(vlan: int | None, packets: Sequence[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
    """Raw IPv4 packets as Ethernet frames, in a VLAN or in none."""
    tag = b"" if vlan is None else b"\x81\0" + vlan.to_bytes(2, "big")
    return [(t_ns, b"\2\0\0\0\0\2\2\0\0\0\0\1" + tag + b"\x08\0" + packet) for t_ns, packet in packets]


def test_the_same_ends_in_two_vlans_are_two_attempts_on_request(tmp_path: Path) -> None:
    """A router between two VLANs, copied whole: SYN, SYN-ACK and ACK, each seen on both sides of it."""
    once = handshake(0)
    again = [(t_ns + 30_000, packet[:8] + b"\x3f" + packet[9:]) for t_ns, packet in once]
    frames = sorted(tagged(7, once) + tagged(8, again))
    path = save(tmp_path / "router.pcap", frames, 1)
    (one,) = attempts(path)
    assert (one["vlan"], one["dup_syn"], one["dup_synack"]) == (7, 1, 1)
    told = attempts(path, "--vlan-key")
    assert [(r["vlan"], r["tunnel"], r["attempt"], r["dup_syn"], r["frame"]) for r in told] == [
        (7, None, 1, 0, 1),
        (8, None, 1, 0, 2),
    ]
    assert [(r["state"], r["rtt_first_ns"], r["synack_to_ack_ns"]) for r in told] == [("answered", MS, 10_000)] * 2
    report = figures(path, "--vlan-key")
    assert (report["attempts"], report["answered"], report["duplicates"], report["problems"]) == (2, 2, 0, [])
    assert "answers in another VLAN than their SYN are not found" in report["notes"][0]
    answered_elsewhere = save(tmp_path / "two.pcap", tagged(7, once[:1]) + tagged(None, once[1:]), 1)
    assert figures(answered_elsewhere)["answered"] == 1
    apart = figures(answered_elsewhere, "--vlan-key")
    assert (apart["answered"], apart["unanswered"], apart["synack_only"]) == (0, 1, 1)


def test_tunnels_are_told_as_ever_when_vlans_are_a_part_of_the_key() -> None:
    for name in ("tunnels.pcap", "vlan.pcap", "labels_and_sessions.pcap"):
        path = FIXTURES / name
        assert attempts(path, "--vlan-key") == attempts(path)


def test_a_step_of_the_clock_takes_round_trips_and_nothing_else(tmp_path: Path) -> None:
    back = 10 * 10**9
    packets = [*handshake(back, sport=1), (back + 5 * MS, tcp(2, 9, sport=2))]
    packets += [(0, tcp(0x12, 5, 10, back=True, sport=2)), *handshake(MS, sport=3)]
    report = figures(save(tmp_path / "step.pcap", packets))
    assert (report["attempts"], report["answered"], report["clock_step"]) == (3, 3, 1)
    assert report["syn_rtt_us"]["n"] == 2
    assert "1 attempt across a step" in report["notes"][0]


@pytest.mark.parametrize("back", [False, True])
def test_one_direction_is_named_and_is_no_loss(back: bool, tmp_path: Path) -> None:
    packets = [p for n in range(20) for p in handshake(n * MS, sport=1000 + n, ident=n + 1)]
    kept = [(t, p) for t, p in packets if (p[12:16] != bytes(map(int, CLIENT.split(".")))) == back]
    report = figures(save(tmp_path / "one.pcap", kept))
    assert report["one_direction"] == ("server_to_client" if back else "client_to_server")
    assert report["answered_share"] is None
    assert report["problems"][0].startswith("one direction only: 20 ")
    code, text, _ = analyze(tmp_path / "one.pcap")
    assert code == 0
    assert "100.0000 %" not in text


def test_nobody_answering_is_not_one_direction(tmp_path: Path) -> None:
    report = figures(save(tmp_path / "dark.pcap", [(n * MS, tcp(2, n, sport=1000 + n)) for n in range(20)]))
    assert (report["one_direction"], report["unanswered"], report["answered_share"]) == (None, 20, 0.0)
    assert report["censored"] == 20
    assert "nobody answered, or it holds one direction only" in report["notes"][0]


def test_a_handshake_may_begin_in_one_file_and_end_in_the_next(tmp_path: Path) -> None:
    packets = [p for n in range(10) for p in handshake(n * MS, 30 * MS, sport=1000 + n)]
    packets.sort(key=lambda item: item[0])
    one, two = save(tmp_path / "1.pcap", packets[:12]), save(tmp_path / "2.pcap", packets[12:])
    report = figures(two, one)  # by time, not by place
    assert (report["answered"], report["synack_only"], report["syn_rtt_us"]["min"]) == (10, 0, 30_000)
    assert {record["file"] for record in attempts(two, one)} == {str(one)}
    assert figures(one)["answered"] == 1


def test_standard_input_and_compressed_files_are_captures_too(tmp_path: Path) -> None:
    plain = FIXTURES / "clean_ipv4.pcap"
    packed = tmp_path / "packed"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    wanted = figures(plain)
    with plain.open("rb") as file:
        done = subprocess.run([NCPS, "analyze", "-", "--format", "json"], stdin=file, capture_output=True, check=True)
    for other in (json.loads(done.stdout), figures(packed)):
        for key in ("packets", "attempts", "answered", "syn_rtt_us", "start_t_ns", "end_t_ns"):
            assert other[key] == wanted[key]


def three_kinds(path: Path) -> Path:
    packets = [*handshake(0, sport=1001, client="10.0.0.1"), *handshake(60_000 * MS, sport=1002, client="10.0.1.1")]
    packets += [(90_000 * MS, tcp(2, 5, sport=1003, dport=80)), (91_000 * MS, tcp(2, 5, sport=1003, dport=80, ident=2))]
    packets += [(91_500 * MS, tcp(0x14, 0, 6, back=True, sport=1003, dport=80))]
    return save(path, packets)


@pytest.mark.parametrize(
    ("options", "ports"),
    [
        ((), [1001, 1002, 1003]),
        (("--host", "10.0.0.0/24"), [1001]),
        (("--host", "10.0.1.1,10.0.0.1"), [1001, 1002]),
        (("--port", "80"), [1003]),
        (("--port", "1002-1003"), [1002, 1003]),
        (("--state", "refused,unanswered"), [1003]),
        (("--from", "60"), [1002, 1003]),
        (("--from", "60", "--to", "90"), [1002]),
        (("--to", "2023-11-14T22:14:20Z"), [1001]),
        (("--port", "443", "--from", "0.5"), [1002]),
    ],
)
def test_filters(options: tuple[str, ...], ports: list[int], tmp_path: Path) -> None:
    path = three_kinds(tmp_path / "three.pcap")
    assert [record["sport"] for record in attempts(path, *options)] == ports
    report = figures(path, *options)
    assert (report["attempts"], report["attempts_captured"]) == (len(ports), 3)
    assert (report["filter"] is None) == (not options)
    assert report["syn"] == 4
    assert not report["problems"]


@pytest.mark.parametrize(
    ("by", "keys"),
    [
        ("client", [CLIENT, "10.0.0.1", "10.0.1.1"]),
        ("server", ["198.51.100.20"]),
        ("port", ["443", "80"]),
        ("minute", ["2023-11-14T22:13Z", "2023-11-14T22:14Z"]),
    ],
)
def test_breakdowns(by: str, keys: list[str], tmp_path: Path) -> None:
    path = three_kinds(tmp_path / "three.pcap")
    report = figures(path, "--by", by)
    assert sorted(group["key"] for group in report["groups"]) == sorted(keys)
    assert sum(group["attempts"] for group in report["groups"]) == 3
    assert sum(group["syn_repeats"] for group in report["groups"]) == 1
    code, text, _ = analyze(path, "--by", by)
    assert code == 0
    assert all(key in text for key in keys)
    code, table, _ = analyze(path, "--by", by, "--format", "csv")
    assert [row[by] for row in csv.DictReader(io.StringIO(table))] == [group["key"] for group in report["groups"]]


def test_the_most_repeated_and_the_slowest(tmp_path: Path) -> None:
    path = three_kinds(tmp_path / "three.pcap")
    report = figures(path, "--top", "1")
    assert report["top_repeats"] == [
        {"src": CLIENT, "dst": "198.51.100.20", "dport": 80, "attempts": 1, "syn_repeats": 1, "syn_retrans": 1}
    ]
    (slow,) = report["slowest"]
    assert (slow["frame"], slow["rtt_first_us"], slow["t_syn_first_ns"]) == (1, 1000, T0)
    assert figures(path, "--top", "0")["slowest"] == []


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "it is empty"),
        (b"hello world, this is no capture", "it is not a capture"),
        (None, "No such file"),
        ("header", "it has a capture header and no packets"),
        ("foreign", "0 of 2 packets decoded: link type 250 is not supported"),
    ],
)
def test_what_cannot_be_read_is_one_line_and_exit_code_3(content: Any, said: str, tmp_path: Path) -> None:
    path = tmp_path / "x.pcap"
    if content in ("header", "foreign"):
        save(path, [(0, b"x" * 40), (1, b"x" * 40)] if content == "foreign" else [], 250)
    elif content is not None:
        path.write_bytes(content)
    code, out, err = analyze(path)
    assert (code, out, err.count("\n")) == (3, "", 1)
    assert said in err
    assert str(path) in err
    code, out, _ = analyze(path, "--format", "json")
    assert said in json.loads(out)["error"]["message"]


def test_a_damaged_file_counts_up_to_its_damage(tmp_path: Path) -> None:
    path = save(tmp_path / "cut.pcap", handshake(0))
    path.write_bytes(path.read_bytes()[:-5])
    code, out, err = analyze(path, "--format", "json")
    report = json.loads(out)
    assert (code, report["answered"], report["damaged"], report["packets"]) == (0, 1, 1, 2)
    assert report["warnings"] == [err.removeprefix("ncps: ").strip()]
    assert "cut inside record 3" in err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--format", "xml"), "--format must be"),
        (("--connections", "--format", "text"), "--format jsonl or csv"),
        (("--connections", "--by", "port"), "contradict"),
        (("--by", "colour"), "--by must be client, server, port or minute"),
        (("--top", "many"), "--top"),
        (("--dup-window", "2s"), "--dup-window must be at most 1s"),
        (("--host", "example.org"), "--host must be numeric"),
        (("--port", "x"), "--port must be ports"),
        (("--state", "lost"), "--state must be of"),
        (("--from", "yesterday"), "--from must be seconds"),
        (("--from", "5", "--to", "5"), "nothing lies between"),
        (("--run", "r", "--by", "port"), "--run shows the run"),
        (("--run", "r", "--vlan-key"), "--run joins by addresses and ports, which --vlan-key would tell apart"),
        (("--run", ""), "--run is an empty name"),
        (("-o", ""), "--output is an empty name"),
        (("",), "a FILE is an empty name"),
        (("-",), "- is standard input, which can be read once"),
    ],
)
def test_what_cannot_be_meant_is_a_usage_error(options: tuple[str, ...], said: str) -> None:
    code, out, err = analyze("-", *options) if options == ("-",) else analyze(FIXTURES / "vlan.pcap", *options)
    assert (code, out) == (2, "")
    assert said in err


def test_an_output_never_replaces_what_is_read(tmp_path: Path) -> None:
    path = save(tmp_path / "a.pcap", handshake(0))
    before = path.read_bytes()
    code, _, err = analyze(path, "-o", path)
    assert (code, path.read_bytes()) == (2, before)
    assert "would replace" in err
    assert analyze(path, "-o", tmp_path / "r.txt")[0] == 0
    assert "report of a capture" in (tmp_path / "r.txt").read_text()


def test_it_needs_no_pcapy_and_starts_lean() -> None:
    code = (
        "import sys; sys.modules['pcapy'] = None\n"
        "from ncps_raw.cli import main\n"
        f"assert main(['analyze', {str(FIXTURES / 'tunnels.pcap')!r}]) == 0\n"
        "print(*({'rich', 'multiprocessing', 'asyncio', 'scapy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == ""


def test_a_reader_who_has_left_is_no_fault() -> None:
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run([NCPS, "analyze", FIXTURES / "vlan.pcap"], stdout=write, stderr=subprocess.PIPE, check=False)
    os.close(write)
    assert (done.returncode, done.stderr) == (1, b"")


def test_a_view_reads_its_options() -> None:
    values = dict.fromkeys(("--format", "--output", "--by", "--top", "--dup-window", "--quiet", "--connections"))
    view = view_of({**values, "--top": "7", "--by": "port", "--dup-window": "1ms"}, "ncps analyze x")
    assert (view.format, view.top, view.by, view.dup_window_ns) == ("text", 7, "port", MS)
    assert view_of({**values, "--connections": True}, "").format == "jsonl"
    with pytest.raises(UsageError, match="at most 10,000"):
        view_of({**values, "--top": "1M"}, "")


@pytest.mark.truth
def test_public_captures_are_counted_as_they_are() -> None:
    """The command on files of many origins; where packets differ from their truth, a fragment is why (Admission)."""
    folder = Path(os.environ["NCPS_TRUTH_PCAPS"])
    differ = {}
    for line in (folder / "truth.jsonl").read_text(encoding="utf-8").splitlines():
        truth = json.loads(line)
        report = figures(folder / truth["local"])
        assert all("!=" not in identity for identity in report["identities"]), truth["local"]
        odd = {key for key in ("packets", "tcp_packets", "syn", "synack") if report[key] != truth[key]}
        if odd:
            differ[truth["local"].rpartition("__")[2]] = odd
    assert differ == {"frag-ppp-ip-tcp-syn.pcap": {"tcp_packets", "syn"}}


def test_a_saved_run_is_joined_with_any_number_of_captures(scratch: Path, tmp_path: Path) -> None:
    saved, port = tmp_path / "r.ncps", 26_401
    with serving(port, "-b", "127.0.0.1"):
        code, _, err = run(
            *("client", "127.0.0.1", "-p", str(port), "-r", "1", "-N", "2", "-t", "0.2", "--no-capture"),
            *("--run", str(saved), "-q"),
        )
    assert code == 0, err
    one, two = save(tmp_path / "1.pcap", handshake(0)), save(tmp_path / "2.pcap", handshake(MS, sport=9))
    code, out, err = run("analyze", str(one), str(two), "--run", str(saved), "--format", "json")
    report = json.loads(out)
    assert code == 0, err
    assert report["role"] == "client"
    assert report["capture"]["file"] == f"{one}, {two}"
    assert (report["capture"]["packets"], report["capture"]["books"]["attempts"]) == (6, 2)


def test_a_filter_that_nothing_passes_is_not_blamed_on_the_capture() -> None:
    code, out, _ = run("analyze", str(FIXTURES / "clean_ipv4.pcap"), "--port", "0")
    assert code == 0
    assert "attempts of the filter 0 = answered 0" in out
    assert "no answered attempt passes the filter" in out
