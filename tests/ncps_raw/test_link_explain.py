"""Four speeds and what they mean."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ncps_raw.link import explain
from ncps_raw.link.explain import Explanation, Speed

M = 1e6
FREE = Speed(None, "no limit: discarded", unlimited=True)
UNKNOWN = Speed(None, "needs --both")


@pytest.mark.parametrize(
    ("source", "network", "sink", "together", "begins"),
    [
        (Speed(30 * M), Speed(110 * M), Speed(500 * M), Speed(29 * M), "The source is the bottleneck"),
        (Speed(300 * M), Speed(110 * M), Speed(500 * M), Speed(108 * M), "The network is the bottleneck"),
        (Speed(300 * M), Speed(110 * M), Speed(50 * M), Speed(49 * M), "The sink is the bottleneck"),
        (Speed(300 * M), Speed(310 * M), Speed(320 * M), Speed(100 * M), "The machine is the bottleneck"),
        (Speed(30 * M), Speed(110 * M), Speed(500 * M), Speed(40 * M), "No part can be named: all together was faster"),
        (FREE, Speed(110 * M), FREE, Speed(300 * M), "No part can be named: all together was faster than the network"),
        (Speed(30 * M), UNKNOWN, UNKNOWN, Speed(90 * M), "The bottleneck is the network or the far end"),
        (FREE, Speed(900 * M, cpu=0.99), FREE, Speed(900 * M), "The machine is the bottleneck"),
        (FREE, Speed(110 * M, cpu=0.1), FREE, Speed(110 * M), "The network is the bottleneck"),
        (Speed(30 * M), UNKNOWN, UNKNOWN, Speed(29 * M), "The source is the bottleneck"),
        (FREE, Speed(1.0), FREE, Speed(None, "nothing came through"), "Nothing can be said"),
        (
            FREE,
            Speed(1.0),
            FREE,
            Speed(None, "too short to tell"),
            "Nothing can be said about what limits it: too short",
        ),
    ],
)
def test_the_bottleneck_is_named_with_all_figures(
    source: Speed, network: Speed, sink: Speed, together: Speed, begins: str
) -> None:
    text = explain.sentence(Explanation(source, network, sink, together))
    assert text.startswith(begins)
    if together.bytes_per_s is not None:
        assert all(f"{name} " in text for name in explain.PARTS)


@pytest.mark.parametrize(
    ("limited", "busy", "begins"),
    [
        (0.9, 1.0, "The far end is the bottleneck"),
        (0.0, 0.1, "The source is the bottleneck"),
        (0.0, 1.0, "The network is the bottleneck, as far as this end can see"),
        (None, None, "The bottleneck is the network or the far end"),
    ],
)
def test_without_the_far_end_the_kernel_s_waiting_decides(
    limited: float | None, busy: float | None, begins: str
) -> None:
    one = Explanation(FREE, UNKNOWN, UNKNOWN, Speed(100 * M), limited, busy)
    assert explain.sentence(one).startswith(begins)


def test_a_limit_that_was_asked_for_is_what_limits() -> None:
    alone = (Speed(300 * M), Speed(110 * M), FREE)
    for together, begins in ((10 * M, "The limit is the bottleneck, 10 MB/s as asked"), (9 * M, "The machine")):
        assert explain.sentence(Explanation(*alone, Speed(together), limit=10_000_000)).startswith(begins)


@pytest.mark.parametrize(
    ("source", "sink", "suspects"),
    [
        (UNKNOWN, FREE, "or it is the source, which was not measured"),
        (Speed(300 * M), UNKNOWN, "or it is the sink, which was not measured"),
        (UNKNOWN, UNKNOWN, "or it is the source or the sink, which was not measured"),
    ],
)
def test_a_part_that_was_not_measured_stays_a_suspect(source: Speed, sink: Speed, suspects: str) -> None:
    """Slower than all that was measured: the machine is one explanation, what nobody has measured the other one."""
    said = explain.sentence(Explanation(source, Speed(310 * M), sink, Speed(100 * M)))
    assert said.startswith("No part can be named: all together is slower than each part that was measured")
    assert suspects in said
    assert "The machine is the bottleneck" not in said
    as_fast = explain.sentence(Explanation(source, Speed(110 * M), sink, Speed(108 * M)))
    assert as_fast.startswith("The network is the bottleneck")


RATES = st.none() | st.floats(1e3, 1e11)


@given(RATES, RATES, RATES, st.floats(1e3, 1e11), st.none() | st.floats(0, 1), st.none() | st.integers(1000, 10**11))
def test_no_part_is_named_that_was_slower_than_the_whole(
    source: float | None,
    network: float | None,
    sink: float | None,
    together: float,
    busy: float | None,
    limit: int | None,
) -> None:
    speeds = {name: FREE if rate is None else Speed(rate) for name, rate in (("source", source), ("sink", sink))}
    net = UNKNOWN if network is None else Speed(network)
    one = Explanation(speeds["source"], net, speeds["sink"], Speed(together), None, busy, limit)
    said = explain.sentence(one)
    named = re.match(r"The (source|network|sink|machine) is the bottleneck", said)
    measured = {name: rate for name, rate in (("source", source), ("network", network), ("sink", sink)) if rate}
    if named and network is not None:
        slowest = min(measured.values())
        if named[1] == "machine":
            assert together < slowest
        else:
            assert measured[named[1]] == slowest
            assert 0.75 * slowest <= together <= 1.25 * slowest


def test_views_hold_the_four_figures() -> None:
    one = Explanation(Speed(30 * M), Speed(110 * M, cpu=0.5), FREE, Speed(29 * M))
    plain = explain.plain(one)
    assert (plain["source_bytes_per_s"], plain["sink_bytes_per_s"], plain["sink_note"]) == (30 * M, None, FREE.why)
    assert plain["bottleneck"] == explain.text(one)[-1]
    assert len(explain.text(one)) == 5
