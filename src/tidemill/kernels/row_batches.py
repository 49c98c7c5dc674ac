"""Copy rows of batches, in memory that was used before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemill.jit.kernel import kernel
from tidemill.kernels.arrow import build, validity, values
from tidemill.kernels.memory import SMALL, empty, taken
from tidemill.kernels.order import some_below_zero
from tidemill.kernels.substrings import taken as taken_strings

Ints = npt.NDArray[np.int64]
_WIDTH = 64


@kernel
def _take(data: Any, valid: Any, places: Ints, out: Any, out_valid: Any) -> None:
    for i in range(places.size):
        at = places[i]
        there = at >= 0
        row = np.uint64(max(at, 0))
        out[i] = data[row]
        out_valid[i] = there and (valid.size == 0 or valid[row] != 0)


def taken_column(column: pa.Array, places: Ints, *, last: int | None = None) -> pa.Array:
    """As `column.take`; all places must exist, of which `last` is the greatest.

    >>> taken_column(pa.array([5, 6, 7]), np.array([2, 0])).to_pylist()
    [7, 5]
    """
    if _is_plain(column):
        return build(taken(values(column), places, last=last), None, column.type)
    if pa.types.is_string(column.type):
        return taken_strings(column, places)
    if _is_fixed(column):
        return _taken_or_null(column, places)
    return column.take(pa.array(places))


def taken_or_null(column: pa.Array, places: Ints) -> pa.Array:
    """As `taken_column`, with null for a place below 0.

    >>> taken_or_null(pa.array([5, 6, None]), np.array([1, -1, 2])).to_pylist()
    [6, None, None]
    """
    if pa.types.is_string(column.type):
        return taken_strings(column, places)
    if not some_below_zero(places):
        return taken_column(column, places)
    if _is_fixed(column):
        return _taken_or_null(column, places)
    return column.take(pa.array(places, mask=places < 0))


def _taken_or_null(column: pa.Array, places: Ints) -> pa.Array:
    if not len(column):  # then no place exists
        return pa.nulls(len(places), column.type)
    data, valid = values(column), validity(column)
    out, out_valid = empty(len(places), data.dtype), empty(len(places), np.uint8)
    _take(data, np.empty(0, np.uint8) if valid is None else valid, places, out, out_valid)
    return build(out, out_valid, column.type)


def taken_rows(rows: pa.RecordBatch, places: Ints) -> pa.RecordBatch:
    """As `rows.take`; all places must exist."""
    if not rows.num_columns:
        return rows.take(pa.array(places))
    last = int(places.max(initial=-1))
    columns = [taken_column(column, places, last=last) for column in rows.columns]
    return pa.RecordBatch.from_arrays(columns, schema=rows.schema)


def shared_out(rows: pa.RecordBatch, shares: Sequence[Ints]) -> list[pa.RecordBatch]:
    """As `taken_rows` for several sets of places: each column is copied at once, while it is in the cache.

    >>> rows = pa.record_batch({"a": [5, 6, 7]})
    >>> [part["a"].to_pylist() for part in shared_out(rows, [np.array([2, 0]), np.array([1])])]
    [[7, 5], [6]]
    """
    lasts = [int(places.max(initial=-1)) for places in shares]
    columns = [
        [taken_column(column, places, last=last) for places, last in zip(shares, lasts)]
        for column in rows.columns
    ]
    return [pa.RecordBatch.from_arrays(list(own), schema=rows.schema) for own in zip(*columns)]


def divided(
    rows: pa.RecordBatch, mask: npt.NDArray[np.bool_]
) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """Return the rows for which a mask is true, and the others; without a copy if the first ones are.

    >>> rows = pa.record_batch({"a": [5, 6, 7]})
    >>> [part["a"].to_pylist() for part in divided(rows, np.array([True, False, True]))]
    [[5, 7], [6]]
    """
    first = int(np.count_nonzero(mask))
    if mask[:first].all():
        return rows.slice(0, first), rows.slice(first)
    return taken_rows(rows, np.flatnonzero(mask)), taken_rows(rows, np.flatnonzero(~mask))


def joined_rows(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """As `pa.concat_batches`.

    >>> joined_rows([pa.record_batch({"a": [1]}), pa.record_batch({"a": [2, None]})]).to_pydict()
    {'a': [1, 2, None]}
    """
    some = [batch for batch in batches if batch.num_rows] or list(batches[:1])
    if len(some) == 1:
        return some[0]
    rows = sum(batch.num_rows for batch in some)
    if 8 * rows < SMALL or not some[0].num_columns:
        return pa.concat_batches(some)
    columns = [
        _joined([batch.column(i) for batch in some], rows) for i in range(some[0].num_columns)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=some[0].schema)


def _joined(pieces: list[pa.Array], rows: int) -> pa.Array:
    if not all(map(_is_plain, pieces)):
        return pa.concat_arrays(pieces)
    data = [values(piece) for piece in pieces]
    return build(np.concatenate(data, out=empty(rows, data[0].dtype)), None, pieces[0].type)


def _is_plain(column: pa.Array) -> bool:
    """Return whether a column is an array of numbers or instants of eight bytes, without nulls."""
    return column.null_count == 0 and _is_fixed(column)


def _is_fixed(column: pa.Array) -> bool:
    """Return whether a column is an array of numbers or instants of eight bytes."""
    kind = column.type
    plain = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_temporal(kind)
    return bool(plain and kind.bit_width == _WIDTH)
