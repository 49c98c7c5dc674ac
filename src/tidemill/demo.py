"""The running example of paper 000, section 2: ``python -m tidemill.demo``.

Each click has a time, a user, an ad and a price. Over a 5 % sample of the users, how many clicks
did each ad get in the last five minutes, and what were they worth? The query is written once and
runs in this process, on Spark in local mode, and live on the first clicks as if they came now; all must
give the same answer, or the exit code is 1.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Generic, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import typer
from rich.console import Console
from rich.panel import Panel
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

import tidemill as tm
from tidemill import col
from tidemill.core.files import appearing
from tidemill.datasets import CLICKS, click_tables

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from pyspark.sql import SparkSession

    from tidemill.query import Query

T = TypeVar("T")

ORDER = ["ad", "window_start"]
BLOCKS = " ▁▂▃▄▅▆▇█"


# --- the query ------------------------------------------------------------------------------------


def per_ad() -> Query:
    """Clicks and spend for each ad over the last five minutes, each minute, for 5 % of the users."""
    clicks = tm.stream(
        "clicks",
        time="ts",
        schema={"ts": "timestamp", "user": "int64", "ad": "int64", "price": "float64"},
    )
    return (
        clicks.where(lambda e: e.user % 100 < 5)
        .group_by("ad")
        .window(tm.hopping("5m", every="1m"))
        .agg(n=tm.count(), spend=tm.sum(col.price))
    )


# --- generate -------------------------------------------------------------------------------------


def generate(path: Path, rows: int, advance: Callable[[int], None], seed: int = 7) -> None:
    """Write the clicks of `tm.datasets.clicks` to a Parquet file."""
    with appearing(path, step="demo", durable=False) as file, pq.ParquetWriter(file, CLICKS) as writer:
        for table in click_tables(rows, seed):
            writer.write_table(table)
            advance(table.num_rows)


# --- run ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Timed(Generic[T]):
    """A value, and how long it took to get."""

    value: T
    seconds: float


@dataclass(frozen=True)
class Answer:
    """What one engine said, and its times: the first run has to compile, the second does not."""

    engine: str
    table: pa.Table
    first: float
    second: float


def timed(work: Callable[[], T]) -> Timed[T]:
    """Call ``work`` and measure it."""
    begin = time.perf_counter()
    value = work()
    return Timed(value, time.perf_counter() - begin)


def run_in_process(query: Query, path: Path) -> Answer:
    """Run the query on this process' own engine, twice."""

    def once() -> pa.Table:
        return query.run(clicks=str(path))

    first, second = timed(once), timed(once)
    return Answer("in process", second.value, first.seconds, second.seconds)


@dataclass(frozen=True)
class LiveRun:
    """The first clicks, as history and live."""

    history: Answer
    live: Answer
    clicks: int
    tables: int
    """In how many pieces the live answer came."""
    first_row: float
    """How long the first row took to come."""


def run_live(query: Query, path: Path, every: str = "1m") -> LiveRun:
    """Run the query on the first clicks: all at once, and piece by piece as if they came now."""
    clicks = pq.ParquetFile(path).read_row_group(0)

    def as_history() -> pa.Table:
        return query.run(clicks=clicks)

    def as_they_come() -> list[Timed[pa.Table]]:
        live = query.live(tm.Disorder(slack="10s"))
        begin = time.perf_counter()
        tables = live.read(clicks=tm.replay(clicks, speed=None, every=every))
        found = [Timed(table, time.perf_counter() - begin) for table in tables]
        return [*found, Timed(live.flush(), time.perf_counter() - begin)]

    history, again = timed(as_history), timed(as_history)
    live, live_again = timed(as_they_come), timed(as_they_come)
    tables = [piece.value for piece in live_again.value]
    return LiveRun(
        Answer("history", again.value, history.seconds, again.seconds),
        Answer("live", pa.concat_tables(tables), live.seconds, live_again.seconds),
        clicks.num_rows,
        len(tables),
        live_again.value[0].seconds,
    )


