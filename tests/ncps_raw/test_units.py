"""Units: tables of what people type, and that no float is ever in between."""

from collections.abc import Callable
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ncps_capture.errors import UsageError

from ncps_raw import units

KI = 1024


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("1000", 1000),
        ("1000.0", 1000),
        ("1c", 1),
        ("4k", 4 * KI),
        ("4K", 4 * KI),
        ("4KiB", 4 * KI),
        ("4xK", 4 * KI),
        ("4kB", 4000),
        ("4KB", 4000),
        ("1M", KI**2),
        ("1xM", KI**2),
        ("1MiB", KI**2),
        ("1MB", 10**6),
        ("1.5M", 3 * KI**2 // 2),
        ("2G", 2 * KI**3),
        ("2GB", 2 * 10**9),
        ("1T", KI**4),
        (" 8 k ", 8 * KI),
        (".5k", 512),
    ],
)
def test_sizes(text: str, value: int) -> None:
    assert units.size(text, "--size") == value


@pytest.mark.parametrize(
    ("text", "value"),
    [("0", 0), ("16", 16), ("16.0", 16), ("10k", 10_000), ("10K", 10_000), ("1.5M", 1_500_000), ("2G", 2 * 10**9)],
)
def test_counts(text: str, value: int) -> None:
    assert units.count(text, "-N") == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("750", Fraction(750)),
        ("750/s", Fraction(750)),
        ("10k/s", Fraction(10_000)),
        ("0.5", Fraction(1, 2)),
        ("30/min", Fraction(1, 2)),
        ("1/h", Fraction(1, 3600)),
        ("0.1", Fraction(1, 10)),
    ],
)
def test_rates(text: str, value: Fraction) -> None:
    assert units.rate(text, "--rate") == value


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("0", 0),
        ("5", 5 * 10**9),
        ("5.", 5 * 10**9),
        ("300.0", 300 * 10**9),
        (".5", 5 * 10**8),
        ("0.1", 10**8),
        ("500ms", 5 * 10**8),
        ("1us", 1000),
        ("7ns", 7),
        ("10s", 10**10),
        ("2m", 120 * 10**9),
        ("2min", 120 * 10**9),
        ("1h", 3600 * 10**9),
        ("1d", 86_400 * 10**9),
        ("1.000000001s", 10**9 + 1),
    ],
)
def test_times(text: str, ns: int) -> None:
    assert units.duration(text, "-t") == ns


def test_a_plain_number_counts_in_the_unit_of_the_option() -> None:
    assert units.duration("20", "-D", plain=units.MILLISECOND) == 20_000_000
    assert units.duration("2.5", "-D", plain=units.MILLISECOND) == 2_500_000
    assert units.duration("20s", "-D", plain=units.MILLISECOND) == 20 * 10**9


@pytest.mark.parametrize(
    ("text", "value"),
    [("0", Fraction(0)), ("5%", Fraction(1, 20)), ("0.05", Fraction(1, 20)), ("100%", Fraction(1))],
)
def test_shares(text: str, value: Fraction) -> None:
    assert units.share(text, "--max-failed") == value


@pytest.mark.parametrize(
    ("read", "text", "expected"),
    [
        (units.size, "0.3k", "a size such as"),
        (units.size, "4m", "a size such as"),
        (units.size, "4 x", "a size such as"),
        (units.size, "1e6", "a size such as"),
        (units.size, "inf", "a size such as"),
        (units.count, "abc", "a whole number such as"),
        (units.count, "2.5", "a whole number such as"),
        (units.count, "-5", "a whole number such as"),
        (units.count, "", "a whole number such as"),
        (units.count, "1_000", "a whole number such as"),
        (units.count, "9" * 5000, "a whole number such as"),
        (units.count, "\u0663", "a whole number such as"),
        (units.rate, "0", "a rate above 0 such as"),
        (units.rate, "5/", "a rate above 0 such as"),
        (units.rate, "5/fortnight", "a rate above 0 such as"),
        (units.rate, "/s", "a rate above 0 such as"),
        (units.duration, "10x", "a time such as 500ms"),
        (units.duration, "1.2.3", "a time such as 500ms"),
        (units.duration, "0.1ns", "a time such as 500ms"),
        (units.duration, "1m30s", "a time such as 500ms"),
        (units.share, "5", "a share such as"),
        (units.share, "101%", "a share such as"),
        (units.addresses, "", "numeric addresses, ranges or networks"),
        (units.addresses, "localhost", "numeric addresses, ranges or networks"),
        (units.addresses, "10.0.0.1,", "numeric addresses, ranges or networks"),
        (units.addresses, "10.0.0.1/24", "numeric addresses, ranges or networks (10.0.0.1/24 has host bits set)"),
        (units.addresses, "10.0.0.1-300", "numeric addresses, ranges or networks"),
    ],
)
def test_what_cannot_be_meant_is_refused_by_name(read: Callable[[str, str], object], text: str, expected: str) -> None:
    with pytest.raises(UsageError) as caught:
        read(text, "--some-option")
    assert str(caught.value).startswith(f"--some-option must be {expected}")
    assert str(caught.value).endswith(f"not {text!r}")


