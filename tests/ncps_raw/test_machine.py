"""What a plan is held against is what this machine says."""

import sys
from pathlib import Path

import pytest

from ncps_raw import limits, net
from ncps_raw.machine import machine_for
from ncps_raw.plan import SECOND, ClientPlan, ServerPlan

PROC = Path("/proc/sys/net/ipv4")


def test_the_machine_as_it_is() -> None:
    found = machine_for(ServerPlan())
    assert found.cores >= 1
    assert found.local_ports == net.local_port_range()
    assert (found.soft_files, found.hard_files) == limits.file_limits()


@pytest.mark.parametrize(
    ("setting", "target", "seconds"),
    [
        ("0", "127.0.0.1", 60),
        ("1", "10.0.0.5", 1),
        ("2", "10.0.0.5", 60),
        ("2", "127.0.0.1", 1),
        ("2", "localhost", 1),
        ("2", "host.example", 60),
        ("odd", "127.0.0.1", 60),
    ],
)
def test_how_long_ports_wait(monkeypatch: pytest.MonkeyPatch, setting: str, target: str, seconds: int) -> None:
    read = Path.read_text

    def settings(path: Path, *a: object, **more: object) -> str:
        return setting if path.name == "tcp_tw_reuse" else read(path, encoding="ascii")

    monkeypatch.setattr(Path, "read_text", settings)
    assert machine_for(ClientPlan(target=target)).time_wait_ns == seconds * SECOND


@pytest.mark.parametrize(
    ("text", "count"), [("\n", 0), ("8080\n", 0), ("30000,30005-30009,40000-50000\n", 7), ("29000-30000\n", 1)]
)
def test_reserved_ports_are_those_of_the_range(monkeypatch: pytest.MonkeyPatch, text: str, count: int) -> None:
    monkeypatch.setattr(Path, "read_text", lambda *a, **more: text)
    assert net.reserved_ports(30_000, 40_000) == count


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the settings of Linux")
def test_the_settings_are_where_they_are_looked_for() -> None:
    assert (PROC / "tcp_tw_reuse").exists()
    assert (PROC / "ip_local_reserved_ports").exists()
