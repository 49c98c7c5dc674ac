"""The operator of windows of the last range of one attribute that slide over another (`LastRange`).

A row is in consecutive windows: from the first one that sees it, until the greatest range attribute of its
partition is a range beyond its own. The operator keeps the rows that windows to come need. When windows
close, each of their rows is copied to each of its windows, and a window operator aggregates the copies by
windows that do not overlap.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemill.aggregates.basic import max as greatest
from tidemill.core.errors import UserError
from tidemill.core.schema import Schema, internal
from tidemill.core.time import BEGINNING, FARTHEST, FOREVER
from tidemill.core.types import INT64, to_arrow
from tidemill.expr.fluent import Expr
from tidemill.expr.nodes import Column
from tidemill.kernels.arrow import values
from tidemill.kernels.keys import KeyIndex
from tidemill.kernels.last_range import leaving
from tidemill.kernels.order import order_by
from tidemill.local.attributes import Attribute, attribute_of
from tidemill.local.late_rows import LateRows
from tidemill.local.limits import Ints, Limits
from tidemill.local.operator import Operator, Snapshot
from tidemill.local.snapshot import column, numbers, tables
from tidemill.local.stage_runner import stage_runner
from tidemill.local.tuning import DEFAULT, Tuning
from tidemill.local.window_operator import WindowOperator
from tidemill.optimize.choices import with_choices
from tidemill.plan.differences import require_same_plan
from tidemill.plan.faults import far_time, null_time
from tidemill.plan.format import format_plan
from tidemill.plan.nodes import (
    WINDOW,
    WINDOW_END,
    WINDOW_ID,
    WINDOW_START,
    NamedWindow,
    Source,
    WindowAggregate,
)
from tidemill.plan.properties import slides_over_another
from tidemill.plan.stages import Stage, stage_of
from tidemill.windows.spec import LastRange, tumbling

PLACE = internal("place")
"""The column of copies that says their window, and their order in it."""
BEGIN = internal("begin")
"""The column of copies with the least slide attribute of their window."""
_PLACES = 1 << 31
"""Places of a window: more than rows are copied at once."""
_MOST_WINDOWS = 1 << 28
_COPIES = 1 << 20
"""Rows to copy at once, at most; a window that has more is copied whole."""
_NO_KEYS = np.empty(0, dtype=np.int64)
_FORMAT = 1


def operator_of(plan: WindowAggregate) -> Operator:
    """Return the operator of a window aggregate, on one thread."""
    return LastRangeOperator(plan) if slides_over_another(plan) else WindowOperator(plan)


@dataclass(frozen=True)
class _Rows:
    """Rows in order of their partitions and of their slide attribute, and the windows that have them."""

    rows: pa.RecordBatch
    partition: Ints
    x: Ints
    slides: Ints
    first: Ints
    """The first window of each row."""
    after: Ints
    """The first window after `first` that does not have the row."""

    def taken(self, some: npt.NDArray[np.bool_]) -> _Rows:
        arrays = (self.partition, self.x, self.slides, self.first, self.after)
        return _Rows(self.rows.filter(pa.array(some)), *(a[some] for a in arrays))

    def between(self, first: int, last: int) -> _Rows:
        """Return the rows of some windows."""
        return self.taken((self.first <= last) & (self.after > np.maximum(self.first, first)))

    def copies(self, first: int, last: int) -> Ints:
        """Return how many of the windows `first` to `last` have each row."""
        count = np.minimum(self.after, last + 1) - np.maximum(self.first, first)
        found: Ints = np.maximum(count, 0)
        return found


class LastRangeOperator(Operator):
    """One aggregate over such windows. A late row is in no window."""

    def __init__(
        self, plan: WindowAggregate, stage: Stage | None = None, tuning: Tuning = DEFAULT, *,
        keep_late: bool = True,
    ) -> None:  # fmt: skip
        self.plan, self._tuning = plan, tuning
        stage = stage or stage_of(plan.input)
        self._stage = stage
        self._compact = stage_runner(stage.predicates, stage.outputs, stage.base.schema)
        self._schema = plan.input.schema
        self._rows: list[pa.RecordBatch] = []
        """The rows that windows to come need."""
        self._below = BEGINNING
        """Rows whose slide attribute is below this are complete."""
        self._latest = BEGINNING
        """The greatest slide attribute so far."""
        self._given = [BEGINNING] * len(plan.windows)
        """The last window that was given, for each specification."""
        self._late = LateRows(self._schema, Column(plan.attribute), (), keep=keep_late)
        self._attribute = attribute_of(plan, stage)
        self._inner = aggregate_of_copies(plan)
        self._aggregate: WindowOperator | None = None
        self._used = 0
        """The windows that `_aggregate` has had."""

    @property
    def _specs(self) -> list[LastRange]:
        return [w.spec for w in self.plan.windows if isinstance(w.spec, LastRange)]

    @property
    def promise(self) -> Limits:
        return Limits(FOREVER) if self._below == FOREVER else Limits()

    @property
    def attribute(self) -> Attribute | None:
        return self._attribute

    def size(self) -> tuple[int, int]:
        return sum(b.num_rows for b in self._rows), sum(b.nbytes for b in self._rows)

    def late(self) -> pa.Table:
        return self._late.table()

    # -- rows in

    def push(self, port: int, batch: pa.RecordBatch) -> tuple[()]:
        batch = batch if self._compact.trivial else self._compact.run(batch)
        if batch.num_rows == 0:
            return ()
        self._require_ticks(batch)
        if self._below > BEGINNING:
            late = self._late.keep(batch, _NO_KEYS, Limits(self._below))
            batch = batch if late is None else batch.filter(pa.array(~late))
        if batch.num_rows:
            self._latest = max(self._latest, int(values(batch.column(self.plan.attribute)).max()))
            self._rows.append(batch)
        return ()

    def _require_ticks(self, batch: pa.RecordBatch) -> None:
        """Raise an error if a row lacks an attribute, or has one too far from zero."""
        for name in (self.plan.attribute, self.plan.range_attribute):
            ticks = batch.column(name)
            if ticks.null_count:
                raise null_time(self.plan, name)
            if batch.num_rows and not -FARTHEST <= values(ticks).min() <= values(ticks).max() <= FARTHEST:
                raise far_time(self.plan, name)

    # -- windows out

    def advance(self, port: int, below: int, *, prompt: bool = False) -> Iterator[pa.RecordBatch]:
        if below == FOREVER or self.plan.attribute == self.plan.input.time:
            yield from self._advance(below)

    def advance_on(
        self, port: int, below: int, keys: Mapping[str, pa.Array] | None = None, *, prompt: bool = False
    ) -> Iterator[pa.RecordBatch]:
        if keys is None and self._attribute is not None:
            yield from self._advance(below)

    def _advance(self, below: int) -> Iterator[pa.RecordBatch]:
        if below <= self._below:
            return
        self._below = below
        until = [self._until(spec) for spec in self._specs]
        if not self._rows or not any(last > given for last, given in zip(until, self._given)):
            return
        rows = pa.concat_batches(self._rows)
        needed = np.zeros(rows.num_rows, dtype=np.bool_)
        for at, (window, spec, last) in enumerate(zip(self.plan.windows, self._specs, until)):
            found, order = self._placed(rows, spec)
            if last > self._given[at]:
                begin = max(self._given[at] + 1, int(found.first.min()))
                yield from self._closed(found.between(begin, last), window, begin, last)
                self._given[at] = last
            needed[order] |= (found.first > self._given[at]) | (found.after > self._given[at] + 1)
        self._rows = [rows if needed.all() else rows.filter(pa.array(needed))]

    def _until(self, spec: LastRange) -> int:
        """Return the last complete window; whether there are any after the last row, rows to come say."""
        complete = (self._below - spec.origin) // spec.every.ticks - 1
        return min(complete, (self._latest - spec.origin) // spec.every.ticks)

    def _placed(self, batch: pa.RecordBatch, spec: LastRange) -> tuple[_Rows, Ints]:
        """Return rows in order with the windows that have them, and where they were in the batch."""
        names = self.plan.partition_of(spec)
        partition = np.zeros(batch.num_rows, dtype=np.int64)
        if names:
            partition = KeyIndex(self._schema.select(names)).encode([batch.column(n) for n in names])
        x, slides = (values(batch.column(n)) for n in (self.plan.range_attribute, self.plan.attribute))
        order = order_by(partition, slides)
        partition, x, slides = partition[order], x[order], slides[order]
        first = (slides - spec.origin) // spec.every.ticks
        after = leaving(partition, first, x, order_by(partition, x), spec.range.ticks, FOREVER)
        return _Rows(batch.take(pa.array(order)), partition, x, slides, first, after), order

    def _closed(self, found: _Rows, window: NamedWindow, first: int, last: int) -> Iterator[pa.RecordBatch]:
        """Aggregate the windows `first` to `last`, as many at a time as there is room for their rows."""
        if first > last or not found.rows.num_rows:
            return
        count = found.copies(first, last)
        if first == last or (int(count.sum()) <= _COPIES and last - first < _MOST_WINDOWS):
            yield from self._aggregated(found, count, window, first, last)
            return
        middle = (first + last) // 2
        for low, high in ((first, middle), (middle + 1, last)):
            yield from self._closed(found.between(low, high), window, low, high)

    def _aggregated(
        self, found: _Rows, count: Ints, window: NamedWindow, first: int, last: int
    ) -> Iterator[pa.RecordBatch]:
        if self._aggregate is None or self._used + last - first >= _MOST_WINDOWS:
            self._aggregate, self._used = WindowOperator(self._inner, tuning=self._tuning, watch=False), 0
        row = np.repeat(np.arange(len(count)), count)
        nth = np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count)
        wid = np.maximum(found.first, first)[row] + nth
        _, rank = np.unique(found.x, return_inverse=True)
        place = (self._used + wid - first) * _PLACES + rank[row]
        extra = (place, _least(found.partition[row], wid, found.slides[row]))
        copies = pa.RecordBatch.from_arrays(
            [*found.rows.take(pa.array(row)).columns, *map(pa.array, extra)],
            schema=self._inner.input.schema.to_arrow(),
        )
        self._aggregate.push(0, copies)
        shift, self._used = first - self._used, self._used + last - first + 1
        for batch in self._aggregate.advance(0, self._used * _PLACES, prompt=True):
            yield self._shown(batch, window, shift)

    def _shown(self, batch: pa.RecordBatch, window: NamedWindow, shift: int) -> pa.RecordBatch:
        """Return results of copies as those of the windows."""
        spec, bound = window.spec, to_arrow(self.plan.bound_type)
        assert isinstance(spec, LastRange)
        wid = values(batch.column(WINDOW_START)) // _PLACES + shift
        own: dict[str, pa.Array] = {
            WINDOW_START: batch.column(BEGIN).cast(bound),
            WINDOW_END: pa.array(spec.origin + (wid + 1) * spec.every.ticks).cast(bound),
            WINDOW_ID: pa.array(wid),
            WINDOW: pa.array([window.label] * len(wid), pa.string()),
        }
        names = self.plan.schema.names
        arrays = [batch.column(n) if n in self._names else own[n] for n in names]
        return pa.RecordBatch.from_arrays(arrays, schema=self.plan.schema.to_arrow())

    @property
    def _names(self) -> set[str]:
        """The columns of results that the aggregate of the copies has."""
        return {*self.plan.group_keys, *(name for name, _ in self.plan.aggregates)}

    def so_far(self, more: Sequence[tuple[int, pa.RecordBatch]] = ()) -> Iterator[pa.RecordBatch]:
        copy = LastRangeOperator(self.plan, self._stage, self._tuning)
        copy.restore(self.snapshot())
        for port, batch in more:
            copy.push(port, batch)
        yield from copy.advance(0, FOREVER)

    # -- state

    def snapshot(self) -> Snapshot:
        return {
            "about": pa.table({"format": [_FORMAT], "plan": [format_plan(self.plan, with_choices)]}),
            "rows": pa.Table.from_batches(self._rows, schema=self._schema.to_arrow()),
            "late": self.late(),
            "known": numbers(tick=[self._below, self._latest, *self._given]),
        }

    def restore(self, state: Snapshot) -> None:
        schema = self._schema.to_arrow()
        about, rows, late, known = tables(state, {
            "about": pa.schema([("format", pa.int64()), ("plan", pa.string())]),
            "rows": schema, "late": schema, "known": pa.schema([("tick", pa.int64())]),
        })  # fmt: skip
        if (found := about["format"].to_pylist()) != [_FORMAT]:
            raise UserError("restore", expected=f"a snapshot of format {_FORMAT}", got=f"{found!r:.80}")
        require_same_plan(str(about["plan"][0]), format_plan(self.plan, with_choices))
        ticks = column(known, "tick").tolist()
        if len(ticks) != 2 + len(self._given):
            raise UserError("restore", expected=f"{2 + len(self._given)} ticks", got=str(len(ticks)))
        self._rows = rows.to_batches()
        for batch in self._rows:
            self._require_ticks(batch)
        self._late.restore(late)
        self._below, self._latest, *self._given = ticks


def aggregate_of_copies(plan: WindowAggregate) -> WindowAggregate:
    """Return the aggregate of rows that are copied to windows, each of which has places of its own."""
    schema = Schema((*plan.input.schema.fields, (PLACE, INT64), (BEGIN, INT64)))
    windows = (NamedWindow(None, tumbling(_PLACES, on=PLACE)),)
    aggregates = (*plan.aggregates, (BEGIN, greatest(Expr(Column(BEGIN)))))
    return WindowAggregate(Source("copies", schema, PLACE), plan.group_keys, windows, aggregates)


def _least(partition: Ints, wid: Ints, slides: Ints) -> Ints:
    """Return the least slide attribute of each row's partition and window."""
    order = order_by(partition, wid)
    begins = np.flatnonzero(np.r_[True, (np.diff(partition[order]) != 0) | (np.diff(wid[order]) != 0)])
    out = np.empty_like(slides)
    sizes = np.diff(np.r_[begins, len(order)])
    out[order] = np.repeat(np.minimum.reduceat(slides[order], begins), sizes)
    return out
