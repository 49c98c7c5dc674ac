"""Running a query: in process, or compiled to Spark. The plan is the same."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import replace
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal

from tidemill.core.brought_names import ORDERED, KnowsBroughtNames
from tidemill.core.errors import UnsupportedError
from tidemill.core.explanation import Explanation
from tidemill.core.schema import Schema
from tidemill.core.tables import html_table, html_text
from tidemill.optimize.choices import with_choices
from tidemill.optimize.optimizer import optimize
from tidemill.plan.build_temporal import shown
from tidemill.plan.faults import by_name
from tidemill.plan.format import format_plan
from tidemill.plan.nodes import Plan, with_held
from tidemill.plan.order import Order, limited, sorted_by

if TYPE_CHECKING:
    from concurrent.futures import Executor

    import pandas
    import pyarrow as pa

    from tidemill.local.live import Live
    from tidemill.local.progress_report import ProgressReport
    from tidemill.plan.disorder import Disorder
    from tidemill.plan.emit import Emit, Latency
    from tidemill.spark.query import SparkQuery


class Query:
    """A plan that can be explained and run."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan

    def __repr__(self) -> str:
        return format_plan(self.plan)

    def _repr_html_(self) -> str:
        columns = ((name, repr(kind)) for name, kind in self.schema)
        return html_table("the result", ("column", "type"), columns) + html_text(repr(self))

    def __getstate__(self) -> dict[str, Any]:
        # A query is pickled as its plan; what was derived from it is derived again.
        return {name: value for name, value in self.__dict__.items() if name != "optimized"}

    @property
    def schema(self) -> Schema:
        """Names and types of the result. A query on tables alone has no lifetimes."""
        return shown(self.plan).schema

    @property
    def _arrow_schema(self) -> pa.Schema:
        """The schema of tables and files."""
        return self.schema.to_arrow()

    @functools.cached_property
    def optimized(self) -> Plan:
        """The plan after the optimizer's rules."""
        return optimize(shown(self.plan))

    def _inputs(self, data: Any, inputs: dict[str, Any], step: str = "run") -> dict[str, Any]:
        """The inputs by name: those given, of which one may have none, and those that streams hold."""
        return with_held(self.plan, by_name(self.plan, data, inputs, step=step))

    def run(
        self, data: Any = None, /, *, disorder: Disorder | None = None, emit: Emit | None = None,
        progress: bool = False, **inputs: Any,
    ) -> pa.Table:  # fmt: skip
        """Answer in this process: one input for each stream, by name; none for those that `tm.read` made.

        A query of one stream also takes it without a name: `query.run(path)`.

        An input is a pyarrow Table, RecordBatchReader or Dataset, a pandas or Polars frame, an
        iterable of batches or of dicts, or a path to Parquet, CSV or JSON lines (a file, a
        directory, a glob). Files are streamed, not loaded. A wheel (`tm.Wheel`) answers windows that
        lie between its slots, as of the rows below its watermark; `explain(clicks=wheel)` says how.

        Rows before the `start=` of all windows are in none of them; how many there were is in the
        result's metadata, `table.schema.metadata[b"tidemill.before_start"]`, if there were any, and
        `left_out` has them.

        By default all rows count, in whatever order they are. `disorder` and `emit` are the policies of live
        queries, and the answer is then that of a live query which gets the rows in their order: rows may be
        late. How many were, by reason, is in the metadata too (`b"tidemill.late"`, and so on).
        """
        from tidemill.local.run import run, table_of

        counts: dict[str, int] = {}
        inputs = self._inputs(data, inputs)
        if disorder is None and emit is None:
            schema = self._arrow_schema
            batches = list(run(self.optimized, inputs, progress=progress, counts=counts))
        else:
            from tidemill.local.run_live import run_live

            live = self.live(disorder, emit=emit)
            schema = live.schema
            batches = list(run_live(self.optimized, inputs, live, progress=progress, counts=counts))
        return table_of(batches, schema, counts)

    def batches(
        self, data: Any = None, /, *, disorder: Disorder | None = None, emit: Emit | None = None,
        latency: Latency | None = None, progress: bool = False, **inputs: Any,
    ) -> Iterator[pa.RecordBatch]:  # fmt: skip
        """Answer in this process, as a stream of record batches.

        Rows of an iterator come as soon as their windows are complete. If the input does not promise how far
        its times have come (`ordered=True`, a table, Parquet with statistics), the first row comes when all
        of it has been read; `disorder=tm.Disorder(slack="10s")` promises it. Policies are those of `live`.
        """
        from tidemill.local.run import run
        from tidemill.local.run_live import run_live

        inputs = self._inputs(data, inputs, "batches")
        if disorder is None and emit is None and latency is None:
            return run(self.optimized, inputs, progress=progress, prompt=True)
        live = self.live(disorder, emit=emit, latency=latency)
        return run_live(self.optimized, inputs, live, progress=progress)

    def sort(
        self, /, *columns: Any, descending: bool | list[bool] = False, **brought: Any
    ) -> Ordered:
        """The rows of the result in the order of some columns: the last step of a query.

        Rows that are equal in these are in the order of the other columns, from left to right: the order is
        the same on every engine. Null is below all values, NaN above all numbers. A live query, whose rows
        come when they are complete, has no order.

        >>> import tidemill as tm
        >>> s = tm.stream("s", time="t", schema={"t": "int64", "v": "int64"})
        >>> s.sort("v", descending=True).limit(2).run([{"t": t, "v": t % 3} for t in range(5)]).to_pylist()
        [{'t': 2, 'v': 2}, {'t': 1, 'v': 1}]
        """
        return Ordered(self, sorted_by((), self.schema, columns, descending, brought))

    def limit(self, count: int, /) -> Ordered:
        """The first rows of the result, in the order of `sort`, or of the columns from left to right.

        All of the input is read: the first rows of a result are known once all are.

        >>> import tidemill as tm
        >>> s = tm.stream("s", time="t", schema={"t": "int64"})
        >>> s.limit(2).run([{"t": 9}, {"t": 5}, {"t": 7}]).to_pylist()
        [{'t': 5}, {'t': 7}]
        """
        return Ordered(self, limited((), count))

    def _written(self, data: Any, inputs: dict[str, Any], progress: bool) -> Iterator[pa.RecordBatch]:
        """The result for a file: nobody waits for its first rows."""
        from tidemill.local.run import run

        return run(self.optimized, self._inputs(data, inputs), progress=progress)

    def progressive(self, reports: int = 20, **inputs: Any) -> Iterator[ProgressReport]:
        """Answer in this process over a growing part of the data, while all of it is read once.

        Each report has the exact answer over the first rows of the inputs, which are as for `run`: what `run`
        would return if the inputs ended there. The last one is the full answer. Of n reports, report k comes
        after about `(k / n)**2` of the rows; `report.rows` says after how many. If nobody knows how many rows
        there are (CSV, JSON lines, iterators), each comes after twice as many as the one before, n at most.

        >>> import tidemill as tm
        >>> s = tm.stream("s", time="t", schema={"t": "int64"})
        >>> rows = [{"t": t} for t in range(100)]
        >>> for report in s.window(tm.tumbling(1000)).agg(n=tm.count()).progressive(reports=3, s=rows):
        ...     print(report, report.table["n"].to_pylist())
        ProgressReport(12.0% of the data, 12 rows: 1 rows) [12]
        ProgressReport(45.0% of the data, 45 rows: 1 rows) [45]
        ProgressReport(all of the data, 100 rows: 1 rows) [100]
        """
        from tidemill.local.progressive import progressive

        return progressive(self.optimized, with_held(self.plan, inputs), reports)

    def live(
        self, disorder: Disorder | None = None, *, emit: Emit | None = None, latency: Latency | None = None,
        threads: int = 1, pool: Executor | None = None, answers: Literal["exact", "on arrival"] = "exact",
    ) -> Live:  # fmt: skip
        """The same query on rows that keep coming; see `Live`.

        `disorder` says how far rows may be out of order, and what happens to those that come too late. `emit`
        asks for the rows of open windows, and for corrections; `latency` lets rows wait for larger batches.
        With `answers="on arrival"`, base rows of interval joins are answered when they come, from what has
        come so far, and not when they can no longer change.
        All work is done in calls of the result; several threads are used during a call only. They belong to
        the package, or to a `pool` of yours, which several queries may share; call from a thread outside it.
        """
        from tidemill.local.live import Live

        policies: dict[str, Any] = {"emit": emit, "latency": latency, "answers": answers}
        return Live(self.optimized, disorder, threads=threads, pool=pool, **policies)

    def to_pandas(self, data: Any = None, /, **inputs: Any) -> pandas.DataFrame:
        """`run`, as a pandas DataFrame."""
        return self.run(data, **inputs).to_pandas()

    def to_polars(self, data: Any = None, /, **inputs: Any) -> Any:
        """`run`, as a Polars DataFrame."""
        import polars

        return polars.from_arrow(self.run(data, **inputs))

    def to_parquet(
        self, path: str | PathLike[str], data: Any = None, /, *, progress: bool = False, **inputs: Any
    ) -> int:
        """Answer into a Parquet file, batch by batch; it appears whole or not at all.

        Returns the number of rows written.
        """
        from tidemill.io.sinks import write_parquet

        return write_parquet(path, self._arrow_schema, self._written(data, inputs, progress))

    def to_csv(
        self, path: str | PathLike[str], data: Any = None, /, *, progress: bool = False, **inputs: Any
    ) -> int:
        """Answer into a CSV file with a header, as `to_parquet` does."""
        from tidemill.io.sinks import write_csv

        return write_csv(path, self._arrow_schema, self._written(data, inputs, progress))

    def to_ipc(
        self, path: str | PathLike[str], data: Any = None, /, *, progress: bool = False, **inputs: Any
    ) -> int:
        """Answer into an Arrow IPC file, as `to_parquet` does."""
        from tidemill.io.sinks import write_ipc

        return write_ipc(path, self._arrow_schema, self._written(data, inputs, progress))

    def on_spark(self, spark: Any, *, detect: str = "auto") -> SparkQuery:
        """The same query on Spark; see `SparkQuery`.

        On several hosts, `detect` says whether to find out first what must travel between them: always,
        never, or where it pays, which takes a look at the keys (docs/exchange.md). With "auto", interval
        joins also look at a sample of keys and times of large inputs, to divide keys with many rows.
        """
        from tidemill.spark.query import SparkQuery

        return SparkQuery(self.optimized, spark, detect)

    def explain(self, data: Any = None, /, **inputs: Any) -> Explanation:
        """Logical plan, optimised plan, and what each engine will do; a script prints it.

        With inputs of which one is a wheel: what comes from it, or why nothing can.
        `query.on_spark(spark).explain(clicks=df)` adds Spark's own physical plan.
        """
        from tidemill.local.explain import describe as in_process
        from tidemill.local.explain import with_inputs
        from tidemill.spark.batch.explain import describe as on_spark

        given = self._inputs(data, inputs, "explain") if inputs or data is not None else {}
        plan, wheel = with_inputs(self.optimized, given) if given else (self.optimized, None)
        sections = {"logical": format_plan(self.plan), "optimised": format_plan(plan, with_choices)}
        if wheel is not None:
            sections["wheel"] = wheel
        sections["local"] = in_process(plan)
        if plan is self.optimized:
            sections["spark"] = on_spark(plan)
        return Explanation(sections)


