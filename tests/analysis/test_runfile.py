import json
import os
import resource
import stat
import string
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_runs import EPOCH, MONOTONIC, Made, S, clean, finish, interval, lossy, rows
from ncps_analysis.records import CONNECTION, CONNECTION_2, ClockOffset, ClockPairs, Interval
from ncps_analysis.render import ncps, text
from ncps_analysis.runfile import RunWriter, load_run
from ncps_analysis.summary import build_report
from ncps_capture.errors import FileFault
from ncps_capture.segments import HANDSHAKE, UNKNOWN, Books
from ncps_capture.spool import SpoolWriter, read_spool


def spooled(made: Made, folder: Path, pieces: int = 2):
    """The run of ``made`` with its rows in files, as a session leaves it."""

    def files(kind, dtype, content):
        paths = [str(folder / f"{kind}-of-worker-{n}") for n in range(pieces)]
        for path, part in zip(paths, np.array_split(content, pieces), strict=True):
            with SpoolWriter(path, dtype) as writer:
                writer.append(part)
        return tuple(paths)

    run = replace(made.run, connection_files=files("connections", CONNECTION, made.records))
    if run.wire is None:
        return run
    return replace(run, wire=replace(run.wire, handshake_files=files("handshakes", HANDSHAKE, made.handshakes)))


def saved(run, path: Path) -> Path:
    with RunWriter(path) as writer:
        writer.save(run)
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "spools"
    made.mkdir()
    return made


@pytest.fixture
def scratch(tmp_path: Path) -> str:
    made = tmp_path / "scratch"
    made.mkdir()
    return str(made)


def without_files(run):
    return replace(run, connection_files=(), clock=None, wire=run.wire and replace(run.wire, handshake_files=()))


RUNS = {
    "captured": lossy(300, notes=("limits\nclamped", "é\udcff"), first_errors=((111, 10, -5, 1 << 62),)),
    "kernel": finish(lossy(300).records, None, capture_problem="no right", planned_s=None, interrupted="SIGINT"),
    "drops unknown": lossy(300, wire={"dropped": None, "died": "killed", "books": Books(unsupported_linktypes={9: 3})}),
    "rows": clean(3, intervals=(interval(1.0), interval(1 / 3, retransmits=None, clean=None, source="wire"))),
    "nothing": clean(0),
}


@pytest.mark.parametrize("name", RUNS)
def test_everything_comes_back(name: str, folder: Path, scratch: str, tmp_path: Path) -> None:
    run = spooled(RUNS[name], folder)
    loaded = load_run(saved(run, tmp_path / "r.ncps"), scratch)
    assert without_files(loaded) == without_files(run)
    assert np.array_equal(loaded.clock.monotonic_ns, run.clock.monotonic_ns)
    assert np.array_equal(loaded.clock.realtime_ns, run.clock.realtime_ns)
    pairs = list(zip(run.connection_files, loaded.connection_files, strict=True))
    if run.wire is not None:
        pairs += zip(run.wire.handshake_files, loaded.wire.handshake_files, strict=True)
    for before, after in pairs:
        assert Path(before).read_bytes() == Path(after).read_bytes()
        assert Path(after).parent == Path(scratch)
    assert build_report(loaded, scratch) == build_report(run, str(folder))


@settings(max_examples=30, deadline=None)
@given(
    rows_=st.lists(
        st.builds(
            interval,
            st.floats(0, 1e9),
            seconds=st.just(0.0) | st.floats(1e-9, 1e9),
            rx_bytes=st.integers(0, 1 << 62),
            clean_rtt_us=st.none() | st.integers(0, 1 << 40),
            ports_wrapped=st.booleans(),
        ),
        max_size=5,
    ),
    text=st.text(st.characters(exclude_categories=("Cc", "Cf", "Zl", "Zp")), max_size=20),
    clock=st.lists(
        st.tuples(st.integers(0, (1 << 62) - 1), st.integers(0, (1 << 62) - 1)),
        min_size=1,
        max_size=4,
        unique_by=lambda pair: pair[0],
    ).map(sorted),
)
def test_any_figures_come_back_to_the_last_bit(tmp_path_factory, rows_: list[Interval], text: str, clock) -> None:
    folder = tmp_path_factory.mktemp("run")
    pairs = np.array(clock, np.int64)
    run = replace(
        clean(0).run, intervals=tuple(rows_), target=text, clock=ClockPairs(pairs[:, 0], pairs[:, 1]), wire=None
    )
    loaded = load_run(saved(run, folder / "r"), str(folder))
    assert (loaded.intervals, loaded.target) == (tuple(rows_), text)
    assert np.array_equal(loaded.clock.realtime_ns, pairs[:, 1])


