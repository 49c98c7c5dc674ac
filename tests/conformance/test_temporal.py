"""Each operator of the temporal algebra on random rows: `run` and a driven graph, by its definition."""

from __future__ import annotations

import functools
import math
import random
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given

import tidemill as tm
from tests.conformance.cases import mean_log, root_mean_square, thirds
from tests.conformance.temporal import (
    EAGER,
    INPUTS,
    SEEDS,
    D,
    Driven,
    Inputs,
    P,
    S,
    assert_rows,
    assert_snapshots,
    by_reference,
    in_process,
    inputs_of,
)
from tests.conformance.user_states import last_three, longest_run, middle, mode
from tests.examples import examples
from tidemill import col
from tidemill.stream import Stream

P_NEAR, S_NEAR = (s.where(col.t.abs() < 100) for s in (P, S))
"""Without rows that are far away, for what has a row for each of so many instants between."""
Q = P.shift(2).lasting(4)
"""Intervals made of points."""

LIFETIMES: dict[str, Callable[[], Stream]] = {
    "where": lambda: S.where(col.v > 1),
    "where on the lifetime": lambda: S.where(lambda e: e.u - e.t > 3),
    "select": lambda: S.select("k", w=col.v * 2),
    "select_many": lambda: S.select_many(part=col.s.split("b")),
    "select_many of an aggregate": lambda: S.group_by("k").agg(vs=tm.collect(col.v)).select_many(w="vs"),
    "lasting": lambda: P.lasting(5),
    "lasting, of intervals": lambda: S.lasting(3),
    "lasting an expression": lambda: P.lasting(lambda e: e.v - 1),
    "lasting forever": lambda: P.lasting(tm.FOREVER).group_by("k").agg(n=tm.count()),
    "until": lambda: P.until(lambda e: e.t + e.v),
    "until a column": lambda: P.with_columns(z=col.t + col.v).until("z").agg(n=tm.count()),
    "starting": lambda: S.starting(lambda e: e.t - e.k).agg(n=tm.count()),
    "starting, points": lambda: P.starting(lambda e: e.t + e.v).lasting(3).group_by("k").agg(n=tm.count()),
    "extend": lambda: S.extend(3),
    "extend points": lambda: P.extend(3),
    "extend by an expression": lambda: S.extend(lambda e: e.v),
    "shift": lambda: S.shift(-5).agg(n=tm.count()),
    "shift points": lambda: P.shift(7).lasting(2).stitch(),
    "at_most": lambda: S.at_most(4),
    "at_most, points": lambda: P.at_most(4),
    "at_start": lambda: S.at_start().lasting(2).agg(n=tm.count()),
    "at_end": lambda: S.at_end().lasting(2).agg(n=tm.count()),
    "at_end, points": lambda: P.at_end(),
    "quantised": lambda: P.quantised(10, every=5).group_by("k").agg(n=tm.count()),
    "quantised, tumbling": lambda: S.quantised(4).agg(m=tm.max(col.v)),
    "quantised, sampling": lambda: P.quantised(4, every=6, origin=-1),
    "quantised, no multiple": lambda: P.quantised(7, every=3).agg(n=tm.count()),
    "until_session_end": lambda: P.until_session_end(4, "k"),
    "until_session_end, of intervals": lambda: S.until_session_end(3),
    "until_session_end by a float": lambda: P.until_session_end(5, "x"),
    "until_next": lambda: P.until_next("k"),
    "until_next of all": lambda: P.until_next(),
    "until_next, of intervals": lambda: S.until_next("s"),
    "chop": lambda: S.at_most(40).chop(7),
    "chop at an origin": lambda: S.at_most(40).chop(6, origin=-2),
    "sample": lambda: S.at_most(30).sample(5),
    "sample the last known": lambda: P_NEAR.until_next("k").sample(6, origin=1),
    "chop what never ends": lambda: P_NEAR.lasting(tm.FOREVER).chop(9),
}  # fmt: skip

