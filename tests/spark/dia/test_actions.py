"""Actions against Python's own folds."""

from __future__ import annotations

from functools import reduce
from typing import Any

import pytest

import tidemill as tm
from tidemill.core.errors import UserError
from tidemill.spark.dia import generate

LAYOUT = [[3, 1], [], [4, 1, 5], [9, 2]]
FLAT = [x for part in LAYOUT for x in part]


def test_folds_of_numbers(dia_of: Any) -> None:
    dia = dia_of(LAYOUT)
    assert (dia.size(), dia.sum(), dia.min(), dia.max()) == (7, sum(FLAT), 1, 9)
    assert dia.sum(initial=100) == 100 + sum(FLAT)
    assert dia.sum(lambda a, b: a * b if a else b, initial=2) == reduce(lambda a, b: a * b, FLAT, 2)
    assert dia.all_reduce(max) == 9
    assert dia.map(lambda x: x / 2).sum() == sum(FLAT) / 2


def test_folds_in_order_need_not_be_commutative(dia_of: Any) -> None:
    words = dia_of([["a"], [], ["b", "c"], ["d"]], str)
    assert words.all_reduce(lambda a, b: a + b) == "abcd"
    assert words.sum(lambda a, b: a + b, initial=">") == ">abcd"


def test_folds_of_tuples_and_records(dia_of: Any) -> None:
    pairs = dia_of([[(1, "b"), (3, "a")], [(3, "c"), (2, "z")]], (int, str))
    assert (pairs.min(), pairs.max()) == ((1, "b"), (3, "c"))
    rows = pairs.map(lambda e: {"n": 1, "in": (e[0], e[0])})
    total = rows.all_reduce(
        lambda a, b: {
            "n": a.n + b.n, "in": (tm.least(a["in"][0], b["in"][0]), a["in"][1] + b["in"][1])
        }
    )  # fmt: skip
    assert total == {"n": 4, "in": (1, 9)}


def test_folds_of_nothing(spark: Any) -> None:
    none = generate(spark, 3).filter(lambda x: x > 5)
    assert (none.size(), none.sum(), none.min(), none.max()) == (0, 0, None, None)
    assert none.all_reduce(max, initial=4) == 4
    assert none.hyperloglog() == 0
    with pytest.raises(UserError, match="all_reduce: no elements"):
        none.all_reduce(max)
    with pytest.raises(UserError, match="sum: expected numbers, got string"):
        none.map(lambda x: x.cast("string")).sum()


def test_hyperloglog_is_close(spark: Any) -> None:
    dia = generate(spark, 30_000).map(lambda i: i % 5000)
    assert abs(dia.hyperloglog() - 5000) < 250
    assert abs(dia.map(lambda i: (i, i * 0.5)).hyperloglog(lg_k=14) - 5000) < 150
    with pytest.raises(UserError, match="lg_k from 4 to 21"):
        dia.hyperloglog(3)
