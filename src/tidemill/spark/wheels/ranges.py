"""Answer a DataFrame of ranges from a wheel, without a shuffle."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from tidemill.aggregates.algebra import Aggregate
from tidemill.core.errors import UserError
from tidemill.core.schema import Schema
from tidemill.core.types import to_arrow
from tidemill.expr.nodes import Column
from tidemill.spark.expr.compile import SparkExpressions
from tidemill.spark.expr.schemas import user_schema
from tidemill.spark.expr.values import canonical
from tidemill.spark.settings import ansi
from tidemill.spark.wheels.build import bucket_of, column_types
from tidemill.spark.workers import Batches, Task, map_batches
from tidemill.wheels.files.buckets import BUCKETS, empty_bucket, open_bucket, read_store
from tidemill.wheels.queries import WheelQueries
from tidemill.wheels.spec import HIDDEN
from tidemill.wheels.state import WheelState


def wheel_query(
    path: str | os.PathLike[str], ranges: DataFrame, *, start: str = "start", end: str = "end",
    aggregates: Mapping[str, Aggregate] | None = None, verify: bool = True,
) -> DataFrame:  # fmt: skip
    """Answer each range of a DataFrame from a wheel that Spark built.

    `ranges` has columns with the names of the wheel's keys, and the bounds of ranges `[start, end)`; columns
    of answers are added. Ranges are as in `Wheel.query`; if a bound is null, the answers are null. Nothing is
    shuffled; `ranges` may be a streaming DataFrame. With `verify`, every worker process compares the files
    that it opens with their checksums, once.
    """
    where = Path(path).resolve()
    given = dict(aggregates or {})
    facts = read_store(
        where, given, step="wheel_query", hint="use tm.open_wheel(path).query(starts, ends)"
    )
    prototype = empty_bucket(facts, given, 0, 0)
    schema, keys = prototype.schema, prototype.plan.group_keys
    time = schema[prototype.time]
    asked = Schema((*((k, schema[k]) for k in keys), (start, time), (end, time)))
    _check(ranges, asked)
    results = Schema(tuple((r.name, r.type) for r in prototype.shown))
    if taken := [n for n in results.names if n in ranges.columns]:
        raise UserError("wheel_query", expected="other names for columns of ranges", got=str(taken))
    with ansi(ranges.sparkSession):
        own = SparkExpressions(asked, {f.name: f.dataType for f in ranges.schema})
        internal = [own.column(Column(n)) for n in asked.names]
        spread = [canonical(c) if schema[k].kind == "float64" else c for c, k in zip(internal, keys)]
        hidden = [bucket_of(spread, facts[BUCKETS]["count"]), *internal]
        sent = ranges.select("*", *(c.alias(f"{HIDDEN}{i}") for i, c in enumerate(hidden)))
        task = _answering(_Store(str(where), facts, given, verify), len(ranges.columns))
        answered = type(ranges.schema)([*ranges.schema.fields, *user_schema(results).fields])
        return map_batches(sent, task, answered)


def _check(ranges: DataFrame, asked: Schema) -> None:
    found = column_types(ranges, asked.names, step="wheel_query")
    for name, kind in asked:
        have = found[name]
        if have != kind and not (have.kind, kind.kind) == ("int64", "float64"):
            raise UserError(
                "wheel_query", expected=f"column {name!r} of type {kind!r}", got=repr(have),
                hint="cast the column",
            )  # fmt: skip


@dataclass
class _Store:
    """A store inside a task, with its open buckets."""

    where: str
    facts: Mapping[str, Any]
    given: Mapping[str, Aggregate]
    verify: bool
    buckets: dict[int, WheelState] = field(default_factory=dict)

    def bucket(self, number: int) -> WheelState:
        if str(number) not in self.facts[BUCKETS]["saves"]:
            return empty_bucket(self.facts, self.given, self.facts[BUCKETS]["until"], 0)
        if not self.given:
            return _kept(self.where, self.facts["name"], self.facts["save"], number, self.verify)
        if number not in self.buckets:  # functions cannot be compared, so these are cached per task only
            path = Path(self.where)
            self.buckets[number] = open_bucket(path, self.facts, self.given, number, verify=self.verify)
        return self.buckets[number]


def _answering(
    store: _Store, shown: int
) -> Task:
    """A task that answers ranges, whose buckets, keys and bounds are in hidden columns."""

    def task(batches: Batches) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            bucket, *keys, start, end = batch.columns[shown:]
            answers = _answers(store, np.asarray(bucket), keys, start, end)
            names = [*batch.schema.names[:shown], *answers.column_names]
            columns = [*batch.columns[:shown], *(c.combine_chunks() for c in answers.columns)]
            yield pa.RecordBatch.from_arrays(columns, names=names)

    return task


def _answers(
    store: _Store, bucket: npt.NDArray[np.int32], keys: list[pa.Array], start: pa.Array, end: pa.Array
) -> pa.Table:
    whole = np.asarray(pc.and_(start.is_valid(), end.is_valid()))
    parts, order = [], []
    for number in np.unique(bucket).tolist():
        rows = np.flatnonzero((bucket == number) & whole)
        wheel = store.bucket(number)
        a, b, *own = (x.take(pa.array(rows)) for x in (start, end, *keys))
        kinds = [to_arrow(wheel.schema[n]) for n in wheel.plan.group_keys]
        parts.append(WheelQueries(wheel).answers(a, b, [k.cast(t) for k, t in zip(own, kinds)]))
        order.append(rows)
    if not parts:
        return WheelQueries(store.bucket(0)).answers(start, end, keys)
    table = pa.concat_tables(parts)
    place = np.full(len(bucket), table.num_rows, dtype=np.int64)
    place[np.concatenate(order)] = np.arange(table.num_rows)
    return table.take(pa.array(place, mask=~whole))


@lru_cache(maxsize=64)
def _kept(where: str, name: str, version: int, number: int, verify: bool) -> WheelState:
    """A bucket, cached in the worker process across batches and tasks.

    `name` identifies the build: a later build in the same directory has another name.
    """
    facts = read_store(Path(where), {}, version, step="wheel_query", hint="")
    return open_bucket(Path(where), facts, {}, number, verify=verify)
