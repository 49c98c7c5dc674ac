"""Run filters and projections over batches, in one generated loop for columns of fixed width."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemill.codegen.columns import Columns
from tidemill.codegen.kernel_errors import raise_for
from tidemill.codegen.stage_kernel import StageKernel, stage_kernel
from tidemill.core.errors import UserError
from tidemill.core.schema import Schema
from tidemill.core.types import to_arrow
from tidemill.expr.nodes import Column, Literal, Node, columns_of
from tidemill.expr.typing import type_of
from tidemill.jit.user_functions import known
from tidemill.kernels.arrow import allocate, build
from tidemill.kernels.memory import empty
from tidemill.kernels.substrings import taken
from tidemill.local.expressions import Expressions, evaluate, repeated, row_by_row

Prepared = tuple[Columns, list[Any], UserError | None]
"""What `Expressions.prepare` returns."""
_NO_INDEX = np.empty(0, dtype=np.int64)
MANY = 4096
"""In a batch of so many rows, those that pass are counted first: if none or all do, no row is copied."""


class StageRunner:
    """Applies predicates and computes outputs, batch by batch."""

    def __init__(
        self, predicates: tuple[Node, ...], outputs: tuple[tuple[str, Node], ...], schema: Schema
    ) -> None:
        self._predicates, self._outputs, self._source = predicates, outputs, schema
        self.schema = Schema(tuple((n, type_of(e, schema)) for n, e in outputs))
        self._constants = [(j, e) for j, (_, e) in enumerate(outputs) if isinstance(e, Literal)]
        # A column that is passed on unchanged needs the loop only if rows are dropped.
        self._looped = [
            j for j, (n, e) in enumerate(outputs)
            if self.schema[n].is_fixed and not isinstance(e, Literal)
            and (predicates or not isinstance(e, Column))
        ]  # fmt: skip
        apart = {*self._looped, *(j for j, _ in self._constants)}
        self._others = [j for j in range(len(outputs)) if j not in apart]
        needed = frozenset().union(*(columns_of(outputs[j][1]) for j in self._others))
        self._needed = [n for n in schema.names if n in needed]
        """The columns that are read after rows were dropped."""
        nodes = [*predicates, *(outputs[j][1] for j in self._looped)]
        self._expressions = Expressions(nodes, schema)
        self._kernels: dict[Columns, StageKernel] = {}
        self._only_filters = bool(predicates) and all(
            isinstance(e, (Column, Literal)) for _, e in outputs
        )
        self._arrow = self.schema.to_arrow()
        unchanged = tuple((n, Column(n)) for n in schema.names)
        self.trivial = not predicates and outputs == unchanged
        """Whether batches pass unchanged."""
        python = [row_by_row(n, schema) for n in (*predicates, *(e for _, e in outputs))]
        self.threadsafe = not any(python)
        """Whether several threads may call `run`; a user's Python function may not be thread-safe."""

    def run(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        n = m = batch.num_rows
        arrays: dict[int, pa.Array] = {}
        kept = batch
        if self._looped or self._predicates:
            prepared = self._expressions.prepare(batch)
            if (
                self._only_filters
                and n >= MANY
                and (same := self._none_or_all(batch, prepared)) is not None
            ):
                return same
            index = empty(n + 1 if self._keeps_index else 0)
            m = self._loop(n, prepared, index, arrays)
            if self._keeps_index:
                kept = self._taken(batch, index[:m])
        for j in self._others:
            arrays[j] = evaluate(self._outputs[j][1], kept, self._source)
        for j, constant in self._constants:
            arrays[j] = repeated(constant, m)
        return pa.RecordBatch.from_arrays(
            [arrays[j] for j in range(len(self._outputs))], schema=self._arrow
        )

    def _taken(self, batch: pa.RecordBatch, rows: npt.NDArray[np.int64]) -> pa.RecordBatch:
        """Return some rows of the columns that are needed afterwards."""
        arrays = []
        for name in self._needed:
            column = batch.column(name)
            text = pa.types.is_string(column.type)
            arrays.append(taken(column, rows) if text else column.take(pa.array(rows)))
        return pa.RecordBatch.from_arrays(arrays, names=self._needed)

    @property
    def _keeps_index(self) -> bool:
        return bool(self._others and self._predicates)

    def _none_or_all(self, batch: pa.RecordBatch, prepared: Prepared) -> pa.RecordBatch | None:
        """Return the result if no row passes, or if all do; otherwise None."""
        columns, args, failure = prepared
        kernel = stage_kernel(columns, self._expressions.nodes[: len(self._predicates)], (), False)
        for rows in (MANY, batch.num_rows):  # mostly, the first ones tell
            m, err = kernel.run(rows, *args, _NO_INDEX)
            raise_for(err, "where", failure)
            if m not in (0, rows):
                return None
        if m == 0:
            return pa.RecordBatch.from_arrays(
                [pa.nulls(0, f.type) for f in self._arrow], schema=self._arrow
            )
        same = [evaluate(e, batch, self._source) for _, e in self._outputs]
        return pa.RecordBatch.from_arrays(same, schema=self._arrow)

    def _loop(self, n: int, prepared: Prepared, index: Any, arrays: dict[int, pa.Array]) -> int:
        columns, args, failure = prepared
        kernel = self._kernels.get(columns)
        if kernel is None:
            p = len(self._predicates)
            nodes = self._expressions.nodes
            kernel = stage_kernel(columns, nodes[:p], nodes[p:], self._keeps_index)
            self._kernels[columns] = kernel
        kinds = [self.schema.fields[j][1] for j in self._looped]
        outputs, pairs = [], []
        for kind, nullable in zip(kinds, kernel.nullable):
            # One spare element: a loop that copies all rows writes once more behind the last one.
            data = allocate(kind, n + 1)
            valid = empty(n, np.uint8) if nullable else None
            pairs.append((data, valid))
            outputs += [data] if valid is None else [data, valid]
        m, err = kernel.run(n, *args, index, *outputs)
        step = "where" if self._predicates else "select"
        raise_for(err, step, failure)
        for j, kind, (data, valid) in zip(self._looped, kinds, pairs):
            arrays[j] = build(
                _fitted(data, m), None if valid is None else valid[:m], to_arrow(kind)
            )
        return m


def stage_runner(
    predicates: tuple[Node, ...], outputs: tuple[tuple[str, Node], ...], schema: Schema
) -> StageRunner:
    """Return a runner, used before if there is one: to plan a stage takes a third of a millisecond."""
    return _stage_runner(predicates, outputs, schema, known())


@functools.lru_cache(maxsize=128)
def _stage_runner(
    predicates: tuple[Node, ...], outputs: tuple[tuple[str, Node], ...], schema: Schema, of: int
) -> StageRunner:
    return StageRunner(predicates, outputs, schema)


def _fitted(data: npt.NDArray[Any], rows: int) -> npt.NDArray[Any]:
    """Return the first rows of an array; in an array of their own if they are few.

    The result then holds no memory that it does not need, and the next batch is written where this one was.
    """
    if 4 * rows > len(data):
        return data[:rows]
    few = empty(rows, data.dtype)
    few[...] = data[:rows]
    return few
