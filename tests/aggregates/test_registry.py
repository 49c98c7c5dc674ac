"""One table of built-in aggregates: the public names, the conformance suite and files all follow it."""

from __future__ import annotations

import inspect
import json

import pytest

import tidemill as tm
from tests.conformance.cases import FAMILIES
from tidemill import col
from tidemill.aggregates import basic, holistic, moments, ordered, sketches
from tidemill.aggregates.algebra import Aggregate, Algebra
from tidemill.aggregates.json import from_record, to_record
from tidemill.aggregates.registry import AGGREGATES, entry_of

EXAMPLES: dict[str, list[Aggregate]] = {
    "count": [tm.count(), tm.count(col.x)],
    "count_if": [tm.count_if(col.s == "a"), tm.count_if("b")],
    "any": [tm.any(col.x > 1)],
    "all": [tm.all(col.x > 1.5)],
    "sum": [tm.sum(col.x + 1), tm.sum(tm.lit(1).cast("float64"))],
    "mean": [tm.mean(col.x)],
    "product": [tm.product(col.x)],
    "min": [tm.min(col.x)],
    "max": [tm.max(col.x)],
    "var": [tm.var(col.x), tm.var(col.x.cast("float64"))],
    "std": [tm.std(col.x, ddof=0)],
    "covariance": [tm.covariance(col.x, col.y), tm.covariance(col.x, col.y, ddof=0)],
    "correlation": [tm.correlation(col.x, col.y)],
    "first": [tm.first(col.x)],
    "last": [tm.last(col.x)],
    "arg_min": [tm.arg_min(col.x, col.y)],
    "arg_max": [tm.arg_max(col.x, col.y)],
    "ewma": [tm.ewma(col.x, half_life="90s"), tm.ewma(col.x, half_life=4)],
    "drawdown": [tm.drawdown(col.x)],
    "quantile": [tm.quantile(col.x, 1), tm.quantile(col.x, 0.2, method="kll", size=99)],
    "median": [tm.median(col.x), tm.median(col.x, method="kll")],
    "distinct_count": [tm.distinct_count(col.s), tm.distinct_count(col.s, method="hll", size=9)],
    "top_k": [tm.top_k(col.x, 3)],
    "bottom_k": [tm.bottom_k(col.x, 3)],
    "collect": [tm.collect(col.s)],
    "first_k": [tm.first_k(col.s, 3)],
    "last_k": [tm.last_k(col.x, 2)],
    "top_rows": [tm.top_rows("x"), tm.top_rows(col.x, "s", k=3, least=True, ties=True)],
    "entropy": [tm.entropy(col.s)],
    "count_by": [tm.count_by(col.s)],
    "sum_by": [tm.sum_by(col.x, col.s)],
    "mean_by": [tm.mean_by(col.x, col.s)],
    "min_by": [tm.min_by(col.x, col.s)],
    "max_by": [tm.max_by(col.x, col.s)],
    "top_keys": [tm.top_keys(col.s, 2)],
    "distinct_sketch": [tm.distinct_sketch(col.s, size=9)],
    "quantile_sketch": [tm.quantile_sketch(col.x)],
}


def test_every_public_aggregate_is_in_the_registry() -> None:
    public = {n: f for n in tm.__all__ if inspect.isfunction(f := getattr(tm, n)) and _makes_aggregates(f)}
    assert public == {name: entry.make for name, entry in AGGREGATES.items()}


def _makes_aggregates(function: object) -> bool:
    return getattr(function, "__annotations__", {}).get("return") == Aggregate.__name__


def test_every_aggregate_has_examples_and_every_family_a_suite() -> None:
    assert set(EXAMPLES) == set(AGGREGATES)
    families = {entry.family for entry in AGGREGATES.values()}
    assert families == set(FAMILIES) - {"user", "containers", "containers in order", "one of each", "few"}


@pytest.mark.parametrize("aggregate", [a for each in EXAMPLES.values() for a in each], ids=str)
def test_there_and_back(aggregate: Aggregate) -> None:
    record = to_record(aggregate)
    assert record is not None
    again = from_record(json.loads(json.dumps(record)))
    assert (again.args, again.parts, again.params) == (aggregate.args, aggregate.parts, aggregate.params)


@pytest.mark.parametrize("name", ["sum", "top_k", "entropy", "math", "inspect"])
def test_a_user_s_own_is_not_told_by_its_name(name: str) -> None:
    own = tm.aggregate(
        name, identity=lambda: 0, lift=lambda x: x, combine=lambda a, b: a + b, lower=lambda a: a
    )
    assert entry_of(own(col.x)) is None
    assert to_record(own(col.x)) is None


def test_arguments_are_shown_as_they_were_given() -> None:
    assert str(tm.sum_by(col.x, col.s)) == "sum_by(col.x, col.s)"
    assert str(tm.quantile(col.x, 0.5)) == "quantile(col.x, q=0.5)"
    assert str(tm.collect(col.x)) == "collect(col.x)"


def test_every_algebra_that_spark_has_a_function_for_is_a_built_in_one() -> None:
    from tidemill.spark.expr import aggregates as spark

    modules = (basic, moments, ordered, holistic, sketches)
    algebras = {v.name for m in modules for v in vars(m).values() if isinstance(v, Algebra)}
    assert {*spark._PARTIALS, *spark._COMBINED, *spark._NULL_OF_NONE} <= algebras
