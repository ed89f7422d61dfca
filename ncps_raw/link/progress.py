"""Pure: the line that moves on a terminal: how much, how long, how fast, how far, how long still; as pv shows it.

The one idea: the line is a function of its width; what matters less leaves first when there is less room.
"""

from __future__ import annotations

from typing import Final

from ncps_raw.link import books

_LONGEST_LEFT_S: Final = 359_999.0  # an estimate from next to nothing has no end
_LEAST_BAR: Final = 8
CLEAR: Final = "\r\x1b[K"


def clock(seconds: float) -> str:
    """``0:00:05``; hours are not limited."""
    whole = int(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}"


def short_clock(seconds: float) -> str:
    """``0:05``, hours only where there are some."""
    return clock(seconds) if seconds >= 3600 else f"{int(seconds) // 60}:{int(seconds) % 60:02}"


def line(
    width: int, count: int, elapsed_s: float, bytes_per_s: float | None, fraction: float | None, beat: int = 0
) -> str:
    """The line, at most ``width`` characters. ``fraction`` of the whole that is done; None: nobody knows the whole.

    ``beat`` moves the mark of a bar that has no end. Time left is from the average so far.
    """
    amount = f"{books.human(count)}B"
    rate = "unknown" if bytes_per_s is None else f"{books.human(bytes_per_s)}B/s"
    done = None if fraction is None else min(max(fraction, 0.0), 1.0)
    left = None if not done else min(elapsed_s * (1 - done) / done, _LONGEST_LEFT_S)
    percent = "" if done is None else f"{done * 100:3.0f}%"
    for spell, word in ((clock, " left "), (short_clock, " ")):
        head = f"{amount:>7} {spell(elapsed_s)} [{rate:>8}]"
        tail = percent + ("" if left is None else f"{word}{spell(left)}")
        room = width - len(head) - len(tail) - 4
        if room >= _LEAST_BAR or (spell is short_clock and room >= 3):
            return f"{head} {_bar(room, done, beat)} {tail}".rstrip()
    return f"{amount} [{rate}] {percent}".rstrip()[:width]


def _bar(room: int, done: float | None, beat: int) -> str:
    if done is None:
        mark = "<=>"
        span = room - len(mark)
        place = beat % (2 * span) if span else 0
        place = min(place, 2 * span - place)
        return f"[{' ' * place}{mark}{' ' * (span - place)}]"
    full = int(done * room)
    return f"[{'=' * max(full - 1, 0)}{'>' if full else ''}{' ' * (room - full)}]"
