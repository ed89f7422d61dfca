"""Where results go, and what happens where they cannot."""

import sys
from pathlib import Path

import pytest
from ncps_capture.errors import FileFault, UsageError

from ncps_raw.results import Results, not_over, say


def test_a_file_holds_what_was_written_and_nothing_else(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "r"
    path.write_text("an older and longer result")
    with Results(str(path)) as results:
        results.write("one\n")
        results.write("two\n")
    assert path.read_bytes() == b"one\ntwo\n"
    assert capsys.readouterr() == ("", "")


def test_standard_output_is_the_other_place(capsys: pytest.CaptureFixture[str]) -> None:
    with Results(None, coloured=True) as results:  # no terminal, so no colour
        results.write("one\n")
    assert capsys.readouterr() == ("one\n", "")


def test_what_cannot_be_written_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(FileFault, match=r"cannot write .*no/r: No such file or directory; choose another"):
        Results(str(tmp_path / "no" / "r"))
    with pytest.raises(FileFault, match="cannot write /dev/full: No space left"), Results("/dev/full") as results:
        results.write("x" * 100_000)
    monkeypatch.setattr(sys, "stdout", None)
    with pytest.raises(FileFault, match="standard output: it is closed"):
        Results(None)


def test_what_is_read_is_never_replaced(tmp_path: Path) -> None:
    one, link = tmp_path / "one", tmp_path / "link"
    one.write_bytes(b"x")
    link.symlink_to(one)
    with pytest.raises(UsageError, match="would replace"):
        not_over(str(link), (str(tmp_path / "absent"), str(one)))
    not_over(str(tmp_path / "new"), (str(one), "-"))
    not_over(None, (str(one),))


def test_a_warning_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    say("two\n  lines")
    assert capsys.readouterr().err == "ncps: two lines\n"
