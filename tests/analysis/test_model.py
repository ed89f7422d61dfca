from dataclasses import FrozenInstanceError, fields

import pytest
from made_runs import clean
from ncps_analysis.model import RunReport
from ncps_analysis.quantities import Distribution


def test_every_figure_of_time_or_rate_has_its_unit_in_its_name():
    report = clean(10).report()
    units = ("_us", "_s", "_ms", "_ns", "_gbps", "cps", "_share", "_percent", "_per_connection")
    for field in fields(RunReport):
        if isinstance(getattr(report, field.name), float | Distribution):
            assert field.name.endswith(units), field.name


def test_a_report_does_not_change():
    with pytest.raises(FrozenInstanceError):
        clean(1).report().connections = 2
