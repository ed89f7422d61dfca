"""Groups of attempts and those that stand out, against a plain count; and that parts add up."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_attempts import attempt, rows
from ncps_analysis.breakdown import KINDS, Breakdown, Outstanding, check_kind
from ncps_capture import segments as sg
from ncps_capture.errors import UsageError

MADE = rows(
    *(
        attempt(n * 700, rtt_us=n, client=f"10.0.0.{n % 7}", dport=80 + n % 3, syn_n=1 + n % 4, frame=n)
        for n in range(200)
    ),
    *(attempt(n, sg.UNANSWERED, client=f"2001:db8::{n % 3}", syn_n=2, retrans_timeout=1) for n in range(9)),
    attempt(0, sg.SYNACK_ONLY, client="10.9.9.9"),
)


@pytest.mark.parametrize("kind", KINDS)
@given(cuts=st.lists(st.integers(0, len(MADE)), max_size=4))
def test_groups_do_not_depend_on_parts(kind: str, cuts: list[int]) -> None:
    parts, whole = Breakdown(kind), Breakdown(kind)
    for part in np.split(MADE, sorted(cuts)):
        parts.add(part)
    whole.add(MADE)
    assert parts.groups() == whole.groups()
    assert sum(group.attempts for group in whole.groups()) == 209
    assert sum(group.syn_rtt_us.n for group in whole.groups()) == 200


def test_figures_of_a_group() -> None:
    breakdown = Breakdown("client")
    breakdown.add(MADE)
    groups = {group.key: group for group in breakdown.groups()}
    wanted = Counter([f"10.0.0.{n % 7}" for n in range(200)] + [f"2001:db8::{n % 3}" for n in range(9)])
    assert {key.replace("::0", "::"): n for key, n in wanted.items()} == {
        key: group.attempts for key, group in groups.items()
    }
    one = groups["10.0.0.1"]
    times = sorted(range(1, 200, 7))
    assert (one.answered, one.unanswered) == (len(times), 0)
    assert (one.syn_rtt_us.min, one.syn_rtt_us.p50, one.syn_rtt_us.max) == (1, times[(len(times) + 1) // 2 - 1], 197)
    assert one.syn_repeats == sum(n % 4 for n in times)
    assert groups["2001:db8::1"].syn_retrans == 3


def test_order_of_groups() -> None:
    minutes, ports = Breakdown("minute"), Breakdown("port")
    minutes.add(MADE)
    ports.add(MADE)
    assert [group.key for group in minutes.groups()] == ["2023-11-14T22:13Z", "2023-11-14T22:14Z", "2023-11-14T22:15Z"]
    counts = [group.attempts for group in ports.groups()]
    assert counts == sorted(counts, reverse=True)
    assert Breakdown("port").groups() == ()


@given(cuts=st.lists(st.integers(0, len(MADE)), max_size=4))
def test_what_stands_out_does_not_depend_on_parts(cuts: list[int]) -> None:
    some = Outstanding(3)
    for part in np.split(MADE, sorted(cuts)):
        some.add(part)
    assert [(one.rtt_first_us, one.frame, one.file) for one in some.slowest(("a",))] == [
        (199, 199, "a"),
        (198, 198, "a"),
        (197, 197, "a"),
    ]
    first = some.repeaters()[0]
    assert len(some.repeaters()) == 3
    repeats = Counter({(f"10.0.0.{n % 7}", 80 + n % 3): 0 for n in range(200)})
    for n in range(200):
        repeats[f"10.0.0.{n % 7}", 80 + n % 3] += n % 4
    assert first.syn_repeats == max(repeats.values())


def test_nothing_stands_out_where_none_is_asked_for() -> None:
    none = Outstanding(0)
    none.add(MADE)
    assert (none.repeaters(), none.slowest(("a",))) == ((), ())


def test_kinds() -> None:
    assert [check_kind(kind) for kind in KINDS] == list(KINDS)
    with pytest.raises(UsageError, match="client, server, port or minute"):
        check_kind("host")
