"""The algebra: what is recorded, what is shared, what stays opaque."""

from __future__ import annotations

import math
import pickle

import pytest

import tidemill as tm
from tidemill import col
from tidemill.aggregates.algebra import Aggregate, Algebra, Form, OpaqueForm, form_of
from tidemill.aggregates.basic import COUNT, MAX, MIN, SUM
from tidemill.aggregates.layout import layout
from tidemill.aggregates.ordered import _ewma
from tidemill.core.schema import schema
from tidemill.core.types import FLOAT64, INT64, STRING, TIMESTAMP
from tidemill.expr.nodes import Node
from tidemill.plan.nodes import WindowAggregate

S = schema({"t": "timestamp", "x": "int64", "f": "float64", "s": "string"})


STREAM = tm.stream("s", time="t", schema=S)


def parts(**aggregates: Aggregate) -> list[str]:
    plan = STREAM.window(tm.tumbling("1h")).agg(**aggregates).plan
    assert isinstance(plan, WindowAggregate)
    return [str(p.part) for p in plan.layout.parts]


def test_several_aggregates_share_one_state() -> None:
    assert parts(
        n=tm.count(col.x), total=tm.sum(col.x), mean=tm.mean(col.x), again=tm.sum(col.x)
    ) == ["count(col.x)", "sum(col.x)"]


def test_variance_and_deviation_share_moments_and_quantiles_share_rows() -> None:
    f = col.f
    assert parts(v=tm.var(f), s=tm.std(f), p50=tm.median(f), p95=tm.quantile(f, 0.95)) == [
        "moments(col.f)", "count(col.f)", "multiset(col.f)",
    ]  # fmt: skip


def test_time_is_never_null_so_it_is_not_counted() -> None:
    assert parts(last=tm.arg_max(col.x, col.t)) == ["arg_max(col.t, col.x)", "count(col.x)"]


@pytest.mark.parametrize("kind", [INT64, FLOAT64, STRING, TIMESTAMP], ids=repr)
def test_every_extreme_is_recorded_for_every_ordered_type(kind: object) -> None:
    for algebra in (MIN, MAX):
        form = form_of(algebra, (kind,))  # type: ignore[arg-type]
        assert isinstance(form, Form)
        assert form.fields == (kind,)


def test_only_integers_are_subtracted() -> None:
    on_ints, on_floats = form_of(SUM, (INT64,)), form_of(SUM, (FLOAT64,))
    assert isinstance(on_ints, Form) and on_ints.subtracts
    assert isinstance(on_floats, Form) and on_floats.inverse and not on_floats.subtracts


def test_functions_that_branch_stay_opaque() -> None:
    branching = Algebra(
        "branching",
        identity=lambda types: (0.0,),
        lift=lambda x: (math.log(x) if x > 1 else 0.0,),
        combine=lambda a, b: (a[0] + b[0],),
    )
    form = form_of(branching, (FLOAT64,))
    assert isinstance(form, OpaqueForm)
    assert form.fields == (FLOAT64,)
    assert "truth value" in form.reason


def test_a_state_of_one_scalar_needs_no_tuple() -> None:
    total = tm.aggregate(
        "total", identity=lambda: 0, lift=lambda x: x, combine=lambda a, b: a + b, lower=lambda s: s
    )
    result = layout((("r", total(col.x)),), S).results[0]
    assert isinstance(result.lower, Node)
    assert result.type == INT64


def test_an_opaque_result_has_the_type_it_says_or_shows() -> None:
    def text(state: float) -> str:
        return "high" if state > 1 else "low"

    shows = tm.aggregate("a", identity=lambda: 0.0, lift=lambda x: x, combine=max, lower=text)
    assert layout((("r", shows(col.f)),), S).results[0].type == STRING
    fails = tm.aggregate(
        "b", identity=lambda: 0.0, lift=lambda x: x, combine=max, lower=lambda s: 1 // int(s)
    )
    with pytest.raises(tm.UserError, match="returns="):
        layout((("r", fails(col.f)),), S)


def test_built_in_algebras_are_themselves_after_a_journey() -> None:
    for algebra in (COUNT, SUM, MIN, MAX, _ewma(5)):
        assert pickle.loads(pickle.dumps(algebra)) is algebra


def test_a_hll_of_floats_is_refused_because_spark_has_none() -> None:
    with pytest.raises(tm.UserError, match="distinct values of by HLL"):
        layout((("r", tm.distinct_count(col.f, method="hll")),), S)


def test_a_result_is_known_whatever_it_is_called_and_stands_beside() -> None:
    def of(**aggregates: Aggregate) -> dict[str, object]:
        plan = STREAM.window(tm.tumbling("1h")).agg(**aggregates).plan
        assert isinstance(plan, WindowAggregate)
        return {r.name: plan.layout.essence(r) for r in plan.layout.results}

    branching = tm.aggregate(
        "branching", identity=lambda: 0, lift=lambda x: x, combine=lambda a, b: a + b,
        lower=lambda a: a if a > 3 else 0, returns="int64",
    )  # fmt: skip
    alone = of(mean=tm.mean(col.x), own=branching(col.x))
    among = of(total=tm.sum(col.f), a=tm.mean(col.f), b=branching(col.x), c=tm.mean(col.x))
    assert alone["mean"] == among["c"] and alone["own"] == among["b"]
    assert len({*alone.values(), *among.values()}) == 4
    assert of(v=tm.var(col.f))["v"] != of(v=tm.std(col.f))["v"] != of(v=tm.var(col.f, ddof=0))["v"]
