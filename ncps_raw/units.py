"""Pure: what people type for sizes, counts, rates, times, shares and addresses, as exact values.

Must not know which command asks: the caller names the option, the message repeats it. The one idea: a typed
number is a decimal fraction and stays one until it is a whole number of the unit asked for. No float is ever
between ``0.1s`` and 100,000,000 ns, and what is not whole (``0.3k`` bytes) is refused instead of rounded.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Final

from ncps_capture.errors import UsageError

NANOSECOND: Final = 1
MILLISECOND: Final = 1_000_000
SECOND: Final = 1_000_000_000

MAX_ADDRESSES: Final = 65_536
MAX_PROCESSORS: Final = 1_024
"""Entries of a list of processors, as in NCPS."""
MAX_PROCESSOR: Final = 65_535

# 30 digits are more than any quantity here has, and few enough for Python to convert.
_INTEGER = re.compile(r"[0-9]{1,9}", re.ASCII)
_NUMBER = re.compile(r"([0-9]{1,30}(?:\.[0-9]{0,30})?|\.[0-9]{1,30})(.*)", re.ASCII | re.DOTALL)

_SIZES: Final = {"": 1, "c": 1, "k": 1024, "kB": 1000} | {
    name: factor
    for power, letter in enumerate("KMGT", start=1)
    for name, factor in (
        (letter, 1024**power),
        (f"x{letter}", 1024**power),
        (f"{letter}iB", 1024**power),
        (f"{letter}B", 1000**power),
    )
}
_COUNTS: Final = {"": 1, "k": 1_000, "K": 1_000, "M": 1_000_000, "G": 1_000_000_000}
_PERIODS: Final = {"/s": 1, "/min": 60, "/h": 3600}
_TIMES: Final = {
    "ns": NANOSECOND,
    "us": 1_000,
    "ms": MILLISECOND,
    "s": SECOND,
    "m": 60 * SECOND,
    "min": 60 * SECOND,
    "h": 3600 * SECOND,
    "d": 86_400 * SECOND,
}


def size(text: str, option: str) -> int:
    """Bytes, with dd's suffixes: ``k`` ``K`` ``KiB`` ``xK`` = 1024, ``kB`` ``KB`` = 1000, so on with M, G and T."""
    return _whole(text, option, _SIZES, "a size such as 1000, 4k (of 1024), 4kB (of 1000), 64KiB or 1M")


def count(text: str, option: str) -> int:
    """A number of things: ``10k`` = 10,000, ``1.5M`` = 1,500,000."""
    return _whole(text, option, _COUNTS, "a whole number such as 100, 10k or 1.5M")


def rate(text: str, option: str) -> Fraction:
    """Things a second, exact and above 0: ``750/s``, ``10k``, ``0.5``, ``30/min``."""
    expected = "a rate above 0 such as 750/s, 10k/s or 0.5"
    number, slash, period = text.strip().partition("/")
    seconds = _PERIODS.get(slash + period, 0) if slash else 1
    value = _scaled(number, _COUNTS)
    if value is None or not value or not seconds:
        raise _refuse(text, option, expected)
    return value / seconds


def duration(text: str, option: str, plain: int = SECOND) -> int:
    """Nanoseconds: ``500ms``, ``10s``, ``2m``, ``1h``; a number without a unit counts in ``plain`` ns."""
    unit = "ms" if plain == MILLISECOND else "s"
    expected = f"a time such as 500ms, 10s, 2m or 1h (a plain number is in {unit})"
    return _whole(text, option, {**_TIMES, "": plain}, expected)


def share(text: str, option: str) -> Fraction:
    """A part of the whole, 0 to 1: ``5%`` or ``0.05``."""
    value = _scaled(text, {"": Fraction(1), "%": Fraction(1, 100)})
    if value is None or value > 1:
        raise _refuse(text, option, "a share such as 0, 0.5% or 0.005")
    return value


