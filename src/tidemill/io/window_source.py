"""The interface of inputs that provide results of windows instead of rows, such as a wheel."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator

from tidemill.io.chunks import Chunk
from tidemill.plan.nodes import WheelWindows
from tidemill.plan.wheel_facts import WheelFacts


class WindowSource(ABC):
    """An input without rows; the rule `use_wheel` reads windows from it instead of computing them."""

    @abstractmethod
    def facts(self) -> WheelFacts:
        """Return the properties that decide whether this input can answer a query."""

    @abstractmethod
    def read_windows(self, node: WheelWindows) -> Iterator[Chunk]:
        """Yield the windows of a node as chunks with watermarks, in order of time."""
