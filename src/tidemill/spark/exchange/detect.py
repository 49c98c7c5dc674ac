"""Duplicate and location detection (paper 002, Algorithms 5 and 6) as Spark jobs.

1. Each task sorts the hashes of its keys, and estimates their number (`_KEYS`). The hashes stay on its host;
   the driver merges the estimates and sizes the filter.
2. Each task sends its buckets, as Golomb codes, to the tasks of their ranges (`_SETS`). These answer each
   source which of its buckets leave, and to which slots (`_ANSWERS`). Answers omit buckets that stay.
"""

from __future__ import annotations

import json
import math
import struct
import time
from collections.abc import Iterator, Sequence
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

from tidemill.kernels.bucket_holders import STAYS, located
from tidemill.kernels.hash_buckets import counted, in_buckets
from tidemill.kernels.hyperloglog import estimate, registers
from tidemill.spark import private
from tidemill.spark.exchange.bucket_sets import BucketSet
from tidemill.spark.exchange.network import core_count
from tidemill.spark.exchange.result_partitions import ResultPartitions
from tidemill.spark.settings import planned
from tidemill.spark.workers import Batches, Task, map_batches

FALSE_POSITIVES = 1 / 8
"""The false-positive rate of the filter for narrow rows, as in the paper."""
SURE = 0.02
"""The fraction of all bytes that the filter may spend to avoid false positives altogether."""
FIRST_ASKED = 4
"""In an inner join, a side with this many times fewer keys is asked first, so that the other side sends only
keys that the first side has."""
SLACK = 1.5
"""A slot may keep this multiple of its fair share of rows."""
OWNED = 1e15
"""The weight of an owner's row."""
LONGEST = 30
"""The most bits of the mean gap between a source's buckets, so that codes stay short."""

_KEYS = pa.schema([
    ("source", pa.int32()), ("rows", pa.int64()), ("keys", pa.int64()), ("registers", pa.binary()),
    ("sample", pa.binary()),
    ("hashes", pa.binary()), ("counts", pa.binary()),
])  # fmt: skip
_SETS = pa.schema([("range", pa.int32()), ("source", pa.int32()), ("buckets", pa.binary())])
_ANSWERS = pa.schema([
    ("range", pa.int32()), ("source", pa.int32()), ("listed", pa.int64()), ("answer", pa.binary()),
])  # fmt: skip

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Side:
    """An input of an exchange: the hashes in each partition, the rows of each hash, and the row width."""

    hashes: DataFrame
    width: float
    owns: bool
    """Whether its rows always stay in their slot."""

    @staticmethod
    def of(
        df: DataFrame, hash: Column, width: float = 1.0, *, unique: bool = False, owns: bool = False
    ) -> Side:
        """Make a side from rows. A null hash means no key. `unique`: a partition has each key once."""
        hashes = df.select(F.spark_partition_id().alias("partition"), hash.alias("hash"))
        hashes = hashes.filter("hash IS NOT NULL")
        if unique:
            return Side(hashes.select("*", F.lit(1).cast("long").alias("rows")), width, owns)
        # Spark counts equal hashes first: fewer rows reach Python, which takes longer for each.
        own = private.arranged_by(hashes, "partition").groupBy("partition", "hash")
        return Side(own.agg(F.count("*").alias("rows")), width, owns)


@dataclass(frozen=True)
class Detected:
    """The result of detection: for each partition of each side, where to send its rows; and the cost."""

    bits: int
    """The number of bits of a bucket: the high bits of a hash."""
    answers: tuple[tuple[bytes, ...], ...]
    listed: tuple[tuple[int, ...], ...]
    """For each side, how many buckets leave each partition."""
    bytes: tuple[float, ...]
    """The approximate bytes of each side's rows."""
    numbers: dict[str, float] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)


def false_positives(bytes_of_key: float) -> float:
    """The false-positive rate with the least bytes sent, for keys with this many bytes of rows.

    A rate `f` costs `log2(1 / f) / 8` bytes of filter for each key and sends `f` of its bytes, which is least
    at `1 / (8 · ln 2 · bytes)`. The paper always uses 1/8, which is right for very narrow rows.

    >>> false_positives(1.0), round(1 / false_positives(400.0))
    (0.125, 2218)
    """
    return min(FALSE_POSITIVES, 1 / (8 * math.log(2) * max(1e-9, bytes_of_key)))


