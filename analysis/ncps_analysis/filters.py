"""Pure: which attempts a person wants to see, read from what is typed and applied to handshake rows.

It must not know a command line. The one idea: a selection is a frozen value that can say itself in words, and choosing
is one mask a part; so a report can name the part it is of. Kinds of conditions must all hold, values of a kind one.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import numpy as np
import numpy.typing as npt
from ncps_capture.errors import UsageError
from ncps_capture.segments import STATE_NAMES, UNKNOWN, V4_MAPPED, Handshakes

STATES: Final = STATE_NAMES[1:6]
_SECOND: Final = 1_000_000_000
_ALL64: Final = (1 << 64) - 1
_SECONDS: Final = re.compile(r"[0-9]{1,10}(\.[0-9]{1,9})?", re.ASCII)
_EXACT_TIME: Final = re.compile(r"(.*:\d\d)\.(\d{1,9})(.*)", re.ASCII)


@dataclass(frozen=True)
class Moment:
    """A point in time: ns since the Unix epoch, or after the first packet."""

    ns: int
    relative: bool
    text: str

    def at(self, first_t_ns: int) -> int:
        """ns since the Unix epoch in a capture that begins at ``first_t_ns``."""
        return first_t_ns + self.ns if self.relative else self.ns


@dataclass(frozen=True)
class Selection:
    """Conditions on an attempt. ``networks``: (high mask, low mask, high, low) words of either end's address."""

    networks: tuple[tuple[int, int, int, int], ...] = ()
    ports: tuple[tuple[int, int], ...] = ()  # inclusive ranges, of either end
    states: tuple[str, ...] = ()
    begin: Moment | None = None  # of the first SYN, or of a lone SYN-ACK
    end: Moment | None = None  # the first moment that is too late
    text: str = ""

    def __bool__(self) -> bool:
        return bool(self.networks or self.ports or self.states or self.begin or self.end)


def choose(rows: Handshakes, wanted: Selection, first_t_ns: int) -> npt.NDArray[np.bool_]:
    """Which rows fulfil every condition. bool, one a row; ``first_t_ns``: when the capture begins."""
    keep = np.ones(len(rows), np.bool_)
    if wanted.networks:
        keep &= _within(rows, "client", wanted) | _within(rows, "server", wanted)
    if wanted.ports:
        some = np.zeros(len(rows), np.bool_)
        for low, high in wanted.ports:
            for name in ("sport", "dport"):
                some |= (rows[name] >= low) & (rows[name] <= high)
        keep &= some
    if wanted.states:
        keep &= np.isin(rows["state"], [STATE_NAMES.index(name) for name in wanted.states])
    if wanted.begin or wanted.end:
        t = np.where(rows["t_syn_first_ns"] == UNKNOWN, rows["t_synack_ns"], rows["t_syn_first_ns"])
        if wanted.begin:
            keep &= t >= wanted.begin.at(first_t_ns)
        if wanted.end:
            keep &= t < wanted.end.at(first_t_ns)
    return keep


def _within(rows: Handshakes, end: str, wanted: Selection) -> npt.NDArray[np.bool_]:
    out = np.zeros(len(rows), np.bool_)
    for high_mask, low_mask, high, low in wanted.networks:
        out |= (rows[f"{end}_hi"] & np.uint64(high_mask) == np.uint64(high)) & (
            rows[f"{end}_lo"] & np.uint64(low_mask) == np.uint64(low)
        )
    return out


# ---- reading what is typed ---------------------------------------------------------------------------------


def selection(
    *,
    host: str | None = None,
    port: str | None = None,
    state: str | None = None,
    begin: str | None = None,
    end: str | None = None,
) -> Selection:
    """The selection of these texts of --host, --port, --state, --from and --to. UsageError for what cannot be meant."""
    first, last = _moment(begin, "--from"), _moment(end, "--to")
    if first and last and first.relative == last.relative and first.ns >= last.ns:
        raise UsageError(f"--from {begin} is not before --to {end}: nothing lies between")
    given = (("host", host), ("port", port), ("state", state), ("from", begin), ("to", end))
    return Selection(
        networks=_networks(host) if host else (),
        ports=ports(port, "--port") if port else (),
        states=_states(state) if state else (),
        begin=first,
        end=last,
        text=", ".join(f"{name} {' '.join(value.split())}" for name, value in given if value),
    )


def ports(text: str, option: str) -> tuple[tuple[int, int], ...]:
    """Inclusive ranges of ports: ``443,8000-8100``. UsageError for anything else."""
    out = []
    for part in text.split(","):
        low, dash, high = part.strip().partition("-")
        high = high if dash else low
        if not (low.isdecimal() and high.isdecimal() and len(low) < 6 and len(high) < 6):
            raise UsageError(f"{option} must be ports such as 443 or 443,8000-8100, not {text!r}")
        if not int(low) <= int(high) <= 65535:
            raise UsageError(f"{option} {part.strip()} must run upwards within 0-65535")
        out.append((int(low), int(high)))
    return tuple(out)


def _networks(text: str) -> tuple[tuple[int, int, int, int], ...]:
    out = []
    for part in text.split(","):
        try:
            network = ipaddress.ip_network(part.strip().partition("%")[0], strict=False)
        except ValueError:
            raise UsageError(
                f"--host must be numeric addresses or networks such as 10.0.0.5 or 10.1.0.0/16, not {text!r}"
            ) from None
        address, mask = int(network.network_address), int(network.netmask)
        if network.version == 4:
            out.append((_ALL64, _ALL64 << 32 & _ALL64 | mask, 0, V4_MAPPED | address))
        else:
            out.append((mask >> 64, mask & _ALL64, address >> 64, address & _ALL64))
    return tuple(out)


def _states(text: str) -> tuple[str, ...]:
    out = tuple(part.strip() for part in text.split(","))
    for name in out:
        if name not in STATES:
            raise UsageError(f"--state must be of {', '.join(STATES)}, not {name!r}")
    return out


def _moment(text: str | None, option: str) -> Moment | None:
    if text is None:
        return None
    typed = text.strip()
    if _SECONDS.fullmatch(typed):
        whole, _, fraction = typed.partition(".")
        return Moment(int(whole) * _SECOND + int(fraction.ljust(9, "0")), True, typed)
    digits = ""
    if match := _EXACT_TIME.fullmatch(typed):  # datetime has microseconds only
        typed, digits = match[1] + match[3], match[2]
    try:
        at = datetime.fromisoformat(typed)
    except ValueError:
        raise UsageError(
            f"{option} must be seconds after the first packet, or a time such as 2026-05-04T10:20:30.5Z, not {text!r}"
        ) from None
    at = at.replace(tzinfo=UTC) if at.tzinfo is None else at
    since = at - datetime(1970, 1, 1, tzinfo=UTC)
    return Moment((since.days * 86_400 + since.seconds) * _SECOND + int(digits.ljust(9, "0")), False, text.strip())
