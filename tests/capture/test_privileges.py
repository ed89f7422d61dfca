"""Rights given up: read back by somebody else, from the kernel, while the process goes on with its work."""

import multiprocessing
import os
import pwd
import shutil
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from ncps_capture import privileges
from ncps_capture.errors import CaptureUnavailable
from ncps_capture.privileges import Identity, give_up_rights, hand_over, heir, left_over
from ncps_capture.process import CaptureProcess
from ncps_capture.segments import HANDSHAKE, CaptureSpec
from ncps_capture.spool import read_spool

ROOT = os.name == "posix" and os.geteuid() == 0
LINUX = sys.platform.startswith("linux")
needs_root = pytest.mark.skipif(not (ROOT and LINUX), reason="needs root on Linux: giving up root's rights")
PERSON = {"SUDO_UID": "4321", "SUDO_GID": "8765"}
EMPTY = dict.fromkeys(("CapInh", "CapPrm", "CapEff", "CapAmb"), "0000000000000000") | {
    "Uid": "4321\t4321\t4321\t4321",
    "Gid": "8765\t8765\t8765\t8765",
    "Groups": "",
    "NoNewPrivs": "1",
}


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0), backlog=512) as listening:
        yield listening


@pytest.fixture
def spec(server: socket.socket, tmp_path: Path) -> CaptureSpec:
    port = server.getsockname()[1]
    return CaptureSpec("lo", ((port, port),), loopback=True, spool_dir=str(tmp_path))


def connect(server: socket.socket, count: int) -> None:
    for _ in range(count):
        with socket.create_connection(server.getsockname()):
            server.accept()[0].close()


def status(pid: object) -> list[dict[str, str]]:
    """Of every thread of a process."""
    return [
        {name: value.strip() for name, _, value in (line.partition(":") for line in text.splitlines())}
        for text in (path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/status"))
    ]


# ---- who to become -----------------------------------------------------------------------------------------------


@needs_root
@pytest.mark.parametrize(
    ("environment", "identity"),
    [
        (PERSON, Identity(4321, 8765, person=True)),
        ({"SUDO_UID": "1", "SUDO_GID": "0"}, Identity(1, 0, person=True)),
        ({"SUDO_UID": str(pwd.getpwnam("daemon").pw_uid)}, Identity(*pwd.getpwnam("daemon")[2:4], person=True)),
        ({"SUDO_UID": "4321"}, Identity(4321, 65534, person=True)),
    ],
)
def test_root_becomes_who_called_sudo(environment: dict[str, str], identity: Identity) -> None:
    assert heir(environment) == identity


@needs_root
@pytest.mark.parametrize("uid", [None, "0", "", "-1", "root", "4294967295", "\u0663", " 5"])
def test_root_itself_becomes_nobody(uid: str | None) -> None:
    entry = pwd.getpwnam("nobody")
    assert heir({} if uid is None else {"SUDO_UID": uid, "SUDO_GID": "7"}) == Identity(entry.pw_uid, entry.pw_gid)


@needs_root
def test_a_system_without_an_entry_for_nobody_has_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(name: str) -> None:
        raise KeyError(name)

    monkeypatch.setattr(pwd, "getpwnam", unknown)
    assert heir({}) == Identity(65534, 65534)


def test_who_is_not_root_stays_who_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert heir(PERSON) is None


# ---- what is left ------------------------------------------------------------------------------------------------


def test_nothing_left_is_no_problem() -> None:
    assert left_over(EMPTY, Identity(4321, 8765)) == []
    assert left_over(EMPTY | {"Uid": "0 0 0 0"}, None) == []
    old_kernel = {name: value for name, value in EMPTY.items() if name not in ("NoNewPrivs", "CapAmb")}
    assert left_over(old_kernel, None) == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"CapInh": "0000000000002000"}, "CapInh is still 0000000000002000"),
        ({"CapPrm": "0000000000003000"}, "CapPrm is still 0000000000003000"),
        ({"CapEff": "0000000000000001"}, "CapEff is still 0000000000000001"),
        ({"CapAmb": "8000000000000000"}, "CapAmb is still 8000000000000000"),
        ({"NoNewPrivs": "0"}, "new ones could be gained by executing a file"),
        ({"Uid": "4321\t4321\t0\t4321"}, "Uid is 4321 4321 0 4321 and should be 4321"),
        ({"Gid": "0\t8765\t8765\t8765"}, "Gid is 0 8765 8765 8765 and should be 8765"),
        ({"Groups": "0 27"}, "supplementary groups are still 0 27"),
    ],
)
def test_each_right_that_is_left_is_named(change: dict[str, str], words: str) -> None:
    assert left_over(EMPTY | change, Identity(4321, 8765)) == [words]


# ---- giving up ---------------------------------------------------------------------------------------------------


