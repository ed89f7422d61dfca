import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ncps_analysis import join
from ncps_analysis.join import LATE_NS, SLACK_NS, UNMATCHED, agrees, hash_of, match, tuples_of_handshakes
from ncps_analysis.records import CLOSED, CONNECT_FAILED, CONNECTION, NO_KERNEL_RTT, PENDING
from ncps_capture.segments import ANSWERED, HANDSHAKE, UNANSWERED, UNKNOWN, V4_MAPPED

HERE, THERE, OTHER = V4_MAPPED | 0x0A000001, V4_MAPPED | 0x0A000002, V4_MAPPED | 0x0A000003
PATHS = np.array([[0, HERE, 0, THERE], [0, OTHER, 0, THERE], [0, 0, 0, THERE]], np.uint64)
NO_ADDRESS = 2
S = 1_000_000_000


def record(start, connected=UNKNOWN, *, closed=UNKNOWN, lport=40_000, rport=80, path=0, retrans=0, rtt=100):
    row = np.zeros(1, CONNECTION)
    row["start_ns"], row["connected_ns"], row["closed_ns"] = start, connected, closed
    row["lport"], row["rport"], row["path"] = lport, rport, path
    row["kernel_retrans"], row["kernel_rtt_us"] = retrans, rtt
    row["outcome"] = CLOSED if connected != UNKNOWN else CONNECT_FAILED if closed != UNKNOWN else PENDING
    return row


def handshake(s1, rtt=100_000, *, sport=40_000, dport=80, client=HERE, server=THERE, syn_n=1, synack_n=1):
    row = np.zeros(1, HANDSHAKE)
    row["client_lo"], row["server_lo"], row["sport"], row["dport"] = client, server, sport, dport
    row["t_syn_first_ns"], row["t_synack_ns"] = s1, UNKNOWN if rtt is None else s1 + rtt
    row["state"] = UNANSWERED if rtt is None else ANSWERED
    row["syn_n"], row["synack_n"], row["rtt_ts_ns"] = syn_n, synack_n, UNKNOWN
    return row


def matched(records, handshakes, role="client", slack=SLACK_NS):
    rows = np.concatenate(records) if records else np.empty(0, CONNECTION)
    seen = np.concatenate(handshakes) if handshakes else np.empty(0, HANDSHAKE)
    return match(rows, seen, PATHS, role, slack).tolist()


# ---- clients -----------------------------------------------------------------------------------------------


def test_a_reused_tuple_is_matched_by_time_not_by_ordinal():
    records = [record(k * S, k * S + 300_000) for k in range(5)]
    seen = [handshake(k * S + 20_000) for k in range(5)]
    assert matched(records, seen) == [0, 1, 2, 3, 4]
    assert matched(records, seen[:2] + seen[3:]) == [0, 1, UNMATCHED, 2, 3]  # one lost packet shifts nothing
    assert matched(records[::-1], seen) == [4, 3, 2, 1, 0]


@pytest.mark.parametrize(
    ("start", "connected", "s1", "found"),
    [
        (1_000_000, 2_000_000, 1_000_000 - SLACK_NS, 0),
        (1_000_000, 2_000_000, 1_000_000 - SLACK_NS - 1, UNMATCHED),
        (1_000_000, 2_000_000, 2_000_000 + SLACK_NS, 0),
        (1_000_000, 2_000_000, 2_000_000 + SLACK_NS + 1, UNMATCHED),
    ],
)
def test_slack_on_both_sides_of_the_window(start, connected, s1, found):
    assert matched([record(start, connected)], [handshake(s1)]) == [found]


@pytest.mark.parametrize(
    "other",
    [{"sport": 40_001}, {"dport": 81}, {"client": OTHER}, {"server": OTHER}, {"client": THERE, "server": HERE}],
)
def test_all_of_the_tuple_counts(other):
    assert matched([record(S, S + 1000)], [handshake(S, **other)]) == [UNMATCHED]


