"""What can be asked of a wheel: ranges, one or many, of one key, some or all."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemill.core.errors import UserError
from tidemill.core.forks import renew_locks
from tidemill.core.instants import RANGE, is_instant, many_ticks, ticks_of
from tidemill.core.schema import Schema
from tidemill.core.time import (
    FARTHEST,
    Domain,
    DurationLike,
    InstantLike,
    duration,
    instant,
    to_datetime,
)  # fmt: skip
from tidemill.core.types import DataType, to_arrow
from tidemill.io.chunks import Chunk
from tidemill.io.window_source import WindowSource
from tidemill.kernels.arrow import build
from tidemill.kernels.keys import KeyIndex
from tidemill.local.expressions import allocate
from tidemill.local.failures import raise_for
from tidemill.plan.nodes import WheelWindows, WindowAggregate
from tidemill.plan.wheel import HeldRing, WheelFacts
from tidemill.wheels.explain import Explained, explain
from tidemill.wheels.loops.answer import NOT_THERE, OFF_GRID
from tidemill.wheels.loops.range_plan import LOW, slots_at
from tidemill.wheels.memory.buckets import Buckets
from tidemill.wheels.memory.store import RingStore

Ints = npt.NDArray[np.int64]
ALL = object()
"""Every key there is."""
HIDDEN = "\0"
"""Aggregates whose names begin so come last, and are for the wheel itself."""
MOST_PIECES = 50_000_000
"""Rows of one series."""
MOST_NUMBERS = 1 << 16
"""Keys whose numbers are remembered."""
FIRST_DATE, LAST_DATE = instant("0001-01-01"), instant("9999-12-31")
"""What a datetime can say."""


class WheelQueries(WindowSource):
    """A wheel to read from."""

    def __init__(self, plan: WindowAggregate, store: RingStore | Buckets, domain: Domain) -> None:
        self._plan, self._domain = plan, domain
        self._store: RingStore | Buckets = store
        self._schema = plan.input.schema
        self._grain = store.rings[0].ticks
        self._keyed = bool(plan.group_keys)
        self._keys = KeyIndex(Schema(tuple((k, self._schema[k]) for k in plan.group_keys)))
        self.new_locks()
        renew_locks(self)
        self._results = plan.layout.results
        self._shown = [r for r in self._results if not r.name.startswith(HIDDEN)]
        self._names = [r.name for r in self._shown]
        self._as_is = all(r.type.kind in ("int64", "float64", "bool") for r in self._shown)
        """Whether values of results are shown as they are."""
        self._one_number = self._as_is and len(self._shown) == 1
        self._numbers_seen: dict[Any, int] = {}
        """Numbers of keys that were asked for: looking one up takes longer than an answer."""

    def new_locks(self) -> None:
        """Have locks that nobody has: in a process that was forked, who had them is not there."""
        self._lock = threading.Lock()
        """Of the keys: looking one up while others are added could find another one."""

    @property
    def watermark(self) -> Any:
        """Everything below is complete and can be asked for; rows below it are late."""
        return self._instant(self._store.now * self._grain)

    def query(self, start: Any, end: Any, key: Any = ALL) -> Any:
        """The aggregate of `[start, end)`: a plain value for one range, key and aggregate.

        Several aggregates give a dict. A wheel with keys and no `key`, or a list, an array or a set of
        keys, gives a table with a row for each. Lists or arrays of starts and ends give a column, or a
        table, with a row for each range.

        Bounds lie on the grid of the finest granularity. What is at or above the watermark is not
        known yet: a range counts as far as the watermark. A range whose slots were dropped is an error.
        """
        if type(start) is int and type(end) is int:  # what is asked most often, without more calls
            number = 0 if key is ALL and not self._keyed else self._number_seen(key)
            if number is not None:
                return self._one(start, end, number)
        key = _as_listed(key)
        if not (type(start) is int or is_instant(start)):
            return self._many(start, end, key)
        if (key is ALL and self._keyed) or isinstance(key, (list, pa.Array, np.ndarray)):
            return self._by_key(*self._bounds(start, end), key)
        a, b = (ticks_of(x, self._domain, "query") for x in (start, end))
        return self._one(a, b, 0 if key is ALL else self._number(key))

    def _one(self, start: int, end: int, number: int) -> Any:
        """The answer for one range of ticks and one key, as people read it."""
        try:
            found = self._store.answer(start, end, number)
        except OverflowError:  # no machine int
            found = (OFF_GRID,)
        if found[0]:
            a, b = self._bounds(start, end)
            if found[0] == NOT_THERE:
                raise self._not_held(a, b)
            raise_for(found[0], "wheel query")
        if self._one_number:
            return found[2] if found[1] else None
        if self._as_is:
            values = [v if valid else None for valid, v in zip(found[1::2], found[2::2])]
            return dict(zip(self._names, values))
        values = [
            self._plain(found[2 * j + 2], r.type) if found[2 * j + 1] else None
            for j, r in enumerate(self._shown)
        ]
        return values[0] if len(values) == 1 else dict(zip(self._names, values))

    def _number_seen(self, key: Any) -> int | None:
        """The number of a plain key that was asked for before; None if it must be looked up."""
        return self._numbers_seen.get(key) if type(key) is int or type(key) is str else None

    def landmark(self, key: Any = ALL) -> Any:
        """Everything from the beginning to the watermark, whatever the rings still hold."""
        self._catch_up()
        # As far as the watermark, wherever that is by the time this is answered.
        return self.query(self._beginning, self._far, key)

    def latest(self, length: DurationLike, key: Any = ALL) -> Any:
        """The last stretch of time before the watermark."""
        ticks = self._length(length, "latest")
        while True:
            self._catch_up()
            now = self._store.now * self._grain
            try:
                return self.query(max(self._beginning, now - ticks), now, key)
            except UserError:
                if self._store.now * self._grain == now:  # nothing was dropped meanwhile
                    raise

    def group_by(self, start: InstantLike, end: InstantLike, every: DurationLike, key: Any = ALL) -> pa.Table:
        """A series: the aggregates of `[start, end)` cut into pieces, a row for each piece and key."""
        self._catch_up()
        a, b = self._bounds(start, end)
        step = self._length(every, "group_by") // self._grain
        key = _as_listed(key)
        many = key is ALL or isinstance(key, (list, pa.Array, np.ndarray))
        numbers = self._numbers(key) if many else np.array([self._number(key)])
        if (rows := -(-(b - a) // step) * len(numbers)) > MOST_PIECES:
            raise UserError("group_by", expected=f"at most {MOST_PIECES:,} rows", got=f"{rows:,}")
        starts = np.arange(a, b, step, dtype=np.int64)
        ends = np.minimum(starts + step, b)
        cells = np.repeat(np.arange(len(numbers)), len(starts))
        table = self._answers(np.tile(starts, len(numbers)), np.tile(ends, len(numbers)), numbers[cells])
        bound = to_arrow(self._plan.bound_type)
        columns = [build(np.tile(x, len(numbers)) * self._grain, None, bound) for x in (starts, ends)]
        keys = self._key_columns(key, numbers, cells) if self._keyed else {}
        named = {**keys, "window_start": columns[0], "window_end": columns[1]}
        return pa.table({**named, **{n: table[n] for n in table.column_names}})

    def explain(self, start: InstantLike, end: InstantLike) -> Explained:
        """How a range would be answered: plan, operations, and what else there was to choose from."""
        self._catch_up()
        a, b = self._bounds(start, end)
        store = self._store.typical if isinstance(self._store, Buckets) else self._store
        return explain(store, a, b, lambda slot: self._instant(slot * self._grain))

    def stats(self) -> dict[str, Any]:
        """Keys, the watermark, slots and bytes by ring, and bytes by what they are for."""
        self._catch_up()
        store = self._store
        rings = {
            ring.shown: {"slots": held, "retention": ring.retention, "bytes": store.ring_bytes(r)}
            for r, (ring, held) in enumerate(zip(store.rings, store.held))
        }
        return {
            "keys": store.keys, "watermark": self.watermark, "rings": rings, "bytes": store.nbytes,
        }  # fmt: skip

    def __repr__(self) -> str:
        given = self._plan.aggregates
        shown = ", ".join(f"{n}={a}" for n, a in given if not n.startswith(HIDDEN))
        by = f" by {', '.join(self._plan.group_keys)}" if self._keyed else ""
        rings = ", ".join(f"{r.shown}×{h}" for r, h in zip(self._store.rings, self._store.held))
        return f"{type(self).__name__}({shown}{by}; watermark {self.watermark}; {rings})"

    # -- for queries that are answered from here

    def read_windows(self, node: WheelWindows) -> Iterator[Chunk]:
        """The windows that a plan asks for; see `wheels.source`."""
        from tidemill.wheels.source import read_windows  # which needs this class

        return read_windows(node, self)

    def facts(self) -> WheelFacts:
        """What a plan must know of this wheel."""
        self._catch_up()
        store, plan = self._store, self._plan
        shown = tuple((n, a) for n, a in plan.aggregates if not n.startswith(HIDDEN))
        rings = tuple(
            HeldRing(ring.ticks, ring.shown, int(store.ring(r)[LOW]) * ring.ticks)
            for r, ring in enumerate(store.rings)
        )
        return WheelFacts(replace(plan, aggregates=shown), rings, store.now * self._grain)

    def closed(self) -> tuple[int, Ints]:
        """The first slot that is open, and the keys that had rows before it."""
        self._catch_up()
        now = self._store.now
        self._catch_up()  # keys are known before their slots close: now at least those below
        numbers = self._numbers(ALL)
        return now, numbers[numbers < self._keys.count]

    def _catch_up(self) -> None:
        """Know what the writer has done since; here, the writer is this wheel."""

    # -- helpers

    @property
    def _far(self) -> int:
        """Later than any watermark, on the grid."""
        return FARTHEST // self._grain * self._grain

    @property
    def _beginning(self) -> int:
        return self._store.first * self._grain

    def _bounds(self, start: InstantLike, end: InstantLike) -> tuple[int, int]:
        """A range in finest slots."""
        a = start if type(start) is int else ticks_of(start, self._domain, "query")
        b = end if type(end) is int else ticks_of(end, self._domain, "query")
        first, off = divmod(a, self._grain)
        last, also_off = divmod(b, self._grain)
        if off or also_off:
            raise UserError(
                "query", expected=f"bounds on the grid of {self._store.rings[0].shown}",
                got=f"[{self._instant(a)}, {self._instant(b)})",
                hint="round them, or make a wheel with a finer granularity",
            )  # fmt: skip
        if not -FARTHEST <= a <= b <= FARTHEST:
            raise UserError(
                "query", expected="an end at or after the start" if b < a else RANGE,
                got=f"[{self._instant(a)}, {self._instant(b)})",
            )  # fmt: skip
        return first, last

    def answers(self, starts: Any, ends: Any, keys: list[pa.Array]) -> pa.Table:
        """A row for each range and key, which is given by column."""
        a, b = self._ranges(starts, ends)
        with self._lock:
            numbers = self._keys.find(keys) if self._keyed else np.zeros(len(a), dtype=np.int64)
        return self._answers(a, b, numbers)

    def _ranges(self, starts: Any, ends: Any) -> tuple[Ints, Ints]:
        a, b = (self._slots_of(x) for x in (starts, ends))
        if len(a) != len(b) or (b < a).any():
            raise UserError(
                "query", expected="as many ends as starts, none before its start",
                got=f"{len(a)} starts, {len(b)} ends" if len(a) != len(b) else "an end before its start",
            )  # fmt: skip
        return a, b

    def _many(self, starts: Any, ends: Any, key: Any) -> Any:
        a, b = self._ranges(starts, ends)
        if isinstance(key, (list, pa.Array, np.ndarray)):
            numbers = self._numbers(key)
            if len(numbers) != len(a):
                raise UserError(
                    "query", expected=f"a key for each of {len(a)} ranges", got=f"{len(numbers)} keys"
                )
        elif key is ALL and self._keyed:
            raise UserError(
                "query", expected="a key, or a list with a key for each range", got="none",
                hint="ask for all keys one range at a time, or use group_by",
            )  # fmt: skip
        else:
            numbers = np.full(len(a), 0 if key is ALL else self._number(key))
        table = self._answers(a, b, numbers)
        return table.column(0).combine_chunks() if table.num_columns == 1 else table

    def _slots_of(self, given: Any) -> Ints:
        ticks = many_ticks(given, self._domain, "query")
        if self._grain == 1:
            return ticks
        ticks = np.ascontiguousarray(ticks)
        slots = np.empty(len(ticks), dtype=np.int64)
        if not slots_at(ticks.ctypes.data, slots.ctypes.data, len(ticks), self._grain):
            [off, *_] = np.flatnonzero(ticks % self._grain)
            grid = self._store.rings[0].shown
            raise UserError(
                "query", expected=f"bounds on the grid of {grid}",
                got=f"{self._instant(int(ticks[off]))} at place {off}",
            )  # fmt: skip
        return slots

    def _by_key(self, a: int, b: int, keys: Any) -> pa.Table:
        numbers = self._numbers(keys)
        table = self._answers(np.array([a]), np.array([b]), numbers)
        columns = self._key_columns(keys, numbers, np.arange(len(numbers)))
        return pa.table({**columns, **{n: table[n] for n in table.column_names}})

    def _answers(self, starts: Ints, ends: Ints, numbers: Ints) -> pa.Table:
        outputs = self._outputs(len(numbers))
        bad, err = self._store.answers(starts, ends, numbers, outputs)
        if bad >= 0:
            raise self._not_held(int(starts[bad]), int(ends[bad]))
        raise_for(err, "wheel query")
        arrays = {}
        for j, r in enumerate(self._shown):
            arrays[r.name] = self._column(outputs[2 * j + 1], outputs[2 * j], r.type)
        return pa.table(arrays)

    def _outputs(self, n: int) -> list[npt.NDArray[Any]]:
        """Room for so many answers: validity and values of each result."""
        return [x for r in self._results for x in (np.empty(n, np.bool_), allocate(r.type, n))]

    def _column(self, data: Any, valid: Any, kind: DataType) -> pa.Array:
        """A column of what was written into that room."""
        return build(data, valid, to_arrow(kind))

    def _number(self, key: Any) -> int:
        """The number of a key, -1 if it never came."""
        given = tuple(key) if isinstance(key, tuple) else (key,)
        number = int(self._find([[g] for g in given])[0])
        if number >= 0 and (type(key) is int or type(key) is str):
            if len(self._numbers_seen) >= MOST_NUMBERS:
                self._numbers_seen.clear()
            self._numbers_seen[key] = number
        return number

    def _numbers(self, keys: Any) -> Ints:
        if keys is ALL:
            return self._store.present
        listed = keys.to_pylist() if isinstance(keys, pa.Array) else list(keys)
        if len(self._plan.group_keys) > 1:
            return self._find([list(c) for c in zip(*listed)])
        return self._find([listed])

    def _find(self, columns: list[list[Any]]) -> Ints:
        names = self._plan.group_keys
        if len(columns) != len(names):
            raise UserError("query", expected=f"a key for {list(names)}", got=f"{len(columns)} values")
        try:
            arrays = [
                pa.array(c, type=to_arrow(self._schema[n])) for c, n in zip(columns, names)
            ]
        except (pa.ArrowInvalid, UnicodeEncodeError, pa.ArrowTypeError) as wrong:
            raise UserError(
                "query", expected=", ".join(f"{n}: {self._schema[n]!r}" for n in names), got=str(columns)
            ) from wrong
        with self._lock:
            return self._keys.find(arrays)

    def _key_columns(self, keys: Any, numbers: Ints, cells: Ints) -> dict[str, pa.Array]:
        names = self._plan.group_keys
        if keys is ALL:
            with self._lock:
                return dict(zip(names, self._keys.decode(numbers[cells])))
        listed = keys.to_pylist() if isinstance(keys, pa.Array) else keys
        rows = list(listed) if isinstance(listed, (list, np.ndarray)) else [listed]
        columns = zip(*rows) if len(names) > 1 else [rows]
        return {
            n: pa.array(list(c), type=to_arrow(self._schema[n])).take(pa.array(cells))
            for n, c in zip(names, columns)
        }

    def _not_held(self, a: int, b: int) -> UserError:
        store = self._store
        held = [
            f"{ring.shown} since {self._instant(int(store.ring(r)[LOW]) * ring.ticks)}"
            for r, ring in enumerate(store.rings)
        ]
        return UserError(
            "query", expected=f"a range that the rings still hold: {', '.join(held)}",
            got=f"[{self._instant(a * self._grain)}, {self._instant(b * self._grain)})",
            hint="ask on a coarser grid, or create the wheel with more retention",
        )  # fmt: skip

    def _length(self, length: DurationLike, step: str) -> int:
        read = duration(length, step=step)
        if read.domain is not self._domain or read.ticks <= 0 or read.ticks % self._grain:
            raise UserError(
                step, expected=f"a multiple of {self._store.rings[0].shown}", got=str(read)
            )
        return read.ticks

    def _instant(self, ticks: int) -> Any:
        """As people read it; ticks where that is none, as after the year 9999."""
        readable = self._domain is Domain.CLOCK and FIRST_DATE <= ticks <= LAST_DATE
        return to_datetime(ticks) if readable else ticks

    def _plain(self, value: Any, kind: DataType) -> Any:
        if kind.kind == "timestamp" and not FIRST_DATE <= value <= LAST_DATE:
            return int(value)  # as `_instant`
        if kind.kind in ("timestamp", "duration"):
            return pa.scalar(int(value), pa.int64()).cast(to_arrow(kind)).as_py()
        return value


def _as_listed(key: Any) -> Any:
    """Keys in a set, or in chunks, as a list or an array; a key as it is."""
    if isinstance(key, (set, frozenset)):
        return list(key)
    return key.combine_chunks() if isinstance(key, pa.ChunkedArray) else key
