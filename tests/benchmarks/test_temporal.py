"""Every case of the benchmark of lifetimes on few rows: all systems answer alike; data are as they say."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from benchmarks import resources
from benchmarks.answers import Mismatch, same_snapshots
from benchmarks.harness import Case, Effort, run_case
from benchmarks.temporal import data, process, spark
from tidemill.core.errors import UnsupportedError

ONCE = Effort(repeats=1, at_most=1, enough=0.0, budget=60.0)

pytestmark = pytest.mark.interpreted


@pytest.mark.parametrize("case", [pytest.param(c, id=c.name) for c in process.compared(600, 400, 500)])
def test_all_systems_answer_alike(case: Case) -> None:
    given = case.data()
    found = {name: system(given) for name, system in case.systems.items()}
    case.check(found)
    assert {"tidemill", "one thread", "duckdb", "polars"} <= set(found)
    assert set(case.queries) == set(found) - {"one thread"}
    assert ("filter none" in case.name) == (len(found["tidemill"]) == 0)


def test_rates_and_what_a_second_thread_gives_are_shown() -> None:
    result = run_case(process.compared(600, 400, 500)[0], ONCE)
    assert set(result.measured["two threads over one"]) == {"tidemill"}
    assert set(result.measured["million rows/s"]) == {"tidemill", "one thread"}


def test_sessions_end_after_they_start() -> None:
    rows = data.sessions(500).arrow["sessions"]
    start, until = (np.asarray(rows[name]).view(np.int64) for name in ("ts", "until"))
    assert (until > start).all() and (np.diff(start) >= 0).all()


def test_every_ad_has_a_campaign_and_a_third_of_the_events_are_views() -> None:
    given = data.yahoo(3_000).polars
    assert given["ads"].group_by("campaign").len()["len"].to_list() == [10] * data.CAMPAIGNS
    assert given["shown"].join(given["ads"], on="ad").height == 3_000
    assert 0.25 < given["shown"]["event_type"].eq("view").mean() < 0.42
    assert given["shown"]["ts"].is_sorted()


class TestSameSnapshots:
    one = pa.table({"k": [1, 1, 1], "n": [5, 5, 6], "valid_from": [0, 10, 20], "valid_to": [10, 20, 30]})

    def test_lifetimes_may_be_cut_at_any_instant(self) -> None:
        whole = pa.table({"k": [1, 1], "n": [5, 6], "valid_from": [0, 20], "valid_to": [20, 30]})
        same_snapshots("k")({"tidemill": self.one, "peer": whole})

    def test_a_gap_is_a_difference(self) -> None:
        gap = pa.table({"k": [1, 1, 1], "n": [5, 5, 6], "valid_from": [0, 11, 20], "valid_to": [10, 20, 30]})
        with pytest.raises(Mismatch):
            same_snapshots("k")({"tidemill": self.one, "peer": gap})

    def test_windows_hold_from_their_end(self) -> None:
        windows = {"k": [1, 1, 1], "n": [5, 5, 6], "window_start": [-30, -20, -10], "window_end": [0, 10, 20]}
        same_snapshots("k", every=10)({"tidemill": self.one, "peer": pl.DataFrame(windows)})


@pytest.fixture
def scratch() -> Iterator[None]:
    yield
    resources.close()


@pytest.mark.soak
def test_spark_finds_the_pairs_of_intervals_that_overlap(scratch: Any) -> None:
    case = spark.joined(1_000, beside=True)
    given = case.data()
    found = {"spark": case.systems["spark"](given)}
    assert 4_000 < found["spark"]["rows"] < 20_000
    try:
        found["tidemill"] = case.systems["tidemill"](given)
    except UnsupportedError:
        pytest.skip("no joins on Spark yet")
    case.check(found)
