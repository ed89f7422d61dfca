"""Namespaces: made, entered, swept and removed for real; what is missing is said in one line."""

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest
from ncps_capture.errors import EnvironmentFault

from ncps_raw.lab import namespaces
from ncps_raw.lab.namespaces import Side

pytestmark = pytest.mark.namespaces


@pytest.fixture
def pair() -> Iterator[tuple[Side, Side]]:
    """Two namespaces with devices; the device of this process goes with the descriptors."""
    made = namespaces.sides(os.getpid())
    descriptors = namespaces.make(made, ethernet=False)
    try:
        yield made
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
        namespaces.remove([side.name for side in made])


def devices() -> set[str]:
    return {name for _, name in socket.if_nameindex()}


def exists(name: str) -> bool:
    return name in subprocess.run(["ip", "netns"], capture_output=True, text=True, check=True).stdout.split()


def dead_pid() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_a_side_has_its_device_and_its_addresses_at_once(pair: tuple[Side, Side]) -> None:
    for side in pair:
        with namespaces.entered(side.name):
            assert devices() == {"lo", "wan0"}
            for address in (side.ipv4, side.ipv6, "127.0.0.1"):
                socket.create_server((address, 0), family=namespaces_family(address)).close()
        assert namespaces.device_losses(side) == 0


def namespaces_family(address: str) -> int:
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def test_entering_is_undone_whatever_happens(pair: tuple[Side, Side]) -> None:
    before = devices()
    with pytest.raises(ZeroDivisionError), namespaces.entered(pair[0].name):
        raise ZeroDivisionError
    assert devices() == before
    with pytest.raises(FileNotFoundError), namespaces.entered("ncps-lab-none"):
        pass
    assert devices() == before


def test_sysctls_are_those_of_the_namespace(pair: tuple[Side, Side]) -> None:
    a, b = (side.name for side in pair)
    key = "net.ipv4.tcp_timestamps"
    here, there = namespaces.sysctl(a, key), namespaces.sysctl(b, key)
    other = "0" if here != "0" else "1"
    namespaces.set_sysctl(a, key, other)
    assert namespaces.sysctl(a, key) == other
    assert namespaces.sysctl(b, key) == there
    with pytest.raises(EnvironmentFault, match=r"cannot set net.ipv4.no_such to 1"):
        namespaces.set_sysctl(a, "net.ipv4.no_such", 1)
    with pytest.raises(EnvironmentFault, match=r"cannot read net.ipv4.no_such"):
        namespaces.sysctl(a, "net.ipv4.no_such")


def test_removing_ends_what_runs_there(pair: tuple[Side, Side]) -> None:
    a, b = (side.name for side in pair)
    code = "import sys; print(flush=True); sys.stdin.read()"
    process = subprocess.Popen(
        namespaces.command(b, [sys.executable, "-c", code]), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with process:
        assert process.stdout is not None
        process.stdout.readline()
        assert namespaces.processes_in(b) == [process.pid]
        assert namespaces.processes_in(a) == []
        namespaces.remove([a, b])
        assert process.wait() == -9
    assert not exists(a)
    assert not exists(b)
    namespaces.remove([a, b])  # once more: no fault
    assert namespaces.processes_in(b) == []


def test_only_what_dead_labs_left_is_swept(pair: tuple[Side, Side]) -> None:
    orphan, reused, foreign = (
        f"ncps-lab-{dead_pid()}-1-a",
        f"ncps-lab-{os.getpid()}-1-b",
        f"ncps-labor-{os.getpid()}-1-a",
    )
    names = [orphan, reused, foreign]
    try:
        for name in names:
            namespaces.ip("netns", "add", name)
        assert {orphan, reused} <= set(namespaces.leftovers())
        swept = namespaces.sweep()
        assert {orphan, reused} <= set(swept)
        assert [exists(name) for name in names] == [False, False, True]
        assert all(exists(side.name) for side in pair)
    finally:
        namespaces.remove(names)


def test_a_failure_of_ip_is_told_in_one_line() -> None:
    with pytest.raises(EnvironmentFault, match=r"ip netns del ncps-no-such failed: .*; a lab needs root") as caught:
        namespaces.ip("netns", "del", "ncps-no-such")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("module", "name", "value", "said"),
    [
        (sys, "platform", "darwin", "exist on Linux only"),
        (shutil, "which", lambda name: None, "the program ip is missing; install iproute2"),
        (os, "geteuid", lambda: 1000, "need root; run with sudo"),
    ],
)
def test_what_is_missing_is_said(
    module: object, name: str, value: object, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    namespaces.check()
    monkeypatch.setattr(module, name, value)
    with pytest.raises(EnvironmentFault, match=said):
        namespaces.check()
