from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from made_runs import EPOCH, MONOTONIC, Made, S, finish, lossy, rows
from ncps_analysis.figures import with_attempts
from ncps_analysis.records import CONNECTION
from ncps_analysis.summary import build_report, clock_offset
from ncps_capture.errors import FileFault
from ncps_capture.segments import HANDSHAKE, REFUSED, UNKNOWN, Books
from ncps_capture.spool import SpoolWriter


def spool(path, dtype, content) -> str:
    with SpoolWriter(path, dtype) as writer:
        writer.append(content)
    return str(path)


def on_disk(made: Made, folder, pieces: int = 1):
    """The run of ``made`` with its rows in files: ``pieces`` spools of records, as many of handshakes."""
    mine = [
        spool(folder / f"connections-{n}.spool", CONNECTION, part)
        for n, part in enumerate(np.array_split(made.records, pieces))
    ]
    run = replace(made.run, connection_files=tuple(mine))
    if run.wire is None:
        return run
    theirs = [
        spool(folder / f"handshakes-{n}.spool", HANDSHAKE, part)
        for n, part in enumerate(np.array_split(made.handshakes, pieces))
    ]
    return replace(run, wire=replace(run.wire, handshake_files=tuple(theirs)))


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(part_rows=st.integers(1, 400), pieces=st.integers(1, 4), captured=st.booleans(), drops=st.sampled_from([0, 2]))
def test_files_and_parts_of_any_size_say_what_the_rows_in_memory_say(
    tmp_path_factory, part_rows, pieces, captured, drops
):
    folder, scratch = tmp_path_factory.mktemp("spools"), tmp_path_factory.mktemp("scratch")
    made = lossy(300, wire={"dropped": drops}) if captured else finish(lossy(300).records, None)
    report = build_report(on_disk(made, folder, pieces), str(scratch), part_rows)
    assert report == made.report()
    assert list(scratch.iterdir()) == []


def test_an_attempt_in_several_rows_is_one_attempt(tmp_path):
    """SYN, RST, SYN, SYN-ACK with one ISN: settled apart while capturing, one attempt with a repeat in the report."""
    records, handshakes = rows(3)
    early = handshakes[1:2].copy()
    early["state"], early["synack_n"], early["t_synack_ns"] = REFUSED, 0, UNKNOWN
    early["t_refused_ns"] = early["t_syn_first_ns"] + 1_000
    late = handshakes[1:2].copy()
    for name in ("t_syn_first_ns", "t_syn_last_ns", "t_syn_before_ns", "t_order_ns", "t_synack_ns"):
        late[name] += S
    late["frame"] += 1000
    records["connected_ns"][1] += S
    records["kernel_retrans"][1] = 1
    seen = np.concatenate((late, handshakes[:1], early, handshakes[2:]))
    made = finish(records, seen, wire={"books": Books(packets=8, syn=4, synack=3, syn_counted=4, attempts=4)})
    report = build_report(on_disk(made, tmp_path), str(tmp_path))
    assert report.capture.books.attempts == report.capture.claimed == 3
    assert report.capture.books.answered == 3
    assert report.problems == ()
    assert (report.syn_repeats, report.syn_repeat_causes.after_rst, report.syn_retrans) == (1, 1, 0)
    assert report.syn_rtt_us.max == 1_000_021
    assert report.path_rtt_us.max == 22
    assert report.retrans_disagree == 0


def test_books_of_packets_stay_and_those_of_attempts_are_replaced():
    captured = Books(packets=9, tcp_packets=8, syn=3, synack=2, syn_malformed=1, attempts=4, answered=1, clock_step=5)
    merged = Books(syn_counted=2, attempts=2, answered=2)
    assert with_attempts(captured, merged) == Books(
        packets=9, tcp_packets=8, syn=3, synack=2, syn_malformed=1, syn_counted=2, attempts=2, answered=2
    )


def test_a_run_without_any_file_is_a_report_of_nothing(tmp_path):
    report = build_report(finish(*rows(0)).run, str(tmp_path))
    assert (report.connections, report.attempted, report.problems) == (0, 0, ())


def test_rows_cut_off_by_a_killed_worker_are_missed_and_said(tmp_path):
    made = finish(*rows(100))
    run = on_disk(made, tmp_path)
    with Path(run.connection_files[0]).open("r+b") as file:
        file.truncate(file.seek(0, 2) - CONNECTION.itemsize - 7)
    report = build_report(run, str(tmp_path))
    assert report.established == 98
    assert any("attempts without a record: 2" in problem for problem in report.problems)


def test_a_file_that_is_no_spool_is_named(tmp_path):
    broken = tmp_path / "connections.spool"
    broken.write_text("something else")
    run = replace(finish(*rows(1)).run, connection_files=(str(broken),))
    with pytest.raises(FileFault, match=r"connections\.spool"):
        build_report(run, str(tmp_path))


