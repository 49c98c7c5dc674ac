"""What a plan must know of a wheel to be answered by it."""

from __future__ import annotations

from dataclasses import dataclass

from tidemill.plan.nodes import WindowAggregate
from tidemill.windows.spec import GridWindow


@dataclass(frozen=True)
class HeldRing:
    """Slots of one length, in ticks; those before `since` were dropped."""

    ticks: int
    shown: str
    since: int


@dataclass(frozen=True)
class WheelFacts:
    """A wheel without what is in it.

    `held` is what its finest slots hold, as a plan: columns, time, keys, aggregates. Rows below the
    watermark are in the rings, which go from fine to coarse.
    """

    held: WindowAggregate
    rings: tuple[HeldRing, ...]
    watermark: int

    @property
    def grain(self) -> int:
        """Ticks of the finest slots."""
        spec = self.held.windows[0].spec
        assert isinstance(spec, GridWindow)
        return spec.slide
