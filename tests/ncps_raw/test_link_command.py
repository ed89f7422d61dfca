"""The link check as a person runs it: all arrangements, with our own end and with each netcat at the other."""

import contextlib
import hashlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from link_pairs import await_listener, free_port
from running import NCPS, finish, run, start, until

HERE = "127.0.0.1"
NETCATS = {
    "nc.openbsd": (("-l",), ("-N",)),
    "nc.traditional": (("-l", "-p"), ("-q0",)),
    "ncat": (("-l",), ()),
}
"""How it listens, and what makes it end its side of the connection when its standard input ends."""


def installed(name: str) -> str:
    if shutil.which(name) is None:
        pytest.skip(f"{name} is not installed")
    return name


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("link") / "data"
    path.write_bytes(os.urandom(20_000_003))
    return path


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


class Pairing:
    """A listener and a client that end by themselves."""

    def __init__(self, listener: Sequence[str], client: Sequence[str]) -> None:
        self.port = str(free_port())
        self.listener = self.begin(listener)
        await_listener(int(self.port), self.listener)
        self.client = self.begin(client)

    def begin(self, words: Sequence[str]) -> "subprocess.Popen[str]":
        words = [word.replace("PORT", self.port) for word in words]
        return start(*words[1:], "-p", self.port) if words[0] == NCPS else with_files(words)

    def end(self) -> tuple[tuple[int, str, str], tuple[int, str, str]]:
        """(client, listener)"""
        return ended(self.client), ended(self.listener)


def ended(process: "subprocess.Popen[str]") -> tuple[int, str, str]:
    if process.stdout is not None:
        return finish(process)
    try:
        return process.wait(timeout=30), "", ""
    except subprocess.TimeoutExpired:
        process.kill()
        raise AssertionError(f"{process.args} did not end") from None


def with_files(words: Sequence[str]) -> "subprocess.Popen[str]":
    """``nc ... < FILE > FILE``"""
    line = " ".join(words)
    command, _, out = line.partition(" > ")
    command, _, source = command.partition(" < ")
    with Path(source or os.devnull).open("rb") as stdin, Path(out or os.devnull).open("wb") as stdout:
        return subprocess.Popen(command.split(), stdin=stdin, stdout=stdout, text=True)


