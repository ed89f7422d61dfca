from dataclasses import FrozenInstanceError, fields

import pytest
from made_runs import clean
from ncps_analysis.model import Distribution, Milestone, RunReport
from ncps_analysis.percentiles import PERCENTILES


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


def test_every_figure_of_time_or_rate_has_its_unit_in_its_name():
    report = clean(10).report()
    units = ("_us", "_s", "_ms", "_ns", "_gbps", "cps", "_share", "_percent", "_per_connection")
    for field in fields(RunReport):
        if isinstance(getattr(report, field.name), float | Distribution):
            assert field.name.endswith(units), field.name


def test_a_report_does_not_change():
    with pytest.raises(FrozenInstanceError):
        clean(1).report().connections = 2
