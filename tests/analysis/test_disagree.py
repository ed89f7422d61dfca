import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_runs import MONOTONIC, S, finish, lossy, repeat_syn, rows
from ncps_analysis.disagree import KEPT, Apart, Largest, of_application, of_kernel
from ncps_analysis.records import NO_KERNEL_RTT
from ncps_capture.segments import UNANSWERED, UNKNOWN


def test_a_lost_syn_is_where_wire_and_kernel_part() -> None:
    records, handshakes = rows(100)
    repeat_syn(records, handshakes, [7])
    repeat_syn(records, handshakes, [30], 2)
    first, second, *others = of_kernel(records, handshakes).rows
    assert first == Apart(
        difference_us=2_000_020 - 1_000,
        start_ns=MONOTONIC + 30_000_000,
        src="127.0.0.1",
        sport=20_030,
        dst="127.0.0.2",
        dport=10_001,
        connect_us=2_000_035,
        kernel_rtt_us=1_000,
        syn_rtt_us=2_000_020,
        syn_repeats=2,
        kernel_retrans=2,
    )
    assert (second.sport, second.difference_us) == (20_007, 1_000_027 - 1_000)
    assert [row.difference_us for row in others] == [3] * (KEPT - 2)
    assert [row.sport for row in others] == [*range(20_000, 20_007), 20_008]  # of equal ones the earliest


def test_a_late_application_is_where_application_and_wire_part() -> None:
    records, handshakes = rows(100)
    records["connected_ns"][50] += S // 2
    first, *others = of_application(records, handshakes).rows
    assert (first.difference_us, first.connect_us, first.syn_rtt_us) == (500_015, 500_035, 20)
    assert {row.difference_us for row in others} == {15}


def test_less_on_the_wire_than_the_kernel_says_is_a_disagreement_too() -> None:
    records, handshakes = rows(3)
    records["kernel_rtt_us"][1] = 50_000
    assert of_kernel(records, handshakes).rows[0].difference_us == 50_000 - 21


def test_what_is_not_known_cannot_disagree() -> None:
    records, handshakes = rows(4)
    records["kernel_rtt_us"][0] = NO_KERNEL_RTT
    records["kernel_rtt_us"][1] = 0  # no sample
    handshakes["state"][2], handshakes["t_synack_ns"][2] = UNANSWERED, UNKNOWN
    assert [row.sport for row in of_kernel(records, handshakes).rows] == [20_003]
    by_application = of_application(records, handshakes).rows
    assert [row.sport for row in by_application] == [20_000, 20_001, 20_003]
    assert (by_application[0].kernel_rtt_us, by_application[0].kernel_retrans) == (None, None)
    assert (by_application[1].kernel_rtt_us, by_application[1].kernel_retrans) == (None, 0)
    records["connected_ns"] = records["start_ns"] - 1_000
    assert of_application(records, handshakes).rows == ()
    assert {row.connect_us for row in of_kernel(records, handshakes).rows} == {None}
    records["kernel_rtt_us"] = [20, 21, 22, 23]
    assert of_kernel(records, handshakes).rows == ()


def test_none_at_all() -> None:
    assert of_kernel(*rows(0)) == of_application(*rows(0)) == Largest() == Largest() + Largest()


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_the_largest_of_the_whole_are_the_largest_of_the_parts(data: st.DataObject) -> None:
    """Cut anywhere, added in any order; differences collide, and so do times."""
    n = data.draw(st.integers(1, 60))
    records, handshakes = rows(n, every_ns=data.draw(st.sampled_from([0, 1_000])))
    kernel = data.draw(st.lists(st.integers(0, 60), min_size=n, max_size=n))
    records["kernel_rtt_us"] = kernel
    order = np.array(data.draw(st.permutations(range(n))), np.int64)
    cuts = sorted(data.draw(st.lists(st.integers(0, n), max_size=4)))
    for measure in (of_kernel, of_application):
        total = Largest()
        for part in np.split(order, cuts):
            total += measure(records[part], handshakes[part])
        assert total == measure(records, handshakes)
        differences = [row.difference_us for row in total.rows]
        assert differences == sorted(differences, reverse=True)
    rtt = [20 + i % 10 for i in range(n)]
    expected = sorted((abs(a - b) for a, b in zip(kernel, rtt, strict=True) if a and a != b), reverse=True)
    assert [row.difference_us for row in of_kernel(records, handshakes).rows] == expected[:KEPT]


@pytest.mark.parametrize("captured", [True, False])
def test_a_report_has_them_where_there_is_a_wire(captured: bool) -> None:
    made = lossy(1000)
    report = (made if captured else finish(made.records, None)).report()
    if not captured:
        assert report.disagreements == ()
        return
    against = [row.against for row in report.disagreements]
    assert against == ["kernel"] * KEPT + ["application"] * KEPT
    first = report.disagreements[0]
    assert (first.difference_us, first.syn_repeats, first.kernel_retrans) == (1_999_029, 2, 2)
    assert first.t_ns == report.start_t_ns + 999 * 1_000_000
