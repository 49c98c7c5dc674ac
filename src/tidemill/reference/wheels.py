"""The definition of a wheel: its answers, computed from rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tidemill.aggregates.layout import Layout
from tidemill.plan.nodes import WindowAggregate
from tidemill.reference.aggregates import Row, aggregate


@dataclass
class RowWheel:
    """A wheel that keeps all rows; its watermark is on the grid of the finest slots, in ticks."""

    plan: WindowAggregate
    grain: int
    watermark: int
    rows: list[Row] = field(default_factory=list)
    late: list[Row] = field(default_factory=list)

    def insert(self, row: Row) -> None:
        """Add a row; a row below the watermark is late."""
        time = row[self.plan.input.time]
        (self.late if time < self.watermark else self.rows).append(row)

    def advance_to(self, time: int) -> None:
        self.watermark = max(self.watermark, time // self.grain * self.grain)

    def query(
        self, start: int, end: int, key: tuple[Any, ...] = (), *, total: bool = False,
        layout: Layout | None = None,
    ) -> Row:  # fmt: skip
        """Compute the results over `[start, end)` below the watermark, for one key or as the total of all.

        `layout` replaces the results of the wheel by others.
        """
        source, end = self.plan.input, min(end, self.watermark)
        own = [
            (row[source.time], row)
            for row in self.rows
            if start <= row[source.time] < end
            and (total or tuple(row[k] for k in self.plan.group_keys) == key)
        ]
        return aggregate(layout or self.plan.layout, own, source.schema)