def test_any_program_can_read_it(folder: Path, tmp_path: Path) -> None:
    """An archive of text and of spools whose headers name their columns."""
    run = spooled(lossy(100), folder)
    with zipfile.ZipFile(saved(run, tmp_path / "r.ncps")) as archive:
        assert archive.testzip() is None
        assert archive.namelist()[0] == "run.json"
        facts = json.loads(archive.read("run.json"))
        assert (facts["format"], facts["version"]) == ("ncps run", 3)
        assert facts["run"]["target"] == "127.0.0.2"
        found = 0
        for number, promise in enumerate(facts["run"]["connection_files"]):
            content = archive.read(f"connections-{number}.spool")
            magic, columns, body = content.split(b"\n", 2)
            assert magic == b"ncps spool 1"
            assert json.loads(columns)[:2] == [["intended_ns", "<i8"], ["start_ns", "<i8"]]
            assert promise == {"bytes": len(content), "rows": len(body) // CONNECTION.itemsize}
            found += promise["rows"]
    assert found == 100


# ---- where it may not be written ---------------------------------------------------------------------------


def parts(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name.endswith(".part"))


def test_until_it_is_saved_what_was_there_stays(tmp_path: Path) -> None:
    path = tmp_path / "r.ncps"
    path.write_text("before")
    with RunWriter(path):
        assert path.read_text() == "before"
        assert len(parts(tmp_path)) == 1
    assert path.read_text() == "before"
    assert parts(tmp_path) == []


def test_it_replaces_what_was_there_and_follows_a_link(folder: Path, scratch: str, tmp_path: Path) -> None:
    real, link = tmp_path / "real", tmp_path / "link"
    real.write_text("before")
    link.symlink_to(real)
    saved(spooled(clean(3), folder), link)
    assert link.is_symlink()
    assert load_run(real, scratch).attempted == 3
    assert stat.S_IMODE(real.stat().st_mode) == 0o666 & ~_umask()
    assert parts(tmp_path) == []


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def refused(path: Path) -> str:
    with pytest.raises(FileFault) as caught:
        RunWriter(path)
    message = str(caught.value)
    assert str(path) in message
    assert "\n" not in message
    return message


def test_what_cannot_be_written_is_said_before_the_run(tmp_path: Path) -> None:
    assert "No such file or directory; choose another file" in refused(tmp_path / "absent" / "r.ncps")
    assert "not a regular file" in refused(tmp_path)
    assert "not a regular file" in refused(Path("/dev/null"))
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)
    os.mkfifo(tmp_path / "fifo")
    assert "not a regular file" in refused(tmp_path / "fifo")
    assert "null byte" in refused(Path("a\0b"))
    assert "File name too long" in refused(tmp_path / ("x" * 250))


def test_a_disk_that_fills_is_told_in_one_line_and_nothing_is_left(folder: Path, tmp_path: Path) -> None:
    random = np.frombuffer(np.random.default_rng(1).bytes(4000 * CONNECTION.itemsize), CONNECTION)
    run = spooled(Made(clean(0).run, random, clean(0).handshakes), folder)
    path = tmp_path / "r.ncps"
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with RunWriter(path) as writer:
        resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, before[1]))
        try:
            with pytest.raises(FileFault, match=r"cannot write .*r\.ncps: File too large; the run is not saved"):
                writer.save(run)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert [path.name for path in tmp_path.iterdir()] == ["spools"]


