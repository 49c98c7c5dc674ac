"""Interval joins in which several tasks share the rows of a key, each in a slice of time.

A base row is in one slice. A probe row is copied to all slices with base rows that it may belong to: those
within reach of the interval. Where only the nearest rows count (`max_rows`, the as-of join) or the last one
before the interval (`prevailing`), the first or last rows of each slice go on to all others besides, so a row
is found however old it is. A sample of both inputs says which keys have so many rows, and where to cut.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import reduce

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tidemill.core.time import FARTHEST, FOREVER
from tidemill.expr.nodes import Column, Node
from tidemill.plan.intervals import Interval, IntervalAggregate, IntervalJoin, IntervalPairs
from tidemill.plan.nodes import Filter, Plan, Project
from tidemill.spark.batch.lifetimes import internal_rows, places, start_of
from tidemill.spark.batch.slice_choice import (
    HotKey,
    Ints,
    Sample,
    Slices,
    SliceTuning,
    choose,
    within,
)
from tidemill.spark.exchange.decision import Decision, tell
from tidemill.spark.exchange.inputs import is_read_twice_alike, reads_only, row_count
from tidemill.spark.exchange.keys import hash_of, why_no_hash
from tidemill.spark.expr.values import integer
from tidemill.spark.private import is_connect

TASK = "task"
_HASH, _AT, _IN, _LOW, _HIGH, _LAST, _FIRST = "h", "at", "in_slice", "low", "high", "last", "first"
_SEED = 7


@dataclass(frozen=True)
class Margins:
    """Which slices need a probe row, besides that of its own instant."""

    before: int
    """Those of base rows that are up to so many ticks later …"""
    after: int
    """… and earlier."""
    last: int = 0
    """So many rows of a slice, the last ones, are needed in later slices, if these are not too far."""
    first: int = 0
    """So many, the first ones, in earlier slices."""
    shift: int = 0
    """Rows are the last ones of the slice of so many ticks after them."""
    last_reach: int = 0
    """How much later base rows may be that need one of the last rows."""
    first_reach: int = 0

    @staticmethod
    def of(plan: IntervalJoin) -> Margins | str:
        """Return the margins of an interval join, or why it has none."""
        asked = plan.interval
        if asked.since_previous:
            return "an interval that begins with the base row before may be of any length"
        before, after = (FOREVER if isinstance(b, Node) else b for b in asked.bounds)
        if plan.match.where is None and asked.max_rows is not None:
            far = FOREVER if asked.prevailing else before
            most = asked.max_rows
            return Margins(0, 0, most if far else 0, most if after else 0, 0, far, after)
        if plan.match.where is None and asked.prevailing and before < FOREVER:
            return Margins(before, after, 1, 0, before, FOREVER)
        if asked.computed or FOREVER in asked.bounds or asked.prevailing:
            return f"rows of any age may belong to {_named(asked)}"
        return Margins(before, after)

    @property
    def carries(self) -> bool:
        return bool(self.last or self.first)


def _named(asked: Interval) -> str:
    return "intervals of computed bounds" if asked.computed else "the interval"


@dataclass(frozen=True)
class Divided(Decision):
    """What was decided about the keys of an interval join, for `explain`."""

    slices: Slices | None = field(default=None, compare=False)

    def __str__(self) -> str:
        found = self.slices
        by = f" by {', '.join(self.keys)}" if self.keys else ""
        if found is None:
            return f"{self.step}{by}: no key is divided — {self.why}"
        keys = len(found.hot)
        lines = [
            f"{self.step}{by}: {found.divided:,} of {keys:,} large keys in slices of time — {self.why}",
            f"  rows: about {found.rows:,.0f}, of which {found.copied:,.0f} are copied",
            f"  tasks: {found.tasks:,}; the largest gets {found.largest:,.0f} rows in place of"
            f" {found.undivided:,.0f}",
        ]
        return "\n".join(lines)


class Looks:
    """Samples the inputs of the operators of a query, each once."""

    def __init__(self, frame: Callable[[Plan], DataFrame], tuning: SliceTuning) -> None:
        self._frame, self._tuning = frame, tuning
        self._seen: dict[tuple[int, tuple[str, ...]], _Seen] = {}

    def slices(self, plan: IntervalJoin, keys: Sequence[Sequence[str]]) -> Slices | None:
        """Look at the rows of an interval join; return how they are divided, if that pays."""
        step = "interval join" if isinstance(plan, IntervalAggregate) else "join in intervals"
        found, why = self._chosen(plan, keys)
        tell(Divided(step, tuple(keys[0]), False, why, slices=found))
        return found

    def _chosen(self, plan: IntervalJoin, keys: Sequence[Sequence[str]]) -> tuple[Slices | None, str]:
        margins = Margins.of(plan)
        if isinstance(margins, str):
            return None, margins
        sides = [self._readable(one, names) for one, names in zip(plan.children(), keys)]
        spark = None
        rows = 0.0
        for side in sides:
            if isinstance(side, str):
                return None, side
            spark = side.frame.sparkSession
            rows += row_count(side.frame)
        assert spark is not None
        if rows < self._tuning.few_rows:
            return None, "there are few rows"
        self._sample([side for side in sides if not isinstance(side, str)], rows)
        found = []
        for port, side in enumerate(sides):
            assert not isinstance(side, str)
            seen = self._seen[side.name]
            own = within(within(seen.at) + (plan.interval.offset if port else 0))
            low, high = (own, own) if port == 0 else (
                own - min(margins.after, FARTHEST), own + min(margins.before, FARTHEST))  # fmt: skip
            found.append(Sample(seen.hashes, own, low, high, seen.each))
        tasks = int(str(spark.conf.get("spark.sql.shuffle.partitions")))
        cores = tasks if is_connect(spark) else spark.sparkContext.defaultParallelism
        chosen = choose(found, tasks, cores, self._tuning, costly=margins.carries)
        return chosen, "else few tasks have most rows" if chosen else "rows are spread well"

    def _readable(self, plan: Plan, keys: Sequence[str]) -> _Rows | str:
        """Return rows with the keys and times of a plan that are cheap to read, or why there are none."""
        for one, names in _rows_below(plan, (*keys, plan.time)):
            frame = self._frame(one)
            if reads_only(frame):
                own = places(one, "c")
                rows = internal_rows(one, frame, checked=False)
                found = _Rows(one, frame, tuple(own[n] for n in names))
                why = why_no_hash(rows, found.columns[:-1])
                if why is None and not is_read_twice_alike(frame):
                    why = "a second reading of the input might give other rows"
                return why or found
        return "an input would be computed twice; cache it first to allow a sample"

    def _sample(self, sides: Sequence[_Rows], rows: float) -> None:
        """Read hashes of keys and instants of some rows, where that was not done."""
        new = {side.name: side for side in sides if side.name not in self._seen}
        if not new:
            return
        share, asked = min(1.0, self._tuning.sample / max(rows, 1.0)), []
        for port, side in enumerate(new.values()):
            some = internal_rows(side.plan, side.frame.sample(share, _SEED), checked=False)
            *keys, time = side.columns
            columns = [F.lit(port).alias("port"), key_hash(some, keys).alias(_HASH), F.col(time).alias(_AT)]
            asked.append(some.filter(F.col(time).isNotNull()).select(*columns))
        table = reduce(DataFrame.union, asked).toArrow()
        ports, hashes, at = (table.column(i).to_numpy() for i in range(3))
        for port, (name, side) in enumerate(new.items()):
            mine = ports == port
            self._seen[name] = _Seen(side.plan, hashes[mine], at[mine], 1 / share)


@dataclass(frozen=True)
class _Rows:
    """Rows to look at."""

    plan: Plan
    frame: DataFrame
    columns: tuple[str, ...]
    """The internal names of their keys, and of their time."""

    @property
    def name(self) -> tuple[int, tuple[str, ...]]:
        return id(self.plan), self.columns


@dataclass(frozen=True)
class _Seen:
    """What was seen of some rows."""

    plan: Plan
    """Of all of them; held, so that nothing else gets its `id`."""
    hashes: Ints
    at: Ints
    each: float
    """So many rows does each stand for."""


def _rows_below(plan: Plan, names: tuple[str, ...]) -> Iterator[tuple[Plan, tuple[str, ...]]]:
    """Yield plans with the same keys and times, and the names of these, from the plan itself on down."""
    while True:
        yield plan, names
        if isinstance(plan, IntervalAggregate) or (isinstance(plan, IntervalPairs) and _is_lookup(plan)):
            plan = plan.base
        elif isinstance(plan, Filter):
            plan = plan.input
        elif isinstance(plan, Project):
            outputs = dict(plan.outputs)
            nodes = [outputs[n] for n in names]
            if not all(isinstance(node, Column) for node in nodes):
                return
            plan, names = plan.input, tuple(node.name for node in nodes if isinstance(node, Column))
        else:
            return
        if not set(names) <= set(plan.schema.names):
            return


def _is_lookup(plan: IntervalPairs) -> bool:
    return plan.kind == "left" and plan.interval.max_rows == 1


def key_hash(rows: DataFrame, keys: Sequence[str]) -> SparkColumn:
    """Return a hash of keys, the same for equal ones; without keys, one for all rows."""
    return hash_of(keys, [rows.schema[k].dataType for k in keys]) if keys else integer(0)


# --- rows to tasks ----------------------------------------------------------------------------------


def divided(
    plan: IntervalJoin, frames: Sequence[DataFrame], keys: Sequence[Sequence[str]], slices: Slices
) -> list[DataFrame]:
    """Return the rows of both sides, in the internal form, with the task that each of them goes to."""
    margins = Margins.of(plan)
    assert isinstance(margins, Margins)
    base, probe = (
        rows.withColumn(_HASH, key_hash(rows, own)) for rows, own in zip(frames, keys)
    )
    at = _near(start_of(plan.base))
    to = F.coalesce(_task(slices, _place(slices, at)), _by_hash(slices))
    rows = base.select(*frames[0].columns, to.alias(TASK))
    return [rows, _copied(plan, margins, probe, frames[1].columns, keys[1], slices)]


def _copied(
    plan: IntervalJoin, margins: Margins, probe: DataFrame, columns: Sequence[str], keys: Sequence[str],
    slices: Slices,
) -> DataFrame:  # fmt: skip
    own = _near(start_of(plan.probe))
    if plan.interval.offset:
        own = _near(own + integer(plan.interval.offset))
    rows = probe.select("*", own.alias(_AT))

    def place(ticks: int) -> SparkColumn:
        return _place(slices, F.col(_AT) + integer(max(-FARTHEST, min(ticks, FARTHEST))))

    moved = {_LOW: -margins.after, _HIGH: margins.before, _IN: margins.shift}
    rows = rows.select("*", *(place(ticks).alias(name) for name, ticks in moved.items()))
    low, high, found = F.col(_LOW), F.col(_HIGH), rows
    if margins.last:
        found = _with_bounds(found, rows, keys, margins.last, last=True)
        reach = F.greatest(high, place(margins.last_reach))
        high = F.when(F.col(_AT) >= F.col(_LAST), reach).otherwise(high)
    if margins.first:
        found = _with_bounds(found, rows, keys, margins.first, last=False)
        reach = F.least(low, place(-margins.first_reach))
        low = F.when(F.col(_AT) <= F.col(_FIRST), reach).otherwise(low)
    to = F.when(low.isNull(), F.array(-F.lit(1) - _by_hash(slices))).otherwise(F.sequence(low, high))
    found = found.select(*columns, F.explode(to).alias(_IN))
    by_hash = F.when(F.col(_IN) < 0, -F.lit(1) - F.col(_IN))
    return found.select(*columns, by_hash.otherwise(_task(slices, F.col(_IN))).alias(TASK))


def _with_bounds(
    rows: DataFrame, source: DataFrame, keys: Sequence[str], count: int, *, last: bool
) -> DataFrame:
    """Add the instant from which on rows are the last ones of their key and slice (or are the first ones).

    Rows of one instant are not told apart, so more rows may go on than count.
    """
    mark = _LAST if last else _FIRST
    each = source.filter(F.col(_IN).isNotNull()).groupBy(*keys, _HASH, _IN)
    if count == 1:
        bound = (F.max if last else F.min)(_AT)
    elif last:
        bound = F.array_min(F.max_by(_AT, _AT, count))
    else:
        bound = F.array_max(F.min_by(_AT, _AT, count))
    # Keys of one hash are looked up together: the bound of all of them is the widest one.
    by_hash = each.agg(bound.alias(mark)).groupBy(F.col(_HASH).alias("of"), F.col(_IN).alias("within"))
    widest = by_hash.agg((F.min if last else F.max)(mark).alias(mark))
    same = (F.col(_HASH) == F.col("of")) & (F.col(_IN) == F.col("within"))
    return rows.join(F.broadcast(widest), same, "left").drop("of", "within")


def _near(ticks: SparkColumn) -> SparkColumn:
    """Return instants that arithmetic can be done with; rows that are further away fail in their task."""
    return F.least(F.greatest(ticks, integer(-FARTHEST)), integer(FARTHEST))


def _by_hash(slices: Slices) -> SparkColumn:
    return F.pmod(F.col(_HASH), integer(slices.tasks)).cast("int")


def _task(slices: Slices, place: SparkColumn) -> SparkColumn:
    if slices.places == tuple(range(len(slices.places))):
        return place
    return F.get(F.array(*map(F.lit, slices.places)), place)


def _place(slices: Slices, at: SparkColumn) -> SparkColumn:
    """Return the place of the slice of an instant of a row's key; null if the key is not hot."""
    return _of_key(sorted(slices.hot, key=lambda key: key.hash), at)


def _of_key(hot: Sequence[HotKey], at: SparkColumn) -> SparkColumn:
    if len(hot) == 1:
        [key] = hot
        return F.when(F.col(_HASH) == integer(key.hash), _of_bounds(key.bounds, key.first, at))
    half = len(hot) // 2
    below = F.col(_HASH) < integer(hot[half].hash)
    return F.when(below, _of_key(hot[:half], at)).otherwise(_of_key(hot[half:], at))


def _of_bounds(bounds: Sequence[int], first: int, at: SparkColumn) -> SparkColumn:
    if not bounds:
        return F.lit(first)
    half = len(bounds) // 2
    below = at < integer(bounds[half])
    left = _of_bounds(bounds[:half], first, at)
    return F.when(below, left).otherwise(_of_bounds(bounds[half + 1 :], first + half + 1, at))
