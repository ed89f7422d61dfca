"""Processes that read ahead: what becomes of them when they are killed, overfull, or no longer wanted."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

import pytest
from capture_maker import pcap
from capture_stretches import STRETCH, check, read, traffic
from ncps_capture import ahead
from ncps_capture.capfile import open_capture
from ncps_capture.decoded import pieces


def test_a_worker_that_is_killed_costs_time_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x"
    path.write_bytes(pcap(traffic(10)))
    pools: list[ahead._Pool] = []
    begin = ahead._Pool.__init__

    def noted(self: ahead._Pool, *args: object) -> None:
        begin(self, *args)  # type: ignore[arg-type]
        pools.append(self)

    monkeypatch.setattr(ahead._Pool, "__init__", noted)

    def disturb(number: int) -> None:
        if pools and number == 5:
            for process in pools[0]._processes:
                assert process.pid is not None
                os.kill(process.pid, signal.SIGKILL)
                process.join()

    rows, books, capture = read(path, 2, disturb=disturb)
    assert len(pools) == 1
    expected, all_books, plain = read(path, 0)
    assert (rows.tobytes(), books, capture.packets) == (expected.tobytes(), all_books, plain.packets)


def test_more_rows_than_there_is_room_for_are_read_again_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead, "_SLOT_BYTES", 4096)
    assert check(tmp_path / "x", pcap(traffic(11))) > 10


def test_leaving_early_leaves_no_process_behind(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(pcap(traffic(12)))
    synacks = [0]
    stream = pieces(open_capture(path), lambda: not synacks[0], 2, STRETCH, 20_000)
    for number, piece in enumerate(stream):
        synacks[0] += piece.books.synack
        if number == 5:
            children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
            break
    stream.close()  # type: ignore[attr-defined]
    left = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    assert len(set(children) - set(left)) == 2


def test_no_room_for_processes_costs_time_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[object] = []
    fork = os.fork

    def one_and_no_more() -> int:
        begun.append(None)
        if len(begun) > 1:
            raise BlockingIOError(11, "Resource temporarily unavailable")
        return fork()

    monkeypatch.setattr(os, "fork", one_and_no_more)
    assert check(tmp_path / "x", pcap(traffic(13))) == 0
    assert len(begun) == 2


def test_a_worker_that_does_nothing_can_be_left(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(pcap(traffic(14)))
    synacks = [0]
    stopped: list[int] = []
    stream = pieces(open_capture(path), lambda: not synacks[0], 2, STRETCH, 20_000)
    waited = 0
    for piece in stream:
        synacks[0] += piece.books.synack
        if synacks[0] and not stopped:
            stopped = [int(word) for word in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()]
            for pid in stopped:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGSTOP)
        waited += not piece.books.packets
        if waited == 2:
            break
    stream.close()  # type: ignore[attr-defined]
    assert waited == 2
