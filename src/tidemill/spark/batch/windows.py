"""Compile window aggregates to DataFrames, by one of four strategies.

- `jvm`: tumbling windows of Spark's own aggregates: one `groupBy`, without Python;
- `panes`: Spark aggregates by key and pane (of time, or of a calendar), and Python slides over the partials;
- `partials`: Python workers aggregate by key and pane before the shuffle, then as above;
- `colocated`: rows of a key (or partition) are shuffled to one task, which runs the local engine on them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tidemill.core.errors import UserError
from tidemill.core.schema import Schema
from tidemill.core.time import FARTHEST
from tidemill.expr.nodes import Node
from tidemill.local.partial_batches import PANE, key_name, partial_schema
from tidemill.local.state_columns import state_fields
from tidemill.local.window_gaps import has_gaps
from tidemill.optimize.share_panes import share_panes
from tidemill.plan.faults import far_time, null_time
from tidemill.plan.nodes import WINDOW_END, WINDOW_ID, WINDOW_START, Source, WindowAggregate
from tidemill.plan.stages import Stage, stage_of
from tidemill.spark.batch.blocks import PLACES, Blocks
from tidemill.spark.batch.tasks import finish, last_name, partials, whole_windows
from tidemill.spark.caching import holding
from tidemill.spark.exchange.decision import noted
from tidemill.spark.exchange.group import colocated
from tidemill.spark.exchange.reduce import brought_together, in_place, where_they_are, worth_it
from tidemill.spark.expr.aggregates import available, combined, in_jvm, lowered, partial
from tidemill.spark.expr.calendars import with_windows
from tidemill.spark.expr.compile import SparkExpressions
from tidemill.spark.expr.schemas import user_schema
from tidemill.spark.expr.sql import number, string
from tidemill.spark.expr.values import output
from tidemill.spark.names import apart
from tidemill.spark.workers import Task, map_batches
from tidemill.windows.spec import Calendar, GridWindow, Rows, Sliding, Window

PLACE, TICK = "place", "tick"
"""Internal names are plain and need no quotes, whose meaning depends on a Spark setting."""


@dataclass(frozen=True)
class Strategy:
    """The strategy of a window aggregate, the reason, and its shuffles."""

    name: str
    why: str
    shuffles: tuple[str, ...]


def strategy(plan: WindowAggregate) -> Strategy:
    """Choose the strategy of a window aggregate from the plan alone."""
    for window in plan.windows:
        _require_order(window.spec)
    keys = ", ".join(plan.group_keys)
    specs = [w.spec for w in plan.windows]
    by_data = [s for s in specs if s.follows_rows]
    if by_data or not plan.layout.commutative:
        why = f"{by_data[0]} follows the rows" if by_data else "an aggregate needs time order"
        columns = _together(plan)
        where = f"rows by {', '.join(columns)}" if columns else "all rows to one task"
        return Strategy("colocated", why, (where,))
    to_panes = f"partials by {', '.join((*plan.group_keys, 'pane'))}"
    to_keys = f"partials by {keys}" if keys else "partials to one task"
    foreign = [str(p.part) for p in plan.layout.parts if not available(p)]
    if foreign:
        return Strategy("partials", f"Spark has no {', '.join(foreign)}", (to_keys,))
    if _all_in_jvm(plan):
        return Strategy("jvm", "windows do not overlap", (to_panes,))
    cut = any(isinstance(s, Calendar) for s in specs)
    why = "windows are those of a calendar" if cut else "windows overlap or keep rows"
    return Strategy("panes", why, (to_panes,) if _one_pane_each(plan) else (to_panes, to_keys))


def window_aggregate(plan: WindowAggregate, base: DataFrame, detect: str = "off") -> DataFrame:
    """Compile a window aggregate over the base of its input's stage.

    `detect` controls whether to detect first which partials or rows must be sent: see `exchange`.
    """
    chosen = strategy(plan).name
    source = _source(plan, base)
    if chosen == "colocated":
        return _colocated(source, detect)
    if chosen == "jvm":
        summed = _summed(source, detect)
        return holding(_lowered_in_jvm(plan, summed), summed)
    if chosen == "panes":
        blocks = Blocks(_over_rows(plan))
        partials, again = _blocks_to_send(source, blocks, detect)
        return holding(_finished(plan, partials, finish(blocks.plan, blocks), again), partials)
    return _finished(plan, _partials(source), finish(_over_rows(plan)))


def partials_by_pane(plan: WindowAggregate, base: DataFrame) -> tuple[DataFrame, Blocks | None]:
    """Partials of an aggregate whose keys have most panes, and their `Blocks`, if they use them.

    If Spark does not support the aggregates, there may be several partials for a key and pane.
    """
    source = _source(plan, base)
    if not all(map(available, plan.layout.parts)):
        return _partials(source), None
    blocks = Blocks(_over_rows(plan), dense=True)
    return _blocks(source, blocks), blocks


def partials_in_place(plan: WindowAggregate, base: DataFrame) -> tuple[DataFrame, Blocks | None]:
    """Partials of each partition of `base`, in as many partitions, and their `Blocks`, if they use them."""
    source = _source(plan, base)
    if not all(map(available, plan.layout.parts)):
        return _partials(source), None
    blocks, (rows, _) = Blocks(_over_rows(plan)), _rows_of_panes(source)
    return in_place(rows, lambda df, beside: _blocks(source, blocks, df, beside)), blocks


def _source(plan: WindowAggregate, base: DataFrame) -> _Source:
    stage = stage_of(plan.input)
    raw = {f.name: f.dataType for f in base.schema}
    base, names = apart(base)
    expressions = SparkExpressions(stage.base.schema, raw, names)
    for predicate in stage.predicates:
        base = base.filter(expressions.column(predicate))
    return _Source(plan, stage, expressions, base)


@dataclass(frozen=True)
class _Source:
    """The filtered rows, and the compiler for expressions over them."""

    plan: WindowAggregate
    stage: Stage
    expressions: SparkExpressions
    df: DataFrame

    def column(self, node: Node) -> SparkColumn:
        return self.expressions.column(self.stage.rewrite(node))

    def output(self, name: str) -> SparkColumn:
        return self.expressions.column(self.stage.output(name))

    def sure(self, time: str) -> str:
        """The time of a row, in SQL; a null time fails the query."""
        return f"coalesce({time}, bigint(raise_error({string(str(null_time(self.plan)))})))"

    def pane(self, time: str) -> str:
        """The pane of a row, in SQL."""
        sure, panes = self.sure(time), share_panes(self.plan)
        origin, size = panes.origin, panes.size
        # One division for each row, not two: times and origins are within FARTHEST of zero, so the dividend
        # is not negative, and Spark's division toward zero is exact. Panes beyond raise after aggregation.
        whole = -(-2 * FARTHEST // size)
        return f"({sure} + {number(whole * size - origin)}) div {number(size)} - {number(whole)}"


def _summed(source: _Source, detect: str) -> DataFrame:
    """Partials by key and pane with all states, by Spark's own aggregates."""
    rows, args = _rows_of_panes(source)
    states, again = [], []
    for part in source.plan.layout.parts:
        own, names = [args[a] for a in part.part.args], [n for n, _ in state_fields(part)]
        states += partial(part, own, names, identity=True)
        again += combined(part, names)
    keys = [*_keys(source.plan), PANE]
    decision = worth_it("window", rows, keys, len(again), detect)
    if not decision.detects:
        return noted(rows.groupBy(*keys).agg(*states), decision)
    partials = where_they_are(rows, lambda df, beside: df.groupBy(*beside, *keys).agg(*states))
    whole, decision = brought_together(partials, keys, again, decision, "auto")
    return holding(noted(whole, decision), partials)


