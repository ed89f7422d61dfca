"""Pure: what has been counted and timed -> figures, dd's line, rows. No clock, no socket.

The one idea: one record of figures a direction, and every view (text, JSON, the far end's, the explanation's) is made
from it. Not known is None. Units are named at each figure: MB and MiB differ by 5 %.

A sender's clock ends with an acknowledgement, which comes one round trip after what it acknowledges was sent. A
transfer of so many round trips that one is a small part of it is timed between acknowledgements: from the earliest
moment one could come, one smallest round trip after the first byte was handed over, to the last. That is how long the
bytes took to pass; the round trip is shown and can be added again. Shorter transfers are mostly round trip, and stay
as they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from fractions import Fraction
from typing import Any, Final

ROUND_TRIPS: Final = 10
"""A sender's time of fewer round trips than this is left as it is."""
SHORTEST_NS: Final = 10_000_000
"""A shorter time is as much the moment at which a thread was awake as it is the link: no speed is told."""
EARLY_PARTS: Final = 50
"""Nor is one told by a receiver where more than one part in so many was here before its clock could begin."""
LEAST_TRIPS: Final = 2
"""Nor by a sender whose time is less than so many round trips: that is how far away the peer is, not how fast."""
_SHORT: Final = "too short to tell"
_SI: Final = ("", "k", "M", "G", "T", "P", "E")
_IEC: Final = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")


@dataclass(frozen=True)
class Figures:
    """One direction of one transfer. ``sent``: at the sending end. Times in ns; None = not known."""

    sent: bool
    bytes: int | None  # acknowledged by the peer, or read
    elapsed_ns: int | None
    block: int
    way: str
    clock_end: str
    handed_bytes: int | None = None  # of a sender: what this kernel took, and when
    handed_ns: int | None = None
    round_trip_ns: int | None = None  # taken off a sender's time
    fsync_ns: int = 0
    retransmits: int | None = None
    srtt_us: int | None = None
    cwnd: int | None = None
    rwnd_limited: float | None = None  # share of the time; of a sender
    busy: float | None = None
    streams: int = 1
    early: int | None = None  # of a receiver: bytes that were here when its clock began
    min_rtt_us: int | None = None  # of a sender

    @property
    def no_rate(self) -> str:
        """Why there is no speed; empty where there is one."""
        if self.bytes == 0:
            return "nothing came through"
        if self.bytes is None or self.elapsed_ns is None:
            return "not known"
        if self.elapsed_ns < SHORTEST_NS:
            return f"{_SHORT}: less than {SHORTEST_NS // 10**6} ms"
        if not self.sent and (self.early or 0) * EARLY_PARTS > self.bytes:
            return f"{_SHORT}: {self.early} of {self.bytes} bytes came before the clock could begin"
        if self.sent and self.elapsed_ns < LEAST_TRIPS * (self.min_rtt_us or 0) * 1000:
            return f"{_SHORT}: less than {LEAST_TRIPS} round trips of {(self.min_rtt_us or 0) / 1000:g} ms"
        return ""

    @property
    def bytes_per_s(self) -> float | None:
        """None where it cannot be told: see ``no_rate``."""
        if self.no_rate or self.bytes is None or self.elapsed_ns is None:
            return None
        return self.bytes * 1e9 / self.elapsed_ns


def between_acknowledgements(elapsed_ns: int, min_rtt_us: int | None) -> tuple[int, int | None]:
    """A sender's time, and the round trip that was taken off it (None: it was left as it is)."""
    if not min_rtt_us or elapsed_ns < ROUND_TRIPS * min_rtt_us * 1000:
        return elapsed_ns, None
    return elapsed_ns - min_rtt_us * 1000, min_rtt_us * 1000


def counted(count: int, noun: str) -> str:
    """``1 byte``, ``2 bytes``."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def human(value: Fraction | float | int, binary: bool = False) -> str:
    """A number of bytes as dd prints it: one decimal below 10, none above: ``1.5 G``, ``114 M``, ``1.4 Gi``."""
    base = 1024 if binary else 1000
    names = _IEC if binary else _SI
    exact = Fraction(value)
    power = 0
    while exact >= base and power < len(names) - 1:
        exact /= base
        power += 1
    if power and exact < 10:
        tenths = round(exact * 10)
        if tenths < 100:
            return f"{tenths // 10}.{tenths % 10} {names[power]}"
    whole = round(exact)
    if whole >= base and power < len(names) - 1:
        return f"1.0 {names[power + 1]}"
    return f"{whole} {names[power]}"


def dd_rate(value: Fraction) -> str:
    """Bytes a second as dd prints them: with one decimal below 100, of any unit: ``73.7 M``, ``114 M``, ``2.2 G``."""
    exact, power = value, 0
    while exact >= 1000 and power < len(_SI) - 1:
        exact /= 1000
        power += 1
    tenths = round(exact * 10)
    if power and tenths < 1000:
        return f"{tenths // 10}.{tenths % 10} {_SI[power]}"
    return human(value)


def dd_line(count: int, elapsed_ns: int | None, *, short: bool = False) -> str:
    """GNU dd's summary: ``1500000000 bytes (1.5 GB, 1.4 GiB) copied, 13.2083 s, 114 MB/s``.

    ``short``: the time is too short for a speed.
    """
    inside = [f"{human(count)}B", f"{human(count, binary=True)}B"]
    inside = inside[: (count >= 1000) + (count >= 1024)]
    head = counted(count, "byte") + (f" ({', '.join(inside)})" if inside else "")
    if elapsed_ns is None:
        return f"{head} copied, unknown s, unknown B/s"
    if short or not elapsed_ns:
        return f"{head} copied, {elapsed_ns / 1e9:g} s, {_SHORT}"
    rate = Fraction(count * 10**9, elapsed_ns)
    return f"{head} copied, {elapsed_ns / 1e9:g} s, {dd_rate(rate)}B/s"


def summary(figures: Figures) -> str:
    """dd's line of a direction whose bytes are known."""
    return dd_line(figures.bytes or 0, figures.elapsed_ns, short=figures.no_rate.startswith(_SHORT))


