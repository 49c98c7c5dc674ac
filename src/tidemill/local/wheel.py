"""`Wheel`: rows in, time goes on, answers for any range out (paper 001)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemill.aggregates.algebra import Aggregate
from tidemill.codegen.columns import Columns
from tidemill.codegen.wheel import InsertKernel, insert_kernel
from tidemill.core.errors import UnsupportedError, UserError
from tidemill.core.schema import Schema
from tidemill.core.time import (
    FARTHEST,
    Domain,
    DurationLike,
    InstantLike,
    duration,
    instant,
    instant_domain,
    to_datetime,
)  # fmt: skip
from tidemill.core.types import STRING, DataType, to_arrow
from tidemill.kernels.arrow import build, values
from tidemill.kernels.keys import KeyIndex
from tidemill.local.expressions import Expressions, allocate
from tidemill.local.failures import raise_for
from tidemill.local.parts import plan_parts
from tidemill.local.sources import open_source
from tidemill.plan import build as plans
from tidemill.plan.nodes import WINDOW_END, WINDOW_START, NamedWindow, WindowAggregate
from tidemill.wheels.explain import Explained, explain
from tidemill.wheels.rings import DEFAULT, Retention, RingLike, rings_of
from tidemill.wheels.store import RingStore
from tidemill.wheels.windows import SlidingWindows
from tidemill.windows.spec import Sliding, Window, hopping, tumbling

Ints = npt.NDArray[np.int64]
ALL = object()
"""Every key there is."""
LATE_ROWS = 100_000
"""So many late rows are kept to be read; all are counted."""
MOST_AHEAD = 1 << 20


class Wheel:
    """Aggregates of a stream by time: any range of the past, in microseconds.

    Rows go into open slots at and above the watermark. `advance_to` closes slots: they become part of
    the rings, never change again, and can be asked for.

    >>> from tidemill.aggregates.basic import sum
    >>> from tidemill.expr.fluent import col
    >>> wheel = Wheel.create(
    ...     sum(col.fare), schema={"ts": "timestamp", "fare": "int64"}, time="ts",
    ...     start="2023-10-01T10:00:00",
    ... )
    >>> wheel.insert("2023-10-01T10:00:01", 5)
    >>> wheel.insert("2023-10-01T10:00:03", 7)
    >>> wheel.advance_to("2023-10-01T10:00:05")
    >>> wheel.query("2023-10-01T10:00:00", "2023-10-01T10:00:02")
    5
    >>> wheel.landmark()
    12
    """

    def __init__(
        self, plan: WindowAggregate, store: RingStore, domain: Domain, write_ahead: int
    ) -> None:
        self._plan, self._store, self._domain = plan, store, domain
        source = plan.input
        self._schema, self._time = source.schema, source.time
        self._grain = store.rings[0].ticks
        self._layout = plan.layout
        self._keys = KeyIndex(Schema(tuple((k, self._schema[k]) for k in plan.group_keys)))
        nodes = [a for part in self._layout.parts for a in part.part.args]
        self._expressions = Expressions(nodes, self._schema)
        self._kernels: dict[Columns, InsertKernel] = {}
        self._early: list[pa.RecordBatch] = []
        self._late: list[pa.RecordBatch] = []
        self._late_kept = 0
        self._left_out = {"late": 0, "null time": 0, "time out of range": 0}
        self._inserted = 0
        self._write_ahead = write_ahead
        self._results = self._layout.results
        self._windows: dict[str, SlidingWindows] = {}
        if not plan.group_keys:
            store.know(1)

    @classmethod
    def create(
        cls,
        aggregates: Aggregate | Mapping[str, Aggregate],
        *,
        schema: Any,
        time: str,
        start: InstantLike,
        keys: str | Sequence[str] = (),
        granularities: Iterable[RingLike] = DEFAULT,
        retention: Retention | None = None,
        write_ahead: int = 64,
        prefix: bool = False,
        one_ring_below: int = 0,
    ) -> Wheel:
        """An empty wheel whose watermark is at `start`.

        `granularities` go from fine to coarse, each a multiple of the one before: durations, or pairs
        of a duration and a retention. A retention is "drop" (as many slots as make one of the next
        ring), "keep" (all) or a number of slots; `retention` is for rings without one.
        `write_ahead` slots are open at a time; rows further ahead wait. With `prefix`, every ring also
        keeps running sums, for aggregates of ints that can be subtracted. Ranges of at most
        `one_ring_below` slots of one ring are read from it alone, even if another plan has fewer
        operations.
        """
        step = "wheel"
        rings, domain = rings_of(granularities, retention, step=step)
        given = {"value": aggregates} if isinstance(aggregates, Aggregate) else dict(aggregates)
        source = plans.source("events", time, schema)
        names = (keys,) if isinstance(keys, str) else tuple(keys)
        grain = rings[0].ticks if domain is Domain.LOGICAL else f"{rings[0].ticks}us"
        node, group = plans.grouped(source, names, {})
        plan = plans.window_aggregate(node, group, (NamedWindow(None, tumbling(grain)),), given)
        _check_supported(plan)
        if not isinstance(write_ahead, int) or not 0 < write_ahead <= MOST_AHEAD:
            raise UserError(
                step, expected=f"write_ahead from 1 to {MOST_AHEAD}", got=repr(write_ahead)
            )
        first = _ticks(start, domain, f"{step} start") // rings[0].ticks
        ahead = 1 << (write_ahead - 1).bit_length()
        store = RingStore(
            plan.layout, rings, first, ahead, prefix=prefix, threshold=one_ring_below
        )
        if prefix and not store.exact:
            raise UserError(
                step, expected="prefix=True only where aggregates subtract exactly: counts, sums of ints",
                got=", ".join(f"{n}={a}" for n, a in given.items()),
            )  # fmt: skip
        return cls(plan, store, domain, write_ahead)

    # -- rows in

    def insert(self, rows: Any, value: Any = None, key: Any = None) -> None:
        """Add rows: a table, a batch, a data frame, dicts; or one row as `insert(time, value, key)`.

        `value` is that of the one column that is aggregated, or a dict of all. Rows below the watermark
        are late: they are left out, counted and kept for `late()`. Rows without a time are left out and
        counted (`stats`). A null value counts as no value.
        """
        path = isinstance(rows, str) and value is None and key is None
        if path or not _is_instant(rows):
            source = self._plan.input
            for chunk in open_source(rows, _source_of(source), promises=False):
                self._insert(chunk.batch)
            return
        self._insert(self._row(rows, value, key))

    def _row(self, time: InstantLike, value: Any, key: Any) -> pa.RecordBatch:
        row: dict[str, Any] = {self._time: _ticks(time, self._domain, "insert")}
        names = [n for n in self._schema.names if n not in (self._time, *self._plan.group_keys)]
        if isinstance(value, Mapping):
            row.update(value)
        elif len(names) == 1:
            row[names[0]] = value
        elif names:
            raise UserError(
                "insert", expected=f"a dict of values for {names}", got=repr(value)
            )
        given = key if isinstance(key, (tuple, list)) else (key,)
        if len(self._plan.group_keys) not in (0, len(given)):
            raise UserError(
                "insert", expected=f"a key for {list(self._plan.group_keys)}", got=repr(key)
            )
        row.update(zip(self._plan.group_keys, given))
        arrays = [pa.array([row.get(n)], type=to_arrow(t)) for n, t in self._schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema.to_arrow())

    def _insert(self, batch: pa.RecordBatch) -> None:
        time = batch.column(self._time)
        if time.null_count:
            self._left_out["null time"] += time.null_count
            batch = batch.filter(time.is_valid())
            time = batch.column(self._time)
        n = batch.num_rows
        if n == 0:
            return
        columns, args, failure = self._expressions.prepare(batch)
        kid = np.empty(0, dtype=np.int64)
        if self._plan.group_keys:
            kid = self._keys.encode([batch.column(k) for k in self._plan.group_keys])
            self._store.know(self._keys.count)
        others = np.empty(n, dtype=np.uint32)
        store = self._store
        early, late, err = self._kernel(columns).run(
            n, values(time), *args, kid, store.now * self._grain, self._grain, 1.0 / self._grain,
            store.ahead, store.now, others,
        )  # fmt: skip
        raise_for(err, "wheel insert", failure)
        self._inserted += n - early - late
        if late:
            self._left_out["late"] += late
            self._keep_late(batch.take(pa.array(others[n - late :][::-1])))
        if early:
            self._keep_early(batch.take(pa.array(others[:early])))

    def _kernel(self, columns: Columns) -> InsertKernel:
        kernel = self._kernels.get(columns)
        if kernel is None:
            args, at = [], 0
            for part in self._layout.parts:
                count = len(part.part.args)
                args.append(self._expressions.nodes[at : at + count])
                at += count
            keyed = bool(self._plan.group_keys)
            kernel = self._kernels[columns] = insert_kernel(columns, self._layout, tuple(args), keyed)
        return kernel

    def _keep_late(self, rows: pa.RecordBatch) -> None:
        room = LATE_ROWS - self._late_kept
        if room > 0:
            self._late.append(rows.slice(0, room))
            self._late_kept += min(room, rows.num_rows)

    def _keep_early(self, rows: pa.RecordBatch) -> None:
        ticks = values(rows.column(self._time))
        far = ticks > FARTHEST
        if far.any():
            self._left_out["time out of range"] += int(far.sum())
            rows = rows.filter(pa.array(~far))
        if rows.num_rows:
            self._early.append(rows)

    def late(self) -> pa.Table:
        """The rows that came too late, the first 100 000 of them; `stats` has their number."""
        return pa.Table.from_batches(self._late, schema=self._schema.to_arrow())

    # -- windows

    def window(self, range: DurationLike | Sliding, every: DurationLike | None = None, *, name: str | None = None) -> None:
        """Add a sliding window, before the first row: `advance_to` then returns those that close.

        `range` may be a window such as `tm.hopping("1h", every="1m")`. Several windows need names.
        """
        spec = range if isinstance(range, Window) else hopping(range, every=range if every is None else every)
        if not isinstance(spec, Sliding) or spec.fill_empty or spec.on is not None:
            raise UnsupportedError("wheel", f"window {spec}", instead="use the query engine")
        if self._inserted or self._early or self._store.now != self._store.first:
            raise UserError(
                "wheel window", expected="windows before the first row", got="a wheel that has begun"
            )
        slots = [x // self._grain for x in (spec.length, spec.slide, spec.origin)]
        if spec.domain is not self._domain or any(
            x % self._grain for x in (spec.length, spec.slide, spec.origin)
        ):
            raise UserError(
                "wheel window", expected=f"range, slide and origin on the grid of {self._store.rings[0].shown}",
                got=str(spec),
            )  # fmt: skip
        label = name or str(spec)
        if label in self._windows:
            raise UserError("wheel window", expected="a name of its own for each window", got=repr(label))
        self._windows[label] = SlidingWindows(self._store, *slots, bounded=spec.bounded)

    def _closed_windows(self, start: int, until: int) -> Iterator[pa.RecordBatch]:
        kinds = [allocate(r.type, 0).dtype for r in self._results]
        bound = to_arrow(self._plan.bound_type)
        for label, window in self._windows.items():
            kid, begin, end, outputs, err = window.take(start, until, kinds)
            raise_for(err, f"wheel window {label}")
            arrays = self._keys.decode(kid) if self._plan.group_keys else []
            if len(self._windows) > 1:
                arrays.append(pa.repeat(pa.scalar(label), len(kid)))
            arrays += [build(x * self._grain, None, bound) for x in (begin, end)]
            for j, r in enumerate(self._results):
                arrays.append(build(outputs[2 * j + 1], outputs[2 * j], to_arrow(r.type)))
            yield pa.RecordBatch.from_arrays(arrays, schema=self._window_schema())

    def _window_schema(self) -> pa.Schema:
        fields = [(k, self._schema[k]) for k in self._plan.group_keys]
        fields += [("window", STRING)] if len(self._windows) > 1 else []
        bound = self._plan.bound_type
        fields += [(WINDOW_START, bound), (WINDOW_END, bound)]
        return Schema((*fields, *((r.name, r.type) for r in self._results))).to_arrow()

    # -- time

    @property
    def watermark(self) -> Any:
        """Everything below is complete and can be asked for; rows below it are late."""
        return self._instant(self._store.now * self._grain)

    def advance_to(self, time: InstantLike) -> pa.Table | None:
        """Move the watermark to the last bound of slots at or below a time. It never moves back.

        Returns the windows that closed, if the wheel has windows.
        """
        until = _ticks(time, self._domain, "advance_to") // self._grain
        store = self._store
        closed: list[pa.RecordBatch] = []
        # Windows read the slots that have just closed, before others take their place.
        most = int(store.ring(0)[2]) if self._windows else until - store.now
        while store.now < until:
            waiting = min((self._slot(b).min() for b in self._early), default=until)
            before = store.now
            target = min(until, max(int(waiting), before + 1), before + most)
            raise_for(store.close(target), "advance_to")
            closed += self._closed_windows(before, target)
            self._bring_in()
        return pa.Table.from_batches(closed, schema=self._window_schema()) if self._windows else None

    def _slot(self, batch: pa.RecordBatch) -> Ints:
        slots: Ints = values(batch.column(self._time)) // self._grain
        return slots

    def _bring_in(self) -> None:
        """Insert the rows that were too far ahead and are so no more."""
        reach = self._store.now + len(self._store.ahead)
        waiting, self._early = self._early, []
        for batch in waiting:
            if self._slot(batch).min() < reach:
                self._insert(batch)
            else:
                self._early.append(batch)

    # -- answers

    def query(self, start: Any, end: Any, key: Any = ALL) -> Any:
        """The aggregate of `[start, end)`: a plain value for one range, key and aggregate.

        Several aggregates give a dict. A wheel with keys and no `key`, or a list of keys, gives a table
        with a row for each. Lists or arrays of starts and ends give a column, or a table, with a row for
        each range.

        Bounds lie on the grid of the finest granularity. What is at or above the watermark is not
        known yet: a range counts as far as the watermark. A range whose slots were dropped is an error.
        """
        if not _is_instant(start):
            return self._many(start, end, key)
        a, b = self._bounds(start, end)
        if key is ALL and self._plan.group_keys:
            return self._by_key(a, b, None)
        if isinstance(key, (list, pa.Array, np.ndarray)):
            return self._by_key(a, b, key)
        number = 0 if key is ALL else self._number(key)
        found = self._store.answer(a, b, number) if number >= 0 else self._nothing()
        if found is None:
            raise self._not_held(a, b)
        if found[0]:
            raise_for(found[0], "wheel query")
        plain = [
            self._plain(found[2 * j + 2], r.type) if found[2 * j + 1] else None
            for j, r in enumerate(self._results)
        ]
        return plain[0] if len(plain) == 1 else dict(zip((r.name for r in self._results), plain))

    def landmark(self, key: Any = ALL) -> Any:
        """Everything from the beginning to the watermark, whatever the rings still hold."""
        return self.query(self._beginning, self._store.now * self._grain, key)

    def latest(self, length: DurationLike, key: Any = ALL) -> Any:
        """The last stretch of time before the watermark."""
        ticks = self._length(length, "latest")
        now = self._store.now * self._grain
        return self.query(max(self._beginning, now - ticks), now, key)

    def group_by(self, start: InstantLike, end: InstantLike, every: DurationLike, key: Any = ALL) -> pa.Table:
        """A series: the aggregates of `[start, end)` cut into pieces, a row for each piece and key."""
        a, b = self._bounds(start, end)
        step = self._length(every, "group_by") // self._grain
        starts = np.arange(a, b, step, dtype=np.int64)
        ends = np.minimum(starts + step, b)
        many = key is ALL or isinstance(key, (list, pa.Array, np.ndarray))
        numbers = self._numbers(key) if many else np.array([self._number(key)])
        cells = np.repeat(np.arange(len(numbers)), len(starts))
        table = self._answers(np.tile(starts, len(numbers)), np.tile(ends, len(numbers)), numbers[cells])
        bound = to_arrow(self._plan.bound_type)
        columns = [build(np.tile(x, len(numbers)) * self._grain, None, bound) for x in (starts, ends)]
        keys = self._key_columns(key, numbers, cells) if self._plan.group_keys else {}
        named = {**keys, "window_start": columns[0], "window_end": columns[1]}
        return pa.table({**named, **{n: table[n] for n in table.column_names}})

    def explain(self, start: InstantLike, end: InstantLike) -> Explained:
        """How a range would be answered: plan, operations, and what else there was to choose from."""
        a, b = self._bounds(start, end)
        return explain(self._store, a, b, lambda slot: self._instant(slot * self._grain))

    def stats(self) -> dict[str, Any]:
        """Slots and bytes by ring, and how many rows came, wait or were left out."""
        store = self._store
        cells = max(1, int(sum(c.nbytes for c in store.columns)) // max(1, store.slot_room))
        rings = {
            ring.shown: {"slots": held, "retention": ring.retention, "bytes": held * cells}
            for ring, held in zip(store.rings, store.held)
        }
        return {
            "keys": store.keys, "watermark": self.watermark, "rings": rings, "bytes": store.nbytes,
            "rows": self._inserted, "rows ahead": sum(b.num_rows for b in self._early),
            "left out": dict(self._left_out),
        }  # fmt: skip

    def __repr__(self) -> str:
        shown = ", ".join(f"{n}={a}" for n, a in self._plan.aggregates)
        by = f" by {', '.join(self._plan.group_keys)}" if self._plan.group_keys else ""
        rings = ", ".join(f"{r.shown}×{h}" for r, h in zip(self._store.rings, self._store.held))
        return f"Wheel({shown}{by}; watermark {self.watermark}; {rings})"

    # -- helpers

    @property
    def _beginning(self) -> int:
        return self._store.first * self._grain

    def _bounds(self, start: InstantLike, end: InstantLike) -> tuple[int, int]:
        a = start if type(start) is int else _ticks(start, self._domain, "query")
        b = end if type(end) is int else _ticks(end, self._domain, "query")
        if a % self._grain or b % self._grain:
            raise UserError(
                "query", expected=f"bounds on the grid of {self._store.rings[0].shown}",
                got=f"[{self._instant(a)}, {self._instant(b)})",
                hint="round them, or make a wheel with a finer granularity",
            )  # fmt: skip
        if b < a:
            raise UserError(
                "query", expected="an end at or after the start",
                got=f"[{self._instant(a)}, {self._instant(b)})",
            )  # fmt: skip
        return a // self._grain, b // self._grain

    def _many(self, starts: Any, ends: Any, key: Any) -> Any:
        a, b = (self._slots_of(x) for x in (starts, ends))
        if len(a) != len(b) or (b < a).any():
            raise UserError(
                "query", expected="as many ends as starts, none before its start",
                got=f"{len(a)} starts, {len(b)} ends" if len(a) != len(b) else "an end before its start",
            )  # fmt: skip
        if isinstance(key, (list, pa.Array, np.ndarray)):
            numbers = self._numbers(key)
            if len(numbers) != len(a):
                raise UserError(
                    "query", expected=f"a key for each of {len(a)} ranges", got=f"{len(numbers)} keys"
                )
        elif key is ALL and self._plan.group_keys:
            raise UserError(
                "query", expected="a key, or a list with a key for each range", got="none",
                hint="ask for all keys one range at a time, or use group_by",
            )  # fmt: skip
        else:
            numbers = np.full(len(a), 0 if key is ALL else self._number(key))
        table = self._answers(a, b, numbers)
        return table.column(0).combine_chunks() if table.num_columns == 1 else table

    def _slots_of(self, given: Any) -> Ints:
        if isinstance(given, (pa.Array, pa.ChunkedArray)):
            given = np.asarray(given.cast(pa.int64()))
        array = np.asarray(given)
        if array.dtype.kind == "M":
            array = array.astype("datetime64[us]").astype(np.int64)
        if array.dtype.kind not in "iu":
            array = np.array([_ticks(x, self._domain, "query") for x in given], dtype=np.int64)
        ticks = array.astype(np.int64, copy=False)
        if self._grain == 1:
            return ticks
        slots: Ints = ticks // self._grain
        if (slots * self._grain != ticks).any():
            raise UserError("query", expected=f"bounds on the grid of {self._store.rings[0].shown}", got="others")
        return slots

    def _by_key(self, a: int, b: int, keys: Any) -> pa.Table:
        numbers = self._numbers(ALL if keys is None else keys)
        table = self._answers(np.array([a]), np.array([b]), numbers)
        columns = self._key_columns(ALL if keys is None else keys, numbers, np.arange(len(numbers)))
        return pa.table({**columns, **{n: table[n] for n in table.column_names}})

    def _answers(self, starts: Ints, ends: Ints, numbers: Ints) -> pa.Table:
        n = len(numbers)
        known = np.maximum(numbers, 0)
        outputs = [x for r in self._results for x in (np.empty(n, np.bool_), allocate(r.type, n))]
        if self._store.keys == 0:  # no key has come yet
            for x in outputs:
                x[...] = 0
            bad, err = -1, 0
        else:
            bad, err = self._store.answers(starts, ends, known, outputs)
        if bad >= 0:
            raise self._not_held(int(starts[bad]), int(ends[bad]))
        raise_for(err, "wheel query")
        arrays = {}
        for j, r in enumerate(self._results):
            valid, data = outputs[2 * j], outputs[2 * j + 1]
            if (numbers < 0).any() or self._store.keys == 0:
                empty = r.empty
                gone = (numbers < 0) if self._store.keys else np.ones(n, dtype=np.bool_)
                data[gone], valid[gone] = (0 if empty is None else empty), empty is not None
            arrays[r.name] = build(data, valid, to_arrow(r.type))
        return pa.table(arrays)

    def _nothing(self) -> tuple[Any, ...]:
        """The results over no rows, as the store gives them."""
        found: list[Any] = [0]
        for r in self._results:
            found += [r.empty is not None, r.empty]
        return tuple(found)

    def _number(self, key: Any) -> int:
        """The number of a key, -1 if it never came."""
        given = tuple(key) if isinstance(key, tuple) else (key,)
        return int(self._find([[g] for g in given])[0])

    def _numbers(self, keys: Any) -> Ints:
        if keys is ALL:  # there is room for null, whether it came or not
            return np.flatnonzero(self._store.totals["rows"][: self._store.keys])
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
        except (pa.ArrowInvalid, pa.ArrowTypeError) as wrong:
            raise UserError(
                "query", expected=", ".join(f"{n}: {self._schema[n]!r}" for n in names), got=str(columns)
            ) from wrong
        return self._keys.find(arrays)

    def _key_columns(self, keys: Any, numbers: Ints, cells: Ints) -> dict[str, pa.Array]:
        names = self._plan.group_keys
        if keys is ALL:
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
            f"{ring.shown} since {self._instant(int(store.ring(r)[4]) * ring.ticks)}"
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
        return ticks if self._domain is Domain.LOGICAL else to_datetime(ticks)

    def _plain(self, value: Any, kind: DataType) -> Any:
        if kind.kind in ("timestamp", "duration"):
            return pa.scalar(int(value), pa.int64()).cast(to_arrow(kind)).as_py()
        return value


def _check_supported(plan: WindowAggregate) -> None:
    layout = plan.layout
    parts = plan_parts(layout)
    other = [i for i in range(len(layout.parts)) if i not in parts.records]
    if other:
        part = layout.parts[other[0]].part
        raise UnsupportedError(
            "wheel", f"{part}: its partials are not a few numbers that combine in any order",
            instead="aggregate it with a window",
        )
    for index, part_ in enumerate(layout.parts):
        if any(t.kind == "string" for t in (*part_.types, *(t for _, t in part_.columns))):
            raise UnsupportedError(
                "wheel", f"{layout.parts[index].part}: text", instead="aggregate it with a window"
            )


def _source_of(plan: Any) -> Any:
    while hasattr(plan, "input"):
        plan = plan.input
    return plan


def _is_instant(value: Any) -> bool:
    import datetime

    return isinstance(value, (int, str, datetime.datetime, np.integer))


def _ticks(value: InstantLike, domain: Domain, step: str) -> int:
    if isinstance(value, np.integer):
        value = int(value)
    own = instant_domain(value)
    if own is not None and own is not domain:
        raise UserError(step, expected=f"an instant of {domain.value}", got=repr(value))
    return instant(value, step=step)
