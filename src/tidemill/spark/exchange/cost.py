"""Whether detection pays: seconds with it and without it, from a survey of the inputs.

The model, for `h` hosts whose links carry `r` bytes a second each, and `c` cores in all:

- a shuffle by hash sends `(h − 1) / h` of all bytes to other hosts: `bytes · (h − 1) / h / (h · r)`;
- detection sends what the sample says is not where most of its key is, and a filter of as many bits for
  each key and source as Golomb codes take, with 8 more where rows are counted;
- it reads keys once more and asks for the target of each row: `READ` and `ROUTE` seconds a row of each
  core; it waits for two more jobs, `JOBS` seconds; and it saves the shuffling of rows that are dropped,
  `SHUFFLE` seconds each.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tidemill.spark.exchange.detect import FALSE_POSITIVES
from tidemill.spark.exchange.network import Links
from tidemill.spark.exchange.slots import Slots
from tidemill.spark.exchange.survey import Survey

Floats = npt.NDArray[np.float64]

READ, ROUTE, SHUFFLE = 0.15e-6, 0.30e-6, 0.40e-6
JOBS = 1.0
MARGIN = 1.1
"""Detection must be better by so much, since estimates are rough."""


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
        return self.detect_seconds * MARGIN < self.plain_seconds

    def __str__(self) -> str:
        return (
            f"{self.plain_bytes / 1e6:.1f} MB would travel, {self.sent_bytes / 1e6:.1f} MB with detection"
            f" (filters {self.filter_bytes / 1e6:.1f} MB, {self.distinct:,.0f} keys):"
            f" {self.plain_seconds:.2f} s against {self.detect_seconds:.2f} s"
        )


def of_rows(
    surveys: Sequence[Survey], slots: Slots, links: Links, dropped: Sequence[bool] = ()
) -> Estimate:
    """A group or a join: rows go to the unit that has most of their key.

    `dropped` says for each side of a join whether rows leave whose key the other side does not have.
    """
    held = _Held(surveys, _hosts(slots))
    away = (links.hosts - 1) / links.hosts
    total = sum(s.width * s.total for s in surveys)
    stay, gone = held.stays(dropped)
    left = held.seen - gone.sum()
    moved = total * (left - stay) / max(held.seen, 1e-9)
    lost = sum(s.total for s in surveys) * held.rows_of(gone) / max(held.rows, 1)
    filters = _filter_bytes(held, links, bits=8 + math.log2(max(2, links.hosts)))
    rows = sum(s.total for s in surveys)
    return _compared(total * away, moved, filters, held.distinct, rows, links, lost)


def of_partials(survey: Survey, slots: Slots, links: Links, width: float) -> Estimate:
    """A reduction: keys that one unit has alone stay there, one partial of `width` bytes each."""
    held = _Held([survey], _hosts(slots))
    away = (links.hosts - 1) / links.hosts
    partials = held.entries / held.share
    total = width * partials
    moved = total * held.shared_entries / max(held.entries, 1) * away
    filters = _filter_bytes(held, links, bits=1.0)
    return _compared(total * away, moved, filters, held.distinct, partials, links, 0.0)


def _compared(
    plain: float,
    moved: float,
    filters: float,
    distinct: float,
    rows: float,
    links: Links,
    lost: float,
) -> Estimate:
    rate = links.hosts * links.bytes_per_second
    computing = ((READ + ROUTE) * rows - SHUFFLE * lost) / links.cores
    return Estimate(
        plain, moved + filters, filters, distinct, plain / rate,
        max(0.0, (moved + filters) / rate + computing + JOBS),
    )  # fmt: skip


def _filter_bytes(held: _Held, links: Links, bits: float) -> float:
    """Sets to the ranges and answers back, of which a part has no way to go."""
    entries = held.entries / held.share
    mean = held.distinct / FALSE_POSITIVES / max(1.0, entries / held.sources)
    code = 1.5 + math.log2(max(2.0, mean))
    return 2 * entries * (code + bits) / 8 * (links.hosts - 1) / links.hosts


def _hosts(slots: Slots) -> list[list[int]]:
    return [[slots.host_of[s] for s in own] for own in slots.of_side]


class _Held:
    """The keys of the samples: how many bytes of each unit and side hold them."""

    def __init__(self, surveys: Sequence[Survey], unit_of: Sequence[Sequence[int]]) -> None:
        self.share = min(s.share for s in surveys)
        self.sources = sum(len(u) for u in unit_of)
        units = 1 + max((u for own in unit_of for u in own), default=0)
        hashes, groups, weights, sources = [], [], [], []
        begin = 0
        for side, (s, own) in enumerate(zip(surveys, unit_of)):
            mask = (1 << round(-math.log2(self.share))) - 1
            kept = s.hashes & mask == 0
            hashes.append(s.hashes[kept])
            unit = np.asarray(own, dtype=np.int64)[s.partitions[kept]]
            groups.append(unit * len(surveys) + side)
            weights.append(np.full(kept.sum(), s.width))
            sources.append(s.partitions[kept] + begin)
            begin += len(own)
        keys, key = np.unique(np.concatenate(hashes), return_inverse=True)
        group, weight = np.concatenate(groups), np.concatenate(weights)
        shape = (len(keys), units * len(surveys))
        bytes_held: Floats = np.bincount(
            key * shape[1] + group, weight, shape[0] * shape[1]
        ).astype(float)
        self._rows = np.bincount(key, minlength=len(keys)).astype(float)
        self._held: Floats = bytes_held.reshape(len(keys), units, len(surveys))
        self.entries = len(np.unique(key * begin + np.concatenate(sources))) if len(keys) else 0
        self.distinct = len(keys) / self.share
        self.seen, self.rows = float(weight.sum()), float(len(weight))
        holders = (self._held.sum(axis=2) > 0).sum(axis=1)
        self._alone = holders <= 1

    @property
    def shared_entries(self) -> float:
        """Partials of keys that several units have: each unit has one at least."""
        return float((self._held.sum(axis=2) > 0).sum(axis=1)[~self._alone].sum())

    def stays(self, dropped: Sequence[bool]) -> tuple[float, Floats]:
        """The bytes that do not travel and are not dropped; those that are dropped, for each key."""
        sides = self._held.sum(axis=1)
        gone = np.zeros(len(sides))
        one_sided = np.zeros(len(sides), dtype=bool)
        if len(dropped) == 2:
            one_sided = (sides > 0).sum(axis=1) < 2
            leaves = np.where(np.asarray(dropped), sides, 0.0).sum(axis=1)
            gone = np.where(one_sided, leaves, 0.0)
        # A key that one side has alone stays where it is, if it does not leave.
        best = np.where(
            one_sided, sides.sum(axis=1), self._held.sum(axis=2).max(axis=1, initial=0.0)
        )
        return float((best - gone).clip(0).sum()), gone

    def rows_of(self, gone: Floats) -> float:
        return float(self._rows[gone > 0].sum())
