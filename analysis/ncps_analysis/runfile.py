"""Edge: a finished run as one file, so that its report, in any view, can be made again later.

It must not know what a report says. The one idea: what a report is a function of, a ``Run`` and its spools, goes into
an ordinary zip archive: ``run.json`` (every field by its name, with the format's number) and the spools as they are,
``connections-N.spool`` and ``handshakes-N.spool``, whose headers name their columns. Any program can open it, nothing
in it is ever executed, and no name in it is ever used as a path. Spools are copied through, never held in memory.

A file appears under its name only when it is whole: it is written beside it and put in its place at the end.
"""

from __future__ import annotations

import json
import os
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
from typing import Any, Final, NoReturn, Self

import numpy as np
from ncps_capture.errors import FileFault, UsageError
from ncps_capture.segments import HANDSHAKE
from ncps_capture.spool import read_spool

from ncps_analysis.join import path_words
from ncps_analysis.records import CONNECTION, Run

FORMAT: Final = "ncps run"
VERSION: Final = 1
FACTS: Final = "run.json"
MOST_FACTS_BYTES: Final = 1 << 30  # a row a second for some years: more is no run but an attempt on memory
MOST_FILES: Final = 65_536
_INT64: Final = 1 << 63
_DAMAGED: Final = (zipfile.BadZipFile, zlib.error, EOFError, KeyError, NotImplementedError, RuntimeError, ValueError)


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
            with zipfile.ZipFile(
                self._file, "w", zipfile.ZIP_DEFLATED, compresslevel=1, strict_timestamps=False
            ) as archive:
                archive.writestr(FACTS, json.dumps(_facts(run), allow_nan=False, separators=(",", ":")))
                for name, path in _members(run):
                    archive.write(path, name)
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


def _members(run: Run) -> Iterator[tuple[str, str]]:
    """Name in the archive and path of each spool."""
    for number, path in enumerate(run.connection_files):
        yield f"connections-{number}.spool", path
    for number, path in enumerate(run.wire.handshake_files if run.wire is not None else ()):
        yield f"handshakes-{number}.spool", path


def _facts(run: Run) -> dict[str, Any]:
    """``run`` as JSON: fields by name, arrays as lists, spools as how many there are."""
    facts = asdict(run)
    facts["clock"] = {name: values.tolist() for name, values in facts["clock"].items()}
    facts["connection_files"] = len(run.connection_files)
    if run.wire is not None:
        facts["wire"]["handshake_files"] = len(run.wire.handshake_files)
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
        facts = _read_facts(archive, path)
        needed = sum(member.file_size for member in archive.infolist())
        if needed > shutil.disk_usage(scratch_dir).free:
            raise FileFault(f"cannot unpack {path}: it needs {needed} bytes in {scratch_dir}; set TMPDIR to more room")
        for holder, field, kind, dtype in (
            (facts, "connection_files", "connections", CONNECTION),
            (facts.get("wire"), "handshake_files", "handshakes", HANDSHAKE),
        ):
            if isinstance(holder, dict):
                holder[field] = _spools(archive, holder.get(field), kind, dtype, scratch_dir, path)
        run: Run = _value(Run, facts, "run")
        _check(run)
        return run


@contextmanager
def _opened(path: Path) -> Iterator[zipfile.ZipFile]:
    """The archive; whatever is found wrong with it while it is open becomes one line that names it."""
    try:
        file = path.open("rb")
    except (OSError, ValueError) as error:
        raise FileFault(f"cannot read {path}: {_reason(error)}") from None
    with file:
        try:
            if file.read(2) != b"PK":
                raise FileFault(f"cannot read {path}: it is not a run saved with --run")
            with zipfile.ZipFile(file) as archive:
                yield archive
        except _DAMAGED as error:
            raise FileFault(f"cannot read {path}: it is damaged: {_reason(error)}") from None
        except OSError as error:
            raise FileFault(f"cannot read {path}: {_reason(error)}") from None


def _read_facts(archive: zipfile.ZipFile, path: Path) -> dict[str, Any]:
    foreign = FileFault(f"cannot read {path}: it is not a run saved with --run")
    if FACTS not in archive.namelist():
        raise foreign
    if archive.getinfo(FACTS).file_size > MOST_FACTS_BYTES:
        raise _WrongError(f"{FACTS} is larger than any run's")
    content = json.loads(archive.read(FACTS))
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise foreign
    if content.get("version") != VERSION:
        raise FileFault(
            f"cannot read {path}: it has format {content.get('version')}, this program reads {VERSION}; "
            "use the version of ncps that saved it"
        )
    facts = content.get("run")
    if not isinstance(facts, dict):
        raise _WrongError(f"{FACTS} has no run")
    return facts


def _spools(
    archive: zipfile.ZipFile, count: Any, kind: str, dtype: np.dtype[Any], scratch_dir: str, path: Path
) -> list[str]:
    """Unpack the ``count`` spools of a kind; the paths they have now."""
    if type(count) is not int or not 0 <= count <= MOST_FILES:
        raise _WrongError(f"the number of its spools of {kind} is {str(count)[:40]!r}")
    unpacked = [_unpack(archive, f"{kind}-{number}.spool", scratch_dir, path) for number in range(count)]
    for spool in unpacked:
        try:
            read_spool(spool, dtype)
        except FileFault as error:
            raise FileFault(str(error).replace(spool, f"{path} ({Path(spool).name})")) from None
    return unpacked


def _unpack(archive: zipfile.ZipFile, name: str, scratch_dir: str, path: Path) -> str:
    target = Path(scratch_dir, name)
    with archive.open(name) as packed:
        try:
            with target.open("xb") as file:
                shutil.copyfileobj(packed, file, 1 << 20)
        except OSError as error:
            raise FileFault(f"cannot unpack {path}: {_reason(error)}; set TMPDIR to a folder with room") from None
    return str(target)


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
    if kind is float and type(value) in (int, float):
        return float(value)
    if kind is int and type(value) is int and -_INT64 <= value < _INT64:
        return value
    if kind in (str, bool) and type(value) is kind:
        return value
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
    if not 0 < len(run.clock.monotonic_ns) == len(run.clock.realtime_ns):
        raise _WrongError("run.clock has no pairs")
    try:
        path_words(run.paths)
    except UsageError as error:
        raise _WrongError(str(error)) from None


def _reason(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return " ".join(str(error).split()) or type(error).__name__
