"""The fluent surface: streams, groups and windows. Thin: every method builds a plan node."""

from __future__ import annotations

from typing import Any

from tidemill.aggregates.algebra import Aggregate
from tidemill.core.errors import UserError
from tidemill.core.schema import Schema, users_name
from tidemill.plan import build
from tidemill.plan.nodes import NamedWindow, Plan
from tidemill.query import Query
from tidemill.windows.spec import Window


class Stream(Query):
    """Events in time, and everything that can be asked of them.

    Streams are values: every method returns a new one.

    >>> clicks = stream("clicks", time="ts", schema={"ts": "timestamp", "ad": "int64"})
    >>> clicks.where(lambda e: e.ad > 3)
    where (col.ad > 3)
      source clicks time=ts
    """

    def where(self, predicate: Any) -> Stream:
        """Rows for which a condition is true; rows where it is false or null go."""
        return Stream(build.where(self.plan, predicate))

    def select(self, /, *columns: Any, **named: Any) -> Stream:
        """Other columns for each row: names as they are, `name=expression` for computed ones.

        The time column always travels along.
        """
        return Stream(build.select(self.plan, columns, named, keep=False))

    def with_columns(self, /, **named: Any) -> Stream:
        """The columns there are, and computed ones besides."""
        return Stream(build.select(self.plan, (), named, keep=True))

    def group_by(self, /, *keys: Any, **computed: Any) -> Grouped:
        """Ask for each value of the keys apart. Null is a key like any other."""
        plan, names = build.grouped(self.plan, keys, computed)
        return Grouped(plan, names)

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
            if not isinstance(given, Stream):
                raise UserError("union", expected="a stream", got=type(given).__name__)
        return Stream(build.union([s.plan for s in (self, other, *others)]))

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
        return Stream(build.left_out(self.plan))

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
        return Grouped(self.plan, ()).window(*windows, window_id=window_id, **named)


class Grouped:
    """A stream seen key by key; add a window next."""

    def __init__(self, plan: Plan, keys: tuple[str, ...]) -> None:
        self._plan, self._keys = plan, keys

    def window(self, /, *windows: Window, window_id: bool = False, **named: Window) -> Windowed:
        """Cut the stream into windows; see `Stream.window`."""
        if not isinstance(window_id, bool):
            raise UserError("window", expected="window_id=True or window_id=False", got=repr(window_id))
        for spec in (*windows, *named.values()):
            if not isinstance(spec, Window):
                raise UserError(
                    "window", expected="a window such as tm.hopping('1h', every='1m')",
                    got=f"{spec!r} ({type(spec).__name__})",
                )  # fmt: skip
        several = len(windows) + len(named) > 1
        listed = [NamedWindow(str(w) if several else None, w) for w in windows]
        listed += [NamedWindow(n, w) for n, w in named.items()]
        return Windowed(self._plan, self._keys, tuple(listed), ids=window_id)

    def agg(self, /, **aggregates: Aggregate) -> Stream:
        """Needs a window first."""
        return Stream(build.window_aggregate(self._plan, self._keys, (), aggregates))

    def __repr__(self) -> str:
        return f"grouped by {list(self._keys)}: add .window(...) and .agg(...)"


class Windowed:
    """A stream cut into windows; add aggregates next."""

    def __init__(
        self, plan: Plan, keys: tuple[str, ...], windows: tuple[NamedWindow, ...], *, ids: bool = False
    ) -> None:
        self._plan, self._keys, self._windows, self._ids = plan, keys, windows, ids

    def group_by(self, /, *keys: Any, **computed: Any) -> Windowed:
        """Ask for each value of the keys apart."""
        plan, names = build.grouped(self._plan, keys, computed)
        return Windowed(plan, (*self._keys, *names), self._windows, ids=self._ids)

    def agg(self, /, **aggregates: Aggregate) -> Stream:
        """One row for each window and key: the keys, `window_start`, `window_end`, the results."""
        for name in aggregates:
            users_name(name, step="agg")
        node = build.window_aggregate(self._plan, self._keys, self._windows, aggregates, self._ids)
        return Stream(node)

    def __repr__(self) -> str:
        return f"windows {'; '.join(map(str, self._windows))}: add .agg(...)"


RESERVED = ("self", "path", "position", "progress", "disorder", "emit", "latency", "arrival")
"""Names that `run`, `push` and their neighbours need for themselves."""


def stream(
    name: str, *, time: str, schema: Any, ordered: bool = False, unit: Any = None, tz: Any = None
) -> Stream:
    """Declare a stream: its name, its time column, the names and types of its columns.

    The schema is a dict, a `pyarrow.Schema` or a Spark `StructType`. A timestamp column is clock
    time; an integer column is logical time.

    Where a timestamp column comes as ints since the epoch, `unit="s"` (or `"ms"`, `"us"`, `"ns"`) says
    what they count; without it they are refused. It is the unit of the time column, or a dict with one
    for each column. Times without a zone are UTC, on every engine; `tz="Europe/Berlin"` says otherwise.

    Rows may come in any order. `ordered=True` promises that none comes with an earlier time than the
    row before it, and a row that does is an error: windows over files and iterators of any length
    then close as time goes on. (On Spark, rows have no order of arrival, and nothing changes.)

    >>> stream("s", time="t", schema={"t": "int64", "x": "float64"}).schema
    Schema(t: int64, x: float64)
    """
    if not isinstance(name, str) or not name.isidentifier() or name in RESERVED:
        raise UserError(
            "stream", expected=f"a name that can be an argument of run(), other than {RESERVED}",
            got=repr(name),
        )  # fmt: skip
    return Stream(build.source(name, time, schema, ordered=ordered, unit=unit, tz=tz))


__all__ = ["Grouped", "Schema", "Stream", "Windowed", "stream"]