# ---- what is no run ----------------------------------------------------------------------------------------


def fault(path: Path, scratch: str) -> str:
    with pytest.raises(FileFault) as caught:
        load_run(path, scratch)
    message = str(caught.value)
    assert message.startswith(f"cannot read {path}")
    assert "\n" not in message
    return message.removeprefix(f"cannot read {path}")


def test_files_that_are_no_run_are_named(tmp_path: Path, scratch: str) -> None:
    assert fault(tmp_path / "absent", scratch) == (
        ": No such file or directory; check the name, and the folder this runs in"
    )
    assert fault(tmp_path, scratch) == ": Is a directory; name a file that a client saved with --run"
    for content in (b"", b"text", b"\xd4\xc3\xb2\xa1" + bytes(20)):
        (tmp_path / "foreign").write_bytes(content)
        assert (
            fault(tmp_path / "foreign", scratch)
            == ": it is not a saved run; name a file that a client saved with --run"
        )
    with zipfile.ZipFile(tmp_path / "other.zip", "w") as archive:
        archive.writestr("a.txt", "text")
    assert (
        fault(tmp_path / "other.zip", scratch) == ": it is not a saved run; name a file that a client saved with --run"
    )


def changed(run, path: Path, change) -> Path:
    """A saved run whose ``run.json`` was changed by ``change``."""
    saved(run, path)
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    facts = json.loads(members["run.json"])
    members["run.json"] = change(facts) or json.dumps(facts)
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            if content is not None:
                archive.writestr(name, content)
    return path


def put(*keys, value):
    def change(facts):
        for key in keys[:-1]:
            facts = facts[key]
        facts[keys[-1]] = value

    return change


