"""How a link check ends, as a person runs it: alone, killed, interrupted, idle, or with less than was said."""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
from contextlib import ExitStack
from pathlib import Path

import pytest
from link_pairs import HERE, Pairing, await_listener, both, ended, free_port, installed, problems
from running import NCPS, finish, run, start, until

from ncps_raw.link import preamble


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


def test_a_time_of_one_s_own_is_not_said_to_be_the_peer_s_end() -> None:
    pairing = Pairing([NCPS, "recv", "--size", "100G", "-t", "200ms"], [NCPS, "send", HERE, "-t", "1m"])
    _, (code, out, _) = pairing.end()
    assert code == 1
    assert re.fullmatch(r"Problem: received \d+ of 107374182400 bytes: --duration ended it first", problems(out)[0])


@pytest.mark.parametrize("end", [("-t", "100ms"), ("--size", "1MB")])
def test_without_both_a_sender_is_told_that_it_may_be_meant(end: tuple[str, str]) -> None:
    (code, out, _), (there, _, _) = Pairing([NCPS, "recv", *end], [NCPS, "send", HERE, "-t", "1m"]).end()
    assert (code, there) == (1, 0)
    assert len(problems(out)) == 1
    assert "closed before it took all, which may be meant: its own --size or --duration" in problems(out)[0]


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


def test_an_interrupt_while_the_other_end_is_asked_does_not_wait_for_the_answer() -> None:
    with socket.create_server((HERE, 0)) as door:
        client = start("send", HERE, "-p", str(door.getsockname()[1]), "--both")
        silent, _ = door.accept()
        with silent:
            assert silent.recv(preamble.LENGTH, socket.MSG_WAITALL)
            client.send_signal(signal.SIGINT)
            code, _, err = finish(client)
    assert code == 1
    assert "interrupted while waiting for the other end's answer" in err


@pytest.mark.parametrize("words", [("recv",), ("recv", "--format", "jsonl"), ("send", "-l")])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_planned_end_of_a_listener_that_keeps_on_is_no_failure(
    words: tuple[str, ...], number: signal.Signals
) -> None:
    """With and without --keep, and with no client ever."""
    for keep in (True, False):
        port = str(free_port())
        listener = start(*words, *(("--keep",) if keep else ()), "-p", port)
        await_listener(int(port), listener)
        listener.send_signal(number)
        code, out, err = finish(listener)
        assert code == (0 if keep else 1)
        assert ("interrupted before the other end came" in out) is not keep
        if keep:
            assert (out, "Problem" in err) == ("", False)
            assert f"ended by {number.name}: no transfer had begun" in err


@pytest.mark.parametrize("way", [(), ("--copy",)])
def test_whoever_reads_standard_output_may_leave(way: tuple[str, ...]) -> None:
    """As with any pipe it is no fault of this machine."""
    port = str(free_port())
    receiver = subprocess.Popen(
        [NCPS, "recv", "-p", port, "-o", "-", *way], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    await_listener(int(port), receiver)  # type: ignore[arg-type]
    sender = start("send", HERE, "-p", port, "--size", "100MB")
    assert receiver.stdout is not None
    assert receiver.stderr is not None
    receiver.stdout.read(10)
    receiver.stdout.close()
    with receiver.stderr as stderr:
        err = stderr.read().decode()
    assert receiver.wait() == 1
    assert "Problem: whoever read what was received left before its end" in err
    assert finish(sender)[0] == 1


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


@pytest.mark.parametrize(
    ("words", "closed", "message"),
    [
        (("send", HERE, "--source", "-"), "<&-", "standard input is closed, so --source - has nothing to read"),
        (("recv", "-o", "-"), ">&-", "standard output is closed, so --output - has nowhere to write"),
        (("send", HERE, "-o", "-"), ">&-", "standard output is closed, so --output - has nowhere to write"),
    ],
)
def test_a_closed_stream_is_named_and_what_to_do(words: tuple[str, ...], closed: str, message: str) -> None:
    code, _, err = run(*words, "-p", str(free_port()), before=("sh", "-c", f'exec "$@" {closed}', "sh"))
    assert (code, err.count("\n")) == (3, 1)
    assert err.startswith(f"ncps: {message}: connect it (ncps {words[0]} ... ")
    assert "or name a file with --" in err


def test_a_source_that_becomes_shorter_while_it_is_sent_is_no_success(tmp_path: Path) -> None:
    source = tmp_path / "data"
    source.write_bytes(bytes(20_000_000))
    pairing = Pairing(
        [NCPS, "recv"],
        [NCPS, "send", HERE, "--source", str(source), "--limit", "20MB", "-i", "50ms", "--format", "jsonl"],
    )
    assert pairing.client.stdout is not None
    pairing.client.stdout.readline()
    os.truncate(source, 1000)
    (code, out, _), (receiver_code, _, _) = pairing.end()
    assert code == 1
    assert receiver_code == 0
    assert "of the 20000000 bytes it had at the beginning" in out
