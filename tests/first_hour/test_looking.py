"""What hands see when they look at a specification or a query, and that all of them can be pickled."""

from __future__ import annotations

import copy
import pickle
from datetime import datetime
from typing import Any

import pytest

import tidemill as tm
from tests.aggregates.test_registry import EXAMPLES
from tidemill import col

STREAM = tm.stream("s", time="t", schema={"t": "timestamp", "k": "int64", "v": "int64"})
OTHER = tm.stream("o", time="t", schema={"t": "timestamp", "k": "int64", "w": "float64"})
ROWS = [{"t": datetime(2026, 1, day), "k": day % 2, "v": day} for day in range(1, 15)]
NEAR = STREAM.interval_join(OTHER, on="k", preceding="1h").agg(tm.count())


def added(state: int, x: int) -> int:
    return state + x


def itself(x: Any) -> Any:
    return x


OWN = tm.aggregate("own", identity=int, accumulate=added, combine=added, lower=itself)
SPECS: dict[str, tuple[Any, str]] = {
    "a window": (tm.hopping("1h", every="10m"), "hopping(1h, every=10m)"),
    "a window of options": (
        tm.tumbling("1d", origin="2026-01-05", on=col.t + col.d, fill_empty=True),
        "tumbling(1d, origin=2026-01-05T00:00:00+00:00, on=(col.t + col.d), fill_empty=True)",
    ),
    "rows": (tm.rows(10, every=5, order_by="v"), "rows(10, every=5, order_by='v')"),
    "weeks": (tm.calendar("week", tz="Europe/Berlin"), "calendar('week', tz='Europe/Berlin')"),
    "an aggregate": (tm.quantile(col.v, 0.9), "quantile(col.v, q=0.9)"),
    "one of my own": (OWN(col.v), "own(col.v)"),
    "how to make it": (OWN, "the aggregate own"),
    "an expression": (tm.sum(col.v) / tm.count(), "(sum(col.v) / count())"),
    "policies": (tm.Disorder(slack="10s"), "Disorder(slack='10s', late='drop', consistent=False, idle=None)"),
}  # fmt: skip
QUERIES: dict[str, Any] = {
    "a stream": STREAM,
    "windows": STREAM.group_by("k").window(tm.tumbling("1d")).agg(tm.count(), mean=tm.sum("v") / tm.count()),
    "my own aggregate": STREAM.window(tm.tumbling("1d")).agg(x=OWN("v"), y=OWN(col.v * 2)),
    "instants": STREAM.lasting("1h").agg(tm.count(), mean=tm.sum("v") / tm.count()),
    "intervals": NEAR,
    "an order": STREAM.sort("v").limit(3),
    "features": tm.features("near", entity=STREAM, features=[NEAR]),
    "rows with it": tm.read(ROWS, time="t"),
}  # fmt: skip


@pytest.mark.parametrize("name", SPECS)
def test_looked_at_a_specification(name: str) -> None:
    given, shown = SPECS[name]
    assert repr(given) == shown
    assert repr(pickle.loads(pickle.dumps(given))) == shown


@pytest.mark.parametrize("aggregate", [a for each in EXAMPLES.values() for a in each], ids=str)
def test_pickled_an_aggregate(aggregate: Any) -> None:
    assert pickle.loads(pickle.dumps(aggregate)) == copy.deepcopy(aggregate) == aggregate


@pytest.mark.parametrize("name", QUERIES)
def test_pickled_a_query(name: str) -> None:
    query = QUERIES[name]
    query.explain()  # nothing of what was derived is pickled
    again = pickle.loads(pickle.dumps(query))
    assert repr(again) == repr(query)
    assert again.schema == query.schema
    assert "\0" not in repr(query)
    if name not in ("intervals", "features"):
        inputs = {} if name == "rows with it" else {"s": ROWS}
        assert again.run(**inputs) == query.run(**inputs)


@pytest.mark.parametrize("name", QUERIES)
def test_looked_at_a_query_in_a_notebook(name: str) -> None:
    shown = QUERIES[name]._repr_html_()
    assert shown.startswith("<table>")
    assert "<td>" in shown
    assert "<script" not in tm.stream("s", time="t", schema={"t": "int64", "<script>": "int64"})._repr_html_()


def test_looked_at_col_in_a_notebook() -> None:
    assert not hasattr(col, "_repr_html_")
    assert not hasattr(col, "_ipython_display_")
    assert repr(col._id) == "col._id"


def test_asked_for_weeks_and_got_those_from_thursday() -> None:
    weeks = tm.tumbling("1w")
    assert repr(weeks).startswith("tumbling(7d): weeks from Thursday")
    assert "tm.calendar('week')" in repr(weeks)
    assert "origin='1970-01-05'" in repr(tm.hopping("4w", every="1w"))
    for clear in (
        tm.tumbling("1w", origin="1970-01-05"), tm.tumbling("1w", origin="1970-01-01"), tm.tumbling("1d"),
        tm.calendar("week"), tm.tumbling(7), tm.hopping("1w", every="1d"), tm.landmark("1w"),
    ):  # fmt: skip
        assert "Thursday" not in repr(clear)


def test_asked_how_a_query_of_weeks_runs() -> None:
    query = STREAM.window(tm.tumbling("1w")).agg(tm.count())
    for engine in ("local", "spark"):
        assert "note: tumbling(7d): weeks from Thursday" in query.explain().sections[engine]
    waits = tm.stream("s", time="t", schema={"t": "timestamp", "d": "duration"})
    assert "Thursday" not in waits.window(tm.tumbling("1w", on="d")).agg(tm.count()).explain()
    found = query.run(ROWS)["window_start"].to_pylist()
    assert {start.isoweekday() for start in found} == {4}
    from_monday = STREAM.window(tm.tumbling("1w", origin="1970-01-05")).agg(tm.count()).run(ROWS)
    by_calendar = STREAM.window(tm.calendar("week")).agg(tm.count()).run(ROWS)
    assert from_monday == by_calendar
