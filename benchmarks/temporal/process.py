"""In process: Tidemill on one and on two threads, DuckDB and Polars on two."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

import tidemill as tm
from benchmarks.answers import same_rows, same_snapshots
from benchmarks.data import MINUTE, Shape, events
from benchmarks.harness import Case, Check
from benchmarks.questions import Question, on_one_and_two
from benchmarks.temporal import data, questions
from benchmarks.windows import questions as windows

KEYS = 10_000
EACH = 40
"""Searches of a user in two days."""


def cases(quick: bool) -> list[Case]:
    return compared(200_000, 100_000, 500_000) if quick else compared(20_000_000, 4_000_000, 10_000_000)


def compared(many: int, few: int, shown: int) -> list[Case]:
    """The cases over `many` events, over `few` where rows are kept, and over so many events of ads."""
    # As many events a window and key, whatever their number.
    whole = Shape(many, KEYS, many / 20_000_000 * 48, value="int64")
    some = Shape(few, KEYS, value="int64", users=few // EACH)
    counted = windows.windows(("count",), "1h", "10m", key=None, shape=whole)
    summed = windows.windows(("sum",), "1h", "10m", shape=whole)
    lifetimes = 'events.quantised("1h", every="10m")'
    return [
        *(_of_events(name, whole, q, same_rows(*q.by)) for name, q in questions.STATELESS.items()),
        _of_events("windowed count, hopping windows", whole, counted, same_rows(*counted.by)),
        _of_events(
            "windowed count, quantised lifetimes", whole,
            dataclasses.replace(counted, tidemill=f"{lifetimes}.agg(n=tm.count())"),
            same_snapshots(every=10 * MINUTE),
        ),
        _of_events("windowed sum by key, hopping windows", whole, summed, same_rows(*summed.by)),
        _of_events(
            "windowed sum by key, quantised lifetimes", whole,
            dataclasses.replace(summed, tidemill=f'{lifetimes}.group_by("k").agg(total=tm.sum(col.v))'),
            same_snapshots("k", every=10 * MINUTE),
        ),
        _of_events("sum by key of the last hour", some, questions.LASTING, same_snapshots("k")),
        _case(
            "open sessions at each instant", few, {}, questions.OPEN, {"sessions": data.SESSIONS},
            functools.partial(data.sessions, few), same_snapshots(),
        ),
        *(
            _of_events(name, some, q, same_rows(*q.by), users=some.users)
            for name, q in (
                ("A then B within an hour", questions.A_THEN_B),
                ("A and no B within an hour", questions.A_AND_NO_B),
                ("last known value", questions.LAST_KNOWN),
                ("as-of join", questions.AS_OF),
            )
        ),
        _case(
            "Yahoo streaming benchmark", shown, {"ads": 1_000, "campaigns": data.CAMPAIGNS}, questions.YAHOO,
            {"shown": data.SHOWN, "ads": data.ADS}, functools.partial(data.yahoo, shown),
            same_rows(*questions.YAHOO.by),
        ),
    ]  # fmt: skip


def _of_events(name: str, shape: Shape, question: Question, check: Check, **params: Any) -> Case:
    given = params or {"keys": shape.keys}
    given |= {"hours": round(shape.hours, 2)}
    return _case(name, shape.rows, given, question, shape.streams, lambda: events(shape), check)


def _case(
    name: str, rows: int, params: Mapping[str, Any], question: Question, streams: Mapping[str, tm.Stream],
    given: Callable[[], Any], check: Check,
) -> Case:  # fmt: skip
    return on_one_and_two(f"process/{name}", {"rows": rows, **params}, question, streams, given, check, rows)
