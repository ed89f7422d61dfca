from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_runs import (
    MONOTONIC,
    PATHS,
    S,
    a_run,
    clean,
    fail,
    finish,
    leave_pending,
    lossy,
    never_started,
    repeat_syn,
    rows,
)
from ncps_analysis.assemble import basis_of
from ncps_analysis.join import hash_of, path_words, tuples_of_handshakes, tuples_of_records
from ncps_analysis.records import IO_FAILED, NO_KERNEL_RTT, ClockPairs
from ncps_analysis.tally import Tally, add_errors, count, count_records
from ncps_capture.segments import UNKNOWN


def counted(made, **changes) -> Tally:
    return count(made.records, made.handshakes, basis_of(made.run))


def test_a_clean_run_is_known_from_end_to_end():
    tally = counted(clean(1000))
    assert (tally.established, tally.failed, tally.unfinished, tally.recorded.connections) == (1000, 0, 0, 1000)
    assert (tally.recorded.matched, tally.recorded.wire_known, tally.claimed) == (1000, 1000, 1000)
    assert tally.recorded.syn_rtt.values.tolist() == tally.recorded.path_rtt.values.tolist() == list(range(20, 30))
    assert tally.recorded.syn_rtt.counts.tolist() == [100] * 10
    assert tally.recorded.before.values.tolist() == [5]
    assert tally.recorded.after.values.tolist() == [10]
    assert tally.recorded.connect.values.tolist() == list(range(35, 45))
    assert tally.recorded.kernel_rtt.values.tolist() == list(range(23, 33))
    assert (tally.recorded.syn_repeats, tally.recorded.causes, tally.recorded.wire_retrans_connections) == (
        0,
        (0, 0, 0, 0),
        0,
    )


def test_a_stepped_clock_does_not_part_connections_from_their_handshakes():
    """Half way between two readings 600 us apart a converted time is wrong by 300 us."""
    made = clean(1000)
    stepped = ClockPairs(
        np.array([MONOTONIC - 100 * S, MONOTONIC + 100 * S], np.int64),
        made.run.clock.realtime_ns[0] + np.array([-100 * S - 300_000, 100 * S + 300_000], np.int64),
    )
    made.handshakes["t_syn_first_ns"] += 300_000
    made.handshakes["t_synack_ns"] += 300_000
    lost = count(made.records, made.handshakes, basis_of(made.run))
    assert lost.recorded.matched < 1000
    found = count(made.records, made.handshakes, basis_of(replace(made.run, clock=stepped)))
    assert found.recorded.matched == 1000


def test_durations_are_rounded_down_to_whole_microseconds():
    records, handshakes = rows(1)
    handshakes["t_synack_ns"] += 999
    records["connected_ns"] += 999
    tally = counted(finish(records, handshakes))
    assert tally.recorded.syn_rtt.values.tolist() == [20]
    assert tally.recorded.connect.values.tolist() == [35]


def test_repeated_syns_count_once_each_and_never_in_the_path_rtt():
    made = lossy(1000)
    tally = counted(made)
    assert (tally.established, tally.failed, tally.unfinished) == (989, 10, 1)
    assert tally.recorded.causes == (12, 0, 0, 0)
    assert (tally.recorded.syn_repeats, tally.recorded.wire_retrans_connections) == (12, 11)
    assert tally.recorded.syn_rtt.max == 2_000_029
    assert tally.recorded.path_rtt.max == 29
    assert tally.recorded.disagreeing == 0


def test_only_headline_causes_make_a_connection_one_with_retransmits():
    records, handshakes = rows(4)
    for i, cause in enumerate(("timeout", "after_synack", "after_rst", "after_challenge")):
        handshakes[f"retrans_{cause}"][i] = handshakes["syn_n"][i] = 2
        handshakes["syn_n"][i] = 3
    tally = counted(finish(records, handshakes))
    assert tally.recorded.causes == (2, 2, 2, 2)
    assert (tally.recorded.syn_repeats, tally.recorded.wire_retrans_connections) == (8, 2)
    assert tally.recorded.disagreeing == 4  # the kernel said nothing was repeated