def in_child(job: Callable[[], object]) -> object:
    """Rights that are gone do not come back: do it in a process that may lose them."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    child = context.Process(target=lambda: theirs.send(job()))
    child.start()
    theirs.close()
    try:
        return ours.recv()
    finally:
        child.join()


@needs_root
def test_root_has_no_way_back() -> None:
    def job() -> object:
        standing = give_up_rights(Identity(4321, 8765))
        refused = []
        for attempt in (
            lambda: os.setuid(0),
            lambda: os.setgid(0),
            lambda: os.setgroups([0]),
            lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0),
        ):
            try:
                attempt()
            except PermissionError:
                refused.append(True)
        return standing, refused, status("self")

    standing, refused, (facts,) = in_child(job)
    assert standing.runs_as == "uid 4321, gid 8765, no capabilities"
    assert standing.note is None
    assert refused == [True] * 4
    assert left_over(facts, Identity(4321, 8765)) == []
    assert int(facts["CapBnd"], 16) == 0


@needs_root
def test_other_systems_than_linux_set_both_ids_and_no_groups() -> None:
    def job() -> object:
        return privileges._elsewhere(Identity(4321, 8765)), os.getresuid(), os.getresgid(), os.getgroups()

    assert in_child(job) == (
        privileges.Standing("uid 4321, gid 8765"),
        (4321, 4321, 4321),
        (8765, 8765, 8765),
        [],
    )
    assert privileges._elsewhere(None) == privileges.Standing(None)


@needs_root
def test_a_thread_that_keeps_its_rights_is_noticed() -> None:
    """setresuid() is passed on to all threads by the C library, capset() is not."""

    def job() -> object:
        leave = threading.Event()
        threading.Thread(target=leave.wait, daemon=True).start()
        try:
            give_up_rights(None)
        except CaptureUnavailable as fault:
            return str(fault)
        finally:
            leave.set()
        return "given up"

    said = in_child(job)
    assert isinstance(said, str)
    assert said.startswith("cannot give up rights: CapPrm is still ")


@needs_root
def test_without_proc_nothing_is_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    def job() -> object:
        monkeypatch.setattr(privileges, "Path", lambda path: Path("/nonexistent", path.lstrip("/")))
        try:
            give_up_rights(None)
        except CaptureUnavailable as fault:
            return str(fault)
        return "given up"

    assert in_child(job) == (
        "cannot prove that rights were given up: /nonexistent/proc/self/task: No such file or directory"
    )


# ---- whose files -------------------------------------------------------------------------------------------------


@needs_root
def test_only_a_plain_file_of_ones_own_changes_hands(tmp_path: Path) -> None:
    person = Identity(4321, 8765, person=True)
    plain, theirs, linked, link, twin = (tmp_path / name for name in ("plain", "theirs", "linked", "link", "twin"))
    for path in (plain, theirs, linked):
        path.touch()
    os.chown(theirs, 99, 99)
    link.symlink_to(linked)
    os.link(linked, twin)
    device = tmp_path / "device"
    os.mknod(device, stat.S_IFCHR | 0o600, os.makedev(1, 3))
    for path in (plain, theirs, link, twin, tmp_path, tmp_path / "nosuch", device):
        hand_over(path, person)
    owner = {path.name: (path.stat().st_uid, path.stat().st_gid) for path in (plain, theirs, linked, tmp_path)}
    assert owner == {"plain": (4321, 8765), "theirs": (99, 99), "linked": (0, 0), tmp_path.name: (0, 0)}
    assert device.stat().st_uid == 0


# ---- the capture process -----------------------------------------------------------------------------------------


@pytest.mark.capture
@needs_root
@pytest.mark.parametrize("environment", [PERSON, {}], ids=["sudo", "root"])
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_the_capture_process_has_no_rights_when_it_is_ready_and_goes_on(
    spec: CaptureSpec,
    server: socket.socket,
    monkeypatch: pytest.MonkeyPatch,
    environment: dict[str, str],
    method: str,
) -> None:
    monkeypatch.delenv("SUDO_UID", raising=False)
    monkeypatch.delenv("SUDO_GID", raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    saved = Path(spec.spool_dir) / "saved.pcap"
    capture = CaptureProcess.start(
        replace(spec, write_path=str(saved)),
        multiprocessing.get_context(method),  # type: ignore[arg-type]
    )
    capture.wait_ready(timeout_s=15)
    identity = heir(os.environ)
    assert identity is not None
    for facts in status(capture.pid):
        assert left_over(facts, identity) == []
        assert (facts["Uid"].split()[0] == "0", facts["NoNewPrivs"]) == (False, "1")
        assert int(facts["CapBnd"], 16) == 0
    assert capture.note is None
    connect(server, 50)
    result = capture.finish(expected_answered=50)
    assert (result.died, result.dropped, result.books.answered) == (None, 0, 50)
    assert result.runs_as == f"uid {identity.uid}, gid {identity.gid}, no capabilities"
    assert len(read_spool(result.handshake_files[0], HANDSHAKE)) == 50
    assert saved.stat().st_size == 24 + 100 * (16 + 74)
    assert (saved.stat().st_uid, saved.stat().st_gid) == ((4321, 8765) if environment else (0, 0))


@pytest.mark.capture
@needs_root
def test_a_file_that_was_there_keeps_its_owner(spec: CaptureSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUDO_UID", "4321")
    saved = Path(spec.spool_dir) / "saved.pcap"
    saved.touch()
    capture = CaptureProcess.start(replace(spec, write_path=str(saved)))
    capture.wait_ready()
    capture.finish(expected_answered=0)
    assert saved.stat().st_uid == 0
    assert saved.stat().st_size == 24


WITHOUT_IMPORTS = """
import socket, sys
from ncps_capture import process
from ncps_capture.segments import CaptureSpec

