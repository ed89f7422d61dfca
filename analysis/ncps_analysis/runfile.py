"""Edge: a finished run as one file, so that its report, in any view, can be made again later.

It must not know what a report says. The one idea: what a report is a function of, a ``Run`` and its spools, goes into
an ordinary zip archive: ``run.json`` (every field by its name, with the format's number) and the spools as they are,
``connections-N.spool`` and ``handshakes-N.spool``, whose headers name their columns. Any program can open it, nothing
in it is ever executed, and no name in it is ever used as a path. Spools are copied through, never held in memory;
``run.json`` has the bytes and rows of each, so that nothing is unpacked but what was saved.

A file appears under its name only when it is whole: it is written beside it and put in its place at the end.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import types
import typing
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import MISSING, asdict, fields, is_dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple, NoReturn, Self

import numpy as np
from ncps_capture.errors import FileFault, UsageError
from ncps_capture.segments import HANDSHAKE, UNKNOWN
from ncps_capture.spool import SpoolWriter, iter_spool, read_spool

from ncps_analysis.join import path_words
from ncps_analysis.records import CONNECTION, CONNECTION_2, ClockPairs, Run

FORMAT: Final = "ncps run"
VERSION: Final = 3
WITHOUT_SCHEDULE: Final = 2  # the format before connections had an intended start; it is read still
FACTS: Final = "run.json"
MOST_FACTS_BYTES: Final = 1 << 30  # a row a second for some years: more is no run but an attempt on memory
MOST_FILES: Final = 65_536
_INT64: Final = 1 << 63
_MOST_NS: Final = 1 << 62  # the year 2116: sums and differences of two such times are still int64
_LEAST_S: Final = 1e-9  # a clock's step: rates of less may be infinite
_MOST_FLOAT: Final = 1e12  # of seconds: thirty thousand years
# What makes a terminal do something, or show text in another order. Blanks and ends of line in a sentence stay: views
# put it into one line themselves, and a report made again is the same byte for byte.
_CONTROLS: Final = re.compile("[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_BREAKS: Final = dict.fromkeys(map(ord, "\t\n\v\f\r\x1c\x1d\x1e\x1f\x85\u2028\u2029"), "?")
_SENTENCES: Final = frozenset(
    ("run.capture_problem", "run.notes[]", "run.faults[]", "run.wire.died", "run.wire.write_problem")
)
_PIECE_BYTES: Final = 1 << 20
_MOST_HEADER_BYTES: Final = 1 << 12
_NAME_A_RUN: Final = "name a file that a client saved with --run"
_NEXT: Final[dict[type[Exception], str]] = {
    FileNotFoundError: "check the name, and the folder this runs in",
    PermissionError: "run it as somebody who may read it, such as with sudo",
}
_DAMAGED: Final = (zipfile.BadZipFile, zlib.error, EOFError, KeyError, RuntimeError, ValueError)


# ---- writing -----------------------------------------------------------------------------------------------


class RunWriter:
    """A place for a run, taken before the run begins: what cannot be written is told then, not at its end.

    ``save`` fills it. Closed without that, nothing is left, and a file that was there before stays as it was.
    """

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        try:
            real = Path(os.path.realpath(path))  # a link stays, what it points to is replaced
            if real.exists():
                if not real.is_file():
                    self._cannot("it exists and is not a regular file; choose another file")
                if not os.access(real, os.W_OK):
                    self._cannot("Permission denied; choose another file")
            self._part = real.with_name(f".{real.name}.{os.getpid()}.part")
            self._file = self._part.open("xb")
        except (OSError, ValueError) as error:
            self._cannot(f"{_reason(error)}; choose another file")
        self._real = real

    def save(self, run: Run) -> None:
        """Write ``run`` and its spools and put the file in its place. FileFault if the disk cannot take it."""
        try:
            connections = [_measured(path, CONNECTION) for path in run.connection_files]
            handshakes = [_measured(path, HANDSHAKE) for path in (run.wire.handshake_files if run.wire else ())]
            facts = json.dumps(_facts(run, connections, handshakes), allow_nan=False, separators=(",", ":"))
            with zipfile.ZipFile(self._file, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
                archive.writestr(FACTS, facts)
                for kind, spools in (("connections", connections), ("handshakes", handshakes)):
                    for number, spool in enumerate(spools):
                        _pack(archive, f"{kind}-{number}.spool", spool)
            self._file.close()
            os.replace(self._part, self._real)  # noqa: PTH105 - both are the same
        except (OSError, ValueError) as error:  # zipfile may hide the first behind a complaint of its own
            cause = error if isinstance(error, OSError) else error.__context__ or error
            self._cannot(f"{_reason(cause)}; the run is not saved")

    def close(self) -> None:
        """Leave nothing behind but what was saved."""
        with suppress(OSError):
            self._file.close()
        with suppress(OSError):
            self._part.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _cannot(self, why: str) -> NoReturn:
        raise FileFault(f"cannot write {self._path}: {why}") from None


class _Spool(NamedTuple):
    path: str
    bytes: int  # of its header and whole rows
    rows: int

    def facts(self) -> dict[str, int]:
        return {"bytes": self.bytes, "rows": self.rows}


def _measured(path: str, dtype: np.dtype[Any]) -> _Spool:
    """A spool without the piece of a row that a killed worker may have left at its end."""
    with Path(path).open("rb") as file:
        start = len(file.readline()) + len(file.readline())
        rows = (file.seek(0, os.SEEK_END) - start) // dtype.itemsize
    return _Spool(path, start + rows * dtype.itemsize, rows)


def _pack(archive: zipfile.ZipFile, name: str, spool: _Spool) -> None:
    with Path(spool.path).open("rb") as file, archive.open(name, "w", force_zip64=True) as packed:
        left = spool.bytes
        while left and (piece := file.read(min(left, _PIECE_BYTES))):
            packed.write(piece)
            left -= len(piece)


def _facts(run: Run, connections: list[_Spool], handshakes: list[_Spool]) -> dict[str, Any]:
    """``run`` as JSON: fields by name, arrays as lists, spools as their bytes and rows."""
    facts = asdict(run)
    facts["clock"] = {name: values.tolist() for name, values in facts["clock"].items()}
    facts["connection_files"] = [spool.facts() for spool in connections]
    if run.wire is not None:
        facts["wire"]["handshake_files"] = [spool.facts() for spool in handshakes]
    return {"format": FORMAT, "version": VERSION, "run": facts}


# ---- reading -----------------------------------------------------------------------------------------------


class _WrongError(ValueError):
    """What is wrong with the content of ``run.json``."""


def load_run(path: str | Path, scratch_dir: str) -> Run:
    """The run saved in ``path``; its spools are unpacked into ``scratch_dir``, which must exist and have room.

    FileFault, in one line, for a file that is missing, foreign, damaged or of another version.
    """
    path = Path(path)
    with _opened(path) as archive:
        facts, version = _read_facts(archive, path)
        connection = CONNECTION_2 if version == WITHOUT_SCHEDULE else CONNECTION
        packed: list[tuple[_Spool, np.dtype[Any]]] = []
        for holder, field, kind, dtype in (
            (facts, "connection_files", "connections", connection),
            (facts.get("wire"), "handshake_files", "handshakes", HANDSHAKE),
        ):
            if isinstance(holder, dict):
                spools = _promised(archive, holder.get(field), kind, dtype, scratch_dir)
                packed += ((spool, dtype) for spool in spools)
                holder[field] = [spool.path for spool in spools]
        run: Run = _value(Run, facts, "run")
        _check(run)
        if not run.paths and any(spool.rows for spool, dtype in packed if dtype is connection):
            raise _WrongError("run.paths is empty, but there are connections")
        needed = sum(spool.bytes for spool, _ in packed)
        if needed > shutil.disk_usage(scratch_dir).free:
            raise FileFault(f"cannot unpack {path}: it needs {needed} bytes in {scratch_dir}; set TMPDIR to more room")
        for spool, dtype in packed:
            _unpack(archive, spool, dtype, path)
            if dtype is CONNECTION_2:
                _without_schedule(Path(spool.path))
        return run


@contextmanager
def _opened(path: Path) -> Iterator[zipfile.ZipFile]:
    """The archive; whatever is found wrong with it while it is open becomes one line that names it."""
    try:
        file = path.open("rb")
    except (OSError, ValueError) as error:
        raise FileFault(f"cannot read {path}: {_reason(error)}; {_NEXT.get(type(error), _NAME_A_RUN)}") from None
    with file:
        try:
            if file.read(2) != b"PK":
                raise FileFault(f"cannot read {path}: it is not a saved run; {_NAME_A_RUN}")
            with zipfile.ZipFile(file) as archive:
                yield archive
        except _DAMAGED as error:
            raise FileFault(f"cannot read {path}: it is damaged: {_reason(error)}") from None
        except OSError as error:
            raise FileFault(f"cannot read {path}: {_reason(error)}") from None


def _read_facts(archive: zipfile.ZipFile, path: Path) -> tuple[dict[str, Any], int]:
    """The run's facts and the format they are in."""
    foreign = FileFault(f"cannot read {path}: it is not a saved run; {_NAME_A_RUN}")
    if FACTS not in archive.namelist():
        raise foreign
    _plainly_packed(archive.getinfo(FACTS))
    if archive.getinfo(FACTS).file_size > MOST_FACTS_BYTES:
        raise _WrongError(f"{FACTS} is larger than any run's")
    with archive.open(FACTS) as packed:
        content = json.loads(packed.read(archive.getinfo(FACTS).file_size + 1))
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise foreign
    version = _value(int, content.get("version"), "version")
    if version not in (VERSION, WITHOUT_SCHEDULE):
        raise FileFault(
            f"cannot read {path}: it has format {version}, this program reads {WITHOUT_SCHEDULE} and {VERSION}; "
            "use the version of ncps that saved it"
        )
    facts = content.get("run")
    if not isinstance(facts, dict):
        raise _WrongError(f"{FACTS} has no run")
    return facts, version


