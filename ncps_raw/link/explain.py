"""Pure: four speeds -> which part is the bottleneck, in a sentence. No clock, no socket.

The one idea: each part is measured alone, then all together. The slowest part alone is the bottleneck if all together
is about as fast; if all together is clearly slower than every part, the parts hinder each other on this machine, unless
it is a part that was not measured. A part that was slower alone than the whole cannot be what holds it up: then the
figures do not fit, and that is said.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from ncps_raw.link import books

PARTS: Final = ("source", "network", "sink", "together")
_NEAR: Final = 0.75
"""All together at this part of the slowest alone counts as explained by it."""
_FASTER: Final = 1.25
"""All together at so many times the slowest alone: what was measured alone is not what the whole has met."""
_AT_LIMIT: Final = 0.95
_BUSY: Final = 0.85


@dataclass(frozen=True)
class Speed:
    """One part alone. ``bytes_per_s`` None: ``why`` says why it is not known, or that it has no limit."""

    bytes_per_s: float | None
    why: str = ""
    cpu: float | None = None  # share of one core that this end used meanwhile
    unlimited: bool = False


@dataclass(frozen=True)
class Explanation:
    """The four figures and what they mean."""

    source: Speed
    network: Speed
    sink: Speed
    together: Speed
    receiver_limited: float | None = None  # share of the transfer in which the peer's window was full
    busy: float | None = None  # share in which there was anything to send
    limit: int | None = None  # bytes a second that --limit allows

    def parts(self) -> list[tuple[str, Speed]]:
        """(name, speed) in the order of PARTS."""
        return [(name, getattr(self, name)) for name in PARTS]


def sentence(explanation: Explanation) -> str:
    """What limits the transfer."""
    together = explanation.together.bytes_per_s
    if together is None:
        return f"Nothing can be said about what limits it: {explanation.together.why}."
    alone = {
        name: speed.bytes_per_s
        for name, speed in explanation.parts()[:3]
        if speed.bytes_per_s is not None and not speed.unlimited
    }
    figures = ", ".join(f"{name} {_figure(speed)}" for name, speed in explanation.parts())
    if explanation.limit is not None and together >= _AT_LIMIT * explanation.limit:
        return f"The limit is the bottleneck, {_rate(explanation.limit)} as asked for with --limit: {figures}."
    if "network" not in alone:
        return f"{_by_the_kernel(explanation, alone, together)}: {figures}."
    slowest = min(alone, key=lambda name: alone[name])
    if together < _NEAR * alone[slowest]:
        unknown = [
            name for name in ("source", "sink") if name not in alone and not getattr(explanation, name).unlimited
        ]
        if unknown:
            return (
                "No part can be named: all together is slower than each part that was measured, so the parts hinder "
                f"each other on this machine, or it is the {' or the '.join(unknown)}, which was not measured: "
                f"{figures}."
            )
        return (
            f"The machine is the bottleneck: all together is slower than each part alone, "
            f"so the parts hinder each other: {figures}."
        )
    if together > _FASTER * alone[slowest]:
        return (
            f"No part can be named: all together was faster than the {slowest} alone, so one of the two met a better "
            f"moment (a cache, other work on the machine); try again with more data: {figures}."
        )
    cpu = explanation.network.cpu
    if slowest == "network" and cpu is not None and cpu >= _BUSY:
        return f"The machine is the bottleneck: it was busy with the network alone ({cpu:.0%} of a core): {figures}."
    where = {"source": "The source", "network": "The network", "sink": "The sink"}[slowest]
    return f"{where} is the bottleneck: {figures}."


def _by_the_kernel(explanation: Explanation, alone: Mapping[str, float], together: float) -> str:
    """Without a measurement of the network alone: what was measured, and what the kernel waited for."""
    for name, rate in sorted(alone.items(), key=lambda item: item[1]):
        if _NEAR * rate <= together <= _FASTER * rate:
            return f"The {name} is the bottleneck, as fast alone as with all together"
    if explanation.busy is not None and explanation.busy < 0.5:
        return f"The source is the bottleneck: nothing waited to be sent for {1 - explanation.busy:.0%} of the time"
    if explanation.receiver_limited is not None and explanation.receiver_limited > 0.5:
        return (
            f"The far end is the bottleneck: its window was full for {explanation.receiver_limited:.0%} of the time "
            "(its sink or its machine)"
        )
    if explanation.busy is not None:
        return "The network is the bottleneck, as far as this end can see: data always waited to be sent"
    return "The bottleneck is the network or the far end: measure them apart with --both and our program there"


def _figure(speed: Speed) -> str:
    if speed.bytes_per_s is None:
        return f"not measured ({speed.why})" if not speed.unlimited else speed.why
    return _rate(speed.bytes_per_s)


def _rate(bytes_per_s: float) -> str:
    return f"{books.human(bytes_per_s)}B/s"


def text(explanation: Explanation) -> list[str]:
    """The figures as lines, the sentence last."""
    lines = [
        f"{name if name == 'together' else name + ' alone':>16}: {_figure(speed)}"
        + (f"  {speed.bytes_per_s * 8 / 1e9:.3g} Gbit/s" if speed.bytes_per_s else "")
        + (f", {speed.cpu:.0%} of a core here" if speed.cpu is not None else "")
        for name, speed in explanation.parts()
    ]
    return [*lines, sentence(explanation)]


def plain(explanation: Explanation) -> dict[str, Any]:
    """The JSON keys."""
    out: dict[str, Any] = {f"{name}_bytes_per_s": speed.bytes_per_s for name, speed in explanation.parts()}
    out |= {f"{name}_note": speed.why for name, speed in explanation.parts() if speed.why}
    out["network_cpu_share"] = explanation.network.cpu
    out["bottleneck"] = sentence(explanation)
    return out
