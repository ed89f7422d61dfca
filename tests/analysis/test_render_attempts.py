"""Records of attempts: two forms of the same values."""

import csv
import io
import json

import pytest
from made_attempts import MS, T0, attempt, rows
from ncps_analysis.render.attempts import KEYS, csv_head, csv_text, jsonl_text, records
from ncps_capture import segments as sg

FILES = ("a.pcap", 'odd "name", b.pcap')


def record(row, files=FILES):
    (values,) = records(row, files)
    return dict(zip(KEYS, values, strict=True))


def test_an_answered_attempt() -> None:
    row = attempt(
        client="2001:db8::1",
        syn_n=3,
        retrans_timeout=2,
        t_syn_before_ns=T0 + MS // 2,
        rtt_ts_ns=sg.UNKNOWN,
        flags=sg.F_AMBIGUOUS | sg.F_TFO,
        t_ack_ns=T0 + MS + 5,
        vlan=7,
        tunnel=9,
        mss=1460,
        wscale=0,
        source=1,
        frame=2**40,
    )
    found = record(row)
    assert found["file"] == FILES[1]
    assert (found["src"], found["dst"], found["frame"]) == ("2001:db8::1", "10.0.0.2", 2**40)
    assert (found["rtt_first_ns"], found["rtt_last_ns"], found["rtt_ts_ns"]) == (MS, MS // 2, None)
    assert (found["synack_to_ack_ns"], found["refuse_latency_ns"]) == (5, None)
    assert (found["ambiguous"], found["rtt_exact"], found["tfo"], found["censored"]) == (True, False, True, False)
    assert (found["vlan"], found["tunnel"], found["mss"], found["window_scale"]) == (7, 9, 1460, 0)
    assert (found["syn_repeats"], found["syn_retrans"]) == (2, 2)


@pytest.mark.parametrize(
    ("row", "key", "value"),
    [
        (attempt(state=sg.REFUSED, rtt_us=3), "refuse_latency_ns", 3000),
        (attempt(state=sg.REFUSED, rtt_us=3), "t_synack_ns", None),
        (attempt(state=sg.SIMULTANEOUS), "simultaneous", True),
        (attempt(state=sg.SIMULTANEOUS), "state", "simultaneous"),
        (attempt(flags=sg.F_CLOCK_ERROR), "rtt_first_ns", None),
        (attempt(flags=sg.F_CLOCK_ERROR), "rtt_last_ns", None),
        (attempt(flags=sg.F_CLOCK_STEP), "rtt_ts_ns", None),
        (attempt(rtt_us=0), "rtt_first_ns", 0),
        (attempt(), "vlan", None),
        (attempt(), "tunnel", None),
        (attempt(), "mss", None),
        (attempt(), "window_scale", None),
        (attempt(client="::ffff:10.0.0.1", ip_version=6), "src", "::ffff:10.0.0.1"),
    ],
)
def test_unknown_is_null_and_zero_is_a_value(row, key, value) -> None:
    assert record(row)[key] == value


def test_both_forms_hold_the_same() -> None:
    made = rows(attempt(), attempt(state=sg.SYNACK_ONLY), attempt(state=sg.REFUSED, source=1))
    lines = [json.loads(line) for line in jsonl_text(made, FILES).splitlines()]
    table = list(csv.DictReader(io.StringIO(csv_head() + csv_text(made, FILES))))
    assert len(lines) == len(table) == 2
    assert table[1]["file"] == FILES[1]
    for line, row in zip(lines, table, strict=True):
        assert list(line) == list(row) == list(KEYS)
        assert row == {
            key: "" if value is None else json.dumps(value) if isinstance(value, bool) else str(value)
            for key, value in line.items()
        }
    assert jsonl_text(made[:0], FILES) == csv_text(made[:0], FILES) == ""
