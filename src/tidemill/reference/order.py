"""Results in an order, by the definition in `plan.order`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tidemill.core.schema import Schema
from tidemill.plan.order import Order
from tidemill.reference.lifetimes import in_order

Row = dict[str, Any]


def ordered(rows: Iterable[Row], orders: Iterable[Order], schema: Schema) -> list[Row]:
    """Return the rows that are asked for, in order.

    >>> from tidemill.core.schema import schema
    >>> ordered([{"n": 1}, {"n": None}, {"n": 2}], [Order((("n", True),), 2)], schema({"n": "int64"}))
    [{'n': 2}, {'n': 1}]
    """
    found = list(rows)
    for order in orders:
        for name, down in reversed(order.columns(schema)):
            found.sort(key=lambda row, name=name: in_order(row, [name]), reverse=down)  # type: ignore[misc]
        found = found[: order.limit]
    return found
