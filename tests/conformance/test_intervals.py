"""Interval joins on random rows, all options and pairs of them: `run` and a driven graph, by definition."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidemill as tm
from tests.conformance.temporal import (
    COLUMNS,
    POINTS,
    SEEDS,
    Driven,
    Inputs,
    assert_rows,
    by_reference,
    in_process,
    inputs_of,
)
from tests.conformance.user_states import last_three, longest_run, middle
from tests.examples import examples
from tidemill import col
from tidemill.stream import Stream

A, B = (tm.stream(n, time="t", schema={"t": "int64", **COLUMNS}) for n in "ab")
"""Base rows and probe rows."""
L = tm.stream("b", time="t", end="u", schema={"t": "int64", "u": "int64", **COLUMNS})
INPUTS = st.fixed_dictionaries({"a": POINTS, "b": POINTS})

FEW: dict[str, Any] = {"n": tm.count(), "sm": tm.sum(col.v), "most": tm.max(col.s), "mean": tm.mean(col.x)}
IN_ORDER: dict[str, Any] = {"e": tm.ewma(col.x, half_life=4), "d": tm.drawdown(col.v)}

AGGREGATES: dict[str, dict[str, Any]] = {
    "few": FEW,
    "in order": IN_ORDER,
    "first and last": {"f": tm.first(col.v), "l": tm.last(col.s), "m": tm.arg_max(col.v, col.x)},
    "to lists": {
        "c": tm.collect(col.v), "top": tm.top_k(col.v, 2), "late": tm.last_k(col.s, 2),
        "early": tm.first_k(col.v, 2),
    },
    "holistic": {"q": tm.median(col.v), "d": tm.distinct_count(col.s)},
    "by category": {"c": tm.count_by(col.s), "m": tm.max_by(col.v, col.s)},
    "in Python": {"mid": middle(col.v)},
    "in Python, in order": {"r": longest_run()(col.v), "l": last_three(col.s)},
    "sketches": {"h": tm.distinct_count(col.v, method="hll")},
}  # fmt: skip

WHERE: dict[str, Callable[[Any, Any], Any]] = {
    "cheap": lambda a, b: a.v < b.v,
    "of one side": lambda a, b: b.v > 0,
}

OPTIONS: dict[str, dict[str, Any]] = {
    "before": {"preceding": 5},
    "after": {"following": 4},
    "around": {"preceding": 3, "following": 6},
    "the same instant": {"preceding": 0},
    "open": {"preceding": 4, "following": 2, "closed": "neither"},
    "left closed": {"preceding": 4, "closed": "left"},
    "right closed": {"preceding": 4, "following": 1, "closed": "right"},
    "all before": {"preceding": tm.FOREVER},
    "all after": {"following": tm.FOREVER},
    "all": {"preceding": tm.FOREVER, "following": tm.FOREVER},
    "computed": {"preceding": lambda a: a.v * 2, "following": 1},
    "both computed": {"preceding": lambda a: a.v, "following": lambda a: a.v - a.k},
    "a few": {"preceding": 9, "max_rows": 2},
    "a few after": {"following": 9, "max_rows": 2},
    "a few around": {"preceding": 7, "following": 7, "max_rows": 3},
    "not now": {"preceding": 5, "exclude_current_time": True},
    "not now, after": {"following": 5, "exclude_current_time": True},
    "not now, around": {"preceding": 4, "following": 5, "exclude_current_time": True},
    "with base": {"preceding": 5, "include_base": True},
    "prevailing": {"preceding": 3, "prevailing": True},
    "prevailing, after": {"following": 3, "prevailing": True},
    "since previous": {"since_previous": True},
    "since previous, after": {"preceding": 6, "following": 2, "since_previous": True},
    "a condition": {"preceding": 6, "following": 2, "where": WHERE["cheap"]},
}

PAIRED: dict[str, list[Any]] = {
    "preceding": [0, 4, tm.FOREVER, lambda a: a.v], "following": [0, 3, tm.FOREVER, lambda a: a.v + 1],
    "closed": ["both", "left", "right", "neither"], "max_rows": [None, 1, 2], "prevailing": [False, True],
    "exclude_current_time": [False, True], "include_base": [False, True], "since_previous": [False, True],
    "where": [None, *WHERE.values()],
}  # fmt: skip
"""Values of each option, for random combinations."""


def _query(options: dict[str, Any], aggregates: dict[str, Any] | None) -> Stream:
    joined = A.interval_join(B, on="k", **options)
    return joined.pairs() if aggregates is None else joined.agg(**aggregates)


def _check(query: Stream, data: Inputs, seed: int, what: str) -> None:
    inputs, pick = inputs_of(query, data), random.Random(seed)
    expected = by_reference(query, inputs)
    assert_rows(in_process(query, inputs), expected, f"{what}, run")
    assert_rows(Driven(query, inputs, pick).run(), expected, f"{what}, driven")
    driven = Driven(query, inputs, pick)
    while pick.random() < 0.8 and len(driven.ended) < len(inputs):
        driven.step()
    assert_rows(driven.so_far(), by_reference(query, driven.pushed), f"{what}, so far")


@pytest.mark.parametrize("aggregates", ["few", "in order", "pairs"])
@pytest.mark.parametrize("name", OPTIONS)
@examples(3, of=25)
@given(data=INPUTS, seed=SEEDS)
def test_each_option(name: str, aggregates: str, data: Inputs, seed: int) -> None:
    _check(_query(OPTIONS[name], AGGREGATES.get(aggregates)), data, seed, f"{name}, {aggregates}")


@pytest.mark.parametrize("name", AGGREGATES)
@pytest.mark.parametrize("options", ["around", "both computed", "a condition"])
@examples(3, of=25)
@given(data=INPUTS, seed=SEEDS)
def test_each_family_of_aggregates(name: str, options: str, data: Inputs, seed: int) -> None:
    _check(_query(OPTIONS[options], AGGREGATES[name]), data, seed, f"{name}, {options}")


@examples(60, of=1000)
@given(data=INPUTS, seed=SEEDS, kind=st.sampled_from(["few", "in order", "pairs"]))
def test_options_together(data: Inputs, seed: int, kind: str) -> None:
    pick = random.Random(seed)
    asked = {name: pick.choice(values) for name, values in PAIRED.items()}
    shown = {n: v for n, v in asked.items() if v not in (None, False)}
    _check(_query(asked, AGGREGATES.get(kind)), data, seed, f"{shown}, {kind}")


OTHERS: dict[str, Callable[[], Stream]] = {
    "last": lambda: A.last_join(B, on="k"),
    "next": lambda: A.last_join(B, on="k", direction="forward", tolerance=5),
    "nearest": lambda: A.last_join(B, on="s", direction="nearest"),
    "nearest, close": lambda: A.last_join(B, on="s", direction="nearest", tolerance=2),
    "strictly before": lambda: A.last_join(B, on="k", exclude_current_time=True),
    "nearest, not now": lambda: A.last_join(B, on="k", direction="nearest", exclude_current_time=True),
    "last that fits": lambda: A.last_join(B, on="k", where=lambda a, b: a.v < b.v),
    "nearest that fits": lambda: A.last_join(B, on="k", direction="nearest", where=lambda a, b: a.v < b.v),
    "last values": lambda: A.last_join(B, on="k", skip_nulls=True),
    "lags": lambda: A.last_join(B.select("k", "v"), on="k", lags=[0, 2, 5], tolerance=4),
    "lags, last values": lambda: A.last_join(B.select("k", "v"), on="k", lags=[1], skip_nulls=True),
    "without a key": lambda: A.interval_join(B, preceding=4).agg(n=tm.count()),
    "without a key, last": lambda: A.last_join(B),
    "two keys": lambda: A.interval_join(B, on=["k", "s"], preceding=9).agg(**FEW),
    "other names": lambda: A.interval_join(B, on={"k": "v"}, preceding=9, max_rows=2).agg(n=tm.count()),
    "a float key": lambda: A.interval_join(B, on="x", preceding=9).agg(n=tm.count()),
    "inner pairs": lambda: A.interval_join(B, on="k", following=6).pairs(how="inner"),
    "intervals": lambda: A.interval_join(L, on="k", preceding=6, max_rows=2).pairs(),
    "of itself": lambda: A.interval_join(A, on="k", preceding=5, exclude_current_time=True).agg(n=tm.count()),
    "two probes": lambda: A.interval_join(B, on="k", preceding=5).agg(n=tm.count()).interval_join(
        A, on="s", following=3).agg(m=tm.max(col.v)),
    "then a filter": lambda: A.interval_join(B, on="k", preceding=9).agg(n=tm.count()).where(
        (col.n > 1) & (col.v > 0)),
    "filter by key, since previous": lambda: A.interval_join(B, on="k", since_previous=True).agg(
        n=tm.count()).where(col.k > 0),
    "filter, since previous": lambda: A.interval_join(B, on="k", since_previous=True).agg(
        n=tm.count()).where(col.v > 0),
    "windows of features": lambda: A.where(col.t.abs() < 100).interval_join(B, on="k", preceding=9).agg(
        n=tm.count()).window(tm.tumbling(5)).agg(most=tm.max(col.n)),
    "features of windows": lambda: A.interval_join(
        B.where(col.t.abs() < 100).group_by("k").window(tm.tumbling(4)).agg(n=tm.count()), on="k",
        preceding=8).agg(sm=tm.sum("n")),
    "in groups": lambda: A.group_by("k").apply(
        lambda g: g.interval_join(g.where(col.v > 1), on="s", preceding=7).agg(n=tm.count())),
}  # fmt: skip


@pytest.mark.parametrize("name", OTHERS)
@examples(4, of=25)
@given(data=INPUTS, seed=SEEDS)
def test_others(name: str, data: Inputs, seed: int) -> None:
    if name == "intervals":
        data = data | {"b": [row | {"u": row["t"] + 1 + i % 3} for i, row in enumerate(data["b"])]}
    _check(OTHERS[name](), data, seed, name)


@pytest.mark.parametrize(("closed", "n"), [("both", 5), ("left", 3), ("right", 4), ("neither", 2)])
def test_closed_ends_and_ties(closed: str, n: int) -> None:
    """Paper 004, definition 2: both ends of an interval are part of it, and so are rows of one time."""
    rows = [{"t": t, "k": 1, "v": t, "s": "", "x": 0.0} for t in (3, 5, 6, 7, 7, 9)]
    base = [{"t": 7, "k": 1, "v": 0, "s": "", "x": 0.0}]
    query = A.interval_join(B, on="k", preceding=4, closed=closed).agg(n=tm.count())
    assert query.run(a=base, b=rows)["n"].to_pylist() == [n]
