"""Open files: what is raised, what is said, and how many connections fit."""

import resource
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ncps_raw.limits import SPARE_FILES, FileLimit, clamp, file_limits, files_for, most_in_a_process
from ncps_raw.ports import split
from ncps_raw.workers import split_loops

INFINITE = resource.RLIM_INFINITY


class Limit:
    """The system's two calls, in memory."""

    def __init__(self, patch: pytest.MonkeyPatch, soft: int, hard: int, refuses: bool = False) -> None:
        self.now = soft, hard
        self._refuses = refuses
        patch.setattr(resource, "getrlimit", lambda kind: self.now)
        patch.setattr(resource, "setrlimit", self._set)

    def _set(self, kind: int, limits: tuple[int, int]) -> None:
        assert kind == resource.RLIMIT_NOFILE
        if self._refuses:
            raise ValueError("current limit exceeds maximum limit")
        self.now = limits


@pytest.mark.parametrize(
    ("soft", "hard", "told"),
    [(64, 4096, (64, 4096)), (64, INFINITE, (64, None)), (INFINITE, INFINITE, (None, None))],
)
def test_limits_are_told_and_left_alone(
    monkeypatch: pytest.MonkeyPatch, soft: int, hard: int, told: tuple[int | None, int | None]
) -> None:
    limit = Limit(monkeypatch, soft, hard)
    assert file_limits() == told
    assert limit.now == (soft, hard)


@pytest.mark.parametrize(
    ("soft", "hard", "needed", "allowed", "raised"),
    [
        (1024, 4096, 1000, 1024, False),
        (1024, 4096, 1024, 1024, False),
        (1024, 4096, 2000, 2000, True),
        (1024, 4096, 9000, 4096, True),
        (1024, INFINITE, 9000, 9000, True),
        (64, 64, 2000, 64, False),
        (INFINITE, INFINITE, 2000, None, False),
    ],
)
def test_room_is_made_as_far_as_it_goes(
    monkeypatch: pytest.MonkeyPatch, soft: int, hard: int, needed: int, allowed: int | None, raised: bool
) -> None:
    limit = Limit(monkeypatch, soft, hard)
    found = files_for(needed)
    assert found.allowed == allowed
    assert limit.now == ((allowed if raised else soft), hard)
    assert found.note == (f"open-file limit raised from {soft} to {allowed} for this run" if raised else None)


def test_a_system_that_refuses_keeps_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    limit = Limit(monkeypatch, 256, INFINITE, refuses=True)
    assert files_for(100_000) == FileLimit(256, None)
    assert limit.now == (256, INFINITE)


def test_a_platform_without_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "resource", None)
    assert files_for(10) == FileLimit(None, None)
    assert file_limits() == (None, None)


def test_a_real_process_and_its_children_have_the_room() -> None:
    code = (
        "import resource, subprocess; from ncps_raw.limits import files_for\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (100, 300))\n"
        "print(files_for(250).allowed, files_for(1000).allowed)\n"
        "print(subprocess.run(['sh', '-c', 'ulimit -n'], capture_output=True, text=True).stdout)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["250", "300", "300"]


@pytest.mark.parametrize(
    ("wanted", "loops", "processes", "allowed", "possible"),
    [
        (200, 2, 2, None, 200),
        (200, 2, 2, 64, 64),
        (64, 2, 2, 64, 64),
        (65, 2, 2, 64, 64),
        (300, 3, 2, 232, 300),  # 200 of them in one process
        (303, 3, 2, 232, 300),
        (10, 2, 2, 32, 0),
        (10, 2, 2, 8, 0),
    ],
)
def test_how_many_connections_fit(wanted: int, loops: int, processes: int, allowed: int | None, possible: int) -> None:
    assert clamp(wanted, loops, processes, allowed) == possible


@given(st.data(), st.integers(1, 64))
def test_no_process_gets_more_than_it_may_hold(data: st.DataObject, loops: int) -> None:
    processes = data.draw(st.integers(1, loops))
    wanted = data.draw(st.integers(loops, 100_000))
    allowed = data.draw(st.integers(0, 60_000))
    possible = clamp(wanted, loops, processes, allowed)
    fullest = max(sum(split(possible, loops, loop) for loop in share) for share in split_loops(loops, processes))
    assert 0 <= possible <= wanted
    assert fullest <= max(0, allowed - SPARE_FILES)


@given(st.data(), st.integers(1, 64), st.integers(1, 100_000))
def test_the_fullest_process_is_not_underrated(data: st.DataObject, loops: int, wanted: int) -> None:
    processes = data.draw(st.integers(1, loops))
    shares = [sum(split(wanted, loops, loop) for loop in share) for share in split_loops(loops, processes)]
    assert max(shares) <= most_in_a_process(wanted, loops, processes) <= max(shares) + -(-loops // processes)
