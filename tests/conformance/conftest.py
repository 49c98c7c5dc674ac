"""What the suite shares."""

from __future__ import annotations

import pytest

from tidemill.local import checkpoint_directory


@pytest.fixture(autouse=True)
def seldom_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Checkpoints write changes also where a state so small would be written whole again."""
    monkeypatch.setattr(checkpoint_directory, "MOST_CHANGES", 1000)
