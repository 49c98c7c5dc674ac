"""The rows of a port that wait for a watermark, in few pieces, however few rows come at once."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tidemill.core.time import FOREVER
from tidemill.kernels.order import min_max, places_in_order
from tidemill.kernels.row_batches import divided, joined_rows, taken_rows
from tidemill.local.lifetimes import Ints, Mask, starts_of
from tidemill.plan.nodes import Plan

_EACH = 16
"""So many small pieces of about one length become one, which is in order of start."""
_LONG = 1 << 15
"""Pieces with more rows stay as they are."""


@dataclass(frozen=True)
class _Piece:
    """Rows that wait; none is empty."""

    rows: pa.RecordBatch
    starts: Ints
    level: int
    """How often it was made of shorter ones; those of which it was are in order, up to a watermark."""

    @functools.cached_property
    def bounds(self) -> tuple[int, int]:
        """The first and the last start."""
        if self.level or len(self.starts) == 1:
            return int(self.starts[0]), int(self.starts[-1])
        low, high = min_max(self.starts)
        return int(low), int(high)

    def count_due(self, below: int) -> int:
        """Return how many rows start below a watermark."""
        first, last = self.bounds
        if first >= below or last < below:
            return len(self.starts) if last < below else 0
        return int(np.count_nonzero(self.starts < below))

    def divided(self, below: int) -> tuple[pa.RecordBatch, _Piece]:
        """Return the rows that start below a watermark, and the others."""
        if not self.level:
            return self.by(self.starts < below)
        first = int(np.searchsorted(self.starts, below))
        return self.rows.slice(0, first), _Piece(
            self.rows.slice(first), self.starts[first:], self.level
        )

    def by(self, mask: Mask) -> tuple[pa.RecordBatch, _Piece]:
        """Return the rows for which a mask is true, and the others."""
        rows, left = divided(self.rows, mask)
        return rows, _Piece(left, self.starts[~mask], self.level)


class WaitingRows:
    """Rows in any order.

    >>> import tidemill as tm
    >>> waiting = WaitingRows(tm.stream("s", time="t", schema={"t": "int64"}).plan)
    >>> for t in (5, 3, 4):
    ...     waiting.add(pa.record_batch({"t": [t]}))
    >>> waiting.first, [b["t"].to_pylist() for b in waiting.due(5)], waiting.first, waiting.count
    (3, [[3], [4]], 5, 1)
    >>> waiting.count_due(6), waiting.count_due(5)
    (1, 0)
    """

    def __init__(self, plan: Plan, batches: Iterable[pa.RecordBatch] = ()) -> None:
        self._plan, self._pieces = plan, list[_Piece]()
        self.count = 0
        """The number of rows."""
        for batch in batches:
            self.add(batch)

    def add(self, batch: pa.RecordBatch) -> None:
        """Let rows wait."""
        if not batch.num_rows:
            return
        self.count += batch.num_rows
        self._pieces.append(_Piece(batch, starts_of(self._plan, batch), 0))
        while self._joins_last():
            some = self._pieces[-_EACH:]
            rows = joined_rows([piece.rows for piece in some])
            starts = np.concatenate([piece.starts for piece in some])
            if (order := places_in_order(starts)) is not None:
                rows, starts = taken_rows(rows, order), starts[order]
            self._pieces[-_EACH:] = [_Piece(rows, starts, some[0].level + 1)]

    def _joins_last(self) -> bool:
        """Return whether the last pieces are short, and many."""
        if len(self._pieces) < _EACH or self._pieces[-_EACH].level != self._pieces[-1].level:
            return False
        some = self._pieces[-_EACH:]
        return (
            all(p.level == some[0].level for p in some)
            and sum(len(p.starts) for p in some) <= _LONG
        )

    @property
    def first(self) -> int:
        """The first start of a row, `FOREVER` if there is none."""
        return min((piece.bounds[0] for piece in self._pieces), default=FOREVER)

    @property
    def batches(self) -> list[pa.RecordBatch]:
        """All rows."""
        return [piece.rows for piece in self._pieces]

    def all(self) -> list[pa.RecordBatch]:
        """Take all rows away."""
        found, self._pieces, self.count = self.batches, [], 0
        return found

    def count_due(self, below: int) -> int:
        """Return how many rows start below a watermark."""
        return sum(piece.count_due(below) for piece in self._pieces)

    def due(
        self, below: int, chosen: Callable[[pa.RecordBatch], Mask] | None = None
    ) -> list[pa.RecordBatch]:
        """Take the rows away that start below a watermark; of all rows, or of those that are chosen."""
        found: list[pa.RecordBatch] = []
        left: list[_Piece] = []
        for piece in self._pieces:
            first, last = piece.bounds
            if first >= below:
                left.append(piece)
            elif chosen is None and last < below:
                found.append(piece.rows)
            else:
                due, rest = (
                    piece.divided(below) if chosen is None
                    else piece.by((piece.starts < below) & chosen(piece.rows))
                )  # fmt: skip
                found += [due] if due.num_rows else []
                left += [rest] if rest.rows.num_rows else []
        self._pieces = left
        self.count -= sum(batch.num_rows for batch in found)
        return found
