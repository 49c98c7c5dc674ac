"""Merge consecutive filters with `&`, which does not evaluate its right side if the left is false."""

from __future__ import annotations

from tidemill.expr.nodes import Call
from tidemill.optimize.rule import rule
from tidemill.plan.nodes import Filter, Plan, Project, Source, Union, WheelWindows, WindowAggregate
from tidemill.plan.temporal import Temporal


@rule(Source, Filter, Project, Union, WindowAggregate, WheelWindows, Temporal)
def merge_filters(plan: Plan) -> Plan:
    def merge(node: Plan) -> Plan:
        if isinstance(node, Filter) and isinstance(node.input, Filter):
            both = Call("and", (node.input.predicate, node.predicate))
            return Filter(node.input.input, both)
        return node

    return plan.transform(merge)
