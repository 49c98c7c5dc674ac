"""What holds at each instant, counted one by one: neither the definition nor an engine is asked for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidemill as tm
from tests.examples import examples
from tidemill import col
from tidemill.core.errors import UserError
from tidemill.plan.nodes import sources
from tidemill.reference.run import run as run_reference
from tidemill.stream import Stream

Row = dict[str, Any]
Pair = tuple[Any, Any]
COLUMNS = {"k": "int64", "v": "int64"}
A = tm.stream("a", time="t", end="u", schema={"t": "int64", "u": "int64", **COLUMNS})
B = tm.stream("b", time="t", end="u", schema={"t": "int64", "u": "int64", **COLUMNS})
INSTANTS = range(-3, 26)
"""All rows start within; what never ends holds up to the last one."""


def at(rows: list[Row], instant: int, start: str = "t", end: str = "u") -> list[Pair]:
    """The payloads of rows that hold at an instant."""
    return [(r["k"], r["v"]) for r in rows if r[start] <= instant and (r[end] is None or instant < r[end])]


def equal(one: Any, other: Any) -> bool:
    return one is not None and one == other


def _left(a: list[Pair], b: list[Pair]) -> list[Any]:
    return [(k, v, w) for k, v in a for w in [w for j, w in b if equal(k, j)] or [None]]


def _outer(a: list[Pair], b: list[Pair]) -> list[Any]:
    alone = [(j, None, w) for j, w in b if not any(equal(k, j) for k, _ in a)]
    return _left(a, b) + alone


def _counts(a: list[Pair]) -> list[Any]:
    return [(k, n) for k, n in Counter(k for k, _ in a).items()]


def _sums(a: list[Pair]) -> list[Any]:
    known = [v for _, v in a if v is not None]
    return [(len(a), sum(known) if known else None, max(known, default=None))] if a else []


def _top(a: list[Pair], count: int) -> list[Any]:
    # By the value, then by the other column; null is below all others.
    low = -99
    return sorted(a, key=lambda p: (low if p[1] is None else p[1], low if p[0] is None else p[0]))[-count:]


def _left_of(a: Stream, b: Stream, how: str) -> Stream:
    return a.join(b, on="k", how=how).select("k", "v", w="v_right")


AT_ONCE: dict[str, tuple[Stream, Callable[[list[Pair], list[Pair]], list[Any]]]] = {
    "where": (A.where(col.v > 1), lambda a, b: [p for p in a if p[1] is not None and p[1] > 1]),
    "select": (A.select(z=col.v + 1), lambda a, b: [(None if v is None else v + 1,) for _, v in a]),
    "union": (A.union(B), lambda a, b: a + b),
    "stitch": (A.stitch(), lambda a, b: a),
    "chop": (A.chop(4), lambda a, b: a),
    "join": (
        A.join(B, on="k").select("k", "v", w="v_right"),
        lambda a, b: [(k, v, w) for k, v in a for j, w in b if equal(k, j)],
    ),
    "join where": (
        A.join(B, where=lambda l, r: l.v < r.v).select("k", "v", w="v_right"),
        lambda a, b: [(k, v, w) for k, v in a for _, w in b if None not in (v, w) and v < w],
    ),
    "left": (_left_of(A, B, "left"), _left),
    "right": (
        _left_of(A, B, "right"), lambda a, b: [(k, v, w) for k, w, v in _left(b, a)],
    ),
    "outer": (_left_of(A, B, "outer"), _outer),
    "where_exists": (
        A.where_exists(B, on="k"), lambda a, b: [p for p in a if any(equal(p[0], j) for j, _ in b)],
    ),
    "where_not_exists": (
        A.where_not_exists(B, on="k"), lambda a, b: [p for p in a if not any(equal(p[0], j) for j, _ in b)],
    ),
    "agg": (A.agg(n=tm.count(), s=tm.sum(col.v), m=tm.max(col.v)), lambda a, b: _sums(a)),
    "agg by key": (A.group_by("k").agg(n=tm.count()), lambda a, b: _counts(a)),
    "distinct": (A.distinct("k"), lambda a, b: [(k,) for k in {k for k, _ in a}]),
    "top": (A.top(2, by="v"), lambda a, b: _top(a, 2)),
    "apply": (
        A.group_by("k").apply(lambda g: g.top(1, by="v")),
        lambda a, b: [p for k in {k for k, _ in a} for p in _top([q for q in a if q[0] == k], 1)],
    ),
}  # fmt: skip
"""Operators whose result at an instant is made of what holds then."""


_ROW = st.builds(
    lambda t, length, k, v: {"t": t, "u": None if length is None else t + length, "k": k, "v": v},
    st.integers(0, 12), st.none() | st.integers(1, 8), st.none() | st.integers(0, 2),
    st.none() | st.integers(0, 4),
)  # fmt: skip
ROWS = st.lists(_ROW, max_size=9)


def answers(query: Stream, given: dict[str, list[Row]]) -> list[list[Row]]:
    """What the definition and this process say."""
    inputs = {s.name: given[s.name] for s in sources(query.plan)}
    return [run_reference(query.plan, inputs), query.run(**inputs).to_pylist()]


def held(query: Stream, rows: list[Row], instant: int) -> Counter[Any]:
    start, end = query.plan.time, query.plan.end
    names = [n for n in query.schema.names if n not in (start, end)]
    return Counter(
        tuple(row[n] for n in names)
        for row in rows
        if row[start] <= instant
        and (instant == row[start] if end is None else row[end] is None or instant < row[end])
    )


@pytest.mark.parametrize("name", AT_ONCE)
@examples(5, of=60)
@given(a=ROWS, b=ROWS)
def test_what_holds_at_an_instant(name: str, a: list[Row], b: list[Row]) -> None:
    query, by_hand = AT_ONCE[name]
    for rows in answers(query, {"a": a, "b": b}):
        for instant in INSTANTS:
            expected = Counter(by_hand(at(a, instant), at(b, instant)))
            assert held(query, rows, instant) == expected, (name, instant)


AT_OTHER_TIMES: dict[str, tuple[Stream, Callable[[Row, list[Row], list[Row], int], bool]]] = {
    "shift": (A.shift(3), lambda r, a, b, i: bool(at([r], i - 3))),
    "extend": (A.extend(2), lambda r, a, b, i: any(at([r], i - d) for d in range(3))),
    "lasting": (A.lasting(4), lambda r, a, b, i: r["t"] <= i < r["t"] + 4),
    "at_most": (A.at_most(4), lambda r, a, b, i: bool(at([r], i)) and i < r["t"] + 4),
    "at_start": (A.at_start(), lambda r, a, b, i: r["t"] == i),
    "at_end": (A.at_end(), lambda r, a, b, i: r["u"] == i),
    "quantised": (
        A.quantised(6, every=2), lambda r, a, b, i: r["t"] < i - i % 2 <= r["t"] + 6,
    ),
    "clip": (
        A.clip(B, on="k"),
        lambda r, a, b, i: bool(at([r], i)) and not any(
            equal(r["k"], o["k"]) and r["t"] < o["t"] <= i for o in b),
    ),
    "until_next": (
        A.until_next("k"),
        lambda r, a, b, i: r["t"] <= i and not any(
            o["k"] == r["k"] and r["t"] < o["t"] <= i for o in a),
    ),
    "until_session_end": (
        A.until_session_end(3, "k"),
        lambda r, a, b, i: r["t"] <= i < min(
            e + 3 for e in (o["t"] for o in a if o["k"] == r["k"])
            if e >= r["t"] and not any(o["k"] == r["k"] and e < o["t"] < e + 3 for o in a)),
    ),
    "sample": (A.sample(5), lambda r, a, b, i: bool(at([r], i)) and i % 5 == 0),
}  # fmt: skip
"""Operators that say of each row at which instants it holds."""


@pytest.mark.parametrize("name", AT_OTHER_TIMES)
@examples(5, of=60)
@given(a=ROWS, b=ROWS)
def test_when_a_row_holds(name: str, a: list[Row], b: list[Row]) -> None:
    query, holds = AT_OTHER_TIMES[name]
    last = 99
    if name == "sample":  # what never ends is sampled up to the last start or end
        last = max((t for r in a for t in (r["t"], r["u"]) if t is not None), default=0)
    for rows in answers(query, {"a": a, "b": b}):
        for instant in (i for i in INSTANTS if i <= last):
            expected = Counter((r["k"], r["v"]) for r in a if holds(r, a, b, instant))
            assert held(query, rows, instant) == expected, (name, instant)


def test_the_instants_see_a_wrong_answer() -> None:
    rows = [{"t": 1, "u": 4, "k": 1, "v": 2}]
    assert held(A, rows, 3) == Counter([(1, 2)])
    assert held(A, rows, 4) == Counter()
    with pytest.raises(UserError, match="'u' after 't'"):
        A.stitch().run(a=[{"t": 4, "u": 4, "k": 1, "v": 2}])
