"""Compute partials of aggregates with Spark's own functions, by the fields of the layout.

They are written in SQL over columns by name: parsing a line of text is much faster than building the same
expression with JVM calls. Aggregates without an entry here run in Tidemill's kernels inside Spark's Python
workers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as F

from tidemill.aggregates.algebra import Algebra, Form, Multiset, Sketch
from tidemill.aggregates.layout import Layout, StatePart
from tidemill.core.schema import Schema
from tidemill.core.types import DataType
from tidemill.expr.nodes import Node
from tidemill.spark.expr.compile import SparkExpressions
from tidemill.spark.expr.sql import number
from tidemill.spark.expr.values import output, spark_type

_NULL_OF_NONE = ("sum", "min", "max", "any", "all", "product")
"""Aggregates whose Spark function returns null if there is no value."""

Args = list[str]
Types = tuple[DataType, ...]


def counts_at_home(layout: Layout) -> dict[int, str | None]:
    """Counts that need not be sent, with the state that is null if the count is 0; None if it cannot be 0."""
    witness = {
        p.part.args: p.columns.names[0]
        for p in layout.parts if available(p) and p.part.algebra.name in _NULL_OF_NONE
    }  # fmt: skip
    args = {i: layout.parts[i].part.args for i in layout.presence_only}
    return {i: witness.get(a) for i, a in args.items() if not a or a in witness}


def available(part: StatePart) -> bool:
    """Whether Spark's own functions can compute a part's partials."""
    algebra = part.part.algebra
    if not isinstance(algebra, Algebra):
        return True
    if algebra.factory is None:
        return False  # a user's aggregate, whatever its name
    if algebra.name == "product":  # Spark multiplies in double, which is not exact for ints
        return part.types[0].kind == "float64"
    opposite = algebra.name != "arg_min" or part.types[0].kind != "string"  # text has none
    return algebra.name in _PARTIALS and opposite


def is_simple(part: StatePart) -> bool:
    """Whether a single function call computes a part's partials, so that a FILTER clause applies."""
    algebra = part.part.algebra
    return isinstance(algebra, Algebra) and algebra.name in _SIMPLE and available(part)


def partial(
    part: StatePart, args: Args, names: list[str], where: str | None = None, *, identity: bool = False
) -> list[SparkColumn]:
    """One aggregate column for each field of the state of an `available` part.

    `args` and `names` are plain names of columns. A row counts only if no argument is null and, for a
    simple part, if it meets the condition `where`. Without rows, a field is null, or the algebra's identity
    if `identity` is set.
    """
    if part.part.algebra.name == "product":  # the one function that has no name in SQL
        product = F.product(args[0])
        return [(F.coalesce(product, F.lit(1.0)) if identity else product).alias(names[0])]
    fields = _fields(part, args, "" if where is None else f" FILTER (WHERE {where})")
    if identity and isinstance(part.form, Form):
        values = [v.value for v in part.form.identity]
        fields = [f if v is None else f"coalesce({f}, {number(v)})" for f, v in zip(fields, values)]
    return [F.expr(f"{f} AS {n}") for f, n in zip(fields, names)]


def _fields(part: StatePart, args: Args, only: str = "") -> list[str]:
    algebra = part.part.algebra
    whole = " AND ".join(f"{a} IS NOT NULL" for a in args)
    if isinstance(algebra, Multiset):
        row = ", ".join(f"{a} AS x{j}" for j, a in enumerate(args))
        collect = "collect_set" if algebra.distinct else "collect_list"
        return [f"{collect}(CASE WHEN {whole} THEN struct({row}) END)"]
    # With one argument, Spark skips nulls itself.
    present = args if len(args) < 2 else [f"CASE WHEN {whole} THEN {a} END" for a in args]
    if isinstance(algebra, Sketch):
        make = "hll_sketch_agg" if algebra.kind == "hll" else "kll_sketch_agg_double"
        return [f"{make}({present[0]}, {algebra.size})"]
    if _is_wide(part):
        return _wide_sum(present[0], only)
    return [f + only for f in _PARTIALS[algebra.name](present, part.types)]


def _is_wide(part: StatePart) -> bool:
    return part.part.algebra.name == "sum" and len(part.columns.names) == 2


def _wide_sum(x: str, only: str = "", high: str = "0") -> list[str]:
    """The two words of a sum of ints: signed half words are summed separately and recombined.

    Neither sum can overflow below 2**32 rows, and the sum of the lower halves never does for small values.
    `shiftleft` drops the bits above the word.
    """
    low = f"sum(shiftright(shiftleft({x}, 32), 32)){only}"
    rest = f"shiftright({x}, 32) + (shiftrightunsigned({x}, 31) & 1L)"
    above = f"(sum({rest}){only} + shiftright({low}, 32))"
    return [
        f"shiftleft({above}, 32) | ({low} & 4294967295L)",
        f"shiftright({above} + 2147483648L, 32) + {high}",
    ]


def or_identity(part: StatePart, names: list[str]) -> dict[str, SparkColumn]:
    """The fields of a part by name, with the identity instead of Spark's null for no rows."""
    assert isinstance(part.form, Form)
    fields = zip(names, part.form.identity)
    return {n: F.coalesce(F.col(n), F.expr(number(v.value))) for n, v in fields if v.value is not None}


