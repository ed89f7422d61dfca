"""Captures that are cut and changed at will, and what must hold of each: ``make fuzz``, and a bounded run in the tests.

    python tests/capture/fuzzing.py [--cases N] [--stride N] [--seed N] [--folder FOLDER]

First all captures at hand (fixtures/, and the folder of NCPS_TRUTH_PCAPS) are cut: small ones at every byte, or every
``--stride`` bytes, large ones around each record. Then they are changed at random, ``--cases`` times or until
interrupted. What fails is saved in ``--folder``, and told with what went wrong.

The one idea: a plain walk of twenty lines says how many records a file has and whether it ends where a record does, so
that what the reader makes of damage is judged by something that is not the reader.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import os
import random
import resource
import signal
import struct
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from ncps_capture.capfile import open_capture
from ncps_capture.compressed import kind_of
from ncps_capture.decode import AckWatch, decode
from ncps_capture.errors import FileFault
from ncps_capture.handshake import HandshakeTable, books_of, merge_rows
from ncps_capture.segments import Books

from ncps_raw import cli

FIXTURES = Path(__file__).parents[2] / "fixtures"
SMALL = 2048
MOST_MB = 64
PATIENCE_S = 20
FORMATS = ("text", "json", "ncps", "jsonl", "csv", "connections")


@dataclass
class Outcome:
    """What was made of some bytes."""

    packets: int = 0
    messages: list[str] = field(default_factory=list)
    refused: bool = False  # not a single packet could be read


Chain = Callable[[bytes], Outcome]


class Hung(BaseException):
    """Too long for what it is; nothing that is tried may catch it."""


def through_the_rooms(content: bytes) -> Outcome:
    """Reader, decoder with tunnels and ACKs, table, rows; their books must balance."""
    try:
        opened = open_capture(io.BytesIO(content))
    except FileFault as fault:
        return Outcome(messages=[str(fault)], refused=True)
    table, watch, books, parts, end_ns = HandshakeTable(third_ack=True), AckWatch(), Books(), [], 0
    for batch in opened.batches():
        segments, seen = decode(batch, tunnels=True, acks=watch)
        books += seen
        table.add(segments)
        end_ns = int(batch.t_ns[-1])
        parts.append(table.settle(end_ns))
    books += books_of(merge_rows(np.concatenate([*parts, table.finish(end_ns)])))
    assert books.problems() == [], books.problems()
    assert books.packets + opened.untimed + opened.unclaimed == opened.packets
    if opened.damaged:
        assert any(opened.damaged in warning for warning in opened.warnings)
    return Outcome(opened.packets, opened.warnings)


def through_the_command(path: Path, format_: str) -> None:
    """``ncps analyze`` in this process: it reports, or says in one line why not."""
    options = ["--connections"] if format_ == "connections" else ["--format", format_]
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = cli.main(["analyze", str(path), *options])
    assert code in (0, 3), f"exit code {code}: {err.getvalue()}"
    lines = err.getvalue().splitlines()
    assert all(line.startswith("ncps: ") for line in lines), lines
    if code:
        assert len(lines) == 1, lines
    elif format_ == "json":
        report = json.loads(out.getvalue())
        assert all("!=" not in identity for identity in report["identities"]), report["identities"]


def walked(content: bytes) -> tuple[int, bool]:
    """Records of a pcap or pcapng file, and whether it ends behind one of them. Not that of the reader."""
    orders = {b"\xa1\xb2": ">", b"\xd4\xc3": "<", b"\x4d\x3c": "<", b"\x34\xcd": "<"}
    if content[:4] == b"\x0a\x0d\x0d\x0a":
        return _walked_blocks(content)
    order = orders.get(content[:2], "<")
    (snaplen,) = struct.unpack_from(f"{order}I", content, 16)
    head = 24 if content[:4] in (b"\xa1\xb2\xcd\x34", b"\x34\xcd\xb2\xa1") else 16
    at, records = 24, 0
    while at + head <= len(content):
        (caplen,) = struct.unpack_from(f"{order}I", content, at + 8)
        if caplen > 262144 + min(snaplen, 16 << 20) or at + head + caplen > len(content):
            break
        at, records = at + head + caplen, records + 1
    return records, at == len(content)


def _walked_blocks(content: bytes) -> tuple[int, bool]:
    least = {0x0A0D0D0A: 28, 1: 20, 2: 32, 3: 16, 5: 24, 6: 32}
    at, records, order = 0, 0, "<"
    while at + 12 <= len(content):
        if content[at : at + 4] == b"\x0a\x0d\x0d\x0a":
            magic = content[at + 8 : at + 12]
            if magic not in (b"\x1a\x2b\x3c\x4d", b"\x4d\x3c\x2b\x1a"):
                break
            order = ">" if magic[0] == 0x1A else "<"
        kind, size = struct.unpack_from(f"{order}II", content, at)
        if size < least.get(kind, 12) or size % 4 or at + size > len(content):
            break
        if struct.unpack_from(f"{order}I", content, at + size - 4) != (size,):
            break
        if kind in (2, 6) and struct.unpack_from(f"{order}I", content, at + 20)[0] > size - 32:
            break
        at, records = at + size, records + (kind in (2, 3, 6, 9, 0xBAD, 0x40000BAD))
    return records, at == len(content)


def judged(content: bytes, chain: Chain = through_the_rooms) -> str | None:
    """What is wrong with what the chain makes of these bytes, or None."""
    try:
        with _patience():
            outcome = chain(content)
    except (Exception, Hung):
        return traceback.format_exc()
    if any("\n" in message for message in outcome.messages):
        return f"a message of several lines: {outcome.messages}"
    if outcome.refused:
        return None if len(outcome.messages) == 1 else "refused without a message"
    if kind_of(content[:24]) is not None:
        return None
    records, whole = walked(content)
    if outcome.packets != records:
        return f"{outcome.packets} packets read, and there are {records}"
    return None if whole or outcome.messages else f"{records} records were read, the rest was lost without a message"


@contextlib.contextmanager
def _patience() -> Iterator[None]:
    def over(*_: object) -> None:
        raise Hung(f"nothing after {PATIENCE_S} s")

    before = signal.signal(signal.SIGALRM, over)
    signal.alarm(PATIENCE_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


# ---- what is tried ---------------------------------------------------------------------------------------------


def corpus() -> dict[str, bytes]:
    """Every capture at hand, by name."""
    folders = [FIXTURES, Path(os.environ.get("NCPS_TRUTH_PCAPS", FIXTURES))]
    paths = {path.name: path for folder in folders for path in sorted(folder.iterdir()) if ".pcap" in path.name}
    return {name: path.read_bytes() for name, path in paths.items()}


def cuts(content: bytes, stride: int) -> Iterator[int]:
    """Lengths to cut these bytes to: every ``stride``-th of a small file, of a large one around each record's edges."""
    if len(content) < SMALL:
        yield from range(stride // 2, len(content), stride)
        return
    if kind_of(content) is not None:
        yield from range(1, len(content), 97 * stride)
        return
    edges = [n for n in _edges(content) if n % stride == 0] if stride > 1 else list(_edges(content))
    yield from sorted(
        {edge + near for edge in edges for near in (-1, 0, 1, 15, 16, 17) if 0 <= edge + near <= len(content)}
    )


def _edges(content: bytes) -> Iterator[int]:
    """Where a record ends, at most some two hundred of them."""
    ends = [24]
    if content[:4] == b"\x0a\x0d\x0d\x0a":
        order = ">" if content[8] == 0x1A else "<"
        at = 0
        while at + 12 <= len(content):
            at += struct.unpack_from(f"{order}I", content, at + 4)[0]
            ends.append(at)
    else:
        order = ">" if content[0] == 0xA1 else "<"
        at = 24
        while at + 16 <= len(content):
            at += 16 + struct.unpack_from(f"{order}I", content, at + 8)[0]
            ends.append(at)
    yield from ends[:: len(ends) // 200 + 1]


ODD_WORDS = [0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0xFFFF, 0x01000000, 0x0A0D0D0A, 12, 32, 262144 + 65535]


def mutated(chance: random.Random, contents: list[bytes]) -> bytes:
    """One of ``contents`` with a few faults, of the kinds that disks, networks and people make."""
    content = bytearray(chance.choice(contents))
    content = content[:40_000]  # where a large one goes on like that
    for _ in range(chance.choice((1, 1, 2, 3, 8))):
        at = chance.randrange(len(content) + 1)
        length = chance.choice((1, 2, 4, 16, chance.randrange(400)))
        kind = chance.randrange(8)
        if kind == 0 and at < len(content):
            content[at] ^= 1 << chance.randrange(8)
        elif kind == 1:
            content[at : at + length] = chance.randbytes(len(content[at : at + length]))
        elif kind == 2:
            word = chance.choice(ODD_WORDS)
            content[at & ~3 : (at & ~3) + 4] = word.to_bytes(4, chance.choice(("little", "big")))
        elif kind == 3:
            del content[at : at + length]
        elif kind == 4:
            content[at:at] = chance.randbytes(length)
        elif kind == 5:
            content[at:at] = content[at : at + length] * chance.choice((1, 1, 30))
        elif kind == 6:
            del content[at:]
        else:
            other = chance.choice(contents)
            start = chance.randrange(len(other))
            content[at:] = other[start : start + 20_000]
    return bytes(content)


# ---- the run ---------------------------------------------------------------------------------------------------


@dataclass
class Fuzz:
    """A run: what it has tried, and what failed."""

    folder: Path
    chain: Chain = through_the_rooms
    command: Callable[[Path, str], None] = through_the_command
    tried: int = 0
    faults: list[str] = field(default_factory=list)
    _needed: float = 0.0  # MB, by honest files

    def warm_up(self, contents: dict[str, bytes]) -> None:
        """Captures as they are: what they need is the honest need."""
        for name, content in contents.items():
            self.judge(f"{name} as it is", content, "text")
        self._needed = peak_mb()

    def judge(self, what: str, content: bytes, format_: str | None = None) -> None:
        """Try these bytes; ``format_``: by the command too."""
        self.tried += 1
        wrong = judged(content, self.chain)
        if wrong is None and format_ is not None:
            wrong = self._commanded(content, format_)
        if wrong is None and self._needed and (more := peak_mb() - self._needed) > MOST_MB:
            wrong = f"{more:.0f} MB more than the captures need as they are"
            self._needed += more
        if wrong is not None:
            self.folder.mkdir(parents=True, exist_ok=True)
            path = self.folder / f"fault-{len(self.faults)}.pcap"
            path.write_bytes(content)
            self.faults.append(f"{what}, saved as {path}:\n{wrong}")
            print(self.faults[-1], flush=True)

    def _commanded(self, content: bytes, format_: str) -> str | None:
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / "tried.pcap"
        path.write_bytes(content)
        try:
            with _patience():
                self.command(path, format_)
        except (Exception, Hung):
            return f"ncps analyze, {format_}: {traceback.format_exc()}"
        finally:
            path.unlink()
        return None


def peak_mb() -> float:
    """Most memory this process ever held."""
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most / (1 << 20) if sys.platform == "darwin" else most / 1024


def run(fuzz: Fuzz, seed: int, stride: int, cases: int | None) -> None:
    """All cuts, then ``cases`` changes; None = until interrupted. Case n of a seed is always the same."""
    contents = corpus()
    fuzz.warm_up(contents)
    number = 0
    for name, content in contents.items():
        for size in cuts(content, stride):
            number += 1
            fuzz.judge(f"{name} cut at byte {size}", content[:size], None if number % 7 else FORMATS[number // 7 % 6])
    print(f"{fuzz.tried} files as they are or cut, {len(fuzz.faults)} faults", flush=True)
    choices = list(contents.values())
    for case in range(cases) if cases is not None else itertools.count():
        changed = mutated(random.Random(f"{seed} {case}"), choices)
        fuzz.judge(f"seed {seed}, case {case}", changed, None if case % 5 else FORMATS[case // 5 % 6])
        if case % 10_000 == 9999:
            print(f"seed {seed}: {case + 1} changed files, {len(fuzz.faults)} faults", flush=True)


def main(words: list[str]) -> int:
    given = dict(zip(words[::2], words[1::2], strict=True))
    seed = int(given.get("--seed") or random.SystemRandom().randrange(1 << 32))
    cases = int(given["--cases"]) if "--cases" in given else None
    fuzz = Fuzz(Path(given.get("--folder", "fuzz-faults")))
    os.environ["NCPS_TRACEBACK"] = "1"  # what nobody foresaw is not to be told in one line here
    print(f"seed {seed}", flush=True)
    with contextlib.suppress(KeyboardInterrupt):
        run(fuzz, seed, int(given.get("--stride", 1)), cases)
    print(f"{fuzz.tried} files, {len(fuzz.faults)} faults, {peak_mb():.0f} MB at most")
    return 1 if fuzz.faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
