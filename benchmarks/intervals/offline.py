"""In process: Tidemill on one thread and on two; DuckDB and Polars on two; pandas, which has one."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from benchmarks.answers import same_rows
from benchmarks.data import Tables
from benchmarks.harness import Asked, Case, Measured
from benchmarks.intervals import data, questions
from benchmarks.intervals.data import Pair
from benchmarks.questions import Question, evaluated, on_one_and_two

PANDAS = "pandas"


def cases(quick: bool) -> list[Case]:
    return compared(50_000, 100_000) if quick else compared(1_000_000, 10_000_000)


def compared(rows: int, many: int) -> list[Case]:
    """The cases of so many rows a side, and those that have `many`."""
    return [*_joins(rows, many), *_last(rows, many)]


def _joins(rows: int, many: int) -> Iterator[Case]:
    base, large = Pair(rows), Pair(many)
    each = functools.partial(_case, "offline")
    yield each("count and sum", base, questions.sums(base))
    # The range join, which compares pairs, is there at one size.
    yield each("count and sum, 10 times the rows", large, replace(questions.sums(large), plain=""))
    yield each("min and max", base, questions.extremes(base))
    yield each("bounds of each row", base, questions.of_each_row(base))
    others = {
        "rows in any order": Pair(rows, shuffled=True), "keys are strings": Pair(rows, named=True),
        "5 keys": Pair(rows, 5), "a tenth as many keys as rows": Pair(rows, rows // 10, 5),
        "1000 matches": Pair(rows, matches=1_000),
    }  # fmt: skip
    for name, pair in others.items():
        yield each(f"count and sum, {name}", pair, replace(questions.sums(pair), plain=""))


def _last(rows: int, many: int) -> Iterator[Case]:
    pairs = {
        "": Pair(rows), ", 10 times the rows": Pair(many), ", rows in any order": Pair(rows, shuffled=True),
        ", keys are strings": Pair(rows, named=True), ", 5 keys": Pair(rows, 5),
        ", a tenth as many keys as rows": Pair(rows, rows // 10),
    }  # fmt: skip
    for name, pair in pairs.items():
        case = _case("as-of", f"last order{name}", pair, questions.as_of(pair))
        if not pair.shuffled:
            case = replace(case, systems={**case.systems, PANDAS: _pandas()})
        yield case


def _case(group: str, name: str, pair: Pair, question: Question) -> Case:
    params = {"rows a side": pair.rows, "keys": pair.keys}
    if group == "offline":
        params["matches"] = pair.matches
    return on_one_and_two(
        f"{group}/{name}", params, question, pair.streams, lambda: data.given(pair),
        same_rows(*question.by), 2 * pair.rows,
    )  # fmt: skip


def _pandas() -> Callable[[Tables], Any]:
    return Asked(questions.MERGED, _merged)


def _merged(given: Tables) -> Measured:
    """What pandas answers, without the time in which its data frames are made."""
    import pandas as pd

    frames = {name: rows.to_pandas() for name, rows in given.arrow.items()}
    begin = time.perf_counter()
    answer = evaluated(questions.MERGED, {"pd": pd, **frames})
    seconds = time.perf_counter() - begin
    import polars as pl

    return Measured(pl.from_pandas(answer), seconds)
