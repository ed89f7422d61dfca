"""How ``ncps capture`` and ``ncps analyze`` end as processes: interrupted, without room, without rights, unread."""

import array
import fcntl
import json
import os
import resource
import shlex
import shutil
import signal
import socket
import subprocess
import termios
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from analyses import figures, handshake, save
from ncps_capture.capfile import open_capture
from running import NCPS, NO_CAPTURE_RIGHTS, alive, capturing, finish, run, serving, start, until

PORTS = count(29_101, 10)
MS = 1_000_000
STOPS = (signal.SIGINT, signal.SIGTERM)

pytestmark = pytest.mark.usefixtures("scratch")


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", next(PORTS))) as server:
        yield server


def connect(listener: socket.socket, times: int, size: int = 1) -> None:
    for _ in range(times):
        with socket.create_connection(listener.getsockname(), 5) as client:
            accepted, _ = listener.accept()
            client.sendall(b"x" * size)
            accepted.close()


def begun(listener: socket.socket, *arguments: str, **more: Any) -> subprocess.Popen[str]:
    """A capture of what the listener gets that says it is ready."""
    port = str(listener.getsockname()[1])
    where = ("--filter", f"tcp port {port}") if "--whole" in arguments else ("-p", port)
    process = start("capture", "-i", "lo", *where, *arguments, **more)
    until_said(process, "capturing on")
    return process


def until_said(process: subprocess.Popen[str], words: str) -> None:
    assert process.stderr is not None
    while words not in (line := process.stderr.readline()):
        assert line, "it ended without having said so"


