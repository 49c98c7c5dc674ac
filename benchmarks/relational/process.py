"""In process: Tidemill on one and on two threads, DuckDB and Polars on two."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import tidemill as tm
from benchmarks.answers import same_rows
from benchmarks.harness import Case
from benchmarks.questions import Question, on_one_and_two
from benchmarks.relational import data, questions


def cases(quick: bool) -> list[Case]:
    return compared((300_000, 10_000, 75_000), 100_000, 0.01) if quick else compared(
        (24_000_000, 800_000, 6_000_000), 4_000_000, 2.0
    )  # fmt: skip


def compared(gen_data: tuple[int, int, int], searches: int, scale: float) -> list[Case]:
    """The cases over GenData of some sizes, over so many searches, and over TPC-H of some scale."""
    n, d, m = gen_data
    lines = int(6_000_000 * scale)
    log = lambda: data.log(searches)
    of_log = functools.partial(_case, rows=searches, streams={"log": data.LOG}, given=log)
    return [
        *(
            _case(
                "gen data", name, q, rows=n, params={"rows": n, "distinct": d, "rows of t2": m},
                streams={"t1": data.T1, "t2": data.T2} if "t2" in q.tidemill else {"t1": data.T1},
                given=lambda: data.gen_data(n, d, m),
            )
            for name, q in questions.GEN_DATA.items()
        ),
        of_log("queries", "TermComparison", questions.TERM_COMPARISON),
        of_log("queries", "TopCorrelated", questions.TOP_CORRELATED),
        _case(
            "queries", "TPC-H Q1 without its filter", questions.Q1, rows=lines, params={"scale": scale},
            streams={"lineitem": data.LINEITEM}, given=lambda: data.lineitem(scale),
        ),
        *(of_log("strings", name, q) for name, q in questions.STRINGS.items()),
    ]  # fmt: skip


def _case(
    group: str, name: str, question: Question, *, rows: int, streams: Mapping[str, tm.Stream],
    given: Callable[[], Any], params: Mapping[str, Any] | None = None,
) -> Case:  # fmt: skip
    return on_one_and_two(
        f"{group}/{name}", params or {"rows": rows}, question, streams, given, same_rows(*question.by), rows
    )
