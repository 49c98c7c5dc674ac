"""One input of a live query: it reads batches, knows the watermark, and sorts out late rows.

This is the one place that deals with disorder (paper 003, section 7.2): behind it there are rows and
promises only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemill.core.batch import conform
from tidemill.core.errors import UserError
from tidemill.core.schema import Schema
from tidemill.core.time import BEGINNING, FARTHEST
from tidemill.core.types import to_arrow
from tidemill.io.arrow_checks import require_sound
from tidemill.io.sources import open_source
from tidemill.kernels.arrow import validity, values
from tidemill.kernels.keys import KeyIndex
from tidemill.local.limits import Limits
from tidemill.local.snapshot import column
from tidemill.plan.disorder import Disorder
from tidemill.plan.nodes import Source

Mask = npt.NDArray[np.bool_]
REASON = "late_reason"
"""The column that `late()` adds."""
CORRECTED = "corrected"
"""The reason of a late row that came early enough to correct what was given (`Emit`)."""
REASONS = ("late", "late after idle", CORRECTED, "null time", "far time")


LATE = ("late", "late after idle", CORRECTED)


class Accepted(NamedTuple):
    """Rows that a query sees."""

    rows: pa.RecordBatch
    late: bool
    """Whether some are below the watermark."""
    rises: bool
    """Whether the watermark must be set before these rows are pushed."""


@dataclass
class Counts:
    """What came in, by what happened to it."""

    events: int = 0
    """All rows, also those that are in no result."""
    by_reason: dict[str, int] = field(default_factory=lambda: dict.fromkeys(REASONS, 0))

    @property
    def late(self) -> int:
        """The rows below the watermark, of which some may count nevertheless."""
        return sum(self.by_reason[reason] for reason in LATE)


class LiveInput:
    """The state of an input: its watermark, and the rows that came too late."""

    def __init__(
        self, source: Source, policy: Disorder, *, correct: int = 0, by_row: bool = True,
        closings: tuple[tuple[int, int], ...] | None = None,
    ) -> None:  # fmt: skip
        """Rows that are late by at most `correct` ticks are passed on whatever the policy is.

        `by_row` says that the watermark rises with each row, otherwise with each call of `follow`. `closings`
        are grids, `(origin, slide)`, on which watermarks complete windows; None if they may at any time.
        """
        self.name, self._policy, self._correct = source.name, policy, correct
        self._closings = closings
        needed = source.schema.names
        columns = needed if source.time in needed else (*needed, source.time)
        self._source = replace(source, columns=tuple(columns), step=f"push {source.name}")
        self.source = replace(self._source, ordered=False, step=source.step)
        """The stream with the columns that are read, in any order."""
        self._needed, self._drops_time = list(needed), source.time not in needed
        self._arrow = self._source.schema.to_arrow()
        self.domain = self._source.domain
        self._slack = policy.slack_ticks(self.domain)
        self._rising = self._slack if by_row else None
        """The slack if the watermark rises with each row."""
        self.counts = Counts()
        self.watermark = BEGINNING
        """No row to come has a time below this, unless it is late."""
        self.held = BEGINNING
        """The watermark that others have given it while it was idle; not below its own."""
        self.latest = BEGINNING
        """The greatest time so far."""
        self._late: list[pa.RecordBatch] = []
        self._keys: dict[tuple[str, ...], KeyIndex] = {}
        self._by_key: dict[tuple[str, ...], Limits] = {}
        """Watermarks of some keys, by the columns that the keys are of."""

    @property
    def accepted_schema(self) -> pa.Schema:
        """The columns of the rows that the query sees."""
        return pa.schema([self._arrow.field(name) for name in self._needed])

    # -- rows

    def read(self, value: Any) -> list[pa.RecordBatch]:
        """Return the rows of a batch in the types of the stream; nothing has happened to them yet."""
        if isinstance(value, Mapping):
            value = [value]
        if isinstance(value, (str, bytes)) or hasattr(value, "__fspath__"):
            raise UserError(
                f"push {self.name}", expected="rows: Arrow data, a frame, or dicts", got=f"{value!r:.80}",
                hint="read the file first, or run the query on it: query.run(...)",
            )  # fmt: skip
        if isinstance(value, (pa.RecordBatch, pa.Table)):  # a shorter way, for many small batches
            step = self._source.step
            given = [value] if isinstance(value, pa.RecordBatch) else value.to_batches()
            sound = [require_sound(batch, step) for batch in given if batch.num_rows]
            if value.schema.equals(self._arrow):
                return sound
            return [conform(b, self._source.schema, self._source.reading, step=step) for b in sound]
        chunks = open_source(value, replace(self.source, step=self._source.step), promises=False)
        return [chunk.batch for chunk in chunks]

    def sorted_out(self, batch: pa.RecordBatch) -> tuple[dict[str, Mask], npt.NDArray[np.int64]]:
        """Return which rows are left out or late, by reason, and the limit below which each is too late."""
        times = batch.column(self._source.time)
        ticks, valid = values(times), validity(times)
        own_limit = np.maximum(self._own_limit(batch), self._risen(ticks, valid))
        limit = np.broadcast_to(np.asarray(np.maximum(own_limit, self.held), dtype=np.int64), len(ticks))
        found: dict[str, Mask] = {}
        usable = np.ones(len(ticks), dtype=np.bool_)
        if valid is not None:
            found["null time"] = valid == 0
            usable &= valid != 0
        if len(ticks) and (ticks.max() > FARTHEST or ticks.min() < -FARTHEST):
            far = usable & ((ticks > FARTHEST) | (ticks < -FARTHEST))
            found["far time"] = far
            usable &= ~far
        late = usable & (ticks < limit)
        if self._correct:
            limit = np.maximum(limit, BEGINNING + self._correct) - self._correct
            found[CORRECTED] = late & (ticks >= limit)
            late &= ticks < limit
        if late.any():
            own = ticks < own_limit
            found["late"], found["late after idle"] = late & own, late & ~own
        return {reason: mask for reason, mask in found.items() if mask.any()}, limit

    def _risen(self, ticks: npt.NDArray[np.int64], valid: npt.NDArray[np.uint8] | None) -> Any:
        """Return the watermark at each row as it follows from the rows before."""
        if self._rising is None or not len(ticks):
            return BEGINNING
        counted = np.abs(ticks) <= FARTHEST if valid is None else (np.abs(ticks) <= FARTHEST) & (valid != 0)
        latest = np.maximum.accumulate(np.append(self.latest, np.where(counted, ticks, BEGINNING)[:-1]))
        return np.maximum(latest, BEGINNING + self._rising) - self._rising

    def _own_limit(self, batch: pa.RecordBatch) -> Any:
        """Return the watermark of each row's key, or of the input; not what others gave while it was idle."""
        found: Any = self.watermark
        for columns, limits in self._by_key.items():
            if all(c in batch.schema.names for c in columns):
                kid = self._keys[columns].find([batch.column(c) for c in columns])
                found = np.maximum(found, np.where(kid >= 0, limits.of(np.maximum(kid, 0)), BEGINNING))
        return found

    def require_in_time(self, batches: list[pa.RecordBatch]) -> None:
        """Raise an error if a row is late and the policy is to refuse it."""
        if self._policy.late != "raise" or not batches:
            return
        for batch in batches if len(batches) == 1 else [pa.concat_batches(batches)]:
            found, limit = self.sorted_out(batch)
            late = sum(int(mask.sum()) for reason, mask in found.items() if reason.startswith("late"))
            if late:
                raise UserError(
                    f"push {self.name}", expected=f"no row below the watermark, {int(limit.max())} (ticks)",
                    got=f"{late} of {batch.num_rows} rows", hint="with late='drop' they are counted and kept",
                )  # fmt: skip

    def accepted(self, batch: pa.RecordBatch) -> Iterator[Accepted]:
        """Count and keep the rows that are left out or late, and return those that the query sees.

        Where late rows count in the windows that are still open, it matters which ones are. The batch is then
        divided, so that the watermark can be set between its pieces.
        """
        self.counts.events += batch.num_rows
        if self._is_in_time(batch):
            self.latest = max(self.latest, int(values(batch.column(self._source.time)).max()))
            yield Accepted(self._shown(batch), False, False)
            return
        found, limit = self.sorted_out(batch)
        for start, end, rises in self._pieces(found, limit):
            own = {reason: mask[start:end] for reason, mask in found.items() if mask[start:end].any()}
            rows = batch.slice(start, end - start)
            if own:
                rows = self._without(rows, own, limit[start:end])
            yield Accepted(self._shown(rows), any(reason in own for reason in LATE), rises)
            if rows.num_rows:  # after that, so that the watermark can be set before these rows
                self.latest = max(self.latest, int(values(rows.column(self._source.time)).max()))

    def _shown(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch.select(self._needed) if self._drops_time else batch

    def _pieces(
        self, found: dict[str, Mask], limit: npt.NDArray[np.int64]
    ) -> Iterator[tuple[int, int, bool]]:
        """Return pieces of a batch: first row, end, and whether the watermark must rise before."""
        late = [mask for reason, mask in found.items() if reason.startswith("late")]
        counts_in_open_windows = self._policy.late == "drop" and not self._policy.consistent
        start, rises = 0, False
        if late and counts_in_open_windows and self._rising is not None:
            before = self.promise - self._correct
            for row in np.flatnonzero(np.logical_or.reduce(late)).tolist():
                after = int(limit[row])
                if self._completes(before, after):
                    if row:
                        yield start, row, rises
                    start, rises, before = row, True, after
        yield start, len(limit), rises

    def _completes(self, before: int, after: int) -> bool:
        """Return whether windows may be complete at a watermark that were not at another."""
        if self._closings is None:
            return after > before
        return any((after - origin) // slide > (before - origin) // slide for origin, slide in self._closings)

    def _is_in_time(self, batch: pa.RecordBatch) -> bool:
        """Return whether surely no row is late or left out."""
        times = batch.column(self._source.time)
        if self._by_key or times.null_count or not batch.num_rows:
            return False
        ticks = values(times)
        first, last = int(ticks.min()), int(ticks.max())
        if last > FARTHEST or first < max(self.promise, -FARTHEST):
            return False
        if self._rising is None or max(self.latest, last) - first <= self._rising:
            return True
        return bool((ticks >= self._risen(ticks, None)).all())

    def _without(
        self, batch: pa.RecordBatch, found: dict[str, Mask], limit: npt.NDArray[np.int64]
    ) -> pa.RecordBatch:
        kept = np.ones(batch.num_rows, dtype=np.bool_)
        late = np.zeros(batch.num_rows, dtype=np.bool_)
        for reason, mask in found.items():
            self.counts.by_reason[reason] += int(mask.sum())
            rows = batch.filter(pa.array(mask))
            self._late.append(rows.append_column(REASON, pa.repeat(pa.scalar(reason), rows.num_rows)))
            if reason.startswith("late"):
                late |= mask
            elif reason != CORRECTED:
                kept &= ~mask
        if self._policy.late == "adjust" and late.any():
            at = batch.schema.get_field_index(self._source.time)
            ticks = np.where(late, limit, values(batch.column(at)))
            kind = to_arrow(self._source.schema[self._source.time])
            null = None if batch.column(at).null_count == 0 else ~np.asarray(batch.column(at).is_valid())
            times = pa.array(ticks, pa.int64(), mask=null).cast(kind)
            batch = batch.set_column(at, batch.schema.field(at), times)
        elif self._policy.consistent:
            kept &= ~late
        return batch if kept.all() else batch.filter(pa.array(kept))

    # -- promises

    def follow(self) -> None:
        """Raise the watermark to the greatest time less the slack."""
        if self._slack is not None and self.latest > BEGINNING:
            self.raise_to(self.latest - self._slack)

    def raise_to(self, below: int) -> None:
        """Raise the watermark. Watermarks of keys that say no more than this one are forgotten."""
        self.watermark = max(self.watermark, below)
        for columns in [c for c, limits in self._by_key.items() if limits.highest <= self.watermark]:
            del self._by_key[columns], self._keys[columns]

    @property
    def promise(self) -> int:
        """What the query may rely on: the watermark, or what others gave while this input was idle."""
        return max(self.watermark, self.held)

    def keyed(self, keys: Mapping[str, Any]) -> dict[str, pa.Array]:
        """Return columns of keys as arrays, for a punctuation of some keys."""
        schema, arrays = self._source.schema, {}
        for name, given in keys.items():
            if name not in schema:
                raise UserError(
                    "punctuate", expected=f"key columns of {self.name}: {list(schema.names)}", got=repr(name)
                )
            listed = given if isinstance(given, (list, tuple, pa.Array)) else [given]
            try:
                arrays[name] = pa.array(listed, to_arrow(schema[name]))
            except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError, OverflowError) as unfit:
                raise UserError(
                    "punctuate", expected=f"keys {name!r} of {schema[name]!r}", got=f"{given!r:.80}"
                ) from unfit
        if len({len(a) for a in arrays.values()}) != 1:
            raise UserError("punctuate", expected="key columns of one length", got=str(keys)[:80])
        return arrays

    def raise_keys(self, keys: Mapping[str, pa.Array], below: int) -> None:
        """Raise the watermark of some keys."""
        columns = tuple(sorted(keys))
        index = self._keys.setdefault(columns, KeyIndex(self._source.schema.select(columns)))
        kid = index.encode([keys[c] for c in columns])
        self._by_key[columns] = self._by_key.get(columns, Limits()).raised_for(kid, below)

    def promises_by_key(self) -> Iterator[tuple[dict[str, pa.Array], int]]:
        """Return the watermarks of keys: columns of keys, and the watermark that all of them have."""
        for columns, limits in self._by_key.items():
            index = self._keys[columns]
            below = limits.full(index.count)
            for limit in np.unique(below[below > self.watermark]):
                arrays = index.decode(np.flatnonzero(below == limit))
                yield dict(zip(columns, arrays)), int(limit)

    # -- late rows

    @property
    def late_schema(self) -> pa.Schema:
        return self._arrow.append(pa.field(REASON, pa.string()))

    @property
    def has_late(self) -> bool:
        return bool(self._late)

    def late(self) -> pa.Table:
        return pa.Table.from_batches(self._late, schema=self.late_schema)

    def take_late(self) -> pa.Table:
        """Return the late rows since the last call, and forget them; they stay counted."""
        found = self.late()
        self._late = []
        return found

    # -- state

    def saved(self) -> dict[str, Any]:
        """Return what is not rows, as JSON."""
        return {
            "watermark": self.watermark, "held": self.held, "latest": self.latest,
            "events": self.counts.events, "by_reason": self.counts.by_reason,
        }  # fmt: skip

    def saved_keys(self) -> dict[str, pa.Table]:
        """Return the watermarks of keys, a table for each set of columns."""
        found = {}
        for number, (columns, limits) in enumerate(self._by_key.items()):
            index = self._keys[columns]
            arrays = index.decode(np.arange(index.count))
            below = pa.array(limits.full(index.count))
            found[f"{number}"] = pa.table([*arrays, below], names=[*columns, ""])
        return found

    def load(self, saved: Mapping[str, Any], late: pa.Table, keys: list[pa.Table]) -> None:
        """Load what `saved`, `late` and `saved_keys` returned."""
        self.watermark, self.held, self.latest = (
            _int(saved, name) for name in ("watermark", "held", "latest")
        )
        self.counts.events = _int(saved, "events")
        reasons = saved.get("by_reason")
        if not isinstance(reasons, dict) or set(reasons) != set(REASONS):
            raise UserError("restore", expected=f"counts by {REASONS}", got=f"{reasons!r:.80}")
        self.counts.by_reason = {reason: _int(reasons, reason) for reason in REASONS}
        if not late.schema.equals(self.late_schema):
            raise UserError("restore", expected=f"late rows of {self.late_schema}", got=f"{late.schema}")
        self._late = late.to_batches()
        for table in keys:
            *columns, last = table.column_names
            schema: Schema = self._source.schema
            known = last == "" and all(c in schema for c in columns)
            if not known or table.schema.field("").type != pa.int64():
                raise UserError("restore", expected="watermarks of keys", got=str(table.column_names))
            arrays = self.keyed({c: table.column(c).combine_chunks() for c in columns})
            index = self._keys[tuple(columns)] = KeyIndex(schema.select(columns))
            below = np.full(len(table) + 1, BEGINNING, dtype=np.int64)  # null may have an id of its own
            below[index.encode([arrays[c] for c in columns])] = column(table, "")
            self._by_key[tuple(columns)] = Limits(BEGINNING, below[: index.count])


def _int(saved: Mapping[str, Any], name: str) -> int:
    found = saved.get(name)
    if not isinstance(found, int) or isinstance(found, bool) or not BEGINNING <= found < 1 << 63:
        raise UserError("restore", expected=f"an int for {name!r}", got=f"{found!r:.80}")
    return found
