"""`Wheel`: rows in, time goes on, answers for any range out (paper 001)."""

from __future__ import annotations

import contextlib
import copy
import os
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from tidemill.aggregates.algebra import Aggregate
from tidemill.aggregates.basic import max as greatest_of
from tidemill.aggregates.basic import min as least_of
from tidemill.codegen.columns import Columns
from tidemill.core.errors import UnsupportedError, UserError
from tidemill.core.files import resolved
from tidemill.core.forks import renew_locks
from tidemill.core.instants import any_ticks, is_instant, ticks_of
from tidemill.core.reading import reading
from tidemill.core.time import FARTHEST, Domain, DurationLike, InstantLike
from tidemill.core.types import to_arrow
from tidemill.expr.fluent import Expr
from tidemill.expr.nodes import Column
from tidemill.io.arrow_checks import require_sound
from tidemill.io.dicts import read_rows
from tidemill.io.sources import open_source
from tidemill.kernels.arrow import values
from tidemill.local.failures import raise_for
from tidemill.local.intake import Intake, LoopNodes
from tidemill.plan.nodes import Source, WindowAggregate
from tidemill.wheels.files.mapped import Mapped
from tidemill.wheels.loops.insert import InsertKernel, has_eight_bytes, insert_kernel
from tidemill.wheels.loops.range_plan import BASE, UNIT, VERSION
from tidemill.wheels.loops.slots import Slots
from tidemill.wheels.memory.merge import merged
from tidemill.wheels.memory.overflow import EarlyRows
from tidemill.wheels.memory.store import FEW_ROWS, MOST_BYTES, RingStore
from tidemill.wheels.queries import ALL, WheelQueries
from tidemill.wheels.rings import DEFAULT, Retention, RingLike, rings_of
from tidemill.wheels.sharing.writer import Publisher, is_shared
from tidemill.wheels.spec import (
    MOST_AHEAD,
    block_slots,
    fits,
    in_ticks,
    named_aggregates,
    named_keys,
    not_numbers,
    plan_of,
    power_of_two,
    whole,
)
from tidemill.wheels.undo import UNDER_WAY, Undo
from tidemill.wheels.windows import FIRST_TIME, LAST_TIME, ClosingWindows
from tidemill.windows.spec import Session, Window, hopping

LATE_ROWS = 100_000
"""So many late rows are kept to be read; all are counted."""
LONG_STEP = 1 << 20
"""Cells of the finest ring that one step may add without a look at the memory."""


