"""What users of such tools have reported about packets and files, each with the right value.

The name in brackets says where it was reported. Those that other tests answer are not told twice:

* a filter that misses IPv6 (libpcap 1207, 600), each packet twice on loopback (zeek 4954, scapy 1702):
  tests/ncps_raw/test_end_to_end.py, a thousand clean connections over both families
* packets that come late on an idle link (libpcap 472, arp-scan 42): test_process.py, one handshake on an idle link
* a drop counter of four billion (libpcap 994): test_live.py, the counter starts anywhere and wraps
* an endless loop on a cut file (pcap-parser 20): test_fuzz.py, each file within a time limit
* throughput that falls with the size (pyshark 48): benchmarks/scaling.py, since no test takes times
"""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import re
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
import zstandard
from capture_maker import Ng, Record, pcap
from ncps_capture.capfile import open_capture
from scapy.layers.inet import IP, TCP
from scapy.layers.inet6 import IPv6
from scapy.packet import raw

from ncps_raw import cli

ROOT = Path(__file__).parents[2]
START, US, MS = 1_700_000_000, 1000, 1_000_000
CLIENT, SERVER = "192.0.2.10", "198.51.100.20"
Options = list[tuple[str, Any]]


def syn(isn: int = 1000, sport: int = 40000, options: Options | None = None, ident: int = 1, ttl: int = 64) -> bytes:
    packet = IP(src=CLIENT, dst=SERVER, id=ident, ttl=ttl)
    return raw(packet / TCP(sport=sport, dport=443, flags="S", seq=isn, options=options or []))


def synack(isn: int = 1000, sport: int = 40000, options: Options | None = None, ident: int = 2) -> bytes:
    back = TCP(sport=443, dport=sport, flags="SA", seq=77, ack=isn + 1, options=options or [])
    return raw(IP(src=SERVER, dst=CLIENT, id=ident) / back)


def ethernet(packet: bytes, *tags: int) -> bytes:
    """Behind 802.1Q tags, each with priority and VLAN in 16 bits."""
    return bytes(12) + b"".join(b"\x81\0" + tag.to_bytes(2, "big") for tag in tags) + b"\x08\0" + packet