def test_the_kernel_cannot_time_a_repeated_syn_so_the_connect_time_stands_in():
    records, handshakes = rows(100)
    repeat_syn(records, handshakes, [7])
    records["kernel_rtt_us"][8] = 0  # no sample, not zero microseconds
    tally = counted(finish(records, None))
    assert (
        tally.recorded.kernel_replaced,
        tally.recorded.kernel_retrans,
        tally.recorded.kernel_retrans_connections,
    ) == (1, 1, 1)
    assert tally.recorded.kernel_syn_rtt.max == 1_000_000 + 5 + 27 + 10
    assert tally.recorded.kernel_syn_rtt.n == 99
    assert tally.recorded.kernel_rtt.max == 1_000
    assert tally.recorded.kernel_rtt.min > 0
    assert tally.recorded.matched == tally.recorded.wire_known == 0


def test_without_kernel_figures_nothing_is_made_up():
    records, _ = rows(10)
    records["kernel_rtt_us"] = NO_KERNEL_RTT
    tally = counted(finish(records, None))
    assert (
        tally.recorded.kernel_known,
        tally.recorded.kernel_retrans,
        tally.recorded.kernel_syn_rtt.n,
        tally.recorded.connect.n,
    ) == (0, 0, 0, 10)


def test_warm_up_is_in_the_totals_but_not_in_the_figures():
    made = clean(1000, record_start_ns=MONOTONIC + S // 2)
    tally = counted(made)
    assert tally.established == 1000
    assert (
        tally.recorded.connections
        == tally.recorded.matched
        == tally.recorded.syn_rtt.n
        == tally.recorded.connect.n
        == tally.recorded.kernel_rtt.n
        == 500
    )
    assert tally.claimed == 1000
    assert tally.established_ms.min == 0
    nothing = counted(clean(1000, record_start_ns=UNKNOWN))
    assert (nothing.established, nothing.recorded.connections, nothing.recorded.matched) == (1000, 0, 0)


def test_failures_by_errno_with_their_times():
    records, handshakes = rows(20)
    fail(records, handshakes, np.array([3, 9]), 111)
    fail(records, handshakes, np.array([4]), 113)
    never_started(records, np.array([5, 6]), 99)
    records["outcome"][7:9] = IO_FAILED  # ended early: errno 0
    tally = counted(finish(records, None))
    assert (tally.failed, tally.not_started, tally.io_failed, tally.established) == (3, 2, 2, 15)
    ms = 1_000_000
    assert tally.errors == {
        0: (2, MONOTONIC + 7 * ms + 92_000, MONOTONIC + 8 * ms + 93_000),
        99: (2, MONOTONIC + 5 * ms + 1_000, MONOTONIC + 6 * ms + 1_000),
        111: (2, MONOTONIC + 3 * ms + 40_000, MONOTONIC + 9 * ms + 40_000),
        113: (1, MONOTONIC + 4 * ms + 40_000, MONOTONIC + 4 * ms + 40_000),
    }
    assert add_errors((1, 5, 9), (2, 3, 8)) == (3, 3, 9)


def test_retransmits_of_attempts_that_were_never_established_are_apart():
    records, handshakes = rows(10)
    leave_pending(records, handshakes, np.array([9]))
    handshakes["syn_n"][9], handshakes["retrans_timeout"][9] = 4, 3
    tally = counted(finish(records, handshakes))
    assert (tally.syn_retrans_failed, tally.recorded.causes, tally.recorded.syn_repeats) == (3, (0, 0, 0, 0), 0)


def test_a_connection_established_before_it_started_is_counted_and_not_measured():
    records, _ = rows(10)
    records["connected_ns"][4] = records["start_ns"][4] - 5_000
    tally = counted(finish(records, None))
    assert (tally.recorded.absurd, tally.recorded.connect.n, tally.recorded.connections) == (1, 9, 10)


def test_what_the_capture_lost_is_unknown():
    records, handshakes = rows(100)
    repeat_syn(records, handshakes, [20])
    handshakes["t_syn_first_ns"][20] += S  # its first SYN was dropped by the capture: a plausible short handshake
    handshakes["syn_n"][20] = 1
    handshakes["retrans_timeout"][20] = 0
    lost = np.delete(handshakes, [30, 31])
    tally = counted(finish(records, lost, wire={"dropped": 3}))
    assert (tally.recorded.connections, tally.recorded.matched, tally.recorded.wire_known) == (100, 98, 97)
    assert tally.recorded.syn_rtt.n == tally.recorded.path_rtt.n == 97
    blind = counted(finish(records, lost, wire={"dropped": None}))
    assert blind.recorded.wire_known == 97
    trusting = counted(finish(records, lost))
    assert trusting.recorded.wire_known == 98
    assert trusting.recorded.disagreeing == 1


def as_server(made_records, handshakes):
    """The same connections seen by the accepting side, 10 us after each was established."""
    records = made_records.copy()
    records["lport"], records["rport"] = made_records["rport"], made_records["lport"]
    records["start_ns"] = records["connected_ns"] = made_records["connected_ns"] + 10_000
    return records, handshakes


def test_a_server_has_no_connect_time_and_its_capture_shows_its_own_answer_time():
    records, handshakes = as_server(*rows(100))
    handshakes["synack_n"][3], handshakes["synack_retrans"][3] = 3, 2
    records["kernel_retrans"][3], records["kernel_rtt_us"][3] = 2, 1_000
    made = finish(records, handshakes, role="server", paths=((PATHS[0][1], PATHS[0][0]),))
    tally = counted(made)
    assert (tally.recorded.matched, tally.recorded.answer.n, tally.recorded.syn_rtt.n, tally.recorded.path_rtt.n) == (
        100,
        100,
        0,
        0,
    )
    assert (tally.recorded.connect.n, tally.recorded.kernel_replaced, tally.recorded.kernel_syn_rtt.n) == (0, 0, 99)
    assert (tally.recorded.synack_retrans, tally.recorded.wire_retrans_connections, tally.recorded.disagreeing) == (
        2,
        1,
        0,
    )


@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_the_cut_into_parts_cannot_be_seen(data):
    """Any partition by four-tuple, added in any order, counts the same as all at once."""
    made = lossy(200, wire={"dropped": data.draw(st.sampled_from([0, 1]))})
    parts = data.draw(st.integers(1, 5))
    words, basis = path_words(PATHS), basis_of(made.run)
    of_records = hash_of(tuples_of_records(made.records, words, "client")) % np.uint64(parts)
    of_handshakes = hash_of(tuples_of_handshakes(made.handshakes)) % np.uint64(parts)
    total = Tally()
    for part in data.draw(st.permutations(range(parts))):
        total += count(made.records[of_records == part], made.handshakes[of_handshakes == part], basis)
    assert vars(total) == vars(counted(made))


def test_without_a_capture_records_may_be_cut_anywhere():
    made = finish(lossy(200).records, None)
    basis = basis_of(made.run)
    total = Tally()
    for part in np.array_split(made.records, 7):
        total += count_records(part, basis)
    assert vars(total) == vars(counted(made))


def test_no_rows_at_all():
    assert vars(count_records(rows(0)[0], basis_of(a_run()))) == vars(Tally())
    assert counted(clean(0)).recorded.connections == 0


@pytest.mark.parametrize("paths", [(("", "127.0.0.2"),), (("127.0.0.9", "127.0.0.2"),)])
def test_another_or_unknown_address_of_this_side_matches_nothing(paths):
    assert counted(clean(10, paths=paths)).recorded.matched == 0
