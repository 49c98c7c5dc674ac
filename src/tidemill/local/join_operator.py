"""The temporal join: pairs of rows that match, while both hold (paper 000, section 5.2.2)."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from tidemill.core.types import to_arrow
from tidemill.kernels.arrow import values
from tidemill.kernels.order import order_by
from tidemill.kernels.overlaps import resolve_absence
from tidemill.local.keyed_operator import KeyedOperator
from tidemill.local.lifetimes import Ints, instants
from tidemill.local.matching import Matching, Pairs
from tidemill.local.temporal_operator import Side
from tidemill.plan.temporal import ALWAYS_START, LEFT, RIGHT, Join, start_alone

FREE = "\0state free"
"""The instant up to which it is known where nothing matches a row."""


class JoinOperator(KeyedOperator):
    """Keeps the rows that hold at the watermark, which rows to come may meet."""

    plan: Join

    def __init__(self, plan: Join, *args, **kwargs) -> None:  # type: ignore[no-untyped-def]
        outer = {"inner": (), "left": (0,), "right": (1,), "outer": (0, 1)}[plan.kind]
        self._outer: tuple[int, ...] = outer
        self.state = ((FREE,) if 0 in outer else (), (FREE,) if 1 in outer else ())
        super().__init__(plan, *args, **kwargs)

    def _work(
        self, sides: list[Side], below: int
    ) -> tuple[Iterable[pa.RecordBatch], list[pa.RecordBatch]]:
        left, right = sides
        matching = Matching.of(self.plan.match, left, right, self._refusing(left))
        found = matching.overlapping(self._tuning.many_pairs)
        if not self._outer:  # pairs may be many more than rows, and nothing else depends on them
            kept = [side.keep(side.ends > self._over(below)) for side in sides]
            return (self._of_pairs(matching, pairs) for pairs in found), kept
        results: list[pa.RecordBatch] = []
        met: list[tuple[Ints, Ints, Ints, Ints]] = []
        for pairs in found:
            results.append(self._of_pairs(matching, pairs))
            met.append((pairs.left, pairs.right, pairs.start, pairs.end))
        kept = []
        for port, side in enumerate(sides):
            holds = side.ends > self._over(below)
            if port not in self._outer:
                kept.append(side.keep(holds))
                continue
            free = np.where(side.is_new, self._since(side), side.state(FREE))
            alone = _alone(side, port, met, free, below)
            results.append(self._unmatched(matching, port, *alone))
            open_ = free[holds]
            if len(open_):
                self._held = min(self._held, int(open_.min()))
            kept.append(side.keep(holds, **{FREE: free}))
        return results, kept

    def _over(self, below: int) -> int:
        return below

    def _held_back(self, port: int, rows: pa.RecordBatch) -> Ints | None:
        return values(rows.column(FREE)) if port in self._outer else None

    def _since(self, side: Side) -> Ints:
        """Return since when rows of a side are there alone, if nothing matches them."""
        first = start_alone(self.plan, side.plan)
        return side.starts if first is None else np.where(side.starts == ALWAYS_START, first, side.starts)

    def _of_pairs(self, matching: Matching, pairs: Pairs) -> pa.RecordBatch:
        left, right = pa.array(pairs.left), pa.array(pairs.right)
        return self._rows(matching, left, right, pairs.start, pairs.end)

    def _rows(
        self, matching: Matching, left: pa.Array, right: pa.Array, start: Ints, end: Ints
    ) -> pa.RecordBatch:
        names = [of for _, of in self.plan.columns]
        arrays = list(matching.pair_columns(names, left, right).columns) if names else []
        schema = self.plan.schema.to_arrow()
        kind = to_arrow(self.plan.schema[self.plan.time])
        bounds = [instants(start, kind), instants(end, kind)]
        return pa.RecordBatch.from_arrays([*arrays, *bounds], schema=schema)

    def _unmatched(
        self, matching: Matching, port: int, rows: Ints, start: Ints, end: Ints
    ) -> pa.RecordBatch:
        """Return rows of one side where nothing matches them; a key of the right side is that of the row."""
        places, nothing = pa.array(rows), pa.nulls(len(rows), pa.int64())
        if port == 0:
            return self._rows(matching, places, nothing, start, end)
        keys = dict(zip(self.plan.match.left_keys, self.plan.match.right_keys))
        named = [(of, RIGHT + keys[of.removeprefix(LEFT)]
                  if of.startswith(LEFT) and of.removeprefix(LEFT) in keys else of)
                 for _, of in self.plan.columns]  # fmt: skip
        kind = to_arrow(self.plan.schema[self.plan.time])
        found = [matching.pair_columns([of], nothing, places).column(0) for _, of in named]
        arrays = [*found, instants(start, kind), instants(end, kind)]
        return pa.RecordBatch.from_arrays(arrays, schema=self.plan.schema.to_arrow())


def _alone(
    side: Side, port: int, met: list[tuple[Ints, Ints, Ints, Ints]], free: Ints, below: int
) -> tuple[Ints, Ints, Ints]:
    """Return the parts of rows that nothing matches, which are complete; `free` is updated."""
    nothing = np.empty(0, dtype=np.int64)
    row, start, end = (np.concatenate([nothing, *(one[at] for one in met)]) for at in (port, 2, 3))
    order = order_by(row, start)
    n = len(row) + side.rows.num_rows
    out = [np.empty(n, dtype=np.int64) for _ in range(3)]
    rows = np.arange(side.rows.num_rows)
    count = resolve_absence(row[order], start[order], end[order], below, rows, side.ends, free, *out)
    return out[0][:count], out[1][:count], out[2][:count]
