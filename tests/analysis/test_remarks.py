"""The sentences of a report: in whole reports, whose figures must agree with them, and by themselves."""

import re
from dataclasses import replace

import numpy as np
import pytest
from made_runs import PATHS, S, a_run, clean, facts, finish, leave_pending, rows
from ncps_analysis import remarks
from ncps_analysis.assemble import summarise
from ncps_analysis.histogram import Histogram
from ncps_analysis.model import KERNEL, WIRE
from ncps_analysis.records import NO_KERNEL_RTT, ClockPairs, ScheduleFacts
from ncps_analysis.tally import Measured, Tally
from ncps_capture.segments import HANDSHAKE, SYNACK_ONLY, UNANSWERED, UNKNOWN, Books

# ---- a capture that is blind -------------------------------------------------------------------------------------


def one_direction(handshakes, seen: str) -> None:
    """What a capture makes of packets of which it gets one direction only."""
    if seen == "SYN":
        handshakes["state"], handshakes["synack_n"] = UNANSWERED, 0
        handshakes["t_synack_ns"] = UNKNOWN
    else:
        handshakes["state"], handshakes["syn_n"] = SYNACK_ONLY, 0
        for name in ("t_syn_first_ns", "t_syn_last_ns", "t_syn_before_ns", "rtt_ts_ns"):
            handshakes[name] = UNKNOWN


def books_of_one_direction(seen: str, n: int) -> Books:
    if seen == "SYN":
        return Books(packets=n, syn=n, syn_counted=n, attempts=n, unanswered=n)
    return Books(packets=n, synack=n, synack_only=n)


@pytest.mark.parametrize("seen", ["SYN", "SYN-ACK"])
@pytest.mark.parametrize("role", ["client", "server"])
def test_a_capture_of_one_direction_is_named_and_nothing_taken_from_it(seen, role):
    """Not every connection unanswered, and not a run without a repeated SYN-ACK."""
    records, handshakes = rows(50)
    records["kernel_retrans"][3] = 2
    one_direction(handshakes, seen)
    changes = {}
    if role == "server":
        records["lport"], records["rport"] = records["rport"].copy(), records["lport"].copy()
        records["start_ns"] = records["connected_ns"]
        changes = {"role": "server", "paths": ((PATHS[0][1], PATHS[0][0]),)}
    wire = {"interface": "tap3", "books": books_of_one_direction(seen, 50)}
    report = finish(records, handshakes, wire=wire, **changes).report()
    missed = {"SYN": "SYN-ACK", "SYN-ACK": "SYN"}[seen]
    (problem,) = report.problems
    assert problem == (
        f"captured 50 {seen}s on tap3 but no {missed}, while connections were established: one direction only? "
        "Nothing is taken from this capture"
    )
    assert (report.rtt_source, report.retrans_source) == ("kernel", "kernel")
    assert report.syn_repeats is report.syn_repeat_causes is report.syn_retrans_failed is None
    assert (report.syn_retrans, report.synack_retrans) == ((2, None) if role == "client" else (None, 2))
    assert report.path_rtt_us.n == report.answer_us.n == report.overhead_after_us.n == 0
    bare = replace(finish(records, handshakes, wire=wire, **changes).run, kernel_rtt=False)
    records["kernel_rtt_us"] = NO_KERNEL_RTT
    report = summarise(bare, records, handshakes)
    assert (report.rtt_source, report.retrans_source, report.syn_rtt_us.n) == ("unknown", "unknown", 0)
    assert report.rtt_unknown == 50
    assert report.syn_retrans is report.synack_retrans is report.retrans_share_percent is None


def test_a_target_that_answers_nobody_is_no_blindness():
    records, handshakes = rows(20)
    leave_pending(records, handshakes, np.arange(20))
    report = finish(records, handshakes).report()
    assert report.problems == ()
    assert report.syn_retrans_failed == 0


def test_a_capture_that_died_is_not_said_to_see_one_direction():
    """It has counted its SYN-ACKs and could not tell."""
    records, handshakes = rows(20)
    books = Books(packets=40, syn=20, syn_counted=20, attempts=20, unanswered=20)
    report = finish(records, handshakes, wire={"books": books, "dropped": None, "died": "killed"}).report()
    assert [problem for problem in report.problems if "direction" in problem] == []