def _blocks_to_send(source: _Source, blocks: Blocks, detect: str) -> tuple[DataFrame, str]:
    """Partials by key and block, and the `detect` mode for sending them.

    If detection may pay, partials are made in each partition and sent once; otherwise Spark shuffles them by
    key and block first, and then by key.
    """
    keys = _keys(source.plan)
    if not keys:
        return _blocks(source, blocks), "off"
    rows, _ = _rows_of_panes(source)
    fields = blocks.width * len(blocks.sent)
    decision = worth_it("window", rows, keys, fields, detect)
    if not decision.detects:
        noted(rows, decision)
        return _blocks(source, blocks), "off"
    made = lambda df, beside: _blocks(source, blocks, df, beside)
    return where_they_are(rows, made), detect


def _blocks(
    source: _Source, blocks: Blocks, given: DataFrame | None = None, beside: Sequence[str] = ()
) -> DataFrame:
    """Partials by Spark's own aggregates, in the format of `Blocks`; grouped also by columns `beside`."""
    rows, args = _rows_of_panes(source)
    rows = rows if given is None else given
    states: list[SparkColumn] = []
    if blocks.width > 1:
        place = f"int({PANE} & {blocks.width - 1}) AS {PLACE}"
        block = f"shiftright({PANE}, {blocks.width.bit_length() - 1}) AS {PANE}"
        kept = [n for n in rows.columns if n != PANE]
        rows = rows.selectExpr(*kept, block, place)
        states = [F.expr(f"bit_or(shiftleft(1, {PLACE})) AS {PLACES}")]
    for at in range(blocks.width):
        where = f"{PLACE} = {at}" if blocks.width > 1 else None
        for _, part in blocks.sent:
            names = [blocks.column(n, at) for n, _ in state_fields(part)]
            states += partial(part, [args[a] for a in part.part.args], names, where)
    return rows.groupBy(*beside, *_keys(source.plan), PANE).agg(*states)


