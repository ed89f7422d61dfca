"""Rights given up for good: who a process becomes once it has opened what only root may open (edge).

One idea: what was given up is read back from the kernel, of every thread, and believed from there alone. A process that
parses whatever the network sends must not be the one that may do anything: root becomes the person who called sudo, or
nobody, and no capability is left, not even one to come back by executing a file. Descriptors that are open stay good.
Must not know what is open, nor why.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from stat import S_ISREG
from typing import Final

from ncps_capture.errors import CaptureUnavailable

_NOBODY: Final = 65534
_NOBODY_AT_ALL: Final = (1 << 32) - 1  # as an id it means: leave as it is
_MOST_CAPABILITIES: Final = 64
_VERSION_3: Final = 0x20080522  # of capset(2): two words of 32 capabilities each
_PR_SET_DUMPABLE: Final = 4
_PR_CAPBSET_DROP: Final = 24
_PR_SET_NO_NEW_PRIVS: Final = 38
_PR_CAP_AMBIENT: Final = 47
_PR_CAP_AMBIENT_CLEAR_ALL: Final = 4
_LEFT: Final = ("CapInh", "CapPrm", "CapEff", "CapAmb")
"""Sets that must be empty. The bounding set limits what executing a file could give, and nothing can be given any more
with ``no_new_privs``; dropping it takes CAP_SETPCAP, which an interpreter with file capabilities has not got."""


@dataclass(frozen=True)
class Identity:
    """Who a process runs as."""

    uid: int
    gid: int
    person: bool = False  # who called sudo: the files made for this person are theirs


@dataclass(frozen=True)
class Standing:
    """What a process is after it has given up its rights: for the report, and for the person where it is odd."""

    runs_as: str | None  # None: on a system without capabilities somebody who had no rights to give up
    note: str | None = None


def heir(environment: Mapping[str, str]) -> Identity | None:
    """Whom this process should become: who called sudo, else nobody; None if it is not root to begin with."""
    if os.name != "posix" or os.geteuid() != 0:
        return None
    import pwd  # there is none on Windows

    person = _number(environment.get("SUDO_UID"))
    if person:
        group = _number(environment.get("SUDO_GID"))
        if group is None:
            with suppress(KeyError):
                group = pwd.getpwuid(person).pw_gid
        return Identity(person, _NOBODY if group is None else group, person=True)
    try:
        entry = pwd.getpwnam("nobody")
    except KeyError:
        return Identity(_NOBODY, _NOBODY)
    return Identity(entry.pw_uid, entry.pw_gid) if entry.pw_uid else Identity(_NOBODY, _NOBODY)


def hand_over(path: str | Path, identity: Identity) -> None:
    """Make ``identity`` the owner of a file that this process has just created as root.

    Only of a plain file under one name: what stands there otherwise (a device, a link) was not made here.
    """
    with suppress(OSError):  # a file system without owners: it is as it would have been
        descriptor = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            facts = os.fstat(descriptor)
            if S_ISREG(facts.st_mode) and facts.st_nlink == 1 and facts.st_uid == os.geteuid():
                os.fchown(descriptor, identity.uid, identity.gid)
        finally:
            os.close(descriptor)


def give_up_rights(identity: Identity | None) -> Standing:
    """Become ``identity`` (None: stay who it is) without groups and capabilities, and prove it.

    CaptureUnavailable if a right is left. Root that is not allowed to become anybody, as in a container without
    CAP_SETUID or a user namespace of one user, stays root in name and without capabilities; the note says so.
    """
    give_up = _on_linux if sys.platform.startswith("linux") else _elsewhere
    return give_up(identity)


def _elsewhere(identity: Identity | None) -> Standing:
    if identity is None:
        return Standing(None)
    try:
        _become(identity)
    except OSError as error:
        raise CaptureUnavailable(
            f"cannot give up root's rights by becoming uid {identity.uid}: {error.strerror}"
        ) from error
    if (os.getuid(), os.geteuid(), os.getgid(), os.getegid()) != (identity.uid,) * 2 + (identity.gid,) * 2:
        raise CaptureUnavailable(f"cannot give up root's rights: this process is still uid {os.geteuid()}")
    return Standing(_in_words(identity.uid, identity.gid))


def _on_linux(identity: Identity | None) -> Standing:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise CaptureUnavailable(f"cannot give up rights for good: {os.strerror(ctypes.get_errno())} (no_new_privs)")
    for capability in range(_MOST_CAPABILITIES):  # those that do not exist are refused, as are all without CAP_SETPCAP
        libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)
    note = None
    if identity is not None:
        try:
            _become(identity)
        except OSError as error:
            note = (
                f"the capture process may not become uid {identity.uid} here ({error.strerror}): it runs as root "
                "without capabilities"
            )
    libc.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)  # unknown before Linux 4.3, which has none
    if libc.capset((ctypes.c_uint32 * 2)(_VERSION_3, 0), (ctypes.c_uint32 * 6)()) != 0:
        raise CaptureUnavailable(f"cannot give up capabilities: {os.strerror(ctypes.get_errno())}")
    # What is open here must not be taken over by another program of the same person (ptrace, pidfd_getfd).
    libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    statuses = _statuses()
    problems = [problem for status in statuses for problem in left_over(status, None if note else identity)]
    if problems:
        raise CaptureUnavailable(f"cannot give up rights: {problems[0]}")
    return Standing(
        _in_words(*(int(statuses[0][name].split()[0]) for name in ("Uid", "Gid"))) + ", no capabilities", note
    )


def left_over(status: Mapping[str, str], identity: Identity | None) -> list[str]:
    """What is wrong with the fields of a /proc/PID/status (proc_pid_status(5)) for who should be ``identity``.

    None: whoever it is, but without capabilities. All four of Uid and Gid count: real, effective, saved, file system.
    """
    out = [f"{name} is still {status[name]}" for name in _LEFT if int(status.get(name, "0"), 16)]
    if status.get("NoNewPrivs", "1") != "1":  # not told before Linux 4.10
        out.append("new ones could be gained by executing a file")
    if identity is not None:
        for name, wanted in (("Uid", identity.uid), ("Gid", identity.gid)):
            if set(status[name].split()) != {str(wanted)}:
                out.append(f"{name} is {' '.join(status[name].split())} and should be {wanted}")
        if status["Groups"].split():
            out.append(f"supplementary groups are still {status['Groups']}")
    return out


def _become(identity: Identity) -> None:
    """Groups first: who is no longer root cannot give them up. All three ids, so there is no way back."""
    os.setgroups([])
    if hasattr(os, "setresuid"):
        os.setresgid(identity.gid, identity.gid, identity.gid)
        os.setresuid(identity.uid, identity.uid, identity.uid)
    else:  # for root this sets all three
        os.setgid(identity.gid)
        os.setuid(identity.uid)


def _statuses() -> list[dict[str, str]]:
    """The status of every thread of this process, the main one first: capabilities belong to threads."""
    try:
        threads = sorted(int(path.name) for path in Path("/proc/self/task").iterdir())
        texts = [Path(f"/proc/self/task/{thread}/status").read_text(encoding="utf-8") for thread in threads]
    except OSError as error:
        raise CaptureUnavailable(
            f"cannot prove that rights were given up: {error.filename}: {error.strerror}"
        ) from error
    return [
        {name: value.strip() for name, _, value in (line.partition(":") for line in text.splitlines())}
        for text in texts
    ]


def _in_words(uid: int, gid: int) -> str:
    return f"uid {uid}, gid {gid}"


def _number(text: str | None) -> int | None:
    return (
        int(text) if text is not None and text.isascii() and text.isdecimal() and int(text) < _NOBODY_AT_ALL else None
    )
