"""Random plans on random rows: trees of operators in which streams are used several times.

A plan grows from two streams. Each step takes one or two streams of those there are, and adds one with the
same columns, so that any operator may come after any other.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

import tidemill as tm
from tests.conformance.temporal import (
    EAGER,
    SEEDS,
    Driven,
    Inputs,
    Row,
    assert_rows,
    assert_snapshots,
    by_reference,
    in_process,
    inputs_of,
)
from tests.examples import examples
from tidemill import col
from tidemill.core.time import Domain
from tidemill.optimize.optimizer import RULES
from tidemill.plan.build_temporal import shown
from tidemill.plan.nodes import Plan
from tidemill.reference.run import run as run_reference
from tidemill.stream import Stream

COLUMNS = {"k": "int64", "v": "int64"}


def _streams(time: str) -> tuple[Stream, Stream]:
    """Intervals and points, with times of a type."""
    return (
        tm.stream("s", time="t", end="u", schema={"t": time, "u": time, **COLUMNS}),
        tm.stream("p", time="t", schema={"t": time, **COLUMNS}),
    )


STREAMS = {Domain.LOGICAL: _streams("int64"), Domain.CLOCK: _streams("timestamp")}
"""Ticks are numbers, or microseconds: rows of both are the same."""


D = tm.table("d", schema={"k": "int64", "w": "int64"})


def _long(a: Stream, n: int) -> Any:
    """A duration of so many ticks, in the time of a stream."""
    return n if a.plan.domain is Domain.LOGICAL else timedelta(microseconds=n)


def _value_long(a: Stream) -> Any:
    """The duration of as many ticks as `v` says."""
    return col.v if a.plan.domain is Domain.LOGICAL else col.v.cast("duration")


MOST_ROWS = 400
"""Plans whose results grow larger are left: the definition looks at every pair."""

ONE: dict[str, Callable[[Stream, int], Stream]] = {
    "where": lambda a, n: a.where(col.v > n - 3),
    "where a key": lambda a, n: a.where(col.k == n % 3),
    "where with another's column": lambda a, n: a.with_columns(z=col.v * n).where(col.z > n).select("k", "v"),
    "select": lambda a, n: a.select("k", v=(col.v + n) % 5),
    "other key": lambda a, n: a.select(k=col.v % 3, v="v"),
    "lasting": lambda a, n: a.lasting(_long(a, n)),
    "lasting what it says": lambda a, n: a.lasting(_value_long(a)),
    "extend": lambda a, n: a.extend(_long(a, n)),
    "shift": lambda a, n: a.shift(_long(a, n - 4)),
    "at_most": lambda a, n: a.at_most(_long(a, n)),
    "at_start": lambda a, n: a.at_start(),
    "at_end": lambda a, n: a.at_end(),
    "quantised": lambda a, n: a.quantised(_long(a, 2 * n), every=_long(a, 3)),
    "starting": lambda a, n: a.starting(lambda e: e[a.plan.time] - _long(a, n)),
    "until_session_end": lambda a, n: a.until_session_end(_long(a, n), "k"),
    "until_next": lambda a, n: a.until_next("k"),
    "chop": lambda a, n: a.at_most(_long(a, 9)).chop(_long(a, n)),
    "sample": lambda a, n: a.at_most(_long(a, 9)).sample(_long(a, n)),
    "stitch": lambda a, n: a.stitch(),
    "agg by key": lambda a, n: a.group_by("k").agg(v=tm.count()),
    "agg": lambda a, n: a.agg(k=tm.max(col.k), v=tm.sum(col.v)),
    "agg in order": lambda a, n: a.group_by("k").agg(v=tm.last(col.v)),
    "distinct": lambda a, n: a.distinct("k").with_columns(v=tm.lit(n)),
    "distinct of all": lambda a, n: a.distinct(),
    "top": lambda a, n: a.top(1 + n % 2, by="v"),
    "top by key": lambda a, n: a.group_by("k").top(1, by="v", least=n % 2 == 0),
    "lag": lambda a, n: a.lag("k", w="v", back=1 + n % 2).select("k", v=col.v - col.w),
    "lead": lambda a, n: a.lead(w="v").select("k", v="w"),
    "edges": lambda a, n: a.edges().select("k", "v"),
    "changes": lambda a, n: a.changes().select("k", v="change"),
    "there and back": lambda a, n: a.distinct("k").edges().from_edges("k", start=col.edge == "start").select(
        "k", v=tm.lit(1)),
    "many": lambda a, n: a.group_by("k").agg(vs=tm.collect(col.v)).select_many(v="vs"),
    "apply": lambda a, n: a.group_by("k").apply(lambda g: g.agg(n=tm.count()).select("k", v="n").stitch()),
    "apply a join": lambda a, n: a.group_by("k").apply(
        lambda g: g.join(g.agg(n=tm.count()), how="left").select("k", v=col.v * 2 - col.n)),
    "apply top": lambda a, n: a.group_by("k").apply(lambda g: g.where(col.v > 0).top(1, by="v")),
    "look up": lambda a, n: a.join(D, on="k").select("k", v=col.v + col.w),
    "look up, left": lambda a, n: a.join(D, on={"v": "k"}, how="left", where=lambda l, r: r.w != l.k).select(
        "k", v=tm.coalesce(col.w, col.v)),
    "look up a group": lambda a, n: a.join(D.group_by("k").agg(m=tm.max(col.w)), on="k").select("k", v="m"),
    "in a table": lambda a, n: a.where_exists(D.where(col.w > n - 4), on="k"),
    "not in a table": lambda a, n: a.where_not_exists(D, on={"v": "w"}),
    "table, right": lambda a, n: a.join(D, on="k", how="right").select("k", v=tm.coalesce(col.v, col.w)),
    "table, outer": lambda a, n: a.join(D, on={"v": "w"}, how="outer").where(col.k > 0).select("k", "v"),
    "table, cut and joined": lambda a, n: D.where_not_exists(a, on="k").join(
        a, on={"w": "v"}, how="left").select("k", v="w"),
    "windows": lambda a, n: a.at_start().group_by("k").window(tm.tumbling(_long(a, n))).agg(v=tm.count()),
}  # fmt: skip

TWO: dict[str, Callable[[Stream, Stream, int], Stream]] = {
    "join": lambda a, b, n: a.join(b, on="k").select("k", v=col.v - col.v_right),
    "join, where": lambda a, b, n: a.join(b, on="k", where=lambda l, r: l.v < r.v).select("k", "v"),
    "join, filtered": lambda a, b, n: a.join(b, on="k").where((col.v > 0) & (col.k < 2)).select("k", "v"),
    "left": lambda a, b, n: a.join(b, on="k", how="left").select("k", v="v_right"),
    "left, filtered": lambda a, b, n: a.join(b, on="v", how="left").where(col.k > 0).select("k", "v"),
    "right": lambda a, b, n: a.join(b, on="k", how="right").select("k", v="v_right"),
    "outer": lambda a, b, n: a.join(b, on="k", how="outer", where=lambda l, r: l.v > r.v).select(
        "k", v=tm.coalesce(col.v, col.v_right)),
    "where_exists": lambda a, b, n: a.where_exists(b, on="k"),
    "where_exists, where": lambda a, b, n: a.where_exists(b, where=lambda l, r: l.v == r.v),
    "where_not_exists": lambda a, b, n: a.where_not_exists(b, on="k"),
    "where_not_exists, filtered": lambda a, b, n: a.where_not_exists(b).where(col.v < n),
    "where_not_exists, where": lambda a, b, n: a.where_not_exists(b, on="k", where=lambda l, r: l.v < r.v),
    "clip": lambda a, b, n: a.clip(b, on="k").where(col.k.is_not_null()),
    "clip, where": lambda a, b, n: a.clip(b, where=lambda l, r: l.v < r.v),
    "as of": lambda a, b, n: a.at_start().join(b.until_next("k"), on="k").select("k", v=col.v - col.v_right),
    "as of, soon": lambda a, b, n: a.at_start().join(
        b.until_next("k").at_most(_long(a, n)), on="k", how="left", where=lambda l, r: l.v != r.v,
    ).select("k", v=tm.coalesce(col.v_right, col.v)),
    "as of another key": lambda a, b, n: a.at_end().join(b.until_next("v"), on={"k": "v"}).select(
        "k", v=col.k_right),
    "union": lambda a, b, n: _edges(a).union(_edges(b)),
    "union, filtered": lambda a, b, n: _edges(a).union(_edges(b)).where(col.v > 1).lasting(_long(a, n)),
}  # fmt: skip


def _edges(a: Stream) -> Stream:
    """Points with the time `t`: the edges of lifetimes, or others if lifetimes have another name."""
    return a.edges().select("k", "v") if a.plan.time == "t" else STREAMS[a.plan.domain][1].where(col.v > 2)


@st.composite
def plans(draw: st.DrawFn) -> tuple[str, Stream]:
    """A query, and how it was made."""
    pool, said = [*STREAMS[draw(st.sampled_from(list(STREAMS)))]], []
    for _ in range(draw(st.integers(1, 5))):
        a, n = pool[-draw(st.integers(1, min(3, len(pool))))], draw(st.integers(1, 7))
        if draw(st.integers(0, 2)):
            name = draw(st.sampled_from(sorted(ONE)))
            made = ONE[name](a, n)
        else:
            name = draw(st.sampled_from(sorted(TWO)))
            made = TWO[name](a, pool[-draw(st.integers(1, len(pool)))], n)
        pool.append(made.select("k", "v"))
        said.append(f"{name} {n}")
    return "; ".join(said), pool[-1]


_VALUES = {"k": st.none() | st.integers(0, 2), "v": st.none() | st.integers(-3, 5)}
_POINT = st.fixed_dictionaries({"t": st.integers(0, 20), **_VALUES})
_INTERVAL = st.builds(
    lambda row, length: {**row, "u": None if length is None else row["t"] + length},
    _POINT,
    st.none() | st.integers(1, 9) | st.integers(1, 3),
)
_ENTRY = st.fixed_dictionaries({"k": st.none() | st.integers(0, 2), "w": st.none() | st.integers(-3, 5)})
DATA = st.fixed_dictionaries(
    {
        "s": st.lists(_INTERVAL, max_size=6),
        "p": st.lists(_POINT, max_size=6),
        "d": st.lists(_ENTRY, max_size=4),
    }
)


class _TooLarge(Exception):
    pass


def _bounded(plan: Plan, inputs: Inputs) -> list[Row] | None:
    """The answer by definition; None where some operator has too many rows."""
    from tidemill.reference import run

    def rows(node: Plan, below: list[list[Row]]) -> list[Row]:
        found = []
        for row in run.rows_of_node(node, below, inputs):
            found.append(row)
            if len(found) > MOST_ROWS:
                raise _TooLarge
        return found

    try:
        return plan.fold(rows)
    except _TooLarge:
        return None


@examples(120, of=400, suppress_health_check=list(HealthCheck))
@given(plan=plans(), data=DATA, seed=SEEDS)
def test_random_plans(plan: tuple[str, Stream], data: Inputs, seed: int) -> None:
    said, query = plan
    inputs = inputs_of(query, data)
    expected = _bounded(query.plan, inputs)
    if expected is None:
        return
    assert_rows(in_process(query, inputs), expected, f"{said}\n{query!r}\nrun")
    driven = Driven(query, inputs, random.Random(seed))
    found = driven.run()
    assert_snapshots(query.plan, found, expected, f"{said}\n{query!r}\ndriven, by snapshots")
    assert_rows(found, expected, f"{said}\n{query!r}\ndriven")


@examples(60, of=400, suppress_health_check=list(HealthCheck))
@given(plan=plans(), data=DATA)
def test_each_rule_keeps_the_answer(plan: tuple[str, Stream], data: Inputs) -> None:
    said, query = plan
    inputs = inputs_of(query, data)
    expected = _bounded(query.plan, inputs)
    if expected is None:
        return
    after = shown(query.plan)
    for rule in RULES:
        after = rule(after)
        found = run_reference(after, inputs)
        assert_rows(found, expected, f"{said}\n{query!r}\nafter {rule.__name__}:\n{after!r}")


@pytest.mark.parametrize("domain", STREAMS)
@pytest.mark.parametrize("name", [*ONE, *TWO])
def test_every_step_is_run(name: str, domain: Domain) -> None:
    s, p = STREAMS[domain]
    rows = {
        "s": [{"t": t, "u": t + 1 + t % 4, "k": t % 3, "v": t % 5} for t in range(8)],
        "p": [{"t": t, "k": t % 2, "v": t % 4} for t in range(9)],
        "d": [{"k": k, "w": k + 2} for k in (0, 1, 1)],
    }
    query = ONE[name](s, 3) if name in ONE else TWO[name](s, p, 3)
    inputs = inputs_of(query, rows)
    expected = by_reference(query, inputs)
    assert expected or name == "where_not_exists, filtered"
    assert_rows(in_process(query, inputs, EAGER), expected, name)
