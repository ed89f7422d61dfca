"""Saved runs, seen again: the real console script makes the run and shows it."""

import contextlib
import signal
import struct
import subprocess
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ncps_capture.pcapwrite import PcapWriter
from ncps_capture.segments import Batch
from running import report, run, serving, until

from ncps_raw.report import read_capture

pytestmark = pytest.mark.usefixtures("scratch")

PORTS = count(25_001, 10)


@pytest.fixture
def port() -> int:
    return next(PORTS)


@pytest.mark.parametrize(
    ("capture", "formats"),
    [
        pytest.param("--capture", ("ncps", "json"), marks=pytest.mark.capture),
        ("--no-capture", ("text", "jsonl")),
    ],
)
def test_a_saved_run_is_reported_again_byte_for_byte(
    port: int, capture: str, formats: tuple[str, ...], tmp_path: Path
) -> None:
    saved = tmp_path / "r.ncps"
    shown = {}
    with serving(port, "-b", "127.0.0.1"):
        for format_ in formats:
            code, shown[format_], err = run(
                *("client", "127.0.0.1", "-p", str(port), "-r", "2", "-N", "20", "-t", "0.3", "-i", "0.1"),
                *("--warmup", "0.1", capture, "--format", format_, "--run", str(saved)),
            )
            assert code == 0, err
            assert run("report", str(saved), "--format", format_) == (0, shown[format_], "")
    first = formats[0]
    assert run("report", str(saved), "--format", first)[1] != shown[first]  # it is the last run that was saved
    assert sorted(path.name for path in tmp_path.iterdir()) == ["r.ncps", "scratch"]


def test_a_server_and_the_dialect_save_their_run_too(port: int, tmp_path: Path) -> None:
    theirs, mine = tmp_path / "server.ncps", tmp_path / "client.ncps"
    with serving(port, "-b", "127.0.0.1", "--run", str(theirs)) as server:
        code, out, err = run(
            *("-c", "127.0.0.1", "-bp", str(port), "-r", "2", "-np", "2", "-N", "20", "-t", "0.3", "-i", "0.1"),
            *("--no-capture", "--run", str(mine)),
        )
        assert code == 0, err
        server.process.terminate()
        served = server.process.communicate(timeout=60)[0]
    assert run("report", str(mine), "--format", "ncps") == (0, out, "")
    assert "=== VERSION" in out
    assert run("report", str(theirs), "--format", "json") == (0, served, "")
    assert '"interrupted": "SIGTERM"' in served


def test_quiet_leaves_out_the_rows(port: int, tmp_path: Path) -> None:
    saved = tmp_path / "r.ncps"
    with serving(port, "-b", "127.0.0.1"):
        run(*("client", "127.0.0.1", "-p", str(port), "-r", "2", "-t", "0.3", "-i", "0.1", "-q", "--run", str(saved)))
    lines = run("report", str(saved), "--format", "jsonl", "-q")[1].splitlines()
    assert len(lines) == 1
    assert len(run("report", str(saved), "--format", "jsonl")[1].splitlines()) > 1
    target = tmp_path / "report.txt"
    assert run("report", str(saved), "-o", str(target), "-q") == (0, "", "")
    assert target.read_text() == run("report", str(saved), "-q")[1]


def test_a_run_that_could_not_be_saved_is_not_begun(port: int, tmp_path: Path) -> None:
    path = tmp_path / "absent" / "r.ncps"
    results = tmp_path / "r.txt"
    results.write_text("before")
    code, out, err = run("client", "127.0.0.1", "-p", str(port), "--run", str(path), "-o", str(results))
    assert (code, out) == (3, "")
    assert err == f"ncps: cannot write {path}: No such file or directory; choose another file\n"
    assert results.read_text() == "before"


def test_a_run_whose_report_cannot_be_written_is_saved_all_the_same(port: int, tmp_path: Path) -> None:
    saved = tmp_path / "r.ncps"
    with serving(port, "-b", "127.0.0.1"):
        code, _, err = run(
            *("client", "127.0.0.1", "-p", str(port), "-r", "2", "-t", "0.2", "--no-capture", "--format", "json"),
            *("-o", "/dev/full", "--run", str(saved)),
        )
    assert (code, len(err.splitlines())) == (3, 1)
    assert "cannot write /dev/full" in err
    assert run("report", str(saved), "--format", "json")[0] == 0


def test_what_is_read_is_not_overwritten(tmp_path: Path) -> None:
    saved, link = tmp_path / "r.ncps", tmp_path / "link"
    saved.write_bytes(b"PK")
    link.symlink_to(saved)
    for line in (("report", str(saved), "-o", str(link)), ("report", "x", "--pcap", str(saved), "-o", str(saved))):
        assert run(*line) == (2, "", f"ncps: --output would replace {saved}, which is read: choose another file\n")
    assert saved.read_bytes() == b"PK"


