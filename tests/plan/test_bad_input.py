"""Bad input is refused where it is written, and the message says step, column, expected and got."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tidemill as tm
from tidemill import col

CLOCK = tm.stream(
    "s", time="ts",
    schema={"ts": "timestamp", "k": "string", "x": "int64", "f": "float64", "l": "list<int64>"},
)  # fmt: skip
LOGICAL = tm.stream("s", time="t", schema={"t": "int64", "x": "int64"})
TUMBLING = CLOCK.window(tm.tumbling("1h"))

CASES: dict[str, tuple[Callable[[], Any], list[str]]] = {
    "unknown column in where": (
        lambda: CLOCK.where(col.xx > 1), ["where:", "['ts', 'k', 'x'", "'xx'", "did you mean 'x'?"],
    ),
    "unknown column in a lambda": (lambda: CLOCK.where(lambda e: e.price > 1), ["where:", "'price'"]),
    "unknown column in agg": (
        lambda: TUMBLING.agg(n=tm.sum(col.price)), ["agg n sum(col.price):", "'price'"],
    ),
    "unknown key": (lambda: CLOCK.group_by("ad"), ["group_by:", "'ad'"]),
    "key twice": (lambda: CLOCK.group_by("k", "k"), ["group_by:", "each key once"]),
    "key that is a list": (lambda: CLOCK.group_by("l"), ["group_by:", "'l'", "list<int64>"]),
    "computed key without a name": (
        lambda: CLOCK.group_by(col.x % 3), ["group_by:", "a name for a computed key"],
    ),
    "wrong type in arithmetic": (
        lambda: CLOCK.where(col.k * 2 > 1), ["where:", "numbers in (col.k * 2)", "string, int64"],
    ),
    "wrong type in a comparison": (
        lambda: CLOCK.where(col.k > 1), ["where:", "values of one type in (col.k > 1)"],
    ),
    "a condition that is no condition": (
        lambda: CLOCK.where(col.x + 1), ["where:", "a condition (bool)", "int64"],
    ),
    "sum of text": (lambda: TUMBLING.agg(n=tm.sum(col.k)), ["sum", "string"]),
    "aggregate of a list": (lambda: TUMBLING.agg(n=tm.last(col.l)), ["list<int64> in col.l"]),
    "an expression where an aggregate belongs": (
        lambda: TUMBLING.agg(n=col.x), ["agg n:", "an aggregate such as tm.sum(col.x)", "wrap it"],
    ),
    "missing time column": (
        lambda: tm.stream("s", time="when", schema={"ts": "timestamp"}),
        ["stream 's' time=:", "['ts']", "'when'"],
    ),
    "time column of a wrong type": (
        lambda: tm.stream("s", time="ts", schema={"ts": "string"}),
        ["stream 's':", "timestamp (clock) or int64 (logical)", "string"],
    ),
    "unknown type": (
        lambda: tm.stream("s", time="t", schema={"t": "int64", "m": "money"}),
        ["stream 's':", "column 'm'", "'money'"],
    ),
    "a type that is not read": (
        lambda: tm.stream("s", time="t", schema=pa.schema({"t": pa.int64(), "m": pa.time32("s")})),
        ["stream 's':", "column 'm'", "time32[s]"],
    ),
    "a name that is no name": (
        lambda: tm.stream("my stream", time="t", schema={}), ["stream:", "'my stream'"],
    ),
    "a name that run() needs itself": (
        lambda: tm.stream("progress", time="t", schema={"t": "int64"}), ["stream:", "'progress'"],
    ),
    "column twice": (
        lambda: tm.stream("s", time="t", schema=pa.schema([("t", pa.int64()), ("t", pa.int64())])),
        ["stream 's':", "each column once", "'t'"],
    ),
    "zero range": (lambda: tm.tumbling("0s"), ["tumbling:", "size greater than zero", "'0s'"]),
    "negative slide": (
        lambda: tm.hopping("1h", every=timedelta(seconds=-1)), ["hopping:", "every greater than zero"],
    ),
    "zero rows": (lambda: tm.rows(0, every=1), ["rows:", "range greater than zero", "0"]),
    "a duration in months": (lambda: tm.tumbling("1 month"), ["tumbling:", "fixed length", "1 month"]),
    "a duration that is none": (lambda: tm.tumbling("soon"), ["tumbling:", "'soon'", "units: us, ms"]),
    "logical durations on clock time": (
        lambda: CLOCK.window(tm.tumbling(5)).agg(n=tm.count()),
        ["window tumbling(5):", "durations in clock time", "'ts' is timestamp", "never mix"],
    ),
    "clock durations on logical time": (
        lambda: LOGICAL.window(tm.tumbling("5m")).agg(n=tm.count()),
        ["window tumbling(5m):", "durations in logical time", "never mix"],
    ),
    "both kinds in one window": (lambda: tm.hopping("1h", every=5), ["hopping:", "one kind of time"]),
    "a window on text": (
        lambda: CLOCK.window(tm.tumbling(5, on="k")).agg(n=tm.count()),
        ["window tumbling(5, on='k'):", "an int64, float64, timestamp or duration", "string"],
    ),
    "no window": (
        lambda: CLOCK.group_by("k").window().agg(n=tm.count()), ["agg:", ".window(...) before .agg(...)"],
    ),
    "no aggregate without a window": (lambda: CLOCK.group_by("k").agg(), ["agg:", "at least one aggregate"]),
    "no aggregate": (lambda: TUMBLING.agg(), ["agg:", "at least one aggregate"]),
    "a window that is none": (lambda: CLOCK.window("1h"), ["window:", "tm.hopping('1h', every='1m')"]),
    "a result named like a key": (
        lambda: CLOCK.group_by("k").window(tm.tumbling("1h")).agg(k=tm.count()), ["agg:", "'k'"],
    ),
    "a result named like a bound": (lambda: TUMBLING.agg(window_end=tm.count()), ["agg:", "'window_end'"]),
    "time computed anew": (
        lambda: CLOCK.select(ts=col.ts + timedelta(hours=1)), ["select:", "time column 'ts' unchanged"],
    ),
    "a computed column without a name": (lambda: CLOCK.select(col.x + 1), ["select:", "select(total="]),
    "python's and": (lambda: CLOCK.where(lambda e: e.x > 1 and e.f > 2), ["truth value", "& | ~"]),
    "a pattern that is a column": (
        lambda: CLOCK.where(tm.Expr(tm.col.k.node).contains(col.k)), ["a constant", "contains"],
    ),
    "a regular expression that is none": (lambda: CLOCK.where(col.k.matches("(")).run(s=[]), ["RE2"]),
    "a float cast to text": (lambda: CLOCK.select(z=col.f.cast("string")), ["select z:", "float64"]),
    "a quantile beyond one": (lambda: tm.quantile(col.x, 1.5), ["quantile:", "between 0 and 1", "1.5"]),
    "no input": (lambda: LOGICAL.run(), ["run:", "one input named 's'"]),
    "another input": (lambda: LOGICAL.run(s=[], z=[]), ["run:", "['s', 'z']"]),
    "a column that the data lacks": (
        lambda: LOGICAL.run(s=pa.table({"t": [1]})), ["run s", "'x' of int64", "['t']"],
    ),
    "a column of another type": (
        lambda: LOGICAL.run(s=pa.table({"t": [1], "x": ["a"]})), ["run s", "'x' of type int64", "string"],
    ),
    "a schema that changes between batches": (
        lambda: LOGICAL.run(
            s=[pa.record_batch({"t": [1], "x": [1]}), pa.record_batch({"t": [2], "x": ["a"]})]
        ),
        ["run s", "batch 2", "'x'", "string"],
    ),
    "null time": (
        lambda: LOGICAL.window(tm.tumbling(5)).agg(n=tm.count()).run(s=[{"t": None, "x": 1}]),
        ["window tumbling(5):", "no null in the windowing column 't'", "col.t.is_not_null()"],
    ),
    "a path that matches nothing": (
        lambda: LOGICAL.run(s="/nowhere/*.parquet"), ["run s", "/nowhere/*.parquet"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_bad_input(name: str) -> None:
    call, expected = CASES[name]
    with pytest.raises(tm.UserError) as refused:
        call()
    for part in expected:
        assert part in str(refused.value)


def test_a_slide_greater_than_the_range_is_allowed_and_samples() -> None:
    query = LOGICAL.window(tm.hopping(2, every=10)).agg(n=tm.count())
    rows = [{"t": t, "x": 0} for t in range(20)]
    assert query.run(s=rows).to_pydict() == {
        "window_start": [8, 18], "window_end": [10, 20], "n": [2, 2],
    }  # fmt: skip


TYPED = tm.stream("c", time="ts", schema={"ts": "timestamp", "k": "string", "x": "float64", "b": "bool"})


@pytest.mark.parametrize(
    ("aggregate", "message"),
    [
        (tm.sum(col.k), "agg z sum.*expected a number, got col.k, which is string"),
        (tm.mean(col.k), "agg z mean.*expected a number"),
        (tm.median(col.k), "expected a number, got col.k"),
        (tm.sum("k"), "expected a number, got col.k"),
        (tm.sum(col.ts), "expected a number, got col.ts, which is timestamp"),
        (tm.mean_by(col.k, col.b), "expected a number, got col.k"),
        (tm.sum_by(col.ts, col.k), "expected a number, got col.ts"),
        (tm.correlation(col.x, col.k), "expected a number, got col.k"),
        (tm.ewma(col.x, half_life=60), "half_life.*never mix"),
    ],
    ids=str,
)
def test_aggregates_say_what_they_cannot_compute_with(aggregate: Any, message: str) -> None:
    with pytest.raises(tm.UserError, match=message):
        TYPED.window(tm.tumbling("1h")).agg(z=aggregate)


def test_a_lift_that_does_not_fit_its_identity() -> None:
    odd = tm.aggregate(
        "odd", identity=lambda: (0, 0), lift=lambda x: x,
        combine=lambda a, b: (a[0] + b[0], a[1] + b[1]), lower=lambda s: s[0],
    )  # fmt: skip
    with pytest.raises(tm.UserError, match="lift to give 2 fields, as identity, got 1"):
        TYPED.window(tm.tumbling("1h")).agg(z=odd(col.x))


@pytest.mark.parametrize("value", [1 << 63, -(1 << 63) - 1, 1 << 64])
def test_a_constant_is_within_int64(value: int) -> None:
    with pytest.raises(tm.UserError, match="an int within int64"):
        tm.lit(value)
    with pytest.raises(tm.UserError, match="an int within int64"):
        col.v.is_in([0, value])


def test_what_spark_cannot_do_does_not_stop_an_explanation() -> None:
    query = TYPED.window(tm.rows(3, every=1)).agg(n=tm.count())
    assert "not on Spark: window rows(3, every=1): expected order_by=" in query.explain()


def test_what_is_meant_is_taken() -> None:
    windowed = TYPED.group_by(["k", "b"]).window(tm.tumbling("1h"))
    assert windowed.agg(s=tm.sum(lambda e: e.x)).schema.names[:2] == ("k", "b")
    assert str(tm.tumbling(np.int64(5))) == "tumbling(5)"
    assert str(2**col.x) == str(tm.lit(2) ** col.x)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: tm.tumbling("1M"), "fixed length.*m is minutes"),
        (lambda: TYPED.where(lambda e: e.x.foo() > 1), "where: the lambda failed.*foo"),
        (lambda: tm.stream("a", time=None, schema={"t": "int64"}), "time= to be the name"),
    ],
)
def test_common_slips(wrong: Callable[[], Any], message: str) -> None:
    with pytest.raises(tm.UserError, match=message):
        wrong()
