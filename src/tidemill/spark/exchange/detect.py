"""Who has which keys: duplicate and location detection (paper 002, Algorithms 5 and 6) as Spark jobs.

1. Each task sorts the hashes of its keys, and estimates how many there are (`_KEYS`). They stay on its
   host; the driver puts the estimates together and sizes the filter.
2. Each task sends its buckets, as Golomb codes, to the tasks that have their ranges (`_SETS`). Those
   tell each source which of its buckets leave, and where to (`_ANSWERS`). Of those that stay nothing is said.
"""

from __future__ import annotations

import json
import math
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import groupby, pairwise
from operator import itemgetter
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tidemill.kernels.buckets import counted, in_buckets
from tidemill.kernels.holders import STAYS, located
from tidemill.kernels.hyperloglog import estimate, registers
from tidemill.spark.exchange import partitions
from tidemill.spark.exchange.network import core_count
from tidemill.spark.exchange.sets import BucketSet
from tidemill.spark.exchange.slots import Slots
from tidemill.spark.settings import ADAPTIVE, setting
from tidemill.spark.workers import settled

FALSE_POSITIVES = 1 / 8
"""The rate of buckets that two keys share, as in the paper, where rows are narrow."""
SURE = 0.02
"""The part of its bytes that a key may cost so that no two keys are taken for one."""
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
_ANSWERS = pa.schema([
    ("range", pa.int32()), ("source", pa.int32()), ("listed", pa.int64()), ("answer", pa.binary()),
])  # fmt: skip

Ints = npt.NDArray[np.int64]
Batches = Iterator[pa.RecordBatch]
Task = Callable[[Iterable[pa.RecordBatch]], Batches]


@dataclass(frozen=True)
class Side:
    """One input of an exchange: the hashes in each partition, how many rows have each, and their width."""

    hashes: DataFrame
    width: float = 1.0

    @staticmethod
    def of(df: DataFrame, hash: Column, width: float = 1.0, *, unique: bool = False) -> Side:
        """Rows whose hash is null have no key. `unique` says that a partition has a key once."""
        hashes = df.select(F.spark_partition_id().alias("partition"), hash.alias("hash"))
        hashes = hashes.filter("hash IS NOT NULL")
        if unique:
            return Side(hashes.select("*", F.lit(1).cast("long").alias("rows")), width)
        # There are fewer of them, often by far, and Python takes longer for each than Spark.
        own = partitions.arranged_by(hashes, "partition").groupBy("partition", "hash")
        return Side(own.agg(F.count("*").alias("rows")), width)


@dataclass(frozen=True)
class Detected:
    """What each partition of each side must know to send its rows, and what it took to find out."""

    bits: int
    """Of a bucket: the high ones of a hash."""
    answers: tuple[tuple[bytes, ...], ...]
    leaving: tuple[int, ...]
    """For each side, how many buckets leave the partition that most of them leave."""
    numbers: dict[str, float] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)


def duplicates(side: Side, slots: Slots) -> Detected:
    """Of buckets that several slots have, where their rows meet; who has one alone keeps it (Algorithm 5)."""
    return _detect((side,), slots, counts=False)


def locations(
    sides: Sequence[Side], slots: Slots, *, slack: float = SLACK, partners: bool = False,
    inner: bool = False, bits: int = 0,
) -> Detected:  # fmt: skip
    """Where rows meet: in the slot that holds most of a bucket (Algorithm 6).

    With `partners`, rows stay whose bucket the other side has not; if the join is `inner`, the larger side
    need not speak of them. Buckets have so many `bits` at least.
    """
    return _detect(
        sides, slots, counts=True, slack=slack, partners=partners, inner=inner, least=bits
    )


