"""Signals of a run, sent for real."""

import os
import signal
import subprocess
import sys

import pytest

from ncps_raw.cli import _interruptible
from ncps_raw.interrupts import LEFT_BY_SECOND, Interrupts, LeaveNow

pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="signals are sent as POSIX systems do")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_stops_and_the_second_leaves(number: signal.Signals) -> None:
    with Interrupts() as interrupts:
        assert (interrupts.stopped(), interrupts.leaving) == (False, False)
        os.kill(os.getpid(), number)
        assert interrupts.stopped()
        assert interrupts.stopped_by == number.name
        with pytest.raises(LeaveNow):
            os.kill(os.getpid(), signal.SIGINT)
        assert interrupts.leaving
        assert interrupts.stopped_by == number.name


def test_where_nothing_can_be_reported_the_first_leaves() -> None:
    with Interrupts() as interrupts:
        interrupts.leave_at_once()
        with pytest.raises(LeaveNow):
            os.kill(os.getpid(), signal.SIGTERM)
        assert interrupts.leaving
    with Interrupts() as interrupts:
        os.kill(os.getpid(), signal.SIGTERM)  # it came before that was known
        with pytest.raises(LeaveNow):
            interrupts.leave_at_once()


def test_nothing_swallows_a_wish_to_leave() -> None:
    assert not issubclass(LeaveNow, Exception)
    assert LEFT_BY_SECOND == 128 + signal.SIGINT


@pytest.mark.parametrize("signals", [1, 2])
def test_leaving_in_the_middle_of_an_import_is_no_fault_of_the_program(signals: int) -> None:
    def run(interrupts: Interrupts) -> int:
        try:
            for _ in range(signals):
                os.kill(os.getpid(), signal.SIGINT)
        except LeaveNow as error:
            raise ImportError("cannot load module") from error
        raise ImportError("cannot load module")

    if signals == 2:
        assert _interruptible(run) == LEFT_BY_SECOND
        return
    with pytest.raises(ImportError):
        _interruptible(run)


def test_asking_for_totals_stops_nothing() -> None:
    with Interrupts() as interrupts:
        os.kill(os.getpid(), signal.SIGUSR1)
        assert interrupts.totals_wanted
        assert not interrupts.stopped()
        interrupts.totals_wanted = False
        os.kill(os.getpid(), signal.SIGUSR1)
        assert interrupts.totals_wanted


def test_handlers_are_put_back_whatever_happens() -> None:
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
    before = [signal.getsignal(number) for number in numbers]

    def breaking(fault: type[BaseException]) -> None:
        with Interrupts():
            assert [signal.getsignal(number) for number in numbers] != before
            raise fault

    for fault in (RuntimeError, LeaveNow):
        with pytest.raises(fault):
            breaking(fault)
        assert [signal.getsignal(number) for number in numbers] == before


def test_entered_twice_the_outermost_counts() -> None:
    before = signal.getsignal(signal.SIGINT)
    with Interrupts() as interrupts:
        with interrupts:
            pass
        os.kill(os.getpid(), signal.SIGINT)
        assert interrupts.stopped_by == "SIGINT"
    assert signal.getsignal(signal.SIGINT) == before


@pytest.mark.parametrize("module", ["dialect", "options", "plan", "interrupts"])
def test_nothing_heavy_is_imported_before_signals_are_flags(module: str) -> None:
    """Where an exception of a signal strikes in an import of C code, an error of that import comes out."""
    code = f"import sys, ncps_raw.{module}; print({{'numpy', 'multiprocessing'}} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
