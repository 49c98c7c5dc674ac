"""Window aggregates on DataFrames, in one of four ways.

- `jvm`: tumbling windows of Spark's own aggregates: one `groupBy`, no Python at all;
- `panes`: Spark aggregates by key and pane, few partials cross to Python, which slides over them;
- `partials`: Python workers aggregate by key and pane where the rows are, then as above;
- `colocated`: rows of a key (or partition) meet in one task, which runs the local engine on them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tidemill.aggregates.algebra import Algebra
from tidemill.core.errors import UserError
from tidemill.core.schema import Schema
from tidemill.core.time import FARTHEST
from tidemill.expr.nodes import Node
from tidemill.local.partials import PANE, key_name, partial_schema, state_fields
from tidemill.plan.checks import far_time, null_time
from tidemill.plan.nodes import WINDOW_END, WINDOW_START, Source, WindowAggregate
from tidemill.plan.stages import Stage, stage_of
from tidemill.spark.aggregates import available, is_simple, partial, partial_where
from tidemill.spark.expr import SparkExpressions, divided, named, output, spark_type
from tidemill.spark.frames import user_schema
from tidemill.spark.tasks import LAST, PLACES, at_place, finish, partials, whole_windows
from tidemill.windows.spec import GridWindow, Rows, Sliding, Window

ABREAST = 8
"""Panes to a row of partials, where windows have many; a power of two."""
MOST_FIELDS = 64
"""Above about a hundred columns Spark interprets what it would otherwise compile."""
PLACE = "$place"


@dataclass(frozen=True)
class Strategy:
    """Which way a window aggregate goes, why, and where rows are shuffled."""

    name: str
    why: str
    shuffles: tuple[str, ...]


def strategy(plan: WindowAggregate) -> Strategy:
    """Decided from the plan alone."""
    for window in plan.windows:
        _require_order(window.spec)
    keys = ", ".join(plan.group_keys)
    specs = [w.spec for w in plan.windows]
    by_data = [s for s in specs if not isinstance(s, GridWindow) or isinstance(s, Rows)]
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
    return Strategy("panes", "windows overlap or keep rows", (to_panes, to_keys))


def window_aggregate(plan: WindowAggregate, base: DataFrame) -> DataFrame:
    """The result of a window aggregate over the base of its input's stage."""
    chosen = strategy(plan).name
    stage = stage_of(plan.input)
    expressions = SparkExpressions(stage.base.schema, {f.name: f.dataType for f in base.schema})
    df = base
    for predicate in stage.predicates:
        df = df.filter(expressions.column(predicate))
    source = _Source(plan, stage, expressions, df)
    if chosen == "colocated":
        return _colocated(source)
    summed = _summed(source) if chosen in ("jvm", "panes") else _partials(source)
    if chosen == "jvm":
        return _lowered_in_jvm(plan, summed)
    return _finished(plan, summed, panes_abreast(plan) if chosen == "panes" else 1)