def both(listener: Sequence[str], client: Sequence[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """JSON reports of (client, listener), both of which must end with 0."""
    ends = Pairing([NCPS, *listener, "--format", "json"], [NCPS, *client, "--format", "json"]).end()
    assert [code for code, _, _ in ends] == [0, 0], ends
    return json.loads(ends[0][1]), json.loads(ends[1][1])


# ---- ours at both ends ---------------------------------------------


def test_dd_s_words() -> None:
    sent, received = both(["recv"], ["send", HERE, "--bs", "1500", "--count", "100000"])
    assert sent["bytes"] == received["bytes"] == 150_000_000
    assert (sent["sent"]["blocks_full"], sent["sent"]["blocks_partial"]) == (100_000, 0)
    assert sent["sent"]["clock_end"] == "acknowledged"
    assert sent["bytes_per_s"] == pytest.approx(sent["bytes"] / sent["seconds"])
    assert sent["sender_handed_over_s"] <= sent["seconds"] + (sent["sent"]["round_trip_taken_off_s"] or 0)


@pytest.mark.parametrize("more", [(), ("--both",)])
@pytest.mark.parametrize("size", [1, 1000])
def test_what_is_over_before_a_clock_can_run_has_no_speed(size: int, more: tuple[str, ...]) -> None:
    """One segment is all there when its first byte is."""
    sent, received = both(["recv"], ["send", HERE, "--size", str(size), *more])
    assert sent["bytes"] == received["bytes"] == size
    assert received["bytes_per_s"] is received["received"]["bits_per_s"] is None
    assert received["received"]["rate_note"].startswith("too short to tell")
    assert (sent["bytes_per_s"] is None) is (sent["sent"]["rate_note"] is not None)
    if sent["seconds"] < 0.01:
        assert sent["bytes_per_s"] is None
    if more:
        assert sent["far"]["received"]["bytes_per_s"] is None


@pytest.mark.parametrize("copy", [(), ("--copy",)])
def test_a_file_is_the_same_at_the_other_end(data: Path, tmp_path: Path, copy: tuple[str, ...]) -> None:
    out = str(tmp_path / "out")
    both(["recv", "-o", out, "--fsync", *copy], ["send", HERE, "--source", str(data), *copy])
    assert digest(Path(out)) == digest(data)
    both(["send", "--listen", "--source", str(data), *copy], ["recv", HERE, "-o", out, *copy])
    assert digest(Path(out)) == digest(data)


def test_standard_input_to_standard_output(data: Path, tmp_path: Path) -> None:
    port = str(free_port())
    out = tmp_path / "out"
    with data.open("rb") as stdin, out.open("wb") as stdout:
        receiver = subprocess.Popen(
            [NCPS, "recv", "-p", port, "-o", "-"], stdout=stdout, stderr=subprocess.PIPE, text=True
        )
        await_listener(int(port), receiver)
        cat = subprocess.Popen(["cat"], stdin=stdin, stdout=subprocess.PIPE)
        sender = subprocess.Popen(
            [NCPS, "send", HERE, "-p", port, "--source", "-"], stdin=cat.stdout, stdout=subprocess.PIPE, text=True
        )
        assert "copied" in sender.communicate(timeout=30)[0]
        said = receiver.communicate(timeout=30)[1]
        cat.communicate()
    assert digest(out) == digest(data)
    assert "20000003 bytes (20 MB, 19 MiB) copied" in said  # the summary makes way for the data


@pytest.mark.parametrize("listener", ["recv", "send"])
def test_several_streams(listener: str) -> None:
    many = ["--streams", "3"]
    if listener == "recv":
        first, second = both(["recv"], ["send", HERE, "--size", "30MB", *many])
    else:
        first, second = both(["send", "--listen", "--size", "30MB", *many], ["recv", HERE, *many])
    assert first["bytes"] == second["bytes"] == 30_000_000


SIZE = ("--size", "3MB")


@pytest.mark.parametrize(
    ("listener", "client", "told", "codes"),
    [
        (["recv", "--streams", "3"], ["send", HERE, *SIZE], "only 1 of 3 streams came: start the other", (0, 1)),
        (["recv", "--streams", "2"], ["send", HERE, *SIZE, "--streams", "3"], "--streams 3, or the other one", (1, 1)),
        (["recv", "-o", "OUT"], ["send", HERE, *SIZE, "--streams", "2"], "one file holds one stream", (1, 1)),
        (["send", "-l", *SIZE, "--streams", "3"], ["recv", HERE, "--streams", "2"], "only 2 of 3 streams came", (1, 1)),
        (["send", "-l", *SIZE], ["recv", HERE, "--streams", "2"], "1 more connection of the same peer got", (1, 1)),
    ],
)
def test_another_number_of_streams_at_each_end_is_noticed(
    listener: list[str], client: list[str], told: str, codes: tuple[int, int], tmp_path: Path
) -> None:
    """Codes: (client, listener). A sender whose every byte was taken cannot know that more streams were wanted."""
    listener = [word.replace("OUT", str(tmp_path / "out")) for word in listener]
    results = Pairing([NCPS, *listener, "--wait", "30s" if "-o" in listener else "1s"], [NCPS, *client]).end()
    assert tuple(code for code, _, _ in results) == codes, results
    assert told in results[1][1] + results[1][2], results
    if codes[0]:
        assert "--streams" in results[0][1], results


def test_a_listener_that_keeps_on_goes_on_after_too_few_streams() -> None:
    port = str(free_port())
    listener = start("send", "-l", "-p", port, "--streams", "2", "--keep", "--wait", "500ms", *SIZE, "-q")
    await_listener(int(port), listener)
    code, out, _ = run("recv", HERE, "-p", port, "--format", "json")
    assert (code, json.loads(out)["bytes"]) == (1, 0)
    code, out, _ = run("recv", HERE, "-p", port, "--streams", "2", "--format", "json")
    assert (code, json.loads(out)["bytes"]) == (0, 3_000_000)
    listener.send_signal(signal.SIGINT)
    code, _, err = finish(listener)
    assert code == 0
    assert "only 1 of 2 streams came: start the other end with --streams 2, or this one with --streams 1" in err


def test_a_peer_that_takes_one_connection_is_not_said_to_be_absent() -> None:
    port = str(free_port())
    with socket.create_server((HERE, int(port))) as door:
        client = start("send", HERE, "-p", port, "--streams", "2", "--wait", "1s", "--bind", HERE, "-t", "1m")
        peer, _ = door.accept()
    with peer:  # whoever came meanwhile was reset with the door
        code, out, err = finish(client)
    assert code == 1
    assert "--streams" in out + err


def test_both_ways_at_once() -> None:
    client, listener = both(["recv", "--bidirectional"], ["send", HERE, "--bidirectional", "-t", "300ms"])
    assert client["sent"]["bytes"] == listener["received"]["bytes"] > 0
    assert client["received"]["bytes"] == listener["sent"]["bytes"] > 0


def test_rows_of_both_ways_show_each_by_itself() -> None:
    pairing = Pairing(
        [NCPS, "recv", "--bidirectional", "--limit", "2MB", "-i", "100ms"],
        [NCPS, "send", HERE, "--bidirectional", "--limit", "20MB", "-t", "500ms", "-i", "100ms"],
    )
    for _, out, _ in pairing.end():
        lines = out.splitlines()
        names = re.split(r"\s{2,}", lines[0].strip())
        assert names[1:5] == ["sent MB/s", "sent Gbit/s", "received MB/s", "received Gbit/s"]
        rows = [re.split(r"\s{2,}", line.strip()) for line in lines[1 : lines.index("")]]
        assert rows
        for row in rows:
            for mega, giga in (row[1:3], row[3:5]):
                if mega != "-":
                    assert float(giga) == pytest.approx(float(mega) * 8 / 1000, abs=0.001)


def test_figures_of_both_ends_at_the_client() -> None:
    client, listener = both(["recv"], ["send", HERE, "--both", "--size", "10MB", "--streams", "2"])
    assert client["far"]["received"]["bytes"] == 10_000_000
    assert client["far"]["received"]["seconds"] == listener["seconds"]
    client, listener = both(["send", "-l", "--size", "10MB"], ["recv", HERE, "--both"])
    assert client["sender_handed_over_s"] == listener["sender_handed_over_s"] > 0


def test_the_bottleneck_is_explained(tmp_path: Path) -> None:
    out, data = str(tmp_path / "out"), tmp_path / "in"
    data.write_bytes(os.urandom(1 << 20) * 80)
    client, listener = both(["recv", "-o", out], ["send", HERE, "--source", str(data), "--both", "--explain"])
    explained = client["explain"]
    for part in ("source", "network", "sink", "together"):
        assert explained[f"{part}_bytes_per_s"] > 0
    assert "is the bottleneck" in explained["bottleneck"] or "No part can be named" in explained["bottleneck"]
    # The whole is what the receiving end saw, whose clock has the device in it, as the sink's alone has.
    assert explained["together_bytes_per_s"] == client["far"]["received"]["bytes_per_s"] == listener["bytes_per_s"]
    assert listener["received"]["fsync_s"] > 0
    assert digest(Path(out)) == digest(data)  # measuring leaves no byte in it


def test_rows_and_report_as_json_lines() -> None:
    pairing = Pairing([NCPS, "recv", "-q"], [NCPS, "send", HERE, "-t", "500ms", "-i", "100ms", "--format", "jsonl"])
    (code, out, _), _ = pairing.end()
    rows = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    assert [row["type"] for row in rows[:-1]] == ["interval"] * (len(rows) - 1)
    assert len(rows) >= 4
    assert sum(row["sent_bytes"] for row in rows[:-1]) == rows[-1]["bytes"]
    assert {"retransmits", "srtt_us", "cwnd_segments"} <= set(rows[0])


def test_a_sender_that_keeps_on_gives_each_client_all_and_reports_one_behind_the_other(
    data: Path, tmp_path: Path
) -> None:
    port, reports = str(free_port()), tmp_path / "reports"
    listener = start(
        "send", "-l", "-p", port, "--keep", "--source", str(data), "-o", str(reports), "--format", "jsonl", "-i", "1h"
    )
    await_listener(int(port), listener)
    for name in ("first", "second"):
        assert run("recv", HERE, "-p", port, "-o", str(tmp_path / name), "-q")[0] == 0
        assert digest(tmp_path / name) == digest(data)
    listener.send_signal(signal.SIGINT)
    assert finish(listener)[0] == 0
    lines = [json.loads(line) for line in reports.read_text().splitlines()]
    assert [line["bytes"] for line in lines if line["type"] == "report"] == [20_000_003] * 2


@pytest.mark.parametrize(
    ("interval", "victim"), [("130ms", None), ("1h", None), ("130ms", "sent"), ("130ms", "received")]
)
def test_rows_leave_out_nothing_and_end_where_the_transfer_does(
    interval: str, victim: str | None, tmp_path: Path
) -> None:
    """Also the last one, which the end cuts short; also of an interrupted end."""
    port = str(free_port())
    length = "500ms" if victim is None else "1m"
    commands = {"received": ["recv"], "sent": ["send", HERE, "--limit", "50MB", "-t", length]}
    files = {name: tmp_path / name for name in commands}
    processes: dict[str, subprocess.Popen[str]] = {}
    for name, words in commands.items():
        with files[name].open("w") as out:
            processes[name] = subprocess.Popen(
                [NCPS, *words, "-p", port, "-q", "-i", interval, "--format", "jsonl"], stdout=out, text=True
            )
        if name == "received":
            await_listener(int(port), processes[name])
    if victim is not None:
        until(lambda: "\n" in files[victim].read_text(), "a row")
        processes[victim].send_signal(signal.SIGINT)
    for name, process in processes.items():
        code = ended(process)[0]
        assert code == (1 if (victim, name) == ("received", "sent") else 0)
        *rows, report = map(json.loads, files[name].read_text().splitlines())
        assert not any(row["partial"] for row in rows[:-1])
        assert rows[-1]["partial"] or interval != "1h"  # nothing may have come since the last whole one
        assert rows[0]["begin_s"] == 0
        assert [row["begin_s"] for row in rows[1:]] == [row["end_s"] for row in rows[:-1]]
        assert sum(row[f"{name}_bytes"] for row in rows) == report["bytes"]
        if rows[-1]["end_s"] - rows[-1]["begin_s"] < 0.01:
            assert rows[-1][f"{name}_bytes_per_s"] is None


def test_a_listener_that_keeps_on() -> None:
    port = str(free_port())
    listener = start("recv", "-p", port, "--keep", "--format", "jsonl", "-i", "1h")
    await_listener(int(port), listener)
    several = [start("send", HERE, "-p", port, "--size", f"{n}MB", "-q") for n in (1, 2, 3)]
    assert [finish(one)[0] for one in several] == [0, 0, 0]
    assert run("send", HERE, "-p", port, "--size", "4MB", "-q", "--both")[0] == 0
    listener.send_signal(signal.SIGINT)
    code, out, _ = finish(listener)
    assert code == 0
    reports = [found for line in out.splitlines() if (found := json.loads(line))["type"] == "report"]
    assert sorted(found["bytes"] for found in reports) == [n * 1_000_000 for n in (1, 2, 3, 4)]


# ---- netcat at the other end ---------------------------------------


@pytest.mark.parametrize("name", NETCATS)
def test_with_netcat_in_all_arrangements(name: str, data: Path, tmp_path: Path) -> None:
    listens, ends = NETCATS[name]
    nc = installed(name)
    out = tmp_path / "out"
    give, take = [NCPS, "send"], [NCPS, "recv"]
    for listener, client in (
        ([nc, *listens, "PORT", ">", str(out)], [*give, HERE, "--source", str(data)]),
        ([nc, *ends, *listens, "PORT", "<", str(data)], [*take, HERE, "-o", str(out)]),
        ([*take, "-o", str(out)], [nc, *ends, HERE, "PORT", "<", str(data)]),
        ([*give, "--listen", "--source", str(data)], [nc, HERE, "PORT", ">", str(out)]),
    ):
        out.unlink(missing_ok=True)
        results = Pairing(listener, client).end()
        assert [code for code, _, _ in results] == [0, 0], (listener, client, results)
        assert digest(out) == digest(data), (listener, client)


@pytest.mark.parametrize("name", NETCATS)
def test_with_a_netcat_that_is_killed(name: str) -> None:
    nc = installed(name)
    pairing = Pairing([nc, *NETCATS[name][0], "PORT"], [NCPS, "send", HERE, "-i", "10ms"])
    assert pairing.client.stdout is not None
    assert "sent MB/s" in pairing.client.stdout.readline()
    pairing.listener.kill()
    (code, out, _), _ = pairing.end()
    assert code == 1
    assert "Problem: sending ended early" in out


# ---- who never comes, is killed, is interrupted --------------------


@pytest.mark.parametrize(("victim", "size"), [("send", "100G"), ("send", None), ("recv", None)])
def test_a_peer_that_is_killed(victim: str, size: str | None) -> None:
    """Without a size told, a killed sender looks like one that has finished: a plain stream has no other end."""
    told = ["--size", size] if size else []
    pairing = Pairing([NCPS, "recv", "-i", "10ms", *told], [NCPS, "send", HERE, "--source", "random", "-i", "10ms"])
    for process in (pairing.listener, pairing.client):
        assert process.stdout is not None
        assert "MB/s" in process.stdout.readline()
    (pairing.client if victim == "send" else pairing.listener).kill()
    client, listener = pairing.end()
    code, out, _ = listener if victim == "send" else client
    assert code == (1 if size or victim == "recv" else 0)
    assert "copied" in out
    assert ("Problem" in out) is (code == 1)


@pytest.mark.parametrize("length", [("--size", "100G"), ("--duration", "1m")])
def test_with_both_a_killed_sender_is_known(length: tuple[str, str]) -> None:
    pairing = Pairing([NCPS, "recv", "-i", "10ms"], [NCPS, "send", HERE, "--both", *length])
    assert pairing.listener.stdout is not None
    assert "MB/s" in pairing.listener.stdout.readline()
    pairing.client.kill()
    _, (code, out, _) = pairing.end()
    assert code == 1
    assert "the peer ended early" in out or "the peer left before it said that it had finished: it was killed" in out


@pytest.mark.parametrize(
    ("number", "length", "ways"), [(signal.SIGINT, ("--size", "100G"), ()), (signal.SIGTERM, (), ("--bidirectional",))]
)
@pytest.mark.parametrize("victim", ["client", "listener"])
@pytest.mark.parametrize("client_sends", [True, False])
def test_with_both_an_interrupted_end_is_not_called_killed_by_the_other(
    number: signal.Signals, victim: str, length: tuple[str, ...], ways: tuple[str, ...], client_sends: bool
) -> None:
    client = [NCPS, *(["send"] if client_sends else ["recv"]), HERE, "--both", "-i", "10ms", *ways]
    listener = [NCPS, *(["recv"] if client_sends else ["send", "-l"]), "-i", "10ms"]
    pairing = Pairing(
        listener + ([] if client_sends else [*length, *ways]), client + ([*length] if client_sends else [])
    )
    for process in (pairing.client, pairing.listener):
        assert process.stdout is not None
        assert "MB/s" in process.stdout.readline()
    hit = pairing.client if victim == "client" else pairing.listener
    hit.send_signal(number)
    at_client, at_listener = pairing.end()
    (code, out, _), (other_code, other_out, _) = (
        (at_client, at_listener) if victim == "client" else (at_listener, at_client)
    )
    assert (code, problems(out)) == (0, [])
    assert f"interrupted by {number.name}" in out
    said = "the other end was interrupted ({})" if victim == "client" else "at the other end: interrupted by {}"
    assert (other_code, problems(other_out)) == (1, [f"Problem: {said.format(number.name)}"])


@pytest.mark.parametrize("end", [("-t", "300ms"), ("--size", "5MB")])
@pytest.mark.parametrize(
    ("listener", "client"),
    [
        (["recv", "END"], ["send", HERE, "--both"]),
        (["recv", "END"], ["send", HERE, "--both", "--size", "100G"]),
        (["recv", "END"], ["send", HERE, "--both", "-t", "1m", "--streams", "2"]),
        (["send", "-l"], ["recv", HERE, "--both", "END"]),
        (["send", "-l", "-t", "1m"], ["recv", HERE, "--both", "END"]),
    ],
)
def test_with_both_a_receiver_that_has_enough_is_a_normal_end_at_both(
    listener: list[str], client: list[str], end: tuple[str, str]
) -> None:
    def told(words: list[str]) -> list[str]:
        return [part for word in words for part in (end if word == "END" else (word,))]

    one, other = both(told(listener), told(client))
    assert one["problems"] == other["problems"] == []
    assert one["bytes"] == other["bytes"] > 0
    if end[0] == "--size":
        assert one["bytes"] == 5_000_000


@pytest.mark.parametrize("end", [("-t", "100ms"), ("--size", "1MB")])
def test_without_both_a_sender_is_told_that_it_may_be_meant(end: tuple[str, str]) -> None:
    (code, out, _), (there, _, _) = Pairing([NCPS, "recv", *end], [NCPS, "send", HERE, "-t", "1m"]).end()
    assert (code, there) == (1, 0)
    assert len(problems(out)) == 1
    assert "closed before it took all, which may be meant: its own --size or --duration" in problems(out)[0]


def problems(out: str) -> list[str]:
    return [line for line in out.splitlines() if line.startswith("Problem: ")]


def test_with_both_a_full_disk_is_the_only_thing_blamed() -> None:
    """Wherever it is full: at the listener, or at the client."""
    full = "cannot write /dev/full: No space left on device"
    pairing = Pairing([NCPS, "recv", "-o", "/dev/full"], [NCPS, "send", HERE, "--both", "--size", "10M"])
    (code, out, _), (there, far_out, _) = pairing.end()
    assert (code, problems(out)) == (1, [f"Problem: at the other end: {full}"])
    assert (there, problems(far_out)) == (3, [f"Problem: {full}"])
    pairing = Pairing([NCPS, "send", "-l", "--size", "10M"], [NCPS, "recv", HERE, "--both", "-o", "/dev/full"])
    (code, out, _), _ = pairing.end()
    assert (code, problems(out)) == (3, [f"Problem: {full}"])


@pytest.mark.parametrize("what", ["file", "standard input"])
@pytest.mark.parametrize("more", [(), ("--both",)])
def test_a_source_that_has_less_than_was_asked_for_is_blamed_and_not_the_peer(
    what: str, more: tuple[str, ...], tmp_path: Path
) -> None:
    path = tmp_path / "small"
    path.write_bytes(bytes(70_001))
    port = str(free_port())
    receiver = start("recv", "-p", port, *(() if more else ("--size", "1MB")))
    await_listener(int(port), receiver)
    source = str(path) if what == "file" else "-"
    with path.open("rb") as stdin:
        code, out, _ = run("send", HERE, "-p", port, "--source", source, "--size", "1MB", *more, stdin=stdin.fileno())
    named = source if what == "file" else "standard input"
    assert (code, problems(out)) == (1, [f"Problem: {named} had only 70001 of the 1000000 bytes that were to be sent"])
    there, out, _ = finish(receiver)
    if more and what == "file":  # it was told what the file has
        assert (there, problems(out)) == (0, [])
    else:
        why = "the other end had no more" if more else "the peer ended early"
        assert (there, problems(out)) == (1, [f"Problem: received 70001 of 1000000 bytes: {why}"])


def test_with_both_a_source_that_has_less_is_told_to_the_client(tmp_path: Path) -> None:
    path = tmp_path / "small"
    path.write_bytes(bytes(70_001))
    pairing = Pairing(
        [NCPS, "send", "-l", "--source", str(path), "--size", "1MB"], [NCPS, "recv", HERE, "--both", "--size", "1MB"]
    )
    (code, out, _), (there, far_out, _) = pairing.end()
    short = f"{path} had only 70001 of the 1000000 bytes that were to be sent"
    assert (code, problems(out)) == (1, [f"Problem: at the other end: {short}"])
    assert (there, problems(far_out)) == (1, [f"Problem: {short}"])


def test_with_both_a_killed_listener_is_not_said_to_be_silent() -> None:
    pairing = Pairing([NCPS, "recv", "-q"], [NCPS, "send", HERE, "--both", "-t", "1m", "-i", "10ms"])
    assert pairing.client.stdout is not None
    assert "MB/s" in pairing.client.stdout.readline()
    pairing.listener.kill()
    (code, out, _), _ = pairing.end()
    assert code == 1
    assert len(problems(out)) == 1
    assert "sending ended early" in problems(out)[0]
    assert "does not talk" not in out


def test_with_both_an_interrupted_client_says_why_it_has_no_figures_of_the_other_end() -> None:
    pairing = Pairing([NCPS, "recv", "-q"], [NCPS, "send", HERE, "--both", "-t", "1m", "-i", "10ms"])
    assert pairing.client.stdout is not None
    assert "MB/s" in pairing.client.stdout.readline()
    pairing.client.send_signal(signal.SIGINT)
    (code, out, _), _ = pairing.end()
    assert code == 0
    assert "without the other end's figures: it tells them when a transfer ends by itself" in out


def test_a_refused_client_is_told_at_the_listener_and_another_may_come() -> None:
    port = str(free_port())
    listener = start("recv", "-p", port)
    await_listener(int(port), listener)
    code, _, err = run("recv", HERE, "-p", port, "--both")
    assert code == 1
    assert "the listener receives too" in err
    assert run("send", HERE, "-p", port, "--size", "1MB")[0] == 0
    code, _, err = finish(listener)
    assert code == 0
    assert re.search(r"127\.0\.0\.1:\d+ was refused: the listener receives too: .*; still listening", err)


@pytest.mark.parametrize("stream", [b"\0", b"\0ncps", b"\0ncps link v1\r\n\0D", b"\0something else"])
def test_a_stream_that_begins_like_our_own_mark_is_a_stream(stream: bytes, tmp_path: Path) -> None:
    port = str(free_port())
    listener = start("recv", "-p", port, "-q", "-o", str(tmp_path / "out"))
    await_listener(int(port), listener)
    with socket.create_connection((HERE, int(port))) as client:
        client.sendall(stream)
    code, out, err = finish(listener)
    assert code == 0, out + err
    assert (tmp_path / "out").read_bytes() == stream


def test_marks_are_not_counted_as_data() -> None:
    pairing = Pairing([NCPS, "recv"], [NCPS, "send", HERE, "--both", "-i", "10ms", "--format", "jsonl", "--size", "9M"])
    (code, out, err), _ = pairing.end()
    assert code == 0, err
    rows = [json.loads(line) for line in out.splitlines()]
    shown = sum(row["sent_bytes"] for row in rows if row.get("type") == "interval")
    assert 0 <= shown <= 9 << 20
    sent = [row for row in rows if row.get("type") != "interval"][-1]["sent"]
    assert sent["bytes"] == sent["handed_over_bytes"] == 9 << 20


def test_what_was_not_acknowledged_in_time_is_a_failure() -> None:
    pairing = Pairing([NCPS, "recv", "-i", "10ms"], [NCPS, "send", HERE, "--duration", "3s"])
    assert pairing.listener.stdout is not None
    assert "MB/s" in pairing.listener.stdout.readline()
    pairing.listener.send_signal(signal.SIGSTOP)
    code, out, _ = ended(pairing.client)
    pairing.listener.send_signal(signal.SIGCONT)
    ended(pairing.listener)
    assert code == 1
    assert "not acknowledged when the time was up" in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("recv", "--wait", "100ms"), "nobody connected"),
        (("send", "--listen", "--wait", "100ms"), "nobody connected"),
        (("send", HERE), "Connection refused"),
        (("recv", HERE, "--wait", "100ms"), "Connection refused; waited"),
    ],
)
def test_a_peer_that_never_comes(words: tuple[str, ...], message: str) -> None:
    code, out, err = run(*words, "-p", str(free_port()), "--format", "json")
    assert code == 1
    assert message in err
    assert json.loads(out)["error"]["exit_code"] == 1


