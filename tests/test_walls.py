"""The walls between floors and rooms: kept by checks, and the checks are checked."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = {
    "capture": ROOT / "capture" / "ncps_capture",
    "analysis": ROOT / "analysis" / "ncps_analysis",
    "ncps_raw": ROOT / "ncps_raw",
}
MAX_LINES = 600


def tool(name: str) -> str:
    return str(Path(sys.executable).with_name(name))


RUFF = (tool("ruff"), "check", "--no-cache", "--select", "TID251")


def modules(folder: Path) -> list[Path]:
    return sorted(p for p in folder.rglob("*.py") if p.name not in ("__init__.py", "__main__.py"))


def dotted(path: Path) -> str:
    base = ROOT / "capture", ROOT / "analysis", ROOT
    inside = next(path.relative_to(b) for b in base if path.is_relative_to(b))
    return ".".join(inside.with_suffix("").parts)


def test_the_floors_import_downwards_only() -> None:
    done = subprocess.run([tool("lint-imports"), "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def banned(code: str, filename: str) -> list[str]:
    """Names that ruff's banned-api check refuses in ``code`` if it stood in ``filename``."""
    done = subprocess.run(
        [*RUFF, "--output-format", "json", "--stdin-filename", filename, "-"],
        cwd=ROOT,
        input=code,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, 1), done.stderr
    return [found["message"] for found in json.loads(done.stdout)]


def test_no_installed_module_imports_what_is_not_its_business() -> None:
    folders = [str(folder) for folder in PACKAGES.values()]
    done = subprocess.run(
        [*RUFF, *folders],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("name", "filename", "allowed"),
    [
        ("pcapy", "capture/ncps_capture/live.py", True),
        ("pcapy", "capture/ncps_capture/decode.py", False),
        ("scapy.all", "capture/ncps_capture/decode.py", False),
        ("scapy.all", "ncps_raw/plan.py", False),
        ("scapy.all", "tests/capture/test_decode.py", True),
        ("docopt", "ncps_raw/cli.py", True),
        ("docopt", "ncps_raw/dialect.py", False),
        ("socket", "ncps_raw/net.py", True),
        ("socket", "ncps_raw/engine/selector_client.py", True),
        ("socket", "ncps_raw/plan.py", False),
        ("socket", "analysis/ncps_analysis/join.py", False),
        ("argparse", "ncps_raw/dialect.py", False),
    ],
)
def test_the_ban_bites_where_it_should(name: str, filename: str, allowed: bool) -> None:
    assert (banned(f"import {name}\n", filename) == []) is allowed


def imported_by(statement: str, suspects: tuple[str, ...]) -> set[str]:
    code = f"import sys\n{statement}\nprint(*({set(suspects)!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


@pytest.mark.parametrize("floor", ["capture", "analysis"])
def test_saved_files_are_read_without_libpcap(floor: str) -> None:
    every = "; ".join(f"import {dotted(path)}" for path in modules(PACKAGES[floor]))
    assert imported_by(every, ("pcapy", "scapy", "docopt", "rich", "ncps_raw")) == set()


def test_the_load_never_imports_scapy_and_pcapy_only_when_it_captures() -> None:
    every = "; ".join(f"import {dotted(path)}" for path in modules(PACKAGES["ncps_raw"]))
    assert imported_by(every, ("pcapy", "scapy")) == set()


def test_the_command_line_starts_lean() -> None:
    heavy = ("pcapy", "scapy", "docopt", "numpy", "dpkt", "rich", "multiprocessing", "asyncio", "ssl")
    assert imported_by("import ncps_raw.cli", heavy) == set()
    help_text = "import io; sys.stdout, out = io.StringIO(), sys.stdout; import ncps_raw.cli as cli"
    assert imported_by(f"{help_text}; cli.main(['client', '--help']); sys.stdout = out", heavy[:2] + heavy[3:]) == set()


@pytest.mark.parametrize("floor", PACKAGES)
def test_each_module_has_a_test_file(floor: str) -> None:
    tests = {path.stem for path in (ROOT / "tests" / floor).rglob("test_*.py")}
    without = [
        str(path.relative_to(ROOT))
        for path in modules(PACKAGES[floor])
        if not {f"test_{path.stem}", f"test_{path.parent.name}_{path.stem}"} & tests
    ]
    assert without == []


def test_the_architecture_names_every_room() -> None:
    words = set(re.findall(r"[\w]+\.py", (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")))
    rooms = {path.name for folder in PACKAGES.values() for path in modules(folder)}
    assert rooms - words == set(), "rooms without a line in ARCHITECTURE.md"


def test_no_file_is_a_house_in_one_room() -> None:
    folders = [*PACKAGES.values(), *(ROOT / name for name in ("tests", "fixtures", "benchmarks"))]
    long = {
        str(path.relative_to(ROOT)): lines
        for folder in folders
        for path in folder.rglob("*.py")
        if (lines := len(path.read_text(encoding="utf-8").splitlines())) >= MAX_LINES
    }
    assert long == {}


def test_links_between_documents_lead_somewhere() -> None:
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]
    links = [
        (page, target)
        for page in pages
        for target in re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8"))
        if "://" not in target
    ]
    assert len(links) > 10
    assert [(page.name, target) for page, target in links if not (page.parent / target).exists()] == []


def test_fixtures_is_no_package() -> None:
    assert not (ROOT / "fixtures" / "__init__.py").exists()
