"""Keys that stay where they are while others send to them again and again, as in an iteration."""

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
    """Rows that stay where they are, and what others must know to send to them.

    `reduce` and `join` give the answers of plain Spark, and `column` beside them. Rows that belong to no key
    of the frame are reduced too, somewhere.
    """

    rows: DataFrame
    """Those of the frame, kept as long as somebody has them; with `column`, which says where each is, if
    locations were detected."""
    count: int
    keys: tuple[str, ...]
    column: str | None
    decision: Decision
    asked: bool = False
    """Whether others know where keys are;"""
    routes: RoutingTable | None = None
    """and what they know, unless all have their keys at home."""

    def known_to(self, askers: DataFrame) -> Placement:
        """Tell partitions of rows that are made from `rows`, one from one, where the keys in them are.

        What is sent later must have the same keys in the same partitions, or fewer.
        """
        if self.column is None:
            return self
        self._checked("placement.known_to", askers)
        placed = self.decision.detected
        assert placed is not None
        sides = [Side.of(self.rows, self._hash, owns=True), Side.of(askers, self._hash)]
        # A bucket is then a part of one of those by which rows were placed, so all owners in it are together.
        with Keys(sides, self._slots) as seen:
            asked = seen.locations(slack=math.inf, bits=placed.bits)
        tell(replace(self.decision, step="known_to").with_detected(asked, self._slots))
        known = routing_table(self.rows.sparkSession, self._slots, 1, asked, kept=True)
        return replace(self, asked=True, routes=known)

    def reduce(self, df: DataFrame, aggs: Mapping[str, Aggregate]) -> DataFrame:
        """Aggregates by key, each where its key is. `df` has the partitions that `known_to` was given."""
        if self.column is not None and not self.asked:
            raise UserError("placement.reduce", expected="placement.known_to(...) before", got="nothing told")
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
        """Rows with those of `df`, which `reduce` returned: they are together already."""
        by = [*self.keys, *([self.column] if self.column is not None else [])]
        # There is one for each key: if they can be hashed, those of the frame need not be sorted.
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
        """Partitions of the rows are slots, and so are those of who asks."""
        slots = self.decision.slots
        assert slots is not None
        return replace(slots, of_side=(tuple(range(slots.count)),) * 2)

    @cached_property
    def _hash(self) -> Column:
        return hash_of(self.keys, [self.rows.schema[k].dataType for k in self.keys])


def place(df: DataFrame, keys: Sequence[str], *, detect: str = "auto", by: str = "auto") -> Placement:
    """Bring rows to where they will stay: to the host that has most of their key."""
    step = "place"
    keys = checked_keys(step, df, keys)
    rows, target, decision = together(step, df, keys, detect, by)
    if target is None:
        parts = int(df.sparkSession.conf.get("spark.sql.shuffle.partitions") or 1)
        rows = df.repartition(parts, *map(named, keys))
    rows = kept(rows)
    count = rows.count()  # now, so that all of them are there before anybody sends
    return Placement(noted(rows, decision), count, tuple(keys), target, decision)
