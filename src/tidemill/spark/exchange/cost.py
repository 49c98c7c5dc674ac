"""Whether detection pays: seconds with it and without it.

It is asked twice: before anything is looked at, by how many bytes there are (`joined_at_best` and its like);
and when the keys of all partitions are known, by those of a sample (`of_rows`, `of_partials`).

The model, for `h` hosts whose links carry `r` bytes a second each and that have `c` cores in all:

- a shuffle by hash sends `(h − 1) / h` of all bytes to other hosts, in `bytes · (h − 1) / h / (h · r)`
  seconds, and takes `SHUFFLE` processor seconds for each row and byte, of which `c` pass in a second;
- with detection, the sample says which rows leave their slot, and which of those their host: `located`
  decides for it as ranges do for all keys. Only those are shuffled and sent;
- detection reads all keys (`KEY` a row), has them sorted, sent and decided upon (`ENTRY` for each key of a
  partition), copies rows that stay (`COPY`), looks rows up if more than a `FEW` keys leave (`LOOK`), sends
  the filter, and waits for two more jobs, `JOBS`.

What both do is in neither sum.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tidemill.kernels.bucket_holders import STAYS, located
from tidemill.spark.exchange.detect import SLACK, Seen, bucket_bits
from tidemill.spark.exchange.network import Links
from tidemill.spark.exchange.result_partitions import ResultPartitions
from tidemill.spark.exchange.route import FEW


class Work(NamedTuple):
    """Processor seconds for each row and for each byte in it."""

    row: float
    byte: float

    def of(self, rows: float, bytes: float) -> float:
        return self.row * rows + self.byte * bytes


SHUFFLE = Work(0.1e-6, 7e-9)
COPY = Work(0.0, 4e-9)
LOOK = Work(0.1e-6, 12e-9)
KEY, ENTRY = 0.12e-6, 0.8e-6
KEEP = Work(0.3e-6, 10e-9)
"""Partials of a reduction are kept until it is known where they go."""
MERGE = 0.4e-6
"""A row of an aggregate that Spark keeps in a map, such as `median`: maps are sent, and merged again."""
JOINED = 0.25
"""Keys of a partition, for each row of a join, at least: one side has each key about once."""
JOBS = 0.5
MARGIN = 1.1
"""Detection must be better by so much, since estimates are rough."""
LOOK_MARGIN = 1.4
"""And by so much, if nothing had to leave, for keys to be counted."""
TOLD = 12
"""Bytes that a partition is told of each key that leaves it: cell, low bits and slot, for two stages."""
COMPRESSED = 0.5
"""What compression leaves of a row that travels."""


@dataclass(frozen=True)
class Estimate:
    """What an exchange takes, with detection and without."""

    plain_bytes: float
    """Sent between hosts by a shuffle by hash."""
    sent_bytes: float
    """Sent between hosts with detection, filters included."""
    filter_bytes: float
    distinct: float
    plain_seconds: float
    detect_seconds: float

    @property
    def pays(self) -> bool:
        return bool(self.detect_seconds * MARGIN < self.plain_seconds)

    @property
    def may_pay(self) -> bool:
        """Whether counting keys is worth it, by an estimate that knows nothing of them."""
        return bool(self.detect_seconds * LOOK_MARGIN < self.plain_seconds)

    def __str__(self) -> str:
        return (
            f"{self.plain_bytes / 1e6:.1f} MB would travel, {self.sent_bytes / 1e6:.1f} MB with detection"
            f" (filters {self.filter_bytes / 1e6:.1f} MB, {self.distinct:,.0f} keys):"
            f" {self.plain_seconds:.2f} s against {self.detect_seconds:.2f} s"
        )


@dataclass(frozen=True)
class Combined:
    """What Spark does with the rows of a key before it shuffles them, and after."""

    before: bool = False
    """Whether it puts them together."""
    merged: bool = False
    """Whether it does so in maps, which are merged again."""

    def shuffling(self, rows: float, keys: float, bytes: float) -> float:
        """Processor seconds of a shuffle by hash."""
        return SHUFFLE.of(keys if self.before else rows, bytes) + (MERGE * rows if self.merged else 0.0)


NOT_COMBINED = Combined()


def joined_at_best(bytes: float, rows: float, links: Links) -> Estimate:
    """What a join with detection would take if nothing had to leave: the best case, known without a job."""
    detecting = KEY * rows + ENTRY * JOINED * rows + COPY.of(rows, bytes)
    return _estimate(links, bytes, SHUFFLE.of(rows, bytes), detecting)


def grouped_at_best(bytes: float, rows: float, links: Links, *, by: Combined = NOT_COMBINED) -> Estimate:
    """The same of groups, of which there may be few."""
    return _estimate(links, bytes, by.shuffling(rows, 0.0, bytes), KEY * rows + COPY.of(rows, bytes))


def partials_at_best(bytes: float, partials: float, links: Links) -> Estimate:
    """The same of a reduction, which has at most so many partials. They are kept before a look at them."""
    detecting = KEEP.of(partials, bytes) + ENTRY * partials + COPY.of(partials, bytes)
    return _estimate(links, bytes, SHUFFLE.of(partials, bytes), detecting)


def of_rows(seen: Seen, slots: ResultPartitions, links: Links, *, by: Combined = NOT_COMBINED) -> Estimate:
    """A group, or a join of two inputs: rows go to the slot that has most of their key."""
    sample = _Sample(seen, slots, partners=len(slots.of_side) == 2)
    shuffling = by.shuffling(sample.rows, sample.entries, sample.bytes)
    return _of_sample(sample, shuffling, links, before=KEY * sample.rows)


def of_partials(seen: Seen, slots: ResultPartitions, links: Links) -> Estimate:
    """A reduction: partials stay if no other slot has their key. They have been kept by now."""
    sample = _Sample(seen, slots, partners=False)
    return _of_sample(sample, SHUFFLE.of(sample.rows, sample.bytes), links, before=0.0)


def _of_sample(sample: _Sample, shuffling: float, links: Links, *, before: float) -> Estimate:
    filters = sample.filter_bytes * _away(links) + TOLD * sample.leaving_entries
    detecting = before + ENTRY * sample.entries + COPY.of(sample.rows, sample.bytes)
    if sample.leaving_entries > FEW:
        detecting += LOOK.of(sample.rows, sample.bytes) + SHUFFLE.of(sample.leaving_rows, sample.leaving)
    return _estimate(
        links, sample.bytes, shuffling, detecting, remote=sample.remote, filters=filters,
        distinct=sample.distinct,
    )  # fmt: skip


def _estimate(
    links: Links, bytes: float, shuffling: float, detecting: float, *, remote: float = 0.0,
    filters: float = 0.0, distinct: float = 0.0,
) -> Estimate:  # fmt: skip
    """Seconds from processor seconds, of a shuffle by hash and of detection, and from what each sends."""
    rate = links.hosts * links.bytes_per_second
    plain, sent = bytes * _away(links), remote + filters
    return Estimate(
        plain, sent, filters, distinct, plain / rate + shuffling / links.cores,
        JOBS + sent / rate + detecting / links.cores,
    )  # fmt: skip


def _away(links: Links) -> float:
    """The part of all bytes that a shuffle by hash sends to other hosts."""
    return (links.hosts - 1) / links.hosts


class _Sample:
    """The keys of a sample, and what is decided for them; numbers are those of all keys."""

    def __init__(self, seen: Seen, slots: ResultPartitions, *, partners: bool) -> None:
        hashes, source, rows = seen.sample
        order = np.lexsort((source, hashes))
        hashes, source, rows = hashes[order], source[order], rows[order]
        side_of = np.array(seen.side_of)
        slot_of = np.array([s for own in slots.of_side for s in own])
        host_of = np.array(slots.host_of)
        weights = np.array(seen.widths)[side_of[source]] * COMPRESSED * rows
        found = located(hashes, source, weights, slot_of, side_of, host_of, partners=partners, slack=SLACK)
        leaves = found.slots != STAYS
        goes = np.where(leaves, found.slots, slot_of[source])
        away = host_of[goes] != host_of[slot_of[source]]
        # Counts of rows stop at 255, so shares are better than sums.
        whole = max(1e-9, float(weights.sum()))
        self.rows, self.bytes = sum(seen.rows_of), COMPRESSED * sum(seen.bytes_of)
        self.entries, self.distinct = seen.entries, seen.distinct
        self.leaving_entries = seen.entries * leaves.sum() / max(1, len(leaves))
        self.leaving = self.bytes * float(weights[leaves].sum()) / whole
        self.leaving_rows = self.rows * float(rows[leaves].sum()) / max(1.0, float(rows.sum()))
        self.remote = self.bytes * float(weights[away].sum()) / whole
        # Sets to the ranges, with counts of rows.
        each = max(1.0, self.entries / len(side_of))
        bits = bucket_bits(self.distinct, self.distinct, sum(seen.bytes_of), self.entries)
        self.filter_bytes = self.entries * (max(1.0, bits - math.log2(each)) + 9.5) / 8
