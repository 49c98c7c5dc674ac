"""Physical choices: how an engine computes a node, kept beside the plan and never in it.

A choice is a frozen value that a pure function of `optimize` derives from a node (`optimize/choices.py`).
It changes how fast an answer comes, never the answer.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Panes:
    """The shared grid that all windows of a node are made of (`optimize/share_panes.py`)."""

    origin: int
    size: int


@dataclass(frozen=True)
class WindowChoices:
    """How a window aggregate is computed."""

    panes: Panes
    sliding: tuple[str, ...]
    """For each part of the state, how it moves from one window to the next (`optimize/choose_sliding.py`)."""

    def __str__(self) -> str:
        return f"panes={self.panes.size} sliding=[{', '.join(dict.fromkeys(self.sliding))}]"
