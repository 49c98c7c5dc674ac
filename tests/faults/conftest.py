"""What the machines of this directory share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.wheels_made import MAKERS
from tidemill.local import checkpoint_directory


@pytest.fixture(scope="session")
def saved_wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A saved wheel of every kind."""
    path: Path = tmp_path_factory.mktemp("made")
    for kind, make in MAKERS.items():
        make(path / kind)
    return path


@pytest.fixture
def seldom_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Checkpoints write changes also where a state so small would be written whole again."""
    monkeypatch.setattr(checkpoint_directory, "MOST_CHANGES", 1.2)
