"""Letters typed during a run: on real pipes, files and terminals, in the foreground and behind it."""

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ncps_raw.keys import Keys, letters

pty = pytest.importorskip("pty", reason="this system has no pseudo-terminals")
termios = pytest.importorskip("termios", reason="this system has no terminals of this kind")

WANTED = "prb"


# ---- letters of lines (pure) --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "found", "rest"),
    [
        (b"", "", b""),
        (b"b\n", "b", b""),
        (b"p\nr\r\n B \nx\n\n", "prb", b""),
        (b"pause\nbb\nq\n", "", b""),
        (b"b\np", "b", b"p"),
        (b"\xff\xfe\nb\n", "b", b""),
        (b"x" * 5000, "", b""),
    ],
)
def test_only_a_letter_alone_on_a_line_counts(text: bytes, found: str, rest: bytes) -> None:
    assert letters(text, WANTED) == (found, rest)


@given(st.lists(st.sampled_from([b"p\n", b"r\n", b"b\n", b"no\n", b"\n"]), max_size=20), st.data())
def test_how_the_text_is_cut_does_not_matter(lines: list[bytes], data: st.DataObject) -> None:
    text = b"".join(lines)
    cut = data.draw(st.integers(0, len(text)))
    first, rest = letters(text[:cut], WANTED)
    second, rest = letters(rest + text[cut:], WANTED)
    assert (first + second, rest) == letters(text, WANTED)


# ---- pipes and files ----------------------------------------------------------------------------------------------


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for end in ends:
        try:
            os.close(end)
        except OSError:
            continue


def test_lines_of_a_pipe_are_heard_and_looking_never_waits(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    with Keys(WANTED, reader, pipes=True) as keys:
        assert keys.pressed() == ""
        os.write(writer, b"b\np")
        assert keys.pressed() == "b"
        assert keys.pressed() == ""
        os.write(writer, b"\n")
        assert keys.pressed() == "p"


def test_a_last_line_without_an_end_counts_and_the_end_is_left_alone(
    pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, writer = pipe
    os.write(writer, b"r")
    os.close(writer)
    with Keys(WANTED, reader, pipes=True) as keys:
        assert [keys.pressed() for _ in range(3)] == ["", "r", ""]

        def looked(*arguments: object) -> None:
            raise AssertionError("an input at its end was looked at again")

        monkeypatch.setattr(select, "select", looked)
        assert keys.pressed() == ""


@pytest.mark.parametrize("what", ["/dev/null", "closed", "none", "not wanted"])
def test_where_nothing_is_to_be_heard(what: str, pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    descriptor: int | None = reader
    if what == "/dev/null":
        descriptor = os.open(os.devnull, os.O_RDONLY)
    elif what == "closed":
        os.close(reader)
    elif what == "none":
        descriptor = None
    else:
        os.write(writer, b"b\n")
    with Keys(WANTED, descriptor, pipes=what != "not wanted") as keys:
        assert [keys.pressed() for _ in range(3)] == [""] * 3
    if what == "not wanted":
        assert os.read(reader, 10) == b"b\n"  # it is there for whom it is meant
    if what == "/dev/null":
        assert descriptor is not None
        os.close(descriptor)


def test_a_file_is_read_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "letters"
    path.write_text("b\nb\nsome text\np\n")
    with path.open("rb") as file, Keys(WANTED, file.fileno(), pipes=True) as keys:
        assert keys.pressed() == "bbp"
        assert keys.pressed() == ""


# ---- terminals ----------------------------------------------------------------------------------------------------


@pytest.fixture
def terminal() -> Iterator[tuple[int, int]]:
    """(the person's end, the program's end)"""
    person, program = pty.openpty()
    yield person, program
    os.close(person)
    os.close(program)


def heard(keys: Keys, program: int) -> str:
    """What is pressed once the terminal has something to read."""
    assert select.select([program], [], [], 30)[0]
    return keys.pressed()


def test_a_terminal_is_heard_after_enter_and_left_as_it_is(terminal: tuple[int, int]) -> None:
    person, program = terminal
    before = termios.tcgetattr(program)
    with Keys(WANTED, program, pipes=False) as keys:
        os.write(person, b"p\n")
        assert heard(keys, program) == "p"
        os.write(person, b"b")
        assert keys.pressed() == ""
        os.write(person, b"\n")
        assert heard(keys, program) == "b"
        assert termios.tcgetattr(program) == before
    assert termios.tcgetattr(program) == before


def test_a_terminal_goes_on_after_its_end_character(terminal: tuple[int, int]) -> None:
    person, program = terminal
    with Keys(WANTED, program, pipes=False) as keys:
        os.write(person, b"\x04")
        assert heard(keys, program) == ""
        os.write(person, b"r\n")
        assert heard(keys, program) == "r"


def test_nothing_is_taken_from_a_pager_that_reads_letter_by_letter(terminal: tuple[int, int]) -> None:
    person, program = terminal
    mode = termios.tcgetattr(program)
    mode[3] &= ~termios.ICANON
    termios.tcsetattr(program, termios.TCSANOW, mode)
    with Keys(WANTED, program, pipes=False) as keys:
        os.write(person, b"b\n")
        assert select.select([program], [], [], 30)[0]
        assert keys.pressed() == ""
    assert os.read(program, 10) == b"b\n"


def test_a_terminal_that_has_gone_is_no_fault() -> None:
    person, program = pty.openpty()
    with Keys(WANTED, program, pipes=False) as keys:
        os.close(person)
        assert [keys.pressed() for _ in range(3)] == [""] * 3
    os.close(program)


def test_the_signal_of_background_reading_is_put_back(terminal: tuple[int, int]) -> None:
    before = signal.getsignal(signal.SIGTTIN)
    with Keys(WANTED, terminal[1], pipes=False):
        assert signal.getsignal(signal.SIGTTIN) == signal.SIG_IGN
    assert signal.getsignal(signal.SIGTTIN) == before


SESSION = """
import os, signal, sys, time
from ncps_raw import keys as module
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
ready, go = os.pipe()
child = os.fork()
if not child:  # a program in the background of this session's terminal
    os.setpgid(0, 0)
    with module.Keys("prb", 0, pipes=False) as keys:
        behind = keys.pressed()
        os.tcgetpgrp = lambda fd: os.getpgrp()  # as if it had been sent there between the look and the read
        forced = keys.pressed()
        del os.tcgetpgrp
    os.write(2, f"{behind!r} {forced!r}".encode())
    os._exit(0)
_, status = os.waitpid(child, os.WUNTRACED)
print("stopped" if os.WIFSTOPPED(status) else "ended", flush=True)
with module.Keys("prb", 0, pipes=False) as keys:
    print(keys.pressed(), flush=True)
"""


def test_a_program_in_the_background_neither_reads_nor_stops() -> None:
    person, program = pty.openpty()
    os.write(person, b"b\n")
    started = "import os, sys, fcntl, termios; os.setsid(); fcntl.ioctl(0, termios.TIOCSCTTY, 0); exec(sys.argv[1])"
    done = subprocess.run(
        [sys.executable, "-c", started, SESSION],
        stdin=program,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    os.close(person)
    os.close(program)
    assert (done.stdout.split(), done.stderr) == (["ended", "b"], "'' ''")
