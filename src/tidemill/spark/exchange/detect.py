"""Who has which keys: duplicate and location detection (paper 002, Algorithms 5 and 6) as Spark jobs.

1. Each task sorts the hashes of its keys, and estimates how many there are (`_KEYS`). They stay on its
   host; the driver puts the estimates together and sizes the filter.
2. Each task sends its buckets, as Golomb codes, to the tasks that have their ranges (`_SETS`). Those
   say where each bucket shall go, each source about its own buckets only (`_ANSWERS`).
"""

from __future__ import annotations

import json
import math
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import Column, DataFrame

from tidemill.kernels.buckets import counted, in_buckets
from tidemill.kernels.holders import UNLISTED, best_units, unique_units
from tidemill.kernels.hyperloglog import estimate, registers
from tidemill.spark.exchange.sets import BucketSet
from tidemill.spark.exchange.units import Units

FALSE_POSITIVES = 1 / 8
"""The rate of buckets that two keys share, as in the paper, where rows are narrow."""
FEWEST = 1 / 65536
FIRST_ASKED = 4
"""A side of an inner join that has so many times fewer keys is asked first: the other one need not speak
of keys that this one has not."""
SLACK = 1.5
"""How much more than its fair share of rows a unit may get because it holds them."""

_KEYS = pa.schema([
    ("source", pa.int32()), ("rows", pa.int64()), ("registers", pa.binary()),
    ("hashes", pa.binary()), ("counts", pa.binary()),
])  # fmt: skip
_SETS = pa.schema([("range", pa.int32()), ("source", pa.int32()), ("buckets", pa.binary())])
_ANSWERS = pa.schema([("range", pa.int32()), ("source", pa.int32()), ("answer", pa.binary())])

_NOTHING: dict[str, float] = {"weight": 0.0, "unlisted": 0.0, "filter bytes": 0.0}

Ints = npt.NDArray[np.int64]
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


def locations(sides: Sequence[Side], *, slack: float = SLACK, both: bool = False) -> Detected:
    """Lists, for each source, where its buckets go; of two sides, those that both have.

    With `both`, rows of either side leave whose key the other one has not.
    """
    return _detect(sides, located=True, slack=slack, both=both)


def false_positives(bytes_of_key: float) -> float:
    """The rate at which a bit more for each key, sent to a range, is worth the bytes that it keeps in place.

    A rate `f` costs `log2(1 / f) / 8` bytes for each key and sends `f` of its bytes, which is least at
    `1 / (8 · ln 2 · bytes)`. The paper has 1/8 always, which is right for very narrow rows.

    >>> false_positives(1.0), round(1 / false_positives(400.0))
    (0.125, 2218)
    """
    return min(FALSE_POSITIVES, max(FEWEST, 1 / (8 * math.log(2) * max(1e-9, bytes_of_key))))


def _detect(
    sides: Sequence[Side], *, located: bool, slack: float = SLACK, both: bool = False
) -> Detected:
    began = time.monotonic()
    spark = sides[0].hashes.sparkSession
    keys = reduce(DataFrame.union, (s.hashes.mapInArrow(_own_keys, _ddl(_KEYS)) for s in sides))
    keys.persist()
    try:
        seen = _Seen(sides, keys.select("source", "rows", "registers").toArrow())
        sized = time.monotonic()
        facts = _Facts(
            seen.size(both), max(1, min(len(seen.side_of), spark.sparkContext.defaultParallelism)),
            tuple(u for s in sides for u in s.units.of_partition), seen.side_of,
            tuple(s.width for s in sides), sides[0].units.count, located, slack,
        )  # fmt: skip
        first = seen.first_asked() if both else None
        known = None if first is None else _known(keys, facts, first)
        sets = keys.mapInArrow(_sets(facts, first, known), _ddl(_SETS))
        ranges = sets.repartitionById(facts.ranges, "range")
        found = ranges.mapInArrow(_answers(facts), _ddl(_ANSWERS)).toArrow()
    finally:
        keys.unpersist()
    numbers = _NOTHING | _added_up(found)
    # Of rows that were not asked for, ranges know nothing.
    numbers["unlisted"] += seen.bytes - numbers["weight"]
    numbers |= {
        "rows": seen.rows, "distinct": seen.distinct, "buckets": facts.size, "weight": seen.bytes,
    }  # fmt: skip
    if known is not None:
        numbers["filter bytes"] += len(known) * sides[0].units.count
    seconds = {"hashes": sized - began, "filter": time.monotonic() - sized}
    return Detected(facts.size, _by_side(sides, found), numbers, seconds)


