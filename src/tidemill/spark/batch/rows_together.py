"""Rows of one or two inputs that meet in a task by key, and the local operator that runs on them.

The rows of two inputs travel in one stream. A column says of which input a row is, and columns of equal types
have one place in it, so that a row carries few empty ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tidemill.core.schema import Schema
from tidemill.core.time import FOREVER
from tidemill.core.types import DataType
from tidemill.plan.faults import kind_of
from tidemill.plan.nodes import Plan, Source
from tidemill.plan.temporal import Temporal
from tidemill.spark.batch.tasks import typed
from tidemill.spark.expr.values import null

if TYPE_CHECKING:
    from tidemill.spark.workers import Batches, Task

PORT = "port"
"""The column that says of which input a row is; internal names need no quotes."""


@dataclass(frozen=True)
class Places:
    """Where the columns of each input are in the stream of all rows."""

    schemas: tuple[Schema, ...]
    types: tuple[DataType, ...]
    """The types of the columns of the stream."""
    at: tuple[tuple[int, ...], ...]
    """For each input, the place of each of its columns."""

    @staticmethod
    def of(inputs: Sequence[Plan], keys: Sequence[Sequence[str]]) -> Places:
        """Give columns their places: first the keys of all inputs, by pairs, and then the others by type."""
        types = list(inputs[0].schema.fields)
        found = [{name: at for at, (name, _) in enumerate(types)}]
        kinds = [kind for _, kind in types]
        for one, own in zip(inputs[1:], keys[1:]):
            at: dict[str, int] = {}
            for first, name in zip(keys[0], own):
                if name not in at and found[0][first] not in at.values():
                    at[name] = found[0][first]
            for name, kind in one.schema:
                if name in at:
                    continue
                free = [i for i, k in enumerate(kinds) if k == kind and i not in at.values()]
                if not free:
                    kinds.append(kind)
                at[name] = free[0] if free else len(kinds) - 1
            found.append(at)
        schemas = tuple(one.schema for one in inputs)
        ordered = (tuple(at[n] for n in schema.names) for at, schema in zip(found, schemas))
        return Places(schemas, tuple(kinds), tuple(ordered))

    def key(self, port: int, name: str) -> int:
        return self.at[port][self.schemas[port].names.index(name)]

    def together(self, frames: Sequence[DataFrame], beside: Sequence[str] = ()) -> DataFrame:
        """Return the rows of all inputs, in the internal form, as one stream, with columns `beside`."""
        if len(frames) == 1:
            return frames[0]
        given = []
        for port, (frame, at) in enumerate(zip(frames, self.at)):
            own = {place: F.col(name) for place, name in zip(at, frame.columns)}
            columns: list[SparkColumn] = [
                own.get(i, null(kind)).alias(f"c{i}") for i, kind in enumerate(self.types)
            ]
            given.append(frame.select(F.lit(port).cast("tinyint").alias(PORT), *columns, *beside))
        return reduce(DataFrame.union, given)

    def split(self, batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield the rows of each input in a batch."""
        if len(self.schemas) == 1:
            yield 0, typed(batch, self.schemas[0])
            return
        ports = batch.column(0)
        for port, (schema, at) in enumerate(zip(self.schemas, self.at)):
            own = pc.equal(ports, port)
            count = own.true_count
            if count:
                rows = batch.select([1 + place for place in at])
                yield port, typed(rows if count == len(own) else rows.filter(own), schema)


def over_rows(plan: Temporal) -> Temporal:
    """Return an operator over sources of the rows of its inputs. Errors name what the user wrote."""
    inputs: list[Plan] = [
        Source("rows", one.schema, one.time, step=kind_of(one), end_column=one.end) for one in plan.children()
    ]
    return plan.with_children(inputs)  # type: ignore[arg-type]


def operate(plan: Temporal, places: Places) -> Task:
    """A task that runs the local operator on all rows of a partition, and yields results."""
    plan = over_rows(plan)

    def task(batches: Batches) -> Iterator[pa.RecordBatch]:
        from tidemill.local.temporal import temporal_operator

        operator = temporal_operator(plan)
        some = False
        for batch in batches:
            some |= batch.num_rows > 0
            for port, rows in places.split(batch):
                operator.push(port, rows)
        for port in range(operator.ports if some else 0):
            yield from operator.advance(port, FOREVER)

    return task
