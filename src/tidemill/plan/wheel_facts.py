"""The properties of a wheel that decide whether it can answer a query."""

from __future__ import annotations

from dataclasses import dataclass

from tidemill.plan.nodes import WindowAggregate
from tidemill.windows.spec import GridWindow


@dataclass(frozen=True)
class HeldRing:
    """A ring of slots of one length, in ticks; slots before `since` were evicted."""

    ticks: int
    shown: str
    since: int


@dataclass(frozen=True)
class WheelFacts:
    """The properties of a wheel, without its contents.

    `held` describes the finest slots as a plan: columns, time, keys, aggregates. Rows below the watermark
    are in the rings, which are sorted from fine to coarse.
    """

    held: WindowAggregate
    rings: tuple[HeldRing, ...]
    watermark: int

    @property
    def grain(self) -> int:
        """The length of the finest slots in ticks."""
        spec = self.held.windows[0].spec
        assert isinstance(spec, GridWindow)
        return spec.slide
