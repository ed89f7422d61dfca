"""The pages say each thing once, and their links lead somewhere: what a merge of two texts would break."""

import re
from pathlib import Path

import pytest

PAGES = sorted((Path(__file__).parent.parent / "docs").glob("*.md"))


def prose(page: Path) -> str:
    """Without what stands between fences."""
    return re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)


def headings(page: Path) -> list[str]:
    return re.findall(r"^#+ (.+)$", prose(page), re.M)


def anchor(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_no_heading_and_no_row_of_a_table_stands_twice(page: Path) -> None:
    assert len(headings(page)) == len(set(headings(page)))
    for table in re.findall(r"(?:^\|.*\n)+", prose(page) + "\n", re.M):
        rows = [line.split(" | ")[0] for line in table.splitlines()]
        named = [row for row in rows if row.strip("| -")]
        assert len(named) == len(set(named)), named


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for name, place in re.findall(r"\]\(([\w./-]*)(?:#([\w-]+))?\)", prose(page)):
        target = page.parent / name if name else page
        assert target.exists(), name
        if place:
            assert place in [anchor(heading) for heading in headings(target)], f"{name}#{place}"
