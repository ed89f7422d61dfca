"""What every comparison needs: settings, alternating rounds, medians and a table of ratios."""

import os
import platform
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass

could_not_run: list[str] = []
"""Peers that are not here; shown at the end."""


@dataclass(frozen=True)
class Settings:
    rounds: int
    seconds: int
    suites: tuple[str, ...]

    @classmethod
    def from_arguments(cls, argv: list[str], known: list[str]) -> "Settings":
        rounds, seconds, suites = 5, 4, []
        words = iter(argv)
        for word in words:
            if word == "--rounds":
                rounds = int(next(words))
            elif word == "--seconds":
                seconds = int(next(words))
            elif word in known:
                suites.append(word)
            else:
                raise SystemExit(f"bench: unknown argument {word!r}; there are --rounds, --seconds, {', '.join(known)}")
        return cls(rounds, seconds, tuple(suites))


def contest(
    contenders: Mapping[str, Callable[[], float]], rounds: int, base: str, unit: str, title: str
) -> dict[str, float]:
    """Run all contenders in turn, ``rounds`` times; print medians, spreads and ratios to ``base``; the ratios."""
    figures: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, measure in contenders.items():
            figures[name].append(measure())
    reference = statistics.median(figures[base])
    width = max(map(len, contenders))
    print(f"{title} ({host()})")
    print(f"{'':{width}}  {'median ' + unit:>16}  {'lowest':>10}  {'highest':>10}  {'ratio':>6}")
    ratios = {}
    for name, values in figures.items():
        median = statistics.median(values)
        ratios[name] = median / reference if reference else float("nan")
        print(f"{name:{width}}  {median:16,.0f}  {min(values):10,.0f}  {max(values):10,.0f}  {ratios[name]:6.3f}")
    print(flush=True)
    return ratios


def host() -> str:
    """The machine in a few words, for every table."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{platform.system()} {platform.release().split('-')[0]}, {cores} cores, Python {platform.python_version()}"