def test_the_path_tells_the_addresses():
    records = [record(S, S + 1000, path=1), record(S, S + 1000, path=0)]
    assert matched(records, [handshake(S, client=HERE), handshake(S, client=OTHER)]) == [1, 0]


def test_unknown_address_or_port_is_unmatched():
    seen = [handshake(S), handshake(S, client=0), handshake(S, sport=0)]
    assert matched([record(S, S + 1000, path=NO_ADDRESS), record(S, S + 1000, lport=0)], seen) == [-1, -1]
    assert matched([record(S, S + 1000, path=len(PATHS))], seen) == [-1]
    alone = match(record(S, S + 1000), handshake(S), np.zeros((0, 4), np.uint64), "client")
    assert alone.tolist() == [UNMATCHED]


def test_a_synack_without_its_syn_has_no_time_and_is_no_match():
    assert matched([record(UNKNOWN + 1, S)], [handshake(UNKNOWN)]) == [UNMATCHED]


def test_between_two_windows_the_nearer_one_has_it():
    records = [record(0, 100_000), record(140_000, 300_000)]
    assert matched(records, [handshake(115_000)]) == [0, UNMATCHED]
    assert matched(records, [handshake(125_000)]) == [UNMATCHED, 0]
    assert matched(records, [handshake(120_000)]) == [UNMATCHED, 0]  # as far from both: the later


def test_a_failed_connect_ends_when_given_up_and_a_pending_one_with_the_next_on_its_tuple():
    failed, pending, after = record(S, closed=2 * S), record(S), record(5 * S, 6 * S)
    lost = [handshake(S + 10, None), handshake(3 * S, None), handshake(5 * S + 10)]
    assert matched([failed, after], lost) == [0, 2]
    assert matched([failed, after], lost[1:]) == [UNMATCHED, 1]
    assert matched([pending, after], lost[1:]) == [0, 1]
    assert matched([pending, after], lost[2:]) == [UNMATCHED, 0]


def test_of_several_attempts_in_one_window_a_client_takes_the_first():
    assert matched([record(S, 3 * S)], [handshake(2 * S), handshake(S + 5)]) == [1]


def test_nothing_on_either_side():
    assert matched([], []) == []
    assert matched([], [handshake(S)]) == []
    assert matched([record(S, S)], []) == [UNMATCHED]


# ---- servers -----------------------------------------------------------------------------------------------


SERVER_PATHS = np.array([[0, THERE, 0, HERE]], np.uint64)


def accepts(times, seen, slack=SLACK_NS):
    rows = np.concatenate([record(at, at, lport=80, rport=40_000) for at in times])
    return match(rows, np.concatenate(seen), SERVER_PATHS, "server", slack).tolist()


def test_a_server_takes_the_last_handshake_before_accept():
    assert accepts([5 * S], [handshake(S, None), handshake(4 * S), handshake(6 * S)]) == [1]
    assert accepts([5 * S, 9 * S], [handshake(S), handshake(8 * S)]) == [0, 1]
    assert accepts([5 * S, 9 * S], [handshake(8 * S)]) == [UNMATCHED, 0]
    assert accepts([5 * S, 9 * S], [handshake(S)]) == [0, UNMATCHED]


def test_a_server_allows_slack_after_accept():
    assert accepts([S], [handshake(S + SLACK_NS)]) == [0]
    assert accepts([S], [handshake(S + SLACK_NS + 1)]) == [UNMATCHED]


# ---- properties --------------------------------------------------------------------------------------------


def key_of(row, role):
    here, there = (int(PATHS[row["path"]][1]), int(row["lport"])), (int(PATHS[row["path"]][3]), int(row["rport"]))
    return (there, here) if role == "server" else (here, there)


