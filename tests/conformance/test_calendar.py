"""Calendar windows and window ids on every engine, where the clocks of zones are not simple."""

from __future__ import annotations

import functools
import random
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidemill as tm
from tests.conformance.harness import (
    HASTE,
    Row,
    arrivals,
    assert_same,
    by_reference,
    in_batches,
    locally,
    on_spark,
    split,
    table_of,
)  # fmt: skip
from tests.examples import examples, later
from tidemill import col
from tidemill.core.batch import to_rows
from tidemill.core.time import instant, to_datetime
from tidemill.local import calendar_panes
from tidemill.optimize.choices import choices_of
from tidemill.plan.nodes import WindowAggregate
from tidemill.stream import Stream

SCHEMA = {"ts": "timestamp", "seen": "timestamp", "k": "int64", "v": "int64", "x": "float64"}
SALES = tm.stream("s", time="ts", schema=SCHEMA)
QUARTER = 15 * 60_000_000

ZONES = {
    "Europe/Berlin": "2024-03-31T01:00Z",
    "America/Sao_Paulo": "2018-11-04T03:00Z",
    "Pacific/Apia": "2011-12-30T10:00Z",
    "America/St_Johns": "2010-11-07T02:31Z",
    "Asia/Kolkata": "1941-09-30T18:30Z",
    "UTC": "1970-01-01T00:00Z",
}
"""Each with an instant at which its clock, or the unit, changes."""

CUT = {"month": 1, "quarter": 1, "year": 1, "week": 1, "day": 2}


def rows(zone: str, seed: int = 1, size: int = 60, days: int = 5) -> list[Row]:
    pick, around = random.Random(seed), instant(ZONES[zone])
    made = []
    for _ in range(size):
        t = around + pick.randint(-days * 96, days * 96) * QUARTER + pick.choice([0, 0, -1, 1])
        made.append(
            {"ts": t, "seen": t + pick.randint(-9, 9) * QUARTER, "k": pick.randint(0, 2),
             "v": pick.randint(0, 9), "x": pick.choice([None, 0.5, 2.0])}
        )  # fmt: skip
    return made


AGGREGATES: dict[str, Any] = {
    "in panes": {"n": tm.count(), "total": tm.sum(col.v), "low": tm.min(col.x)},
    "in time order": {"ewma": tm.ewma(col.x, half_life="30m"), "n": tm.count()},
    "keeping rows": {"median": tm.median(col.v), "last": tm.last(col.v), "all": tm.collect(col.v)},
    "objects": {"hll": tm.distinct_count(col.v, method="hll"), "n": tm.count()},
}


@functools.cache
def ask(zone: str, unit: str, every: int, how: str, fill: bool) -> Stream:
    window = tm.calendar(unit, every, tz=zone, fill_empty=fill)
    return SALES.group_by("k").window(window, window_id=True).agg(**AGGREGATES[how])


@given(
    zone=st.sampled_from(list(ZONES)), unit=st.sampled_from(list(CUT)), every=st.integers(1, 3),
    how=st.sampled_from(list(AGGREGATES)), fill=st.booleans(), seed=st.integers(0, 99),
    order=st.sampled_from(["sorted", "jittered", "shuffled"]), speed=st.sampled_from(list(HASTE)),
    promises=st.booleans(),
)  # fmt: skip
@examples(25, of=400)
def test_any_calendar_in_any_order_and_split(
    zone: str, unit: str, every: int, how: str, fill: bool, seed: int, order: str, speed: str, promises: bool
) -> None:
    query, given, pick = ask(zone, unit, every, how, fill), rows(zone, seed), random.Random(seed)
    expected = by_reference(query, given)
    assert_same(locally(query, given), expected, query.schema)
    parts = split(arrivals(given, "ts", pick)[order], pick)
    assert_same(in_batches(query, parts, promises=promises, speed=speed), expected, query.schema)


