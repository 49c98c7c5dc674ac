"""Calendar windows in Spark SQL are those of the definition, also where clocks change and in far years."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa

from tidemill.core.time import FARTHEST, FOREVER, instant
from tidemill.core.zones import repeating_table
from tidemill.spark.expr.calendars import with_windows
from tidemill.windows.calendar_units import window_of
from tidemill.windows.spec import calendar

SPECS = [
    calendar("day", tz="America/St_Johns"), calendar("week", 2, tz="Etc/GMT-5"),
    calendar("quarter", 3, tz="Asia/Gaza"), calendar("year", 7),
]  # fmt: skip


def test_windows_are_those_of_the_definition(spark: Any) -> None:
    pick = random.Random(3)
    ticks = {-FARTHEST, FARTHEST, -1, 0, instant("9999-12-31T23:59:59.999999Z"), instant("0001-01-01")}
    for S in SPECS:
        _, table = repeating_table(S.tz)
        for change in pick.sample(table.since[1:].tolist(), min(60, len(table.since) - 1)):
            ticks |= {change - 1, change, change + pick.randint(-(10**11), 10**11)}
    ticks |= {pick.randint(-(10**16), 10**17) for _ in range(300)}
    given = sorted(ticks)
    df = spark.createDataFrame(pa.table({"t": given}))
    for i, S in enumerate(SPECS):
        df = with_windows(df, "t", S, f"w{i}")
    found = df.sort("t").toArrow()
    for i, S in enumerate(SPECS):
        expected = window_of(given, S).tolist()
        wrong = [
            (t, got, w) for t, got, w in zip(given, found[f"w{i}"].to_pylist(), expected) if got != w
        ]
        assert wrong == [], str(S)


def test_a_time_that_is_too_far_has_a_window_as_far(spark: Any) -> None:
    df = spark.createDataFrame(pa.table({"t": [FOREVER, -FOREVER, FARTHEST + 1]}))
    found = with_windows(df, "t", calendar("day", tz="Europe/Berlin"), "w").toArrow()
    assert found["w"].to_pylist() == [FOREVER] * 3