def test_the_clock_may_drift_while_the_run_lasts(tmp_path):
    """The wall clock is slewed by 200 us over the run: records follow, and every handshake is found."""
    records, handshakes = rows(1000)
    elapsed = records["start_ns"] - MONOTONIC
    handshakes["t_syn_first_ns"] += elapsed * 200_000 // (10 * S)
    handshakes["t_synack_ns"] += elapsed * 200_000 // (10 * S)
    made = finish(records, handshakes)
    clock = replace(
        made.run.clock,
        monotonic_ns=np.array([MONOTONIC, MONOTONIC + 10 * S], np.int64),
        realtime_ns=np.array([EPOCH, EPOCH + 10 * S + 200_000], np.int64),
    )
    report = build_report(replace(on_disk(made, tmp_path), clock=clock), str(tmp_path))
    assert report.matched == 1000
    assert report.overhead_before_us.max <= 6


def elsewhere(made: Made, shift_ns: int, **changes):
    """The run of ``made`` with its capture stamped by a clock that is ``shift_ns`` ahead."""
    handshakes = made.handshakes.copy()
    for name in ("t_syn_first_ns", "t_syn_last_ns", "t_syn_before_ns", "t_synack_ns", "t_order_ns", "t_refused_ns"):
        handshakes[name] += np.where(handshakes[name] == UNKNOWN, 0, shift_ns)
    wire = replace(made.run.wire, interface="", file="far.pcap", **changes)
    return Made(replace(made.run, wire=wire), made.records, handshakes)


@pytest.mark.parametrize("sample_rows", [10_000, 300])
@pytest.mark.parametrize("shift_ns", [0, 3600 * S, -3600 * S])
def test_a_capture_by_another_clock_is_joined_all_the_same(tmp_path, shift_ns, sample_rows):
    made = lossy(2000)
    here = build_report(on_disk(made, tmp_path), str(tmp_path))
    run = on_disk(elsewhere(made, shift_ns), tmp_path, 3)
    offset, one_clock = clock_offset(run, sample_rows)
    assert one_clock is (shift_ns == 0)
    assert offset is not None
    assert (offset.offset_ns, offset.low_ns, offset.high_ns) == (shift_ns + 5_000,) * 3
    assert (offset.n == 2000) if sample_rows > 2000 else (200 < offset.n < 400)
    report = build_report(replace(run, wire=replace(run.wire, offset=offset)), str(tmp_path))
    assert (report.matched_share, report.problems) == (1.0, ())
    for name in ("syn_rtt_us", "path_rtt_us", "connect_us", "syn_retrans", "syn_retrans_failed", "disagreements"):
        assert getattr(report, name) == getattr(here, name), name
    assert report.overhead_before_us.n == report.overhead_after_us.n == 0
    assert (report.capture.file, report.capture.interface) == ("far.pcap", None)
    assert report.capture.clock_offset_ns == shift_ns + 5_000


def test_without_the_offset_nothing_is_found(tmp_path):
    """The estimate is what joins them, not chance."""
    report = build_report(on_disk(elsewhere(lossy(2000), 3600 * S), tmp_path), str(tmp_path))
    assert report.matched == 0
    assert any("far.pcap" in problem for problem in report.problems)


def test_a_capture_of_other_connections_has_no_offset(tmp_path):
    made = elsewhere(lossy(100), 0)
    made.handshakes["dport"] = 9
    assert clock_offset(on_disk(made, tmp_path)) == (None, False)


def test_a_servers_run_is_joined_with_a_far_capture_too(tmp_path):
    records, handshakes = rows(500)
    records["lport"], records["rport"] = records["rport"].copy(), records["lport"].copy()
    records["start_ns"] = records["connected_ns"] = records["connected_ns"] + np.arange(500) % 50 * 1_000
    made = finish(records, handshakes, role="server", paths=(("127.0.0.2", "127.0.0.1"),), wire={"dropped": None})
    run = on_disk(elsewhere(made, -7 * S), tmp_path)
    offset, _ = clock_offset(run)
    report = build_report(replace(run, wire=replace(run.wire, offset=offset)), str(tmp_path))
    assert (report.matched, report.answer_us.n, report.problems) == (500, 500, ())


def test_a_capture_nearer_to_the_server_is_named(tmp_path):
    records, handshakes = rows(100)
    records["kernel_rtt_us"] += 20_000
    records["connected_ns"] += 20_000_000
    run = on_disk(elsewhere(finish(records, handshakes), S), tmp_path)
    report = build_report(replace(run, wire=replace(run.wire, offset=clock_offset(run)[0])), str(tmp_path))
    assert len(report.problems) == 1
    assert "SYN to SYN-ACK took 24 us in far.pcap, the round trip 20,027 us" in report.problems[0]


def test_what_a_file_may_lack_is_said_of_the_file(tmp_path):
    report = build_report(on_disk(elsewhere(lossy(100), 0, dropped=None), tmp_path), str(tmp_path))
    assert any(note.startswith("far.pcap may lack packets, so its handshakes were checked") for note in report.notes)
