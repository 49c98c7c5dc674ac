"""Reduce by key: rows are aggregated in place, and only partials of keys in several slots are sent."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tidemill.aggregates.algebra import EVENT_TIME, Aggregate
from tidemill.aggregates.layout import Layout, layout
from tidemill.core.errors import UnsupportedError, UserError
from tidemill.core.schema import schema as read_schema
from tidemill.expr.nodes import columns_of
from tidemill.local.state_columns import state_fields
from tidemill.plan.build import bind
from tidemill.plan.nodes import Source
from tidemill.spark.caching import holding, kept
from tidemill.spark.exchange.cost import of_partials, partials_at_best
from tidemill.spark.exchange.decision import Decision, decide, noted
from tidemill.spark.exchange.detect import Keys, Side
from tidemill.spark.exchange.inputs import read_alike, steady
from tidemill.spark.exchange.keys import checked_keys, hash_of, row_bytes
from tidemill.spark.exchange.result_partitions import result_partitions
from tidemill.spark.exchange.route import routed
from tidemill.spark.expr.aggregates import (
    available,
    combined,
    counts_at_home,
    in_jvm,
    lowered,
    or_identity,
    partial,
)
from tidemill.spark.expr.compile import SparkExpressions
from tidemill.spark.expr.values import named
from tidemill.spark.names import fresh_name
from tidemill.spark.private import arranged_by
from tidemill.spark.settings import ansi


def reduce_by_key(
    df: DataFrame, keys: Sequence[str], aggs: Mapping[str, Aggregate], *, time: str | None = None,
    detect: str = "auto", by: str = "auto",
) -> DataFrame:  # fmt: skip
    """Aggregate by key: returns a row for each key, with the keys and a column for each aggregate.

    `time` names the column that orders rows for `tm.first` and `tm.last`.

    Example: reduce_by_key(words, ["word"], {"n": tm.count()})
    """
    step = "reduce_by_key"
    keys = checked_keys(step, df, keys)
    states = States(step, df, keys, aggs, time)
    with ansi(df.sparkSession), steady(df.sparkSession):
        decision = worth_it(step, df, keys, len(states.names), detect)
        if not decision.detects:
            return noted(states.results(states.partials(df, [])), decision)
        partials = where_they_are(df, states.partials)
        whole, decision = brought_together(partials, keys, states.combined(), decision, by)
        return holding(noted(states.results(whole), decision), partials)


def worth_it(step: str, df: DataFrame, keys: Sequence[str], fields: int, detect: str) -> Decision:
    """Decide whether to detect which partials, of `fields` fields, must be sent."""
    width = lambda df: _width(df, keys, fields)
    return decide(step, [df], keys, detect, width=width, best=partials_at_best)


def where_they_are(df: DataFrame, aggregate: Callable[[DataFrame, list[str]], DataFrame]) -> DataFrame:
    """Compute the partials of each partition in place: `aggregate` groups by one more column.

    They are cached, because they are read twice.
    """
    return kept(in_place(read_alike(df), aggregate))


def in_place(df: DataFrame, aggregate: Callable[[DataFrame, list[str]], DataFrame]) -> DataFrame:
    """The same for partials that are read once."""
    local = fresh_name("partition", df.columns)
    rows = arranged_by(df.select("*", F.spark_partition_id().alias(local)), local)
    return aggregate(rows, [local]).drop(local)


def brought_together(
    partials: DataFrame, keys: Sequence[str], combined: Sequence[Column], decision: Decision, by: str
) -> tuple[DataFrame, Decision]:
    """Combine the partials of each key. If it pays, partials of keys that only one slot has are not sent."""
    hash = _hash(partials, keys)
    slots = result_partitions([partials], by)
    width = _width(partials, keys, len(partials.columns) - len(keys))
    with Keys([Side.of(partials, hash, width, unique=True)], slots, sample=decision.sample) as seen:
        decision = decision.judged(seen.seen, slots, of_partials)
        if not decision.detects:
            return partials.groupBy(*map(named, keys)).agg(*combined), decision
        found = seen.duplicates()
    target = fresh_name("target", partials.columns)
    together = routed(partials, hash, target, slots, 0, found)
    whole = together.groupBy(named(target), *(named(k) for k in keys)).agg(*combined)
    return whole.drop(target), decision.with_detected(found, slots)


def _hash(df: DataFrame, keys: Sequence[str]) -> Column:
    return hash_of(keys, [df.schema[k].dataType for k in keys])


def _width(df: DataFrame, keys: Sequence[str], fields: int) -> float:
    return row_bytes(df.select(*(named(k) for k in keys))) + 8.0 * fields


class States:
    """The state columns of aggregates, and the Spark expressions that make, combine and lower them."""

    def __init__(
        self, step: str, df: DataFrame, keys: Sequence[str], aggs: Mapping[str, Aggregate], time: str | None
    ) -> None:
        if not aggs:
            raise UserError(step, expected="at least one aggregate", got="none", hint="{'n': tm.count()}")
        self._keys = [named(k) for k in keys]
        self._layout, self._expressions = _laid_out(step, df, aggs, time)
        states = [n for p in self._layout.parts for n, _ in state_fields(p)]
        self._name = {n: fresh_name(n, keys) for n in states}
        self._at_home = {
            i: witness if witness is None else self._name[witness]
            for i, witness in counts_at_home(self._layout).items()
        }
        self._sent = [
            (p, [self._name[n] for n, _ in state_fields(p)])
            for i, p in enumerate(self._layout.parts) if i not in self._at_home
        ]  # fmt: skip
        for name in aggs:
            if name in keys:
                what = f"a name not taken by the keys {list(keys)}"
                raise UserError(step, expected=what, got=repr(name))

    @property
    def names(self) -> list[str]:
        """The names of the columns of partials, without keys."""
        return [n for _, fields in self._sent for n in fields]

    def partials(self, df: DataFrame, beside: list[str]) -> DataFrame:
        """Compute partials by key and by the columns `beside`."""
        args = dict.fromkeys(a for p, _ in self._sent for a in p.part.args)
        names = {a: fresh_name(f"a{i}", [*df.columns, *beside]) for i, a in enumerate(args)}
        rows = df.select("*", *(self._expressions.column(a).alias(n) for a, n in names.items()))
        columns = []
        for part, fields in self._sent:
            own = [names[a] for a in part.part.args]
            columns += partial(part, own, fields, identity=fields[0] not in self._at_home.values())
        return rows.groupBy(*map(named, beside), *self._keys).agg(*columns)

    def combined(self) -> list[Column]:
        """The expressions that combine the partials of a key."""
        return [c for part, fields in self._sent for c in combined(part, fields)]

    def results(self, whole: DataFrame, beside: Sequence[str] = ()) -> DataFrame:
        """Lower complete partials to the user's results."""
        whole = whole.withColumns(self._brought_back())
        return whole.select(*map(named, beside), *self._keys, *lowered(self._layout, self._name))

    def _brought_back(self) -> dict[str, Column]:
        """Restore counts that were not sent, as 0 or 1; null witness states become their identity."""
        found = {}
        for i, witness in self._at_home.items():
            there = F.lit(True) if witness is None else F.col(witness).isNotNull()
            found[self._name[self._layout.parts[i].columns.names[0]]] = there.cast("bigint")
        for part, fields in self._sent:
            if fields[0] in self._at_home.values():
                found |= or_identity(part, fields)
        return found


