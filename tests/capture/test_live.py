"""Live frames from real interfaces: what is admitted, what is lost, and what is said when it cannot be."""

import os
import select
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from ncps_capture import live
from ncps_capture.errors import CaptureUnavailable
from ncps_capture.live import LiveSource, find_devices, link_type_name, open_live
from ncps_capture.segments import Batch, CaptureSpec

LO = "lo" if sys.platform.startswith("linux") else "lo0"
ROOT = os.name == "posix" and os.geteuid() == 0
needs_root = pytest.mark.skipif(not ROOT, reason="needs root: capturing on the loopback interface")
needs_namespaces = pytest.mark.skipif(
    not (ROOT and shutil.which("unshare")), reason="needs root and unshare: making a network namespace"
)
DEADLINE_S = 10.0


def capturing(port: int, **changes: object) -> CaptureSpec:
    return replace(CaptureSpec(LO, ((port, port),), loopback=True), **changes)


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0), backlog=512) as listening:
        yield listening


@pytest.fixture
def source(server: socket.socket) -> Iterator[LiveSource]:
    opened = open_live(capturing(server.getsockname()[1]))
    yield opened
    opened.close()


def connect(server: socket.socket, count: int) -> None:
    for _ in range(count):
        with socket.create_connection(server.getsockname()[:2]):
            server.accept()[0].close()


def frames_until(source: LiveSource, count: int) -> list[Batch]:
    """Batches until ``count`` frames have come, and whatever comes in a tenth of a second behind them."""
    batches: list[Batch] = []
    deadline = time.monotonic() + DEADLINE_S
    while sum(len(batch.offsets) for batch in batches) < count and time.monotonic() < deadline:
        batch = source.batch(100)
        if batch is not None:
            batches.append(batch)
    while (batch := source.batch(100)) is not None:
        batches.append(batch)
    return batches


@pytest.mark.capture
@needs_root
@pytest.mark.parametrize("loopback", [True, False])
def test_each_syn_and_synack_on_loopback_is_seen_once(server: socket.socket, loopback: bool) -> None:
    source = open_live(capturing(server.getsockname()[1], loopback=loopback))
    before_ns = time.time_ns()
    connect(server, 50)
    after_ns = time.time_ns()
    batches = frames_until(source, 100)
    flags = [batch.data[batch.offsets[i] + 14 + 20 + 13] & 0x12 for batch in batches for i in range(len(batch.offsets))]
    assert sorted(flags) == [0x02] * 50 + [0x12] * 50
    times = np.concatenate([batch.t_ns for batch in batches])
    assert before_ns // 1000 * 1000 <= times.min()
    assert times.max() <= after_ns
    numbers = [batch.first_frame + i for batch in batches for i in range(len(batch.offsets))]
    assert numbers == list(range(1, 101))
    assert (source.link_type, source.dropped(), source.note) == (1, 0, None)
    assert {batch.link_type for batch in batches} == {1}
    source.close()


@pytest.mark.capture
@needs_root
def test_an_idle_link_gives_nothing_and_does_not_block(source: LiveSource) -> None:
    assert source.batch(0) is None
    assert source.batch(30) is None


@pytest.mark.capture
@needs_root
def test_its_descriptor_becomes_readable_when_frames_are_there(source: LiveSource, server: socket.socket) -> None:
    waiting = select.poll()
    waiting.register(source.fileno(), select.POLLIN)
    assert waiting.poll(0) == []
    connect(server, 1)
    assert waiting.poll(DEADLINE_S * 1000)


@pytest.mark.capture
@needs_root
def test_other_ports_are_not_admitted(source: LiveSource, server: socket.socket) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        connect(other, 5)
    connect(server, 1)
    assert sum(len(batch.offsets) for batch in frames_until(source, 2)) == 2


@pytest.mark.capture
@needs_root
@pytest.mark.skipif(LO != "lo", reason="only Linux has an interface named any")
def test_all_interfaces_at_once_have_a_link_type_of_their_own(server: socket.socket) -> None:
    source = open_live(capturing(server.getsockname()[1], interface="any"))
    connect(server, 3)
    batches = frames_until(source, 6)
    assert sum(len(batch.offsets) for batch in batches) == 6
    assert {batch.link_type for batch in batches} == {source.link_type} == {113}
    source.close()


