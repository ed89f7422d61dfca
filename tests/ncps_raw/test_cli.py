"""The command line: the real console script for what a person sees, ``main`` for what the runs are asked."""

import contextlib
import io
import json
import os
import subprocess
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ncps_capture.errors import CaptureUnavailable, NcpsError, UsageError

from ncps_raw import __version__, cli, usage
from ncps_raw.dialect import FLAGS
from ncps_raw.interrupts import LeaveNow
from ncps_raw.options import OPTIONS
from ncps_raw.plan import SECOND, ClientPlan, ServerPlan

Done = subprocess.CompletedProcess[str]


@pytest.fixture
def run(ncps: str) -> Callable[..., Done]:
    def call(*args: str) -> Done:
        command = [ncps, *args]
        return subprocess.run(
            command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, timeout=30
        )

    return call


# ---- the console script --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("--help", usage.TOP),
        ("-h", usage.TOP),
        ("help", usage.TOP),
        ("help server", usage.SERVER),
        ("--version", f"ncps {__version__}\n"),
        ("client --help", usage.CLIENT),
        ("client 10.0.0.5 -t 5 -h", usage.CLIENT),
        ("server --help", usage.SERVER),
        ("demo --help", usage.DEMO),
        ("report --help", usage.REPORT),
        ("-c --help", usage.NCPS),
        ("-s --help", usage.NCPS),
    ],
)
def test_help_goes_to_standard_output(run: Callable[..., Done], line: str, text: str) -> None:
    done = run(*line.split())
    assert (done.returncode, done.stdout, done.stderr) == (0, text, "")


def test_without_arguments_help_is_a_usage_error(run: Callable[..., Done]) -> None:
    done = run()
    assert (done.returncode, done.stdout, done.stderr) == (2, "", usage.TOP)


