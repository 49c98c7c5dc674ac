"""Aggregates of the rows that hold at each instant, by key (paper 000, section 5.2.1)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from tidemill.core.schema import Schema, internal
from tidemill.core.time import FOREVER
from tidemill.core.types import INT64, to_arrow
from tidemill.kernels.arrow import values
from tidemill.kernels.keys import KeyIndex
from tidemill.kernels.order import order_by
from tidemill.kernels.overlaps import alive
from tidemill.local.lifetimes import Ints, Keyed, Mask, instants
from tidemill.local.matching import ranges
from tidemill.local.operator import Snapshot
from tidemill.local.same_rows import same_rows
from tidemill.local.temporal_operator import Side, TemporalOperator
from tidemill.local.window_operator import WindowOperator
from tidemill.plan.nodes import NamedWindow, Source, WindowAggregate
from tidemill.plan.temporal import SnapshotAggregate
from tidemill.windows.spec import tumbling

PLACE = internal("place")
"""The column of copies of rows that says their snapshot, and their order in it."""
_PLACES = 1 << 31
_MOST_SNAPSHOTS = 1 << 28
_SINCE = "\0state since"
_OPEN = FOREVER


class SnapshotOperator(TemporalOperator):
    """Keeps the rows that hold at the watermark, and the value of each key since it is what it is.

    Between two edges of a key, where one of its rows starts or ends, nothing changes. Each row is copied to
    the stretches between edges that it spans, and the copies are aggregated.
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
        self._copies = _Copies(plan) if names else None

    def _work(
        self, sides: list[Side], done: int, below: int
    ) -> tuple[list[pa.RecordBatch], list[pa.RecordBatch]]:
        [side] = sides
        n, kept = side.rows.num_rows, side.ends >= below
        index = KeyIndex(self._key_schema) if self.plan.keys else None
        kid = self._ids(index, side.rows)
        closing = np.flatnonzero(side.ends < below)
        new = np.flatnonzero(side.is_new)
        edges = np.append(side.starts[new], side.ends[closing])
        at_key, at = _distinct(np.append(kid[new], kid[closing]), edges)
        until = np.append(np.where(at_key[1:] == at_key[:-1], at[1:], _OPEN), _OPEN) if len(at) else at
        # The rows of keys without an edge change nothing.
        touched = np.isin(kid, at_key) if n else np.zeros(0, dtype=np.bool_)
        rows = Keyed.of(kid[touched], side.starts[touched], side.ends[touched])
        rows = Keyed(np.flatnonzero(touched)[rows.order], rows.keys, rows.starts, rows.ends)
        found, there = self._snapshots(side, rows, at_key, at)
        # The values so far go on until the first edge of their key.
        open_key = self._ids(index, self._open)
        first = np.searchsorted(at_key, open_key)
        ends_now = np.zeros(len(open_key), dtype=np.bool_)
        if len(at_key):
            ends_now = (first < len(at_key)) & (at_key[np.minimum(first, len(at_key) - 1)] == open_key)
        ended = self._open.filter(pa.array(ends_now))
        pieces = np.flatnonzero(there)
        key = np.concatenate([open_key[ends_now], at_key[pieces]])
        start = np.concatenate([values(_column(ended, _SINCE)), at[pieces]])
        end = np.concatenate([at[first[ends_now]], until[pieces]])
        value = pa.concat_tables([ended.select(list(self._values.names)), found.take(pa.array(pieces))])
        order = order_by(key, start)
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
        result = self._rows(index, key[runs], start[runs], end[last], value.take(pa.array(runs)))
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
                self._rows(index, ids, since, np.full(len(ids), _OPEN), rest),
            ])  # fmt: skip
            complete, still = np.ones(len(result), dtype=np.bool_), self._open_schema.empty_table()
        self._open = still.combine_chunks()
        if len(self._open):
            self._held = int(values(_column(self._open, _SINCE)).min())
        results = result.filter(pa.array(complete)).combine_chunks().to_batches()
        return results, [side.keep(kept)]

    def _ids(self, index: KeyIndex | None, rows: Any) -> Ints:
        if index is None or not rows.num_rows:
            return np.zeros(rows.num_rows, dtype=np.int64)
        return index.encode([_column(rows, n) for n in self.plan.keys])

    def _snapshots(self, side: Side, rows: Keyed, at_key: Ints, at: Ints) -> tuple[pa.Table, Mask]:
        """Return the values at some instants, and at which of them some row holds."""
        if self._copies is None:
            count = np.zeros(len(at), dtype=np.int64)
            by_end = order_by(rows.keys, rows.ends)
            alive(at_key, at, rows.keys, rows.starts, rows.keys[by_end], rows.ends[by_end], count)
            return pa.table({"": pa.nulls(len(at))}).select([]), count > 0
        return self._copies.aggregated(side, rows, Keyed(at, at_key, at, at))

    def _rows(self, index: KeyIndex | None, key: Ints, start: Ints, end: Ints, value: pa.Table) -> pa.Table:
        kind = to_arrow(self.plan.schema[self.plan.time])
        keys = [] if index is None else _decoded(index, key)
        arrays = [*keys, instants(start, kind), instants(end, kind), *value.columns]
        return pa.Table.from_arrays(arrays, schema=self.plan.schema.to_arrow())

    def _as_open(self, result: pa.Table, start: Ints) -> pa.Table:
        keys, found = ([result.column(n) for n in names] for names in (self.plan.keys, self._values.names))
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


