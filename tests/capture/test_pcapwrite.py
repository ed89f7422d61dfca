"""What is written is what dpkt, scapy and tcpdump read."""

import io
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import dpkt
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ncps_capture.capfile import open_capture
from ncps_capture.errors import FileFault
from ncps_capture.pcapwrite import PcapWriter, original_lengths
from ncps_capture.segments import Batch
from scapy.layers.inet import IP, TCP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import ARP, CookedLinux, Dot1AD, Dot1Q, Ether
from scapy.packet import Raw
from scapy.utils import RawPcapReader


def batch(frames: list[bytes], times: list[int] | None = None, link_type: int = 1, gap: int = 0) -> Batch:
    """A batch as a live source makes it: the original lengths are not known. ``gap`` bytes precede each frame."""
    caplens = np.array([len(frame) for frame in frames], np.int64)
    offsets = np.cumsum(caplens + gap) - caplens
    return Batch(
        data=np.frombuffer(b"".join(b"\xee" * gap + frame for frame in frames), np.uint8),
        offsets=offsets,
        caplens=caplens,
        lengths=caplens,
        t_ns=np.array(times if times is not None else range(len(frames)), np.int64),
        link_type=link_type,
        first_frame=1,
        source=0,
    )


def write(path: Path, *batches: Batch, snaplen: int = 65535, nanoseconds: bool = False) -> Path:
    with PcapWriter(path, batches[0].link_type, snaplen, nanoseconds=nanoseconds) as writer:
        for each in batches:
            writer.write(each)
        assert writer.packets == sum(len(each.offsets) for each in batches)
    return path


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.binary(max_size=70), st.integers(0, 2**32 * 10**9 - 1)), min_size=1, max_size=20),
    st.integers(0, 9),
    st.booleans(),
)
def test_dpkt_and_scapy_read_the_same_frames_and_times(
    tmp_path_factory: pytest.TempPathFactory, frames: list[tuple[bytes, int]], gap: int, nanoseconds: bool
) -> None:
    data, times = [frame for frame, _ in frames], [t for _, t in frames]
    path = tmp_path_factory.getbasetemp() / "w.pcap"
    half = len(frames) // 2
    write(path, batch(data[:half], times[:half], gap=gap), batch(data[half:], times[half:]), nanoseconds=nanoseconds)
    unit = 1 if nanoseconds else 1000
    reader = RawPcapReader(str(path))
    assert reader.nano == nanoseconds
    got = [(frame, m.sec * 10**9 + m.usec * unit, m.wirelen, m.caplen) for frame, m in reader]
    reader.close()
    assert got == [(frame, t // unit * unit, len(frame), len(frame)) for frame, t in frames]
    assert [frame for _, frame in dpkt.pcap.Reader(io.BytesIO(path.read_bytes()))] == data


def test_our_own_reader_gives_back_the_batch(tmp_path: Path) -> None:
    original = batch([b"abc", b"", b"defgh"], [1_700_000_000_000_001_000, 5000, 7000])
    (back,) = open_capture(write(tmp_path / "w.pcap", original)).batches()
    np.testing.assert_array_equal(back.t_ns, original.t_ns)
    np.testing.assert_array_equal(back.caplens, original.caplens)
    assert [back.data[o : o + n].tobytes() for o, n in zip(back.offsets, back.caplens, strict=True)] == [
        b"abc",
        b"",
        b"defgh",
    ]


@pytest.mark.skipif(shutil.which("tcpdump") is None, reason="tcpdump is not installed")
def test_tcpdump_reads_it(tmp_path: Path) -> None:
    syn = bytes(Ether(type=0x0800) / IP(src="10.0.0.1", dst="10.0.0.2") / TCP(sport=1, dport=2, flags="S", seq=77))
    path = write(tmp_path / "w.pcap", batch([syn, syn], [1_000_000_000, 2_000_003_000]))
    done = subprocess.run(["tcpdump", "-n", "-tt", "-r", path], capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["1.000000", "2.000003"]
    assert "10.0.0.1.1 > 10.0.0.2.2: Flags [S], seq 77" in lines[0]


@pytest.mark.parametrize(("given_type", "written"), [(1, 1), (12, 101), (14, 101), (101, 101), (113, 113)])
def test_raw_ip_is_101_in_files_of_all_systems(tmp_path: Path, given_type: int, written: int) -> None:
    path = write(tmp_path / "w.pcap", batch([b"E"], link_type=given_type))
    assert open_capture(path).link_type == written


PAYLOAD = Raw(b"x" * 500)
V4 = IP(src="10.0.0.1", dst="10.0.0.2") / TCP() / PAYLOAD
V6 = IPv6(src="::1", dst="::2") / TCP() / PAYLOAD
ETHER = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")


@pytest.mark.parametrize(
    ("packet", "link_type"),
    [
        (ETHER / V4, 1),
        (ETHER / V6, 1),
        (ETHER / Dot1Q(vlan=5) / V4, 1),
        (ETHER / Dot1AD(vlan=5) / Dot1Q(vlan=6) / V6, 1),
        (CookedLinux() / V4, 113),
        (V4, 101),
        (V6, 12),
    ],
    ids=lambda value: value.summary()[:40] if hasattr(value, "summary") else str(value),
)
def test_the_length_of_a_cut_frame_is_in_its_ip_header(packet: Raw, link_type: int) -> None:
    whole = bytes(packet)
    cut = batch([whole[:100], whole[:100]], link_type=link_type)
    assert original_lengths(cut, snaplen=100).tolist() == [len(whole)] * 2


@pytest.mark.parametrize(("family", "head"), [(2, bytes(V4)), (30, bytes(V6))])
def test_the_length_behind_a_bsd_loopback_header(family: int, head: bytes) -> None:
    whole = family.to_bytes(4, "little") + head
    assert original_lengths(batch([whole[:90]], link_type=0), snaplen=90).tolist() == [len(whole)]


@pytest.mark.parametrize(
    "frame",
    [
        bytes(ETHER / V4)[:99],  # shorter than the cut: it was whole, whatever its header says
        bytes(ETHER / IP(len=0) / TCP() / PAYLOAD)[:100],  # segmentation offload
        bytes(ETHER / IP(len=40) / TCP() / PAYLOAD)[:100],  # padding, or a lie
        bytes(ETHER / ARP())[:28] + b"\x45\x00\xff\xff" * 18,
        bytes(ETHER / Raw(b"\x45\x00\xff\xff" * 30))[:100],
    ],
)
def test_where_the_header_does_not_tell_the_captured_length_stands(frame: bytes) -> None:
    assert original_lengths(batch([frame]), snaplen=100).tolist() == [len(frame)]


def test_a_frame_cut_before_its_ip_length_keeps_its_length() -> None:
    for snaplen in range(1, 18):
        frame = bytes(ETHER / V4)[:snaplen]
        assert original_lengths(batch([frame]), snaplen).tolist() == [snaplen]


def test_a_source_that_knows_the_length_is_believed() -> None:
    known = replace(batch([bytes(ETHER / V4)[:100]]), lengths=np.array([1400]))
    assert original_lengths(known, snaplen=100).tolist() == [1400]


def test_places_that_take_no_file_are_named(tmp_path: Path) -> None:
    with pytest.raises(
        FileFault, match=f"^cannot create {tmp_path}/none/w.pcap: No such file or directory; choose another file$"
    ):
        PcapWriter(tmp_path / "none" / "w.pcap", 1, 160)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_full_disk_is_one_line() -> None:
    with pytest.raises(FileFault, match=r"^cannot write /dev/full: No space left on device; choose another file$"):
        PcapWriter("/dev/full", 1, 160)