def drop(*keys):
    def change(facts):
        for key in keys[:-1]:
            facts = facts[key]
        del facts[keys[-1]]

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (put("format", value="another"), ": it is not a saved run; name a file that a client saved with --run"),
        (
            put("version", value=1),
            ": it has format 1, this program reads 2 and 3; use the version of ncps that saved it",
        ),
        (put("version", value="\x1b[2J\n"), ": it is damaged: version is '\\x1b[2J\\n'"),
        (drop("run"), ": it is damaged: run.json has no run"),
        (lambda facts: "{", ": it is damaged: "),
        (lambda facts: "[]", ": it is not a saved run; name a file that a client saved with --run"),
        (lambda facts: b"\xff\xff", ": it is damaged: "),
        (lambda facts: "[" * 100_000, ": it is damaged: "),
        (put("run", "role", value="judge"), ": it is damaged: run.role is 'judge'"),
        (put("run", "threads", value="4"), ": it is damaged: run.threads is '4'"),
        (put("run", "threads", value=True), ": it is damaged: run.threads is 'True'"),
        (put("run", "t0_ns", value=1 << 63), ": it is damaged: run.t0_ns is '9223372036854775808'"),
        (put("run", "warmup_s", value=None), ": it is damaged: run.warmup_s is 'None'"),
        (put("run", "paths", value=[["127.0.0.1"]]), ": it is damaged: run.paths[] is \"['127.0.0.1']\""),
        (put("run", "paths", value=[["here", "there"]]), ": it is damaged: cannot read the address 'here'"),
        (put("run", "clock", "monotonic_ns", value=[]), ": it is damaged: run.clock has no pairs"),
        (put("run", "clock", value={"monotonic_ns": [], "realtime_ns": []}), ": it is damaged: run.clock has no pairs"),
        (put("run", "wire", "books", "syn", value=1.5), ": it is damaged: run.wire.books.syn is '1.5'"),
        (put("run", "wire", "surprise", value=1), ": it is damaged: run.wire has an unknown field, 'surprise'"),
        (put("run", "wire", value=[]), ": it is damaged: run.wire is no record"),
        (drop("run", "target"), ": it is damaged: run.target is missing"),
        (put("run", "connection_files", value=3), ": it is damaged: the list of its spools of connections is '3'"),
        (
            put("run", "connection_files", value=[{"bytes": 1, "rows": 1}] * 3),
            ": it is damaged: connections-0.spool has",
        ),
        (put("run", "connection_files", value=["/etc/passwd"]), ": it is damaged: the size of connections-0.spool is"),
        (put("run", "wire", "handshake_files", value=[{}]), ": it is damaged: the size of handshakes-0.spool is '{}'"),
        (
            put("run", "wire", "handshake_files", value=[{}] * 65_537),
            ": it is damaged: the list of its spools of handshakes",
        ),
    ],
)
def test_a_changed_run_is_refused_in_one_line(change, message: str, folder: Path, scratch: str, tmp_path: Path) -> None:
    assert fault(changed(spooled(clean(3), folder), tmp_path / "r.ncps", change), scratch).startswith(message)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (put("run", "end_ns", value=MONOTONIC - 1), "run.end_ns is 4999999999999, before run.t0_ns, 5000000000000"),
        (put("run", "t0_ns", value=1 << 62), "run.t0_ns is 4611686018427387904, which no clock shows"),
        (put("run", "t0_ns", value=-1), "run.t0_ns is -1, which no clock shows"),
        (put("run", "t0_ns", value=UNKNOWN), "run.t0_ns is -"),
        (put("run", "end_ns", value=1 << 62), "run.end_ns is 4611686018427387904, which no clock shows"),
        (put("run", "record_start_ns", value=MONOTONIC - 1), "run.record_start_ns is 4999999999999, which is not with"),
        (put("run", "record_start_ns", value=MONOTONIC + 11 * S), "run.record_start_ns is 5011000000000, which is not"),
        (put("run", "warmup_s", value=-1), "run.warmup_s is -1.0"),
        (put("run", "planned_s", value=-0.5), "run.planned_s is -0.5"),
        (put("run", "intervals", 0, "seconds", value=-1), "run.intervals[] has one of -1.0 s at 1.0 s"),
        (put("run", "intervals", 0, "seconds", value=5e-324), "run.intervals[] has one of 5e-324 s at 1.0 s"),
        (put("run", "intervals", 0, "t_s", value=-1), "run.intervals[] has one of 1.0 s at -1.0 s"),
        (put("run", "wire", "last_t_ns", value=1 << 62), "run.wire.last_t_ns is 4611686018427387904, which no clock"),
        (put("run", "clock", value={"monotonic_ns": [1, 2], "realtime_ns": [1]}), "run.clock has no pairs"),
        (put("run", "clock", value={"monotonic_ns": [2, 1], "realtime_ns": [1, 2]}), "run.clock.monotonic_ns does not"),
        (put("run", "clock", value={"monotonic_ns": [1, 1], "realtime_ns": [1, 2]}), "run.clock.monotonic_ns does not"),
        (put("run", "clock", value={"monotonic_ns": [1 << 62], "realtime_ns": [1]}), "run.clock.monotonic_ns has a ti"),
        (put("run", "clock", value={"monotonic_ns": [1], "realtime_ns": [-1]}), "run.clock.realtime_ns has a time"),
        (put("run", "paths", value=[]), "run.paths is empty, but there are connections"),
    ],
)
def test_times_and_paths_that_no_run_has_are_refused(
    change, message: str, folder: Path, scratch: str, tmp_path: Path
) -> None:
    run = spooled(clean(3, intervals=(interval(1.0),)), folder)
    assert fault(changed(run, tmp_path / "r.ncps", change), scratch).startswith(f": it is damaged: {message}")
    assert list(Path(scratch).iterdir()) == []


def test_a_run_without_connections_needs_no_paths_and_no_recorded_time(
    folder: Path, scratch: str, tmp_path: Path
) -> None:
    run = spooled(clean(0, paths=(), record_start_ns=UNKNOWN, end_ns=MONOTONIC), folder)
    assert build_report(load_run(saved(run, tmp_path / "r.ncps"), scratch), scratch) == build_report(run, str(folder))


