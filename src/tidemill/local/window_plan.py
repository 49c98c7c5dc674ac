"""What a window operator knows before the first row. It is the same in each run of a plan, and found once."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from tidemill.aggregates.basic import any as any_of
from tidemill.aggregates.basic import count
from tidemill.aggregates.basic import max as greatest
from tidemill.aggregates.layout import Layout, layout
from tidemill.codegen.state_plan import StatePlan, plan_states, refusal
from tidemill.core.schema import Schema
from tidemill.core.types import INT64
from tidemill.expr.fluent import Expr
from tidemill.expr.nodes import Column, Node
from tidemill.expr.typing import resolve
from tidemill.jit.user_functions import NOT_YET, known, postponed
from tidemill.local.attributes import Attribute, attribute_of
from tidemill.local.collector import RowLoop
from tidemill.local.last_rows import TICKS
from tidemill.local.results import Results
from tidemill.local.row_numbers import ROW
from tidemill.local.stage_runner import StageRunner, stage_runner
from tidemill.local.window_gaps import has_gaps
from tidemill.local.window_slides import ROWS, ends_name
from tidemill.optimize.choices import choices_of
from tidemill.optimize.share_panes import share_panes
from tidemill.plan.nodes import WindowAggregate
from tidemill.plan.physical import WindowChoices
from tidemill.plan.stages import Stage, stage_of
from tidemill.windows.spec import LastRows, PerEvent, Rows, Session

_MOST = 8
"""So many are kept of one node: it has another where it is in another plan, or a function was compiled."""


@dataclass(frozen=True)
class WindowPlan:
    """How a window aggregate is computed over the rows of a stage."""

    plan: WindowAggregate
    stage: Stage
    choices: WindowChoices
    compact: StageRunner | None
    """What runs before the loop, where the loop does not filter."""
    base: Schema
    """The columns of the batches that the loop reads."""
    predicates: tuple[Node, ...]
    attribute: Node
    """The windowing attribute, over these columns."""
    loop: RowLoop
    postponed: tuple[int, ...]
    """The parts of the state that run in Python because nobody has asked if they can be compiled."""

    @property
    def layout(self) -> Layout:
        return self.loop.layout

    @property
    def parts(self) -> StatePlan:
        return self.loop.parts

    @functools.cached_property
    def results(self) -> Results:
        """Computes the aggregates of windows."""
        more = len(self.layout.parts) - len(self.choices.sliding)
        return Results(self.layout, self.parts, (*self.choices.sliding, *("merge",) * more))

    @functools.cached_property
    def key_columns(self) -> dict[str, str]:
        """The columns of the stage's base that the keys are, where these are not computed."""
        return _plain_columns(self.stage, self.plan.group_keys)

    @functools.cached_property
    def read(self) -> Attribute | None:
        """The windowing attribute as a column of the input."""
        return attribute_of(self.plan, self.stage)


def window_plan(plan: WindowAggregate, stage: Stage, choices: WindowChoices | None) -> WindowPlan:
    """Return how a window aggregate is computed: what was found before, unless choices are given."""
    kept: dict[tuple[int, int], WindowPlan] = plan.__dict__.setdefault("_window_plans", {})
    key = id(stage), known()  # a stage that is kept keeps its id
    found = kept.get(key) if choices is None else None
    if found is None:
        found = _made(plan, stage, choices or choices_of(plan))
        if choices is None:
            if len(kept) >= _MOST:
                kept.clear()
            kept[key] = found
    for index in found.postponed:
        postponed(refusal, found.layout, index)
    return found


