"""Built-in aggregates as JSON, for files. A user's own has code, which is never read from a file."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tidemill.aggregates import basic, moments, ordered
from tidemill.aggregates.algebra import EVENT_TIME, Aggregate
from tidemill.core.time import Duration
from tidemill.expr.fluent import Expr
from tidemill.expr.json import from_json, to_json
from tidemill.expr.nodes import Cast

_MODULES = (basic, moments, ordered)


def to_record(aggregate: Aggregate) -> dict[str, Any] | None:
    """Its name, arguments and parameters; None where these do not say what it is.

    >>> from tidemill.expr.fluent import col
    >>> to_record(basic.sum(col.x))
    {'name': 'sum', 'args': [{'column': 'x'}], 'params': {}}
    """
    if _function(aggregate.name) is None:
        return None
    given = [a for a in aggregate.args if a != EVENT_TIME]
    params = {n: str(v) if isinstance(v, Duration) else v for n, v in aggregate.params}
    # Some cast their argument, and would cast it once more.
    for args in (given, [a.arg if isinstance(a, Cast) else a for a in given]):
        record = {"name": aggregate.name, "args": [to_json(a) for a in args], "params": params}
        again = from_record(record)
        if again.parts == aggregate.parts and again.params == aggregate.params:
            return record
    return None


def from_record(record: dict[str, Any]) -> Aggregate:
    """What `to_record` was given."""
    function = _function(record["name"])
    assert function is not None
    made = function(*(Expr(from_json(a)) for a in record["args"]), **record["params"])
    assert isinstance(made, Aggregate)
    return made


def _function(name: str) -> Callable[..., Any] | None:
    for module in _MODULES:
        if name.isidentifier() and not name.startswith("_") and hasattr(module, name):
            found: Callable[..., Any] = getattr(module, name)
            return found
    return None
