"""Captures to rows and facts: what is told of files beside their handshakes."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from analyses import T0, handshake, save, tcp
from ncps_capture.errors import FileFault
from ncps_capture.merge import merge_rows

from ncps_raw import reading
from ncps_raw.reading import read_captures

MS = 1_000_000


def test_facts_of_two_files_and_progress(tmp_path: Path) -> None:
    one = save(tmp_path / "1.pcap", handshake(0))
    two = save(tmp_path / "2.pcap", handshake(5 * MS, sport=2))
    two.write_bytes(two.read_bytes()[:-1])
    rows: list[Any] = []
    seen: list[tuple[int, int | None, int]] = []
    facts = read_captures([str(one), str(two)], rows.append, progress=lambda *now: seen.append(now))
    assert [(s.name, s.packets, s.damaged, s.dropped) for s in facts.sources] == [
        (str(one), 3, False, None),
        (str(two), 2, True, None),
    ]
    assert (facts.first_t_ns, facts.last_t_ns) == (T0, T0 + 6 * MS)
    assert (facts.books.packets, facts.books.syn, facts.books.synack) == (5, 2, 2)
    assert facts.warnings == [f"{two}: cut inside record 3 at byte 136; not used"]
    assert len(merge_rows(np.concatenate(rows))) == 2
    size = one.stat().st_size + two.stat().st_size
    assert seen[-1][1:] == (size, 5)
    assert seen[-1][0] <= size


@pytest.mark.parametrize(("flags", "level"), [((2, 0x12, 0x14), "base"), ((2, 4), "resets"), ((2, 0x10, 4), "acks")])
def test_the_level_is_what_is_there(flags: tuple[int, ...], level: str, tmp_path: Path) -> None:
    path = save(tmp_path / "level.pcap", [(n, tcp(flag, 5)) for n, flag in enumerate(flags)])
    assert read_captures([str(path)], lambda rows: None).level == level


def test_rows_come_while_it_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packets = [p for n in range(3000) for p in handshake(n * MS, sport=1 + n, isn=n)]
    path = save(tmp_path / "long.pcap", sorted(packets, key=lambda item: item[0]))
    whole: list[Any] = []
    read_captures([str(path)], whole.append)
    monkeypatch.setattr(reading, "_SETTLE_SEGMENTS", 500)
    monkeypatch.setattr("ncps_capture.pcapfile.BATCH_ROWS", 600)
    parts: list[Any] = []
    read_captures([str(path)], parts.append)
    assert np.array_equal(merge_rows(np.concatenate(parts)), merge_rows(np.concatenate(whole)))


def test_it_stops_between_two_batches_and_says_how_far_it_came(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of a file that was looked into and not begun: nothing of it is counted."""
    monkeypatch.setattr("ncps_capture.pcapfile.BATCH_ROWS", 600)
    packets = [p for n in range(1000) for p in handshake(n * MS, sport=1 + n, isn=n)]
    path = save(tmp_path / "long.pcap", sorted(packets, key=lambda item: item[0]))
    later = save(tmp_path / "later.pcap", handshake(60_000 * MS))
    reasons = iter([None, None])
    rows: list[Any] = []
    facts = read_captures([str(path), str(later)], rows.append, stopped=lambda: next(reasons, "SIGTERM"))
    assert (facts.interrupted, facts.books.packets, facts.books.syn) == ("SIGTERM", 1200, 401)
    assert [(source.packets, source.damaged) for source in facts.sources] == [(1200, False), (0, False)]
    share = 100 * path.stat().st_size // (path.stat().st_size + later.stat().st_size)
    assert facts.warnings == [f"interrupted: only the first 1,200 packets, {share} % of the bytes were read"]
    assert len(merge_rows(np.concatenate(rows))) == 401
    with pytest.raises(FileFault, match="interrupted before its first packet"):
        read_captures([str(path)], rows.append, stopped=lambda: "SIGTERM")
    assert read_captures([str(path)], rows.append, stopped=lambda: None).interrupted is None


def test_a_file_named_again_is_read_once_and_that_is_said(tmp_path: Path) -> None:
    path, link = save(tmp_path / "a.pcap", handshake(0)), tmp_path / "b.pcap"
    link.symlink_to(path)
    facts = read_captures([str(path), str(link)], lambda rows: None)
    assert (facts.books.syn, [source.name for source in facts.sources]) == (1, [str(path)])
    assert facts.warnings == [f"{link} is {path} by another name: it is read once"]


def test_a_file_without_anything_to_read_is_told(tmp_path: Path) -> None:
    with pytest.raises(FileFault, match="0 of 1 packets decoded: link type 250"):
        read_captures([str(save(tmp_path / "x.pcap", [(0, b"x" * 60)], 250))], lambda rows: None)
    with pytest.raises(FileFault, match="no packets"):
        read_captures([str(save(tmp_path / "y.pcap", []))], lambda rows: None)
