import errno

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_runs import (
    EPOCH,
    MONOTONIC,
    PATHS,
    S,
    clean,
    fail,
    finish,
    leave_pending,
    lossy,
    never_started,
    none_established,
    repeat_syn,
    rows,
)
from ncps_analysis.assemble import EARLY_END
from ncps_analysis.figures import distribution, identities, milestones
from ncps_analysis.histogram import Histogram
from ncps_analysis.model import RepeatCauses
from ncps_analysis.quantities import Distribution, Milestone
from ncps_analysis.records import IO_FAILED, NO_KERNEL_RTT
from ncps_capture.segments import UNKNOWN, Books


def histogram(*samples: int) -> Histogram:
    return Histogram.of(np.array(samples, np.int64))


def test_distribution_of_three_samples_has_no_holes():
    assert distribution(histogram(61, 19, 19)) == Distribution(3, 19, 19, 19, 33.0, 61, 61, 61, 61, 61, 61, 61)
    assert distribution(histogram(5)) == Distribution(1, 5, 5, 5, 5.0, 5, 5, 5, 5, 5, 5, 5)
    assert distribution(Histogram.empty()) == Distribution()


# ---- milestones and rates ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n", "ranks"),
    [(1, [1]), (99_999, [99_999]), (100_000, [100_000]), (100_001, [100_000, 100_001]), (200_000, [100_000, 200_000])],
)
def test_every_100_000th_and_the_last_connection_is_a_milestone(n, ranks):
    at = milestones(histogram(*(i // 60 for i in range(n))))
    assert [m.n for m in at] == ranks
    assert [m.t_ms for m in at] == [(rank - 1) // 60 for rank in ranks]


def test_at_most_20_000_milestones_and_the_last():
    many = Histogram(np.array([1, 500_000_000], np.int64), np.array([1_000_000_000, 1_500_000_000], np.int64))
    at = milestones(many)
    assert len(at) == 20_001
    assert at[0] == Milestone(100_000, 1)
    assert at[19_999] == Milestone(2_000_000_000, 500_000_000)
    assert at[-1] == Milestone(2_500_000_000, 500_000_000)


def test_rates_are_of_the_recorded_time():
    report = clean(1000, record_start_ns=MONOTONIC + S // 2, end_ns=MONOTONIC + S, warmup_s=0.5).report()
    assert (report.connections, report.recorded_s, report.cps) == (500, 0.5, 1000.0)
    assert (report.rx_gbps, report.tx_gbps) == (2.0, 4.0)
    assert report.milestones == (Milestone(500, 499),)


@pytest.mark.parametrize("start", [UNKNOWN, MONOTONIC + 10 * S, MONOTONIC + 20 * S])
def test_a_run_that_ended_within_its_warm_up_recorded_nothing(start):
    report = clean(100, record_start_ns=start, warmup_s=20.0).report()
    assert (report.connections, report.established, report.attempted) == (0, 100, 100)
    assert (report.recorded_s, report.cps, report.rx_gbps) == (0.0, None, None)
    assert report.syn_rtt_us == report.connect_us == Distribution()
    assert (report.matched_share, report.milestones) == (None, ())
    assert any("within the warm-up" in note for note in report.notes)
    assert report.problems == ()


def test_connections_let_finish_are_measured_but_in_no_rate():
    """Without them the slowest would be missing; with them in the rates a straggler would bend the rate."""
    report = lossy(1000, end_ns=MONOTONIC + S).report()
    assert (report.connections, report.connections_late, report.cps) == (989, 11, 978.0)
    assert report.milestones == (Milestone(978, 997),)
    assert report.syn_rtt_us.n == report.connect_us.n == report.matched == 989
    assert report.syn_rtt_us.max == 2_000_029
    assert report.attempted == report.established + report.failed + report.unfinished
    first = report.in_time
    assert (first.connections, first.syn_rtt_us.n, first.syn_rtt_us.max) == (978, 978, 29)
    assert (first.retrans_share_percent, first.retrans_per_connection) == (0.0, None)
    assert report.retrans_connections == 11


# ---- sources -------------------------------------------------------------------------------------------------


def test_with_a_capture_the_wire_is_the_source():
    report = lossy(1000).report()
    assert (report.rtt_source, report.retrans_source) == ("wire", "wire")
    assert report.syn_rtt_us.max == 2_000_029
    assert report.path_rtt_us.max == 29
    assert report.kernel_rtt_us.max == 1_000
    assert (report.syn_retrans, report.syn_repeats, report.synack_retrans) == (12, 12, 0)
    assert report.syn_repeat_causes == RepeatCauses(timeout=12)
    assert (report.retrans_known, report.retrans_connections) == (989, 11)
    assert report.retrans_share_percent == pytest.approx(100 * 11 / 989)
    assert report.retrans_per_connection == pytest.approx(12 / 11)
    assert (report.matched, report.matched_share, report.dropped_by_capture) == (989, 1.0, 0)
    assert (report.rtt_unknown, report.kernel_replaced) == (0, 0)
    assert report.overhead_before_us.p50 == 5
    assert report.overhead_after_us.p50 == 10
    assert report.problems == ()
    assert report.notes == ()


def test_without_a_capture_the_kernel_is_and_says_what_it_cannot_time():
    records, handshakes = rows(100)
    repeat_syn(records, handshakes, [7])
    report = finish(records, None, capture_problem="no right to capture").report()
    assert (report.rtt_source, report.retrans_source) == ("kernel", "kernel")
    assert report.syn_rtt_us.max == 1_000_042
    assert (report.kernel_replaced, report.syn_retrans) == (1, 1)
    assert report.synack_retrans is report.syn_repeats is report.syn_repeat_causes is None
    assert report.path_rtt_us == report.overhead_before_us == Distribution()
    assert report.dropped_by_capture is report.matched is report.matched_share is report.capture is None
    assert report.capture_problem == "no right to capture"
    assert any("connect time stands in" in note for note in report.notes)


def test_with_neither_source_everything_is_unknown_and_nothing_zero():
    records, _ = rows(10)
    records["kernel_rtt_us"] = NO_KERNEL_RTT
    report = finish(records, None, kernel_rtt=False).report()
    assert (report.rtt_source, report.retrans_source) == ("unknown", "unknown")
    assert report.syn_rtt_us == report.kernel_rtt_us == Distribution()
    assert report.syn_retrans is report.retrans_share_percent is report.retrans_per_connection is None
    assert (report.rtt_unknown, report.connect_us.n) == (10, 10)


def test_a_capture_of_the_wrong_interface_is_a_problem_and_the_kernel_answers():
    records, _ = rows(10)
    report = finish(records, rows(0)[1], wire={"interface": "eth7"}).report()
    assert (report.rtt_source, report.retrans_source) == ("kernel", "kernel")
    assert (report.matched, report.matched_share) == (0, 0.0)
    assert any("none of 10 connections" in problem and "eth7" in problem for problem in report.problems)


def test_missing_handshakes_without_drops_are_a_problem():
    records, handshakes = rows(100)
    report = finish(records, handshakes[:-3]).report()
    assert (report.rtt_source, report.matched, report.rtt_unknown) == ("wire", 97, 3)
    assert any(p.startswith("3 of 100 connections were not found") for p in report.problems)


def test_drops_leave_figures_out_and_say_so():
    records, handshakes = rows(100)
    records["kernel_retrans"][5] = 1
    report = finish(records, handshakes, wire={"dropped": 2}).report()
    assert (report.matched, report.syn_rtt_us.n, report.rtt_unknown, report.retrans_known) == (100, 99, 1, 99)
    assert report.dropped_by_capture == 2
    assert report.syn_retrans_failed is None
    assert any("dropped 2 packets" in note and "of the 100 found 1 could not be" in note for note in report.notes)


def test_a_capture_that_died_is_a_problem_and_its_drops_are_unknown():
    report = finish(*rows(100), wire={"dropped": None, "died": "killed by signal 9"}).report()
    assert report.dropped_by_capture is None
    assert any("killed by signal 9" in problem for problem in report.problems)
    assert any("an unknown number of packets" in note for note in report.notes)


def test_a_server_reports_synack_repeats_and_the_kernels_round_trip():
    records, handshakes = rows(100)
    records["lport"], records["rport"] = records["rport"].copy(), records["lport"].copy()
    records["start_ns"] = records["connected_ns"]
    handshakes["synack_n"][3], handshakes["synack_retrans"][3] = 3, 2
    records["kernel_retrans"][3] = 2
    server = {"role": "server", "paths": ((PATHS[0][1], PATHS[0][0]),)}
    report = finish(records, handshakes, **server).report()
    assert (report.rtt_source, report.retrans_source, report.matched) == ("kernel", "wire", 100)
    assert (report.synack_retrans, report.syn_retrans, report.retrans_connections) == (2, 0, 1)
    assert report.retrans_per_connection == 2.0
    assert (report.answer_us.min, report.answer_us.max) == (20, 29)
    assert (report.connect_us.n, report.rtt_unknown) == (0, 1)
    assert report.capture.vantage == "server"
    bare = finish(records, None, **server).report()
    assert (bare.retrans_source, bare.synack_retrans, bare.syn_retrans) == ("kernel", 2, None)
    assert bare.syn_rtt_us.n == 99


# ---- books -----------------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_the_books_balance_for_every_mixture_of_outcomes(data):
    n = data.draw(st.integers(0, 40))
    records, handshakes = rows(n)
    fate = np.array(data.draw(st.lists(st.integers(0, 4), min_size=n, max_size=n)), np.int64)
    fail(records, handshakes, np.flatnonzero(fate == 1))
    leave_pending(records, handshakes, np.flatnonzero(fate == 2))
    never_started(records, np.flatnonzero(fate == 3))
    records["outcome"][fate == 4] = IO_FAILED
    captured = data.draw(st.booleans())
    seen = handshakes[fate != 3] if captured else None
    start = MONOTONIC + data.draw(st.integers(0, n)) * 1_000_000
    report = finish(records, seen, record_start_ns=start).report()
    assert report.attempted == report.established + report.failed + report.unfinished == n - int((fate == 3).sum())
    assert report.not_started == int((fate == 3).sum())
    assert report.connections <= report.established
    assert report.syn_rtt_us.n + report.rtt_unknown == report.connections
    assert sum(error.count for error in report.errors) == report.failed + report.not_started + report.io_failed
    assert report.problems == ()


def test_identities_name_every_term_that_is_not_zero():
    books = Books(
        syn=15, syn_counted=1, syn_duplicate=2, syn_malformed=3, syn_fragment=4, syn_too_short=5,
        attempts=15_000, answered=14_986, refused=2, icmp_refused=3, unanswered=4, simultaneous=5,
    )  # fmt: skip
    assert identities(books) == (
        "attempts 15,000 = answered 14,986 + refused 2 + refused by ICMP 3 + unanswered 4 + simultaneous 5",
        "SYNs captured 15 = sent 1 + duplicate 2 + malformed 3 + fragment 4 + too short 5",
    )
    assert identities(Books()) == ()
    assert identities(Books(syn=2)) == ("SYNs captured 2 != 0",)
    assert identities(Books(answered=3)) == ("attempts 0 != answered 3",)


# ---- failures ---------------------------------------------------------------------------------------------------


def test_errors_have_names_counts_and_wall_clock_times_most_frequent_first():
    report = none_established(20).report()
    (error,) = report.errors
    assert (error.errno, error.name, error.count) == (errno.ECONNREFUSED, "ECONNREFUSED", 20)
    assert error.first_t_ns == EPOCH + 40_000
    assert error.last_t_ns == EPOCH + 19_000_000 + 40_000
    assert (report.connections, report.failed, report.established) == (0, 20, 0)


def test_the_workers_table_of_errors_fills_in_what_no_record_tells():
    records, handshakes = rows(10)
    fail(records, handshakes, np.array([1, 2]), 111)
    table = ((111, 2, MONOTONIC + 5, MONOTONIC + 9), (24, 7, MONOTONIC, MONOTONIC + S), (12345, 1, UNKNOWN, UNKNOWN))
    errors = finish(records, handshakes, first_errors=table).report().errors
    assert [(e.name, e.count) for e in errors] == [("EMFILE", 7), ("ECONNREFUSED", 2), ("E12345", 1)]
    assert (errors[0].first_t_ns, errors[0].last_t_ns) == (EPOCH, EPOCH + S)
    assert (errors[1].first_t_ns, errors[1].last_t_ns) == (EPOCH + 5, EPOCH + 9)
    assert (errors[2].first_t_ns, errors[2].last_t_ns) == (None, None)


def test_an_early_end_has_a_name_of_its_own():
    records, _ = rows(3)
    records["outcome"][1] = IO_FAILED
    report = finish(records, None).report()
    assert [(e.errno, e.name, e.count) for e in report.errors] == [(0, EARLY_END, 1)]
    assert report.io_failed == 1
