"""Inputs that give the results of windows in place of rows. A wheel is one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator

from tidemill.io.chunks import Chunk
from tidemill.plan.nodes import WheelWindows
from tidemill.plan.wheel_facts import WheelFacts


class WindowSource(ABC):
    """An input without rows, which the rule `use_wheel` puts in place of the windows over them."""

    @abstractmethod
    def facts(self) -> WheelFacts:
        """What the optimizer must know to decide whether a query can be answered."""

    @abstractmethod
    def read_windows(self, node: WheelWindows) -> Iterator[Chunk]:
        """The windows that a plan asks for, as rows with promises, in order of time."""
