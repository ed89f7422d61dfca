"""Brings the workers' tables of addresses together: one numbering for all connection records of a run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from ncps_analysis.records import CONNECTION
from ncps_capture.spool import SpoolWriter, iter_spool

from ncps_raw.engine.base import UNKNOWN_PATH
from ncps_raw.engine.base import Path as AddressPair
from ncps_raw.engine.connection import Paths
from ncps_raw.workers import WorkerResult

CHUNK_ROWS = 1 << 16


def renumber(workers: Sequence[WorkerResult]) -> tuple[tuple[str, ...], tuple[AddressPair, ...]]:
    """Rewrite each worker's spool with numbers of one common table. Returns (new spools, table).

    A worker that ended early has left no table: its records keep their figures, but their addresses are unknown.
    """
    table = Paths()
    files = []
    for worker in workers:
        numbers = [table.number(*pair) for pair in worker.paths]
        numbers.append(table.number(*UNKNOWN_PATH))
        lookup = np.array(numbers, np.uint16)
        path = Path(f"{worker.spool}.paths")
        out = SpoolWriter(path, CONNECTION)
        for rows in iter_spool(str(worker.spool), CONNECTION, CHUNK_ROWS):
            chunk = rows.copy()
            chunk["path"] = lookup[np.minimum(chunk["path"], len(lookup) - 1)]
            out.append(chunk)
        out.close()
        Path(str(worker.spool)).unlink()
        files.append(str(path))
    return tuple(files), tuple(table.table())
