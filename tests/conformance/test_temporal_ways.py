"""Every way to run an operator is forced, on the same rows, and gives the rows of the definition.

Snapshots have ways of their own in `test_temporal.py`, grouped tables in `tests/local/test_tables.py`.
"""

from __future__ import annotations

import functools
import math
import os
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from unittest import mock

import pytest

import tidemill as tm
from tests.conformance.temporal import (
    EAGER,
    SHORT,
    D,
    Inputs,
    P,
    Row,
    S,
    assert_rows,
    assert_snapshots,
    by_reference,
    in_process,
    inputs_of,
)
from tests.conformance.test_temporal import BY_SNAPSHOTS, QUERIES, Q
from tests.examples import TIMES
from tidemill import col
from tidemill.core.batch import from_rows, to_rows
from tidemill.io.sources import open_source
from tidemill.local.divided_run import parts_of
from tidemill.local.graph import Graph
from tidemill.local.keyed_lanes import KeyedLanes
from tidemill.local.run import run
from tidemill.local.run_graph import run_graph
from tidemill.local.tuning import Tuning
from tidemill.plan.nodes import sources
from tidemill.stream import Stream


def _rows(seed: int, size: int = 18) -> Inputs:
    pick = random.Random(seed)

    def payload() -> Row:
        return {
            "k": pick.choice([0, 1, 2, 2, None]), "v": pick.choice([*range(-2, 5), None]),
            "s": pick.choice(["", "a", "b", "ab", None]), "x": pick.choice([0.0, -0.0, 0.5, math.nan, None]),
        }  # fmt: skip

    starts = [pick.randint(0, 25) for _ in range(size)]
    lives = [{"t": t, "u": pick.choice([t + 1, t + 3, t + 9, None]), **payload()} for t in starts]
    points = [{"t": pick.randint(0, 25), **payload()} for _ in range(size)]
    table = [
        {"k": pick.choice([0, 1, None]), "label": pick.choice(["x", "y", None])} for _ in range(3)
    ]
    return {"s": lives, "p": points, "d": table}


ROWS = _rows(5)


# --- threads ----------------------------------------------------------------------------------------


def _read(query: Stream, threads: int, tuning: Tuning) -> list[Row]:
    """`run`, which divides rows by a key from the inputs on, where it can."""
    tables = {s.name: from_rows(ROWS[s.name], s.declared) for s in sources(query.plan)}
    with mock.patch.dict(os.environ, TIDEMILL_THREADS=str(threads)):
        return to_rows(list(run(query.optimized, tables, tuning=tuning, sizes=SHORT)), query.schema)


def _in_lanes(query: Stream, threads: int, tuning: Tuning, *, ahead: bool = False) -> list[Row]:
    """One graph, in which each operator divides its rows by its own key."""
    graph = Graph(query.optimized, threads, tuning, watch=False, ahead=ahead)
    tables = {s.name: from_rows(ROWS[s.name], s.declared) for s in sources(query.plan)}
    chunks = {n: open_source(tables[n], leaf, promises=not leaf.table, sizes=SHORT)
              for n, leaf in graph.sources.items()}  # fmt: skip
    return to_rows(list(run_graph(graph, chunks, threads)), query.schema)


THREADS: dict[str, Callable[[Stream], list[Row]]] = {
    "one thread": lambda q: _read(q, 1, EAGER),
    "one thread, at the end": lambda q: _read(q, 1, Tuning()),
    "divided by two": lambda q: _read(q, 2, EAGER),
    "divided by four, at the end": lambda q: _read(q, 5, replace(Tuning(), few_rows=0, backlog=1)),
    "lanes": lambda q: _in_lanes(q, 2, EAGER),
    "four lanes, ahead": lambda q: _in_lanes(q, 4, EAGER, ahead=True),
    "lanes that nobody sprays": lambda q: _in_lanes(q, 2, replace(EAGER, few_sprayed=1 << 30)),
}

OFTEN = ("divided by two", "lanes", "four lanes, ahead")
"""Ways for every run; a soak has all of them."""


@pytest.mark.parametrize("name", QUERIES)
def test_threads(name: str) -> None:
    query = QUERIES[name]()
    same = functools.partial(assert_snapshots, query.plan) if name in BY_SNAPSHOTS else assert_rows
    expected = by_reference(query, inputs_of(query, ROWS))
    for way in THREADS if TIMES > 1 else OFTEN:
        same(THREADS[way](query), expected, f"{name}, {way}")


