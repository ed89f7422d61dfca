"""Vocabulary: what one link check is to do, frozen and checked. A plan that exists can be meant.

Must not know sockets or files. The one idea: both commands are the same machine, told apart by which way the bytes
go and who listens; the four arrangements are two fields.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

from ncps_capture.errors import UsageError

from ncps_raw import units
from ncps_raw.units import SECOND

PORT: Final = 5555
BLOCK: Final = 1500
FORMATS: Final = ("text", "json", "jsonl")
ZEROS: Final = "zeros"
RANDOM: Final = "random"
STREAM: Final = "-"
"""Standard input as a source, standard output as a sink."""
DEFAULT_DURATION_NS: Final = 10 * SECOND
CONNECT_NS: Final = 10 * SECOND
MAX_STREAMS: Final = 48
"""With more threads than this at full speed on two cores, the one that sees to time and signals comes too late."""

_BITS: Final = {"bit": 1, "kbit": 10**3, "Mbit": 10**6, "Gbit": 10**9, "bps": 1, "kbps": 10**3, "Mbps": 10**6}

MAX_BUFFER: Final = (1 << 31) - 1
"""What fits into the C int of SO_SNDBUF and SO_RCVBUF."""


_NOT_OF_RECV: Final = "--source and --limit are of the end that sends; recv sends only with --bidirectional"


@dataclass(frozen=True)
class LinkPlan:
    """One link check. ``sends``: the command is ``send``; ``host`` None: this end listens."""

    sends: bool
    host: str | None = None
    port: int = PORT
    bind: str | None = None
    source: str = ZEROS  # of what this end sends: ZEROS, RANDOM, STREAM or a file's name
    sink: str | None = None  # of what this end receives: None = discarded, STREAM or a file's name
    fsync: bool = False
    block: int = BLOCK  # bytes; for the accounting alone
    size: int | None = None  # bytes that this end sends; of ``recv``: that it waits for
    duration_ns: int | None = None
    idle_ns: int | None = None
    wait_ns: int | None = None
    streams: int = 1
    bidirectional: bool = False
    warmup_ns: int = 0
    limit: int | None = None  # bytes/s of payload over all streams
    sndbuf: int | None = None
    rcvbuf: int | None = None
    keep: bool = False
    both: bool = False  # the two ends talk: each knows when the other has enough
    explain: bool = False
    copy: bool = False
    interval_ns: int = SECOND
    rows: bool = False  # asked for, so also on a terminal
    format: str = "text"
    results: str | None = None  # a file for the report, of ``send`` alone
    quiet: bool = False

    def __post_init__(self) -> None:
        if not 0 < self.port < 65_536:
            raise UsageError(f"--port must be 1 to 65535, not {self.port}")
        if self.format not in FORMATS:
            raise UsageError(f"--format must be {', '.join(FORMATS[:-1])} or {FORMATS[-1]}, not {self.format}")
        if not 0 < self.streams <= MAX_STREAMS:
            raise UsageError(f"--streams must be 1 to {MAX_STREAMS}, not {self.streams}")
        if self.block < 1:
            raise UsageError("--bs must be at least 1 byte")
        if self.size is not None and self.size < 1:
            raise UsageError("--size and --count must be at least 1")
        for name, value in (("--duration", self.duration_ns), ("--interval", self.interval_ns)):
            if value is not None and value < units.MILLISECOND:
                raise UsageError(f"{name} must be at least 1ms")
        if self.duration_ns is not None and self.warmup_ns >= self.duration_ns:
            raise UsageError("--warmup must be shorter than --duration, which includes it")
        if self.streams > 1 and self.receives and self.sink is not None:
            raise UsageError("--streams: several streams cannot go into one file; leave out --output or --streams")
        if self.streams > 1 and self.transmits and not self.endless_source:
            raise UsageError("--streams: one file cannot be split over several streams; use zeros or random")
        for option, wanted in (("--sndbuf", self.sndbuf), ("--rcvbuf", self.rcvbuf)):
            if wanted is not None and not 0 < wanted <= MAX_BUFFER:
                raise UsageError(f"{option} must be 1 to {MAX_BUFFER} bytes, not {wanted}")
        if self.keep and self.host is not None:
            raise UsageError("--keep is for the end that listens")
        if self.keep and (self.sink is not None or (self.transmits and self.source == STREAM)):
            raise UsageError(
                "--keep: each client would write over what the one before has left, or find standard input empty; "
                "leave out --keep, --output or --source -"
            )
        if self.keep and self.format == "json":
            raise UsageError("--keep makes a report for every client: use --format jsonl, one in each line")
        if self.fsync and (self.sink is None or self.sink == STREAM):
            raise UsageError("--fsync needs a file: name it with --output")
        if not self.transmits and (self.source != ZEROS or self.limit):
            raise UsageError(_NOT_OF_RECV)

    @property
    def transmits(self) -> bool:
        """Whether bytes leave here."""
        return self.sends or self.bidirectional

    @property
    def receives(self) -> bool:
        """Whether bytes are taken here."""
        return not self.sends or self.bidirectional

    @property
    def endless_source(self) -> bool:
        """Whether the source never ends by itself."""
        return self.source in (ZEROS, RANDOM)

    @property
    def listens(self) -> bool:
        """Whether this end waits for the other."""
        return self.host is None

    @property
    def command(self) -> str:
        """``send`` or ``recv``."""
        return "send" if self.sends else "recv"

    @property
    def lasts_ns(self) -> int | None:
        """When to stop handing over: as told, or 10 s where nothing else would end it."""
        if self.duration_ns is None and self.sends and self.size is None and self.endless_source:
            return DEFAULT_DURATION_NS + self.warmup_ns
        return self.duration_ns

    @property
    def expected(self) -> int | None:
        """Bytes this end waits for, where it was told."""
        return None if self.sends or self.bidirectional else self.size


def byte_rate(text: str, option: str) -> int:
    """Bytes a second: ``10M`` (10 * 2^20) or ``10MB/s`` (10^7), as sizes; ``100Mbit`` (decimal bits)."""
    plain = text.strip().removesuffix("/s")
    for name in sorted(_BITS, key=len, reverse=True):
        number = plain.removesuffix(name)
        if number != plain:
            try:
                bits = Fraction(number.strip()) * _BITS[name]
            except (ValueError, ZeroDivisionError):
                break
            if bits >= 8:
                return int(bits / 8)
            break
    else:
        try:
            value = units.size(plain, option)
        except UsageError:
            value = 0
        if value > 0:
            return value
    raise UsageError(
        f"{option} must be bytes a second such as 10M (of 2^20) or 1.5MB/s (of 10^6), or bits as 100Mbit, not {text!r}"
    )


_Reader = Callable[[str, str], Any]
_FIELDS: Final[dict[str, tuple[str, _Reader | None]]] = {
    "--port": ("port", lambda text, option: _port(text, option)),
    "--bind": ("bind", lambda text, option: _one_address(text, option)),
    "--source": (
        "source",
        lambda text, option: _filled(text, option, "zeros, random, a file, or - for standard input"),
    ),
    "--bs": ("block", units.size),
    "--size": ("size", units.size),
    "--duration": ("duration_ns", units.duration),
    "--idle": ("idle_ns", units.duration),
    "--wait": ("wait_ns", units.duration),
    "--streams": ("streams", units.count),
    "--warmup": ("warmup_ns", units.duration),
    "--limit": ("limit", byte_rate),
    "--sndbuf": ("sndbuf", units.size),
    "--rcvbuf": ("rcvbuf", units.size),
    "--interval": ("interval_ns", units.duration),
    "--format": ("format", lambda text, option: _filled(text, option, f"{', '.join(FORMATS[:-1])} or {FORMATS[-1]}")),
    "--fsync": ("fsync", None),
    "--bidirectional": ("bidirectional", None),
    "--keep": ("keep", None),
    "--both": ("both", None),
    "--explain": ("explain", None),
    "--copy": ("copy", None),
    "--quiet": ("quiet", None),
}
"""(option, field, reader); None: a switch."""


def build(command: str, values: Mapping[str, Any]) -> LinkPlan:
    """The plan of ``send`` or ``recv`` from docopt's values. Raises UsageError for what cannot be meant."""
    sends = command == "send"
    given: dict[str, Any] = {"sends": sends, "host": values.get("HOST")}
    for name, (field, reader) in _FIELDS.items():
        value = values.get(name)
        if value is not None and value is not False:
            given[field] = True if reader is None else reader(value, name)
    given["rows"] = values.get("--interval") is not None
    if values.get("--output") is not None:
        given["results" if sends else "sink"] = _filled(
            values["--output"], "--output", "a file, or - for standard output"
        )
    if "source" in given and not sends and not given.get("bidirectional"):
        raise UsageError(_NOT_OF_RECV)
    if values.get("--count") is not None:
        if "size" in given:
            raise UsageError("--size and --count say the same twice: leave out one of them")
        given["size"] = units.count(values["--count"], "--count") * given.get("block", BLOCK)
    listen = bool(values.get("--listen"))
    if listen and given["host"] is not None:
        raise UsageError("HOST and --listen contradict each other: leave out one of them")
    if given["host"] is not None:
        _check_host(given["host"], command)
    if sends and not listen and given["host"] is None:
        raise UsageError("HOST is missing: ncps send HOST [options], or ncps send --listen")
    if given.get("both") and given["host"] is None:
        raise UsageError("--both is for the end that connects; a listener of this program knows it when asked")
    return LinkPlan(**given)