class Wheel(WheelQueries):
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

    _store: RingStore

    def __init__(
        self, plan: WindowAggregate, store: RingStore, domain: Domain, write_ahead: int,
        given: Mapping[str, Aggregate],
    ) -> None:  # fmt: skip
        self._given = dict(given)
        super().__init__(plan, store, domain)
        self._time = plan.input.time
        layout, keyed = plan.layout, bool(plan.group_keys)

        def compiled(columns: Columns, nodes: LoopNodes) -> InsertKernel:
            return insert_kernel(columns, layout, nodes.args, keyed)

        self._intake = Intake(self._schema, layout, compiled, keys=plan.group_keys)
        self._rows_at, self._read_at = self._inserts_at()
        self._early = EarlyRows(self._time, self._grain)
        self._late: list[pa.RecordBatch] = []
        self._late_kept = 0
        self._left_out = {"late": 0, "null time": 0, "time out of range": 0}
        self._inserted = 0
        self._failed: UserError | None = None
        """What went wrong while time went on, so that slots may be half closed; or that rows go in."""
        self._name = uuid.uuid4().hex
        self._merged: dict[str, str] = {}
        self._line, self._opened = "", ""
        """Which of the wheels that go on from one save this is; what was seen when it was opened."""
        self._unverified: list[Mapped] = []
        """Files it was opened from that nobody has compared with their checksums."""
        self._write_ahead = write_ahead
        self._windows = self._no_windows()
        self._arrow = self._schema.to_arrow()
        self._publisher: Publisher | None = None
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
        compress: bool | int = False,
        windows: Sequence[Window] | Mapping[str, Window] = (),
    ) -> Wheel:
        """An empty wheel whose watermark is at `start`.

        `granularities` go from fine to coarse, each a multiple of the one before: durations, or pairs
        of a duration and a retention. A retention is "drop" (as many slots as make one of the next
        ring), "keep" (all) or a number of slots; `retention` is for rings without one.
        `write_ahead` slots are open at a time; rows further ahead wait. With `prefix`, every ring also
        keeps running sums, for aggregates of ints that can be subtracted. Ranges of at most
        `one_ring_below` slots of one ring are read from it alone, even if another plan has fewer
        operations. With `compress`, the older slots of rings that keep many take few bits each, in
        blocks of 256 slots, or 16 where there are keys, or as many as it says. `windows` are as those
        of `window`; sessions must be given here.
        """
        step = "wheel"
        rings, domain = rings_of(granularities, retention, step=step)
        given = named_aggregates(aggregates, step)
        listed: Any = [windows] if isinstance(windows, Window) else windows
        if not isinstance(listed, (Mapping, Sequence)) or isinstance(listed, str):
            raise UserError(step, expected="windows, as a list or a dict of them", got=repr(windows))
        named = listed if isinstance(listed, Mapping) else {str(w): w for w in listed}
        if any(isinstance(w, Session) for w in named.values()):
            ticks = Expr(Column(time))
            given |= {FIRST_TIME: least_of(ticks), LAST_TIME: greatest_of(ticks)}
        names = named_keys(keys, step)
        plan = plan_of(given, schema, time, names, rings, domain)
        write_ahead = whole("write_ahead", write_ahead, 1, MOST_AHEAD)
        one_ring_below = whole("one_ring_below", one_ring_below, 0, FARTHEST)
        other = not_numbers(plan)
        if not isinstance(prefix, bool):
            raise UserError(step, expected="prefix=True or False", got=repr(prefix))
        first = ticks_of(start, domain, f"{step} start") // rings[0].ticks
        if other and (prefix or compress):
            got = "prefix=True" if prefix else "compress"
            raise UnsupportedError("wheel", f"{got} with {other}", instead="leave that option out")
        if prefix and compress:
            raise UserError(
                step, expected="prefix=True or compress=True", got="both",
                hint="running sums are read as they are; compressed slots are fast with combined rings",
            )  # fmt: skip
        if prefix and not Slots(plan.layout).subtracts:
            raise UserError(
                step, expected="prefix=True only where aggregates subtract exactly: counts, sums of ints",
                got=", ".join(f"{n}={a}" for n, a in given.items()),
            )  # fmt: skip
        wheel: Wheel
        if other:
            from tidemill.wheels.objects.wheel import object_wheel

            wheel = object_wheel(plan, rings, first, domain, write_ahead, one_ring_below, given)
        else:
            store = RingStore(
                plan.layout, rings, first, power_of_two(write_ahead), prefix=prefix,
                threshold=one_ring_below, compress=block_slots(compress, keyed=bool(names)),
            )  # fmt: skip
            wheel = cls(plan, store, domain, write_ahead, given)
        for name, window in named.items():
            wheel.window(window, name=name)
        return wheel

    # -- rows in

    def insert(
        self, rows: Any, value: Any = None, key: Any = ALL, *, unit: Any = None, tz: Any = None
    ) -> None:
        """Add rows: a table, a batch, a data frame, dicts; or one row as `insert(time, value, key)`.

        `value` is that of the one column that is aggregated, or a dict of all; what is not in it is
        null. Rows below the watermark are late: they are left out, counted and kept for `late()`. Rows
        without a time are left out and counted (`stats`). A null value counts as no value.

        `unit` and `tz` say what ints and naive times of the rows mean, as in `tm.stream`.

        All rows go in, or none: an error in one of them, in what they are read from, or Ctrl-C leaves the
        wheel as it was, and it goes on.
        """
        if isinstance(rows, pa.RecordBatch) and rows.schema.equals(self._arrow):
            self._insert_one(rows)
            return
        assert isinstance(self._plan.input, Source)
        alone = len(self._schema.names) == 1  # then a text may be the time of a row
        path = isinstance(rows, str) and value is None and key is ALL and not alone
        if path or not is_instant(rows):
            source = self._plan.input
            if unit is not None or tz is not None:
                how = reading(self._schema, self._time, unit, tz, step="insert")
                source = replace(source, reading=how)
            reader = open_source(rows, source, promises=False)
            self._insert_all(chunk.batch for chunk in reader)
            return
        if unit is not None or tz is not None:
            raise UserError(
                "insert", expected="unit= and tz= beside rows from a source", got=f"one row at {rows!r}",
                hint="give its time as an instant, or the row as a list of one dict",
            )  # fmt: skip
        row = self._row(rows, value, key)
        if not -FARTHEST <= row[self._time] <= FARTHEST:  # it may not even fit a column
            self._left_out["time out of range"] += 1
            return
        if all(fits(row[n], t.kind) for n, t in self._schema):
            arrays = [pa.array([row[n]], type=to_arrow(t)) for n, t in self._schema]
            self._insert_one(pa.RecordBatch.from_arrays(arrays, schema=self._arrow))
            return
        # Slower: it looks whether all fits.
        self._insert_all(piece.batch for piece in read_rows([row], in_ticks(self._plan.input)))

    def _row(self, time: InstantLike, value: Any, key: Any) -> dict[str, Any]:
        row: dict[str, Any] = dict.fromkeys(self._schema.names)
        row[self._time] = any_ticks(time, self._domain, "insert")
        keys = self._plan.group_keys
        names = [n for n in self._schema.names if n not in (self._time, *keys)]
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
            raise UserError("insert", expected=f"a key for {list(keys)}", got=got)
        row.update(zip(keys, given))
        return row

    def _look_at(self, err: int, step: str, cause: UserError | None = None) -> None:
        """Raise what the bits of a kernel stand for; after that, the wheel only answers."""
        try:
            raise_for(err, step, cause)
        except UserError as failed:
            self._failed = failed
            raise

    @contextlib.contextmanager
    def _stopping(self, step: str) -> Iterator[None]:
        """What fails here may have been done by half, also by Ctrl-C: after that, the wheel only answers."""
        try:
            yield
        except UserError as failed:
            self._failed = failed
            raise
        except BaseException as failed:
            self._failed = UserError(step, f"raised {type(failed).__name__}: {failed}")
            raise

    def _require_sound(self, step: str) -> None:
        if self._failed is not None:
            raise UserError(
                step, expected="a wheel in which nothing failed", got=f"one stopped by: {self._failed}",
                hint="closed slots can still be asked for; go on from the last save, without that row",
            ) from self._failed  # fmt: skip

    def _inserts_at(self) -> tuple[Any, list[int]]:
        """A kernel that reads columns where Arrow has them, if all can be, and which those are."""
        plain = self._intake.expressions.plain
        kinds = self._intake.expressions.schema
        if plain is None or not all(has_eight_bytes(kind) for _, kind in kinds):
            return None, []
        names = self._schema.names
        return self._intake.kernel(Columns(kinds)).run_at, [names.index(n) for n in (self._time, *plain)]

    def _insert_one(self, batch: pa.RecordBatch) -> None:
        if self._failed is not None:
            self._require_sound("insert")
        if self._rows_at is None or not self._insert_few(batch):
            self._insert_all((require_sound(batch, "insert"),))

    def _insert_few(self, batch: pa.RecordBatch) -> bool:
        """Insert rows whose columns are read where they are: a third of the time, for a hundred rows.
        Whether that could be done."""
        n, found = batch.num_rows, []
        if n > FEW_ROWS or n == 0:
            return False
        for i in self._read_at:
            array = batch.column(i)
            body = array.buffers()[1]
            if array.null_count or body is None or body.address & 7 or body.size < 8 * (array.offset + n):
                return False
            found.append(body.address + 8 * array.offset)
        store, undo = self._store, None
        if self._keyed:
            undo = Undo(self)
        remembers = False
        try:
            if undo is not None:
                with self._lock:
                    kid = self._intake.key_ids(require_sound(batch, "insert"), self._keys)
                found.append(kid.ctypes.data)
                store.know(self._keys.count)
            logs = store.remember(n)
            remembers = True
            early, late, err = self._rows_at(store.inserting, n, self._grain, logs, *found)
            if err:
                raise_for(err, "insert")
            if early or late:
                undo = undo or Undo(self)
                self._keep_others(batch, store.others, early, late)
            self._inserted += n - early - late
        except BaseException as failed:
            self._take_out(undo, failed, remembers)
            raise
        return True

    def _insert_all(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Insert all batches, or nothing."""
        self._require_sound("insert")
        undo, slots = Undo(self), self._store.undo()
        try:
            self._failed = UNDER_WAY  # nobody else may write, and the source of these rows neither
            for batch in batches:
                self._insert(batch, slots)
            self._failed = None
        except BaseException as failed:
            self._failed = UNDER_WAY
            slots.roll_back()
            undo.roll_back(failed)
            self._failed = None
            raise

    def _take_out(self, undo: Undo | None, cause: BaseException, some_in: bool) -> None:
        """Have the wheel as it was before the few rows that failed, of which some may be in."""
        self._failed = UNDER_WAY
        if some_in:
            self._store.put_back()
        if undo is not None:
            undo.roll_back(cause)
        self._failed = None

    def _insert(self, batch: pa.RecordBatch, undo: Any = None) -> None:
        """Insert rows, so that `undo` can take them out again."""
        batch = self._with_times(batch)
        n, time = batch.num_rows, batch.column(self._time)
        if n == 0:
            return
        columns, args, failure = self._intake.prepare(batch)
        with self._lock:
            kid = self._intake.key_ids(batch, self._keys)
        if self._keyed:
            self._store.know(self._keys.count)
        others = np.empty(n, dtype=np.uint32)
        store = self._store
        places, records = (store.places, store.records) if undo is None else undo.log_for(n)
        early, late, err = self._intake.kernel(columns).run(
            n, values(time), *args, kid, store.now * self._grain, self._grain, 1.0 / self._grain,
            store.ahead, store.now, others, undo is not None and len(records) > 0, places, records,
        )  # fmt: skip
        raise_for(err, "insert", failure)
        self._inserted += n - early - late
        self._keep_others(batch, others, early, late)

    def _with_times(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Without the rows that have no time; they are counted."""
        time = batch.column(self._time)
        if time.null_count:
            self._left_out["null time"] += time.null_count
            batch = batch.filter(time.is_valid())
        return batch

    def _keep_others(self, batch: pa.RecordBatch, others: Any, early: int, late: int) -> None:
        """Rows that were not inserted: positions of early ones are at the front, of late ones at the back."""
        if late:
            rows = self._within_reach(batch.take(pa.array(others[len(others) - late :][::-1])))
            self._left_out["late"] += rows.num_rows
            self._keep_late(rows)
        if early:
            self._early.add(self._within_reach(batch.take(pa.array(others[:early]))))

    def _keep_late(self, rows: pa.RecordBatch) -> None:
        room = LATE_ROWS - self._late_kept
        if room > 0:
            self._late.append(rows.slice(0, room))
            self._late_kept += min(room, rows.num_rows)

    def _within_reach(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Without those whose time is too far away to count with; they are counted."""
        ticks = values(rows.column(self._time))
        far = (ticks > FARTHEST) | (ticks < -FARTHEST)
        if far.any():
            self._left_out["time out of range"] += int(far.sum())
            rows = rows.filter(pa.array(~far))
        return rows

    def late(self) -> pa.Table:
        """The rows that came too late, the first 100 000 of them; `stats` has their number."""
        return pa.Table.from_batches(self._late, schema=self._arrow)

    # -- windows

    def window(
        self, range: DurationLike | Window, every: DurationLike | None = None, *, name: str | None = None
    ) -> None:
        """Add a window, before the first row: `advance_to` then returns those that close.

        `range` and `every` make a sliding one; or give a window such as `tm.hopping("1h", every="1m")`.
        """
        if isinstance(range, Window):
            spec = range
        else:
            spec = hopping(range, every=range if every is None else every)
        if self._inserted or len(self._early) or self._store.now != self._store.first:
            raise UserError(
                "wheel window", expected="windows before the first row", got="a wheel that has begun"
            )
        self._windows.add(spec, name or str(spec))

    # -- time

    def advance_to(self, time: InstantLike) -> pa.Table | None:
        """Move the watermark to the last bound of slots at or below a time. It never moves back.

        Returns the windows that closed, if the wheel has windows.
        """
        if self._failed is not None:
            self._require_sound("advance_to")
        if type(time) is int and -FARTHEST <= time <= FARTHEST:
            until = time // self._grain
        else:
            until = ticks_of(time, self._domain, "advance_to") // self._grain
        if (until - self._store.now) * self._store.room > LONG_STEP:
            if self.is_empty():
                self._store.begin_at(min(until, self._early.first_slot))
                self._bring_in()
            self.require_memory(until)
        closed: list[pa.Table] = []
        while (before := self._store.now) < until:
            closed += self._advance(before, until)
        if not self._windows:
            return None
        if not closed:
            return self._windows.none()
        return closed[0] if len(closed) == 1 else pa.concat_tables(closed)

    def _advance(self, before: int, until: int) -> list[pa.Table]:
        """Close slots as far as possible at once; the windows that closed."""
        store, first = self._store, self._early.first_slot
        target = min(until, max(first, before + 1))
        if self._windows:  # they read the slots that have just closed, before others take their place
            target = min(target, before + min(store.capacity, store.compress or store.capacity))
        if self._publisher is not None:
            self._publish_keys()
        store.make_room(target)  # where there is none, nothing has happened yet
        with self._stopping("advance_to"):
            err = store.close(target)
        if err:
            self._look_at(err, "advance_to")
        closed = list(self._windows.take(before, target)) if self._windows else []
        if first < target + len(store.ahead):
            self._bring_in()
        return closed

    def _require_verified(self) -> None:
        """Compare files it was opened from with their checksums, before others are made from them."""
        for file in self._unverified:
            file.verify()
        self._unverified = []

    def _no_windows(self) -> ClosingWindows:
        return ClosingWindows(self._plan, self._store, self._domain, self._keys, self._look_at)

    def is_empty(self) -> bool:
        """Whether it does not matter when this wheel begins: nothing is in it, and nobody looks on."""
        return not (self._inserted or self._windows or self._merged or self._publisher)

    def require_memory(self, until: int) -> None:
        """Refuse a watermark, by mistake in years to come, up to which "keep" would hold every slot."""
        store = self._store
        need = 0
        for r, ring in enumerate(store.rings):
            if ring.slots is None:
                slots = max(0, until // int(store.ring(r)[UNIT]) - int(store.ring(r)[BASE]))
                # Compressed ones take half of it at the most, most often; and they take time.
                need += slots * store.room * store.cell_bytes // (2 if store.compresses(r) else 1)
        if need > MOST_BYTES:
            raise UserError(
                "advance_to", expected=f"rings of at most {MOST_BYTES / 1e9:.3g} GB, half of the memory",
                got=f"{need / 1e9:.3g} GB up to {self._instant(until * self._grain)}",
                hint='retention "keep" holds every slot, even empty ones: keep a number of them',
            )  # fmt: skip

    def _bring_in(self) -> None:
        """Insert the rows that were too far ahead and are so no more."""
        reach = (self._store.now + len(self._store.ahead)) * self._grain
        if (rows := self._early.below(reach)) is not None:
            with self._stopping("advance_to"):
                self._insert(rows)

    # -- files

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the wheel into a directory, as a new save beside the one before.

        Nothing that is there is touched until the new files are complete.
        """
        from tidemill.wheels.files.saving import save

        self._require_sound("save")
        if is_shared(resolved(path, step="wheel save")):
            raise UserError("save", expected="a directory of its own", got=f"{path}, which is shared")
        save(self, path)

    # -- readers in other processes

    def share(self, path: str | os.PathLike[str]) -> None:
        """Let other processes read the wheel while it goes on: `tm.open_wheel(path)` there.

        The arrays move into files in a directory, which is best one in memory, such as under /dev/shm;
        what a shared wheel left there goes, and a directory with anything else is refused. A directory has
        one writer at a time. Where there is no room for the files it is an error, and the wheel goes on
        as before: alone, or where it was shared already.
        """
        from tidemill.wheels.files.saving import described

        if self._store.cold is not None:
            raise UnsupportedError("wheel share", "a compressed wheel", instead="share a plain one")
        publisher = Publisher(Path(path), described(self))  # refused, before anything is given up
        before, store = self._publisher, self._store
        try:
            store.unpack()  # one that is shared already is so
            arrays, head, version = store.arrays(), store.head, store.head.item(VERSION)
        except BaseException:
            publisher.withdraw()
            raise
        try:
            self._share_by(publisher)
            store.changed()
            self._publish_keys()
        except BaseException:
            # What readers of the directory before have is still there, with the same in it: back to that.
            for name, array in arrays.items():
                store.replace(name, array)
            head[VERSION] = version
            self._share_by(before)
            store.settle()
            publisher.withdraw()
            raise
        if before is not None:
            before.close()
            head[VERSION] += head[VERSION] & 1  # who reads there may go on, with what there was

    def _share_by(self, publisher: Publisher | None) -> None:
        self._publisher, store = publisher, self._store
        store.on_change = _nobody if publisher is None else publisher.publish
        store.on_undo = _nobody if publisher is None else publisher.publish_again

    def _publish_keys(self) -> None:
        if self._publisher is None:
            return
        self._publisher.require_own()
        if not self._keyed or self._publisher.closed or self._publisher.keys == self._store.keys:
            return
        columns = self._keys.decode(np.arange(self._publisher.keys, self._store.keys))
        self._publisher.add_keys(pa.table(dict(zip(self._plan.group_keys, columns))))

    # -- merging

    @property
    def id(self) -> str:
        """What this wheel is known by to those it is merged into; it changes with every change."""
        if self._opened not in ("", self._seen):  # it goes on; others may have been opened from the same
            self._line += f".{uuid.uuid4().hex[:8]}"
            self._opened = ""
        return f"{self._name}{self._line}@{self._seen}"

    @property
    def _seen(self) -> str:
        return f"{self._inserted + len(self._early)}.{self._store.now}.{len(self._merged)}"

    def merge(self, other: Wheel) -> bool:
        """Add everything another wheel of the same kind has seen; the watermark becomes the later one.

        In any order and grouping the result is the same. A wheel that was merged before, directly or in
        another one, is not counted twice: False says that nothing happened. Where it fails, as on a sum
        that overflows, both wheels are as they were.
        """
        from tidemill.wheels.merge import merge

        return merge(self, other)

    def _merged_store(self, other: Wheel, names: Any, keys: int) -> RingStore:
        """What both have seen; the keys of the other are those `names`, of so many `keys`."""
        both, err = merged(self._store, other._store, names, keys)
        raise_for(err, "wheel merge")
        return both

    def _copy(self) -> Wheel:
        """Another wheel with the same in it."""
        other = copy.copy(self)
        other._store, other._keys, other._numbers_seen = self._store.copy(), self._keys.copy(), {}
        other._early = self._early.copy()
        other._left_out, other._late = dict(self._left_out), list(self._late)
        other._merged = dict(self._merged)
        other.new_locks()
        renew_locks(other)
        return other

    def stats(self) -> dict[str, Any]:
        """Slots and bytes by ring, and how many rows came, wait or were left out."""
        rows = {"rows": self._inserted, "rows ahead": len(self._early)}
        return {**super().stats(), **rows, "left out": dict(self._left_out)}


def _nobody(store: RingStore) -> None:
    """Nobody else has the arrays."""