def saved(folder: Path, packets: list[tuple[int, bytes]], link: int = 101, name: str = "x.pcap") -> Path:
    """A file of (ns after START, packet)."""
    records: list[Record] = [(START + t // 10**9, t % 10**9, packet, len(packet)) for t, packet in packets]
    path = folder / name
    path.write_bytes(pcap(records, unit="nano", network=link))
    return path


def analyzed(*arguments: str | Path) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = cli.main(["analyze", *map(str, arguments)])
    return code, out.getvalue(), err.getvalue()


def report(path: Path, *options: str) -> dict[str, Any]:
    code, out, err = analyzed(path, "--format", "json", *options)
    assert code == 0, err
    found: dict[str, Any] = json.loads(out)
    assert not any("!=" in identity for identity in found["identities"])
    return found


def records(path: Path) -> list[dict[str, Any]]:
    code, out, err = analyzed(path, "--connections")
    assert code == 0, err
    return [json.loads(line) for line in out.splitlines()]


def test_tagged_frames_count_like_others(tmp_path: Path) -> None:
    """(libpcap 10, 1256) Priority tags are VLAN 0."""
    packets = []
    for number, tags in enumerate([(), (7,), (5 << 13,), (7, 8)]):
        packets.append((number * MS, ethernet(syn(sport=1000 + number), *tags)))
        packets.append((number * MS + 100 * US, ethernet(synack(sport=1000 + number), *tags)))
    path = saved(tmp_path, packets, link=1)
    found = report(path)
    assert (found["syn"], found["synack"], found["answered"]) == (4, 4, 4)
    assert [record["vlan"] for record in records(path)] == [None, 7, 0, 8]


def test_both_families_count(tmp_path: Path) -> None:
    """(libpcap 1207, 600)"""
    six = raw(IPv6(src="2001:db8::1", dst="2001:db8::2") / TCP(sport=5, dport=443, flags="S", seq=9))
    found = report(saved(tmp_path, [(0, syn()), (1, six)]))
    assert (found["syn"], found["attempts"]) == (2, 2)


@pytest.mark.parametrize("gap_us", [1, 7, 40])
def test_a_packet_captured_twice_is_not_sent_twice(gap_us: int, tmp_path: Path) -> None:
    """(nmap 1055)"""
    packets = []
    for number in range(20):
        at = number * 10 * MS
        one, answer = syn(sport=1000 + number, ident=number), synack(sport=1000 + number, ident=number)
        packets += [(at, one), (at + gap_us * US, one), (at + MS, answer), (at + MS + gap_us * US, answer)]
    found = report(saved(tmp_path, packets))
    assert (found["attempts"], found["answered"]) == (20, 20)
    assert (found["dup_syn"], found["dup_synack"]) == (20, 20)
    assert (found["syn_repeats"], found["syn_retrans"], found["synack_retrans"]) == (0, 0, 0)
    assert found["syn_rtt_us"]["min"] == found["syn_rtt_us"]["max"] == 1000


@pytest.mark.parametrize("times", [2, 3, 7])
def test_a_repeated_syn_is_one_attempt(times: int, tmp_path: Path) -> None:
    """(zeek 863)"""
    path = saved(tmp_path, [(n * 1000 * MS, syn(ident=n)) for n in range(times)])
    (record,) = records(path)
    assert (record["syn_n"], record["syn_repeats"], record["syn_retrans"]) == (times, times - 1, times - 1)


def test_each_use_of_a_tuple_is_an_attempt(tmp_path: Path) -> None:
    """(pkts 148, osv 889)"""
    packets = []
    for number in range(100):
        isn = 5000 * number
        packets += [(number * 20 * MS, syn(isn, ident=number)), (number * 20 * MS + MS, synack(isn, ident=number))]
    path = saved(tmp_path, packets)
    found = report(path)
    assert (found["attempts"], found["answered"], found["syn_repeats"], found["synack_retrans"]) == (100, 100, 0, 0)
    assert [record["isn"] for record in records(path)] == [5000 * number for number in range(100)]


def test_a_repeat_with_a_new_timestamp_is_answered_by_its_echo(tmp_path: Path) -> None:
    """(suricata PR 7523)"""
    first, second = ([("Timestamp", (value, 0))] for value in (1000, 2024))
    answer = synack(options=[("Timestamp", (99, 2024))])
    path = saved(tmp_path, [(0, syn(options=first)), (1_024 * MS, syn(options=second, ident=2)), (1_054 * MS, answer)])
    (record,) = records(path)
    assert (record["state"], record["syn_repeats"], record["retrans_timeout"]) == ("answered", 1, 1)
    assert (record["rtt_first_ns"], record["rtt_ts_ns"], record["rtt_exact"]) == (1_054 * MS, 30 * MS, True)


@pytest.mark.parametrize("tsresol", [6, 9, 3, 0x80 | 8, 0x80 | 20, 0x80 | 32])
def test_each_interface_has_its_unit_and_no_nanosecond_is_lost(tsresol: int, tmp_path: Path) -> None:
    """(libpcap 349, 577, dpkt 681, scapy 2342) Powers of ten and, with the top bit, of two; the other is in ns."""
    ng = Ng()
    units = 1 << (tsresol & 0x7F) if tsresol & 0x80 else 10**tsresol
    sent, answered = START * units + units // 4, START * units + units // 2
    content = ng.section() + ng.interface(101, tsresol=tsresol) + ng.interface(101, tsresol=9)
    content += ng.packet(sent, syn()) + ng.packet(answered, synack())
    content += ng.packet((START + 1) * 10**9 + 123_456_789, syn(sport=2), 1)
    path = tmp_path / "x.pcapng"
    path.write_bytes(content)
    one, other = records(path)
    assert (one["t_syn_first_ns"], one["rtt_first_ns"]) == (START * 10**9 + 250 * MS, 250 * MS)
    assert other["t_syn_first_ns"] == (START + 1) * 10**9 + 123_456_789


def test_every_interface_counts_with_its_link_type(tmp_path: Path) -> None:
    """(libpcap 832, 1078)"""
    ng = Ng()
    links = {1: ethernet, 101: bytes, 113: lambda packet: bytes(14) + b"\x08\0" + packet, 0: lambda p: b"\2\0\0\0" + p}
    content = ng.section() + b"".join(map(ng.interface, links))
    for number, link in enumerate(links.values()):
        for step, packet in enumerate((syn(sport=1000 + number), synack(sport=1000 + number))):
            content += ng.packet(START * 10**6 + 1000 * number + step, link(packet), number)
    path = tmp_path / "x.pcapng"
    path.write_bytes(content)
    found = report(path)
    assert (found["packets"], found["answered"], found["unsupported_linktype"]) == (8, 4, 0)
    assert found["sources"][0]["link_types"] == ["EN10MB", "RAW", "LINUX_SLL", "NULL"]


@pytest.mark.parametrize("form", ["pcap", "pcapng"])
def test_a_cut_file_keeps_all_that_is_whole(form: str, tmp_path: Path) -> None:
    """(dpkt 556, pcap4j 198) Whatever is read of a cut file is read of a longer one too."""
    ng = Ng(">")
    packets = [syn(), synack(), syn(sport=2), synack(sport=2)]
    whole = pcap([(START, n, packet, len(packet)) for n, packet in enumerate(packets)], network=101)
    if form == "pcapng":
        whole = ng.section() + ng.interface(101) + b"".join(ng.packet(START * 10**6, packet) for packet in packets)
    path, seen = tmp_path / "x", []
    for size in range(len(whole) + 1):
        path.write_bytes(whole[:size])
        code, out, err = analyzed(path, "--format", "json")
        assert code in (0, 3)
        assert err.count("\n") == (0 if size == len(whole) or (code == 0 and not json.loads(out)["damaged"]) else 1)
        seen.append(json.loads(out)["packets"] if code == 0 else 0)
    assert seen == sorted(seen)
    assert set(seen) == {0, 1, 2, 3, 4}


@pytest.mark.parametrize("form", ["pcap", "pcapng"])
def test_a_huge_length_allocates_nothing(form: str, tmp_path: Path) -> None:
    """(bulk_extractor 530) 4 GiB in a file of 200 bytes."""
    ng = Ng()
    content = pcap([(START, 0, syn(), 40), (START, 1, syn(sport=2), 40)], network=101)
    if form == "pcapng":
        content = ng.section() + ng.interface(101) + ng.packet(START * 10**6, syn()) + ng.packet(0, syn(sport=2))
    at = content.rindex((40).to_bytes(4, "little") * 2)  # captured length and length of the second packet
    content = content[:at] + b"\xff" * 8 + content[at + 8 :]
    path = tmp_path / "x"
    path.write_bytes(content)
    tracemalloc.start()
    opened = open_capture(path)
    assert sum(len(batch.offsets) for batch in opened.batches()) == 1
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 24 << 20
    assert opened.damaged is not None
    assert opened.damaged.startswith("damaged at byte ")
    assert opened.damaged.endswith(", record 2")


@pytest.mark.parametrize("kind", ["gz", "members", "zst"])
@pytest.mark.parametrize("name", ["x.pcap", "x.gz", "x.zip"])
def test_compressed_files_are_read_whatever_they_are_called(kind: str, name: str, tmp_path: Path) -> None:
    """(gopacket 1064)"""
    plain = saved(tmp_path, [(0, syn()), (MS, synack())]).read_bytes()
    path = tmp_path / name
    packed = {
        "gz": gzip.compress(plain),
        "members": gzip.compress(plain[:70]) + gzip.compress(plain[70:]),
        "zst": zstandard.ZstdCompressor().compress(plain),
    }
    path.write_bytes(packed[kind])
    found = report(path)
    assert (found["packets"], found["answered"], found["warnings"]) == (2, 1, [])


def test_a_wrong_link_type_is_named(tmp_path: Path) -> None:
    """(dpkt 492)"""
    path = saved(tmp_path, [(0, syn()), (MS, synack())], link=187)
    code, out, err = analyzed(path)
    assert (code, out) == (3, "")
    assert err.startswith(f"ncps: cannot analyze {path}: 0 of 2 packets decoded: link type ")
    assert "187" in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("six", [False, True])
def test_a_total_length_of_zero_is_offload(six: bool, tmp_path: Path) -> None:
    """(zeek 1831)"""
    if six:
        packet = raw(IPv6(src="2001:db8::1", dst="2001:db8::2", plen=0) / TCP(sport=5, dport=443, flags="S", seq=9))
    else:
        packet = raw(IP(src=CLIENT, dst=SERVER, len=0) / TCP(sport=5, dport=443, flags="S", seq=9))
    found = report(saved(tmp_path, [(0, packet)]))
    assert (found["syn"], found["attempts"], found["malformed"], found["too_short"]) == (1, 1, 0, 0)


@pytest.mark.parametrize(
    ("synack_us", "rtt_us", "clock_error"), [(1500, 500, 0), (1000, 0, 0), (900, None, 1)], ids=str
)
def test_a_synack_may_stand_before_its_syn(
    synack_us: int, rtt_us: int | None, clock_error: int, tmp_path: Path
) -> None:
    """(shadow 1595) 0 is a round trip; a negative one is none, and is counted."""
    path = saved(tmp_path, [(synack_us * US, synack()), (1000 * US, syn())])
    found = report(path)
    assert (found["answered"], found["clock_error"], found["synack_only"]) == (1, clock_error, 0)
    assert found["syn_rtt_us"]["n"] == 1 - clock_error
    (record,) = records(path)
    assert record["rtt_first_ns"] == (None if rtt_us is None else rtt_us * US)


MEASURED = """
import resource, sys
from ncps_raw.cli import main
code = main(["analyze", sys.argv[1], "--format", "json"])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // (1 << 20 if sys.platform == "darwin" else 1 << 10))
sys.exit(code)
"""


def test_a_flood_is_counted_exactly_and_fills_no_memory(tmp_path: Path) -> None:
    """(bpf-examples 55) 1.5 GB for ten million, which is 150 bytes each beside what the program itself needs."""
    figures = []
    for packets in (2_000, 200_000):
        path = tmp_path / "flood.pcap"
        maker = [sys.executable, ROOT / "benchmarks" / "make_capture.py", path, str(packets), "--syn-only"]
        subprocess.run(maker, check=True, capture_output=True)
        done = subprocess.run([sys.executable, "-c", MEASURED, path], capture_output=True, text=True, check=True)
        text, _, memory = done.stdout.strip().rpartition("\n")
        found = json.loads(text)
        assert found["packets"] == found["syn"] == found["attempts"] == found["unanswered"] == packets
        assert (found["syn_repeats"], found["problems"]) == (0, [])
        figures.append(int(memory))
    assert figures[1] - figures[0] < 250  # some 57 MB of rows are held, and copied, before they go to the disk


WITHOUT_PCAPY = """
import sys
sys.modules["pcapy"] = None
from ncps_raw.cli import main
sys.exit(main(sys.argv[1:]))
"""


def test_capture_is_an_ability_and_files_need_it_not(tmp_path: Path) -> None:
    """(pcapy-ng 1, 5) Without a wheel and without pcap.h."""
    path = saved(tmp_path, [(0, syn()), (MS, synack())])
    command = [sys.executable, "-c", WITHOUT_PCAPY]
    done = subprocess.run([*command, "analyze", path], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert re.search(r"^minimum +1,000 ", done.stdout, re.MULTILINE)
    done = subprocess.run([*command, "capture", "-i", "lo"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.count("\n") == 1
    assert "pcapy-ng" in done.stderr
