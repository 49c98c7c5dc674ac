"""What the fuzzer leaves out or allows, each with its reason: the one list of exceptions.

`EXCEPTIONS` are differences that the documentation states. `adapted` leaves out what the engines of this
tree do not have yet; it changes nothing once they do.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import tidemill as tm

START = "start" in inspect.signature(tm.tumbling).parameters
"""Whether `start=` bounds and `origin=` only aligns."""

ROWS_BY_KEY = START
"""Whether `rows` after `group_by` counts rows by key."""


def spark_reads_durations() -> bool:
    """Whether an interval column of Spark can be an input."""
    from pyspark.sql.types import DayTimeIntervalType, LongType, StructField, StructType

    try:
        tm.stream(
            "s",
            time="t",
            schema=StructType(
                [StructField("t", LongType()), StructField("d", DayTimeIntervalType())]
            ),
        )
    except tm.UserError:
        return False
    return True


class Known(NamedTuple):
    """A difference that is allowed on an engine, and where it is written down."""

    engine: str
    reason: str
    applies: Callable[[dict[str, Any], list[dict[str, Any]], str], bool]
    """Of the query, its rows and what came: 'error' or 'rows'."""


def _has_null(query: dict[str, Any], rows: list[dict[str, Any]], got: str) -> bool:
    return got == "rows" and any(v is None for row in rows for v in row.values())


EXCEPTIONS: tuple[Known, ...] = (
    Known(
        "spark",
        "docs/design.md, Limits: on Spark a failure next to a null in the same expression may go "
        "unreported",
        _has_null,
    ),
)


def allowed(engine: str, query: dict[str, Any], rows: list[dict[str, Any]], got: str) -> str | None:
    """The reason why an engine need not fail (or may) where the oracle says otherwise."""
    for known in EXCEPTIONS:
        if known.engine == engine and known.applies(query, rows, got):
            return known.reason
    return None


def adapted(query: dict[str, Any]) -> dict[str, Any]:
    """The query without what the engines of this tree do not have yet."""
    if START and ROWS_BY_KEY:
        return query
    steps = []
    for step in query["steps"]:
        if "windows" in step:
            step = {**step, "windows": [_adapted(w) for w in step["windows"]]}
        steps.append(step)
    return {**query, "steps": steps}


def _adapted(window: dict[str, Any]) -> dict[str, Any]:
    new = dict(window)
    if not START and window["kind"] in ("tumbling", "hopping"):
        new.pop("start", None)  # origin= still bounds the stream
        new.pop("origin", None)
    if not ROWS_BY_KEY and window["kind"] == "rows" and window["partition"] is None:
        new["partition"] = []  # rows() still counts the whole stream
    return new
