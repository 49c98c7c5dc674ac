"""Results in an order (`plan.order`), sorted by Arrow."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidemill.core.floats import canonical_arrow
from tidemill.core.schema import Schema
from tidemill.plan.order import Order


def ordered(table: pa.Table, orders: Iterable[Order], schema: Schema) -> pa.Table:
    """Return the rows that are asked for, in order."""
    for order in orders:
        if table.num_rows > 1 and order.limit != 0:
            table = table.take(_places(table, order, schema))
        table = table.slice(0, order.limit)
    return table


def _places(table: pa.Table, order: Order, schema: Schema) -> pa.Array:
    """Return the places of the rows in order.

    Arrow has one place for the nulls of all columns, and NaN beside them, so both have a column of their own.
    """
    columns: dict[str, Any] = {}
    keys: list[tuple[str, str]] = []

    def add(column: Any, down: bool) -> None:
        keys.append((str(len(keys)), "descending" if down else "ascending"))
        columns[keys[-1][0]] = column

    for name, down in order.columns(schema):
        column = table.column(name)
        if column.null_count:
            add(column.is_valid(), down)
        if pa.types.is_floating(column.type):
            column = pa.chunked_array([canonical_arrow(c) for c in column.chunks], pa.float64())
            nan = pc.is_nan(column)
            if pc.any(nan).as_py():
                add(nan.fill_null(False), down)
                column = pc.if_else(nan, 0.0, column)
        add(column, down)
    if not keys:
        return pa.array(range(table.num_rows), pa.int64())
    return pc.sort_indices(pa.table(columns), sort_keys=keys)
