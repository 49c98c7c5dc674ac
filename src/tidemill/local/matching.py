"""Find the pairs of rows of two sides that match and overlap: equal keys, and a condition on pairs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tidemill.core.batch import to_rows
from tidemill.core.errors import UserError
from tidemill.core.schema import Schema
from tidemill.expr.evaluate import evaluate as define
from tidemill.expr.nodes import Node, columns_of
from tidemill.kernels.arrow import values
from tidemill.kernels.keys import ids_of
from tidemill.kernels.meeting import BEGIN, both_in_order, chain_slots, chain_up, meet
from tidemill.kernels.memory import empty
from tidemill.kernels.overlaps import spelled_out, starting_within
from tidemill.kernels.row_batches import taken_column
from tidemill.local.expressions import evaluate
from tidemill.local.lifetimes import Ints, Keyed, Mask, without_nulls
from tidemill.local.temporal_operator import Side
from tidemill.plan.temporal import LEFT, RIGHT, Match, sided

PAIRS = 1 << 20
"""Pairs to look at at once, at most; a row that has more is taken whole."""
_FEW = 1 << 10
"""There is room for so many pairs at least."""


@dataclass(frozen=True)
class Pairs:
    """Places of rows of the left and of the right side, and when both hold."""

    left: Ints
    right: Ints
    start: Ints
    end: Ints

    def where(self, mask: Mask) -> Pairs:
        """Return some of the pairs."""
        if mask.all():
            return self
        return Pairs(self.left[mask], self.right[mask], self.start[mask], self.end[mask])


@dataclass(frozen=True)
class Matching:
    """The rows of both sides, with ids of their keys."""

    left: Side
    right: Side
    keys: tuple[Ints, Ints]
    """The key id of each row; below 0 if it matches nothing."""
    count: int
    """The number of key ids."""
    where: Node | None
    schema: Schema
    """The columns of pairs, as the condition names them."""
    refuse: Callable[[Ints, list[str]], None] | None = None
    """What takes rows of the left side for which the condition fails; None if that is an error."""

    @staticmethod
    def of(
        match: Match, left: Side, right: Side, refuse: Callable[[Ints, list[str]], None] | None = None
    ) -> Matching:
        """Look up the keys of all rows. A row with a null among its keys matches nothing."""
        schema = Schema(sided(left.plan, right.plan))
        sides = ((left, match.left_keys), (right, match.right_keys))
        if not match.left_keys:
            ids, count = [np.zeros(side.rows.num_rows, dtype=np.int64) for side, _ in sides], 1
        else:
            columns = [[side.rows.column(n) for n in names] for side, names in sides]
            ids, count = ids_of(left.plan.schema.select(match.left_keys), columns)
            equal = [names[len(match.scope) :] for _, names in sides]
            ids = [
                without_nulls(of, side.rows, names, -1 - at)
                for at, (of, (side, _), names) in enumerate(zip(ids, sides, equal))
            ]
        return Matching(left, right, (ids[0], ids[1]), count, match.where, schema, refuse)

    @staticmethod
    def of_places(
        match: Match, left: Side, right: Side, refuse: Callable[[Ints, list[str]], None] | None
    ) -> Matching:
        """Return a matching for pairs whose keys are known to be equal."""
        nothing = np.empty(0, dtype=np.int64)
        schema = Schema(sided(left.plan, right.plan))
        return Matching(left, right, (nothing, nothing), 0, match.where, schema, refuse)

    def overlapping(self, most: int) -> Iterator[Pairs]:
        """Yield the pairs that match, of which at least one row is new; about `most` of them at once."""
        left, right = self.left, self.right
        first = len(left.starts)
        rows = first + len(right.starts)
        slots, order = empty(rows), empty(len(left.new_in_order) + len(right.new_in_order))
        chain_slots(self.keys[0], 0, slots[:first])
        chain_slots(self.keys[1], 1, slots[first:])
        starts = np.concatenate([left.starts, right.starts], out=empty(rows))
        ends = np.concatenate([left.ends, right.ends], out=empty(rows))
        both_in_order(starts, left.new_in_order, right.new_in_order, first, order)
        nodes, heads = empty((rows, 2)), np.full(2 * self.count, -1, dtype=np.int64)
        chain_up(slots, ends, 0, left.kept, nodes, heads)
        chain_up(slots, ends, first, right.kept, nodes, heads)
        at = np.array(BEGIN, dtype=np.int64)
        room = min(most, max(_FEW, rows))
        while True:
            pairs = [empty(room) for _ in range(4)]
            found = meet(slots, starts, ends, order, first, nodes, heads, at, *pairs)
            yield from self.passing(Pairs(*(column[:found] for column in pairs)))
            if found < room:
                return
            room = min(most, 2 * room)

    def passing(self, pairs: Pairs) -> Iterator[Pairs]:
        """Yield the pairs for which the condition is true, if there are any."""
        if self.where is not None:
            pairs = pairs.where(self.holds(pairs.left, pairs.right))
        if len(pairs.left):
            yield pairs

    def holds(self, left: Ints, right: Ints) -> Mask:
        """Return for which pairs the condition is true."""
        if self.where is None:
            return np.ones(len(left), dtype=np.bool_)
        names = [n for n in self.schema.names if n in columns_of(self.where)]
        rows = self.pair_columns(names, pa.array(left), pa.array(right))
        schema = self.schema.select(tuple(names))
        if not names:  # a batch without columns has no length
            rows = pa.RecordBatch.from_arrays([pa.array(left)], names=["\0row"])
        try:
            found = evaluate(self.where, rows, schema)
        except UserError as wrong:
            if self.refuse is not None:
                return self._one_by_one(rows, schema, left)
            raise UserError(
                "where=", f"{self.where} failed on a pair of rows: {wrong}",
                hint="leave such rows out first, with .where(...), or cast to float64",
            ) from wrong  # fmt: skip
        return np.asarray(found.fill_null(False)).astype(np.bool_)

    def _one_by_one(self, rows: pa.RecordBatch, schema: Schema, left: Ints) -> Mask:
        """Return for which pairs the condition is true. Those for which it fails are refused: no match."""
        assert self.where is not None and self.refuse is not None
        found = np.zeros(rows.num_rows, dtype=np.bool_)
        wrong: dict[int, str] = {}
        for at, row in enumerate(to_rows([rows], schema)):
            try:
                found[at] = define(self.where, row, schema) is True
            except UserError as failed:
                wrong.setdefault(int(left[at]), f"where= failed: {failed}")
        self.refuse(np.array(sorted(wrong), dtype=np.int64), [wrong[at] for at in sorted(wrong)])
        return found

    def pair_columns(self, names: list[str], left: pa.Array, right: pa.Array) -> pa.RecordBatch:
        """Return columns of pairs, with the names that a condition gives them. A null place is a null."""
        sides = {LEFT: (self.left, left), RIGHT: (self.right, right)}
        arrays = []
        for name in names:
            prefix = LEFT if name.startswith(LEFT) else RIGHT
            side, places = sides[prefix]
            column = side.rows.column(name.removeprefix(prefix))
            arrays.append(column.take(places) if places.null_count else taken_column(column, values(places)))
        return pa.RecordBatch.from_arrays(arrays, names=names)


def ranges(one: Keyed, other: Keyed, later: int) -> Iterator[tuple[Ints, Ints]]:
    """Yield places of pairs where the second row starts within the first, a limited number at once."""
    n = len(one.keys)
    if not n or not len(other.keys):
        return
    low, high = np.zeros(n, dtype=np.int64), np.zeros(n, dtype=np.int64)
    total = starting_within(
        one.keys, one.starts, one.ends, other.keys, other.starts, later, low, high
    )
    if total:
        yield from spelled(low, high)


def spelled(low: Ints, high: Ints) -> Iterator[tuple[Ints, Ints]]:
    """Yield the pairs of a row and a place in its range `[low, high)`, a limited number at once."""
    n, first = len(low), 0
    counts = np.cumsum(high - low)
    while first < n:
        before = int(counts[first - 1]) if first else 0
        last = max(first + 1, int(np.searchsorted(counts, before + PAIRS, side="right")))
        pairs = int(counts[last - 1]) - before
        if pairs:
            own, others = empty(pairs), empty(pairs)
            spelled_out(low, high, first, last, own, others)
            yield own, others
        first = last
