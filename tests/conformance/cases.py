"""The queries of the conformance suite: every window kind, every family of aggregates, awkward data.

Generated kernels are interpreted here (`tests/conftest.py`); `SAMPLE` is compiled, and in `make soak` all.
Shapes are few and data are many: a shape is compiled once, whatever it runs on. Values are null all
together or not at all, so that a batch has two shapes and not one for each set of nullable columns;
nulls in one argument alone have their own tests.
"""

from __future__ import annotations

import functools
import math
import random
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import strategies as st

import tidemill as tm
from tests.conformance.user_states import (
    distinct_pairs,
    last_three,
    less,
    longest_run,
    middle,
    mode,
    run_off,
    unseen,
)  # fmt: skip
from tidemill import col
from tidemill.aggregates.algebra import Aggregate
from tidemill.stream import Stream
from tidemill.windows.spec import Window

Row = dict[str, Any]

SCHEMA = {
    "t": "int64", "n": "int64", "u": "int64", "k": "int64", "s": "string",
    "x": "float64", "v": "int64", "b": "bool",
}  # fmt: skip
STREAM = tm.stream("s", time="t", schema=SCHEMA)

WINDOWS: dict[str, Window] = {
    "tumbling": tm.tumbling(4),
    "tumbling on another column": tm.tumbling(4, on="u"),
    "hopping": tm.hopping(6, every=2),
    "hopping, many panes": tm.hopping(24, every=2),
    "hopping, range no multiple of slide": tm.hopping(6, every=4),
    "hopping, origin": tm.hopping(6, every=4, origin=-5),
    "hopping, sampling": tm.hopping(4, every=6),
    "hopping, filled": tm.hopping(4, every=2, fill_empty=True),
    "landmark": tm.landmark(6, start=-6),
    "rows": tm.rows(6, every=2, order_by="n"),
    "rows, partitioned": tm.rows(6, every=2, partition_by="k", order_by="n"),
    "per_event": tm.per_event(6),
    "per_event, whole stream": tm.per_event(6, partition_by=[]),
    "per_event, n-th": tm.per_event(6, every=3, order_by="n"),
    "per_event, n-th by rank": tm.per_event(6, every=3, by="rank"),
    "session": tm.session(3),
    "session, whole stream": tm.session(3, partition_by=[]),
}
ARRIVAL: dict[str, Window] = {
    "rows": tm.rows(6, every=2),
    "rows, partitioned": tm.rows(6, every=2, partition_by="k"),
    "per_event, n-th": tm.per_event(6, every=3),
    "per_event, n-th, whole stream": tm.per_event(6, every=3, partition_by=[]),
}
"""Windows that count rows as they arrive, and so depend on the order of arrival."""

root_mean_square = tm.aggregate(
    "root_mean_square",
    identity=lambda: (0.0, 0),
    lift=lambda x: (x * x, 1),
    combine=lambda a, b: (a[0] + b[0], a[1] + b[1]),
    lower=lambda s: (s[0] / s[1]).sqrt(),
)
mean_log = tm.aggregate(  # math.log cannot be recorded, but Numba compiles it
    "mean_log",
    identity=lambda: (0.0, 0),
    lift=lambda x: (math.log(1.0 + abs(x)), 1),
    combine=lambda a, b: (a[0] + b[0], a[1] + b[1]),
    lower=lambda s: s[0] / s[1],
    returns="float64",
)
thirds = tm.aggregate(  # Numba knows no fractions
    "thirds",
    identity=lambda: 0,
    lift=lambda v: Fraction(v, 3).denominator,
    combine=lambda a, b: a + b,
    lower=lambda s: s * 2,
)

