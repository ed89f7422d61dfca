"""Each part alone."""

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


def test_files_that_are_not_there() -> None:
    with pytest.raises(FileFault, match="cannot read"):
        measure.source_alone(LinkPlan(sends=True, host="h", source="/nonexistent/x"))
    with pytest.raises(FileFault, match="cannot write"):
        measure.sink_alone(LinkPlan(sends=False, sink="/nonexistent/x"))


def test_the_network_is_seen_alike_from_both_ends() -> None:
    with pair() as (near, far):
        seen: list[measure.Speed] = []
        receiver = threading.Thread(
            target=lambda: seen.append(measure.network_alone(far, LinkPlan(sends=False), sends=False))
        )
        receiver.start()
        sent = measure.network_alone(near, LinkPlan(sends=True, host="h"), sends=True)
        receiver.join()
    assert sent.bytes_per_s is not None
    assert seen[0].bytes_per_s == pytest.approx(sent.bytes_per_s, rel=0.5)
    assert sent.cpu is not None
