"""Records, paths and slots as the engines keep them."""

import socket
from types import SimpleNamespace

import numpy as np
import pytest
from loads import Ledger
from ncps_analysis import records
from ncps_capture import segments

from ncps_raw.engine import connection
from ncps_raw.engine.base import COUNTERS, RECORDS_A_WRITE, ClientLoop
from ncps_raw.engine.connection import MOST_PATHS, ClientShare, Paths, Records, local_name
from ncps_raw.ports import ClientPorts


def test_the_engines_words_are_those_of_the_records() -> None:
    """The engines do not import numpy for six numbers; so they have them twice."""
    ours = {name[2:]: value for name, value in vars(connection).items() if name.startswith("R_")}
    assert ours == {name: getattr(records, name) for name in ours}
    assert sorted(ours.values()) == list(range(len(records.OUTCOME_NAMES)))
    assert [name.lower() for name in sorted(ours, key=lambda name: ours[name])] == list(records.OUTCOME_NAMES)
    assert connection.UNKNOWN == segments.UNKNOWN
    assert connection.NO_RTT == records.NO_KERNEL_RTT


def ended(**figures: int) -> SimpleNamespace:
    plain = {"intended": 12, "start": 1, "connected": 2, "rtt": 3, "lport": 4, "rport": 5, "path": 6, "retrans": 7}
    return SimpleNamespace(**{**plain, **figures})


def test_each_field_lands_in_its_column() -> None:
    ledger = Ledger()
    kept = Records(ledger)
    kept.add(ended(), 8, 9, 10, 11)
    kept.flush()
    (row,) = ledger.rows()
    assert {name: int(row[name]) for name in row.dtype.names} == {
        "intended_ns": 12,
        "start_ns": 1,
        "connected_ns": 2,
        "closed_ns": 11,
        "kernel_rtt_us": 3,
        "error": 10,
        "lport": 4,
        "rport": 5,
        "path": 6,
        "loop": 8,
        "outcome": 9,
        "kernel_retrans": 7,
    }


def test_records_are_handed_on_whole_in_order_and_once() -> None:
    ledger = Ledger()
    kept = Records(ledger)
    for i in range(RECORDS_A_WRITE - 1):
        kept.add(ended(start=i), 0, 0, 0, 0)
    assert len(ledger.rows()) == 0
    for i in range(RECORDS_A_WRITE - 1, RECORDS_A_WRITE + 5):
        kept.add(ended(start=i), 0, 0, 0, 0)
    assert len(ledger.rows()) == RECORDS_A_WRITE
    kept.flush()
    kept.flush()
    assert (ledger.rows()["start_ns"] == np.arange(RECORDS_A_WRITE + 5)).all()


def test_paths_are_numbered_as_they_come() -> None:
    paths = Paths()
    assert [paths.number("a", "b"), paths.number("b", "a"), paths.number("a", "b")] == [0, 1, 0]
    assert paths.table() == [("a", "b"), ("b", "a")]
    assert len(paths) == 2


def test_more_pairs_than_a_record_can_number_are_unknown() -> None:
    paths = Paths()
    for i in range(MOST_PATHS):
        assert paths.number("here", str(i)) == i
    assert np.iinfo(records.CONNECTION["path"]).max == MOST_PATHS
    assert paths.number("here", "one more") == MOST_PATHS
    assert paths.number("here", "and another") == MOST_PATHS
    assert paths.number("here", "7") == 7
    table = paths.table()
    assert len(table) == MOST_PATHS + 1
    assert (table[7], table[MOST_PATHS]) == (("here", "7"), ("", ""))


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_the_local_end_of_a_socket(family: int) -> None:
    host = "::1" if family == socket.AF_INET6 else "127.0.0.1"
    with socket.socket(family) as sock:
        sock.bind((host, 0))
        assert local_name(sock) == (host, sock.getsockname()[1])
    assert local_name(sock) == ("", 0)


@pytest.mark.parametrize("address", [("h", 0), ("h", 0, 0, 3)])
def test_a_share_has_a_slot_for_each_connection_and_its_targets(address: tuple[object, ...]) -> None:
    share = ClientShare(ClientLoop(4, 3, 2, ClientPorts((7, 8), (), True)), address)
    assert len(share.free) == share.total == 3
    assert {slot.loop for slot in share.free} == {share}
    assert share.targets == [(7, ("h", 7, *address[2:])), (8, ("h", 8, *address[2:]))]
    assert share.counts == [0] * len(COUNTERS)


@pytest.mark.parametrize(
    ("remote", "local", "steps"), [((7,), (), False), ((7, 8), (), True), ((7,), (1, 2), True), ((7,), (1,), True)]
)
def test_a_loop_that_has_nothing_to_choose_does_not_step(
    remote: tuple[int, ...], local: tuple[int, ...], steps: bool
) -> None:
    assert ClientShare(ClientLoop(0, 1, 1, ClientPorts(remote, local, False)), ("h", 0)).steps is steps