FAMILIES: dict[str, dict[str, Aggregate]] = {
    "counting": {
        "rows": tm.count(), "xs": tm.count(col.x), "some": tm.count_if(col.v > 0),
        "any": tm.any(col.b), "all": tm.all(col.b),
    },
    "sums": {
        "sum_v": tm.sum(col.v), "sum_x": tm.sum(col.x), "mean_v": tm.mean(col.v),
        "mean_x": tm.mean(col.x), "product_x": tm.product(col.x), "product_v": tm.product(col.v % 3),
    },
    "extremes": {
        "min_x": tm.min(col.x), "max_x": tm.max(col.x), "max_v": tm.max(col.v),
        "min_s": tm.min(col.s), "max_s": tm.max(col.s),
    },
    "moments": {
        "var": tm.var(col.x), "std": tm.std(col.x), "var0": tm.var(col.x, ddof=0),
        "cov": tm.covariance(col.x, col.v), "corr": tm.correlation(col.x, col.v),
    },
    "ordered": {
        "last_x": tm.last(col.x), "first_s": tm.first(col.s), "arg_max": tm.arg_max(col.v, col.x),
        "arg_min": tm.arg_min(col.v, col.s),
    },
    "paths": {"drawdown": tm.drawdown(col.x), "ewma": tm.ewma(col.x, half_life=4)},
    "holistic": {
        "q": tm.quantile(col.x, 0.3), "median": tm.median(col.v),
        "different": tm.distinct_count(col.s), "different_x": tm.distinct_count(col.x),
        "top": tm.top_k(col.x, 2), "bottom": tm.bottom_k(col.v, 3), "top_s": tm.top_k(col.s, 2),
        "collected": tm.collect(col.x), "collected_s": tm.collect(col.s),
        "first_k": tm.first_k(col.s, 2), "last_k": tm.last_k(col.x, 2),
        "rows": tm.top_rows("x", "n", "s", k=2),
        "entropy": tm.entropy(col.s),
    },
    "histograms": {
        "count_by": tm.count_by(col.s), "sum_by": tm.sum_by(col.v, col.s),
        "mean_by": tm.mean_by(col.x, col.s), "min_by": tm.min_by(col.x, col.v),
        "max_by": tm.max_by(col.v, col.s), "top_keys": tm.top_keys(col.s, 2),
        "count_by_x": tm.count_by(col.x),
    },
    "sketches": {
        "hll": tm.distinct_count(col.v, method="hll"), "hll_s": tm.distinct_count(col.s, method="hll"),
        "kll": tm.quantile(col.x, 0.5, method="kll"),
    },
    "user": {
        "recorded": root_mean_square(col.x), "compiled": mean_log(col.x), "row_by_row": thirds(col.v),
    },
    "containers": {
        "mode": mode()(col.v), "by_rows": mode(subtract=unseen)(col.v), "by_state": mode(inverse=less)(col.v),
        "pairs": distinct_pairs(col.v, col.s), "middle": middle(col.v),
        "of_text": mode("string", subtract=unseen)(col.s),
    },
    "containers in order": {
        "run": longest_run()(col.v), "by_rows": longest_run(subtract=run_off)(col.v),
        "last": last_three(col.s),
    },
    "one of each": {
        "n": tm.count(), "sum": tm.sum(col.v), "max": tm.max(col.x), "std": tm.std(col.x),
        "last": tm.last(col.s), "ewma": tm.ewma(col.x, half_life=4), "median": tm.median(col.x),
        "sum_by": tm.sum_by(col.v, col.s), "hll": tm.distinct_count(col.s, method="hll"),
        "recorded": root_mean_square(col.x), "row_by_row": thirds(col.v),
    },
    "few": {
        "n": tm.count(), "sum": tm.sum(col.v), "max": tm.max(col.x), "collected": tm.collect(col.s),
    },
}  # fmt: skip
"""`one of each` has an aggregate of every family but `paths`, whose drawdown needs rows in order;
`few` is quick, for arbitrary data."""


COUNTING_ROWS = ("per_event, n-th", "per_event, n-th by rank")
"""Windows that keep a count of their own besides the aggregates, and so have kernels of their own."""

VARIANTS = (
    *COUNTING_ROWS, "hopping", "hopping, range no multiple of slide", "hopping, origin", "landmark",
    "rows", "rows, partitioned",
)  # fmt: skip
"""Windows whose loops are those of another, around one more check or with fewer panes."""