def _plainly_packed(member: zipfile.ZipInfo) -> None:
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise _WrongError(f"{member.filename} is packed in a way that no run is")


def _promised(
    archive: zipfile.ZipFile, promises: Any, kind: str, dtype: np.dtype[Any], scratch_dir: str
) -> list[_Spool]:
    """The spools of a kind, where they will be unpacked; ``_WrongError`` if the archive has others than were saved."""
    if not isinstance(promises, list) or len(promises) > MOST_FILES:
        raise _WrongError(f"the list of its spools of {kind} is {str(promises)[:40]!r}")
    spools = []
    for number, promise in enumerate(promises):
        name = f"{kind}-{number}.spool"
        if not isinstance(promise, dict) or set(promise) != {"bytes", "rows"}:
            raise _WrongError(f"the size of {name} is {str(promise)[:40]!r}")
        size, rows = (_value(int, promise[key], f"the {key} of {name}") for key in ("bytes", "rows"))
        member = archive.getinfo(name)
        _plainly_packed(member)
        if member.file_size != size:
            raise _WrongError(f"{name} has {member.file_size} bytes, and had {size} when it was saved")
        if rows < 0 or not 0 < size - rows * dtype.itemsize <= _MOST_HEADER_BYTES:
            raise _WrongError(f"{name} has {size} bytes, which are not {rows} rows")
        spools.append(_Spool(str(Path(scratch_dir, name)), size, rows))
    return spools


