"""Edge: the folder a run keeps its spools in, and what killed runs have left of theirs.

It must not know what is put into it. The one idea: a folder belongs to whoever holds the lock on a file in it. The
kernel lets go of a lock when the last process that held it has ended, however it ended, so a lock that can be taken
says that the owner is gone: no number of a process that another may have by now, and none of another container.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from ncps_capture.errors import FileFault

if sys.platform != "win32":
    import fcntl

PREFIX: Final = "ncps-"
LOCK: Final = "owner.lock"


@contextlib.contextmanager
def scratch_folder() -> Iterator[str]:
    """A folder for as long as it is entered; it goes with all that is in it. FileFault if there is no room for it.

    What runs before this one have left without an owner goes first: it may be gigabytes.
    """
    try:
        folder = tempfile.mkdtemp(prefix=PREFIX)
    except OSError as error:
        raise FileFault(f"cannot create a folder for this run: {error.strerror}; set TMPDIR to one with room") from None
    lock = _own(Path(folder))
    try:
        sweep()
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if lock is not None:
            os.close(lock)


def sweep() -> None:
    """Remove this user's folders whose owner is gone; one without our lock is somebody else's and stays.

    For whoever may not need a folder and yet follows one that did.
    """
    if sys.platform == "win32":
        return
    try:
        where = Path(tempfile.gettempdir())
    except FileNotFoundError:  # no folder for temporary files at all: nobody has left anything there
        return
    for lock_file in where.glob(f"{PREFIX}*/{LOCK}"):
        with contextlib.suppress(OSError):  # another run sweeps too, or it is not ours to remove
            lock = os.open(lock_file, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.fstat(lock).st_uid == os.geteuid() and not lock_file.parent.is_symlink():
                    shutil.rmtree(lock_file.parent)
            finally:
                os.close(lock)


def _own(folder: Path) -> int | None:
    """Lock the folder. The file gets its name when the lock is held: who sweeps never finds one not yet locked.

    Workers and capture inherit the lock by fork, and the folder is in use for as long as one of them lives.
    """
    if sys.platform == "win32":
        return None
    new = folder / f"{LOCK}.new"
    try:
        lock = os.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except OSError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        new.rename(folder / LOCK)
    except OSError:  # a file system without locks: nobody will sweep this folder
        os.close(lock)
        return None
    return lock