SEVERAL: dict[str, dict[str, tm.Window]] = {
    "days, weeks and months": {
        "d": tm.calendar("day", tz="Europe/Berlin"), "m": tm.calendar("month", tz="Europe/Berlin"),
        "w": tm.calendar("week", tz="Europe/Berlin", fill_empty=True),
    },
    "months and years": {"m": tm.calendar("month", 2), "y": tm.calendar("year")},
    "two zones": {"a": tm.calendar("day", tz="Europe/Berlin"), "b": tm.calendar("day", tz="Asia/Kolkata")},
    "beside a grid": {"d": tm.calendar("day", tz="Europe/Berlin"), "h": tm.hopping("6h", every="90m")},
    "beside a grid of its own": {"d": tm.calendar("day"), "h": tm.tumbling("6h", origin="1970-01-01T00:30Z")},
    "beside sessions": {"d": tm.calendar("day", tz="Europe/Berlin"), "s": tm.session("50m")},
    "beside landmarks": {"d": tm.calendar("day"), "l": tm.landmark("1d", start="2024-03-30")},
}  # fmt: skip
PANES = {
    "days, weeks and months": "calendar('day', tz='Europe/Berlin')", "beside sessions": "1",
    "months and years": "calendar('month', tz='UTC')", "beside a grid of its own": "1800000000",
}  # fmt: skip


@pytest.mark.parametrize("which", SEVERAL)
def test_several_windows_in_one_query(which: str) -> None:
    query = SALES.group_by("k").window(**SEVERAL[which]).agg(n=tm.count(), total=tm.sum(col.v))
    given, pick = rows("Europe/Berlin", seed=5), random.Random(which)
    plan = query.optimized
    assert isinstance(plan, WindowAggregate)
    assert str(choices_of(plan).panes) == PANES.get(which, str(choices_of(plan).panes))
    expected = by_reference(query, given)
    for speed in HASTE:
        parts = split(arrivals(given, "ts", pick)["jittered"], pick)
        assert_same(in_batches(query, parts, promises=True, speed=speed), expected, query.schema, speed)


def test_on_another_column_and_computed() -> None:
    query = SALES.group_by("k").window(tm.calendar("day", tz="Asia/Kolkata", on="seen")).agg(n=tm.count())
    given = rows("Asia/Kolkata")
    assert_same(locally(query, given), by_reference(query, given), query.schema)
    moved = SALES.where(col.v > 2).select("k", at=tm.greatest(col.ts, col.seen))
    query = moved.group_by("k").window(tm.calendar("day", tz="Asia/Kolkata", on="at")).agg(n=tm.count())
    assert_same(locally(query, given), by_reference(query, given), query.schema)


def test_windows_over_windows() -> None:
    daily = SALES.group_by("k").window(tm.calendar("day", tz="Europe/Berlin")).agg(total=tm.sum(col.v))
    months = daily.window(tm.calendar("month", tz="Europe/Berlin"))
    query = months.agg(best=tm.max(col.total), days=tm.count())
    given, pick = rows("Europe/Berlin"), random.Random(2)
    expected = by_reference(query, given)
    assert_same(locally(query, given), expected, query.schema)
    parts = split(arrivals(given, "ts", pick)["sorted"], pick)
    assert_same(in_batches(query, parts, promises=True, speed="eager"), expected, query.schema)