def _unpack(archive: zipfile.ZipFile, spool: _Spool, dtype: np.dtype[Any], path: Path) -> None:
    """Unpack no more than was promised, and see that it is that."""
    name, left = Path(spool.path).name, spool.bytes
    with archive.open(name) as packed:
        try:
            with Path(spool.path).open("xb") as file:
                while piece := packed.read(_PIECE_BYTES):  # up to its end, where its checksum is compared
                    file.write(piece)
                    left -= len(piece)
        except OSError as error:
            raise FileFault(f"cannot unpack {path}: {_reason(error)}; set TMPDIR to a folder with room") from None
    if left:
        raise _WrongError(f"{name} has {spool.bytes - left} bytes, and had {spool.bytes} when it was saved")
    try:
        read_spool(spool.path, dtype)  # its header
    except FileFault as error:
        raise FileFault(str(error).replace(spool.path, f"{path} ({name})")) from None
    if _measured(spool.path, dtype) != spool:
        raise _WrongError(f"{name} has {spool.bytes} bytes, which are not {spool.rows} rows")


def _without_schedule(path: Path) -> None:
    """Give connections of format 2 the column that they lack."""
    old = path.with_suffix(".old")
    path.rename(old)
    with SpoolWriter(path, CONNECTION) as out:
        for rows in iter_spool(old, CONNECTION_2):
            wider = np.empty(len(rows), CONNECTION)
            wider["intended_ns"] = UNKNOWN
            for name in rows.dtype.names or ():
                wider[name] = rows[name]
            out.append(wider)
    old.unlink()


