"""Operators that change rows one by one: other lifetimes, elements of lists, edges."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidemill.core.errors import UserError
from tidemill.core.time import BEGINNING, FOREVER
from tidemill.core.types import to_arrow
from tidemill.local.lifetimes import check_lifetimes, ends_of, instants, starts_of
from tidemill.local.limits import Limits
from tidemill.local.operator import Operator, Snapshot
from tidemill.local.snapshot import column, numbers, tables
from tidemill.local.stage_runner import stage_runner
from tidemill.plan.temporal import Edges, Lifetime, Move, Unnest


class RowOperator(Operator):
    """Keeps no rows; its watermark follows that of its input."""

    move: Move | None = Move()

    def __init__(self) -> None:
        self._promised = BEGINNING

    def advance(self, port: int, below: int, *, prompt: bool = False) -> tuple[()]:
        if self.move is not None:
            self._promised = max(self._promised, self.move.of(below))
        elif below == FOREVER:
            self._promised = FOREVER
        return ()

    @property
    def wants_advance(self) -> bool:
        return False

    @property
    def promise(self) -> Limits:
        return Limits(self._promised)

    def snapshot(self) -> Snapshot:
        return {"promised": numbers(below=[self._promised])}

    def restore(self, state: Snapshot) -> None:
        (promised,) = tables(state, {"promised": pa.schema([("below", pa.int64())])})
        if len(promised) != 1:
            raise UserError("restore", expected="one watermark", got=str(len(promised)))
        [self._promised] = column(promised, "below").tolist()


class LifetimeOperator(RowOperator):
    """Computes other lifetimes, in the generated loop of a projection."""

    def __init__(self, plan: Lifetime) -> None:
        super().__init__()
        self.plan, self.move = plan, plan.move
        self._runner = stage_runner((), plan.outputs, plan.input.schema)
        self._has_times = plan.input.time in plan.input.schema  # a table has none

    def push(self, port: int, batch: pa.RecordBatch) -> Sequence[pa.RecordBatch]:
        if self._has_times and batch.num_rows and batch.column(self.plan.input.time).null_count:
            check_lifetimes(self.plan.input, batch)
        out = self._runner.run(batch)
        return (out,) if out.num_rows else ()


class UnnestOperator(RowOperator):
    """A row for each element of a list."""

    def __init__(self, plan: Unnest) -> None:
        super().__init__()
        self.plan = plan

    def push(self, port: int, batch: pa.RecordBatch) -> Sequence[pa.RecordBatch]:
        if not batch.num_rows:
            return ()
        lists = batch.column(self.plan.column)
        rows = pc.list_parent_indices(lists)
        arrays = [
            pc.list_flatten(lists) if name == self.plan.column else batch.column(name).take(rows)
            for name in self.plan.input.schema.names
        ]
        schema = self.plan.schema.to_arrow()
        out = pa.RecordBatch.from_arrays([a.cast(f.type) for a, f in zip(arrays, schema)], schema=schema)
        return (out,) if out.num_rows else ()


class EdgesOperator(RowOperator):
    """The starts and the ends of lifetimes. An end is above the watermark whenever its start is."""

    def __init__(self, plan: Edges) -> None:
        super().__init__()
        self.plan = plan

    def push(self, port: int, batch: pa.RecordBatch) -> Sequence[pa.RecordBatch]:
        check_lifetimes(self.plan.input, batch)
        out = both_edges(self.plan, batch, "start", "end", pa.string())
        return (out,) if out.num_rows else ()


def both_edges(
    plan: Edges, batch: pa.RecordBatch, start: object, end: object, kind: pa.DataType
) -> pa.RecordBatch:
    """Return the starts and then the finite ends of rows as points, with a column that says which."""
    below, schema = plan.input, plan.schema.to_arrow()
    ends = ends_of(below, batch)
    finite = ends != FOREVER
    names = plan.schema.names[1:]
    pieces = []
    for rows, ticks, says in (
        (batch, starts_of(below, batch), start),
        (batch.filter(pa.array(finite)), ends[finite], end),
    ):
        arrays = [
            instants(np.asarray(ticks), to_arrow(below.schema[n])) if n == below.time else rows.column(n)
            for n in names
        ]
        which = pa.repeat(pa.scalar(says, kind), rows.num_rows)
        pieces.append(pa.RecordBatch.from_arrays([which, *arrays], schema=schema))
    return pa.concat_batches(pieces)

