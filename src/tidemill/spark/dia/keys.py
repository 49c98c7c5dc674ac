"""Keys of elements: columns `k0, k1, …` beside the columns of the element, `c0, c1, …`.

Exchanges see only these names, so that nothing depends on the names of users' fields.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tidemill.core.errors import UserError
from tidemill.core.schema import Schema
from tidemill.core.types import INT64, DataType
from tidemill.spark.dia.capture import captured
from tidemill.spark.dia.elements import (
    columns_of,
    decode,
    encode,
    infer,
    is_tuple,
    parse_element,
    spelled,
)
from tidemill.spark.dia.opaque_batches import called, mapped
from tidemill.spark.dia.operation import Operation
from tidemill.spark.dia.traced_columns import ElementColumns
from tidemill.spark.dia.tracing import (
    Function,
    Opaque,
    Traced,
    parts_of,
    reachable,
    repeated,
    trace,
)
from tidemill.spark.errors import MARK
from tidemill.spark.expr.schemas import user_schema
from tidemill.spark.expr.values import named
from tidemill.spark.workers import Batches


@dataclass(frozen=True)
class Key:
    """A key of the elements of a node: its function and its columns."""

    function: Traced | Opaque
    type: DataType
    schema: Schema
    """The columns `k0, k1, …`."""
    paths: tuple[str | None, ...]
    """For each key column, the column or field of the element that it repeats, if any."""

    @property
    def names(self) -> list[str]:
        return list(self.schema.names)


def key_of(
    parent: Operation, function: Function, returns: Any = None, *, step: str, hashed: bool = True
) -> Key:
    """Make the key that a function computes from elements; with `hashed`, its type must be hashable."""
    if not callable(function):
        raise UserError(step, expected="a function that gives the key", got=repr(function))
    declared = None if returns is None else parse_element(returns, step=step)
    traced = trace(function, [parent.kind], returns=declared)
    if isinstance(traced, Traced):
        if hashed:
            _check_hashable(traced.type, step)
        over = reachable(parent.kind)
        paths = tuple(repeated(p, over) for p in parts_of(traced.out))
        return Key(traced, traced.type, carried(traced.type, "k"), paths)
    kind = declared or infer(called(function, parent.head, step=step), step=f"{step} key", say=_SAY)
    if hashed:
        _check_hashable(kind, step)
    columns = carried(kind, "k")
    return Key(Opaque(captured(function), traced.why), kind, columns, (None,) * len(columns))


_SAY = "declare it with key_returns=, if the operation has it, or write a key that can be traced"


def _check_hashable(kind: DataType, step: str) -> None:
    if _is_hashable(kind):
        return
    raise UserError(
        step, expected="a key that can be hashed: a scalar, or a tuple of them",
        got=spelled(kind), hint="make a tuple of it in the key function",
    )  # fmt: skip


def _is_hashable(kind: DataType) -> bool:
    if kind.kind == "struct":
        return is_tuple(kind) and all(map(_is_hashable, kind.of))
    return kind.kind not in ("list", "map", "null")


def carried(kind: DataType, letter: str = "c") -> Schema:
    """The columns of an element under the names that exchanges see."""
    return Schema(tuple((f"{letter}{i}", t) for i, (_, t) in enumerate(columns_of(kind))))


def restored(kind: DataType, letter: str = "c", prefix: str = "") -> list[SparkColumn]:
    """Rename the columns of an element back to their own names."""
    names = columns_of(kind).names
    return [F.col(f"{letter}{i}").alias(prefix + n) for i, n in enumerate(names)]


def with_key(parent: Operation, key: Key, letter: str = "c", *, step: str) -> DataFrame:
    """The key columns and the elements of a node."""
    names = zip(columns_of(parent.kind).names, carried(parent.kind, letter).names)
    own = [named(n).alias(c) for n, c in names]
    if isinstance(key.function, Traced):
        columns = ElementColumns.of(parent.kind)
        parts = parts_of(key.function.out)
        keys = [columns.user(p).alias(k) for p, k in zip(parts, key.names)]
        return parent.frame.select(*keys, *own)
    kind, function, fields = parent.kind, key.function.function, key.schema.names
    made = key.type

    def task(batches: Batches) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            keys = called(function, decode(batch, kind), step=step)
            columns = encode(keys, made, step=f"{step} key").columns
            yield pa.RecordBatch.from_arrays(
                [*columns, *batch.columns], [*fields, *batch.schema.names]
            )

    # The element's columns pass through unchanged; only the keys are computed.
    keyed = T.StructType([*user_schema(key.schema).fields, *user_schema(columns_of(kind)).fields])
    df = mapped(parent.frame, task, keyed)
    return df.select(*map(F.col, fields), *own)


# --- indexes --------------------------------------------------------------------------------------


def index_of(parent: Operation, function: Function, n: int, *, step: str) -> Key:
    """Make a key that is an index; its values are checked when they are computed."""
    if not isinstance(n, int) or isinstance(n, bool) or n < 0:
        raise UserError(step, expected="a size, 0 or more", got=repr(n))
    key = key_of(parent, function, step=step)
    if key.type != INT64:
        raise UserError(
            step, expected="an index function that gives an int64", got=spelled(key.type)
        )
    return key


def checked_index(df: DataFrame, n: int, *, step: str) -> DataFrame:
    """Check that the index `k0` of each row is in [0, n); an error names any other index."""
    k = F.col("k0")
    shown = F.coalesce(k.cast("string"), F.lit("null"))
    hint = f" — the index function must give 0 to n - 1, n={n}"
    text = F.concat(F.lit(f"{MARK}{step}: expected an index in [0, {n}), got "), shown, F.lit(hint))
    inside = (k >= 0) & (k < n)
    return df.withColumn("k0", F.when(inside, k).otherwise(F.raise_error(text).cast("bigint")))
