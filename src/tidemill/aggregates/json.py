"""Built-in aggregates as JSON, for files. A user's own has code, which is never read from a file."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, cast

from tidemill.aggregates import basic, holistic, moments, ordered, sketches
from tidemill.aggregates.algebra import EVENT_TIME, Aggregate, Sketch
from tidemill.core.errors import UserError
from tidemill.core.time import Duration
from tidemill.expr.fluent import Expr
from tidemill.expr.json import from_json, to_json
from tidemill.expr.nodes import Cast

_MODULES = (basic, moments, ordered, holistic, sketches)


def to_record(aggregate: Aggregate) -> dict[str, Any] | None:
    """Its name, arguments and parameters; None where these do not say what it is.

    >>> from tidemill.expr.fluent import col
    >>> to_record(basic.sum(col.x))
    {'name': 'sum', 'args': [{'column': 'x'}], 'params': {}}
    """
    function = _function(aggregate.name)
    if function is None:
        return None
    given = [a for a in aggregate.args if a != EVENT_TIME]
    params = {n: str(v) if isinstance(v, Duration) else v for n, v in aggregate.params}
    if isinstance(sketch := aggregate.parts[0].algebra, Sketch):
        params["size"] = sketch.size
    known = inspect.signature(function).parameters  # of some, a parameter says what they always are
    params = {n: v for n, v in params.items() if n in known}
    # Some cast their argument, and would cast it once more; some have theirs the other way round.
    for args in (given, [a.arg if isinstance(a, Cast) else a for a in given], given[::-1]):
        record = {"name": aggregate.name, "args": [to_json(a) for a in args], "params": params}
        try:
            again = from_record(record)
        except (TypeError, UserError):  # a user's own, which only has the name of a built-in one
            continue
        if again.parts == aggregate.parts and again.params == aggregate.params:
            return record
    return None


def from_record(record: dict[str, Any]) -> Aggregate:
    """What `to_record` was given. A record may come from anyone: it names a built-in aggregate, or none."""
    name, args, params = (record.get(n) for n in ("name", "args", "params"))
    function = _function(name) if isinstance(name, str) else None
    if function is None or not isinstance(args, list) or not isinstance(params, dict):
        raise UserError("open", expected="a built-in aggregate", got=f"{record!r:.200}")
    try:
        inspect.signature(function).bind(*args, **params)
    except TypeError as wrong:
        raise UserError("open", expected=f"arguments of {name}", got=str(wrong)) from wrong
    made = function(*(Expr(from_json(a)) for a in args), **params)
    assert isinstance(made, Aggregate)
    return made


def _function(name: str) -> Callable[..., Any] | None:
    """A function of ours that takes expressions and makes an aggregate."""
    for module in _MODULES:
        found = getattr(module, name, None)
        own = inspect.isfunction(found) and found.__module__ == module.__name__ and name[:1] != "_"
        if own and found.__annotations__.get("return") == Aggregate.__name__:
            return cast("Callable[..., Any]", found)
    return None
