"""The fluent surface: streams, groups and windows. Thin: every method builds a plan node."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

import pyarrow as pa

from tidemill.aggregates.holistic import top_rows
from tidemill.core.brought_names import (
    GROUPED,
    STREAM,
    WINDOWED,
    KnowsBroughtNames,
    unknown_options,
)
from tidemill.core.errors import UserError
from tidemill.core.schema import Schema
from tidemill.core.time import FOREVER, Domain
from tidemill.expr.fluent import Arithmetic
from tidemill.plan import build
from tidemill.plan import build_intervals as intervals
from tidemill.plan import build_temporal as temporal
from tidemill.plan.asked import by_name
from tidemill.plan.foresight import foresight
from tidemill.plan.nodes import NamedWindow, Plan
from tidemill.query import Query
from tidemill.windows.spec import PerEvent, Window


class Stream(KnowsBroughtNames, Query):
    """Events in time, and everything that can be asked of them.

    Streams are values: every method returns a new one. An event holds during its lifetime: at the instant
    of its time, or from its time until `end`. Operators that keep something see the lifetimes
    (docs/temporal.md).

    >>> clicks = stream("clicks", time="ts", schema={"ts": "timestamp", "ad": "int64"})
    >>> clicks.where(lambda e: e.ad > 3)
    where (col.ad > 3)
      source clicks time=ts
    """

    _brought, _called = STREAM, "a stream"

    def __init__(self, plan: Plan, scope: tuple[str, ...] = ()) -> None:
        super().__init__(plan)
        self._scope = scope
        """The keys of the groups that this query runs in, inside of `apply`."""

    def _without(self, name: str) -> str:
        if "plan" in self.__dict__ and name in self.schema and name not in self._brought:
            return f"a stream has no {name!r}: its column is col.{name}, or e.{name} in lambda e: ..."
        return super()._without(name)

    def __getitem__(self, name: Any) -> Any:
        raise UserError(
            "stream", expected="columns as col.price, rows by .where(...)", got=f"[{name!r:.80}]",
            hint=".select('a', 'b') for some columns, .where(col.a > 1) for some rows",
        )  # fmt: skip

    def _like(self, plan: Plan) -> Stream:
        return Stream(plan, self._scope)

    # -- rows

    def where(self, predicate: Any = None, /, *others: Any, **brought: Any) -> Stream:
        """Rows for which a condition is true; rows where it is false or null go.

        >>> s = stream("s", time="t", schema={"t": "int64", "v": "int64"})
        >>> rows = [{"t": 1, "v": 5}, {"t": 2, "v": 6}, {"t": 3, "v": None}]
        >>> s.where(lambda e: e.v > 5).run(s=rows).to_pylist()
        [{'t': 2, 'v': 6}]
        """
        if brought:
            asked = " & ".join(f"(col.{name} == {value!r:.80})" for name, value in brought.items())
            raise UserError(
                "where", expected="a condition", got=f"arguments {sorted(brought)}",
                hint=f"write .where({asked})",
            )  # fmt: skip
        if others:
            raise UserError(
                "where", expected="one condition", got=f"{1 + len(others)}",
                hint=f"write .where({' & '.join(f'{one!s:.80}' for one in (predicate, *others))})",
            )  # fmt: skip
        return self._like(build.where(self.plan, predicate))

    def select(self, /, *columns: Any, **named: Any) -> Stream:
        """Other columns for each row: names as they are, `name=expression` for computed ones.

        The time column always travels along, and so does the end of lifetimes. They come first.

        >>> s = stream("s", time="t", schema={"t": "int64", "v": "int64"})
        >>> s.select(double=lambda e: 2 * e.v).run(s=[{"t": 1, "v": 5}]).to_pylist()
        [{'t': 1, 'double': 10}]
        """
        return self._like(build.select(self.plan, columns, named, keep=False, scope=self._scope))

    def with_columns(self, /, *unnamed: Any, **named: Any) -> Stream:
        """The columns there are, and computed ones besides.

        >>> s = stream("s", time="t", schema={"t": "int64", "v": "int64"})
        >>> s.with_columns(double=lambda e: 2 * e.v).run(s=[{"t": 1, "v": 5}]).to_pylist()
        [{'t': 1, 'v': 5, 'double': 10}]
        """
        if unnamed:
            given = unnamed[0].node if isinstance(unnamed[0], Arithmetic) else repr(unnamed[0])
            raise UserError(
                "with_columns", expected="a name for each column", got=f"{given!s:.80}",
                hint=f"write .with_columns(name={given!s:.80})",
            )  # fmt: skip
        return self._like(build.select(self.plan, (), named, keep=True, scope=self._scope))

    def select_many(self, /, *lists: Any, **named: Any) -> Stream:
        """A row for each element of a list: `select_many(word=col.text.split(" "))`.

        The other columns are repeated. An empty list, or null, gives no row. Of a list of structs without a
        name, `select_many("best")`, the fields are columns.

        >>> s = stream("s", time="t", schema={"t": "int64", "text": "string"})
        >>> words = s.select_many(word=lambda e: e.text.split(" ")).select("word")
        >>> words.run(s=[{"t": 1, "text": "a b"}]).to_pylist()
        [{'t': 1, 'word': 'a'}, {'t': 1, 'word': 'b'}]
        """
        return self._like(temporal.select_many(self.plan, lists, named))

    def group_by(self, /, *keys: Any, **computed: Any) -> Grouped:
        """Ask for each value of the keys apart. Null is a key like any other.

        >>> s = stream("s", time="t", schema={"t": "int64", "v": "int64"})
        >>> from tidemill.aggregates.basic import count
        >>> s.group_by("v").agg(n=count()).run(s=[{"t": 1, "v": None}, {"t": 1, "v": None}]).to_pylist()
        [{'v': None, 'valid_from': 1, 'valid_to': 2, 'n': 2}]
        """
        plan, names = build.grouped(self.plan, keys, computed, self._scope)
        return Grouped(plan, names, self._scope)

    def union(self, other: Stream, /, *others: Stream) -> Stream:
        """The rows of this stream and of others, as one stream.

        All have the same columns, of the same types, and the same time column; columns come in the order
        that this stream has them. A row that is in several streams comes several times. Each stream that
        is read is an input of `run`, by its name.

        >>> columns = {"t": "int64", "x": "int64"}
        >>> shop, web = (stream(name, time="t", schema=columns) for name in ("shop", "web"))
        >>> shop.union(web.where(lambda e: e.x > 5)).run(
        ...     shop=[{"t": 1, "x": 2}], web=[{"t": 2, "x": 4}, {"t": 3, "x": 6}]
        ... ).to_pylist()
        [{'t': 1, 'x': 2}, {'t': 3, 'x': 6}]
        """
        for given in (other, *others):
            _require_stream(given, "union")
        return self._like(build.union([s.plan for s in (self, other, *others)]))

    # -- lifetimes

    def lasting(self, length: Any) -> Stream:
        """Each row from its start, for a duration: a constant, or an expression of the row.

        `tm.FOREVER` is a lifetime without an end. A null duration is one, too; with one that is not positive
        a row holds at no instant, and is dropped.

        >>> s = stream("s", time="t", schema={"t": "int64"})
        >>> s.lasting(5).run(s=[{"t": 1}]).to_pylist()
        [{'t': 1, 'valid_to': 6}]
        """
        return self._like(temporal.lasting(self.plan, length))

    def until(self, end: Any) -> Stream:
        """Each row until an instant, a column or an expression of the row. Null never comes.

        Rows for which the instant is not after their start hold at none, and are dropped.

        >>> s = stream("s", time="t", schema={"t": "int64", "v": "int64"})
        >>> rows = [{"t": 1, "v": 5}, {"t": 2, "v": None}, {"t": 3, "v": 0}]
        >>> s.until(lambda e: e.t + e.v).run(s=rows).to_pylist()
        [{'t': 1, 'v': 5, 'valid_to': 6}, {'t': 2, 'v': None, 'valid_to': None}]
        """
        return self._like(temporal.until(self.plan, end))

    def starting(self, start: Any) -> Stream:
        """Each row from another instant on, an expression of the row.

        With null, or with an instant at or after its end, a row holds at no instant, and is dropped.
        Where the new starts are, nobody knows before the rows come: what needs a watermark waits for the end
        of the input. `shift` moves all rows alike, and watermarks with them.

        >>> s = stream("s", time="t", end="u", schema={"t": "int64", "u": "int64"})
        >>> s.starting(lambda e: e.u - 2).run(s=[{"t": 1, "u": 9}]).to_pylist()
        [{'t': 7, 'u': 9}]
        """
        return self._like(temporal.starting(self.plan, start))

    def extend(self, length: Any) -> Stream:
        """Each row for so much longer.

        >>> s = stream("s", time="t", end="u", schema={"t": "int64", "u": "int64"})
        >>> s.extend(5).run(s=[{"t": 1, "u": 4}]).to_pylist()
        [{'t': 1, 'u': 9}]
        """
        return self._like(temporal.extend(self.plan, length))

    def shift(self, length: Any) -> Stream:
        """Each lifetime so much later; earlier, if the duration is negative.

        >>> s = stream("s", time="t", schema={"t": "int64"})
        >>> s.shift(-5).run(s=[{"t": 7}]).to_pylist()
        [{'t': 2}]
        """
        return self._like(temporal.shift(self.plan, length))

    def at_most(self, length: Any) -> Stream:
        """Each lifetime cut off after a duration.

        >>> s = stream("s", time="t", end="u", schema={"t": "int64", "u": "int64"})
        >>> s.at_most(5).run(s=[{"t": 1, "u": 4}, {"t": 1, "u": None}]).to_pylist()
        [{'t': 1, 'u': 4}, {'t': 1, 'u': 6}]
        """
        return self._like(temporal.at_most(self.plan, length))

    def at_start(self) -> Stream:
        """Each row as a point at the start of its lifetime.

        >>> s = stream("s", time="t", end="u", schema={"t": "int64", "u": "int64"})
        >>> s.at_start().run(s=[{"t": 1, "u": 4}]).to_pylist()
        [{'t': 1}]
        """
        return self._like(temporal.at_start(self.plan))

    def at_end(self) -> Stream:
        """Each row as a point at the end of its lifetime. Rows without an end are dropped.

        >>> s = stream("s", time="t", end="u", schema={"t": "int64", "u": "int64"})
        >>> s.at_end().run(s=[{"t": 1, "u": 4}, {"t": 1, "u": None}]).to_pylist()
        [{'t': 4}]
        """
        return self._like(temporal.at_end(self.plan))

    def quantised(self, size: Any, *, every: Any = None, origin: Any = None) -> Stream:
        """Hopping lifetimes: a row holds while windows `tm.hopping(size, every)` that have it are the last.

        A window that ends at `w` holds in `[w, w + every)`. So an aggregate of these lifetimes is that of the
        windows: `s.quantised("1h", every="10m").agg(n=tm.count())`. Without `every`, they are tumbling.

        >>> s = stream("s", time="t", schema={"t": "int64"})
        >>> s.quantised(10, every=5).run(s=[{"t": 7}]).to_pylist()
        [{'t': 10, 'valid_to': 20}]
        """
        return self._like(temporal.quantised(self.plan, size, size if every is None else every, origin))

    def until_session_end(self, gap: Any, *keys: Any) -> Stream:
        """Each row until no other has started for a duration, among those with the same keys.

        >>> s = stream("s", time="t", schema={"t": "int64", "user": "int64"})
        >>> rows = [{"t": 1, "user": 7}, {"t": 4, "user": 7}]
        >>> s.until_session_end(10, "user").run(s=rows).to_pylist()
        [{'t': 1, 'user': 7, 'valid_to': 14}, {'t': 4, 'user': 7, 'valid_to': 14}]
        """
        plan, names = build.grouped(self.plan, keys, {}, self._scope, "until_session_end")
        return self._like(temporal.until_session_end(plan, names, gap))

    def until_next(self, *keys: Any) -> Stream:
        """Each row until the next one with the same keys starts: the last known value, at each instant.

        Rows that start together hold together. The last row has no end.

        >>> s = stream("s", time="t", schema={"t": "int64", "sensor": "int64", "v": "float64"})
        >>> rows = [{"t": 1, "sensor": 7, "v": 0.5}, {"t": 4, "sensor": 7, "v": 0.7}]
        >>> s.until_next("sensor").run(s=rows).to_pylist()
        [{'t': 1, 'sensor': 7, 'v': 0.5, 'valid_to': 4}, {'t': 4, 'sensor': 7, 'v': 0.7, 'valid_to': None}]
        """
        plan, names = build.grouped(self.plan, keys, {}, self._scope, "until_next")
        return self._like(temporal.until_next(plan, names))

    def chop(self, every: Any, *, origin: Any = None) -> Stream:
        """Each lifetime in pieces, cut at the multiples of a duration.

        What never ends is cut up to the last start or end of any row of the stream.

        >>> s = stream("s", time="t", end="u", schema={"t": "int64", "u": "int64"})
        >>> s.chop(10).run(s=[{"t": 4, "u": 24}]).to_pylist()
        [{'t': 4, 'u': 10}, {'t': 10, 'u': 20}, {'t': 20, 'u': 24}]
        """
        return self._like(temporal.chop(self.plan, every, origin))

    def sample(self, every: Any, *, origin: Any = None) -> Stream:
        """Points at the multiples of a duration: each row at those that it holds at.

        After `until_next` it is the last known value at regular instants.

        >>> s = stream("s", time="t", schema={"t": "int64", "v": "int64"})
        >>> rows = [{"t": 1, "v": 5}, {"t": 14, "v": 6}, {"t": 30, "v": 7}]
        >>> s.until_next().sample(10).run(s=rows).to_pylist()
        [{'t': 10, 'v': 5}, {'t': 20, 'v': 6}, {'t': 30, 'v': 7}]
        """
        return self._like(temporal.sample(self.plan, every, origin))

    def stitch(self) -> Stream:
        """The same stream in as few rows as possible: rows that differ in their lifetimes only are joined.

        >>> s = stream("s", time="t", end="u", schema={"t": "int64", "u": "int64", "v": "int64"})
        >>> s.stitch().run(s=[{"t": 1, "u": 4, "v": 5}, {"t": 4, "u": 9, "v": 5}]).to_pylist()
        [{'t': 1, 'u': 9, 'v': 5}]
        """
        return self._like(temporal.stitch(self.plan))

    # -- snapshots

    def agg(self, /, *unnamed: Arithmetic, **aggregates: Arithmetic) -> Stream:
        """Aggregates of the rows that hold at each instant; see `Grouped.agg`.

        >>> s = stream("s", time="t", end="u", schema={"t": "int64", "u": "int64"})
        >>> from tidemill.aggregates.basic import count
        >>> s.agg(n=count()).run(s=[{"t": 1, "u": 4}, {"t": 3, "u": 4}]).to_pylist()
        [{'valid_from': 1, 'valid_to': 3, 'n': 1}, {'valid_from': 3, 'valid_to': 4, 'n': 2}]
        """
        return Grouped(self.plan, self._scope, self._scope).agg(*unnamed, **aggregates)

    def distinct(self, /, *columns: Any) -> Stream:
        """The values of some columns, of all by default, that some row has at each instant.

        >>> s = stream("s", time="t", end="u", schema={"t": "int64", "u": "int64", "v": "int64"})
        >>> s.distinct("v").run(s=[{"t": 1, "u": 5, "v": 7}, {"t": 3, "u": 9, "v": 7}]).to_pylist()
        [{'v': 7, 'valid_from': 1, 'valid_to': 9}]
        """
        return self._like(temporal.distinct(self.plan, self._scope, columns))

    def top(self, count: int, /, *, by: Any, least: bool = False) -> Stream:
        """The rows with the greatest values of a column, of those that hold at each instant.

        Equal values are decided by the other columns, from left to right; the greater value wins, and null
        is below all others. Of equal rows the one that starts first is taken.

        >>> s = stream("s", time="t", end="u", schema={"t": "int64", "u": "int64", "v": "int64"})
        >>> rows = [{"t": 1, "u": 9, "v": 5}, {"t": 3, "u": 5, "v": 8}]
        >>> s.top(1, by="v").run(s=rows).sort_by("t").to_pylist()
        [{'t': 1, 'u': 3, 'v': 5}, {'t': 3, 'u': 5, 'v': 8}, {'t': 5, 'u': 9, 'v': 5}]
        """
        return Grouped(self.plan, self._scope, self._scope).top(count, by=by, least=least)

    # -- two streams

    def join(
        self, other: Stream, on: Any = None, *, where: Any = None, how: str = "inner", suffix: str = "_right"
    ) -> Stream:
        """Pairs of rows of both streams, while both hold.

        `on` are columns with equal values, `{"left": "right"}` if their names differ; null equals nothing.
        `where` is a condition on both rows: `lambda l, r: l.value > r.limit`. With `how="left"`, `"right"` or
        `"outer"` there are also rows of one side, while nothing of the other matches. The result has the
        columns of both, but for the lifetimes, and `valid_from` and `valid_to`. A column of the right side
        gets a `suffix` if the left side has one of its name.

        >>> a = stream("a", time="t", schema={"t": "int64", "user": "int64"})
        >>> b = stream("b", time="t", schema={"t": "int64", "user": "int64", "item": "string"})
        >>> bought = [{"t": 30, "user": 7, "item": "tea"}, {"t": 90, "user": 7, "item": "milk"}]
        >>> a.lasting(60).join(b, on="user").run(a=[{"t": 10, "user": 7}], b=bought).to_pylist()
        [{'user': 7, 'item': 'tea', 'valid_from': 30, 'valid_to': 31}]
        """
        left, right = self._sides(other, "join")
        matching = temporal.match(left, right, on, where, self._shared(other), "join")
        return self._like(temporal.join(left, right, how, matching, suffix))

    def where_exists(self, other: Stream, on: Any = None, *, where: Any = None) -> Stream:
        """Each row while some row of another stream matches it, as in `join`.

        >>> a = stream("a", time="t", end="u", schema={"t": "int64", "u": "int64"})
        >>> b = stream("b", time="t", end="u", schema={"t": "int64", "u": "int64"})
        >>> a.where_exists(b).run(a=[{"t": 0, "u": 9}], b=[{"t": 3, "u": 5}, {"t": 4, "u": 6}]).to_pylist()
        [{'t': 3, 'u': 6}]
        """
        return self._cut(other, "exists", on, where)

    def where_not_exists(self, other: Stream, on: Any = None, *, where: Any = None) -> Stream:
        """Each row while no row of another stream matches it, as in `join`.

        >>> a = stream("a", time="t", end="u", schema={"t": "int64", "u": "int64"})
        >>> b = stream("b", time="t", end="u", schema={"t": "int64", "u": "int64"})
        >>> a.where_not_exists(b).run(a=[{"t": 0, "u": 9}], b=[{"t": 3, "u": 5}]).to_pylist()
        [{'t': 0, 'u': 3}, {'t': 5, 'u': 9}]
        """
        return self._cut(other, "not_exists", on, where)

    def clip(self, other: Stream, on: Any = None, *, where: Any = None) -> Stream:
        """Each row until a matching row of another stream starts after it.

        >>> a = stream("a", time="t", end="u", schema={"t": "int64", "u": "int64", "k": "int64"})
        >>> stop = stream("stop", time="t", schema={"t": "int64", "k": "int64"})
        >>> a.clip(stop, on="k").run(a=[{"t": 0, "u": 9, "k": 1}], stop=[{"t": 3, "k": 1}]).to_pylist()
        [{'t': 0, 'u': 3, 'k': 1}]
        """
        return self._cut(other, "clip", on, where)

    # -- intervals

    @property
    def leaks(self) -> bool:
        """Whether rows know of events after their time: a model must not be trained on them as they are."""
        return foresight(self.plan).ticks != 0

    @property
    def waits(self) -> timedelta | int | None:
        """How long after the time of a row the events are that its values depend on; None if nobody knows.

        It is an int on logical time, and `tm.FOREVER` if all later events count. The end of a lifetime, which
        is a column of its own, may be known later.

        >>> from tidemill.aggregates.basic import count
        >>> from tidemill.windows.spec import tumbling
        >>> s = stream("s", time="t", schema={"t": "int64", "k": "int64"})
        >>> s.waits, s.window(tumbling(60)).agg(n=count()).waits
        (0, 60)
        >>> s.interval_join(s, on="k", preceding=9, following=5).agg(n=count()).waits
        5
        """
        return _time_of(foresight(self.plan).ticks, self.plan)

    def interval_join(
        self, probe: Stream, on: Any = None, *, preceding: Any = None, following: Any = None,
        closed: str = "both", where: Any = None, max_rows: int | None = None,
        exclude_current_time: bool = False, include_base: bool = False, prevailing: bool = False,
        since_previous: bool = False, lateness: Any = None,
    ) -> IntervalJoined:  # fmt: skip
        """For each row of this stream, the rows of a probe stream in an interval around its time.

        `.agg(...)` of the result gives each row with aggregates of its probe rows, and `.pairs()` a row for
        each of them. No row of this stream is lost. `on` and `where` are as in `join`.

        The interval reaches from `preceding` before the row up to `following` after it. Both are durations,
        `tm.FOREVER`, or expressions of the row; the one that is not given is 0. The ends are part of it;
        `closed="left"`, `"right"` or `"neither"` leaves one out, or both. With `preceding=["1h", "1d"]`
        there are several intervals, and names of aggregates end in `_1h` and `_1d`.

        - `max_rows`: only the nearest ones in time.
        - `exclude_current_time`: none at the very instant of the row.
        - `include_base`: the rows of this stream count as probe rows, too.
        - `prevailing`: the last row before the interval counts, too.
        - `since_previous`: only rows after the last row of this stream that is earlier.
        - `lateness`: how late rows may come to a live query that answers on arrival.

        >>> from tidemill.aggregates.basic import count, sum
        >>> ask = stream("ask", time="t", schema={"t": "int64", "user": "int64"})
        >>> buy = stream("buy", time="t", schema={"t": "int64", "user": "int64", "paid": "int64"})
        >>> near = ask.interval_join(buy, on="user", preceding=10).agg(n=count(), paid=sum("paid"))
        >>> bought = [{"t": 3, "user": 7, "paid": 5}, {"t": 13, "user": 7, "paid": 6}]
        >>> near.run(ask=[{"t": 13, "user": 7}, {"t": 14, "user": 8}], buy=bought).to_pylist()
        [{'t': 13, 'user': 7, 'n': 2, 'paid': 11}, {'t': 14, 'user': 8, 'n': 0, 'paid': None}]
        """
        step, with_base = "interval_join", intervals.flag("interval_join", "include_base", include_base)
        several = []
        for end, length in intervals.lengths(self.plan, preceding, step):
            interval = functools.partial(
                intervals.interval, step=step, preceding=length, following=following, closed=closed,
                max_rows=max_rows, prevailing=prevailing, exclude_current_time=exclude_current_time,
                since_previous=since_previous,
            )  # fmt: skip
            asked = self._asked(probe, on, where, step, lateness, interval)
            several.append((end, intervals.with_base(asked) if with_base else asked))
        return IntervalJoined(several, self._scope)

    def last_join(
        self, probe: Stream, on: Any = None, *, tolerance: Any = None, direction: str = "backward",
        where: Any = None, exclude_current_time: bool = False, skip_nulls: bool = False, lags: Any = None,
        suffix: str = "_right", lateness: Any = None,
    ) -> Stream:  # fmt: skip
        """Each row with the last row of a probe stream at its time, an as-of join; nulls where there is none.

        With `direction="forward"` it is the next row, with `"nearest"` the one that is nearer (the earlier
        one, if both are as near). It is no further away than `tolerance`. A row at the very instant counts,
        unless `exclude_current_time`. Rows of one time are in order of their other columns, left to right.

        The row is taken as it is, with its nulls. With `skip_nulls`, each column has its last value that is
        not null. `lags=["1m", "5m"]` asks for the last row so long before: names end in `_1m` and `_5m`.

        >>> trades = stream("trades", time="t", schema={"t": "int64", "sym": "string"})
        >>> quotes = stream("quotes", time="t", schema={"t": "int64", "sym": "string", "bid": "int64"})
        >>> bids = [{"t": 1, "sym": "X", "bid": 5}, {"t": 4, "sym": "X", "bid": 6}]
        >>> trades.last_join(quotes, on="sym").run(trades=[{"t": 3, "sym": "X"}], quotes=bids).to_pylist()
        [{'t': 3, 'sym': 'X', 't_right': 1, 'bid': 5}]
        """
        step = "last_join"
        asked = self._asked(probe, on, where, step, lateness, lambda base: intervals.last_interval(
            base, direction, tolerance, exclude_current_time, step))
        return self._like(intervals.last(asked, lags, suffix, skip_nulls=skip_nulls))

    def _asked(
        self, probe: Stream, on: Any, where: Any, step: str, lateness: Any, interval: Callable[[Plan], Any]
    ) -> intervals.Asked:
        base, rows = self._sides(probe, step)
        intervals.require_times(base, rows, step)
        matching = temporal.match(base, rows, on, where, self._shared(probe), step)
        late = intervals.lateness(base, lateness, step)
        return intervals.Asked(base, rows, matching, interval(base), late, step)

    def _cut(self, other: Stream, kind: str, on: Any, where: Any) -> Stream:
        step = kind if kind == "clip" else f"where_{kind}"
        left, right = self._sides(other, step)
        matching = temporal.match(left, right, on, where, self._shared(other), step)
        return self._like(temporal.cut(left, right, kind, matching))

    def _sides(self, other: Any, step: str) -> tuple[Plan, Plan]:
        """Return the plans of both streams; a table is in the time of the other one."""
        _require_stream(other, step)
        if other._scope and other._scope != self._scope:
            raise UserError(
                step, expected=f"a stream of the same groups, by {list(self._scope)}",
                got=f"one by {list(other._scope)}",
                hint="start from the stream that apply(...) gives, or from one outside of it",
            )  # fmt: skip
        left = temporal.in_domain(self.plan, other.plan.domain)
        return left, temporal.in_domain(other.plan, left.domain)

    def _shared(self, other: Stream) -> tuple[str, ...]:
        return self._scope if other._scope else ()

    # -- rows before and after

    def lag(self, /, *keys: Any, back: int = 1, **named: Any) -> Stream:
        """Columns of the row before, by key: `s.lag("sensor", before=col.v)`; null where there is none.

        Rows are in order of their start; the other columns decide ties, from left to right.

        >>> s = stream("s", time="t", schema={"t": "int64", "k": "int64", "v": "int64"})
        >>> rows = [{"t": 1, "k": 7, "v": 5}, {"t": 4, "k": 7, "v": 9}]
        >>> s.lag("k", before="v").select(more=lambda e: e.v - e.before).run(s=rows).to_pylist()
        [{'t': 1, 'more': None}, {'t': 4, 'more': 4}]
        """
        return self._neighbours(keys, named, back, "lag")

    def lead(self, /, *keys: Any, ahead: int = 1, **named: Any) -> Stream:
        """Columns of the row after, by key; null where there is none. A row waits for the one after it.

        >>> s = stream("s", time="t", schema={"t": "int64", "v": "int64"})
        >>> s.lead(after="v").run(s=[{"t": 1, "v": 5}, {"t": 4, "v": 9}]).to_pylist()
        [{'t': 1, 'v': 5, 'after': 9}, {'t': 4, 'v': 9, 'after': None}]
        """
        return self._neighbours(keys, named, -ahead if isinstance(ahead, int) else ahead, "lead")

    def _neighbours(self, keys: Any, named: Mapping[str, Any], back: Any, step: str) -> Stream:
        if not named:
            hint = f"write {step}('key', before=col.v)"
            raise UserError(step, expected="name=column", got="none", hint=hint)
        if isinstance(back, bool) or not isinstance(back, int) or (back < 1) is (step == "lag"):
            given = -back if step == "lead" and isinstance(back, int) else back
            raise UserError(step, expected="a number of rows, 1 or more", got=repr(given))
        plan, names = build.grouped(self.plan, keys, {}, self._scope, step)
        return self._like(temporal.neighbours(plan, names, {n: (c, back) for n, c in named.items()}, step))

    # -- edges

    def edges(self) -> Stream:
        """The start and the end of each lifetime as points; the column `edge` says which.

        >>> s = stream("s", time="t", end="u", schema={"t": "int64", "u": "int64"})
        >>> s.edges().run(s=[{"t": 1, "u": 4}]).to_pylist()
        [{'edge': 'start', 't': 1}, {'edge': 'end', 't': 4}]
        """
        return self._like(temporal.edges(self.plan, changes=False))

    def changes(self) -> Stream:
        """What changes from instant to instant, as points: `change` is 1 for a row that comes, -1 if it goes.

        >>> s = stream("s", time="t", end="u", schema={"t": "int64", "u": "int64", "v": "int64"})
        >>> rows = [{"t": 1, "u": 4, "v": 5}, {"t": 4, "u": 9, "v": 5}]
        >>> s.changes().run(s=rows).to_pylist()
        [{'change': 1, 't': 1, 'v': 5}, {'change': -1, 't': 9, 'v': 5}]
        """
        return self._like(temporal.edges(self.plan, changes=True))

    def from_edges(self, /, *keys: Any, start: Any) -> Stream:
        """Lifetimes from rows at their start and at their end, which have the same keys.

        `start` is a condition: true for a row at the start, false for one at the end. The result has the
        columns of the row at the start. An end without a start before it is refused, and so is a second start
        while one is open; an open one has no end.

        >>> s = stream("s", time="t", schema={"t": "int64", "id": "int64", "on": "bool"})
        >>> rows = [{"t": 1, "id": 7, "on": True}, {"t": 4, "id": 7, "on": False}]
        >>> s.from_edges("id", start=lambda e: e.on).select("id").run(s=rows).to_pylist()
        [{'t': 1, 'valid_to': 4, 'id': 7}]
        """
        plan, names = build.grouped(self.plan, keys, {}, self._scope, "from_edges")
        return self._like(temporal.from_edges(plan, names, start))

    # -- map and reduce

    def map(self, step: Callable[[Stream], Stream], /, *keys: Any, **computed: Any) -> Grouped:
        """A query on rows, then groups: `s.map(f, "user").reduce(g)` is `f(s).group_by("user").apply(g)`.

        >>> s = stream("s", time="t", schema={"t": "int64", "v": "int64"})
        >>> s.map(lambda rows: rows.where(lambda e: e.v > 5), "v").reduce(lambda group: group.lasting(10))
        lasting 10
          where (col.v > 5)
            source s time=t
        """
        return _called(step, self, "map").group_by(*keys, **computed)

    def left_out(self) -> Stream:
        """The rows that the windows of this query leave out, because they lie before their `start=`.

        It is a query itself, so they can be read, counted and replayed on every engine.

        >>> s = stream("s", time="t", schema={"t": "int64"})
        >>> from tidemill.aggregates.basic import count
        >>> from tidemill.windows.spec import tumbling
        >>> tens = s.window(tumbling(10, start=20)).agg(n=count())
        >>> tens.left_out().run(s=[{"t": 3}, {"t": 25}]).to_pylist()
        [{'t': 3}]
        """
        return self._like(build.left_out(self.plan))

    def window(self, /, *windows: Window, window_id: bool = False, **named: Window) -> Windowed:
        """Cut the stream into windows; see `tm.hopping` and its neighbours.

        Several windows share one pass over the data; name them, and the result has a `window`
        column: `.window(hour=tm.tumbling("1h"), day=tm.tumbling("1d"))`.

        With `window_id=True` the result has a column `window_id`, after `window_end`: the id that
        `tm.windows` and `tm.wids` give, without its partition. It is an int; for `per_event` and `session`
        the value of the attribute that makes the window, its last or first instant.

        >>> s = stream("s", time="t", schema={"t": "int64"})
        >>> from tidemill.aggregates.basic import count
        >>> from tidemill.windows.spec import tumbling
        >>> s.window(tumbling(10), window_id=True).agg(n=count()).run(s=[{"t": 25}]).to_pylist()
        [{'window_start': 20, 'window_end': 30, 'window_id': 2, 'n': 1}]
        """
        return Grouped(self.plan, self._scope, self._scope).window(*windows, window_id=window_id, **named)


class IntervalJoined(KnowsBroughtNames):
    """Rows with the probe rows of their intervals, before anything is asked of these; see `interval_join`."""

    _brought, _called = WINDOWED, "an interval join"

    def __init__(self, several: list[tuple[str, intervals.Asked]], scope: tuple[str, ...]) -> None:
        self._several, self._scope = several, scope
        """Joins, one for each interval, with what names of their aggregates end in."""

    def __repr__(self) -> str:
        joins = [asked for _, asked in self._several]
        shown = ", ".join(asked.interval.shown(asked.base.domain) for asked in joins)
        return f"interval_join {joins[0].match} in {shown}: ask for .agg(...) or .pairs()"

    @property
    def leaks(self) -> bool:
        """Whether rows after the row that asks may count: a feature that knows the future."""
        return any(asked.interval.leaks for _, asked in self._several)

    @property
    def waits(self) -> timedelta | int | None:
        """How long after its row an answer is known for certain; None if that depends on the row.

        It is an int on logical time, and `tm.FOREVER` if only the end of the inputs makes it certain.
        """
        asked = self._several[0][1]  # the ends are the same
        return _time_of(asked.interval.waits, asked.base)

    def agg(self, /, *unnamed: Arithmetic, **aggregates: Arithmetic) -> Stream:
        """Each row with aggregates of its probe rows: those of none where there are none.

        Arguments are columns of the probe stream.
        """
        named = by_name("agg", unnamed, aggregates)
        return Stream(intervals.aggregates(self._several, named), self._scope)

    def pairs(self, *, how: str = "left", suffix: str = "_right") -> Stream:
        """A row for each probe row, with the columns of both; once with nulls where there are none.

        `how="inner"` leaves rows without probe rows out. A column of the probe stream gets the suffix where
        this stream has one of its name; keys are there once.

        >>> a, b = (stream(n, time="t", schema={"t": "int64", "v": "int64"}) for n in "ab")
        >>> two = [{"t": 4, "v": 5}, {"t": 9, "v": 6}]
        >>> a.interval_join(b, preceding=5).pairs().run(a=[{"t": 9, "v": 1}], b=two).to_pylist()
        [{'t': 9, 'v': 1, 't_right': 4, 'v_right': 5}, {'t': 9, 'v': 1, 't_right': 9, 'v_right': 6}]
        """
        if len(self._several) > 1:
            raise UserError("pairs", expected="one interval", got="several", hint="ask for .agg(...)")
        return Stream(intervals.pairs(self._several[0][1], how, suffix), self._scope)


def _time_of(ticks: int | None, plan: Plan) -> timedelta | int | None:
    """Return a length of time as users write it."""
    if ticks is None or ticks == FOREVER or plan.domain is Domain.LOGICAL:
        return ticks
    return timedelta(microseconds=ticks)


class Grouped(KnowsBroughtNames):
    """A stream seen key by key; add a window next, or aggregate what holds at each instant."""

    _brought, _called = GROUPED, "a grouped stream"

    def __init__(self, plan: Plan, keys: tuple[str, ...], scope: tuple[str, ...] = ()) -> None:
        self._plan, self._keys, self._scope = plan, keys, scope

    def window(self, /, *windows: Window, window_id: bool = False, **named: Window) -> Windowed:
        """Cut the stream into windows; see `Stream.window`."""
        if not isinstance(window_id, bool):
            raise UserError("window", expected="window_id=True or window_id=False", got=repr(window_id))
        for spec in (*windows, *named.values()):
            if not isinstance(spec, Window):
                raise UserError(
                    "window", expected="a window such as tm.hopping('1h', every='1m')",
                    got=f"{spec!r} ({type(spec).__name__})",
                    hint=f"write tm.tumbling({spec!r})" if isinstance(spec, (str, int, timedelta)) else "",
                )  # fmt: skip
        several = len(windows) + len(named) > 1
        listed = [NamedWindow(str(w) if several else None, w) for w in windows]
        listed += [NamedWindow(n, w) for n, w in named.items()]
        return Windowed(self._plan, self._keys, tuple(listed), self._scope, ids=window_id)

    def agg(self, /, *unnamed: Arithmetic, **aggregates: Arithmetic) -> Stream:
        """Aggregates of the rows that hold at each instant, by key.

        The result has a row for each longest interval, `valid_from` to `valid_to`, in which the values of a
        key stay the same. An instant at which nothing holds has no row. For windows, add `.window(...)`
        first.

        >>> s = stream("s", time="t", end="u", schema={"t": "int64", "u": "int64", "k": "int64"})
        >>> from tidemill.aggregates.basic import count
        >>> rows = [{"t": 1, "u": 6, "k": 7}, {"t": 4, "u": 6, "k": 7}]
        >>> s.group_by("k").agg(n=count()).run(s=rows).to_pylist()
        [{'k': 7, 'valid_from': 1, 'valid_to': 4, 'n': 1}, {'k': 7, 'valid_from': 4, 'valid_to': 6, 'n': 2}]
        """
        named = by_name("agg", unnamed, aggregates)
        return Stream(temporal.snapshot_aggregate(self._plan, self._keys, named), self._scope)

    def top(self, count: int, /, *, by: Any, least: bool = False) -> Stream:
        """The rows with the greatest values of a column, by key; see `Stream.top`.

        >>> s = stream("s", time="t", schema={"t": "int64", "k": "int64", "v": "int64"})
        >>> rows = [{"t": 1, "k": 7, "v": 5}, {"t": 1, "k": 7, "v": 6}]
        >>> s.group_by("k").top(1, by="v").select("k", "v").run(s=rows).to_pylist()
        [{'t': 1, 'valid_to': 2, 'k': 7, 'v': 6}]
        """
        return Stream(temporal.top(self._plan, self._keys, count, by, least), self._scope)

    def apply(self, query: Callable[[Stream], Stream]) -> Stream:
        """Run a query for each value of the keys apart. It gets a stream, and the result has the keys.

        What the query asks is scoped when it is made: every operator that keeps something has the keys.
        Groups may be inside of groups.

        >>> s = stream("s", time="t", schema={"t": "int64", "k": "int64", "v": "int64"})
        >>> s.group_by("k").apply(lambda g: g.top(1, by="v"))
        top 1 by v for each k
          lasting one tick
            source s time=t
        """
        made = _called(query, Stream(self._plan, self._keys), "apply")
        if made._scope != self._keys:
            raise UserError(
                "apply", expected="a query on the stream that it gets",
                got=f"one on another stream: {made.plan}",
                hint="use the argument: .apply(lambda group: group.agg(n=tm.count()))",
            )  # fmt: skip
        temporal.in_scope(made.plan, self._keys, "apply")
        return Stream(made.plan, self._scope)

    def reduce(self, query: Callable[[Stream], Stream]) -> Stream:
        """Another name of `apply`, after `map`."""
        return self.apply(query)

    def __repr__(self) -> str:
        return f"grouped by {list(self._keys)}: add .agg(...), or .window(...) and .agg(...), or .apply(...)"


class Windowed(KnowsBroughtNames):
    """A stream cut into windows; add aggregates next."""

    _brought, _called = WINDOWED, "a stream cut into windows"

    def __init__(
        self, plan: Plan, keys: tuple[str, ...], windows: tuple[NamedWindow, ...],
        scope: tuple[str, ...] = (), *, ids: bool = False,
    ) -> None:  # fmt: skip
        self._plan, self._keys, self._windows, self._scope, self._ids = plan, keys, windows, scope, ids

    def group_by(self, /, *keys: Any, **computed: Any) -> Windowed:
        """Ask for each value of the keys apart."""
        plan, names = build.grouped(self._plan, keys, computed, self._scope)
        added = tuple(n for n in names if n not in self._scope)
        return Windowed(plan, (*self._keys, *added), self._windows, self._scope, ids=self._ids)

    def agg(self, /, *unnamed: Arithmetic, **aggregates: Arithmetic) -> Stream:
        """One row for each window and key: the keys, `window_start`, `window_end`, the results.

        A result without a name has that of the aggregate and its columns: `tm.sum("price")` is `sum_price`.
        Results can be computed with: `rate=tm.sum(col.paid) / tm.count()`, null where one of them is.

        >>> s = stream("s", time="t", schema={"t": "int64", "v": "int64"})
        >>> from tidemill.aggregates.basic import count
        >>> from tidemill.windows.spec import tumbling
        >>> s.window(tumbling(10)).agg(n=count()).run(s=[{"t": 12, "v": 5}]).to_pylist()
        [{'window_start': 10, 'window_end': 20, 'n': 1}]
        """
        named = by_name("agg", unnamed, aggregates)
        only = self._windows[0].spec if len(self._windows) == 1 else None
        if isinstance(only, PerEvent) and only.keep and not self._ids:
            return Stream(intervals.beside(self._plan, self._keys, only, named), self._scope)
        node = build.window_aggregate(self._plan, self._keys, self._windows, named, self._ids)
        return Stream(node, self._scope)

    def top(self, count: int, /, *, by: Any, least: bool = False, ties: bool = False) -> Stream:
        """The whole rows with the greatest values of a column in each window, by key.

        Equal values are decided by the other columns, from left to right; the greater value wins. With `ties`
        all rows come whose value is that of the last one: `top(1, by="v", ties=True)` is all rows at the
        maximum. With `least`, the smallest ones. Null comes last. The last row of a window, whose columns are
        of one row, is `top(1, by="t")`, with `t` the time.

        >>> s = stream("s", time="t", schema={"t": "int64", "v": "int64"})
        >>> from tidemill.windows.spec import tumbling
        >>> rows = [{"t": 1, "v": 5}, {"t": 2, "v": 7}, {"t": 3, "v": 7}]
        >>> best = s.window(tumbling(10)).top(1, by="v", ties=True)
        >>> [row["t"] for row in best.run(rows).to_pylist()]
        [3, 2]
        """
        best = functools.partial(top_rows, by, k=count, least=least, ties=ties)
        node = build.top_of_windows(self._plan, self._keys, self._windows, best, self._ids)
        return Stream(temporal.select_many(node, [build.TOP], {}), self._scope)

    def __repr__(self) -> str:
        return f"windows {'; '.join(map(str, self._windows))}: add .agg(...)"


RESERVED = ("self", "path", "position", "progress", "disorder", "emit", "latency", "arrival")
"""Names that `run`, `push` and their neighbours need for themselves."""


def stream(
    name: str, *, time: str, schema: Any, end: str | None = None, ordered: bool = False, unit: Any = None,
    tz: Any = None, format: Any = None, nulls: Any = None, delimiter: str | None = None, decimal: str = ".",
    columns: Sequence[str] | None = None, encoding: str | None = None, skip: int = 0,
    **brought: Any,
) -> Stream:  # fmt: skip
    """Declare a stream: its name, its time column, the names and types of its columns.

    The schema is a dict, a schema of Arrow, Polars, pandas (`frame.dtypes`) or Spark, or data that has these
    columns: a frame, a table, the path of a file. (`tm.read` keeps the data as well.) A timestamp column is
    clock time; an integer column is logical time. Without `end` an event is a point in time; `end` names the
    column with the end of each lifetime, `[time, end)`. There, null is an end that never comes.

    Where a timestamp column comes as numbers since the epoch, `unit="s"` (or `"ms"`, `"us"`, `"ns"`) says
    what they count; without it they are refused. It is the unit of the time column, or a dict with one
    for each column. Where it comes as text, `format="%m/%d/%Y %H:%M"` says how to read it, or a list of
    formats, of which the first that fits counts; `"iso"` is ISO text, as files have it without a format.
    Times without a zone are UTC, on every engine; `tz="Europe/Berlin"` says otherwise.

    In CSV files, `nulls=["NA", "?"]` are null besides empty fields, in all columns or in those of a dict; a
    `delimiter` that is not given is found, `decimal=","` reads numbers such as 3,5, and `columns` names
    those of files without a header. `skip=2` leaves out lines before the header.

    Files in another encoding than UTF-8 need `encoding="latin-1"`.

    Rows may come in any order. `ordered=True` promises that none comes with an earlier time than the
    row before it, and a row that does is an error: windows over files and iterators of any length
    then close as time goes on. (On Spark, rows have no order of arrival, and nothing changes.)

    >>> stream("s", time="t", schema={"t": "int64", "x": "float64"}).schema
    Schema(t: int64, x: float64)
    """
    if brought:
        raise unknown_options("stream", brought, inspect.signature(stream).parameters)
    require_name(name, "stream")
    schema = _described(schema, f"stream {name!r}")
    return Stream(
        build.source(
            name, time, schema, end=end, ordered=ordered, unit=unit, tz=tz, format=format, nulls=nulls,
            delimiter=delimiter, decimal=decimal, columns=columns, encoding=encoding, skip=skip,
        )
    )  # fmt: skip


def table(name: str, *, schema: Any) -> Stream:
    """Declare a table: rows without a time, which hold for ever. A join with it looks them up.

    A query on tables alone is relational: its result has no lifetimes.

    >>> clicks = stream("clicks", time="t", schema={"t": "int64", "ad": "int64"})
    >>> ads = table("ads", schema={"ad": "int64", "campaign": "string"})
    >>> known = [{"ad": 1, "campaign": "x"}]
    >>> clicks.join(ads, on="ad").run(clicks=[{"t": 5, "ad": 1}], ads=known).to_pylist()
    [{'ad': 1, 'campaign': 'x', 'valid_from': 5, 'valid_to': 6}]
    """
    require_name(name, "table")
    schema = _described(schema, f"table {name!r}")
    return Stream(temporal.table(name, schema))


def _described(schema: Any, step: str) -> Any:
    """Return a schema as nodes read it. A dict needs no look at data, and no import of what reads it."""
    if type(schema) is dict or isinstance(schema, (Schema, pa.Schema)):
        return schema
    from tidemill.io.schemas import declared

    return declared(schema, step=step)


def require_name(name: Any, step: str) -> None:
    """Raise an error unless a stream can have this name."""
    if not isinstance(name, str) or not name.isidentifier() or name in RESERVED:
        raise UserError(
            step, expected=f"a name that can be an argument of run(), other than {RESERVED}",
            got=repr(name),
        )  # fmt: skip


def _require_stream(given: Any, step: str) -> None:
    if not isinstance(given, Stream):
        raise UserError(step, expected="a stream", got=type(given).__name__)


def _called(query: Any, stream: Stream, step: str) -> Stream:
    if not callable(query):
        raise UserError(step, expected="a function from a stream to a stream", got=f"{query!r:.80}")
    made = query(stream)
    if not isinstance(made, Stream):
        raise UserError(step, expected="a function that returns a stream", got=f"{type(made).__name__}")
    return made


__all__ = ["Grouped", "Schema", "Stream", "Windowed", "stream", "table"]