def naive(records, seen, role, slack):
    """Every handshake against every window, straight from the definition."""
    keys = [key_of(row, role) for row in records]
    windows = []
    for i, row in enumerate(records):
        later = [r["start_ns"] for j, r in enumerate(records) if keys[j] == keys[i] and r["start_ns"] > row["start_ns"]]
        earlier = [
            r["start_ns"] for j, r in enumerate(records) if keys[j] == keys[i] and r["start_ns"] < row["start_ns"]
        ]
        if role == "server":
            windows.append((int(max(earlier)) + 1 if earlier else float("-inf"), int(row["start_ns"])))
            continue
        end = row["connected_ns"] if row["connected_ns"] != UNKNOWN else row["closed_ns"]
        end = float("inf") if end == UNKNOWN else int(end)
        windows.append((int(row["start_ns"]), min(end, int(min(later)) - 1) if later else end))
    owners: dict[int, list[int]] = {}
    for h, row in enumerate(seen):
        key = ((int(row["client_lo"]), int(row["sport"])), (int(row["server_lo"]), int(row["dport"])))
        at = int(row["t_syn_first_ns"])
        reach = [(max(lo - at, at - hi, 0), -lo, i) for i, (lo, hi) in enumerate(windows) if keys[i] == key]
        if reach and min(reach)[0] <= slack:
            owners.setdefault(min(reach)[2], []).append(h)
    pick = max if role == "server" else min
    out = [UNMATCHED] * len(records)
    for i, candidates in owners.items():
        out[i] = pick(candidates, key=lambda h: (int(seen[h]["t_syn_first_ns"]), h))
    return out


@st.composite
def loads(draw):
    """Connections that reuse few tuples, one after another on each, and handshakes at any time, near and far."""
    role = draw(st.sampled_from(["client", "server"]))
    records = []
    for path in (0, 1):
        for client_port in (40_000, 40_001):
            at = 0
            for _ in range(draw(st.integers(0, 4))):
                at += draw(st.integers(1, 12))
                took = draw(st.integers(0, 9))
                ended = draw(st.sampled_from(["connected", "failed", "pending"]))
                mine, its = (client_port, 80) if role == "client" else (80, client_port)
                records.append(
                    record(
                        at,
                        at if role == "server" else at + took if ended == "connected" else UNKNOWN,
                        closed=at + took if ended == "failed" else UNKNOWN,
                        lport=mine, rport=its, path=path,
                    )
                )  # fmt: skip
                at += took
    times = draw(st.lists(st.integers(-8, 60), max_size=14, unique=True))
    seen = []
    for t in times:
        here = draw(st.sampled_from([HERE, OTHER]))
        ends = {"client": here, "server": THERE} if role == "client" else {"client": THERE, "server": here}
        seen.append(handshake(t, sport=draw(st.sampled_from([40_000, 40_001])), **ends))
    order = draw(st.permutations(range(len(records))))
    return role, [records[i] for i in order], seen, draw(st.sampled_from([0, 1, 3]))


@settings(max_examples=300, deadline=None)
@given(load=loads(), weak=st.booleans())
def test_agrees_with_every_handshake_tried_on_every_window(load, weak):
    role, records, seen, slack = load
    flat_records = [row[0] for row in records]
    flat_seen = [row[0] for row in seen]
    expected = naive(flat_records, flat_seen, role, slack)
    with pytest.MonkeyPatch.context() as patch:
        if weak:  # different tuples share hashes: the keys must decide
            patch.setattr(join, "hash_of", lambda tuples: tuples.columns[4] % np.uint64(2))
        found = matched(records, seen, role, slack)
    assert found == expected
    used = [h for h in found if h != UNMATCHED]
    assert len(used) == len(set(used))