@pytest.mark.parametrize(
    ("end", "column", "value"),
    [
        ("another client address", "client_lo", 77),
        ("another server address", "server_lo", 77),
        ("another client port", "sport", 1_000),
        ("another server port", "dport", 1_000),
    ],
)
@pytest.mark.parametrize("role", ["client", "server"])
def test_translated_addresses_are_suspected_where_nothing_else_matches(end, column, value, role):
    records, handshakes = rows(100)
    handshakes[column] += value
    changes = {}
    if role == "server":
        records["lport"], records["rport"] = records["rport"].copy(), records["lport"].copy()
        changes = {"role": "server", "paths": ((PATHS[0][1], PATHS[0][0]),)}
    report = finish(records, handshakes, wire={"interface": "eth7"}, **changes).report()
    (problem,) = report.problems
    assert problem == (
        "none of 100 connections was found in the capture on eth7, but 100 captured attempts share an address with "
        "them and differ in the rest of the four-tuple: NAT between client and capture?"
    )
    assert (report.rtt_source, report.matched) == ("kernel", 0)


def test_strangers_are_not_taken_for_translated_connections():
    records, handshakes = rows(100)
    for name in ("client_lo", "server_lo"):
        handshakes[name] += 77
    few = rows(100)[1][:49]
    few["sport"] += 7
    for seen in (handshakes, few):
        report = finish(records, seen).report()
        (problem,) = report.problems
        assert problem == (
            f"none of 100 connections was found among {len(seen)} captured attempts on lo: is it the interface they "
            "use?"
        )


def test_a_few_chance_matches_do_not_hide_a_translation_and_many_do():
    records, handshakes = rows(100)
    handshakes["sport"][1:] += 1_000
    (problem,) = finish(records, handshakes).report().problems
    assert problem.startswith("1 of 100 connections was found in the capture on lo, but 99 captured attempts share")
    records, handshakes = rows(100)
    handshakes["sport"][2:] += 1_000
    (problem,) = finish(records, handshakes).report().problems
    assert problem.startswith("98 of 100 connections were not found")


def test_addresses_that_are_unknown_are_like_nobodys():
    records, handshakes = rows(10)
    handshakes["client_hi"] = handshakes["client_lo"] = handshakes["server_hi"] = handshakes["server_lo"] = 0
    (problem,) = finish(records, handshakes, paths=(("", ""),)).report().problems
    assert "is it the interface they use?" in problem


# ---- books -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("attempted", "says"), [(103, "attempts without a record: 3"), (98, "records without an attempt: 2")]
)
def test_broken_books_are_said_loudly(attempted, says):
    report = clean(100, attempted=attempted).report()
    assert any("do not balance" in problem and says in problem for problem in report.problems)


def test_broken_books_of_the_capture_are_said_loudly():
    records, handshakes = rows(10)
    broken = Books(packets=20, syn=11, syn_counted=10, attempts=10, answered=9)
    report = finish(records, handshakes, wire={"books": broken}).report()
    assert sum("the capture's books do not balance" in problem for problem in report.problems) == 2
    assert report.capture.identities == (
        "attempts 10 != answered 9",
        "SYNs captured 11 != sent 10",
    )


def test_clocks_that_contradict_each_other_are_a_problem():
    records, _ = rows(10)
    records["connected_ns"][4] = records["start_ns"][4] - 1
    assert any("before they started" in problem for problem in finish(records, None).report().problems)


# ---- notes --------------------------------------------------------------------------------------------------------


def test_capture_copies_and_clock_trouble_are_noted():
    records, handshakes = rows(10)
    books = Books(
        syn=14, syn_counted=10, syn_duplicate=4, synack=14, synack_duplicate=4, attempts=10, answered=10,
        clock_error=1, clock_step=2,
    )  # fmt: skip
    notes = finish(records, handshakes, wire={"books": books}, notes=("port budget is small",)).report().notes
    assert notes[0] == "port budget is small"
    assert any("8 of 28 SYNs and SYN-ACKs are copies" in note for note in notes)
    assert any("1 negative round trips, 2 attempts across a step" in note for note in notes)


@pytest.mark.parametrize(
    ("runs_as", "notes"),
    [
        (None, 0),
        ("uid 65534, gid 65534, no capabilities", 0),
        ("uid 1000, gid 0, no capabilities", 0),
        ("uid 0, gid 0, no capabilities", 1),
    ],
)
def test_who_captured_is_told_to_programs_and_to_a_person_if_it_is_odd(runs_as, notes):
    report = clean(3, wire={"runs_as": runs_as}).report()
    assert report.capture.runs_as == runs_as
    assert [note for note in report.notes if "root" in note] == [
        f"the capture process could not become anybody but root: it ran as {runs_as}"
    ] * notes


