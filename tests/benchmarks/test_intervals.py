"""Every case of the benchmark of interval joins, on few rows: systems answer alike; data are as they say."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from benchmarks import resources
from benchmarks.harness import Case
from benchmarks.intervals import data, offline, spark
from benchmarks.intervals.data import Pair

pytestmark = pytest.mark.interpreted


@pytest.mark.parametrize("case", [pytest.param(c, id=c.name) for c in offline.compared(300, 600)])
def test_all_systems_answer_alike(case: Case) -> None:
    given = case.data()
    found = {name: system(given) for name, system in case.systems.items()}
    pandas = found.pop(offline.PANDAS, None)
    case.check(found if pandas is None else found | {offline.PANDAS: pandas.answer})
    assert {"tidemill", "one thread", "duckdb", "polars"} <= set(found)
    assert len(found["tidemill"]) == case.params["rows a side"]


def test_a_request_has_as_many_orders_as_it_says() -> None:
    pair = Pair(2_000, 4, 50)
    requests, orders = (data.rows_of(pair, name) for name in ("requests", "orders"))
    at, ts = (np.asarray(rows["ts"].cast("int64")) for rows in (requests, orders))
    found = np.searchsorted(ts, at, side="right") - np.searchsorted(ts, at - pair.reach)
    assert 45 < np.median(found) / pair.keys < 55


def test_rows_come_in_order_unless_they_are_shuffled() -> None:
    for shuffled in (False, True):
        ts = np.asarray(data.rows_of(Pair(500, shuffled=shuffled), "orders")["ts"].cast("int64"))
        assert bool((np.diff(ts) > 0).all()) is not shuffled
        assert len(np.unique(ts)) == 500


@pytest.fixture(scope="module")
def session() -> Iterator[None]:
    yield
    resources.close()


@pytest.mark.soak
@pytest.mark.parametrize("case", [pytest.param(c, id=c.name) for c in spark.cases(quick=True)])
def test_spark_answers_alike(session: None, case: Case) -> None:
    given = case.data()
    found = {name: system(given) for name, system in case.systems.items()}
    case.check(found)
    assert found["tidemill"]["rows"] == case.params["rows a side"]
