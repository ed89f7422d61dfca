"""The link check as a person runs it: all arrangements, with our own end and with each netcat at the other."""

import hashlib
import json
import os
import re
import signal
import socket
import subprocess
from pathlib import Path

import pytest
from link_pairs import HERE, NETCATS, Pairing, await_listener, both, ended, free_port, installed
from running import NCPS, finish, run, start, until


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("link") / "data"
    path.write_bytes(os.urandom(20_000_003))
    return path


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


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


@pytest.mark.parametrize(("size", "warmup", "left_out"), [(3_000_000, "10s", None), (18_000_000, "1s", 1)])
def test_a_warm_up_is_left_out_where_the_transfer_outlasts_it(size: int, warmup: str, left_out: int | None) -> None:
    """Also where less is left than was left out: 18 MB at 10 MB/s are 1.8 s."""
    words = ("--limit", "10MB", "--size", str(size), "--warmup", warmup)
    for listener, client in (
        (["recv", "--warmup", warmup], ["send", HERE, *words]),
        (["send", "-l", *words], ["recv", HERE, "--warmup", warmup]),
    ):
        for one in both(listener, client):
            assert one["warmup_s"] == left_out
            assert (one["bytes"] == size) is (left_out is None)


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
