"""Place rows once, so that an iteration can repeatedly send partials to the location of their keys."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tidemill.aggregates.algebra import Aggregate
from tidemill.core.errors import UserError
from tidemill.spark.caching import kept
from tidemill.spark.exchange.decision import Decision, noted, tell
from tidemill.spark.exchange.detect import Keys, Side
from tidemill.spark.exchange.group import together
from tidemill.spark.exchange.join import HASHED
from tidemill.spark.exchange.keys import checked_keys, hash_of, row_bytes
from tidemill.spark.exchange.reduce import States
from tidemill.spark.exchange.result_partitions import ResultPartitions
from tidemill.spark.exchange.route import RoutingTable, routing_table, shuffled
from tidemill.spark.expr.values import named
from tidemill.spark.names import fresh_name
from tidemill.spark.private import arranged_by, partition_count
from tidemill.spark.settings import ansi, planned


@dataclass(frozen=True)
class Placement:
    """Placed rows, and the routing table by which others send to them.

    `reduce` and `join` return the answers of plain Spark, and `column` in addition. Rows whose key is not in
    the frame are reduced, too, in some partition.
    """

    rows: DataFrame
    """The rows of the frame, cached; if locations were detected, with `column`, the slot of each row."""
    count: int
    keys: tuple[str, ...]
    column: str | None
    decision: Decision
    asked: bool = False
    """Whether `known_to` was called."""
    routes: RoutingTable | None = None
    """The routing table of `known_to`; None if every partition already has its keys."""

    def known_to(self, askers: DataFrame) -> Placement:
        """Compute the locations of the keys in `askers`, whose partitions are made from those of `rows`.

        Rows sent later must have the same keys in the same partitions, or fewer.
        """
        if self.column is None:
            return self
        self._checked("placement.known_to", askers)
        placed = self.decision.detected
        assert placed is not None
        sides = [Side.of(self.rows, self._hash, owns=True), Side.of(askers, self._hash)]
        # With at least as many bits, a bucket is within one of the placement: its owners are in one slot.
        with Keys(sides, self._slots) as seen:
            asked = seen.locations(slack=math.inf, bits=placed.bits)
        tell(replace(self.decision, step="known_to").with_detected(asked, self._slots))
        known = routing_table(self.rows.sparkSession, self._slots, 1, asked, kept=True)
        return replace(self, asked=True, routes=known)

    def reduce(self, df: DataFrame, aggs: Mapping[str, Aggregate]) -> DataFrame:
        """Aggregate by key, each key in its slot. `df` must have the partitions given to `known_to`."""
        if self.column is not None and not self.asked:
            raise UserError("placement.reduce", expected="placement.known_to(...) first", got="no such call")
        states = States("reduce", df, self.keys, aggs, None)
        if self.column is None:
            with ansi(df.sparkSession):
                return states.results(states.partials(df, []))
        with ansi(df.sparkSession), planned(df.sparkSession):
            local = fresh_name("partition", [*df.columns, *states.names])
            here = arranged_by(df.select("*", F.spark_partition_id().alias(local)), local)
            self._checked("placement.reduce", here)
            partials = states.partials(here, [local]).drop(local)
            sent = shuffled(partials, self._hash, self.column, self._slots, 1, self.routes)
            whole = sent.groupBy(named(self.column), *map(named, self.keys)).agg(*states.combined())
            return states.results(whole, [self.column])

    def join(self, df: DataFrame) -> DataFrame:
        """Join the rows with a result of `reduce`, without a shuffle."""
        by = [*self.keys, *([self.column] if self.column is not None else [])]
        # `df` has a row for each key: if it fits in a hash table, the rows of the frame need no sort.
        each = self.count * row_bytes(df) / partition_count(self.rows)
        small = each <= HASHED
        return self.rows.join(df.hint("shuffle_hash"), by) if small else self.rows.hint("merge").join(df, by)

    def _checked(self, step: str, df: DataFrame) -> None:
        with planned(df.sparkSession):
            got, expected = partition_count(df), self._slots.count
        if got != expected:
            raise UserError(
                step, expected=f"a frame made from placement.rows, with its {expected} partitions",
                got=f"one of {got} partitions",
            )  # fmt: skip

    def release(self) -> None:
        """Release the cached rows."""
        self.rows.unpersist()

    @cached_property
    def _slots(self) -> ResultPartitions:
        """The slots for two sides: the rows and the askers, both partitioned by slot."""
        slots = self.decision.slots
        assert slots is not None
        return replace(slots, of_side=(tuple(range(slots.count)),) * 2)

    @cached_property
    def _hash(self) -> Column:
        return hash_of(self.keys, [self.rows.schema[k].dataType for k in self.keys])


def place(df: DataFrame, keys: Sequence[str], *, detect: str = "auto", by: str = "auto") -> Placement:
    """Move rows to the host that has most of their key, and cache them there."""
    step = "place"
    keys = checked_keys(step, df, keys)
    rows, target, decision = together(step, df, keys, detect, by)
    if target is None:
        parts = int(df.sparkSession.conf.get("spark.sql.shuffle.partitions") or 1)
        rows = df.repartition(parts, *map(named, keys))
    rows = kept(rows)
    count = rows.count()  # fill the cache now, before anything is sent to it
    return Placement(noted(rows, decision), count, tuple(keys), target, decision)