@pytest.mark.parametrize(
    ("code", "line", "message"),
    [
        (2, "clint 10.0.0.5", "unknown command 'clint', did you mean client?"),
        (2, "10.0.0.5", "unknown command '10.0.0.5'; see ncps --help"),
        (2, "--quick", "the first argument must be a command, or -s or -c HOST as in NCPS, not --quick"),
        (2, "client", "HOST is missing: ncps client HOST [options]"),
        (2, "client 10.0.0.5 --durration 5", "unknown option --durration, did you mean --duration?"),
        (2, "client 10.0.0.5 --dur 5", "unknown option --dur, did you mean --duration?"),
        (2, "client 10.0.0.5 --Duration 5", "unknown option --Duration, did you mean --duration?"),
        (2, "client 10.0.0.5 --zzzz", "unknown option --zzzz; see ncps client --help"),
        (2, "client 10.0.0.5 -x", "unknown option -x; see ncps client --help"),
        (2, "client 10.0.0.5 -qx", "unknown option -qx, did you mean -q?"),
        (2, "client 10.0.0.5 --duration", "--duration needs a value"),
        (2, "client 10.0.0.5 -qt", "-t needs a value"),
        (2, "client 10.0.0.5 --quiet=yes", "--quiet takes no value"),
        (2, "client 10.0.0.5 -t 5 --duration 6", "--duration is given twice"),
        (2, "client 10.0.0.5 10.0.0.6", "unexpected argument '10.0.0.6'; see ncps client --help"),
        (2, "client -- -x", "unexpected argument '-x'; see ncps client --help"),
        (2, "server here", "unexpected argument 'here'; see ncps server --help"),
        (2, "server -N 5", "unknown option -N; NCPS's own flags are read after ncps -s"),
        (2, "client 10.0.0.5 -D 5", "-D is NCPS's flag, here it is --hold"),
        (2, "client 10.0.0.5 -np 4", "-np is NCPS's flag, here it is --ports"),
        (2, "client 10.0.0.5 -wt 5", "-wt is NCPS's flag, here it is --warmup"),
        (2, "client 10.0.0.5 -poll", "-poll is NCPS's flag, here it is --busy-poll"),
        (2, "server -brief", "-brief is NCPS's flag, here it is --brief"),
        (2, "server -sil", "unknown option -sil; NCPS's own flags are read after ncps -s"),
        (2, "client 10.0.0.5 -nodisconbc", "unknown option -nodisconbc; NCPS's own flags are read after ncps -c HOST"),
        (2, "client 10.0.0.5 -t five", "--duration must be a time such as 500ms, 10s, 2m or 1h"),
        (2, "client 10.0.0.5 -r 0", "--threads must be 1 to 1024, not 0"),
        (2, "client 10.0.0.5 --capture --no-capture", "--capture and --no-capture contradict each other"),
        (2, "client 10.0.0.5:80", "HOST is an address without a port: 10.0.0.5 --port 80"),
        (2, "client 10.0.0.5 --run r.ncps -o r.ncps", "--output, --write and --run must name different files"),
        (2, "report", "RUN is missing: ncps report RUN [options]"),
        (2, "report r.ncps --format csv", "--format must be text or ncps or json or jsonl, not csv"),
        (3, "report absent.ncps", "cannot read absent.ncps: No such file or directory; check the name, and the folder"),
        (3, "analyze x.pcap --run absent.ncps", "cannot read absent.ncps: No such file or directory; check the name"),
        (255, "-c", "-c needs the server's address"),
        (255, "-c 10.0.0.5 -rup", "-rup is for a server (-s), not for the client (-c)"),
        (255, "-s -r none", "-r must be a whole number"),
        (255, "-r 2 -s", "the first argument must be a command, or -s or -c HOST as in NCPS, not -r"),
    ],
)
def test_a_wrong_command_line_gets_one_line(run: Callable[..., Done], code: int, line: str, message: str) -> None:
    done = run(*line.split())
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr.startswith(f"ncps: {message}")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("how", ["--format json", "--format=jsonl"])
@pytest.mark.parametrize(
    ("code", "line"),
    [(2, "client 10.0.0.5 --zzzz"), (2, "server -t x"), (255, "-c 10.0.0.5 -rup"), (2, "nothing")],
)
def test_a_machine_is_answered_in_its_format(run: Callable[..., Done], how: str, code: int, line: str) -> None:
    done = run(*line.split(), *how.split())
    assert done.returncode == code
    error = json.loads(done.stdout)["error"]
    assert error["exit_code"] == code
    assert done.stderr == f"ncps: {error['message']}\n"


def test_dry_run_shows_the_plan(run: Callable[..., Done]) -> None:
    done = run("client", "10.0.0.5", "-r", "2", "--local-port", "3000", "--local-ports", "4", "--dry-run")
    assert (done.returncode, done.stderr) == (0, "")
    assert "1 address x 4 local ports x 1 server port = 4" in done.stdout
    as_json = run("server", "--format", "json", "--dry-run")
    assert json.loads(as_json.stdout)["role"] == "server"


