"""Pure: what was read of a capture and what was counted -> the CapturedReport.

It must not know files, nor count anything itself. The one idea is that of ``assemble.py``: every figure gets its source
or is declared unknown, every sum that must come out is checked, and what a person would miss in a table is said.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from ncps_capture.live import link_type_name
from ncps_capture.rows import pick
from ncps_capture.segments import Books, Handshakes

from ncps_analysis.attempt_tally import AttemptTally, count_attempts, mark_censored
from ncps_analysis.breakdown import Breakdown, Outstanding
from ncps_analysis.captured import CLIENT_TO_SERVER, SERVER_TO_CLIENT, CapturedReport, CaptureFacts, LinkTypeCount
from ncps_analysis.figures import distribution, identities, milestones, with_attempts
from ncps_analysis.filters import Selection, choose
from ncps_analysis.halves import vantage
from ncps_analysis.wording import many

DUPLICATES_SHARE: Final = 0.2


def summarise_capture(
    parts: Iterable[Handshakes],
    facts: CaptureFacts,
    wanted: Selection,
    *,
    version: str,
    command_line: str,
    by: str | None = None,
    top: int = 0,
) -> CapturedReport:
    """The report of merged rows that come part by part, all of a four-tuple in one part.

    ``by``: a kind of ``breakdown.KINDS``; ``top``: how many of the most repeated and of the slowest.
    """
    first, last = facts.first_t_ns or 0, facts.last_t_ns or 0
    total = AttemptTally()
    breakdown = Breakdown(by) if by is not None else None
    outstanding = Outstanding(top)
    for rows in parts:
        mark_censored(rows, last)
        chosen = choose(rows, wanted, first) if wanted else None
        total += count_attempts(rows, chosen, first)
        some = rows if chosen is None else pick(rows, chosen)
        outstanding.add(some)
        if breakdown is not None:
            breakdown.add(some)
    return captured_report(
        facts,
        total,
        wanted,
        version=version,
        command_line=command_line,
        breakdown=breakdown,
        outstanding=outstanding,
    )


def captured_report(
    facts: CaptureFacts,
    tally: AttemptTally,
    wanted: Selection,
    *,
    version: str,
    command_line: str,
    breakdown: Breakdown | None = None,
    outstanding: Outstanding | None = None,
) -> CapturedReport:
    """The report of a capture from the counts of all its parts."""
    books, chosen = with_attempts(facts.books, tally.captured), tally.chosen
    direction = one_direction(facts, books)
    timeout, after_synack, after_rst, after_challenge = tally.causes
    unsupported = tuple(
        LinkTypeCount(number, link_type_name(number), n) for number, n in sorted(books.unsupported_linktypes.items())
    )
    span = None if facts.first_t_ns is None or facts.last_t_ns is None else facts.last_t_ns - facts.first_t_ns
    told = [source.dropped for source in facts.sources]
    syn_rtt, second = distribution(tally.syn_rtt), distribution(tally.synack_to_ack)
    return CapturedReport(
        role="capture",
        version=version,
        command_line=command_line,
        sources=tuple(facts.sources),
        level=facts.level,
        filter=wanted.text if wanted else None,
        filter_text=facts.filter_text,
        interrupted=facts.interrupted,
        start_t_ns=facts.first_t_ns,
        end_t_ns=facts.last_t_ns,
        duration_s=None if span is None else max(span, 0) / 1e9,
        packets=books.packets,
        tcp_packets=books.tcp_packets,
        syn=books.syn,
        synack=books.synack,
        synack_only=books.synack_only,
        malformed=books.malformed,
        fragments=books.fragments,
        too_short=books.too_short,
        duplicates=books.syn_duplicate + books.synack_duplicate,
        dup_syn=books.syn_duplicate,
        dup_synack=books.synack_duplicate,
        synack_bad_ack=books.synack_bad_ack,
        rst_ignored=books.rst_ignored,
        clock_error=books.clock_error,
        clock_step=books.clock_step,
        unsupported_linktype=books.unsupported_linktype,
        unsupported_linktypes=unsupported,
        damaged=sum(source.damaged for source in facts.sources),
        dropped_by_capture=None if None in told or not told else sum(n for n in told if n is not None),
        attempts_captured=books.attempts,
        attempts=chosen.attempts,
        answered=chosen.answered,
        refused=chosen.refused,
        icmp_refused=chosen.icmp_refused,
        unanswered=chosen.unanswered,
        simultaneous=chosen.simultaneous,
        censored=tally.censored,
        answered_share=None if direction is not None or not chosen.attempts else chosen.answered / chosen.attempts,
        one_direction=direction,
        syn_repeats=sum(tally.causes),
        syn_retrans=timeout + after_synack,
        retrans_timeout=timeout,
        retrans_after_synack=after_synack,
        retrans_after_rst=after_rst if after_rst or facts.level != "base" else None,
        retrans_after_challenge=after_challenge if after_challenge or facts.level == "acks" else None,
        synack_retrans=tally.synack_retrans,
        synack_isn_changed=tally.synack_isn_changed,
        retrans_connections=tally.retrans_connections,
        retrans_share_percent=100 * tally.retrans_connections / chosen.answered if chosen.answered else None,
        retrans_per_connection=tally.answered_retrans / tally.retrans_connections
        if tally.retrans_connections
        else None,
        syn_rtt_us=syn_rtt,
        path_rtt_us=distribution(tally.path_rtt),
        synack_to_ack_us=second,
        refuse_latency_us=distribution(tally.refuse_latency),
        rtt_exact=tally.exact,
        rtt_ambiguous=tally.ambiguous,
        vantage_suggested=vantage(syn_rtt.p50, second.p50),
        established_ms=tuple((m.n, m.t_ms) for m in milestones(tally.established_ms)),
        by=breakdown.kind if breakdown else None,
        groups=breakdown.groups() if breakdown else (),
        top_repeats=outstanding.repeaters() if outstanding else (),
        slowest=outstanding.slowest(tuple(source.name for source in facts.sources)) if outstanding else (),
        identities=identities(books) if not wanted else (*identities(books), *_of_filter(chosen)),
        problems=tuple(_problems(facts, books, direction)),
        warnings=tuple(facts.warnings),
        notes=tuple(_notes(facts, books)),
    )


def one_direction(facts: CaptureFacts, books: Books) -> str | None:
    """The only direction that was captured, where the packets prove it; None where both, or where it cannot be told."""
    if books.synack and not books.syn:
        return SERVER_TO_CLIENT
    if books.syn and not books.synack and facts.one_direction is not None:
        return facts.one_direction
    return None


def _of_filter(chosen: Books) -> Iterator[str]:
    found = identities(Books(**{name: getattr(chosen, name) for name in _STATES}))
    for identity in found or ("attempts 0 = answered 0",):
        yield identity.replace("attempts", "attempts of the filter", 1)


_STATES: Final = ("attempts", "answered", "refused", "icmp_refused", "unanswered", "simultaneous")


def _problems(facts: CaptureFacts, books: Books, direction: str | None) -> Iterator[str]:
    for problem in books.problems():
        yield f"the books do not balance: {problem}"
    if facts.died is not None:
        yield f"the capture ended early ({facts.died}): what it did not see is unknown"
    if direction == CLIENT_TO_SERVER:
        yield (
            f"one direction only: {many(books.syn, 'SYN')} and no SYN-ACK, while clients went on as if answered: "
            "whether attempts were answered, and how fast, is unknown"
        )
    elif direction == SERVER_TO_CLIENT:
        yield (
            f"one direction only: {many(books.synack, 'SYN-ACK')} and no SYN: attempts, repeats and round trips are "
            "unknown"
        )
    copies, both = books.syn_duplicate + books.synack_duplicate, books.syn + books.synack
    if copies > DUPLICATES_SHARE * max(both, 1):
        are = "is a copy" if copies == 1 else "are copies"
        why = "a mirror port that copies both ways in and out" + (
            ", or the same packets in two files" if len(facts.sources) > 1 else ""
        )
        yield (
            f"{copies:,} of {both:,} SYNs and SYN-ACKs ({100 * copies // both} %) {are} made by the capture ({why}?): "
            "counted apart, and in no figure of repeats"
        )


def _notes(facts: CaptureFacts, books: Books) -> Iterator[str]:
    if books.syn and not books.synack and not books.refused and facts.one_direction is None:
        yield "no SYN-ACK in the capture: nobody answered, or it holds one direction only"
    if facts.tunnels is not None:
        yield "the VLAN is a part of what makes an attempt: answers in another VLAN than their SYN are not found"
    if books.unsupported_linktype:
        names = ", ".join(
            f"{link_type_name(number)} ({number})" if link_type_name(number) != str(number) else str(number)
            for number in sorted(books.unsupported_linktypes)
        )
        yield (
            f"{books.packets - books.unsupported_linktype:,} of {books.packets:,} packets decoded: link type {names} "
            "is not supported"
        )
    if books.clock_error or books.clock_step:
        found = []
        if books.clock_error:
            found.append(many(books.clock_error, "negative round trip"))
        if books.clock_step:
            found.append(f"{many(books.clock_step, 'attempt')} across a step")
        yield (
            f"the capture's clock: {', '.join(found)}; no round trip is known of "
            + ("it" if books.clock_error + books.clock_step == 1 else "these")
        )
    if facts.live and facts.runs_as is not None and facts.runs_as.startswith("uid 0,"):
        yield f"the capture process could not become anybody but root: it ran as {facts.runs_as}"