def test_a_sender_may_be_started_first() -> None:
    port = str(free_port())
    sender = start("send", HERE, "-p", port, "--size", "1MB", "--wait", "30s")
    assert run("recv", "--listen", "-p", port)[0] == 0
    assert finish(sender)[0] == 0


@pytest.mark.parametrize("victim", ["send", "recv"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_in_the_middle_it_has_the_summary_so_far(victim: str, number: signal.Signals) -> None:
    pairing = Pairing([NCPS, "recv", "-i", "10ms"], [NCPS, "send", HERE, "--limit", "10MB", "-i", "10ms"])
    process = pairing.client if victim == "send" else pairing.listener
    assert process.stdout is not None
    assert "MB/s" in process.stdout.readline()
    process.send_signal(signal.SIGUSR1)
    assert process.stderr is not None
    until(lambda: " copied, " in process.stderr.readline(), "totals")
    process.send_signal(number)
    client, listener = pairing.end()
    code, out, _ = client if victim == "send" else listener
    assert code == 0
    assert f"interrupted by {number.name}" in out
    assert re.search(r"^[1-9]\d* bytes .*copied, [\d.]+ s, ", out, re.M)


def test_an_interrupt_while_connecting_does_not_wait_for_the_answer() -> None:
    with socket.create_server((HERE, 0), backlog=0) as door, ExitStack() as stack:
        port = door.getsockname()[1]
        while (state := filled(stack, port)) == "01":  # until there is no room for one more
            pass
        assert state == "02"
        client = start("send", HERE, "-p", str(port), "--wait", "10m")
        until(lambda: connecting(port) == 2, "its SYN")
        client.send_signal(signal.SIGINT)
        code, out, _ = finish(client)
    assert code == 1
    assert "interrupted before the other end came" in out


def filled(stack: ExitStack, port: int) -> str:
    """The state of one more connection to a listener that accepts nobody: established, or not answered."""
    sock = stack.enter_context(socket.socket())
    sock.setblocking(False)
    sock.connect_ex((HERE, port))
    return f"{sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]:02}"


def connecting(port: int) -> int:
    """Connections to ``port`` that wait for an answer, by the kernel's table."""
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(words[2].endswith(f":{port:04X}") and words[3] == "02" for words in lines)


def test_a_second_interrupt_leaves_at_once_also_where_nobody_reads_the_report() -> None:
    port = str(free_port())
    read, write = os.pipe()
    os.set_blocking(write, False)
    with contextlib.suppress(BlockingIOError):
        while os.write(write, bytes(4096)):
            pass
    os.set_blocking(write, True)
    listener = subprocess.Popen([NCPS, "recv", "-p", port, "-q"], stdout=write, text=True)
    await_listener(int(port), listener)
    with socket.create_connection((HERE, int(port))) as client:
        client.sendall(b"hello")
        listener.send_signal(signal.SIGINT)
        with contextlib.suppress(ConnectionResetError):
            assert client.recv(1) == b""  # the first has ended the transfer; the report stands in its way
        assert listener.poll() is None
        listener.send_signal(signal.SIGINT)
        assert ended(listener)[0] == 130
    os.close(read)
    os.close(write)


@pytest.mark.parametrize("who", ["comes", "comes to a listener that keeps on", "is connected to"])
def test_a_peer_that_never_says_a_word_is_given_up(who: str) -> None:
    port = free_port()
    words = ["recv", "-p", str(port), "--idle", "200ms", "--format", "jsonl"]
    if who == "is connected to":
        with socket.create_server((HERE, port)) as door:
            receiver = start(*words, HERE)
            silent, _ = door.accept()
            with silent:
                code, out, _ = finish(receiver)
    else:
        keep = ["--keep"] if "keeps on" in who else []
        receiver = start(*words, *keep)
        await_listener(port, receiver)
        with socket.create_connection((HERE, port)) as silent:
            if keep:
                assert receiver.stdout is not None
                out = receiver.stdout.readline()
                receiver.send_signal(signal.SIGINT)
                code, _, _ = finish(receiver)
            else:
                code, out, _ = finish(receiver)
            assert silent.recv(1) == b""
    report = json.loads(out)
    assert (code, report["bytes"], report["exit_code"]) == (1, 0, 1)
    assert report["problems"] == ["nothing moved for as long as --idle allows"]


def test_a_peer_that_says_nothing_more_is_given_up() -> None:
    name = installed("nc.openbsd")
    port = str(free_port())
    listener = start("recv", "-p", port, "--idle", "200ms")
    await_listener(int(port), listener)
    with subprocess.Popen([name, HERE, port], stdin=subprocess.PIPE) as silent:
        assert silent.stdin is not None
        silent.stdin.write(b"hello")
        silent.stdin.flush()
        code, out, _ = finish(listener)
        silent.kill()
    assert code == 1
    assert "nothing moved for as long as --idle allows" in out


@pytest.mark.parametrize(
    ("words", "code"),
    [(("recv", "-o", "/nonexistent/x"), 3), (("send", HERE, "--source", "/nonexistent/x"), 3), (("send",), 2)],
)
def test_what_is_wrong_here(words: tuple[str, ...], code: int) -> None:
    done, _, err = run(*words, "-p", str(free_port()))
    assert done == code
    assert err.startswith("ncps: ")
    assert err.count("\n") == 1