@dataclass(frozen=True)
class _Source:
    """The filtered rows, and how to compute things over them."""

    plan: WindowAggregate
    stage: Stage
    expressions: SparkExpressions
    df: DataFrame

    def column(self, node: Node) -> SparkColumn:
        return self.expressions.column(self.stage.rewrite(node))

    def output(self, name: str) -> SparkColumn:
        return self.expressions.column(self.stage.output(name))

    def pane(self) -> SparkColumn:
        """The pane of a row; a null time fails the query."""
        assert self.plan.panes is not None
        name = self.plan.attribute
        message = str(null_time(self.plan))
        sure = F.coalesce(self.output(name), F.raise_error(F.lit(message)).cast("bigint"))
        origin, size = self.plan.panes.origin, self.plan.panes.size
        # One division for each row, not two: times and origins lie within FARTHEST of zero, so nothing
        # here is negative where Spark divides toward zero. Panes beyond are refused once summed.
        whole = -(-2 * FARTHEST // size)
        shifted = sure + F.lit(whole * size - origin).cast("bigint")
        return divided(shifted, size) - F.lit(whole).cast("bigint")

    def keys(self) -> list[SparkColumn]:
        return [self.output(k).alias(key_name(i)) for i, k in enumerate(self.plan.group_keys)]


def _summed(source: _Source) -> DataFrame:
    """Partials by key and pane, by Spark's own aggregates."""
    plan = source.plan
    args = {
        (i, j): source.column(a)
        for i, p in enumerate(plan.layout.parts) for j, a in enumerate(p.part.args)
    }  # fmt: skip
    rows = source.df.select(
        *source.keys(), source.pane().alias(PANE),
        *(c.alias(f"a{i}_{j}") for (i, j), c in args.items()),
    )  # fmt: skip
    rows = _within(plan, rows)
    keys = [key_name(i) for i in range(len(plan.group_keys))]
    width = panes_abreast(plan)
    if width == 1:
        return rows.groupBy(*keys, PANE).agg(*_states(plan))
    # Several panes to a row: fewer rows to hash, and to shuffle. `tasks` puts them apart again.
    place = F.col(PANE).bitwiseAND(F.lit(width - 1)).cast("int").alias(PLACE)
    block = F.shiftright(F.col(PANE), width.bit_length() - 1).alias(PANE)
    arguments = [f"a{i}_{j}" for i, j in args]
    blocks = rows.select(*keys, block, place, *arguments)
    states = [state for at in range(width) for state in _states_at(plan, at)]
    held = F.bit_or(F.call_function("shiftleft", F.lit(1), F.col(PLACE))).alias(PLACES)
    return blocks.groupBy(*keys, PANE).agg(held, *states)


def _states(plan: WindowAggregate) -> list[SparkColumn]:
    """The states of all parts."""
    columns = []
    for i, part in enumerate(plan.layout.parts):
        own = [F.col(f"a{i}_{j}") for j in range(len(part.part.args))]
        columns += [f.alias(n) for f, (n, _) in zip(partial(part, own), state_fields(part))]
    return columns


def _states_at(plan: WindowAggregate, place: int) -> list[SparkColumn]:
    """The states of all parts over the rows of one pane of a block."""
    columns = []
    for i, part in enumerate(plan.layout.parts):
        own = [f"a{i}_{j}" for j in range(len(part.part.args))]
        fields = partial_where(part, own, f"`{PLACE}` = {place}")
        columns += [f.alias(at_place(n, place)) for f, (n, _) in zip(fields, state_fields(part))]
    return columns


def panes_abreast(plan: WindowAggregate) -> int:
    """How many panes of a key make one row of partials.

    Where windows have many panes, several: hashing and shuffling is by row. Where a key has few of
    the panes, that sends room for more than there is, so it is not overdone.
    """
    assert plan.panes is not None
    parts = plan.layout.parts
    lengths = []
    for window in plan.windows:
        spec = window.spec
        if not isinstance(spec, GridWindow) or spec.length is None or spec.until_end:
            return 1
        lengths.append(spec.length // plan.panes.size)
    fine = min(lengths) >= 2 * ABREAST and len(parts) * ABREAST <= MOST_FIELDS
    return ABREAST if fine and all(map(is_simple, parts)) else 1


def _partials(source: _Source) -> DataFrame:
    """Partials by key and pane of each partition, by Tidemill's kernels."""
    rows, schema = _rows(source)
    task = partials(_over_rows(source.plan), schema)
    made = partial_schema(source.plan)
    return rows.mapInArrow(task, user_schema(made))


def _finished(plan: WindowAggregate, summed: DataFrame, abreast: int) -> DataFrame:
    if any(w.spec.until_end for w in plan.windows):
        last = summed.filter(_inside(plan)).agg(F.max(PANE).alias(LAST))
        summed = summed.crossJoin(F.broadcast(last))
    keys = [named(key_name(i)) for i in range(len(plan.group_keys))]
    together = summed.repartition(*keys) if keys else summed.repartition(1)
    return together.mapInArrow(finish(_over_rows(plan), abreast), user_schema(plan.schema))


def _lowered_in_jvm(plan: WindowAggregate, summed: DataFrame) -> DataFrame:
    assert plan.panes is not None
    states = Schema(tuple(f for p in plan.layout.parts for f in p.columns))
    lower = SparkExpressions(states, {n: spark_type(t) for n, t in states})
    columns = [
        output(F.col(key_name(i)), plan.input.schema[k]).alias(k)
        for i, k in enumerate(plan.group_keys)
    ]
    size, origin = plan.panes.size, plan.panes.origin
    # As `PaneStore` does for the other ways.
    near = F.col(PANE).between(-((FARTHEST + size + origin) // size), (FARTHEST - origin) // size)
    far = F.raise_error(F.lit(str(far_time(plan)))).cast("bigint")
    start = F.when(near, F.col(PANE) * F.lit(size) + F.lit(origin)).otherwise(far)
    bounds = ((WINDOW_START, start), (WINDOW_END, start + F.lit(plan.panes.size)))
    columns += [output(c, plan.bound_type).alias(n) for n, c in bounds]
    for result in plan.layout.results:
        assert isinstance(result.lower, Node)
        value = lower.column(result.lower)
        if result.present is not None:
            count = plan.layout.parts[result.present].columns.names[0]
            value = F.when(F.col(count) != 0, value)
        columns.append(output(value, result.type).alias(result.name))
    return summed.select(*columns)


def _colocated(source: _Source) -> DataFrame:
    plan = source.plan
    rows, schema = _rows(source)
    together = _together(plan)
    columns = [named(c) for c in together]
    rows = rows.repartition(*columns) if columns else rows.repartition(1)
    return rows.mapInArrow(whole_windows(_over_rows(plan), schema), user_schema(plan.schema))


def _rows(source: _Source) -> tuple[DataFrame, Schema]:
    """The rows that the window aggregate reads, with instants as bigint."""
    schema = source.plan.input.schema
    columns = [source.output(n).alias(n) for n in schema.names]
    return source.df.select(*columns), schema


def _over_rows(plan: WindowAggregate) -> WindowAggregate:
    """The same aggregate over a source of exactly the rows that reach it."""
    return replace(plan, input=Source("rows", plan.input.schema, plan.input.time))


def _within(plan: WindowAggregate, rows: DataFrame) -> DataFrame:
    """Rows before an origin that bounds every window belong to none of them."""
    return rows.filter(F.col(PANE) >= 0) if plan.bounded else rows


def _inside(plan: WindowAggregate) -> SparkColumn:
    """Panes that are in some window: between sampling windows there are others."""
    assert plan.panes is not None
    found = F.lit(False)
    for window in plan.windows:
        spec = window.spec
        assert isinstance(spec, GridWindow)
        if spec.length is None or spec.length >= spec.slide:
            return F.lit(True)
        size = plan.panes.size
        slide, length = spec.slide // size, spec.length // size
        shift = (spec.origin - plan.panes.origin) // size
        found = found | (F.pmod(F.col(PANE) - shift, F.lit(slide)) >= slide - length)
    return found


def _together(plan: WindowAggregate) -> tuple[str, ...]:
    """The columns whose equal rows must meet in one task."""
    specs = [w.spec for w in plan.windows]
    if any(s.until_end for s in specs if not isinstance(s, Rows)):
        return ()  # such windows go on until the last row of the whole stream
    if all(isinstance(s, GridWindow) and not isinstance(s, Rows) for s in specs):
        return plan.group_keys
    return plan.partition


def _all_in_jvm(plan: WindowAggregate) -> bool:
    spec = plan.windows[0].spec
    return (
        len(plan.windows) == 1
        and isinstance(spec, Sliding)
        and spec.range == spec.every
        and not spec.fill_empty
        and all(isinstance(r.lower, Node) for r in plan.layout.results)
        and all(isinstance(p.part.algebra, Algebra) for p in plan.layout.parts)
    )


def _require_order(spec: Window) -> None:
    if spec.counts_arrivals and getattr(spec, "order_by", None) is None:
        raise UserError(
            f"window {spec}", expected="order_by= on Spark, where rows have no order of arrival",
            got="none", hint="name a column to number rows by: order_by='seq'",
        )  # fmt: skip


