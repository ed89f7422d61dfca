"""Every scenario: what the program reports is what the relay between its two ends has counted.

The scenarios mostly wait (a kernel sends a lost SYN again after a second), so several are played at a time. Those that
are selected are begun with the first, and each test waits for its own.
"""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from ncps_raw.lab.scenario import Scenario
from ncps_raw.lab.stage import Outcome, play, scenarios

pytestmark = [pytest.mark.namespaces, pytest.mark.capture]

AT_A_TIME = 6
OVER_IPV6_TOO = ("syn_lost", "synack_lost")
SCENARIOS = {one.name: one for one in scenarios()}
SCENARIOS |= {f"{name}-ipv6": replace(SCENARIOS[name], ip=6) for name in OVER_IPV6_TOO}

STOPPED_US = 100_000
"""A relay that was so late stood still with its machine: what its path did then is not what the scenario says."""
TRIES_MORE = 2


@pytest.fixture(scope="module")
def outcomes(request: pytest.FixtureRequest, ncps: str) -> Iterator[dict[str, Future[Outcome]]]:
    selected = [item.callspec.params["name"] for item in request.session.items if item.path == request.path]
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        try:
            yield {name: pool.submit(play, SCENARIOS[name], (ncps,)) for name in selected}
        finally:
            pool.shutdown(cancel_futures=True)


def unknown_here(scenario: Scenario) -> str | None:
    """A sysctl of the scenario that this kernel has not got."""
    for key in (*scenario.sysctls_a, *scenario.sysctls_b):
        if not Path("/proc/sys", *key.split(".")).exists():
            return key
    return None


@pytest.mark.parametrize("name", SCENARIOS)
def test_scenario(name: str, outcomes: dict[str, "Future[Outcome]"], ncps: str) -> None:
    scenario = SCENARIOS[name]
    if (key := unknown_here(scenario)) is not None:
        pytest.skip(f"this kernel has no {key}")
    outcome = outcomes[name].result()
    for _ in range(TRIES_MORE):
        if not outcome.failures() or outcome.figures.get("late_us.max", 0) < STOPPED_US:
            break
        outcome = play(scenario, (ncps,))
    aside = {name: outcome.figures.get(name) for name in ("late_us.max", "clock_moved_us")}
    assert not outcome.failures(), f"{scenario.about}\n{outcome.failures()}\n{aside}\n{outcome.remarks}"
