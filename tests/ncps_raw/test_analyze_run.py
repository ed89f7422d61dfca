"""``ncps analyze --run``: a run across a path with known delays and losses, joined with captures made beside it.

The client measures nothing itself; ``ncps capture`` stands at its end. What the join then says is what the path did.
"""

import json
import signal
import struct
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from analyses import figures
from running import NCPS, finish, run

from ncps_raw.lab.lab import End, Lab
from ncps_raw.lab.network import Network, Rule

pytestmark = [pytest.mark.capture, pytest.mark.namespaces]

MS = 1_000_000
ONE_WAY_MS = 5
CONNECTIONS, LOST_FIRST = 60, 6
PORT = 29_401


class Made(NamedTuple):
    saved: Path
    pcap: Path
    alone: dict[str, Any]  # what the run said by itself


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder = tmp_path_factory.mktemp("run")
    saved, pcap = folder / "r.ncps", folder / "there.pcap"
    losses = Rule("drop", "syn", "a>b", nth=(1,), attempts=CONNECTIONS // LOST_FIRST)
    with Lab(Network.symmetric(ONE_WAY_MS * MS, losses)) as lab:
        server = begun(lab.b, "listening", "server", "-p", str(PORT), "-r", "1", "-b", lab.b.ipv4)
        capture = begun(lab.a, "capturing on", "capture", "-i", lab.a.device, "-w", str(pcap), "--format", "json")
        load = lab.a.run(
            [
                *(
                    NCPS,
                    "client",
                    lab.b.ipv4,
                    "-p",
                    str(PORT),
                    "-r",
                    "1",
                    "-N",
                    str(CONNECTIONS),
                    "-P",
                    str(CONNECTIONS),
                ),
                *("--no-reconnect", "--no-capture", "--run", str(saved), "--format", "json"),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        code, out, err = finish(load)
        assert code == 0, err
        ended = {}
        for name, process in (("capture", capture), ("server", server)):
            process.send_signal(signal.SIGINT)
            ended[name] = finish(process)
            assert ended[name][0] == 0, ended[name]
    live = json.loads(ended["capture"][1])
    assert (live["attempts"], live["syn_retrans"]) == (CONNECTIONS, LOST_FIRST)
    return Made(saved, pcap, json.loads(out))


def begun(end: End, words: str, *arguments: str) -> subprocess.Popen[str]:
    process = end.run([NCPS, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    while words not in (line := process.stderr.readline()):
        assert line, "it ended before it was ready"
    return process


def records(content: bytes) -> Iterator[tuple[int, bytes]]:
    """Time in us and frame of each record of a little-endian pcap."""
    at = 24
    while at < len(content):
        seconds, micros, caplen, _ = struct.unpack_from("<IIII", content, at)
        yield seconds * 1_000_000 + micros, content[at + 16 : at + 16 + caplen]
        at += 16 + caplen


def changed(pcap: Path, to: Path, later_us: int = 0, keep: Callable[[int], bool] = lambda port: True) -> Path:
    """A copy that is stamped later, and has only the client ports that are kept."""
    content = pcap.read_bytes()
    ip_at = {1: 14, 101: 0}[struct.unpack_from("<I", content, 20)[0]]
    whole = content[:24]
    for t_us, frame in records(content):
        if frame[ip_at] >> 4 == 4 and frame[ip_at + 9] == 6:
            ports = struct.unpack_from(">HH", frame, ip_at + 20)
            if not keep(ports[0] if ports[1] == PORT else ports[1]):
                continue
        whole += struct.pack("<IIII", *divmod(t_us + later_us, 1_000_000), len(frame), len(frame)) + frame
    to.write_bytes(whole)
    return to


def joined(made: Made, *pcaps: Path) -> dict[str, Any]:
    code, out, err = run("analyze", *map(str, pcaps), "--run", str(made.saved), "--format", "json")
    assert (code, err) == (0, "")
    report: dict[str, Any] = json.loads(out)
    return report


def test_by_one_clock_every_connection_is_found_and_no_offset_is_needed(made: Made) -> None:
    report = joined(made, made.pcap)
    assert made.alone["rtt_source"] == "kernel"
    assert (report["connections"], report["matched"], report["matched_share"]) == (CONNECTIONS, CONNECTIONS, 1.0)
    assert (report["rtt_source"], report["syn_retrans"], report["problems"]) == ("wire", LOST_FIRST, [])
    assert report["capture"]["clock_offset_ns"] is None
    assert report["overhead_before_us"]["n"] == report["syn_rtt_us"]["n"] == CONNECTIONS
    assert report["overhead_before_us"]["min"] >= 0
    path = report["path_rtt_us"]
    assert 2 * ONE_WAY_MS * 1000 <= path["min"] <= path["p50"] < 1_000_000 <= report["syn_rtt_us"]["max"]
    assert report["syn_rtt_us"] == figures(made.pcap)["syn_rtt_us"]


@pytest.mark.parametrize("later_us", [3_700_000, -3_700_000])
def test_by_another_clock_the_offset_is_found_and_shown(later_us: int, made: Made, tmp_path: Path) -> None:
    here = joined(made, made.pcap)
    far_file = changed(made.pcap, tmp_path / "far.pcap", later_us)
    far = joined(made, far_file)
    assert (far["matched_share"], far["problems"]) == (1.0, [])
    for key in ("syn_rtt_us", "path_rtt_us", "syn_retrans", "syn_repeats", "connect_us"):
        assert far[key] == here[key], key
    # Found from the connections, so with the time from connect() to the SYN in it; so no overhead can be told.
    before_ns = here["overhead_before_us"]["p50"] * 1000
    assert far["capture"]["clock_offset_low_ns"] - 1000 <= later_us * 1000 + before_ns
    assert later_us * 1000 + before_ns <= far["capture"]["clock_offset_high_ns"] + 1000
    assert abs(far["capture"]["clock_offset_ns"] - later_us * 1000) < 100 * MS
    assert far["overhead_before_us"]["p50"] is None
    code, shown, err = run("analyze", str(far_file), "--run", str(made.saved))
    assert (code, err) == (0, "")
    assert f"clock offset {'+' if later_us > 0 else '-'}3." in shown


def test_what_the_capture_lacks_is_unknown(made: Made, tmp_path: Path) -> None:
    ports = {row["sport"] for row in attempts_of(made.pcap)}
    kept = set(sorted(ports)[::3])
    report = joined(made, changed(made.pcap, tmp_path / "third.pcap", 3_700_000, kept.__contains__))
    assert (report["connections"], report["matched"]) == (CONNECTIONS, len(kept))
    assert report["matched_share"] == pytest.approx(len(kept) / CONNECTIONS)
    assert report["syn_rtt_us"]["n"] == len(kept)
    unknown = CONNECTIONS - len(kept)
    assert report["rtt_unknown"] == unknown
    assert any(f"the handshakes of {unknown} of {CONNECTIONS} connections are unknown" in p for p in report["problems"])


def test_two_parts_of_one_capture_are_as_good_as_the_whole(made: Made, tmp_path: Path) -> None:
    """Also where one of them is named twice."""
    ports = sorted({row["sport"] for row in attempts_of(made.pcap)})
    few, rest = set(ports[:20]), set(ports[20:])
    one = changed(made.pcap, tmp_path / "1.pcap", 0, few.__contains__)
    two = changed(made.pcap, tmp_path / "2.pcap", 0, rest.__contains__)
    whole, parts = joined(made, made.pcap), joined(made, one, two)
    for key in ("matched", "syn_rtt_us", "path_rtt_us", "syn_retrans", "problems", "overhead_before_us"):
        assert parts[key] == whole[key], key
    code, out, err = run("analyze", str(one), str(two), str(one), "--run", str(made.saved), "--format", "json")
    assert (code, err) == (0, f"ncps: {one} is named twice: it is read once\n")
    assert json.loads(out)["syn_rtt_us"] == whole["syn_rtt_us"]


def attempts_of(pcap: Path) -> list[dict[str, Any]]:
    code, out, err = run("analyze", str(pcap), "--connections")
    assert (code, err) == (0, "")
    return [json.loads(line) for line in out.splitlines()]