def false_positives(bytes_of_key: float) -> float:
    """The rate at which a bit more for each key, sent to a range, is worth the bytes that it keeps in place.

    A rate `f` costs `log2(1 / f) / 8` bytes for each key and sends `f` of its bytes, which is least at
    `1 / (8 · ln 2 · bytes)`. The paper has 1/8 always, which is right for very narrow rows.

    >>> false_positives(1.0), round(1 / false_positives(400.0))
    (0.125, 2218)
    """
    return min(FALSE_POSITIVES, 1 / (8 * math.log(2) * max(1e-9, bytes_of_key)))


def bucket_bits(distinct: float, bytes_of_key: float) -> int:
    """The number of buckets, a power of two, for so many keys.

    Where keys have many bytes, a few bits more make it likely that no two keys share a bucket: rows that are
    all where they belong then need not be looked through for some that must leave.

    >>> bucket_bits(1000, 1.0), bucket_bits(1000, 400.0)
    (13, 26)
    """
    rate = false_positives(bytes_of_key)
    sure = 1 / (64 * max(1.0, distinct))
    if math.log2(rate / sure) / 8 <= SURE * bytes_of_key:
        rate = min(rate, sure)
    return min(62, max(6, math.ceil(math.log2(max(1.0, distinct) / rate))))


def _detect(
    sides: Sequence[Side], slots: Slots, *, counts: bool, slack: float = SLACK, partners: bool = False,
    inner: bool = False, least: int = 0,
) -> Detected:  # fmt: skip
    spark = sides[0].hashes.sparkSession
    began = time.monotonic()
    with setting(
        spark, ADAPTIVE, "false"
    ):  # or Spark runs a job more to see how large the keys are
        keys = _keys(sides, slots).persist()
        try:
            seen = _Seen(sides, slots, keys.select("source", "rows", "registers").toArrow())
            sized = time.monotonic()
            bits = max(least, seen.bits(inner))
            facts = _Facts(
                bits, min(len(seen.side_of), core_count(spark)),
                tuple(s for own in slots.of_side for s in own), seen.side_of, slots.host_of,
                tuple(s.width for s in sides), counts, partners, slack,
            )  # fmt: skip
            first = seen.first_asked() if inner else None
            known = None if first is None else _known(keys, facts, first)
            sets = keys.mapInArrow(_sets(facts, first, known), _ddl(_SETS))
            ranges = sets.repartitionById(facts.ranges, "range")
            found = ranges.mapInArrow(_answers(facts), _ddl(_ANSWERS)).toArrow()
        finally:
            keys.unpersist()
    numbers = _numbers(found)
    numbers |= {
        "rows": seen.rows, "distinct": seen.distinct, "buckets": float(1 << bits), "weight": seen.bytes,
    }  # fmt: skip
    if known is not None:
        numbers["filter bytes"] += len(known) * len(set(facts.host_of))
    seconds = {"hashes": sized - began, "filter": time.monotonic() - sized}
    return Detected(bits, *_by_side(slots, found), numbers, seconds)


def _keys(sides: Sequence[Side], slots: Slots) -> DataFrame:
    """The keys of every source, a row each; sources are the partitions of all sides, counted through.

    As many tasks as there are cores: each has to begin and end a talk with Python.
    """
    found, first = [], 0
    for side, own in zip(sides, slots.of_side):
        source = (F.col("partition") + F.lit(first)).alias("source")
        found.append(side.hashes.select(source, "hash", "rows"))
        first += len(own)
    every = reduce(DataFrame.union, found)
    return every.coalesce(min(first, core_count(every.sparkSession))).mapInArrow(
        _own_keys, _ddl(_KEYS)
    )


