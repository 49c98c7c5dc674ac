"""Stages over tables: rows hold for ever, so their lifetime is two constants that no loop writes down."""

from __future__ import annotations

from collections.abc import Set

from tidemill.expr.nodes import Literal, substitute
from tidemill.plan.nodes import Plan
from tidemill.plan.stages import Stage, stage_of
from tidemill.plan.temporal import ALWAYS, ALWAYS_END, Lifetime


def stage_over(plan: Plan, stop: Set[int], shared: Set[int]) -> Stage:
    """Return the stage of a plan (`stage_of`); where rows hold for ever, the step that says so is part of it.

    `shared` has the `id`s of nodes that other operators read, too; these are steps of their own.
    """
    stage = stage_of(plan, stop)
    always = stage.base
    if not isinstance(always, Lifetime) or always.time != ALWAYS or id(always) in shared:
        return stage
    known = dict(always.outputs)
    end = known[ALWAYS_END]
    if not isinstance(end, Literal) or end.value is not None:
        return stage
    below = stage_over(always.input, shared, shared)
    columns = {n: below.rewrite(e) for n, e in known.items()}
    return Stage(
        below.base,
        (*below.predicates, *(substitute(p, columns) for p in stage.predicates)),
        tuple((n, substitute(e, columns)) for n, e in stage.outputs),
    )
