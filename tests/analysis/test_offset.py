from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from made_runs import EPOCH, MONOTONIC, PATHS, S, finish, rows
from ncps_analysis.join import Tuples, path_words, tuples_of_handshakes, tuples_of_records
from ncps_analysis.offset import estimate, one_clock, shifted, slack_ns
from ncps_analysis.records import ClockOffset, ClockPairs
from ncps_capture.segments import UNKNOWN

HOUR = 3600 * S
MS = 1_000_000
US = 1_000


def tuples(ports) -> Tuples:
    ports = np.asarray(ports, np.uint64)
    fixed = [np.full(len(ports), value, np.uint64) for value in (0, 1, 0, 2)]
    return Tuples((*fixed, ports, np.full(len(ports), 80, np.uint64)), ports != 0)


def told(ports, starts, seen_ports, first_syns) -> ClockOffset | None:
    return estimate(tuples(ports), np.asarray(starts, np.int64), tuples(seen_ports), np.asarray(first_syns, np.int64))


class World:
    """Connects of a client and their SYNs by another clock. ``reuse``: uses of each tuple, one after the other."""

    def __init__(self, seed: int, n: int = 400, reuse: int = 1, run_ns: int = 10 * S) -> None:
        self.rng = np.random.default_rng(seed)
        ports = -(-n // reuse)
        self.start = EPOCH + np.sort(self.rng.integers(0, run_ns, n))
        self.port = 1000 + np.arange(n) % ports
        self.delay = 10 * US + self.rng.exponential(20 * US, n).astype(np.int64)  # connect() to SYN
        self.late = self.rng.random(n) < 0.02
        self.delay[self.late] += self.rng.integers(0, 15 * MS, int(self.late.sum()))

    def syns(self, offset: int, ppm: float = 0.0) -> np.ndarray:
        true = self.start + self.delay
        return true + offset + np.rint((true - EPOCH) * (ppm / 1e6)).astype(np.int64)

    def median(self) -> int:
        return int(np.median(self.delay))


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 1 << 20),
    offset=st.integers(-3 * HOUR, 3 * HOUR) | st.just(-EPOCH),
    ppm=st.floats(-50, 50) | st.just(0.0),
    reuse=st.sampled_from([1, 2, 7, 40]),
    missing=st.sampled_from([0.0, 0.1, 0.6]),
)
def test_any_offset_is_found_with_drift_reuse_and_missing_packets(seed, offset, ppm, reuse, missing) -> None:
    world = World(seed, reuse=reuse)
    keep = world.rng.random(len(world.start)) >= missing
    order = world.rng.permutation(int(keep.sum()))  # what comes first does not matter
    found = told(world.port, world.start, world.port[keep][order], world.syns(offset, ppm)[keep][order])
    assert found is not None
    truth = offset + world.median() + (found.at_ns - EPOCH) * ppm / 1e6
    assert found.low_ns <= found.offset_ns <= found.high_ns
    assert abs(found.offset_ns - truth) <= 60 * US
    assert found.low_ns - 60 * US <= truth <= found.high_ns + 60 * US
    assert found.n >= 0.8 * keep.sum()
    if abs(ppm) >= 40 and missing < 0.5:
        assert abs(found.drift_ppm - ppm) < 10
    ends = shifted(ClockPairs(np.array([0, 10 * S]), np.array([EPOCH, EPOCH + 10 * S])), found)
    exact = world.median() + offset + np.array([EPOCH, EPOCH + 10 * S + 10 * S * ppm / 1e6], np.float64)
    assert np.abs(ends.realtime_ns - exact).max() <= 60 * US + slack_ns(found)


def test_a_capture_of_a_part_of_the_run_beside_other_traffic() -> None:
    world = World(5, n=2000, reuse=4)
    syns = world.syns(HOUR)
    seen = (world.start > EPOCH + 3 * S) & (world.start < EPOCH + 5 * S)
    others = world.rng.integers(EPOCH, EPOCH + 10 * S, 3000) + HOUR
    ports = np.concatenate((world.port[seen], world.rng.integers(1000, 60_000, 3000)))
    found = told(world.port, world.start, ports, np.concatenate((syns[seen], others)))
    assert found is not None
    assert abs(found.offset_ns - HOUR - world.median()) < 30 * US