def test_bytes_that_are_no_text_are_shown_escaped(ncps: str) -> None:
    done = subprocess.run([ncps.encode(), b"client", b"h\xff", b"--dry-run"], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"h\\udcff" in done.stdout


def test_what_a_server_ignores_goes_to_standard_error(run: Callable[..., Done]) -> None:
    done = run("-s", "-N", "5", "--dry-run")
    assert done.returncode == 0
    assert done.stderr == "ncps: -N: without meaning for a server, ignored\n"
    assert done.stdout.startswith("server on:")


def test_the_module_is_the_same_program() -> None:
    done = subprocess.run([sys.executable, "-m", "ncps_raw", "clint"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "ncps: unknown command 'clint', did you mean client?\n"


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_who_left_is_not_told_about_it(ncps: str, unbuffered: str) -> None:
    read, write = os.pipe()
    os.close(read)
    try:
        done = subprocess.run(
            [ncps, "client", "--help"],
            stdout=write,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            env=os.environ | {"PYTHONUNBUFFERED": unbuffered},
        )
    finally:
        os.close(write)
    assert (done.returncode, done.stderr) == (1, "")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no /dev/full")  # noqa: PTH110
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("line", ["--help", "server --dry-run"])
def test_a_full_disk_is_told_in_one_line(ncps: str, line: str, unbuffered: str) -> None:
    with open("/dev/full", "w") as full:  # noqa: PTH123
        done = subprocess.run(
            [ncps, *line.split()],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            env=os.environ | {"PYTHONUNBUFFERED": unbuffered},
        )
    assert done.returncode == 3
    assert done.stderr == "ncps: cannot write standard output: No space left on device\n"


# ---- what the runs are asked -----------------------------------------------------------------------------------


@contextlib.contextmanager
def stand_ins(answer: Callable[..., int]) -> Iterator[list[Any]]:
    """Replace what makes runs; yields the arguments they were called with."""
    calls: list[Any] = []

    def record(*plan: Any, **options: Any) -> int:
        calls.append((*plan, options) if plan and options else plan[0] if plan else options)
        return answer()

    names = {f"ncps_raw.{command}": f"run_{command}" for command in ("client", "server", "demo", "report")}
    with pytest.MonkeyPatch.context() as patch:
        for module, function in names.items():
            fake = types.ModuleType(module)
            setattr(fake, function, record)
            patch.setitem(sys.modules, module, fake)
        yield calls


def call(line: str, answer: Callable[..., int] = lambda: 0) -> tuple[int, list[Any]]:
    with stand_ins(answer) as calls:
        return cli.main(line.split()), calls


def test_the_client_gets_its_plan() -> None:
    line = (
        "client 10.0.0.5 -t 10s --warmup 500ms -i 2 -b 10.0.0.1-2 -p 9800 --ports 4 -r 8 --processes 2 -N 10k "
        "-P 1.5k -M 0 --hold 20ms --size 4k --local-port 2000 --local-ports 100 --cross-connect --no-reconnect "
        "--close rst --engine selector --capture --interface lo -w a.pcap --capture-buffer 8M --format jsonl "
        "-o out.jsonl --run r.ncps -q --max-failed 5%"
    )
    code, calls = call(line)
    assert code == 0
    assert calls == [
        ClientPlan(
            target="10.0.0.5",
            duration_ns=10 * SECOND,
            warmup_ns=SECOND // 2,
            interval_ns=2 * SECOND,
            bind=("10.0.0.1", "10.0.0.2"),
            base_port=9800,
            ports=4,
            threads=8,
            processes=2,
            connections=10_000,
            pending=1_500,
            mode="0",
            hold_ns=20_000_000,
            size=4096,
            local_port=2000,
            local_ports=100,
            cross_connect=True,
            reconnect=False,
            close="rst",
            engine="selector",
            capture="required",
            interface="lo",
            write="a.pcap",
            capture_buffer=8 << 20,
            format="jsonl",
            output="out.jsonl",
            run="r.ncps",
            quiet=True,
            silent_rows=True,
            max_failed=0.05,
            command_line=f"ncps {line}",
        )
    ]


def test_the_server_gets_its_plan() -> None:
    line = "server -t 1m -b :: -p 9800 --ports 32 --close fin --capture --format json"
    code, calls = call(line)
    assert code == 0
    expected = ServerPlan(
        duration_ns=60 * SECOND,
        bind=("::",),
        base_port=9800,
        ports=32,
        close="fin",
        capture="required",
        format="json",
        command_line=f"ncps {line}",
    )
    assert calls == [expected]


@pytest.mark.parametrize(
    "line", ["client -t 5 -- ::1", "client ::1 -t 5 --", "client -t5 ::1", "client ::1 --duration=5"]
)
def test_ways_to_write_the_same(line: str) -> None:
    code, (plan,) = call(line)
    assert (code, plan.target, plan.duration_ns) == (0, "::1", 5 * SECOND)


def test_defaults_are_those_of_the_plan() -> None:
    assert call("client ::1")[1] == [ClientPlan(target="::1", command_line="ncps client ::1")]
    assert call("server")[1] == [ServerPlan(command_line="ncps server")]


def test_the_dialect_gets_its_plan() -> None:
    (plan,) = call("-c 10.0.0.5 -r 2 -t 5 --no-capture")[1]
    assert (plan.threads, plan.duration_ns, plan.capture, plan.format) == (2, 5 * SECOND, "off", "ncps")
    assert plan.command_line == "ncps -c 10.0.0.5 -r 2 -t 5 --no-capture"
    assert isinstance(call("-s")[1][0], ServerPlan)


@pytest.mark.parametrize(("line", "ns"), [("demo", 3 * SECOND), ("demo -t 500ms", SECOND // 2)])
def test_the_demo_gets_its_length(line: str, ns: int) -> None:
    assert call(line)[1] == [ns]


@pytest.mark.parametrize(
    ("line", "changes"),
    [
        ("report r.ncps", {}),
        ("report r.ncps --pcap lo.pcap", {"pcap": ("lo.pcap",)}),
        ("report --format json r.ncps -o r.json -q", {"format_": "json", "output": "r.json", "quiet": True}),
    ],
)
def test_the_report_gets_its_files_and_format(line: str, changes: dict[str, Any]) -> None:
    plain = {"format_": "text", "output": None, "pcap": (), "quiet": False}
    assert call(line)[1] == [("r.ncps", {**plain, **changes})]


def test_a_command_line_stays_one_line() -> None:
    with stand_ins(lambda: 0) as (calls):
        cli.main(["client", "10.0.0.5", "-o", "a\n### b"])
    assert calls[0].command_line == "ncps client 10.0.0.5 -o a?### b"


def raising(error: BaseException) -> Callable[..., int]:
    def answer() -> int:
        raise error

    return answer


@pytest.mark.parametrize(
    ("line", "answer", "code", "stderr"),
    [
        ("client h", lambda: 0, 0, ""),
        ("client h", lambda: 1, 1, ""),
        ("server", raising(CaptureUnavailable("no right\nto capture")), 3, "ncps: no right to capture\n"),
        ("client h", raising(UsageError("h is no name")), 2, "ncps: h is no name\n"),
        ("-c h", raising(UsageError("h is no name")), 255, "ncps: h is no name\n"),
        ("-c h", raising(CaptureUnavailable("no right")), 3, "ncps: no right\n"),
        ("demo", raising(NcpsError("lost")), 1, "ncps: lost\n"),
        ("client h", raising(KeyboardInterrupt()), 130, ""),
        ("client h", raising(LeaveNow()), 130, ""),
        ("demo", raising(LeaveNow()), 130, ""),
        ("client h", raising(BrokenPipeError()), 1, ""),
    ],
)
def test_how_runs_end(
    line: str, answer: Callable[..., int], code: int, stderr: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(line, answer)[0] == code
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("", stderr)


def test_our_own_faults_are_one_line_and_a_traceback_on_request(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NCPS_TRACEBACK", raising=False)
    assert call("server", lambda: 1 // 0)[0] == 1
    shown = capsys.readouterr().err
    assert len(shown.splitlines()) == 1
    assert "ZeroDivisionError" in shown
    assert "NCPS_TRACEBACK=1" in shown
    monkeypatch.setenv("NCPS_TRACEBACK", "1")
    with pytest.raises(ZeroDivisionError):
        call("server", lambda: 1 // 0)


WORDS = [
    *OPTIONS, *FLAGS, "client", "server", "demo", "-s", "-c", "-h", "--", "-", "--=", "--size=",
    "-t5", "10.0.0.5", "::1", "5", "10k", "-5", "json", "a b", "\n", "\x00", "\udcff", "x" * 300,
]  # fmt: skip


@given(st.lists(st.one_of(st.sampled_from(WORDS), st.text(max_size=6)), max_size=7))
def test_no_command_line_ends_in_a_traceback(args: list[str]) -> None:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), stand_ins(lambda: 0) as calls:
        code = cli.main(args)
    assert code in (0, 2, 255)
    if code == 0:
        assert calls or out.getvalue()
    else:
        assert not calls
        assert args == [] or err.getvalue().count("\n") == 1
