"""Look at a sample of the rows of an operator's inputs, to choose which keys tasks share by time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce

import numpy as np
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tidemill.core.time import FARTHEST, FOREVER
from tidemill.expr.nodes import Column, Node, columns_of
from tidemill.plan.intervals import IntervalAggregate, IntervalJoin, IntervalPairs
from tidemill.plan.nodes import Filter, Plan, Project
from tidemill.plan.properties import properties
from tidemill.plan.temporal import Cut, Join
from tidemill.spark.batch.hot_keys import HASH, key_hash
from tidemill.spark.batch.interval_slices import Margins, bound_column
from tidemill.spark.batch.lifetimes import internal_rows, places
from tidemill.spark.batch.slice_choice import Ints, Sample, Slices, SliceTuning, choose, within
from tidemill.spark.batch.slices import divided_side
from tidemill.spark.exchange.decision import Decision, tell
from tidemill.spark.exchange.inputs import is_read_twice_alike, reads_only, row_count
from tidemill.spark.exchange.keys import why_no_hash
from tidemill.spark.expr.values import integer
from tidemill.spark.private import is_connect

_PORT, _START, _END, _BOUND = "port", "start", "end", "bound"
_SEED = 7
_TASKS = 200
_UNKNOWN = 1e15
"""Spark takes an input of which it knows nothing for larger than this."""
_MOSTLY = 0.99
"""Of lifetimes that are not all alike, those longer than this part of them do not count."""


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
        self._counts: dict[int, tuple[float, Plan]] = {}
        """About how many rows there are of plans, by their `id`; the plans are held so that they keep it."""

    def slices(
        self, plan: IntervalJoin | Join | Cut, keys: Sequence[Sequence[str]]
    ) -> Slices | None:
        """Look at the rows of an operator; return how they are divided, if that pays."""
        found, why = self._chosen(plan, keys)
        step = type(plan).__name__ if not isinstance(plan, IntervalJoin) else "interval join"
        tell(Divided(step.lower(), tuple(keys[0]), False, why, slices=found))
        return found

    def _chosen(
        self, plan: IntervalJoin | Join | Cut, keys: Sequence[Sequence[str]]
    ) -> tuple[Slices | None, str]:
        margins = Margins.of(plan) if isinstance(plan, IntervalJoin) else None
        if isinstance(margins, str):
            return None, margins
        if not isinstance(plan, IntervalJoin) and divided_side(plan) is None:
            return None, "rows of both sides may be alone in the result"
        sides = list[_Rows]()
        for one, names in zip(plan.children(), keys):
            computed = plan.interval.computed if isinstance(plan, IntervalJoin) and not sides else ()
            side = self._readable(one, names, computed, ends=margins is None)
            if isinstance(side, str):
                return None, side
            sides.append(side)
        rows = sum(map(self._count, sides))
        if rows < self._tuning.few_rows:
            return None, "there are few rows"
        if rows > _UNKNOWN:
            return None, "nobody knows how large an input is; cache it first to allow a sample"
        self._sample(sides, rows)
        seen = [self._seen[side.name] for side in sides]
        if isinstance(plan, IntervalJoin):
            assert margins is not None
            probe = _within_reach(seen[1], margins, seen[0].furthest, plan.interval.offset)
            asked = [_of_one_slice(seen[0]), probe]
        else:
            port = divided_side(plan) or 0
            own, other = seen[port], seen[1 - port]
            asked = [_of_one_slice(own), _while_holding(other, plan.children()[port], own)]
        spark = sides[0].frame.sparkSession
        given = str(spark.conf.get("spark.sql.shuffle.partitions"))
        tasks = int(given) if given.isdecimal() else _TASKS  # some platforms choose
        cores = tasks if is_connect(spark) else spark.sparkContext.defaultParallelism
        costly = margins is not None and margins.carries
        chosen = choose(asked, tasks, cores, self._tuning, costly=costly)
        return chosen, "else few tasks have most rows" if chosen else "rows are spread well"

    def _readable(
        self, plan: Plan, keys: Sequence[str], bounds: Sequence[Node], *, ends: bool
    ) -> _Rows | str:
        """Return rows with the keys and times of a plan that are cheap to read, or why there are none."""
        times = [plan.time] if plan.end is None or not ends else [plan.time, plan.end]
        read = sorted(frozenset().union(*map(columns_of, bounds)))
        for one, names in _rows_below(plan, (*keys, *times, *read)):
            frame = self._frame(one)
            if reads_only(frame):
                own = places(one, "c")
                columns = [own[name] for name in names]
                first, last = len(keys), len(keys) + len(times)
                where = dict(zip(read, columns[last:]))
                computed = {str(b): bound_column(plan.schema, where, b) for b in bounds}
                found = _Rows(one, frame, tuple(columns[:first]), tuple(columns[first:last]), computed)
                why = why_no_hash(internal_rows(one, frame, checked=False), found.keys)
                if why is None and not is_read_twice_alike(frame):
                    why = "a second reading of the input might give other rows"
                return why or found
        return "an input would be computed twice; cache it first to allow a sample"

    def _count(self, side: _Rows) -> float:
        if id(side.plan) not in self._counts:
            self._counts[id(side.plan)] = row_count(side.frame), side.plan
        return self._counts[id(side.plan)][0]

    def _sample(self, sides: Sequence[_Rows], rows: float) -> None:
        """Read hashes of keys and times of some rows, where that was not done."""
        new = {side.name: side for side in sides if side.name not in self._seen}
        if not new:
            return
        share, asked = min(1.0, self._tuning.sample / max(rows, 1.0)), []
        for port, side in enumerate(new.values()):
            some = internal_rows(side.plan, side.frame.sample(share, _SEED), checked=False)
            start = F.col(side.times[0])
            end = start + integer(1) if len(side.times) == 1 else F.col(side.times[1])
            columns = [F.lit(port).alias(_PORT), key_hash(some, side.keys).alias(HASH), start.alias(_START)]
            columns += [F.coalesce(end, integer(FOREVER)).alias(_END)]
            furthest = F.greatest(integer(0), integer(0), *side.bounds.values())
            columns += [furthest.alias(_BOUND)]
            asked.append(some.filter(start.isNotNull()).select(*columns))
        table = reduce(DataFrame.union, asked).toArrow()
        ports, hashes, starts, ends, bounds = (table.column(i).to_numpy() for i in range(5))
        for port, (name, side) in enumerate(new.items()):
            mine = ports == port
            times = within(starts[mine]), within(ends[mine])
            greatest = int(bounds[mine].max(initial=0))
            self._seen[name] = _Seen(side.plan, hashes[mine], *times, greatest, 1 / share)


@dataclass(frozen=True)
class _Rows:
    """Rows to look at."""

    plan: Plan
    frame: DataFrame
    keys: tuple[str, ...]
    """The internal names of their keys …"""
    times: tuple[str, ...]
    """… and of their start, and their end if that matters."""
    bounds: Mapping[str, SparkColumn]
    """Bounds of intervals that are computed, by their text."""

    @property
    def name(self) -> tuple[int, tuple[str, ...]]:
        return id(self.plan), (*self.keys, *self.times, *self.bounds)


@dataclass(frozen=True)
class _Seen:
    """What was seen of some rows."""

    plan: Plan
    """Of all of them; held, so that nothing else gets its `id`."""
    hashes: Ints
    starts: Ints
    ends: Ints
    furthest: int
    """The greatest bound of an interval, of those that are computed."""
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


def _of_one_slice(seen: _Seen) -> Sample:
    """Return rows that are in the slice of their start alone."""
    return Sample(seen.hashes, seen.starts, seen.starts, seen.starts, seen.each)


def _within_reach(seen: _Seen, margins: Margins, furthest: int, offset: int) -> Sample:
    """Return probe rows, which are needed in slices within reach of intervals."""
    own = within(seen.starts + offset)
    margin = margins.before, margins.after
    before, after = (furthest if isinstance(m, Node) else min(m, FARTHEST) for m in margin)
    return Sample(seen.hashes, own, own - after, own + before, seen.each)


def _while_holding(seen: _Seen, plan: Plan, others: _Seen) -> Sample:
    """Return rows that are needed in the slices of those rows of the other side that hold with them."""
    longest = properties(plan).duration
    if longest is None:
        lengths = others.ends - others.starts
        longest = int(np.quantile(lengths, _MOSTLY)) if len(lengths) else 1
    low = seen.starts - min(longest, FARTHEST) + 1
    return Sample(seen.hashes, seen.starts, low, np.maximum(seen.ends - 1, seen.starts), seen.each)
