"""Pieces of a capture read by processes against the same capture read by one: whatever the file, nothing differs."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from capture_maker import Ng, pcap
from capture_stretches import SECOND, STRETCH, as_pcapng, check, traffic
from ncps_capture.decoded import useful_workers


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("unit", ["micro", "nano", "modified"])
def test_pcap(tmp_path: Path, order: str, unit: str) -> None:
    content = pcap(traffic(1), order, unit)
    assert check(tmp_path / "x", content) == (len(content) - 20_000) // STRETCH


@pytest.mark.parametrize("order", ["<", ">"])
def test_pcapng_of_two_interfaces(tmp_path: Path, order: str) -> None:
    assert check(tmp_path / "x", as_pcapng(traffic(2), order)) > 10


def test_payload_that_looks_like_records_is_found_out(tmp_path: Path) -> None:
    """Guesses go wrong; the stretch is then read again from where the one before ended."""
    assert check(tmp_path / "x", pcap(traffic(3, nested=0.7))) > 10


def test_a_capture_of_days_has_starts_that_no_pattern_of_its_beginning_fits(tmp_path: Path) -> None:
    assert check(tmp_path / "x", pcap(traffic(4, speed=0.002))) > 10  # type: ignore[arg-type]


def test_records_longer_than_a_stretch(tmp_path: Path) -> None:
    records = traffic(5, 100)
    records.insert(len(records) // 2, (SECOND + 1, 0, bytes(250_000), 250_000))
    assert 0 < check(tmp_path / "x", pcap(records, snaplen=1 << 18)) < 5


@pytest.mark.parametrize("place", [0.3, 0.98])
def test_damage_is_told_by_a_plain_reading(tmp_path: Path, place: float) -> None:
    content = bytearray(pcap(traffic(6)))
    at = 24
    while at < place * len(content):
        at += 16 + int(struct.unpack_from("<8xI", content, at)[0])
    content[at + 8 : at + 12] = b"\xff" * 4
    assert check(tmp_path / "x", bytes(content)) > 2


def test_a_file_that_is_cut(tmp_path: Path) -> None:
    assert check(tmp_path / "x", pcap(traffic(7))[:-7]) > 10


def test_late_fractions_of_a_second(tmp_path: Path) -> None:
    records = traffic(8)
    records[len(records) // 2] = (SECOND, 2_000_000, bytes(60), 60)
    assert check(tmp_path / "x", pcap(records)) > 2


@pytest.mark.parametrize(
    "between",
    [
        lambda ng, number: ng.interface(113) if number == 1500 else b"",
        lambda ng, number: ng.statistics(0, ifdrop=5) if number in (900, 1500) else b"",
        lambda ng, number: ng.section() + ng.interface() + ng.interface(101, tsresol=9) if number == 1500 else b"",
        lambda ng, number: ng.simple(bytes(60)) if number % 50 == 0 else b"",
        lambda ng, number: ng.packet(5, bytes(60), 9) if number % 50 == 0 else b"",
        lambda ng, number: ng.block(0xBAD, bytes(40)) if number % 50 == 0 else b"",
        lambda ng, number: ng.block(0x77, bytes(40)) if number % 50 == 0 else b"",
    ],
    ids=["new interface", "drops", "new section", "no time", "no such interface", "custom", "unknown"],
)
def test_pcapng_blocks_that_are_no_packets(tmp_path: Path, between: Callable[[Ng, int], bytes]) -> None:
    assert check(tmp_path / "x", as_pcapng(traffic(9), between=between)) > 1


def test_few_bytes_are_worth_no_processes() -> None:
    assert useful_workers(10_000_000) == 0