ORDERS = "\x1b[2J\x1b]0;title\x07 \x9b31m \x00\x08\x7f \u202egnp.exe\u2066"
HARMLESS = "?[2J?]0;title? ?31m ??? ?gnp.exe?"


@pytest.mark.parametrize(
    "keys",
    [
        *(("run", name) for name in ("command_line", "version", "target", "mode", "engine")),
        *(("run", name) for name in ("capture_problem", "interrupted")),
        *(("run", name, 0) for name in ("notes", "faults")),
        *(("run", "wire", name) for name in ("interface", "link_type", "filter_text", "vantage", "level", "file")),
        *(("run", "wire", name) for name in ("died", "write_problem", "runs_as")),
        ("run", "intervals", 0, "source"),
    ],
)
def test_text_gives_a_terminal_no_orders(keys, folder: Path, scratch: str, tmp_path: Path) -> None:
    """Ends of line stay in sentences alone: a view puts those into one line."""
    run = spooled(clean(3, notes=("a",), faults=("b",), intervals=(interval(1.0),)), folder)
    loaded = load_run(changed(run, tmp_path / "r.ncps", put(*keys, value=f"{ORDERS}\r\n\u2028.")), scratch)
    found = loaded
    for key in keys[1:]:
        found = found[key] if isinstance(key, int) else getattr(found, key)
    sentence = {"capture_problem", "notes", "faults", "died", "write_problem"} & set(keys)
    assert found == HARMLESS + ("\r\n\u2028." if sentence else "???.")
    report = build_report(loaded, scratch)
    shown = text.report(report) + ncps.report(report) + "".join(map(text.interval_row, loaded.intervals))
    assert not set(shown) & (set(ORDERS + "\r\u2028") - set(string.printable)), shown
    assert "\r" not in shown


FLOATS = {
    "run.planned_s": lambda run: (run, "planned_s"),
    "run.warmup_s": lambda run: (run, "warmup_s"),
    "run.intervals[].seconds": lambda run: (run["intervals"][0], "seconds"),
    "run.intervals[].t_s": lambda run: (run["intervals"][0], "t_s"),
    "run.wire.offset.drift_ppm": lambda run: (run["wire"]["offset"], "drift_ppm"),
}


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity", "1e999", "1e300", "1" + "0" * 400])
@pytest.mark.parametrize("where", FLOATS)
def test_figures_that_are_no_numbers_are_refused(
    where: str, text: str, folder: Path, scratch: str, tmp_path: Path
) -> None:
    def change(facts):
        record, key = FLOATS[where](facts["run"])
        record[key] = "here"
        return json.dumps(facts).replace('"here"', text)

    offset = ClockOffset(offset_ns=1, low_ns=0, high_ns=2, n=3, drift_ppm=0.5, at_ns=EPOCH)
    run = spooled(clean(3, intervals=(interval(1.0),), wire={"offset": offset}), folder)
    said = fault(changed(run, tmp_path / "r.ncps", change), scratch)
    assert said.startswith(f": it is damaged: {where} is '")


