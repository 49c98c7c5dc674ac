"""Every kind of key on every engine: null is a key, NaN is one key, and zero has one sign."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest

import tidemill as tm
from tests.conformance.harness import (
    Row,
    assert_same,
    by_reference,
    in_batches,
    locally,
    on_spark,
    split,
)  # fmt: skip
from tests.examples import later
from tidemill import col
from tidemill.stream import Stream

STREAM = tm.stream(
    "s", time="t",
    schema={
        "t": "int64", "i": "int64", "s": "string", "f": "float64", "b": "bool", "ts": "timestamp",
        "v": "int64",
    },
)  # fmt: skip
LONG = "a text longer than any inline representation of strings"
FLOATS = [0.0, -0.0, math.nan, -math.nan, 1.5, math.inf, -math.inf, None]


def rows(seed: int = 1, size: int = 120) -> list[Row]:
    pick = random.Random(seed)
    return [
        {
            "t": pick.randint(-10, 30), "i": pick.choice([None, 0, -1, 1 << 62, -(1 << 63)]),
            "s": pick.choice([None, "", "a", "A", "é", LONG]), "f": pick.choice(FLOATS),
            "b": pick.choice([None, True, False]), "ts": pick.choice([None, -1, 0, 10**15]),
            "v": pick.randint(-3, 9),
        }
        for _ in range(size)
    ]  # fmt: skip


KEYS: dict[str, dict[str, Any]] = {
    "none": {},
    "int": {"i": col.i},
    "string": {"s": col.s},
    "float": {"f": col.f},
    "bool": {"b": col.b},
    "timestamp": {"ts": col.ts},
    "two": {"s": col.s, "i": col.i},
    "four": {"f": col.f, "b": col.b, "s": col.s, "ts": col.ts},
    "computed": {"even": col.v % 2 == 0, "initial": col.s.substring(0, 1).upper()},
}


def ask(kind: str, window: tm.Window) -> Stream:
    taken = {name: key for name, key in KEYS[kind].items() if name not in STREAM.schema}
    plain = [name for name in KEYS[kind] if name in STREAM.schema]
    grouped = STREAM.group_by(*plain, **taken) if KEYS[kind] else STREAM
    return grouped.window(window).agg(n=tm.count(), total=tm.sum(col.v))


@pytest.mark.parametrize("window", [tm.hopping(8, every=4), tm.session(2)], ids=["hopping", "session"])
@pytest.mark.parametrize("kind", KEYS)
def test_keys_locally(kind: str, window: tm.Window) -> None:
    query = ask(kind, window)
    given = rows()
    expected = by_reference(query, given)
    assert_same(locally(query, given), expected, query.schema)
    parts = split(given, random.Random(2))
    assert_same(in_batches(query, parts, promises=True, speed="spilling"), expected, query.schema)


@pytest.mark.parametrize("kind", ["four", *later("computed", "none", "two")])
def test_keys_on_spark(spark: Any, kind: str) -> None:
    query = ask(kind, tm.hopping(8, every=4))
    assert_same(on_spark(spark, query, rows()), by_reference(query, rows()), query.schema)


@pytest.mark.parametrize("kind", ["four", *later("none")])
def test_keys_on_spark_by_the_rows_themselves(spark: Any, kind: str) -> None:
    query = ask(kind, tm.session(2))
    assert_same(on_spark(spark, query, rows()), by_reference(query, rows()), query.schema)


def test_not_a_number_is_one_key_and_zero_has_one_sign() -> None:
    query = ask("float", tm.tumbling(200, origin=-100))
    given = [{**row, "f": f} for row, f in zip(rows(size=7), FLOATS)]
    counts = {repr(row["f"]): row["n"] for row in locally(query, given)}
    assert counts == {"0.0": 2, "nan": 2, "1.5": 1, "inf": 1, "-inf": 1}


def test_more_keys_than_the_first_table_of_any_index_holds() -> None:
    many = tm.stream("s", time="t", schema={"t": "int64", "i": "int64", "s": "string"})
    query = many.group_by("i", "s").window(tm.tumbling(10)).agg(n=tm.count())
    given = [{"t": n % 3, "i": n * 7919, "s": f"key {n % 9000}"} for n in range(9500)]
    result = locally(query, given)
    assert len(result) == 9500 and all(row["n"] == 1 for row in result)
    assert {(row["i"], row["s"]) for row in result} == {(row["i"], row["s"]) for row in given}
