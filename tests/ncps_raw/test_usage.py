"""Help texts: docopt understands them, they tell the true defaults, and their examples work."""

import re
import shlex
from pathlib import Path

import docopt
import pytest

from ncps_raw import cli, usage
from ncps_raw.dialect import FLAGS, UNAVAILABLE
from ncps_raw.options import CLIENT_FIELDS, OPTIONS, SERVER_FIELDS
from ncps_raw.plan import SECOND, ClientPlan, ServerPlan

WIDTH = 116


def options_of(command: str) -> dict[str, docopt.Option]:
    sections = docopt.parse_docstring_sections(usage.COMMANDS[command])
    return {o.longer: o for o in docopt.parse_options(sections.after_usage)}


@pytest.mark.parametrize(("command", "fields"), [("client", CLIENT_FIELDS), ("server", SERVER_FIELDS)])
def test_a_command_has_the_options_of_its_plan_and_no_other(command: str, fields: frozenset[str]) -> None:
    expected = {name: option for name, option in OPTIONS.items() if option.field in fields}
    if command == "server":
        del expected["--mode"]  # there is but one
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
    assert re.findall(r"^  ncps ([a-z]+)(?: HOST)?(?: \[options\])?  ", usage.TOP.partition("Commands:")[2], re.M) == [
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
    assert not shown & set(UNAVAILABLE)


def examples(text: str) -> list[str]:
    return [
        re.split(r" {2,}|#", line.strip().removeprefix("$ "))[0].removesuffix("&").strip()
        for line in text.splitlines()
        if re.match(r"(  )?(\$ )?ncps (client|server|-c|-s)( |$)", line) and "[" not in line
    ]


def documents() -> dict[str, str]:
    root = Path(__file__).parents[2]
    pages = [root / "README.md", *sorted((root / "docs").glob("*.md"))]
    texts = {page.name: page.read_text(encoding="utf-8") for page in pages}
    fenced = {name: "\n".join(re.findall(r"^```\w*\n(.*?)^```", text, re.M | re.S)) for name, text in texts.items()}
    return {"help": "\n".join([usage.TOP, usage.NCPS, *usage.COMMANDS.values()])} | fenced


EXAMPLES = [(place, line) for place, text in documents().items() for line in dict.fromkeys(examples(text))]


@pytest.mark.parametrize(("place", "line"), EXAMPLES)
def test_examples_are_command_lines_that_work(place: str, line: str, capsys: pytest.CaptureFixture[str]) -> None:
    args = shlex.split(line)[1:]
    if not {"--help", "--version"} & set(args):
        args.append("--dry-run")
    assert cli.main(args) == 0, capsys.readouterr().err


def test_examples_are_found() -> None:
    places = {place for place, _ in EXAMPLES}
    assert {"help", "README.md", "client.md", "server.md"} <= places
