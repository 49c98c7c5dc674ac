"""Verification: what servers give for random replays is what history gives, and what differs is found."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import given
from hypothesis import strategies as st

import tidemill as tm
from tests.conformance.temporal import COLUMNS, POINTS, SEEDS
from tests.examples import examples
from tidemill import col
from tidemill.core.types import FLOAT64, list_of
from tidemill.features.definition import Definition
from tidemill.features.same_values import same_values
from tidemill.features.verify import Verification, verify

A, B, C = (tm.stream(n, time="t", schema={"t": "int64", **COLUMNS}) for n in "abc")

def _joined(probe: tm.Stream, on: str = "k", **options: Any) -> Any:
    return A.interval_join(probe, on=on, **options)


WINDOWS = B.where(col.t.abs() < 100).group_by("k").window(tm.tumbling(5)).agg(wn=tm.count())

MEMBERS: dict[str, Callable[[], tm.Stream]] = {
    "several": lambda: _joined(B, preceding=5).agg(n=tm.count(), sm=tm.sum("x"), e=tm.mean("v")),
    "longer": lambda: _joined(B, preceding=tm.FOREVER).agg(all=tm.count(), top=tm.top_k("v", 2)),
    "categories": lambda: _joined(C, preceding=9).agg(by=tm.mean_by(col.x, col.s)),
    "ahead": lambda: _joined(C, on="s", following=3).agg(later=tm.max("v")),
    "computed": lambda: _joined(B, preceding=col.v, following=1).agg(c=tm.collect("v")),
    "nearest": lambda: _joined(B, preceding=9, following=9, max_rows=2).agg(near=tm.last("v")),
    "prevailing": lambda: _joined(C, preceding=2, prevailing=True).agg(pr=tm.first("s")),
    "own rows": lambda: _joined(A, preceding=6, exclude_current_time=True).agg(own=tm.count()),
    "window union": lambda: _joined(B, preceding=4, include_base=True).agg(both=tm.count()),
    "since previous": lambda: _joined(B, since_previous=True).agg(new=tm.count()),
    "condition": lambda: _joined(B, preceding=9, where=lambda a, b: a.v < b.v).agg(w=tm.count()),
    "last": lambda: A.last_join(C, on="k").select("s_right", "x_right"),
    "lags": lambda: A.last_join(B.select("k", "v"), on="k", lags=[0, 4]).with_columns(d=col.v_0 - col.v_4),
    "last values": lambda: A.last_join(C.select("k", lv="v"), on="k", skip_nulls=True),
    "lifetimes": lambda: _joined(B.until_next("k").at_start(), preceding=8).agg(lt=tm.count()),
    "windows": lambda: _joined(WINDOWS.shift(5), preceding=12).agg(ws=tm.sum("wn")),
    "in Python": lambda: _joined(B, preceding=7).agg(
        py=tm.count(tm.udf(lambda v: v * 2, returns="int64")(col.v))),
}  # fmt: skip


@examples(8, of=60)
@given(data=st.fixed_dictionaries({"a": POINTS, "b": POINTS, "c": POINTS}), seed=SEEDS)
def test_servers_of_random_sets_give_what_history_gives(data: dict[str, Any], seed: int) -> None:
    chosen = random.Random(seed).sample(list(MEMBERS), 3)
    features = tm.features("f", entity=A, features=[MEMBERS[name]() for name in chosen])
    needed = {name: rows for name, rows in data.items() if name in _read(features)}
    assert (found := features.verify(needed, runs=2, seed=seed)), f"{chosen}: {found}\n{found.differing}"
    assert found.rows == 2 * len(data["a"])


def _read(features: tm.FeatureSet) -> set[str]:
    from tidemill.plan.nodes import sources

    return {one.name for one in sources(features.plan)}


# --- differences are found --------------------------------------------------------------------------

ROWS = [{"t": t, "k": t % 3, "v": t, "s": "x", "x": t / 7} for t in range(12)]


def _changed(
    change: Callable[[pa.Table], pa.Table], server: Callable[[Any], Any] = lambda live: live
) -> Verification:
    """Verify a set against an answer of history, or with a server, in which something is wrong."""
    features = tm.features("f", entity=A, features=[MEMBERS["several"](), MEMBERS["last"]()])

    def offline(definition: Definition, tables: dict[str, pa.Table]) -> pa.Table:
        return change(tm.FeatureSet(definition).run(**tables).sort_by("t"))

    def online(definition: Definition, disorder: tm.Disorder) -> Any:
        return server(tm.FeatureSet(definition).online(disorder))

    inputs = {"a": ROWS, "b": ROWS, "c": ROWS}
    return verify(features.definition, inputs, runs=2, seed=7, offline=offline, online=online)


def _with(table: pa.Table, name: str, change: Callable[[pa.ChunkedArray], Any]) -> pa.Table:
    return table.set_column(table.column_names.index(name), name, change(table[name]))


def test_values_that_differ_are_shown_beside_each_other() -> None:
    found = _changed(lambda rows: _with(rows, "n", lambda n: pc.if_else(pc.equal(rows["t"], 10), 9, n)))
    assert not found and found.by_feature == {"n": 2} and found.rows == 24
    assert found.differing.to_pylist() == [
        {"why": "differs", "seed": seed, **ROWS[10], "n": 9, "online_n": 2} for seed in (7, 8)
    ]
    assert repr(found).splitlines() == [
        "f version 1: 24 rows compared in 2 replays (seeds 7, 8), 2 differ", "  n: 2 rows",
    ]  # fmt: skip


def test_nulls_and_text_that_differ_are_found() -> None:
    found = _changed(lambda rows: _with(
        _with(rows, "s_right", lambda s: pa.array([None, "y", *s.to_pylist()[2:]])),
        "e", lambda e: pa.array([*e.to_pylist()[:11], None], pa.float64()),
    ))  # fmt: skip
    assert found.by_feature == {"e": 2, "s_right": 4}
    assert found.differing["t"].to_pylist() == [0, 1, 11] * 2


def test_rows_that_are_missing_or_come_twice_are_found() -> None:
    more = _changed(lambda rows: pa.concat_tables([rows, _with(
        rows.slice(0, 1), "__row_number", lambda n: pa.array([99]))]))  # fmt: skip
    assert more.differing["why"].to_pylist() == ["missing"] * 2 and "missing: 2 rows" in repr(more)
    fewer = _changed(lambda rows: rows.slice(1))
    assert fewer.differing["why"].to_pylist() == ["not in history"] * 2
    assert "not in history: 2 rows" in repr(fewer)

    class Twice:
        def __init__(self, live: Any) -> None:
            self.live = live

        def __getattr__(self, name: str) -> Any:
            return getattr(self.live, name)

        def flush(self) -> pa.Table:
            found = self.live.flush()
            return pa.concat_tables([found, found])

    twice = _changed(lambda rows: rows, Twice)
    assert {*twice.differing["why"].to_pylist()} == {"came twice"} and not twice.by_feature


def test_the_last_bits_of_floats_do_not_matter() -> None:
    assert _changed(lambda rows: _with(rows, "sm", lambda x: pc.multiply(x, 1 + 1e-12)))
    assert not _changed(lambda rows: _with(rows, "sm", lambda x: pc.multiply(x, 1 + 1e-6)))
    nan, inf = float("nan"), float("inf")
    one, other = ([nan, inf, -0.0, 1e20, 1e-5, nan, inf], [nan, inf, 0.0, 1e20 + 1e9, 2e-5, 1.0, -inf])
    tables = [pa.table({"x": x, "l": [[v] for v in x]}) for x in (one, other)]
    assert same_values(*tables, "x", FLOAT64).tolist() == [True] * 5 + [False] * 2
    assert same_values(*tables, "l", list_of(FLOAT64)).tolist() == [True] * 4 + [False] * 3


def test_an_empty_sample() -> None:
    features = tm.features("f", entity=A, features=[MEMBERS["several"](), MEMBERS["last"]()])
    assert features.verify(a=[], b=[], c=[]).rows == 0
    assert features.verify(a=ROWS, b=[], c=[], runs=1).rows == 12
