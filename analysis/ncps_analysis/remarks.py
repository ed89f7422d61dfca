"""Pure: what a report has to say in sentences, besides its figures.

It must not know files or renderers, nor compute a figure of the report: it reads what was counted and puts into words
what a person would miss in a table. The one idea: a **problem** contradicts the figures or takes a part of them away,
so a report with one is not to be believed as it stands; a **note** says how a figure that does stand came about. Each
is one line that names what was seen, what it means and, where there is one, the question to ask next.

Counts and microseconds are written as the text report writes them, 6,396 and not 6396: a reader compares the two.
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Final

from ncps_capture.segments import Books

from ncps_analysis.histogram import Histogram
from ncps_analysis.model import KERNEL
from ncps_analysis.records import Run, ScheduleFacts, WireFacts
from ncps_analysis.tally import Measured, Tally
from ncps_analysis.wording import many

CLOCK_STEP_NS: Final = 100_000
"""A clock that moved more than this between two readings, at most a tenth of a second apart, was not merely slewed."""
STRAY_SHARE: Final = 0.01
"""Of connections whose addresses were translated on the way, so few still find a handshake, by chance."""
NEARER_TIMES: Final = 2
NEARER_US: Final = 1_000
"""A client's kernel that says so much more than the wire had another wire: its own delay is well below that."""
UNKNOWN_SHARE: Final = 0.1
"""Of connections that a lossy capture may leave unknown as a mere note: more can bend every percentile."""
RATE_SHARE: Final = 0.98
"""Of the starts that were due: with fewer begun the rate that was asked for is not what was measured."""
DUPLICATES_SHARE: Final = 0.2
"""More capture duplicates than this share are worth a word (definition D2)."""


# ---- problems ------------------------------------------------------------------------------------------------------


def problems(run: Run, tally: Tally, recorded: Measured, attempted: int) -> list[str]:
    """Figures that contradict each other or lack a part; one line each, [] if there are none.

    ``recorded``: what was counted of the recorded connections, ``tally.recorded``; ``attempted``: how many connections
    left this machine, by the workers' counters.
    """
    out = [f"{fault}: connections it had not handed over are missing from every figure" for fault in run.faults]
    accounted = tally.established + tally.failed + tally.unfinished
    if attempted != accounted:
        gap = attempted - accounted
        out.append(
            f"the books do not balance: attempted {attempted:,} but established {tally.established:,} + failed "
            f"{tally.failed:,} + unfinished {tally.unfinished:,} = {accounted:,}: "
            + (f"attempts without a record: {gap:,}" if gap > 0 else f"records without an attempt: {-gap:,}")
        )
    if recorded.absurd:
        out.append(
            f"{recorded.absurd:,} of {recorded.connections:,} connections were established before they started: the "
            "clock is not to be trusted"
        )
    return out if run.wire is None else [*out, *_of_capture(run, run.wire, tally, recorded)]


def one_direction(wire: WireFacts | None, tally: Tally) -> str | None:
    """The problem of a capture that saw one direction only (definition D8), which is no loss but blindness.

    Where this is not None, nothing is to be taken from the capture. None also where it cannot be told: a process that
    died has left no count of packets, and a target that answered nobody nothing to see.
    """
    if wire is None or wire.died is not None or not tally.established:
        return None
    books = wire.books
    if books.syn and not books.synack and not books.answered:
        seen, missed = many(books.syn, "SYN"), "SYN-ACK"
    elif books.synack and not books.syn and not books.attempts:
        seen, missed = many(books.synack, "SYN-ACK"), "SYN"
    else:
        return None
    return (
        f"captured {seen} on {wire.where} but no {missed}, while connections were established: one direction only? "
        "Nothing is taken from this capture"
    )


def _of_capture(run: Run, wire: WireFacts, tally: Tally, recorded: Measured) -> Iterator[str]:
    for problem in wire.books.problems():
        yield f"the capture's books do not balance: {problem}"
    if wire.died is not None:
        yield f"the capture ended early ({wire.died}): what it did not see is unknown"
    nearer = _nearer(run, wire, recorded)
    if nearer is not None:
        yield nearer
    # One reason is enough: a capture that is blind to a direction also lacks the handshakes.
    missed = one_direction(wire, tally) or _not_found(wire, recorded, tally.alike)
    if missed is None:
        missed = _much_unknown(wire, recorded)
    if missed is not None:
        yield missed


def _much_unknown(wire: WireFacts, recorded: Measured) -> str | None:
    """What to say of a capture that lacks packets, and so leaves a large share of the connections unknown."""
    of, unknown = recorded.connections, recorded.connections - recorded.wire_known
    if wire.dropped == 0 or unknown <= UNKNOWN_SHARE * of:
        return None
    return (
        f"the handshakes of {unknown:,} of {of:,} connections are unknown, because packets are missing from the "
        f"capture on {wire.where}: what the wire tells is of the other {recorded.wire_known:,} only"
    )


def _nearer(run: Run, wire: WireFacts, recorded: Measured) -> str | None:
    """What to say of a saved capture that saw much shorter round trips than the client's kernel."""
    seen, told = _median(recorded.path_rtt), _median(recorded.kernel_rtt)
    if wire.file is None or run.role == "server" or seen is None or told is None:
        return None
    if told < NEARER_TIMES * seen or told - seen < NEARER_US:
        return None
    return (
        f"SYN to SYN-ACK took {seen:,} us in {wire.file}, the round trip {told:,} us by the client's kernel (medians): "
        "the capture was made nearer to the server, so its times are a part of what the client waited for"
    )