SNAPSHOTS: dict[str, Callable[[], Stream]] = {
    "stitch": lambda: S.select("k").stitch(),
    "stitch floats": lambda: S.select("x").stitch(),
    "stitch points": lambda: P.select("k", "s").stitch(),
    "stitch pieces": lambda: S.at_most(40).chop(4).stitch(),
    "stitch lists": lambda: S.group_by("k").agg(c=tm.collect(col.v)).select("c").stitch(),
    "agg": lambda: S.agg(n=tm.count(), sm=tm.sum(col.v), most=tm.max(col.s)),
    "agg by key": lambda: S.group_by("k").agg(n=tm.count(), most=tm.max(col.x), mean=tm.mean(col.v)),
    "agg by keys": lambda: S.group_by("s", "x").agg(n=tm.count()),
    "agg by an expression": lambda: S.group_by(odd=col.v % 2).agg(n=tm.count(), c=tm.collect(col.v)),
    "agg of points": lambda: P.group_by("k").agg(n=tm.count(), c=tm.collect(col.s)),
    "agg in order": lambda: S.group_by("k").agg(
        first=tm.first(col.v), last=tm.last(col.v), of=tm.arg_max(col.v, col.x)
    ),
    "agg that looks at order": lambda: Q.agg(e=tm.ewma(col.x, half_life=4)),
    "agg to lists of floats": lambda: S.group_by("k").agg(c=tm.collect(col.x)),
    "changes of lists": lambda: S.group_by("k").agg(c=tm.collect(col.x)).select("c").changes(),
    "agg of nulls": lambda: S.where(col.v.is_null()).group_by("k").agg(sm=tm.sum(col.v), n=tm.count(col.v)),
    "agg, holistic": lambda: S.agg(q=tm.median(col.v), d=tm.distinct_count(col.s), t=tm.top_k(col.v, 2)),
    "agg, histograms": lambda: S.agg(c=tm.count_by(col.s), m=tm.max_by(col.v, col.s)),
    "agg, recorded": lambda: S.where(col.x.is_not_null()).agg(r=root_mean_square(col.x)),
    "agg, compiled": lambda: S.group_by("k").agg(r=mean_log(col.x)),
    "agg, row by row": lambda: S.agg(r=thirds(col.v), n=tm.count()),
    "agg, objects": lambda: S.group_by("k").agg(m=mode()(col.v), mid=middle(col.v)),
    "agg, objects in order": lambda: Q.agg(r=longest_run()(col.v), l=last_three(col.s)),
    "agg, drawdown": lambda: S.group_by("k").agg(d=tm.drawdown(col.v)),
    "agg, sketches": lambda: S.agg(h=tm.distinct_count(col.v, method="hll")),
    "agg, quantile sketch": lambda: S.group_by("k").agg(q=tm.quantile(col.x, 0.5, method="kll")),
    "agg of agg": lambda: S.group_by("k").agg(n=tm.count()).agg(most=tm.max(col.n), keys=tm.count()),
    "distinct": lambda: S.distinct("k"),
    "distinct of all": lambda: S.select("k", "x").distinct(),
    "distinct points": lambda: P.distinct("s"),
    "top": lambda: S.top(2, by="v"),
    "top by a float": lambda: S.top(1, by="x"),
    "top by a string": lambda: Q.top(2, by="s", least=True),
    "top by key": lambda: S.group_by("k").top(1, by="v", least=True),
    "top points": lambda: P.group_by("k").top(1, by="v"),
    "moving windows": lambda: S_NEAR.lasting(7).agg(n=tm.count(), sm=tm.sum(col.x)),
}

