"""Group rows by key in the slot that has most rows of the key."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Union

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tidemill.core.errors import UserError
from tidemill.spark.exchange.cost import NOT_COMBINED, Combined, grouped_at_best, of_rows
from tidemill.spark.exchange.decision import Decision, decide, noted
from tidemill.spark.exchange.detect import Keys, Side
from tidemill.spark.exchange.inputs import merges_maps, read_alike, steady
from tidemill.spark.exchange.keys import checked_keys, hash_of, row_bytes
from tidemill.spark.exchange.result_partitions import result_partitions
from tidemill.spark.exchange.route import routed
from tidemill.spark.expr.values import named
from tidemill.spark.names import fresh_name
from tidemill.spark.workers import tidemill_there

Groups = Union[Callable[..., pa.Table], Column, Sequence[Column]]


def group_by_key(
    df: DataFrame, keys: Sequence[str], fn: Groups, schema: T.StructType | str | None = None, *,
    detect: str = "auto", by: str = "auto",
) -> DataFrame:  # fmt: skip
    """Group rows by key: `fn` is one or several Spark aggregates, or a function of each group.

    A function takes each group as a `pyarrow.Table`, or its key and the table, and returns a table of
    `schema`, as in `DataFrame.groupBy(...).applyInArrow`.
    """
    step = "group_by_key"
    keys = checked_keys(step, df, keys)
    columns = [fn] if isinstance(fn, Column) else fn
    if callable(columns) and schema is None:
        raise UserError(step, expected="schema= of what the function returns", got="none")
    if not callable(columns) and not _are_columns(columns):
        raise UserError(
            step, expected="aggregates of Spark's, such as F.median('v'), or a function", got=repr(fn),
            hint="use Tidemill's own aggregates with reduce_by_key",
        )  # fmt: skip
    by_key = [named(k) for k in keys]
    made_names: list[str] = []
    combined = NOT_COMBINED
    if not callable(columns):
        plain = df.groupBy(*by_key).agg(*columns)
        beside = df.withColumn(fresh_name("target", df.columns), F.lit(0)).groupBy(*by_key).agg(*columns)
        if beside.schema != plain.schema:
            return noted(plain, Decision(step, keys, False, "an aggregate takes all columns, as '*'"))
        made_names, combined = plain.columns, Combined(before=True, merged=merges_maps(plain))
    rows, target, decision = together(step, df, keys, detect, by, combined=combined, taken=made_names)
    if target is None:
        grouped = rows.groupBy(*by_key)
    else:
        grouped = rows.groupBy(named(target), *by_key)
    if callable(columns):
        assert schema is not None
        with tidemill_there(df.sparkSession):
            made = grouped.applyInArrow(_without(columns, target), schema)
    else:
        made = grouped.agg(*columns)
        made = made if target is None else made.drop(target)
    return noted(made, decision)


def colocate(
    df: DataFrame, keys: Sequence[str], *, detect: str = "auto", by: str = "auto"
) -> DataFrame:
    """Repartition so that the rows of a key are in one partition, on the host that had most of them."""
    return colocated("colocate", df, checked_keys("colocate", df, keys), detect, by)


def colocated(
    step: str, df: DataFrame, keys: Sequence[str], detect: str, by: str = "auto"
) -> DataFrame:
    """`colocate` for keys that were checked; also under Spark Connect, if nothing is detected."""
    rows, target, decision = together(step, df, keys, detect, by)
    if target is None:
        return noted(rows.repartition(*(named(k) for k in keys)), decision)
    return noted(rows.drop(target), decision)


def together(
    step: str, df: DataFrame, keys: Sequence[str], detect: str, by: str, *,
    combined: Combined = NOT_COMBINED, taken: Sequence[str] = (),
) -> tuple[DataFrame, str | None, Decision]:  # fmt: skip
    """Route rows by key and return them with the name of their slot column; unchanged without detection.

    `combined` is how Spark would combine rows in its own plan; the column's name is none of those in `taken`.
    """
    hash = hash_of(keys, [df.schema[k].dataType for k in keys])
    decision = decide(step, [df], keys, detect, best=partial(grouped_at_best, by=combined))
    if not decision.detects:
        return df, None, decision
    with steady(df.sparkSession):
        frame = read_alike(df)
        slots = result_partitions([frame], by)
        with Keys([Side.of(frame, hash, row_bytes(df))], slots, sample=decision.sample) as seen:
            decision = decision.judged(seen.seen, slots, partial(of_rows, by=combined))
            if not decision.detects:
                return df, None, decision
            found = seen.locations()
        target = fresh_name("target", [*df.columns, *taken])
        rows = routed(frame, hash, target, slots, 0, found)
    return rows, target, decision.with_detected(found, slots)


def _are_columns(columns: object) -> bool:
    return isinstance(columns, Sequence) and all(isinstance(c, Column) for c in columns)


def _without(fn: Callable[..., pa.Table], target: str | None) -> Callable[..., pa.Table]:
    """Wrap the user's function so that it does not see the slot column."""
    if target is None:
        return fn
    if len(inspect.getfullargspec(fn).args) == 1:  # as PySpark counts
        return lambda table: fn(table.drop_columns([target]))

    def with_key(key: tuple[Any, ...], table: pa.Table) -> pa.Table:
        return fn(key[1:], table.drop_columns([target]))

    return with_key