class Refuse:
    def find_spec(self, name, path, target=None):
        raise AssertionError("imported " + name)

def give_up(identity, before=process.give_up_rights):
    standing = before(identity)
    sys.meta_path.insert(0, Refuse())
    return standing

process.give_up_rights = give_up
with socket.create_server(("127.0.0.1", 0)) as server:
    port = server.getsockname()[1]
    capture = process.CaptureProcess.start(
        CaptureSpec("lo", ((port, port),), loopback=True, spool_dir=sys.argv[1], write_path=sys.argv[1] + "/saved")
    )
    capture.wait_ready()
    for _ in range(20):
        with socket.create_connection(server.getsockname()):
            server.accept()[0].close()
    result = capture.finish(20)
    print(result.died, result.books.answered)
"""


@pytest.mark.capture
@needs_root
def test_nothing_is_imported_any_more_once_rights_are_gone(tmp_path: Path) -> None:
    """Who it is then may not be able to read the installation."""
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_IMPORTS, tmp_path], capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == ("None 20\n", "")


@pytest.mark.capture
@needs_root
def test_rights_that_cannot_be_given_up_are_a_capture_that_is_never_ready(
    spec: CaptureSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(privileges, "_become", lambda identity: None)
    capture = CaptureProcess.start(spec, multiprocessing.get_context("fork"))
    with pytest.raises(CaptureUnavailable, match=r"^cannot give up rights: Uid is 0 0 0 0 and should be \d+$"):
        capture.wait_ready()
    assert not capture.alive()


SCRIPT = """
import os, sys
from ncps_capture.process import CaptureProcess
from ncps_capture.segments import CaptureSpec
if sys.argv[2:]:
    os.setresuid(*[int(sys.argv[2])] * 3)
capture = CaptureProcess.start(CaptureSpec("lo", (), loopback=True, spool_dir=sys.argv[1]))
capture.wait_ready()
print(capture.note)
wanted = ("Uid", "CapInh", "CapPrm", "CapEff", "CapAmb", "CapBnd", "NoNewPrivs")
for line in open(f"/proc/{capture.pid}/status"):
    if line.split(":")[0] in wanted:
        print(line.strip().replace("\\t", " "))
print(capture.finish(0).runs_as)
"""


@pytest.mark.capture
@needs_root
@pytest.mark.skipif(shutil.which("setpriv") is None, reason="setpriv is not installed")
def test_root_that_may_not_become_anybody_keeps_its_name_alone(tmp_path: Path) -> None:
    """As in a container that was given the right to capture and no other."""
    without = "--bounding-set=-setuid,-setgid"
    done = subprocess.run(
        ["setpriv", without, sys.executable, "-c", SCRIPT, tmp_path], capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    note, *facts, runs_as = done.stdout.splitlines()
    assert note.startswith("the capture process may not become uid ")
    assert note.endswith(" here (Operation not permitted): it runs as root without capabilities")
    none = "0" * 16
    assert facts == [
        "Uid: 0 0 0 0",
        *(f"{name}: {none}" for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")),
        "NoNewPrivs: 1",
    ]
    assert runs_as == "uid 0, gid 0, no capabilities"


@pytest.mark.capture
@needs_root
@pytest.mark.skipif(shutil.which("setpriv") is None, reason="setpriv is not installed")
def test_a_person_with_the_right_to_capture_gives_it_up_and_stays(tmp_path: Path) -> None:
    """Capabilities that outlive execve() stand for those of the interpreter's file: it is the same process."""
    tmp_path.chmod(0o777)
    rights = "net_raw,net_admin"
    script = SCRIPT.replace("if sys", "import pcapy, ncps_capture.process\nif sys")
    granted = [
        *("setpriv", "--reuid=4321", "--clear-groups", f"--inh-caps=+{rights.replace(',', ',+')}"),
        f"--ambient-caps=+{rights.replace(',', ',+')}",
    ]
    # The installation may be for root's eyes alone; a right to read it is given up like the others.
    granted[-2:] = [f"{option},+dac_read_search" for option in granted[-2:]]
    done = subprocess.run(
        [*granted, sys.executable, "-c", script, tmp_path], capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    note, *facts, runs_as = done.stdout.splitlines()
    none = "0" * 16
    assert note == "None"
    assert facts[:4] == ["Uid: 4321 4321 4321 4321", *(f"{name}: {none}" for name in ("CapInh", "CapPrm", "CapEff"))]
    assert facts[-2:] == [f"CapAmb: {none}", "NoNewPrivs: 1"]
    assert runs_as == "uid 4321, gid 0, no capabilities"