class _Copies:
    """Aggregates the rows of snapshots: each row is copied to each of its snapshots."""

    def __init__(self, plan: SnapshotAggregate) -> None:
        source = plan.input.schema
        parts = [part for _, aggregate in plan.aggregates for part in aggregate.parts]
        from tidemill.expr.nodes import columns_of

        needed = frozenset({plan.input.time}).union(*(columns_of(a) for part in parts for a in part.args))
        self._names = [n for n in source.names if n in needed]
        schema = Schema((*((n, source[n]) for n in self._names), (PLACE, INT64)))
        windows = (NamedWindow(None, tumbling(_PLACES, on=PLACE)),)
        copies = Source("copies", schema, PLACE)
        self._plan = WindowAggregate(copies, (), windows, plan.aggregates)
        self._schema = schema.to_arrow()
        self._values = plan.schema.select(tuple(r.name for r in plan.layout.results)).to_arrow()
        self._operator: WindowOperator | None = None
        self._used = 0

    def aggregated(self, side: Side, rows: Keyed, snapshots: Keyed) -> tuple[pa.Table, Mask]:
        n = len(snapshots.keys)
        if self._operator is None or self._used + n >= _MOST_SNAPSHOTS:
            self._operator, self._used = WindowOperator(self._plan, watch=False), 0
        _, rank = np.unique(rows.starts, return_inverse=True)
        for own, others in ranges(rows, snapshots, 0):
            place = (self._used + others) * _PLACES + rank[own]
            taken = side.rows.select(self._names).take(pa.array(rows.order[own]))
            copies = [*taken.columns, pa.array(place)]
            self._operator.push(0, pa.RecordBatch.from_arrays(copies, schema=self._schema))
            self._operator.settle()
        found = list(self._operator.advance(0, (self._used + n) * _PLACES, prompt=True))
        there = np.zeros(n, dtype=np.bool_)
        table = pa.Table.from_batches(found, schema=self._plan.schema.to_arrow()).combine_chunks()
        at = values(_column(table, "window_start")) // _PLACES - self._used
        self._used += n
        there[at] = True
        place = np.zeros(n, dtype=np.int64)
        place[at] = np.arange(len(at))
        value = table.select(self._values.names)
        if len(value) == 0:
            value = pa.Table.from_arrays([pa.nulls(n, f.type) for f in self._values], schema=self._values)
            return value, there
        return value.take(pa.array(place)), there


def _distinct(keys: Ints, at: Ints) -> tuple[Ints, Ints]:
    """Return pairs in order, each once."""
    order = order_by(keys, at)
    keys, at = keys[order], at[order]
    new = np.ones(len(keys), dtype=np.bool_)
    new[1:] = (keys[1:] != keys[:-1]) | (at[1:] != at[:-1])
    return keys[new], at[new]


def _column(rows: Any, name: str) -> pa.Array:
    found = rows.column(name)
    if isinstance(found, pa.ChunkedArray):
        found = found.combine_chunks()
        found = found.chunk(0) if isinstance(found, pa.ChunkedArray) else found
    return found


def _decoded(index: KeyIndex, ids: Ints) -> list[pa.Array]:
    return index.decode(ids)
