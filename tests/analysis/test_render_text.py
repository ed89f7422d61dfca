from dataclasses import replace

import numpy as np
import pytest
from made_runs import MONOTONIC, PATHS, S, clean, finish, interval, lossy, never_started, none_established, rows
from ncps_analysis.records import IO_FAILED, NO_KERNEL_RTT, ClockOffset, ScheduleFacts
from ncps_analysis.render import text
from ncps_capture.segments import UNANSWERED, UNKNOWN, Books

LONG = "ncps -c 127.0.0.2 " + " ".join(f"--option-{i} {i}" for i in range(20))


def server(captured: bool):
    records, handshakes = rows(100)
    records["lport"], records["rport"] = records["rport"].copy(), records["lport"].copy()
    records["start_ns"] = records["connected_ns"]
    paths = ((PATHS[0][1], PATHS[0][0]),)
    return finish(records, handshakes if captured else None, role="server", target="port 10001", paths=paths)


def scheduled(**changes):
    records, handshakes = rows(100)
    records["intended_ns"] = records["start_ns"] - 2_000_000
    facts = ScheduleFacts(
        per_second=0.5, due=120, started=100, late=90, held_up=60, lag_ns=200_000_000, lag_max_ns=9 * S
    )
    return finish(records, handshakes, schedule=replace(facts, **changes))


def nothing_known():
    records, _ = rows(10)
    records["kernel_rtt_us"] = NO_KERNEL_RTT
    return finish(records, None, capture_problem="no right to capture packets: run as root")


def all_sorts():
    records, handshakes = rows(1000)
    never_started(records, np.array([3, 4]))
    records["outcome"][6] = IO_FAILED
    handshakes["syn_n"][10], handshakes["retrans_after_rst"][10] = 2, 1
    handshakes["synack_n"][11], handshakes["synack_retrans"][11] = 2, 1
    return finish(records, np.delete(handshakes, [3, 4, 20]), command_line=LONG, notes=("a note " * 30,), attempted=999)


