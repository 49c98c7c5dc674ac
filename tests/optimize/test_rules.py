"""Each rule: the plan before, the plan after, and the same answer from both."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tidemill as tm
from tidemill import col
from tidemill.core.errors import InternalError
from tidemill.optimize.choices import choices_of
from tidemill.optimize.choose_sliding import choose_sliding
from tidemill.optimize.fold_constants import fold_constants
from tidemill.optimize.merge_filters import merge_filters
from tidemill.optimize.optimizer import RULES, optimize, with_wheels
from tidemill.optimize.prune_columns import prune_columns
from tidemill.optimize.push_filters import push_filters
from tidemill.optimize.share_panes import share_panes
from tidemill.optimize.share_subplans import share_subplans
from tidemill.plan.format import format_plan
from tidemill.plan.nodes import Filter, Plan, Project, Source, Union, WindowAggregate
from tidemill.plan.physical import Panes
from tidemill.plan.temporal import Join
from tidemill.plan.wheel_facts import HeldRing, WheelFacts
from tidemill.reference.run import run

S = tm.stream("s", time="t", schema={"t": "int64", "k": "int64", "x": "int64", "y": "int64"})
ROWS = [{"t": t, "k": t % 3, "x": t * 7 % 11 - 4, "y": None if t % 5 == 0 else t} for t in range(40)]


def answer(plan: Plan) -> list[Any]:
    return sorted((tuple(r.values()) for r in run(plan, {"s": ROWS})), key=repr)


def check(query: tm.Query, rule: Callable[[Plan], Plan], expected: str) -> Plan:
    """The rule gives the expected plan, and the plan gives the same rows."""
    after = rule(query.plan)
    assert format_plan(after) == expected.strip("\n")
    columns = query.schema.names
    assert after.schema.names == columns
    assert answer(after) == answer(query.plan)
    return after


def test_fold_constants() -> None:
    check(
        S.where(col.x > tm.lit(2) * 3 - 5).with_columns(z=tm.when(tm.lit(True)).then(col.y)),
        fold_constants,
        """
select t, k, x, y, z=col.y
  where (col.x > 1)
    source s time=t
""",
    )


def test_fold_constants_drops_a_filter_that_keeps_everything() -> None:
    check(S.where(tm.lit(1) < 2), fold_constants, "source s time=t")


def test_fold_constants_leaves_what_fails_to_the_row_that_meets_it() -> None:
    big = tm.lit((1 << 63) - 1) + 1
    query = S.where((col.x > 100) & (col.x < big))
    assert "9223372036854775807 + 1" in format_plan(fold_constants(query.plan))
    assert answer(fold_constants(query.plan)) == []


def test_merge_filters() -> None:
    check(
        S.where(col.x > 0).where(col.y > 3).where(col.k == 1),
        merge_filters,
        """
where (((col.x > 0) & (col.y > 3)) & (col.k == 1))
  source s time=t
""",
    )


def test_merged_filters_do_not_look_where_the_first_says_no() -> None:
    huge = col.x * (1 << 62)
    query = S.where(col.x.between(0, 1)).where(huge >= 0)
    assert answer(merge_filters(query.plan)) == answer(query.plan)


def test_push_filters_below_a_projection() -> None:
    check(
        S.select(z=col.x + 1, k="k").where(col.z > 2),
        push_filters,
        """
select t, z=(col.x + 1), k
  where ((col.x + 1) > 2)
    source s time=t
""",
    )


def test_push_filters_below_an_aggregate_by_key() -> None:
    query = S.group_by("k").window(tm.tumbling(10)).agg(n=tm.count()).where(col.k > 0)
    after = check(
        query,
        push_filters,
        """
aggregate n=count() by k over tumbling(10)
  where (col.k > 0)
    source s time=t
