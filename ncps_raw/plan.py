"""Vocabulary: what a run is asked to do, checked before anything starts.

Must not know how the wish was typed, how names are resolved or how the load is driven: it keeps the target as
the person wrote it and never asks this machine anything. The one idea: a plan that exists is valid. Whoever
holds one need not check a limit again, and a wrong wish ends in one line that names the option by the name the
person used: ours, or NCPS's when the plan comes from its dialect.
"""

from __future__ import annotations

import ipaddress
import os
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import ClassVar, Final

from ncps_capture.errors import UsageError
from ncps_capture.filter import LEVELS

from ncps_raw import units

DEFAULT: Final = -1
"""Of a count: take the documented default, which depends on another field."""

SECOND: Final = 1_000_000_000
MAX_PORT: Final = 65_535
MAX_THREADS: Final = 1_024
MAX_CONNECTIONS: Final = 100_000_000
MAX_SIZE: Final = 1 << 30
MAX_TIME_NS: Final = 366 * 86_400 * SECOND
MAX_KEEPALIVE_NS: Final = 32_767 * SECOND
"""The longest idle time Linux's TCP_KEEPIDLE takes."""
MAX_PROCESSORS: Final = 1_024
MAX_RATE: Final = 100_000_000
MIN_RATE: Final = Fraction(1, 366 * 86_400)

CLIENT_MODES: Final = ("0", "1", "p", "s", "r")
SERVER_MODES: Final = ("echo", "s", "r")
ENGINES: Final = ("selector",)
CAPTURES: Final = ("auto", "required", "off")
FORMATS: Final = ("text", "ncps", "json", "jsonl")
CLOSES: Final = ("fin", "rst")