@pytest.mark.capture
@needs_root
def test_frames_from_before_the_filter_are_thrown_away(server: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between activation and filter everything on the interface is queued; here, connections to a wrong port."""
    judged = live.bpf_text

    def late_filter(link_type: int, ports: tuple[tuple[int, int], ...], level: str, tagged: bool) -> str:
        with socket.create_server(("127.0.0.1", 0)) as other:
            connect(other, 20)
        return judged(link_type, ports, level, tagged)

    monkeypatch.setattr(live, "bpf_text", late_filter)
    source = open_live(capturing(server.getsockname()[1]))
    connect(server, 1)
    assert sum(len(batch.offsets) for batch in frames_until(source, 2)) == 2
    source.close()


@pytest.mark.capture
@needs_root
def test_frames_are_cut_at_snaplen(server: socket.socket) -> None:
    source = open_live(capturing(server.getsockname()[1], snaplen=60))
    connect(server, 1)
    (lengths,) = {tuple(batch.caplens) for batch in frames_until(source, 2)}
    assert lengths == (60, 60)
    source.close()


@pytest.mark.capture
@needs_root
def test_what_the_kernel_could_not_hand_over_is_counted(server: socket.socket) -> None:
    """The smallest ring there is, not read from while twice as much comes."""
    source = open_live(capturing(server.getsockname()[1], level="acks", buffer_bytes=1))
    assert source.dropped() == 0
    with socket.create_connection(server.getsockname()[:2]) as client:
        peer, _ = server.accept()
        sent = 0
        while source.dropped() == 0 and sent < 100_000:
            peer.send(b"x")  # each is answered by a bare acknowledgement
            client.recv(1)
            sent += 1
        peer.close()
    assert source.dropped() > 0
    source.close()


class _Handle:
    """Stands in for a handle of libpcap: one frame for every byte in a pipe, and drop counts as told."""

    def __init__(self, *drops: int, queued: bytes = b"") -> None:
        self.drops = list(drops)
        self.reading, self.writing = os.pipe()
        os.write(self.writing, queued)

    def getfd(self) -> int:
        return self.reading

    def stats(self) -> tuple[int, int, int]:
        return (7, self.drops.pop(0), 7)

    def next_batch(self, _: int) -> tuple[bytes, bytes]:
        frames = os.read(self.reading, 99)
        return frames, b"".join(np.array([1, 2, i, 1], "=u4").tobytes() for i in range(len(frames)))

    def close(self) -> None:
        os.close(self.reading)
        os.close(self.writing)


def test_the_drop_counter_starts_anywhere_and_wraps() -> None:
    source = LiveSource(_Handle(0xFFFFFFFE, 0xFFFFFFFE, 0xFFFFFFFF, 3), "x0", 1, "", None)
    assert [source.dropped() for _ in range(3)] == [0, 1, 5]
    source.close()


def test_what_was_queued_before_opening_was_done_is_thrown_away() -> None:
    handle = _Handle(0, queued=b"old")
    source = LiveSource(handle, "x0", 1, "", None)
    assert source.batch(0) is None
    os.write(handle.writing, b"new")
    batch = source.batch(0)
    assert batch is not None
    assert batch.data.tobytes() == b"new"
    assert batch.t_ns.tolist() == [1_000_002_000] * 3
    assert batch.first_frame == 1
    source.close()


@pytest.mark.capture
@needs_root
def test_an_interface_that_does_not_exist_is_named_with_those_that_do() -> None:
    with pytest.raises(CaptureUnavailable, match=r"^cannot capture on nosuch0: no such interface; there are: .*\blo"):
        open_live(CaptureSpec("nosuch0", ()))
    assert LO in find_devices()


def run_python(script: str, *before: str) -> str:
    done = subprocess.run([*before, sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.strip()


OPEN = """
from ncps_capture.errors import CaptureUnavailable
from ncps_capture.live import open_live
from ncps_capture.segments import CaptureSpec
try:
    source = open_live(CaptureSpec("lo", (), loopback=True))
except CaptureUnavailable as fault:
    print(fault)
"""


@pytest.mark.namespaces
@needs_namespaces
def test_an_interface_that_is_not_up_says_so() -> None:
    assert (
        run_python(OPEN, "unshare", "-n")
        == "cannot capture on lo: the interface is not up; try: sudo ip link set lo up"
    )


@pytest.mark.namespaces
@needs_namespaces
def test_an_interface_that_goes_down_ends_the_capture_with_a_reason() -> None:
    script = "import subprocess\nsubprocess.run(['ip', 'link', 'set', 'lo', 'up'], check=True)\n" + OPEN.replace(
        "except",
        "    subprocess.run(['ip', 'link', 'set', 'lo', 'down'], check=True)\n    source.batch(10000)\nexcept",
    )
    assert run_python(script, "unshare", "-n") == "cannot go on capturing on lo: The interface went down"


@needs_root
def test_without_the_right_the_command_that_gives_it_is_named() -> None:
    # Import first: nobody may be unable to read where this is installed.
    said = run_python(OPEN.replace("try:", "import os, pcapy\nos.setresuid(65534, 65534, 65534)\ntry:"))
    reason, _, python = said.rpartition(" ")
    assert reason == (
        "cannot capture on lo: no right to capture packets; run it with sudo, or give this Python, and all it runs, "
        "the right once: sudo setcap cap_net_raw=ep"
    )
    assert Path(python).samefile(sys.executable)


def test_without_pcapy_the_command_that_installs_it_is_named() -> None:
    said = run_python("import sys; sys.modules['pcapy'] = None\n" + OPEN)
    assert said.startswith("cannot capture on lo: pcapy is not usable here")
    assert said.endswith(f"try: {sys.executable} -m pip install pcapy-ng")


def test_importing_every_module_needs_no_pcapy() -> None:
    script = (
        "import sys, pkgutil, importlib, ncps_capture\n"
        "for module in pkgutil.iter_modules(ncps_capture.__path__):\n"
        "    importlib.import_module('ncps_capture.' + module.name)\n"
        "print('pcapy' in sys.modules)\n"
    )
    assert run_python(script) == "False"


def test_link_types_have_their_usual_names() -> None:
    assert [link_type_name(number) for number in (1, 113, 999)] == ["EN10MB", "LINUX_SLL", "999"]
