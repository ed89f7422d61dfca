"""Whose fault an error is: what a program that calls us reads from the exit code, and what crosses a process."""

from __future__ import annotations

import pickle

import pytest
from ncps_capture import errors
from ncps_capture.errors import CaptureUnavailable, EnvironmentFault, FileFault, NcpsError, UsageError

EVERY = [one for one in vars(errors).values() if isinstance(one, type)]


@pytest.mark.parametrize(
    ("kind", "exit_code", "also"),
    [
        (NcpsError, 1, Exception),
        (UsageError, 2, NcpsError),
        (EnvironmentFault, 3, NcpsError),
        (CaptureUnavailable, 3, EnvironmentFault),
        (FileFault, 3, EnvironmentFault),
    ],
)
def test_the_exit_code_says_whose_fault_it_is(kind, exit_code, also):
    assert kind.exit_code == exit_code
    assert issubclass(kind, also)


def test_the_table_above_is_whole():
    assert set(EVERY) == {NcpsError, UsageError, EnvironmentFault, CaptureUnavailable, FileFault}


def test_nobody_is_caught_as_somebody_else():
    """``except OSError`` around a system call must not swallow what is meant for the person, nor fault the person."""
    assert not any(issubclass(kind, (OSError, ValueError, RuntimeError)) for kind in EVERY)
    assert not issubclass(UsageError, EnvironmentFault)
    assert not issubclass(EnvironmentFault, UsageError)


@pytest.mark.parametrize("kind", EVERY)
def test_what_is_said_crosses_a_process_as_it_stands(kind):
    again = pickle.loads(pickle.dumps(kind("cannot open x: no such file: give another")))
    assert type(again) is kind
    assert str(again) == "cannot open x: no such file: give another"