def processors(text: str, option: str) -> tuple[int, ...]:
    """Numbers of processors in the order typed, repeats kept: ``0,2,4-7``. An ``x`` ends the list, as in NCPS."""
    expected = "numbers of processors such as 0,2,4-7"
    out: list[int] = []
    for part in text.split(","):
        if part.strip() == "x":
            break
        low, dash, high = part.strip().partition("-")
        if not _INTEGER.fullmatch(low) or (dash and not _INTEGER.fullmatch(high)):
            raise _refuse(text, option, expected)
        first, last = int(low), int(high) if dash else int(low)
        if not first <= last < first + MAX_PROCESSORS or last > MAX_PROCESSOR:
            raise _refuse(text, option, f"{expected}, each at most {MAX_PROCESSOR} and ranges upwards")
        out += range(first, last + 1)
        if len(out) > MAX_PROCESSORS:
            raise UsageError(f"{option} names more than {MAX_PROCESSORS} processors")
    if not out:
        raise _refuse(text, option, expected)
    return tuple(out)


_IN_OLD_FORM: Final = re.compile(r"(0[xX][0-9a-fA-F]*|[0-9]+)(\.(0[xX][0-9a-fA-F]*|[0-9]+)){0,3}\.?")


def host(text: str, option: str) -> str:
    """A name or an address as typed. ``UsageError`` for an IPv4 address in an old form (``1.2.3``, ``0x7f000001``).

    The system would read these, as other addresses than most people think: a load must not go where nobody looks.
    """
    if _IN_OLD_FORM.fullmatch(text):
        try:
            ipaddress.IPv4Address(text)
        except ValueError:
            raise UsageError(f"{option} must be a name or a whole IP address such as 10.0.0.1, not {text!r}") from None
    return text


def addresses(text: str, option: str) -> tuple[str, ...]:
    """Numeric addresses from a list of addresses, ranges and networks, each once and in the order typed.

    ``10.0.0.1,10.0.0.8-10.0.0.12``, ``10.0.0.8-12``, ``10.1.0.0/24`` (its hosts), ``fe80::1%eth0``.
    """
    out: dict[str, None] = {}
    for part in text.split(","):
        for address in _expand(part.strip(), text, option):
            out[address] = None
            if len(out) > MAX_ADDRESSES:
                raise UsageError(f"{option} names more than {MAX_ADDRESSES} addresses: {text}")
    return tuple(out)


def _expand(part: str, text: str, option: str) -> list[str]:
    low, dash, high = part.partition("-")
    try:
        if dash and "%" not in part:
            if high.isdecimal() and "." in low:
                high = low.rpartition(".")[0] + "." + high
            first, last = ipaddress.ip_address(low), ipaddress.ip_address(high)
            n = int(last) - int(first) + 1
            if first.version != last.version or not 0 < n <= MAX_ADDRESSES:
                raise UsageError(f"{option} {part} must run upwards over at most {MAX_ADDRESSES} addresses")
            return [str(first + i) for i in range(n)]
        if "/" in part:
            network = ipaddress.ip_network(part)
            if network.num_addresses > MAX_ADDRESSES:
                raise UsageError(f"{option} {part} names more than {MAX_ADDRESSES} addresses")
            return [str(host) for host in network.hosts()]
        return [str(ipaddress.ip_address(part))]
    except ValueError as why:
        reason = f" ({why})" if "host bits" in str(why) else ""
        raise _refuse(text, option, f"numeric addresses, ranges or networks{reason}") from None


def _refuse(text: str, option: str, expected: str) -> UsageError:
    return UsageError(f"{option} must be {expected}, not {text!r}")


def _scaled(text: str, units: Mapping[str, int | Fraction]) -> Fraction | None:
    match = _NUMBER.fullmatch(text.strip())
    if match is None or (factor := units.get(match[2].strip())) is None:
        return None
    return Fraction(match[1]) * factor


def _whole(text: str, option: str, units: Mapping[str, int | Fraction], expected: str) -> int:
    value = _scaled(text, units)
    if value is None or value.denominator != 1:
        raise _refuse(text, option, expected)
    return value.numerator
