"""`explain()` says what was asked, what it became, what runs compiled, and where Spark shuffles."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

import tidemill as tm
from tidemill import col

CLICKS = tm.stream(
    "clicks", time="ts",
    schema={"ts": "timestamp", "user": "int64", "ad": "int64", "name": "string", "price": "float64"},
)  # fmt: skip
slow = tm.udf(lambda n: str(Fraction(n)), returns="string")
fast = tm.udf(lambda x: x * 2 if x > 1 else 0.0, returns="float64")
QUERY = (
    CLICKS.where(lambda e: e.user % 100 < tm.lit(2) + 3)
    .group_by("ad")
    .window(tm.hopping("1h", every="1m"))
    .agg(n=tm.count(), spend=tm.sum(col.price), p95=tm.quantile(col.price, 0.95))
)


def test_the_plans_are_returned_in_sections_and_not_printed(capsys: pytest.CaptureFixture[str]) -> None:
    found = QUERY.explain()
    assert capsys.readouterr().out == ""
    assert list(found.sections) == ["logical", "optimised", "local", "spark"]
    assert "(2 + 3)" in found.sections["logical"] and "< 5)" in found.sections["optimised"]
    assert "read=['ts', 'user', 'ad', 'price']" in found.sections["optimised"]
    assert "panes=60000000 sliding=[subtract, two_stacks, recompute]" in found.sections["optimised"]
    assert repr(found) == str(found)
    for title, text in found.sections.items():
        assert f"== {title} ==\n{text}" in str(found)


def test_a_notebook_shows_it_with_its_signs_escaped() -> None:
    shown = QUERY.explain()._repr_html_()
    assert "<summary>optimised</summary><pre>aggregate" in shown
    assert "&lt; 5)" in shown and "< 5)" not in shown


def test_a_union_is_explained_by_input_and_what_is_shared_once() -> None:
    hourly = CLICKS.group_by("ad").window(tm.tumbling("1h")).agg(n=tm.count())
    found = hourly.where(col.n > 2).union(hourly.where(col.ad == 1)).explain()
    for engine in ("local", "spark"):
        lines = found.sections[engine].splitlines()
        assert [line for line in lines if line.startswith("input")] == ["input 1 of 2:", "input 2 of 2:"]
        assert sum(line.startswith("  windows tumbling(1h)") for line in lines) == 1
        assert sum(line.startswith("  the result, computed once, of aggregate") for line in lines) == 1
        assert lines[-1] == "union: the rows of all inputs"
    assert found.sections["optimised"].count("aggregate") == 1


EVENTS = tm.stream("events", time="t", schema={"t": "int64", "k": "string", "v": "int64", "text": "string"})
NAMES = tm.table("names", schema={"k": "string", "name": "string"})


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (EVENTS.lasting(9).agg(n=tm.count()),
         ["  valid_to = (col.t + 9)   [compiled]", "  edges: in one pass over starts and ends"]),
        (EVENTS.lasting(col.v).group_by("k").agg(m=tm.max("v")),
         ["snapshot m=max(col.v) by k, of lifetimes of any length:",
          "  not exact when rows are taken out: max(col.v)", "  copies: "]),
        (EVENTS.lasting(9).group_by("k").agg(m=tm.max("v")),
         ["snapshot m=max(col.v) by k, of lifetimes of 9 each:", "  moving: rows end in the order"]),
        (EVENTS.join(NAMES, on="k"),
         ["input 2 of 2:", "  its rows hold for ever", "  rows are looked up in the table"]),
        (EVENTS.lasting(9).join(EVENTS, on="k", where=lambda a, b: a.v < b.v, how="left"),
         ["left join on k where (left.v < right.v):", "  keep pairs where (left.v < right.v)   [compiled]"]),
        (EVENTS.until_next("k").sample(5),
         ["clip on k:", "chop every=5:", "at_start: the columns as they are, without the end"]),
        (EVENTS.select_many(word=col.text.split(" ")), ["select_many word=split(col.text, ' '):"]),
    ],
    ids=["edges", "copies", "moving", "table", "pairs", "sample", "lists"],
)  # fmt: skip
def test_operators_on_lifetimes_say_what_they_do_and_what_they_keep(query: Any, expected: list[str]) -> None:
    lines = query.explain().sections["local"].splitlines()
    for part in expected:
        assert any(line.startswith(part) for line in lines), part
    assert not any("\x00" in line or "\\x00" in line for line in lines)


def test_how_each_part_slides_is_said() -> None:
    text = str(QUERY.explain())
    lines = {line.split("[")[0].strip(): line for line in text.splitlines() if "[compiled" in line}
    assert "subtract on evict" in lines["count()"]
    assert "two stacks" in lines["sum(col.price)"]
    assert "all rows of each window" in lines["multiset(col.price)"]


def test_what_runs_row_by_row_is_said_with_the_reason() -> None:
    text = CLICKS.select(a=slow(col.user), b=fast(col.price)).explain().sections["local"]
    (row_by_row,) = (line for line in text.splitlines() if "row by row" in line)
    assert "a = " in row_by_row and "not a machine number" in row_by_row
    (compiled,) = (line for line in text.splitlines() if line.strip().startswith("b = "))
    assert "compiled" in compiled


def test_strings_are_said_to_run_in_arrow() -> None:
    text = CLICKS.where(col.name.contains("x")).explain()
    assert "strings in Arrow" in text


def test_opaque_aggregates_say_how_they_run() -> None:
    opaque = tm.aggregate(
        "opaque", identity=lambda: 0, lift=lambda v: Fraction(v, 3).denominator,
        combine=lambda a, b: a + b, lower=lambda s: s,
    )  # fmt: skip
    text = CLICKS.window(tm.tumbling("1h")).agg(n=opaque(col.user)).explain()
    assert "opaque(col.user)   [row by row:" in text


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (CLICKS.group_by("ad").window(tm.tumbling("1h")).agg(n=tm.count()),
         ["jvm", "shuffle partials by ad, pane"]),
        (QUERY, ["panes", "filter in the JVM", "shuffle partials by ad, pane", "shuffle partials by ad",
                 "compiled kernels"]),
        (CLICKS.group_by("ad").window(tm.session("5m")).agg(n=tm.count()),
         ["colocated", "shuffle rows by ad", "follows the rows"]),
        (CLICKS.window(tm.hopping("1h", every="1m")).agg(e=tm.ewma(col.price, half_life="1h")),
         ["partials", "Spark has no ewma", "to one task"]),
    ],
    ids=["jvm", "panes", "colocated", "partials"],
)  # fmt: skip
def test_spark_says_which_way_and_where_it_shuffles(spark: Any, query: Any, expected: list[str]) -> None:
    text = query.on_spark(spark).explain()
    for part in expected:
        assert part in text


def test_spark_shows_its_own_plan_when_it_has_the_data(spark: Any) -> None:
    df = spark.createDataFrame([], "ts timestamp, user long, ad long, name string, price double")
    text = QUERY.on_spark(spark).explain(clicks=df)
    assert "== Spark's plan ==" in text and "MapInArrow" in text
