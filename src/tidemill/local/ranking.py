"""Integers that order and distinguish rows by their columns, of any type."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidemill.core.schema import Schema
from tidemill.core.types import DataType
from tidemill.kernels.arrow import validity, values
from tidemill.kernels.keys import KeyIndex
from tidemill.kernels.order import float_key
from tidemill.local.lifetimes import Ints


def rank(rows: pa.RecordBatch, schema: Schema, names: Sequence[str]) -> list[Ints]:
    """Return integers for each column that has an order; they sort as the values do, null first."""
    return [_ranks(rows.column(n), schema[n]) for n in names if schema[n].is_ordered]


def _ranks(column: pa.Array, kind: DataType) -> Ints:
    if kind.kind == "string":
        codes = column.dictionary_encode()
        order = pc.sort_indices(codes.dictionary)
        place = np.empty(len(codes.dictionary) + 1, dtype=np.int64)
        place[np.asarray(order)] = np.arange(len(order))
        place[-1] = -1
        ranks: Ints = place[np.asarray(codes.indices.fill_null(-1))]
        return ranks
    data = values(column)
    valid = validity(column)
    if kind.kind == "float64":
        data = float_key(data)
    if valid is None and kind.kind != "float64":
        return np.asarray(data, dtype=np.int64)
    _, dense = np.unique(data, return_inverse=True)  # so that null has a number below all others
    found: Ints = dense.astype(np.int64)
    return found if valid is None else np.where(valid != 0, found, -1)


def equal_rows(rows: pa.RecordBatch, schema: Schema, names: Sequence[str]) -> Ints:
    """Return ids that are equal for rows with equal columns; nulls are equal to nulls, and NaN to NaN.

    >>> from tidemill.core.schema import schema
    >>> kinds = schema({"a": "int64", "b": "list<int64>"})
    >>> batch = pa.record_batch({"a": [1, 1, None], "b": [[1], [1], [2]]})
    >>> equal_rows(batch, kinds, ["a", "b"])
    array([0, 0, 1])
    """
    if not names:
        return np.zeros(rows.num_rows, dtype=np.int64)
    plain = [n for n in names if schema[n].kind not in ("list", "struct", "null")]
    columns = {n: rows.column(n) for n in plain}
    kinds = [(n, schema[n]) for n in plain]
    for name in (n for n in names if n not in plain):
        texts = {
            text: at
            for at, text in enumerate(dict.fromkeys(map(repr, rows.column(name).to_pylist())))
        }
        codes = [texts[repr(v)] for v in rows.column(name).to_pylist()]
        columns[name] = pa.array(codes, pa.int64())
        kinds.append((name, DataType("int64")))
    index = KeyIndex(Schema(tuple(kinds)))
    found: Ints = index.encode([columns[n] for n, _ in kinds])
    return found
