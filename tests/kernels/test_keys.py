"""Keys as dense ids, over batches."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tidemill.core.schema import schema
from tidemill.kernels.keys import KeyIndex


def test_ids_are_dense_and_lasting() -> None:
    keys = KeyIndex(schema({"k": "int64"}))
    first = keys.encode([pa.array([5, None, 7])]).tolist()
    again = keys.encode([pa.array([7, 9, None])]).tolist()
    assert sorted({*first, *again}) == [0, 1, 2, 3] and keys.count == 4
    assert first[1] == again[2] and first[2] == again[0]
    assert keys.decode(np.asarray(first + again))[0].to_pylist() == [5, None, 7, 7, 9, None]


def test_without_columns_there_is_one_key() -> None:
    assert KeyIndex(schema({})).count == 1


def test_the_null_of_one_column_is_not_that_of_another() -> None:
    keys = KeyIndex(schema({"a": "string", "b": "int64"}))
    ids = keys.encode([pa.array([None, "", None]), pa.array([0, None, None], pa.int64())])
    assert len(set(ids.tolist())) == 3
    assert [c.to_pylist() for c in keys.decode(ids)] == [[None, "", None], [0, None, None]]


def test_binary_keys_come_back_as_bytes() -> None:
    keys = KeyIndex(schema({"b": "binary"}))
    values = [b"\xff\x00", None, b""]
    assert keys.decode(keys.encode([pa.array(values)]))[0].to_pylist() == values