def rates(bytes_per_s: float | None, why: str = "not known") -> str:
    """``0.909 Gbit/s = 114 MB/s (10^6 bytes) = 108 MiB/s (2^20 bytes)``."""
    if bytes_per_s is None:
        return f"no speed: {why}"
    bits, mega, mebi = bytes_per_s * 8 / 1e9, bytes_per_s / 1e6, bytes_per_s / 2**20
    return f"{bits:.3g} Gbit/s = {mega:.4g} MB/s (10^6 bytes) = {mebi:.4g} MiB/s (2^20 bytes)"


def blocks(count: int, block: int) -> str:
    """dd's records: whole ones + the rest, ``1000000+0``."""
    return f"{count // block}+{1 if count % block else 0}"


# ---- rows ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """One interval of all that is under way."""

    begin_ns: int  # since the first byte
    end_ns: int
    sent: int | None  # bytes; None = this direction is not there, or is not told
    received: int | None
    retransmits: int | None = None  # in this interval
    srtt_us: int | None = None
    cwnd: int | None = None
    streams: int = 0
    partial: bool = False  # the last one, which the end has cut short

    def rate(self, count: int | None) -> float | None:
        """Bytes a second; None where it is too short to tell."""
        length = self.end_ns - self.begin_ns
        if count is None or length <= 0 or (self.partial and length < SHORTEST_NS):
            return None
        return count * 1e9 / length


_WIDTHS: Final = {"time s": 14, "retransmits": 11}


def _row_cells(row: Row) -> dict[str, str]:
    """Column name -> what stands in it. Each direction has its own rate; one that is not there has no column."""

    def number(value: float | None, form: str) -> str:
        return "-" if value is None else format(value, form)

    cells = {"time s": f"{row.begin_ns / 1e9:.2f}-{row.end_ns / 1e9:.2f}"}
    for name, count in (("sent", row.sent), ("received", row.received)):
        if count is not None:
            rate = row.rate(count)
            cells[f"{name} MB/s"] = number(None if rate is None else rate / 1e6, ".1f")
            cells[f"{name} Gbit/s"] = number(None if rate is None else rate * 8 / 1e9, ".3f")
    return cells | {
        "streams": str(row.streams),
        "retransmits": number(row.retransmits, "d"),
        "srtt us": number(row.srtt_us, "d"),
        "cwnd segments": number(row.cwnd, "d"),
    }


def row_header(row: Row) -> str:
    """The names of the row's columns, each above its end."""
    return "  ".join(f"{name:>{_width(name)}}" for name in _row_cells(row))


def row_text(row: Row) -> str:
    """One line under ``row_header``; ``-``: not known."""
    return "  ".join(f"{cell:>{_width(name)}}" for name, cell in _row_cells(row).items())


def _width(name: str) -> int:
    return max(_WIDTHS.get(name, 0), len(name))


def row_plain(row: Row) -> dict[str, Any]:
    """The row's JSON keys."""
    return {
        "type": "interval",
        "begin_s": row.begin_ns / 1e9,
        "end_s": row.end_ns / 1e9,
        "partial": row.partial,
        "sent_bytes": row.sent,
        "received_bytes": row.received,
        "sent_bytes_per_s": row.rate(row.sent),
        "received_bytes_per_s": row.rate(row.received),
        "retransmits": row.retransmits,
        "srtt_us": row.srtt_us,
        "cwnd_segments": row.cwnd,
        "streams": row.streams,
    }


# ---- figures as JSON, and over a wire ----------------------------------------------------------------------------


