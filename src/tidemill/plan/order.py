"""The order of a result, and how many of its first rows are asked for: the last step of a query.

A result is a set of rows. An order is total: rows that are equal in the columns that are asked for are in
the order of the others, from left to right, so that the first rows are the same on every engine. Null is
below all values, NaN is above all numbers, false is below true, and text is ordered by code point. Columns of
lists, structs, decimals and binary data do not count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tidemill.core.errors import UserError
from tidemill.core.schema import Schema
from tidemill.expr.fluent import Expr
from tidemill.expr.nodes import Column
from tidemill.plan.build import flat


@dataclass(frozen=True)
class Order:
    """Columns by which rows are sorted, each with whether its greatest value comes first; how many rows."""

    keys: tuple[tuple[str, bool], ...] = ()
    limit: int | None = None

    def columns(self, schema: Schema) -> list[tuple[str, bool]]:
        """All columns that decide, the most important one first."""
        asked = {name for name, _ in self.keys}
        others = [(n, False) for n, kind in schema if n not in asked and kind.is_ordered]
        return [*self.keys, *others]

    def __str__(self) -> str:
        shown = [f"{name} descending" if down else name for name, down in self.keys]
        steps = [f"sort by {', '.join(shown)}"] if shown else []
        return ", ".join([*steps, *([] if self.limit is None else [f"limit {self.limit}"])])


def sorted_by(
    orders: tuple[Order, ...], schema: Schema, names: Sequence[Any], descending: Any,
    brought: Mapping[str, Any],
) -> tuple[Order, ...]:  # fmt: skip
    """Return the orders that are applied one after another, with one more.

    `brought` are arguments that others have for the same.
    """
    if brought:
        raise UserError(
            "sort", expected="columns, and descending= True or False", got=f"arguments {sorted(brought)}",
            hint="write .sort('a', 'b', descending=[True, False]); null is below all values",
        )  # fmt: skip
    keys = [_key(name, schema) for name in flat(names)]
    if not keys:
        raise UserError("sort", expected="at least one column", got="none", hint="sort('n', descending=True)")
    if len(set(keys)) != len(keys):
        raise UserError("sort", expected="each column once", got=repr(keys))
    down = list(descending) if isinstance(descending, (list, tuple)) else [descending] * len(keys)
    if len(down) != len(keys) or not all(isinstance(d, bool) for d in down):
        raise UserError(
            "sort", expected="descending= True or False, or a list with one for each column",
            got=repr(descending),
        )  # fmt: skip
    asked = tuple(zip(keys, down))
    if orders and orders[-1].limit is None:  # sorting again keeps the order of equal rows
        asked = (*asked, *((n, d) for n, d in orders[-1].keys if n not in keys))
        orders = orders[:-1]
    return (*orders, Order(asked))


def _key(given: Any, schema: Schema) -> str:
    if isinstance(given, Expr) and not isinstance(given.node, Column):
        raise UserError(
            "sort", expected="columns of the result", got=str(given),
            hint="compute it first: .with_columns(rank=...); the greatest first is descending=True",
        )  # fmt: skip
    name = given.node.name if isinstance(given, Expr) and isinstance(given.node, Column) else given
    if not isinstance(name, str):
        raise UserError("sort", expected="columns of the result, by name", got=f"{given!r:.80}")
    kind = schema.type_of(name, step="sort")
    if not kind.is_ordered:
        raise UserError("sort", expected=f"a column {name!r} that is ordered", got=repr(kind))
    return name


def limited(orders: tuple[Order, ...], count: Any) -> tuple[Order, ...]:
    """Return the orders with at most so many rows of the last one."""
    if isinstance(count, bool) or not isinstance(count, int) or count < 0:
        raise UserError("limit", expected="a number of rows", got=repr(count))
    if not orders:
        return (Order(limit=count),)
    last = orders[-1]
    return (*orders[:-1], replace(last, limit=count if last.limit is None else min(last.limit, count)))
