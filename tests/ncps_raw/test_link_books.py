"""The link check's figures: dd's line against dd itself, units, sums, and figures that travel."""

import json
import re
import shutil
import subprocess
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ncps_raw.link import books
from ncps_raw.link.books import Figures, Row

PLAIN = Figures(True, 1_500_000_000, 13_208_300_000, 1500, "send", "acknowledged", 1_500_000_000, 13_000_000_000)


def test_dd_s_own_line() -> None:
    expected = "1500000000 bytes (1.5 GB, 1.4 GiB) copied, 13.2083 s, 114 MB/s"
    assert books.dd_line(1_500_000_000, 13_208_300_000) == expected


@pytest.mark.parametrize(
    ("rate", "text"),
    [
        (999, "999 "),
        (1_000, "1.0 k"),
        (17_440, "17.4 k"),
        (10_490_000, "10.5 M"),
        (99_940_000, "99.9 M"),
        (99_950_000, "100 M"),
        (113_570_000, "114 M"),
        (999_600_000, "1.0 G"),
        (2_167_000_000, "2.2 G"),
    ],
)
def test_rates_have_a_decimal_below_a_hundred_as_dd_s_have(rate: int, text: str) -> None:
    assert books.dd_line(rate, 1_000_000_000).endswith(f"1 s, {text}B/s")


@pytest.mark.skipif(shutil.which("dd") is None, reason="dd is not installed")
@pytest.mark.parametrize("count", [0, 1, 999, 1000, 1001, 1023, 1024, 9949, 9951, 99_999, 999_499, 999_500, 1_048_576])
def test_sizes_are_written_as_dd_writes_them(count: int) -> None:
    done = subprocess.run(
        ["dd", "if=/dev/zero", "of=/dev/null", f"bs={max(count, 1)}", f"count={min(count, 1)}"],
        capture_output=True,
        text=True,
        check=True,
        env={"LC_ALL": "C"},
    )
    line = done.stderr.splitlines()[-1]
    if "bytes" not in line and "byte " not in line:
        pytest.skip("this dd is not GNU's")
    assert books.dd_line(count, 1_000_000_000).partition(" copied")[0] == line.partition(" copied")[0]


@given(st.integers(1, 10**18), st.booleans())
def test_a_size_for_people_is_within_its_rounding(count: int, binary: bool) -> None:
    number, _, unit = books.human(count, binary).partition(" ")
    base = 1024 if binary else 1000
    power = " kMGTPE".index(unit[:1].replace("K", "k") or " ")
    assert float(number) * base**power == pytest.approx(count, rel=0.051)


def test_units_are_named() -> None:
    assert books.rates(125_000_000) == "1 Gbit/s = 125 MB/s (10^6 bytes) = 119.2 MiB/s (2^20 bytes)"
    assert books.rates(None, "nothing came through") == "no speed: nothing came through"


@pytest.mark.parametrize(("count", "text"), [(3000, "2+0"), (3001, "2+1"), (1, "0+1"), (0, "0+0")])
def test_blocks(count: int, text: str) -> None:
    assert books.blocks(count, 1500) == text


def test_the_round_trip_of_the_last_acknowledgement_is_taken_off_where_it_is_a_small_part() -> None:
    assert books.between_acknowledgements(1_020_000_000, 20_000) == (1_000_000_000, 20_000_000)
    assert books.between_acknowledgements(199_000_000, 20_000) == (199_000_000, None)
    assert books.between_acknowledgements(5, None) == (5, None)


def test_no_time_and_no_bytes_give_no_rate() -> None:
    assert Figures(True, 0, 10, 1500, "", "").bytes_per_s is None
    assert Figures(True, 10, 0, 1500, "", "").bytes_per_s is None
    assert Figures(True, None, None, 1500, "", "").bytes_per_s is None
    assert "unknown B/s" in books.dd_line(5, None)


def of(sent: bool, count: int, elapsed_ns: int, early: int | None = None, min_rtt_us: int | None = None) -> Figures:
    return Figures(sent, count, elapsed_ns, 1500, "", "", early=early, min_rtt_us=min_rtt_us)


@pytest.mark.parametrize(
    ("figures", "why"),
    [
        (of(True, 65_536, 5_000), "less than 10 ms"),
        (of(False, 65_536, 5_000), "less than 10 ms"),
        (of(False, 65_536, 0), "less than 10 ms"),
        (of(False, 65_536, 40_000_000, early=65_536), "65536 of 65536 bytes came before the clock could begin"),
        (of(False, 65_536, 40_000_000, early=1_311), "1311 of 65536 bytes came before"),
        (of(False, 65_536, 40_000_000, early=1_310), ""),
        (of(True, 65_536, 40_000_000, min_rtt_us=20_001), "less than 2 round trips of 20.001 ms"),
        (of(True, 65_536, 40_000_000, min_rtt_us=20_000), ""),
        (of(False, 65_536, 10_000_000), ""),
    ],
)
def test_what_is_too_short_has_no_speed_in_any_view(figures: Figures, why: str) -> None:
    plain, text = books.plain(figures), "\n".join(books.text(figures))
    if not why:
        assert plain["bytes_per_s"] == figures.bytes_per_s == 65_536e9 / (figures.elapsed_ns or 0)
        assert plain["rate_note"] is None
        return
    assert figures.bytes_per_s is plain["bytes_per_s"] is plain["bits_per_s"] is None
    assert plain["rate_note"].startswith(f"too short to tell: {why}")
    assert re.search(r"copied, [\d.e-]+ s, too short to tell$", text, re.M)
    assert f"no speed: too short to tell: {why}" in text
    assert "bit/s" not in text


