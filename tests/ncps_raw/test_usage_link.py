"""The link check's help: every option is read, and every option that is read is told."""

import re

import docopt
import pytest

from ncps_raw import usage, usage_link
from ncps_raw.link.plan import build

BESIDE = {"--count", "--output", "--listen", "--help"}


@pytest.mark.parametrize("command", ["send", "recv"])
def test_a_command_has_the_options_its_plan_is_built_from(command: str) -> None:
    from ncps_raw.link import plan

    sections = docopt.parse_docstring_sections(usage.COMMANDS[command])
    found = {option.longer: bool(option.argcount) for option in docopt.parse_options(sections.after_usage)}
    expected = {name: reader is not None for name, (_, reader) in plan._FIELDS.items()}
    assert {name: takes for name, takes in found.items() if name not in BESIDE} == {
        name: takes for name, takes in expected.items() if name != "--fsync" or command == "recv"
    }


@pytest.mark.parametrize("text", [usage_link.SEND, usage_link.RECV])
def test_examples_are_command_lines_that_can_be_meant(text: str) -> None:
    lines = [re.split(r" {2,}", line.strip())[0] for line in text.splitlines() if line.startswith("  ncps ")]
    tried = 0
    for line in lines:
        if "[" in line:
            continue
        command, *rest = line.partition(" |")[0].split()[1:]
        values = docopt.docopt(usage.COMMANDS[command], [command, *rest], default_help=False)
        build(command, dict(values))
        tried += 1
    assert tried >= 4