def test_a_run_of_format_2_is_read_as_one_without_a_schedule(folder: Path, scratch: str, tmp_path: Path) -> None:
    made = clean(5)
    made.records["intended_ns"] = 7  # so that it is seen where it comes from
    run = spooled(made, folder)
    older = []
    for number, path in enumerate(run.connection_files):
        older.append(str(folder / f"older-{number}"))
        rows = np.empty(len(read_spool(path, CONNECTION)), CONNECTION_2)
        for name in CONNECTION_2.names or ():
            rows[name] = read_spool(path, CONNECTION)[name]
        with SpoolWriter(older[-1], CONNECTION_2) as writer:
            writer.append(rows)

    def name_two(facts):
        facts["version"] = 2
        del facts["run"]["schedule"]
        return json.dumps(facts)

    path = changed(run, tmp_path / "r.ncps", name_two)
    with zipfile.ZipFile(path) as archive:
        facts = json.loads(archive.read("run.json"))
    for promise, name in zip(facts["run"]["connection_files"], older, strict=True):
        promise["bytes"] = Path(name).stat().st_size
    with zipfile.ZipFile(path) as archive:
        others = {name: archive.read(name) for name in archive.namelist() if not name.startswith(("run.", "conn"))}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("run.json", json.dumps(facts))
        for number, name in enumerate(older):
            archive.write(name, f"connections-{number}.spool")
        for name, content in others.items():
            archive.writestr(name, content)
    loaded = load_run(path, scratch)
    assert loaded.schedule is None
    rows = np.concatenate([read_spool(name, CONNECTION) for name in loaded.connection_files])
    made.records["intended_ns"] = UNKNOWN
    assert (rows == made.records).all()
    assert sorted(p.suffix for p in Path(scratch).iterdir()) == [".spool"] * (2 + len(others))


def test_what_later_versions_add_with_a_default_may_be_absent(folder: Path, scratch: str, tmp_path: Path) -> None:
    path = changed(spooled(clean(3), folder), tmp_path / "r.ncps", drop("run", "notes"))
    assert load_run(path, scratch).notes == ()


class Zeros:
    """A member's content and then a gibibyte of zeros, which take a megabyte in the archive."""

    def __init__(self, content: bytes) -> None:
        self.content = content

    def write(self, archive: zipfile.ZipFile, name: str) -> None:
        with archive.open(name, "w") as member:
            member.write(self.content)
            for _ in range(1 << 10):
                member.write(bytes(1 << 20))


def rewritten(run, path: Path, name: str, change, **promise) -> Path:
    """A saved run with one spool changed, its checksum right; ``promise`` changes what ``run.json`` says of it."""
    saved(run, path)
    with zipfile.ZipFile(path) as archive:
        members = {each: archive.read(each) for each in archive.namelist()}
    facts = json.loads(members["run.json"])
    of_kind = facts["run"]["connection_files"] if "conn" in name else facts["run"]["wire"]["handshake_files"]
    of_kind[0].update({key: value(of_kind[0][key]) for key, value in promise.items()})
    members["run.json"] = json.dumps(facts).encode()
    content = change(members.pop(name))
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for each, whole in members.items():
            archive.writestr(each, whole)
        if isinstance(content, Zeros):
            content.write(archive, name)
        else:
            archive.writestr(name, content)
    return path


SPOOLS = ("connections-0.spool", "handshakes-0.spool")


@pytest.mark.parametrize("name", SPOOLS)
@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda content: content[:-7], id="cut within a row"),
        pytest.param(lambda content: content[: len(content) // 2], id="cut in half"),
        pytest.param(lambda content: content[: -CONNECTION.itemsize * HANDSHAKE.itemsize], id="rows missing"),
        pytest.param(lambda content: content + bytes(CONNECTION.itemsize * HANDSHAKE.itemsize), id="rows too many"),
        pytest.param(lambda content: b"", id="empty"),
    ],
)
def test_a_spool_of_another_size_is_refused(change, name: str, folder: Path, scratch: str, tmp_path: Path) -> None:
    """Whatever its checksum says."""
    run = spooled(clean(1000), folder)
    said = fault(rewritten(run, tmp_path / "r.ncps", name, change), scratch)
    assert said.startswith(f": it is damaged: {name} has ")
    assert said.endswith(" when it was saved")
    assert list(Path(scratch).iterdir()) == []  # seen before anything is unpacked


