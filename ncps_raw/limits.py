"""What this machine allows a process: open files. Raised where it may be, and said where it may not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

SPARE_FILES: Final = 32
"""Descriptors a worker needs besides its connections: standard streams, poller, pipes, spool, the imports' own."""


@dataclass(frozen=True)
class FileLimit:
    """Descriptors a process may have now, and what was done about it (None = nothing)."""

    allowed: int | None  # None: this platform has no such limit, or does not tell
    note: str | None


def file_limits() -> tuple[int | None, int | None]:
    """Descriptors of a process: soft and hard limit; None = no limit, or none that this platform tells."""
    try:
        import resource
    except ImportError:
        return None, None
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    infinite = resource.RLIM_INFINITY
    return None if soft == infinite else soft, None if hard == infinite else hard


def files_for(needed: int) -> FileLimit:
    """Make room for ``needed`` descriptors in this process and its children, as far as the hard limit goes."""
    try:
        import resource
    except ImportError:
        return FileLimit(None, None)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return FileLimit(None if soft == resource.RLIM_INFINITY else soft, None)
    want = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    if want > soft:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (want, hard))
        except (OSError, ValueError):
            return FileLimit(soft, None)
        return FileLimit(want, f"open-file limit raised from {soft} to {want} for this run")
    return FileLimit(soft, None)


def most_in_a_process(wanted: int, loops: int, processes: int) -> int:
    """Connections of the fullest process: the loops are shared out whole, the connections among the loops."""
    return -(-loops // processes) * -(-wanted // loops)


def clamp(wanted: int, loops: int, processes: int, allowed: int | None) -> int:
    """How many of ``wanted`` connections ``processes`` may hold with ``allowed`` descriptors each."""
    if allowed is None or most_in_a_process(wanted, loops, processes) + SPARE_FILES <= allowed:
        return wanted
    return min(wanted, max(0, allowed - SPARE_FILES) // -(-loops // processes) * loops)
