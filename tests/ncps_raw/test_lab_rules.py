"""What becomes of packets: tables for each rule, properties for all networks without rules."""

import itertools
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_packets import packet
from scapy.layers.inet import IP, TCP

from ncps_raw.lab.network import A_TO_B, ACTIONS, B_TO_A, Network, Rule, Way
from ncps_raw.lab.packets import read_header
from ncps_raw.lab.rules import NO_RULE, Decider, Decision, Departure, attempt_of

MS = 1_000_000
SECOND = 1_000_000_000


def syn(i: int, isn: int = 1000) -> bytes:
    return packet("S", 20000 + i, seq=isn)


def synack(i: int, isn: int = 1000) -> bytes:
    return packet("SA", 9000, 20000 + i, seq=5, ack=isn + 1, back=True)


def feed(network: Network, packets: Iterable[bytes], direction: int = A_TO_B, step_ns: int = MS) -> list[Decision]:
    decider = Decider(network)
    return [decider.decide(direction, raw, step_ns * i) for i, raw in enumerate(packets)]


def actions(decisions: list[Decision]) -> list[str]:
    return [ACTIONS[one.action] for one in decisions]


def which(decisions: list[Decision], action: str = "drop") -> list[int]:
    return [i for i, one in enumerate(decisions) if ACTIONS[one.action] == action]


# ---- which packets -------------------------------------------------------------------------------------------


def test_every_fiftieth_first_syn() -> None:
    network = Network.symmetric(0, Rule("drop", "syn", nth=(1,), attempts=50))
    decisions = feed(network, (syn(i) for i in range(200)))
    assert which(decisions) == [49, 99, 149, 199]
    assert {one.rule for one in decisions} == {0, NO_RULE}


def test_repeats_of_a_dropped_syn_pass_and_are_no_attempts() -> None:
    network = Network.symmetric(0, Rule("drop", "syn", nth=(1,), attempts=2))
    packets = [syn(0), syn(0), syn(1), syn(1), syn(2), syn(1), syn(3)]
    decisions = feed(network, packets)
    assert which(decisions) == [2, 6]
    assert [one.nth for one in decisions] == [1, 2, 1, 2, 1, 3, 1]


def test_the_first_three_syns_of_every_second_attempt() -> None:
    network = Network.symmetric(0, Rule("drop", "syn", nth=(1, 2, 3), attempts=2))
    packets = [syn(i) for i in (0, 1, 1, 0, 1, 1, 1)]
    assert which(feed(network, packets)) == [1, 2, 4]


def test_another_isn_is_another_attempt() -> None:
    network = Network.symmetric(0, Rule("drop", "syn", nth=(1,), count=2))
    assert which(feed(network, [syn(0, 1), syn(0, 1), syn(0, 2), syn(0, 2), syn(0, 3)])) == [0, 2]


def test_synacks_are_told_apart_by_what_they_acknowledge() -> None:
    network = Network.symmetric(0, Rule("drop", "synack", "b>a", nth=(2,)))
    packets = [synack(0, 1), synack(0, 2), synack(0, 1), synack(0, 1)]
    assert which(feed(network, packets, B_TO_A)) == [2]


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (Rule("drop"), [0, 1, 2, 3, 4, 5]),
        (Rule("drop", "any", "b>a"), []),
        (Rule("drop", "syn"), [0, 3]),
        (Rule("drop", "ack"), [1, 4]),
        (Rule("drop", "rst"), [2, 5]),
        (Rule("drop", every=2), [1, 3, 5]),
        (Rule("drop", every=2, count=2), [1, 3]),
        (Rule("drop", "rst", every=2), [5]),
        (Rule("drop", port=9001), [3, 4, 5]),
        (Rule("drop", port=40000), [0, 1, 2, 3, 4, 5]),
        (Rule("drop", port=1), []),
        (Rule("drop", "ack", nth=(1,)), [1, 4]),
        (Rule("drop", "ack", nth=(2,)), []),
    ],
)
def test_conditions(rule: Rule, expected: list[int]) -> None:
    packets = [packet(flags, 40000, port) for port in (9000, 9001) for flags in ("S", "A", "RA")]
    assert which(feed(Network.symmetric(0, rule), packets)) == expected


def test_the_first_rule_that_applies_decides_and_later_ones_do_not_count_it() -> None:
    network = Network.symmetric(0, Rule("drop", count=1), Rule("delay", every=2, delay_ns=1))
    decisions = feed(network, (syn(i) for i in range(5)))
    assert actions(decisions) == ["drop", "pass", "delay", "pass", "delay"]
    assert [one.rule for one in decisions] == [0, NO_RULE, 1, NO_RULE, 1]


# ---- what is done ----------------------------------------------------------------------------------------------


def departures(network: Network, packets: list[bytes], step_ns: int = MS) -> list[tuple[int, int, int]]:
    """(due, number, copy) of everything that leaves, in the order it leaves."""
    decisions = feed(network, packets, step_ns=step_ns)
    leaving = [entry for one in decisions for entry in one.departures]
    leaving.sort(key=lambda entry: entry.due_ns)
    return [(entry.due_ns, entry.number, entry.copy) for entry in leaving]


