"""What a wheel answers, from docs/wheels.md: rows as they come, a watermark on the grid, ranges below it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.fuzz.oracle.aggregates import aggregate

Row = dict[str, Any]


@dataclass
class RowWheel:
    """The rows that were not late, those that were, and how far time is complete."""

    aggs: dict[str, Any]
    keys: list[str]
    grain: int
    watermark: int
    rows: list[Row] = field(default_factory=list)
    late: list[Row] = field(default_factory=list)

    def insert(self, rows: list[Row]) -> None:
        for row in rows:
            (self.late if row["t"] < self.watermark else self.rows).append(row)

    def advance_to(self, time: int) -> None:
        self.watermark = max(self.watermark, time // self.grain * self.grain)

    def merge(self, other: RowWheel) -> None:
        self.rows += other.rows
        self.watermark = max(self.watermark, other.watermark)

    def complete(self) -> list[Row]:
        """The rows that count, for a query with windows."""
        return [row for row in self.rows if row["t"] < self.watermark]

    def query(self, start: int, end: int, key: tuple[Any, ...]) -> Row:
        own = [
            (row["t"], row.__getitem__)
            for row in self.complete()
            if start <= row["t"] < end and all(_same_key(row[k], v) for k, v in zip(self.keys, key))
        ]
        return {name: aggregate(agg, own, "t") for name, agg in self.aggs.items()}

    def known_keys(self) -> list[tuple[Any, ...]]:
        found = {repr([r[k] for k in self.keys]): tuple(r[k] for k in self.keys) for r in self.rows}
        return list(found.values())


def _same_key(a: Any, b: Any) -> bool:
    return type(a) is type(b) and bool(a == b)
