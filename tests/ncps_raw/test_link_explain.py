"""Four speeds and what they mean."""

import pytest

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


def test_views_hold_the_four_figures() -> None:
    one = Explanation(Speed(30 * M), Speed(110 * M, cpu=0.5), FREE, Speed(29 * M))
    plain = explain.plain(one)
    assert (plain["source_bytes_per_s"], plain["sink_bytes_per_s"], plain["sink_note"]) == (30 * M, None, FREE.why)
    assert plain["bottleneck"] == explain.text(one)[-1]
    assert len(explain.text(one)) == 5
