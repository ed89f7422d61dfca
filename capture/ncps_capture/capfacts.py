"""Vocabulary of saved captures: what is learnt of a file while it is read, and the verb every format has.

Knows neither files nor formats. The one idea: a format is handed bytes and says how many it used, so that reading,
decompressing and parsing do not know each other, and each can be tried by hand.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

from ncps_capture.segments import Batch

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]

SANE_CAPLEN: Final = 256 << 10
"""libpcap's own limit of a packet; writers with a larger snaplen say so in the header, up to MOST_SNAPLEN."""
MOST_SNAPLEN: Final = 16 << 20
"""A header may claim 4 GiB. No packet is as long as this, and no more is ever held for one that says it is."""
BATCH_ROWS: Final = 65_536
BATCH_BYTES: Final = 16 << 20
"""Most of one batch, about: more rows no longer fit the cache, and fewer share the cost of a call."""


@dataclass
class Interface:
    """One interface of a file, in the order of their definition over all sections; classic pcap has one."""

    link_type: int
    snaplen: int  # as the header claims; 0 and lies occur
    name: str = ""
    packets: int = 0


@dataclass
class Facts:
    """What is known of a capture so far; complete when its batches are used up."""

    name: str
    source: int
    warnings: list[str] = field(default_factory=list)  # one line each
    packets: int = 0  # all in the file, ``untimed`` and ``unclaimed`` included
    untimed: int = 0  # without a time, or with one no clock shows: no batch has them
    unclaimed: int = 0  # of an interface that was never described: no batch has them
    interfaces: list[Interface] = field(default_factory=list)
    drops: int | None = None  # packets the capture says it lost; None where it says nothing
    damaged: str | None = None  # "damaged at byte N, record K", or "cut ..."; all before it was read

    def warn(self, text: str) -> None:
        """Add a line that names the file."""
        self.warnings.append(f"{self.name}: {text}")


@dataclass
class Taken:
    """What a format made of some bytes."""

    batches: list[Batch]
    used: int  # bytes it needs no more; the rest is to be handed in again, with more behind it
    needs: int = 0  # bytes, from ``used`` on, without which it gets no further; 0 = it does not know yet
    stop: bool = False  # damaged: nothing behind can be read


class Format(Protocol):
    """Reads one kind of file. Pure but for the facts it was made with, which it keeps up to date."""

    def take(self, data: Bytes, start: int) -> Taken:
        """Use as much of ``data`` as is whole; ``start`` is its place in the file, for messages."""

    def end(self, rest: int, start: int) -> None:
        """Nothing more follows: ``rest`` bytes at ``start`` were not used."""

    @property
    def current(self) -> list[Interface]:
        """Interfaces that the records from here on can be of."""

    @property
    def odd(self) -> bool:
        """Whether more was learnt of what was taken than counts of packets."""

    def twin(self, facts: Facts) -> Format:
        """One that goes on from here with fresh ``facts``, which get ``current`` as their interfaces."""

    def meets(self, data: Bytes, boundary: int, like: Bytes) -> int | None:
        """Start of the first record that ends behind ``boundary``, as far as it can be told without the start of any.

        ``like``: a record of about the same time. None if no chain of records leads over the boundary.
        """
