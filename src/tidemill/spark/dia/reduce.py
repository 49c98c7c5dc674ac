"""Reduce elements of equal keys to one: reduce_by_key, reduce_pair, reduce_to_index (Table 3.3)."""

from __future__ import annotations

from functools import wraps
from typing import Any

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tidemill.core.errors import UserError
from tidemill.spark import exchange
from tidemill.spark.caching import holding
from tidemill.spark.dia.elements import columns_of, is_tuple, spelled
from tidemill.spark.dia.fill_indexes import filled
from tidemill.spark.dia.folds import (
    Aggregated,
    aggregate,
    fold_here,
    fold_two,
    group_task,
    recognised,
)
from tidemill.spark.dia.keys import (
    Key,
    carried,
    checked_index,
    index_of,
    key_of,
    restored,
    with_key,
)
from tidemill.spark.dia.opaque_batches import mapped
from tidemill.spark.dia.operation import Operation, described
from tidemill.spark.dia.traced_columns import ElementColumns
from tidemill.spark.dia.tracing import (
    INSIDE,
    Function,
    Opaque,
    Out,
    Traced,
    TracedStruct,
    parts_of,
    spelled_out,
)
from tidemill.spark.expr.schemas import user_schema


def reduce_by_key(
    parent: Operation, key: Function, reduce: Function, *, key_returns: Any = None,
    detect: str = "auto", step: str = "reduce_by_key",
) -> Operation:  # fmt: skip
    """Reduce the elements of each key to one, by an associative and commutative function."""
    found = key_of(parent, key, key_returns, step=step)
    how = recognised(reduce, parent.kind, found.paths)

    def build() -> DataFrame:
        reduced = _reduced(parent, found, how, None, detect, step)
        return holding(reduced.select(*restored(parent.kind)), reduced)

    return Operation(
        step, (parent,), parent.kind, parent.session, build, ordered=False, settled=False,
        moves="a partial for each key and partition", detect=detect, **_said(found, how),
    )  # fmt: skip


def reduce_pair(parent: Operation, reduce: Function, *, detect: str = "auto") -> Operation:
    """`reduce_by_key` of pairs (key, value); the function reduces values."""
    if not is_tuple(parent.kind) or len(parent.kind.of) != 2:
        raise UserError(
            "reduce_pair", expected="pairs (key, value)", got=spelled(parent.kind),
            hint="map to pairs first, or use reduce_by_key",
        )  # fmt: skip
    return reduce_by_key(parent, _first, _on_values(reduce), detect=detect, step="reduce_pair")


def _first(pair: Any) -> Any:
    return pair[0]


def _on_values(reduce: Function) -> Function:
    reduce_values = spelled_out(reduce)

    def pairs(a: Any, b: Any) -> Any:
        return a[0], reduce_values(a[1], b[1])

    return wraps(reduce)(pairs)


def reduce_to_index(
    parent: Operation, index: Function, reduce: Function, n: int, neutral: Any = None, *,
    detect: str = "auto",
) -> Operation:  # fmt: skip
    """Make n elements: at each index the fold of its elements, or the neutral element."""
    step = "reduce_to_index"
    found = index_of(parent, index, n, step=step)
    how = recognised(reduce, parent.kind, found.paths)
    build = lambda: filled(
        parent, _reduced(parent, found, how, n, detect, step), parent.kind, n, neutral, step
    )
    return Operation(
        step, (parent,), parent.kind, parent.session, build,
        moves="a partial for each index and partition, then elements to their place", detect=detect,
        **_said(found, how),
    )  # fmt: skip


def _said(key: Key, how: tuple[Traced, Aggregated] | Opaque) -> dict[str, Any]:
    reduce = how if isinstance(how, Opaque) else how[0]
    return {**described(key.function, reduce), "function": f"key {key.function}, {reduce}"}


def _reduced(
    parent: Operation, key: Key, how: tuple[Traced, Aggregated] | Opaque,
    n: int | None, detect: str, step: str,
) -> DataFrame:  # fmt: skip
    """The columns `k0, …` and `c0, …`, with each key once. With n, keys are indexes below n."""
    if isinstance(how, Opaque):
        return _folded(parent, key, how.function, n, detect, step)
    traced, aggregated = how
    paths = [path for path, combine in aggregated.leaves if combine != "key"]
    keyed = with_key(parent, key, step=step)
    if n is not None:
        keyed = checked_index(keyed, n, step=step)
    # The element's columns are `c0, …` here; the reduced fields inside them become columns `v0, …`.
    inside = ElementColumns(carried(parent.kind))
    at = dict(zip(columns_of(parent.kind).names, carried(parent.kind).names))
    values = [inside.reference(_moved(path, at)).alias(f"v{j}") for j, path in enumerate(paths)]
    df = keyed.select(*map(F.col, key.names), *values)
    ways = dict(aggregated.leaves)
    aggregates = {f"v{j}": aggregate(ways[path], f"v{j}") for j, path in enumerate(paths)}
    reduced = exchange.reduce_by_key(df, key.names, aggregates, detect=detect)
    places = {path: F.col(f"v{j}") for j, path in enumerate(paths)}
    places.update({path: F.col(f"k{i}") for i, path in enumerate(key.paths) if path is not None})
    parts = list(zip(columns_of(parent.kind).names, parts_of(traced.out)))
    columns = [_rebuilt(n_, p, places).alias(f"c{i}") for i, (n_, p) in enumerate(parts)]
    return holding(reduced.select(*map(F.col, key.names), *columns), reduced)


def _moved(path: str, at: dict[str, str]) -> str:
    first, inside, rest = path.partition(INSIDE)
    return at[first] + inside + rest


def _rebuilt(path: str, out: Out, places: dict[str, SparkColumn]) -> SparkColumn:
    if path in places:
        return places[path]
    assert isinstance(out, TracedStruct)  # all leaves are in `places`
    inner = zip(out.names, out.parts)
    return F.struct(*(_rebuilt(f"{path}{INSIDE}{n}", p, places).alias(n) for n, p in inner))


def _folded(
    parent: Operation, key: Key, reduce: Function, n: int | None, detect: str, step: str
) -> DataFrame:
    kind, keys = parent.kind, key.type
    shape = T.StructType([*user_schema(key.schema).fields, *user_schema(carried(kind)).fields])

    def whole(_: Any, elements: list[Any]) -> Any:
        result = elements[0]
        for element in elements[1:]:
            result = fold_two(reduce, result, element, step=step)
        return result

    keyed = with_key(parent, key, step=step)
    if n is not None:
        keyed = checked_index(keyed, n, step=step)
    partials = mapped(keyed, fold_here(reduce, keys, kind, step=step), shape)
    together = exchange.colocate(partials, key.names, detect=detect).sortWithinPartitions(
        *key.names
    )
    return mapped(together, group_task(whole, keys, kind, kind, step=step), shape)
