"""Schemas from dicts, Arrow and Spark; batches brought to them."""

from __future__ import annotations

from datetime import date, datetime
from typing import Any

import pyarrow as pa
import pytest

import tidemill as tm
from tidemill.core.batch import conform
from tidemill.core.errors import InternalError, UnsupportedError, UserError
from tidemill.core.schema import Schema, schema


def test_one_schema_by_three_spellings() -> None:
    from pyspark.sql import types as T

    by_dict = schema({"t": "timestamp", "n": "int32", "x": "float32", "s": "string", "l": "list<int64>"})
    by_arrow = schema(
        pa.schema({"t": pa.timestamp("ms"), "n": pa.int8(), "x": pa.float64(), "s": pa.large_string(),
                   "l": pa.list_(pa.int32())})
    )  # fmt: skip
    by_spark = schema(
        T.StructType().add("t", T.TimestampType()).add("n", T.ShortType()).add("x", T.FloatType())
        .add("s", T.StringType()).add("l", T.ArrayType(T.LongType()))
    )  # fmt: skip
    assert by_dict == by_arrow == by_spark == schema(by_dict)
    assert repr(by_dict) == "Schema(t: timestamp, n: int64, x: float64, s: string, l: list<int64>)"


@pytest.mark.parametrize("bad", [None, 5, [("a", "int64")], {"a": "money"}, {"a": object()}])
def test_what_is_no_schema(bad: Any) -> None:
    with pytest.raises(UserError, match="schema"):
        schema(bad)


def test_a_near_miss_is_named() -> None:
    with pytest.raises(UserError, match="did you mean 'price'"):
        schema({"price": "float64"}).type_of("prise", step="where")


ONE = schema({"x": "int64"})


@pytest.mark.parametrize(
    ("kind", "array", "expected"),
    [
        ("int64", pa.array([1, None], pa.uint8()), [1, None]),
        ("float64", pa.array([1, None], pa.int64()), [1.0, None]),
        ("float64", pa.array([1.5], pa.float32()), [1.5]),
        ("string", pa.array(["a", None]).dictionary_encode(), ["a", None]),
        ("string", pa.array(["a"], pa.string_view()), ["a"]),
        ("string", pa.nulls(2), [None, None]),
        ("timestamp", pa.array([date(1969, 12, 31)]), [datetime(1969, 12, 31)]),
    ],
    ids=str,
)  # fmt: skip
def test_columns_are_widened_to_the_one_type(kind: str, array: pa.Array, expected: list[Any]) -> None:
    batch = pa.RecordBatch.from_arrays([array], names=["x"])
    found = conform(batch, schema({"x": kind}), step="run").column(0).to_pylist()
    assert [v.replace(tzinfo=None) if isinstance(v, datetime) else v for v in found] == expected


def test_nanoseconds_are_floored_also_before_1970() -> None:
    batch = pa.record_batch({"x": pa.array([-1, 1999], pa.timestamp("ns"))})
    found = conform(batch, schema({"x": "timestamp"}), step="run").column(0).cast(pa.int64())
    assert found.to_pylist() == [-1, 1]


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (pa.array(["1"]), "column 'x' of type int64, got string"),
        (pa.array([1.0]), "column 'x' of type int64, got double"),
        (pa.array([1 << 63], pa.uint64()), "column 'x' to fit int64"),
    ],
    ids=["text", "float", "too large"],
)  # fmt: skip
def test_what_does_not_fit_is_refused(array: pa.Array, expected: str) -> None:
    with pytest.raises(UserError, match=expected):
        conform(pa.RecordBatch.from_arrays([array], names=["x"]), ONE, step="run")


def test_extra_columns_are_left_alone_and_missing_ones_are_named() -> None:
    batch = pa.record_batch({"y": [1], "x": [2]})
    assert conform(batch, ONE, step="run").to_pylist() == [{"x": 2}]
    with pytest.raises(UserError, match=r"a column 'z' of bool, got columns \['y', 'x'\]"):
        conform(batch, schema({"z": "bool"}), step="run")


def test_errors_say_what_to_do() -> None:
    user = UserError("window", expected="a range", got="0s", hint="write '1s'")
    assert str(user) == "window: expected a range, got 0s — write '1s'"
    assert (user.step, user.expected, user.got, user.hint) == ("window", "a range", "0s", "write '1s'")
    unsupported = UnsupportedError("spark", "a dance", instead="use local")
    assert str(unsupported) == "the spark engine cannot run a dance — use local"
    internal = InternalError("lost", plan="source s")
    assert "please report it" in str(internal) and "source s" in str(internal)
    assert all(isinstance(e, tm.TidemillError) for e in (user, unsupported, internal))
    assert Schema(()).names == ()
