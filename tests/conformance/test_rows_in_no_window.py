"""What is in no window cannot fail a query, and what is too far away is refused before all else."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

import tidemill as tm
from tests.conformance.harness import assert_same, by_reference, in_batches, locally, on_spark
from tidemill import col
from tidemill.core.errors import UserError

MOST = (1 << 63) - 1
S = tm.stream("s", time="t", schema={"t": "int64", "v": "int64", "s": "string"})
SAMPLING = {
    "gaps": tm.hopping(2, every=8),
    "gaps from an origin": tm.hopping(2, every=8, origin=3),
    "rows": tm.rows(2, every=8),
}


@pytest.mark.parametrize("name", SAMPLING)
def test_an_overflow_in_rows_that_are_in_no_window_does_not_fail_the_query(name: str) -> None:
    window = SAMPLING[name]
    counted = S.window(window).agg(n=tm.collect(col.v))
    rows = [{"t": t, "v": t, "s": str(t)} for t in range(40)]
    inside = {v for row in by_reference(counted, rows) for v in row["n"]}
    bad = [row if row["t"] in inside else {**row, "v": MOST, "s": "no number"} for row in rows]
    assert 0 < len(inside) < len(rows)
    query = S.window(window).agg(a=tm.sum(col.v * 4 + col.s.cast("int64")), b=tm.max(col.v + 1))
    want = by_reference(query, bad)
    assert_same(locally(query, bad), want, query.schema)
    if name != "rows":
        assert_same(in_batches(query, [bad[:13], bad[13:]], promises=True), want, query.schema)
    first = next(r for r in rows if r["t"] in inside)
    failing = [{**r, "v": MOST} if r is first else r for r in rows]
    with pytest.raises(UserError, match="overflow"):
        locally(query, failing)


@pytest.mark.parametrize("window", [tm.hopping(2, every=8, origin=3), tm.tumbling(8, start=16)], ids=str)
def test_an_overflow_in_rows_that_are_in_no_window_does_not_fail_the_query_on_spark(
    spark: Any, window: tm.Window
) -> None:
    rows = [{"t": t, "v": t, "s": ""} for t in range(40)]
    inside = {v for r in by_reference(S.window(window).agg(n=tm.collect("v")), rows) for v in r["n"]}
    bad = [row if row["t"] in inside else {**row, "v": MOST} for row in rows]
    assert 0 < len(inside) < len(rows)
    query = S.window(window).agg(a=tm.sum(col.v + 1))
    want = by_reference(query, bad)
    assert_same(locally(query, bad), want, query.schema)
    assert_same(on_spark(spark, query, bad), want, query.schema)


def test_a_far_time_before_the_start_is_refused_on_spark(spark: Any) -> None:
    query = S.window(tm.tumbling(8, start=0)).agg(n=tm.count())
    with pytest.raises(Exception, match=r"2\*\*61"):
        on_spark(spark, query, [{"t": t, "v": 1, "s": ""} for t in (1, -(1 << 62))])


def test_an_overflow_in_rows_that_a_filter_drops_does_not_fail_the_query() -> None:
    few = S.where(col.v < 100).window(tm.tumbling(8))
    query = few.agg(a=tm.sum(col.v * 4), b=tm.sum(col.s.cast("int64")))
    rows = [{"t": t, "v": MOST if t % 3 else t, "s": "x" if t % 3 else "7"} for t in range(20)]
    assert_same(locally(query, rows), by_reference(query, rows), query.schema)


FAR = [MOST, -(1 << 63), 5 - (1 << 63), (1 << 61) + 1, -(1 << 61) - 1, 1 << 62, -(1 << 62)]
WINDOWS = {
    "tumbling": tm.tumbling(10), "before zero": tm.tumbling(10, origin=-100),
    "after zero": tm.tumbling(10, origin=100), "hopping": tm.hopping(4, every=2, origin=-100),
    "sampling": tm.hopping(2, every=8, origin=-100), "ticks": tm.tumbling(1, origin=-3),
    "landmark": tm.landmark(every=1 << 40, start=-100), "session": tm.session(5),
    "per event": tm.per_event(5),
}  # fmt: skip


@pytest.mark.parametrize("name", WINDOWS)
def test_a_time_beyond_2_to_the_61_is_refused_whatever_the_origin(name: str) -> None:
    query = S.window(WINDOWS[name]).agg(n=tm.count())
    for far in FAR:
        rows = [{"t": 0, "v": 1, "s": ""}, {"t": far, "v": 1, "s": ""}]
        grouped = S.group_by("v").window(WINDOWS[name]).agg(n=tm.count())
        for run, given in itertools.product((by_reference, locally), (rows, rows[::-1], rows[1:])):
            for asked in (query, grouped):
                with pytest.raises(UserError, match=r"2\*\*61"):
                    run(asked, given)
    near = [{"t": t, "v": 1, "s": ""} for t in ((1 << 61) - 5, (1 << 61))]
    assert_same(locally(query, near), by_reference(query, near), query.schema)
