"""A query on Spark: `query.on_spark(spark).run(clicks=df)` gives a lazy DataFrame."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import replace
from os import PathLike
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from tidemill.core.errors import UserError
from tidemill.core.explanation import Explanation
from tidemill.core.schema import schema as read_schema
from tidemill.io.sinks import write_ipc
from tidemill.local.explain import from_wheel
from tidemill.local.order import ordered as in_order
from tidemill.local.progress_report import ProgressReport, require_count
from tidemill.optimize.optimizer import with_wheels
from tidemill.plan.disorder import Disorder
from tidemill.plan.faults import by_name, check_inputs
from tidemill.plan.format import format_plan
from tidemill.plan.nodes import Plan, Source, WheelWindows, sources, with_held, without_held
from tidemill.plan.order import Order
from tidemill.plan.usable_rows import checks_of, usable_only
from tidemill.spark.batch.disorder import accepted, late_rows, require_supported
from tidemill.spark.batch.explain import describe
from tidemill.spark.batch.order import ordered
from tidemill.spark.batch.progressive import progressive, require_partials
from tidemill.spark.batch.run import frame_of
from tidemill.spark.batch.slice_choice import DEFAULT, SliceTuning
from tidemill.spark.exchange.decision import Decision, outlook, watched
from tidemill.spark.expr.zones import as_declared
from tidemill.spark.frames import printed_plan, require_batch
from tidemill.spark.inputs import data_of, frame_of_data
from tidemill.spark.private import require_classic
from tidemill.spark.settings import ansi
from tidemill.spark.sinks import as_table, write_csv, write_parquet
from tidemill.spark.wheels.windows import wheel_frame, where_answered
from tidemill.wheels.queries import WheelQueries

if TYPE_CHECKING:
    import pandas


class SparkQuery:
    """An optimised plan bound to a Spark session."""

    def __init__(
        self, plan: Plan, spark: SparkSession, detect: str = "auto", orders: tuple[Order, ...] = (), *,
        tuning: SliceTuning = DEFAULT,
    ) -> None:  # fmt: skip
        self._plan, self._spark, self._detect = without_held(plan), spark, detect
        self._tuning = tuning
        self._held = with_held(plan, {})
        self._orders = orders

    def run(
        self, data: Any = None, /, *, disorder: Disorder | None = None, arrival: str | None = None,
        **inputs: Any,
    ) -> DataFrame:  # fmt: skip
        """The result as a DataFrame; nothing runs until something asks for its rows.

        Only with `detect="auto"` some rows of large inputs are read before: see `Query.on_spark`.

        There is one input for each stream, by name; a query of one stream also takes it without a name.
        An input is a DataFrame, the path of files, which tasks read, or data in memory, which is sent: a
        frame of pandas or Polars, Arrow data. Streams that `tm.read` made need none.

        A wheel in place of rows answers windows that lie between its slots. One that Spark built is read
        by tasks, a bucket each; another one by the driver, at once.

        By default all rows count. With `disorder`, rows may be late, as in `query.run` over rows in the order
        of `arrival`: a column of timestamps or numbers. Rows of equal arrival come in order of their times.
        """
        inputs = self._frames(by_name(self._plan, data, inputs))
        plan = self._with_wheels(inputs)
        if disorder is not None:
            require_supported(disorder)
            plan = usable_only(plan)
        with ansi(self._spark):
            leaf = functools.partial(self._frame, inputs=inputs, disorder=disorder, arrival=arrival)
            found = frame_of(plan, leaf, self._detect, self._tuning)
            return ordered(found, self._orders, plan.schema)

    def to_pandas(self, data: Any = None, /, **inputs: Any) -> pandas.DataFrame:
        """`run`, fetched as a pandas DataFrame like that of a query in process."""
        return self._table(data, inputs).to_pandas()

    def to_polars(self, data: Any = None, /, **inputs: Any) -> Any:
        """`run`, fetched as a Polars DataFrame."""
        import polars

        return polars.from_arrow(self._table(data, inputs))

    def to_parquet(
        self, path: str | PathLike[str], data: Any = None, /, *, overwrite: bool = False, **inputs: Any
    ) -> int:
        """Answer into a directory of Parquet files, which tasks write; return the number of rows.

        Spark writes `_SUCCESS` there when it is complete. What is there already is an error, unless
        `overwrite`.
        """
        return write_parquet(self.run(data, **inputs), path, overwrite)

    def to_csv(
        self, path: str | PathLike[str], data: Any = None, /, *, overwrite: bool = False, **inputs: Any
    ) -> int:
        """Answer into a directory of CSV files with headers, as `to_parquet` does."""
        return write_csv(self.run(data, **inputs), path, overwrite)

    def to_ipc(self, path: str | PathLike[str], data: Any = None, /, **inputs: Any) -> int:
        """Answer into one Arrow IPC file, through the driver, whose memory the result must fit."""
        table = self._table(data, inputs)
        return write_ipc(path, table.schema, table.to_batches())

    def _table(self, data: Any, inputs: dict[str, Any]) -> pa.Table:
        return as_table(self.run(data, **inputs), self._plan.schema)

    def late(
        self, disorder: Disorder, *, arrival: str, input: str | None = None, **inputs: DataFrame
    ) -> DataFrame:
        """The rows of an input that are late or have no place, and why (`late_reason`); see `run`."""
        inputs = self._frames(inputs, whole=True)
        _check(self._plan, inputs)
        streams = [source for source in sources(self._plan) if not source.table]
        names = [source.name for source in streams]
        if (input is None and len(names) > 1) or input not in (None, *names):
            raise UserError("late", expected=f"input= one of {names}", got=repr(input))
        leaf = next(s for s in streams if input in (None, s.name))
        with ansi(self._spark):
            rows = as_declared(inputs[leaf.name], leaf)
            return late_rows(rows, leaf, disorder, arrival, checks_of(self._plan, leaf.name))

    def progressive(self, reports: int = 20, **inputs: DataFrame) -> Iterator[ProgressReport]:
        """The answers over a growing part of the data, each an Arrow table, as of `query.progressive`.

        The part is the first partitions of the inputs, in Spark's order: `report.partitions` of them, and
        `report.fraction` of all. Each is read once, by jobs of a few partitions, and aggregated where it is;
        the driver adds up the partials, which must fit in its memory. Files are split into at least as many
        partitions as there are reports, unless `spark.sql.files.minPartitionNum` is set; other frames have
        the partitions that they have, and no more reports than that. An input that shuffles does so first.

        Windows that follow the rows, and aggregates that need them in order, have no such partials: for them
        there is an `UnsupportedError`.
        """
        require_count(reports)
        require_classic("progressive", self._spark)
        inputs = self._frames(inputs)
        plan = self._with_wheels(inputs)
        require_partials(plan)
        found = progressive(plan, lambda leaf: self._frame(leaf, inputs), self._spark, reports)
        return (replace(r, table=in_order(r.table, self._orders, plan.schema)) for r in found)

    def _frame(
        self, leaf: Source | WheelWindows, inputs: dict[str, Any], disorder: Disorder | None = None,
        arrival: str | None = None,
    ) -> DataFrame:  # fmt: skip
        """The rows of a stream that count, or the windows of a wheel."""
        if isinstance(leaf, WheelWindows):
            return wheel_frame(self._spark, leaf, inputs[leaf.stream])
        rows = as_declared(inputs[leaf.name], leaf)
        if disorder is None or leaf.table:  # a table is there before all rows
            return rows
        if arrival is None:
            raise UserError(
                f"run {leaf.name}", expected="arrival=, the column by which rows arrived", got="none",
                hint="rows of a DataFrame have no order of their own",
            )  # fmt: skip
        return accepted(rows, leaf, disorder, arrival)

    def explain(self, data: Any = None, /, **inputs: Any) -> Explanation:
        """What runs where: Tidemill's choices, and Spark's physical plan when inputs are given.

        Without inputs it runs nothing, also where streams have their rows. With them, `detect="auto"` decides
        as in `run`, which may count keys.
        """
        inputs = by_name(self._plan, data, inputs, step="explain")
        if not inputs:
            exchanges = outlook(self._spark, self._detect)
            return Explanation({"spark": describe(self._plan), "exchanges": exchanges})
        inputs = self._frames(inputs)
        plan = self._with_wheels(inputs)
        sections = {"spark": describe(plan)}
        from_wheels = []
        for node in (n for n in plan.walk() if isinstance(n, WheelWindows)):
            wheel: Any = inputs[node.stream]
            from_wheels += [from_wheel(node, wheel.facts()), f"  read: {where_answered(node, wheel)}"]
        if from_wheels:
            sections["wheel"] = "\n".join(from_wheels)
        decisions: list[Decision] = []
        with watched(decisions):
            executed = printed_plan(self.run(**inputs))
        if decisions:
            sections["exchanges"] = "\n".join(f"exchange {d}" for d in decisions)
        return Explanation({**sections, "Spark's plan": executed})

    def _frames(self, inputs: dict[str, Any], *, whole: bool = False) -> dict[str, Any]:
        """The inputs of a run: those given, and those that streams hold; files and local data as frames.

        With `whole`, frames have all columns of their streams, also those that the query does not read.
        """
        given = {**self._held, **inputs}
        check_inputs(self._plan, given)
        found = {}
        for source in sources(self._plan):
            leaf = replace(source, columns=None) if whole else source
            one = given[source.name]
            data = data_of(one)
            found[source.name] = one if data is None else frame_of_data(self._spark, data, leaf)
        return found

    def _with_wheels(self, inputs: dict[str, Any]) -> Plan:
        """The plan for these inputs, of which some may be wheels."""
        _check(self._plan, inputs)
        wheels = {n: given.facts() for n, given in inputs.items() if isinstance(given, WheelQueries)}
        return with_wheels(self._plan, wheels)

    def __repr__(self) -> str:
        return f"on Spark:\n{format_plan(self._plan)}"


def _check(plan: Plan, inputs: dict[str, Any]) -> None:
    check_inputs(plan, inputs)
    for source in sources(plan):
        step = f"run {source.name}"
        df = inputs[source.name]
        if isinstance(df, WheelQueries):
            continue  # the rule that puts it in place of rows checks it
        require_batch(step, df)
        found = {f.name: f for f in df.schema.fields}
        twice = sorted({n for n in df.columns if df.columns.count(n) > 1} & set(source.schema.names))
        if twice:
            raise UserError(step, expected="each column once", got=f"{twice} more than once")
        for name, kind in source.schema:
            if name not in found:
                raise UserError(
                    step, expected=f"a column {name!r} of {kind!r}", got=f"columns {df.columns}"
                )
            have = read_schema(type(df.schema)([found[name]]), step=step)[name]
            numbers = have.kind in ("int64", "float64") and kind.kind == "timestamp"
            if numbers and source.reading.unit(name):
                continue
            text = have.kind in ("string", "int64") and kind.kind == "timestamp"
            if text and source.reading.formats_of(name):
                continue
            wider = (have.kind, kind.kind) in (("int64", "float64"), ("decimal", "decimal"))
            if have != kind and not wider:
                unit = "declare the stream with unit='s' (or 'ms', 'us', 'ns'), or the column as int64"
                format = "declare the stream with format='iso', or with the format of the text"
                raise UserError(
                    step, expected=f"column {name!r} of type {kind!r}",
                    got=found[name].dataType.simpleString(),
                    hint=unit if numbers else format if text
                    else "fix the schema of the stream, or cast the column",
                )  # fmt: skip