def taken(process: subprocess.Popen[Any]) -> bool:
    """Whether every signal that was sent has reached the process."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    pending = [line.split()[1] for line in status.splitlines() if line.startswith(("SigPnd", "ShdPnd"))]
    return not any(int(mask, 16) for mask in pending)


# ---- ncps capture --------------------------------------------------------------------------------------------------


@pytest.mark.capture
@pytest.mark.parametrize("number", STOPS)
def test_a_capture_that_is_stopped_reports_and_has_saved(
    number: signal.Signals, listener: socket.socket, tmp_path: Path
) -> None:
    path = tmp_path / "x.pcap"
    process = begun(listener, "-w", str(path), "--format", "json")
    connect(listener, 5)
    process.send_signal(number)
    code, out, _ = finish(process)
    report = json.loads(out)
    assert (code, report["interrupted"], report["answered"]) == (0, number.name, 5)
    assert figures(path)["answered"] == 5


@pytest.mark.capture
def test_a_second_signal_leaves_at_once_and_says_so(listener: socket.socket, tmp_path: Path) -> None:
    """The capture process is stopped, so that the first signal is still being served when the second comes."""
    path = tmp_path / "x.pcap"
    process = begun(listener, "-w", str(path), "-t", "60")
    child = until(lambda: capturing(process.pid), "the capture process")
    os.kill(child, signal.SIGSTOP)
    process.send_signal(signal.SIGINT)
    until(lambda: taken(process), "the first signal")
    process.send_signal(signal.SIGTERM)
    code, out, err = finish(process)
    assert (code, out) == (130, "")
    assert err.splitlines()[-1] == "ncps: left at once by a second interrupt, without a report"
    assert not alive(child)
    assert open_capture(path).interfaces[0].link_type == 1


@pytest.mark.capture
def test_a_capture_whose_process_is_killed_reports_what_it_had(listener: socket.socket) -> None:
    process = begun(listener, "--format", "json")
    connect(listener, 5)
    child = until(lambda: capturing(process.pid), "the capture process")
    until_said(process, " 5 ")  # a row has them all
    os.kill(child, signal.SIGKILL)
    code, out, err = finish(process)
    report = json.loads(out)
    assert (code, report["answered"], report["dropped_by_capture"]) == (3, 5, None)
    assert err.splitlines()[-1].startswith("ncps: the capture on lo ended early (capture process ended by signal 9")
    assert "ended early" in report["problems"][0]


@pytest.mark.capture
@pytest.mark.namespaces
def test_a_disk_that_fills_ends_the_file_and_not_the_capture(listener: socket.socket, tmp_path: Path) -> None:
    """It is said when it happens, the report is whole, and all that fitted can be read."""
    small = tmp_path / "small"
    small.mkdir()
    path, kept = small / "x.pcap", tmp_path / "kept.pcap"
    room = f'mount -t tmpfs -o size=64k none {shlex.quote(str(small))} && exec "$0" "$@"'
    process = begun(
        *(listener, "-w", str(path), "--whole", "--format", "json"), before=("unshare", "--mount", "sh", "-c", room)
    )
    connect(listener, 200, 1000)
    until_said(process, f"cannot write {path}: No space left on device: what follows is measured, but not saved; make")
    there = Path("/proc", str(process.pid), "root")  # what the process sees as the top of all folders
    shutil.copyfile(there / path.relative_to("/"), kept)
    process.send_signal(signal.SIGINT)
    code, out, err = finish(process)
    report = json.loads(out)
    assert (code, report["answered"], report["interrupted"]) == (3, 200, "SIGINT")
    assert "No space" not in err  # once is enough
    assert "No space left on device" in report["warnings"][0]
    assert kept.stat().st_size == 64 << 10
    assert 20 < figures(kept)["answered"] < 200


@pytest.mark.capture
def test_nobody_who_reads_the_rows_is_no_end_of_the_capture(listener: socket.socket) -> None:
    process = begun(listener, "--format", "json")
    assert process.stderr is not None
    process.stderr.close()
    connect(listener, 5)
    counters = Path(f"/proc/{process.pid}/stat")
    began = float(counters.read_text().split()[13])
    until(lambda: float(counters.read_text().split()[13]) > began, "rows")
    process.send_signal(signal.SIGINT)
    assert process.stdout is not None
    assert json.loads(process.stdout.read())["answered"] == 5
    assert process.wait() == 0


@pytest.mark.capture
def test_nobody_who_reads_the_report_is_code_1_and_the_packets_are_saved(
    listener: socket.socket, tmp_path: Path
) -> None:
    path = tmp_path / "x.pcapng"
    process = begun(listener, "-w", str(path))
    connect(listener, 5)
    assert process.stdout is not None
    process.stdout.close()
    process.send_signal(signal.SIGINT)
    assert process.stderr is not None
    assert "ncps" not in process.stderr.read()
    assert process.wait() == 1
    assert figures(path)["answered"] == 5


@pytest.mark.capture
@pytest.mark.parametrize(
    ("arguments", "before", "code", "said"),
    [
        (("-w", "none/x.pcap"), (), 3, "cannot create none/x.pcap: No such file or directory; choose another file"),
        (("-w", "/dev/full"), (), 3, "cannot write /dev/full: No space left on device; choose another file"),
        (("-o", "none/x"), (), 3, "cannot write none/x: No such file or directory; choose another file (-o)"),
        (("-w", "./a", "-o", "a"), (), 2, "--output and --write name the same file: choose another one"),
        (("-i", "absent0"), (), 3, "cannot capture on absent0: no such interface; there are: "),
        (("--filter", "tcp and"), (), 2, "cannot capture on lo: the filter 'tcp and' is not accepted: "),
        ((), NO_CAPTURE_RIGHTS, 3, "cannot capture on lo: no right to capture packets; run it with sudo"),
    ],
)
def test_what_prevents_a_capture_is_told_before_it_begins(
    arguments: Sequence[str], before: Sequence[str], code: int, said: str
) -> None:
    """No time is given: it would go on until somebody stops it."""
    where = () if "-i" in arguments else ("-i", "lo")
    told, out, err = run("capture", *where, *arguments, before=before)
    assert (told, out, err.count("\n")) == (code, "", 1)
    assert err.startswith(f"ncps: {said}")


# ---- ncps analyze --------------------------------------------------------------------------------------------------


@pytest.fixture
def packets(tmp_path: Path) -> bytes:
    """Ten handshakes."""
    path = save(tmp_path / "ten.pcap", [p for n in range(10) for p in handshake(n * 10 * MS, sport=1000 + n)])
    return path.read_bytes()


def fed(content: bytes, *arguments: str) -> subprocess.Popen[bytes]:
    """``ncps analyze -`` that has read all of this from a pipe that stays open."""
    process = subprocess.Popen(
        [NCPS, "analyze", "-", "--format", "json", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdin is not None
    process.stdin.write(content)
    process.stdin.flush()
    return process


def drained(process: subprocess.Popen[bytes]) -> bool:
    """Whether it waits for what it has been given nothing of yet: its signal handlers are there by then."""
    assert process.stdin is not None
    left = array.array("i", [0])
    fcntl.ioctl(process.stdin, termios.FIONREAD, left)
    return left[0] == 0


def ended(process: subprocess.Popen[bytes]) -> tuple[int, str, str]:
    assert process.stdout is not None
    assert process.stderr is not None
    out, err = process.stdout.read(), process.stderr.read()
    return process.wait(), out.decode(), err.decode()


@pytest.mark.parametrize("number", STOPS)
def test_an_interrupted_pipe_is_reported_as_far_as_it_was_read(number: signal.Signals, packets: bytes) -> None:
    process = fed(packets[:-100])  # in the middle of a packet
    until(lambda: drained(process), "reading")
    process.send_signal(number)
    code, out, err = ended(process)
    report = json.loads(out)
    assert (code, report["interrupted"], report["packets"], report["damaged"]) == (0, number.name, 28, 0)
    assert err == "ncps: interrupted: only the first 28 packets were read\n"
    assert report["warnings"] == [err.removeprefix("ncps: ").strip()]


def test_what_the_interrupted_writer_of_a_pipe_still_says_is_read(packets: bytes) -> None:
    """Ctrl-C reaches both ends of ``tcpdump -w - | ncps analyze -``; tcpdump then writes what it holds, and leaves."""
    process = fed(packets[:500])
    until(lambda: drained(process), "reading")
    process.send_signal(signal.SIGINT)
    until(lambda: taken(process), "the signal")
    assert process.stdin is not None
    process.stdin.write(packets[500:])
    process.stdin.close()
    code, out, err = ended(process)
    report = json.loads(out)
    assert (code, report["packets"], report["answered"], err) == (0, 30, 10, "")
    assert report["interrupted"] is None


def test_a_second_interrupt_leaves_an_analysis_at_once(packets: bytes) -> None:
    process = fed(packets)
    until(lambda: drained(process), "reading")
    process.send_signal(signal.SIGINT)
    until(lambda: taken(process), "the first signal")
    process.send_signal(signal.SIGINT)
    assert ended(process) == (130, "", "ncps: left at once by an interrupt, without a report\n")


def test_interrupted_before_the_first_packet_there_is_nothing_to_report() -> None:
    process = fed(b"")
    caught = 1 << (signal.SIGHUP - 1)  # the last of the handlers that is set
    status = Path(f"/proc/{process.pid}/status")

    def ready() -> bool:
        masks = [line.split()[1] for line in status.read_text().splitlines() if line.startswith("SigCgt")]
        return bool(int(masks[0], 16) & caught)

    until(ready, "handlers")
    process.send_signal(signal.SIGTERM)
    code, out, err = ended(process)
    assert (code, err) == (3, "ncps: cannot analyze -: interrupted before its first packet; run it again\n")
    assert "interrupted" in json.loads(out)["error"]["message"]


def test_a_join_that_is_interrupted_is_left_and_says_so(packets: bytes, tmp_path: Path) -> None:
    """Of half a capture a join would say that it lost half of the connections."""
    saved, port = tmp_path / "r.ncps", next(PORTS)
    with serving(port, "-b", "127.0.0.1"):
        run(
            *("client", "127.0.0.1", "-p", str(port), "-r", "1", "-N", "2", "-t", "0.2", "--no-capture", "-q"),
            *("--run", str(saved)),
        )
    process = fed(packets, "--run", str(saved))
    until(lambda: drained(process), "reading")
    process.send_signal(signal.SIGTERM)
    assert ended(process) == (130, "", "ncps: left at once by an interrupt, without a report\n")


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_who_leaves_in_the_middle_is_code_1(unbuffered: str, tmp_path: Path) -> None:
    path = save(tmp_path / "many.pcap", [p for n in range(900) for p in handshake(n * MS, sport=1 + n)])
    process = subprocess.Popen(
        [NCPS, "analyze", path, "--connections"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
    )
    assert process.stdout is not None
    assert process.stdout.read(1) == b"{"
    process.stdout.close()
    assert process.stderr is not None
    assert process.stderr.read() == b""
    assert process.wait() == 1


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_results_that_were_not_all_taken_are_told(unbuffered: str, tmp_path: Path) -> None:
    path = save(tmp_path / "many.pcap", [p for n in range(900) for p in handshake(n * MS, sport=1 + n)])
    with (tmp_path / "out").open("wb") as out:
        done = subprocess.run(
            [NCPS, "analyze", path, "--connections"],
            stdout=out,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16)),
            check=False,
        )
    said = "ncps: cannot write standard output: File too large; make room, or choose another file (-o)\n"
    assert (done.returncode, done.stderr) == (3, said)