def combined(part: StatePart, names: list[str]) -> list[SparkColumn]:
    """One aggregate column for each field of a part, to combine several partials.

    `names` are the names of its fields. They may be null only if Spark's function skips nulls; otherwise
    `partial` must have been called with `identity`.
    """
    name = part.part.algebra.name
    if name == "product":
        return [F.product(names[0]).alias(names[0])]
    if _is_wide(part):
        fields = _wide_sum(names[0], high=f"sum({names[1]})")
        return [F.expr(f"{f} AS {n}") for f, n in zip(fields, names)]
    if name in _SIMPLE:
        function = "sum" if name == "count" else _SIMPLE[name]
        return [F.expr(f"{function}({names[0]}) AS {names[0]}")]
    return [F.expr(f"{f} AS {n}") for f, n in zip(_COMBINED[name](names, part.types), names)]


def in_jvm(layout: Layout) -> bool:
    """Whether results can be computed from partials without Python."""
    nodes = all(isinstance(r.lower, Node) for r in layout.results)
    return nodes and all(isinstance(p.part.algebra, Algebra) for p in layout.parts)


def lowered(layout: Layout, names: Mapping[str, str] | None = None) -> list[SparkColumn]:
    """Compute results from columns of complete states, in user types.

    `names` maps states to their column names, if these differ.
    """
    states = Schema(tuple(f for p in layout.parts for f in p.columns))
    lower = SparkExpressions(states, {n: spark_type(t) for n, t in states}, names)
    columns = []
    for result in layout.results:
        assert isinstance(result.lower, Node)
        value = lower.column(result.lower)
        if result.present is not None:
            count = layout.parts[result.present].columns.names[0]
            value = F.when(lower.reference(count) != 0, value)
        columns.append(output(value, result.type).alias(result.name))
    return columns


def _mean(x: str) -> str:
    # Spark's mean of equal values may differ in the last bit, which would make partials differ.
    return f"CASE WHEN min({x}) = max({x}) THEN min({x}) ELSE avg({x}) END"


def _moments(args: Args, types: Types) -> list[str]:
    (x,) = args
    n = f"cast(count({x}) AS double)"
    return [n, _mean(x), f"var_pop({x}) * {n}"]


def _comoments(args: Args, types: Types) -> list[str]:
    x, y = args
    n = f"cast(count({x}) AS double)"
    return [
        n, _mean(x), _mean(y), f"covar_pop({x}, {y}) * {n}", f"var_pop({x}) * {n}",
        f"var_pop({y}) * {n}",
    ]  # fmt: skip


def _arg_max(args: Args, types: Types) -> list[str]:
    by, value = args
    best = f"max(CASE WHEN {by} IS NOT NULL THEN struct({by} AS by, {value} AS value) END)"
    return [f"{best}.by", f"{best}.value"]


def _arg_min(args: Args, types: Types) -> list[str]:
    # The smallest `by`, but the greatest value among ties: invert `by` and take the maximum.
    by, value = args
    kind = types[0].kind
    if kind == "float64":
        order = f"struct(NOT isnan({by}) AS number, -{by} AS by)"
        best = f"max(CASE WHEN {by} IS NOT NULL THEN struct({order} AS o, {value} AS value) END)"
        smallest = f"CASE WHEN {best}.o.number THEN -{best}.o.by ELSE double('NaN') END"
        return [f"CASE WHEN {best} IS NOT NULL THEN {smallest} END", f"{best}.value"]
    turn = "NOT " if kind == "bool" else "~"
    turned = f"struct({turn}{by} AS by, {value} AS value)"
    best = f"max(CASE WHEN {by} IS NOT NULL THEN {turned} END)"
    return [f"{turn}{best}.by", f"{best}.value"]


_SIMPLE = {
    "count": "count", "sum": "sum", "min": "min", "max": "max", "any": "bool_or", "all": "bool_and",
}  # fmt: skip
"""Spark's functions with the same meaning."""


def _call(name: str) -> Callable[[Args, Types], list[str]]:
    return lambda args, types: [f"{_SIMPLE[name]}({', '.join(args) or '1'})"]


_PARTIALS: dict[str, Callable[[Args, Types], list[str]]] = {
    **{name: _call(name) for name in _SIMPLE},
    "moments": _moments,
    "comoments": _comoments,
    "arg_max": _arg_max,
    "arg_min": _arg_min,
}


def _combined_moments(names: Args, types: Types) -> list[str]:
    return _folded(names, names[1:2], [(0, 0)])


def _combined_comoments(names: Args, types: Types) -> list[str]:
    return _folded(names, names[1:3], [(0, 1), (0, 0), (1, 1)])


def _folded(names: Args, means: Args, products: list[tuple[int, int]]) -> list[str]:
    """Combine counts, means and sums of products about the means pairwise (Chan, Golub, LeVeque)."""
    fields = [f"f{i}" for i in range(len(names))]
    struct = ", ".join(f"{n} AS {f}" for n, f in zip(names, fields))
    zero = ", ".join(f"0D AS {f}" for f in fields)
    away = [f"(b.f{i + 1} - a.f{i + 1})" for i in range(len(means))]
    share = "b.f0 / nullif(a.f0 + b.f0, 0)"
    new = ["a.f0 + b.f0"]
    new += [f"a.f{i + 1} + coalesce({d} * {share}, 0)" for i, d in enumerate(away)]
    for f, (x, y) in zip(fields[1 + len(means) :], products):
        new.append(f"a.{f} + b.{f} + coalesce({away[x]} * (a.f0 * ({share})) * {away[y]}, 0)")
    step = ", ".join(f"{n} AS {f}" for n, f in zip(new, fields))
    folded = f"aggregate(collect_list(struct({struct})), struct({zero}), (a, b) -> struct({step}))"
    return [f"{folded}.{f}" for f in fields]


_COMBINED: dict[str, Callable[[Args, Types], list[str]]] = {
    "moments": _combined_moments,
    "comoments": _combined_comoments,
    "arg_max": _arg_max,
    "arg_min": _arg_min,
}
