"""Rows with a null or a far value in the `on=` of windows are counted; the answer is that of the others.

`run` without a policy refuses such rows (`test_bad_data`); with one, and in live queries, it goes on.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tidemill as tm
from tests.conformance.harness import assert_same, by_reference, split, table_of
from tests.conformance.test_live import rows_of
from tests.examples import later
from tidemill import col
from tidemill.core.batch import to_rows
from tidemill.stream import Stream

Row = dict[str, Any]
SCHEMA = {"t": "int64", "u": "int64", "d": "duration", "k": "int64", "v": "int64", "at": "int64"}
STREAM = tm.stream("s", time="t", schema=SCHEMA)
FAR = 1 << 62
WINDOWS: dict[str, tuple[tm.Window, str]] = {
    "tumbling": (tm.tumbling(10, on="u"), "u"),
    "hopping": (tm.hopping(12, every=4, on="u", fill_empty=True), "u"),
    "landmark": (tm.landmark(10, start=0, on="u"), "u"),
    "session": (tm.session(4, on="u"), "u"),
    "each event": (tm.per_event(9, on="u"), "u"),
    "last rows": (tm.rows(3, every=8, slide_on="u"), "u"),
    "last range": (tm.hopping(6, every=3, on="u", slide_on="t"), "u"),
    "last range, sliding": (tm.hopping(6, every=3, slide_on="u"), "u"),
    "expression": (tm.tumbling(10, on=col.u + 1), "u"),
    "durations": (tm.tumbling("3s", on="d"), "d"),
}


def ask(window: tm.Window) -> Stream:
    return STREAM.group_by("k").window(window).agg(n=tm.count(), v=tm.sum(col.v))


def seeded(size: int, seed: int) -> list[Row]:
    """Rows in order of their time, of which some have no attribute."""
    pick, rows = random.Random(seed), []
    for n in range(size):
        odd = pick.choice([None, FAR, -FAR, *[0] * 9])
        u, d = (odd, odd) if odd != 0 else (pick.randint(0, 60), pick.randint(0, 20) * 500_000)
        rows.append({"t": n, "u": u, "d": d, "k": pick.randint(0, 2), "v": pick.randint(0, 9), "at": n})
    return rows


def usable(rows: list[Row], name: str) -> list[Row]:
    return [row for row in rows if row[name] is not None and abs(row[name]) < FAR]


def counted(rows: list[Row], name: str) -> tuple[int, int]:
    null = sum(row[name] is None for row in rows)
    return null, len(rows) - null - len(usable(rows, name))


@pytest.mark.parametrize("case", WINDOWS)
def test_live_answers_are_those_of_the_other_rows(case: str, tmp_path: Path) -> None:
    window, name = WINDOWS[case]
    query, pick, rows = ask(window), random.Random(case), seeded(80, 3)
    live, found = query.live(tm.Disorder(slack=5)), []
    for some in split(rows, pick):
        found.append(live.push(s=table_of(query, some)))
        if pick.random() < 0.3:
            live.checkpoint(tmp_path / "saved")
            live.close()
            live = tm.restore(query, tmp_path / "saved", tm.Disorder(slack=5))
    found.append(live.flush())
    assert_same(rows_of(query, found), by_reference(query, usable(rows, name)), query.schema)
    one = live.stats().inputs["s"]
    assert (one.null_attribute, one.far_attribute) == counted(rows, name) and one.late == 0
    assert live.late().num_rows == sum(counted(rows, name)) > 5


@pytest.mark.parametrize("case", ["tumbling", "session", "last range"])
def test_a_run_with_a_policy_counts_them(case: str) -> None:
    window, name = WINDOWS[case]
    query, rows = ask(window), seeded(80, 4)
    with pytest.raises(tm.UserError, match=r"no null in|within 2"):
        query.run(s=table_of(query, rows))
    found = query.run(s=table_of(query, rows), disorder=tm.Disorder(slack=0))
    assert_same(rows_of(query, [found]), by_reference(query, usable(rows, name)), query.schema)
    about = found.schema.metadata
    counts = tuple(int(about[f"tidemill.{n}_attribute".encode()]) for n in ("null", "far"))
    assert counts == counted(rows, name)


def test_rows_that_a_filter_drops_are_not_counted() -> None:
    kept = STREAM.where(col.v != 0).where(100 // col.v > 20)  # the second would fail on rows of the first
    query = kept.window(tm.tumbling(10, on="u")).agg(n=tm.count())
    rows = seeded(80, 5)
    live = query.live(tm.Disorder(slack=0))
    found = rows_of(query, [live.push(s=table_of(query, rows)), live.flush()])
    assert_same(found, by_reference(query, usable(rows, "u")), query.schema)
    passed = [row for row in rows if row["v"] and 100 // row["v"] > 20]
    one = live.stats().inputs["s"]
    assert (one.null_attribute, one.far_attribute) == counted(passed, "u")
    assert sum(counted(passed, "u")) < sum(counted(rows, "u"))


def test_other_windows_of_the_query_have_them() -> None:
    by_time, by_u = (STREAM.window(w).agg(n=tm.count()) for w in (tm.tumbling(10), tm.tumbling(10, on="u")))
    query, rows = by_time.union(by_u), seeded(80, 6)
    live = query.live(tm.Disorder(slack=0))
    given = [live.push(s=table_of(query, rows)), live.flush()]
    expected = by_reference(by_time, rows) + by_reference(by_u, usable(rows, "u"))
    assert_same(rows_of(query, given), expected, query.schema)


def test_promises_about_the_attribute_do_not_make_them_late() -> None:
    query = STREAM.window(tm.tumbling(10, on="u")).agg(n=tm.count())
    live = query.live()
    live.punctuate(20, on="u")
    live.push(s=table_of(query, [{**seeded(1, 0)[0], "u": u} for u in (None, -FAR, 5, 25)]))
    assert live.late().column("late_reason").to_pylist() == ["late", "null attribute", "far attribute"]


def test_early_answers_and_corrections_leave_them_out() -> None:
    query, rows = ask(tm.tumbling(10, on="u")), seeded(80, 7)
    live = query.live(tm.Disorder(slack=0), emit=tm.Emit(early=20, correct=100))
    tables = [live.push(s=table_of(query, some)) for some in split(rows[40:] + rows[:40], random.Random(1))]
    given = pa.concat_tables([*tables, live.flush()])
    final = given.filter(pa.compute.and_(given["final"], pa.compute.invert(given["withdrawn"])))
    found = rows_of(query, [final.select(list(query.schema.names))])
    assert_same(found, by_reference(query, usable(rows, "u")), query.schema)


def test_reconcile_takes_late_rows_without_an_attribute() -> None:
    query, rows = ask(tm.tumbling(10, on="u")), seeded(80, 8)
    behind, on_time = rows[:20], rows[20:]
    assert counted(behind, "u") > (0, 0)
    live = query.live(tm.Disorder(slack=0, consistent=True))
    tables = [live.push(s=table_of(query, some)) for some in (on_time, behind)]
    given = pa.concat_tables([*tables, live.flush()])
    found = tm.reconcile(query, given, late=live.late(), s=table_of(query, usable(on_time, "u")))
    everything = {(r["k"], r["window_start"]): r["n"] for r in by_reference(query, usable(rows, "u"))}
    before = {(r["k"], r["window_start"]): r["n"] for r in rows_of(query, [given])}
    changed = {(r["k"], r["window_start"]): r["n"] for r in found.to_pylist()}
    assert {**before, **changed} == everything and changed
    assert tm.reconcile(query, given, s=table_of(query, on_time)).num_rows == 0


@pytest.mark.parametrize("case", ["tumbling", *later("session", "expression", "durations")])
def test_spark_counts_them_and_goes_on(spark: Any, case: str) -> None:
    window, _ = WINDOWS[case]
    query, rows = ask(window), seeded(60, 9)
    for at in (20, 35, 50):
        rows[at]["t"] -= 15
    rows[20]["u"] = rows[20]["d"] = None  # late first
    rows[40]["t"] = None
    table, disorder = table_of(query, rows), tm.Disorder(slack=5, consistent=True)
    expected = query.run(s=table, disorder=disorder)
    live = query.live(disorder)
    live.push(s=table)
    frame, on_spark = spark.createDataFrame(table), query.on_spark(spark)
    found = on_spark.run(s=frame, disorder=disorder, arrival="at").toArrow()
    assert_same(
        to_rows(found.cast(query.schema.to_arrow()).to_batches(), query.schema),
        rows_of(query, [expected]), query.schema,
    )  # fmt: skip
    late = on_spark.late(disorder, arrival="at", s=frame).toArrow()
    reasons = [(r["t"], r["late_reason"]) for r in late.to_pylist()]
    wanted = [(r["t"], r["late_reason"]) for r in live.late().to_pylist()]
    assert sorted(reasons, key=str) == sorted(wanted, key=str)
    assert {reason for _, reason in wanted} == {"late", "null time", "null attribute", "far attribute"}
