"""`explain` for the local engine: the loops that will run, and which code is compiled."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidemill.aggregates.algebra import Algebra, OpaqueForm
from tidemill.codegen.state_plan import plan_states, refusal
from tidemill.core.errors import UserError
from tidemill.core.schema import Schema, users_part
from tidemill.core.time import FOREVER, Domain, format_duration, to_datetime
from tidemill.expr.nodes import Column, Node, Udf
from tidemill.io.window_source import WindowSource
from tidemill.jit.function_content import uncached
from tidemill.local.divided_run import parts_of
from tidemill.local.edge_sweep import sweeps
from tidemill.local.expressions import compiles, row_by_row
from tidemill.local.indexed_operator import indexed
from tidemill.local.last_range import aggregate_of_copies
from tidemill.local.range_values import RangeValues
from tidemill.local.snapshot_values import SnapshotValues
from tidemill.local.window_plan import fuses
from tidemill.optimize.choices import choices_of
from tidemill.optimize.optimizer import with_wheels
from tidemill.plan.as_of import as_of, until_next
from tidemill.plan.faults import check_inputs
from tidemill.plan.intervals import IntervalAggregate, IntervalJoin, copied, kept_rows
from tidemill.plan.nodes import Plan, Source, WheelWindows, WindowAggregate
from tidemill.plan.physical import Panes
from tidemill.plan.properties import looks_up, properties, slides_over_another
from tidemill.plan.stages import Stage, stage_of
from tidemill.plan.steps import describe as describe_plan
from tidemill.plan.temporal import (
    Chop,
    Cut,
    Edges,
    FromEdges,
    Join,
    Lifetime,
    Neighbours,
    SnapshotAggregate,
    Stitch,
    Temporal,
    TopRows,
    Unnest,
    UntilSessionEnd,
    sided,
)
from tidemill.plan.wheel_facts import WheelFacts

_SLIDING = {
    "single": "windows do not overlap: each partial is used once",
    "subtract": "subtract on evict",
    "subtract_rows": "subtract the rows that leave, which are kept",
    "two_stacks": "two stacks",
    "merge": "merge the panes of each window",
    "recompute": "look at all rows of each window",
}


def describe(plan: Plan) -> str:
    """Describe how the local engine runs a plan, step by step."""
    return _threads(plan) + describe_plan(plan, _windows, _stage, _temporal)


def _threads(plan: Plan) -> str:
    """Describe how rows are divided among threads."""
    parts = parts_of(plan)
    if parts is None:
        return ""
    shown = "; ".join(one.shown for one in parts.below.values())
    what = "rows" if isinstance(parts.top, Source) else "rows of the parts that go by a key"
    return f"on several threads, {what} are divided by {shown}\n"


def with_inputs(plan: Plan, inputs: Mapping[str, Any]) -> tuple[Plan, str | None]:
    """Return the plan for these inputs, and for a wheel what is read from it or why it cannot be used."""
    check_inputs(plan, inputs, step="explain")
    wheels = {n: given.facts() for n, given in inputs.items() if isinstance(given, WindowSource)}
    if not wheels:
        return plan, None
    try:
        found = with_wheels(plan, wheels)
    except UserError as refused:
        return plan, f"not from the wheel: {refused}"
    nodes = [n for n in found.walk() if isinstance(n, WheelWindows)]
    return found, "\n".join(from_wheel(node, wheels[node.stream]) for node in nodes)


def from_wheel(node: WheelWindows, facts: WheelFacts) -> str:
    """Describe what a plan reads from a wheel."""
    held = dict(facts.held.aggregates)
    lines = [f"windows {'; '.join(map(str, node.windows))} from slots of the wheel, no rows are read:"]
    for name, own in node.aggregates:
        if isinstance(own, str):
            lines.append(f"  {name}: {own}={held[own]} of the wheel")
        else:
            parts = " and ".join(dict.fromkeys(str(p) for p in own.parts))
            lines.append(f"  {name}: {own}, made of {parts} in the wheel")

    def at(ticks: int) -> Any:
        return to_datetime(ticks) if facts.held.domain is Domain.CLOCK else ticks

    rings = ", ".join(f"{r.shown} since {at(r.since)}" for r in facts.rings)
    lines.append(f"  rings: {rings}")
    lines.append(f"  watermark: {at(facts.watermark)}, rows at or above it do not count yet")
    return "\n".join(lines)


def _stage(stage: Stage) -> list[str]:
    changed = [(n, e) for n, e in stage.outputs if e != Column(n)]
    if not stage.predicates and not changed:
        return []
    lines = ["one generated loop:"]
    lines += [f"  keep rows where {p}{_how(p, stage.base.schema)}" for p in stage.predicates]
    return lines + [f"  {users_part(n)} = {e}{_how(e, stage.base.schema)}" for n, e in changed]


def _how(node: Node, schema: Schema) -> str:
    """Return a note on how an expression runs: compiled, in Arrow, or row by row in Python."""
    slow = row_by_row(node, schema)
    if slow:
        return f"   [row by row: {'; '.join(slow)}]"
    if any(n.children() and not compiles(n, schema) for n in node.walk()):
        return "   [strings in Arrow]"
    why = [w for n in node.walk() if isinstance(n, Udf) and (w := uncached(n.function))]
    return f"   [compiled, again in each process: {'; '.join(why)}]" if why else "   [compiled]"


def _panes(panes: Panes) -> str:
    return f"{panes.size} ticks" if panes.axis is None else str(panes.axis)


def _windows(plan: WindowAggregate) -> list[str]:
    keys = ", ".join(plan.group_keys) or "one group"
    if slides_over_another(plan):
        _, _, *aggregates = _windows(aggregate_of_copies(plan))
        return [
            f"windows {'; '.join(map(str, plan.windows))} by {keys}:",
            "  keep the rows that windows to come need; copy rows to each of their windows when these close",
            *aggregates[:-1],
        ]
    choices = choices_of(plan)
    where = "in the same loop" if fuses(plan) else "in a loop of their own, after the keys"
    lines = [
        f"windows {'; '.join(map(str, plan.windows))} by {keys}:",
        f"  accumulate partials by key and pane of {_panes(choices.panes)}, {where}",
    ]
    parts = plan_states(plan.layout, choices.sliding)
    for index, (part, sliding) in enumerate(zip(plan.layout.parts, choices.sliding)):
        form = "compiled"
        if index in parts.in_python and isinstance(part.part.algebra, Algebra):
            form = f"row by row: {refusal(plan.layout, index)}"
        elif index in parts.in_python:
            form = "sketch objects"
        elif isinstance(part.form, OpaqueForm):
            form = "compiled by Numba as it is"
        if index in parts.fixed and (why := _again(plan, index)):
            form += f", again in each process: {why}"
        args = [h for a in part.part.args if "row" in (h := _how(a, stage_of(plan.input).base.schema))]
        lines.append(f"  {part.part}   [{form}; {_SLIDING[sliding]}]{''.join(args)}")
    return lines


_MET = "rows are read in order of time; those that hold are chained by key"
_HOLDING = "keeps the rows that hold at the watermark"
_KEEPS: dict[type[Temporal], str] = {
    Chop: "cut in arrays; keeps rows that never end",
    Edges: "edges of equal rows at one instant are added up; keeps rows until they end",
    FromEdges: "rows of a key in order of time; keeps the starts that are open",
    Join: f"{_MET}; {_HOLDING}",
    Neighbours: "rows of a key in order of time; keeps the last ones, and those that wait for others",
    Stitch: "starts and ends of equal rows in order; keeps the ones that may go on",
    TopRows: f"rows of a key that hold together are ranked; {_HOLDING}",
    UntilSessionEnd: "rows of a key in order of time; keeps the sessions that may go on",
}


def _snapshot(plan: SnapshotAggregate) -> list[str]:
    """Describe how the values of a snapshot aggregate are computed."""
    lifetimes = properties(plan.input)
    first = f"{plan}, of {lifetimes.shown(plan.input.domain)}:"
    keeps = f"  {_HOLDING}, and since when each key has its value"
    if sweeps(plan):
        what = "added where they start and taken out where they end" if plan.aggregates else "counted"
        return [first, f"  edges: in one pass over starts and ends, rows are {what}", keeps]
    values = SnapshotValues(plan)
    held = ", ".join(values.not_exact) or "what a function in Python returns"
    lines = [first, f"  not exact when rows are taken out: {held}"]
    if lifetimes.in_turn:
        moving = "  moving: rows end in the order in which they start, so those that hold are a moving range"
        return [*lines, moving, keeps]
    return [
        *lines,
        "  moving: if rows of a key end in the order in which they start, those that hold are a moving range",
        "  copies: otherwise each row is copied to the instants of change at which it holds", keeps,
    ]  # fmt: skip


def _interval_join(plan: IntervalJoin) -> list[str]:
    """Describe how the probe rows of base rows are found, when answers come, and what is kept."""
    asked, domain = plan.interval, plan.domain

    def length(ticks: int) -> str:
        return format_duration(ticks) if domain is Domain.CLOCK else str(ticks)

    by_condition = plan.match.where is not None
    lines = [f"{plan}:", "  probe rows in order of key and time: those of a base row are a range of them"]
    lines += [f"  {name} = {bound}{_how(bound, plan.base.schema)}"
              for name, bound in zip(("preceding", "following"), asked.bounds) if isinstance(bound, Node)]
    if by_condition:
        how = _how(plan.match.where, Schema(sided(plan.base, plan.probe)))  # type: ignore[arg-type]
        lines.append(f"  keep pairs where {plan.match.condition}{how}")
    if isinstance(plan, IntervalAggregate):
        if copied(plan):
            lines.append("  copies: each probe row is copied to its base rows, and aggregated there")
        else:
            parts = RangeValues(plan.probe, plan.aggregates).shown_parts(jumping=bool(asked.computed))
            lines += [f"  {part}" for part in parts]
    waits = asked.waits
    when = "that depends on the row" if waits is None else "the end" if waits == FOREVER else (
        f"{length(waits)} after its time" if waits else "its time")  # fmt: skip
    leaks = "; it knows the future" if asked.leaks else ""
    lines.append(f"  a base row is answered when the watermark is above {when}{leaks}")
    if indexed(plan) is not None:
        lines.append("  live, on several threads: joiners share the intervals of hot keys, as balanced")
    return [*lines, f"  keeps base rows that wait, and {kept_rows(plan)}"]


def _temporal(plan: Temporal) -> list[str]:
    """Describe how an operator on lifetimes runs, and what it keeps."""
    if isinstance(plan, IntervalJoin):
        return _interval_join(plan)
    if isinstance(plan, SnapshotAggregate):
        return _snapshot(plan)
    if isinstance(plan, Lifetime):
        if properties(plan).everlasting:
            return ["its rows hold for ever"]
        changed = [(n, e) for n, e in plan.outputs if e != Column(n)]
        if not changed:
            return [f"{plan}: the columns as they are, without the end"]
        loop = [f"  {users_part(n)} = {e}{_how(e, plan.input.schema)}" for n, e in changed]
        return [f"{plan}, one generated loop:", *loop]
    if isinstance(plan, Unnest) or (isinstance(plan, Edges) and not plan.changes):
        return [f"{plan}:", "  by Arrow's functions; keeps nothing"]
    if isinstance(plan, (Join, Cut)) and looks_up(plan):
        lines = [f"{plan}:", "  rows are looked up in the table, which is read first; keeps the table"]
    elif (found := as_of(plan)) is not None:
        held = "" if found.tolerance is None else ", for some time at most"
        lines = [
            f"{plan}:",
            "  each point looks up the last rows of its key, so the two steps before it need not run",
            f"  keeps the last rows of each key{held}",
        ]
    elif until_next(plan) is not None:
        lines = [
            f"{plan}:",
            "  each row ends where the next one of its key starts, in one pass over the stream",
            "  keeps the last rows of each key",
        ]
    elif isinstance(plan, Cut):
        kept = "keeps the rows that nothing has ended" if plan.kind == "clip" else _HOLDING
        lines = [f"{plan}:", f"  {_MET}; {kept}"]
    else:
        lines = [f"{plan}:", f"  {_KEEPS[type(plan)]}"]
    if isinstance(plan, (Join, Cut)) and plan.match.where is not None:
        how = _how(plan.match.where, Schema(sided(plan.left, plan.right)))
        lines.append(f"  keep pairs where {plan.match.condition}{how}")
    return lines


def _again(plan: WindowAggregate, index: int) -> str:
    """Return why the users' functions of a compiled part are not cached on disk; empty if they are."""
    part = plan.layout.parts[index]
    functions: list[Any] = [r.lower for r in plan.layout.results if index in r.parts and callable(r.lower)]
    if isinstance(part.form, OpaqueForm):
        assert isinstance(part.part.algebra, Algebra)
        algebra = part.part.algebra
        functions += [algebra.lift, algebra.combine, *([algebra.inverse] if part.form.subtracts else [])]
    return "; ".join(dict.fromkeys(why for f in functions if (why := uncached(f))))