""",
    )
    assert isinstance(after, WindowAggregate)


@pytest.mark.parametrize(
    "window",
    [tm.landmark(10), tm.tumbling(10, fill_empty=True), tm.rows(4, every=2, partition_by=[])],
    ids=str,
)
def test_push_filters_stays_above_windows_that_other_keys_have_a_say_in(window: tm.Window) -> None:
    query = S.group_by("k").window(window).agg(n=tm.count()).where(col.k > 0)
    assert isinstance(push_filters(query.plan), Filter)


def test_push_filters_stays_above_an_aggregate_asked_about_its_result() -> None:
    query = S.group_by("k").window(tm.tumbling(10)).agg(n=tm.count()).where(col.n > 3)
    assert isinstance(push_filters(query.plan), Filter)


def test_push_filters_does_not_run_an_opaque_function_twice() -> None:
    double = tm.udf(lambda x: x * 2, returns="int64")
    query = S.select(z=double(col.x)).where(col.z > 2)
    assert isinstance(push_filters(query.plan), Filter)


def test_prune_columns() -> None:
    query = S.with_columns(z=col.x + col.y).group_by("k").window(tm.tumbling(10)).agg(n=tm.count(col.x))
    check(
        query,
        prune_columns,
        """
aggregate n=count(col.x) by k over tumbling(10)
  select t, k, x
    source s time=t read=['t', 'k', 'x']
""",
    )


def test_prune_columns_keeps_what_breaks_ties_in_an_order() -> None:
    query = S.window(tm.rows(4, every=2, order_by="x")).agg(n=tm.count())
    assert "read=['t', 'k', 'x', 'y']" in format_plan(prune_columns(query.plan))


def test_push_filters_below_a_union() -> None:
    check(
        S.where(col.x > 0).union(S.select("k", "x", "y")).where(col.k == 1),
        push_filters,
        """
union of 2
  where (col.k == 1)
    where (col.x > 0)
      source s time=t
  select t, k, x, y
    where (col.k == 1)
      source s time=t
""",
    )


def test_push_filters_stays_above_what_is_used_twice() -> None:
    tens = S.group_by("k").window(tm.tumbling(10)).agg(n=tm.count())
    check(
        tens.where(col.k == 1).union(tens.where(col.k == 2)),
        lambda plan: push_filters(share_subplans(plan)),
        """
union of 2
  where (col.k == 1)
    [1] aggregate n=count() by k over tumbling(10)
      source s time=t
  where (col.k == 2)
    [1] as above
""",
    )


def test_share_subplans() -> None:
    def tens() -> tm.Stream:
        return S.group_by("k").window(tm.tumbling(10)).agg(n=tm.count())

    query = tens().where(col.n > 1).union(tens())
    after = share_subplans(query.plan)
    assert isinstance(after, Union) and isinstance(after.inputs[0], Filter)
    assert after.inputs[0].input is after.inputs[1]
    assert format_plan(after) == format_plan(query.plan) and answer(after) == answer(query.plan)


def test_prune_columns_below_a_union() -> None:
    query = S.with_columns(z=col.x + col.y).union(S.with_columns(z=col.k)).window(tm.tumbling(10))
    check(
        query.agg(n=tm.sum(col.z)),
        lambda plan: prune_columns(share_subplans(plan)),
        """
aggregate n=sum(col.z) over tumbling(10)
  union of 2
    select t, z=(col.x + col.y)
      source s time=t read=['t', 'k', 'x', 'y']
    select t, z=col.k
      source s time=t read=['t', 'k', 'x', 'y']
""",
    )


def test_prune_columns_narrows_the_inputs_of_a_union_alike() -> None:
    counts = S.group_by("k").window(tm.tumbling(10)).agg(n=tm.count(), m=tm.max(col.x))
    query = counts.union(counts.where(col.m > 2)).select("n")
    check(
        query,
        lambda plan: prune_columns(share_subplans(plan)),
        """
select window_start, n
  union of 2
    select window_start, n
      [1] aggregate n=count(), m=max(col.x) by k over tumbling(10)
        source s time=t read=['t', 'k', 'x']
    select window_start, n
      where (col.m > 2)
        [1] as above