def bucket_bits(distinct: float, partners: float, bytes: float, entries: float) -> int:
    """The bits of a bucket, for `distinct` keys whose rows have `bytes` bytes in all.

    In an inner join, the smaller side has `partners` of the keys, and only their rows can be false positives;
    `entries` buckets are sent to ranges. If these are few compared with the bytes, a few more bits make it
    likely that no two keys share a bucket: then inputs that are already in place need no row-by-row lookup.

    >>> bucket_bits(1000, 1000, 1000, 1000), bucket_bits(1000, 1000, 1e6, 1000)
    (13, 26)
    """
    distinct, partners = max(1.0, distinct), max(1.0, partners)
    rate = false_positives(partners / distinct * bytes / distinct)
    sure = 1 / (64 * partners)
    if math.log2(rate / sure) / 8 * entries <= SURE * bytes:
        rate = min(rate, sure)
    return min(61, max(6, math.ceil(math.log2(distinct / rate))))


class Keys:
    """The keys of the inputs of an exchange, cached on their hosts until their slots are known.

    Example::

        with Keys([Side.of(df, hash)], slots) as keys:
            found = keys.locations()
    """

    def __init__(self, sides: Sequence[Side], slots: ResultPartitions, *, sample: int | None = None) -> None:
        """With `sample`, keys whose hash ends in that many zero bits are sent to the driver."""
        self._sides, self._slots = sides, slots
        self._spark = sides[0].hashes.sparkSession
        began = time.monotonic()
        self._keys = _keys(sides, slots, sample).persist()
        try:
            with planned(self._spark):
                said = self._keys.select("source", "rows", "keys", "registers", "sample").toArrow()
        except BaseException:
            self._keys.unpersist()
            raise
        self.seen = Seen(sides, slots, said)
        self.seconds = time.monotonic() - began

    def __enter__(self) -> Keys:
        return self

    def __exit__(self, *failed: object) -> None:
        self._keys.unpersist()

    def duplicates(self) -> Detected:
        """Choose slots for buckets that several slots have; other buckets stay (Algorithm 5)."""
        return self._detect(counts=False)

    def locations(
        self, *, slack: float = SLACK, partners: bool = False, inner: bool = False, bits: int = 0
    ) -> Detected:
        """Choose the slot that holds most of each bucket (Algorithm 6).

        With `partners`, rows whose bucket the other side does not have stay; if the join is `inner`, the
        larger side does not send these buckets. Buckets have at least `bits` bits.
        """
        return self._detect(counts=True, slack=slack, partners=partners, inner=inner, least=bits)

    def _detect(
        self, *, counts: bool, slack: float = SLACK, partners: bool = False, inner: bool = False,
        least: int = 0,
    ) -> Detected:  # fmt: skip
        began = time.monotonic()
        seen, slots = self.seen, self._slots
        bits = max(least, seen.bits(inner))
        facts = _Facts(
            bits, min(len(seen.side_of), core_count(self._spark)),
            tuple(s for own in slots.of_side for s in own), seen.side_of, slots.host_of,
            tuple(OWNED if s.owns else s.width for s in self._sides), counts, partners, slack,
        )  # fmt: skip
        with planned(self._spark):
            first = seen.first_asked() if inner else None
            known = None if first is None else _known(self._keys, facts, first)
            sets = map_batches(self._keys, _sets(facts, first, known), _ddl(_SETS))
            ranges = sets.repartitionById(facts.ranges, "range")
            found = map_batches(ranges, _answers(facts), _ddl(_ANSWERS)).toArrow()
        numbers = _numbers(found)
        numbers |= {
            "rows": sum(seen.rows_of), "distinct": seen.distinct, "buckets": float(1 << bits),
            "weight": sum(seen.bytes_of),
        }  # fmt: skip
        if known is not None:
            numbers["filter bytes"] += len(known) * len(set(facts.host_of))
        seconds = {"hashes": self.seconds, "filter": time.monotonic() - began}
        return Detected(bits, *_by_side(slots, found), tuple(seen.bytes_of), numbers, seconds)


