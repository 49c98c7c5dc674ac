"""Read and carry only the columns that something above asks for."""

from __future__ import annotations

from dataclasses import replace

from tidemill.expr.nodes import columns_of
from tidemill.plan.nodes import Filter, Plan, Project, Source, WindowAggregate
from tidemill.windows.spec import PerEvent, Rows


def prune_columns(plan: Plan) -> Plan:
    return _prune(plan, frozenset(plan.schema.names))


def _prune(plan: Plan, needed: frozenset[str]) -> Plan:
    needed = needed | {plan.time}
    if isinstance(plan, Source):
        return replace(plan, columns=tuple(n for n in plan.declared.names if n in needed))
    if isinstance(plan, Filter):
        return replace(plan, input=_prune(plan.input, needed | columns_of(plan.predicate)))
    if isinstance(plan, Project):
        outputs = tuple((n, e) for n, e in plan.outputs if n in needed)
        below = frozenset().union(*(columns_of(e) for _, e in outputs))
        return replace(plan, outputs=outputs, input=_prune(plan.input, below))
    if isinstance(plan, WindowAggregate):
        return replace(plan, input=_prune(plan.input, _read_by(plan)))
    return plan


def _read_by(plan: WindowAggregate) -> frozenset[str]:
    found = {plan.attribute, *plan.group_keys}
    for _, aggregate in plan.aggregates:
        for part in aggregate.parts:
            found.update(*(columns_of(a) for a in part.args))
    for window in plan.windows:
        if isinstance(window.spec, (Rows, PerEvent)) and window.spec.order_by is not None:
            # Ties in the order are broken by every other column, so all of them matter.
            found.update(plan.input.schema.names)
    return frozenset(found)
