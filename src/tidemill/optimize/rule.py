"""The decorator of optimizer rules: a rule lists the plan nodes that it supports and rejects all others."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Concatenate, ParamSpec

from tidemill.plan.nodes import Plan, require_known

P = ParamSpec("P")
Rule = Callable[Concatenate[Plan, P], Plan]


def rule(*known: type[Plan]) -> Callable[[Rule[P]], Rule[P]]:
    """Declare a rule for plans of these nodes. A new kind of node must be added to each rule."""

    def checked(change: Rule[P]) -> Rule[P]:
        where = f"optimize/{change.__module__.rsplit('.', 1)[-1]}.py and to its @rule(...)"

        def apply(plan: Plan, /, *args: P.args, **kwargs: P.kwargs) -> Plan:
            require_known(plan, known, f"the rule {change.__name__}", where)
            return change(plan, *args, **kwargs)

        return functools.update_wrapper(apply, change)

    return checked