def _keys(sides: Sequence[Side], slots: ResultPartitions, sample: int | None) -> DataFrame:
    """The keys of every source, a row each; sources are the partitions of all sides, numbered consecutively.

    There are about as many tasks as cores, because each task has the overhead of a Python worker.
    """
    found, first = [], 0
    for side, own in zip(sides, slots.of_side):
        source = (F.col("partition") + F.lit(first)).alias("source")
        found.append(side.hashes.select(source, "hash", "rows"))
        first += len(own)
    tasks = slots.dealt(core_count(found[0].sparkSession))
    return map_batches(private.put_together(found, tasks), _own_keys(sample), _ddl(_KEYS))


class Seen:
    """The statistics that the sources report about their keys."""

    def __init__(self, sides: Sequence[Side], slots: ResultPartitions, said: pa.Table) -> None:
        self.side_of = tuple(i for i, own in enumerate(slots.of_side) for _ in own)
        self.widths = tuple(s.width for s in sides)
        self.rows_of, self.entries = [0] * len(sides), 0
        none = np.empty(0, dtype=np.int64)
        sampled = [(none, none, none)]
        said_by = [[registers(np.empty(0, dtype=np.uint64))] for _ in sides]
        for row in said.to_pylist():
            source = row["source"]
            side = self.side_of[source]
            said_by[side].append(np.frombuffer(row["registers"], dtype=np.uint8))
            self.rows_of[side] += row["rows"]
            self.entries += row["keys"]
            keys, rows = np.frombuffer(row["sample"], dtype=np.int64).reshape(2, -1)
            sampled.append((keys, np.full(len(keys), source), rows))
        merged = [reduce(np.maximum, own) for own in said_by]
        self.keys = [estimate(own) for own in merged]
        self.distinct = estimate(reduce(np.maximum, merged))
        self.sample = tuple(map(np.concatenate, zip(*sampled)))
        """Sampled hashes, the source of each, and its number of rows there."""

    @property
    def bytes_of(self) -> list[float]:
        """The approximate bytes of each side's rows."""
        return [rows * width for rows, width in zip(self.rows_of, self.widths)]

    def bits(self, inner: bool) -> int:
        """The number of bits of a bucket."""
        partners = min(self.keys) if inner else self.distinct
        asked = inner and self.first_asked() is not None
        entries = 3 * partners if asked else self.entries
        bits = bucket_bits(self.distinct, partners, sum(self.bytes_of), entries)
        return min(bits, LONGEST + int(math.log2(max(1.0, entries / len(self.side_of)))))

    def first_asked(self) -> int | None:
        """The side with far fewer keys (see `FIRST_ASKED`), if there is one."""
        few = int(np.argmin(self.keys))
        return few if FIRST_ASKED * self.keys[few] < self.keys[1 - few] else None


def _known(keys: DataFrame, facts: _Facts, first: int) -> bytes:
    """Collect all buckets of one side, for every source of the other side."""

    def task(batches: Batches) -> Iterator[pa.RecordBatch]:
        for row in _rows(batches):
            if facts.side_of[row["source"]] == first:
                own = BucketSet(*facts.buckets(row))
                yield _batch(_SETS, [0], [row["source"]], [own.to_bytes()])

    found = map_batches(keys, task, _ddl(_SETS)).toArrow()
    sets = [BucketSet.from_bytes(b).buckets for b in found["buckets"].to_pylist()]
    every = np.unique(np.concatenate([np.empty(0, dtype=np.int64), *sets]))
    return BucketSet(every, np.zeros_like(every)).to_bytes()


@dataclass(frozen=True)
class _Facts:
    """The parameters of the tasks."""

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
        """The buckets of a source, and the number of rows of each."""
        hashes = np.frombuffer(row["hashes"], dtype=np.uint64)
        found, counts = in_buckets(
            hashes, np.frombuffer(row["counts"], dtype=np.uint8), 1 << self.bits
        )
        return found, counts.astype(np.int64)

    def low(self, part: int) -> int:
        """The first bucket of a range."""
        return (part << self.bits) // self.ranges


