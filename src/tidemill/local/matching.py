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
from tidemill.kernels.keys import KeyIndex
from tidemill.kernels.memory import empty
from tidemill.kernels.overlaps import spelled_out, starting_within
from tidemill.local.expressions import evaluate
from tidemill.local.lifetimes import Ints, Keyed, Mask, without_nulls
from tidemill.local.temporal_operator import Side
from tidemill.plan.temporal import LEFT, RIGHT, Match, sided

PAIRS = 1 << 20
"""Pairs to look at at once, at most; a row that has more is taken whole."""


@dataclass(frozen=True)
class Pairs:
    """Places of rows of the left and of the right side, and when both hold."""

    left: Ints
    right: Ints
    start: Ints
    end: Ints


@dataclass(frozen=True)
class Matching:
    """The rows of both sides, with ids of their keys."""

    left: Side
    right: Side
    keys: tuple[Ints, Ints]
    where: Node | None
    schema: Schema
    """The columns of pairs, as the condition names them."""
    refuse: Callable[[Ints, str], None] | None = None
    """What takes rows of the left side for which the condition fails; None if that is an error."""

    @staticmethod
    def of(
        match: Match, left: Side, right: Side, refuse: Callable[[Ints, str], None] | None = None
    ) -> Matching:
        """Look up the keys of all rows. A row with a null among its keys matches nothing."""
        schema = Schema(sided(left.plan, right.plan))
        sides = ((left, match.left_keys), (right, match.right_keys))
        if not match.left_keys:
            ids = [np.zeros(side.rows.num_rows, dtype=np.int64) for side, _ in sides]
        else:
            index = KeyIndex(left.plan.schema.select(match.left_keys))
            ids = [index.encode([side.rows.column(n) for n in names]) for side, names in sides]
            equal = [names[len(match.scope) :] for _, names in sides]
            ids = [
                without_nulls(of, side.rows, names, -1 - at)
                for at, (of, (side, _), names) in enumerate(zip(ids, sides, equal))
            ]
        return Matching(left, right, (ids[0], ids[1]), match.where, schema, refuse)

    @staticmethod
    def of_places(
        match: Match, left: Side, right: Side, refuse: Callable[[Ints, str], None] | None
    ) -> Matching:
        """Return a matching for pairs whose keys are known to be equal."""
        nothing = np.empty(0, dtype=np.int64)
        schema = Schema(sided(left.plan, right.plan))
        return Matching(left, right, (nothing, nothing), match.where, schema, refuse)

    def overlapping(self) -> Iterator[Pairs]:
        """Yield the pairs that match, of which at least one row is new."""
        left = Keyed.of(self.keys[0], self.left.starts, self.left.ends)
        right = Keyed.of(self.keys[1], self.right.starts, self.right.ends)
        new_left, new_right = self.left.is_new, self.right.is_new
        halves = [(left.some(new_left), right)]
        if not new_left.all() and new_right.any():
            halves.append((left.some(~new_left), right.some(new_right)))
        for one, other in halves:
            for own, others in ranges(one, other, 0):
                yield from self._met(one.order[own], other.order[others])
            for own, others in ranges(other, one, 1):
                yield from self._met(one.order[others], other.order[own])

    def _met(self, left: Ints, right: Ints) -> Iterator[Pairs]:
        if self.where is not None:
            passed = self.holds(left, right)
            left, right = left[passed], right[passed]
        if len(left):
            start = np.maximum(self.left.starts[left], self.right.starts[right])
            yield Pairs(left, right, start, np.minimum(self.left.ends[left], self.right.ends[right]))

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
                return self._one_by_one(rows, schema, left, wrong)
            raise UserError(
                "where=", f"{self.where} failed on a pair of rows: {wrong}",
                hint="leave such rows out first, with .where(...), or cast to float64",
            ) from wrong  # fmt: skip
        return np.asarray(found.fill_null(False)).astype(np.bool_)

    def _one_by_one(
        self, rows: pa.RecordBatch, schema: Schema, left: Ints, failed: UserError
    ) -> Mask:
        """Return for which pairs the condition is true. Those for which it fails are refused: no match."""
        assert self.where is not None and self.refuse is not None
        found = np.zeros(rows.num_rows, dtype=np.bool_)
        wrong = []
        for at, row in enumerate(to_rows([rows], schema)):
            try:
                found[at] = define(self.where, row, schema) is True
            except UserError:
                wrong.append(at)
        self.refuse(np.unique(left[wrong]), f"where= failed: {failed}")
        return found

    def pair_columns(self, names: list[str], left: pa.Array, right: pa.Array) -> pa.RecordBatch:
        """Return columns of pairs, with the names that a condition gives them. A null place is a null."""
        sides = {LEFT: (self.left, left), RIGHT: (self.right, right)}
        arrays = []
        for name in names:
            prefix = LEFT if name.startswith(LEFT) else RIGHT
            side, places = sides[prefix]
            arrays.append(side.rows.column(name.removeprefix(prefix)).take(places))
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
    if not total:
        return
    counts = np.cumsum(high - low)
    first = 0
    while first < n:
        before = int(counts[first - 1]) if first else 0
        last = max(first + 1, int(np.searchsorted(counts, before + PAIRS, side="right")))
        pairs = int(counts[last - 1]) - before
        if pairs:
            own, others = empty(pairs), empty(pairs)
            spelled_out(low, high, first, last, own, others)
            yield own, others
        first = last
