"""One query on several engines, and results compared as what they are: sets of rows.

Ints, strings, lists and bounds must be equal; floats may differ in their last bits. NaN equals NaN,
and zero has one sign.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from tidemill.core.batch import conform, from_rows, to_rows
from tidemill.core.schema import Schema
from tidemill.core.time import BEGINNING
from tidemill.io.chunks import Chunk
from tidemill.local.graph import Graph
from tidemill.local.run import run as run_local
from tidemill.local.run_graph import run_graph
from tidemill.local.tuning import Tuning
from tidemill.plan.nodes import Source
from tidemill.reference.run import run as run_reference
from tidemill.stream import Stream

Row = dict[str, Any]
CLOSE = 1e-9


# --- engines --------------------------------------------------------------------------------------


def source_of(query: Stream) -> Source:
    (source,) = (node for node in query.plan.walk() if isinstance(node, Source))
    return source


def table_of(query: Stream, rows: Sequence[Row]) -> pa.Table:
    """Rows of ticks as the table that a user would pass."""
    return from_rows(rows, source_of(query).declared)


def by_reference(query: Stream, rows: Sequence[Row]) -> list[Row]:
    return run_reference(query.plan, {source_of(query).name: list(rows)})


def locally(query: Stream, rows: Sequence[Row]) -> list[Row]:
    return ran(query, table_of(query, rows))


def ran(query: Stream, data: Any, *, speed: str = "patient") -> list[Row]:
    """The local engine on anything it reads, as the public surface has it."""
    batches = run_local(query.optimized, {source_of(query).name: data}, tuning=HASTE[speed])
    return to_rows(list(batches), query.schema)


def in_batches(
    query: Stream, batches: Iterable[Sequence[Row]], *, promises: bool, speed: str = "patient"
) -> list[Row]:
    """The local engine on exactly these batches, which the surface would join into larger ones.

    Keys are shared by two lanes, where the surface has one for so few rows. With promises, each batch
    comes with the truth about the rows that follow, as from a table in memory; without, with none, as
    from a stream.
    """
    given = list(batches)
    graph = Graph(query.optimized, threads=2, tuning=HASTE[speed])
    [source], below, chunks = graph.sources.values(), BEGINNING, []
    assert isinstance(source, Source)
    for at, rows in enumerate(given):
        rest = [row[source.time] for later in given[at + 1 :] for row in later]
        below = min(rest, default=below) if promises else BEGINNING
        for one in from_rows(rows, source.declared).to_batches():
            chunks.append(Chunk(conform(one, source.schema, step="test"), below))
    return to_rows(list(run_graph(graph, {source.name: chunks}, threads=2)), query.schema)


def live(query: Stream, rows: Sequence[Row], pick: random.Random) -> list[Row]:
    """A live query that is given the rows in batches of random sizes."""
    going = query.live()
    tables = [going.push(s=table_of(query, some)) for some in split(rows, pick)] + [going.flush()]
    return to_rows([b for table in tables for b in table.to_batches()], query.schema)


def agree(query: Stream, rows: Sequence[Row], spark: Any = None) -> list[Row]:
    """Require one answer of all engines, and return it. The stream is called `s`."""
    expected = by_reference(query, rows)
    assert_same(locally(query, rows), expected, query.schema, "locally")
    pick = random.Random(len(rows))
    assert_same(live(query, pick.sample(list(rows), len(rows)), pick), expected, query.schema, "live")
    if spark is not None:
        assert_same(on_spark(spark, query, rows), expected, query.schema, "on Spark")
    return expected


def on_spark(spark: Any, query: Stream, rows: Sequence[Row], *, parts: int = 3) -> list[Row]:
    """Spark batch, with rows spread over partitions in no order."""
    df = spark.createDataFrame(table_of(query, rows)).repartition(parts)
    table = query.on_spark(spark).run(**{source_of(query).name: df}).toArrow()
    batches = [conform(b, query.schema, step="test") for b in table.to_batches()]
    return to_rows(batches, query.schema)


HASTE = {
    "patient": Tuning(),
    "eager": Tuning(
        few_partials=0, output_rows=3, few_keys=3, keys_by_row=2, few_lookups=0, small_planes=0, dense_rows=0,
        held_text=0, few_closing=0, loop_rows=0,
    ),
    "spilling": Tuning(few_partials=0, many_partials=2, plane_bytes=0, few_keys=0, backlog=0, held_text=3000),
}
"""How soon the local engine closes windows, combines partials and forgets keys: by default not on so few
rows."""


# --- disorder -------------------------------------------------------------------------------------


def split(rows: Sequence[Row], pick: random.Random) -> list[list[Row]]:
    """The same rows in the same order, in batches of random sizes; some are empty."""
    cuts = sorted(pick.choices(range(len(rows) + 1), k=pick.randint(0, 6)))
    return [list(rows[a:b]) for a, b in zip([0, *cuts], [*cuts, len(rows)])]


def arrivals(rows: Sequence[Row], time: str, pick: random.Random) -> dict[str, list[Row]]:
    """Orders of arrival: by time, a little out of order, and any."""
    jitter = {id(row): row[time] + pick.randint(0, 4) for row in rows}
    return {
        "sorted": sorted(rows, key=lambda row: row[time]),
        "jittered": sorted(rows, key=lambda row: jitter[id(row)]),
        "shuffled": pick.sample(list(rows), len(rows)),
    }


# --- comparing ------------------------------------------------------------------------------------


def assert_same(got: Iterable[Row], expected: Iterable[Row], schema: Schema, what: str = "") -> None:
    """The same rows in any order; a failure shows the rows on one side only."""
    mine, theirs = (sorted(rows, key=_order(schema)) for rows in (list(got), list(expected)))
    if len(mine) == len(theirs) and all(same(a, b) for a, b in zip(mine, theirs)):
        return
    raise AssertionError(_difference(mine, theirs, schema, what))


def _order(schema: Schema) -> Any:
    # Floats last: two engines may order rows differently by the last bits of a float.
    names = sorted(schema.names, key=lambda n: "float64" in repr(schema[n]))
    return lambda row: [_rank(row[n]) for n in names]


def _rank(value: Any) -> Any:
    if value is None:
        return (0,)
    if isinstance(value, float):
        return (2,) if math.isnan(value) else (1, value)
    if isinstance(value, Mapping):
        return (1, [_rank(v) for v in value.values()])
    return (1, [_rank(v) for v in value]) if isinstance(value, (list, tuple)) else (1, value)


def same(a: Any, b: Any) -> bool:
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return a.keys() == b.keys() and all(same(a[n], b[n]) for n in a)
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, float) and isinstance(b, float):
        both = math.isnan(a) and math.isnan(b)
        return both or math.isclose(a, b, rel_tol=CLOSE, abs_tol=CLOSE)
    return type(a) is type(b) and bool(a == b)


def _difference(mine: list[Row], theirs: list[Row], schema: Schema, what: str) -> str:
    lines = [f"{what}: {len(mine)} rows, expected {len(theirs)}"]
    left, missing = list(mine), []
    for row in theirs:
        at = next((i for i, other in enumerate(left) if same(row, other)), None)
        if at is None:
            missing.append(row)
        else:
            del left[at]
    for sign, rows in (("+", left), ("-", missing)):
        lines += [f"  {sign} {_shown(row, schema)}" for row in rows[:6]]
        lines += [f"  {sign} … {len(rows) - 6} more"] if len(rows) > 6 else []
    return "\n".join([*lines, "  (+ came, - was expected)"])


def _shown(row: Row, schema: Schema) -> str:
    return ", ".join(f"{n}={row[n]!r}" for n in schema.names)
