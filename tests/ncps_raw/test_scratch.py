"""Folders of runs: gone with their run, and swept by the next one where the run was killed."""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from analyses import FIXTURES, analyze
from ncps_capture.errors import FileFault

from ncps_raw.scratch import LOCK, PREFIX, scratch_folder, sweep

fcntl = pytest.importorskip("fcntl", reason="folders are locked as POSIX systems do")

OWNER = """
import sys
from ncps_raw.scratch import scratch_folder
with scratch_folder() as folder:
    open(folder + "/spool", "w").write("rows")
    print(folder, flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


def owner() -> tuple[subprocess.Popen[str], Path]:
    """Another run with its folder."""
    process = subprocess.Popen([sys.executable, "-c", OWNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def end(process: subprocess.Popen[str]) -> None:
    process.communicate()


def broken_off(place: Path) -> None:
    with scratch_folder() as folder:
        assert Path(folder).parent == place
        Path(folder, "spool").write_text("rows")
        raise RuntimeError


def test_a_folder_goes_with_all_that_is_in_it(place: Path) -> None:
    with pytest.raises(RuntimeError):
        broken_off(place)
    assert list(place.iterdir()) == []


def test_no_room_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/absent")
    with pytest.raises(FileFault, match=r"cannot create a folder for this run: .*; set TMPDIR"), scratch_folder():
        pass


def test_what_a_killed_run_left_goes_when_the_next_begins(place: Path) -> None:
    process, left = owner()
    os.kill(process.pid, signal.SIGKILL)
    end(process)
    assert (left / "spool").exists()
    with scratch_folder() as folder:
        assert list(place.iterdir()) == [Path(folder)]


def test_a_reading_that_needs_no_folder_removes_what_a_killed_one_left(place: Path) -> None:
    process, left = owner()
    os.kill(process.pid, signal.SIGKILL)
    end(process)
    assert (left / "spool").exists()
    code, out, err = analyze(FIXTURES / "clean_ipv4.pcap")
    assert (code, err) == (0, "")
    assert "report of a capture" in out
    assert list(place.iterdir()) == []


def test_without_any_folder_for_temporary_files_nothing_is_swept(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> str:
        raise FileNotFoundError("No usable temporary directory found")

    monkeypatch.setattr(tempfile, "gettempdir", none)
    sweep()


def test_a_folder_in_use_stays() -> None:
    process, used = owner()
    sweep()
    with scratch_folder():
        pass
    assert (used / "spool").read_text() == "rows"
    end(process)
    assert not used.exists()


def test_a_child_of_the_killed_run_still_uses_its_folder(place: Path) -> None:
    code = OWNER.replace(
        "    sys.stdin.read()", "    import os; os.fork(); print(os.getpid(), flush=True); sys.stdin.read()"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    used = Path(process.stdout.readline().strip())
    pids = {int(process.stdout.readline()) for _ in range(2)}
    os.kill(process.pid, signal.SIGKILL)
    process.wait(30)
    sweep()
    assert used.exists()
    (child,) = pids - {process.pid}
    os.kill(child, signal.SIGKILL)
    process.stdout.read()  # until the child has gone
    end(process)
    sweep()
    assert not used.exists()


def test_what_is_not_ours_stays(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_lock = place / f"{PREFIX}without-lock"
    without_lock.mkdir()
    elsewhere = place / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / LOCK).write_text("")
    link = place / f"{PREFIX}link"
    link.symlink_to(elsewhere)
    of_another_user = place / f"{PREFIX}other"
    of_another_user.mkdir()
    (of_another_user / LOCK).symlink_to(elsewhere / LOCK)
    sweep()
    assert {path.name for path in place.iterdir()} == {f"{PREFIX}{n}" for n in ("without-lock", "link", "other")} | {
        "elsewhere"
    }
    (of_another_user / LOCK).unlink()
    (of_another_user / LOCK).write_text("")
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    sweep()
    assert of_another_user.exists()


def test_without_locks_a_run_goes_on(monkeypatch: pytest.MonkeyPatch, place: Path) -> None:
    def refuse(*arguments: object) -> None:
        raise OSError("no locks here")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with scratch_folder() as folder:
        assert not Path(folder, LOCK).exists()
        sweep()
        assert Path(folder).exists()
    assert list(place.iterdir()) == []
