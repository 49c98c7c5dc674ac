"""Rows in the parts of their lifetimes that another stream leaves: exists, not exists, clip."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tidemill.core.time import BEGINNING, FOREVER
from tidemill.kernels.arrow import values
from tidemill.kernels.in_time import joined_by_key, meet_parts, next_starts
from tidemill.kernels.memory import empty
from tidemill.kernels.order import order_by
from tidemill.kernels.overlaps import resolve_absence, resolve_presence
from tidemill.kernels.row_batches import taken_rows
from tidemill.local.keyed_operator import KeyedOperator
from tidemill.local.lifetimes import Ints, Keyed, with_lifetimes
from tidemill.local.matching import Matching, ranges
from tidemill.local.temporal_operator import Side
from tidemill.plan.temporal import Cut

FREE, SINCE, UNTIL = "\0state free", "\0state since", "\0state until"
"""Columns of state. The rows of a table have columns "since" and "until" that are their lifetime."""
_STATE = {"exists": (SINCE, UNTIL), "not_exists": (FREE,), "clip": ()}
_NONE = BEGINNING
"""In place of an instant: no part is open."""
_NOTHING = np.empty(0, dtype=np.int64)


class CutOperator(KeyedOperator):
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
        found = self._met(matching) if self.plan.match.where is not None else self._covered(matching)
        out = [empty(len(found[0]) + left.rows.num_rows) for _ in range(3)]
        met = *found, below, self._order_of(left)
        holds = left.ends > self._over(below)
        state: dict[str, Ints] = {}
        if self.plan.kind == "not_exists":
            free = np.where(left.is_new, left.starts, left.state(FREE))
            count = resolve_absence(*met, left.ends, free, *out)
            state, pending = {FREE: free}, free[holds]
        else:
            since, until = (np.where(left.is_new, _NONE, left.state(n)) for n in (SINCE, UNTIL))
            count = resolve_presence(*met, left.ends, since, until, _NONE, *out)
            holds &= until < left.ends
            state, open_ = {SINCE: since, UNTIL: until}, holds & (since != _NONE)
            pending = since[open_]
            if open_.any():
                self._wake = min(self._wake, int(until[open_].min()))
        if len(pending):
            self._held = min(self._held, int(pending.min()))
        results = self._pieces(left, out[0][:count], out[1][:count], out[2][:count])
        return [results], [left.keep(holds, **state), right.keep(right.ends > self._over(below))]

    def _over(self, below: int) -> int:
        return below

    def _matters_at(self, port: int, rows: pa.RecordBatch) -> Ints:
        ends = super()._matters_at(port, rows)
        if port or self.plan.kind != "exists":
            return ends
        open_ = values(rows.column(SINCE)) != _NONE
        return np.where(open_, np.minimum(ends, values(rows.column(UNTIL))), ends)

    def _changes(self, port: int) -> bool:
        return port == 0

    def _held_back(self, port: int, rows: pa.RecordBatch) -> Ints | None:
        if port:
            return None
        if self.plan.kind == "clip":
            return values(rows.column(self.plan.left.time))
        if self.plan.kind == "not_exists":
            return values(rows.column(FREE))
        since = values(rows.column(SINCE))
        return np.where(since != _NONE, since, FOREVER)

    def _order_of(self, left: Side) -> Ints:
        """Return the order in which rows of the left side are met."""
        return left.in_order if self.plan.match.where is None else np.arange(left.rows.num_rows)

    def _covered(self, matching: Matching) -> tuple[Ints, Ints, Ints]:
        """Return where any row of the right side meets rows of the left one: places, starts and ends.

        Without a condition, the rows of a key are all alike: their union is met.
        """
        left, right = matching.left, matching.right
        parts, heads, tails = empty((right.rows.num_rows, 3)), empty(matching.count), empty(matching.count)
        joined_by_key(matching.keys[1], right.starts, right.ends, right.in_order, parts, heads, tails)
        at = np.array([0, -2], dtype=np.int64)
        found: list[tuple[Ints, ...]] = []
        room = left.rows.num_rows + right.rows.num_rows
        while at[0] < left.rows.num_rows:
            columns = [empty(room) for _ in range(3)]
            rows = (matching.keys[0], left.starts, left.ends, left.in_order)
            n = meet_parts(*rows, parts, heads, at, *columns)
            found.append(tuple(column[:n] for column in columns))
        if len(found) == 1:
            return found[0]  # type: ignore[return-value]
        row, start, end = (np.concatenate([_NOTHING, *(f[i] for f in found)]) for i in range(3))
        return row, start, end

    def _met(self, matching: Matching) -> tuple[Ints, Ints, Ints]:
        """Return where rows of the right side that match meet those of the left one."""
        pairs = list(matching.overlapping(self._tuning.many_pairs))
        found = [(pair.left, pair.start, pair.end) for pair in pairs]
        row, start, end = (np.concatenate([_NOTHING, *(f[i] for f in found)]) for i in range(3))
        order = order_by(row, start)
        return row[order], start[order], end[order]

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
        taken = taken_rows(left.rows.select(list(self.plan.schema.names)), rows)
        return with_lifetimes(self.plan.left, taken, start, end)


def _first_matches(matching: Matching) -> Ints:
    """Return the first start of a matching row that is after that of each left row, or `FOREVER`."""
    left, right = matching.left, matching.right
    if matching.where is None:
        found = empty(left.rows.num_rows)
        next_starts(
            matching.keys[0], left.starts, left.in_order, matching.keys[1], right.starts, right.in_order,
            empty(matching.count), FOREVER, found,
        )  # fmt: skip
        return found
    # A row that starts at once is no match; one at the end of a lifetime changes nothing.
    one = Keyed.of(matching.keys[0], left.starts, left.ends)
    other = Keyed.of(matching.keys[1], right.starts, right.ends)
    found = np.full(len(one.keys), FOREVER, dtype=np.int64)
    for own, others in ranges(Keyed(one.order, one.keys, one.starts + 1, one.ends), other, 0):
        passed = matching.holds(one.order[own], other.order[others])
        np.minimum.at(found, own[passed], other.starts[others[passed]])
    out = np.empty_like(found)
    out[one.order] = found
    return out
