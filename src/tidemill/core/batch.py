"""Check, select and cast the columns of Arrow data as a stream declares them."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from tidemill.core.errors import UserError
from tidemill.core.schema import Schema
from tidemill.core.time_reading import PLAIN, Reading, floored, inside
from tidemill.core.types import (
    FLOAT64,
    INT64,
    NULL,
    STRING,
    TIMESTAMP,
    DataType,
    from_arrow,
    to_arrow,
)

_INT32_MAX = (1 << 31) - 1


def conform(batch: Any, schema: Schema, reading: Reading = PLAIN, *, step: str) -> pa.RecordBatch:
    """Return the columns of `schema`, cast to its types, from a record batch; other columns are dropped.

    `reading` says how ints and naive times are converted to instants.

    >>> b = pa.record_batch({"x": pa.array([1, 2], pa.int8()), "y": [0, 0]})
    >>> conform(b, Schema((("x", INT64),)), step="run").schema
    x: int64
    """
    arrays = []
    for name, kind in schema:
        position = batch.schema.get_field_index(name)
        if position < 0:
            raise UserError(
                step, expected=f"a column {name!r} of {kind!r}",
                got=f"columns {batch.schema.names}",
                hint="every batch must have the columns that the stream declares",
            )  # fmt: skip
        arrays.append(_as(batch.column(position), kind, reading, step, name))
    return pa.RecordBatch.from_arrays(arrays, schema=schema.to_arrow())


@functools.lru_cache(maxsize=256)
def check_schema(found: pa.Schema, schema: Schema, reading: Reading = PLAIN, *, step: str) -> None:
    """Raise an error if data of the schema `found` cannot be read; no row is needed."""
    # Columns that are not needed may have any type, even one that Tidemill cannot read.
    fields = [f if f.name in schema else pa.field(f.name, pa.null()) for f in found]
    nothing = [pa.nulls(0, f.type) for f in fields]
    empty = pa.RecordBatch.from_arrays(nothing, schema=pa.schema(fields))
    conform(empty, schema, reading, step=step)


def _as(array: pa.Array, kind: DataType, reading: Reading, step: str, name: str) -> pa.Array:
    want = to_arrow(kind)
    if array.type == want:
        return array
    have = from_arrow(array.type, step=step, column=name)
    numbers = have in (INT64, FLOAT64) and kind == TIMESTAMP
    strings = have == STRING and kind == TIMESTAMP
    wider = (have == INT64 and kind == FLOAT64) or have.kind == kind.kind == "decimal"
    if have not in (kind, NULL) and not wider and not numbers and not strings:
        raise UserError(
            step, expected=f"column {name!r} of type {kind!r}", got=str(array.type),
            hint="fix the schema of the stream, or cast the column",
        )  # fmt: skip
    if pa.types.is_dictionary(array.type):
        array = _decoded(array)
    if numbers:
        convert = reading.from_ints if have == INT64 else reading.from_floats
        return convert(array, name, step=step)
    if strings:
        return reading.from_strings(array.cast(pa.string()), name, step=step)
    if kind.of and reading.zoned and _holds_naive(array.type):
        raise inside(step, name, str(array.type))
    if pa.types.is_timestamp(array.type) and array.type.unit == "ns":
        array = floored(array.cast(pa.int64())).cast(pa.timestamp("us", array.type.tz))
    try:
        if kind == TIMESTAMP and have == TIMESTAMP and getattr(array.type, "tz", None) is None:
            return reading.from_naive(array, name, step=step)
        return _compact(array).cast(want)
    except pa.ArrowInvalid as unfit:
        raise UserError(
            step, expected=f"column {name!r} to fit {kind!r}", got=f"{array.type}: {unfit}"
        ) from unfit


def _holds_naive(kind: pa.DataType) -> bool:
    if pa.types.is_timestamp(kind):
        return kind.tz is None
    inner = [kind.field(i).type for i in range(kind.num_fields)]
    return pa.types.is_date(kind) or any(map(_holds_naive, inner))


def _decoded(array: pa.DictionaryArray) -> pa.Array:
    # Arrow cannot `take` from string views, which Polars uses for categories.
    inside = array.type.value_type
    if pa.types.is_string_view(inside):
        return array.dictionary.cast(pa.string()).take(array.indices)
    if pa.types.is_binary_view(inside):
        return array.dictionary.cast(pa.binary()).take(array.indices)
    return array.cast(inside)


def _compact(array: pa.Array) -> pa.Array:
    # A slice of a large string column keeps its offsets, which may not fit 32 bits.
    kind = array.type
    if len(array) and (pa.types.is_large_string(kind) or pa.types.is_large_binary(kind)):
        reach = (array.offset + len(array) + 1) * 8
        last = int.from_bytes(array.buffers()[1][reach - 8 : reach].to_pybytes(), "little")
        if last > _INT32_MAX:
            return pa.concat_arrays([array.slice(0, 0), array])
    return array


def to_rows(batches: Iterable[pa.RecordBatch], schema: Schema) -> list[dict[str, Any]]:
    """Convert batches to rows of Python values, with timestamps and durations as ticks."""
    plain = pa.schema([pa.field(n, _ticks(to_arrow(t))) for n, t in schema])
    rows: list[dict[str, Any]] = []
    for batch in batches:
        columns = [c.cast(f.type) for c, f in zip(batch.columns, plain)]
        rows.extend(pa.RecordBatch.from_arrays(columns, schema=plain).to_pylist())
    return rows


def _ticks(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind) or pa.types.is_duration(kind):
        return pa.int64()
    return pa.list_(_ticks(kind.value_type)) if pa.types.is_list(kind) else kind


def from_rows(rows: Iterable[Mapping[str, Any]], schema: Schema) -> pa.Table:
    """Convert rows of Python values, with timestamps as ticks, to a table."""
    listed = list(rows)
    arrays = [pa.array([r[n] for r in listed], type=to_arrow(t)) for n, t in schema]
    return pa.Table.from_arrays(arrays, schema=schema.to_arrow())
