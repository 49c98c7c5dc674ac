"""Aggregates that need every row of a window: quantiles, distinct counts, lists, histograms.

Their partial is a sorted multiset of argument tuples; `combine` is a merge, so all of them over the
same argument share one. Each is defined here on a sorted list of Python tuples; the compiled form
of the same name is in `kernels.holistic`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tidemill.aggregates.algebra import EVENT_TIME, Aggregate, Multiset, NamedLower, Part
from tidemill.aggregates.sketches import approximate_distinct, approximate_quantile
from tidemill.core.errors import UserError
from tidemill.core.floats import order_key
from tidemill.core.types import FLOAT64, INT64, DataType, list_of, struct_of
from tidemill.expr.fluent import Operand, argument
from tidemill.expr.functions import checked
from tidemill.expr.nodes import Call, Cast, Column, Literal, Node

Row = tuple[Any, ...]
Types = tuple[DataType, ...]

BAG = Multiset()
SET = Multiset(distinct=True)


# --- definitions: sorted rows in, result out ------------------------------------------------------


def _quantile(rows: list[Row], q: float) -> float:
    # Linear interpolation between the two nearest ranks.
    at = q * (len(rows) - 1)
    low = math.floor(at)
    a, b = rows[low][0], rows[min(low + 1, len(rows) - 1)][0]
    return float(a if at == low else a + (b - a) * (at - low))


def _entropy(rows: list[Row]) -> float:
    counts = [len(list(g)) for _, g in itertools.groupby(rows, key=order_key)]
    return -math.fsum(c / len(rows) * math.log2(c / len(rows)) for c in counts) + 0.0


def _by(reduce: Callable[[list[Any]], Any]) -> Callable[[list[Row]], list[dict[str, Any]]]:
    def lower(rows: list[Row]) -> list[dict[str, Any]]:
        groups = [list(g) for _, g in itertools.groupby(rows, key=lambda r: order_key(r[0]))]
        return [{"key": g[0][0], "value": reduce([r[-1] for r in g])} for g in groups]

    return lower


def _sum(values: list[Any]) -> Any:
    return checked(sum(values)) if isinstance(values[0], int) else _float_sum(values)


def _mean(values: list[Any]) -> float:
    # The sum of ints is exact, and rounded once.
    total = sum(values) if isinstance(values[0], int) else _float_sum(values)
    return float(total) / len(values)


def _float_sum(values: list[float]) -> float:
    try:
        return math.fsum(values)
    except (OverflowError, ValueError):  # it adds up to more than a double, or inf to -inf
        return float(sum(values))


def _top_keys(rows: list[Row], n: int) -> list[dict[str, Any]]:
    counted = _by(len)(rows)
    ordered = sorted(counted, key=lambda e: (e["value"], order_key(e["key"])), reverse=True)
    return ordered[:n]


def _first_k(rows: list[Row], k: int) -> list[Any]:
    instants = (list(g) for _, g in itertools.groupby(rows, key=lambda r: r[0]))
    return [r[1] for g in instants for r in reversed(g)][:k]


def _top_rows(
    rows: list[Row], k: int, least: bool, ties: bool, names: tuple[str, ...]
) -> list[dict[str, Any]]:
    """Rows are pairs of whether a value is there and the value: of `by`, then of each column."""
    ranked = sorted(rows, key=lambda r: order_key(r[2:]), reverse=True)
    ranked.sort(key=lambda r: order_key(r[1]), reverse=not least)
    ranked.sort(key=lambda r: not r[0])
    if ties and len(ranked) > k:
        k = sum(not _beats(ranked[k - 1], row, least) for row in ranked)
    return [{n: v if there else None for n, there, v in zip(names, r[2::2], r[3::2])} for r in ranked[:k]]


def _beats(a: Row, b: Row, least: bool) -> bool:
    """Whether the `by` of a row is better than that of another one; null is the worst."""
    if not (a[0] and b[0]):
        return bool(a[0] and not b[0])
    return bool(order_key(a[1]) < order_key(b[1]) if least else order_key(a[1]) > order_key(b[1]))


def _rows_type(types: Types, names: tuple[str, ...]) -> DataType:
    return list_of(struct_of(dict(zip(names, types[3::2]))))


def of_rows(aggregate: Aggregate, columns: tuple[Node, ...], types: Types) -> Aggregate:
    """`top_rows` over columns whose types are known: they may be null, so each is two arguments.

    The first of the columns is `by`. A row in which an argument is null would be skipped.
    """
    args = [
        arg
        for column, kind in zip(columns, types)
        for arg in (Call("is_not_null", (column,)), Call("coalesce", (column, Literal(_zero(kind), kind))))
    ]
    assert isinstance(aggregate.lower, NamedLower)
    names = tuple(c.name for c in columns[1:] if isinstance(c, Column))
    lower = NamedLower(aggregate.lower.name, (*aggregate.lower.params, names))
    return replace(aggregate, parts=(Part(BAG, tuple(args)),), lower=lower)


def _zero(kind: DataType) -> Any:
    return {"string": "", "float64": 0.0, "bool": False}.get(kind.kind, 0)


def _pairs(key: DataType, value: DataType) -> DataType:
    return list_of(struct_of({"key": key, "value": value}))


DEFINITIONS: dict[str, tuple[Callable[..., Any], Callable[[Types, tuple[Any, ...]], DataType]]] = {
    "quantile": (_quantile, lambda t, p: FLOAT64),
    "distinct_count": (lambda rows: len({order_key(r) for r in rows}), lambda t, p: INT64),
    "top_k": (lambda rows, k: [r[0] for r in rows[::-1][:k]], lambda t, p: list_of(t[0])),
    "bottom_k": (lambda rows, k: [r[0] for r in rows[:k]], lambda t, p: list_of(t[0])),
    "first_k": (_first_k, lambda t, p: list_of(t[1])),
    "last_k": (lambda rows, k: [r[1] for r in rows[::-1][:k]], lambda t, p: list_of(t[1])),
    "collect": (lambda rows: [r[1] for r in rows], lambda t, p: list_of(t[1])),
    "entropy": (_entropy, lambda t, p: FLOAT64),
    "count_by": (_by(len), lambda t, p: _pairs(t[0], INT64)),
    "sum_by": (_by(_sum), lambda t, p: _pairs(t[0], t[1])),
    "mean_by": (_by(_mean), lambda t, p: _pairs(t[0], FLOAT64)),
    "min_by": (_by(lambda v: min(v, key=order_key)), lambda t, p: _pairs(t[0], t[1])),
    "max_by": (_by(lambda v: max(v, key=order_key)), lambda t, p: _pairs(t[0], t[1])),
    "top_rows": (_top_rows, lambda t, p: _rows_type(t, p[-1])),
    "top_keys": (_top_keys, lambda t, p: _pairs(t[0], INT64)),
}
"""By name: the result of sorted rows, and its type by those of the arguments and by the constants."""


# --- the surface ----------------------------------------------------------------------------------


def _holistic(
    name: str, given: tuple[Operand, ...], *params: Any, over: tuple[Node, ...] = (), empty: Any = None,
    bag: Multiset = BAG, shown: tuple[tuple[str, Any], ...] = (),
) -> Aggregate:  # fmt: skip
    """A multiset of the arguments, or of the columns in `over`, lowered by the function of this name."""
    args = tuple(argument(x) for x in given)
    return Aggregate(name, args, (Part(bag, over or args),), NamedLower(name, params), empty, shown)


def _histogram(name: str, x: Operand, category: Operand) -> Aggregate:
    return _holistic(name, (x, category), over=(argument(category), argument(x)), empty=())


def quantile(x: Operand, q: float, *, method: str = "exact", size: int = 200) -> Aggregate:
    """The q-quantile: exact with linear interpolation, or by a KLL sketch of the given size."""
    if isinstance(q, bool) or not isinstance(q, (int, float)) or not 0 <= q <= 1:
        raise UserError("quantile", expected="q between 0 and 1", got=repr(q))
    if _method("quantile", method, "kll"):
        return approximate_quantile(argument(x), float(q), size)
    return _holistic("quantile", (x,), float(q), over=(Cast(argument(x), FLOAT64),), shown=(("q", q),))


def median(x: Operand, *, method: str = "exact", size: int = 200) -> Aggregate:
    """The middle value; see `quantile`."""
    return quantile(x, 0.5, method=method, size=size)


def distinct_count(x: Operand, *, method: str = "exact", size: int = 12) -> Aggregate:
    """How many different values: exact, or estimated by an HLL sketch of 2**size registers."""
    if _method("distinct_count", method, "hll"):
        return approximate_distinct(argument(x), size)
    return _holistic("distinct_count", (x,), bag=SET, empty=0)


def top_k(x: Operand, k: int) -> Aggregate:
    """The k greatest values, greatest first."""
    return _holistic("top_k", (x,), _positive("top_k", k), empty=(), shown=(("k", k),))


def bottom_k(x: Operand, k: int) -> Aggregate:
    """The k smallest values, smallest first."""
    return _holistic("bottom_k", (x,), _positive("bottom_k", k), empty=(), shown=(("k", k),))


def top_rows(
    by: Operand, /, *columns: Operand, k: int = 1, least: bool = False, ties: bool = False
) -> Aggregate:
    """The k whole rows with the greatest `by`, greatest first, as structs of some columns, or of all.

    Equal values of `by` are decided by the columns, from left to right; the greater value wins. With `ties`,
    all rows count whose `by` is that of the k-th: `k=1, ties=True` is all rows at the maximum. With `least`
    the smallest ones come first. A null in a column is kept; one in `by` comes last.

    `stream.window(...).top(...)` gives the same rows as rows.
    """
    nodes = tuple(argument(x) for x in (by, *columns))
    for node in nodes[1:]:
        if not isinstance(node, Column):
            raise UserError(
                "top_rows", expected="columns by name", got=str(node),
                hint="compute it first: .with_columns(total=...)",
            )  # fmt: skip
    for name, flag in (("least", least), ("ties", ties)):
        if not isinstance(flag, bool):
            raise UserError("top_rows", expected=f"{name}= True or False", got=repr(flag))
    shown: tuple[tuple[str, Any], ...] = (("k", _positive("top_rows", k)),)
    shown += tuple((name, True) for name, flag in (("least", least), ("ties", ties)) if flag)
    lower = NamedLower("top_rows", (k, least, ties))
    return Aggregate("top_rows", nodes, (Part(BAG, nodes),), lower, (), shown)


def collect(x: Operand) -> Aggregate:
    """All values in order of time; ties by value."""
    return _in_time("collect", x)


def first_k(x: Operand, k: int) -> Aggregate:
    """The values of the k earliest rows that have one, earliest first; ties go to the greater value."""
    return _in_time("first_k", x, _positive("first_k", k), shown=(("k", k),))


def last_k(x: Operand, k: int) -> Aggregate:
    """The values of the k latest rows that have one, latest first; ties go to the greater value."""
    return _in_time("last_k", x, _positive("last_k", k), shown=(("k", k),))


def _in_time(
    name: str, x: Operand, *params: Any, shown: tuple[tuple[str, Any], ...] = ()
) -> Aggregate:
    args = (argument(x), EVENT_TIME)
    return Aggregate(name, args, (Part(BAG, args[::-1]),), NamedLower(name, params), (), shown)


def entropy(x: Operand) -> Aggregate:
    """Shannon entropy of the values, in bits."""
    return _holistic("entropy", (x,))


def count_by(category: Operand) -> Aggregate:
    """A histogram: how many rows in each category, as a list of (key, value) by key."""
    return _holistic("count_by", (category,), empty=())


def sum_by(x: Operand, category: Operand) -> Aggregate:
    """The sum in each category, as a list of (key, value) by key."""
    return _histogram("sum_by", x, category)


def mean_by(x: Operand, category: Operand) -> Aggregate:
    """The mean in each category, as a list of (key, value) by key."""
    return _histogram("mean_by", x, category)


def min_by(x: Operand, category: Operand) -> Aggregate:
    """The smallest value in each category, as a list of (key, value) by key."""
    return _histogram("min_by", x, category)


def max_by(x: Operand, category: Operand) -> Aggregate:
    """The greatest value in each category, as a list of (key, value) by key."""
    return _histogram("max_by", x, category)


def top_keys(category: Operand, n: int) -> Aggregate:
    """The n most frequent categories with their counts; ties go to the greater key."""
    return _holistic("top_keys", (category,), _positive("top_keys", n), empty=(), shown=(("n", n),))


def _positive(step: str, n: int) -> int:
    if isinstance(n, bool) or not isinstance(n, int) or n <= 0:
        raise UserError(step, expected="a positive int", got=repr(n))
    return n


def _method(step: str, method: str, sketch: str) -> bool:
    if method not in ("exact", sketch):
        raise UserError(step, expected=f"method='exact' or method={sketch!r}", got=repr(method))
    return method == sketch
