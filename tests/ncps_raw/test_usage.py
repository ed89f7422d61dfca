"""Help texts: docopt understands them, they tell the true defaults, and their examples work."""

import re
import shlex
from pathlib import Path

import docopt
import pytest

from ncps_raw import cli, machine, usage
from ncps_raw.budget import Machine
from ncps_raw.dialect import FLAGS
from ncps_raw.options import CLIENT_FIELDS, OPTIONS, SERVER_FIELDS
from ncps_raw.plan import SECOND, ClientPlan, ServerPlan

WIDTH = 116


def options_of(command: str) -> dict[str, docopt.Option]:
    sections = docopt.parse_docstring_sections(usage.COMMANDS[command])
    return {o.longer: o for o in docopt.parse_options(sections.after_usage)}


@pytest.mark.parametrize(("command", "fields"), [("client", CLIENT_FIELDS), ("server", SERVER_FIELDS)])
def test_a_command_has_the_options_of_its_plan_and_no_other(command: str, fields: frozenset[str]) -> None:
    expected = {name: option for name, option in OPTIONS.items() if option.field in fields}
    found = options_of(command)
    assert set(found) == {*expected, "--dry-run", "--help"}
    assert {name: bool(found[name].argcount) for name in expected} == {
        name: option.read is not None for name, option in expected.items()
    }


@pytest.mark.parametrize("text", [usage.TOP, usage.NCPS, *usage.COMMANDS.values()])
def test_texts_begin_with_examples_and_fit_the_screen(text: str) -> None:
    assert text.splitlines()[2] == "Examples:"
    assert text.endswith("\n")
    assert not text.endswith("\n\n")
    assert text.isascii()
    assert max(map(len, text.splitlines())) <= WIDTH


def test_the_top_lists_every_command() -> None:
    listed = usage.TOP.partition("Commands:")[2]
    assert re.findall(r"^  ncps ([a-z]+)(?: HOST| RUN| FILE\.\.\.)?(?: \[options\])?  ", listed, re.M) == [
        *usage.COMMANDS
    ]


@pytest.mark.parametrize(
    ("command", "name", "default"),
    [
        ("client", "--port", str(ClientPlan(target="h").base_port)),
        ("client", "--threads", str(ClientPlan(target="h").threads)),
        ("client", "--size", str(ClientPlan(target="h").size)),
        ("client", "--close", ClientPlan(target="h").close),
        ("client", "--interval", f"{ClientPlan(target='h').interval_ns // SECOND}s"),
        ("client", "--capture-buffer", f"{ClientPlan(target='h').capture_buffer >> 20}M"),
        ("client", "--format", ClientPlan(target="h").format),
        ("server", "--port", str(ServerPlan().base_port)),
        ("server", "--threads", str(ServerPlan().threads)),
        ("server", "--close", ServerPlan().close),
    ],
)
def test_a_default_in_a_text_is_the_one_in_the_plan(command: str, name: str, default: str) -> None:
    options = usage.COMMANDS[command].partition("Options:")[2].splitlines()
    line = next(line for line in options if re.match(rf"  (-\w, )?{name} ", line))
    assert re.search(rf"default {re.escape(default)}\b", line)


def test_ncps_flags_in_the_text_are_those_of_the_table() -> None:
    body = usage.NCPS.partition("Flags of both:")[2].partition("Our options")[0]
    shown = set(re.findall(r"(?:^|  )(-[a-zA-Z]+)", body, re.M)) - {"-s"}
    assert shown == set(FLAGS) - {"-w", "-q"}


def blocks() -> dict[str, str]:
    """The fenced parts of the documents, and all help texts."""
    root = Path(__file__).parents[2]
    pages = [root / "README.md", *sorted((root / "docs").glob("*.md"))]
    fence = re.compile(r"^```\w*\n(.*?)^```", re.M | re.S)
    # A prompt between them ends what the last command of a part has printed.
    fenced = {page.name: "\n$ \n".join(fence.findall(page.read_text(encoding="utf-8"))) for page in pages}
    return {"help": "\n".join([usage.TOP, usage.NCPS, *usage.COMMANDS.values()])} | fenced


def examples(text: str) -> list[str]:
    lines = (line.strip() for line in text.splitlines() if re.match(r"(  )?ncps (client|server|-c|-s)( |$)", line))
    return [re.split(r" {2,}|#", line)[0].strip() for line in dict.fromkeys(lines) if "[" not in line]


def transcripts(text: str) -> list[tuple[str, str]]:
    """Command lines after a prompt and what they printed; those that start a run print something else each time."""
    shown = re.findall(r"^\$ (ncps .*)\n((?:(?!\$ ).*\n)*)", text + "\n", re.M)
    return [(line, out.rstrip()) for line, out in shown if "--dry-run" in line or out.startswith(("ncps:", '{"error'))]


EXAMPLES = [(place, line) for place, text in blocks().items() for line in examples(text)]
TRANSCRIPTS = [shown for text in blocks().values() for shown in transcripts(text)]


@pytest.mark.parametrize(("place", "line"), EXAMPLES)
def test_examples_are_command_lines_that_work(place: str, line: str, capsys: pytest.CaptureFixture[str]) -> None:
    args = shlex.split(line)[1:]
    if not {"--help", "--version"} & set(args):
        args.append("--dry-run")
    assert cli.main(args) == 0, capsys.readouterr().err


@pytest.mark.parametrize(("line", "shown"), TRANSCRIPTS)
def test_documents_show_what_is_printed(
    line: str, shown: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = Machine(2, (32_768, 60_999), reserved_ports=0, soft_files=1024, hard_files=1_048_576)
    monkeypatch.setattr(machine, "machine_for", lambda plan: usual)
    cli.main(shlex.split(line)[1:])
    printed = capsys.readouterr()
    assert (printed.out or printed.err).rstrip() == shown


def test_examples_are_found() -> None:
    assert {"help", "README.md", "client.md", "server.md"} <= {place for place, _ in EXAMPLES}
    assert len(TRANSCRIPTS) >= 4
