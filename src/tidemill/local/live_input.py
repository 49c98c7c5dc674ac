"""One input of a live query: it reads batches, knows the watermark, and sorts out late rows.

This is the one place that deals with disorder (paper 003, section 7.2): behind it there are rows and
promises only.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemill.core.batch import conform
from tidemill.core.errors import UserError
from tidemill.core.schema import Schema
from tidemill.core.time import BEGINNING, FARTHEST, Domain, instant, instant_domain, shown_instant
from tidemill.core.types import to_arrow
from tidemill.io.arrow_checks import is_plain, require_sound
from tidemill.io.dicts import DictReader
from tidemill.io.other_columns import PartlyRead, is_read_once
from tidemill.io.sources import open_source
from tidemill.kernels.arrow import validity, values
from tidemill.kernels.disorder import out_of_order
from tidemill.local.attribute_limits import AttributeLimits
from tidemill.local.attributes import Attribute
from tidemill.local.key_limits import KeyLimits
from tidemill.local.snapshot import column
from tidemill.local.unread_columns import Pushed, UnreadColumns
from tidemill.local.unusable_rows import UnusableRows
from tidemill.plan.disorder import (
    CORRECTED,
    FAR_TIME,
    LATE_REASONS,
    NULL_TIME,
    REASON,
    REASONS,
    WITHIN_LATENESS,
    WITHOUT_TIME,
    Disorder,
)
from tidemill.plan.nodes import Source
from tidemill.plan.usable_rows import Check

Mask = npt.NDArray[np.bool_]


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
        return sum(self.by_reason[reason] for reason in LATE_REASONS)


@dataclass(frozen=True)
class _Layout:
    """How batches of one schema are read: worked out once, as many small batches have the same."""

    schema: pa.Schema
    plain: bool
    """Whether one check of the whole batch is enough."""
    columns: list[int] | None
    """The positions of the columns that are read, unless these are all columns of a batch, in order."""
    fits: bool
    """Whether they have the types of the stream; otherwise they are to be cast."""


class LiveInput:
    """The state of an input: its watermark, and the rows that came too late."""

    def __init__(
        self, source: Source, policy: Disorder, *, correct: int = 0, by_row: bool = True,
        closings: tuple[tuple[int, int], ...] | None = None, attributes: Sequence[Attribute] = (),
        checks: Sequence[Check] = (), lateness: int | None = None,
    ) -> None:  # fmt: skip
        """Rows that are late by at most `correct` ticks are passed on whatever the policy is.

        With a `lateness`, that of a query that answers on arrival, so are those that are late by no more; the
        others count nowhere.

        `by_row` says that the watermark rises with each row, otherwise with each call of `follow`. `closings`
        are grids, `(origin, slide)`, on which watermarks complete windows; None if they may at any time.
        `attributes` are what windows are over, where it is not the time, and `checks` say which rows lack it.
        """
        if REASON in source.declared:
            raise UserError(
                f"stream {source.name!r}", expected=f"no column {REASON!r}, which late rows get",
                got=str(source.declared), hint="declare the other columns, or give it another name",
            )  # fmt: skip
        self.name, self._policy = source.name, policy
        self._allowed = correct if lateness is None else lateness
        self._allowed_as = CORRECTED if lateness is None else WITHIN_LATENESS
        self._consistent = policy.consistent or lateness is not None
        self._closings = closings
        needed = source.schema.names
        columns = needed if source.time in needed else (*needed, source.time)
        self._source = replace(source, columns=tuple(columns), step=f"push {source.name}")
        self.source = replace(self._source, ordered=False, step=source.step)
        """The stream with the columns that are read, in any order."""
        self._unordered = replace(self.source, step=self._source.step)
        self._dicts = DictReader(self._unordered)
        self._needed, self._drops_time = list(needed), source.time not in needed
        self._unread = UnreadColumns(self._unordered, columns)
        self._arrow = self._source.schema.to_arrow()
        self._layout = self._layout_of(self._arrow)
        self._time = self._arrow.get_field_index(source.time)
        self.domain, self.time = self._source.domain, self._source.time
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
        self.saved_late = 0
        """How many of the late rows were in the last checkpoint of a directory."""
        self.late_changed = False
        """Whether late rows were restored with other columns than they were saved with."""
        self._by_key = KeyLimits(self._source.schema)
        """Watermarks of some keys."""
        self.attributes = AttributeLimits(attributes, self._source.schema)
        """Promises about other attributes than the time."""
        self._unusable = UnusableRows(checks, self._source.schema)

    @property
    def accepted_schema(self) -> pa.Schema:
        """The columns of the rows that the query sees."""
        return pa.schema([self._arrow.field(name) for name in self._needed])

    @property
    def follows(self) -> bool:
        """Whether the watermark follows the rows; otherwise somebody must say how far time is complete."""
        return self._slack is not None

    def instant(self, below: Any, step: str = "punctuate") -> int:
        """Return an instant of this stream's time in ticks, checked."""
        if self.domain is Domain.LOGICAL and instant_domain(below) is Domain.CLOCK:
            raise UserError(step, expected="an int, as the time of the stream is", got=repr(below))
        ticks = instant(below, step=step)
        if abs(ticks) > FARTHEST:
            raise UserError(
                step, expected="a time within 2**61 ticks of zero", got=str(ticks),
                hint="flush() ends the inputs",
            )  # fmt: skip
        return ticks

    # -- rows

    def read(self, value: Any) -> list[Pushed]:
        """Return the rows of a batch in the types of the stream; nothing has happened to them yet."""
        if isinstance(value, pa.RecordBatch):  # first, and by a shorter way: there may be many small ones
            return [Pushed(self._rows(value), value)] if value.num_rows else []
        if isinstance(value, pa.Table):
            return [Pushed(self._rows(batch), batch) for batch in value.to_batches() if batch.num_rows]
        if isinstance(value, PartlyRead):
            return [Pushed(self._rows(value.batch), value)] if value.batch.num_rows else []
        if isinstance(value, Mapping):
            rows = [value]
            return self._placed(self._dicts.batches(rows), rows)
        if isinstance(value, (list, tuple)) and value and isinstance(value[0], Mapping):
            return self._placed(self._dicts.batches(value), value)
        if isinstance(value, (str, bytes)) or hasattr(value, "__fspath__"):
            raise UserError(
                f"push {self.name}", expected="rows: Arrow data, a frame, or dicts", got=f"{value!r:.80}",
                hint="read the file first, or run the query on it: query.run(...)",
            )  # fmt: skip
        if self._unread and is_read_once(value):
            value = value.read_all() if isinstance(value, pa.RecordBatchReader) else list(value)
        chunks = open_source(value, self._unordered, promises=False)
        return self._placed([chunk.batch for chunk in chunks], value)

    @staticmethod
    def _placed(batches: list[pa.RecordBatch], origin: Any) -> list[Pushed]:
        if len(batches) == 1:
            return [Pushed(batches[0], origin)]
        starts = itertools.accumulate((batch.num_rows for batch in batches), initial=0)
        return [Pushed(batch, origin, start) for batch, start in zip(batches, starts)]

    def _rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the columns of a batch that the input has, checked and in its types."""
        layout, source = self._layout, self._source
        if not batch.schema.equals(layout.schema):
            layout = self._layout = self._layout_of(batch.schema)
        if layout.columns is not None:
            batch = batch.select(layout.columns)
        require_sound(batch, source.step, plain=layout.plain)
        return batch if layout.fits else conform(batch, source.schema, source.reading, step=source.step)

    def _layout_of(self, schema: pa.Schema) -> _Layout:
        columns = [schema.get_field_index(name) for name in self._arrow.names]  # -1 also if there are two
        if -1 in columns:  # which is an error
            return _Layout(schema, is_plain(schema), None, False)
        kept = [schema.field(i) for i in columns]
        whole = columns == list(range(len(schema)))
        return _Layout(
            schema, is_plain(pa.schema(kept)), None if whole else columns, kept == list(self._arrow)
        )

    def sorted_out(self, batch: pa.RecordBatch) -> tuple[dict[str, Mask], npt.NDArray[np.int64]]:
        """Return which rows are left out or late, by reason, and the limit below which each is too late."""
        times = batch.column(self._source.time)
        ticks, valid = values(times), validity(times)
        own_limit = np.maximum(self._own_limit(batch), self._risen(ticks, valid))
        limit = np.broadcast_to(np.asarray(np.maximum(own_limit, self.held), dtype=np.int64), len(ticks))
        found: dict[str, Mask] = {}
        usable = np.ones(len(ticks), dtype=np.bool_)
        if valid is not None:
            found[NULL_TIME] = valid == 0
            usable &= valid != 0
        if len(ticks) and (ticks.max() > FARTHEST or ticks.min() < -FARTHEST):
            far = usable & ((ticks > FARTHEST) | (ticks < -FARTHEST))
            found[FAR_TIME] = far
            usable &= ~far
        late = usable & (ticks < limit)
        if self._allowed:
            limit = np.maximum(limit, BEGINNING + self._allowed) - self._allowed
            found[self._allowed_as] = late & (ticks >= limit)
            late &= ticks < limit
        own = ticks < own_limit
        unusable = self.unusable(batch)
        if self.attributes:
            below = usable & self.attributes.late(batch)
            for mask in unusable.values():
                below &= ~mask
            late, own = late | below, own | below
        if late.any():
            found["late"], found["late after idle"] = late & own, late & ~own
        if unusable:  # such a row is late first, if it is: its time counts, and the watermark follows it
            counted = usable & ~late & ~found.get(self._allowed_as, np.False_)
            found |= {reason: mask & counted for reason, mask in unusable.items()}
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
        return np.maximum(self.watermark, self._by_key.of(batch))

    def require_in_time(self, pushed: list[Pushed]) -> None:
        """Raise an error if a row is late and the policy is to refuse it."""
        if self._policy.late != "raise" or not pushed:
            return
        batches = [one.rows for one in pushed]
        for batch in batches if len(batches) == 1 else [pa.concat_batches(batches)]:
            found, limit = self.sorted_out(batch)
            late = sum(int(mask.sum()) for reason, mask in found.items() if reason.startswith("late"))
            if late:
                watermark = shown_instant(int(limit.max()), self.domain)
                raise UserError(
                    f"push {self.name}", expected=f"no row below the watermark, {watermark}",
                    got=f"{late} of {batch.num_rows} rows", hint="with late='drop' they are counted and kept",
                )  # fmt: skip

    def accepted(self, pushed: Pushed) -> Iterable[Accepted]:
        """Count and keep the rows that are left out or late, and return those that the query sees.

        Where late rows count in the windows that are still open, it matters which ones are. The batch is then
        divided, so that the watermark can be set between its pieces.
        """
        batch = pushed.rows
        self.counts.events += batch.num_rows
        if self._is_in_time(batch):
            return (Accepted(self.shown(batch), False, False),)
        return self._divided(pushed)

    def _divided(self, pushed: Pushed) -> Iterator[Accepted]:
        batch = pushed.rows
        found, limit = self.sorted_out(batch)
        kept = self._to_keep(pushed, found)
        for start, end, rises in self._pieces(found, limit):
            own = {reason: mask[start:end] for reason, mask in found.items() if mask[start:end].any()}
            rows = batch.slice(start, end - start)
            for reason in own:
                self._late.append(kept[reason].slice(*_between(found[reason], start, end)))
            if own:
                rows = self._without(rows, own, limit[start:end])
            yield Accepted(self.shown(rows), any(reason in own for reason in LATE_REASONS), rises)
            if rows.num_rows:  # after that, so that the watermark can be set before these rows
                self.latest = max(self.latest, int(values(rows.column(self._source.time)).max()))

    def _to_keep(self, pushed: Pushed, found: dict[str, Mask]) -> dict[str, pa.RecordBatch]:
        """Return the late rows by reason, with all columns that the stream declares."""
        kept = {}
        for reason, mask in found.items():
            places = np.flatnonzero(mask)
            rows = pushed.rows.take(pa.array(places))
            columns = dict(zip(rows.schema.names, rows.columns)) | self._unread.of(pushed, places)
            columns[REASON] = pa.repeat(pa.scalar(reason), len(places))
            arrays = [columns[name] for name in self.late_schema.names]
            kept[reason] = pa.RecordBatch.from_arrays(arrays, schema=self.late_schema)
        return kept

    def shown(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the columns of rows that the query sees."""
        return batch.select(self._needed) if self._drops_time else batch

    def unusable(self, batch: pa.RecordBatch) -> dict[str, Mask]:
        """Return which rows lack something else than a time, by reason."""
        return self._unusable.find(batch) if self._unusable else {}

    def _pieces(
        self, found: dict[str, Mask], limit: npt.NDArray[np.int64]
    ) -> Iterator[tuple[int, int, bool]]:
        """Return pieces of a batch: first row, end, and whether the watermark must rise before."""
        late = [mask for reason, mask in found.items() if reason.startswith("late")]
        counts_in_open_windows = self._policy.late == "drop" and not self._consistent
        start, rises = 0, False
        if late and counts_in_open_windows and self._rising is not None:
            before = self.promise - self._allowed
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
        """Return whether surely no row is late or left out; then note the greatest time."""
        times = batch.column(self._time)
        if self._by_key or self.attributes or times.null_count or not batch.num_rows:
            return False
        first, last, behind = out_of_order(values(times))
        if last > FARTHEST or first < -FARTHEST or first < self.watermark or first < self.held:
            return False
        rising = self._rising
        if rising is not None and (behind > rising or first < self.latest - rising):
            return False
        if self._unusable and self._unusable.find(batch):
            return False
        if last > self.latest:
            self.latest = last
        return True

    def _without(
        self, batch: pa.RecordBatch, found: dict[str, Mask], limit: npt.NDArray[np.int64]
    ) -> pa.RecordBatch:
        kept = np.ones(batch.num_rows, dtype=np.bool_)
        late = np.zeros(batch.num_rows, dtype=np.bool_)
        for reason, mask in found.items():
            self.counts.by_reason[reason] += int(mask.sum())
            if reason.startswith("late"):
                late |= mask
            elif reason in WITHOUT_TIME:  # windows leave out rows without their attribute themselves
                kept &= ~mask
        if self._policy.late == "adjust" and late.any():
            at = batch.schema.get_field_index(self._source.time)
            times = values(batch.column(at))
            ticks = np.where(late, np.maximum(limit, times), times)
            kind = to_arrow(self._source.schema[self._source.time])
            null = None if batch.column(at).null_count == 0 else ~np.asarray(batch.column(at).is_valid())
            moved = pa.array(ticks, pa.int64(), mask=null).cast(kind)
            batch = batch.set_column(at, batch.schema.field(at), moved)
        elif self._consistent:
            kept &= ~late
        return batch if kept.all() else batch.filter(pa.array(kept))

    # -- promises

    def follow(self) -> None:
        """Raise the watermark to the greatest time less the slack."""
        if self._slack is not None and self.latest > BEGINNING:
            self.raise_to(self.latest - self._slack)

    def raise_to(self, below: int) -> None:
        """Raise the watermark. Watermarks of keys that say no more than this one are forgotten."""
        if below > self.watermark:
            self.watermark = below
            self._by_key.forget(below)

    @property
    def promise(self) -> int:
        """What the query may rely on: the watermark, or what others gave while this input was idle."""
        return self.watermark if self.watermark > self.held else self.held

    def keyed(self, keys: Mapping[str, Any]) -> dict[str, pa.Array]:
        """Return columns of keys as arrays, for a punctuation of some keys.

        There are none if the query does not read one of the columns: the promise then says nothing about the
        rows that it sees.
        """
        schema, arrays = self._source.declared, {}
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
        return arrays if all(name in self._source.schema for name in arrays) else {}

    def watermarks_of(self, keys: Mapping[str, pa.Array]) -> npt.NDArray[np.int64]:
        """Return the watermark of each of some keys."""
        rows = len(next(iter(keys.values())))
        return np.broadcast_to(np.maximum(self.watermark, self._by_key.of_keys(keys)), rows)

    def require_more(self, below: int, keys: Mapping[str, pa.Array] | None = None) -> None:
        """Raise an error if a promise says less than an earlier one, of one of the keys if there are any."""
        known = self.watermark
        if keys is not None:
            known = max(known, self._by_key.highest_of(keys))
        if below < known:
            of = self.name if keys is None else f"{self.name} by {', '.join(keys)}"
            raise UserError(
                "punctuate", expected=f"a watermark of {of} of at least {shown_instant(known, self.domain)}",
                got=shown_instant(below, self.domain),
                hint="a promise cannot be taken back; later ones are greater",
            )  # fmt: skip

    def raise_keys(self, keys: Mapping[str, pa.Array], below: int) -> None:
        """Raise the watermark of some keys."""
        self._by_key.raise_to(keys, below)

    def promises_by_key(self) -> Iterator[tuple[dict[str, pa.Array], int]]:
        """Return the watermarks of keys: columns of keys, and the watermark that all of them have."""
        return self._by_key.promises(self.watermark)

    # -- late rows

    @functools.cached_property
    def late_schema(self) -> pa.Schema:
        """All columns that the stream declares, and the reason."""
        return self._source.declared.to_arrow().append(pa.field(REASON, pa.string()))

    @property
    def has_late(self) -> bool:
        return bool(self._late)

    def late(self) -> pa.Table:
        return pa.Table.from_batches(self._late, schema=self.late_schema)

    def take_late(self) -> pa.Table:
        """Return the late rows since the last call, and forget them; they stay counted."""
        found = self.late()
        self._late, self.saved_late = [], 0
        return found

    def _as_declared(self, late: pa.Table) -> pa.Table:
        """Return saved rows with the columns that the stream declares now: others may not be read, either."""
        read = {*self._arrow.names, REASON}
        known = {field.name: field for field in late.schema}
        if any(known.get(f.name, f if f.name not in read else None) != f for f in self.late_schema):
            raise UserError("restore", expected=f"late rows of {self.late_schema}", got=f"{late.schema}")
        columns = [
            late.column(field.name) if field.name in known else pa.nulls(len(late), field.type)
            for field in self.late_schema
        ]
        return pa.Table.from_arrays(columns, schema=self.late_schema)

    # -- state

    def saved(self) -> dict[str, Any]:
        """Return what is not rows, as JSON."""
        return {
            "watermark": self.watermark, "held": self.held, "latest": self.latest,
            "events": self.counts.events, "by_reason": self.counts.by_reason,
            "attributes": self.attributes.saved(), "follows": self.follows,
        }  # fmt: skip

    def saved_keys(self) -> dict[str, pa.Table]:
        """Return the watermarks of keys, a table for each set of columns."""
        tables = (*self._by_key.tables(""), *self.attributes.tables())
        return {f"{number}": table for number, table in enumerate(tables)}

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
        below = saved.get("attributes")
        if not isinstance(below, list):
            raise UserError("restore", expected="promises about attributes", got=f"{below!r:.80}")
        self.attributes.load([_int({"attributes": limit}, "attributes") for limit in below])
        self._late = self._as_declared(late).to_batches()
        self.late_changed = not late.schema.equals(self.late_schema)
        for table in keys:
            *columns, last = table.column_names
            schema: Schema = self._source.schema
            known = (last == "" or self.attributes.knows(last)) and all(c in schema for c in columns)
            if not known or table.schema.field(last).type != pa.int64():
                raise UserError("restore", expected="watermarks of keys", got=str(table.column_names))
            arrays = self.keyed({c: table.column(c).combine_chunks() for c in columns})
            if last == "":
                self._by_key.load(arrays, column(table, last))
            else:
                self.attributes.load_keys(last, arrays, column(table, last))


def _between(mask: Mask, start: int, end: int) -> tuple[int, int]:
    """Return how many rows of a mask come before a piece, and how many are in it."""
    return int(mask[:start].sum()), int(mask[start:end].sum())


def _int(saved: Mapping[str, Any], name: str) -> int:
    found = saved.get(name)
    if not isinstance(found, int) or isinstance(found, bool) or not BEGINNING <= found < 1 << 63:
        raise UserError("restore", expected=f"an int for {name!r}", got=f"{found!r:.80}")
    return found