class _Seen:
    """What the sources said of their keys."""

    def __init__(self, sides: Sequence[Side], slots: Slots, said: pa.Table) -> None:
        self.side_of = tuple(i for i, own in enumerate(slots.of_side) for _ in own)
        self.rows = 0
        self.bytes = 0.0
        said_by = [[registers(np.empty(0, dtype=np.uint64))] for _ in sides]
        for row in said.to_pylist():
            side = self.side_of[row["source"]]
            said_by[side].append(np.frombuffer(row["registers"], dtype=np.uint8))
            self.rows += row["rows"]
            self.bytes += row["rows"] * sides[side].width
        merged = [reduce(np.maximum, own) for own in said_by]
        self.keys = [estimate(own) for own in merged]
        self.distinct = estimate(reduce(np.maximum, merged))

    def bits(self, inner: bool) -> int:
        """How many buckets to have. Where rows without a partner vanish, only the other ones are at risk."""
        risk = min(self.keys) / max(1.0, self.distinct) if inner else 1.0
        return bucket_bits(self.distinct, risk * self.bytes / max(1.0, self.distinct))

    def first_asked(self) -> int | None:
        """The side that has by far fewer keys."""
        few = int(np.argmin(self.keys))
        return few if FIRST_ASKED * self.keys[few] < self.keys[1 - few] else None


def _known(keys: DataFrame, facts: _Facts, first: int) -> bytes:
    """All buckets of one side. They go to every source of the other one."""

    @settled
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

    bits: int
    ranges: int
    slot_of: tuple[int, ...]
    side_of: tuple[int, ...]
    host_of: tuple[int, ...]
    widths: tuple[float, ...]
    counts: bool
    partners: bool
    slack: float

    def buckets(self, row: dict[str, Any]) -> tuple[Ints, Ints]:
        """Those of a source, and how many rows each has."""
        hashes = np.frombuffer(row["hashes"], dtype=np.uint64)
        found, counts = in_buckets(
            hashes, np.frombuffer(row["counts"], dtype=np.uint8), 1 << self.bits
        )
        return found, counts.astype(np.int64)

    def low(self, part: int) -> int:
        """The first bucket of a range."""
        return (part << self.bits) // self.ranges


@settled
def _own_keys(batches: Iterable[pa.RecordBatch]) -> Batches:
    """The keys of each partition. A task has several, one after the other."""
    columns = ([c.to_numpy() for c in b.columns] for b in batches)
    runs = (run for source, *rest in columns for run in _runs(source, rest))
    for source, parts in groupby(runs, key=itemgetter(0)):
        hashes, rows = (np.concatenate(column) for column in zip(*(part for _, part in parts)))
        own, counts = counted(hashes.view(np.uint64), rows)
        yield _batch(
            _KEYS, [source], [int(rows.sum())], [registers(own).tobytes()], [own.tobytes()],
            [counts.tobytes()],
        )  # fmt: skip


def _runs(sources: Ints, columns: Sequence[Ints]) -> Iterator[tuple[int, list[Ints]]]:
    """Parts of columns that are of one source."""
    cuts = [0, *(np.flatnonzero(np.diff(sources)) + 1).tolist(), len(sources)]
    for begin, end in pairwise(cuts):
        if begin < end:
            yield int(sources[begin]), [c[begin:end] for c in columns]


def _sets(facts: _Facts, first: int | None, known: bytes | None) -> Task:
    """The buckets of each source, to their ranges; of those that were not asked first, the known ones."""

    @settled
    def task(batches: Iterable[pa.RecordBatch]) -> Batches:
        listed = None if known is None else BucketSet.from_bytes(known).buckets
        for row in _rows(batches):
            buckets, counts = facts.buckets(row)
            if listed is not None and facts.side_of[row["source"]] != first:
                kept = np.isin(buckets, listed, assume_unique=True)
                buckets, counts = buckets[kept], counts[kept]
            # Of duplicates it matters where they are, not how many.
            own = BucketSet(buckets, counts if facts.counts else np.zeros_like(buckets))
            parts = [own.within(facts.low(r), facts.low(r + 1)) for r in range(facts.ranges)]
            full = [r for r, part in enumerate(parts) if len(part)]
            sent = [parts[r].to_bytes() for r in full]
            yield _batch(_SETS, full, [row["source"]] * len(full), sent)

    return task