def plain(figures: Figures) -> dict[str, Any]:
    """A direction's JSON keys."""
    count = figures.bytes
    return {
        "bytes": count,
        "seconds": _seconds(figures.elapsed_ns),
        "bytes_per_s": figures.bytes_per_s,
        "bits_per_s": None if figures.bytes_per_s is None else figures.bytes_per_s * 8,
        "rate_note": figures.no_rate or None,
        "block_bytes": figures.block,
        "blocks_full": None if count is None else count // figures.block,
        "blocks_partial": None if count is None else int(count % figures.block > 0),
        "streams": figures.streams,
        "way": figures.way,
        "clock_end": figures.clock_end,
        "round_trip_taken_off_s": _seconds(figures.round_trip_ns),
        "handed_over_bytes": figures.handed_bytes,
        "sender_handed_over_s": _seconds(figures.handed_ns),
        "fsync_s": None if figures.sent else figures.fsync_ns / 1e9,
        "retransmits": figures.retransmits,
        "srtt_us": figures.srtt_us,
        "cwnd_segments": figures.cwnd,
        "min_rtt_us": figures.min_rtt_us,
        "early_bytes": figures.early,
        "busy_share": figures.busy,
        "receiver_limited_share": figures.rwnd_limited,
    }


def _seconds(value_ns: int | None) -> float | None:
    return None if value_ns is None else value_ns / 1e9


def to_wire(figures: Figures) -> dict[str, Any]:
    """Figures as values that JSON carries; ``from_wire`` makes them again."""
    return asdict(figures)


def from_wire(values: Mapping[str, Any]) -> Figures:
    """Figures another end has sent. Raises ValueError for what is none."""
    names = {field.name for field in fields(Figures)}
    try:
        found = Figures(**{name: value for name, value in values.items() if name in names})
    except TypeError as error:
        raise ValueError(f"no figures: {error}") from None
    whole = (
        found.bytes,
        found.elapsed_ns,
        found.block,
        found.handed_bytes,
        found.handed_ns,
        found.early,
        found.min_rtt_us,
    )
    if any(
        value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 0) for value in whole
    ):
        raise ValueError("no figures: a count or time is not a whole number from 0 on")
    if not found.block or not isinstance(found.way, str) or not isinstance(found.clock_end, str):
        raise ValueError("no figures: a name or the block size is missing")
    return found


def text(figures: Figures) -> list[str]:
    """A direction as lines, dd's own line second."""
    count = figures.bytes
    verb = "sent" if figures.sent else "received"
    if count is None:
        lines = [f"bytes {verb} unknown"]
    else:
        lines = [
            f"{blocks(count, figures.block)} blocks of {counted(figures.block, 'byte')} {verb}",
            summary(figures),
            f"  {rates(figures.bytes_per_s, figures.no_rate)}",
        ]
    if figures.sent:
        lines.append(f"  {_sender_clock(figures)}")
        if figures.handed_bytes is not None and figures.handed_ns is not None:
            took = f"{counted(figures.handed_bytes, 'byte')} in {figures.handed_ns / 1e9:g} s"
            lines.append(f"  handed to the kernel: {took} (not the speed)")
        if figures.retransmits is not None and figures.srtt_us is not None:
            lines.append(
                f"  retransmits {figures.retransmits}, smoothed RTT {figures.srtt_us / 1000:g} ms, "
                f"congestion window {'unknown' if figures.cwnd is None else counted(figures.cwnd, 'segment')}"
            )
    else:
        sync = f", {figures.fsync_ns / 1e9:g} s of it for fsync" if figures.fsync_ns else ""
        lines.append(f"  clock: first byte here to last byte taken{sync}")
    several = f", {figures.streams} streams" if figures.streams > 1 else ""
    lines.append(f"  by {figures.way}{several}")
    return lines


def _sender_clock(figures: Figures) -> str:
    if figures.clock_end == "acknowledged":
        less = f", less one round trip of {figures.round_trip_ns / 1e6:g} ms" if figures.round_trip_ns else ""
        return f"clock: first byte handed over to last byte acknowledged{less}"
    if figures.clock_end == "peer closed":
        return "clock: first byte handed over to the peer's close (this system does not tell what is acknowledged)"
    return "clock: first byte handed over to the moment of this report; bytes: acknowledged until then"


def added(parts: Sequence[Figures]) -> Figures:
    """Several streams of one direction as one: bytes and events added, the longest time."""
    first = parts[0]

    def total(name: str) -> Any:
        values = [getattr(part, name) for part in parts]
        return None if any(value is None for value in values) else sum(values)

    def most(name: str) -> Any:
        return max((value for part in parts if (value := getattr(part, name)) is not None), default=None)

    ends = {part.clock_end for part in parts}
    return Figures(
        first.sent,
        total("bytes"),
        most("elapsed_ns"),
        first.block,
        first.way,
        first.clock_end if len(ends) == 1 else "handed over",
        total("handed_bytes"),
        most("handed_ns"),
        most("round_trip_ns"),
        most("fsync_ns"),
        total("retransmits"),
        most("srtt_us"),
        total("cwnd"),
        most("rwnd_limited"),
        most("busy"),
        len(parts),
        total("early"),
        min((part.min_rtt_us for part in parts if part.min_rtt_us is not None), default=None),
    )
