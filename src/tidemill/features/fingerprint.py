"""A hash of a plan that is the same in every process, so that a training set and a server can be compared."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable
from enum import Enum
from typing import Any

from tidemill.aggregates.algebra import Aggregate
from tidemill.core.types import DataType
from tidemill.expr.json import to_json
from tidemill.expr.nodes import Call, Node, Udf
from tidemill.plan.nodes import Plan


def fingerprint(plan: Plan) -> str:
    """Return a hash of what a plan says: 16 digits.

    Functions in Python are known by their name; rows that a stream was made of do not count. What is as it
    is by default is left out, so that options to come change no hash.

    >>> import tidemill as tm
    >>> def asked(size):
    ...     s = tm.stream("s", time="t", schema={"t": "int64"})
    ...     return s.interval_join(s, preceding=size).agg(n=tm.count()).plan
    >>> fingerprint(asked(5)) == fingerprint(asked(5)), fingerprint(asked(5)) == fingerprint(asked(6))
    (True, False)
    """
    text = plan.fold(
        lambda node, below: _digest(_record(node, dict(zip(map(id, node.children()), below))))
    )
    return text[:16]


def _digest(record: Any) -> str:
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()


def _record(value: Any, below: dict[int, str]) -> Any:
    """Return a value as JSON; inputs of a plan are their digests."""
    if isinstance(value, Plan) and id(value) in below:
        return below[id(value)]
    if isinstance(value, Node):
        return to_json(value.transform(_by_name))
    if isinstance(value, Aggregate):
        params = [[name, _record(given, below)] for name, given in value.params]
        return [value.name, [_record(a, below) for a in value.args], params]
    if isinstance(value, DataType):
        return repr(value)
    if isinstance(value, Enum):
        return value.name
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        own = {
            f.name: getattr(value, f.name) for f in dataclasses.fields(value) if _is_said(f, value)
        }
        return [type(value).__name__, {name: _record(one, below) for name, one in own.items()}]
    if isinstance(value, (tuple, list)):
        return [_record(one, below) for one in value]
    if isinstance(value, (set, frozenset)):
        return sorted(json.dumps(_record(one, below), sort_keys=True) for one in value)
    if isinstance(value, dict):
        return [[str(name), _record(one, below)] for name, one in value.items()]
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if callable(value):
        return _name(value)
    return repr(value)


def _is_said(field: dataclasses.Field[Any], value: Any) -> bool:
    given = getattr(value, field.name)
    if field.metadata.get("is_data"):
        return False
    if field.default is not dataclasses.MISSING:
        return bool(given != field.default)
    if field.default_factory is not dataclasses.MISSING:
        return bool(given != field.default_factory())
    return True


def _by_name(node: Node) -> Node:
    """A call of a function in Python, as one of a function of its name."""
    if not isinstance(node, Udf):
        return node
    return Call(f"python {_name(node.function)} {node.returns!r}", node.args)


def _name(function: Callable[..., Any]) -> str:
    return str(getattr(function, "__qualname__", type(function).__qualname__))
