"""Aggregates of the rows that hold at each instant, by key (paper 000, section 5.2.1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from tidemill.core.time import FOREVER
from tidemill.core.types import to_arrow
from tidemill.kernels.arrow import values
from tidemill.kernels.keys import KeyIndex
from tidemill.kernels.memory import empty
from tidemill.kernels.order import order_by
from tidemill.kernels.overlaps import entered_and_left, merged_edges
from tidemill.kernels.row_batches import taken_column
from tidemill.local.edge_sweep import EdgeSweep, Values, sweeps
from tidemill.local.kept_by_key import KeptByKey
from tidemill.local.keyed_operator import KeyedOperator
from tidemill.local.lifetimes import Ints, Keyed, Mask, instants
from tidemill.local.operator import Snapshot
from tidemill.local.same_rows import as_array, same_rows
from tidemill.local.snapshot_values import Moments, SnapshotValues
from tidemill.local.temporal_operator import Side, one_batch
from tidemill.plan.properties import properties
from tidemill.plan.temporal import SnapshotAggregate

_SINCE = "\0state since"
_OPEN = FOREVER


class SnapshotOperator(KeyedOperator):
    """Keeps the rows that hold at the watermark, and the value of each key since it is what it is.

    Between two edges of a key, where one of its rows starts or ends, nothing changes. So there is a value
    for each stretch between two edges. Stretches with one value are one row of the result. Where rows can
    be taken out exactly, one pass over edges in order of time has all of it (`edge_sweep`); otherwise rows
    are put in order of their keys first (`snapshot_values`).
    """

    plan: SnapshotAggregate

    def __init__(self, plan: SnapshotAggregate, *args: Any, **kwargs: Any) -> None:
        super().__init__(plan, *args, **kwargs)
        names = [r.name for r in plan.layout.results]
        self._values = plan.schema.select(tuple(names))
        self._key_schema = plan.schema.select(plan.keys)
        self._open_schema = pa.schema([
            *self._key_schema.to_arrow(), (_SINCE, pa.int64()), *self._values.to_arrow(),
        ])  # fmt: skip
        self._open = self._open_schema.empty_table()
        """The value that each key has at the watermark, and since when."""
        self._open_apart: KeptByKey | None = None
        """Those that lie apart, as rows do."""
        self._in_turn = properties(plan.input).in_turn
        """Whether ends need no order of their own."""
        ways = self._tuning.snapshots
        self._sweep = EdgeSweep(plan) if "edges" in ways and sweeps(plan) else None
        self._values_of = SnapshotValues(plan, moving="moving" in ways) if names else None

    def _work(
        self, sides: list[Side], below: int
    ) -> tuple[list[pa.RecordBatch], list[pa.RecordBatch]]:
        [side] = sides
        kept = side.keep(side.ends > self._over(below))
        sweep = self._sweep
        found = self._key_by_key(side, below) if sweep is None else self._swept(sweep, side, below)
        if len(self._open):
            self._held = int(values(as_array(self._open.column(_SINCE))).min())
        return found, [kept]

    def _swept(self, sweep: EdgeSweep, side: Side, below: int) -> list[pa.RecordBatch]:
        """Return the rows that are complete, by one pass over edges."""
        index = KeyIndex(self._key_schema) if self.plan.keys else None
        kid = self._ids(index, side.rows)
        open_ = Values(
            self._ids(index, self._open), values(as_array(self._open.column(_SINCE))),
            np.full(len(self._open), _OPEN), [as_array(self._open.column(n)) for n in self._values.names],
        )  # fmt: skip
        keys = index.count if index is not None else 1
        complete, still = sweep.run(side, kid, keys, open_, below, in_turn=self._in_turn)
        found = [self._rows(index, complete.keys, complete.since, complete.until, complete.columns)]
        if below == FOREVER:
            found.append(self._rows(index, still.keys, still.since, still.until, still.columns))
            self._open = self._open_schema.empty_table()
        else:
            key = [] if index is None else index.decode(still.keys)
            arrays = [*key, pa.array(still.since), *still.columns]
            self._open = pa.Table.from_arrays(arrays, schema=self._open_schema)
        return found

    def _key_by_key(self, side: Side, below: int) -> list[pa.RecordBatch]:
        """Return the rows that are complete, key by key."""
        index = KeyIndex(self._key_schema) if self.plan.keys else None
        kid = self._ids(index, side.rows)
        open_key = self._ids(index, self._open)
        keys = index.count if index is not None else 1
        edges = Edges.of(side, kid, keys, below, in_turn=self._in_turn)
        at_key, at = edges.keys, edges.at
        until = (
            np.append(np.where(at_key[1:] == at_key[:-1], at[1:], _OPEN), _OPEN) if len(at) else at
        )
        found, there = self._snapshots(side, edges)
        # Values: those so far, which go on until the first edge of their key, and then those at the edges.
        since, first = values(as_array(self._open.column(_SINCE))), edges.first_of(open_key)
        touched = first < edges.end_of(open_key)
        ended, pieces = np.flatnonzero(touched), np.flatnonzero(there)
        value = [
            pa.concat_arrays([as_array(self._open.column(n)), as_array(found.column(n))])
            for n in self._values.names
        ]
        key = np.concatenate([open_key[ended], at_key[pieces]])
        start = np.concatenate([since[ended], at[pieces]])
        end = np.concatenate([at[first[ended]], until[pieces]])
        place = np.concatenate([ended, len(open_key) + pieces])
        order = order_by(key)  # what was open is the first of its key
        key, start, end, place = key[order], start[order], end[order], place[order]
        begins = np.ones(len(key), dtype=np.bool_)
        if len(key) > 1:
            begins[1:] = (key[1:] != key[:-1]) | (start[1:] != end[:-1])
            begins[1:] |= ~self._same(value, place[1:], place[:-1])
        runs = np.flatnonzero(begins)
        last_of = np.append(runs[1:], len(key))[: len(runs)] - 1
        key, start, end, place = key[runs], start[runs], end[last_of], place[runs]
        untouched = np.flatnonzero(~touched)
        if below == FOREVER:
            key, start, place = _after(key, open_key, start, since, place, rest=untouched)
            end = np.append(end, np.full(len(untouched), _OPEN))
            self._open = self._open_schema.empty_table()
            return [self._rows(index, key, start, end, _at(value, place))]
        open_ = np.flatnonzero(end == _OPEN)
        still, open_since, at_open = _after(
            key[open_], open_key, start[open_], since, place[open_], rest=untouched
        )
        held = [] if index is None else index.decode(still)
        self._open = pa.Table.from_arrays(
            [*held, pa.array(open_since), *_at(value, at_open)], schema=self._open_schema
        )
        done = np.flatnonzero(end != _OPEN)
        return [self._rows(index, key[done], start[done], end[done], _at(value, place[done]))]

    def _same(self, value: list[pa.Array], one: Ints, other: Ints) -> Mask:
        """Return whether the values at two places each are equal."""
        names = list(self._values.names)
        if not names:
            return np.ones(len(one), dtype=np.bool_)
        a, b = (pa.RecordBatch.from_arrays(_at(value, places), names=names) for places in (one, other))
        return same_rows(a, b, self._values)

    def _ids(self, index: KeyIndex | None, rows: Any) -> Ints:
        if index is None or not rows.num_rows:
            return np.zeros(rows.num_rows, dtype=np.int64)
        return index.encode([as_array(rows.column(n)) for n in self.plan.keys])

    def _snapshots(self, side: Side, edges: Edges) -> tuple[pa.Table, Mask]:
        """Return the values at the edges, and at which of them some row holds."""
        rows, by_end = edges.rows, edges.by_end
        enter, leave = empty(len(edges.at)), empty(len(edges.at))
        ended = rows.keys[by_end], rows.ends[by_end]
        entered_and_left(edges.keys, edges.at, rows.keys, rows.starts, *ended, enter, leave)
        there = enter > leave
        if self._values_of is None:
            return pa.table({"": pa.nulls(len(there))}).select([]), there
        moments = Moments(edges.keys, edges.at, enter, leave)
        return self._values_of.at(side.rows, rows, moments), there

    def _rows(
        self, index: KeyIndex | None, key: Ints, start: Ints, end: Ints, value: Sequence[pa.Array]
    ) -> pa.RecordBatch:
        kind = to_arrow(self.plan.schema[self.plan.time])
        keys = [] if index is None else index.decode(key)
        arrays = [*keys, instants(start, kind), instants(end, kind), *value]
        return pa.RecordBatch.from_arrays(arrays, schema=self.plan.schema.to_arrow())

    # -- state

    def _over(self, below: int) -> int:
        return below - 1  # the value from `below` on may be the same: a row that ends there is looked at then

    @property
    def _recent(self) -> int:
        return super()._recent + len(self._open)

    def _put_apart(self) -> None:
        super()._put_apart()
        rows = one_batch(self._open)
        never = np.full(rows.num_rows, FOREVER, dtype=np.int64)
        self._open_apart = KeptByKey(rows, self._key_schema, never, values(rows.column(_SINCE)))
        self._open = self._open_schema.empty_table()

    def _gather(self) -> None:
        super()._gather()
        self._open, self._open_apart = self._all_open, None

    @property
    def _all_open(self) -> pa.Table:
        if self._open_apart is None:
            return self._open
        return pa.concat_tables([pa.Table.from_batches([self._open_apart.rows]), self._open])

    def _fetch(self, keys: Sequence[pa.Array]) -> None:
        assert self._open_apart is not None
        places = self._open_apart.of(keys)
        if len(places):
            found = pa.Table.from_batches([self._open_apart.rows_at(places)])
            self._open = pa.concat_tables([self._open, found])
            self._open_apart.leave(places)

    def _put_back(self) -> None:
        assert self._open_apart is not None
        self._held = min(self._held, self._open_apart.first_held)

    def size(self) -> tuple[int, int]:
        rows, nbytes = super().size()
        return rows + len(self._all_open), nbytes + self._all_open.nbytes

    def _extra_schemas(self) -> dict[str, pa.Schema]:
        return {"open": self._open_schema}

    def _extra(self) -> Snapshot:
        return {"open": self._all_open}

    def _load_extra(self, found: Sequence[pa.Table]) -> None:
        [self._open], self._open_apart = found, None


@dataclass(frozen=True)
class Edges:
    """The instants at which rows start or end, by key, in order; and the rows of their keys."""

    keys: Ints
    at: Ints
    rows: Keyed
    by_end: Ints
    """The rows in order of their key and end."""
    _begin: Ints
    """The first edge of each key, and behind the last one the number of edges."""

    @staticmethod
    def of(side: Side, kid: Ints, keys: int, below: int, *, in_turn: bool = False) -> Edges:
        """Find the edges below a watermark that are new: starts of new rows, and ends.

        `in_turn` says that rows end in the order in which they start.
        """
        by_start = order_by(kid, side.starts)
        by_end = by_start if in_turn else order_by(kid, side.ends)
        new, closing = side.is_new[by_start], side.ends[by_end] < below
        starts, ends = by_start[new], by_end[closing]
        out = empty(len(starts) + len(ends)), empty(len(starts) + len(ends))
        n = merged_edges(kid[starts], side.starts[starts], kid[ends], side.ends[ends], *out)
        at_key, at = (a[:n] for a in out)
        begin = np.append(0, np.cumsum(np.bincount(at_key, minlength=keys)))
        touched = begin[1:] > begin[:-1]
        if not touched.all():  # the rows of keys without an edge change nothing
            some = touched[kid]
            by_start, by_end = by_start[some[by_start]], by_end[some[by_end]]
        place = empty(len(kid))
        place[by_start] = np.arange(len(by_start))
        rows = Keyed(by_start, kid[by_start], side.starts[by_start], side.ends[by_start])
        return Edges(at_key, at, rows, place[by_end], begin)

    def first_of(self, keys: Ints) -> Ints:
        """Return the place of the first edge of each key; that of another one if it has none."""
        return self._begin[keys]

    def end_of(self, keys: Ints) -> Ints:
        """Return the place after the last edge of each key."""
        return self._begin[keys + 1]


def _at(value: list[pa.Array], places: Ints) -> list[pa.Array]:
    return [taken_column(column, places) for column in value]


def _after(
    key: Ints, open_key: Ints, start: Ints, since: Ints, place: Ints, *, rest: Ints
) -> tuple[Ints, Ints, Ints]:
    """Return the keys, starts and places of values, and behind them those of the `rest` of what was open."""
    return np.append(key, open_key[rest]), np.append(start, since[rest]), np.append(place, rest)
