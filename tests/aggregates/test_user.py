"""User-defined aggregates: recorded, compiled as they are, or row by row — always the same answer."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import tidemill as tm
from tests.conformance.harness import assert_same, by_reference, locally
from tidemill import col
from tidemill.aggregates.algebra import Aggregate, Form, OpaqueForm
from tidemill.codegen.state_plan import plan_states
from tidemill.core.errors import UserError
from tidemill.plan.nodes import WindowAggregate
from tidemill.stream import Stream

STREAM = tm.stream(
    "s", time="t", schema={"t": "int64", "k": "int64", "v": "int64", "x": "float64", "s": "string"}
)
ROWS: list[dict[str, Any]] = [
    {"t": t, "k": t % 2, "v": (t * 5) % 7 - 2, "x": None if t % 5 == 0 else t / 4, "s": "abc"[: t % 4]}
    for t in range(-9, 20)
]


def ask(aggregate: Aggregate, window: tm.Window | None = None) -> Stream:
    return STREAM.group_by("k").window(window or tm.hopping(8, every=2)).agg(r=aggregate)


def of(name: str, *, identity: Any, lift: Any, combine: Any, lower: Any = lambda s: s, **more: Any) -> Any:
    return tm.aggregate(name, identity=lambda: identity, lift=lift, combine=combine, lower=lower, **more)


def bigger(a: float, b: float) -> float:
    return a if a > b else b


AGGREGATES: dict[str, tuple[Aggregate, str]] = {
    "recorded scalar": (
        of("a", identity=0, lift=lambda v: v * v, combine=lambda a, b: a + b)(col.v), "records",
    ),
    "recorded pair": (
        of("b", identity=(0.0, 0), lift=lambda x: (x, 1), combine=lambda a, b: (a[0] + b[0], a[1] + b[1]),
           lower=lambda s: s[0] / s[1])(col.x), "records",
    ),
    "recorded with tm functions": (
        of("c", identity=(-math.inf, math.inf), lift=lambda x: (x, x),
           combine=lambda a, b: (tm.greatest(a[0], b[0]), tm.least(a[1], b[1])),
           lower=lambda s: s[0] - s[1])(col.x), "records",
    ),
    "two arguments": (
        of("d", identity=(0.0, 0.0), lift=lambda x, w: (x * w, w),
           combine=lambda a, b: (a[0] + b[0], a[1] + b[1]), lower=lambda s: s[0] / s[1])(col.x, col.v + 3),
        "records",
    ),
    "recorded state, opaque lower": (
        of("e", identity=0, lift=lambda v: v, combine=lambda a, b: a + b,
           lower=lambda s: "up" if s > 0 else "down")(col.v), "objects",
    ),
    "compiled by Numba": (of("f", identity=-math.inf, lift=lambda x: x, combine=bigger)(col.x), "records"),
    "compiled, with a module": (
        of("g", identity=(0.0, 0), lift=lambda x: (math.sqrt(abs(x)), 1),
           combine=lambda a, b: (a[0] + b[0], a[1] + b[1]), lower=lambda s: s[0] / max(s[1], 1))(col.x),
        "records",
    ),
    "row by row": (
        of("h", identity=1, lift=lambda v: Fraction(abs(v) + 1, 6).denominator,
           combine=lambda a, b: math.lcm(a, b))(col.v), "objects",
    ),
    "over text": (
        of("i", identity=0, lift=lambda s: len(s) if s else 0, combine=lambda a, b: a + b)(col.s),
        "objects",
    ),
    "state of text": (
        of("j", identity="", lift=lambda s: s, combine=lambda a, b: a if len(a) >= len(b) else b)(col.s),
        "objects",
    ),
    "in order": (
        of("l", identity=(0.0, 0.0, 0), lift=lambda x: (x, x, 1),
           combine=lambda a, b: (tm.when(a[2] == 0).then(b[0]).otherwise(a[0]),
                                 tm.when(b[2] == 0).then(a[1]).otherwise(b[1]), a[2] + b[2]),
           lower=lambda s: s[1] - s[0], commutative=False)(col.x), "ordered",
    ),
    "in order, row by row": (
        of("m", identity="", lift=lambda v: str(v), combine=lambda a, b: a + b, commutative=False)(col.v),
        "row_objects",
    ),
    "text in a recorded lower": (
        of("o", identity=0, lift=lambda v: v, combine=lambda a, b: a + b,
           lower=lambda s: tm.when(s > 0).then("up").otherwise("down"))(col.v), "objects",
    ),
    "text that is recorded": (
        of("p", identity="", lift=lambda s: s, combine=lambda a, b: a + b, commutative=False)(col.s),
        "row_objects",
    ),
    "empty is nought": (
        of("n", identity=0, lift=lambda x: 1, combine=lambda a, b: a + b, empty=0)(col.x), "records",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", AGGREGATES)
def test_against_the_reference(name: str) -> None:
    query = ask(AGGREGATES[name][0])
    assert_same(locally(query, ROWS), by_reference(query, ROWS), query.schema)


@pytest.mark.parametrize("name", ["row by row", "in order", "in order, row by row"])
def test_over_windows_that_follow_the_data(name: str) -> None:
    query = ask(AGGREGATES[name][0], tm.session(2))
    assert_same(locally(query, ROWS), by_reference(query, ROWS), query.schema)


@pytest.mark.parametrize("name", AGGREGATES)
def test_how_its_state_is_kept(name: str) -> None:
    aggregate, kept = AGGREGATES[name]
    plan = ask(aggregate).optimized
    assert isinstance(plan, WindowAggregate)
    assert 0 in getattr(plan_states(plan.layout), kept)


def test_what_can_be_recorded_is_and_the_rest_is_opaque() -> None:
    for name, (aggregate, _) in AGGREGATES.items():
        plan = ask(aggregate).optimized
        assert isinstance(plan, WindowAggregate)
        form = plan.layout.parts[0].form
        opaque = ("compiled", "row by row", "over text", "state of text", "in order, row")
        assert isinstance(form, OpaqueForm if name.startswith(opaque) else Form), name


def test_the_spelling_of_an_expression_is_not_its_value() -> None:
    with pytest.raises(tm.UserError, match="no text until it meets a row"):
        STREAM.where(lambda e: f"{e.v}" == "3")
    assert str(col.v + 1) == "(col.v + 1)"


def test_identity_and_lift_must_have_as_many_fields() -> None:
    broken = of("broken", identity=(0, 0), lift=lambda v: (v,), combine=lambda a, b: (a[0] + b[0], 0))
    with pytest.raises(tm.UserError, match="broken"):
        locally(ask(broken(col.v)), ROWS)


@pytest.mark.parametrize("what", ["identity", "lift", "combine", "lower", "inverse", "accumulate"])
def test_what_is_no_function_is_refused(what: str) -> None:
    functions: dict[str, Any] = {
        "identity": lambda: 0, "lift": lambda v: v, "combine": max, "lower": lambda a: a, what: 0,
    }  # fmt: skip
    hint = r" — write identity=lambda: 0" if what == "identity" else ""
    with pytest.raises(UserError, match=f"^aggregate most: expected {what} to be a function, got 0{hint}$"):
        tm.aggregate("most", **functions)


def test_explain_says_which_functions_are_compiled_again() -> None:
    weights = np.array([1.0, 2.0])
    cached = of("f", identity=-math.inf, lift=lambda x: x, combine=bigger)(col.x)
    again = of("r", identity=0.0, lift=lambda x: weights[int(x > 1.0)], combine=bigger)(col.x)
    shown = ask(cached).explain().sections["local"]
    assert "f(col.x)   [compiled by Numba as it is; " in shown
    assert "again" not in shown
    shown = ask(again).explain().sections["local"]
    assert "by Numba as it is, again in each process: weights is a ndarray, which may change" in shown


@pytest.mark.compiled
def test_a_compiled_inverse_subtracts_what_leaves() -> None:
    sizes = of(
        "sizes", identity=(0, 0), lift=lambda v: (v if v > 0 else -v, 1),
        combine=lambda a, b: (a[0] + b[0], a[1] + b[1]), inverse=lambda a, b: (a[0] - b[0], a[1] - b[1]),
        lower=lambda s: s[0] * 10 + s[1],
    )  # fmt: skip
    query = ask(sizes(col.v), tm.per_event(9))
    assert "compiled by Numba as it is; subtract on evict" in query.explain().sections["local"]
    assert_same(locally(query, ROWS), by_reference(query, ROWS), query.schema)


def test_accumulate_alone_says_what_a_row_adds() -> None:
    biggest = tm.aggregate(
        "biggest", identity=lambda: -math.inf, accumulate=bigger, combine=bigger, lower=lambda s: s
    )
    query = ask(biggest(col.x))
    assert "[compiled by Numba as it is; " in query.explain().sections["local"]
    assert_same(locally(query, ROWS), by_reference(query, ROWS), query.schema)


def test_rows_of_one_time_are_taken_in_order_of_value_in_whatever_batch_they_come() -> None:
    query = STREAM.window(tm.tumbling(10)).agg(r=AGGREGATES["in order, row by row"][0])
    rows = [{**ROWS[0], "t": t, "v": v} for t, v in ((2, 2), (15, 3), (15, 1))]
    live = query.live()
    found = [live.push(s=rows[:2]), live.punctuate(12), live.push(s=rows[2:]), live.flush()]
    assert [r for table in found for r in table["r"].to_pylist()] == ["2", "13"]