def test_many_years_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows that are too many for a table are computed; so are those of rows at the ends of time."""
    query = SALES.window(tm.calendar("year", 50, tz="Europe/Berlin")).agg(n=tm.count())
    times = ("0001-01-02", "1500-01-01", "1969-12-31T23:00Z", "2024-03-31", "9999-12-30")
    given = [{"ts": instant(t), "seen": 0, "k": 1, "v": 1, "x": None} for t in times]
    batches = [given[2:4], given, given[:2]]
    expected = by_reference(query, [row for batch in batches for row in batch])
    for most in (8, 1 << 20):
        monkeypatch.setattr(calendar_panes, "MOST_STEPS", most)
        assert_same(in_batches(query, batches, promises=False), expected, query.schema)


def test_null_and_far_times() -> None:
    query = SALES.window(tm.calendar("day", on="seen")).agg(n=tm.count())
    with pytest.raises(tm.UserError, match="no null in the windowing column 'seen'"):
        locally(query, [{**rows("UTC")[0], "seen": None}])
    for far in ((1 << 61) + 1, -(1 << 61) - 1, (1 << 63) - 1):
        with pytest.raises(tm.UserError, match="within 2\\*\\*61 ticks"):
            locally(query, [*rows("UTC")[:2], {**rows("UTC")[0], "seen": far}])
    kept = SALES.where(col.v < 5).window(tm.calendar("day", on="seen")).agg(n=tm.count())
    given = [{**rows("UTC")[0], "v": 1}, {**rows("UTC")[0], "v": 7, "seen": (1 << 63) - 1}]
    assert_same(locally(kept, given), by_reference(kept, given[:1]), kept.schema)


def test_calendars_need_clock_time() -> None:
    counted = tm.stream("s", time="t", schema={"t": "int64"})
    with pytest.raises(tm.UserError, match="clock time, which calendars are of"):
        counted.window(tm.calendar("day")).agg(n=tm.count())


def test_a_wheel_has_no_calendar() -> None:
    wheel = tm.Wheel(
        tm.sum(col.v), schema=SCHEMA, time="ts", keys="k", start="2024-01-01", granularities=["1h", "1d"]
    )
    query = SALES.group_by("k").window(tm.calendar("day")).agg(total=tm.sum(col.v))
    with pytest.raises(tm.UserError, match="tumbling, hopping or landmark windows"):
        query.run(s=wheel)


# --- live -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    ("zone", "unit"), [("Europe/Berlin", "day"), ("Pacific/Apia", "week"), ("America/St_Johns", "day")]
)
def test_live(zone: str, unit: str, threads: int, tmp_path: Path) -> None:
    query, pick = ask(zone, unit, 1, "in panes", fill=unit == "week"), random.Random(zone)
    given = rows(zone, size=120)
    for arrived in arrivals(given, "ts", pick).values():
        live, found = query.live(threads=threads), []
        batches = split(arrived, pick)
        for at, some in enumerate(batches):
            found.append(live.push(s=table_of(query, some)))
            rest = [row for later in batches[at + 1 :] for row in later]
            if rest:
                found.append(live.punctuate(min(row["ts"] for row in rest)))
                key = rest[0]["k"]
                left = min(row["ts"] for row in rest if row["k"] == key)
                found.append(live.punctuate(left, key={"k": key}))
            if pick.random() < 0.4:
                live.checkpoint(tmp_path / "saved")
                live.close()
                live = tm.restore(query, tmp_path / "saved", threads=threads)
        found.append(live.flush())
        live.close()
        got = to_rows([b for table in found for b in table.to_batches()], query.schema)
        assert_same(got, by_reference(query, given), query.schema)


def at(when: str) -> dict[str, Any]:
    return {"ts": to_datetime(instant(when))}


def test_a_day_is_complete_at_its_midnight() -> None:
    query = SALES.window(tm.calendar("day", tz="Europe/Berlin")).agg(n=tm.count())
    live = query.live(tm.Disorder(slack=0))
    live.push(s=[at("2024-03-31T10:00Z")])
    assert live.punctuate("2024-03-31T21:59:59Z").num_rows == 0
    [day] = live.punctuate("2024-03-31T22:00Z").to_pylist()
    assert (day["window_end"] - day["window_start"]).total_seconds() == 23 * 3600
    live.push(s=[at("2024-03-31T21:00Z"), at("2024-04-01T10:00Z")])
    assert live.stats().late == 1
    assert live.flush().column("n").to_pylist() == [1]


def test_late_within_an_open_day_still_counts() -> None:
    query = SALES.window(tm.calendar("day", tz="Europe/Berlin")).agg(n=tm.count())
    live = query.live(tm.Disorder(slack=0))
    live.push(s=[at("2024-03-31T10:00Z")])
    live.push(s=[at("2024-03-31T09:00Z")])
    assert live.stats().late == 1, "by time, not by day"
    assert live.flush().column("n").to_pylist() == [2]


def test_revisions_of_open_and_corrected_days() -> None:
    query, given = ask("Europe/Berlin", "day", 1, "in panes", False), rows("Europe/Berlin", size=90)
    pick = random.Random(3)
    live = query.live(tm.Disorder(slack="1h"), emit=tm.Emit(early="6h", correct="40d"))
    found = [live.push(s=table_of(query, some)) for some in split(given, pick)]
    found.append(live.flush())
    revised = [row for table in found for row in table.to_pylist() if row["final"] and not row["withdrawn"]]
    expected = query.run(s=table_of(query, given)).to_pylist()
    assert max(row["revision"] for row in revised) > 0
    names = query.schema.names
    assert_same([{n: row[n] for n in names} for row in revised], expected, query.schema)


@pytest.mark.compiled
@pytest.mark.parametrize("keys", [9_000, 3])
def test_on_several_threads(keys: int) -> None:
    """More rows than one thread takes, with many keys and few; against dates of Polars."""
    pick, size = np.random.default_rng(4), 200_000
    ticks = instant("2024-03-01") + pick.integers(0, 60 * 86_400, size) * 1_000_000
    times = pa.array(ticks).cast(pa.timestamp("us", "UTC"))
    drawn = {"k": pick.integers(0, keys, size), "v": pick.integers(0, 100, size), "x": np.ones(size)}
    table = pa.table({"ts": times, "seen": times, **drawn})
    days = SALES.group_by("k").window(tm.calendar("day", tz="Europe/Berlin"), window_id=True)
    got = pl.DataFrame(days.agg(total=tm.sum(col.v)).run(s=table))
    dates = pl.col("ts").dt.convert_time_zone("Europe/Berlin").dt.date().cast(pl.Int32).cast(pl.Int64)
    theirs = pl.DataFrame(table).group_by("k", dates.alias("window_id")).agg(total=pl.col("v").sum())
    names = ["k", "window_id", "total"]
    assert got.select(names).sort(names).equals(theirs.select(names).sort(names))


# --- Spark --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("zone", "unit", "how", "fill"),
    [
        ("America/St_Johns", "day", "in panes", True),
        *later(("Europe/Berlin", "day", "in panes", False)),
        *later(("Pacific/Apia", "day", "in panes", True)),
        *later(("America/Sao_Paulo", "week", "keeping rows", False)),
        *later(("Asia/Kolkata", "month", "in time order", False)),
        *later(("UTC", "year", "objects", False)),
    ],
)
def test_on_spark(spark: Any, zone: str, unit: str, how: str, fill: bool) -> None:
    query, given = ask(zone, unit, 1, how, fill), rows(zone, size=90)
    assert_same(on_spark(spark, query, given), by_reference(query, given), query.schema)


# --- window ids -------------------------------------------------------------------------------------

CLOCK: dict[str, tm.Window] = {
    "tumbling": tm.tumbling("6h", origin="2024-01-01T01:00"),
    "tumbling, start": tm.tumbling("6h", start="2024-03-31T00:30"),
    "hopping": tm.hopping("6h", every="90m"),
    "landmark": tm.landmark("1d", start="2024-03-28"),
    "calendar": tm.calendar("day", tz="Europe/Berlin"),
    "rows": tm.rows(6, every=4, order_by="ts"),
    "rows, whole stream": tm.rows(6, every=4, order_by="ts", partition_by=[]),
    "per_event": tm.per_event("3h"),
    "per_event, n-th by rank": tm.per_event("3h", every=3, by="rank", partition_by=[]),
    "session": tm.session("90m"),
}


def with_ids(window: str) -> Stream:
    return SALES.group_by("k").window(CLOCK[window], window_id=True).agg(n=tm.count(), total=tm.sum(col.v))


@pytest.mark.parametrize("window", CLOCK)
def test_ids_are_those_of_the_definition(window: str) -> None:
    query, given, pick = with_ids(window), rows("Europe/Berlin"), random.Random(window)
    expected = by_reference(query, given)
    assert_same(locally(query, given), expected, query.schema)
    parts = split(arrivals(given, "ts", pick)["sorted"], pick)
    assert_same(in_batches(query, parts, promises=True, speed="eager"), expected, query.schema)
    kind = "timestamp" if window.startswith(("per_event", "session")) else "int64"
    assert repr(query.schema["window_id"]) == kind


@pytest.mark.parametrize("window", [w for w in CLOCK if not w.startswith("rows")])
def test_ids_are_those_of_wids(window: str) -> None:
    """By `wids` alone: each row counts in the windows with these ids, and in no other."""
    S = CLOCK[window]
    query = SALES.window(S, window_id=True).agg(n=tm.count())
    given = rows("Europe/Berlin")
    _, ids = tm.wids(np.arange(len(given)), [row["ts"] for row in given], S)
    counted = dict(zip(*np.unique(ids, return_counts=True)))
    assert {row["window_id"]: row["n"] for row in locally(query, given)} == counted


@pytest.mark.parametrize("window", ["tumbling, start", *later("session", "calendar", "hopping", "rows")])
def test_ids_on_spark(spark: Any, window: str) -> None:
    query, given = with_ids(window), rows("Europe/Berlin")
    assert_same(on_spark(spark, query, given), by_reference(query, given), query.schema)


def test_ids_live() -> None:
    query, given = with_ids("session"), rows("Europe/Berlin")
    live = query.live()
    found = [live.push(s=table_of(query, given)), live.flush()]
    got = to_rows([b for table in found for b in table.to_batches()], query.schema)
    assert_same(got, by_reference(query, given), query.schema)


def test_ids_from_a_wheel() -> None:
    query = SALES.group_by("k").window(tm.hopping("6h", every="2h"), window_id=True).agg(total=tm.sum(col.v))
    given = rows("Europe/Berlin")
    wheel = tm.Wheel(
        tm.sum(col.v), schema=SCHEMA, time="ts", keys="k", start="2024-03-01", granularities=[("2h", "keep")]
    )
    wheel.insert(table_of(query, given))
    wheel.advance_to("2024-05-01")
    got = query.run(s=wheel)
    assert_same(to_rows(got.to_batches(), query.schema), by_reference(query, given), query.schema)


def test_ids_have_one_type_and_a_name_of_their_own() -> None:
    with pytest.raises(tm.UserError, match="ids are of one type"):
        SALES.window(a=tm.session("1h"), b=tm.tumbling("1h"), window_id=True).agg(n=tm.count())
    with pytest.raises(tm.UserError, match="window_id=True or"):
        SALES.window(tm.tumbling("1h"), window_id=tm.tumbling("2h"))  # type: ignore[arg-type]
    with pytest.raises(tm.UserError, match="a name not taken by"):
        SALES.window(tm.tumbling("1h"), window_id=True).agg(window_id=tm.count())
    assert "window_id" not in SALES.window(tm.tumbling("1h")).agg(n=tm.count()).schema


@pytest.mark.parametrize(
    ("year", "others"),
    [
        (2024, {}),
        (1931, {"month": tm.calendar("month", tz="Europe/Berlin")}),
        (1931, {"h": tm.tumbling("5h")}),
        *later((1931, {}), (2024, {"month": tm.calendar("month", tz="Europe/Berlin")})),
    ],
    ids=str,
)  # fmt: skip
def test_live_days_close_at_midnight_and_checkpoints_have_what_is_open(
    year: int, others: dict[str, Any], tmp_path: Path
) -> None:
    """Also beside other windows, whose panes are not days. A checkpoint of changes follows every push."""
    day = tm.calendar("day", tz="Europe/Berlin", on=lambda e: e.ts)
    if others:  # in one query, all windows are over the same attribute
        day = tm.calendar("day", tz="Europe/Berlin")
    query = SALES.group_by("k").window(day=day, **others).agg(n=tm.count())
    times = [instant(f"{year}-01-30T00:00Z") + 4 * QUARTER * hour for hour in range(24 * 3)]
    rows = [{"ts": t, "seen": t, "k": n % 3, "v": 1, "x": 0.5} for n, t in enumerate(times)]
    live, found = query.live(tm.Disorder(slack="0s")), []
    for number, row in enumerate(rows):
        closed = live.push(s=table_of(query, [row]))
        found.append(closed)
        if others and "day" in closed.to_pydict()["window"]:
            assert max(closed["window_end"].cast(pa.int64()).to_pylist()) <= row["ts"]
            assert row["ts"] == times[number] and (number - 23) % 24 == 0, "not at midnight in Berlin"
        live.checkpoint(tmp_path / "saved", keep=2)
        if number % 7 == 3:
            live.close()
            live = tm.restore(query, tmp_path / "saved", tm.Disorder(slack="0s"))
    found.append(live.flush())
    got = to_rows([b for table in found for b in table.to_batches()], query.schema)
    assert_same(got, by_reference(query, rows), query.schema)
