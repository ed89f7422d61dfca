"""What tests of whole runs share."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from running import shared_memory_of_the_dead


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of its own for whatever a run puts down; it must be empty in the end, and no shared memory left."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    yield folder
    assert list(folder.iterdir()) == []
    assert shared_memory_of_the_dead() == []