TWO: dict[str, Callable[[], Stream]] = {
    "join": lambda: S.join(P, on="k"),
    "join without keys": lambda: S.join(Q),
    "join by two keys": lambda: S.join(Q, on=["k", "s"]),
    "join by a float": lambda: S.join(Q, on="x"),
    "join of other names": lambda: S.join(Q, on={"k": "v"}),
    "join where": lambda: S.join(Q, on="k", where=lambda l, r: l.v < r.v),
    "join where alone": lambda: S.join(Q, where=lambda l, r: (l.s == r.s) & (l.t < r.t)),
    "join with itself": lambda: Q.join(P, on="k", where=lambda l, r: l.t < r.t),
    "as-of": lambda: P.join(S.until_next("k"), on="k"),
    "as-of, of points": lambda: P.join(S.at_start().where(col.v > 0).until_next("x"), on="x"),
    "as-of with a tolerance": lambda: P.join(S.until_next("s").at_most(4), on="s"),
    "as-of by two keys, where": lambda: P.join(
        S.until_next("s", "k"), on=["k", "s"], where=lambda l, r: (l.v < r.v) | (r.t > 0)),
    "as-of, all points": lambda: P.join(S.until_next("k").at_most(6), on="k", how="left"),
    "as-of the same stream": lambda: P.where(col.v > 0).join(P.until_next("k"), on="k"),
    "as-of in groups": lambda: P.group_by("s").apply(
        lambda g: g.where(col.v > 1).join(g.where(col.v < 3).until_next("k"), on="k")),
    "nearly as-of: another key": lambda: P.join(S.until_next("k"), on="s"),
    "nearly as-of: the end is asked for": lambda: P.join(
        P.until_next("k"), on="k", where=lambda l, r: r.valid_to - l.t < 5),
    "left": lambda: S.join(Q, on="k", how="left"),
    "left where": lambda: S.join(P, on="k", how="left", where=lambda l, r: l.v < r.v),
    "left of points": lambda: P.join(S, on="k", how="left"),
    "right": lambda: S.join(Q, on="k", how="right", suffix="_of_q"),
    "right by another name": lambda: S.select("v", "x").join(Q.select("k", "s"), on={"v": "k"}, how="right"),
    "outer": lambda: S.join(Q, on="k", how="outer"),
    "outer without keys": lambda: S.join(Q, how="outer", where=lambda l, r: l.x > r.x),
    "where_exists": lambda: S.where_exists(Q, on="k"),
    "where_exists where": lambda: S.where_exists(Q, on="k", where=lambda l, r: l.v < r.v),
    "where_exists, points": lambda: P.where_exists(S, on="s"),
    "where_exists at all": lambda: S.where_exists(Q),
    "where_not_exists": lambda: S.where_not_exists(Q, on="k"),
    "where_not_exists where": lambda: S.where_not_exists(Q, on="k", where=lambda l, r: l.v < r.v),
    "where_not_exists, points": lambda: P.where_not_exists(S, on="k"),
    "clip": lambda: S.clip(P, on="k"),
    "clip where": lambda: S.clip(P, on="k", where=lambda l, r: l.v < r.v),
    "clip at all": lambda: S.clip(Q),
    "clip points": lambda: P.clip(S, on="k"),
    "union": lambda: S.union(S.shift(3)).group_by("k").agg(n=tm.count()),
    "union of made intervals": lambda: P.lasting(3).union(P.where(col.v > 0).lasting(9)).stitch(),
    "table": lambda: P.join(D, on="k").group_by("label").agg(n=tm.count()),
    "table, left": lambda: S.join(D, on="k", how="left"),
    "table, not exists": lambda: S.where_not_exists(D, on="k"),
    "table, exists": lambda: P.where_exists(D, on="k"),
    "tables, exists": lambda: D.where_exists(D.where(col.label == "x"), on="k"),
    "tables, not exists": lambda: D.where_not_exists(D.where(col.label == "x"), on="k"),
    "tables, outer": lambda: D.join(D.where(col.label == "x"), on="k", how="outer"),
    "tables, top": lambda: D.group_by("label").top(1, by="k"),
    "tables, distinct": lambda: D.distinct("label").join(D.agg(n=tm.count())),
    "table alone": lambda: D.group_by("label").agg(n=tm.count(), ks=tm.collect(col.k)),
    "table, right": lambda: S.join(D, on="k", how="right"),
}  # fmt: skip

NEIGHBOURS: dict[str, Callable[[], Stream]] = {
    "lag": lambda: P.lag("k", before="v"),
    "lag of two": lambda: P.lag("k", a="v", b="s", back=2),
    "lag of an expression": lambda: S.lag(before=col.v + col.k),
    "lead": lambda: P.lead("k", after="s"),
    "lead of intervals": lambda: S.lead("x", after="v", ahead=2),
    "lag and lead": lambda: P.lag("k", before="x").lead("k", after="x"),
    "edges": lambda: S.edges(),
    "edges of points": lambda: P.edges(),
    "changes": lambda: S.select("k").changes(),
    "changes of floats": lambda: S.select("x").changes(),
    "there and back": lambda: (
        S.distinct("k").edges().from_edges("k", start=col.edge == "start").select("k")
    ),
    "islands": lambda: P.lasting(4).distinct("k").lead("k", following="valid_from"),
}

CHAINS: dict[str, Callable[[], Stream]] = {
    "apply": lambda: S.group_by("k").apply(lambda g: g.top(1, by="v").join(g.agg(n=tm.count()))),
    "apply, outer": lambda: S.group_by("k").apply(
        lambda g: g.where(col.v > 1).join(g.where(col.v < 3).agg(n=tm.count()), how="outer")
    ),
    "apply, nested": lambda: S.group_by("k").apply(
        lambda g: g.group_by("s").apply(lambda h: h.agg(n=tm.count()).top(1, by="n"))
    ),
    "apply with one from outside": lambda: S.group_by("k").apply(lambda g: g.where_not_exists(Q, on="v")),
    "apply, joined by its key": lambda: S.group_by("k").apply(
        lambda g: g.join(g.where(col.v > 1), on="k", how="outer").select("v", w=col.v_right)),
    "apply, a key on the right": lambda: S.group_by("k").apply(
        lambda g: g.join(g, on={"v": "k"}, how="outer").select(w=col.v_right)),
    "apply lag": lambda: P.group_by("k").apply(lambda g: g.lag(before="v")),
    "apply until_next": lambda: P.group_by("k").apply(lambda g: g.until_next("s").agg(n=tm.count())),
    "apply sessions": lambda: P.group_by("k").apply(
        lambda g: g.until_session_end(3).agg(n=tm.count()).stitch()
    ),
    "apply distinct": lambda: S.group_by("k").apply(lambda g: g.distinct("s").agg(n=tm.count())),
    "apply windows": lambda: P_NEAR.group_by("k").apply(lambda g: g.window(tm.tumbling(5)).agg(n=tm.count())),
    "map and reduce": lambda: S.map(lambda s: s.where(col.v > 0), "k").reduce(lambda g: g.agg(n=tm.count())),
    "windows of snapshots": lambda: S_NEAR.at_most(9).agg(n=tm.count()).at_start().window(
        tm.tumbling(6)).agg(most=tm.max(col.n)),
    "join of windows": lambda: P_NEAR.group_by("k").window(tm.tumbling(5)).agg(n=tm.count()).join(
        S_NEAR.group_by("k").window(tm.tumbling(5)).agg(m=tm.count()), on="k", how="outer"),
    "filter of windows": lambda: P_NEAR.group_by("k").window(tm.hopping(6, every=3)).agg(n=tm.count()).where(
        col.n > 1).group_by("n").agg(ks=tm.count()),
    "share": lambda: S.group_by("k").agg(n=tm.count()).join(S.agg(a=tm.count())).select(
        "k", share=col.n / col.a),
    "A, then no B": lambda: P.where(col.v > 0).lasting(9).where_not_exists(
        P.where(col.v <= 0), on="k").group_by("k").agg(n=tm.count()),
    "cut of a cut": lambda: S.where_exists(Q, on="k").where_not_exists(P, on="s").stitch(),
    "changes of a join": lambda: S.join(Q, on="k").select("k").changes(),
    "top of a join": lambda: S.join(Q, on="k", how="left").top(2, by="v"),
    "session of sessions": lambda: P.until_session_end(2, "k").distinct("k").at_start().until_session_end(9),
}  # fmt: skip

