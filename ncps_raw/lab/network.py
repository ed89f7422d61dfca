"""Vocabulary: what the path between the two namespaces does to packets, as frozen values that can be written down.

It must not know how the path is run. The one idea: what happens to a packet follows from its place in an order
(the third transmission, every fiftieth attempt), never from chance, so that a test can say what must be counted.
Jitter alone is drawn, from a seed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, Self

from ncps_capture.errors import UsageError

from ncps_raw.lab.packets import KINDS

A_TO_B: Final = 0
B_TO_A: Final = 1
DIRECTIONS: Final = ("a>b", "b>a")

ACTIONS: Final = ("pass", "drop", "duplicate", "delay", "reorder", "reset", "unreachable", "queue_full")
"""What is done with a packet, by number; the index is what the log holds. A rule may have all but first and last."""
PASS, DROP, DUPLICATE, DELAY, REORDER, RESET, UNREACHABLE, QUEUE_FULL = range(len(ACTIONS))

DONE: Final = ("passed", "dropped", "duplicated", "delayed", "reordered", "reset", "unreachable", "queue_full")
"""The same as names of counters."""

RULE_KINDS: Final = ("any", *KINDS[:-1])
RULE_DIRECTIONS: Final = ("both", *DIRECTIONS)
RULE_ACTIONS: Final = ACTIONS[DROP:QUEUE_FULL]


@dataclass(frozen=True)
class Way:
    """One direction of the path: first a queue that is emptied at ``rate``, then a line of ``delay_ns`` length.

    Order is kept: jitter never lets a packet overtake another, as in a queue of a real path; a rule may.
    """

    delay_ns: int = 0
    jitter_ns: int = 0  # added: 0 to this, evenly
    rate: int = 0  # bytes/s on the line, headers of the IP packet included; 0 = without limit, no bursts
    queue_bytes: int = 0  # a packet that does not fit any more is lost; 0 = without limit

    def __post_init__(self) -> None:
        if min(self.delay_ns, self.jitter_ns, self.rate, self.queue_bytes) < 0:
            raise UsageError(f"a way of the lab's network cannot have a negative figure: {self}")


@dataclass(frozen=True)
class Rule:
    """Which packets, and what is done with them. The first rule that applies decides; later ones do not see it.

    Which: all conditions hold. ``nth`` and ``attempts`` look at an *attempt*, here a four-tuple with the sequence
    number of its SYN (of the SYN-ACK: the number acknowledged), for other kinds a four-tuple with that number.
    """

    action: str
    kind: str = "any"  # one of RULE_KINDS
    direction: str = "both"
    port: int = 0  # source or destination port; 0 = any
    nth: tuple[int, ...] = ()  # which transmissions of the attempt, from 1; () = all
    attempts: int = 1  # only each k-th attempt this rule meets
    every: int = 1  # only each k-th packet of those left
    count: int = 0  # at most so many; 0 = without limit
    delay_ns: int = 0  # of ``delay`` and ``duplicate``: how much later the packet, or each further copy, arrives
    copies: int = 1  # of ``duplicate``: further copies
    packets: int = 1  # of ``reorder``: held until so many later packets of its direction have passed
    code: int = 1  # of ``unreachable``: ICMP code

    def __post_init__(self) -> None:
        for value, allowed, name in (
            (self.action, RULE_ACTIONS, "action"),
            (self.kind, RULE_KINDS, "kind"),
            (self.direction, RULE_DIRECTIONS, "direction"),
        ):
            if value not in allowed:
                raise UsageError(f"{name} of a lab rule must be one of {', '.join(allowed)}, not {value!r}")
        if min(self.attempts, self.every, self.copies, self.packets, *self.nth) < 1:
            raise UsageError("nth, attempts, every, copies and packets of a lab rule count from 1")
        if min(self.port, self.count, self.delay_ns, self.code) < 0:
            raise UsageError("port, count, delay and code of a lab rule cannot be negative")


@dataclass(frozen=True)
class Network:
    """The whole path, made of plain values: ``dataclasses.asdict`` and ``from_plain`` carry it between processes."""

    a_to_b: Way = field(default_factory=Way)
    b_to_a: Way = field(default_factory=Way)
    rules: tuple[Rule, ...] = ()
    stalls: tuple[
        tuple[int, int], ...
    ] = ()  # (from, to) in ns since the relay began: what is due then comes at its end
    seed: int = 1  # of the jitter
    ethernet: bool = False  # TAP devices and Ethernet frames instead of TUN and bare IP packets

    def __post_init__(self) -> None:
        ends = 0
        for begin, end in self.stalls:
            if not ends <= begin < end:
                raise UsageError("stalls of the lab's network must be in order and have a length")
            ends = end

    @classmethod
    def symmetric(cls, delay_ns: int, *rules: Rule, **others: Any) -> Self:
        """The same delay both ways, and ``rules``."""
        return cls(Way(delay_ns), Way(delay_ns), rules, **others)

    def ways(self) -> tuple[Way, Way]:
        """Both ways, to be indexed by direction."""
        return self.a_to_b, self.b_to_a

    @classmethod
    def from_plain(cls, plain: dict[str, Any]) -> Self:
        """From what ``dataclasses.asdict`` made of one, also after a journey as JSON."""
        return cls(
            a_to_b=Way(**plain["a_to_b"]),
            b_to_a=Way(**plain["b_to_a"]),
            rules=tuple(Rule(**{**rule, "nth": tuple(rule["nth"])}) for rule in plain["rules"]),
            stalls=tuple((begin, end) for begin, end in plain["stalls"]),
            seed=plain["seed"],
            ethernet=plain["ethernet"],
        )
