"""A bounded run of the fuzzer, in a process of its own because memory is measured; and the judge, who must judge."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import fuzzing
import pytest
from capture_maker import pcap
from fuzzing import FIXTURES, Fuzz, Outcome, corpus, cuts, judged, mutated, through_the_rooms, walked

RECORDS = pcap([(1_700_000_000, i, bytes(60), 60) for i in range(5)])


def test_no_damage_raises_hogs_or_is_passed_over_in_silence(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "error", fuzzing.__file__, "--seed", "1", "--stride", "37", "--cases", "1000"]
    done = subprocess.run([*command, "--folder", tmp_path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    tried, faults = done.stdout.splitlines()[-1].split(" files, ")
    assert int(tried) > 1500
    assert faults.startswith("0 faults")


def test_every_byte_and_every_edge_is_cut() -> None:
    contents = corpus()
    assert {path.name for path in FIXTURES.glob("*.pcap*")} <= contents.keys()
    small = contents["clean_ipv4.pcap"]
    assert list(cuts(small, 1)) == list(range(len(small)))
    large = contents["mirror_port.pcap"]
    found = set(cuts(large, 1))
    at = 24
    while at < len(large):
        assert {at, at + 1, at + 15, at + 16} <= found
        at += 16 + int.from_bytes(large[at + 8 : at + 12], "little")
    assert {at - 1, at} <= found


@pytest.mark.parametrize("name", [name for name in corpus() if name.endswith((".pcap", ".pcapng"))])
def test_the_plain_walk_finds_what_is_there(name: str) -> None:
    content = corpus()[name]
    if not content.startswith(b"\x1f\x8b"):
        outcome = through_the_rooms(content)
        records, whole = walked(content)
        assert records == outcome.packets
        assert whole or outcome.messages  # one of the public captures is cut itself
        assert walked(content[:-1])[1] is False


def test_changes_depend_on_the_seed_alone_and_are_many() -> None:
    choices = list(corpus().values())
    made = [mutated(fuzzing.random.Random(f"1 {case}"), choices) for case in range(200)]
    assert made == [mutated(fuzzing.random.Random(f"1 {case}"), choices) for case in range(200)]
    assert len(set(made)) > 190
    assert len(set(made) & set(choices)) < 10


def raises(content: bytes) -> Outcome:
    raise IndexError("of an index")


def loses(content: bytes) -> Outcome:
    outcome = through_the_rooms(content)
    return Outcome(outcome.packets, [])


def miscounts(content: bytes) -> Outcome:
    outcome = through_the_rooms(content)
    return Outcome(outcome.packets - 1, outcome.messages)


def babbles(content: bytes) -> Outcome:
    return Outcome(5, ["one line\nand one more"])


def hangs(content: bytes) -> Outcome:
    while True:
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("chain", "content", "said"),
    [
        (raises, RECORDS, "IndexError: of an index"),
        (loses, RECORDS[:-1], "4 records were read, the rest was lost without a message"),
        (miscounts, RECORDS, "4 packets read, and there are 5"),
        (babbles, RECORDS, "a message of several lines"),
        (hangs, RECORDS, "nothing after 1 s"),
        (lambda _: Outcome(refused=True), b"", "refused without a message"),
    ],
)
def test_what_goes_wrong_is_found(
    chain: fuzzing.Chain, content: bytes, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fuzzing, "PATIENCE_S", 1)
    assert judged(content) is None
    assert said in (judged(content, chain) or "nothing")


def test_too_much_memory_is_found_and_the_file_is_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    most = iter([100.0, 150.0, 170.0, 170.0])
    monkeypatch.setattr(fuzzing, "peak_mb", lambda: next(most))
    fuzz = Fuzz(tmp_path / "faults")
    fuzz.warm_up({"five": RECORDS})
    for size in (100, 90, 80):
        fuzz.judge(f"{size} bytes", RECORDS[:size])
    (fault,) = fuzz.faults
    assert fault.startswith(f"90 bytes, saved as {tmp_path / 'faults' / 'fault-0.pcap'}:\n70 MB more than")
    assert (tmp_path / "faults" / "fault-0.pcap").read_bytes() == RECORDS[:90]


def test_what_the_command_does_wrong_is_found(tmp_path: Path) -> None:
    def fails(path: Path, format_: str) -> None:
        raise AssertionError(f"{format_} of {path.name}")

    fuzz = Fuzz(tmp_path, command=fails)
    fuzz.judge("five", RECORDS, "csv")
    assert "AssertionError: csv of tried.pcap" in fuzz.faults[0]
    assert (tmp_path / "fault-0.pcap").read_bytes() == RECORDS
