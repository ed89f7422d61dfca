"""Where results and remarks go, in each format, and what happens when they cannot go there."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from ncps_analysis.assemble import summarise
from ncps_analysis.model import RunReport
from ncps_analysis.records import CLOSED, CONNECTION, ClockPairs, Interval, Run
from ncps_analysis.render import json as json_view
from ncps_analysis.render import ncps as ncps_view
from ncps_analysis.render import text as text_view
from ncps_capture.errors import FileFault
from ncps_capture.segments import HANDSHAKE

from ncps_raw.output import Output

S = 1_000_000_000


def row(t_s: float = 1.0) -> Interval:
    return Interval(t_s, 1.0, 5, 1, 0, 0, 10, 9, 1000, 1000, 0, 10, 25, 0, None)


def report() -> RunReport:
    records = np.zeros(3, CONNECTION)
    records["start_ns"] = S + 1000
    records["connected_ns"] = S + 50_000
    records["closed_ns"] = S + 90_000
    records["outcome"] = CLOSED
    run = Run(
        role="client",
        command_line="ncps client 127.0.0.1",
        version="0",
        target="127.0.0.1",
        mode="1",
        threads=1,
        processes=1,
        engine="selector",
        t0_ns=S,
        record_start_ns=S,
        end_ns=3 * S,
        warmup_s=0.0,
        paths=(("127.0.0.1", "127.0.0.1"),),
        connection_files=(),
        clock=ClockPairs(np.array([S], np.int64), np.array([1000 * S], np.int64)),
        intervals=(row(), row(2.0)),
        rx_bytes=3000,
        tx_bytes=3000,
        kernel_rtt=True,
        attempted=3,
    )
    return summarise(run, records, np.zeros(0, HANDSHAKE))


def output(format_: str, path: str | None = None, *, silent_rows: bool = False, quiet: bool = False) -> Output:
    return Output(format_, path, silent_rows=silent_rows, quiet=quiet)


def whole_run(format_: str, path: str | None = None, **wishes: bool) -> None:
    with output(format_, path, **wishes) as out:
        out.remark("a remark")
        out.row(row())
        out.say("a warning")
        out.row(row(2.0))
        out.report(report())


REPORTS = {
    "text": text_view.report(report()),
    "ncps": ncps_view.report(report()),
    "json": json_view.dumps(report()),
    "jsonl": json_view.dumps_line(report()),
}
ROWS = {
    "text": [text_view.interval_header(), text_view.interval_row(row()), text_view.interval_row(row(2.0))],
    "ncps": [ncps_view.header(), ncps_view.row(row()), ncps_view.row(row(2.0))],
    "json": [],
    "jsonl": [json_view.dumps_line(row()), json_view.dumps_line(row(2.0))],
}


def expected(format_: str) -> str:
    rows = "".join(line + "\n" for line in ROWS[format_])
    gap = "\n" if format_ == "text" else ""
    return rows + gap + REPORTS[format_].removesuffix("\n") + "\n"


# ---- formats ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("format_", list(REPORTS))
def test_results_go_to_standard_output_and_words_to_standard_error(
    format_: str, capsys: pytest.CaptureFixture[str]
) -> None:
    whole_run(format_)
    out, err = capsys.readouterr()
    assert out == expected(format_)
    assert err == "ncps: a remark\nncps: a warning\n"


@pytest.mark.parametrize("format_", list(REPORTS))
def test_results_go_to_a_file(format_: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "results"
    path.write_text("from before, and longer than nothing")
    whole_run(format_, str(path))
    assert path.read_text() == expected(format_)
    out, err = capsys.readouterr()
    assert (out, err) == ("", "ncps: a remark\nncps: a warning\n")


def test_machine_formats_hold_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    whole_run("json")
    assert json.loads(capsys.readouterr().out)["connections"] == 3
    whole_run("jsonl")
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(lines) == 3
    assert [line.get("t_s") for line in lines[:2]] == [1.0, 2.0]
    assert lines[2]["connections"] == 3


@pytest.mark.parametrize("format_", list(REPORTS))
def test_rows_may_be_left_out(format_: str, capsys: pytest.CaptureFixture[str]) -> None:
    whole_run(format_, silent_rows=True)
    assert capsys.readouterr().out == REPORTS[format_].removesuffix("\n") + "\n"


NAMES = {form: ncps_view.header_of(form) for form in range(ncps_view.FORMS)}


def test_ncps_starts_brief_without_names_and_each_change_of_form_prints_them(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with Output("ncps", None, silent_rows=False, quiet=False, brief=True) as out:
        for _ in range(4):
            out.row(row())
            out.next_form()
        out.row(row())
        out.row(row())
    forms = [1, 2, 0, 1, 2]
    lines = [line for form in forms for line in (NAMES[form], ncps_view.row_of(row(), form))]
    assert capsys.readouterr().out.splitlines() == [*lines[1:], lines[-1]]


def test_text_has_brief_rows_with_names_and_dashes_for_what_is_unknown(capsys: pytest.CaptureFixture[str]) -> None:
    unknown = replace(row(), clean_rtt_us=None)
    with Output("text", None, silent_rows=False, quiet=False, brief=True) as out:
        out.row(unknown)
        out.next_form()
        out.next_form()
        out.row(unknown)
    first = [NAMES[1], ncps_view.row_of(unknown, 1, unknown="-")]
    full = text_view.interval_header() + "\n" + text_view.interval_row(unknown)
    assert capsys.readouterr().out.splitlines() == [*first, *full.splitlines()]


def test_a_machine_format_has_one_form_of_rows(capsys: pytest.CaptureFixture[str]) -> None:
    with Output("jsonl", None, silent_rows=False, quiet=False, brief=True) as out:
        out.row(row())
        out.next_form()
        out.row(row())
    assert len({*capsys.readouterr().out.splitlines()}) == 1


def test_quiet_keeps_warnings(capsys: pytest.CaptureFixture[str]) -> None:
    whole_run("json", quiet=True)
    assert capsys.readouterr().err == "ncps: a warning\n"


def test_each_row_is_delivered_as_it_comes(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    with output("jsonl", str(path)) as out:
        for n in (1, 2, 3):
            out.row(row())
            assert len(path.read_text().splitlines()) == n


# ---- where they cannot go -----------------------------------------------------------------------------------------


def test_a_file_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    path = tmp_path / "absent" / "results"
    with pytest.raises(FileFault) as caught:
        output("text", str(path))
    assert str(caught.value) == f"cannot write {path}: No such file or directory; choose another file (-o)"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="/dev/full is Linux's")
def test_a_full_disk_is_one_line() -> None:
    with pytest.raises(FileFault, match=r"^cannot write /dev/full: No space left on device$"):
        whole_run("text", "/dev/full")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="/dev/full is Linux's")
def test_after_a_full_disk_nothing_more_is_tried() -> None:
    with output("text", "/dev/full") as out:
        with pytest.raises(FileFault):
            out.row(row())
        out.row(row())
        out.report(report())


@pytest.fixture
def broken_pipe(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Standard output whose reader has left."""
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w", buffering=1) as pipe:
        monkeypatch.setattr(sys, "stdout", pipe)
        yield
        monkeypatch.undo()
        os.dup2(os.open(os.devnull, os.O_WRONLY), writer)  # what is buffered goes nowhere


@pytest.mark.usefixtures("broken_pipe")
def test_a_reader_that_has_left_does_not_end_the_run() -> None:
    whole_run("jsonl")


def test_a_run_whose_reader_leaves_ends_without_a_traceback() -> None:
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from test_output import output, report, row\n"
        "with output('jsonl') as out:\n"
        "    out.row(row())\n"
        "    sys.stdin.readline()\n"
        "    out.row(row()); out.report(report()); out.say('still here')\n"
        "from ncps_raw.cli import main\n"
        "sys.exit(main(['--version']))"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(Path(__file__).parent)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as run:
        assert run.stdin is not None
        assert run.stdout is not None
        assert run.stderr is not None
        assert json.loads(run.stdout.readline())["t_s"] == 1.0
        run.stdout.close()
        run.stdin.write("\n")
        run.stdin.close()
        assert run.stderr.read() == "ncps: still here\n"
        assert run.wait(30) == 1


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_stream_that_was_closed_from_the_start(
    stream: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, stream, None)
    if stream == "stdout":  # all results would be lost
        with pytest.raises(FileFault, match="it is closed; name a file with -o"):
            whole_run("text")
        return
    whole_run("text")
    out, err = capsys.readouterr()
    assert (out, bool(err)) == (expected("text"), False)
