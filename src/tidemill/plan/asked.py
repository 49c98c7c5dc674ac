"""What is asked in `agg(...)`: aggregates by the names of their columns, and arithmetic between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidemill.aggregates.algebra import Aggregate
from tidemill.aggregates.registry import AGGREGATES
from tidemill.core.errors import UserError
from tidemill.core.schema import internal, users_name
from tidemill.expr.fluent import Arithmetic, Expr, traced
from tidemill.expr.nodes import Column, Node, ResultOf, columns_of
from tidemill.expr.typing import resolve
from tidemill.plan.nodes import Plan, Project

EXAMPLE = "agg(n=tm.count())"


def by_name(step: str, given: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
    """Aggregates by the names of their columns; those without a name get one.

    It is the name of the aggregate and those of the columns that it is of, joined by `_`.

    >>> from tidemill.aggregates.basic import count, sum
    >>> list(by_name("agg", [count(), sum("price")], {"spend": sum("price")}))
    ['count', 'sum_price', 'spend']
    """
    found: dict[str, Any] = {}
    for one in (a for item in given for a in (item if isinstance(item, (list, tuple)) else [item])):
        name = _own_name(step, one)
        if name in found or name in named:
            raise UserError(
                step, expected="each name once", got=f"{name!r} twice, of which one is that of {one}",
                hint=f"give it another name: agg(other={one})",
            )  # fmt: skip
        found[name] = one
    for name, one in named.items():
        found[users_name(name, step=step)] = _traced(f"{step} {name}", one)
    return found


def _traced(step: str, given: Any) -> Any:
    """What a lambda over a row proxy asks for: `lambda e: tm.sum(e.a) / tm.count()`."""
    if not callable(given) or isinstance(given, (type, Arithmetic)) or _makes_aggregates(given):
        return given
    node = traced(given, step=step)
    return node.aggregate if isinstance(node, ResultOf) else Expr(node)


def _makes_aggregates(given: Any) -> bool:
    return hasattr(given, "algebra") or any(given is entry.make for entry in AGGREGATES.values())


def _own_name(step: str, one: Any) -> str:
    if isinstance(one, Arithmetic):
        if isinstance(one, Aggregate) and all(isinstance(a, Column) for a in one.given):
            return "_".join([one.name, *(a.name for a in one.given if isinstance(a, Column))])
        raise UserError(
            step, expected="a name for what is computed", got=str(one.node), hint=f"write agg(name={one})"
        )
    raise no_aggregate(step, one)


def no_aggregate(step: str, given: Any) -> UserError:
    """The error for what stands in the place of an aggregate."""
    hint = ""
    if isinstance(given, bool):
        hint = "== compares aggregates themselves; compare results after it: .with_columns(...)"
    elif isinstance(given, Arithmetic):
        hint = "wrap it: tm.sum(...), tm.last(...)"
    elif isinstance(given, Mapping):
        hint = "names are arguments: agg(n=tm.count(), spend=tm.sum(col.price)), or agg(**names)"
    elif callable(given) and _makes_aggregates(given):
        hint = f"write the parentheses: {given.__name__}()"
    elif isinstance(given, str):
        hint = "aggregates are functions: agg(tm.count(), tm.sum(col.price))"
    got = f"{given!r:.200} ({type(given).__name__})"
    return UserError(step, expected="an aggregate such as tm.sum(col.x)", got=got, hint=hint)


@dataclass(frozen=True)
class Asked:
    """Aggregates, and expressions over their results where something is computed with these."""

    aggregates: dict[str, Any]
    outputs: dict[str, Node]
    computed: bool
    step: str

    def results_of(self, plan: Plan) -> Plan:
        """The columns that are asked for, from the plan that has those of the aggregates."""
        if not self.computed:
            return plan
        own = {n: Column(n) for n in plan.schema.names if n not in self.aggregates}
        outputs = {
            n: resolve(e, plan.schema, step=f"{self.step} {n}") for n, e in {**own, **self.outputs}.items()
        }
        return Project(plan, tuple(outputs.items()))


def split(step: str, given: Mapping[str, Any], *, some: bool = True) -> Asked:
    """Separate aggregates from what is computed with their results: `rate=tm.sum(col.a) / tm.count()`."""
    if some and not given:
        raise UserError(step, expected="at least one aggregate", got="none", hint=EXAMPLE)
    aggregates: dict[str, Any] = {}
    outputs: dict[str, Node] = {}
    for name, value in given.items():
        if isinstance(value, Aggregate) or not isinstance(value, Arithmetic):  # others are refused by `bind`
            aggregates[name], outputs[name] = value, Column(name)
        else:
            outputs[name] = _over_results(f"{step} {name}", value.node, aggregates)
    return Asked(aggregates, outputs, any(not isinstance(v, Aggregate) for v in given.values()), step)


def _over_results(step: str, node: Node, aggregates: dict[str, Any]) -> Node:
    """The expression over the columns of its aggregates, which are added to those there are."""
    inside = [n.aggregate for n in node.walk() if isinstance(n, ResultOf)]
    if not inside:
        raise no_aggregate(step, Expr(node))
    if columns_of(node):
        raise UserError(
            step, expected="aggregates, and what is computed with their results",
            got=f"{node}, with columns of single rows",
            hint="wrap columns in an aggregate: tm.sum(...), tm.last(...)",
        )  # fmt: skip

    def column(one: Node) -> Node:
        if not isinstance(one, ResultOf):
            return one
        name = internal(str(one.aggregate))
        while aggregates.setdefault(name, one.aggregate) != one.aggregate:
            name += "'"
        return Column(name)

    return node.transform(column)