def test_delay_of_the_path_is_exact() -> None:
    network = Network(Way(3 * MS), Way(5 * MS))
    decider = Decider(network)
    (there,) = decider.decide(A_TO_B, syn(0), 100).departures
    (back,) = decider.decide(B_TO_A, synack(0), 200).departures
    assert (there.due_ns, there.direction) == (100 + 3 * MS, A_TO_B)
    assert (back.due_ns, back.direction) == (200 + 5 * MS, B_TO_A)
    assert there.packet == syn(0)


def test_duplicates_follow_at_their_distance() -> None:
    network = Network.symmetric(10, Rule("duplicate", every=2, copies=2, delay_ns=5))
    assert departures(network, [syn(0), syn(1)], step_ns=100) == [(10, 0, 0), (110, 1, 0), (115, 1, 1), (120, 1, 2)]


def test_a_delayed_packet_is_overtaken() -> None:
    network = Network.symmetric(10, Rule("delay", count=1, delay_ns=500))
    assert departures(network, [syn(0), syn(1)], step_ns=100) == [(110, 1, 0), (510, 0, 0)]


def test_a_held_packet_follows_those_that_pass_it() -> None:
    network = Network.symmetric(10, Rule("reorder", count=1, packets=2))
    expected = [(110, 1, 0), (210, 2, 0), (210, 0, 0), (310, 3, 0)]
    assert departures(network, [syn(i) for i in range(4)], step_ns=100) == expected


def test_packets_the_other_way_or_lost_do_not_pass_a_held_one() -> None:
    network = Network.symmetric(0, Rule("reorder", "syn", count=1), Rule("drop", "rst"))
    decider = Decider(network)
    decider.decide(A_TO_B, syn(0), 0)
    decider.decide(B_TO_A, synack(0), 1)
    decider.decide(A_TO_B, packet("R"), 2)
    assert decider.held == 1
    assert [entry.number for entry in decider.decide(A_TO_B, syn(1), 3).departures] == [3, 0]
    assert decider.held == 0


def test_a_reset_comes_from_the_far_end_after_a_round_trip() -> None:
    network = Network(Way(3), Way(4), (Rule("reset", "syn"),))
    (answer,) = feed(network, [syn(0)])[0].departures
    assert (answer.due_ns, answer.direction, answer.answer) == (7, B_TO_A, True)
    tcp = IP(answer.packet)[TCP]
    assert (str(tcp.flags), tcp.ack, tcp.dport) == ("RA", 1001, 20000)
    assert answer.header == read_header(answer.packet)


def test_unreachable_has_the_code_asked_for() -> None:
    (answer,) = feed(Network.symmetric(5, Rule("unreachable", "syn", code=13)), [syn(0)])[0].departures
    assert answer.due_ns == 10
    assert (answer.packet[20], answer.packet[21]) == (3, 13)


def test_a_reset_gets_no_reset() -> None:
    assert feed(Network.symmetric(0, Rule("reset")), [packet("R")])[0].departures == ()


def test_what_is_due_in_a_stall_comes_at_its_end_in_order() -> None:
    network = Network(Way(10), Way(10), stalls=((100, 300), (300, 400)))
    decider = Decider(network, start_ns=1000)
    times = [1080, 1095, 1250, 1285, 1295, 1395]
    due = [decider.decide(A_TO_B, syn(i), now).departures[0].due_ns for i, now in enumerate(times)]
    assert due == [1090, 1300, 1300, 1300, 1400, 1405]


def test_the_line_sends_one_packet_after_the_other() -> None:
    network = Network(Way(delay_ns=7, rate=1_000_000_000), Way())  # a byte a nanosecond
    size = len(syn(0))
    assert [t for t, _, _ in departures(network, [syn(i) for i in range(3)], step_ns=0)] == [
        7 + size,
        7 + 2 * size,
        7 + 3 * size,
    ]


def test_what_does_not_fit_in_the_queue_is_lost() -> None:
    size = len(syn(0))
    network = Network(Way(rate=1_000_000_000, queue_bytes=2 * size), Way())
    decider = Decider(network)
    done = [ACTIONS[decider.decide(A_TO_B, syn(i), 0).action] for i in range(4)]
    assert done == ["pass", "pass", "queue_full", "queue_full"]
    assert ACTIONS[decider.decide(A_TO_B, syn(5), size).action] == "pass"


def test_a_dropped_packet_takes_no_place_on_the_line() -> None:
    network = Network(Way(rate=1_000_000_000), Way(), (Rule("drop", count=1),))
    assert departures(network, [syn(0), syn(1)], step_ns=0) == [(len(syn(0)), 1, 0)]


def test_an_attempt_has_its_own_numbers() -> None:
    assert attempt_of(read_header(syn(1)))[3:] == (20001, 9000, 1000)
    assert attempt_of(read_header(synack(1)))[3:] == (9000, 20001, 1001)


