"""The optimizer applies a tuple of rules in order; each rule is a function in its own file.

Every rule must keep the schema, the types and the time column; this is checked after each rule. How an
engine computes the nodes is not part of the plan: see `choices.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tidemill.core.errors import InternalError
from tidemill.optimize.fold_constants import fold_constants
from tidemill.optimize.group_tables import group_tables
from tidemill.optimize.hops_as_windows import hops_as_windows
from tidemill.optimize.merge_filters import merge_filters
from tidemill.optimize.prune_columns import prune_columns
from tidemill.optimize.push_filters import push_filters
from tidemill.optimize.share_subplans import share_subplans
from tidemill.optimize.use_wheel import use_wheel
from tidemill.plan.format import format_plan
from tidemill.plan.nodes import Plan
from tidemill.plan.wheel_facts import WheelFacts

Rule = Callable[[Plan], Plan]

RULES: tuple[Rule, ...] = (
    fold_constants,
    share_subplans,
    push_filters,
    merge_filters,
    group_tables,
    hops_as_windows,
    prune_columns,
)


def optimize(plan: Plan, rules: tuple[Rule, ...] = RULES) -> Plan:
    """Apply every rule to a plan, in order."""
    for rule in rules:
        after = rule(plan)
        _check(plan, after, rule.__name__)
        plan = after
    return plan


def with_wheels(plan: Plan, wheels: Mapping[str, WheelFacts]) -> Plan:
    """Rewrite an optimised plan for inputs of which some are wheels."""
    after = share_subplans(use_wheel(plan, wheels))
    _check(plan, after, use_wheel.__name__)
    return after


def _check(before: Plan, after: Plan, rule: str) -> None:
    if (after.schema, after.time, after.end) != (before.schema, before.time, before.end):
        raise InternalError(
            f"rule {rule} changed the result from {before.schema} to {after.schema}",
            plan=f"{format_plan(before)}\n-- became --\n{format_plan(after)}",
        )
