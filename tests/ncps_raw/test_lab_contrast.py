"""The wire beside the kernel: what is shown is what was reported, and the sentence fits the figures."""

import pytest

from ncps_raw.lab.contrast import contrast, meaning_of

FIGURES = {
    "connections": 1990,
    "dropped.syn": 39,
    "syn_retrans": 39,
    "syn_rtt_us.p50": 20_301,
    "syn_rtt_us.p99": 1_020_304,
    "syn_rtt_us.max": 1_056_001,
    "kernel_rtt_us.p50": 20_302,
    "kernel_rtt_us.p99": 21_005,
    "kernel_rtt_us.max": 24_999,
    "connect_us.p50": 20_503,
    "connect_us.p99": 1_020_606,
    "connect_us.max": 1_056_207,
}


def cells(line: str) -> list[str]:
    return line.split()[-3:]


def test_the_table_shows_what_was_reported() -> None:
    head, rule, wire, kernel, connect, counts, empty, *meaning = contrast(FIGURES)
    assert head.startswith("1,990 connections, times in us")
    assert cells(head) == ["p50", "p99", "max"]
    assert cells(wire) == ["20,301", "1,020,304", "1,056,001"]
    assert cells(kernel) == ["20,302", "21,005", "24,999"]
    assert cells(connect) == ["20,503", "1,020,606", "1,056,207"]
    assert counts == "SYNs the path dropped: 39; SYN retransmits seen on the wire: 39"
    assert (set(rule), empty) == ({"-"}, "")
    assert "up to 1.06 s" in " ".join(meaning)
    assert "0.02 s at most" in " ".join(meaning)
    assert max(len(line) for line in contrast(FIGURES)) <= 80
    assert not any(line.startswith("s,") or line == "s" for line in meaning)
    assert all(line.isascii() for line in meaning)


def test_what_is_not_known_is_called_so() -> None:
    lines = contrast({"connections": 5, "connect_us.p50": 7, "syn_rtt_us.p50": None})
    assert cells(lines[2]) == cells(lines[3]) == ["unknown"] * 3
    assert cells(lines[4]) == ["7", "unknown", "unknown"]
    assert lines[5].endswith("seen on the wire: unknown")
    assert lines[-1].startswith("Without a capture")


@pytest.mark.parametrize(
    ("lost", "seen", "wire_us", "kernel_us", "said"),
    [
        (0, 0, 20_000, 20_000, "No SYN was lost"),
        (3, 2, 1_020_000, 20_000, "dropped 3 SYNs and the capture saw 2 retransmits"),
        (3, 3, 1_020_000, None, "the wire shows every one"),
        (3, 3, 1_020_000, 1_020_000, "the wire shows every one"),
        (3, 3, 1_020_000, 21_000, "Each of the 3 SYNs"),
        (3, None, None, 21_000, "Without a capture"),
        (0, 0, None, None, "The capture found no whole handshake"),
    ],
)
def test_the_sentence_fits_the_figures(
    lost: int, seen: int | None, wire_us: int | None, kernel_us: int | None, said: str
) -> None:
    assert said in meaning_of(lost, seen, wire_us, kernel_us)