class Ordered(KnowsBroughtNames, Query):
    """A query whose result has an order, and perhaps a number of rows; nothing comes after it."""

    _brought, _called = ORDERED, "a query that is sorted"

    def __init__(self, query: Query, orders: tuple[Order, ...]) -> None:
        super().__init__(query.plan)
        self._query, self._orders = query, orders

    def __repr__(self) -> str:
        steps = [*map(str, reversed(self._orders)), *repr(self._query).splitlines()]
        depth = len(self._orders)
        return "\n".join("  " * min(at, depth) + step for at, step in enumerate(steps))

    @property
    def _arrow_schema(self) -> pa.Schema:
        return self._query._arrow_schema

    def sort(
        self, /, *columns: Any, descending: bool | list[bool] = False, **brought: Any
    ) -> Ordered:
        """The rows in another order; equal ones stay in the order that they have."""
        return Ordered(self._query, sorted_by(self._orders, self.schema, columns, descending, brought))

    def limit(self, count: int, /) -> Ordered:
        """The first rows of this order."""
        return Ordered(self._query, limited(self._orders, count))

    def _ordered(self, table: pa.Table) -> pa.Table:
        from tidemill.local.order import ordered

        return ordered(table, self._orders, self.schema)

    def run(
        self, data: Any = None, /, *, disorder: Disorder | None = None, emit: Emit | None = None,
        progress: bool = False, **inputs: Any,
    ) -> pa.Table:  # fmt: skip
        """Answer in this process, in order; see `Query.run`. With `emit`, the revisions are rows, too."""
        return self._ordered(
            self._query.run(data, disorder=disorder, emit=emit, progress=progress, **inputs)
        )

    def batches(
        self, data: Any = None, /, *, disorder: Disorder | None = None, emit: Emit | None = None,
        latency: Latency | None = None, progress: bool = False, **inputs: Any,
    ) -> Iterator[pa.RecordBatch]:  # fmt: skip
        """Answer in this process, in order: the first batch comes when all of the input has been read."""
        if latency is not None:
            raise _no_order("live")
        return iter(
            self.run(data, disorder=disorder, emit=emit, progress=progress, **inputs).to_batches()
        )

    def _written(self, data: Any, inputs: dict[str, Any], progress: bool) -> Iterator[pa.RecordBatch]:
        return self.batches(data, progress=progress, **inputs)

    def progressive(self, reports: int = 20, **inputs: Any) -> Iterator[ProgressReport]:
        """Answers over a growing part of the data, each in order; see `Query.progressive`."""
        for report in self._query.progressive(reports, **inputs):
            yield replace(report, table=self._ordered(report.table))

    def live(self, *policies: Any, **named: Any) -> Live:
        """No live query has an order: its rows come when they are complete."""
        raise _no_order("live")

    def on_spark(self, spark: Any, *, detect: str = "auto") -> SparkQuery:
        """The same query on Spark, in the same order; see `Query.on_spark`."""
        from tidemill.spark.query import SparkQuery

        return SparkQuery(self.optimized, spark, detect, self._orders)

    def explain(self, data: Any = None, /, **inputs: Any) -> Explanation:
        """As of the query, with the order of its result."""
        order = "; then ".join(map(str, self._orders))
        sections = self._query.explain(data, **inputs).sections
        return Explanation({"result": f"{order}: when all rows are there", **sections})


