"""Interval joins that answer on arrival from an index of the probe rows by key and time (paper 004, V-A)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from tidemill.aggregates.layout import Layout, layout
from tidemill.aggregates.ordered import first
from tidemill.core.schema import internal
from tidemill.core.time import BEGINNING, FOREVER
from tidemill.expr.fluent import Expr
from tidemill.expr.nodes import Column
from tidemill.intervals.index import TimeTravelIndex
from tidemill.intervals.partials import refusal
from tidemill.intervals.team import Team, TeamIndex
from tidemill.kernels.arrow import validity, values
from tidemill.kernels.keys import KeyIndex
from tidemill.kernels.order import float_key, order_by
from tidemill.local.arrival_operator import ArrivalOperator
from tidemill.local.expressions import evaluate
from tidemill.local.interval_ranges import FAR, Reach, reach
from tidemill.local.lifetimes import Ints, ends_of, starts_of, without_nulls
from tidemill.local.ranking import rank
from tidemill.local.snapshot import column
from tidemill.local.temporal_operator import Side
from tidemill.plan.build import bind
from tidemill.plan.intervals import Interval, IntervalAggregate, IntervalJoin, IntervalPairs
from tidemill.plan.temporal import payload

_KEY = "\0"
"""Before the names of key columns in a saved index."""
_NULL = np.iinfo(np.int64).min
"""The place of null in the order of a column of ties: below all values."""


@dataclass(frozen=True)
class Indexed:
    """What an index keeps for a join."""

    layout: Layout
    """The aggregates of the join, and then what else is kept of a row."""
    results: int
    """So many of them are columns of the result."""
    ties: tuple[str, ...]
    """The columns that sort rows of one time."""
    only_greatest: bool
    """Whether of rows of one key and time only the greatest is inserted."""


def indexed(plan: IntervalJoin) -> Indexed | None:
    """Return what an index keeps for a join; None if its answers cannot come from an index.

    >>> import tidemill as tm
    >>> s = tm.stream("s", time="t", schema={"t": "int64", "k": "int64", "x": "float64"})
    >>> indexed(s.interval_join(s, on="k", preceding=9).agg(n=tm.count()).plan).results
    1
    >>> indexed(s.last_join(s, on="k").plan).ties
    ('x',)
    >>> indexed(s.interval_join(s, on="k", preceding=9).agg(m=tm.median("x")).plan)
    """
    asked, probe = plan.interval, plan.probe
    if plan.match.where is not None or asked.has_hole or asked.since_previous:
        return None
    others = [n for n in payload(probe) if n not in plan.match.right_keys and probe.schema[n].is_ordered]
    numbers = all(probe.schema[n].kind != "string" for n in others)
    only_greatest = asked.in_row_order and not numbers
    if only_greatest and (asked.max_rows != 1 or asked.following != 0 or asked.prevailing):
        return None
    if asked.in_row_order and probe.end is not None:
        return None
    if isinstance(plan, IntervalAggregate):
        aggregates = plan.aggregates
    else:
        assert isinstance(plan, IntervalPairs)
        if asked.max_rows != 1 or plan.kind != "left":
            return None
        aggregates = tuple((name, bind(probe, name, first(Expr(Column(of))))) for name, of in plan.columns)
    results = len(aggregates)
    if only_greatest:
        more = ((internal(f"of {n}"), bind(probe, n, first(Expr(Column(n))))) for n in others)
        aggregates = (*aggregates, *more)
    kept = layout(aggregates, probe.schema, frozenset({probe.time}))
    if refusal(kept):
        return None
    ties = tuple(others) if asked.in_row_order and numbers else ()
    return Indexed(kept, results, ties, only_greatest)


def expiry(asked: Interval, below: int) -> list[tuple[int, int]]:
    """Return below which instants rows go, and how many of each key stay, if no base row comes below one."""
    at, found = below - asked.offset, []
    if asked.max_rows is not None:
        found.append((at, asked.max_rows))
    if isinstance(asked.preceding, int) and asked.preceding < FAR:
        found.append((max(at - asked.preceding, BEGINNING), int(asked.prevailing)))
    return found


_NO_KEYS = pa.RecordBatch.from_arrays([pa.array([0])], names=["\0row"])


class IndexedOperator(ArrivalOperator):
    """Keeps what the aggregates need of each probe row, by key and time."""

    def __init__(
        self, plan: IntervalJoin, kept: Indexed, *args: Any, joiners: int = 1, pool: Executor | None = None,
        **kwargs: Any,
    ) -> None:  # fmt: skip
        """So many `joiners` share the intervals of many base rows, on threads of the `pool`, if given."""
        super().__init__(plan, *args, **kwargs)
        self._kept = kept
        few = self._tuning.few_sought if plan.interval.computed else self._tuning.few_joined
        self._team = Team(joiners, few=few, pool=pool) if joiners > 1 else None
        self._key_names = plan.match.right_keys
        self._schema = plan.schema.to_arrow()
        self._looks = 0
        self._new_index()

    def _new_index(self) -> None:
        layout, ties = self._kept.layout, len(self._kept.ties)
        self.index = (
            TimeTravelIndex(layout, ties=ties) if self._team is None
            else TeamIndex(layout, self._team, ties=ties)
        )  # fmt: skip
        self._ids = dict[Any, int]()
        """The ids of keys that were looked up one by one."""
        self.keys = KeyIndex(self.plan.probe.schema.select(self._key_names)) if self._key_names else None

    # -- probe rows

    def _arrived(self, batch: pa.RecordBatch) -> None:
        ids = self.key_ids(batch, self._key_names, add=True)
        times = np.asarray(starts_of(self.plan.probe, batch))
        if self._kept.only_greatest:
            chosen = self._greatest(batch, ids, times)
            if len(chosen) < len(ids):
                batch, ids, times = batch.take(pa.array(chosen)), ids[chosen], times[chosen]
        schema = self.plan.probe.schema
        arguments = [evaluate(node, batch, schema) for node in self.index.arguments]
        ties = [_tie(batch.column(n)) for n in self._kept.ties]
        self.index.insert(ids, times, arguments, ties=ties)

    def key_ids(self, batch: pa.RecordBatch, names: Sequence[str], *, add: bool) -> Ints:
        """Return the ids of keys; below 0 for those that are not known, and those with a null."""
        if self.keys is None:
            return np.zeros(batch.num_rows, dtype=np.int64)
        columns = [batch.column(n) for n in names]
        ids = self.keys.encode(columns) if add else self.keys.find(columns)
        if not any(c.null_count for c in columns):
            return ids
        return without_nulls(ids, batch, names[len(self.plan.match.scope) :], -1)

    def id_of(self, key: Any) -> int:
        """Return the id of the key of a base row, a value or a tuple; below 0 if it is not known."""
        found = self._ids.get(key)
        if found is None:
            columns = key if isinstance(key, tuple) else (key,)
            kinds = self.plan.base.schema.select(self.plan.match.left_keys).to_arrow()
            arrays = [pa.array([value], kind.type) for value, kind in zip(columns, kinds)]
            rows = pa.RecordBatch.from_arrays(arrays, schema=kinds) if arrays else _NO_KEYS
            found = int(self.key_ids(rows, self.plan.match.left_keys, add=False)[0])
            if found >= 0:
                if self.keys is not None and len(self._ids) > self.keys.count:
                    self._ids.clear()  # NaN is equal to no key of a dict, and would be there many times
                self._ids[key] = found
        return found

    def _greatest(self, batch: pa.RecordBatch, ids: Ints, times: Ints) -> Ints:
        """Return the places of rows that are greater than all rows of their key and time before them."""
        schema, names = self.plan.probe.schema, payload(self.plan.probe)
        order = order_by(ids, times, *rank(batch, schema, names))
        last = np.ones(len(order), dtype=np.bool_)
        last[:-1] = (ids[order][1:] != ids[order][:-1]) | (times[order][1:] != times[order][:-1])
        chosen = np.sort(order[last])
        offsets, _ = self.index.rows_in(ids[chosen], times[chosen], times[chosen])
        there = np.flatnonzero(offsets[1:] > offsets[:-1])
        if not len(there):
            return chosen
        rows = chosen[there]
        known = self.index.answers(ids[rows], times[rows], times[rows], max_rows=1, at=times[rows])
        others = [r.name for r in self._kept.layout.results[self._kept.results :]]
        own = [n for n in names if n not in self._key_names and schema[n].is_ordered]
        keep = np.ones(len(chosen), dtype=np.bool_)
        columns = dict(zip((r.name for r in self._kept.layout.results), known))
        before = [columns[name] for name in others]
        mine = [batch.column(n).take(pa.array(rows)) for n in own]
        both = pa.RecordBatch.from_arrays(
            [pa.concat_arrays([a, b.cast(a.type)]) for a, b in zip(before, mine)], names=own
        )
        ranks, n = rank(both, schema, own), len(rows)
        for place, at in enumerate(there):
            older, newer = ([of[i] for of in ranks] for i in (place, n + place))
            keep[at] = newer > older
        return chosen[keep]

    # -- base rows

    def _answered(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        yield self._found(rows, keep=True)

    def looked_up(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        yield self._found(rows, keep=False)

    def _found(self, rows: pa.RecordBatch, *, keep: bool) -> pa.RecordBatch:
        asked = self._asked_of(rows)
        if keep:
            self._refuse_base(rows, asked.bad)
        return self._answer(rows, asked)

    def _asked_of(self, rows: pa.RecordBatch) -> Reach:
        """Return the intervals of base rows."""
        base = self.plan.base
        side = Side(base, rows, 0, starts_of(base, rows), ends_of(base, rows))
        return reach(self.plan.interval, side, None, lenient=self._lenient)

    def _answer(self, rows: pa.RecordBatch, own: Reach) -> pa.RecordBatch:
        """Return base rows with the answers to their intervals."""
        plan, asked = self.plan, self.plan.interval
        ids = self.key_ids(rows, plan.match.left_keys, add=False)
        if own.bad is not None:
            ids = np.where(own.bad, -1, ids)
        columns = self.index.answers(
            ids, np.asarray(own.low), np.asarray(own.high), prevailing=asked.prevailing,
            max_rows=asked.max_rows, at=np.asarray(own.at) if asked.max_rows is not None else None,
        )  # fmt: skip
        own_columns = rows.columns[: len(plan.base.schema.names)]
        arrays = [*own_columns, *columns[: self._kept.results]]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    # -- what is kept

    def _forget(self) -> None:
        below = self._reached
        if below == FOREVER:
            self._new_index()
        elif below > BEGINNING:
            self._expire(expiry(self.plan.interval, below))
        self._forgot()

    def _forgot(self) -> None:
        """Note what is left, and forget keys and texts that no row has, if there are many."""
        self._came, self._left = 0, self.index.rows
        fields = len(self._kept.layout.results)
        keys = self.keys is not None and self.keys.count > max(self._tuning.few_keys, 2 * self._left)
        if keys or self.index.texts > max(self._tuning.few_strings, 2 * fields * self._left):
            self._load_extra(list(self._extra().values()))  # with ids for what rows have

    def _expire(self, ways: Sequence[tuple[int, int]]) -> None:
        """Drop rows in one of several ways: in turns, as a call looks at some of the keys only."""
        if ways:
            instant, spare = ways[self._looks % len(ways)]
            self.index.expire(instant, spare=spare)
            self._looks += 1

    def close(self) -> None:
        if self._team is not None:
            self._team.close()
        super().close()

    def size(self) -> tuple[int, int]:
        return self.index.size()

    def key_of_table(self, name: str, keys: Sequence[str]) -> str | None:
        return f"{_KEY}{keys[1]}" if name == "index" else super().key_of_table(name, keys)

    def _extra_schemas(self) -> dict[str, pa.Schema]:
        kinds = self.plan.probe.schema.select(self._key_names).to_arrow()
        keys = [pa.field(f"{_KEY}{field.name}", field.type) for field in kinds]
        return {"index": pa.schema([*keys, *list(self.index.snapshot().schema)[1:]])}

    def _extra(self) -> dict[str, pa.Table]:
        saved, schema = self.index.snapshot(), self._extra_schemas()["index"]
        keys = [] if self.keys is None else self.keys.decode(column(saved, "key"))
        return {"index": pa.Table.from_arrays([*keys, *saved.columns[1:]], schema=schema)}

    def _load_extra(self, found: Sequence[pa.Table]) -> None:
        [saved] = found
        self._new_index()
        ids, columns = np.zeros(len(saved), dtype=np.int64), saved.columns
        if self.keys is not None:
            ids = self.keys.encode([c.combine_chunks() for c in columns[: len(self._key_names)]])
            columns = columns[len(self._key_names) :]
        names = self.index.snapshot().column_names
        self.index.restore(pa.table([pa.array(ids), *columns], names=names))
        self._left = self.index.rows


def _tie(own: pa.Array) -> Ints:
    data, valid = values(own), validity(own)
    numbers = float_key(data) if data.dtype.kind == "f" else data.astype(np.int64)
    return numbers if valid is None else np.where(valid != 0, numbers, _NULL)
