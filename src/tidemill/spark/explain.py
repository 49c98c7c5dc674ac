"""What Spark will do, said before it runs."""

from __future__ import annotations

from tidemill.aggregates.algebra import Algebra
from tidemill.plan.nodes import Plan, WindowAggregate
from tidemill.plan.stages import stage_of
from tidemill.spark.windows import strategy

_WORK = {
    "jvm": ["aggregate by key and window in the JVM"],
    "panes": [
        "aggregate by key and pane in the JVM",
        "slide over the partials in Python, by compiled kernels",
    ],
    "partials": [
        "aggregate by key and pane in Python, by compiled kernels, where the rows are",
        "slide over the partials in Python, by compiled kernels",
    ],
    "colocated": ["run the local engine on the rows of each partition"],
}


def describe(plan: Plan) -> str:
    """The steps of a plan on Spark, with every shuffle."""
    lines: list[str] = []
    _describe(plan, lines)
    return "\n".join(lines)


def _describe(plan: Plan, lines: list[str]) -> None:
    stage = stage_of(plan)
    if isinstance(stage.base, WindowAggregate):
        _describe(stage.base.input, lines)
        _describe_windows(stage.base, lines)
    else:
        lines.append(f"read {stage.base}")
    for predicate in stage.predicates:
        lines.append(f"filter in the JVM: {predicate}")
    if stage.outputs and plan is not stage.base:
        lines.append(f"project in the JVM: {', '.join(n for n, _ in stage.outputs)}")


def _describe_windows(plan: WindowAggregate, lines: list[str]) -> None:
    chosen = strategy(plan)
    windows = "; ".join(map(str, plan.windows))
    lines.append(f"windows {windows}: {chosen.name}, because {chosen.why}")
    shuffles = list(chosen.shuffles)
    work = _WORK[chosen.name]
    if chosen.name == "colocated":
        lines += [f"  shuffle {shuffles[0]}", f"  {work[0]}"]
        return
    lines.append(f"  {work[0]}")
    for shuffle in shuffles:
        lines.append(f"  shuffle {shuffle}")
    lines += [f"  {w}" for w in work[1:]]
    for part in plan.layout.parts:
        algebra = part.part.algebra
        if isinstance(algebra, Algebra) and not part.compiled:
            lines.append(f"  {part.part}: opaque Python functions")
