"""Compile the operators of the temporal algebra to DataFrames, each in one of three ways.

- `columns`: expressions and lists of columns, in the JVM;
- `join`: one of Spark's joins, where lifetimes do not decide which rows meet (`batch.matching`);
- `together`: the rows of a key are shuffled to one task, which runs the local operator on them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tidemill.plan.intervals import IntervalJoin
from tidemill.plan.nodes import unknown_node
from tidemill.plan.properties import properties
from tidemill.plan.temporal import (
    CHANGE,
    EDGE,
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
    payload,
)
from tidemill.spark.batch.hot_keys import TASK
from tidemill.spark.batch.interval_slices import Margins, interval_rows
from tidemill.spark.batch.lifetimes import (
    checked_start,
    end_of,
    internal_rows,
    no_start,
    places,
    shown,
    start_of,
)
from tidemill.spark.batch.looks import Looks
from tidemill.spark.batch.matching import spark_join, why_spark
from tidemill.spark.batch.previous_rows import marked, own_only
from tidemill.spark.batch.rows_together import Places, operate
from tidemill.spark.batch.slice_choice import Slices
from tidemill.spark.batch.slices import SLICE, divided_side, joined_rows, sliced, slices
from tidemill.spark.exchange.group import colocated
from tidemill.spark.expr.compile import SparkExpressions
from tidemill.spark.expr.functions import floor_div
from tidemill.spark.expr.schemas import user_schema
from tidemill.spark.expr.values import integer
from tidemill.spark.names import apart
from tidemill.spark.workers import Task, map_batches


@dataclass(frozen=True)
class Way:
    """How an operator runs, the reason, its shuffles, and the steps before and after it."""

    name: str
    why: str
    shuffles: tuple[str, ...] = ()
    first: tuple[str, ...] = ()
    last: tuple[str, ...] = ()


def way_of(plan: Temporal) -> Way:
    """Choose the way of an operator from the plan alone."""
    if isinstance(plan, (Lifetime, Unnest)):
        always = properties(plan).everlasting
        return Way("columns", "its rows hold for ever" if always else "each row by itself")
    if isinstance(plan, Edges):
        if plan.changes:
            why = "edges of equal rows at one instant are added up"
            return Way("columns", why, ("net edges by all columns",))
        return Way("columns", "each row by itself")
    if isinstance(plan, Chop):
        return Way("columns", "each row by itself", (), (_LATEST,))
    if isinstance(plan, (Join, Cut)):
        if (reason := why_spark(plan)) is not None:
            if plan.kind == "clip":
                return Way("columns", reason)
            keys = _shown_keys(plan, by_time=reason.startswith("points"))
            shuffles = (f"both sides by {keys}, or the smaller one to all tasks",) if keys else (
                "the smaller side to all tasks",)  # fmt: skip
            return Way("join", reason, shuffles)
        keys, met = _shown_keys(plan), "rows meet while they hold"
        if keys or divided_side(plan) is None:
            shuffle = _to_tasks(keys, "rows of both sides")
            if keys and divided_side(plan) is not None:
                shuffle += f", or by slices of time {_FEW_KEYS}"
            return Way("together", met, (shuffle,))
        side = ("left", "right")[divided_side(plan) or 0]
        shuffle = f"rows of the {side} side by slices of time, with the rows that hold there meanwhile"
        return Way("together", met, (shuffle,), (f"divide time, in two more passes over the {side} side",))
    if isinstance(plan, IntervalJoin):
        shuffle, margins = _to_tasks(_shown_keys(plan), "rows of both sides"), Margins.of(plan)
        if isinstance(margins, Margins):
            few = _FEW_KEYS if _shown_keys(plan) else "if there are many"
            shuffle += f", or by slices of time {few}"
        else:
            shuffle += f"; no key is divided by time: {margins}"
        return Way("together", "rows meet in intervals of time", (shuffle,))
    by = ", ".join(_partition(plan))
    return Way("together", _WHY[type(plan)], (_to_tasks(by, "rows"),))


_FEW_KEYS = "where few keys have most rows"
_LATEST = "look for the last instant of the stream, in one more pass over it"
_WHY: dict[type[Temporal], str] = {
    SnapshotAggregate: "rows of a key that hold together are aggregated",
    Stitch: "equal rows are put together",
    TopRows: "rows of a key that hold together are ranked",
    Neighbours: "rows of a key are looked at in order",
    UntilSessionEnd: "rows of a key are looked at in order",
    FromEdges: "rows of a key are looked at in order",
}


def _to_tasks(keys: str, what: str) -> str:
    return f"{what} by {keys}" if keys else f"all {what} to one task"


def _shown_keys(plan: Join | Cut | IntervalJoin, *, by_time: bool = False) -> str:
    names = [*plan.match.scope, *(a if a == b else f"{a}={b}" for a, b in plan.match.keys)]
    return ", ".join([*names, *(["their time"] if by_time else [])])


def _partition(plan: Temporal) -> tuple[str, ...]:
    """Return the columns by which the rows of an operator on one input meet."""
    if isinstance(plan, Stitch):
        schema, names = plan.schema, payload(plan)
        plain = tuple(n for n in names if schema[n].is_comparable)
        return plain or tuple(n for n in names if schema[n].kind != "null")
    keys: tuple[str, ...] = getattr(plan, "keys", ())
    return keys


def temporal(
    plan: Temporal, inputs: Sequence[DataFrame], detect: str = "off", looks: Looks | None = None
) -> DataFrame:
    """Compile an operator over the frames of its inputs, which have columns of user types.

    `looks` samples rows of its inputs, where keys may be divided.
    """
    if isinstance(plan, (Join, Cut)) and why_spark(plan) is not None:
        left, right = inputs
        return spark_join(plan, left, right)
    if isinstance(plan, (Join, Cut, IntervalJoin)):
        return _matched(plan, inputs, detect, looks)
    [frame] = inputs
    for kind, compiled in _COLUMNS.items():
        if isinstance(plan, kind):
            return compiled(plan, frame)
    if type(plan) not in _WHY:
        raise unknown_node(plan, "spark", "spark/batch/temporal.py")
    rows = internal_rows(plan.children()[0], frame, checked=False)
    return _together(plan, [rows], [_partition(plan)], detect)


_DIVIDED = (Join, Cut, IntervalJoin)

# --- rows that meet by key --------------------------------------------------------------------------


def _together(
    plan: Temporal, frames: Sequence[DataFrame], keys: Sequence[Sequence[str]], detect: str,
    looks: Looks | None = None,
) -> DataFrame:  # fmt: skip
    """Run the local operator on the rows of a key; keys are pairs of columns of the inputs."""
    inputs = plan.children()
    where = Places.of(inputs, keys)
    own = [[where.key(port, n) for n in names] for port, names in enumerate(keys)]
    shared = dict.fromkeys(f"c{at[0]}" for at in zip(*own) if len(set(at)) == 1)
    all_shared = len(shared) == len(keys[0])
    if looks is not None and all_shared and isinstance(plan, _DIVIDED) and (
        shared or isinstance(plan, IntervalJoin)  # other joins without keys are divided in any case
    ):  # fmt: skip
        by_time = looks.slices(plan, keys)
        if by_time is not None:
            rows, task = _in_slices(plan, frames, keys, by_time)
            return map_batches(rows, task, user_schema(plan.schema))
    if shared:
        rows = colocated("temporal", where.together(frames), list(shared), detect)
    elif isinstance(plan, (Join, Cut)) and divided_side(plan) is not None:
        count = slices(frames[0].sparkSession)
        rows = where.together(sliced(plan, frames, count), [SLICE])
        rows = rows.repartitionById(count, F.col(SLICE)).drop(SLICE)
    else:
        rows = where.together(frames).repartition(1)
    return map_batches(rows, operate(plan, where), user_schema(plan.schema))


def _in_slices(
    plan: Join | Cut | IntervalJoin, frames: Sequence[DataFrame], keys: Sequence[Sequence[str]],
    by_time: Slices,
) -> tuple[DataFrame, Task]:  # fmt: skip
    """Return the rows of each task where tasks share the rows of hot keys, and what runs on them."""
    named = [[places(one, "c")[n] for n in names] for one, names in zip(plan.children(), keys)]
    run: Temporal = plan
    if isinstance(plan, IntervalJoin):
        given = interval_rows(plan, frames, named, by_time)
        run = marked(plan) if plan.interval.since_previous else plan
    else:
        given = joined_rows(plan, frames, named, by_time)
    where = Places.of(run.children(), keys)
    task = operate(run, where)
    rows = where.together(given, [TASK]).repartitionById(by_time.tasks, F.col(TASK)).drop(TASK)
    return rows, task if run is plan else own_only(task)


_ALONE = {"left": (0,), "right": (1,), "outer": (0, 1), "not_exists": (0,), "clip": (0,)}
"""The sides of which rows that nothing matches are in the result."""


def _matched(
    plan: Join | Cut | IntervalJoin, frames: Sequence[DataFrame], detect: str, looks: Looks | None
) -> DataFrame:
    match = plan.match
    alone = (0,) if isinstance(plan, IntervalJoin) else _ALONE.get(plan.kind, ())
    sides = []
    for port, (side, frame) in enumerate(zip(plan.children(), frames)):
        rows = internal_rows(side, frame, checked=not match.left_keys)  # tasks see all rows with keys
        if port not in alone:  # null is equal to nothing
            own = places(side, "c")
            for pair in match.keys:
                rows = rows.filter(F.col(own[pair[port]]).isNotNull())
        sides.append(rows)
    return _together(plan, sides, (match.left_keys, match.right_keys), detect, looks)


# --- columns ----------------------------------------------------------------------------------------


def _lifetime(plan: Lifetime, frame: DataFrame) -> DataFrame:
    below = plan.input
    raw = {f.name: f.dataType for f in frame.schema}
    df, names = apart(frame)
    expressions = SparkExpressions(below.schema, raw, names)
    columns = {name: expressions.column(node) for name, node in plan.outputs}
    if below.time in below.schema and not properties(below).everlasting:  # a table has no times
        start, value = expressions.leaf(below.time), columns[plan.time]
        if below.end is None:
            columns[plan.time] = F.when(start.isNull(), no_start(below)).otherwise(value)
        else:
            columns[plan.time] = checked_start(below, start, expressions.leaf(below.end), value)
    return df.select(*shown(plan, columns))


def _unnested(plan: Unnest, frame: DataFrame) -> DataFrame:
    rows, own = internal_rows(plan.input, frame, checked=False), places(plan.input, "c")
    columns = [
        F.explode(own[n]).alias(p) if n == plan.column else F.col(p) for n, p in own.items()
    ]
    rows = rows.select(*columns)
    if plan.element is None:
        names = plan.input.schema[plan.column].of[0].names
        fields = [F.col(own[plan.column]).getField(n).alias(f"f{i}") for i, n in enumerate(names)]
        spread = [fields if n == plan.column else [F.col(p)] for n, p in own.items()]
        rows = rows.select(*(column for each in spread for column in each))
    return rows.select(*shown(plan, dict(zip(plan.schema.names, map(F.col, rows.columns)))))


def _chopped(plan: Chop, frame: DataFrame) -> DataFrame:
    below = plan.input
    rows, own = internal_rows(below, frame), places(below, "c")
    start, end = start_of(below), end_of(below)
    origin, every = integer(plan.origin), integer(plan.every)
    latest = rows.agg(F.max(F.greatest(start, end)).alias("latest"))  # null is not the greatest
    last = F.least(end - integer(1), F.col("latest"))
    first = floor_div(start - origin, plan.every)
    cuts = F.greatest(floor_div(last - origin, plan.every) - first, integer(0))
    rows = rows.crossJoin(F.broadcast(latest)).select(*own.values(), first.alias("first"), cuts.alias("cuts"))
    nth = F.explode(F.sequence(integer(0), F.col("cuts"))).alias("nth")
    rows = rows.select(*own.values(), "first", "cuts", nth)
    cut = origin + (F.col("first") + F.col("nth")) * every
    begins = F.when(F.col("nth") == 0, start).otherwise(cut)
    ends = F.when(F.col("nth") == F.col("cuts"), end).otherwise(cut + every)
    columns = {n: F.col(p) for n, p in own.items()}
    assert below.end is not None
    return rows.select(*shown(plan, columns | {below.time: begins, below.end: ends}))


def _edges(plan: Edges, frame: DataFrame) -> DataFrame:
    below = plan.input
    rows, own = internal_rows(below, frame), places(below, "c")
    kept = [p for n, p in own.items() if n not in (below.time, below.end)]
    starts = F.struct(F.lit(1).alias("sign"), start_of(below).alias("at"))
    ends = F.struct(F.lit(-1).alias("sign"), end_of(below).alias("at"))
    both = F.when(end_of(below).isNull(), F.array(starts)).otherwise(F.array(starts, ends))
    rows = rows.select(*kept, F.inline(both))
    sign = F.col("sign")
    if plan.changes:
        rows = rows.groupBy(*kept, "at").agg(F.sum("sign").alias("net")).filter(F.col("net") != 0)
        change = F.signum(F.col("net")).cast("bigint")
        copies = F.array_repeat(change, F.abs(F.col("net")).cast("int"))
        rows = rows.select(*kept, "at", F.explode(copies).alias("sign"))
    columns = {n: F.col(p) for n, p in own.items()} | {below.time: F.col("at")}
    columns[CHANGE if plan.changes else EDGE] = (
        sign if plan.changes else F.when(sign > 0, F.lit("start")).otherwise(F.lit("end"))
    )
    return rows.select(*shown(plan, columns))


_COLUMNS: dict[type[Temporal], Callable[..., DataFrame]] = {
    Lifetime: _lifetime, Unnest: _unnested, Chop: _chopped, Edges: _edges,
}  # fmt: skip
