"""A failing case made small: fewer rows, steps, windows, aggregates, columns, and plainer values."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from tests.fuzz.case import Case, differs

Test = Callable[[Case], bool]


def shrunk(case: Case, seconds: float = 60.0) -> Case:
    """A smaller case that still differs. Changes are tried until none helps or time is up."""
    until = time.monotonic() + seconds
    first = kind_of(differs(case))

    def fails(candidate: Case) -> bool:
        return time.monotonic() < until and kind_of(differs(candidate)) == first

    before = None
    while before != case and time.monotonic() < until:
        before = case
        case = _fewer_rows(case, fails)
        for candidates in (_simpler_source, _simpler_query, _fewer_columns, _plainer_values):
            case = _first_that_fails(case, candidates, fails)
    return case


def shrunk_by(case: Any, smaller: Any, differs: Any, seconds: float) -> Any:
    """The same for any kind of case, by a function that gives the candidates."""
    until = time.monotonic() + seconds
    first = kind_of(differs(case))

    def fails(candidate: Any) -> bool:
        return time.monotonic() < until and kind_of(differs(candidate)) == first

    return _first_that_fails(case, smaller, fails)


def kind_of(difference: str | None) -> str | None:
    """What a smaller case must have in common: wrong rows, no error, or the same error."""
    if difference is None or "rows came" in difference:
        return difference and str("error was expected" in difference)
    return re.sub(r"[\W\d]+", " ", difference)[:40]


def _first_that_fails(
    case: Any, candidates: Callable[[Any], Any], fails: Callable[[Any], bool]
) -> Any:
    again = True
    while again:
        again = False
        for candidate in candidates(case):
            if candidate != case and fails(candidate):
                case, again = candidate, True
                break
    return case


def _fewer_rows(case: Case, fails: Test) -> Case:
    size = len(case.rows)
    while size:
        at = 0
        while at < len(case.rows):
            fewer = replace(case, rows=case.rows[:at] + case.rows[at + size :])
            if fails(fewer):
                case = fewer
            else:
                at += size
        size = size // 2
    return case


def _simpler_source(case: Case) -> Iterator[Case]:
    if case.engine in ("threads1", "threads2"):
        yield replace(case, engine="local", how="table", salt="")
    if case.engine == "threads2":
        yield replace(case, engine="threads1")
    if case.engine == "local":
        for how in ("table", "chunked", "sliced"):
            if case.how in (how, "table"):
                break
            yield replace(case, how=how)
    if case.salt and case.how == "table":
        yield replace(case, salt="")


def _simpler_query(case: Case) -> Iterator[Case]:
    for query in _queries(case.query):
        yield replace(case, query=query)


def _queries(query: dict[str, Any]) -> Iterator[dict[str, Any]]:
    steps = query["steps"]
    if query["ordered"]:
        yield {**query, "ordered": False}
    for i in range(len(steps)):
        yield {**query, "steps": steps[:i] + steps[i + 1 :]}
    for i, step in enumerate(steps):
        for simpler in _steps(step):
            yield {**query, "steps": [*steps[:i], simpler, *steps[i + 1 :]]}


def _steps(step: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if step["op"] == "where":
        for expr in _smaller(step["pred"]):
            yield {**step, "pred": expr}
        return
    if step["op"] in ("with", "select"):
        cols = step["cols"]
        if len(cols) > 1:
            yield from ({**step, "cols": {n: cols[n]}} for n in cols)
        for name, expr in cols.items():
            yield from ({**step, "cols": {**cols, name: e}} for e in _smaller(expr))
        return
    aggs, windows, keys = step["aggs"], step["windows"], step["keys"]
    if len(aggs) > 1:
        yield from ({**step, "aggs": {n: aggs[n]}} for n in aggs)
        yield from ({**step, "aggs": {m: a for m, a in aggs.items() if m != n}} for n in aggs)
    if len(windows) > 1:
        yield from ({**step, "windows": [w]} for w in windows)
    yield from ({**step, "keys": [k for k in keys if k != key]} for key in keys)
    for i, window in enumerate(windows):
        for simpler in _windows(window):
            yield {**step, "windows": [*windows[:i], simpler, *windows[i + 1 :]]}
    for name, agg in aggs.items():
        for at, arg in enumerate(agg["args"]):
            for expr in _smaller(arg):
                args = [*agg["args"][:at], expr, *agg["args"][at + 1 :]]
                yield {**step, "aggs": {**aggs, name: {**agg, "args": args}}}


def _windows(window: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for option in ("fill", "origin", "start", "on", "order_by", "partition"):
        if window.get(option):
            yield {**window, option: None}
    for length in ("size", "range", "every", "gap"):
        for plain in (1, 2, 1_000_000):
            if 0 < plain < window.get(length, 0):
                yield {**window, length: plain}


def _smaller(expr: Any) -> Iterator[Any]:
    """An argument in place of the whole, or somewhere inside."""
    if not isinstance(expr, list) or expr[0] in ("col", "name", "lit"):
        return
    first = {"cast": 3, "udf": 2}.get(expr[0], 1)
    yield from (a for a in expr[first:] if isinstance(a, list))
    for at in range(first, len(expr)):
        for smaller in _smaller(expr[at]):
            yield [*expr[:at], smaller, *expr[at + 1 :]]


def _fewer_columns(case: Case) -> Iterator[Case]:
    schema = case.query["schema"]
    for name in schema:
        if name != "t":
            query = {**case.query, "schema": {n: k for n, k in schema.items() if n != name}}
            rows = [{n: v for n, v in row.items() if n != name} for row in case.rows]
            yield replace(case, query=query, rows=rows)


_PLAIN: dict[str, tuple[Any, ...]] = {
    "int": (0, 1), "float": (0.0, 1.0), "str": ("", "a"), "bool": (False,), "ts": (0,), "dur": (0,),
}  # fmt: skip


def _plainer_values(case: Case) -> Iterator[Case]:
    for i, row in enumerate(case.rows):
        for name, kind in case.query["schema"].items():
            plain = _PLAIN[kind]
            for value in plain[: plain.index(row[name])] if row[name] in plain else plain:
                changed = {**row, name: value}
                yield replace(case, rows=[*case.rows[:i], changed, *case.rows[i + 1 :]])
