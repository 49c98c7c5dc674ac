"""Who has which keys: duplicate and location detection (paper 002, Algorithms 5 and 6) as Spark jobs.

1. Each task sorts the hashes of its keys, and estimates how many there are (`_KEYS`). They stay on its
   host; the driver puts the estimates together and sizes the filter.
2. Each task sends its buckets, as Golomb codes, to the tasks that have their ranges (`_SETS`). Those
   say where each bucket shall go, each source about its own buckets only (`_ANSWERS`).
"""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import Column, DataFrame

from tidemill.kernels.buckets import counted, in_buckets
from tidemill.kernels.holders import UNLISTED, best_units, unique_units
from tidemill.kernels.hyperloglog import estimate, registers
from tidemill.spark.exchange.sets import BucketSet
from tidemill.spark.exchange.units import Units

FALSE_POSITIVES = 1 / 8
"""The rate of buckets that two keys share, as in the paper."""
SLACK = 1.5
"""How much more than its fair share of rows a unit may get because it holds them."""

_KEYS = pa.schema([
    ("source", pa.int32()), ("rows", pa.int64()), ("keys", pa.int64()), ("registers", pa.binary()),
    ("hashes", pa.binary()), ("counts", pa.binary()),
])  # fmt: skip
_SETS = pa.schema([("range", pa.int32()), ("source", pa.int32()), ("buckets", pa.binary())])
_ANSWERS = pa.schema([("range", pa.int32()), ("source", pa.int32()), ("answer", pa.binary())])

Batches = Iterator[pa.RecordBatch]
Task = Callable[[Iterable[pa.RecordBatch]], Batches]


@dataclass(frozen=True)
class Side:
    """One input of an exchange: hashes of its rows, null for rows without a key, and their width."""

    hashes: DataFrame
    units: Units
    width: float = 1.0

    @staticmethod
    def of(df: DataFrame, hash: Column, units: Units, width: float = 1.0) -> Side:
        return Side(df.select(hash.alias("hash")), units, width)


@dataclass(frozen=True)
class Detected:
    """What each partition of each side must know to send its rows, and what it took to find out."""

    size: int
    """How many buckets the filter has."""
    answers: tuple[tuple[bytes, ...], ...]
    numbers: dict[str, float] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)


def duplicates(side: Side) -> Detected:
    """Lists, for each source, the buckets that only its unit has."""
    return _detect((side,), located=False)


def locations(sides: Sequence[Side], *, slack: float = SLACK) -> Detected:
    """Lists, for each source, where its buckets go; of two sides, those that both have."""
    return _detect(sides, located=True, slack=slack)


def _detect(sides: Sequence[Side], *, located: bool, slack: float = SLACK) -> Detected:
    began = time.monotonic()
    spark = sides[0].hashes.sparkSession
    keys = reduce(DataFrame.union, (s.hashes.mapInArrow(_own_keys, _ddl(_KEYS)) for s in sides))
    keys.persist()
    try:
        seen = keys.select("rows", "keys", "registers").toArrow().to_pydict()
        merged = reduce(np.maximum, (np.frombuffer(r, dtype=np.uint8) for r in seen["registers"]))
        distinct = estimate(merged)
        size = max(64, int(distinct / FALSE_POSITIVES))
        sized = time.monotonic()
        facts = _Facts(
            size, max(1, min(len(seen["rows"]), spark.sparkContext.defaultParallelism)),
            tuple(u for s in sides for u in s.units.of_partition),
            tuple(i for i, s in enumerate(sides) for _ in s.units.of_partition),
            tuple(s.width for s in sides), sides[0].units.count, located, slack,
        )  # fmt: skip
        sets = keys.mapInArrow(_sets(facts), _ddl(_SETS)).repartitionById(facts.ranges, "range")
        found = sets.mapInArrow(_answers(facts), _ddl(_ANSWERS)).toArrow()
    finally:
        keys.unpersist()
    numbers = _added_up(found)
    numbers |= {"rows": sum(seen["rows"]), "distinct": distinct, "buckets": size}
    seconds = {"hashes": sized - began, "filter": time.monotonic() - sized}
    return Detected(size, _by_side(sides, found), numbers, seconds)


@dataclass(frozen=True)
class _Facts:
    """What tasks must know."""

    size: int
    ranges: int
    unit_of: tuple[int, ...]
    side_of: tuple[int, ...]
    widths: tuple[float, ...]
    units: int
    located: bool
    slack: float

    def low(self, part: int) -> int:
        """The first bucket of a range."""
        return self.size * part // self.ranges


def _own_keys(batches: Iterable[pa.RecordBatch]) -> Batches:
    context = TaskContext.get()
    assert context is not None
    columns = [b.column(0).drop_null() for b in batches]
    parts = [np.frombuffer(c.buffers()[1], dtype=np.uint64)[c.offset : c.offset + len(c)] for c in columns]
    hashes = np.concatenate([np.empty(0, dtype=np.uint64), *parts])
    own, counts = counted(hashes)
    yield _batch(
        _KEYS, [context.partitionId()], [len(hashes)], [len(own)], [registers(own).tobytes()],
        [own.tobytes()], [counts.tobytes()],
    )  # fmt: skip