def _no_order(engine: str) -> UnsupportedError:
    return UnsupportedError(
        engine, "sort and limit: rows come when they are complete, and which are first is known at the end",
        instead="leave them out, and sort the tables that come: table.sort_by(...); run() has an order",
    )  # fmt: skip


def reconcile(
    query: Query, given: pa.Table, *, late: Mapping[str, pa.Table] | pa.Table | None = None, **inputs: Any
) -> pa.Table:
    """Return the rows of an answer that late events would have changed, and how.

    `given` are the rows that a live query gave; if they have revisions, the last ones count. `inputs` are all
    events, as for `run`. `late` is what `live.late()` returned, if these events are not in the inputs; a dict
    by name if there are several inputs.

    Each row of the result differs from what was given. `change` says how: it was `added`, it has `changed`,
    or it should not have come (`withdrawn`). Beside each column of the answer, `given_…` is what was given.

    >>> import pyarrow as pa, tidemill as tm
    >>> s = tm.stream("s", time="t", schema={"t": "int64"})
    >>> query = s.window(tm.tumbling(10)).agg(n=tm.count())
    >>> live = query.live(tm.Disorder(slack=0))
    >>> on_time = [{"t": 3}, {"t": 12}]
    >>> given = pa.concat_tables([live.push(s=on_time), live.push(s={"t": 4}), live.flush()])
    >>> tm.reconcile(query, given, late=live.late(), s=on_time).to_pylist()
    [{'window_start': 0, 'window_end': 10, 'change': 'changed', 'n': 2, 'given_n': 1}]
    """
    from tidemill.local.reconcile import reconcile

    return reconcile(query.optimized, given, late, with_held(query.plan, inputs))


def restore(
    query: Query, path: str | PathLike[str], disorder: Disorder | None = None, *, emit: Emit | None = None,
    latency: Latency | None = None, threads: int = 1, pool: Executor | None = None,
    answers: Literal["exact", "on arrival"] = "exact",
) -> Live:  # fmt: skip
    """Continue a live query from a checkpoint; `live.positions` says from where to read its inputs.

    The query must be the one whose state was saved. The policies and the number of threads may be others, but
    `emit` must keep complete windows for as long as before, and `answers` must be the same.
    """
    from tidemill.local.live import restored

    policies: dict[str, Any] = {"emit": emit, "latency": latency, "answers": answers}
    return restored(query.live(disorder, threads=threads, pool=pool, **policies), path)
