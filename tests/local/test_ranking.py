"""Ranks of columns and ids of rows: integers that order and distinguish as values do."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pytest

from tidemill.core.schema import schema
from tidemill.local.ranking import equal_rows, rank

COLUMNS: dict[str, tuple[str, pa.DataType, list[Any]]] = {
    "ints": ("int64", pa.int64(), [None, -5, 0, 7]),
    "floats": ("float64", pa.float64(), [None, -math.inf, -1.5, 0.0, 2.25, math.inf, math.nan]),
    "texts": ("string", pa.string(), [None, "", "a", "ab", "b", "é"]),
    "bools": ("bool", pa.bool_(), [None, False, True]),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_ranks_sort_as_the_values_do(name: str) -> None:
    kind, arrow, values = COLUMNS[name]
    for column in (values, values[1:]):  # with and without null
        batch = pa.record_batch([pa.array([*column, *reversed(column)], arrow)], ["x"])
        [ranks] = rank(batch, schema({"x": kind}), ["x"])
        found = ranks.tolist()
        assert found == [*found[: len(column)], *reversed(found[: len(column)])]
        assert found[: len(column)] == sorted(set(found))


def test_columns_without_an_order_have_no_rank() -> None:
    batch = pa.record_batch([pa.array([[1]]), pa.array([2])], ["l", "x"])
    assert len(rank(batch, schema({"l": "list<int64>", "x": "int64"}), ["l", "x"])) == 1


def groups(ids: Any) -> list[int]:
    """Of each row, the first that has its id."""
    return [ids.tolist().index(one) for one in ids.tolist()]


def test_equal_rows() -> None:
    kinds = schema({"x": "float64", "s": "string", "l": "list<float64>"})
    rows = [
        (0.0, "a", [1.0]), (-0.0, "a", [1.0]), (math.nan, None, None), (math.nan, None, None),
        (None, None, None), (0.0, "a", []), (0.0, "a", [math.nan]), (0.0, "a", [math.nan]),
    ]  # fmt: skip
    arrays = [pa.array(c, t) for c, t in zip(zip(*rows), (pa.float64(), pa.string(), pa.list_(pa.float64())))]
    batch = pa.record_batch(arrays, ["x", "s", "l"])
    assert groups(equal_rows(batch, kinds, ["x", "s", "l"])) == [0, 0, 2, 2, 4, 5, 6, 6]
    assert groups(equal_rows(batch, kinds, ["x"])) == [0, 0, 2, 2, 4, 0, 0, 0]
    assert groups(equal_rows(batch, kinds, [])) == [0] * 8


def test_zeros_in_lists_have_one_sign() -> None:
    batch = pa.record_batch([pa.array([[0.0], [-0.0]])], ["l"])
    assert groups(equal_rows(batch, schema({"l": "list<float64>"}), ["l"])) == [0, 0]
