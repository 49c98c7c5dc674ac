"""Interval joins as users see them: what is refused, what is counted, when answers come."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tidemill as tm
from tests.conformance.temporal import EAGER
from tidemill import col
from tidemill.core.batch import conform, from_rows
from tidemill.core.errors import UserError
from tidemill.intervals.team import Team
from tidemill.io.chunks import ChunkSizes
from tidemill.local.graph import Graph
from tidemill.local.interval_operator import IntervalOperator
from tidemill.local.run import run
from tidemill.local.temporal import temporal_operator
from tidemill.local.tuning import Tuning

ASK = tm.stream("ask", time="t", schema={"t": "int64", "k": "int64", "far": "int64"})
BUY = tm.stream("buy", time="t", schema={"t": "int64", "k": "int64", "paid": "int64"})
CLOCK = tm.stream("c", time="ts", schema={"ts": "timestamp", "k": "int64"})
TABLE = tm.table("d", schema={"k": "int64"})

WRONG: dict[str, tuple[Callable[[], Any], list[str]]] = {
    "no interval": (
        lambda: ASK.interval_join(BUY, on="k"), ["interval_join:", "preceding= or following=", "tm.FOREVER"],
    ),
    "a negative bound": (
        lambda: ASK.interval_join(BUY, on="k", preceding=-1),
        ["interval_join preceding=:", "at least 0", "-1"],
    ),
    "a bound of another kind of time": (
        lambda: ASK.interval_join(BUY, on="k", following="1h"), ["following=", "logical", "'1h'"],
    ),
    "a bound that is the name of a column": (
        lambda: ASK.interval_join(BUY, on="k", preceding="far"), ["preceding=", "far"],
    ),
    "streams of different times": (
        lambda: ASK.interval_join(CLOCK, on="k", preceding=1), ["interval_join", "logical"],
    ),
    "a table": (lambda: ASK.interval_join(TABLE, on="k", preceding=1), ["a probe stream", "a table"]),
    "an unknown key": (lambda: ASK.interval_join(BUY, on="kk", preceding=1), ["'kk'"]),
    "an unknown end": (
        lambda: ASK.interval_join(BUY, on="k", preceding=1, closed="start"), ["closed= one of", "'start'"],
    ),
    "no rows": (
        lambda: ASK.interval_join(BUY, on="k", preceding=1, max_rows=0), ["max_rows=", "positive", "0"],
    ),
    "no aggregate": (lambda: ASK.interval_join(BUY, on="k", preceding=1).agg(), ["interval_join agg"]),
    "a name that is taken": (
        lambda: ASK.interval_join(BUY, on="k", preceding=1).agg(far=tm.count()), ["not a column", "'far'"],
    ),
    "a column of the base": (
        lambda: ASK.interval_join(BUY, on="k", preceding=1).agg(n=tm.sum(col.far)), ["'far'", "paid"],
    ),
    "an unknown direction": (
        lambda: ASK.last_join(BUY, on="k", direction="before"), ["direction= one of", "'before'"],
    ),
    "a negative tolerance": (
        lambda: ASK.last_join(BUY, on="k", tolerance=-5), ["last_join tolerance=:", "at least 0"],
    ),
    "equal lags": (lambda: ASK.last_join(BUY, on="k", lags=[1, 1]), ["last_join lags=:", "differ"]),
    "nulls that are skipped ahead": (
        lambda: ASK.last_join(BUY, on="k", direction="forward", skip_nulls=True), ["skip_nulls", "filter"],
    ),
    "a text for yes or no": (
        lambda: ASK.interval_join(BUY, on="k", preceding=1, include_base="no"),
        ["interval_join:", "include_base= True or False", "'no'"],
    ),
    "a number for yes or no": (
        lambda: ASK.last_join(BUY, on="k", skip_nulls=1), ["last_join:", "skip_nulls= True or False", "1"],
    ),
    "an int for a duration": (
        lambda: CLOCK.interval_join(CLOCK, on="k", preceding=col.k), ["duration", "col.us.cast('duration')"],
    ),
    "a bound that fails": (
        lambda: ASK.interval_join(BUY, on="k", preceding=col.far * 2).agg(n=tm.count()).run(
            ask=[{"t": 1, "k": 1, "far": 2**62}], buy=[]), ["the bound", "col.far", "overflow", ".where("],
    ),
    "a negative lateness": (
        lambda: ASK.interval_join(BUY, on="k", preceding=1, lateness=-1), ["lateness=", "at least 0"],
    ),
    "an unknown input": (
        lambda: ASK.interval_join(BUY, on="k", preceding=1).agg(n=tm.count()).run(ask=[], buys=[]),
        ["inputs named 'ask', 'buy'", "buys"],
    ),
    "no time": (
        lambda: ASK.last_join(BUY, on="k").run(ask=[], buy=[{"t": None, "k": 1, "paid": 1}]),
        ["stream 'buy'", "a time in 't'", "null"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_what_is_refused(name: str) -> None:
    make, words = WRONG[name]
    with pytest.raises(UserError) as raised:
        make()
    assert [w for w in words if w not in str(raised.value)] == [], str(raised.value)


def test_bounds_that_are_null_or_negative_are_no_interval_and_counted() -> None:
    query = ASK.interval_join(BUY, on="k", preceding=col.far).agg(n=tm.count())
    asked = [{"t": 9, "k": 1, "far": far} for far in (2, -2, None)]
    bought = [{"t": t, "k": 1, "paid": 1} for t in (7, 8, 9)]
    assert query.run(ask=asked, buy=bought)["n"].to_pylist() == [3, 0, 0]
    live = query.live()
    live.push(buy=bought)
    live.push(ask=asked)
    assert live.flush()["n"].to_pylist() == [3, 0, 0]
    [(name, refused)] = live.refused().items()
    assert "interval" in name
    assert refused["far"].to_pylist() == [-2, None]
    assert set(refused.column(refused.num_columns - 1).to_pylist()) == {
        "no interval: a bound is null or negative, or fails"
    }
    assert live.stats().refused == {name: 2}


@pytest.mark.parametrize("answers", ["exact", "on arrival"])
@pytest.mark.parametrize("what", [tm.max("paid"), tm.median("paid")], ids=["indexed", "listed"])
def test_a_bound_that_fails_is_no_interval_and_ends_no_live_query(answers: Any, what: Any) -> None:
    query = ASK.interval_join(BUY, on="k", preceding=col.far * 2).agg(n=what)
    live = query.live(answers=answers)
    live.push(buy=[{"t": t, "k": 1, "paid": t} for t in (7, 8, 9)])
    asked = [{"t": 9, "k": 1, "far": far} for far in (0, 2**62, 1)]
    found = [*live.push(ask=asked).to_pylist()]
    if answers == "on arrival":
        assert [live.lookup(row)["n"] for row in asked] == [row["n"] for row in found]
    found += live.flush().to_pylist()
    assert sorted((row["far"], row["n"]) for row in found) == [
        (0, 9), (1, 9 if what.name == "max" else 8), (2**62, None)
    ]  # fmt: skip
    [(name, refused)] = live.refused().items()
    assert refused["far"].to_pylist() == [2**62]
    assert live.stats().refused == {name: 1}


def test_rows_come_when_no_probe_row_can_change_them() -> None:
    around = ASK.interval_join(BUY, on="k", preceding=5, following=3)
    assert (around.leaks, around.waits) == (True, 3)
    live = around.agg(n=tm.count()).live(tm.Disorder(slack=0))
    live.push(ask=[{"t": 10, "k": 1, "far": 0}])
    live.push(buy=[{"t": t, "k": 1, "paid": 1} for t in (4, 5, 13)])
    assert live.punctuate(13).num_rows == 0  # another row may come at 13
    assert live.punctuate(14)["n"].to_pylist() == [2]
    live.push(ask=[{"t": 9, "k": 1, "far": 0}])
    assert live.late("ask")["t"].to_pylist() == [9]


@pytest.mark.parametrize("answers", ["exact", "on arrival"])
@pytest.mark.parametrize(("preceding", "most"), [(None, 30), (40, 60)])
def test_what_is_kept_of_rows_before_the_previous_base_row_is_bounded(
    answers: Any, preceding: int | None, most: int
) -> None:
    """Without a length, the last base row of each of three keys stays; with one, no key for longer."""
    query = ASK.interval_join(BUY, on="k", preceding=preceding, since_previous=True).agg(n=tm.count())
    eager = replace(EAGER, few_arrived=1)
    graph = Graph(query.optimized, 1, eager, on_arrival=None if answers == "exact" else 0)
    found: list[Any] = []
    for part in range(100):
        t, k = 10 * part, part if preceding else part % 3
        buy = [{"t": t + i, "k": k, "paid": 1} for i in range(4)]
        ask = [{"t": t + i, "k": k, "far": 0} for i in (1, 3)]
        for name, rows in (("buy", buy), ("ask", ask)):
            source = graph.sources[name]
            [batch] = from_rows(rows, source.declared).to_batches()
            found += graph.push(name, conform(batch, source.schema, step="test"))
            found += graph.advance(name, t + 4, prompt=True)
    assert pa.Table.from_batches(found)["n"].to_pylist()[2:4] == [2, 2]
    assert sum(step.operator.size()[0] for step in graph.steps) < most


def test_leaks_and_waits() -> None:
    found = {
        name: (joined.leaks, joined.waits)
        for name, joined in {
            "before": ASK.interval_join(BUY, preceding=5),
            "ahead": ASK.interval_join(BUY, preceding=5, following=7),
            "all ahead": ASK.interval_join(BUY, following=tm.FOREVER),
            "of the row": ASK.interval_join(BUY, following=col.far),
            "of the clock": CLOCK.interval_join(CLOCK, on="k", following="90s"),
        }.items()
    }
    assert found == {
        "before": (False, 0), "ahead": (True, 7), "all ahead": (True, tm.FOREVER), "of the row": (True, None),
        "of the clock": (True, timedelta(seconds=90)),
    }  # fmt: skip


def test_what_is_made_of_a_join_leaks_if_it_does_on_any_clock() -> None:
    before, after = (
        CLOCK.interval_join(CLOCK, on="k", **asked).agg(n=tm.count())
        for asked in ({"preceding": "1h"}, {"following": "1h"})
    )
    assert (before.leaks, before.waits) == (False, timedelta(0))
    assert (after.leaks, after.waits) == (True, timedelta(hours=1))
    assert (CLOCK.leaks, CLOCK.last_join(CLOCK, on="k").leaks) == (False, False)
    assert ASK.interval_join(BUY, on="k", following=col.far).agg(n=tm.count()).leaks


def test_explain_says_where_joiners_share_hot_keys() -> None:
    shared = "live, on several threads: joiners share the intervals of hot keys"
    assert shared in str(ASK.interval_join(BUY, on="k", preceding=9).agg(n=tm.count()).explain())
    assert shared in str(ASK.last_join(BUY, on="k").explain())
    assert shared not in str(ASK.interval_join(BUY, on="k", preceding=9).agg(m=tm.median("paid")).explain())


def test_a_live_join_goes_on_with_another_number_of_threads(tmp_path: Path) -> None:
    a, b = (tm.stream(n, time="t", schema={"t": "int64", "s": "string", "v": "int64"}) for n in "ab")
    joined = a.interval_join(b, on="s", preceding=9, following=2).agg(most=tm.max("v"), n=tm.count())
    query = joined.last_join(b.select("s", "v"), on="s", suffix="_last")
    pick = random.Random(3)
    texts = ["a", "b", "", "c", None, "a text that is longer than others"]
    rows = {
        name: [{"t": i // 4, "s": pick.choice(texts), "v": pick.randrange(9)} for i in range(120)]
        for name in ("a", "b")
    }
    live, found = query.live(tm.Disorder(slack=0)), []
    for part in range(6):
        some = {name: of[20 * part : 20 * part + 20] for name, of in rows.items()}
        found += live.push(**some).to_pylist()
        live.checkpoint(tmp_path / "saved")
        live.close()
        live = tm.restore(query, tmp_path / "saved", tm.Disorder(slack=0), threads=[4, 1, 2][part % 3])
    found += live.flush().to_pylist()
    assert sorted(map(repr, found)) == sorted(map(repr, query.run(**rows).to_pylist()))


@pytest.mark.compiled
@pytest.mark.parametrize(("answers", "slack"), [("exact", 60), ("on arrival", 30)])
def test_joiners_that_share_a_hot_key_answer_as_one(
    answers: str, slack: int, tmp_path: Path, monkeypatch: Any
) -> None:
    """Most rows have one key, some are late; queries restart, and rows are looked up meanwhile."""
    rng, n = np.random.default_rng(7), 12_000
    k = np.where(rng.random(n) < 0.8, 3, rng.integers(0, 9, n))
    t = np.maximum(np.arange(n) // 4 - rng.integers(0, 60, n), 0)
    ask = pa.table({"t": t, "k": k, "far": rng.integers(-1, 200, n)})
    buy = pa.table({"t": t, "k": k, "paid": rng.integers(0, 100, n)})
    query = ASK.interval_join(BUY, on="k", preceding=col.far, following=4, lateness=20).agg(
        n=tm.count(), most=tm.max("paid"), all=tm.sum("paid")
    )
    parts: list[int] = []
    work = Team.work

    def counted(self: Team, order: Any, keys: Any, fold: Callable[[Any], None]) -> None:
        work(self, order, keys, lambda own: (parts.append(len(own)), fold(own))[1])

    monkeypatch.setattr(Team, "work", counted)
    found: dict[int, list[Any]] = {}
    for threads in (1, 2, 3):
        own = found[threads] = []
        live = query.live(tm.Disorder(slack=slack), answers=answers, threads=threads)
        for part in range(3):
            rows = [of.slice(4000 * part, 4000) for of in (buy, ask)]
            own.append(live.push(buy=rows[0], ask=rows[1]))
            live.checkpoint(tmp_path / f"{threads}")
            if answers == "on arrival":
                own.append(live.lookup({"t": 1000 * (part + 1), "k": 3, "far": 50}))
            live.close()
            live = tm.restore(
                query, tmp_path / f"{threads}", tm.Disorder(slack=slack), answers=answers,
                threads=[threads, 1, 2][part],
            )  # fmt: skip
        own += [live.flush(), live.late("ask"), live.late("buy")]
        live.close()
    assert len(found[1][0]) > 1000
    assert found[2] == found[3] == found[1]
    assert sum(n > 100 for n in parts) > 6, "parts of joiners"


def test_rows_in_any_order_wait_until_many_are_due_and_are_then_answered(monkeypatch: Any) -> None:
    """Each chunk raises the watermark by little: to take a few rows away from all that wait does not pay."""
    rng = np.random.default_rng(5)
    ask = pa.table({"t": rng.permutation(400), "k": rng.integers(0, 3, 400), "far": np.zeros(400, np.int64)})
    buy = pa.table({"t": rng.permutation(400), "k": rng.integers(0, 3, 400), "paid": rng.permutation(400)})
    worked = []
    work = IntervalOperator._work

    def counted(self: IntervalOperator, sides: Any, below: int) -> Any:
        worked.append(below)
        return work(self, sides, below)

    monkeypatch.setattr(IntervalOperator, "_work", counted)
    query = ASK.last_join(BUY, on="k")
    sizes, tuning = ChunkSizes(most=20, held=20, most_held=20, small=1), Tuning(few_waiting=10)
    found = pa.Table.from_batches(run(query.plan, {"ask": ask, "buy": buy}, sizes=sizes, tuning=tuning))
    assert 1 <= len(worked) <= 20, "of 40 chunks"
    assert found.sort_by("t").equals(query.run(ask=ask, buy=buy).sort_by("t"))


@pytest.mark.parametrize("options", [{"on_arrival": 0}, {"few": True}])
@pytest.mark.parametrize("last", [False, True])
def test_texts_of_rows_that_are_gone_take_no_room(options: dict[str, Any], last: bool) -> None:
    asked = tm.stream("asked", time="t", schema={"t": "int64"})
    named = tm.stream("named", time="t", schema={"t": "int64", "name": "string"})
    query = asked.last_join(named) if last else asked.interval_join(named, preceding=5).agg(n=tm.max("name"))
    operator: Any = temporal_operator(query.optimized, Tuning(few_strings=16, few_arrived=4), **options)
    for t in range(300):
        operator.push(1, pa.record_batch({"t": [t], "name": [f"name {t}"]}))
        found = [*operator.push(0, pa.record_batch({"t": [t]}))]
        for port in (0, 1):
            found += operator.advance(port, t + 1)
        held = range(t if last else max(0, t - 5), t + 1)
        assert [row["name" if last else "n"] for b in found for row in b.to_pylist()] == [
            max(f"name {i}" for i in held)
        ]
        assert operator.index.texts <= 100  # rows go a leaf at a time


@pytest.mark.parametrize("following", [0, 7, col.far])
def test_base_rows_that_come_one_by_one_wait_in_few_pieces(following: Any) -> None:
    pick = random.Random(3)
    query = ASK.interval_join(BUY, on="k", preceding=20, following=following).agg(n=tm.count())
    operator: Any = temporal_operator(query.optimized, few=True)
    asked = [{"t": t + pick.randrange(9), "k": pick.randrange(3), "far": pick.randrange(-1, 30)}
             for t in range(600)]  # fmt: skip
    bought = [{"t": row["t"], "k": row["k"], "paid": 1} for row in asked]
    found, most = list[dict[str, int]](), 0
    for number, rows in enumerate(zip(asked, bought)):
        for port, row in enumerate(rows):
            operator.push(port, pa.RecordBatch.from_pylist([row], (ASK, BUY)[port].schema.to_arrow()))
        if number % 5 == 0:
            for port in (0, 1):
                found += [r for b in operator.advance(port, number - 400) for r in b.to_pylist()]
        most = max(most, len(operator._asking))
    assert 250 < sum(len(one.sure) for one in operator._asking) < 600 and most < 64
    again: Any = temporal_operator(query.optimized, few=True)
    again.restore(operator.snapshot())
    for one in (operator, again):
        rest = [r for port in (0, 1) for b in one.advance(port, tm.FOREVER) for r in b.to_pylist()]
        whole = query.run(ask=asked, buy=bought).to_pylist()
        assert sorted(map(str, [*found, *rest])) == sorted(map(str, whole))
