"""Every flag of NCPS beside our option for the same wish: what is accepted ends up in the plan, what is refused in
one line, with exit status 255 in NCPS's dialect and 2 in our own."""

from fractions import Fraction
from typing import Any, NamedTuple

import pytest

from ncps_raw import cli
from ncps_raw.dialect import FLAGS
from ncps_raw.options import OPTIONS
from ncps_raw.plan import SECOND, ClientPlan, ServerPlan


class Row(NamedTuple):
    """One wish. ``sides``: c, s or both. ``bad``: (words, part of the message); ``{}`` in either is the name used."""

    field: str
    sides: str
    flag: str  # as typed to NCPS; "" = NCPS has none
    ours: str  # as typed natively; "" = there is none
    value: Any
    bad: tuple[tuple[str, str], ...] = ()


NO_NUMBER = "{} must be a whole number"
NO_TIME = "{} must be a time"
ROWS = [
    Row("threads", "cs", "-r 8", "--threads 8", 8, (("{} 0", "{} must be 1 to 1024"), ("{} 1025", "{} must be"))),
    Row("bind", "cs", "-b 10.0.0.7", "--bind 10.0.0.7", ("10.0.0.7",), (("{} localhost", "{} must be numeric"),)),
    Row("bind", "c", "-b 10.0.0.6-7", "--bind 10.0.0.6-7", ("10.0.0.6", "10.0.0.7"), (("{} ::1", "IP versions"),)),
    Row("bind", "c", "-b 10.0.0.8/30", "--bind 10.0.0.8/30,10.0.0.9", ("10.0.0.9", "10.0.0.10")),
    Row(
        "base_port", "cs", "-bp 9800", "--port 9800", 9800, (("{} 0", "{} must be 1 to"), ("{} 65521", "{} 65521 and"))
    ),
    Row("ports", "cs", "-np 32", "--ports 32", 32, (("{} 0", "{} must be 1 to 65535"), ("{} x", NO_NUMBER))),
    Row("local_port", "c", "-bcp 2000 -ncp 64", "--local-port 2000 --local-ports 64", 2000),
    Row(
        "local_port", "c", "-bcp 0", "--local-port 0", 0, (("{} 65536", "{} must be 0 to 65535"), ("{} 9", "{} needs"))
    ),
    Row("local_ports", "c", "-ncp 64 -bcp 1", "--local-ports 64 --local-port 1", 64, (("{} 65536", "must be 0 to"),)),
    Row("cross_connect", "c", "-xconnect", "--cross-connect", True),
    Row(
        "connections", "c", "-N 3200", "--connections 3200", 3200, (("{} 0", "{} must be"), ("{} 15", "{} 15 is less"))
    ),
    Row("pending", "c", "-P 160", "--pending 160", 160, (("{} 0", "{} must be"), ("{} 15", "{} 15 is less than"))),
    Row("hold_ns", "c", "-D 20", "--hold 20ms", SECOND // 50, (("{} -1", NO_TIME), ("{} 1y", NO_TIME))),
    Row("hold_ns", "c", "-D 2.5", "--hold 2.5ms", 2_500_000),
    *[
        Row("mode", "c", f"-M {mode}", f"--mode {mode}", mode, (("{} 2", "{} must be 0 or 1 or p"),))
        for mode in "01psr"
    ],
    *[Row("mode", "s", f"-M {mode}", f"--mode {mode}", mode, (("{} 1", "{} must be "),)) for mode in "sr"],
    Row("mode", "s", "", "--mode echo", "echo", (("{} p", "{} must be echo or s or r, not p"),)),
    Row("mode", "c", "-M ping", "", "p"),
    Row("mode", "s", "-M receive", "", "r"),
    Row("pace_ns", "c", "-k 2 -M p", "--pace 2 --mode p", 2 * SECOND, (("{} -1", NO_TIME), ("{} x", NO_TIME))),
    Row("pace_ns", "c", "-k 0.5 -M p", "--pace 500ms --mode p", SECOND // 2),
    Row("pace_ns", "c", "-k 0", "--pace 0", 0),
    Row("size", "cs", "-len 4096", "--size 4k", 4096, (("{} -1", "{} must be a size"), ("{} 2G", "{} must be 1 to"))),
    Row("size", "cs", "-len 0", "", 1000),
    Row(
        "duration_ns",
        "cs",
        "-t 300",
        "--duration 300",
        300 * SECOND,
        (("{} 0", "{} must be longer"), ("{} x", NO_TIME)),
    ),
    Row("duration_ns", "cs", "-t 300.0", "--duration 5m", 300 * SECOND),
    Row("warmup_ns", "cs", "-wt 60.5", "--warmup 60.5", 60_500_000_000, (("{} -1", NO_TIME),)),
    Row("delay_ns", "cs", "-ds 5", "--delay 5", 5 * SECOND, (("{} x", NO_TIME), ("{} 2y", NO_TIME))),
    Row("delay_ns", "cs", "-ds 0.5", "--delay 500ms", SECOND // 2),
    Row("interval_ns", "cs", "-i 2", "--interval 2", 2 * SECOND, (("{} 0", "{} must be longer"), ("{} -1", NO_TIME))),
    Row(
        "keepalive_ns",
        "cs",
        "-tka 30",
        "--keepalive 30",
        30 * SECOND,
        (("{} -1", NO_TIME), ("{} 0.5", "whole seconds")),
    ),
    Row(
        "keepalive_ns",
        "cs",
        "-tka 0",
        "--keepalive 0",
        0,
        (("{} 32768", "{} must be whole seconds, 0 (off) to 32767"),),
    ),
    Row("reconnect", "c", "-dnrc", "--no-reconnect", False),
    Row("reuse_port", "s", "-rup -np 1", "--reuse-port --ports 1", True),
    Row(
        "affinity",
        "cs",
        "-aff 0,2,0",
        "--affinity 0,2,0",
        (0, 2, 0),
        (("{} -1", "{} must be numbers"), ("{} a", "{} must")),
    ),
    Row(
        "affinity", "cs", "-aff 3,1,x,7", "--affinity 3,1,x,7", (3, 1), (("{} x", "{} must be numbers of processors"),)
    ),
    Row(
        "affinity",
        "cs",
        "-aff " + ",".join("1" * 1024),
        "",
        (1,) * 1024,
        (("{} " + "1," * 1024 + "1", "more than 1024"),),
    ),
    Row("affinity_nonrss", "cs", "-aff nonrss", "--affinity nonrss", True, (("{} nonrs", "{} must be numbers"),)),
    Row("close", "cs", "-abortiveclose", "--close rst", "rst"),
    Row("close", "cs", "-normalclose", "--close fin", "fin"),
    Row("shutdown", "cs", "-disconbc", "--shutdown", True),
    Row("shutdown", "cs", "-disconbc -nodisconbc", "", False),
    Row("busy_poll", "cs", "-poll", "--busy-poll", True),
    Row("silent_rows", "cs", "-sil", "", True),
    Row("brief", "cs", "-brief", "--brief", True),
    Row("output", "cs", "-o rows.txt", "--output rows.txt", "rows.txt"),
    Row("write", "cs", "-w a.pcap", "--write a.pcap", "a.pcap"),
    Row("quiet", "cs", "-q", "--quiet", True),
    Row("rate", "c", "--rate 10k", "--rate 10k", Fraction(10_000), (("{} 0", "{} must be a rate above 0"),)),
    Row("rate", "c", "--rate 1.5M", "--rate 1.5M", Fraction(1_500_000), (("{} 1G", "{} must be one a year to"),)),
    Row("rate", "c", "--rate 750/s", "--rate 750/s", Fraction(750), (("{} 5/d", "{} must be a rate above 0"),)),
    Row("rate", "c", "--rate 0.5", "--rate 30/min", Fraction(1, 2), (("{} -5", "{} must be a rate above 0"),)),
]

CASES = [
    pytest.param(row, side, words, id=f"{side} {words[:40]}")
    for row in ROWS
    for side in row.sides
    for words in (row.flag, row.ours)
    if words
]
REFUSALS = [
    pytest.param(side, dialect, bad.format(name), message.format(name), id=f"{side} {bad.format(name)[:40]}")
    for row in ROWS
    for side in row.sides
    for dialect, words in ((True, row.flag), (False, row.ours))
    if words
    for name in words.split()[:1]
    for bad, message in row.bad
]


def line(side: str, dialect: bool, words: str) -> list[str]:
    first = {"s": ["-s"], "c": ["-c", "10.0.0.5"]} if dialect else {"s": ["server"], "c": ["client", "10.0.0.5"]}
    return [*first[side], *words.split()]


def tell(args: list[str], monkeypatch: pytest.MonkeyPatch) -> tuple[int, list[ClientPlan | ServerPlan]]:
    """Exit code, and the plan that would have been carried out."""
    started: list[ClientPlan | ServerPlan] = []

    def start(plan: ClientPlan | ServerPlan) -> int:
        started.append(plan)
        return 0

    monkeypatch.setattr(cli, "_start", start)
    return cli.main(args), started


@pytest.mark.parametrize(("row", "side", "words"), CASES)
def test_what_is_accepted_is_in_the_plan(
    row: Row, side: str, words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, (plan,) = tell(line(side, words == row.flag, words), monkeypatch)
    assert (code, plan.role[0]) == (0, side)
    assert getattr(plan, row.field) == row.value
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(("side", "dialect", "words", "message"), REFUSALS)
def test_what_is_refused_is_refused_in_one_line(
    side: str,
    dialect: bool,
    words: str,
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, started = tell(line(side, dialect, words), monkeypatch)
    out, err = capsys.readouterr()
    assert (code, started, out) == (255 if dialect else 2, [], "")
    assert err.startswith("ncps: ")
    assert err.endswith("\n")
    assert err.count("\n") == 1
    assert message in err


def test_no_flag_and_no_option_for_the_load_is_left_out() -> None:
    typed = {words.split()[0] for row in ROWS for words in (row.flag, row.ours) if words} | {"-nodisconbc"}
    about_results = {
        "--processes", "--engine", "--capture", "--no-capture", "--interface", "--capture-level", "--capture-buffer",
        "--format", "--run", "--max-failed",
    }  # fmt: skip
    assert typed == {*FLAGS, *OPTIONS} - about_results


CROSS = [
    ("c", "-N 4", "-N 4 is less than -r 16"),
    ("c", "-r 200 -N 300 -P 100", "-P 100 is less than -r 200"),
    ("c", "-r 20 -bcp 5000 -ncp 19", "-bcp needs -ncp of at least -r (20), not 19"),
    ("c", "-bcp 65530 -ncp 16", "-bcp 65530 and -ncp 16 pass the last port, 65535: at most 6 ports fit"),
    ("c", "-bcp 65535 -ncp 16", "-bcp 65535 and -ncp 16 pass the last port, 65535: at most 1 port fits"),
    ("c", "-o x -w x", "-o, -w and --run must name different files"),
    ("s", "-o x -w ./x", "-o and -w name the same file"),
    ("s", "-w x --no-capture", "-w needs the capture"),
    ("s", "-np 15", "-np 15 is less than -r 16: each thread of a server listens on at least one port, unless"),
    ("s", "-xconnect", "-xconnect is for the client (-c), not for a server (-s)"),
    ("c", "-rup", "-rup is for a server (-s), not for the client (-c)"),
    ("s", "--rate 5", "--rate is for the client (-c), not for a server (-s)"),
    ("c", "-ds 0", "-ds must be longer than 0 s"),
    ("c", "-k 1 -M p --rate 5", "--rate and -k contradict each other"),
    ("c", "-t 5 -wt 5", "-wt must be shorter than -t"),
    ("c", "-M", "-M needs a value"),
    ("c", "-zzz", "unknown flag -zzz"),
    ("s", "-c 10.0.0.5", "-c must be the first argument"),
]


@pytest.mark.parametrize(("side", "words", "message"), CROSS)
def test_what_does_not_go_together(
    side: str, words: str, message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, started = tell(line(side, True, words), monkeypatch)
    out, err = capsys.readouterr()
    assert (code, started, out, err.count("\n")) == (255, [], "", 1)
    assert err.startswith(f"ncps: {message}")


@pytest.mark.parametrize(
    ("side", "words", "field", "value"),
    [
        ("c", "-M 0 -M s", "mode", "s"),
        ("c", "-M s -M 0", "mode", "0"),
        ("s", "-abortiveclose -normalclose", "close", "fin"),
        ("s", "-normalclose -abortiveclose", "close", "rst"),
        ("c", "-nodisconbc -disconbc", "shutdown", True),
        ("c", "-aff 1,2 -aff nonrss", "affinity", ()),
        ("c", "-aff nonrss -aff 1,2", "affinity_nonrss", False),
        ("c", "--capture --no-capture", "capture", "off"),
        ("c", "-D 5 --hold 1s", "hold_ns", SECOND),
    ],
)
def test_the_last_of_two_wins(
    side: str, words: str, field: str, value: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, (plan,) = tell(line(side, True, words), monkeypatch)
    assert getattr(plan, field) == value


@pytest.mark.parametrize(("words", "delay", "mode"), [("-ds 5-M s", 5, "s"), ("-ds 2.0-M r", 2, "r")])
def test_a_program_forgets_the_blank_between_delay_and_mode(
    words: str, delay: int, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, (plan,) = tell(line("s", True, f"-r 16 -bp 9800 -np 16 -i 1 -wt 60 -t 300 {words} -sil"), monkeypatch)
    assert (plan.delay_ns, plan.mode, plan.silent_rows) == (delay * SECOND, mode, True)


@pytest.mark.parametrize("words", ["-ds 5-Ms", "-ds 5-N 3", "-ds 5-M"])
def test_no_other_blank_may_be_forgotten(
    words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, started = tell(line("s", True, words), monkeypatch)
    assert (code, started) == (255, [])
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize(
    ("side", "words", "said"),
    [
        ("s", "-N 5 -k 3", ["-N", "-k"]),
        ("c", "-k 3", ["-k"]),
        ("c", "-k 3 -M p", []),
    ],
)
def test_what_has_no_meaning_is_taken_as_by_ncps_and_said(
    side: str, words: str, said: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tell(line(side, True, words), monkeypatch)[0] == 0
    out, err = capsys.readouterr()
    assert out == ""
    assert [text.split(":")[1].strip() for text in err.splitlines()] == said


def test_natively_a_pace_without_rounds_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tell(line("c", False, "--pace 3"), monkeypatch) == (2, [])
    assert capsys.readouterr().err.startswith("ncps: --pace is the time between the rounds of --mode p")