def _own_keys(sample: int | None) -> Task:
    """The task that collects the keys of each partition; it reads several partitions in sequence."""
    mask = np.uint64(0 if sample is None else (1 << sample) - 1)

    def task(batches: Batches) -> Iterator[pa.RecordBatch]:
        columns = ([c.to_numpy() for c in b.columns] for b in batches)
        runs = (run for source, *rest in columns for run in _runs(source, rest))
        for source, parts in groupby(runs, key=itemgetter(0)):
            hashes, rows = (np.concatenate(column) for column in zip(*(part for _, part in parts)))
            own, counts = counted(hashes.view(np.uint64), rows)
            told = (own & mask == 0) if sample is not None else np.zeros(len(own), dtype=bool)
            seen = np.stack([own[told].view(np.int64), counts[told].astype(np.int64)])
            yield _batch(
                _KEYS, [source], [int(rows.sum())], [len(own)], [registers(own).tobytes()],
                [seen.tobytes()], [own.tobytes()], [counts.tobytes()],
            )  # fmt: skip

    return task


def _runs(sources: Ints, columns: Sequence[Ints]) -> Iterator[tuple[int, list[Ints]]]:
    """Split columns into runs of one source."""
    cuts = [0, *(np.flatnonzero(np.diff(sources)) + 1).tolist(), len(sources)]
    for begin, end in pairwise(cuts):
        if begin < end:
            yield int(sources[begin]), [c[begin:end] for c in columns]


def _sets(facts: _Facts, first: int | None, known: bytes | None) -> Task:
    """The task that sends buckets to their ranges; sources not asked first send only buckets in `known`."""

    def task(batches: Batches) -> Iterator[pa.RecordBatch]:
        listed = None if known is None else BucketSet.from_bytes(known).buckets
        for row in _rows(batches):
            buckets, counts = facts.buckets(row)
            if listed is not None and facts.side_of[row["source"]] != first:
                kept = np.isin(buckets, listed, assume_unique=True)
                buckets, counts = buckets[kept], counts[kept]
            # Duplicate detection needs no counts.
            own = BucketSet(buckets, counts if facts.counts else np.zeros_like(buckets))
            parts = [own.within(facts.low(r), facts.low(r + 1)) for r in range(facts.ranges)]
            full = [r for r, part in enumerate(parts) if len(part)]
            sent = [parts[r].to_bytes() for r in full]
            yield _batch(_SETS, full, [row["source"]] * len(full), sent)

    return task


def _answers(facts: _Facts) -> Task:
    def task(batches: Batches) -> Iterator[pa.RecordBatch]:
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
            "filled": int(np.count_nonzero(np.diff(buckets))) + min(1, len(buckets)),
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
"""The source number that marks the statistics of a range."""


def _numbers(found: pa.Table) -> dict[str, float]:
    """The statistics of all ranges, summed."""
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
    slots: ResultPartitions, found: pa.Table
) -> tuple[tuple[tuple[bytes, ...], ...], tuple[tuple[int, ...], ...]]:
    """The answers to each source, in the order of ranges, and the number of buckets in them."""
    told: dict[int, list[tuple[int, int, bytes]]] = {}
    for row in found.to_pylist():
        told.setdefault(row["source"], []).append((row["range"], row["listed"], row["answer"]))
    answers, lengths, source = [], [], 0
    for side in slots.of_side:
        own, listed = [], []
        for _ in side:
            parts = sorted(told.get(source, []))
            own.append(b"".join(_sized(data) for _, _, data in parts))
            listed.append(sum(n for _, n, _ in parts))
            source += 1
        answers.append(tuple(own))
        lengths.append(tuple(listed))
    return tuple(answers), tuple(lengths)


def _sized(part: bytes) -> bytes:
    return struct.pack("<q", len(part)) + part


def read_answer(data: bytes) -> BucketSet:
    """Decode the answer to a source: the buckets that leave it, and their slots."""
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


def _rows(batches: Batches) -> Iterator[dict[str, Any]]:
    for batch in batches:
        yield from batch.to_pylist()


def _batch(schema: pa.Schema, *columns: list[Any]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [pa.array(c, t.type) for c, t in zip(columns, schema)], schema=schema
    )


def _ddl(schema: pa.Schema) -> str:
    names = {pa.int32(): "int", pa.int64(): "long", pa.binary(): "binary"}
    return ", ".join(f"{f.name} {names[f.type]}" for f in schema)