def _rows_of_panes(source: _Source) -> tuple[DataFrame, dict[Node, str]]:
    """The rows to aggregate, with keys, panes and arguments; and the names of the arguments."""
    plan = source.plan
    nodes = dict.fromkeys(a for p in plan.layout.parts for a in p.part.args)
    args = {a: f"a{i}" for i, a in enumerate(nodes)}
    inputs = source.df.select(
        *(source.output(k).alias(n) for k, n in zip(plan.group_keys, _keys(plan))),
        source.output(plan.attribute).alias(TICK),
        *(source.column(a).alias(n) for a, n in args.items()),
    )  # fmt: skip
    if plan.start is not None or has_gaps(plan):  # drop rows that are in no window
        inputs = inputs.filter(_to_look_at(plan))
    if (axis := share_panes(plan).axis) is not None:
        inputs = inputs.selectExpr(*_keys(plan), f"{source.sure(TICK)} AS {TICK}", *args.values())
        inputs = with_windows(inputs, TICK, axis, PANE)
        return inputs.selectExpr(*_keys(plan), PANE, *args.values()), args
    pane = f"{source.pane(TICK)} AS {PANE}"
    return inputs.selectExpr(*_keys(plan), pane, *args.values()), args


def _to_look_at(plan: WindowAggregate) -> str:
    """A SQL condition for rows in a window, and for null or far times, which raise later. See
    `local.window_gaps`."""
    inside = [] if plan.start is None else [f"{TICK} >= {number(plan.start)}"]
    if has_gaps(plan):
        samples = []
        for spec in (w.spec for w in plan.windows):
            assert isinstance(spec, GridWindow) and spec.length is not None
            past = f"pmod({TICK} - {number(spec.origin)}, {number(spec.slide)})"
            sample = f"{past} >= {number(spec.slide - spec.length)}"
            samples.append(sample if spec.start is None else f"({sample} AND {TICK} >= {number(spec.start)})")
        inside.append(f"({' OR '.join(samples)})")
    near = f"{TICK} BETWEEN {number(-FARTHEST)} AND {number(FARTHEST)}"
    return f"{TICK} IS NULL OR NOT ({near}) OR ({' AND '.join(inside)})"


def _keys(plan: WindowAggregate) -> list[str]:
    return [key_name(i) for i in range(len(plan.group_keys))]


def _partials(source: _Source) -> DataFrame:
    """Partials by key and pane of each partition, by Tidemill's kernels."""
    rows, schema = _rows(source)
    task = partials(_over_rows(source.plan), schema)
    made = partial_schema(source.plan)
    return map_batches(rows, task, user_schema(made))


def _finished(plan: WindowAggregate, summed: DataFrame, task: Task, detect: str = "off") -> DataFrame:
    ends = [
        F.max(F.when(_inside(plan, w.spec), F.col(PANE))).alias(last_name(i))
        for i, w in enumerate(plan.windows) if w.spec.until_end
    ]  # fmt: skip
    if ends:
        summed = summed.crossJoin(F.broadcast(summed.agg(*ends)))
    keys = _keys(plan)
    if detect != "off":
        together = colocated("window", summed, keys, detect)
    elif _one_pane_each(plan):
        together = summed
    else:
        together = summed.repartition(*keys) if keys else summed.repartition(1)
    return map_batches(together, task, user_schema(plan.schema))


