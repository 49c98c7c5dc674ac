"""Rows in the parts of their lifetimes that another stream leaves: exists, not exists, clip."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tidemill.core.time import BEGINNING, FOREVER
from tidemill.kernels.order import order_by
from tidemill.kernels.overlaps import joined, next_start, resolve_absence, resolve_presence
from tidemill.local.lifetimes import Ints, Keyed, with_lifetimes
from tidemill.local.matching import Matching, ranges
from tidemill.local.temporal_operator import Side, TemporalOperator
from tidemill.plan.temporal import Cut

FREE, SINCE, UNTIL = "\0state free", "\0state since", "\0state until"
"""Columns of state. The rows of a table have columns "since" and "until" that are their lifetime."""
_STATE = {"exists": (SINCE, UNTIL), "not_exists": (FREE,), "clip": ()}
_NONE = BEGINNING
"""In place of an instant: no part is open."""


class CutOperator(TemporalOperator):
    """Keeps the rows of both sides that hold at the watermark. `clip` keeps rows of the left side only."""

    plan: Cut

    def __init__(self, plan: Cut, *args, **kwargs) -> None:  # type: ignore[no-untyped-def]
        self.state = (_STATE[plan.kind], ())
        super().__init__(plan, *args, **kwargs)

    def _work(
        self, sides: list[Side], below: int
    ) -> tuple[list[pa.RecordBatch], list[pa.RecordBatch]]:
        left, right = sides
        matching = Matching.of(self.plan.match, left, right, self._refusing(left))
        if self.plan.kind == "clip":
            return self._clipped(matching, below)
        row, start, end = self._met(matching)
        order = order_by(row, start)
        met = row[order], start[order], end[order]
        out = [np.empty(len(row) + left.rows.num_rows, dtype=np.int64) for _ in range(3)]
        holds = left.ends > below
        state: dict[str, Ints] = {}
        if self.plan.kind == "not_exists":
            free = np.where(left.is_new, left.starts, left.state(FREE))
            count = resolve_absence(*met, below, left.ends, free, *out)
            state, pending = {FREE: free}, free[holds]
        else:
            since, until = (np.where(left.is_new, _NONE, left.state(n)) for n in (SINCE, UNTIL))
            count = resolve_presence(*met, below, left.ends, since, until, _NONE, *out)
            holds &= until < left.ends
            state, open_ = {SINCE: since, UNTIL: until}, holds & (since != _NONE)
            pending = since[open_]
            if open_.any():
                self._wake = min(self._wake, int(until[open_].min()))
        if len(pending):
            self._held = min(self._held, int(pending.min()))
        results = self._pieces(left, out[0][:count], out[1][:count], out[2][:count])
        return [results], [left.keep(holds, **state), right.keep(right.ends > below)]

    def _met(self, matching: Matching) -> tuple[Ints, Ints, Ints]:
        """Return where rows of the left side are matched: places, starts and ends."""
        left, right = matching.left, matching.right
        found = []
        if matching.where is None:
            one = Keyed.of(matching.keys[0], left.starts, left.ends)
            other = _union(Keyed.of(matching.keys[1], right.starts, right.ends))
            pairs = [*ranges(one, other, 0), *((b, a) for a, b in ranges(other, one, 1))]
            for own, others in pairs:
                start = np.maximum(one.starts[own], other.starts[others])
                found.append((one.order[own], start, np.minimum(one.ends[own], other.ends[others])))
        else:
            pairs_met = matching.overlapping(self._tuning.many_pairs)
            found = [(pair.left, pair.start, pair.end) for pair in pairs_met]
        nothing = np.empty(0, dtype=np.int64)
        row, start, end = (np.concatenate([nothing, *(f[at] for f in found)]) for at in range(3))
        return row, start, end

    def _clipped(
        self, matching: Matching, below: int
    ) -> tuple[list[pa.RecordBatch], list[pa.RecordBatch]]:
        left = matching.left
        ends = np.minimum(left.ends, _first_matches(matching))
        complete = (ends < left.ends) | (left.ends <= below)
        kept = ~complete
        if kept.any():
            self._held = int(left.starts[kept].min())
        rows = np.flatnonzero(complete)
        results = self._pieces(left, rows, left.starts[rows], ends[rows])
        return [results], [left.keep(kept), matching.right.rows.slice(0, 0)]

    def _pieces(self, left: Side, rows: Ints, start: Ints, end: Ints) -> pa.RecordBatch:
        taken = left.rows.select(list(self.plan.schema.names)).take(pa.array(rows))
        return with_lifetimes(self.plan.left, taken, start, end)


def _union(side: Keyed) -> Keyed:
    """Return the intervals of each key joined where they touch: without a condition, rows are all alike."""
    keys, starts, ends = (np.empty_like(side.keys) for _ in range(3))
    n = joined(side.keys, side.starts, side.ends, keys, starts, ends)
    return Keyed(np.arange(n), keys[:n], starts[:n], ends[:n])


def _first_matches(matching: Matching) -> Ints:
    """Return the first start of a matching row that is after that of each left row, or `FOREVER`."""
    left, right = matching.left, matching.right
    # A row that starts at once is no match; one at the end of a lifetime changes nothing.
    one = Keyed.of(matching.keys[0], left.starts, left.ends)
    other = Keyed.of(matching.keys[1], right.starts, right.ends)
    found = np.full(len(one.keys), FOREVER, dtype=np.int64)
    if matching.where is None:
        next_start(one.keys, one.starts, other.keys, other.starts, FOREVER, found)
    else:
        for own, others in ranges(Keyed(one.order, one.keys, one.starts + 1, one.ends), other, 0):
            passed = matching.holds(one.order[own], other.order[others])
            np.minimum.at(found, own[passed], other.starts[others[passed]])
    out = np.empty_like(found)
    out[one.order] = found
    return out