@given(st.booleans(), st.integers(0, 10**15), st.integers(0, 10**13), st.integers(0, 10**15), st.integers(0, 10**7))
def test_a_speed_that_is_told_could_be_measured(
    sent: bool, count: int, elapsed_ns: int, early: int, min_rtt_us: int
) -> None:
    figures = of(sent, count, elapsed_ns, None if sent else early, min_rtt_us if sent else None)
    assert (figures.bytes_per_s is None) is bool(figures.no_rate)
    if figures.bytes_per_s is not None:
        assert elapsed_ns >= books.SHORTEST_NS
        assert sent or early * books.EARLY_PARTS <= count
        assert not sent or elapsed_ns >= 2 * min_rtt_us * 1000


def test_handed_over_stands_apart_and_is_not_called_the_speed() -> None:
    text = "\n".join(books.text(PLAIN))
    assert "handed to the kernel: 1500000000 bytes in 13 s (not the speed)" in text
    plain = books.plain(PLAIN)
    assert plain["bytes_per_s"] == pytest.approx(plain["bytes"] / plain["seconds"])
    assert plain["sender_handed_over_s"] == 13.0


@pytest.mark.parametrize("figures", [replace(PLAIN, bytes=n, handed_bytes=n, block=n, cwnd=n) for n in (1, 2, 21)])
def test_one_is_not_called_several(figures: Figures) -> None:
    text = "\n".join(books.text(replace(figures, retransmits=0, srtt_us=100)))
    assert not re.search(r"\b1 (bytes|segments)\b", text)
    assert not re.search(r"(\d\d|[2-9]) (byte|segment)\b", text)
    assert text.count("byte") >= 3


def test_streams_are_added() -> None:
    one = Figures(True, 10, 5, 1500, "w", "acknowledged", 10, 4, retransmits=1, srtt_us=7, cwnd=10, min_rtt_us=3)
    two = Figures(True, 20, 9, 1500, "w", "acknowledged", 20, 8, retransmits=2, srtt_us=5, cwnd=10)
    both = books.added([one, two])
    assert (both.bytes, both.elapsed_ns, both.handed_ns, both.retransmits, both.srtt_us, both.cwnd, both.streams) == (
        30, 9, 8, 3, 7, 20, 2,
    )  # fmt: skip
    assert both.min_rtt_us == 3
    assert books.added([of(False, 9, 5, early=4), of(False, 9, 5, early=3)]).early == 7
    assert books.added([one, Figures(True, None, 9, 1500, "w", "handed over")]).bytes is None


def test_figures_travel() -> None:
    assert books.from_wire(json.loads(json.dumps(books.to_wire(PLAIN)))) == PLAIN


@pytest.mark.parametrize("change", [{"bytes": -1}, {"bytes": "5"}, {"elapsed_ns": 1.5}, {"block": 0}, {"way": None}])
def test_figures_that_are_none(change: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="no figures"):
        books.from_wire(books.to_wire(PLAIN) | change)
    with pytest.raises(ValueError, match="no figures"):
        books.from_wire({})


def test_a_row_stands_under_its_header() -> None:
    row = Row(0, 500_000_000, 50_000_000, None, 3, 250, 40, 1)
    text = books.row_text(row)
    assert len(text) == len(books.row_header(row))
    assert re.split(r"\s{2,}", text.strip()) == ["0.00-0.50", "100.0", "0.800", "1", "3", "250", "40"]
    assert books.row_plain(row)["sent_bytes_per_s"] == 100_000_000
    assert books.row_plain(row)["received_bytes_per_s"] is None


def test_a_row_that_was_cut_short_has_a_rate_where_it_can_be_told() -> None:
    assert Row(0, 10_000_000, 100, None, partial=True).rate(100) == 10_000
    assert Row(0, 9_999_999, 100, None, partial=True).rate(100) is None
    assert Row(0, 9_999_999, 100, None).rate(100) is not None
    row = Row(2_000_000_000, 2_004_000_000, 100, None, partial=True)
    assert books.row_text(row).split()[:3] == ["2.00-2.00", "-", "-"]


def test_each_direction_has_its_own_rate() -> None:
    row = Row(1_000_000_000, 2_000_000_000, 125_000_000, 25_000_000, None, None, None, 1)
    names = re.split(r"\s{2,}", books.row_header(row).strip())
    cells = dict(zip(names, re.split(r"\s{2,}", books.row_text(row).strip()), strict=True))
    assert cells == {
        "time s": "1.00-2.00",
        "sent MB/s": "125.0",
        "sent Gbit/s": "1.000",
        "received MB/s": "25.0",
        "received Gbit/s": "0.200",
        "streams": "1",
        "retransmits": "-",
        "srtt us": "-",
        "cwnd segments": "-",
    }
    # Every cell ends where its name ends.
    assert [match.end() for match in re.finditer(r"\S+(?: \S+)*", books.row_header(row))] == [
        match.end() for match in re.finditer(r"\S+", books.row_text(row))
    ]
