"""The link check's help: every option is read, and every option that is read is told."""

import re

import docopt
import pytest

from ncps_raw import units, usage, usage_link
from ncps_raw.link.plan import build, byte_rate

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
def test_the_units_are_those_that_are_read(text: str) -> None:
    notes = " ".join(text.split())
    assert "10M is 10 * 2^20 bytes/s, 10MB or 10MB/s is 10^7; 100Mbit is 10^8 bits/s" in notes
    for typed, value in (("10M", 10 << 20), ("10MB", 10**7), ("10MB/s", 10**7), ("100Mbit", 10**8 // 8)):
        assert byte_rate(typed, "--limit") == value
    assert "k, M, G are 1024, 2^20, 2^30 bytes; kB, MB, GB are 1000, 10^6, 10^9" in notes
    for typed, value in (("1k", 1024), ("1M", 1 << 20), ("1G", 1 << 30), ("1kB", 1000), ("1MB", 10**6), ("1GB", 10**9)):
        assert units.size(typed, "--size") == value
    assert "(of --count): 2k is 2000" in notes
    assert units.count("2k", "--count") == 2000


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
