"""Operators that change rows one by one: other lifetimes, elements of lists, edges."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidemill.core.errors import UserError
from tidemill.core.time import BEGINNING, FOREVER
from tidemill.core.types import to_arrow
from tidemill.expr.nodes import Column, Node
from tidemill.kernels.arrow import values
from tidemill.kernels.row_batches import taken_column
from tidemill.local.lifetimes import check_lifetimes, ends_of, instants, starts_of
from tidemill.local.limits import Limits
from tidemill.local.operator import Operator, Snapshot
from tidemill.local.snapshot import column, numbers, tables
from tidemill.local.stage_operator import unchanged
from tidemill.local.stage_runner import stage_runner
from tidemill.plan.temporal import Edges, Lifetime, Move, Unnest


class RowOperator(Operator):
    """Keeps no rows; its watermark follows that of its input."""

    move: Move | None = Move()

    def __init__(self) -> None:
        self._promised = BEGINNING

    def stateless(self, port: int) -> Callable[[pa.RecordBatch], Sequence[pa.RecordBatch]] | None:
        return partial(self.push, port) if self._threadsafe else None

    _threadsafe = True

    def advance(self, port: int, below: int, *, prompt: bool = False) -> tuple[()]:
        if self.move is not None:
            self._promised = max(self._promised, self.move.of(below))
        elif below == FOREVER:
            self._promised = FOREVER
        return ()

    def keys_passed_on(
        self, port: int, keys: Mapping[str, pa.Array], below: int
    ) -> tuple[dict[str, pa.Array], int] | None:
        found = unchanged(self._outputs, keys)
        return None if found is None or self.move is None else (found, self.move.of(below))

    @property
    def keeps_rows(self) -> bool:
        return False

    @property
    def _outputs(self) -> tuple[tuple[str, Node], ...]:
        """What the columns of results are, where they are those of the input."""
        raise NotImplementedError

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
        self._threadsafe = self._runner.threadsafe
        self._has_times = plan.input.time in plan.input.schema  # a table has none

    @property
    def _outputs(self) -> tuple[tuple[str, Node], ...]:
        return self.plan.outputs

    def push(self, port: int, batch: pa.RecordBatch) -> Sequence[pa.RecordBatch]:
        source = self.plan.input
        if self._has_times and (source.end is not None or batch.column(source.time).null_count):
            check_lifetimes(source, batch)
        out = self._runner.run(batch)
        return (out,) if out.num_rows else ()


class UnnestOperator(RowOperator):
    """A row for each element of a list."""

    def __init__(self, plan: Unnest) -> None:
        super().__init__()
        self.plan = plan

    @property
    def _outputs(self) -> tuple[tuple[str, Node], ...]:
        same = (n for n in self.plan.input.schema.names if n != self.plan.column)
        return tuple((n, Column(n)) for n in same)

    def push(self, port: int, batch: pa.RecordBatch) -> Sequence[pa.RecordBatch]:
        if not batch.num_rows:
            return ()
        lists = batch.column(self.plan.column)
        rows = values(pc.list_parent_indices(lists))
        elements = pc.list_flatten(lists)
        own = [elements] if self.plan.element else elements.flatten()
        arrays = [
            array
            for name in self.plan.input.schema.names
            for array in (own if name == self.plan.column else [taken_column(batch.column(name), rows)])
        ]
        schema = self.plan.schema.to_arrow()
        out = pa.RecordBatch.from_arrays([a.cast(f.type) for a, f in zip(arrays, schema)], schema=schema)
        return (out,) if out.num_rows else ()


class EdgesOperator(RowOperator):
    """The starts and the ends of lifetimes. An end is above the watermark whenever its start is."""

    def __init__(self, plan: Edges) -> None:
        super().__init__()
        self.plan = plan

    @property
    def _outputs(self) -> tuple[tuple[str, Node], ...]:
        return tuple((n, Column(n)) for n in self.plan.schema.names if n in self.plan.input.schema)

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

