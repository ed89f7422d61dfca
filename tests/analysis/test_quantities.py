"""Distributions and milestones: what is unknown, and what is whole."""

import subprocess
import sys
from dataclasses import fields

import pytest
from ncps_analysis.percentiles import PERCENTILES
from ncps_analysis.quantities import Distribution, Milestone


def test_no_samples_are_unknown():
    empty = Distribution()
    assert empty.n == 0
    assert {getattr(empty, field.name) for field in fields(Distribution) if field.name != "n"} == {None}


def test_a_distribution_has_the_percentiles_of_the_one_definition_in_rising_order():
    names = [field.name for field in fields(Distribution)]
    assert [name for name in names if name.startswith("p")] == [name for name, _ in PERCENTILES]
    assert (names[0], names[1], names[-1]) == ("n", "min", "max")


@pytest.mark.parametrize(
    ("n", "t_ms", "cps"),
    [(7, 0, 7_000), (7, 1, 7_000), (100_000, 1678, 59_594), (556_947, 10_002, 55_683), (1, 2_000, 0)],
)
def test_the_rate_at_a_milestone_is_whole_and_finite(n, t_ms, cps):
    assert Milestone(n, t_ms).cps == cps


def test_a_report_of_a_capture_does_not_load_that_of_a_run():
    code = "import sys, ncps_analysis.captured_summary; print('ncps_analysis.model' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