_NAMES: Final = {
    "base_port": ("--port", "-bp"),
    "ports": ("--ports", "-np"),
    "threads": ("--threads", "-r"),
    "processes": ("--processes", "--processes"),
    "connections": ("--connections", "-N"),
    "pending": ("--pending", "-P"),
    "mode": ("--mode", "-M"),
    "hold_ns": ("--hold", "-D"),
    "size": ("--size", "-len"),
    "local_port": ("--local-port", "-bcp"),
    "local_ports": ("--local-ports", "-ncp"),
    "cross_connect": ("--cross-connect", "-xconnect"),
    "duration_ns": ("--duration", "-t"),
    "warmup_ns": ("--warmup", "-wt"),
    "interval_ns": ("--interval", "-i"),
    "bind": ("--bind", "-b"),
    "close": ("--close", "-abortiveclose or -normalclose"),
    "engine": ("--engine", "--engine"),
    "capture": ("--capture", "--capture"),
    "capture_level": ("--capture-level", "--capture-level"),
    "capture_buffer": ("--capture-buffer", "--capture-buffer"),
    "interface": ("--interface", "--interface"),
    "format": ("--format", "--format"),
    "output": ("--output", "-o"),
    "write": ("--write", "-w"),
    "run": ("--run", "--run"),
    "max_failed": ("--max-failed", "--max-failed"),
    "delay_ns": ("--delay", "-ds"),
    "keepalive_ns": ("--keepalive", "-tka"),
    "affinity": ("--affinity", "-aff"),
    "reuse_port": ("--reuse-port", "-rup"),
    "pace_ns": ("--pace", "-k"),
    "rate": ("--rate", "--rate"),
    "target": ("HOST", "-c"),
}
"""Field -> (our option, NCPS's flag): the name a message uses."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What server and client share. Times in ns, sizes in bytes. Raises ``UsageError`` for what cannot be meant."""

    role: ClassVar[str]
    modes: ClassVar[tuple[str, ...]]
    usual_level: ClassVar[str]

    bind: tuple[str, ...] = ()  # numeric local addresses, scope allowed; () = any
    base_port: int = 10_001  # first server port
    ports: int = DEFAULT  # number of server ports; default: threads
    threads: int = 16  # loops
    processes: int | None = None  # None: see ``process_count``
    mode: str = ""
    size: int = 1_000  # bytes of one send, and at most of one receive
    duration_ns: int | None = None  # with the warm-up; None = until interrupted
    warmup_ns: int = 0
    interval_ns: int = SECOND
    close: str = ""  # "fin" or "rst"
    engine: str = "selector"
    capture: str = ""  # "auto": where it is allowed; "required": else the run fails; "off"
    interface: str | None = None  # None = found by route
    write: str | None = None  # also save the packets, as pcap
    capture_level: str = ""  # what to admit besides SYNs; default: see ``admitted``
    capture_buffer: int = 64 << 20
    format: str = "text"
    output: str | None = None  # None = standard output
    run: str | None = None  # also save the run itself, for ``ncps report``
    quiet: bool = False  # nothing on standard error but warnings and errors
    silent_rows: bool = False  # no periodic rows
    max_failed: float | None = None  # share of the attempts, 0 to 1; None = fail only if all of them did
    delay_ns: int = 0  # before anything starts
    keepalive_ns: int = 0  # idle time before the first probe of TCP keep-alive; 0 = off
    shutdown: bool = False  # end the sending side (FIN) before closing
    busy_poll: bool = False  # look for events without waiting while connections are open
    affinity: tuple[int, ...] = ()  # loop r is pinned to processor r mod count; () = none
    affinity_nonrss: bool = False  # find processors that serve no network interrupts, and pin the loops to those
    brief: bool = False  # short rows: N, CPS and the two SYN-RTTs
    command_line: str = ""  # as NCPS shows it after === CMDLINE
    dialect: bool = False  # typed in NCPS's dialect

    def __post_init__(self) -> None:
        if self.ports == DEFAULT:
            self._set("ports", self.threads)
        self._shared_limits()

    def process_count(self, cores: int) -> int:
        """How many processes share the loops on a machine with ``cores`` usable cores: never more than loops."""
        return max(1, min(self.threads, cores)) if self.processes is None else self.processes

    @property
    def offered_modes(self) -> tuple[str, ...]:
        """What a message offers: NCPS has no name for a server's echo, which is what it does without ``-M``."""
        return tuple(mode for mode in self.modes if not (self.dialect and mode == "echo" != self.mode))

    @property
    def stays(self) -> bool:
        """Whether the run goes on until its time is over though nothing is left to do, as NCPS does with -dnrc."""
        return self.dialect

    @property
    def admitted(self) -> str:
        """Level of the capture: what it admits."""
        return self.capture_level or self.usual_level

    # ---- checks --------------------------------------------------------------------------------------------

    def _set(self, field: str, value: object) -> None:
        object.__setattr__(self, field, value)

    def _name(self, field: str) -> str:
        return _NAMES[field][1 if self.dialect else 0]

    def _refuse(self, field: str, expected: str, value: object) -> UsageError:
        return UsageError(f"{self._name(field)} must be {expected}, not {value}")

    def _between(self, field: str, low: int, high: int) -> None:
        value = getattr(self, field)
        if not low <= value <= high:
            raise self._refuse(field, f"{low} to {high}", value)

    def _one_of(self, field: str, choices: tuple[str, ...]) -> None:
        value = getattr(self, field)
        if value not in choices:
            raise self._refuse(field, " or ".join(choices), value or "empty")

    def _block_fits(self, first: str, count: str) -> None:
        start, n = getattr(self, first), getattr(self, count)
        room = MAX_PORT + 1 - start
        if n > room:
            raise UsageError(
                f"{self._name(first)} {start} and {self._name(count)} {n} pass the last port, {MAX_PORT}: "
                f"at most {room} {'port fits' if room == 1 else 'ports fit'}"
            )

    def _shared_limits(self) -> None:
        self._between("threads", 1, MAX_THREADS)
        self._between("base_port", 1, MAX_PORT)
        self._between("ports", 1, MAX_PORT)
        self._block_fits("base_port", "ports")
        if self.processes is not None:
            self._between("processes", 1, self.threads)
        self._between("size", 1, MAX_SIZE)
        self._one_of("mode", self.offered_modes)
        if self.engine not in ENGINES:
            raise UsageError(f"engine {self.engine} is not available: there is {' and '.join(ENGINES)}")
        self._one_of("close", CLOSES)
        self._one_of("capture", CAPTURES)
        self._one_of("format", FORMATS)
        if self.capture_level:
            self._one_of("capture_level", LEVELS)
        self._between("capture_buffer", 1 << 20, 4 << 30)
        self._times()
        if self.max_failed is not None and not 0 <= self.max_failed <= 1:
            raise self._refuse("max_failed", "0 % to 100 %", f"{self.max_failed:.6g}")
        self._processors()
        if self.capture == "off" and (self.write or self.interface or self.capture_level):
            what = self._name("write" if self.write else "interface" if self.interface else "capture_level")
            raise UsageError(f"{what} needs the capture, which --no-capture switches off: leave out one of them")
        named = [path for path in (self.output, self.write, self.run) if path is not None]
        if len(set(named)) < len(named):
            names = f"{self._name('output')}, {self._name('write')} and {self._name('run')}"
            raise UsageError(f"{names} must name different files: one would replace the other")
        for address in self.bind:
            _family(address, self._name("bind"))
        self._files()

    def _files(self) -> None:
        taken: dict[str, str] = {}
        for field in ("output", "write", "run"):
            option, path = self._name(field), getattr(self, field)
            if path is None:
                continue
            if not path:
                raise UsageError(f"{option} needs the name of a file, not an empty one")
            other = taken.setdefault(os.path.abspath(path), option)  # noqa: PTH100 - of names, not of files that exist
            if other != option and not path.startswith("/dev/"):
                raise UsageError(f"{other} and {option} name the same file, {path}: each needs one of its own")
        if self.interface == "":
            raise UsageError("--interface needs the name of an interface, not an empty one")

    def _processors(self) -> None:
        if self.affinity and self.affinity_nonrss:
            raise self._refuse("affinity", "a list of processors or nonrss", "both")
        if len(self.affinity) > MAX_PROCESSORS:
            raise UsageError(
                f"{self._name('affinity')} names {len(self.affinity)} processors: at most {MAX_PROCESSORS}"
            )
        for processor in self.affinity:
            if processor < 0:
                raise self._refuse("affinity", "numbers of processors, from 0 on", processor)

    def _times(self) -> None:
        if not 0 <= self.delay_ns <= MAX_TIME_NS:
            raise UsageError(f"{self._name('delay_ns')} must be 0 s to a year")
        if not 0 <= self.keepalive_ns <= MAX_KEEPALIVE_NS or self.keepalive_ns % SECOND:
            raise UsageError(
                f"{self._name('keepalive_ns')} must be whole seconds, 0 (off) to {MAX_KEEPALIVE_NS // SECOND}: "
                "the kernel counts them so"
            )
        if not 0 < self.interval_ns <= MAX_TIME_NS:
            raise UsageError(f"{self._name('interval_ns')} must be longer than 0 s and at most a year")
        if not 0 <= self.warmup_ns <= MAX_TIME_NS:
            raise UsageError(f"{self._name('warmup_ns')} must be 0 s to a year")
        if self.duration_ns is None:
            return
        if not 0 < self.duration_ns <= MAX_TIME_NS:
            raise UsageError(f"{self._name('duration_ns')} must be longer than 0 s and at most a year")
        if self.warmup_ns >= self.duration_ns:
            raise UsageError(
                f"{self._name('warmup_ns')} must be shorter than {self._name('duration_ns')}, which includes it: "
                "nothing would be left to report"
            )