def _answers(facts: _Facts) -> Task:
    @settled
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
        side_of = np.array(facts.side_of)
        weights = np.array(facts.widths)[side_of[sources]] * np.maximum(counts, 1)
        found = located(
            buckets, sources, weights, np.array(facts.slot_of), side_of, np.array(facts.host_of),
            partners=facts.partners, slack=facts.slack,
        )  # fmt: skip
        leaves = found.slots != STAYS
        numbers = {
            "entries": len(buckets),
            "filled": len(np.unique(buckets)),
            "leaving": int(leaves.sum()),
            "leaving bytes": float(weights[leaves].sum()),
            "filter bytes": sum(len(row["buckets"]) for row in rows),
            "code bits": sum(BucketSet.code_bits(row["buckets"]) for row in rows),
            "loads": found.loads.tolist(),
        }
        answers = []
        for source in np.unique(sources[leaves]):
            own = leaves & (sources == source)
            answers.append(
                (int(source), int(own.sum()), BucketSet(buckets[own], found.slots[own]).to_bytes())
            )
        answers.append((_NOTE, 0, json.dumps(numbers).encode()))
        part = rows[0]["range"]
        yield _batch(_ANSWERS, [part] * len(answers), *map(list, zip(*answers)))

    return task


_NOTE = -1
"""In place of a source: what a range says of itself."""


def _numbers(found: pa.Table) -> dict[str, float]:
    """What ranges say of themselves, put together."""
    names = ("entries", "filled", "leaving", "leaving bytes", "filter bytes", "code bits")
    total = dict.fromkeys((*names, "answer bytes"), 0.0)
    loads: Any = 0.0
    for row in found.to_pylist():
        if row["source"] != _NOTE:
            total["answer bytes"] += len(row["answer"])
            continue
        said = json.loads(row["answer"])
        for name in names:
            total[name] += said[name]
        loads = loads + np.array(said["loads"])
    whole = float(np.sum(loads))
    total["largest share"] = float(np.max(loads) / whole) if whole else 0.0
    return total


def _by_side(
    slots: Slots, found: pa.Table
) -> tuple[tuple[tuple[bytes, ...], ...], tuple[int, ...]]:
    """What each source is told, its answers in the order of ranges; how much the longest of a side lists."""
    told: dict[int, list[tuple[int, int, bytes]]] = {}
    for row in found.to_pylist():
        told.setdefault(row["source"], []).append((row["range"], row["listed"], row["answer"]))
    answers, most, source = [], [], 0
    for side in slots.of_side:
        own, listed = [], [0]
        for _ in side:
            parts = sorted(told.get(source, []))
            own.append(b"".join(_sized(data) for _, _, data in parts))
            listed.append(sum(n for _, n, _ in parts))
            source += 1
        answers.append(tuple(own))
        most.append(max(listed))
    return tuple(answers), tuple(most)


def _sized(part: bytes) -> bytes:
    return struct.pack("<q", len(part)) + part


def read_answer(data: bytes) -> BucketSet:
    """What a source was told: the buckets that leave it, and the slots they go to."""
    at, sets = 0, []
    while at < len(data):
        (length,) = struct.unpack_from("<q", data, at)
        sets.append(BucketSet.from_bytes(data[at + 8 : at + 8 + length]))
        at += 8 + length
    none: Any = np.empty(0, dtype=np.int64)
    return BucketSet(
        np.concatenate([none, *(s.buckets for s in sets)]),
        np.concatenate([none, *(s.numbers for s in sets)]),
    )


def _rows(batches: Iterable[pa.RecordBatch]) -> Iterator[dict[str, Any]]:
    for batch in batches:
        yield from batch.to_pylist()


def _batch(schema: pa.Schema, *columns: list[Any]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [pa.array(c, t.type) for c, t in zip(columns, schema)], schema=schema
    )


def _ddl(schema: pa.Schema) -> str:
    names = {pa.int32(): "int", pa.int64(): "long", pa.binary(): "binary"}
    return ", ".join(f"{f.name} {names[f.type]}" for f in schema)
