"""`tm.Wheel`: insert rows, advance the watermark, query any range (paper 001)."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from tidemill.aggregates.algebra import Aggregate
from tidemill.core.errors import UnsupportedError, UserError
from tidemill.core.files import resolved
from tidemill.core.instants import any_ticks, is_instant, ticks_of
from tidemill.core.time import FARTHEST, DurationLike, InstantLike
from tidemill.core.time_reading import reading
from tidemill.core.types import to_arrow
from tidemill.io.dicts import read_rows
from tidemill.io.progress import counted
from tidemill.io.sources import open_source
from tidemill.plan.nodes import Source
from tidemill.wheels.files.saving import described, save
from tidemill.wheels.loops.range_plan import VERSION
from tidemill.wheels.memory.sparse_store import SparseStore
from tidemill.wheels.memory.store import RingStore
from tidemill.wheels.merge_wheels import merged
from tidemill.wheels.queries import WheelQueries
from tidemill.wheels.rings import DEFAULT, Retention, RingLike
from tidemill.wheels.sharing.writer import Publisher, is_shared
from tidemill.wheels.spec import block_slots, fits, in_ticks, read_spec, read_windows_given
from tidemill.wheels.state import WheelState, empty_state
from tidemill.wheels.view import ALL
from tidemill.windows.spec import Window, hopping


class Wheel(WheelQueries):
    """An index of a stream's aggregates by time, which answers any past range in microseconds.

    Rows go into open slots at and above the watermark. `advance_to` closes slots: they become part of
    the rings, never change again, and can be queried.

    >>> from tidemill.aggregates.basic import sum
    >>> from tidemill.expr.fluent import col
    >>> wheel = Wheel(
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
        self,
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
        compress: bool | int = False,
        windows: Window | Sequence[Window] | Mapping[str, Window] = (),
    ) -> None:
        """Make an empty wheel whose watermark is at `start`.

        `granularities` go from fine to coarse, each a multiple of the one before: durations, or pairs
        of a duration and a retention. A retention is "drop" (as many slots as make one of the next
        ring), "keep" (all) or a number of slots; `retention` is the default for rings without one.
        `write_ahead` slots are open at a time; rows further ahead are buffered. With `prefix`, every ring
        also keeps running sums, for aggregates of ints that can be subtracted. Ranges of at most
        `one_ring_below` slots of one ring are read from it alone, even if another plan has fewer
        operations. With `compress`, the older slots of rings that keep many are bit-packed, in blocks
        of 256 slots (16 with keys), or of the given number of slots. `windows` are as in `window`;
        sessions must be given here.
        """
        named = read_windows_given(windows)
        spec = read_spec(
            aggregates, schema=schema, time=time, keys=keys, granularities=granularities,
            retention=retention, write_ahead=write_ahead, prefix=prefix, one_ring_below=one_ring_below,
            compress=compress, windows=named,
        )  # fmt: skip
        first = ticks_of(start, spec.domain, "wheel start") // spec.grain
        keyed = bool(spec.plan.group_keys)
        sparse = False if named else None  # windows read a cell for every slot
        self._begin(empty_state(spec, first, block_slots(compress, keyed=keyed), sparse=sparse))
        for name, window in named.items():
            self.window(window, name=name)

    @classmethod
    def of_state(cls, state: WheelState) -> Wheel:
        """Make a wheel from a state. Internal."""
        wheel = cls.__new__(cls)
        wheel._begin(state)
        return wheel

    def snapshot(self) -> WheelState:
        """Return a copy of the state, which later changes do not affect. Internal."""
        return self._state.copy()

    def _begin(self, state: WheelState) -> None:
        super().__init__(state)
        self._state = state
        self._publisher: Publisher | None = None

    # -- rows in

    def insert(
        self, rows: Any, value: Any = None, key: Any = ALL, *, unit: Any = None, tz: Any = None,
        format: Any = None,
    ) -> None:  # fmt: skip
        """Add rows: a table, a batch, a data frame, dicts; or one row as `insert(time, value, key)`.

        `value` is the value of the only aggregated column, or a dict of columns to values; missing columns
        are null. Rows below the watermark are late: they are left out, counted and kept for `late()`. Rows
        without a time are left out and counted (`stats`). Aggregates skip null values.

        `unit`, `tz` and `format` define the meaning of numbers, naive times and text, as in `tm.stream`.

        Either all rows are inserted or none: after an error in a row or in its source, or Ctrl-C, the wheel
        is unchanged and usable.
        """
        state = self._state
        if isinstance(rows, pa.RecordBatch) and rows.schema.equals(state.arrow):
            state.insert_batch(rows)
            return
        source, schema = state.plan.input, state.schema
        assert isinstance(source, Source)
        alone = len(schema.names) == 1  # then a string may be the time of a row
        said = any(given is not None for given in (unit, tz, format))
        path = isinstance(rows, str) and value is None and key is ALL and not alone
        if path or not is_instant(rows):
            if said:
                how = reading(schema, state.time, unit, tz, format, step="insert")
                source = replace(source, reading=how)
            reader = open_source(rows, source, promises=False)
            state.insert_all(chunk.batch for chunk in reader)
            return
        if said:
            raise UserError(
                "insert", expected="unit=, tz= and format= only with rows from a source",
                got=f"one row at {rows!r}",
                hint="give its time as an instant, or the row as a list of one dict",
            )  # fmt: skip
        row = self._row(rows, value, key)
        if not -FARTHEST <= row[state.time] <= FARTHEST:  # it may not even fit a column
            state.left_out["time out of range"] += 1
            return
        if all(fits(row[n], t.kind) for n, t in schema):
            arrays = [pa.array([row[n]], type=to_arrow(t)) for n, t in schema]
            state.insert_batch(pa.RecordBatch.from_arrays(arrays, schema=state.arrow))
            return
        # Slower: every value is checked.
        state.insert_all(chunk.batch for chunk in read_rows([row], in_ticks(source)))

    def _row(self, time: InstantLike, value: Any, key: Any) -> dict[str, Any]:
        state = self._state
        row: dict[str, Any] = dict.fromkeys(state.schema.names)
        row[state.time] = any_ticks(time, state.domain, "insert")
        keys = state.plan.group_keys
        names = [n for n in state.schema.names if n not in (state.time, *keys)]
        if len(names) == 1 and not isinstance(value, Mapping):
            value = {names[0]: value}
        elif not names and value is None:
            value = {}
        if not isinstance(value, Mapping) or not value.keys() <= set(names):
            raise UserError(
                "insert", expected=f"a dict of values for {names}", got=repr(value)
            )
        row.update(value)
        given = () if key is ALL else key if isinstance(key, (tuple, list)) else (key,)
        if len(keys) != len(given):
            got = "none" if key is ALL else repr(key)
            expected = f"a key for {list(keys)}" if keys else "no key: the wheel has no keys"
            raise UserError("insert", expected=expected, got=got)
        row.update(zip(keys, given))
        return row

    def late(self) -> pa.Table:
        """The first 100 000 late rows; `stats` has the number of all of them."""
        return pa.Table.from_batches(self._state.late, schema=self._state.arrow)

    # -- windows

    def window(
        self, range: DurationLike | Window, every: DurationLike | None = None, *, name: str | None = None
    ) -> None:
        """Add a window, before the first row: `advance_to` then returns the windows that close.

        `range` and `every` make a sliding window; or give a window such as `tm.hopping("1h", every="1m")`.
        """
        state = self._state
        if state.spec.objects:
            raise self._unsupported("windows", "use the query engine")
        if isinstance(range, Window):
            spec = range
        else:
            spec = hopping(range, every=range if every is None else every)
        if state.inserted or len(state.early) or state.store.now != state.store.first:
            raise UserError(
                "wheel window", expected="windows before the first row", got="a wheel in use"
            )
        if isinstance(state.store, SparseStore):
            if self._publisher is not None:
                raise UserError("wheel window", expected="windows before share", got="a wheel that is shared")
            state.have_all_cells()
        state.windows.add(spec, name or str(spec))

    # -- time

    def advance_to(self, time: InstantLike, *, progress: bool = False) -> pa.Table | None:
        """Advance the watermark to the last slot bound at or below a time. It never moves back.

        Returns the windows that closed, if the wheel has windows. `progress` shows a progress bar on the
        terminal, for the slots of buffered rows: closing years of them takes seconds.
        """
        state = self._state
        if type(time) is int and -FARTHEST <= time <= FARTHEST and not progress:
            return state.advance(time // state.grain)
        state.require_sound("advance_to")
        until = ticks_of(time, state.domain, "advance_to") // state.grain
        if not progress:
            return state.advance(until)
        with counted("slots") as show:
            return state.advance(until, show)

    # -- files

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the wheel into a directory, as a new save beside the previous one.

        Open windows are saved, too. Existing files stay untouched until the new ones are complete.
        """
        self._state.require_sound("save")
        if is_shared(resolved(path, step="wheel save")):
            raise UserError("save", expected="a directory that is not shared", got=f"{path}, which is shared")
        save(self._state, path)

    # -- readers in other processes

    def share(self, path: str | os.PathLike[str]) -> None:
        """Let other processes read the wheel while it is written: they call `tm.open_wheel(path)`.

        The arrays move into files in a directory, best one in memory, such as under /dev/shm. Files that a
        shared wheel left there are removed; a directory with anything else is an error. A directory has one
        writer at a time. If there is no space for the files, an error is raised and the wheel stays as it
        was: not shared, or shared in its previous directory.
        """
        if self._state.spec.objects:
            raise self._unsupported("share", "save it, and open it there")
        store = self._state.store
        if store.blocks is not None:
            raise UnsupportedError("wheel share", "a compressed wheel", instead="share one without compress")
        publisher = Publisher(Path(path), described(self._state))  # raises before anything changes
        before = self._publisher
        try:
            store.unpack()  # a shared store is unpacked already
            arrays, head, version = store.arrays(), store.head, store.head.item(VERSION)
        except BaseException:
            publisher.withdraw()
            raise
        try:
            self._share_by(publisher)
            store.changed()
            self._publish_keys()
        except BaseException:
            # The files of the previous directory still hold the same data: return to them.
            for name, array in arrays.items():
                store.replace(name, array)
            head[VERSION] = version
            self._share_by(before)
            store.settle()
            publisher.withdraw()
            raise
        if before is not None:
            before.close()
            head[VERSION] += head[VERSION] & 1  # even: readers of the old directory may finish their reads

    def _share_by(self, publisher: Publisher | None) -> None:
        self._publisher, store = publisher, self._state.store
        store.shared = publisher is not None
        store.on_change = _nobody if publisher is None else publisher.publish
        store.on_undo = _nobody if publisher is None else publisher.publish_again
        self._state.before_close = None if publisher is None else self._publish_keys

    def _publish_keys(self) -> None:
        """Publish new keys to readers, before slots with their rows close."""
        publisher, state = self._publisher, self._state
        if publisher is None:
            return
        publisher.require_own()
        if not state.keyed or publisher.closed or publisher.keys == state.store.keys:
            return
        numbers = np.arange(publisher.keys, state.store.keys)
        publisher.add_keys(pa.table(dict(zip(state.plan.group_keys, state.keys.decode(numbers)))))

    # -- merging

    @property
    def id(self) -> str:
        """The id of this wheel's state, by which `merge` detects duplicates; every change changes it."""
        return self._state.id

    def merge(self, other: Wheel) -> bool:
        """Add the contents of another wheel of the same kind; the watermark becomes the later one.

        The order and grouping of merges do not matter. A wheel that was merged before, directly or inside
        another one, is not counted twice: `merge` returns False. A wheel that has changed since it was
        merged is an error: use `tm.Replicas` to read wheels that still take rows. If a merge fails, as on a
        sum that overflows, both wheels are unchanged.
        """
        if self._publisher is not None:
            raise UserError("wheel merge", expected="a wheel that is not shared", got="one that is")
        if not isinstance(other, Wheel):
            raise UserError("wheel merge", expected=f"a wheel such as {self!r}", got=repr(other))
        both = merged(self._state, other._state)
        if both is None:
            return False
        self._state.become(both)
        return True

    def stats(self) -> dict[str, Any]:
        """Slots and bytes by ring, and how many rows were inserted, buffered or left out."""
        state = self._state
        rows = {"rows": state.inserted, "rows ahead": len(state.early)}
        return {**super().stats(), **rows, "left out": dict(state.left_out)}

    def _unsupported(self, what: str, instead: str) -> UnsupportedError:
        return UnsupportedError("wheel", f"{what} with {self._state.spec.objects}", instead=instead)


def _nobody(store: RingStore) -> None:
    """The callback of a wheel that is not shared."""
