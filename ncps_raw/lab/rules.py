"""Pure: what becomes of each packet. Packets and times in, decisions out; no clock, no device, no chance.

The one idea: the decider is a machine whose output follows from its network and the packets it was given, in their
order. The same packets at the same times give the same decisions on every machine, so a test may name the count of
lost SYNs beforehand. It must not know who moves the packets.
"""

from __future__ import annotations

import random
from typing import NamedTuple

from ncps_raw.lab.network import (
    DELAY,
    DIRECTIONS,
    DROP,
    DUPLICATE,
    PASS,
    QUEUE_FULL,
    REORDER,
    RESET,
    RULE_ACTIONS,
    UNREACHABLE,
    Network,
    Rule,
    Way,
)
from ncps_raw.lab.packets import KINDS, SYN_KIND, SYNACK_KIND, Header, read_header, reset_for, unreachable_for

NO_RULE = -1
Attempt = tuple[int, bytes, bytes, int, int, int]


class Departure(NamedTuple):
    """A packet to be written: when, towards which side, and what it is."""

    due_ns: int
    direction: int
    packet: bytes
    header: Header
    number: int  # of the packet read that it goes back to, from 0
    copy: int  # 0 for the packet itself, 1, 2 ... for further copies
    answer: bool = False  # made by the path in place of the packet


class Decision(NamedTuple):
    """What was decided about one packet read."""

    header: Header
    number: int
    action: int  # index into ACTIONS
    rule: int  # index of the rule that decided, NO_RULE if none
    nth: int  # which transmission of its attempt, from 1; 0 where that is not looked at
    departures: tuple[Departure, ...]


class Decider:
    """The path's memory: queues, rules' counters, transmissions seen. Stalls' times count from ``start_ns``."""

    def __init__(self, network: Network, start_ns: int = 0) -> None:
        self._ethernet = network.ethernet
        self._stalls = tuple((start_ns + begin, start_ns + end) for begin, end in network.stalls)
        self._lines = tuple(_Line(way, network.seed * 2 + number) for number, way in enumerate(network.ways()))
        self._filters = tuple(_Filter(rule) for rule in network.rules)
        # Transmissions of other kinds are counted only if a rule asks: the memory for it grows with each packet.
        asked = any(rule.nth or rule.attempts > 1 for rule in network.rules)
        self._counted = range(len(KINDS)) if asked else (SYN_KIND, SYNACK_KIND)
        self._seen: dict[Attempt, int] = {}
        self._held: tuple[list[_Held], list[_Held]] = ([], [])
        self._number = 0

    @property
    def held(self) -> int:
        """Packets held back by ``reorder`` that nothing has passed yet."""
        return sum(len(held) for held in self._held)

    def decide(self, direction: int, packet: bytes, now_ns: int) -> Decision:
        """Say what becomes of ``packet``, read at ``now_ns`` on its way in ``direction``. Times must not run back."""
        head = read_header(packet, self._ethernet)
        number, self._number = self._number, self._number + 1
        attempt = attempt_of(head)
        nth = 0
        if head.kind in self._counted:
            nth = self._seen[attempt] = self._seen.get(attempt, 0) + 1
        index, rule = self._rule(direction, head, attempt, nth)
        action = PASS if rule is None else RULE_ACTIONS.index(rule.action) + DROP
        departures: list[Departure] = []
        if action != DROP:
            due_ns = self._lines[direction].due(len(packet), now_ns)
            if due_ns is None:
                action = QUEUE_FULL
            elif rule is None:
                departures = [Departure(due_ns, direction, packet, head, number, 0)]
                departures += self._pass_by(direction, due_ns)
            else:
                first = Departure(due_ns, direction, packet, head, number, 0)
                departures = self._apply(rule, action, first)
        if self._stalls:
            departures = [entry._replace(due_ns=self._after_stall(entry.due_ns)) for entry in departures]
        return Decision(head, number, action, index, nth, tuple(departures))

    def _rule(self, direction: int, head: Header, attempt: Attempt, nth: int) -> tuple[int, Rule | None]:
        for index, one in enumerate(self._filters):
            if one.applies(direction, head, attempt, nth):
                return index, one.rule
        return NO_RULE, None

    def _apply(self, rule: Rule, action: int, first: Departure) -> list[Departure]:
        direction, due_ns = first.direction, first.due_ns
        if action == REORDER:
            self._held[direction].append(_Held(rule.packets, first))
            return []
        if action in (RESET, UNREACHABLE):
            return self._answer(rule, action, first)
        if action == DELAY:
            return [first._replace(due_ns=due_ns + rule.delay_ns), *self._pass_by(direction, due_ns)]
        assert action == DUPLICATE
        copies = [first._replace(due_ns=due_ns + copy * rule.delay_ns, copy=copy) for copy in range(rule.copies + 1)]
        return copies + self._pass_by(direction, due_ns)

    def _answer(self, rule: Rule, action: int, first: Departure) -> list[Departure]:
        """The far end's answer: it leaves when the packet would have arrived, and takes the way back."""
        if action == RESET:
            answer = reset_for(first.packet, self._ethernet)
        else:
            answer = unreachable_for(first.packet, rule.code, self._ethernet)
        if answer is None:
            return []
        back = 1 - first.direction
        due_ns = first.due_ns + self._lines[back].way.delay_ns
        return [Departure(due_ns, back, answer, read_header(answer, self._ethernet), first.number, 0, True)]

    def _pass_by(self, direction: int, due_ns: int) -> list[Departure]:
        """Packets held in ``direction`` that enough others have passed now: they follow right behind the last."""
        held = self._held[direction]
        if not held:
            return []
        for entry in held:
            entry.left -= 1
        free = [
            entry.departure._replace(due_ns=max(due_ns, entry.departure.due_ns)) for entry in held if not entry.left
        ]
        held[:] = [entry for entry in held if entry.left]
        return free

    def _after_stall(self, due_ns: int) -> int:
        for begin, end in self._stalls:
            if begin <= due_ns < end:
                return end
        return due_ns


