"""Log rows: what is packed is what numpy reads."""

import ipaddress
import subprocess
import sys

import numpy as np
import pytest
from made_packets import A, B, packet
from ncps_capture.segments import V4_MAPPED

from ncps_raw.lab.logbook import READ, RELAY_LOG, WRITTEN, row
from ncps_raw.lab.packets import Header, read_header


@pytest.mark.parametrize("version", [4, 6])
def test_a_row_reads_as_it_was_written(version: int) -> None:
    raw = packet("SA", 9000, 40000, seq=5, ack=1001, version=version, back=True, options=[("Timestamp", (77, 1))])
    head = read_header(raw)
    data = row(123, head, len(raw), WRITTEN, 1, 42, late_ns=9, nth=2, rule=3, copy=1, action=2, answer=True)
    (entry,) = np.frombuffer(data, RELAY_LOG)
    expected = {
        "t_ns": 123,
        "late_ns": 9,
        "number": 42,
        "seq": 5,
        "ack": 1001,
        "tsval": 77,
        "ident": head.ident,
        "nth": 2,
        "length": len(raw),
        "sport": 9000,
        "dport": 40000,
        "rule": 3,
        "copy": 1,
        "event": WRITTEN,
        "direction": 1,
        "action": 2,
        "kind": head.kind,
        "flags": 0x12,
        "answer": 1,
    }
    assert {name: int(entry[name]) for name in expected} == expected
    for side, address in (("src", B[version]), ("dst", A[version])):
        number = int(ipaddress.ip_address(address)) + (V4_MAPPED if version == 4 else 0)
        assert (int(entry[f"{side}_hi"]) << 64) + int(entry[f"{side}_lo"]) == number
    named = {name for name in RELAY_LOG.names or () if not name.endswith(("_hi", "_lo"))}
    assert named == set(expected)


def test_what_is_not_ip_has_no_addresses() -> None:
    (entry,) = np.frombuffer(row(1, Header(0, 0), 60, READ, 0, 0), RELAY_LOG)
    assert [int(entry[name]) for name in ("src_hi", "src_lo", "dst_hi", "dst_lo")] == [0, 0, 0, 0]
    assert entry["rule"] == -1


def test_the_relay_starts_without_numpy() -> None:
    code = "import sys, ncps_raw.lab.relay; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