@dataclass(frozen=True, kw_only=True)
class ServerPlan(Plan):
    """Accept connections on ``ports`` ports from ``base_port`` on and echo what each read returns."""

    role: ClassVar[str] = "server"
    modes: ClassVar[tuple[str, ...]] = SERVER_MODES
    usual_level: ClassVar[str] = "acks"  # to measure round trips: what a server sees between SYN and SYN-ACK is itself

    mode: str = "echo"
    reuse_port: bool = False  # every loop listens on every port
    close: str = "rst"  # with the client's FIN neither side keeps TIME_WAIT
    capture: str = "off"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.ports < self.threads and not self.reuse_port:
            raise UsageError(
                f"{self._name('ports')} {self.ports} is less than {self._name('threads')} {self.threads}: "
                "each thread of a server listens on at least one port, unless all share them with "
                f"{self._name('reuse_port')}"
            )


@dataclass(frozen=True, kw_only=True)
class ClientPlan(Plan):
    """Keep ``connections`` connections open to ``target``, at most ``pending`` of them still connecting."""

    role: ClassVar[str] = "client"
    modes: ClassVar[tuple[str, ...]] = CLIENT_MODES
    usual_level: ClassVar[str] = "base"  # the fewest packets

    target: str  # name or address, as typed
    mode: str = "1"
    close: str = "fin"
    capture: str = "auto"
    connections: int = DEFAULT  # N, in all; default: 100 a thread
    pending: int = DEFAULT  # P, in all; default: N
    hold_ns: int = 0  # D: life of a connection
    local_port: int = 0  # first local port; 0 = the kernel chooses
    local_ports: int = 0  # number of local ports
    cross_connect: bool = False  # every loop uses every server port
    reconnect: bool = True  # a closed connection is replaced
    pace_ns: int = 0  # mode p: time between two rounds of one connection
    rate: Fraction | None = None  # connects a second, on a schedule whatever the answers; None = as fast as it goes

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.connections == DEFAULT:
            self._set("connections", self.threads * 100)
        if self.pending == DEFAULT:
            self._set("pending", self.connections)
        for field in ("connections", "pending"):
            self._between(field, 1, MAX_CONNECTIONS)
            if getattr(self, field) < self.threads:
                raise UsageError(
                    f"{self._name(field)} {getattr(self, field)} is less than {self._name('threads')} "
                    f"{self.threads}: each thread needs at least one"
                )
        if not 0 <= self.hold_ns <= MAX_TIME_NS:
            raise UsageError(f"{self._name('hold_ns')} must be 0 s to a year")
        self._local_limits()
        self._schedule_limits()
        self._target_limits()

    def _local_limits(self) -> None:
        self._between("local_port", 0, MAX_PORT)
        self._between("local_ports", 0, MAX_PORT)
        if not self.local_port:
            # NCPS takes a number of local ports without a first one and ignores it.
            if self.local_ports and not self.dialect:
                raise UsageError("--local-ports needs --local-port, the first of them")
            return
        if self.local_ports < self.threads:
            raise UsageError(
                f"{self._name('local_port')} needs {self._name('local_ports')} of at least {self._name('threads')} "
                f"({self.threads}), not {self.local_ports}: each thread has local ports of its own"
            )
        self._block_fits("local_port", "local_ports")

    def _schedule_limits(self) -> None:
        if not 0 <= self.pace_ns <= MAX_TIME_NS:
            raise UsageError(f"{self._name('pace_ns')} must be 0 s to a year")
        if self.pace_ns and self.mode != "p" and not self.dialect:  # NCPS takes -k with any mode
            raise UsageError(f"--pace is the time between the rounds of --mode p; mode {self.mode} has no rounds")
        if self.rate is None:
            return
        if not MIN_RATE <= self.rate <= MAX_RATE:
            raise self._refuse(
                "rate", f"one a year to {MAX_RATE:,} a second", f"{Decimal(f'{float(self.rate):.15g}'):,f}/s"
            )
        if self.pace_ns and self.mode == "p":
            raise UsageError(
                f"--rate and {self._name('pace_ns')} contradict each other: each sets when connects happen; "
                "leave out one of them"
            )

    def _target_limits(self) -> None:
        if not self.target or self.target.startswith("-") or any(c.isspace() for c in self.target):
            raise self._refuse("target", "a name or an IP address", repr(self.target))
        host, colon, port = self.target.rpartition(":")
        if colon and port.isdecimal() and ":" not in host:
            raise UsageError(
                f"{self._name('target')} is an address without a port: {host} {self._name('base_port')} {port}"
            )
        units.host(self.target, self._name("target"))
        try:
            version = ipaddress.ip_address(self.target).version
        except ValueError:
            return  # a name: which family it has is known when it is resolved
        if version == 6 and "%" not in self.target and ipaddress.ip_address(self.target).is_link_local:
            raise UsageError(f"{self.target} is link-local: say by which interface, as in {self.target}%eth0")
        for address in self.bind:
            if _family(address, self._name("bind")) != version:
                raise UsageError(
                    f"{self._name('bind')} {address} and the target {self.target} are of different IP versions"
                )


def _family(address: str, option: str) -> int:
    try:
        return ipaddress.ip_address(address).version
    except ValueError:
        raise UsageError(f"{option} must be a numeric IPv4 or IPv6 address of this machine, not {address!r}") from None