@settings(max_examples=50, deadline=None)
@given(data=st.data())
def test_captured_handshakes_find_their_own_record_whatever_else_was_lost(data):
    """Real timing on one tuple: stamps cut to microseconds, some packets lost, clocks some us apart."""
    skew = data.draw(st.integers(-5_000, 5_000))
    at, records, seen, truth = 0, [], [], []
    for _ in range(data.draw(st.integers(1, 30))):
        at += data.draw(st.integers(60_000, 400_000))
        s1 = at + data.draw(st.integers(1_000, 20_000))
        took = s1 - at + data.draw(st.integers(15_000, 90_000))
        records.append(record(at, at + took))
        kept = data.draw(st.booleans())
        truth.append(len(seen) if kept else UNMATCHED)
        if kept:
            seen.append(handshake((s1 + skew) // 1000 * 1000))
        at += took
    assert matched(records, seen) == truth


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1), st.integers(1, 65535), st.integers(1, 65535))
def test_a_record_and_its_handshake_go_to_the_same_part(hi, lo, sport, dport):
    row = handshake(S, sport=sport, dport=dport, server=lo)
    row["client_hi"], row["server_hi"] = hi, lo
    mine = record(S, S, lport=sport, rport=dport)
    path = np.array([[hi, HERE, lo, lo]], np.uint64)
    assert hash_of(join.tuples_of_records(mine, path, "client")) == hash_of(tuples_of_handshakes(row))
    swapped = record(S, S, lport=dport, rport=sport)
    back = np.array([[lo, lo, hi, HERE]], np.uint64)
    assert hash_of(join.tuples_of_records(swapped, back, "server")) == hash_of(tuples_of_handshakes(row))


def test_parts_by_hash_are_even_where_only_ports_differ():
    seen = np.zeros(64_000, HANDSHAKE)
    seen["client_lo"], seen["server_lo"] = HERE, THERE
    seen["sport"] = 1024 + np.arange(64_000) % 4_000
    seen["dport"] = 10_000 + np.arange(64_000) // 4_000
    for parts in (2, 7, 16, 64):
        share = np.bincount((hash_of(tuples_of_handshakes(seen)) % np.uint64(parts)).astype(int), minlength=parts)
        assert share.max() < 1.2 * 64_000 / parts


# ---- with drops ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("row", "seen", "believed"),
    [
        (record(0, 150_000), handshake(10_000, 100_000), True),
        (record(0, 100_000 - SLACK_NS), handshake(10_000, 100_000), True),
        (record(0, 100_000 - SLACK_NS - 1), handshake(10_000, 100_000), False),  # connected before it was answered
        (record(0, 100_000 + LATE_NS), handshake(10_000, 100_000), True),
        (record(0, 100_001 + LATE_NS), handshake(10_000, 100_000), False),
        (record(0, S + 100_000, retrans=1), handshake(S, 90_000), False),  # the first SYN was not captured
        (record(0, S + 100_000, retrans=1), handshake(10_000, S, syn_n=2), True),
        (record(0, S + 100_000, retrans=1), handshake(10_000, S, syn_n=3), False),
        (record(0, 150_000, rtt=NO_KERNEL_RTT), handshake(10_000, 100_000), False),  # the kernel says nothing
        (record(0, 150_000, retrans=255), handshake(10_000, 100_000, syn_n=256), False),
        (record(0, 150_000), handshake(10_000, None), False),
        (record(0, closed=150_000), handshake(10_000, None), False),
    ],
)
def test_with_drops_a_client_believes_only_what_agrees(row, seen, believed):
    assert agrees(row, seen, np.array([0]), "client").tolist() == [believed]


@pytest.mark.parametrize(
    ("retrans", "synack_n", "synack_after", "believed"),
    [(0, 1, 5, True), (2, 3, 5, True), (1, 1, 5, False), (0, 2, 5, False), (0, 1, 2_000_000, False)],
)
def test_with_drops_a_server_compares_synacks(retrans, synack_n, synack_after, believed):
    row = record(S, S, lport=80, rport=40_000, retrans=retrans)
    seen = handshake(S - 1_000_000, synack_after, synack_n=synack_n)
    assert agrees(row, seen, np.array([0]), "server").tolist() == [believed]


def test_with_drops_the_unmatched_are_unknown():
    rows = np.concatenate([record(0, 150_000), record(0, 150_000)])
    assert agrees(rows, handshake(10_000), np.array([UNMATCHED, 0]), "client").tolist() == [False, True]
    assert agrees(rows, np.empty(0, HANDSHAKE), np.array([UNMATCHED, UNMATCHED]), "client").tolist() == [False] * 2