def _sets(facts: _Facts) -> Task:
    def task(batches: Iterable[pa.RecordBatch]) -> Batches:
        for row in _rows(batches):
            hashes = np.frombuffer(row["hashes"], dtype=np.uint64)
            counts = np.frombuffer(row["counts"], dtype=np.uint8)
            buckets, numbers = in_buckets(hashes, counts, facts.size)
            # Of duplicates it matters where they are, not how many.
            own = BucketSet(buckets, numbers.astype(np.int64) if facts.located else np.zeros_like(buckets))
            parts = [own.within(facts.low(r), facts.low(r + 1)) for r in range(facts.ranges)]
            full = [r for r, part in enumerate(parts) if len(part)]
            sent = [parts[r].to_bytes() for r in full]
            yield _batch(_SETS, full, [row["source"]] * len(full), sent)

    return task


def _answers(facts: _Facts) -> Task:
    def task(batches: Iterable[pa.RecordBatch]) -> Batches:
        rows = list(_rows(batches))
        if not rows:
            return
        sets = [BucketSet.from_bytes(row["buckets"]) for row in rows]
        sources = np.repeat([row["source"] for row in rows], [len(s) for s in sets])
        buckets = np.concatenate([s.buckets for s in sets])
        counts = np.concatenate([s.numbers for s in sets])
        order = np.argsort(buckets, kind="stable")
        buckets, sources, counts = buckets[order], sources[order], counts[order]
        unit_of, side_of = np.array(facts.unit_of), np.array(facts.side_of)
        weights = np.array(facts.widths)[side_of[sources]] * np.maximum(counts, 1)
        if facts.located:
            found = best_units(
                buckets, sources, weights, unit_of, side_of, units=facts.units,
                both=len(facts.widths) > 1, slack=facts.slack,
            )  # fmt: skip
            units = found.units
        else:
            units = np.empty(len(buckets), dtype=np.int64)
            unique_units(buckets, sources, unit_of, units)
        listed = units != UNLISTED
        numbers = {
            "entries": len(buckets),
            "filled": len(np.unique(buckets)),
            "listed": int(listed.sum()),
            "weight": float(weights.sum()),
            "stays": float(weights[listed & (units == unit_of[sources])].sum()),
            "unlisted": float(weights[~listed].sum()),
            "filter bytes": sum(len(row["buckets"]) for row in rows),
            "code bits": sum(BucketSet.code_bits(row["buckets"]) for row in rows),
        }
        answers = []
        for source in np.unique(sources):
            own = listed & (sources == source)
            answers.append((int(source), BucketSet(buckets[own], units[own]).to_bytes()))
        numbers["answer bytes"] = sum(len(a) for _, a in answers)
        answers.append((-1, json.dumps(numbers).encode()))
        part = rows[0]["range"]
        yield _batch(_ANSWERS, [part] * len(answers), *map(list, zip(*answers)))

    return task


def _added_up(found: pa.Table) -> dict[str, float]:
    total: dict[str, float] = {}
    for row in found.to_pylist():
        if row["source"] < 0:
            for name, value in json.loads(row["answer"]).items():
                total[name] = total.get(name, 0) + value
    return total


def _by_side(sides: Sequence[Side], found: pa.Table) -> tuple[tuple[bytes, ...], ...]:
    """What each source is told: its answers in the order of ranges, each after its length."""
    told: dict[int, list[tuple[int, bytes]]] = {}
    for row in found.to_pylist():
        told.setdefault(row["source"], []).append((row["range"], row["answer"]))
    out, source = [], 0
    for side in sides:
        own = []
        for unit in side.units.of_partition:
            parts = [p for _, p in sorted(told.get(source, []))]
            own.append(struct.pack("<qq", unit, len(parts)) + b"".join(_sized(p) for p in parts))
            source += 1
        out.append(tuple(own))
    return tuple(out)


def _sized(part: bytes) -> bytes:
    return struct.pack("<q", len(part)) + part


def read_answer(data: bytes) -> tuple[int, BucketSet]:
    """What a source was told: its own unit, and its listed buckets with their units."""
    unit, parts = struct.unpack_from("<qq", data)
    at, sets = 16, []
    for _ in range(parts):
        (length,) = struct.unpack_from("<q", data, at)
        sets.append(BucketSet.from_bytes(data[at + 8 : at + 8 + length]))
        at += 8 + length
    none: Any = np.empty(0, dtype=np.int64)
    return unit, BucketSet(
        np.concatenate([none, *(s.buckets for s in sets)]), np.concatenate([none, *(s.numbers for s in sets)])
    )


def _rows(batches: Iterable[pa.RecordBatch]) -> Iterator[dict[str, Any]]:
    for batch in batches:
        yield from batch.to_pylist()


def _batch(schema: pa.Schema, *columns: list[Any]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(c, t.type) for c, t in zip(columns, schema)], schema=schema)


def _ddl(schema: pa.Schema) -> str:
    names = {pa.int32(): "int", pa.int64(): "long", pa.binary(): "binary"}
    return ", ".join(f"{f.name} {names[f.type]}" for f in schema)
