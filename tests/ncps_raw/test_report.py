"""Saved runs, seen again: the real console script makes the run and shows it."""

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from running import run, serving

PORTS = count(25_001, 10)
FORMATS = ("text", "ncps", "json", "jsonl")


@pytest.fixture
def port() -> int:
    return next(PORTS)


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of its own for whatever a run puts down; it must be empty in the end."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    yield folder
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("capture", [pytest.param("--capture", marks=pytest.mark.capture), "--no-capture"])
def test_a_saved_run_is_reported_again_byte_for_byte_in_every_format(port: int, capture: str, tmp_path: Path) -> None:
    saved = tmp_path / "r.ncps"
    shown = {}
    with serving(port, "-b", "127.0.0.1"):
        for format_ in FORMATS:
            code, shown[format_], err = run(
                *("client", "127.0.0.1", "-p", str(port), "-r", "2", "-N", "20", "-t", "0.5", "-i", "0.2"),
                *("--warmup", "0.1", capture, "--format", format_, "--run", str(saved)),
            )
            assert code == 0, err
            assert run("report", str(saved), "--format", format_) == (0, shown[format_], "")
    assert "attempted" in shown["text"]
    assert run("report", str(saved), "--format", "json")[1] != shown["json"]  # it is the last run that was saved
    assert sorted(path.name for path in tmp_path.iterdir()) == ["r.ncps", "scratch"]


def test_a_server_and_the_dialect_save_their_run_too(port: int, tmp_path: Path) -> None:
    theirs, mine = tmp_path / "server.ncps", tmp_path / "client.ncps"
    with serving(port, "-b", "127.0.0.1", "--run", str(theirs)) as server:
        code, out, err = run(
            *("-c", "127.0.0.1", "-bp", str(port), "-r", "2", "-np", "2", "-N", "20", "-t", "0.5", "-i", "0.2"),
            *("--no-capture", "--run", str(mine)),
        )
        assert code == 0, err
        server.process.terminate()
        served = server.process.communicate(timeout=60)[0]
    assert run("report", str(mine), "--format", "ncps") == (0, out, "")
    assert "=== VERSION" in out
    assert run("report", str(theirs), "--format", "json") == (0, served, "")
    assert '"interrupted": "SIGTERM"' in served


def test_quiet_leaves_out_the_rows(port: int, tmp_path: Path) -> None:
    saved = tmp_path / "r.ncps"
    with serving(port, "-b", "127.0.0.1"):
        run(*("client", "127.0.0.1", "-p", str(port), "-r", "2", "-t", "0.3", "-i", "0.1", "-q", "--run", str(saved)))
    lines = run("report", str(saved), "--format", "jsonl", "-q")[1].splitlines()
    assert len(lines) == 1
    assert len(run("report", str(saved), "--format", "jsonl")[1].splitlines()) > 1
    target = tmp_path / "report.txt"
    assert run("report", str(saved), "-o", str(target), "-q") == (0, "", "")
    assert target.read_text() == run("report", str(saved), "-q")[1]


def test_a_run_that_could_not_be_saved_is_not_begun(port: int, tmp_path: Path) -> None:
    path = tmp_path / "absent" / "r.ncps"
    results = tmp_path / "r.txt"
    results.write_text("before")
    code, out, err = run("client", "127.0.0.1", "-p", str(port), "--run", str(path), "-o", str(results))
    assert (code, out) == (3, "")
    assert err == f"ncps: cannot write {path}: No such file or directory; choose another file\n"
    assert results.read_text() == "before"


def test_a_run_whose_report_cannot_be_written_is_saved_all_the_same(port: int, tmp_path: Path) -> None:
    saved = tmp_path / "r.ncps"
    with serving(port, "-b", "127.0.0.1"):
        code, _, err = run(
            *("client", "127.0.0.1", "-p", str(port), "-r", "2", "-t", "0.2", "--no-capture", "--format", "json"),
            *("-o", "/dev/full", "--run", str(saved)),
        )
    assert (code, len(err.splitlines())) == (3, 1)
    assert "cannot write /dev/full" in err
    assert run("report", str(saved), "--format", "json")[0] == 0


def test_what_is_no_run_is_named(tmp_path: Path) -> None:
    foreign = tmp_path / "lo.pcap"
    foreign.write_bytes(b"\xd4\xc3\xb2\xa1")
    assert run("report", str(foreign)) == (3, "", f"ncps: cannot read {foreign}: it is not a run saved with --run\n")
