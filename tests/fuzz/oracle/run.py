"""A whole query on rows: filters, columns, windows, and windows over those.

`answer` computes everything that the query names. Where that fails, an engine may still have an answer
if what failed is not part of it, because a column that nobody reads is not computed. So a second run is
lazy: if that fails too, every engine must fail; if not, an engine may fail or give the lazy answer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.fuzz.oracle.aggregates import aggregate
from tests.fuzz.oracle.expressions import evaluate
from tests.fuzz.oracle.values import Unsure, Wrong
from tests.fuzz.oracle.windows import group_keys, memberships

Query = dict[str, Any]
Row = dict[str, Any]


@dataclass
class Answer:
    """The rows; None where there is an error. `may_fail` allows an error besides."""

    rows: list[Row] | None
    may_fail: bool = False
    sure: bool = True
    reason: str = ""
    before_start: int | None = None
    """How many rows lie before the start of all windows; None where that was not looked at."""


def answer(query: Query, rows: list[Row]) -> Answer:
    """What every engine must say of these rows, in this order of arrival."""
    try:
        try:
            found = _run(query, rows, lazy=False)
            return Answer(found, before_start=_before_start(query, rows))
        except Wrong as wrong:
            try:
                return Answer(_run(query, rows, lazy=True), may_fail=True, reason=str(wrong))
            except Wrong as still:
                return Answer(None, may_fail=True, reason=str(still))
    except Unsure as unsure:
        return Answer(None, sure=False, reason=str(unsure))


class Cell:
    """A value that is computed when it is first asked for."""

    __slots__ = ("compute", "value")

    def __init__(self, compute: Callable[[], Any]) -> None:
        self.compute: Callable[[], Any] | None = compute

    def get(self) -> Any:
        if self.compute is not None:
            self.value, self.compute = self.compute(), None
        return self.value


def _getter(row: Row) -> Callable[[str], Any]:
    def get(name: str) -> Any:
        value = row[name]
        return value.get() if type(value) is Cell else value

    return get


def _run(query: Query, given: list[Row], *, lazy: bool) -> list[Row]:
    columns, time = list(query["schema"]), "t"
    rows = given
    if query.get("ordered"):
        times = [r["t"] for r in rows if r["t"] is not None]
        if times != sorted(times):
            raise Wrong("rows out of order")

    def cell(compute: Callable[[], Any]) -> Any:
        return Cell(compute) if lazy else compute()

    for step in query["steps"]:
        op = step["op"]
        if op == "where":
            rows = [r for r in rows if evaluate(step["pred"], _getter(r)) is True]
        elif op in ("with", "select"):
            keep = columns if op == "with" else [time, *(n for n in step["names"] if n != time)]
            made = []
            for row in rows:
                get = _getter(row)
                new = {n: row[n] for n in keep}
                for name, expr in step["cols"].items():
                    new[name] = cell(lambda e=expr, g=get: evaluate(e, g))
                made.append(new)
            columns = [*keep, *(n for n in step["cols"] if n not in keep)]
            rows = made
        else:
            rows, columns = _windowed(step, rows, columns, time, cell)
            time = "window_start"
    return [{n: _getter(r)(n) for n in columns} for r in rows]


def _before_start(query: Query, rows: list[Row]) -> int | None:
    """Of a query with one step of windows."""
    at = [i for i, step in enumerate(query["steps"]) if step["op"] == "window"]
    if len(at) != 1:
        return None
    windows = query["steps"][at[0]]["windows"]
    starts = [w.get("start") or (0 if w["kind"] == "landmark" else w.get("start")) for w in windows]
    if None in starts or windows[0]["kind"] == "rows":
        return 0
    seen = _run({**query, "steps": query["steps"][: at[0]]}, rows, lazy=True)
    return sum(row[windows[0].get("on") or "t"] < min(starts) for row in seen)


def _windowed(
    step: dict[str, Any], rows: list[Row], columns: list[str], time: str, cell: Callable[..., Any]
) -> tuple[list[Row], list[str]]:
    gets = [_getter(r) for r in rows]
    specs = step["windows"]
    out = group_keys(step["keys"], specs)
    several = len(specs) > 1
    made = []
    for spec in specs:
        for key, start, end, members in memberships(spec, gets, step["keys"], out, time, columns):
            row = dict(zip(out, key))
            if several:
                row["window"] = spec["label"]
            row["window_start"], row["window_end"] = start, end
            for name, agg in step["aggs"].items():
                row[name] = cell(lambda a=agg, m=members: aggregate(a, m, time))
            made.append(row)
    label = ["window"] if several else []
    return made, [*out, *label, "window_start", "window_end", *step["aggs"]]
