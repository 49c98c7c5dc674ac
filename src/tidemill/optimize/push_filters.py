"""Filter early: below projections, and below an aggregate when only keys are asked about."""

from __future__ import annotations

from dataclasses import replace

from tidemill.expr.nodes import Udf, columns_of, substitute
from tidemill.plan.nodes import Filter, Plan, Project, WindowAggregate
from tidemill.windows.spec import Sliding, Window


def push_filters(plan: Plan) -> Plan:
    def rule(node: Plan) -> Plan:
        if not isinstance(node, Filter):
            return node
        below = node.input
        if isinstance(below, Project):
            predicate = substitute(node.predicate, dict(below.outputs))
            if any(isinstance(n, Udf) for n in predicate.walk()):
                return node  # it would run twice
            return replace(below, input=push_filters(Filter(below.input, predicate)))
        if isinstance(below, WindowAggregate) and _only_keys(node, below):
            return replace(below, input=push_filters(Filter(below.input, node.predicate)))
        return node

    return plan.transform(rule)


def _only_keys(filter: Filter, below: WindowAggregate) -> bool:
    """Whether rows of other keys have no say in the windows that this filter keeps."""
    asked = columns_of(filter.predicate)
    return all(
        asked <= set(below.group_keys) and _independent(asked, w.spec, below) for w in below.windows
    )


def _independent(asked: frozenset[str], spec: Window, below: WindowAggregate) -> bool:
    # Filled and landmark windows go on until the last row of the whole stream.
    if spec.until_end:
        return False
    return isinstance(spec, Sliding) or (bool(asked) and asked <= set(below.partition_of(spec)))