EVERY = [pytest.param(w, marks=pytest.mark.soak if w in VARIANTS else ()) for w in WINDOWS]
"""Windows for tests that compile each of them once more: variants are for the soak."""

WHOLE = ("hopping, many panes", "per_event", "session")
"""One window of each way to close windows: with every family in every run."""

SOME = ("tumbling", "hopping, many panes", "rows, partitioned", "per_event, n-th by rank", "session")
"""One window of each kind: on many rows, from every source, on Spark (`test_engines_agree`)."""

BY_EACH_WAY = ("hopping, many panes", "session")
"""On many rows on Spark: partials of panes, and rows of a key together. Other kinds are for the soak there;
`test_definition_spark` has them on fewer rows."""

SAMPLE = [("hopping, many panes", f) for f in ("paths", "holistic", "sketches")]
"""What is compiled in every run. `test_engines_agree` compiles `one of each`, and so the other families, in
several kinds of windows."""

COMBINATIONS = [
    (window, family)
    for window in WINDOWS
    for family in FAMILIES
    if family == "one of each" or (family != "few" and window not in VARIANTS)
]
"""Every window with every family; for variants, which would only compile the same again, `one of
each` stands for the families."""

LATER = [
    (window, family)
    for i, (window, family) in enumerate(COMBINATIONS)
    if window not in WHOLE and family != "one of each" and i % 3
]
"""Two of three others are for the soak: each is compiled by itself there, which takes longer than it runs."""


def marks_of(window: str, family: str) -> list[pytest.MarkDecorator]:
    """When a combination runs, and whether it is compiled."""
    case = (window, family)
    found = [(pytest.mark.soak, case in LATER), (pytest.mark.compiled, case in SAMPLE)]
    return [mark for mark, holds in found if holds]


@functools.cache
def ask(window: Window, family: str, *keys: str) -> Stream:
    """All aggregates of a family over one window, by key."""
    return STREAM.group_by(*keys or ("k",)).window(window).agg(**FAMILIES[family])


# --- data -----------------------------------------------------------------------------------------

XS = (0.0, -0.0, 0.5, -0.5, 1.0, 1.5, 1.5, -2.25, 3.0, 100.125, math.nan)
WORDS = ("", "a", "A", "ab", "ab", "é", "b", None)


def numbered(rows: list[Row]) -> list[Row]:
    """Rows with `n`, the number of each by arrival."""
    return [{**row, "n": n} for n, row in enumerate(rows)]


def seeded(size: int, seed: int, *, span: int = 40, keys: int = 3) -> list[Row]:
    """Rows full of ties, nulls, NaN and negative times; a few keys are rare."""
    pick = random.Random(seed)
    made = []
    for _ in range(size):
        gone = pick.random() < 0.15
        made.append(
            {
                "t": pick.randint(-span // 2, span // 2), "u": pick.randint(-9, 9),
                "k": None if pick.random() < 0.1 else int(keys * pick.random() ** 2),
                "s": pick.choice(WORDS),
                "x": None if gone else pick.choice(XS),
                "v": None if gone else pick.randint(-5, 9),
                "b": None if gone else pick.random() < 0.5,
            }
        )
    return numbered(made)


TYPICAL = seeded(70, seed=3)


def _row(values: tuple[Any, ...] | None, t: int, u: int, k: int | None, s: str | None) -> Row:
    x, v, b = values or (None, None, None)
    return {"t": t, "u": u, "k": k, "s": s, "x": x, "v": v, "b": b}


ROWS: st.SearchStrategy[list[Row]] = st.lists(
    st.builds(
        _row,
        st.none() | st.tuples(st.sampled_from(XS), st.integers(-5, 9), st.booleans()),
        st.integers(-15, 15),
        st.integers(-9, 9),
        st.none() | st.integers(0, 2),
        st.sampled_from(WORDS),
    ),
    max_size=24,
).map(numbered)
