"""Evaluate constant expressions at plan time, and drop conditions that are always true."""

from __future__ import annotations

from tidemill.core.errors import UserError
from tidemill.core.schema import Schema
from tidemill.core.types import BOOL
from tidemill.expr.evaluate import evaluate
from tidemill.expr.nodes import Call, Cast, Literal, Node
from tidemill.expr.typing import type_of
from tidemill.optimize.rule import rule
from tidemill.plan.nodes import Filter, Plan, Project, Source, Union, WheelWindows, WindowAggregate
from tidemill.plan.rewrite import map_expressions
from tidemill.plan.temporal import Temporal

_NOTHING = Schema(())
_TRUE, _FALSE = Literal(True, BOOL), Literal(False, BOOL)


@rule(Source, Filter, Project, Union, WindowAggregate, WheelWindows, Temporal)
def fold_constants(plan: Plan) -> Plan:
    def fold(node: Plan) -> Plan:
        changed = map_expressions(node, folded)
        if isinstance(changed, Filter) and changed.predicate == _TRUE:
            return changed.input
        return changed

    return plan.transform(fold)


def folded(node: Node) -> Node:
    """Return an expression with its constant parts evaluated."""
    return node.transform(_fold)


def _fold(node: Node) -> Node:
    if isinstance(node, Call) and node.function in ("and", "or"):
        return _fold_logic(node)
    if isinstance(node, Call) and node.function == "if_else" and isinstance(node.args[0], Literal):
        return node.args[1] if node.args[0].value is True else node.args[2]
    if not isinstance(node, (Call, Cast)) or not all(
        isinstance(c, Literal) for c in node.children()
    ):
        return node
    kind = type_of(node, _NOTHING)
    if not (kind.is_fixed or kind.kind == "string"):
        return node
    try:
        return Literal(evaluate(node, {}, _NOTHING), kind)
    except UserError:
        return node  # an overflow must fail only if a row evaluates it


def _fold_logic(node: Call) -> Node:
    neutral, absorbing = (_TRUE, _FALSE) if node.function == "and" else (_FALSE, _TRUE)
    left, right = node.args
    if left == neutral:
        return right
    if right == neutral:
        return left
    # Dropping the left side could drop an error, so only an absorbing left side is folded.
    return absorbing if left == absorbing else node