def _not_found(wire: WireFacts, recorded: Measured, alike: int) -> str | None:
    """What to say of connections without a handshake, by the likeliest reason; a capture that died has said its own."""
    of, matched = recorded.connections, recorded.matched
    if wire.died is not None or matched == of:
        return None
    if _translated(recorded, alike):
        found = f"{matched:,} of {of:,} connections {'was' if matched == 1 else 'were'}" if matched else _none_of(of)
        return (
            f"{found} found in the capture on {wire.where}, but {alike:,} captured attempts share an address "
            "with them and differ in the rest of the four-tuple: NAT between client and capture?"
        )
    if not matched:
        asked = "the interface they use" if wire.file is None else "a capture of this run"
        return f"{_none_of(of)} found among {wire.books.attempts:,} captured attempts on {wire.where}: is it {asked}?"
    if wire.dropped == 0:
        return f"{of - matched:,} of {of:,} connections were not found in the capture although it dropped nothing"
    return None


def _translated(recorded: Measured, alike: int) -> bool:
    """Whether almost nothing matches, while there are attempts enough that could be ours under other names."""
    return recorded.matched <= STRAY_SHARE * recorded.connections and alike >= recorded.connections / 2


# ---- notes ---------------------------------------------------------------------------------------------------------


def notes(run: Run, recorded: Measured, rtt_source: str, blind: bool = False) -> list[str]:
    """What a person should know of how the figures came about; one line each, [] if there is nothing.

    ``recorded``: what was counted of the recorded connections; ``rtt_source``: of the report, a source of ``model.py``;
    ``blind``: nothing is taken from the capture (``one_direction``), so no word is said of its handshakes.
    """
    out = []
    if not run.recorded_ns:
        out.append("the run ended within the warm-up: nothing was recorded")
    if rtt_source == KERNEL and recorded.kernel_replaced:
        out.append(
            f"{recorded.kernel_replaced:,} of {recorded.connections:,} connections had repeated SYNs, which the kernel "
            "cannot time: the application's connect time stands in for their SYN-RTT"
        )
    limited = None if run.schedule is None else limited_by_generator(run.schedule)
    if limited is not None:
        out.append(limited)
    return out if run.wire is None else [*out, *_how_captured(run, run.wire, Measured() if blind else recorded)]


def limited_by_generator(kept: ScheduleFacts) -> str | None:
    """What to say of a schedule that was not kept; None if at least ``RATE_SHARE`` of what was due was begun."""
    if not kept.due or kept.started >= RATE_SHARE * kept.due:
        return None
    # What was never begun waits for the same as what was begun last.
    held_up = kept.held_up * 2 >= kept.late
    why = (
        "all connections (-N) or connects (-P) that it may have were in use: allow more of them, or, where service "
        "times are short, use more processes or machines"
        if held_up
        else "starts came late, because this machine was too slow: use more processes or machines"
    )
    return (
        f"limited by the generator, not by the target alone: {kept.started:,} of {kept.due:,} connects due at "
        f"{Decimal(f'{kept.per_second:.6g}'):,f} per second were begun, and {why}"
    )


def _how_captured(run: Run, wire: WireFacts, recorded: Measured) -> Iterator[str]:
    if wire.runs_as is not None and wire.runs_as.startswith("uid 0,"):
        yield f"the capture process could not become anybody but root: it ran as {wire.runs_as}"
    step_ns = run.clock.step_ns()
    if step_ns > CLOCK_STEP_NS:
        yield (
            f"CLOCK_REALTIME was stepped by up to {step_ns // 1000:,} us during the run: RTTs of handshakes open "
            "across a step are wrong by as much, and so are the client's own overheads"
        )
    if wire.write_problem is not None:
        yield wire.write_problem
    if recorded.matched and (wire.dropped is None or wire.dropped > 0):
        yield _checked(wire, wire.dropped, recorded.matched, recorded.matched - recorded.wire_known)
    if recorded.disagreeing:
        yield (
            f"kernel and wire count different retransmits on {recorded.disagreeing:,} of {recorded.connections:,} "
            "connections"
        )
    yield from _odd_packets(wire.books)


def _checked(wire: WireFacts, dropped: int | None, found: int, unsure: int) -> str:
    lost = "an unknown number of" if dropped is None else f"{dropped:,}"
    why = f"the capture dropped {lost} packets" if wire.file is None else f"{wire.file} may lack packets"
    kept = (
        f"of the {found:,} found {unsure:,} could not be confirmed and count as unknown"
        if unsure
        else f"of the {found:,} found all were confirmed"
    )
    return f"{why}, so its handshakes were checked against the kernel's retransmits and the connect times: {kept}"


def _odd_packets(books: Books) -> Iterator[str]:
    copies, both = books.syn_duplicate + books.synack_duplicate, books.syn + books.synack
    if copies > DUPLICATES_SHARE * max(both, 1):
        yield f"{copies:,} of {both:,} SYNs and SYN-ACKs are copies made by the capture itself"
    if books.clock_error or books.clock_step:
        yield (
            f"the capture's clock: {books.clock_error:,} negative round trips, {books.clock_step:,} attempts across "
            "a step"
        )


# ---- words ---------------------------------------------------------------------------------------------------------


def _none_of(n: int) -> str:
    return f"none of {n:,} connections was"


def _median(samples: Histogram) -> int | None:
    return samples.percentiles((50,))[0] if samples.n else None
