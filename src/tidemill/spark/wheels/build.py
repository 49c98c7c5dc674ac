"""Build wheels with Spark: it aggregates by key and slot, and tasks fill a wheel for each bucket of keys.

The store is a directory that every worker reaches. A bucket is a saved wheel; the manifest of the store
has the current save of each bucket and the common watermark. It is written last, so that a build or an
append that fails changes nothing.
"""

from __future__ import annotations

import os
import time as clock
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import PythonException
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tidemill.aggregates.algebra import EVENT_TIME, Aggregate
from tidemill.core.checksums import CHECKSUM
from tidemill.core.errors import UnsupportedError, UserError
from tidemill.core.files import have_directory, require_own_directory
from tidemill.core.instants import ticks_of
from tidemill.core.schema import Schema
from tidemill.core.schema import schema as read_schema
from tidemill.core.time import FARTHEST, Domain, InstantLike, to_datetime
from tidemill.expr.nodes import Column
from tidemill.local.partial_batches import PANE, key_name
from tidemill.spark.batch.blocks import Blocks
from tidemill.spark.batch.windows import partials_by_pane
from tidemill.spark.errors import our_error
from tidemill.spark.expr.compile import SparkExpressions
from tidemill.spark.expr.values import canonical
from tidemill.spark.frames import require_batch
from tidemill.spark.settings import ansi
from tidemill.spark.wheels.leftovers import forget_buckets
from tidemill.spark.workers import Batches, Task, map_batches
from tidemill.wheels.files.buckets import (
    BUCKETS,
    MOST_BUCKETS,
    bucket_path,
    empty_bucket,
    open_bucket,
    read_store,
)
from tidemill.wheels.files.claims import claimed, tidying
from tidemill.wheels.files.format import saves_in, write_save
from tidemill.wheels.files.saving import described, save
from tidemill.wheels.lineage import Lineage
from tidemill.wheels.partials import PartialsIn
from tidemill.wheels.rings import DEFAULT, Retention, RingLike, rings_of
from tidemill.wheels.spec import (
    BLOCK_SLOTS,
    KEYED_BLOCK,
    block_slots,
    named_aggregates,
    named_keys,
    read_spec,
)
from tidemill.wheels.state import WheelState, empty_state

BUCKET = "bucket"
DEFAULT_BUCKETS = 16
CELLS_TO_A_BLOCK = 4096
"""The approximate number of cells in a compressed block."""


@dataclass(frozen=True)
class WheelReport:
    """The result of a build or an append."""

    path: str
    version: int
    """The number of the save: `tm.open_wheel(path, save=…)`."""
    watermark: Any
    rows: int
    left_out: dict[str, int]
    """The number of rows left out, by reason; `rows_left_out` has these rows."""
    buckets: int
    """The number of buckets that were written; the others are unchanged."""
    seconds: float
    rows_left_out: DataFrame = field(repr=False)
    """The rows left out, as a lazy DataFrame."""


