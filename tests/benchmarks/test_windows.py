"""Every case of the benchmark of windows on few rows: all systems answer alike."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from benchmarks import resources
from benchmarks.data import Shape, table
from benchmarks.harness import Asked, Case, Effort, run_case
from benchmarks.windows import advance, bins, families, memory, process, shapes, threads
from benchmarks.windows.questions import AGGREGATES, CONDITIONS

ONCE = Effort(repeats=1, at_most=1, enough=0.0, budget=60.0)
FEW = 500

pytestmark = pytest.mark.interpreted


def by_name(cases: list[Case], now: int | None = None) -> list[Any]:
    """All cases, the first few of them `now` and the others in the soak."""
    listed = [pytest.param(case, id=case.name) for case in cases[:now]]
    return listed + [pytest.param(c, id=c.name, marks=pytest.mark.soak) for c in cases[len(listed) :]]


def answers(case: Case) -> dict[str, Any]:
    """What all systems answer, compared as before any timing."""
    data = case.data()
    found = {name: system(data) for name, system in case.systems.items()}
    case.check(found)
    return found


@pytest.mark.parametrize("case", by_name(shapes.shapes(FEW, FEW)))
def test_shapes(case: Case) -> None:
    found = answers(case)
    assert {"tidemill", "duckdb", "polars"} <= set(found) == set(case.queries)
    assert len(found["tidemill"]) > 0


@pytest.mark.parametrize(
    "text",
    [
        "windows keys=3 zipf=1.5 range=30m every=5m aggregates=sum,count,mean,min,max",
        "windows keys=3 value=int64 aggregates=sum,mean,max",
        "windows keys=3 disorder=600 range=1h every=1h aggregates=sum",
        "windows keys=3 key=name range=30m every=30m aggregates=min",
        "windows key= range=30m every=10m aggregates=sum,count",
        "windows key= range=30m every=30m aggregates=sum disorder=600",
        "windows keys=1 hours=1 range=30m every=1m aggregates=sum,count,mean,min,max",
        "windows keys=1 hours=1 range=30m every=1m disorder=600",
        "windows key= hours=1 range=30m every=1m aggregates=sum",
        "windows keys=3 hours=0.2 range=5m every=1s aggregates=sum,mean,min,max",
        "windows key= hours=1 range=5m every=1s aggregates=sum,count",
        "windows keys=3 range=1h every=10m aggregates=median,distinct",
        "windows keys=3 range=1h every=10m 'aggregates=geometric mean,max user'",
        "sessions keys=3 gap=2m aggregates=sum,max,mean",
        "sessions keys=3 gap=2m aggregates=distinct disorder=600",
        "sessions keys=3 key=name gap=2m aggregates=count",
        "last_rows keys=3 every=1h disorder=600",
        *(f"rows 'condition={name}'" for name in CONDITIONS),
    ],
)
def test_any_case_of_a_family_can_be_asked_for(text: str) -> None:
    answers(families.asked(f"{text} rows=300", quick=True))


@pytest.mark.parametrize(
    ("text", "joined", "dynamic"),
    [
        ("windows keys=10 range=1h every=10m", True, False),
        ("windows keys=10 range=1h every=1m", False, True),
        ("windows keys=10 range=1d every=1s", False, False),
        ("windows keys=1e6 range=1h every=1m rows=1e4", True, False),
    ],
)
def test_peers_have_the_form_that_suits_the_shape(text: str, joined: bool, dynamic: bool) -> None:
    queries = families.asked(text, quick=False).queries
    assert ("panes CROSS JOIN range" in queries["duckdb"]) == joined
    assert ("group_by_dynamic" in queries["polars"]) == dynamic


def test_every_aggregate_is_in_a_case() -> None:
    cases = [*process.cases(True), *shapes.cases(True), *memory.cases(True)]
    shown = " ".join(s.query for case in cases for s in case.systems.values() if isinstance(s, Asked))
    assert [name for name, a in AGGREGATES.items() if a.tidemill not in shown] == []


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("joins", "'joins' is none of windows"),
        ("windows aggregates=sum,mode", "'mode' is none of sum"),
        ("rows condition=odd", "'odd' is none of"),
        ("windows colour=red", "colour: windows has"),
        ("windows range=7m every=2m", "no multiple"),
    ],
)
def test_what_no_family_has_is_refused(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        families.asked(text, quick=True)


@pytest.mark.parametrize("case", by_name(threads.compared(FEW), now=1))
def test_threads(case: Case) -> None:
    result = run_case(case, ONCE)
    assert set(result.measured["two threads over one"]) == {"tidemill", "plain loop"}


@pytest.mark.parametrize("case", by_name(advance.advancing(1_500, rate=50), now=1))
def test_advances_give_what_a_run_gives(case: Case) -> None:
    measured = run_case(case, ONCE).measured
    assert {"million events/s", "closes none p99 µs", "closes p99 µs"} <= set(measured)
    assert set(measured["closes p50 µs"]) == {"tidemill"}


def test_bins_and_ranges_give_the_same_windows() -> None:
    [case] = bins.sliding(300, (7,))
    assert set(run_case(case, ONCE).seconds) == {"tidemill", "ranges, alone", "bins"}


@pytest.mark.parametrize(
    "shape", [Shape(FEW), Shape(FEW, 7, zipf=1.3, disorder=600.0, texts=("name", "note"))]
)
def test_events_are_as_their_shape_says(shape: Shape) -> None:
    found = table(shape)
    ts = np.asarray(found["ts"]).view(np.int64)
    assert found.column_names == [*shape.schema] and len(np.unique(ts)) == FEW
    latest = np.maximum.accumulate(ts)
    assert bool((np.diff(ts) < 0).any()) == bool(shape.disorder)
    assert (latest - ts).max() <= shape.disorder * 1e6


@pytest.fixture
def scratch() -> Iterator[None]:
    yield
    resources.close()


@pytest.mark.soak
@pytest.mark.parametrize(
    "case",
    by_name(
        [
            memory.overlapping(500, "1h"),
            memory.added(20_000, "int64", repeats=1),
            memory.added(20_000, "string", repeats=1),
        ]
    ),
)
def test_memory_in_fresh_processes(case: Case, scratch: None) -> None:
    """Processes of their own: each compiles, or loads, its kernels."""
    assert run_case(case, ONCE).measured