BY_SNAPSHOTS = ("agg that looks at order", "agg, recorded", "agg, compiled")
"""Their values may differ in their last bits, and so may where one row ends and the next starts."""

QUERIES = {**LIFETIMES, **SNAPSHOTS, **TWO, **NEIGHBOURS, **CHAINS}


@pytest.mark.parametrize("name", QUERIES)
@examples(3, of=25)
@given(data=INPUTS, seed=SEEDS)
def test_as_defined(name: str, data: Inputs, seed: int) -> None:
    query, pick = QUERIES[name](), random.Random(seed)
    inputs = inputs_of(query, data)
    same = functools.partial(assert_snapshots, query.plan) if name in BY_SNAPSHOTS else assert_rows
    expected = by_reference(query, inputs)
    same(in_process(query, inputs), expected, f"{name}, run")
    driven = Driven(query, inputs, pick)
    same(driven.run(), expected, f"{name}, driven")
    driven = Driven(query, inputs, pick)
    while pick.random() < 0.8 and len(driven.ended) < len(inputs):
        driven.step()
    same(driven.so_far(), by_reference(query, driven.pushed), f"{name}, so far")


@pytest.mark.parametrize("ways", [("moving", "copies"), ("copies",)], ids=" or ".join)
@pytest.mark.parametrize("name", [n for n in SNAPSHOTS if n.startswith("agg")])
@examples(2, of=25)
@given(data=INPUTS)
def test_each_way_of_snapshots(name: str, ways: tuple[str, ...], data: Inputs) -> None:
    query = SNAPSHOTS[name]()
    inputs = inputs_of(query, data)
    same = functools.partial(assert_snapshots, query.plan) if name in BY_SNAPSHOTS else assert_rows
    same(in_process(query, inputs, replace(EAGER, snapshots=ways)), by_reference(query, inputs), name)


def test_rows_of_one_time_come_by_value() -> None:
    query = P.lasting(4).agg(d=tm.drawdown(col.v))
    rows = [{"t": 10, "k": 1, "v": v, "s": "", "x": 0.0} for v in (0, -4)]
    assert_rows(in_process(query, {"p": rows}), by_reference(query, {"p": rows}), "drawdown")


def test_nan_matches_nan_in_keys() -> None:
    row = {"k": 1, "v": 1, "s": "", "x": math.nan}
    inputs: Inputs = {"s": [{"t": 0, "u": 5, **row}], "p": [{"t": 1, **row}, {"t": 2, **row, "x": -0.0}]}
    for query in (S.join(P, on="x"), S.where_exists(P, on="x")):
        expected = by_reference(query, inputs)
        assert [r[query.plan.time] for r in expected] == [1]
        assert_rows(in_process(query, inputs), expected, "NaN")


def test_null_in_a_key_of_groups_that_is_named_matches_nothing() -> None:
    rows = [{"t": 0, "u": 5, "k": k, "v": 1, "s": "", "x": 0.0} for k in (1, None)]
    joins = [S.group_by("k").apply(lambda g, on=on: g.join(g, on=on).select("v")) for on in ("k", None)]
    found = [[r["k"] for r in query.run(s=rows).to_pylist()] for query in joins]
    assert found[0] == [1] and sorted(found[1], key=str) == [1, None]