""",
    )


@pytest.mark.parametrize(
    ("windows", "expected"),
    [
        ([tm.hopping(60, every=10)], Panes(0, 10)),
        ([tm.hopping(60, every=10), tm.tumbling(15)], Panes(0, 5)),
        ([tm.hopping(60, every=10, origin=3), tm.tumbling(15, origin=7)], Panes(3, 1)),
        ([tm.hopping(7, every=20)], Panes(0, 1)),
        ([tm.session(5)], Panes(0, 1)),
    ],
    ids=str,
)
def test_share_panes(windows: list[tm.Window], expected: Panes) -> None:
    node = S.window(*windows).agg(n=tm.count()).plan
    assert isinstance(node, WindowAggregate)
    assert share_panes(node) == choices_of(node).panes == expected


def test_share_panes_keeps_order_where_an_aggregate_needs_it() -> None:
    node = S.window(tm.tumbling(10)).agg(d=tm.drawdown(col.x)).plan
    assert isinstance(node, WindowAggregate)
    assert share_panes(node) == Panes(0, 1)


@pytest.mark.parametrize(
    ("window", "aggregate", "expected"),
    [
        (tm.tumbling(10), tm.sum(col.x), "single"),
        (tm.hopping(60, every=10), tm.sum(col.x), "merge"),
        (tm.hopping(600, every=10), tm.sum(col.x), "subtract"),
        (tm.hopping(600, every=10), tm.sum(col.x.cast("float64")), "two_stacks"),
        (tm.hopping(600, every=10), tm.max(col.x), "two_stacks"),
        (tm.hopping(20, every=10), tm.max(col.x), "merge"),
        (tm.per_event(20), tm.max(col.x), "two_stacks"),
        (tm.session(20), tm.max(col.x), "single"),
        (tm.hopping(60, every=10), tm.median(col.x), "recompute"),
    ],
    ids=str,
)
def test_choose_sliding(window: tm.Window, aggregate: Any, expected: str) -> None:
    node = S.window(window).agg(r=aggregate).plan
    assert isinstance(node, WindowAggregate)
    assert choose_sliding(node, share_panes(node))[0] == choices_of(node).sliding[0] == expected


def test_use_wheel() -> None:
    held = S.group_by("k").window(tm.tumbling(2)).agg(n=tm.count(), total=tm.sum(col.x)).plan
    assert isinstance(held, WindowAggregate)
    wheel = WheelFacts(held, (HeldRing(2, "2", 0),), 40)
    query = (
        S.where((col.k != 2) & (col.t >= 10)).group_by("k").window(tm.hopping(8, every=4))
        .agg(a=tm.sum(col.x)).where(col.a > 3)
    )  # fmt: skip
    plan = with_wheels(query.optimized, {"s": wheel})
    assert format_plan(plan) == """
where (col.a > 3)
  where (col.k != 2)
    wheel s: a=total by k over hopping(8, every=4) since=10
""".strip("\n")
    assert (plan.schema, plan.time) == (query.schema, query.plan.time)
    assert with_wheels(query.optimized, {"other": wheel}) == query.optimized


def test_all_rules_together_keep_the_answer() -> None:
    query = (
        S.where(col.x > -3)
        .with_columns(z=col.x * 2, unused=col.y + 1)
        .where(col.z < 10)
        .group_by("k")
        .window(tm.hopping(12, every=4))
        .agg(n=tm.count(), total=tm.sum(col.z))
        .where((col.k != 2) & (tm.lit(1) == 1))
    )
    assert answer(optimize(query.plan)) == answer(query.plan)
    assert len(RULES) == len(set(RULES))


def test_a_rule_that_changes_the_result_is_caught() -> None:
    def drops_a_column(plan: Plan) -> Plan:
        assert isinstance(plan, Project)
        return Project(plan.input, plan.outputs[:1])

    with pytest.raises(InternalError, match="rule drops_a_column changed the result"):
        optimize(S.select("x", "y").plan, (drops_a_column,))


# --- the temporal algebra ---------------------------------------------------------------------------

J = S.select("k", "x").lasting(9).join(S.select("k", "y"), on="k")
"""Rows of one stream with rows of itself: `x` is of the left side, `y` of the right one."""


def test_push_filters_into_a_side_of_a_join() -> None:
    after = check(
        J.where(col.x > 0).where(col.y > 3),
        push_filters,
        """