@pytest.mark.parametrize("name", SPOOLS)
@pytest.mark.parametrize(
    ("change", "promise"),
    [
        pytest.param(lambda c: c[:-7], {"bytes": lambda size: size - 7}, id="bytes agree"),
        pytest.param(lambda c: c, {"rows": lambda rows: rows - 1}, id="fewer rows"),
        pytest.param(lambda c: c, {"rows": lambda rows: rows + 1}, id="more rows"),
        pytest.param(lambda c: c, {"rows": lambda rows: -rows}, id="negative"),
        pytest.param(lambda c: c, {"rows": lambda rows: 1.5}, id="no whole number"),
    ],
)
def test_rows_that_do_not_fill_the_bytes_are_refused(
    change, promise, name: str, folder: Path, scratch: str, tmp_path: Path
) -> None:
    run = spooled(clean(1000), folder)
    said = fault(rewritten(run, tmp_path / "r.ncps", name, change, **promise), scratch)
    assert said.startswith(": it is damaged: ")
    assert name in said


def test_zeros_behind_the_rows_are_not_unpacked(folder: Path, scratch: str, tmp_path: Path) -> None:
    path = rewritten(spooled(clean(100), folder), tmp_path / "r.ncps", SPOOLS[0], Zeros)
    assert path.stat().st_size < 10 << 20
    assert ": it is damaged: connections-0.spool has 1073" in fault(path, scratch)
    assert list(Path(scratch).iterdir()) == []
    content = path.read_bytes()
    small = (len(Path(spooled(clean(100), folder).connection_files[0]).read_bytes())).to_bytes(4, "little")
    large = ((1 << 30) + int.from_bytes(small, "little")).to_bytes(4, "little")
    assert content.count(large) >= 1
    path.write_bytes(content.replace(large, small))  # the archive itself lies about the size
    assert ": it is damaged: " in fault(path, scratch)
    assert sum(file.stat().st_size for file in Path(scratch).iterdir()) < 1 << 20


def test_a_member_packed_in_another_way_is_refused(folder: Path, scratch: str, tmp_path: Path) -> None:
    path = saved(spooled(clean(3), folder), tmp_path / "r.ncps")
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_LZMA) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    assert fault(path, scratch) == ": it is damaged: run.json is packed in a way that no run is"


def test_a_piece_of_a_row_that_a_killed_worker_left_is_not_saved(folder: Path, scratch: str, tmp_path: Path) -> None:
    run = spooled(clean(10), folder)
    whole = Path(run.connection_files[0]).read_bytes()
    Path(run.connection_files[0]).write_bytes(whole + bytes(7))
    loaded = load_run(saved(run, tmp_path / "r.ncps"), scratch)
    assert Path(loaded.connection_files[0]).read_bytes() == whole
    assert build_report(loaded, scratch) == build_report(run, str(folder))


def test_rows_of_other_columns_are_refused(folder: Path, scratch: str, tmp_path: Path) -> None:
    run = spooled(clean(3), folder)
    with SpoolWriter(run.connection_files[0], np.dtype([("old", "<i8")])) as writer:
        writer.append(np.zeros(3, np.dtype([("old", "<i8")])))
    message = fault(saved(run, tmp_path / "r.ncps"), scratch)
    assert message == " (connections-0.spool): its rows have other columns; it was written by another version"


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_no_damage_is_read_as_another_run(tmp_path_factory, data) -> None:
    """One byte changed, or the end missing: one line says so, or nothing that matters has changed."""
    folder = tmp_path_factory.mktemp("run")
    records, handshakes = rows(20)
    run = spooled(finish(records, handshakes), folder)
    content = bytearray(saved(run, folder / "r.ncps").read_bytes())
    if data.draw(st.booleans()):
        at = data.draw(st.integers(0, len(content) - 1))
        content[at] ^= data.draw(st.integers(1, 255))
    else:
        del content[data.draw(st.integers(0, len(content) - 1)) :]
    (folder / "damaged").write_bytes(content)
    (folder / "scratch").mkdir()
    try:
        loaded = load_run(folder / "damaged", str(folder / "scratch"))
    except FileFault as error:
        said = str(error)
    else:
        said = ""
    if said:
        assert "\n" not in said
        assert str(folder / "damaged") in said
        return
    assert without_files(loaded) == without_files(run)
    assert np.array_equal(np.concatenate([read_spool(p, CONNECTION) for p in loaded.connection_files]), records)
