"""Readiness: epoll, edge-triggered, where it exists; else the platform's best selector, level-triggered.

The one idea: with edges a connection is registered once for its whole life and never modified, which saves a system
call for each. Where only levels exist the engine narrows its interest itself (``edge`` is False there).
"""

from __future__ import annotations

import select
import selectors
from collections.abc import Callable, Sized
from typing import Final, Protocol

IN: Final = 1
OUT: Final = 4
ERR: Final = 8
HUP: Final = 16
RDHUP: Final = 0x2000
ET: Final = 1 << 31
MOST_SELECT: Final = 1024  # descriptors that select(2) can look at
"""The values of epoll; the fall-back translates to them."""


class Poller(Protocol):
    """The part of ``select.epoll`` that the engines use."""

    def register(self, fd: int, eventmask: int) -> None:
        """Watch a descriptor."""

    def modify(self, fd: int, eventmask: int) -> None:
        """Change what is watched."""

    def unregister(self, fd: int) -> None:
        """Stop watching."""

    def poll(self, timeout: float | None = None, maxevents: int = -1) -> list[tuple[int, int]]:
        """Wait at most ``timeout`` seconds; (descriptor, events) pairs."""

    def close(self) -> None:
        """Give the descriptor back."""


class LevelPoller:
    """``selectors.DefaultSelector`` (kqueue on macOS and the BSDs, select on Windows) behind epoll's four verbs."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()

    def register(self, fd: int, eventmask: int) -> None:
        """Watch a descriptor."""
        self._selector.register(fd, _events(eventmask))

    def modify(self, fd: int, eventmask: int) -> None:
        """Change what is watched; 0 = nothing for now."""
        known = fd in self._selector.get_map()
        if not _events(eventmask):
            if known:
                self._selector.unregister(fd)
        elif known:
            self._selector.modify(fd, _events(eventmask))
        else:
            self._selector.register(fd, _events(eventmask))

    def unregister(self, fd: int) -> None:
        """Stop watching: needed before close, because nothing here notices a close."""
        if fd in self._selector.get_map():
            self._selector.unregister(fd)

    def poll(self, timeout: float | None = None, maxevents: int = -1) -> list[tuple[int, int]]:
        """Wait at most ``timeout`` seconds; (descriptor, events) pairs."""
        ready = self._selector.select(timeout)
        out = []
        for key, mask in ready[: maxevents if maxevents > 0 else None]:
            events = (IN if mask & selectors.EVENT_READ else 0) | (OUT if mask & selectors.EVENT_WRITE else 0)
            out.append((key.fd, events))
        return out

    def close(self) -> None:
        """Give the descriptor back."""
        self._selector.close()


def _events(eventmask: int) -> int:
    return (selectors.EVENT_READ if eventmask & IN else 0) | (selectors.EVENT_WRITE if eventmask & OUT else 0)


def make_poller() -> tuple[Poller, bool]:
    """The poller of this platform, and whether it reports edges."""
    if hasattr(select, "epoll"):
        return select.epoll(), True
    return LevelPoller(), False


Poll = Callable[[float, int], list[tuple[int, int]]]
"""Wait at most so many seconds; at most so many (descriptor, events) pairs."""


def precise(poller: Poller) -> Poll:
    """``poll`` to the microsecond: epoll itself rounds its time up to milliseconds, a select on it does not."""
    number = getattr(poller, "fileno", lambda: MOST_SELECT)()
    if number >= MOST_SELECT:
        return poller.poll
    watched = (number,)

    def poll(timeout: float, most: int) -> list[tuple[int, int]]:
        if timeout > 0:
            select.select(watched, (), (), timeout)
        return poller.poll(0, most)

    return poll


def restless(poll: Poll, connections: Sized) -> Poll:
    """``poll`` that does not wait while there are connections."""
    return lambda timeout, most: poll(0 if len(connections) else timeout, most)