def run_on_spark(query: Query, path: Path, spark: SparkSession) -> Answer:
    """Run the query on Spark, twice."""

    def once() -> pa.Table:
        return query.on_spark(spark).run(clicks=spark.read.parquet(str(path))).toArrow()

    first, second = timed(once), timed(once)
    return Answer("Spark, local[2]", second.value, first.seconds, second.seconds)


def start_spark(scratch: Path, **more: str) -> SparkSession:
    """A quiet Spark session on two cores that keeps its files under ``scratch``.

    ``more`` are further options, with ``_`` for ``.`` in their names.
    """
    from pyspark.sql import SparkSession

    # Spark's Python workers must be the interpreter that has the packages.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    logging = scratch / "log4j2.properties"
    logging.write_text(
        "rootLogger.level = error\n"
        "logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer\n"
        "logger.gateway.level = error\n"
        "rootLogger.appenderRef.console.ref = console\n"
        "appender.console.type = Console\n"
        "appender.console.name = console\n"
        "appender.console.target = SYSTEM_ERR\n"
        "appender.console.layout.type = PatternLayout\n"
        "appender.console.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n\n"
    )
    options = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile=file:{logging}",
        "spark.driver.host": "127.0.0.1",
        "spark.local.dir": str(scratch),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    builder = SparkSession.builder.master("local[2]").appName("tidemill")
    for name, value in {**options, **{n.replace("_", "."): v for n, v in more.items()}}.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


# --- compare --------------------------------------------------------------------------------------


def canonical(table: pa.Table) -> pa.Table:
    """The rows in one order, instants as integers: what two engines must agree on."""
    columns = {}
    for name in sorted(table.column_names):
        column = table[name]
        if pa.types.is_timestamp(column.type):
            column = column.cast(pa.timestamp("us", tz=column.type.tz)).cast(pa.int64())
        columns[name] = column.combine_chunks()
    return pa.table(columns).sort_by([(name, "ascending") for name in ORDER])


def differences(left: pa.Table, right: pa.Table) -> list[str]:
    """What differs between two answers; empty when they are equal.

    Integers, instants and nulls must be the same; float sums may differ in the last bits.

    >>> a = pa.table({"ad": [2, 1], "window_start": [0, 0], "spend": [0.3, 1.0]})
    >>> b = pa.table({"ad": [1, 2], "window_start": [0, 0], "spend": [1.0, 0.1 + 0.2]})
    >>> differences(a, b)
    []
    >>> differences(a, b.slice(1))
    ['2 rows against 1']
    """
    a, b = canonical(left), canonical(right)
    if a.column_names != b.column_names:
        return [f"columns {a.column_names} against {b.column_names}"]
    if a.num_rows != b.num_rows:
        return [f"{a.num_rows} rows against {b.num_rows}"]
    found = []
    for name in a.column_names:
        wrong = a.num_rows - int(np.count_nonzero(_same(a[name], b[name])))
        if wrong:
            found.append(f"column {name}: {wrong} of {a.num_rows} values differ")
    return found


def _same(a: pa.ChunkedArray, b: pa.ChunkedArray) -> NDArray[np.bool_]:
    """Row by row, whether two columns hold the same value."""
    x, y = a.fill_null(0).to_numpy(), b.fill_null(0).to_numpy()
    same: NDArray[np.bool_] = np.equal(a.is_null().to_numpy(), b.is_null().to_numpy())
    if pa.types.is_floating(a.type):
        same &= np.isclose(x, y, rtol=1e-9, atol=1e-9, equal_nan=True)
    else:
        same &= np.equal(x, y)
    return same


# --- show -----------------------------------------------------------------------------------------


def show_top(console: Console, answers: list[Answer], rows: int = 5) -> None:
    """For each engine, the windows with the most clicks."""
    for answer in answers:
        by_clicks = [("n", "descending"), ("ad", "ascending"), ("window_start", "ascending")]
        title = f"{answer.engine}: busiest of {answer.table.num_rows:,} windows"
        shown = Table(title=title, title_justify="left")
        for name in ("ad", "window_start", "window_end", "n", "spend"):
            shown.add_column(name, justify="right")
        for row in answer.table.sort_by(by_clicks).slice(0, rows).to_pylist():
            shown.add_row(
                str(row["ad"]),
                f"{row['window_start']:%H:%M}",
                f"{row['window_end']:%H:%M}",
                f"{row['n']:,}",
                f"{row['spend']:,.2f}",
            )
        console.print(shown)