def attempt_of(head: Header) -> Attempt:
    """What a packet is a transmission of: kind, four-tuple and sequence number (SYN-ACK: the number acknowledged)."""
    number = head.ack if head.kind == SYNACK_KIND else head.seq
    return head.kind, head.src, head.dst, head.sport, head.dport, number


class _Held:
    def __init__(self, left: int, departure: Departure) -> None:
        self.left = left
        self.departure = departure


class _Filter:
    """A rule and how often it has met what it looks for."""

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self._direction = DIRECTIONS.index(rule.direction) if rule.direction in DIRECTIONS else None
        self._kind = KINDS.index(rule.kind) if rule.kind in KINDS else None
        self._attempts: dict[Attempt, bool] = {}
        self._matched = 0
        self._applied = 0

    def applies(self, direction: int, head: Header, attempt: Attempt, nth: int) -> bool:
        rule = self.rule
        if (
            self._direction not in (None, direction)
            or self._kind not in (None, head.kind)
            or (rule.port and rule.port not in (head.sport, head.dport))
            or (rule.count and self._applied >= rule.count)
        ):
            return False
        if rule.attempts > 1 and not self._attempts.setdefault(attempt, (len(self._attempts) + 1) % rule.attempts == 0):
            return False
        if rule.nth and nth not in rule.nth:
            return False
        self._matched += 1
        if self._matched % rule.every:
            return False
        self._applied += 1
        return True


class _Line:
    """One direction's queue and line."""

    def __init__(self, way: Way, seed: int) -> None:
        self.way = way
        self._random = random.Random(seed)
        self._free_ns = 0  # when the last byte queued has been sent
        self._last_due_ns = 0

    def due(self, size: int, now_ns: int) -> int | None:
        """When a packet of ``size`` bytes that arrives now comes out at the other end; None if the queue is full."""
        way = self.way
        sent_ns = now_ns
        if way.rate:
            begin_ns = max(now_ns, self._free_ns)
            waiting = (begin_ns - now_ns) * way.rate // 1_000_000_000
            if way.queue_bytes and waiting + size > way.queue_bytes:
                return None
            sent_ns = self._free_ns = begin_ns + size * 1_000_000_000 // way.rate
        due_ns = sent_ns + way.delay_ns
        if way.jitter_ns:
            due_ns += self._random.randint(0, way.jitter_ns)
            self._last_due_ns = due_ns = max(due_ns, self._last_due_ns)
        return due_ns
