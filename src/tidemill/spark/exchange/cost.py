"""The cost model: estimate the seconds of an exchange with detection and without.

It is used twice: before any job, by the number of bytes (`joined_at_best` and the like); and when the keys of
all partitions are known, by a sample of them (`of_rows`, `of_partials`).

The model, for `h` hosts with links of `r` bytes a second each, and `c` cores in all:

- a hash shuffle sends `(h − 1) / h` of all bytes to other hosts, in `bytes · (h − 1) / h / (h · r)` seconds,
  and takes `SHUFFLE` CPU seconds for each row and byte, divided by `c`;
- with detection, the sample shows which rows leave their slot, and which of those their host: `located`
  decides for the sample as the range tasks do for all keys. Only those rows are shuffled and sent;
- detection reads all keys (`KEY` a row), sorts, sends and locates them (`ENTRY` for each key of a partition),
  copies rows that stay (`COPY`), looks rows up if more than `FEW` keys leave (`LOOK`), sends the filter, and
  runs two more jobs, `JOBS`.

Work that both plans do is in neither sum.
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
    """CPU seconds for each row and for each byte."""

    row: float
    byte: float

    def of(self, rows: float, bytes: float) -> float:
        return self.row * rows + self.byte * bytes


SHUFFLE = Work(0.1e-6, 7e-9)
COPY = Work(0.0, 4e-9)
LOOK = Work(0.1e-6, 12e-9)
KEY, ENTRY = 0.12e-6, 0.8e-6
KEEP = Work(0.3e-6, 10e-9)
"""The cost of caching the partials of a reduction until their slots are known."""
MERGE = 0.4e-6
"""The cost of a row for aggregates with a map as buffer, such as `median`: maps are sent and merged again."""
JOINED = 0.25
"""The least number of distinct keys in a partition per row of a join: one side has each key about once."""
JOBS = 0.5
MARGIN = 1.1
"""Detection must be faster by this factor, because estimates are rough."""
LOOK_MARGIN = 1.4
"""Keys are counted only if detection would be faster by this factor without any row to send."""
TOLD = 12
"""Bytes sent to a partition for each key that leaves it: cell, low bits and slot, for two stages."""
COMPRESSED = 0.5
"""The assumed compression ratio of rows that are sent."""


@dataclass(frozen=True)
class Estimate:
    """The estimated cost of an exchange, with detection and without."""

    plain_bytes: float
    """Bytes sent between hosts by a hash shuffle."""
    sent_bytes: float
    """Bytes sent between hosts with detection, including filters."""
    filter_bytes: float
    distinct: float
    plain_seconds: float
    detect_seconds: float

    @property
    def pays(self) -> bool:
        return bool(self.detect_seconds * MARGIN < self.plain_seconds)

    @property
    def may_pay(self) -> bool:
        """Whether counting keys is worthwhile, for an estimate made without them."""
        return bool(self.detect_seconds * LOOK_MARGIN < self.plain_seconds)

    def __str__(self) -> str:
        return (
            f"{self.plain_bytes / 1e6:.1f} MB would travel, {self.sent_bytes / 1e6:.1f} MB with detection"
            f" (filters {self.filter_bytes / 1e6:.1f} MB, {self.distinct:,.0f} keys):"
            f" {self.plain_seconds:.2f} s against {self.detect_seconds:.2f} s"
        )


@dataclass(frozen=True)
class Combined:
    """How Spark combines the rows of a key before and after a shuffle."""

    before: bool = False
    """Whether it combines them before the shuffle."""
    merged: bool = False
    """Whether it combines them in maps, which are merged again after the shuffle."""

    def shuffling(self, rows: float, keys: float, bytes: float) -> float:
        """CPU seconds of a hash shuffle."""
        return SHUFFLE.of(keys if self.before else rows, bytes) + (MERGE * rows if self.merged else 0.0)


NOT_COMBINED = Combined()


def joined_at_best(bytes: float, rows: float, links: Links) -> Estimate:
    """Estimate a join with detection if no row had to leave: the best case, known without a job."""
    detecting = KEY * rows + ENTRY * JOINED * rows + COPY.of(rows, bytes)
    return _estimate(links, bytes, SHUFFLE.of(rows, bytes), detecting)


def grouped_at_best(bytes: float, rows: float, links: Links, *, by: Combined = NOT_COMBINED) -> Estimate:
    """As `joined_at_best`, for a group, which may have few keys."""
    return _estimate(links, bytes, by.shuffling(rows, 0.0, bytes), KEY * rows + COPY.of(rows, bytes))


def partials_at_best(bytes: float, partials: float, links: Links) -> Estimate:
    """As `joined_at_best`, for a reduction of at most `partials` partials, which are cached first."""
    detecting = KEEP.of(partials, bytes) + ENTRY * partials + COPY.of(partials, bytes)
    return _estimate(links, bytes, SHUFFLE.of(partials, bytes), detecting)


def of_rows(seen: Seen, slots: ResultPartitions, links: Links, *, by: Combined = NOT_COMBINED) -> Estimate:
    """Estimate a group, or a join of two inputs: rows go to the slot that has most of their key."""
    sample = _Sample(seen, slots, partners=len(slots.of_side) == 2)
    shuffling = by.shuffling(sample.rows, sample.entries, sample.bytes)
    return _of_sample(sample, shuffling, links, before=KEY * sample.rows)


def of_partials(seen: Seen, slots: ResultPartitions, links: Links) -> Estimate:
    """Estimate a reduction: partials stay if no other slot has their key. They are cached by now."""
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
    """Compute seconds from the CPU seconds and the bytes sent, for a hash shuffle and for detection."""
    rate = links.hosts * links.bytes_per_second
    plain, sent = bytes * _away(links), remote + filters
    return Estimate(
        plain, sent, filters, distinct, plain / rate + shuffling / links.cores,
        JOBS + sent / rate + detecting / links.cores,
    )  # fmt: skip


def _away(links: Links) -> float:
    """The fraction of all bytes that a hash shuffle sends to other hosts."""
    return (links.hosts - 1) / links.hosts


class _Sample:
    """The slots decided for a sample of keys, extrapolated to all keys."""

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
        # Counts of rows are capped at 255, so fractions are more accurate than sums.
        whole = max(1e-9, float(weights.sum()))
        self.rows, self.bytes = sum(seen.rows_of), COMPRESSED * sum(seen.bytes_of)
        self.entries, self.distinct = seen.entries, seen.distinct
        self.leaving_entries = seen.entries * leaves.sum() / max(1, len(leaves))
        self.leaving = self.bytes * float(weights[leaves].sum()) / whole
        self.leaving_rows = self.rows * float(rows[leaves].sum()) / max(1.0, float(rows.sum()))
        self.remote = self.bytes * float(weights[away].sum()) / whole
        # The size of bucket sets with row counts, as sent to the ranges.
        each = max(1.0, self.entries / len(side_of))
        bits = bucket_bits(self.distinct, self.distinct, sum(seen.bytes_of), self.entries)
        self.filter_bytes = self.entries * (max(1.0, bits - math.log2(each)) + 9.5) / 8
