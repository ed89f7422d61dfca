"""Edge: the files a run left behind -> its RunReport.

It must not know what is counted or how. The one idea: both kinds of rows are cut into parts by the hash of their
four-tuple, so a part holds all that belongs together; one part at a time is in memory, however long the run was.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from ncps_capture.merge import books_of, merge_rows
from ncps_capture.segments import HANDSHAKE, Books
from ncps_capture.spool import iter_spool, partition, read_spool

from ncps_analysis.assemble import basis_of, report_of
from ncps_analysis.figures import with_attempts
from ncps_analysis.join import Words, hash_of, path_words, tuples_of_handshakes, tuples_of_records
from ncps_analysis.model import RunReport
from ncps_analysis.offset import estimate, one_clock
from ncps_analysis.records import CONNECTION, NOT_STARTED, ClockOffset, Run
from ncps_analysis.tally import Tally, count, count_records

Rows = npt.NDArray[Any]

PART_ROWS: Final = 100_000
"""Rows of a kind joined at once. Of two million connections this took 6.4 s, parts of half a million 8.7 s and one
part 11.2 s and 1.8 GB: what falls out of the cache costs more than the copy to parts."""
SAMPLE_ROWS: Final = 200_000
"""Rows of a kind that an offset of clocks is estimated from: many more than its scatter needs."""
MOST_PARTS: Final = 200
"""Files open at once while rows are distributed; well below the usual limit of 1024."""


def build_report(run: Run, scratch_dir: str, part_rows: int = PART_ROWS) -> RunReport:
    """Read the spools of a finished run, join them and summarise.

    ``scratch_dir`` is an existing folder for temporary files, as large as the spools when the run has more than
    ``part_rows`` rows of a kind; it is left as it was found. Raises FileFault for spools that cannot be read.
    """
    basis = basis_of(run)
    total = Tally()
    if run.wire is None:
        for path in run.connection_files:
            for rows in iter_spool(path, CONNECTION, part_rows):
                total += count_records(rows, basis)
        return report_of(run, total)
    books = Books()
    for records, handshakes in _parts(run, basis.paths, scratch_dir, part_rows):
        attempts = merge_rows(handshakes)
        books += books_of(attempts)
        total += count(records, attempts, basis)
    return report_of(replace(run, wire=replace(run.wire, books=with_attempts(run.wire.books, books))), total)


def clock_offset(run: Run, sample_rows: int = SAMPLE_ROWS) -> tuple[ClockOffset | None, bool]:
    """How far the clock of ``run.wire`` is ahead of the run's own, as ``offset.estimate`` says; None if it cannot.

    And whether the two are one clock (``offset.one_clock``), so that no offset is needed. From all rows of about so
    many that memory bears them: every m-th four-tuple, with all its uses on both sides.
    """
    assert run.wire is not None
    paths, mine, theirs = path_words(run.paths), run.connection_files, run.wire.handshake_files
    every = max(1, -(-max(_length(mine, CONNECTION), _length(theirs, HANDSHAKE)) // sample_rows))
    records = _sample(mine, CONNECTION, lambda rows: hash_of(tuples_of_records(rows, paths, run.role)), every)
    seen = _sample(theirs, HANDSHAKE, lambda rows: hash_of(tuples_of_handshakes(rows)), every)
    attempts = merge_rows(seen)
    started = records[records["outcome"] != NOT_STARTED]
    offset = estimate(
        tuples_of_records(started, paths, run.role),
        run.clock.to_realtime(started["start_ns"]),
        tuples_of_handshakes(attempts),
        attempts["t_syn_first_ns"].astype(np.int64),
    )
    return offset, offset is not None and one_clock(offset, started, attempts, paths, run.role, run.clock)


def _sample(files: Sequence[str], dtype: np.dtype[Any], key: Callable[[Rows], Words], every: int) -> Rows:
    parts = [np.empty(0, dtype)]
    for path in files:
        parts += (rows[key(rows) % np.uint64(every) == 0] for rows in iter_spool(path, dtype))
    return np.concatenate(parts)


def _parts(run: Run, paths: Words, scratch_dir: str, part_rows: int) -> Iterator[tuple[Rows, Rows]]:
    assert run.wire is not None
    mine, theirs = run.connection_files, run.wire.handshake_files
    most = max(_length(mine, CONNECTION), _length(theirs, HANDSHAKE))
    if most <= part_rows:
        yield _all(mine, CONNECTION), _all(theirs, HANDSHAKE)
        return
    parts = min(MOST_PARTS, -(-most // part_rows))
    with tempfile.TemporaryDirectory(dir=scratch_dir, prefix="join-") as folder:
        records_dir, handshakes_dir = Path(folder, "records"), Path(folder, "handshakes")
        records_dir.mkdir()
        handshakes_dir.mkdir()
        of_records = partition(
            mine, CONNECTION, lambda rows: hash_of(tuples_of_records(rows, paths, run.role)), parts, records_dir
        )
        of_handshakes = partition(
            theirs, HANDSHAKE, lambda rows: hash_of(tuples_of_handshakes(rows)), parts, handshakes_dir
        )
        for one, other in zip(of_records, of_handshakes, strict=True):
            yield _all([one], CONNECTION), _all([other], HANDSHAKE)
            Path(one).unlink()
            Path(other).unlink()


def _length(files: Sequence[str], dtype: np.dtype[Any]) -> int:
    return sum(len(read_spool(path, dtype)) for path in files)


def _all(files: Sequence[str], dtype: np.dtype[Any]) -> Rows:
    return np.concatenate([np.empty(0, dtype), *(read_spool(path, dtype) for path in files)])
