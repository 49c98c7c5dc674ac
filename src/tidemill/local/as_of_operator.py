"""Points with the last known values at their instants: as-of joins (`plan.as_of`)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from tidemill.core.time import FOREVER
from tidemill.kernels.in_time import chained_up, last_before
from tidemill.kernels.memory import empty
from tidemill.local.join_operator import JoinOperator
from tidemill.local.keyed_operator import KeyedOperator
from tidemill.local.lifetimes import Ints
from tidemill.local.matching import Matching, Pairs
from tidemill.local.temporal_operator import Side
from tidemill.plan.as_of import as_of, inputs_of
from tidemill.plan.nodes import Plan
from tidemill.plan.temporal import Join


class AsOfOperator(JoinOperator):
    """Keeps the last rows of each key. A point is complete when the watermark is above it."""

    _keys_apart = False

    def __init__(self, plan: Join, *args: Any, **kwargs: Any) -> None:
        found = as_of(plan)
        assert found is not None
        self._tolerance = FOREVER if found.tolerance is None else found.tolerance
        self.state = ((), ())
        KeyedOperator.__init__(self, plan, *args, **kwargs)

    def _reads(self, plan: Any) -> tuple[Plan, ...]:
        return inputs_of(plan)

    def _work(self, sides: list[Side], below: int) -> tuple[list[pa.RecordBatch], list[pa.RecordBatch]]:
        left, right = sides
        matching = Matching.of(self.plan.match, left, right, self._refusing(left))
        last, before = empty(matching.count), empty(len(right.starts))
        found = list(self._last(matching, last, before))
        results = [self._of_pairs(matching, pairs) for pairs in found]
        if self.plan.kind == "left":
            alone = np.ones(len(left.starts), dtype=np.bool_)
            for pairs in found:
                alone[pairs.left] = False
            rows = np.flatnonzero(alone)
            results.append(self._unmatched(matching, 0, rows, left.starts[rows], left.ends[rows]))
        kept = np.zeros(len(right.starts), dtype=np.bool_)
        chained_up(last, before, kept)
        if self._tolerance < FOREVER:
            kept &= right.starts + self._tolerance > below
        return results, [left.rows.slice(0, 0), right.keep(kept)]

    def _last(self, matching: Matching, last: Ints, before: Ints) -> Any:
        """Yield pairs of rows of the left side and the last rows of their key at that instant.

        Afterwards `last` has the last row of each key, or -1, and `before` another one that started with it.
        """
        left, right = matching.left, matching.right
        at = np.array([0, 0, -2], dtype=np.int64)
        last[:] = -1
        room = min(self._tuning.many_pairs, len(left.starts) + 1)
        while True:
            rows, others = empty(room), empty(room)
            n = last_before(
                matching.keys[0], left.starts, left.in_order, matching.keys[1], right.starts, right.in_order,
                self._tolerance, last, before, at, rows, others,
            )  # fmt: skip
            start = left.starts[rows[:n]]
            yield from matching.passing(Pairs(rows[:n], others[:n], start, start + 1))
            if n < room:
                return

    def _ends(self, port: int, kept: pa.RecordBatch) -> int:
        return FOREVER