@given(st.integers(0, 10**12), st.integers(0, 9), st.sampled_from(["ns", "us", "ms", "s", "m", "h"]))
def test_times_are_exact_or_refused(mantissa: int, places: int, unit: str) -> None:
    digits = f"{mantissa:0{places + 1}d}"
    text = digits[: len(digits) - places] + ("." + digits[-places:] if places else "")
    factor = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9}[unit]
    quotient, rest = divmod(mantissa * factor, 10**places)
    if rest:
        with pytest.raises(UsageError):
            units.duration(text + unit, "-t")
    else:
        assert units.duration(text + unit, "-t") == quotient


@given(st.text(max_size=12))
def test_no_text_does_anything_but_read_or_refuse(text: str) -> None:
    for read in (units.size, units.count, units.rate, units.duration, units.share, units.addresses):
        try:
            value = read(text, "-x")
        except UsageError:
            continue
        assert value or value == 0


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("127.0.0.1", ("127.0.0.1",)),
        ("::", ("::",)),
        ("fe80::1%br-lan", ("fe80::1%br-lan",)),
        ("10.0.0.1, 10.0.0.2,10.0.0.1", ("10.0.0.1", "10.0.0.2")),
        ("10.0.0.8-10", ("10.0.0.8", "10.0.0.9", "10.0.0.10")),
        ("10.0.0.255-10.0.1.1", ("10.0.0.255", "10.0.1.0", "10.0.1.1")),
        ("fd00::a-fd00::b", ("fd00::a", "fd00::b")),
        ("10.1.0.0/30", ("10.1.0.1", "10.1.0.2")),
        ("10.1.0.7/32", ("10.1.0.7",)),
    ],
)
def test_addresses(text: str, value: tuple[str, ...]) -> None:
    assert units.addresses(text, "--bind") == value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("::/8", "--bind ::/8 names more than 65536 addresses"),
        ("10.0.0.9-3", "--bind 10.0.0.9-3 must run upwards over at most 65536 addresses"),
        ("10.0.0.0-11.0.0.0", "--bind 10.0.0.0-11.0.0.0 must run upwards over at most 65536 addresses"),
        ("10.0.0.1-::1", "--bind 10.0.0.1-::1 must run upwards over at most 65536 addresses"),
        ("10.0.0.0/16,10.1.0.0/24", "--bind names more than 65536 addresses: 10.0.0.0/16,10.1.0.0/24"),
    ],
)
def test_too_many_addresses(text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        units.addresses(text, "--bind")
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("0", (0,)),
        ("0,2,4-7", (0, 2, 4, 5, 6, 7)),
        (" 3 , 1 ", (3, 1)),
        ("1,1", (1, 1)),
        ("5,x,9", (5,)),
        ("0-1023", tuple(range(1024))),
    ],
)
def test_processors(text: str, numbers: tuple[int, ...]) -> None:
    assert units.processors(text, "--affinity") == numbers


@pytest.mark.parametrize("text", ["", "x", "-1", "1-", "3-1", "a", "0,,1", "65536", "0-1024", "1.5", "9" * 40])
def test_what_is_no_list_of_processors(text: str) -> None:
    with pytest.raises(UsageError, match=r"^--affinity (must be numbers of processors|names more than 1024)"):
        units.processors(text, "--affinity")


@pytest.mark.parametrize(
    ("text", "n", "first", "last"),
    [
        ("10.0.0.0/28", 14, "10.0.0.1", "10.0.0.14"),
        ("10.0.0.4/31", 2, "10.0.0.4", "10.0.0.5"),
        ("10.0.0.4/32", 1, "10.0.0.4", "10.0.0.4"),
        ("10.0.0.0/16", 65_534, "10.0.0.1", "10.0.255.254"),
        ("10.0.0.0-10.0.255.255", 65_536, "10.0.0.0", "10.0.255.255"),
        ("2001:db8::1-2001:db8::9", 9, "2001:db8::1", "2001:db8::9"),
        ("2001:db8::/120", 255, "2001:db8::1", "2001:db8::ff"),
        ("fe80::1%eth0,fe80::1%eth1,fe80::1%eth0", 2, "fe80::1%eth0", "fe80::1%eth1"),
        ("10.0.0.1,10.0.0.0/30,10.0.0.2", 2, "10.0.0.1", "10.0.0.2"),
    ],
)
def test_source_addresses_are_as_many_as_meant(text: str, n: int, first: str, last: str) -> None:
    found = units.addresses(text, "--bind")
    assert (len(found), len(set(found)), found[0], found[-1]) == (n, n, first, last)


@pytest.mark.parametrize("text", ["2001:db8::/64", "10.0.0.0/15", "10.0.0.0-10.1.0.0", "10.0.0.0/16,10.1.0.0/24"])
def test_source_addresses_are_bounded(text: str) -> None:
    with pytest.raises(UsageError, match="65536 addresses"):
        units.addresses(text, "--bind")
