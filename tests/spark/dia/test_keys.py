"""reduce, group and join against dicts of lists; traced and opaque."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from typing import Any

import pytest

import tidemill as tm
from tests.examples import later
from tidemill.core.errors import UserError
from tidemill.spark.dia import generate

PAIRS = [[("a", 1), ("b", 2)], [], [("a", 3)], [("c", None), ("b", -5), ("a", 7), (None, 1)]]
FLAT = [p for part in PAIRS for p in part]


def runs(dia: Any) -> str:
    return str(dia._node.runs)


def by_key(pairs: list[Any]) -> dict[Any, list[Any]]:
    groups = defaultdict(list)
    for key, value in pairs:
        groups[key].append(value)
    return dict(groups)


def known(values: list[Any]) -> list[Any]:
    return [v for v in values if v is not None]


def in_any_order(elements: list[Any]) -> list[Any]:
    return sorted(elements, key=repr)


@pytest.mark.soak
def test_reduce_pair_in_the_jvm(dia_of: Any) -> None:
    reduced = dia_of(PAIRS, (str, int)).reduce_pair(lambda a, b: a + b)
    assert runs(reduced) == "JVM"
    want = {k: sum(known(v)) if known(v) else None for k, v in by_key(FLAT).items()}
    assert in_any_order(reduced.all_gather()) == in_any_order(list(want.items()))


def test_reduce_by_key_in_the_jvm_with_several_aggregates(dia_of: Any) -> None:
    shape = (str, {"n": int, "low": int}, int)
    rows = dia_of([[(k, {"n": 1, "low": v}, v or 0) for k, v in part] for part in PAIRS], shape)
    reduced = rows.reduce_by_key(
        lambda e: e[0],
        lambda a, b: (
            b[0], {"n": a[1].n + b[1].n, "low": tm.least(a[1].low, b[1].low)}, tm.greatest(a[2], b[2])
        ),
    )  # fmt: skip
    assert runs(reduced) == "JVM"
    want = [
        (k, {"n": len(v), "low": min(known(v), default=None)}, max(x or 0 for x in v))
        for k, v in by_key(FLAT).items()
    ]
    assert in_any_order(reduced.all_gather()) == in_any_order(want)


KEY = {"jvm": lambda x: x % 3, "python": lambda x: int(x) % 3}
REDUCE = {"aggregate": max, "opaque": lambda a, b: a if a > b else b}


@pytest.mark.parametrize(
    ("reduce", "key"),
    [
        ("aggregate", "jvm"),
        *later(("opaque", "python"), ("aggregate", "python"), ("opaque", "jvm")),
    ],
)
def test_reduce_by_key(spark: Any, reduce: str, key: str) -> None:
    dia = generate(spark, 20, parts=4).reduce_by_key(KEY[key], REDUCE[reduce])
    assert sorted(dia.all_gather()) == [17, 18, 19]


def test_opaque_reduce_of_records_and_odd_keys(dia_of: Any) -> None:
    nan = math.nan
    layout = [[(0.0, "a"), (nan, "b")], [(-0.0, "c"), (nan, "d"), (None, "e")], [(None, "f")]]
    joined = dia_of(layout, (float, str)).reduce_by_key(
        lambda e: e[0], lambda a, b: (a[0], "".join(sorted(a[1] + b[1])))
    )
    assert runs(joined) == "Arrow batches"
    assert sorted(e[1] for e in joined.all_gather()) == ["ac", "bd", "ef"]
    nested = dia_of([[((1, "x"), 1)], [((1, "x"), 2), ((2, "y"), 5)]], ((int, str), int))
    summed = nested.reduce_pair(lambda a, b: a + b)
    assert runs(summed) == "JVM"
    assert sorted(summed.all_gather()) == [((1, "x"), 3), ((2, "y"), 5)]
    product = nested.reduce_pair(lambda a, b: a * b)
    assert runs(product) == "Arrow batches"
    assert "no sum, min or max" in product._node.why
    assert sorted(product.all_gather()) == [((1, "x"), 2), ((2, "y"), 5)]


def test_reduce_to_index(spark: Any) -> None:
    squares = generate(spark, 12, lambda i: (i % 5, i), parts=3)
    jvm = squares.reduce_to_index(lambda e: e[0], lambda a, b: (a[0], a[1] + b[1]), 7, (-1, 0))
    want = [(i, sum(x for x in range(12) if x % 5 == i)) for i in range(5)] + [(-1, 0)] * 2
    assert runs(jvm) == "JVM"
    assert jvm.all_gather() == want
    python = squares.reduce_to_index(lambda e: e[0], lambda a, b: max(a, b), 6)
    assert runs(python) == "Arrow batches"
    assert python.all_gather() == [(0, 10), (1, 11), (2, 7), (3, 8), (4, 9), (None, None)]
    assert generate(spark, 3).reduce_to_index(lambda i: i, max, 300, 7).all_gather() == [
        0, 1, 2, *[7] * 297
    ]  # fmt: skip


@pytest.mark.parametrize("index", [lambda i: i - 1, lambda i: int(i) * 3], ids=["jvm", "python"])
def test_an_index_outside_is_named(spark: Any, index: Any) -> None:
    dia = generate(spark, 3)
    reduced = dia.reduce_to_index(index, max, 3)
    with pytest.raises(
        UserError, match=r"reduce_to_index: expected an index in \[0, 3\), got (-1|3|6)"
    ):
        reduced.all_gather()
    grouped = dia.group_to_index(index, sum, 3)
    with pytest.raises(
        UserError, match=r"group_to_index: expected an index in \[0, 3\), got (-1|3|6)"
    ):
        grouped.size()


def test_index_functions_and_neutral_elements_are_checked(spark: Any) -> None:
    dia = generate(spark, 3)
    with pytest.raises(UserError, match="an index function that gives an int64, got string"):
        dia.reduce_to_index(str, max, 3)
    with pytest.raises(UserError, match="a size, 0 or more"):
        dia.reduce_to_index(lambda i: i, max, -3)
    with pytest.raises(
        UserError, match="reduce_to_index neutral: expected elements of int64, got 'x'"
    ):
        dia.reduce_to_index(lambda i: i, max, 3, "x").all_gather()


def test_groups(spark: Any) -> None:
    dia = generate(spark, 11, parts=3)
    medians = dia.group_by_key(lambda i: i % 3, lambda group: (min(group), sorted(group)[1]))
    assert sorted(medians.all_gather()) == [(0, 3), (1, 4), (2, 5)]
    with_key = dia.group_by_key(lambda i: (i % 2, "k"), lambda group, key: (key, sorted(group)))
    assert sorted(with_key.all_gather()) == [
        ((0, "k"), [0, 2, 4, 6, 8, 10]), ((1, "k"), [1, 3, 5, 7, 9])
    ]  # fmt: skip
    at = dia.group_to_index(lambda i: i // 3, len, 5, neutral=0)
    assert at.all_gather() == [3, 3, 3, 2, 0]
    empty = dia.filter(lambda i: i > 99).group_by_key(lambda i: i, len, returns=int)
    assert empty.all_gather() == []


def test_a_group_function_that_fails_names_the_key(spark: Any) -> None:
    dia = generate(spark, 60).group_by_key(
        lambda i: i % 50, lambda g: 1 // (40 - g[0]), returns=int
    )
    with pytest.raises(UserError, match="group_by_key of key 40: a lambda raised ZeroDivision"):
        dia.all_gather()


@pytest.mark.parametrize(
    "key", [lambda e: [e], lambda e: {"a": e}, lambda e: (e, [int(e)])], ids=["list", "dict", "in"]
)
def test_keys_that_cannot_be_hashed_are_refused(spark: Any, key: Any) -> None:
    dia = generate(spark, 3)
    with pytest.raises(UserError, match="reduce_by_key: expected a key that can be hashed"):
        dia.reduce_by_key(key, max)
    with pytest.raises(UserError, match="inner_join: expected a key that can be hashed"):
        dia.inner_join(dia, key, key, max)
    with pytest.raises(UserError, match="reduce_pair: expected pairs"):
        dia.reduce_pair(max)


def test_a_key_that_turns_out_otherwise_is_told(spark: Any) -> None:
    late = generate(spark, 50).reduce_by_key(lambda i: [i] if i > 40 else 0, max)
    with pytest.raises(UserError, match=r"reduce_by_key key: expected elements of int64, got \[4"):
        late.all_gather()


LEFT, RIGHT = [(i % 4, i) for i in range(6)], [(1, "b"), (3, "d"), (3, "D"), (9, "j")]


@pytest.mark.parametrize(
    ("traced", "how"),
    [
        pytest.param(run == "jvm", how, id=f"{run}-{how}", marks=() if now else pytest.mark.soak)
        for run, how, now in (
            ("jvm", "inner", True), ("jvm", "left", False), ("jvm", "right", False), ("jvm", "full", False),
            ("python", "inner", False), ("python", "left", True), ("python", "right", False),
            ("python", "full", False),
        )
    ],
)  # fmt: skip
def test_joins(spark: Any, dia_of: Any, traced: bool, how: str) -> None:
    left, right = dia_of([LEFT[:2], LEFT[2:]], (int, int)), dia_of([RIGHT], (int, str))
    key = (lambda e: e[0]) if traced else (lambda e: int(e[0]))
    pick = (lambda a, b: (a[1], b[1])) if traced else (lambda a, b: (a[1], b[1] and str(b[1])))
    if how == "inner":
        joined = left.inner_join(right, key, key, pick)
    else:
        joined = left.outer_join(right, key, key, pick, how=how)
    assert runs(joined) == ("JVM" if traced else "Arrow batches")
    want = [(a[1], b[1]) for a in LEFT for b in RIGHT if a[0] == b[0]]
    if how in ("left", "full"):
        want += [(a[1], None) for a in LEFT if a[0] not in (1, 3)]
    if how in ("right", "full"):
        want += [(None, "j")]
    assert in_any_order(joined.all_gather()) == in_any_order(want)


def test_self_joins_and_pairs_of_whole_elements(spark: Any) -> None:
    dia = generate(spark, 4)
    pairs = dia.inner_join(dia, lambda a: a + 1, lambda b: b, lambda a, b: (a, b))
    assert sorted(pairs.all_gather()) == [(0, 1), (1, 2), (2, 3)]
    nested = pairs.inner_join(pairs, lambda p: p[1], lambda p: p[0], lambda p, q: (p, q))
    assert sorted(nested.all_gather()) == [((0, 1), (1, 2)), ((1, 2), (2, 3))]
    assert sorted(nested.map(lambda e: e[1][1]).all_gather()) == [2, 3]
    with pytest.raises(UserError, match="keys of one type, int64 as on the left, got string"):
        dia.inner_join(dia, lambda a: a, lambda b: b.cast("string"), max)
    with pytest.raises(UserError, match="outer_join: expected how= one of"):
        dia.outer_join(dia, lambda a: a, lambda b: b, max, how="outer")


@pytest.mark.parametrize("how", ["opaque", *later("join")])
def test_detection_changes_what_travels_and_nothing_else(spark: Any, how: str) -> None:
    detect = "on"
    dia = generate(spark, 30, lambda i: (i * i % 11, i), parts=3)
    want: dict[int, int] = defaultdict(int)
    for i in range(30):
        want[i * i % 11] += i
    if how == "opaque":
        added = dia.reduce_pair(lambda a, b: int(a) + int(b), detect=detect)
        assert dict(added.all_gather()) == want
        return
    summed = dia.reduce_pair(lambda a, b: a + b, detect=detect)
    assert dict(summed.all_gather()) == want
    joined = dia.inner_join(
        summed, lambda e: e[0], lambda e: e[0], lambda a, b: (a[1], b[1]), detect=detect
    )
    assert sorted(joined.all_gather()) == [(i, want[i * i % 11]) for i in range(30)]


@pytest.mark.soak
def test_keys_and_groups_whose_types_are_read_off_elements(spark: Any) -> None:
    words = generate(spark, 6).map(lambda i: "ab" * int(i), returns=str)
    sizes = words.group_by_key(lambda w: w.len() % 4, len)
    assert in_any_order(sizes.all_gather()) == [3, 3]
    named = words.group_by_key(lambda w: w.len(), lambda group, key: (key, len(group)))
    assert in_any_order(named.all_gather()) == in_any_order([(2 * i, 1) for i in range(6)])
    parts = generate(spark, 4).group_by_key(lambda i: 10 // i, lambda group, key: (str(key), len(group)))
    assert in_any_order(parts.all_gather()) == [("10", 1), ("3", 1), ("5", 1), ("None", 1)]
    joined = words.inner_join(words, lambda w: w.len(), lambda w: w.len(), lambda a, b: f"{a}{b}")
    assert in_any_order(joined.all_gather()) == in_any_order(["abab" * i for i in range(6)])


def test_a_group_function_that_fails_on_the_first_elements_only(spark: Any) -> None:
    dia = generate(spark, 100)
    with pytest.raises(UserError, match="declare the type with returns="):
        dia.group_by_key(lambda i: i % 30, statistics.stdev)
    found = dia.group_by_key(lambda i: i % 30, statistics.stdev, returns=float)
    assert found.size() == 30
