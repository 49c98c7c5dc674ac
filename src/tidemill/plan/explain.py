"""A plan as steps, first to last: the skeleton that every engine's `explain` fills in."""

from __future__ import annotations

from collections.abc import Callable

from tidemill.plan.nodes import Plan, WindowAggregate
from tidemill.plan.stages import Stage, stage_of

Lines = list[str]


def describe(
    plan: Plan, windows: Callable[[WindowAggregate], Lines], stage: Callable[[Stage], Lines]
) -> str:
    """Each window aggregate and each stage in the words of an engine, in the order they run."""
    return "\n".join(_lines(plan, windows, stage))


def _lines(
    plan: Plan, windows: Callable[[WindowAggregate], Lines], stage: Callable[[Stage], Lines]
) -> Lines:
    top = stage_of(plan)
    if isinstance(top.base, WindowAggregate):
        below = [*_lines(top.base.input, windows, stage), *windows(top.base)]
    else:
        below = [str(top.base)]
    return [*below, *stage(top)]