def test_kernel_and_wire_disagreeing_is_noted():
    records, handshakes = rows(10)
    records["kernel_retrans"][4] = 1
    report = finish(records, handshakes).report()
    assert report.retrans_disagree == 1
    assert any("different retransmits on 1 of 10" in note for note in report.notes)


# ---- words -------------------------------------------------------------------------------------------------------

N = 1_234_567


def said(run, tally: Tally, attempted: int = N, rtt_source: str = WIRE) -> list[str]:
    recorded = tally.recorded
    return [*remarks.problems(run, tally, recorded, attempted), *remarks.notes(run, recorded, rtt_source)]


def captured(**changes):
    return a_run(wire=facts(np.empty(0, HANDSHAKE), **{"books": Books(), **changes}))


def of(n: int, **changes) -> Tally:
    return Tally(established=n, in_time=Measured(connections=n, **changes))


ALL = {"matched": N, "wire_known": N}
SAID = {
    "attempts without a record": (a_run(), of(N - 5_000), "attempts without a record: 5,000"),
    "records without an attempt": (
        a_run(),
        of(N + 5_000),
        "unfinished 0 = 1,239,567: records without an attempt: 5,000",
    ),
    "absurd": (a_run(), of(N, absurd=4_321), "4,321 of 1,234,567 connections were established before they started"),
    "books": (
        captured(books=Books(attempts=N, answered=1_000)),
        of(N, **ALL),
        "the capture's books do not balance: attempts 1,234,567 != sum of states 1,000",
    ),
    "one direction": (
        captured(books=Books(syn=N, syn_counted=N)),
        of(N),
        "captured 1,234,567 SYNs on lo but no SYN-ACK",
    ),
    "one of one direction": (captured(books=Books(syn=1, syn_counted=1)), of(N), "captured 1 SYN on lo but no SYN-ACK"),
    "translated": (
        captured(),
        replace(of(N, matched=5_000), alike=N - 5_000),
        "5,000 of 1,234,567 connections were found in the capture on lo, but 1,229,567 captured attempts share",
    ),
    "wrong interface": (
        captured(books=Books(attempts=7_000, answered=7_000)),
        of(N),
        "none of 1,234,567 connections was found among 7,000 captured attempts on lo: is it the interface they use?",
    ),
    "wrong file": (
        captured(interface="", file="a.pcap"),
        of(N),
        "captured attempts on a.pcap: is it a capture of this run?",
    ),
    "not found": (captured(), of(N, matched=N - 2_000), "2,000 of 1,234,567 connections were not found in the capture"),
    "replaced": (a_run(), of(N, kernel_replaced=9_999), "9,999 of 1,234,567 connections had repeated SYNs"),
    "step": (
        replace(captured(), clock=ClockPairs(np.array([0, S], np.int64), np.array([0, 3 * S], np.int64))),
        of(N, **ALL),
        "CLOCK_REALTIME was stepped by up to 2,000,000 us during the run",
    ),
    "dropped": (
        captured(dropped=6_396),
        of(N, matched=N, wire_known=N - 1_500),
        (
            "dropped 6,396 packets, so its handshakes were checked against the kernel's retransmits and the connect "
            "times: of the 1,234,567 found 1,500 could not be confirmed and count as unknown"
        ),
    ),
    "dropped and confirmed": (
        captured(dropped=6_396),
        of(N, **ALL),
        "the connect times: of the 1,234,567 found all were confirmed",
    ),
    "disagreeing": (captured(), of(N, disagreeing=1_111, **ALL), "different retransmits on 1,111 of 1,234,567 conn"),
    "copies": (
        captured(books=Books(syn=4_000, syn_counted=1_000, syn_duplicate=3_000, synack=1)),
        of(N, **ALL),
        "3,000 of 4,001 SYNs and SYN-ACKs are copies made by the capture itself",
    ),
    "clock": (
        captured(books=Books(clock_error=1_000, clock_step=2_000)),
        of(N, **ALL),
        "1,000 negative round trips, 2,000 attempts across a step",
    ),
    "nearer": (
        captured(interface="", file="a.pcap"),
        of(N, path_rtt=Histogram.of(np.array([1_500])), kernel_rtt=Histogram.of(np.array([20_027])), **ALL),
        "SYN to SYN-ACK took 1,500 us in a.pcap, the round trip 20,027 us by the client's kernel",
    ),
}


