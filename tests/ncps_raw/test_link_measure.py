"""Each part alone."""

import os
import threading
from pathlib import Path

import pytest
from link_pairs import pair
from ncps_capture.errors import FileFault

from ncps_raw.link import measure
from ncps_raw.link.plan import STREAM, LinkPlan


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "EDGE_NS", 20_000_000)
    monkeypatch.setattr(measure, "NETWORK_NS", 100_000_000)


def test_a_file_as_source_and_as_sink(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(bytes(3_000_000))
    assert (measure.source_alone(LinkPlan(sends=True, host="h", source=str(path))).bytes_per_s or 0) > 0
    assert (measure.sink_alone(LinkPlan(sends=False, sink=str(path), fsync=True)).bytes_per_s or 0) > 0
    assert [one.name for one in tmp_path.iterdir()] == ["f"]
    assert path.stat().st_size == 3_000_000  # what is there is not touched


def test_what_has_no_limit_and_what_cannot_be_measured() -> None:
    for plan in (LinkPlan(sends=True, host="h"), LinkPlan(sends=False)):
        speed = measure.edge_alone(plan)
        assert (speed.bytes_per_s, speed.unlimited) == (None, True)
    for plan in (LinkPlan(sends=True, host="h", source=STREAM), LinkPlan(sends=False, sink=STREAM)):
        speed = measure.edge_alone(plan)
        assert (speed.bytes_per_s, speed.unlimited) == (None, False)
        assert speed.why


def test_a_device_is_not_written_beside(tmp_path: Path) -> None:
    """What is no file takes only what is real, and the folder of devices is no place for a file of ours."""
    for sink in ("/dev/null", str(tmp_path)):
        speed = measure.sink_alone(LinkPlan(sends=False, sink=sink))
        assert (speed.bytes_per_s, speed.why) == (None, f"{sink} takes only what is real")


def test_a_sink_alone_is_measured_until_it_is_on_the_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda file: synced.append(os.fstat(file).st_size))
    assert measure.sink_alone(LinkPlan(sends=False, sink=str(tmp_path / "f"))).bytes_per_s
    assert synced
    assert synced[0] == 8 << 20  # little at first: nobody knows how slow the device is


def test_a_small_file_is_read_until_the_time_says_something(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "f").write_bytes(bytes(1000))
    (tmp_path / "empty").touch()
    begins: list[int] = []
    monkeypatch.setattr(measure, "_forget", begins.append)
    plan = LinkPlan(sends=True, host="h", source=str(tmp_path / "f"))
    assert (measure.source_alone(plan).bytes_per_s or 0) > 0
    assert len(begins) > 2
    empty = measure.source_alone(LinkPlan(sends=True, host="h", source=str(tmp_path / "empty")))
    assert (empty.bytes_per_s, empty.why) == (None, "the file is empty")


def test_the_network_is_measured_over_as_many_streams_as_the_transfer_has() -> None:
    with pair() as (a, b), pair() as (c, d):
        seen: list[measure.Speed] = []
        receiver = threading.Thread(
            target=lambda: seen.append(measure.network_alone([b, d], LinkPlan(sends=False), sends=False))
        )
        receiver.start()
        sent = measure.network_alone([a, c], LinkPlan(sends=True, host="h"), sends=True)
        receiver.join()
        assert a.fileno() == c.fileno() == -1  # both were used
    assert sent.bytes_per_s
    assert seen[0].bytes_per_s


def test_files_that_are_not_there() -> None:
    with pytest.raises(FileFault, match="cannot read"):
        measure.source_alone(LinkPlan(sends=True, host="h", source="/nonexistent/x"))
    with pytest.raises(FileFault, match="cannot write"):
        measure.sink_alone(LinkPlan(sends=False, sink="/nonexistent/x"))


def test_the_network_is_seen_alike_from_both_ends() -> None:
    with pair() as (near, far):
        seen: list[measure.Speed] = []
        receiver = threading.Thread(
            target=lambda: seen.append(measure.network_alone([far], LinkPlan(sends=False), sends=False))
        )
        receiver.start()
        sent = measure.network_alone([near], LinkPlan(sends=True, host="h"), sends=True)
        receiver.join()
    assert sent.bytes_per_s is not None
    assert seen[0].bytes_per_s == pytest.approx(sent.bytes_per_s, rel=0.5)
    assert sent.cpu is not None
