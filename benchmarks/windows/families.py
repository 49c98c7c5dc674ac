"""Families of cases in process. `--ask` makes a case from the parameters on the command line."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Callable, Mapping
from typing import Any, get_type_hints

from benchmarks.answers import same_rows
from benchmarks.data import TEXTS, Shape, events
from benchmarks.harness import Case
from benchmarks.windows import questions
from benchmarks.windows.questions import Question

Names = tuple[str, ...]


def windows(
    name: str, shape: Shape, *, aggregates: Names = ("sum", "count"), range: str = "1h", every: str = "10m",
    key: str = "k",
) -> Case:  # fmt: skip
    """Hopping or tumbling windows for each value of a column, or of the whole stream where `key` is empty."""
    question = questions.windows(aggregates, range, every, key=key or None, shape=shape)
    read = [a.column for a in questions.aggregates(aggregates)]
    return _case(
        name, _with_texts(shape, key, *read), question,
        {"key": key or "none", "range": range, "every": every, "aggregates": ", ".join(aggregates)},
    )  # fmt: skip


def sessions(
    name: str, shape: Shape, *, aggregates: Names = ("sum", "count"), gap: str = "5m", key: str = "k"
) -> Case:
    """Sessions for each value of a column."""
    question = questions.sessions(aggregates, gap, key=key, ordered=not shape.disorder)
    read = [a.column for a in questions.aggregates(aggregates)]
    return _case(
        name, _with_texts(shape, key, *read), question,
        {"key": key, "gap": gap, "aggregates": ", ".join(aggregates)},
    )  # fmt: skip


def rows(name: str, shape: Shape, *, condition: str = "5 % of users", texts: Names = ()) -> Case:
    """The rows that satisfy a condition, with the columns of text that are named or that it reads."""
    question = questions.rows(condition)
    read = [t for t in TEXTS if f"col.{t}." in question.tidemill]
    return _case(name, _with_texts(shape, *texts, *read), question, {"condition": condition})


def last_rows(
    name: str, shape: Shape, *, columns: Names = ("v", "city", "note"), every: str = "1d", key: str = "k"
) -> Case:
    """The last row of each key in each tumbling window."""
    question = questions.last_rows(columns, every, key=key, ordered=not shape.disorder)
    params = {"key": key, "every": every, "columns": ", ".join(columns)}
    return _case(name, _with_texts(shape, key, *columns), question, params)


FAMILIES: Mapping[str, Callable[..., Case]] = {
    "windows": windows, "sessions": sessions, "rows": rows, "last_rows": last_rows,
}  # fmt: skip


def asked(text: str, quick: bool) -> Case:
    """The case of a family with parameters, such as `windows keys=1000 zipf=1.1 range=2h every=5m`.

    Parameters are those of the family and of `Shape`. Several aggregates are separated by commas.

    >>> asked("sessions keys=7 rows=1000 gap=1m aggregates=sum,max", quick=True).params["gap"]
    '1m'
    """
    family, *given = shlex.split(text)
    if family not in FAMILIES:
        raise ValueError(f"{family!r} is none of {', '.join(FAMILIES)}")
    values = dict(part.split("=", 1) for part in given)
    own = {n: t for n, t in get_type_hints(FAMILIES[family]).items() if n not in ("name", "shape", "return")}
    kinds = {**get_type_hints(Shape), **own}
    if unknown := values.keys() - kinds.keys():
        raise ValueError(f"{', '.join(sorted(unknown))}: {family} has {', '.join(sorted(kinds))}")
    read = {n: _read(kinds[n], v) for n, v in values.items()}
    rows = {"rows": 200_000 if quick else 8_000_000}
    shape = Shape(**rows | {n: v for n, v in read.items() if n not in own})
    return FAMILIES[family](f"asked/{text}", shape, **{n: v for n, v in read.items() if n in own})


def _read(kind: Any, text: str) -> Any:
    if kind is int:
        return int(float(text.replace("_", "")))
    if kind is float:
        return float(text)
    return tuple(text.split(",")) if kind == Names else text


def _with_texts(shape: Shape, *columns: str | None) -> Shape:
    needed = [t for t in TEXTS if t in columns or t in shape.texts]
    return dataclasses.replace(shape, texts=tuple(needed))


def _case(name: str, shape: Shape, question: Question, params: Mapping[str, Any]) -> Case:
    return Case(
        name,
        {**_described(shape), **params},
        question.systems(shape.streams),
        same_rows(*question.by),
        lambda: events(shape),
    )


def _described(shape: Shape) -> dict[str, Any]:
    """What is usual is not said."""
    found: dict[str, Any] = {"rows": shape.rows, "keys": shape.keys}
    if shape.zipf:
        found["zipf"] = shape.zipf
    if shape.value != "float64":
        found["value"] = shape.value
    if shape.disorder:
        found["disorder"] = f"{shape.disorder:g} s"
    whole = int(shape.hours)
    return {**found, "hours": whole if whole == shape.hours else shape.hours}