def test_hours_of_drift() -> None:
    world = World(6, n=20_000, reuse=10, run_ns=4 * HOUR)
    found = told(world.port, world.start, world.port, world.syns(-HOUR, 50.0))
    assert found is not None
    assert abs(found.drift_ppm - 50) < 0.1
    assert found.high_ns - found.low_ns < MS


def test_one_connection_is_enough_and_none_is_not() -> None:
    found = told([7], [EPOCH], [7], [EPOCH + S])
    assert found == ClockOffset(S, S, S, 1, 0.0, EPOCH)
    assert told([7], [EPOCH], [8], [EPOCH + S]) is None
    assert told([], [], [], []) is None
    assert told([0], [EPOCH], [0], [EPOCH]) is None  # no address, no port


def test_where_two_offsets_explain_as_much_none_is_given() -> None:
    """Every second one use of each tuple; of ten the capture has five: which ones cannot be told."""
    uses = EPOCH + np.arange(10) * S
    start = np.concatenate([uses + port * MS for port in range(50)])
    port = np.repeat(np.arange(1, 51), 10)
    middle = np.tile((np.arange(10) >= 3) & (np.arange(10) < 8), 50)
    assert told(port, start, port[middle], start[middle] + 5 * US) is None
    whole = told(port, start, port, start + 5 * US)
    assert whole is not None
    assert whole.offset_ns == 5 * US


def test_uses_closer_than_the_scatter_cannot_be_told_apart() -> None:
    rng = np.random.default_rng(3)
    start = EPOCH + np.arange(3000) * 20 * US
    assert told(np.ones(3000), start, np.ones(3000), start + rng.integers(0, 500 * US, 3000)) is None


def test_much_used_tuples_cost_no_more_memory_than_they_may() -> None:
    """300,000 uses of three tuples are 3 * 10^10 pairs; the few that vote find the offset all the same."""
    rng = np.random.default_rng(4)
    start = EPOCH + np.cumsum(rng.integers(100 * US, 3 * MS, 300_000))
    port = 1 + np.arange(300_000) % 3
    found = told(port, start, port, start + HOUR + rng.integers(5 * US, 30 * US, 300_000))
    assert found is not None
    assert abs(found.offset_ns - HOUR) < 30 * US
    assert found.n == 300_000


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
@given(
    mine=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 1 << 50)), max_size=12),
    theirs=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 1 << 50)), max_size=12),
)
def test_whatever_comes_the_answer_is_none_or_one_of_the_differences(mine, theirs) -> None:
    found = told(*zip(*mine, strict=True), *zip(*theirs, strict=True)) if mine and theirs else None
    assume(found is not None)
    assert found is not None
    differences = [b - a for port, a in mine for other, b in theirs if port == other and port]
    assert min(abs(found.offset_ns - difference) for difference in differences) <= found.high_ns - found.low_ns
    assert 1 <= found.n <= len(mine)


# ---- one clock or two ------------------------------------------------------------------------------------------

CLOCK = ClockPairs(np.array([MONOTONIC]), np.array([EPOCH]))


def fast(seed: int, n: int = 300, slow: float = 0.0):
    """Connects of 30 to 60 us, as on loopback, a share of them ``slow``: a millisecond until they were noticed."""
    rng = np.random.default_rng(seed)
    records, handshakes = rows(n)
    before, rtt, after = (rng.integers(low, high, n) * US for low, high in ((4, 10), (20, 36), (6, 15)))
    after += (rng.random(n) < slow) * MS
    records["connected_ns"] = records["start_ns"] + before + rtt + after
    records["closed_ns"] = records["connected_ns"] + 20 * US
    handshakes["t_syn_first_ns"] = records["start_ns"] - MONOTONIC + EPOCH + before
    handshakes["t_synack_ns"] = handshakes["t_syn_first_ns"] + rtt
    return records, handshakes


def shift(handshakes, by_ns: int):
    out = handshakes.copy()
    for name in ("t_syn_first_ns", "t_syn_last_ns", "t_syn_before_ns", "t_synack_ns", "t_order_ns"):
        out[name] += by_ns
    return out


def compared(records, handshakes, role: str = "client") -> tuple[ClockOffset, bool]:
    paths = path_words(PATHS)
    offset = estimate(
        tuples_of_records(records, paths, role),
        CLOCK.to_realtime(records["start_ns"]),
        tuples_of_handshakes(handshakes),
        handshakes["t_syn_first_ns"],
    )
    assert offset is not None
    return offset, one_clock(offset, records, handshakes, paths, role, CLOCK)