def build_wheel(
    df: DataFrame,
    path: str | os.PathLike[str],
    aggregates: Aggregate | Mapping[str, Aggregate],
    *,
    time: str,
    keys: str | Sequence[str] = (),
    start: InstantLike | None = None,
    until: InstantLike | None = None,
    granularities: Iterable[RingLike] = DEFAULT,
    retention: Retention = "keep",
    buckets: int = DEFAULT_BUCKETS,
    compress: bool | int = True,
    prefix: bool = False,
    one_ring_below: int = 0,
) -> WheelReport:
    """Build a wheel from the rows of a DataFrame, in a new or empty directory.

    The watermark is `until`, by default the end of the slot of the last row. Rows before `start`, at or
    after `until`, or without a time are left out and counted. Keys are spread over `buckets` saved wheels,
    which `tm.open_wheel(path)` reads as one. Every worker must reach the directory by this path.

    Other arguments are as in `tm.Wheel`; slots are compressed unless `prefix` is set. The rows are read
    twice: first their times, then all columns.
    """
    require_batch("build wheel", df)
    where = Path(path).resolve()
    if saves_in(where):
        raise UserError(
            "build wheel", expected="a directory without a wheel", got=str(where),
            hint="tm.spark.append(df, path) adds to an existing wheel",
        )  # fmt: skip
    block_slots(compress, keyed=bool(keys))  # checks `compress`
    if not isinstance(buckets, int) or isinstance(buckets, bool) or not 0 < buckets <= MOST_BUCKETS:
        raise UserError("build wheel", expected=f"1 to {MOST_BUCKETS} buckets", got=repr(buckets))
    names = named_keys(keys, "build wheel")
    given = named_aggregates(aggregates, "build wheel")
    schema = _columns_of(df, given, time, names)
    begin = clock.perf_counter()
    rings = list(granularities)
    grain = rings_of(rings, retention, step="build wheel")[0][0].ticks
    survey = _survey(df, schema, time, grain, start, until)
    spec = read_spec(
        given, schema=schema, time=time, keys=names, granularities=rings, retention=retention,
        write_ahead=64, prefix=prefix, one_ring_below=one_ring_below, compress=False, windows={},
    )  # fmt: skip
    if spec.objects:
        raise UnsupportedError(
            "build wheel", f"{spec.objects}: its partials are Python objects",
            instead="make such a wheel in process: tm.Wheel(...)",
        )  # fmt: skip
    facts = described(empty_state(spec, survey.first // grain))
    count = buckets if names else 1
    facts[BUCKETS] = {"count": count, "saves": {}, "until": survey.first // grain}
    facts["compress"] = False if prefix else compress
    return _fill(df, where, facts, given, survey, None, begin)


def append(
    df: DataFrame, path: str | os.PathLike[str], *, until: InstantLike | None = None,
    aggregates: Mapping[str, Aggregate] | None = None,
) -> WheelReport:  # fmt: skip
    """Append rows at or above the watermark to a wheel that Spark built.

    Only buckets with new rows are written, and only new slots if the wheel is compressed. Rows below the
    watermark are late: they are left out and counted, so a repeated append adds nothing. The watermark
    advances to `until`, by default the end of the slot of the last row. Buckets are compared with their
    checksums before they are written again.
    """
    require_batch("append", df)
    where = Path(path).resolve()
    hint = "tm.open_wheel(path).insert(rows) adds to it"
    facts = read_store(where, aggregates or {}, step="append", hint=hint)
    begin = clock.perf_counter()
    schema = empty_bucket(facts, aggregates or {}, 0, 0).schema
    grain = facts["rings"][0][0]
    start = _instant(facts[BUCKETS]["until"] * grain, schema[facts["time"]])
    _check_columns(df, schema)
    survey = _survey(df, schema, facts["time"], grain, start, until)
    return _fill(df, where, facts, aggregates or {}, survey, facts["save"], begin)


# --- which rows -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Survey:
    """The range of times of the rows to insert, in ticks, and the rows to leave out."""

    first: int
    until: int
    rows: int
    left_out: dict[str, int]
    rows_left_out: DataFrame
    inside: SparkColumn


def _survey(
    df: DataFrame, schema: Schema, time: str, grain: int, start: InstantLike | None,
    until: InstantLike | None,
) -> _Survey:  # fmt: skip
    """Read all times once. Given bounds are rounded down to the grid."""
    domain = Domain.LOGICAL if schema[time].kind == "int64" else Domain.CLOCK
    low = -FARTHEST if start is None else ticks_of(start, domain, "wheel start") // grain * grain
    high = FARTHEST if until is None else ticks_of(until, domain, "wheel until") // grain * grain
    raw = {f.name: f.dataType for f in df.schema}
    with ansi(df.sparkSession):
        tick = SparkExpressions(schema, raw).column(Column(time))
        why = (
            F.when(tick.isNull(), "null time").when(tick.between(low, high - 1), None)
            .when((tick < -FARTHEST) | (tick > FARTHEST), "time out of range")
            .when(tick < low, "late").otherwise("ahead")
        )  # fmt: skip
        found = df.select(tick.alias("tick"), why.alias("why")).groupBy("why").agg(
            F.min("tick").alias("first"), F.max("tick").alias("last"), F.count("*").alias("rows")
        ).collect()  # fmt: skip
        left = df.withColumn("left_out", why).filter(F.col("left_out").isNotNull())
    counts = {r["why"]: r["rows"] for r in found}
    inside = next((r for r in found if r["why"] is None), None)
    first = low if start is not None else (inside["first"] if inside else 0)
    last = high if until is not None else (inside["last"] + 1 if inside else first)
    left_out = {n: counts.get(n, 0) for n in ("late", "null time", "time out of range", "ahead")}
    rows = inside["rows"] if inside else 0
    # `inside` excludes rows that the source may add before the second reading.
    return _Survey(first, last, rows, left_out, left, tick.between(low, last - 1))


def _columns_of(
    df: DataFrame, given: Mapping[str, Aggregate], time: str, keys: tuple[str, ...]
) -> Schema:
    """The schema of the columns that the wheel needs."""
    used = [n.name for a in given.values() for arg in a.args for n in arg.walk() if isinstance(n, Column)]
    wanted = [n for n in dict.fromkeys([time, *keys, *used]) if n != EVENT_TIME.name]
    schema = column_types(df, wanted, step="build wheel")
    if not schema[time].is_ticks:
        raise UserError(
            "build wheel", expected=f"time column {time!r} of type timestamp (clock) or int64 (logical)",
            got=repr(schema[time]),
        )  # fmt: skip
    return schema


def column_types(df: DataFrame, names: Iterable[str], *, step: str) -> Schema:
    """The schema of some columns of a DataFrame; missing columns are an error."""
    fields = {f.name: f for f in df.schema.fields}
    for name in names:
        if name not in fields:
            raise UserError(step, expected=f"a column {name!r}", got=f"columns {df.columns}")
    return read_schema(type(df.schema)([fields[n] for n in names]), step=step)


def _check_columns(df: DataFrame, schema: Schema) -> None:
    found = column_types(df, schema.names, step="append")
    for name, kind in schema:
        if found[name] != kind:
            raise UserError(
                "append", expected=f"a column {name!r} of type {kind!r}", got=repr(found[name])
            )


def _instant(ticks: int, kind: Any) -> Any:
    return ticks if kind.kind == "int64" else to_datetime(ticks)


# --- rows in --------------------------------------------------------------------------------------


def _fill(
    df: DataFrame, where: Path, facts: dict[str, Any], given: Mapping[str, Aggregate], survey: _Survey,
    after: int | None, begin: float,
) -> WheelReport:  # fmt: skip
    have_directory(where, step="build wheel")
    grain = facts["rings"][0][0]
    # Without a given `until`, the slot of the last row counts as complete.
    until = max(-(-survey.until // grain), facts[BUCKETS]["until"])
    try:
        with claimed(where, (after or 0) + 1, "build wheel") as job:
            written = _written(df, where, facts, given, survey, until, job) if survey.rows else []
            saves = facts[BUCKETS]["saves"] | {str(r["bucket"]): r["save"] for r in written}
            facts = {k: v for k, v in facts.items() if k not in ("format", "save", "files", CHECKSUM)}
            line = Lineage(facts["name"], facts["line"])
            if after is not None:  # appends to two copies of a directory are two lines
                line.opened = facts["rows"], facts[BUCKETS]["until"], 0
            facts["rows"] += survey.rows
            line.start_branch((facts["rows"], until, 0))
            facts["line"] = line.line
            facts[BUCKETS] = {**facts[BUCKETS], "saves": saves, "until": until}
            total = facts["left out"]
            facts["left out"] = {n: total.get(n, 0) + c for n, c in survey.left_out.items()}
            saved = write_save(where, {}, facts, after=0 if after is None else after)
    finally:  # also the leftovers of this job, if it failed
        with tidying(where):
            forget_buckets(where)
    domain = Domain[facts["domain"]]
    mark = until * grain if domain is Domain.LOGICAL else to_datetime(until * grain)
    return WheelReport(
        str(where), saved.number, mark, survey.rows, survey.left_out, len(written),
        clock.perf_counter() - begin, survey.rows_left_out,
    )  # fmt: skip


def _written(
    df: DataFrame, where: Path, facts: Mapping[str, Any], given: Mapping[str, Aggregate],
    survey: _Survey, until: int, job: str,
) -> list[Any]:  # fmt: skip
    """Fill the buckets that have rows; returns their numbers and saves."""
    prototype = empty_bucket(facts, given, facts[BUCKETS]["until"], 0)
    plan = prototype.plan
    count = facts[BUCKETS]["count"]
    with ansi(df.sparkSession):
        partials, blocks = partials_by_pane(plan, df.filter(survey.inside))
        keys = [(key_name(i), plan.input.schema[k].kind) for i, k in enumerate(plan.group_keys)]
        bucket = bucket_of([canonical(F.col(n)) if k == "float64" else F.col(n) for n, k in keys], count)
        together = partials.withColumn(BUCKET, bucket).repartitionById(count, BUCKET)
        task = _filling(where, facts, given, until, blocks, job)
        filled = map_batches(together, task, "bucket int, save int")
        try:
            return filled.collect()
        except PythonException as failed:
            ours = our_error(failed, "build wheel")
            if ours is None:
                raise
            raise ours from failed


def bucket_of(keys: list[SparkColumn], count: int) -> SparkColumn:
    """The bucket of a key. This must never change: existing stores depend on it."""
    return F.pmod(F.xxhash64(*keys), F.lit(count)).cast("int") if keys else F.lit(0)


def _filling(
    where: Path, facts: Mapping[str, Any], given: Mapping[str, Aggregate], until: int,
    blocks: Blocks | None, job: str,
) -> Task:  # fmt: skip
    """A task that fills and saves one bucket from its partials, and yields its number and save."""

    def task(batches: Batches) -> Iterator[pa.RecordBatch]:
        held = [b for b in batches if b.num_rows]
        if not held:
            return
        bucket = held[0].column(BUCKET)[0].as_py()
        wheel = _wheel_for(where, facts, given, bucket, held)
        partials = PartialsIn(wheel)
        for batch in held:
            for part in (batch,) if blocks is None else blocks.partials(batch):
                partials.add(part)
        partials.close(until)
        # Old saves are removed by the driver: only it knows when all buckets are done.
        own = bucket_path(where, bucket)
        require_own_directory(own, step="build wheel")
        number = save(wheel, own, job=job)
        yield pa.RecordBatch.from_pydict(
            {"bucket": pa.array([bucket], pa.int32()), "save": pa.array([number], pa.int32())}
        )

    return task


def _wheel_for(
    where: Path, facts: Mapping[str, Any], given: Mapping[str, Aggregate], bucket: int,
    held: list[pa.RecordBatch],
) -> WheelState:  # fmt: skip
    if str(bucket) in facts[BUCKETS]["saves"]:
        return open_bucket(where, facts, given, bucket, verify=True)
    first = facts[BUCKETS]["until"]
    # The bucket had no rows before, so it starts at the store's watermark.
    slots = facts["compress"]
    return empty_bucket(facts, given, first, _block_slots(held) if slots is True else int(slots))


def _block_slots(held: list[pa.RecordBatch]) -> int:
    """Slots per block, so that it has about `CELLS_TO_A_BLOCK` cells: few slots if there are many keys."""
    panes = [pc.min_max(b.column(PANE)) for b in held]
    span = max(p["max"].as_py() for p in panes) - min(p["min"].as_py() for p in panes) + 1
    keys = max(1, sum(b.num_rows for b in held) // max(1, span))
    slots = KEYED_BLOCK
    while slots < BLOCK_SLOTS and slots * keys < CELLS_TO_A_BLOCK:
        slots *= 2
    return slots
