"""Edge: each part alone: what the source gives, what the sink takes, what memory to nowhere makes of the network.

The one idea: a part is measured with the same source and sink that the transfer will use, for a second or two, and
leaves no trace: a file of its own beside the real one, and the page cache told to forget what was read.
"""

from __future__ import annotations

import contextlib
import io
import os
import socket
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from ncps_capture.errors import FileFault

from ncps_raw.link.explain import Speed
from ncps_raw.link.plan import STREAM, LinkPlan
from ncps_raw.link.sinks import Discard
from ncps_raw.link.sources import ROOM, Memory
from ncps_raw.link.transfer import Transfer

EDGE_NS: Final = 1_000_000_000
NETWORK_NS: Final = 2_000_000_000
LEAST_NS: Final = 50_000_000
_MOST: Final = 1 << 30
_FIRST_PART: Final = 8 << 20
_LOOK_S: Final = 0.02


def source_alone(plan: LinkPlan) -> Speed:
    """How fast the plan's source can be read. Raises FileFault for one that cannot be."""
    if plan.endless_source:
        return Speed(None, "no limit: prepared in memory", unlimited=True)
    if plan.source == STREAM:
        return Speed(None, "standard input can be read only once")
    room = bytearray(ROOM)
    count = elapsed = 0
    try:
        with open(plan.source, "rb", buffering=0) as file:  # noqa: PTH123 - a name as typed
            # A small file is read again and again, until the time is long enough to say something.
            while elapsed < LEAST_NS:
                done, took = _read_once(file, room)
                if not done:
                    return Speed(None, "the file is empty" if not count else "the file has become empty")
                count, elapsed = count + done, elapsed + took
    except OSError as error:
        raise FileFault(f"cannot read {plan.source}: {error.strerror}; name another file with --source") from None
    return Speed(count * 1e9 / elapsed)


def _read_once(file: io.FileIO, room: bytearray) -> tuple[int, int]:
    """Bytes read from the beginning for at most EDGE_NS, and how long it took."""
    # Only what is read from the device is a figure of the device: forget what memory still has of the file.
    _forget(file.fileno())
    file.seek(0)
    count, begin = 0, time.monotonic_ns()
    while time.monotonic_ns() - begin < EDGE_NS and (done := file.readinto(room)):
        count += done
    elapsed = time.monotonic_ns() - begin
    _forget(file.fileno())
    return count, elapsed


def _forget(file: int) -> None:
    if hasattr(os, "posix_fadvise"):
        with contextlib.suppress(OSError):
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)


def sink_alone(plan: LinkPlan) -> Speed:
    """How fast the plan's sink takes zeros until they are on the device, as the transfer's clock will count them."""
    if plan.sink is None:
        return Speed(None, "no limit: discarded", unlimited=True)
    sink = Path(plan.sink)
    if plan.sink == STREAM or (sink.exists() and not sink.is_file()):
        what = "standard output" if plan.sink == STREAM else plan.sink
        return Speed(None, f"{what} takes only what is real")
    room = memoryview(bytes(ROOM))
    count, part = 0, _FIRST_PART
    try:
        with tempfile.NamedTemporaryFile(dir=sink.resolve().parent, prefix=".ncps-", buffering=0) as file:
            begin = last = time.monotonic_ns()
            # In parts: nobody knows how long a slow device takes for what memory has taken at once.
            while count < _MOST and last - begin < EDGE_NS:
                wanted = count + part
                while count < wanted:
                    count += file.write(room)
                os.fsync(file.fileno())
                now = time.monotonic_ns()
                part, last = part * 2 if now - last < EDGE_NS // 8 else part, now
    except OSError as error:
        raise FileFault(f"cannot write beside {plan.sink}: {error.strerror}") from None
    return Speed(count * 1e9 / (last - begin))


def edge_alone(plan: LinkPlan) -> Speed:
    """The source of an end that sends, the sink of one that receives."""
    return source_alone(plan) if plan.sends else sink_alone(plan)


def network_alone(socks: Sequence[socket.socket], plan: LinkPlan, *, sends: bool) -> Speed:
    """Memory to nowhere for two seconds over as many connections as the transfer has, seen from this end.

    The connections are closed behind it.
    """
    own = LinkPlan(sends=sends, host=plan.host or "-", copy=plan.copy, duration_ns=NETWORK_NS if sends else None)
    changed = threading.Event()
    transfer = Transfer(
        own,
        "",
        changed.set,
        make_source=lambda: Memory(own.source, own.copy),
        make_sink=lambda: Discard(own.copy),
        streams=len(socks),
    )
    cpu, begin = time.process_time(), time.monotonic_ns()
    for sock in socks:
        transfer.add(sock)
    while not transfer.finished and time.monotonic_ns() - begin < 5 * NETWORK_NS:
        changed.wait(_LOOK_S)
        changed.clear()
        transfer.tend(time.monotonic_ns())
    share = (time.process_time() - cpu) * 1e9 / max(time.monotonic_ns() - begin, 1)
    transfer.close()
    figures = transfer.result[0 if sends else 1]
    rate = None if figures is None else figures.bytes_per_s
    return Speed(rate, "nothing came through" if figures is None else figures.no_rate, share)
