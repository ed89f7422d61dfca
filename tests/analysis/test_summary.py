from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from made_runs import EPOCH, MONOTONIC, Made, S, finish, lossy, rows
from ncps_analysis.assemble import with_attempts
from ncps_analysis.records import CONNECTION
from ncps_analysis.summary import build_report
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