# ---- for every network -----------------------------------------------------------------------------------------

PACKETS = [syn(i) for i in range(3)] + [packet("A", data=bytes(n)) for n in (0, 10, 1000)]
traffic = st.lists(
    st.tuples(st.sampled_from([A_TO_B, B_TO_A]), st.sampled_from(PACKETS), st.integers(0, 3 * MS)), max_size=60
)
any_way = st.builds(
    Way,
    delay_ns=st.integers(0, 20 * MS),
    jitter_ns=st.integers(0, 5 * MS),
    rate=st.just(0) | st.integers(1_000, 10**9),
    queue_bytes=st.just(0) | st.integers(100, 10_000),
)
any_stalls = st.lists(st.integers(0, 100 * MS), max_size=6, unique=True).map(
    lambda edges: tuple(itertools.pairwise(sorted(edges)))[::2]
)


def play(network: Network, events: list[tuple[int, bytes, int]]) -> tuple[list[Decision], Decider]:
    decider = Decider(network)
    now_ns, out = 0, []
    for direction, raw, gap_ns in events:
        now_ns += gap_ns
        out.append(decider.decide(direction, raw, now_ns))
    return out, decider


@given(traffic, any_way, any_way, any_stalls, st.integers(0, 9))
def test_without_rules_everything_arrives_once_in_order_and_not_early(
    events: list[tuple[int, bytes, int]], there: Way, back: Way, stalls: tuple[tuple[int, int], ...], seed: int
) -> None:
    network = Network(there, back, stalls=stalls, seed=seed)
    decisions, _ = play(network, events)
    clock = list(itertools.accumulate(gap for _, _, gap in events))
    for direction in (A_TO_B, B_TO_A):
        way = network.ways()[direction]
        sent = [one.number for one, event in zip(decisions, events, strict=True) if event[0] == direction]
        lost = {number for number in sent if ACTIONS[decisions[number].action] == "queue_full"}
        leaving = [entry for one in decisions for entry in one.departures if entry.direction == direction]
        arrived = sorted(leaving, key=lambda entry: entry.due_ns)  # stable, as the relay's heap is
        assert [entry.number for entry in arrived] == [number for number in sent if number not in lost]
        assert way.queue_bytes or not lost
        for entry in leaving:
            assert entry.packet == events[entry.number][1]
            assert entry.due_ns >= clock[entry.number] + way.delay_ns
            assert not any(begin <= entry.due_ns < end for begin, end in stalls)
            if not (way.rate or stalls):
                assert entry.due_ns <= clock[entry.number] + way.delay_ns + way.jitter_ns


@given(traffic, any_way, st.integers(0, 9))
def test_the_rate_is_never_exceeded(events: list[tuple[int, bytes, int]], way: Way, seed: int) -> None:
    if not way.rate:
        way = Way(rate=50_000)
    way = Way(way.delay_ns, 0, way.rate, way.queue_bytes)
    decisions, _ = play(Network(way, way, seed=seed), events)
    leaving: list[Departure] = [e for one in decisions for e in one.departures if e.direction == A_TO_B]
    for earlier, later in itertools.pairwise(leaving):
        assert later.due_ns - earlier.due_ns >= len(later.packet) * SECOND // way.rate


any_rule = st.builds(
    Rule,
    st.sampled_from(["drop", "duplicate", "delay", "reorder", "reset", "unreachable"]),
    st.sampled_from(["any", "syn", "data", "ack"]),
    st.sampled_from(["both", "a>b", "b>a"]),
    nth=st.sampled_from([(), (1,), (2, 3)]),
    attempts=st.integers(1, 3),
    every=st.integers(1, 3),
    count=st.integers(0, 5),
    delay_ns=st.integers(0, 5 * MS),
    copies=st.integers(1, 3),
    packets=st.integers(1, 4),
)


@given(traffic, any_way, st.lists(any_rule, max_size=3))
def test_the_books_balance_and_the_outcome_is_repeatable(
    events: list[tuple[int, bytes, int]], way: Way, rules: list[Rule]
) -> None:
    network = Network(way, way, tuple(rules))
    decisions, decider = play(network, events)
    assert decisions == play(network, events)[0]
    originals = [e.number for one in decisions for e in one.departures if e.copy == 0 and not e.answer]
    assert len(originals) == len(set(originals))
    gone = {"drop", "queue_full", "reset", "unreachable"}
    lost = [one.number for one in decisions if ACTIONS[one.action] in gone]
    assert len(originals) + len(lost) + decider.held == len(events)
    assert not set(lost) & set(originals)
    for one in decisions:
        if one.rule != NO_RULE and ACTIONS[one.action] != "queue_full":
            assert ACTIONS[one.action] == rules[one.rule].action
    for index, rule in enumerate(rules):
        if rule.count:
            assert sum(one.rule == index for one in decisions) <= rule.count