_WITH_PORT: Final = re.compile(r"\[(?P<six>[^\[\]]*)\](?::(?P<port6>\d*))?|(?P<four>[^:/]*):(?P<port4>\d*)")


def _check_host(text: str, command: str) -> None:
    """Say how a host is written that was written as elsewhere: with its port, in brackets, or not at all."""
    if not text.strip():
        listening = "ncps recv" if command == "recv" else "ncps send --listen"
        raise UsageError(f"HOST is empty: ncps {command} HOST to connect, {listening} to listen")
    found = _WITH_PORT.fullmatch(text)
    if found is not None:
        host = found["six"] or found["four"] or "HOST"
        port = found["port6"] or found["port4"]
        right = f"ncps {command} {host}" + (f" -p {port}" if port else "")
        raise UsageError(f"HOST is a name or an address alone and the port goes into -p: {right}, not {text!r}")
    if "/" in text:
        raise UsageError(f"HOST must be a name or an address such as 10.0.0.5, not {text!r}")
    units.host(text, "HOST")


def _filled(text: str, option: str, wanted: str) -> str:
    """What a script makes of a variable that is not set is no name."""
    if not text.strip():
        raise UsageError(f"{option} is empty: name {wanted}, or leave it out")
    return text


def _port(text: str, option: str) -> int:
    try:
        return units.count(text, option)
    except UsageError:
        raise UsageError(f"{option} must be a port number, 1 to 65535, not {text!r}") from None


def _one_address(text: str, option: str) -> str:
    found = units.addresses(text, option)
    if len(found) != 1:
        raise UsageError(f"{option} must be one address, not {text!r}")
    return found[0]