def _made(plan: WindowAggregate, stage: Stage, choices: WindowChoices) -> WindowPlan:
    compact: StageRunner | None = None
    base, predicates = stage.base.schema, stage.predicates
    outputs: dict[str, Node] = dict(stage.outputs)
    if not fuses(plan, stage):
        compact = stage_runner(stage.predicates, stage.outputs, stage.base.schema)
        base, predicates = plan.input.schema, ()
        outputs = {}
    if splits(plan):
        base = Schema((*base.fields, (ROW, INT64)))
    full = _full_layout(plan, base)
    parts = plan_states(full, choices.sliding)
    attribute = Column(ROW) if by_number(plan) else outputs.get(plan.attribute, Column(plan.attribute))
    loop = RowLoop(
        plan, choices.panes, full, parts, base, predicates, attribute, _gap_of_spans(plan, parts), outputs
    )
    later = tuple(i for i in parts.in_python if i in full.fixed and refusal(full, i) == NOT_YET)
    return WindowPlan(plan, stage, choices, compact, base, predicates, attribute, loop, later)


def _full_layout(plan: WindowAggregate, base: Schema) -> Layout:
    """Return the layout of the query's aggregates and of those that its windows need internally."""
    extra = []
    for spec in (w.spec for w in plan.windows):
        if isinstance(spec, LastRows):
            extra.append((TICKS, greatest(Expr(Column(plan.attribute)))))
        elif isinstance(spec, PerEvent) and spec.every > 1:
            if spec.by == "rank":
                extra.append((ROWS, count()))
            else:
                ends = (Expr(Column(ROW)) + 1) % spec.every == 0
                node = resolve(ends.node, base, step=str(spec))
                extra.append((ends_name(spec), any_of(Expr(node))))
    if not extra:
        return plan.layout
    schema = Schema((*plan.input.schema.fields, (ROW, INT64)))
    return layout((*plan.aggregates, *extra), schema, plan.never_null)


def _plain_columns(stage: Stage, names: tuple[str, ...]) -> dict[str, str]:
    """The columns of a stage's base that its outputs are, where these are not computed."""
    nodes = {name: stage.output(name) for name in names}
    return {name: node.name for name, node in nodes.items() if isinstance(node, Column)}


def _gap_of_spans(plan: WindowAggregate, parts: StatePlan) -> int | None:
    """Return the gap of sessions if one record can span all rows of a session, otherwise None.

    It cannot if other windows or keys cut the rows elsewhere, or if rows are kept and sorted by time.
    """
    spec = plan.windows[0].spec
    if len(plan.windows) > 1 or not isinstance(spec, Session) or parts.kept:
        return None
    return spec.gap.ticks if set(plan.partition_of(spec)) == set(plan.group_keys) else None


def fuses(plan: WindowAggregate, stage: Stage | None = None) -> bool:
    """Return whether filters run in the loop that accumulates.

    Otherwise the rows that pass are materialized first, so that only they are numbered and only their
    costly keys are looked up.
    """
    if splits(plan):
        return False
    stage, keys = stage or stage_of(plan.input), plan.group_keys
    before_loop = has_gaps(plan) or share_panes(plan).axis is not None
    if before_loop and not isinstance(stage.output(plan.attribute), Column):
        return False  # computed before the loop, where it may fail on rows that do not pass
    # A key that is computed may fail on rows that do not pass.
    cheap = len(keys) == 0 or (
        len(keys) == 1
        and plan.input.schema[keys[0]].is_fixed
        and isinstance(stage.output(keys[0]), Column)
    )
    return cheap or not stage.predicates


def by_number(plan: WindowAggregate) -> bool:
    """Return whether windows are ranges of row numbers."""
    return isinstance(plan.windows[0].spec, (Rows, LastRows))


def order_of(plan: WindowAggregate) -> str | None:
    """Return the column whose order numbers rows; None for the order of arrival, or if none is needed."""
    specs = [w.spec for w in plan.windows]
    if isinstance(specs[0], LastRows):
        return plan.attribute
    return next((o for s in specs if (o := getattr(s, "order_by", None))), None)


def splits(plan: WindowAggregate) -> bool:
    """Return whether rows must be tracked by partition, to count them or to define windows."""
    specs = [w.spec for w in plan.windows]
    if any(s.counts_arrivals or isinstance(s, LastRows) for s in specs):
        return True
    apart = set(plan.partition) != set(plan.group_keys)
    return apart and any(s.follows_rows for s in specs)
