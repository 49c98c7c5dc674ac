"""Aggregates of tables: the plan, and the same answer as from the operator that looks at each instant."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import tidemill as tm
from tidemill import col
from tidemill.local import run as local
from tidemill.optimize.group_tables import group_tables
from tidemill.optimize.optimizer import RULES, optimize
from tidemill.plan.format import format_plan
from tidemill.plan.nodes import Plan, WindowAggregate
from tidemill.plan.temporal import ALWAYS, ALWAYS_END, SnapshotAggregate
from tidemill.reference.run import run as defined

T = tm.table("t", schema={"k": "int64", "name": "string", "x": "int64", "y": "float64"})
ROWS = [
    {
        "k": None if i % 11 == 0 else i % 4, "name": f"n{i % 3}", "x": i * 7 % 13 - 4,
        "y": None if i % 5 == 0 else i / 8,
    }
    for i in range(60)
]  # fmt: skip
WITHOUT = tuple(rule for rule in RULES if rule is not group_tables)

AGGREGATES = {
    "n": tm.count(), "some": tm.count_if(col.x > 0), "total": tm.sum(col.x), "mean": tm.mean(col.y),
    "low": tm.min(col.name), "high": tm.max(col.y), "first": tm.first(col.x), "last": tm.last(col.name),
    "most": tm.arg_max(col.name, col.x), "top": tm.top_k(col.x, 2), "median": tm.median(col.x),
    "all": tm.collect(col.x), "names": tm.distinct_count(col.name), "sd": tm.std(col.y),
    "fall": tm.drawdown(col.y), "two": tm.covariance(col.x, col.y),
}  # fmt: skip


def rows(found: Any) -> list[Any]:
    """Rows without their lifetime, which is no instant of a calendar, and without the last bits of floats."""
    hidden = (ALWAYS, ALWAYS_END)
    shown = lambda v: round(v, 9) if isinstance(v, float) else v
    return sorted((tuple(shown(v) for n, v in r.items() if n not in hidden) for r in found), key=repr)


def here(plan: Plan) -> list[Any]:
    found = pa.Table.from_batches(local.run(plan, {"t": ROWS}), schema=plan.schema.to_arrow())
    return rows(found.drop_columns([n for n in found.column_names if n in (ALWAYS, ALWAYS_END)]).to_pylist())


def test_rows_that_hold_for_ever_are_aggregated_in_one_window() -> None:
    after = group_tables(T.where(col.x > 0).group_by("k").agg(n=tm.count()).plan)
    assert format_plan(after).splitlines()[:3] == [
        "always",
        "  aggregate n=count() by k over tumbling(1, origin=-2305843009213693952)",
        "    where (col.x > 0)",
    ]


@pytest.mark.parametrize("keys", [(), ("k",), ("name", "k")])
def test_the_answer_is_that_of_snapshots(keys: tuple[str, ...]) -> None:
    grouped = T.group_by(*keys) if keys else T
    query = grouped.agg(**AGGREGATES)
    general, grouped_once = (optimize(query.plan, rules) for rules in (WITHOUT, RULES))
    assert any(isinstance(n, SnapshotAggregate) for n in general.walk())
    assert not any(isinstance(n, SnapshotAggregate) for n in grouped_once.walk())
    expected = rows(defined(query.plan, {"t": ROWS}))
    assert here(general) == here(grouped_once) == rows(defined(grouped_once, {"t": ROWS})) == expected


@pytest.mark.parametrize(
    "query",
    [
        T.distinct("k"),
        T.distinct(),
        T.agg(n=tm.count()),
        T.where(col.x > 1000).agg(n=tm.count()),
        T.group_by("k").agg(n=tm.count()).where(col.n > 10).agg(groups=tm.count()),
        T.group_by("k").agg(n=tm.count()).join(T, on="k").select("name", "n"),
        T.group_by("k").apply(lambda g: g.agg(n=tm.count())),
    ],
)
def test_what_is_made_of_aggregates_stays_the_same(query: tm.Stream) -> None:
    general, fast = (optimize(query.plan, rules) for rules in (WITHOUT, RULES))
    assert here(general) == here(fast) == rows(defined(query.plan, {"t": ROWS}))


def test_rows_are_counted_where_no_column_is_read() -> None:
    table = pa.table({n: [r[n] for r in ROWS] for n in ROWS[0]})
    assert T.agg(n=tm.count()).run(t=table).to_pylist() == [{"n": 60}]


def test_a_stream_joined_with_an_aggregate_of_a_table() -> None:
    for time in ("int64", "timestamp"):
        s = tm.stream("s", time="at", schema={"at": time, "k": "int64"})
        query = s.join(T.group_by("k").agg(n=tm.count()), on="k").select("k", "n")
        at = pa.array([5, 9], s.schema.to_arrow()[0].type)
        found = query.run(s=pa.table({"at": at, "k": [1, 2]}), t=ROWS)
        assert sorted(found.select(["k", "n"]).to_pylist(), key=str) == [{"k": 1, "n": 14}, {"k": 2, "n": 14}]


def test_streams_and_columns_named_as_windows_are_left_alone() -> None:
    stream = tm.stream("s", time="t", schema={"t": "int64", "k": "int64"})
    other = tm.table("t", schema={"window_start": "int64"}).group_by("window_start")
    for query in (stream.lasting(5).agg(n=tm.count()), other.agg(n=tm.count())):
        after = group_tables(query.plan)
        assert not any(isinstance(n, WindowAggregate) for n in after.walk())