def test_queries_are_divided_and_have_lanes() -> None:
    divided = {n for n, q in QUERIES.items() if parts_of(q().optimized) is not None}
    lanes = {
        n for n, q in QUERIES.items()
        if any(isinstance(s.operator, KeyedLanes) for s in Graph(q().optimized, 2, EAGER).steps)
    }  # fmt: skip
    assert {"join", "left", "where_exists", "clip", "until_next", "lag", "apply, nested"} <= divided
    assert {"join", "until_session_end", "share", "stitch", "top by key"} <= lanes


# --- the same in other words ------------------------------------------------------------------------

TRUE = col.t.is_null() | col.t.is_not_null()
"""True of all rows, and nobody knows: no special operator sees what is below it."""
E = tm.stream("e", time="since", end="until", schema={
    "since": "int64", "until": "int64", "k": "int64", "label": "string"})  # fmt: skip
"""The table `d` as a stream of rows that hold for ever."""
K = P.where(col.k.is_not_null())
"""Rows without null keys, which `on=` leaves out, and `until_next` does not."""
LATER = K.shift(1).select("k", w="v")
EVERY = ROWS | {"e": [{"since": -(10**6), "until": None, **row} for row in ROWS["d"]]}


def _any(one: Any, other: Any) -> Any:
    """A condition that is true of all pairs."""
    return one.v.is_null() | one.v.is_not_null() | (one.k == other.k)


WORDS: dict[str, tuple[Callable[[], Stream], Callable[[], Stream], str, str]] = {
    "until_next": (
        lambda: K.until_next("k"), lambda: K.lasting(tm.FOREVER).where(TRUE).clip(K, on="k"), "next", "cut",
    ),
    "clip, by pairs": (lambda: S.clip(P, on="k"), lambda: S.clip(P, on="k", where=_any), "cut", "cut"),
    "exists, by pairs": (
        lambda: S.where_exists(Q, on="k"), lambda: S.where_exists(Q, on="k", where=_any), "cut", "cut",
    ),
    "not exists, by pairs": (
        lambda: S.where_not_exists(Q, on="k"), lambda: S.where_not_exists(Q, on="k", where=_any),
        "cut", "cut",
    ),
    "as of": (
        lambda: K.join(LATER.until_next("k"), on="k"),
        lambda: K.join(LATER.until_next("k").where(TRUE), on="k"), "asof", "join",
    ),
    "as of, left, not too old": (
        lambda: K.join(LATER.until_next("k").at_most(3), on="k", how="left", where=lambda l, r: l.v > r.w),
        lambda: K.join(LATER.until_next("k").at_most(3).where(TRUE), on="k", how="left",
                       where=lambda l, r: l.v > r.w), "asof", "join",
    ),
    "lookup": (lambda: S.join(D, on="k"), lambda: S.join(E, on="k"), "lookup", "join"),
    "lookup, left": (
        lambda: P.join(D, on="k", how="left", where=lambda l, r: r.label == "x"),
        lambda: P.join(E, on="k", how="left", where=lambda l, r: r.label == "x"), "lookup", "join",
    ),
    "lookup, exists": (lambda: S.where_exists(D, on="k"), lambda: S.where_exists(E, on="k"), "lookup", "cut"),
    "lookup, not exists": (
        lambda: S.where_not_exists(D, on="k"), lambda: S.where_not_exists(E, on="k"), "lookup", "cut",
    ),
    "hops": (
        lambda: P.quantised(6, every=3).group_by("k").agg(n=tm.sum(col.v)),
        lambda: P.quantised(6, every=3).extend(col.t - col.t).group_by("k").agg(n=tm.sum(col.v)), "window",
        "snapshot",
    ),
    "ends in turn": (
        lambda: P.lasting(5).group_by("k").agg(most=tm.max(col.v)),
        lambda: P.lasting(col.t - col.t + 5).group_by("k").agg(most=tm.max(col.v)), "snapshot", "snapshot",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WORDS)
def test_the_same_in_other_words(name: str) -> None:
    one, other, special, general = WORDS[name]
    answers = []
    for query, kind in ((one(), special), (other(), general)):
        graph = Graph(query.optimized)
        assert kind in [step.operator.kind for step in graph.steps], graph.steps
        inputs = inputs_of(query, EVERY)
        expected = by_reference(query, inputs)
        for tuning in (EAGER, Tuning()):
            assert_rows(in_process(query, inputs, tuning), expected, f"{name}, {kind}")
        answers.append(expected)
    assert answers[0]
    assert_rows(*answers, name)
