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


def test_folds_skip_nulls_also_beside_an_initial_value(dia_of: Any) -> None:
    dia = dia_of([[None], [3, None]])
    assert (dia.sum(), dia.sum(initial=4), dia.all_reduce(max, initial=1)) == (3, 7, 3)
    assert dia_of([[None]]).sum() == 0
    pairs = dia_of([[(1, None)], [(2, 5)]], (int, int))
    assert pairs.all_reduce(lambda a, b: (a[0] + b[0], a[1] + b[1]), initial=(10, 20)) == (13, 25)


@pytest.mark.soak
def test_our_functions_in_folds_that_python_runs(dia_of: Any) -> None:
    dia = dia_of(LAYOUT)
    assert dia.all_reduce(tm.greatest, initial=40) == 40
    assert dia.map(lambda x: x / 2).prefix_sum(tm.greatest).all_gather()[-1] == 4.5
    triples = dia.map(lambda x: (x, x, 1))
    folded = triples.all_reduce(lambda a, b: (a[0], tm.greatest(a[1], b[1]), a[2] * b[2]))
    assert folded == (3, 9, 1)


def test_hyperloglog_sees_where_nulls_are(spark: Any) -> None:
    both = generate(spark, 3000).flat_map(lambda i: [(i, None), (None, i)], returns=(int, int))
    assert abs(both.hyperloglog(14) - 6000) < 300