class _Seen:
    """What the sources said of their keys."""

    def __init__(self, sides: Sequence[Side], said: pa.Table) -> None:
        self.side_of = tuple(i for i, s in enumerate(sides) for _ in s.units.of_partition)
        self.rows = 0
        self.bytes = 0.0
        registers: list[list[npt.NDArray[np.uint8]]] = [[] for _ in sides]
        for row in said.to_pylist():
            side = self.side_of[row["source"]]
            registers[side].append(np.frombuffer(row["registers"], dtype=np.uint8))
            self.rows += row["rows"]
            self.bytes += row["rows"] * sides[side].width
        merged = [reduce(np.maximum, own) for own in registers]
        self.keys = [estimate(own) for own in merged]
        self.distinct = estimate(reduce(np.maximum, merged))

    def size(self, both: bool) -> int:
        """How many buckets to have. Where rows without a partner leave, only the other ones are at risk."""
        risk = min(self.keys) / max(1.0, self.distinct) if both else 1.0
        rate = false_positives(risk * self.bytes / max(1.0, self.distinct))
        return max(64, int(self.distinct / rate))

    def first_asked(self) -> int | None:
        """The side that has by far fewer keys."""
        few = int(np.argmin(self.keys))
        return few if FIRST_ASKED * self.keys[few] < self.keys[1 - few] else None


def _known(keys: DataFrame, facts: _Facts, first: int) -> bytes:
    """All buckets of one side. They go to every source of the other one."""

    def task(batches: Iterable[pa.RecordBatch]) -> Batches:
        for row in _rows(batches):
            if facts.side_of[row["source"]] == first:
                own = BucketSet(*facts.buckets(row))
                yield _batch(_SETS, [0], [row["source"]], [own.to_bytes()])

    found = keys.mapInArrow(task, _ddl(_SETS)).toArrow()
    sets = [BucketSet.from_bytes(b).buckets for b in found["buckets"].to_pylist()]
    every = np.unique(np.concatenate([np.empty(0, dtype=np.int64), *sets]))
    return BucketSet(every, np.zeros_like(every)).to_bytes()


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

    def buckets(self, row: dict[str, Any]) -> tuple[Ints, Ints]:
        """Those of a source, and how many rows each has."""
        hashes = np.frombuffer(row["hashes"], dtype=np.uint64)
        found, counts = in_buckets(hashes, np.frombuffer(row["counts"], dtype=np.uint8), self.size)
        return found, counts.astype(np.int64)

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
        _KEYS, [context.partitionId()], [len(hashes)], [registers(own).tobytes()],
        [own.tobytes()], [counts.tobytes()],
    )  # fmt: skip


def _sets(facts: _Facts, first: int | None, known: bytes | None) -> Task:
    """The buckets of each source, to their ranges; of those that were not asked first, the known ones."""

    def task(batches: Iterable[pa.RecordBatch]) -> Batches:
        listed = None if known is None else BucketSet.from_bytes(known).buckets
        for row in _rows(batches):
            buckets, counts = facts.buckets(row)
            if listed is not None and facts.side_of[row["source"]] != first:
                kept = np.isin(buckets, listed, assume_unique=True)
                buckets, counts = buckets[kept], counts[kept]
            # Of duplicates it matters where they are, not how many.
            own = BucketSet(buckets, counts if facts.located else np.zeros_like(buckets))
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
