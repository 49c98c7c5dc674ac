"""Reports of progressive queries, and when they come."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from tidemill.core.errors import UserError

FIRST_ROWS = 1 << 12
"""Where nobody knows how many rows there are, the first report comes after so many."""


@dataclass(frozen=True)
class ProgressReport:
    """The exact answer of a query over a part of its data."""

    table: pa.Table
    """What `run` would return if the inputs ended here."""
    fraction: float | None
    """How much of the data that is, from 0 to 1; None where it is not known how much there is."""
    final: bool
    """Whether this is the answer over all of the data."""
    rows: Mapping[str, int] = field(default_factory=dict)
    """How many rows of each input were read: the first ones. Empty on Spark."""
    partitions: int = 0
    """On Spark, how many partitions of the inputs were read: the first ones."""

    def __repr__(self) -> str:
        share = "part" if self.fraction is None else f"{self.fraction:.1%}"
        read = f"{sum(self.rows.values()):,} rows" if self.rows else f"{self.partitions:,} partitions"
        part = "all" if self.final else share
        return f"ProgressReport({part} of the data, {read}: {len(self.table):,} rows)"


def require_count(reports: Any) -> None:
    """Raise an error if a number of reports is none."""
    if not isinstance(reports, int) or isinstance(reports, bool) or reports < 1:
        raise UserError("progressive", expected="reports= at least 1", got=f"{reports!r:.80}")


def points(reports: int, total: int | None) -> Iterator[int]:
    """Yield how many rows to read before each report but the last one, which has them all.

    Report k of n comes after the part `(k / n)**2` of the rows: the first ones soon, as more rows change the
    answer most at the beginning. If there are fewer rows than reports, there is a report after each. Without
    a total, each report comes after twice as many rows as the one before.

    >>> list(points(5, 1000)), list(points(3, None)), list(points(5, 4))
    ([40, 160, 360, 640], [4096, 8192], [1, 2, 3])
    """
    if total is None:
        yield from (FIRST_ROWS << k for k in range(reports - 1))
        return
    yield from (max(k, -(-total * k * k // (reports * reports))) for k in range(1, min(reports, total)))
