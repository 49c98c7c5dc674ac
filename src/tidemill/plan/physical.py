"""Physical choices: how an engine computes a node. They are not part of the plan.

A choice is a frozen value that a pure function of `optimize` derives from a node (`optimize/choices.py`).
It affects the speed of a query, never its result.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidemill.windows.spec import Calendar


@dataclass(frozen=True)
class Panes:
    """The grid of panes that all windows of a node share (`optimize/share_panes.py`)."""

    origin: int
    size: int
    axis: Calendar | None = None
    """If given, panes are the windows of this calendar, by their ids, and not stretches of equal length."""

    def __str__(self) -> str:
        return str(self.size) if self.axis is None else str(self.axis)


@dataclass(frozen=True)
class WindowChoices:
    """How a window aggregate is computed."""

    panes: Panes
    sliding: tuple[str, ...]
    """The algorithm that moves each part of the state to the next window (`optimize/choose_sliding.py`)."""

    def __str__(self) -> str:
        return f"panes={self.panes} sliding=[{', '.join(dict.fromkeys(self.sliding))}]"
