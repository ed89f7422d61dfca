"""Frames to pcapng: what our own reader and an independent one find in the file."""

from pathlib import Path

import dpkt
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ncps_capture.capfile import open_capture
from ncps_capture.errors import FileFault
from ncps_capture.pcapngwrite import PcapngWriter
from ncps_capture.segments import Batch

T0 = 1_700_000_000_123_456_000


def batch(frames: list[bytes], step_ns: int = 1000, first: int = 0) -> Batch:
    lengths = np.array([len(frame) for frame in frames], np.int64)
    return Batch(
        data=np.frombuffer(b"".join(frames) + b"\0", np.uint8),
        offsets=np.cumsum(lengths) - lengths,
        caplens=lengths,
        lengths=lengths,
        t_ns=T0 + (np.arange(len(frames), dtype=np.int64) + first) * step_ns,
        link_type=1,
        first_frame=first + 1,
        source=0,
    )


@given(frames=st.lists(st.binary(max_size=70), min_size=1, max_size=12), split=st.integers(0, 12))
def test_two_readers_find_what_was_written(
    frames: list[bytes], split: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("w") / "x.pcapng"
    split = min(split, len(frames))
    with PcapngWriter(path, 1, 160, interface="lo0", filter_text="tcp and port 80") as writer:
        for part, first in ((frames[:split], 0), (frames[split:], split)):
            writer.write(batch(part, first=first))
        writer.close(17)
    assert writer.packets == len(frames)
    with path.open("rb") as file:
        theirs = list(dpkt.pcapng.Reader(file))
    assert [bytes(content) for _, content in theirs] == frames
    assert [t for t, _ in theirs] == pytest.approx([(T0 + n * 1000) / 1e9 for n in range(len(frames))], abs=1e-6)
    opened = open_capture(path)
    found = [
        (bytes(b.data[o : o + n]), int(t))
        for b in opened.batches()
        for o, n, t in zip(b.offsets, b.caplens, b.t_ns, strict=True)
    ]
    assert found == [(frame, T0 + n * 1000) for n, frame in enumerate(frames)]
    assert (opened.drops, opened.damaged, opened.warnings) == (17, None, [])
    assert [(each.name, each.link_type, each.snaplen) for each in opened.interfaces] == [("lo0", 1, 160)]


@pytest.mark.parametrize(("nanoseconds", "t_ns"), [(False, T0 + 1000), (True, T0 + 1234)])
def test_times_are_as_fine_as_asked_for(nanoseconds: bool, t_ns: int, tmp_path: Path) -> None:
    with PcapngWriter(tmp_path / "x", 1, 160, nanoseconds=nanoseconds) as writer:
        writer.write(batch([b"a", b"b"], 1234))
    assert [int(t) for b in open_capture(tmp_path / "x").batches() for t in b.t_ns] == [T0, t_ns]


def test_losses_nobody_knows_of_are_not_told(tmp_path: Path) -> None:
    with PcapngWriter(tmp_path / "x", 12, 160) as writer:
        writer.write(batch([b"a"]))
    opened = open_capture(tmp_path / "x")
    assert sum(len(b.offsets) for b in opened.batches()) == 1
    assert (opened.drops, opened.interfaces[0].link_type) == (None, 101)


def test_a_full_disk_is_one_line() -> None:
    with pytest.raises(FileFault, match="cannot write /dev/full: No space left on device"):
        PcapngWriter("/dev/full", 1, 160)
    with pytest.raises(FileFault, match="cannot create /absent/x: No such file"):
        PcapngWriter("/absent/x", 1, 160)