def show_times(console: Console, answers: list[Answer], rows: int, session_seconds: float) -> None:
    """How long each engine took, first (with compiling) and again."""
    shown = Table(title=f"{rows:,} clicks", title_justify="left")
    for name in ("engine", "first run", "second run", "clicks per second"):
        shown.add_column(name, justify="left" if name == "engine" else "right")
    for answer in answers:
        shown.add_row(
            answer.engine,
            f"{answer.first:.2f} s",
            f"{answer.second:.2f} s",
            f"{rows / answer.second:,.0f}",
        )
    console.print(shown)
    console.print(f"[dim]starting the Spark session took another {session_seconds:.1f} s[/]")


def show_live(console: Console, run: LiveRun) -> None:
    """The first clicks as history and live: the first windows of both, and how long they took."""
    shown = Table(title=f"{run.clicks:,} clicks live beside history", title_justify="left")
    for name in ("", "rows", "first windows (ad, end, clicks)", "time", "first row after"):
        shown.add_column(name, justify="left" if name in ("", "first windows (ad, end, clicks)") else "right")
    for answer, after in ((run.history, run.history.second), (run.live, run.first_row)):
        by_end = answer.table.sort_by([("window_end", "ascending"), ("ad", "ascending")])
        first = by_end.slice(0, 3).to_pylist()
        windows = ", ".join(f"{row['ad']} {row['window_end']:%H:%M} {row['n']}" for row in first)
        shown.add_row(
            answer.engine,
            f"{answer.table.num_rows:,}",
            windows,
            f"{answer.second:.2f} s",
            f"{1000 * after:.1f} ms",
        )
    console.print(shown)
    console.print(f"[dim]the live answer came in {run.tables} tables, as the clicks came[/]")


@dataclass(frozen=True)
class Series:
    """The clicks of one ad, window by window."""

    ad: int
    ends: list[datetime]
    clicks: list[int]


def busiest(table: pa.Table) -> Series:
    """The ad with the most clicks in all, as a series over time."""
    totals = table.group_by("ad").aggregate([("n", "sum")])
    ad = totals.sort_by([("n_sum", "descending"), ("ad", "ascending")])["ad"][0].as_py()
    one = table.filter(pc.equal(table["ad"], ad)).sort_by("window_end")
    return Series(ad, one["window_end"].to_pylist(), one["n"].to_pylist())


def columns_chart(values: list[int], width: int, height: int) -> list[str]:
    """Values as a column chart of block characters, one string a line, top line first.

    Neighbours share a column (their mean) when there are more values than columns.

    >>> for line in columns_chart([0, 1, 2, 3, 4], width=5, height=2):
    ...     print(repr(line))
    '   ▄█'
    ' ▄███'
    """
    if not values:
        return [""] * height
    bins = np.array_split(np.asarray(values, dtype=np.float64), min(width, len(values)))
    means = np.array([part.mean() for part in bins])
    top = max(float(means.max()), 1.0)
    eighths = np.rint(means / top * height * 8).astype(int)
    return [
        "".join(BLOCKS[min(max(filled - level * 8, 0), 8)] for filled in eighths)
        for level in reversed(range(height))
    ]


def show_chart(console: Console, series: Series) -> None:
    """The busiest ad's clicks over time, in the terminal."""
    width = max(20, min(console.width - 6, 100))
    lines = columns_chart(series.clicks, width, height=8)
    first, last = f"{series.ends[0]:%H:%M}", f"{series.ends[-1]:%H:%M}"
    axis = first + " " * max(1, len(lines[0]) - len(first) - len(last)) + last
    title = f"clicks on ad {series.ad} in the last 5 minutes (peak {max(series.clicks):,})"
    console.print(Panel("\n".join([*lines, axis]), title=title, expand=False))


