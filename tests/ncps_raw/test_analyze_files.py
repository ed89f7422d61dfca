"""Files that are odd as files, by the command line: what the JSON report and the records say is what was put there."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from analyses import FIXTURES, T0, attempts, figures

TRUTH: dict[str, dict[str, Any]] = json.loads((FIXTURES / "truth.json").read_text(encoding="utf-8"))
CROWDS: dict[str, dict[str, Any]] = json.loads((FIXTURES / "crowds.json").read_text(encoding="utf-8"))
COMPRESSED = sorted(name for name in TRUTH if name.startswith("clean_ipv4.pcap."))


@pytest.mark.parametrize("name", [name for name, truth in TRUTH.items() if "facts" in truth])
def test_what_is_true_of_the_file_as_a_whole_is_in_the_report(name: str) -> None:
    report = figures(FIXTURES / name)
    facts = TRUTH[name]["facts"]
    assert {key: report[key] for key in facts} == facts


@pytest.mark.parametrize("name", CROWDS)
def test_each_use_of_a_tuple_is_an_attempt(name: str) -> None:
    truth, told = CROWDS[name], attempts(FIXTURES / name)
    assert [record["attempt"] for record in told] == list(range(1, len(told) + 1))
    for key in ("frame", "isn", "state", "syn_n", "rtt_first_ns"):
        assert [record[key] for record in told] == truth[key], key
    assert [record["t_syn_first_ns"] - T0 for record in told] == truth["t_syn_first_ns"]
    report = figures(FIXTURES / name)
    for key in ("packets", "syn", "synack", "attempts", "answered", "unanswered"):
        assert report[key] == truth["books"][key], key
    assert report["syn_retrans"] == sum(truth["syn_n"]) - len(told)
    assert report["problems"] == []


def test_compression_changes_nothing_but_the_name() -> None:
    assert len(COMPRESSED) == 5
    plain = figures(FIXTURES / "clean_ipv4.pcap")
    for name in (*COMPRESSED, "gzip_members.pcap"):
        report = figures(FIXTURES / name)
        different = {key for key in plain if report[key] != plain[key]}
        assert different <= {"command_line", "sources", "slowest"}


BLOCKED = """
import sys
for name in ("pcapy", "zstandard", "lz4", "lz4.frame"):
    sys.modules[name] = None
from ncps_raw.cli import main
sys.exit(main(sys.argv[1:]))
"""


def analyzed_without_libraries(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """``ncps analyze`` where neither pcapy nor zstandard nor lz4 is installed."""
    command = [sys.executable, "-c", BLOCKED, "analyze", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    "options", [("--format", "json"), ("--format", "text"), ("--format", "ncps"), ("--connections",)]
)
def test_files_need_no_libpcap(options: tuple[str, ...]) -> None:
    """Nor any other package that is not always installed: all but two kinds of files at once."""
    names = [name for name in (*TRUTH, *CROWDS) if not name.endswith((".lz4", ".zst"))]
    done = analyzed_without_libraries(*(FIXTURES / name for name in names), *options)
    assert (done.returncode, done.stderr) == (0, "")
    if options == ("--format", "json"):
        packets = sum((TRUTH.get(name) or CROWDS[name])["books"]["packets"] for name in names)
        assert json.loads(done.stdout)["packets"] == packets
    assert done.stdout


@pytest.mark.parametrize(("suffix", "kind"), [("lz4", "lz4"), ("zst", "zstd")])
def test_a_missing_package_is_one_line_that_names_the_extra(suffix: str, kind: str) -> None:
    path = FIXTURES / f"clean_ipv4.pcap.{suffix}"
    done = analyzed_without_libraries(path)
    advice = "pip install 'ncps-raw[compressed]', or decompress it first"
    said = f"ncps: cannot read {path}: it is compressed with {kind}; {advice}\n"
    assert (done.returncode, done.stdout, done.stderr) == (3, "", said)