def _lowered_in_jvm(plan: WindowAggregate, summed: DataFrame) -> DataFrame:
    columns = [
        output(F.col(key_name(i)), plan.input.schema[k]).alias(k)
        for i, k in enumerate(plan.group_keys)
    ]
    panes = share_panes(plan)
    size, origin = panes.size, panes.origin
    # `PaneStore` has the same check for the other strategies.
    near = F.col(PANE).between(-((FARTHEST + size + origin) // size), (FARTHEST - origin) // size)
    far = F.raise_error(F.lit(str(far_time(plan)))).cast("bigint")
    start = F.when(near, F.col(PANE) * F.lit(size) + F.lit(origin)).otherwise(far)
    cut = start if plan.start is None else F.greatest(start, F.lit(plan.start))
    bounds = ((WINDOW_START, cut), (WINDOW_END, start + F.lit(size)))
    columns += [output(c, plan.bound_type).alias(n) for n, c in bounds]
    if plan.ids:
        columns.append(F.col(PANE).alias(WINDOW_ID))
    columns += lowered(plan.layout)
    return summed.select(*columns)


def _colocated(source: _Source, detect: str) -> DataFrame:
    plan = source.plan
    rows, schema = _rows(source)
    together = _together(plan)
    keys = [_column(schema, k) for k in together]
    rows = colocated("window", rows, keys, detect) if keys else rows.repartition(1)
    return map_batches(rows, whole_windows(_over_rows(plan), schema), user_schema(plan.schema))


def _rows(source: _Source) -> tuple[DataFrame, Schema]:
    """The rows that the window aggregate reads, with instants as bigint, and their schema."""
    schema = source.plan.input.schema
    columns = [source.output(n).alias(_column(schema, n)) for n in schema.names]
    return source.df.select(*columns), schema


def _column(schema: Schema, name: str) -> str:
    """Name a column by its position: `mapInArrow` interprets names as paths and patterns."""
    return f"c{schema.names.index(name)}"


def _over_rows(plan: WindowAggregate) -> WindowAggregate:
    """The same aggregate over a source of its input rows."""
    return replace(plan, input=Source("rows", plan.input.schema, plan.input.time))


def _inside(plan: WindowAggregate, spec: Window) -> SparkColumn:
    """A condition for panes in a window: panes before its start or in gaps between windows are not."""
    if isinstance(spec, Calendar):
        return F.lit(True)
    assert isinstance(spec, GridWindow)
    panes = share_panes(plan)
    size, origin = panes.size, panes.origin
    offset = F.col(PANE) - F.lit((spec.origin - origin) // size)
    found = F.lit(True) if spec.start is None else F.col(PANE) >= F.lit((spec.start - origin) // size)
    if spec.length is not None and spec.length < spec.slide:
        slide, length = spec.slide // size, spec.length // size
        found = found & (F.pmod(offset, F.lit(slide)) >= slide - length)
    return found


def _together(plan: WindowAggregate) -> tuple[str, ...]:
    """The columns by which rows are shuffled to one task."""
    specs = [w.spec for w in plan.windows]
    if any(s.until_end for s in specs if not isinstance(s, Rows)):
        return ()  # such windows last until the last row of the whole stream
    if not any(s.follows_rows for s in specs):
        return plan.group_keys
    return plan.partition


def _all_in_jvm(plan: WindowAggregate) -> bool:
    spec = plan.windows[0].spec
    return (
        len(plan.windows) == 1
        and isinstance(spec, Sliding)
        and spec.range == spec.every
        and not spec.fill_empty
        and in_jvm(plan.layout)
    )


def _one_pane_each(plan: WindowAggregate) -> bool:
    """Whether windows are panes of a calendar that Spark aggregates: then a partial is all of its window."""
    spec = plan.windows[0].spec
    alone = len(plan.windows) == 1 and isinstance(spec, Calendar) and not spec.until_end
    return alone and all(map(available, plan.layout.parts))


def _require_order(spec: Window) -> None:
    if spec.counts_arrivals and getattr(spec, "order_by", None) is None:
        raise UserError(
            f"window {spec}", expected="order_by= on Spark, where rows have no order of arrival",
            got="none", hint="name a column to number rows by: order_by='seq'",
        )  # fmt: skip


