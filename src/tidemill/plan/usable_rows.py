"""Rows without a windowing attribute: a query with a policy counts them and goes on without them.

A null in `on=`, or a value too far from zero, has no place in a window. `run` without a policy refuses it.
Live queries leave such rows out of the windows (`usable_only`) and count them by reason (`checks_of`).
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass

from tidemill.core.time import FARTHEST, FOREVER
from tidemill.core.types import BOOL
from tidemill.expr.nodes import Call, Column, Literal, Node
from tidemill.plan.disorder import FAR_ATTRIBUTE, NO_LIFETIME, NULL_ATTRIBUTE
from tidemill.plan.nodes import Filter, Plan, Source, WindowAggregate
from tidemill.plan.stages import stage_of
from tidemill.windows.spec import GridWindow, Rows


@dataclass(frozen=True)
class Check:
    """A windowing attribute, over the columns of a stream, and when a row has none that can be used."""

    attribute: Node
    unusable: tuple[tuple[str, Node], ...]
    """The condition of each reason. Rows that a filter drops before the windows are not meant."""
    always: bool = False
    """Whether a look at the attribute alone does not tell."""


def usable_only(plan: Plan) -> Plan:
    """Leave rows out of windows that read a stream directly, if they lack an attribute of these windows.

    Windows behind others or behind a union stay as they are: nobody could count the rows of an input.

    >>> import tidemill as tm
    >>> s = tm.stream("s", time="t", schema={"t": "int64", "u": "int64"})
    >>> print(usable_only(s.window(tm.tumbling(10, on="u")).agg(n=tm.count()).plan).input.predicate)
    ((col.u >= -2305843009213693952) & (col.u <= 2305843009213693952))
    """
    return plan.fold(lambda node, children: _usable(_with_lifetimes(node.with_children(children))))


def checks_of(plan: Plan, stream: str) -> tuple[Check, ...]:
    """Return the attributes to check in rows of a stream, of a plan before `usable_only`."""
    found = []
    for node in plan.walk():
        if isinstance(node, Source) and node.name == stream and node.end is not None:
            none = Call("not", (Call("coalesce", (_has_lifetime(node), Literal(True, BOOL))),))
            found.append(Check(Column(node.end), ((NO_LIFETIME, none),), always=True))
        for name in _attributes(node):
            stage = stage_of(node.children()[0])
            if not isinstance(stage.base, Source) or stage.base.name != stream:
                continue
            value, kind = stage.output(name), node.children()[0].schema[name]
            low, high = (Literal(bound, kind) for bound in (-FARTHEST, FARTHEST))
            far = Call("or", (Call("lt", (value, low)), Call("gt", (value, high))))
            conditions = ((NULL_ATTRIBUTE, Call("is_null", (value,))), (FAR_ATTRIBUTE, far))
            found.append(Check(value, tuple((r, _all(*stage.predicates, c)) for r, c in conditions)))
    return tuple(dict.fromkeys(found))


def _has_lifetime(source: Source) -> Node:
    """The condition that a row ends after its start; null where it never ends."""
    assert source.end is not None
    end, bound = Column(source.end), source.schema[source.end]
    after = Call("gt", (end, Column(source.time)))
    near = Call("le", (end, Literal(FARTHEST, bound)))
    near = Call("or", (near, Call("eq", (end, Literal(FOREVER, bound)))))
    return Call("and", (after, near))


def _with_lifetimes(node: Plan) -> Plan:
    """Leave rows out that hold at no instant, right where they come in."""
    if not isinstance(node, Source) or node.end is None:
        return node
    return Filter(node, Call("coalesce", (_has_lifetime(node), Literal(True, BOOL))))


def _usable(node: Plan) -> Plan:
    names = list(_attributes(node))
    if not names:
        return node
    [rows] = node.children()
    inside = []
    for name in names:
        low, high = (Literal(bound, rows.schema[name]) for bound in (-FARTHEST, FARTHEST))
        inside += [Call("ge", (Column(name), low)), Call("le", (Column(name), high))]  # not true of null
    return node.with_children([Filter(rows, _all(*inside))])


def _attributes(node: Plan) -> Iterator[str]:
    """Yield the attributes of windows that read a stream directly, other than its time."""
    if not isinstance(node, WindowAggregate) or not isinstance(stage_of(node.input).base, Source):
        return
    spec = node.windows[0].spec
    if isinstance(spec, Rows) or (isinstance(spec, GridWindow) and spec.grain is not None):
        return  # the number of a row is never null; floats without a place count as rows before the start do
    yield from (n for n in dict.fromkeys((node.attribute, node.range_attribute)) if n != node.input.time)


def _all(*conditions: Node) -> Node:
    return functools.reduce(lambda a, b: Call("and", (a, b)), conditions)