RUNS = {
    "clean": clean(1000).report(),
    "lossy": lossy(1000).report(),
    "slow path": finish(*rows(1000, rtt_us=25_000)).report(),
    "drops": lossy(1000, wire={"dropped": 5}).report(),
    "dead capture": lossy(1000, wire={"dropped": None, "died": "killed"}).report(),
    "kernel": finish(lossy(1000).records, None, capture_problem="no libpcap").report(),
    "nothing known": nothing_known().report(),
    "none established": none_established().report(),
    "interrupted": clean(1000, interrupted="SIGINT", end_ns=MONOTONIC + 32 * S // 10).report(),
    "all sorts": all_sorts().report(),
    "server": server(True).report(),
    "server, kernel": server(False).report(),
    "scheduled": scheduled().report(),
    "scheduled, nothing begun": scheduled(started=0, late=0, held_up=0, due=3).report(),
    "warm-up only": clean(10, record_start_ns=MONOTONIC + 20 * S, warmup_s=20.0).report(),
}


@pytest.mark.parametrize("name", RUNS)
def test_fits_80_columns_without_stray_blanks_and_without_python(name):
    for line in text.report(RUNS[name]).split("\n"):
        assert len(line) <= text.WIDTH
        assert line == line.rstrip()
        assert line.isascii()
        assert "None" not in line
        assert "nan" not in line.split()


def figures(report_text: str, name: str) -> list[str]:
    return next(line for line in report_text.split("\n") if line.startswith(name.ljust(14)))[14:].split()


def test_the_table_names_who_measured_what_in_which_unit():
    shown = text.report(RUNS["lossy"])
    assert figures(shown, "Times in us") == ["SYN-RTT", "path", "RTT", "tcpi_rtt", "connect"]
    assert figures(shown, "measured by") == ["wire", "wire", "kernel", "application"]
    assert figures(shown, "median") == ["25", "24", "28", "40"]
    assert figures(shown, "maximum") == ["2,000,029", "29", "1,000", "2,000,044"]
    assert figures(shown, "mean") == ["12,158.0", "24.5", "38.4", "12,173.0"]
    assert figures(shown, "connections") == ["989", "989", "989", "989"]


def test_figures_stand_under_each_other():
    lines = text.report(RUNS["lossy"]).split("\n")
    table = [line for line in lines if line[:14].strip() in {"minimum", "median", "99 %", "maximum"}]
    ends = {tuple(i for i in range(14, len(line) - 1) if line[i].isdigit() and line[i + 1] == " ") for line in table}
    assert len(table) == 4
    assert len(ends) == 1


def test_large_times_are_in_milliseconds_with_the_same_digits():
    shown = text.report(RUNS["slow path"])
    assert figures(shown, "Times in ms") == ["SYN-RTT", "path", "RTT", "tcpi_rtt", "connect"]
    assert figures(shown, "minimum") == ["25.000", "25.000", "25.003", "25.015"]


def test_says_how_fast_and_how_the_books_stand():
    shown = text.report(RUNS["lossy"])
    assert "98.9 per second: 989 established in 10.000 s" in shown
    assert "attempted 1,000 = established 989 + failed 10 + unfinished 1\n" in shown
    assert "attempts 1,000 = answered 989 + refused 10 + unanswered 1\n" in shown
    assert "SYNs captured 1,012 = sent 1,012" in shown
    assert "handshake found for 989 of 989 connections (100 %)" in shown
    assert "lo (EN10MB), at the client: 2,000 packets, 0 dropped" in shown


def test_failures_have_name_count_times_and_a_meaning():
    shown = text.report(RUNS["lossy"])
    assert "Failures                10  ECONNREFUSED  first at 0.005 s, last at 0.014 s\n" in shown
    assert "nothing listens there" in shown
    assert "Failures      none" in text.report(RUNS["clean"])
    sorts = text.report(RUNS["all sorts"])
    assert "2 more never left this machine: no SYN was sent" in sorts
    assert "EARLY_END     at 0.0" in sorts
    assert "I/O failures  1 of the established connections" in sorts


def test_retransmits_say_how_many_where_and_why():
    shown = text.report(RUNS["lossy"])
    assert "12 SYNs sent again, seen on the wire\n" in shown
    assert "on 11 of 989 connections (1.1122 %), 1.0909 each on average\n" in shown
    assert "          12  time-out\n" in shown
    assert "none: no SYN of 1,000 connections, seen on the wire" in text.report(RUNS["clean"])
    assert "11 of 989 connections (1.1122 %)" in text.report(RUNS["kernel"])
    assert "counted by the kernel" in text.report(RUNS["kernel"])
    sorts = text.report(RUNS["all sorts"])
    assert "1  retry after a RST (not a retransmit)" in sorts
    assert "1 SYN-ACK sent again by the target" in sorts
    assert "none: no SYN-ACK of 100 connections" in text.report(RUNS["server"])


def test_problems_come_first():
    lines = text.report(clean(1000, attempted=1003).report()).split("\n")
    assert lines[2].startswith("PROBLEM       the books do not balance: attempted 1,003")
    assert "              THIS DOES NOT BALANCE" in lines
    assert "PROBLEM" not in text.report(RUNS["clean"])
    assert "PROBLEM" in text.report(RUNS["all sorts"])


def test_interrupted_says_by_what_and_when():
    assert "Interrupted   by SIGINT after 3.2 s of 10 s planned\n" in text.report(RUNS["interrupted"])
    endless = replace(RUNS["interrupted"], planned_s=None)
    assert "Interrupted   by SIGINT after 3.2 s\n" in text.report(endless)


def test_the_unknown_is_said_and_never_zero():
    shown = text.report(RUNS["nothing known"])
    assert "no right to capture packets: run as root" in shown
    assert "Retransmits   unknown: neither a capture nor the kernel could tell" in shown
    assert figures(shown, "measured by") == ["application"]
    assert "an unknown number dropped" in " ".join(text.report(RUNS["dead capture"]).split())
    none = text.report(RUNS["none established"])
    assert "NONE WAS ESTABLISHED" in none
    assert "unknown: no connection to measure" in none
    assert "unknown       SYN-RTT of 1 of 998 connections" in text.report(RUNS["all sorts"])


def test_the_kernel_as_a_source_is_marked_where_connect_time_stands_in():
    shown = text.report(RUNS["kernel"])
    assert figures(shown, "measured by") == ["kernel", "*", "application"]
    assert "*             11 with repeated SYNs, where connect time stands in" in shown


def test_a_server_tells_its_own_answer_time_apart_from_the_round_trip():
    shown = text.report(RUNS["server"])
    assert figures(shown, "Times in us") == ["SYN", "answer", "SYN-RTT"]
    assert figures(shown, "measured by") == ["wire", "kernel"]
    assert "SYN-ACK to ACK by the kernel" in shown
    assert "server on port 10001" in shown


def test_a_run_within_its_warm_up_has_no_recorded_time():
    assert "Time          10.000 s, warm-up 20 s" in text.report(RUNS["warm-up only"])


def test_connections_let_finish_are_named():
    assert "11 more were under way when the time was up" in text.report(lossy(1000, end_ns=MONOTONIC + S).report())
    late = text.report(lossy(1000, record_start_ns=MONOTONIC + S, end_ns=MONOTONIC + S + 1).report())
    assert "NONE WAS ESTABLISHED" in late
    assert "11 more were under way" in late


def test_capture_attempts_of_others_are_counted():
    records, handshakes = rows(100)
    assert "2 captured attempts without a connection" in text.report(finish(records[:98], handshakes).report())


# ---- interval rows --------------------------------------------------------------------------------------------------


def test_rows_stand_under_their_heads_with_units():
    names, units = text.interval_header().split("\n")
    row = text.interval_row(interval(1.002))
    assert len(names) == len(row) <= text.WIDTH
    assert len(units) == len(names)
    assert row.split() == ["1.0", "69,066.0", "7", "1,593", "0", "0", "12,888", "kernel"]
    assert units.split() == ["s", "1/s", "total", "SYN", "mean", "us", "from"]


def test_the_mean_of_a_row_covers_repeated_handshakes_too():
    row = interval(1.0, clean=9, clean_rtt_us=100, repeated=1, repeated_rtt_us=1_000_100, source="wire")
    assert text.interval_row(row).split()[-2:] == ["100,100", "wire"]


@pytest.mark.parametrize(
    "unknown",
    [
        {"retransmits": None, "clean": None, "clean_rtt_us": None, "repeated": None, "repeated_rtt_us": None},
        {"retransmits": None, "clean": 0, "clean_rtt_us": None, "repeated": 0, "repeated_rtt_us": None},
    ],
)
def test_what_a_row_does_not_know_is_a_dash(unknown):
    assert text.interval_row(interval(1.0, seconds=0.0, **unknown)).split() == [
        "1.0", "-", "7", "1,593", "0", "-", "-", "-",
    ]  # fmt: skip


def after(shown: str, head: str) -> list[str]:
    lines = shown.split("\n")
    start = next(i for i, line in enumerate(lines) if line.startswith(head))
    return lines[start : lines.index("", start)]


def test_disagreements_worth_a_look_are_shown_with_their_connection():
    title, head, _, *table = after(text.report(RUNS["lossy"]), "Largest disagreements")
    assert title == "Largest disagreements with the wire, by kernel and by application; times in ms"
    assert head.split() == ["at", "s", "application", "kernel", "wire", "again", "connection"]
    assert table[0].split() == ["0.999", "2000.044", "1.000", "2000.029", "2/2", "127.0.0.1:20999>127.0.0.2:10001"]
    assert len(table) == 5
    assert "Largest disagreements" not in text.report(RUNS["clean"])
    assert "Largest disagreements" not in text.report(RUNS["kernel"])


def test_a_stalled_application_is_shown_and_a_busy_one_is_not():
    records, handshakes = rows(100, every_ns=10_000_000)
    records["connected_ns"][[3, 4]] += np.array([99, 100]) * 1_000_000
    made = finish(records, handshakes)
    (row,) = after(text.report(made.report()), "Largest disagreements")[3:]
    assert row.split() == ["0.040", "100.039", "0.027", "0.024", "0/0", "127.0.0.1:20004>127.0.0.2:10001"]


def test_long_addresses_go_on_a_line_of_their_own():
    records, handshakes = rows(1)
    records["connected_ns"] += S
    records["kernel_rtt_us"] = NO_KERNEL_RTT
    handshakes["client_hi"] = handshakes["server_hi"] = 0x20010DB8_12345678
    handshakes["client_lo"] = handshakes["server_lo"] = 0x12345678_12345678
    address = "2001:db8:1234:5678:1234:5678:1234:5678"
    made = finish(records, handshakes, paths=((address, address),))
    figures_, *who = after(text.report(made.report()), "Largest disagreements")[3:]
    assert figures_.split() == ["0.000", "1000.035", "-", "0.020", "0/-"]
    assert "".join(line.strip() for line in who) == f"[{address}]:20000>[{address}]:10001"
    assert max(map(len, who)) <= text.WIDTH


def far(**offset) -> str:
    made = clean(1000)
    found = ClockOffset(**{"offset_ns": 12_345_678_901, "low_ns": 12_345_578_901, "high_ns": 12_345_778_901, **offset})
    wire = replace(made.run.wire, interface="", file="far.pcap", offset=found)
    made.handshakes["t_syn_first_ns"] += found.offset_ns - 5_000
    made.handshakes["t_synack_ns"] += found.offset_ns - 5_000
    return " ".join(text.report(made.report(wire=wire)).split())


def test_a_far_capture_says_how_its_clock_differs():
    shown = far(n=990, drift_ppm=0.0, at_ns=0)
    assert "Capture far.pcap (EN10MB), at the client" in shown
    assert "handshake found for 1,000 of 1,000 connections (100 %)" in shown
    assert "clock offset +12.345679 s +- 0.100 ms, estimated from 990 connections; times between" in shown
    assert "drift" not in shown
    assert "before the SYN left" not in shown
    assert "+- 0.100 ms, drifting by -12.3 ppm, estimated" in far(n=1, drift_ppm=-12.3, at_ns=1_700_000_000 * S)


def test_a_saved_capture_by_this_clock_says_so():
    made = clean(1000)
    shown = text.report(made.report(wire=replace(made.run.wire, interface="", file="here.pcap")))
    assert "its clock is taken for that of this run" in shown
    assert "before the SYN left" in shown


def test_of_a_capture_of_something_else_neither_clock_nor_empty_sums_are_told():
    records, _ = rows(10)
    made = finish(records, rows(0)[1], wire={"interface": "", "file": "other.pcap", "dropped": None})
    shown = text.report(made.report())
    assert "handshake found for 0 of 10 connections" in shown
    assert "its clock" not in shown
    assert "0 = 0" not in shown


def test_of_a_capture_of_which_nothing_is_taken_no_handshake_is_told():
    records, handshakes = rows(10)
    handshakes["state"], handshakes["synack_n"], handshakes["t_synack_ns"] = UNANSWERED, 0, UNKNOWN
    books = Books(packets=10, syn=10, syn_counted=10, attempts=10, unanswered=10)
    wire = {"interface": "", "file": "syns.pcap", "dropped": None, "books": books}
    made = finish(records, handshakes, wire=wire).report()
    shown = " ".join(text.report(made).split())
    assert "Nothing is taken from this capture" in shown
    assert (made.matched, made.matched_share) == (None, None)
    for contradiction in ("handshake found", "confirm", "its clock"):
        assert contradiction not in shown


def test_response_and_service_time_stand_side_by_side_and_are_named():
    shown = text.report(RUNS["scheduled"])
    assert "asked for 0.5 connects per second, began 10: 90 starts of 120 late" in " ".join(shown.split())
    assert "(60 for want of a free connection), 20 never begun" in " ".join(shown.split())
    assert "behind the schedule: 2,000 us on average, 9,000,000 us at most" in " ".join(shown.split())
    (head,) = [line for line in shown.split("\n") if line.startswith("Times in")]
    assert head.split()[-2:] == ["response", "service"]
    (median,) = [line for line in shown.split("\n") if line.startswith("median")]
    response, service = (int(word) for word in median.replace(",", "").split()[-2:])
    assert response - service == 2000
    assert "connect  " not in shown
    assert "service" not in text.report(RUNS["clean"])


def test_nobody_answered_is_not_nothing_failed() -> None:
    silent = replace(RUNS["clean"], attempted=20, established=0, failed=0, unfinished=20, errors=())
    assert "Failures      none; 20 were never answered" in text.report(silent)


@pytest.mark.parametrize(
    ("role", "words"),
    [
        ("server", "accepting was refused 69 times at a limit of this machine and tried again: connections waited"),
        ("client", "69 more never left this machine"),
    ],
)
def test_what_this_machine_refused_is_told_by_role(role: str, words: str) -> None:
    assert words in " ".join(text.report(replace(RUNS["clean"], role=role, not_started=69)).split())


def test_one_is_told_in_the_singular() -> None:
    one = replace(RUNS["clean"], role="server", attempted=1, unfinished=1, errors=(), not_started=1, connections_late=1)
    shown = " ".join(text.report(one).split())
    assert "none; 1 was never answered" in shown
    assert "accepting was refused 1 time at" in shown
    assert "1 more was under way when the time was up" in shown


@pytest.mark.parametrize(
    ("gbps", "shown"),
    [
        (0.0, "0.000 Gbit/s"),
        (1234.5, "1234.500 Gbit/s"),
        (0.001, "0.001 Gbit/s"),
        (0.000999, "0.999 Mbit/s"),
        (0.000_000_52, "0.52 kbit/s"),
        (1e-12, "0.000001 kbit/s"),
    ],
)
def test_a_little_data_is_not_none(gbps: float, shown: str) -> None:
    assert f"received {shown}, sent 0.000 Gbit/s" in text.report(replace(RUNS["clean"], rx_gbps=gbps, tx_gbps=0.0))


@pytest.mark.parametrize(
    ("asked", "shown"),
    [
        (1e7, "10,000,000"),
        (1_234_567.5, "1,234,567.5"),
        (0.5, "0.5"),
        (1 / 3600, "0.000278"),
        (0.0, "0"),
        (100.0, "100"),
    ],
)
def test_rates_have_no_exponents(asked: float, shown: str) -> None:
    lines = " ".join(text.report(replace(RUNS["scheduled"], rate_asked=asked)).split())
    assert f"asked for {shown} connects per second" in lines
