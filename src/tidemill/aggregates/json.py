"""Built-in aggregates as JSON, for files. A user's own has code, which is never read from a file."""

from __future__ import annotations

import inspect
from typing import Any

from tidemill.aggregates.algebra import Aggregate
from tidemill.aggregates.registry import AGGREGATES, entry_of
from tidemill.core.errors import UserError
from tidemill.core.time import Domain, Duration
from tidemill.expr.fluent import Expr
from tidemill.expr.json import from_json, to_json


def to_record(aggregate: Aggregate) -> dict[str, Any] | None:
    """Its name, arguments and parameters; None for a user's own.

    >>> from tidemill.aggregates.basic import sum
    >>> from tidemill.expr.fluent import col
    >>> to_record(sum(col.x))
    {'name': 'sum', 'args': [{'column': 'x'}], 'params': {}}
    """
    if entry_of(aggregate) is None:
        return None
    params = {name: _plain(value) for name, value in aggregate.params}
    return {"name": aggregate.name, "args": [to_json(a) for a in aggregate.given], "params": params}


def _plain(value: Any) -> Any:
    if not isinstance(value, Duration):
        return value
    return value.ticks if value.domain is Domain.LOGICAL else str(value)


def from_record(record: dict[str, Any]) -> Aggregate:
    """The aggregate that `to_record` was given. A record may come from anyone: it names a built-in one."""
    name, args, params = (record.get(n) for n in ("name", "args", "params"))
    entry = AGGREGATES.get(name) if isinstance(name, str) else None
    if entry is None or not isinstance(args, list) or not isinstance(params, dict):
        raise UserError("open", expected="a built-in aggregate", got=f"{record!r:.200}")
    try:
        inspect.signature(entry.make).bind(*args, **params)
    except TypeError as wrong:
        raise UserError("open", expected=f"arguments of {name}", got=str(wrong)) from wrong
    return entry.make(*(Expr(from_json(a)) for a in args), **params)
