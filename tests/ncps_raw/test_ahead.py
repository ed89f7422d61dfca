"""Items made in a process of their own are the same, in the same order, and so is how it ends."""

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from analyses import handshake, save
from ncps_capture.errors import FileFault, NcpsError

from ncps_raw import reading
from ncps_raw.ahead import ahead
from ncps_raw.reading import read_captures

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only there")


def gone(pid: int) -> bool:
    """The process has ended and was waited for."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_items_come_as_they_are() -> None:
    columns = [np.arange(n, dtype=np.int64) for n in (0, 1, 3_000_000)]
    items: list[Any] = [None, "text", {"a": (1, 2)}, *columns]
    got = list(ahead(iter(items)))
    assert got[:3] == items[:3]
    for one, other in zip(got[3:], columns, strict=True):
        assert one.dtype == other.dtype
        assert np.array_equal(one, other)
        one[:1] = 7  # columns are changed in place by whoever gets them


def test_another_process_makes_them_and_is_gone_at_the_end() -> None:
    pids = list(ahead(os.getpid() for _ in range(3)))
    assert len(set(pids)) == 1
    assert pids[0] != os.getpid()
    assert gone(pids[0])


def test_who_leaves_early_ends_it() -> None:
    def endless() -> Iterator[int]:
        while True:
            yield os.getpid()

    items = ahead(endless())
    pid = next(items)
    assert not gone(pid)
    items.close()  # type: ignore[attr-defined]
    assert gone(pid)


def test_errors_are_raised_here() -> None:
    def faulty(error: Exception) -> Iterator[int]:
        yield 1
        raise error

    for error, text in (
        (FileFault("no such file"), "no such file"),
        (ValueError("of\ntwo lines"), "ValueError: of two"),
    ):
        items = ahead(faulty(error))
        assert next(items) == 1
        with pytest.raises(NcpsError, match=text) as caught:
            next(items)
        assert isinstance(caught.value, FileFault) == isinstance(error, FileFault)


def test_a_process_that_was_killed_is_told() -> None:
    def dying() -> Iterator[int]:
        yield 1
        os.kill(os.getpid(), signal.SIGKILL)
        yield 2

    with pytest.raises(NcpsError, match="was ended; run this again"):
        list(ahead(dying()))


def test_where_no_process_can_be_had_it_goes_on_here(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> int:
        raise BlockingIOError

    monkeypatch.setattr(os, "fork", none)
    assert list(ahead(os.getpid() for _ in range(2))) == [os.getpid()] * 2


def test_a_ctrl_c_of_the_terminal_is_the_parents_alone() -> None:
    def asked() -> Iterator[int]:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0)
        yield 5

    assert list(ahead(asked())) == [5]
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


def test_a_capture_is_read_to_the_same_rows_and_facts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packets = [p for n in range(200) for p in handshake(n * 1_000_000, sport=1 + n, isn=n)]
    path = save(tmp_path / "long.pcap", sorted(packets, key=lambda item: item[0]))
    path.write_bytes(path.read_bytes()[:-1])
    results = []
    for least, here in ((1 << 40, True), (1, False)):
        made_in: list[bool] = []
        monkeypatch.setattr(reading, "_WORTH_A_PROCESS", least)
        monkeypatch.setattr(reading, "possible", lambda: True)
        monkeypatch.setattr(reading, "ahead", lambda items, seen=made_in: seen.append(True) or ahead(items))
        rows: list[Any] = []
        told: list[Any] = []
        facts = read_captures([str(path)], rows.append, progress=lambda *now, told=told: told.append(now))
        assert bool(made_in) is not here
        results.append((vars(facts), np.concatenate(rows).tolist(), told))
    assert results[0] == results[1]
    assert results[0][0]["sources"][0].damaged


def test_a_file_that_cannot_be_used_is_the_same_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "_WORTH_A_PROCESS", 1)
    monkeypatch.setattr(reading, "possible", lambda: True)
    with pytest.raises(FileFault, match="no packets"):
        read_captures([str(save(tmp_path / "empty.pcap", []))], lambda rows: None)