def _value(kind: Any, value: Any, where: str) -> Any:
    """``value`` of the JSON as ``kind``, a type of a record's field. ``_WrongError`` if it is something else."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if is_dataclass(kind):
        return _record(kind, value, where)
    if origin in (types.UnionType, typing.Union):
        if value is None and type(None) in inner:
            return None
        (kind,) = (one for one in inner if one is not type(None))
        return _value(kind, value, where)
    if origin is tuple and isinstance(value, list):
        kinds = inner[:1] * len(value) if inner[-1] is ... else inner
        if len(kinds) == len(value):
            return tuple(_value(one, part, f"{where}[]") for one, part in zip(kinds, value, strict=True))
    if origin is dict and isinstance(value, dict):
        return {int(key): _value(inner[1], part, f"{where}[]") for key, part in value.items()}
    if origin is np.ndarray and isinstance(value, list):
        return np.array([_value(int, part, f"{where}[]") for part in value], np.int64)
    if kind is float and type(value) in (int, float) and -_MOST_FLOAT <= value <= _MOST_FLOAT:  # no NaN, no infinity
        return float(value)
    if kind is int and type(value) is int and -_INT64 <= value < _INT64:
        return value
    if kind is bool and type(value) is bool:
        return value
    if kind is str and type(value) is str:
        return _CONTROLS.sub("?", value) if where in _SENTENCES else _CONTROLS.sub("?", value.translate(_BREAKS))
    raise _WrongError(f"{where} is {str(value)[:40]!r}")


def _record(kind: Any, value: Any, where: str) -> Any:
    """A frozen record from its fields; those that it has got a default for may be absent."""
    if not isinstance(value, dict):
        raise _WrongError(f"{where} is no record")
    kinds = typing.get_type_hints(kind)
    known = {field.name: field for field in fields(kind)}
    if odd := set(value) - set(known):
        raise _WrongError(f"{where} has an unknown field, {min(odd)[:40]!r}")
    for name, field in known.items():
        if name not in value and field.default is MISSING and field.default_factory is MISSING:
            raise _WrongError(f"{where}.{name} is missing")
    return kind(**{name: _value(kinds[name], part, f"{where}.{name}") for name, part in value.items()})


def _check(run: Run) -> None:
    """What a report takes for granted."""
    if run.role not in ("client", "server"):
        raise _WrongError(f"run.role is {run.role[:40]!r}")
    _check_clock(run.clock)
    _check_times(run)
    try:
        path_words(run.paths)
    except UsageError as error:
        raise _WrongError(str(error)) from None


def _check_clock(clock: ClockPairs) -> None:
    if not 0 < len(clock.monotonic_ns) == len(clock.realtime_ns):
        raise _WrongError("run.clock has no pairs")
    for name, times in (("monotonic_ns", clock.monotonic_ns), ("realtime_ns", clock.realtime_ns)):
        if times.min() < 0 or times.max() >= _MOST_NS:
            raise _WrongError(f"run.clock.{name} has a time that no clock shows")
    if np.any(np.diff(clock.monotonic_ns) <= 0):  # times between two readings are found by their order
        raise _WrongError("run.clock.monotonic_ns does not increase")


def _check_times(run: Run) -> None:
    for name in ("t0_ns", "record_start_ns", "end_ns"):
        at = getattr(run, name)
        if not 0 <= at < _MOST_NS and (name, at) != ("record_start_ns", UNKNOWN):
            raise _WrongError(f"run.{name} is {at}, which no clock shows")
    if run.end_ns < run.t0_ns:
        raise _WrongError(f"run.end_ns is {run.end_ns}, before run.t0_ns, {run.t0_ns}")
    if run.record_start_ns != UNKNOWN and not run.t0_ns <= run.record_start_ns <= run.end_ns:
        raise _WrongError(f"run.record_start_ns is {run.record_start_ns}, which is not within the run")
    for name, seconds in (("warmup_s", run.warmup_s), ("planned_s", run.planned_s or 0.0)):
        if seconds < 0:
            raise _WrongError(f"run.{name} is {seconds}")
    for row in run.intervals:
        if row.t_s < 0 or (row.seconds != 0 and row.seconds < _LEAST_S):
            raise _WrongError(f"run.intervals[] has one of {row.seconds} s at {row.t_s} s")
    if run.wire is not None:
        for name in ("first_t_ns", "last_t_ns"):
            at = getattr(run.wire, name)
            if at != UNKNOWN and not 0 <= at < _MOST_NS:
                raise _WrongError(f"run.wire.{name} is {at}, which no clock shows")


def _reason(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return " ".join(str(error).split()) or type(error).__name__
