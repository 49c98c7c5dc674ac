"""Describe how Spark will run a plan."""

from __future__ import annotations

from tidemill.aggregates.algebra import Algebra
from tidemill.core.errors import UserError
from tidemill.core.schema import users_part
from tidemill.expr.nodes import Column, Node, Udf
from tidemill.plan.nodes import Plan, WindowAggregate
from tidemill.plan.stages import Stage
from tidemill.plan.steps import describe as describe_plan
from tidemill.plan.temporal import Temporal
from tidemill.spark.batch.blocks import Blocks
from tidemill.spark.batch.temporal import way_of
from tidemill.spark.batch.windows import strategy
from tidemill.spark.expr.functions import outside_java

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

_RUNS = {
    "columns": "compute columns in the JVM",
    "join": "join in the JVM",
    "together": "run the local engine on the rows of each partition",
}


def describe(plan: Plan) -> str:
    """The steps of a plan on Spark, with every shuffle."""
    return describe_plan(plan, _windows, _stage, _temporal)


def _stage(stage: Stage) -> list[str]:
    lines = [f"filter {_where(p)}: {p}" for p in stage.predicates]
    changed = [(n, e) for n, e in stage.outputs if e != Column(n)]
    return lines + [f"compute {_where(e)}: {users_part(n)} = {e}" for n, e in changed]


def _where(node: Node) -> str:
    where = "in the JVM"
    if any(isinstance(n, Udf) for n in node.walk()):
        where += ", a Python function row by row"
    for why in dict.fromkeys(map(outside_java, node.walk())):
        where += "" if why is None else f", a pattern by RE2 in Arrow batches, as {why}"
    return where


def _windows(plan: WindowAggregate) -> list[str]:
    try:
        chosen = strategy(plan)
    except UserError as refused:
        return [f"not on Spark: {refused}"]
    shuffles = [f"  shuffle {s}" for s in chosen.shuffles]
    work = [f"  {w}" for w in _WORK[chosen.name]]
    if chosen.name == "panes" and (width := Blocks(plan).width) > 1:
        work[0] += f", {width} panes to a row"
    steps = [*shuffles, *work] if chosen.name == "colocated" else [work[0], *shuffles, *work[1:]]
    opaque = [
        f"  {p.part}: opaque Python functions"
        for p in plan.layout.parts
        if isinstance(p.part.algebra, Algebra) and not p.compiled
    ]
    windows = "; ".join(map(str, plan.windows))
    return [f"windows {windows}: {chosen.name}, because {chosen.why}", *steps, *opaque]


def _temporal(plan: Temporal) -> list[str]:
    way = way_of(plan)
    steps = [*way.first, *(f"shuffle {s}" for s in way.shuffles), _RUNS[way.name], *way.last]
    return [f"{plan}: {way.name}, because {way.why}", *(f"  {step}" for step in steps)]
