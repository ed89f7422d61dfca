"""The log's dtype: its size is that of a packed row, and its codes index the names they are documented to."""

from made_packets import packet

from ncps_raw.lab import logbook, logrow
from ncps_raw.lab.logbook import RELAY_LOG
from ncps_raw.lab.packets import read_header


def test_a_row_is_as_long_as_the_dtype_without_gaps() -> None:
    raw = packet("S", 40000, 9000, seq=1, ack=0)
    assert len(logrow.row(1, read_header(raw), len(raw), logrow.READ, 0, 0)) == RELAY_LOG.itemsize
    assert sum(RELAY_LOG[name].itemsize for name in RELAY_LOG.names or ()) == RELAY_LOG.itemsize


def test_events_are_the_indices_of_their_names() -> None:
    codes = (logbook.READ, logbook.WRITTEN, logbook.UNWRITTEN)
    assert [logbook.EVENTS[code] for code in codes] == ["read", "written", "unwritten"]
