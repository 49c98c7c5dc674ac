"""Interval joins that answer on arrival, in random interleavings, against their definition."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidemill as tm
from tests.conformance.temporal import (
    EAGER,
    POINTS,
    SEEDS,
    Inputs,
    Row,
    as_rows,
    assert_rows,
    inputs_of,
)
from tests.conformance.test_intervals import AGGREGATES, OPTIONS, PAIRED, A, B
from tests.examples import examples
from tidemill import col
from tidemill.core.batch import conform, from_rows, to_rows
from tidemill.core.time import BEGINNING
from tidemill.local.graph import Graph
from tidemill.local.snapshot import from_bytes, to_bytes
from tidemill.local.tuning import Tuning
from tidemill.plan.arrival import lateness_of
from tidemill.plan.build_temporal import shown
from tidemill.plan.nodes import Source
from tidemill.reference.arrivals import Arrivals
from tidemill.stream import Stream

INPUTS = st.fixed_dictionaries({"a": POINTS, "b": POINTS})
LATENESS = (0, 3, 20, 10**14)


def _checked(query: Stream, data: Inputs, seed: int) -> None:
    """Push rows in a random interleaving, with promises that are kept but for the lateness, and restarts."""
    pick, lateness = random.Random(seed), lateness_of(query.plan)
    tuning, came = pick.choice([EAGER, Tuning()]), Arrivals(shown(query.plan))
    graph = Graph(query.optimized, pick.randint(1, 3), tuning, on_arrival=lateness)
    left = {n: pick.sample(rows, len(rows)) for n, rows in inputs_of(query, data).items()}
    if pick.random() < 0.5:  # otherwise times jump about, and nothing can be promised
        left = {n: sorted(rows, key=lambda row: row["t"] + pick.randint(0, 5)) for n, rows in left.items()}
    below = dict.fromkeys(left, BEGINNING)
    while any(left.values()):
        name, action = pick.choice([n for n, rows in left.items() if rows]), pick.random()
        if action < 0.6:
            count = pick.randint(1, 4)
            rows, left[name] = left[name][:count], left[name][count:]
            expected = [answer for row in rows for answer in came.push(name, row)]
            assert_rows(_pushed(graph, name, rows, query), expected, f"{name}: {rows}")
        elif action < 0.9:
            least = min(row["t"] for row in left[name]) + lateness
            below[name] = max(below[name], least - pick.choice([0, 0, 1, 3]))
            assert list(graph.advance(name, below[name], prompt=True)) == []
        else:
            state = from_bytes(to_bytes(graph.snapshot()))
            if pick.random() < 0.7:
                graph.close()
                graph = Graph(query.optimized, pick.randint(1, 3), tuning, on_arrival=lateness)
                graph.restore(state)
    graph.close()


def _pushed(graph: Graph, name: str, rows: list[Row], query: Stream) -> list[Row]:
    source = graph.sources[name]
    assert isinstance(source, Source)
    batches = from_rows(rows, source.declared).to_batches()
    found = [out for b in batches for out in graph.push(name, conform(b, source.schema, step="test"))]
    return to_rows(found, query.schema)


def _asked(options: dict[str, Any], aggregates: dict[str, Any] | None, lateness: int) -> Stream:
    joined = A.interval_join(B, on="k", lateness=lateness, **options)
    return joined.pairs() if aggregates is None else joined.agg(**aggregates)


@pytest.mark.parametrize("name", OPTIONS)
@examples(2, of=50)
@given(data=INPUTS, seed=SEEDS, kind=st.sampled_from(["few", "in order", "pairs"]))
def test_each_option(name: str, data: Inputs, seed: int, kind: str) -> None:
    _checked(_asked(OPTIONS[name], AGGREGATES.get(kind), LATENESS[seed % 4]), data, seed)


@pytest.mark.parametrize("name", AGGREGATES)
@examples(1, of=25)
@given(data=INPUTS, seed=SEEDS)
def test_each_family_of_aggregates(name: str, data: Inputs, seed: int) -> None:
    _checked(_asked(OPTIONS["around"], AGGREGATES[name], LATENESS[seed % 4]), data, seed)


@examples(15, of=1000)
@given(data=INPUTS, seed=SEEDS, kind=st.sampled_from(["few", "in order", "pairs"]))
def test_options_together(data: Inputs, seed: int, kind: str) -> None:
    pick = random.Random(seed)
    asked = {name: pick.choice(values) for name, values in PAIRED.items()}
    _checked(_asked(asked, AGGREGATES.get(kind), LATENESS[seed % 4]), data, seed)


FEW = AGGREGATES["few"]
OTHERS: dict[str, Callable[[int], Stream]] = {
    "last": lambda late: A.last_join(B, on="k", lateness=late),
    "next": lambda late: A.last_join(B, on="k", direction="forward", tolerance=5),
    "nearest": lambda late: A.last_join(B, on="s", direction="nearest", lateness=late),
    "last that fits": lambda late: A.last_join(B, on="k", where=lambda a, b: a.v < b.v),
    "last values": lambda late: A.last_join(B, on="k", skip_nulls=True, lateness=late),
    "lags": lambda late: A.last_join(B.select("k", "v"), on="k", lags=[0, 2, 5], lateness=late),
    "without a key": lambda late: A.interval_join(B, preceding=4).agg(n=tm.count()),
    "two keys": lambda late: A.interval_join(B, on=["k", "s"], preceding=9, lateness=late).agg(**FEW),
    "of itself": lambda late: A.interval_join(A, on="k", preceding=5).agg(n=tm.count()),
    "filters": lambda late: A.where(col.v > 0).interval_join(B.where(col.v < 5), on="k", preceding=9).agg(
        **FEW),
    "a chain": lambda late: A.interval_join(B, on="k", preceding=5).agg(n=tm.count()).interval_join(
        B, on="s", preceding=9, lateness=late).agg(m=tm.max(col.v)),
    "a chain with itself": lambda late: A.interval_join(B, on="k", preceding=5).agg(
        n=tm.count()).interval_join(A, on="s", preceding=3, lateness=late).agg(m=tm.max(col.v)),
    "features of features": lambda late: A.interval_join(
        B.interval_join(A, on="k", preceding=6).agg(n=tm.count()), on="s", preceding=9, lateness=late).agg(
        m=tm.sum("n")),
    "then a filter": lambda late: A.interval_join(B, on="k", preceding=9).agg(n=tm.count()).where(
        (col.n > 1) & (col.v > 0)),
}  # fmt: skip


@pytest.mark.parametrize("name", OTHERS)
@examples(2, of=40)
@given(data=INPUTS, seed=SEEDS)
def test_others(name: str, data: Inputs, seed: int) -> None:
    _checked(OTHERS[name](LATENESS[seed % 4]), data, seed)


# --- live queries: what is late, and what comes in one call -----------------------------------------


@examples(15, of=500)
@given(data=INPUTS, seed=SEEDS, slack=st.sampled_from([0, 2, 9]), lateness=st.sampled_from([0, 3, 20]))
def test_rows_later_than_the_lateness_count_nowhere(
    data: Inputs, seed: int, slack: int, lateness: int
) -> None:
    pick = random.Random(seed)
    query = A.interval_join(B, on="k", preceding=pick.choice([0, 6]), lateness=lateness).agg(**FEW)
    live = query.live(tm.Disorder(slack=slack), answers="on arrival")
    came, left = Arrivals(shown(query.plan)), {n: list(rows) for n, rows in data.items()}
    latest, marks = dict.fromkeys(left, BEGINNING), dict.fromkeys(left, BEGINNING)
    late: dict[str, list[tuple[int, str]]] = {"a": [], "b": []}
    while any(left.values()):
        some, expected = {}, []
        for name in ("b", "a"):  # probe rows of a call come before its base rows
            count = pick.choice([0, 1, 3])
            some[name], left[name] = left[name][:count], left[name][count:]
            for row in some[name]:
                mark = max(marks[name], latest[name] - slack)
                if row["t"] < mark:
                    late[name].append((row["t"], "late" if row["t"] < mark - lateness else "within lateness"))
                latest[name] = max(latest[name], row["t"])
                if row["t"] >= mark - lateness:
                    expected += came.push(name, row)
        given = live.push(**{n: rows for n, rows in pick.sample(list(some.items()), 2) if rows})
        assert_rows(to_rows(given.to_batches(), query.schema), expected, str(some))
        if pick.random() < 0.2:
            below = max(0, *marks.values(), *(t - slack for t in latest.values())) + pick.randint(0, 4)
            marks = dict.fromkeys(marks, below)
            assert live.punctuate(below).num_rows == 0
    for name, rows in late.items():
        found = live.late(name)
        assert sorted(zip(found["t"].to_pylist(), found["late_reason"].to_pylist())) == sorted(rows)
    stats = live.stats()
    for reason in ("late", "within lateness"):
        counted = sum(getattr(one, reason.replace(" ", "_")) for one in stats.inputs.values())
        assert counted == sum(why == reason for rows in late.values() for _, why in rows)


@examples(8, of=300)
@given(data=INPUTS, seed=SEEDS)
def test_base_rows_after_all_probe_rows_have_the_answers_of_history(data: Inputs, seed: int) -> None:
    pick = random.Random(seed)
    query = _asked({n: pick.choice(v) for n, v in PAIRED.items() if n != "include_base"}, FEW, 10**14)
    live = query.live(answers="on arrival")
    base = sorted(data["a"], key=lambda row: row["t"])  # since_previous looks at base rows, too
    live.push(b=data["b"])
    found = to_rows(live.push(a=base).to_batches(), query.schema)
    assert as_rows(found) == as_rows(query.run(**data).to_pylist())


def test_what_answers_on_arrival_is_an_interval_join(tmp_path: Any) -> None:
    with pytest.raises(tm.UserError, match="an interval join, with answers='on arrival'"):
        A.where(col.v > 0).live(answers="on arrival")
    query = A.interval_join(B, on="k", preceding=3).agg(n=tm.count())
    for wrong in ({"emit": tm.Emit(early=3)}, {"latency": tm.Latency(3)}):
        with pytest.raises(tm.UserError, match="with answers='on arrival'"):
            query.live(answers="on arrival", **wrong)
    with pytest.raises(tm.UserError, match=r"answers= one of \['exact', 'on arrival'\], got 'now'"):
        query.live(answers="now")  # type: ignore[arg-type]
    live, rest = query.live(answers="on arrival"), {"v": 0, "s": "", "x": 0.0}
    live.push(b=[{"t": 1, "k": 1, **rest}])
    live.checkpoint(tmp_path / "saved")
    with pytest.raises(tm.UserError, match="answers='on arrival', as the query had that was saved"):
        tm.restore(query, tmp_path / "saved")
    again = tm.restore(query, tmp_path / "saved", answers="on arrival")
    assert again.push(a=[{"t": 2, "k": 1, **rest}])["n"].to_pylist() == [1]