def test_what_is_no_run_is_named(tmp_path: Path) -> None:
    foreign = tmp_path / "lo.pcap"
    foreign.write_bytes(b"\xd4\xc3\xb2\xa1")
    assert run("report", str(foreign)) == (
        3,
        "",
        f"ncps: cannot read {foreign}: it is not a saved run; name a file that a client saved with --run\n",
    )


# ---- joined with a capture made elsewhere ----------------------------------------------------------------------


@contextlib.contextmanager
def tcpdump(path: Path, port: int) -> Iterator[None]:
    """The handshakes on loopback, each packet once, as another program captures them."""
    what = ["-i", "lo", "-Q", "in", "-s", "128", "-B", "65536", "-U", "--immediate-mode", "-w", str(path)]
    process = subprocess.Popen(
        ["tcpdump", *what, f"tcp portrange {port}-{port + 1}"], stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    try:
        for line in process.stderr:
            if "listening on" in line:
                break
        yield
    finally:
        process.send_signal(signal.SIGINT)
        assert "0 packets dropped by kernel" in process.communicate(timeout=60)[1]


def records(path: Path) -> Iterator[tuple[int, int, int]]:
    """Position, seconds and microseconds of each record of a little-endian pcap."""
    content, at = path.read_bytes(), 24
    while at < len(content):
        seconds, fraction, caplen, _ = struct.unpack_from("<IIII", content, at)
        yield at, seconds, fraction
        at += 16 + caplen


def by_another_clock(path: Path, to: Path, seconds: int, every: int = 0, micros: int = 0) -> Path:
    """The same capture, stamped ``seconds`` and ``micros`` later; every ``every``-th packet is missing."""
    content = bytearray(path.read_bytes())
    places = [at for at, _, _ in records(path)]
    for at, then, fraction in records(path):
        more, fraction = divmod(fraction + micros, 1_000_000)
        struct.pack_into("<II", content, at, then + seconds + more, fraction)
    ends = [*places[1:], len(content)]
    kept = [content[a:b] for i, (a, b) in enumerate(zip(places, ends, strict=True)) if not every or i % every]
    to.write_bytes(bytes(content[:24]) + b"".join(kept))
    return to


def finished(path: Path, connections: int) -> bool:
    """Whether the capture holds the SYN-ACKs of so many connections; loopback frames of IPv4."""
    content = path.read_bytes()
    return sum(content[at + 16 + 14 + 20 + 13] & 0x12 == 0x12 for at, _, _ in records(path)) >= connections


def joined(saved: Path, pcap: Path) -> dict[str, Any]:
    code, out, err = run("report", str(saved), "--pcap", str(pcap), "--format", "json")
    assert (code, err) == (0, "")
    return report(out)


@pytest.mark.capture
def test_a_capture_made_elsewhere_measures_the_run(port: int, tmp_path: Path) -> None:
    """By this host's clock, by one an hour ahead, and with packets missing."""
    saved, pcap = tmp_path / "r.ncps", tmp_path / "lo.pcap"
    with serving(port, "-b", "127.0.0.1"), tcpdump(pcap, port):
        code, out, _ = run(
            *("client", "127.0.0.1", "-p", str(port), "-r", "2", "-N", "300", "-P", "20", "--no-reconnect"),
            *("--no-capture", "--run", str(saved), "--format", "json"),
        )
        until(lambda: finished(pcap, 300), "the end of the capture")
    alone = report(out)
    assert (code, alone["connections"], alone["rtt_source"]) == (0, 300, "kernel")

    here = joined(saved, pcap)
    assert (here["matched_share"], here["rtt_source"], here["problems"]) == (1.0, "wire", [])
    assert here["syn_retrans"] == alone["syn_retrans"]
    assert here["capture"]["file"] == str(pcap)
    assert here["capture"]["clock_offset_ns"] is None
    assert here["overhead_before_us"]["n"] == here["syn_rtt_us"]["n"] > 0
    assert here["overhead_before_us"]["min"] >= 0

    far = joined(saved, by_another_clock(pcap, tmp_path / "far.pcap", 3600))
    assert (far["matched_share"], far["problems"]) == (1.0, [])
    for key in ("syn_rtt_us", "path_rtt_us", "syn_retrans", "syn_repeats", "connect_us", "disagreements"):
        assert far[key] == here[key], key
    assert far["overhead_before_us"]["p50"] is far["overhead_after_us"]["p50"] is None
    low, high = (far["capture"][f"clock_offset_{end}_ns"] for end in ("low", "high"))
    before = here["overhead_before_us"]["p50"] * 1000
    assert low - 1000 <= 3600 * 10**9 + before <= high + 1000
    assert 250 < far["capture"]["clock_offset_n"] <= 300

    gaps = joined(saved, by_another_clock(pcap, tmp_path / "gaps.pcap", -86_400, every=7))
    assert 0.5 < gaps["matched_share"] < 1
    assert gaps["syn_rtt_us"]["n"] < gaps["matched"]  # SYN-ACKs are missing too
    assert gaps["syn_rtt_us"]["max"] <= here["syn_rtt_us"]["max"]
    unknown = 300 - gaps["syn_rtt_us"]["n"]
    assert [f"the handshakes of {unknown} of 300 connections are unknown" in line for line in gaps["problems"]] == [
        True
    ]
    cut = tmp_path / "cut.pcap"
    cut.write_bytes(pcap.read_bytes()[:-5])
    code, out, err = run("report", str(saved), "--pcap", str(cut), "--format", "json")
    (warning,) = (note for note in report(out)["notes"] if "cut inside record" in note)
    assert (code, err) == (0, f"ncps: {warning}\n")

    for micros in (60, 200, 450, 5000):
        ahead = joined(saved, by_another_clock(pcap, tmp_path / "ahead.pcap", 0, micros=micros))
        assert (ahead["matched_share"], ahead["problems"]) == (1.0, []), micros
    assert ahead["overhead_before_us"]["p50"] is None
    shown = run("report", str(saved), "--pcap", str(tmp_path / "far.pcap"))[1]
    assert "clock offset +3600.000" in shown


def test_a_capture_of_something_else_is_said(port: int, tmp_path: Path) -> None:
    saved, pcap = tmp_path / "r.ncps", tmp_path / "other.pcap"
    with serving(port, "-b", "127.0.0.1"):
        run(*("client", "127.0.0.1", "-p", str(port), "-r", "2", "-N", "5", "--no-reconnect", "--run", str(saved)))
    code, out, err = run("report", str(saved), "--pcap", str(saved))
    assert (code, out) == (3, "")
    assert err.startswith(f"ncps: cannot read {saved}: it is not a capture")
    with PcapWriter(pcap, 1, 128) as writer:
        writer.write(frames(b"\x00" * 60))
    figures = joined(saved, pcap)
    assert (figures["rtt_source"], figures["matched"]) == ("kernel", 0)
    assert any("offset of the clock of" in note for note in figures["notes"])
    assert any(str(pcap) in problem for problem in figures["problems"])


def frames(*contents: bytes) -> Batch:
    lengths = np.array([len(content) for content in contents], np.int64)
    return Batch(
        data=np.frombuffer(b"".join(contents), np.uint8),
        offsets=np.cumsum(lengths) - lengths,
        caplens=lengths,
        lengths=lengths,
        t_ns=np.arange(len(contents), dtype=np.int64) * 1_000_000,
        link_type=1,
        first_frame=1,
        source=0,
    )


def test_a_cut_capture_is_used_up_to_the_cut_and_said(tmp_path: Path) -> None:
    pcap = tmp_path / "cut.pcap"
    with PcapWriter(pcap, 1, 128) as writer:
        writer.write(frames(b"\x00" * 60, b"\x00" * 60))
    pcap.write_bytes(pcap.read_bytes()[:-5])
    said: list[str] = []
    wire = read_capture((str(pcap),), str(tmp_path), said.append)
    assert (wire.packets, wire.dropped, wire.level, wire.file) == (1, None, "base", str(pcap))
    assert said == [f"{pcap}: cut inside record 2 at byte 100; not used"]


@pytest.mark.parametrize(("flags", "level"), [((2, 0x12, 0x14), "base"), ((2, 4), "resets"), ((2, 0x10, 4), "acks")])
def test_what_a_capture_admitted_is_judged_by_what_is_in_it(flags: tuple[int, ...], level: str, tmp_path: Path) -> None:
    pcap = tmp_path / "level.pcap"
    with PcapWriter(pcap, 101, 128) as writer:
        ip = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 40, 1, 0, 64, 6, 0, b"\x7f\x00\x00\x01", b"\x7f\x00\x00\x02")
        for flag in flags:
            batch = frames(ip + struct.pack(">HHIIBBHHH", 1000, 80, 5, 6, 0x50, flag, 1024, 0, 0))
            writer.write(Batch(**{**vars(batch), "link_type": 101}))
    assert read_capture((str(pcap),), str(tmp_path), lambda text: None).level == level
