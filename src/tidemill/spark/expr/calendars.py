"""The calendar window of each row in Spark, by Tidemill's own table of a zone's clock.

Java has rules of zones too, but of another release, and its dates go back where a clock is set back. Here
time is divided into cells, and each row is joined with what the clock does in its cell: how far it is ahead
of UTC, and the few instants at which it is changed. Spark sends this table to every task.
"""

from __future__ import annotations

import functools

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tidemill.core.time import FARTHEST, FOREVER
from tidemill.core.zones import CYCLE, DAY, repeating_table
from tidemill.spark.expr.sql import number
from tidemill.windows.spec import Calendar

SIZE = 43
"""A cell is 2**43 microseconds, 102 days: most zones have at most one change in it."""
NEAR, LATER, CELL, LOCAL, DAYS = "near", "later", "cell", "shown", "days"
"""Names of columns on the way."""


def with_windows(rows: DataFrame, tick: str, S: Calendar, name: str) -> DataFrame:
    """Add a column `name` with the window of each row; `tick` is a column of instants as bigint, without
    nulls.

    It is `windows.calendar_units.window_of` in SQL. A tick that is too far away gets a window that is as far.
    """
    given, cells = rows.columns, _cells(S.tz)
    far = f"NOT ({tick} BETWEEN {number(-FARTHEST)} AND {number(FARTHEST)})"
    near = f"if({far}, 0L, {tick})"
    if cells is None:
        rows = rows.selectExpr(*given, f"{near} AS {LOCAL}")
    else:
        repeats, _ = repeating_table(S.tz)
        begin = cells["begin"][0].as_py()
        later = f"greatest(0L, ({NEAR} - {number(repeats)}) div {number(CYCLE)}) * {number(CYCLE)}"
        cell = f"least({number(len(cells) - 1)}, greatest(0L, shiftright({NEAR} - {number(begin)}, {SIZE})))"
        rows = rows.selectExpr(*given, f"{near} AS {NEAR}")
        rows = rows.selectExpr(*given, f"{later} AS {LATER}", f"{NEAR} - {later} AS {NEAR}")
        rows = rows.selectExpr(*given, LATER, NEAR, f"{cell} AS {CELL}")
        table = rows.sparkSession.createDataFrame(cells.drop_columns(["begin"]))
        rows = rows.join(F.broadcast(table), CELL)
        changes = sum(n.startswith("since") for n in cells.column_names)
        ahead, shown = (_in_force(changes, of) for of in ("ahead", "before"))
        rows = rows.selectExpr(*given, f"greatest({NEAR} + {ahead}, {shown}) + {LATER} AS {LOCAL}")
    rows = rows.selectExpr(*given, f"{_floor_div(LOCAL, DAY)} AS {DAYS}")
    window = f"if({far}, {number(FOREVER)}, {_floor_div(_unit(S), S.every)})"
    return rows.selectExpr(*given, f"{window} AS {name}")


@functools.lru_cache(maxsize=64)
def _cells(zone: str) -> pa.Table | None:
    """What the clock of a zone does in each cell; None if it is that of UTC.

    `since1`, `since2`, … are the changes in a cell. How far the clock is ahead is `ahead0` before the first
    of them, `ahead1` after it, and so on; `before0`, … is the latest time that the clock showed before
    that.
    """
    _, table = repeating_table(zone)
    if len(table.since) == 1 and not table.ahead[0]:
        return None
    # The first cell has all that was before the first change, too; the last has all that is after the last.
    begin = int(table.since[1] if len(table.since) > 1 else 0) - (1 << SIZE)
    count = max(int(table.since[-1]) - begin >> SIZE, 0) + 1
    starts = begin + (np.arange(count) << SIZE)
    last = np.searchsorted(table.since, starts, side="right") - 1
    changes = int(np.diff(last, append=len(table.since) - 1).max())
    columns = {CELL: np.arange(count), "begin": np.full(count, begin)}
    for i in range(changes + 1):
        at = last + i
        inside = np.minimum(at, len(table.since) - 1)
        if i:
            columns[f"since{i}"] = np.where(at < len(table.since), table.since[inside], FOREVER)
        columns[f"ahead{i}"], columns[f"before{i}"] = table.ahead[inside], table.shown[inside]
    return pa.table(columns)


def _in_force(changes: int, of: str) -> str:
    found = f"{of}0"
    for i in range(1, changes + 1):
        found = f"if({NEAR} >= since{i}, {of}{i}, {found})"
    return found


def _unit(S: Calendar) -> str:
    """The number of the unit, from the days since 1970."""
    if S.unit == "day":
        return DAYS
    if S.unit == "week":
        return _floor_div(f"({DAYS} + 3L)", 7)
    date = f"date_from_unix_date(int({DAYS}))"
    years = f"(bigint(year({date})) - 1970L)"
    if S.unit == "year":
        return years
    months = f"({years} * 12L + month({date}) - 1L)"
    return months if S.unit == "month" else _floor_div(months, 3)


def _floor_div(value: str, by: int) -> str:
    """Divide toward minus infinity; Spark's `div` is toward zero. Values are within 2**62 of zero."""
    if by == 1:
        return value
    whole = -(-(1 << 62) // by)
    return f"(({value} + {number(whole * by)}) div {number(by)} - {number(whole)})"