def joined(records, handshakes):
    offset, one = compared(records, handshakes)
    return finish(records, handshakes, wire={"file": "a.pcap", "offset": None if one else offset}).report()


@pytest.mark.parametrize("slow", [0.0, 0.5, 0.97])
@pytest.mark.parametrize("by_us", [0, 10, 50, 100, 200, 300, 400, 500, 1000])
@pytest.mark.parametrize("sign", [1, -1])
def test_clocks_that_differ_by_more_or_less_than_a_connect_lose_no_handshake(sign: int, by_us: int, slow: float):
    records, handshakes = fast(by_us, slow=slow)
    report = joined(records, shift(handshakes, sign * by_us * US))
    assert (report.matched_share, report.problems) == (1.0, ())
    if by_us >= 50 and not slow:
        assert report.capture.clock_offset_ns is not None
        assert report.overhead_before_us.n == report.overhead_after_us.n == 0
    if not by_us:
        assert report.capture.clock_offset_ns is None
        assert 4 <= report.overhead_before_us.min <= report.overhead_before_us.max < 10
        assert report.overhead_after_us.min >= 6


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 1 << 20),
    by_ns=st.integers(-2 * MS, 2 * MS),
    slow=st.sampled_from([0.0, 0.1, 0.9, 0.99]),
)
def test_whatever_the_clocks_differ_by_every_handshake_is_found(seed: int, by_ns: int, slow: float) -> None:
    records, handshakes = fast(seed, slow=slow)
    assert joined(records, shift(handshakes, by_ns)).matched_share == 1.0


@pytest.mark.parametrize(
    ("before_us", "same"),
    [(0, True), (5, True), (400, True), (501, False)],  # busy machines call connect() long before the SYN
)
def test_a_busy_client_still_has_one_clock(before_us: int, same: bool) -> None:
    records, handshakes = fast(1)
    records["start_ns"] = handshakes["t_syn_first_ns"] - EPOCH + MONOTONIC - before_us * US
    assert compared(records, handshakes)[1] is same


@pytest.mark.parametrize("stray", [5, 6])
def test_few_stragglers_do_not_make_two_clocks_and_many_do(stray: int) -> None:
    records, handshakes = fast(2, n=100)
    handshakes["t_synack_ns"][:stray] += 3 * MS
    assert compared(records, handshakes)[1] is (stray == 5)


@pytest.mark.parametrize(
    ("accept_after", "same"),
    [
        (10 * MS, True),  # accepted a round trip after the SYN
        (S, True),
        (S + 100 * US, False),
        (-20 * US, False),  # accepted before the SYN-ACK was sent
        (-400 * US, False),
    ],
)
def test_a_server_with_one_clock_accepts_after_the_handshake(accept_after: int, same: bool) -> None:
    records, handshakes = fast(3)
    records["lport"], records["rport"] = records["rport"].copy(), records["lport"].copy()
    for end in ("hi", "lo"):
        handshakes[f"client_{end}"], handshakes[f"server_{end}"] = (
            handshakes[f"server_{end}"].copy(),
            handshakes[f"client_{end}"].copy(),
        )
    records["start_ns"] = handshakes["t_syn_first_ns"] - EPOCH + MONOTONIC + accept_after
    records["connected_ns"] = records["start_ns"]
    assert compared(records, handshakes, "server")[1] is same


def test_shifted_pairs_run_with_the_other_clock() -> None:
    clock = ClockPairs(np.array([0, 10 * S]), np.array([EPOCH, EPOCH + 10 * S]))
    other = shifted(clock, ClockOffset(HOUR, HOUR, HOUR, 9, 50.0, EPOCH + 4 * S))
    assert other.monotonic_ns.tolist() == [0, 10 * S]
    assert other.realtime_ns.tolist() == [EPOCH + HOUR - 200 * US, EPOCH + 10 * S + HOUR + 300 * US]
    assert other.to_realtime(np.array([4 * S, UNKNOWN])).tolist() == [EPOCH + 4 * S + HOUR, UNKNOWN]


def test_rows_of_a_run_give_their_own_offset() -> None:
    records, handshakes = rows(100)
    found = told(records["lport"], records["start_ns"], handshakes["sport"], handshakes["t_syn_first_ns"])
    assert found is not None
    assert (found.offset_ns, found.n) == (EPOCH - 5_000 * S + 5 * US, 100)
    assert replace(found, at_ns=0).drift_ppm == 0.0
