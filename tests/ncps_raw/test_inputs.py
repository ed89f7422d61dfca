"""Names of captures: what the system takes for one file is one, and a pipe can be given up."""

import io
import os
import pty
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from ncps_capture.errors import FileFault, UsageError

from ncps_raw.inputs import GRACE_S, Ending, Interrupted, Pipe, cannot_open, distinct, opened


def by_symlink(file: Path) -> Path:
    link = file.with_name("link")
    link.symlink_to(file)
    return link


def by_hard_link(file: Path) -> Path:
    link = file.with_name("hard")
    link.hardlink_to(file)
    return link


def by_a_longer_way(file: Path) -> str:
    return f"{file.parent}/../{file.parent.name}/./{file.name}"


@pytest.mark.parametrize("another", [by_symlink, by_hard_link, by_a_longer_way])
def test_a_file_by_another_name_is_the_same_file(another: Callable[[Path], Path | str], tmp_path: Path) -> None:
    one, two = tmp_path / "1.pcap", tmp_path / "2.pcap"
    one.write_bytes(b"x")
    two.write_bytes(b"x")  # the same content makes no file the same
    other = str(another(one))
    names = [str(one), other, str(two), str(one)]
    assert distinct(names) == (
        [str(one), str(two)],
        [f"{other} is {one} by another name: it is read once", f"{one} is named twice: it is read once"],
    )


@pytest.mark.parametrize(
    ("links", "rest"),
    [
        (3, []),
        (4, ["1 more name of files that were named before: each file is read once"]),
        (2000, ["1,997 more names of files that were named before: each file is read once"]),
    ],
)
def test_of_many_names_of_a_file_three_are_said_and_the_others_counted(
    links: int, rest: list[str], tmp_path: Path
) -> None:
    one = tmp_path / "1.pcap"
    one.write_bytes(b"x")
    names = [tmp_path / f"{n}.link" for n in range(links)]
    for name in names:
        name.symlink_to(one)
    files, said = distinct([str(one), *map(str, names)])
    assert files == [str(one)]
    assert said == [*(f"{name} is {one} by another name: it is read once" for name in names[:3]), *rest]


@pytest.mark.parametrize(
    ("name", "fault", "said"),
    [
        ("", UsageError, "a FILE is an empty name: name a capture, or - for standard input"),
        (
            "none/x.pcap",
            FileFault,
            "cannot read none/x.pcap: No such file or directory; check the name, and the folder",
        ),
        (".", FileFault, r"cannot read \.: Is a directory; name the captures in it, such as \*\.pcap"),
        ("a\0b", FileFault, "cannot read a\0b: embedded null byte; name another file"),
    ],
)
def test_a_name_that_leads_nowhere_says_what_to_do(name: str, fault: type[Exception], said: str) -> None:
    with pytest.raises(fault, match=f"^{said}"):
        distinct([name])


def test_standard_input_must_be_something_to_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(FileFault, match="standard input: it is closed; pipe a capture into it"):
        distinct(["-"])
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, encoding="utf-8") as terminal:
        monkeypatch.setattr(sys, "stdin", terminal)
        with pytest.raises(UsageError, match="which is a terminal here: pipe a capture into it"):
            distinct(["-"])
    os.close(ours)


def test_a_file_is_read_by_its_name_and_a_pipe_as_one(tmp_path: Path) -> None:
    ending = Ending(lambda: None)
    plain, fifo = tmp_path / "x", tmp_path / "f"
    plain.write_bytes(b"x")
    assert opened(str(plain), ending) == str(plain)
    assert ending.grace_s == 0
    os.mkfifo(fifo)
    reading = opened(str(fifo), ending)  # with nobody at the other end yet
    assert isinstance(reading, io.RawIOBase)
    assert (reading.name, ending.grace_s) == (str(fifo), GRACE_S)
    with fifo.open("wb", buffering=0) as writing:
        writing.write(b"abc")
        assert reading.read(8) == b"abc"
    assert reading.read(8) == b""
    reading.close()
    reading.close()


def test_a_pipe_is_given_up_when_its_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once before it is asked, once while it waits; until then it gives what comes, and its end."""
    now, reasons = [0.0], [None, None, *["SIGINT"] * 9]

    def stopped() -> str | None:
        now[0] += 1 / 4
        return reasons.pop(0)

    monkeypatch.setattr("ncps_raw.inputs.time.monotonic", lambda: now[0])
    monkeypatch.setattr("ncps_raw.inputs._LOOK_S", 0.001)
    read, write = os.pipe()
    ending = Ending(stopped)
    ending.grace_s = 1.0
    with Pipe("p", read, ending) as pipe:
        os.write(write, b"x")
        assert (pipe.read(4), len(reasons)) == (b"x", 10)
        with pytest.raises(Interrupted):
            pipe.read(4)
    assert len(reasons) == 4  # one without a reason, and five quarters of a second with one
    os.close(write)


def test_what_ends_and_when() -> None:
    assert Ending(lambda: None).due() is None
    assert Ending(lambda: "SIGTERM").due() == "SIGTERM"
    patient = Ending(lambda: "SIGTERM")
    patient.grace_s = 3600.0
    assert patient.due() is None


def test_every_fault_of_opening_gets_a_next_step() -> None:
    def fault(text: str, cause: Exception | None = None) -> str:
        made = FileFault(text)
        made.__cause__ = cause
        return str(cannot_open(made))

    denied = PermissionError(13, "Permission denied", "b.pcap")
    assert fault("cannot read b.pcap: Permission denied", denied) == (
        "cannot read b.pcap: Permission denied; run it as somebody who may read it, such as with sudo"
    )
    assert fault("cannot read a: it is empty") == (
        "cannot read a: it is empty; give a pcap or pcapng file, compressed or not"
    )
    assert fault("cannot read a: it is packed; unpack it") == "cannot read a: it is packed; unpack it"
