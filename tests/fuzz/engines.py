"""A query on one engine: the rows that come out as plain values, or the error that was raised."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa

import tidemill as tm
from tests.fuzz import sources
from tidemill.io.chunks import Chunk
from tidemill.local.graph import Graph
from tidemill.local.run_graph import run_graph
from tidemill.local.snapshot import from_bytes, to_bytes
from tidemill.local.tuning import Tuning
from tidemill.reference.run import run as run_reference
from tidemill.stream import Stream

Row = dict[str, Any]

BEGINNING, FOREVER = -(1 << 63), (1 << 63) - 1
HASTE = (
    Tuning(),
    Tuning(few_partials=0, output_rows=3, few_keys=2, held_text=0),
    Tuning(few_partials=0, many_partials=2, plane_bytes=0, few_keys=0, held_text=3000),
)
"""How soon the local engine closes windows and combines partials: by default not on so few rows."""


class Refused(Exception):
    """The engine says that it cannot run this at all: not a case."""


class Failed(Exception):
    """An error of Tidemill's own, as users are meant to get it."""


class Came(list[Row]):
    """Rows, and how many were before the start of all windows."""

    def __init__(self, rows: list[Row], metadata: dict[bytes, bytes] | None) -> None:
        super().__init__(rows)
        self.before_start = int((metadata or {}).get(b"tidemill.before_start", 0))


def plain(table: pa.Table) -> list[Row]:
    """Rows of Python values, instants and durations as ints."""
    columns = {}
    for name, column in zip(table.column_names, table.columns):
        columns[name] = _ticks(column).to_pylist()
    return [dict(zip(columns, values)) for values in zip(*columns.values())]


def _ticks(column: Any) -> Any:
    kind = _as_ints(column.type)
    return column if kind == column.type else column.cast(kind)


def _as_ints(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind) or pa.types.is_duration(kind):
        return pa.int64()
    if pa.types.is_list(kind):
        return pa.list_(_as_ints(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(f.name, _as_ints(f.type)) for f in kind])
    return kind


@contextmanager
def told(error: type[BaseException] = tm.UserError) -> Iterator[None]:
    """Errors that users are meant to get, as `Failed`; all others are faults and go on."""
    try:
        yield
    except tm.UnsupportedError as cannot:
        raise Refused(str(cannot)) from cannot
    except error as failed:
        raise Failed(str(failed)) from failed


def by_reference(query: Stream, rows: list[Row]) -> list[Row]:
    with told():
        return run_reference(query.plan, {"s": [dict(row) for row in rows]})


def from_source(
    query: Stream, rows: list[Row], schema: dict[str, str], how: str, pick: Random
) -> list[Row]:
    """The local engine on one kind of source, through the public surface."""
    whole = sources.table(rows, schema)
    with tempfile.TemporaryDirectory(prefix="tidemill-fuzz-") as folder:
        given = sources.SOURCES[how](pick, whole, Path(folder))
        with told():
            table = query.run(s=given)
            return Came(plain(table), table.schema.metadata)


def in_batches(
    query: Stream, rows: list[Row], schema: dict[str, str], threads: int, pick: Random
) -> list[Row]:
    """The local engine on exactly these batches, with keys on so many threads.

    With promises, each batch comes with the truth about the rows that follow, as from a table in
    memory; without, with none, as from a stream. Between batches a fresh graph may go on from a snapshot.
    """
    whole = sources.table(rows, schema)
    promised = pick.random() < 0.6
    with told():
        tuning = pick.choice(HASTE)
        graph = Graph(query.optimized, threads, tuning)
        [(name, source)] = graph.sources.items()
        needed = source.schema
        chunks = []
        below = BEGINNING
        for a, b in sources.split(pick, len(rows)):
            rest = [row["t"] for row in rows[b:]]
            if promised and None not in rest:
                below = max(below, min(rest, default=below))
            part = whole.slice(a, b - a).select(list(needed.names)).combine_chunks()
            arrow = needed.to_arrow()
            for batch in part.cast(arrow).to_batches():
                chunks.append(Chunk(batch, below))
        if pick.random() < 0.6:
            out = list(run_graph(graph, {name: chunks}, threads))
        else:
            out = []
            for chunk in chunks:
                out += graph.push(name, chunk.batch)
                out += graph.advance(name, chunk.complete_below, prompt=pick.random() < 0.5)
                if pick.random() < 0.5:
                    state = from_bytes(to_bytes(graph.snapshot()))
                    graph.close()
                    graph = Graph(query.optimized, pick.choice((1, threads)), tuning)
                    graph.restore(state)
            out += graph.advance(name, FOREVER)
            graph.close()
        return plain(pa.Table.from_batches(out, schema=query.schema.to_arrow()))


def on_spark(
    spark: Any, query: Stream, rows: list[Row], schema: dict[str, str], pick: Random
) -> list[Row]:
    """Spark batch, with rows spread over partitions in no order."""
    from pyspark.errors import PySparkException

    with told(tm.TidemillError):
        whole = sources.zoned(sources.table(rows, schema))
        df = spark.createDataFrame(whole).repartition(pick.choice((1, 2, 3)))
        try:
            return plain(query.on_spark(spark).run(s=df).toArrow())
        except PySparkException as failed:
            raise Failed(str(failed)[:500]) from failed