@pytest.mark.parametrize("lost", [{"dropped": 6_396}, {"dropped": None}, {"dropped": None, "died": "killed"}])
@pytest.mark.parametrize(("matched", "known"), [(5_000, 4_000), (8_999, 8_999), (10_000, 8_999), (9_500, 9_000)])
def test_a_lossy_capture_that_leaves_many_unknown_is_a_problem(lost, matched, known):
    tally = of(10_000, matched=matched, wire_known=known)
    problems = [line for line in said(captured(**lost), tally, attempted=10_000) if "are unknown" in line]
    wanted = (
        f"the handshakes of {10_000 - known:,} of 10,000 connections are unknown, because packets are missing from the "
        f"capture on lo: what the wire tells is of the other {known:,} only"
    )
    assert problems == ([wanted] if known < 9_000 else [])


def test_of_the_unknown_only_the_likeliest_reason_is_told():
    lost = captured(dropped=None, books=Books(attempts=5, answered=5))
    (line,) = said(lost, of(N))
    assert line.startswith("none of 1,234,567 connections was found")


@pytest.mark.parametrize("name", SAID)
def test_one_sentence_with_its_counts_grouped_as_in_the_text_report(name):
    run, tally, wanted = SAID[name]
    (line,) = said(run, tally, rtt_source=KERNEL)
    assert wanted in line
    assert re.search(r"\d{4}", line) is None
    assert "\n" not in line


def test_nothing_is_said_of_a_run_without_fault():
    assert said(captured(), of(N, **ALL)) == said(a_run(), of(N)) == []
    assert said(a_run(), Tally(), attempted=0) == said(captured(), Tally(), attempted=0) == []


@pytest.mark.parametrize(
    ("seen_us", "told_us", "role", "said_of_it"),
    [
        (1_000, 2_000, "client", 1),
        (1_000, 1_999, "client", 0),  # not twice as long
        (100, 1_099, "client", 0),  # not a millisecond longer
        (100, 1_100, "client", 1),
        (100, 9_000, "server", 0),
    ],
)
def test_how_much_nearer_a_capture_must_be(seen_us, told_us, role, said_of_it):
    run = replace(captured(interface="", file="a.pcap"), role=role)
    medians = {"path_rtt": Histogram.of(np.array([seen_us])), "kernel_rtt": Histogram.of(np.array([told_us]))}
    assert len(said(run, of(N, **medians, **ALL))) == said_of_it
    own = replace(captured(), role=role)  # a capture of this run stands where the client is
    assert said(own, of(N, **medians, **ALL)) == []


def test_faults_come_first_and_what_stopped_the_file_of_packets_is_passed_on():
    run = replace(captured(write_problem="cannot write x.pcap: it is full"), faults=("worker 0 ended early",))
    first, *_, last = said(run, of(N, **ALL), attempted=N + 1)
    assert first == "worker 0 ended early: connections it had not handed over are missing from every figure"
    assert last == "cannot write x.pcap: it is full"


def test_a_run_that_recorded_nothing_says_so():
    assert said(a_run(record_start_ns=UNKNOWN), Tally(), attempted=0) == [
        "the run ended within the warm-up: nothing was recorded"
    ]


# ---- a schedule ----------------------------------------------------------------------------------------------------


def kept(**changes) -> ScheduleFacts:
    usual = ScheduleFacts(per_second=100.0, due=1000, started=1000, late=0, held_up=0, lag_ns=0, lag_max_ns=0)
    return replace(usual, **changes)


@pytest.mark.parametrize("started", [1000, 981, 980])
def test_a_schedule_that_was_kept_needs_no_word(started):
    assert remarks.limited_by_generator(kept(started=started, late=900)) is None
    assert clean(10, schedule=kept(started=started)).report().notes == ()


@pytest.mark.parametrize(
    ("late", "held_up", "why"), [(900, 0, "this machine was too slow"), (900, 449, "too slow"), (900, 450, "(-N)")]
)
def test_a_rate_that_was_missed_is_blamed_on_the_generator_and_on_what(late, held_up, why):
    schedule = kept(started=979, late=late, held_up=held_up)
    said = remarks.limited_by_generator(schedule)
    assert said.startswith("limited by the generator")
    assert "979 of 1,000 connects due at 100 per second" in said
    assert why in said
    assert clean(10, schedule=schedule).report().notes == (said,)


@pytest.mark.parametrize(("rate", "shown"), [(1e7, "10,000,000"), (0.5, "0.5"), (1e-5, "0.00001")])
def test_a_rate_has_no_exponent(rate, shown):
    said = remarks.limited_by_generator(kept(per_second=rate, started=1))
    assert f"due at {shown} per second" in said


def test_a_schedule_of_nothing_is_kept():
    assert remarks.limited_by_generator(kept(due=0, started=0)) is None
