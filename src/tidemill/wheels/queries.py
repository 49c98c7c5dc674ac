"""The queries of a wheel: one range or many, for one key, several keys, or all keys together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from tidemill.aggregates.algebra import Aggregate
from tidemill.aggregates.layout import Layout
from tidemill.codegen.kernel_errors import raise_for
from tidemill.core.errors import UserError
from tidemill.core.instants import RANGE, is_instant, many_ticks, ticks_of
from tidemill.core.time import FARTHEST, DurationLike, InstantLike, duration
from tidemill.core.types import to_arrow
from tidemill.io.chunks import Chunk
from tidemill.io.window_source import WindowSource
from tidemill.kernels.arrow import build
from tidemill.plan.nodes import WheelWindows
from tidemill.plan.wheel_facts import WheelFacts
from tidemill.wheels.explain import Explained, explain
from tidemill.wheels.loops.answer import NOT_THERE, OFF_GRID
from tidemill.wheels.loops.range_plan import slots_at
from tidemill.wheels.memory.bucketed_store import Buckets
from tidemill.wheels.query_windows import read_windows
from tidemill.wheels.spec import HIDDEN, named_aggregates, plan_of
from tidemill.wheels.view import ALL, Ints, Outputs, WheelView

MOST_ROWS = 50_000_000
"""The most rows that one series may have."""
Asked = Aggregate | Mapping[str, Aggregate] | None
"""Aggregates to answer in place of the wheel's own."""