def _laid_out(
    step: str, df: DataFrame, aggs: Mapping[str, Aggregate], time: str | None
) -> tuple[Layout, SparkExpressions]:
    for name, aggregate in aggs.items():
        if not isinstance(aggregate, Aggregate):
            raise UserError(
                f"{step} {name}", expected="an aggregate such as tm.sum(col.x)", got=repr(aggregate),
                hint="use Spark's aggregates with group_by_key, which needs no partials",
            )  # fmt: skip
    nodes = [a for aggregate in aggs.values() for a in aggregate.args]
    read = {n for a in nodes for n in columns_of(a)}
    if EVENT_TIME.name in read and time is None:
        raise UserError(step, expected="time=, the column that orders rows for first and last", got="none")
    read = {*(read - {EVENT_TIME.name}), *([time] if time is not None else ())}
    for name in read:
        if name not in df.columns:
            raise UserError(step, expected=f"a column of {df.columns}", got=repr(name))
    none = [T.StructField("none", T.LongType())]
    fields = [f for f in df.schema.fields if f.name in read] or none
    schema = read_schema(T.StructType(fields), step=step)
    source = Source("rows", schema, time or schema.names[0])
    bound = tuple((n, bind(source, n, a)) for n, a in aggs.items())
    found = layout(bound, schema)
    foreign = [str(p.part) for p in found.parts if not available(p)]
    if foreign or not in_jvm(found):
        what = ", ".join(foreign or [str(a) for a in aggs.values()])
        raise UnsupportedError("exchange", what, instead="use group_by_key, which has all rows of a key")
    return found, SparkExpressions(schema, {f.name: f.dataType for f in fields})