join on k
  lasting 9
    select t, k, x
      where (col.x > 0)
        source s time=t
  select t, k, y
    where (col.y > 3)
      source s time=t
""",
    )
    assert isinstance(after, Join)


def test_push_a_filter_on_a_key_into_the_left_side_of_a_join() -> None:
    assert "where (col.k == 1)" in format_plan(push_filters(J.where(col.k == 1).plan))
    check_same(J.where(col.k == 1), push_filters)


def test_push_filters_below_lifetimes_and_cuts() -> None:
    stopped = S.lasting(9).clip(S.where(col.x < 0), on="k")
    check(
        stopped.where(col.y > 3),
        push_filters,
        """
clip on k
  lasting 9
    where (col.y > 3)
      source s time=t
  where (col.x < 0)
    source s time=t
""",
    )


def test_push_filters_below_a_snapshot_aggregate_of_their_keys() -> None:
    counts = S.lasting(5).group_by("k").agg(n=tm.count())
    check(
        counts.where(col.k == 1),
        push_filters,
        """
snapshot n=count() by k
  lasting 5
    where (col.k == 1)
      source s time=t
""",
    )


@pytest.mark.parametrize(
    "query",
    [
        S.lasting(5).group_by("k").agg(n=tm.count()).where(col.n > 1),
        S.lasting(5).where_exists(S.where(col.x > 3), on="k").where(col.valid_to - col.t == 1),
        S.lasting(9).chop(4).where(col.t % 4 == 0),
        S.select("k", "x").lasting(9).join(S.select("k", "y"), on="k", how="left").where(col.y > 3),
        S.select("k", "x").lasting(9).join(S.select("k", "y"), on="k", how="outer").where(col.x > 0),
        J.where(col.x > col.y),
        J.where(col.valid_to > 20),
        S.lasting(5).top(1, by="x").where(col.k == 1),
        S.lag("k", before="x").where(col.x > 0),
    ],
    ids=str,
)
def test_filters_stay_above_what_other_rows_decide(query: tm.Query) -> None:
    after = check_same(query, push_filters)
    assert isinstance(after, Filter)


def check_same(query: tm.Query, rule: Callable[[Plan], Plan]) -> Plan:
    """The rule keeps the answer, which has rows."""
    after = rule(query.plan)
    assert answer(after) == answer(query.plan) != []
    return after


@pytest.mark.parametrize(
    ("query", "read"),
    [
        (S.lasting(5).group_by("k").agg(n=tm.count()), "tk"),
        (S.lasting(5).agg(n=tm.max(col.x)), "tx"),
        (J.select("y"), "tky"),
        (S.lasting(5).where_exists(S.where(col.x > 3), on="k").select("y"), "tkxy"),
        (S.lasting(3).distinct("k").lead("k", following="valid_from"), "tk"),
        (S.until_session_end(2, "k").select("x"), "tkx"),
        (S.lasting(4).select("x").stitch(), "tx"),
        (S.lasting(4).top(1, by="x").select("x"), "tkxy"),
        (S.lasting(4).lag("k", before="x").select("before"), "tkxy"),
        (S.lasting(4).chop(3).select("x"), "tx"),
        (S.lasting(4).edges().select("k"), "tk"),
        (S.lasting(4).changes().select("k"), "tkxy"),
        (S.from_edges("x", start=col.y > 0).select("k"), "tkxy"),
    ],
    ids=str,
)
def test_prune_columns_below_temporal_operators(query: tm.Query, read: str) -> None:
    # Operators that compare whole rows, and order rows by all columns, read all of them.
    after = prune_columns(query.plan)
    found = {n for node in after.walk() if isinstance(node, Source) for n in node.schema.names}
    assert found == set(read)
    if "from_edges" not in str(query):
        assert answer(after) == answer(query.plan) != []
