"""Clock time on every engine: durations as text, origins as instants, years before 1970."""

from __future__ import annotations

import random
from typing import Any

import pytest

import tidemill as tm
from tests.conformance.harness import (
    Row,
    arrivals,
    assert_same,
    by_reference,
    in_batches,
    locally,
    on_spark,
    split,
)  # fmt: skip
from tests.examples import later
from tidemill import col
from tidemill.core.time import instant
from tidemill.stream import Stream

CLICKS = tm.stream(
    "clicks", time="ts", schema={"ts": "timestamp", "seen": "timestamp", "ad": "int64", "price": "float64"}
)
MINUTE = 60_000_000


def rows(start: str, seed: int, size: int = 80) -> list[Row]:
    pick, begin = random.Random(seed), instant(start)
    return [
        {
            "ts": begin + pick.randint(0, 6 * 60) * MINUTE + pick.choice([0, 0, 1, 999_999]),
            "seen": begin + pick.randint(0, 90) * MINUTE, "ad": pick.randint(1, 3),
            "price": pick.choice([None, 0.25, 1.5, 3.0]),
        }
        for _ in range(size)
    ]  # fmt: skip


WINDOWS: dict[str, tm.Window] = {
    "tumbling": tm.tumbling("30m"),
    "hopping": tm.hopping("1h", every="10m"),
    "hopping, origin": tm.hopping("1h", every="15m", origin="1969-12-31T22:07:00Z"),
    "landmark": tm.landmark("1h", start="1960-01-01T00:00Z"),
    "per_event": tm.per_event("20 minutes"),
    "session": tm.session("4m"),
    "on another column": tm.tumbling("45m", on="seen"),
}
WHEN = {"around the epoch": "1969-12-31T21:00:00Z", "across daylight saving": "2024-03-10T04:30:00Z"}


def ask(window: str) -> Stream:
    return CLICKS.group_by("ad").window(WINDOWS[window]).agg(
        latest=tm.max(col.ts), ewma=tm.ewma(col.price, half_life="30m")
    )  # fmt: skip


@pytest.mark.parametrize("when", WHEN)
@pytest.mark.parametrize("window", [w for w in WINDOWS if w != "landmark"])
def test_locally(window: str, when: str) -> None:
    query, given, pick = ask(window), rows(WHEN[when], seed=4), random.Random(9)
    expected = by_reference(query, given)
    assert_same(locally(query, given), expected, query.schema)
    parts = split(arrivals(given, "ts", pick)["sorted"], pick)
    assert_same(in_batches(query, parts, promises=True, speed="eager"), expected, query.schema)


def test_landmark_locally() -> None:
    query = CLICKS.group_by("ad").window(tm.landmark("1h", start="1969-12-31T20:00Z")).agg(n=tm.count())
    given = rows(WHEN["around the epoch"], seed=4)
    assert_same(locally(query, given), by_reference(query, given), query.schema)


@pytest.mark.parametrize("window", ["hopping, origin", *later("session", "on another column")])
def test_on_spark(spark: Any, window: str) -> None:
    # The session's time zone is not UTC, and its clocks change in these hours.
    query, given = ask(window), rows(WHEN["across daylight saving"], seed=4)
    assert_same(on_spark(spark, query, given), by_reference(query, given), query.schema)


def test_bounds_are_instants() -> None:
    assert [repr(ask("hopping").schema[n]) for n in ("window_start", "window_end", "latest")] == [
        "timestamp", "timestamp", "timestamp",
    ]  # fmt: skip