class WheelQueries(WindowSource):
    """The read-only methods of a wheel."""

    def __init__(self, view: WheelView) -> None:
        self._view = view
        self._names = [r.name for r in view.shown]
        plain = all(r.type.kind in ("int64", "float64", "bool") for r in view.shown)
        self._as_is = plain and not view.spec.objects
        """Whether results need no conversion to Python values."""
        self._one_number = self._as_is and len(view.shown) == 1

    @property
    def watermark(self) -> Any:
        """Everything below the watermark is complete and can be queried; rows below it are late."""
        view = self._view
        view.catch_up()
        return view.instant(view.store.now * view.grain)

    def query(
        self, start: Any, end: Any, key: Any = ALL, *, total: bool = False, aggregates: Asked = None
    ) -> Any:
        """The aggregate of `[start, end)`: a plain value for one range, key and aggregate.

        Several aggregates give a dict. A wheel with keys and no `key`, or a list, an array or a set of
        keys, gives a table with a row for each; with `total`, one answer over all of these keys. Lists or
        arrays of starts and ends give a column, or a table, with a row for each range.

        `aggregates`, as in `tm.Wheel`, replace the wheel's own. They must be computable from the partials
        that it holds: a mean from a sum and a count of the same values, for example.

        Bounds lie on the grid of the finest granularity. A range ends at the watermark at the latest,
        because later slots are still open. A range whose slots were evicted is an error.
        """
        view = self._view
        if type(start) is int and type(end) is int and aggregates is None and not total:
            # A fast path for the most frequent query.
            number = 0 if key is ALL and not view.keyed else view.number_seen(key)
            if number is not None:
                return self._one(start, end, number)
        key = _as_listed(key)
        asked = None if aggregates is None else self._layout_of(aggregates)
        if not (type(start) is int or is_instant(start)):
            return self._many(start, end, key, total, asked)
        several = (key is ALL and view.keyed) or isinstance(key, (list, pa.Array, np.ndarray))
        if not several and not total and asked is None:
            start, end = (ticks_of(x, view.domain, "query") for x in (start, end))
            return self._one(start, end, 0 if key is ALL else view.number(key))
        a, b = self._bounds(start, end)
        numbers = self._numbers(key, total)
        outputs = view.answers(np.array([a]), np.array([b]), numbers, asked, total=total)
        if several and not total:
            return self._with_keys(key, numbers, view.table(outputs, asked))
        return self._only(outputs, asked)

    def _one(self, start: int, end: int, number: int) -> Any:
        """The answer for one range of ticks and one key, as Python values."""
        view = self._view
        try:
            found = view.store.answer(start, end, number)
        except OverflowError:  # the int does not fit 64 bits
            found = (OFF_GRID,)
        if found[0]:
            a, b = self._bounds(start, end)
            if found[0] == NOT_THERE:
                raise view.not_held(a, b)
            raise_for(found[0], "wheel query")
        if self._one_number and found[1] and found[2]:
            return found[2]
        if not found[1] or (self._as_is and not found[2]):
            view.note_empty()
        if self._one_number:
            return found[2] if found[1] else None
        if self._as_is:
            values = [v if valid else None for valid, v in zip(found[1::2], found[2::2])]
            return dict(zip(self._names, values))
        values = [
            view.plain(found[2 * j + 2], r.type) if found[2 * j + 1] else None
            for j, r in enumerate(view.shown)
        ]
        return values[0] if len(values) == 1 else dict(zip(self._names, values))

    def landmark(self, key: Any = ALL, *, total: bool = False, aggregates: Asked = None) -> Any:
        """The aggregate from the beginning to the watermark, including slots that were evicted."""
        view = self._view
        view.catch_up()
        # The range ends at the watermark as of the time it is answered.
        far = FARTHEST // view.grain * view.grain
        return self.query(view.beginning, far, key, total=total, aggregates=aggregates)

    def latest(
        self, length: DurationLike, key: Any = ALL, *, total: bool = False, aggregates: Asked = None
    ) -> Any:
        """The aggregate of the last `length` of time before the watermark."""
        ticks, view = self._length(length, "latest"), self._view
        while True:
            view.catch_up()
            now = view.store.now * view.grain
            try:
                start = max(view.beginning, now - ticks)
                return self.query(start, now, key, total=total, aggregates=aggregates)
            except UserError:
                if view.store.now * view.grain == now:  # no slot was evicted meanwhile
                    raise

    def group_by(
        self, start: InstantLike, end: InstantLike, every: DurationLike, key: Any = ALL, *,
        total: bool = False, aggregates: Asked = None,
    ) -> pa.Table:  # fmt: skip
        """A series: `[start, end)` cut into intervals of length `every`, a row for each interval and key.

        With `total`, a row for each interval, over all of these keys.
        """
        view = self._view
        view.catch_up()
        a, b = self._bounds(start, end)
        step = self._length(every, "group_by") // view.grain
        key = _as_listed(key)
        asked = None if aggregates is None else self._layout_of(aggregates)
        numbers = self._numbers(key, total)
        series = 1 if total else len(numbers)
        if (rows := -(-(b - a) // step) * series) > MOST_ROWS:
            raise UserError("group_by", expected=f"at most {MOST_ROWS:,} rows", got=f"{rows:,}")
        starts = np.arange(a, b, step, dtype=np.int64)
        ends = np.minimum(starts + step, b)
        which = np.repeat(np.arange(series), len(starts))
        low, high = np.tile(starts, series), np.tile(ends, series)
        own = numbers if total else numbers[which]
        table = view.table(view.answers(low, high, own, asked, total=total), asked)
        bound = to_arrow(view.plan.bound_type)
        keys = {} if total or not view.keyed else self._key_columns(key, numbers, which)
        columns = [build(x * view.grain, None, bound) for x in (low, high)]
        named = {**keys, "window_start": columns[0], "window_end": columns[1]}
        return pa.table({**named, **{n: table[n] for n in table.column_names}})

    def explain(self, start: InstantLike, end: InstantLike) -> Explained:
        """Show how a range would be answered: the plan, its operations, and the alternatives."""
        view = self._view
        view.catch_up()
        a, b = self._bounds(start, end)
        store = view.store.typical if isinstance(view.store, Buckets) else view.store
        return explain(store, a, b, lambda slot: view.instant(slot * view.grain))

    def stats(self) -> dict[str, Any]:
        """Keys, the watermark, slots and bytes by ring, bytes by purpose, and notes.

        Notes say why answers had no values: no slot was closed, no row had a key, rows were before the start.
        """
        self._view.catch_up()
        store = self._view.store
        rings = {
            ring.shown: {"slots": held, "retention": ring.retention, "bytes": store.ring_bytes(r)}
            for r, (ring, held) in enumerate(zip(store.rings, store.held))
        }
        return {
            "keys": self._view.key_count, "watermark": self.watermark, "rings": rings, "bytes": store.nbytes,
            "notes": list(self._view.notes.values()),
        }  # fmt: skip

    def __repr__(self) -> str:
        plan, store = self._view.plan, self._view.store
        shown = ", ".join(f"{n}={a}" for n, a in plan.aggregates if not n.startswith(HIDDEN))
        by = f" by {', '.join(plan.group_keys)}" if plan.group_keys else ""
        rings = ", ".join(f"{r.shown}×{h}" for r, h in zip(store.rings, store.held))
        notes = "".join(f"; note: {note}" for note in self._view.notes.values())
        return f"{type(self).__name__}({shown}{by}; watermark {self.watermark}; {rings}{notes})"

    # -- as an input of a query

    def read_windows(self, node: WheelWindows) -> Iterator[Chunk]:
        """The windows that a plan asks for; see `wheels.query_windows`."""
        return read_windows(node, self._view)

    def facts(self) -> WheelFacts:
        """The facts about this wheel that planning needs."""
        return self._view.facts()

    # -- helpers

    def _layout_of(self, aggregates: Any) -> Layout:
        """The layout of the slots, with the results that a user asks for."""
        spec, own = self._view.spec, self._view.plan
        given = named_aggregates(aggregates, "query")
        keys = own.group_keys
        plan = plan_of(given, own.input.schema, own.input.time, keys, spec.rings, spec.domain)
        return self._view.layout_for(plan.aggregates, "query")

    def _numbers(self, key: Any, total: bool) -> Ints:
        """The numbers of the requested keys; without duplicates for a total."""
        view = self._view
        if key is ALL and not view.keyed:
            return np.zeros(1, dtype=np.int64)
        several = key is ALL or isinstance(key, (list, pa.Array, np.ndarray))
        numbers = view.numbers(key) if several else np.array([view.number(key)], dtype=np.int64)
        return np.unique(numbers) if total else numbers

    def _only(self, outputs: Outputs, asked: Layout | None) -> Any:
        """The single row of an answer: a plain value, or a dict of several values."""
        results = self._view.shown if asked is None else asked.results
        found = {
            r.name: self._view.plain(outputs[2 * j + 1].tolist()[0], r.type) if outputs[2 * j][0] else None
            for j, r in enumerate(results)
        }
        return next(iter(found.values())) if len(found) == 1 else found

    def _with_keys(self, keys: Any, numbers: Ints, table: pa.Table) -> pa.Table:
        columns = self._key_columns(keys, numbers, np.arange(len(numbers)))
        return pa.table({**columns, **{n: table[n] for n in table.column_names}})

    def _key_columns(self, keys: Any, numbers: Ints, which: Ints) -> dict[str, pa.Array]:
        """Key columns with the keys as given; `which` has the position of each row's key."""
        view, names = self._view, self._view.plan.group_keys
        if keys is ALL:
            return view.key_columns(numbers[which])
        listed = keys.to_pylist() if isinstance(keys, pa.Array) else keys
        rows = list(listed) if isinstance(listed, (list, np.ndarray)) else [listed]
        columns = zip(*rows) if len(names) > 1 else [rows]
        return {
            n: pa.array(list(c), type=to_arrow(view.schema[n])).take(pa.array(which))
            for n, c in zip(names, columns)
        }

    def _bounds(self, start: InstantLike, end: InstantLike) -> tuple[int, int]:
        """A range as slots of the finest ring."""
        view = self._view
        a = start if type(start) is int else ticks_of(start, view.domain, "query")
        b = end if type(end) is int else ticks_of(end, view.domain, "query")
        first, off = divmod(a, view.grain)
        last, also_off = divmod(b, view.grain)
        if off or also_off:
            raise UserError(
                "query", expected=f"bounds on the grid of {view.store.rings[0].shown}",
                got=f"[{view.instant(a)}, {view.instant(b)})",
                hint="round them, or make a wheel with a finer granularity",
            )  # fmt: skip
        if not -FARTHEST <= a <= b <= FARTHEST:
            raise UserError(
                "query", expected="an end at or after the start" if b < a else RANGE,
                got=f"[{view.instant(a)}, {view.instant(b)})",
            )  # fmt: skip
        return first, last

    def answers(self, starts: Any, ends: Any, keys: list[pa.Array]) -> pa.Table:
        """A row for each range and key; `keys` are columns."""
        a, b = self._ranges(starts, ends)
        view = self._view
        numbers = view.numbers_of(keys) if view.keyed else np.zeros(len(a), dtype=np.int64)
        return view.table(view.answers(a, b, numbers))

    def _ranges(self, starts: Any, ends: Any) -> tuple[Ints, Ints]:
        a, b = (self._slots_of(x) for x in (starts, ends))
        if len(a) != len(b) or (b < a).any():
            raise UserError(
                "query", expected="as many ends as starts, none before its start",
                got=f"{len(a)} starts, {len(b)} ends" if len(a) != len(b) else "an end before its start",
            )  # fmt: skip
        return a, b

    def _many(self, starts: Any, ends: Any, key: Any, total: bool, asked: Layout | None) -> Any:
        a, b = self._ranges(starts, ends)
        view = self._view
        if total:
            numbers = self._numbers(key, total)
        elif isinstance(key, (list, pa.Array, np.ndarray)):
            numbers = view.numbers(key)
            if len(numbers) != len(a):
                raise UserError(
                    "query", expected=f"a key for each of {len(a)} ranges", got=f"{len(numbers)} keys"
                )
        elif key is ALL and view.keyed:
            raise UserError(
                "query", expected="a key, or a list with a key for each range", got="none",
                hint="query all keys one range at a time, use group_by, or total=True",
            )  # fmt: skip
        else:
            numbers = np.full(len(a), 0 if key is ALL else view.number(key))
        table = view.table(view.answers(a, b, numbers, asked, total=total), asked)
        return table.column(0).combine_chunks() if table.num_columns == 1 else table

    def _slots_of(self, given: Any) -> Ints:
        view = self._view
        ticks = many_ticks(given, view.domain, "query")
        if view.grain == 1:
            return ticks
        ticks = np.ascontiguousarray(ticks)
        slots = np.empty(len(ticks), dtype=np.int64)
        if not slots_at(ticks.ctypes.data, slots.ctypes.data, len(ticks), view.grain):
            [off, *_] = np.flatnonzero(ticks % view.grain)
            raise UserError(
                "query", expected=f"bounds on the grid of {view.store.rings[0].shown}",
                got=f"{view.instant(int(ticks[off]))} at place {off}",
            )  # fmt: skip
        return slots

    def _length(self, length: DurationLike, step: str) -> int:
        view, read = self._view, duration(length, step=step)
        if read.domain is not view.domain or read.ticks <= 0 or read.ticks % view.grain:
            raise UserError(
                step, expected=f"a multiple of {view.store.rings[0].shown}", got=str(read)
            )
        return read.ticks


def _as_listed(key: Any) -> Any:
    """Turn a set or a chunked array of keys into a list or an array; return anything else unchanged."""
    if isinstance(key, (set, frozenset)):
        return list(key)
    return key.combine_chunks() if isinstance(key, pa.ChunkedArray) else key