def write_png(series: Series, path: Path) -> bool:
    """The same chart as a picture; False when matplotlib is not installed."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return False
    figure: Any = Figure(figsize=(9, 3.5), layout="constrained")
    axes = figure.subplots()
    axes.fill_between(series.ends, series.clicks, step="pre", alpha=0.6)
    axes.set(
        title=f"Clicks on ad {series.ad} in the last 5 minutes", ylabel="clicks", ylim=(0, None)
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    with appearing(path, step="demo") as file:
        figure.savefig(file, dpi=120, format=path.suffix[1:])
    return True


# --- the command ----------------------------------------------------------------------------------


@contextmanager
def step(bars: Progress, text: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
    """A progress bar for the enclosed work, which may advance it; full when the work is done."""
    task = bars.add_task(text, total=total)
    yield lambda count: bars.advance(task, count)
    done = total or 1
    bars.update(task, total=done, completed=done)


@contextmanager
def spark_tasks(bars: Progress, text: str, spark: SparkSession) -> Iterator[None]:
    """A progress bar that follows the tasks of the running Spark stages."""
    task = bars.add_task(text, total=None)
    tracker = spark.sparkContext.statusTracker()
    stop = threading.Event()

    def follow() -> None:
        while not stop.wait(0.2):
            stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
            active = [stage for stage in stages if stage is not None]
            if active:
                done = sum(stage.numCompletedTasks for stage in active)
                known = sum(stage.numTasks for stage in active)
                # One more than is known: the bar is full only when the answer is here.
                bars.update(task, completed=done, total=known + 1)

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
    bars.update(task, total=1, completed=1)


@dataclass(frozen=True)
class Outcome:
    """Both answers, what it took to start Spark, and the first clicks live."""

    answers: list[Answer]
    session_seconds: float
    live: LiveRun


def run_both(rows: int, console: Console) -> Outcome:
    """Generate the clicks in a temporary folder and run the query on both engines."""
    query = per_ad()
    bars = Progress(
        SpinnerColumn(finished_text="[green]✓"),
        TextColumn("{task.description}"),
        BarColumn(),
        TimeElapsedColumn(),
        console=console,
    )
    with tempfile.TemporaryDirectory(prefix="tidemill-demo-") as folder, bars:
        path = Path(folder) / "clicks.parquet"
        with step(bars, f"generate {rows:,} clicks", rows) as advance:
            generate(path, rows, advance)
        with step(bars, "run in process, twice"):
            local = run_in_process(query, path)
        with step(bars, "run live beside history, twice"):
            live = run_live(query, path)
        with step(bars, "start Spark"):
            session = timed(lambda: start_spark(Path(folder)))
        try:
            with spark_tasks(bars, "run on Spark, twice", session.value):
                spark = run_on_spark(query, path, session.value)
        finally:
            session.value.stop()
    return Outcome([local, spark], session.seconds, live)


def main(
    rows: Annotated[int, typer.Option(min=1, help="How many clicks to generate.")] = 4_000_000,
    png: Annotated[bool, typer.Option("--png", help="Also write out/demo.png.")] = False,
) -> None:
    """Run the running example of paper 000 in process, live and on Spark, and compare."""
    console = Console()
    outcome = run_both(rows, console)
    local, spark = outcome.answers
    show_top(console, outcome.answers)
    if local.table.num_rows:
        series = busiest(local.table)
        show_chart(console, series)
        if png:
            picture = Path("out") / "demo.png"
            written = write_png(series, picture)
            console.print(f"wrote {picture}" if written else "no PNG: matplotlib is not installed")
    show_times(console, outcome.answers, rows, outcome.session_seconds)
    show_live(console, outcome.live)

    found = differences(local.table, spark.table)
    found += [f"live: {what}" for what in differences(outcome.live.history.table, outcome.live.live.table)]
    if found:
        console.print("[bold red]the engines differ:[/] " + "; ".join(found))
        raise typer.Exit(code=1)
    console.print(
        f"[bold green]equal:[/] both engines gave the same {local.table.num_rows:,} rows, "
        "and live gave what history gave"
    )


if __name__ == "__main__":
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command()(main)
    app()
