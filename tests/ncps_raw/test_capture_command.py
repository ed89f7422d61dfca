"""``ncps capture``: real captures on loopback, and the file they wrote says the same again."""

import json
import signal
import socket
import subprocess
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from analyses import figures
from ncps_capture.capfile import open_capture
from ncps_capture.errors import UsageError
from running import finish, run, start

from ncps_raw.capture_command import HEADERS, WHOLE, spec_of

PORTS = count(26_101, 10)
OPTIONS = ("--interface", "--port", "--level", "--filter", "--buffer", "--write", "--file-format", "--whole")


def options(**given: Any) -> dict[str, Any]:
    return {**dict.fromkeys(OPTIONS), "--interface": "lo", **{f"--{k.replace('_', '-')}": v for k, v in given.items()}}


@pytest.fixture
def port() -> int:
    return next(PORTS)


@pytest.fixture
def listener(port: int) -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", port)) as server:
        yield server


def connect(listener: socket.socket, times: int) -> None:
    for _ in range(times):
        with socket.create_connection(listener.getsockname(), 5):
            accepted, _ = listener.accept()
            accepted.sendall(b"x" * 500)
            accepted.close()
    for _ in range(3):
        with socket.socket() as refused:
            assert refused.connect_ex(("127.0.0.1", listener.getsockname()[1] + 1)) != 0


def capturing(*arguments: str) -> subprocess.Popen[str]:
    """Started, and ready: it says so on standard error."""
    process = start("capture", "-i", "lo", *arguments)
    assert process.stderr is not None
    while "capturing on" not in (line := process.stderr.readline()):
        assert line, "it ended before it was ready"
    return process


def interrupted(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    process.send_signal(signal.SIGINT)
    return finish(process)


@pytest.mark.capture
@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("f.pcapng", ()),
        ("f.pcap", ("--level", "base")),
        ("f", ("--whole", "--file-format", "pcapng", "--filter", "tcp")),
    ],
)
def test_what_it_reports_is_what_its_file_says(
    name: str, more: tuple[str, ...], port: int, listener: socket.socket, tmp_path: Path
) -> None:
    path = tmp_path / name
    ports = () if "--filter" in more else ("-p", f"{port}-{port + 1}")
    process = capturing(*ports, "-w", str(path), "--format", "json", *more)
    connect(listener, 40)
    code, out, _ = interrupted(process)
    live, later = json.loads(out), figures(path)
    assert code == 0
    assert (live["interrupted"], live["dropped_by_capture"]) == ("SIGINT", 0)
    if ports:
        assert (live["attempts"], live["answered"], live["refused"]) == (43, 40, 3)
        assert live["syn_rtt_us"]["n"] == 40
    # Names and what a file does not keep apart, all of it: classic pcap has no place for losses.
    apart = {"command_line", "sources", "filter_text", "interrupted"} | (
        {"dropped_by_capture"} if name == "f.pcap" else set()
    )
    for report in (live, later):
        for one in report["slowest"]:
            one["file"] = None
    assert {k: v for k, v in live.items() if k not in apart} == {k: v for k, v in later.items() if k not in apart}
    lengths = [n for batch in open_capture(path).batches() for n in batch.caplens.tolist()]
    assert (max(lengths) > HEADERS) == ("--whole" in more)


@pytest.mark.capture
def test_rows_and_report_of_a_given_time(port: int, listener: socket.socket) -> None:
    process = capturing("-p", str(port), "-t", "2.5")
    connect(listener, 10)
    code, out, err = finish(process)
    assert code == 0
    assert "report of a capture" in out
    assert "answered              10    100.0000 %" in out
    assert err.splitlines()[0].split() == ["time", "SYN", "SYN-ACK", "repeats", "answered", "refused", "dropped"]
    assert err.splitlines()[-1].split()[-3:] == ["10", "0", "0"]


@pytest.mark.capture
def test_a_filter_that_is_none_and_an_interface_that_is_none_are_one_line() -> None:
    code, out, err = run("capture", "-i", "lo", "--filter", "tcp port of call", "-t", "1")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "the filter 'tcp port of call' is not accepted" in err
    assert err.endswith("; see man pcap-filter\n")
    code, out, err = run("capture", "-i", "absent0", "-t", "1", "--format", "json")
    assert code == 3
    assert "no such interface" in json.loads(out)["error"]["message"]


def test_what_a_file_is_to_hold() -> None:
    plain = spec_of(options(), 5)
    assert (plain.level, plain.snaplen, plain.loopback, plain.dup_window_ns) == ("acks", HEADERS, True, 5)
    assert (plain.own_filter, plain.tunnels, plain.write_path) == (None, False, None)
    full = spec_of(options(write="a.pcapng", whole=True, port="80,90-95", level="base"), 0)
    assert (full.snaplen, full.write_format, full.server_ports) == (WHOLE, "pcapng", ((80, 80), (90, 95)))
    assert spec_of(options(write="a.pcapng", file_format="pcap"), 0).write_format == "pcap"
    own = spec_of(options(filter="tcp"), 0)
    assert (own.own_filter, own.tunnels) == ("tcp", True)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"level": "all"}, "--level must be base, resets or acks"),
        ({"filter": "tcp", "port": "80"}, "--filter replaces ours, of which --port is a part"),
        ({"filter": "tcp", "level": "base"}, "of which --level is a part"),
        ({"filter": " "}, "--filter is empty"),
        ({"whole": True}, "--whole is about the file of packets"),
        ({"file_format": "pcap"}, "--file-format is about the file"),
        ({"interface": ""}, "--interface is an empty name"),
        ({"write": ""}, "--write needs the name of a file"),
        ({"write": "-"}, "standard output is for the report"),
        ({"file_format": "snoop", "write": "x"}, "--file-format must be pcap or pcapng"),
        ({"buffer": "1k"}, "--buffer must be from 64k"),
        ({"port": "http"}, "--port must be ports"),
    ],
)
def test_what_cannot_be_meant(given: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        spec_of(options(**given), 0)
