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
from tidemill.local.edge_sweep import EdgeSweep, Values, sweeps
from tidemill.local.lifetimes import Ints, Keyed, Mask, instants
from tidemill.local.operator import Snapshot
from tidemill.local.same_rows import as_array, same_rows
from tidemill.local.snapshot_values import Moments, SnapshotValues
from tidemill.local.temporal_operator import Side, TemporalOperator
from tidemill.plan.properties import properties
from tidemill.plan.temporal import SnapshotAggregate

_SINCE = "\0state since"
_OPEN = FOREVER


class SnapshotOperator(TemporalOperator):
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
        self._in_turn = properties(plan.input).in_turn
        """Whether ends need no order of their own."""
        ways = self._tuning.snapshots
        self._sweep = EdgeSweep(plan) if "edges" in ways and sweeps(plan) else None
        self._values_of = SnapshotValues(plan, moving="moving" in ways) if names else None

    def _work(
        self, sides: list[Side], below: int
    ) -> tuple[list[pa.RecordBatch], list[pa.RecordBatch]]:
        [side] = sides
        kept = side.keep(side.ends >= below)
        sweep = self._sweep
        found = self._key_by_key(side, below) if sweep is None else self._swept(sweep, side, below)
        if len(self._open):
            self._held = int(values(_column(self._open, _SINCE)).min())
        return [batch for table in found for batch in table.combine_chunks().to_batches()], [kept]

    def _swept(self, sweep: EdgeSweep, side: Side, below: int) -> list[pa.Table]:
        """Return the rows that are complete, by one pass over edges."""
        index = KeyIndex(self._key_schema) if self.plan.keys else None
        kid = self._ids(index, side.rows)
        open_ = Values(
            self._ids(index, self._open), values(_column(self._open, _SINCE)),
            np.full(len(self._open), _OPEN), [_column(self._open, n) for n in self._values.names],
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

    def _key_by_key(self, side: Side, below: int) -> list[pa.Table]:
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
        # The values so far go on until the first edge of their key.
        first = edges.first_of(open_key)
        ends_now = first < edges.end_of(open_key)
        ended = self._open.filter(pa.array(ends_now))
        pieces = np.flatnonzero(there)
        key = np.concatenate([open_key[ends_now], at_key[pieces]])
        start = np.concatenate([values(_column(ended, _SINCE)), at[pieces]])
        end = np.concatenate([at[first[ends_now]], until[pieces]])
        value = pa.concat_tables(
            [ended.select(list(self._values.names)), found.take(pa.array(pieces))]
        )
        order = order_by(key)  # what was open is the first of its key
        key, start, end = key[order], start[order], end[order]
        value = value.take(pa.array(order)).combine_chunks()
        begins = np.ones(len(key), dtype=np.bool_)
        if len(key) > 1:
            same = (key[1:] == key[:-1]) & (start[1:] == end[:-1])
            if len(self._values):
                same &= same_rows(value.slice(1), value.slice(0, len(key) - 1), self._values)
            begins[1:] = ~same
        runs = np.flatnonzero(begins)
        last = np.append(runs[1:], len(key))[: len(runs)] - 1
        result = self._rows(index, key[runs], start[runs], end[last], value.take(pa.array(runs)).columns)
        complete = (end[last] != _OPEN) | (below == FOREVER)
        still = pa.concat_tables([
            self._open.filter(pa.array(~ends_now)),
            self._as_open(result, start[runs]).filter(pa.array(~complete)),
        ])  # fmt: skip
        if below == FOREVER and len(still):
            since = values(_column(still, _SINCE))
            rest = still.select(list(self._values.names))
            ids = self._ids(index, still)
            result = pa.concat_tables([
                result.filter(pa.array(complete)),
                self._rows(index, ids, since, np.full(len(ids), _OPEN), rest.columns),
            ])  # fmt: skip
            complete, still = np.ones(len(result), dtype=np.bool_), self._open_schema.empty_table()
        self._open = still.combine_chunks()
        return [result.filter(pa.array(complete))]

    def _ids(self, index: KeyIndex | None, rows: Any) -> Ints:
        if index is None or not rows.num_rows:
            return np.zeros(rows.num_rows, dtype=np.int64)
        return index.encode([_column(rows, n) for n in self.plan.keys])

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
    ) -> pa.Table:
        kind = to_arrow(self.plan.schema[self.plan.time])
        keys = [] if index is None else index.decode(key)
        arrays = [*keys, instants(start, kind), instants(end, kind), *value]
        return pa.Table.from_arrays(arrays, schema=self.plan.schema.to_arrow())

    def _as_open(self, result: pa.Table, start: Ints) -> pa.Table:
        keys, found = (
            [result.column(n) for n in names] for names in (self.plan.keys, self._values.names)
        )
        return pa.Table.from_arrays([*keys, pa.array(start), *found], schema=self._open_schema)

    # -- state

    def size(self) -> tuple[int, int]:
        rows, nbytes = super().size()
        return rows + len(self._open), nbytes + self._open.nbytes

    def _extra_schemas(self) -> dict[str, pa.Schema]:
        return {"open": self._open_schema}

    def _extra(self) -> Snapshot:
        return {"open": self._open}

    def _load_extra(self, found: Sequence[pa.Table]) -> None:
        [self._open] = found


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


def _column(rows: pa.RecordBatch | pa.Table, name: str) -> pa.Array:
    """Return a column of rows in one piece."""
    found = rows.column(name)
    return as_array(found) if isinstance(found, pa.ChunkedArray) else found
