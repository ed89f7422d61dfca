"""What a link check looks like on a terminal, on a pipe and in a file."""

import fcntl
import json
import os
import pty
import struct
import subprocess
import termios
from pathlib import Path

import pytest
from link_pairs import await_listener, free_port
from running import NCPS, finish, run, start

from ncps_raw.link import books
from ncps_raw.link.books import Row
from ncps_raw.link.plan import LinkPlan
from ncps_raw.link.show import Show

HERE = "127.0.0.1"


def on_a_terminal(columns: int, *words: str) -> tuple[int, str]:
    """Exit code of ``ncps`` with a terminal as its streams, and all it wrote."""
    main, sub = pty.openpty()
    fcntl.ioctl(sub, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    process = subprocess.Popen(
        [NCPS, *words], stdin=sub, stdout=sub, stderr=sub, env={**environment, "TERM": "xterm", "NO_COLOR": "1"}
    )
    os.close(sub)
    parts = []
    while True:
        try:
            part = os.read(main, 65_536)
        except OSError:  # Linux: everybody has closed it
            break
        if not part:
            break
        parts.append(part)
    os.close(main)
    return process.wait(), b"".join(parts).decode()


@pytest.mark.parametrize("columns", [80, 40])
def test_the_line_moves_and_fits(columns: int) -> None:
    port = str(free_port())
    listener = start("recv", "-p", port)
    await_listener(int(port), listener)
    code, text = on_a_terminal(columns, "send", HERE, "-p", port, "--limit", "10MB", "--size", "5MB")
    assert code == finish(listener)[0] == 0
    before_report = text.partition("blocks of")[0]
    frames = [part.partition("\r")[0] for part in before_report.split("\r\x1b[K") if "%" in part]
    assert len(frames) >= 3
    assert all(len(frame) < columns for frame in frames)
    assert all("B/s] [" in frame and " 0:0" in frame for frame in frames)
    shares = [int(frame.partition("%")[0].split()[-1]) for frame in frames]
    assert shares == sorted(shares)
    assert "sent MB/s" not in text  # rows are for pipes
    assert "5000000 bytes (5.0 MB, 4.8 MiB) copied" in text


def test_on_a_pipe_there_are_plain_rows() -> None:
    port = str(free_port())
    listener = start("recv", "-p", port)
    await_listener(int(port), listener)
    code, out, err = run("send", HERE, "-p", port, "--limit", "10MB", "--size", "3MB", "-i", "100ms")
    assert code == finish(listener)[0] == 0
    assert out.startswith(books.row_header(Row(0, 1, 0, None)) + "\n")
    assert "\r" not in out + err
    assert "\x1b" not in out + err


def test_the_report_of_a_sender_goes_where_it_is_told(tmp_path: Path) -> None:
    port = str(free_port())
    listener = start("recv", "-p", port, "-q")
    await_listener(int(port), listener)
    path = tmp_path / "r.json"
    code, out, _ = run("send", HERE, "-p", port, "--size", "1MB", "--format", "json", "-o", str(path))
    assert (code, out) == (0, "")
    assert json.loads(path.read_text())["bytes"] == 1_000_000
    assert finish(listener)[0] == 0


def test_quiet_and_machine_formats_have_no_moving_line() -> None:
    for plan in (LinkPlan(sends=True, host="h", quiet=True), LinkPlan(sends=True, host="h", format="json")):
        with Show(plan, lambda: None) as show:
            assert show.frame_ns is None
            assert not show.rows
