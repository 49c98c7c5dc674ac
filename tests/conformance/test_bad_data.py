"""What cannot be answered is an error on every engine, never a wrong row or a lost one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tidemill as tm
from tests.conformance.harness import Row, by_reference, in_batches, locally, on_spark
from tests.examples import later
from tidemill import col
from tidemill.aggregates.algebra import Aggregate
from tidemill.stream import Stream

STREAM = tm.stream("s", time="t", schema={"t": "int64", "u": "int64", "k": "int64", "v": "int64"})
LARGE = 1 << 62


def rows(*values: int | None, t: int | None = 1) -> list[Row]:
    return [{"t": t, "u": n, "k": 0, "v": v} for n, v in enumerate(values)]


def ask(window: tm.Window, aggregate: Aggregate) -> Stream:
    return STREAM.group_by("k").window(window).agg(r=aggregate)


TOO_MUCH: dict[str, tuple[Aggregate, list[Row]]] = {
    "sum": (tm.sum(col.v), rows(LARGE, LARGE)),
    "sum, far below": (tm.sum(col.v), rows(-LARGE, -LARGE, -LARGE)),
    "product": (tm.product(col.v), rows(1 << 40, 1 << 40)),
    "sum_by": (tm.sum_by(col.v, col.k), rows(LARGE, LARGE)),
    "argument": (tm.max(col.v * 4), rows(LARGE)),
}


@pytest.mark.parametrize("name", TOO_MUCH)
def test_an_int_that_leaves_int64_is_an_error(name: str) -> None:
    aggregate, given = TOO_MUCH[name]
    for window in (tm.tumbling(10), tm.hopping(10, every=2)):
        query = ask(window, aggregate)
        for run in (by_reference, locally):
            with pytest.raises(tm.UserError, match="overflow"):
                run(query, given)


@pytest.mark.parametrize("name", [*later("sum"), "product", "argument"])
def test_an_int_that_leaves_int64_fails_on_spark(spark: Any, name: str) -> None:
    aggregate, given = TOO_MUCH[name]
    with pytest.raises(Exception, match=r"(?i)overflow"):
        on_spark(spark, ask(tm.tumbling(10), aggregate), given)


def test_sums_that_fit_again_after_sliding_do_not_overflow() -> None:
    query = ask(tm.hopping(4, every=2), tm.sum(col.v))
    given = [{"t": 5 * n, "u": 0, "k": 0, "v": LARGE} for n in range(6)]
    assert {row["r"] for row in locally(query, given)} == {LARGE}


WINDOWS: dict[str, Callable[[], tm.Window]] = {
    "tumbling": lambda: tm.tumbling(4),
    "hopping": lambda: tm.hopping(4, every=2, origin=-10),
    "landmark": lambda: tm.landmark(4),
    "per_event": lambda: tm.per_event(4),
    "session": lambda: tm.session(4),
    "on": lambda: tm.tumbling(4, on="u"),
}


@pytest.mark.parametrize("name", WINDOWS)
def test_null_in_the_windowing_column_is_named(name: str) -> None:
    query = ask(WINDOWS[name](), tm.count())
    column = "u" if name == "on" else "t"
    given = [*rows(1, 2), {**rows(3)[0], column: None}]
    for run in (by_reference, locally):
        with pytest.raises(tm.UserError, match=f"no null in the windowing column '{column}'"):
            run(query, given)


@pytest.mark.parametrize("name", ["tumbling", "per_event"])
def test_null_in_the_windowing_column_is_named_on_spark(spark: Any, name: str) -> None:
    query = ask(WINDOWS[name](), tm.count())
    with pytest.raises(Exception, match="no null in the windowing column 't'"):
        on_spark(spark, query, [*rows(1, 2), *rows(3, t=None)])


def test_a_null_that_is_filtered_out_first_does_not_matter() -> None:
    query = STREAM.where(col.t.is_not_null()).window(tm.tumbling(4)).agg(n=tm.count())
    given = [*rows(1, 2), *rows(3, t=None)]
    assert locally(query, given) == by_reference(query, given) == [
        {"window_start": 0, "window_end": 4, "n": 2}
    ]  # fmt: skip


def test_rows_before_a_start_are_in_no_window() -> None:
    query = ask(tm.tumbling(4, start=0), tm.count())
    given = [row for t in (-9, -1, 0, 5) for row in rows(1, t=t)]
    assert [row["r"] for row in locally(query, given)] == [1, 1]


@pytest.mark.parametrize("window", [tm.tumbling(4), tm.session(4)], ids=str)
def test_an_aggregate_whose_function_gives_null_is_an_error(window: tm.Window) -> None:
    broken = tm.aggregate(
        "broken", identity=lambda: 0.0, lift=lambda v: 1.0 / v, combine=lambda a, b: a + b,
        lower=lambda s: s,
    )  # fmt: skip
    with pytest.raises(tm.UserError, match="null for its partial"):
        locally(ask(window, broken(col.v * 1.0)), rows(1, 0))


def test_a_failing_batch_leaves_no_half_answer() -> None:
    query = ask(tm.tumbling(2), tm.sum(col.v))
    batches = [rows(1, t=0), rows(1, t=3), rows(LARGE, LARGE, t=6)]
    with pytest.raises(tm.UserError, match="overflow"):
        in_batches(query, batches, promises=True, speed="eager")


@pytest.mark.parametrize(
    ("time", "window"),
    [
        (-(1 << 61) - 100, tm.tumbling(10)),
        *later(
            ((1 << 61) + 100, tm.hopping(20, every=10)),
            ((1 << 61) + 100, tm.tumbling(10)), (-(1 << 62) - 100, tm.tumbling(10)),
            (-(1 << 61) - 100, tm.hopping(20, every=10)), (-(1 << 62) - 100, tm.hopping(20, every=10)),
        ),
    ],
    ids=str,
)  # fmt: skip
def test_times_beyond_counting_fail_on_spark(spark: Any, window: tm.Window, time: int) -> None:
    with pytest.raises(Exception, match=r"2\*\*61|overflow"):
        on_spark(spark, ask(window, tm.count()), rows(1, t=time))


@pytest.mark.parametrize("time", [-(1 << 61), *later(-1, 1 << 61)])
def test_the_farthest_times_are_the_same_on_every_engine(spark: Any, time: int) -> None:
    query, given = ask(tm.tumbling(10), tm.count()), rows(1, 2, t=time)
    expected = by_reference(query, given)
    assert len(expected) == 1
    assert locally(query, given) == expected
    assert on_spark(spark, query, given) == expected


@pytest.mark.parametrize("window", [tm.tumbling(1), tm.hopping(20, every=1)], ids=str)
def test_the_lowest_int_is_too_far_away_for_panes_of_one(window: tm.Window) -> None:
    with pytest.raises(tm.UserError, match=r"2\*\*61"):
        locally(ask(window, tm.count()), rows(1, t=-(1 << 63)))


@pytest.mark.parametrize("window", [tm.tumbling(20, on="u"), tm.rows(4, 4)], ids=str)
def test_a_null_time_that_windows_do_not_look_at_is_no_value(spark: Any, window: tm.Window) -> None:
    query = ask(window, tm.max(col.t))
    given = rows(1, t=None)
    expected = by_reference(query, given)
    assert [r["r"] for r in expected] == [None]
    assert locally(query, given) == expected
    if window.counts_arrivals:
        return  # Spark wants an order for them, which has tests of its own
    assert on_spark(spark, query, given) == expected


def test_a_column_called_like_something_inside_is_a_column() -> None:
    stream = tm.stream("s", time="t", schema={"t": "int64", "$time": "bool"})
    query = stream.window(tm.tumbling(2)).agg(r=tm.any(col["$time"]))
    assert [r["r"] for r in locally(query, [{"t": 0, "$time": True}])] == [True]
