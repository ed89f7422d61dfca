"""The lab's vocabulary: refused when it cannot be meant, the same after a journey as JSON."""

import json
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ncps_capture.errors import UsageError

from ncps_raw.lab.network import (
    ACTIONS,
    DONE,
    RULE_ACTIONS,
    RULE_DIRECTIONS,
    RULE_KINDS,
    Network,
    Rule,
    Way,
)

numbers = st.integers(0, 10**12)
counts = st.integers(1, 1000)
ways = st.builds(Way, numbers, numbers, numbers, numbers)
rules = st.builds(
    Rule,
    st.sampled_from(RULE_ACTIONS),
    st.sampled_from(RULE_KINDS),
    st.sampled_from(RULE_DIRECTIONS),
    port=st.integers(0, 65535),
    nth=st.lists(counts, max_size=3).map(tuple),
    attempts=counts,
    every=counts,
    count=st.integers(0, 5),
    delay_ns=numbers,
    copies=counts,
    packets=counts,
    code=st.integers(0, 15),
)
networks = st.builds(
    Network, ways, ways, st.lists(rules, max_size=3).map(tuple), st.just(((5, 9), (9, 12))), counts, st.booleans()
)


@given(networks)
def test_a_network_survives_the_journey_to_another_process(network: Network) -> None:
    assert Network.from_plain(json.loads(json.dumps(asdict(network)))) == network


def test_symmetric_is_the_same_both_ways() -> None:
    rule = Rule("drop")
    network = Network.symmetric(5, rule, seed=9)
    assert network.ways() == (Way(5), Way(5))
    assert (network.rules, network.seed) == ((rule,), 9)


def test_every_action_has_a_name_for_what_was_done() -> None:
    assert len(ACTIONS) == len(DONE) == len(set(DONE))


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Way(delay_ns=-1), "negative"),
        (lambda: Rule("lose"), "action of a lab rule must be one of drop, "),
        (lambda: Rule("pass"), "action"),
        (lambda: Rule("queue_full"), "action"),
        (lambda: Rule("drop", "SYN"), "kind of a lab rule"),
        (lambda: Rule("drop", direction="a-b"), "direction of a lab rule"),
        (lambda: Rule("drop", nth=(0,)), "count from 1"),
        (lambda: Rule("drop", every=0), "count from 1"),
        (lambda: Rule("drop", count=-1), "negative"),
        (lambda: Network(stalls=((5, 5),)), "stalls"),
        (lambda: Network(stalls=((5, 9), (8, 10))), "stalls"),
    ],
)
def test_what_cannot_be_meant_is_refused(make: Callable[[], Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        make()
