"""Partials of aggregates by Spark's own functions, field for field as the layout says.

What has no entry here is aggregated by Tidemill's kernels inside Spark's Python workers instead.
"""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as F

from tidemill.aggregates.algebra import Algebra, Form, Multiset, Sketch
from tidemill.aggregates.layout import StatePart
from tidemill.core.types import DataType
from tidemill.spark.expr import literal

Columns = list[SparkColumn]
Types = tuple[DataType, ...]


def available(part: StatePart) -> bool:
    """Whether Spark's own functions can make a part's partials."""
    algebra = part.part.algebra
    if not isinstance(algebra, Algebra):
        return True
    if algebra.factory is None or algebra.name not in _PARTIALS:
        return False  # a user's aggregate, whatever its name
    # Spark multiplies in double, which is not exact for ints; text has no opposite order.
    exact_product = algebra.name != "product" or part.types[0].kind == "float64"
    return exact_product and (algebra.name != "arg_min" or part.types[0].kind != "string")


def partial(part: StatePart, args: Columns) -> Columns:
    """One aggregate column for each field of the state of a part that is `available`.

    A row counts only where no argument is null. A field of no rows is the algebra's identity.
    """
    whole = _whole(args)
    present = [a if whole is None else F.when(whole, a) for a in args]
    algebra = part.part.algebra
    if isinstance(algebra, Multiset):
        return [_collected(algebra, args)]
    if isinstance(algebra, Sketch):
        make = F.hll_sketch_agg if algebra.kind == "hll" else F.kll_sketch_agg_double
        return [make(present[0], F.lit(algebra.size))]
    return _or_identity(part, _PARTIALS[algebra.name](present, part.types))


def is_simple(part: StatePart) -> bool:
    """Whether one call of one function makes a part's partials, so that `where` can filter it."""
    algebra = part.part.algebra
    return isinstance(algebra, Algebra) and algebra.name in _SIMPLE and available(part)


def partial_where(part: StatePart, args: list[str], condition: str) -> Columns:
    """As `partial`, for a simple part, of the rows that meet a condition; both in SQL."""
    function = _SIMPLE[part.part.algebra.name]
    call = f"{function}({', '.join(args) or '1'}) FILTER (WHERE {condition})"
    return _or_identity(part, [F.expr(call)])


def _or_identity(part: StatePart, fields: Columns) -> Columns:
    assert isinstance(part.form, Form)
    return [
        f if v.value is None else F.coalesce(f, literal(v.value, v.type))
        for f, v in zip(fields, part.form.identity)
    ]


def _whole(args: Columns) -> SparkColumn | None:
    """The condition that no argument is null; one argument needs none, Spark skips its nulls."""
    if len(args) < 2:
        return None
    condition = args[0].isNotNull()
    for arg in args[1:]:
        condition = condition & arg.isNotNull()
    return condition


def _collected(algebra: Multiset, args: Columns) -> SparkColumn:
    row = F.struct(*(a.alias(f"x{j}") for j, a in enumerate(args)))
    condition = args[0].isNotNull()
    for arg in args[1:]:
        condition = condition & arg.isNotNull()
    collect = F.collect_set if algebra.distinct else F.collect_list
    return collect(F.when(condition, row))


def _moments(args: Columns, types: Types) -> Columns:
    n = F.count(args[0]).cast("double")
    return [n, F.avg(args[0]), F.var_pop(args[0]) * n]


def _comoments(args: Columns, types: Types) -> Columns:
    x, y = args
    n = F.count(x).cast("double")
    return [
        n, F.avg(x), F.avg(y), F.covar_pop(x, y) * n, F.var_pop(x) * n, F.var_pop(y) * n,
    ]  # fmt: skip


def _arg_max(args: Columns, types: Types) -> Columns:
    best = F.max(F.when(args[0].isNotNull(), F.struct(args[0].alias("by"), args[1].alias("value"))))
    return [best["by"], best["value"]]


def _arg_min(args: Columns, types: Types) -> Columns:
    # The smallest `by`, but the greatest value among ties: turn `by` around and take the maximum.
    by, value = args
    kind = types[0].kind
    if kind == "float64":
        order = F.struct((~F.isnan(by)).alias("number"), (-by).alias("by"))
        best = F.max(F.when(by.isNotNull(), F.struct(order.alias("o"), value.alias("value"))))
        smallest = F.when(best["o"]["number"], -best["o"]["by"])
        return [F.when(best.isNotNull(), F.coalesce(smallest, F.lit(float("nan")))), best["value"]]
    turned = ~by if kind == "bool" else F.bitwise_not(by)
    best = F.max(F.when(by.isNotNull(), F.struct(turned.alias("by"), value.alias("value"))))
    back = ~best["by"] if kind == "bool" else F.bitwise_not(best["by"])
    return [back, best["value"]]


_SIMPLE = {
    "count": "count", "sum": "sum", "min": "min", "max": "max", "any": "bool_or", "all": "bool_and",
}  # fmt: skip
"""Spark's function of the same meaning, where there is one."""


def _call(name: str) -> Callable[[Columns, Types], Columns]:
    return lambda args, types: [F.call_function(_SIMPLE[name], *(args or [F.lit(1)]))]


_PARTIALS: dict[str, Callable[[Columns, Types], Columns]] = {
    **{name: _call(name) for name in _SIMPLE},
    "product": lambda args, types: [F.product(args[0])],
    "moments": _moments,
    "comoments": _comoments,
    "arg_max": _arg_max,
    "arg_min": _arg_min,
}
