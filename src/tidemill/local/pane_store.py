"""The store of partials by key and pane: records, the spill, and the rows that some parts keep.

For sessions, a record may span many panes: the rows of a key from the time `pane` to the time `end`.

`add` is called for every batch. `elements` is called when windows may close: it sorts the partials by key
and pane, combines those with the same key and pane, and stores the result in place of its inputs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemill.aggregates.layout import Layout, StatePart
from tidemill.codegen.accumulate import AccumulateKernel
from tidemill.codegen.algebra import numpy_type, record_type
from tidemill.codegen.combine_partials import combine_kernel, merge_kernel
from tidemill.codegen.fold_ordered_rows import refold_kernel
from tidemill.codegen.kernel_errors import raise_for
from tidemill.codegen.state_plan import StatePlan
from tidemill.core.errors import UserError
from tidemill.core.time import FARTHEST, FOREVER
from tidemill.core.types import STRING
from tidemill.kernels.arrow import enlarged
from tidemill.kernels.functions import FAR_TIME, NULL_TIME
from tidemill.kernels.memory import discard, empty
from tidemill.kernels.order import float_key, order_by
from tidemill.kernels.pane_records import drain, grouped, moved, spread, unroll
from tidemill.kernels.texts import Texts
from tidemill.local.marks import Marks
from tidemill.local.object_states import combine_objects, update_object
from tidemill.local.tuning import DEFAULT, Tuning
from tidemill.plan.faults import far_time, null_time
from tidemill.plan.nodes import WindowAggregate
from tidemill.plan.physical import Panes

Ints = npt.NDArray[np.int64]
NO_PANE = -(1 << 63)


class Planes(NamedTuple):
    """The planes of a store that has all its partials there, each pane in a plane of its own."""

    records: npt.NDArray[Any]
    keys: int
    first: int
    """The first pane that is needed."""
    last: int


@dataclass
class KeptRows:
    """The rows that one part keeps: key, pane, arguments."""

    kid: Ints
    pane: Ints
    args: list[npt.NDArray[Any]]

    def room(self, count: int, more: int) -> None:
        if count + more <= len(self.kid):
            return
        size = max(2 * len(self.kid), count + more)
        # Rows are moved whenever windows close, so these arrays are soon replaced by smaller ones.
        self.kid, self.pane, *self.args = (
            enlarged(a, size, count, lasting=False) for a in (self.kid, self.pane, *self.args)
        )

    def take(self, order: Ints) -> None:
        self.kid, self.pane = self.kid[order], self.pane[order]
        self.args = [a[order] for a in self.args]


@dataclass
class Elements:
    """All partials, sorted by key and pane, one element for each pair; valid until the store changes."""

    records: npt.NDArray[Any]
    rows: dict[int, tuple[Ints, list[npt.NDArray[Any]]]] = field(default_factory=dict)
    """For each part that keeps rows: offsets by element, and argument columns."""
    objects: dict[int, list[Any]] = field(default_factory=dict)
    row_objects: dict[int, tuple[Ints, list[tuple[Any, ...]]]] = field(default_factory=dict)
    """For parts that keep rows for functions in Python: offsets by element, and rows in order."""

    @property
    def kid(self) -> Ints:
        return self.records["kid"]

    @property
    def pane(self) -> Ints:
        return self.records["pane"]

    @property
    def end(self) -> Ints:
        """The time of the last row of each element, where panes are single times."""
        names = self.records.dtype.names or ()
        return self.records["end" if "end" in names else "pane"]

    def __len__(self) -> int:
        return len(self.records)

    def chosen(self, places: Ints) -> Elements:
        """Return the elements at some places, which are in order."""
        keep = np.zeros(len(self), dtype=np.bool_)
        keep[places] = True
        rows = {}
        for index, (offsets, columns) in self.rows.items():
            sizes = np.diff(offsets)
            some = np.repeat(keep, sizes)
            rows[index] = (np.append(0, np.cumsum(sizes[keep])), [c[some] for c in columns])
        objects = {i: [states[at] for at in places.tolist()] for i, states in self.objects.items()}
        return Elements(self.records[places], rows, objects)


class PaneStore:
    """The mutable state of a window aggregate.

    `reach` is the number of panes that a window covers, or None if it is not known. If it is known,
    recent panes are held in planes, so that in-order data never has to be sorted. `gap` is the gap of
    sessions whose records span rows, otherwise None.
    """

    def __init__(
        self, plan: WindowAggregate, panes: Panes, layout: Layout, parts: StatePlan, reach: int | None = None,
        lanes: int = 1, tuning: Tuning = DEFAULT, gap: int | None = None,
    ) -> None:  # fmt: skip
        self.gap = gap
        self.plan, self._panes, self.layout, self.parts = plan, panes, layout, parts
        self._plane_bytes = tuning.plane_bytes // lanes
        self._small_planes = tuning.small_planes
        self._few_strings = tuning.few_strings
        self._reach = reach
        self._keys = 0
        self._needed = NO_PANE + 1
        self._first, self._last = FOREVER, NO_PANE
        self._step = 0
        """How many panes the last rows went on."""
        self.marks: Marks | None = None
        """What changes, for the next checkpoint; None if nobody asks."""
        self.texts = Texts()
        """The texts of partials and kept rows, which hold their ids."""
        self._trim_above, self._held_text = tuning.few_strings, tuning.held_text
        self._dtype = record_type(layout, parts.fixed, gap is not None)
        self._by_plane = reach is not None
        self._tags = np.full(1, NO_PANE, dtype=np.int64)
        """The pane of each dense plane, whose records are started for all keys; `NO_PANE` for others."""
        self._tagged = False
        """Whether there may be others than `NO_PANE`."""
        self._started = np.zeros(1, dtype=np.uint8)
        """Which planes were used. The memory of the others was never touched, so it takes no room."""
        self._dense, self._dense_rows, self._rows_of_pane = False, tuning.dense_rows, 0
        self._planes = np.zeros((1, 0), dtype=self._dtype)
        self._newest = np.zeros(0, dtype=np.int32)
        """Without planes: the position in the spill of each key's newest record."""
        self._unrolled = np.zeros(0, dtype=self._dtype)
        self._spill = np.zeros(0, dtype=self._dtype)
        self._count = 0
        self._filled = np.zeros(max(1, len(parts.kept)), dtype=np.int64)
        self._kept = [_empty_rows(layout.parts[i]) for i in parts.kept]
        self._objects: dict[int, dict[tuple[int, int], Any]] = {i: {} for i in parts.objects}

    @property
    def rank(self) -> Ints:
        """The rank of each string of the pool, by id."""
        return self.texts.pool.rank

    @property
    def empty(self) -> bool:
        """Whether there never were any partials."""
        return self._first > self._last and self.spilled == 0 and not any(self._objects.values())

    @property
    def spilled(self) -> int:
        """The number of spilled partials and kept rows."""
        return self._count + int(self._filled.sum()) if self._kept else self._count

    def size(self) -> tuple[int, int]:
        """Return the number of partials and kept rows, and the bytes that are in use."""
        bytes_used = self._count * self._dtype.itemsize
        planes = 0
        for plane in np.flatnonzero(self._started) if self._by_plane else ():
            planes += int((self._planes["pane"][plane, : self._keys] >= self._needed).sum())
            bytes_used += self._planes[plane].nbytes
        for rows, count in zip(self._kept, self._filled.tolist()):
            bytes_used += count * sum(a.itemsize for a in (rows.kid, rows.pane, *rows.args))
        return self.spilled + planes + sum(map(len, self._objects.values())), bytes_used

    def arranged(self, rows: int, keys: int) -> str:
        """Make room for rows of `keys` keys, and return how records are stored (`LoopShape.store`)."""
        self.fit(keys)
        if not self._by_plane:
            return "list" if self.gap is None else "spans"
        enough = rows >= self._dense_rows and self._rows_of_pane >= keys
        self._dense = enough and self._may_be_dense
        if not self._dense:
            self._untag()
            return "planes"
        self._tagged = True
        return "dense"

    @property
    def unsampled(self) -> bool:
        """Whether it is not known yet how to arrange records."""
        return self._may_be_dense and self._rows_of_pane == 0

    @property
    def _may_be_dense(self) -> bool:
        ticks = self._panes.size == 1 and self._panes.axis is None
        return self._by_plane and not ticks and bool(self.plan.group_keys)

    def add(
        self, kernel: AccumulateKernel, rows: int | npt.NDArray[np.uint32], done: int, args: list[Any],
        grid: tuple[int, int, int], failure: UserError | None = None,
    ) -> tuple[int, int]:  # fmt: skip
        """Accumulate rows of a batch from row `done` on.

        Return how many are done, and how many of these lie before the start of all windows. `rows` is the
        number of rows, or an array of some of them. The kernel is one for the arrangement that `arranged`
        returned; `args` are its columns and keys. `failure` is raised if the kernel reads a row for which a
        column failed.
        """
        n = (rows if isinstance(rows, int) else len(rows)) - done
        more = n + self._planes.size if self._dense else n
        if self._kept or self._count + more > len(self._spill):
            self._room(more)
        buffers = [b for rows in self._kept for b in (rows.kid, rows.pane, *rows.args)] if self._kept else ()
        places = self._planes if self._by_plane else self._newest
        for at, given in enumerate(args):
            if isinstance(given, pa.Array):
                args[at] = self.texts.hold(given)
        done, self._count, first, last, before, err = kernel.run(
            rows, done, *args, *grid, places, (self._tags, self._started), self._needed, self._spill,
            self._count, self.texts.table, *buffers, self._filled,
        )  # fmt: skip
        if err & NULL_TIME:
            raise null_time(self.plan)
        if err & FAR_TIME:
            raise far_time(self.plan)
        if first <= last:
            self._step = int(last) - (int(first) if self._first > self._last else min(self._last, int(last)))
            self._reached(int(first), int(last))
            self._rows_of_pane = n // (int(last) - int(first) + 1)
        if err:
            raise_for(err, "window aggregate", failure)
        if self.texts.held > self._held_text and self._much_text:
            self._settle_texts()
        return int(done), int(before)

    @property
    def _much_text(self) -> bool:
        """Whether to settle texts: that reads all partials, so the more there are, the more text is held."""
        partials = self._planes.nbytes + self._spill.nbytes
        return self.texts.held > self._held_text * (1 + (partials >> 26))

    def _untag(self) -> None:
        """Record that planes may have records that are not started, or of other panes."""
        if self._tagged:
            self._tags.fill(NO_PANE)
            self._tagged = False

    def released(self) -> None:
        """Prepare to give partials to other stores (`absorb`); later rows start new records."""
        self._untag()
        self._newest.fill(-1)

    def absorb(self, other: PaneStore, ids: Ints) -> None:
        """Take partials of another store that is `released`; call `emptied` there when all are taken.

        `ids` has the key here of each key there, or -1 for keys that this store does not take. Stores that
        take different keys may do so at the same time, if partials hold no text.
        """
        self._untag()
        if self.marks is not None:
            self._mark_all_of(other, ids)
        self._take_strings(other)
        taken = np.flatnonzero(ids[: other._keys] >= 0)
        if other._first <= other._last:
            self._reached(other._first, other._last)
            if other._by_plane and len(taken):
                self._absorb_planes(other, taken, ids)
        spilled = other._spill[: other._count]
        kid = ids[spilled["kid"]]
        some = np.flatnonzero((kid >= 0) & (spilled["pane"] >= self._needed))
        room = self.room_for(len(some))
        room[...] = spilled[some]
        room["kid"] = kid[some]
        self._count += len(some)
        for index, rows, count in zip(self.parts.kept, other._kept, other._filled):
            some = np.flatnonzero(ids[rows.kid[:count]] >= 0)
            self.add_rows(index, ids[rows.kid[some]], rows.pane[some], [a[some] for a in rows.args])

    def _mark_all_of(self, other: PaneStore, ids: Ints) -> None:
        """Mark the keys of all partials that another store has, under their ids here."""
        assert self.marks is not None
        taken = ids[: other._keys][other.live_keys(other._keys)]
        spilled = other._spill["pane"][: other._count]
        first = min(other._first, int(spilled.min(initial=FOREVER)))
        self.marks.touch(taken[taken >= 0], first, max(other._last, int(spilled.max(initial=NO_PANE))))

    def _absorb_planes(self, other: PaneStore, taken: Ints, ids: Ints) -> None:
        if self._by_plane:
            self._room((min(other._last - other._first + 1, len(other._planes))) * len(taken))
            kernel = merge_kernel(self.layout, self.parts.records)
            self._count, err = kernel.run(
                other._planes, other._oldest, other._last, taken, ids, self._planes, self._needed,
                self._spill, self._count, self.texts.table,
            )  # fmt: skip
            raise_for(err, "window aggregate")
            return
        for at in np.flatnonzero(other._started):
            plane = other._planes[at][taken]
            held = np.flatnonzero(plane["pane"] >= self._needed)
            room = self.room_for(len(held))
            room[...] = plane[held]
            room["kid"] = ids[taken[held]]
            self._count += len(held)
            other._planes["pane"][at, taken] = NO_PANE

    def emptied(self, needed: int) -> None:
        """Record that other stores took all partials. Panes below `needed` may be evicted from now on."""
        self._count = 0
        self._filled.fill(0)
        self._needed, self._first, self._last = max(self._needed, needed), FOREVER, NO_PANE

    @property
    def needed(self) -> int:
        """Panes below this are evicted."""
        return self._needed

    def _take_strings(self, other: PaneStore) -> None:
        """Change the string ids of another store to those of this one."""
        other._settle_texts()
        pool = other.texts.pool
        if pool.count == 0:
            return
        ids = self.texts.pool.encode(pool.values())
        for column in other._string_columns():
            column[...] = np.where(column >= 0, ids[column], -1)
        pool.clear()

    def _settle_texts(self) -> None:
        """Copy the texts that are still in columns of the input to the pool."""
        if self.texts.held:
            self.texts.settle(self._string_columns())

    def room_for(self, n: int) -> npt.NDArray[Any]:
        """Return `n` uninitialised records for partials from elsewhere; `add_partials` then adds them.

        Write every field, and add nothing else to the store in between.
        """
        self._room(n)
        return self._spill[self._count : self._count + n]

    def add_partials(self, n: int) -> None:
        """Add the first `n` records of the last `room_for`."""
        panes = self._spill["pane"][self._count : self._count + n]
        if n:
            self._reached(int(panes.min()), int(panes.max()))
        self._count += n

    def _reached(self, first: int, last: int) -> None:
        """Record the first and the last pane; raise an error if one is outside the supported range."""
        if self._first <= first and last <= self._last:
            return
        origin, size = self._panes.origin, self._panes.size
        if first * size + origin < -FARTHEST - size or last * size + origin > FARTHEST:
            raise far_time(self.plan)
        self._first, self._last = min(self._first, first), max(self._last, last)
        if self._by_plane:
            self._start_planes()

    def _start_planes(self) -> None:
        """Mark the records of planes as free that have had no row, between panes that have rows."""
        planes = len(self._planes)
        if self._first > self._last or self._started.all():
            return
        panes = np.arange(max(self._oldest, self._last - planes + 1), self._last + 1)
        at = panes & (planes - 1)
        fresh = at[self._started[at] == 0]
        self._planes["pane"][fresh] = NO_PANE
        self._started[fresh] = 1

    def add_rows(self, index: int, kid: Ints, pane: Ints, args: list[npt.NDArray[Any]]) -> None:
        """Add rows from elsewhere to a part that keeps rows."""
        position = self.parts.kept.index(index)
        rows, count = self._kept[position], int(self._filled[position])
        rows.room(count, len(kid))
        for column, more in zip((rows.kid, rows.pane, *rows.args), (kid, pane, *args)):
            column[count : count + len(kid)] = more
        self._filled[position] = count + len(kid)

    def add_objects(self, index: int, kid: Ints, pane: Ints, states: list[Any]) -> None:
        """Add partials from elsewhere that are Python objects."""
        part, held = self.layout.parts[index], self._objects[index]
        for at, state in zip(zip(kid.tolist(), pane.tolist()), states):
            held[at] = combine_objects(part, held.get(at), state)

    def elements(self, below: int | None = None) -> Elements:
        """Return all partials, combined and sorted by key and pane. They also stay in the store.

        Partials in panes from `below` on may be left out, unless evicting panes needs them (`forget`).
        """
        if any(STRING in self.layout.parts[index].types for index in self.parts.kept):
            self._settle_texts()  # kept rows are sorted by the ranks of the pool
        if self._by_plane and self._count == 0 and self._in_one_turn:
            last = self._last if below is None or self.parts.kept else min(self._last, below - 1)
            elements = Elements(self._from_planes(last))
        else:
            elements = Elements(self._sorted())
        for position, index in enumerate(self.parts.kept):
            self._order_rows(elements, position, index)
        return elements

    def elements_of(self, keys: npt.NDArray[np.bool_]) -> Elements | None:
        """Return the partials of the keys of a mask, as `elements` does; None if all must be sorted for it.

        Nothing changes in the store.
        """
        if self._by_plane or self.parts.kept or self.gap is not None:
            return None
        spilled = self._spill[: self._count]
        some = spilled[keys[spilled["kid"]]]
        return Elements(self._combined(some, empty(len(some), self._dtype)))

    def changed(self) -> Elements:
        """Return the partials that `marks` covers, in any order; a key may have several in a pane.

        This takes no sorting and reads only what may have changed and what is spilled. Where rows are kept,
        all partials are sorted, as if windows closed.
        """
        marks = self.marks
        assert marks is not None
        if self.parts.kept:
            elements = self.elements()
            return elements.chosen(marks.covered(elements.kid, elements.pane))
        spilled = self._spill[: self._count]
        found = [spilled[marks.covered(spilled["kid"], spilled["pane"])]]
        keys, planes = marks.keys, len(self._planes)
        first, last = max(marks.first, self._oldest), min(marks.last, self._last)
        if self._by_plane and len(keys) and first <= last:
            of_range = np.arange(first, min(last, first + planes - 1) + 1) & (planes - 1)
            for plane in of_range[self._started[of_range] != 0].tolist():
                records = self._planes[plane, keys]
                inside = (records["pane"] >= first) & (records["pane"] <= last)
                found.append(records[inside])
        return Elements(np.concatenate(found))

    def planes(self) -> Planes | None:
        """Return the planes if they have all partials."""
        if not self._by_plane or self._count or not self._in_one_turn or self.parts.kept:
            return None
        return Planes(self._planes, self._keys, self._oldest, self._last)

    @property
    def crowded(self) -> bool:
        """Whether so many planes are in use that closing windows now avoids spilling.

        The next rows are assumed to go on as far as the last ones did.
        """
        return self._by_plane and self._last - self._oldest + self._step >= len(self._planes)

    @property
    def _oldest(self) -> int:
        """The oldest pane that has been seen and is still needed."""
        return max(self._needed, self._first)

    @property
    def _in_one_turn(self) -> bool:
        """Whether each pane that is still needed has a plane of its own."""
        return self._last - self._oldest < len(self._planes)

    def _from_planes(self, last: int) -> npt.NDArray[Any]:
        most = self._keys * max(0, last - self._oldest + 1)
        if most == 0:
            return self._unrolled[:0]
        if most >= len(self._unrolled):  # reused: touching fresh memory costs more than the loop
            self._unrolled = empty(most + 1, self._dtype)
        found = unroll(self._planes, self._keys, self._oldest, last, self._unrolled)
        return self._unrolled[:found]

    def _sorted(self) -> npt.NDArray[Any]:
        self._flush()
        out = empty(len(self._spill), self._dtype)
        found = self._combined(self._spill[: self._count], out)
        self._spill, self._count = out, len(found)
        return found

    def _combined(self, records: npt.NDArray[Any], out: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Sort records by key and pane into an array, combined; return the part of it that they take."""
        order = order_by(records["kid"], records["pane"])
        kernel = combine_kernel(self.layout, self.parts.records, self.gap is not None)
        distinct, err = kernel.run(order, len(records), records, out, self.texts.table, self.gap or 0)
        raise_for(err, "window aggregate")
        return out[:distinct]

    def forget(self, needed: int) -> bool:
        """Evict all panes below one. If this returns False, call `retain` as well."""
        if self.marks is not None:
            self.marks.evicted |= needed > self._needed
        self._needed = max(self._needed, needed)
        return self._count == 0 and not self.parts.kept

    def retain(self, elements: Elements, keep: npt.NDArray[np.bool_]) -> None:
        """Keep the elements of a mask and evict the others."""
        self._untag()
        if self.marks is not None:
            self.marks.evict(elements.kid[~keep])
        records = elements.records[keep]
        if self._count or not self._by_plane:
            self._put_back(records)
        else:  # the records lie in the planes: mark evicted ones as free
            self._planes["pane"][self._place(elements.records[~keep])] = NO_PANE
        for position, index in enumerate(self.parts.kept):
            if index in self._objects:
                kept = {(int(k), int(p)) for k, p in zip(records["kid"], records["pane"])}
                held = self._objects[index]
                self._objects[index] = {at: state for at, state in held.items() if at in kept}
                continue
            offsets, _ = elements.rows[index]
            rows = self._kept[position]
            chosen = np.repeat(keep, np.diff(offsets))
            rows.take(np.flatnonzero(chosen))
            self._filled[position] = len(rows.kid)

    def trim(self) -> None:
        """Remove unused strings from the pool, once it has doubled since the last time."""
        if self.texts.pool.count <= self._trim_above:
            return
        self._untag()
        self._settle_texts()
        columns = list(self._string_columns())
        used = np.zeros(self.texts.pool.count, dtype=np.bool_)
        for ids in columns:
            used[ids[ids >= 0]] = True
        renamed = self.texts.pool.keep(used)
        for ids in columns:
            ids[...] = np.where(ids >= 0, renamed[ids], -1)
        self._trim_above = max(self._few_strings, 2 * self.texts.pool.count)

    def _string_columns(self) -> Iterator[Ints]:
        """Yield every array of string ids that is part of the state."""
        states = [self.layout.parts[i].columns for i in self.parts.records]
        fields = [name for columns in states for name, kind in columns if kind.kind == "string"]
        for name in fields:
            yield self._spill[name][: self._count]
        in_use = range(self._oldest, self._last + 1) if self._in_one_turn else range(len(self._planes))
        for plane in in_use if fields else ():
            records = self._planes[plane & (len(self._planes) - 1)]
            unused = records["pane"] < self._needed
            for name in fields:
                records[name][unused] = -1  # it may be no id any more
                yield records[name]
        for position, index in enumerate(self.parts.kept):
            rows, count = self._kept[position], int(self._filled[position])
            for args, kind in zip(rows.args, self.layout.parts[index].types):
                if kind.kind == "string":
                    yield args[:count]

    def collapse(self, pane: int) -> None:
        """Merge all panes below `pane` into the pane before it; no future window separates them."""
        spilled = self._spill["pane"][: self._count]
        np.maximum(spilled, pane - 1, out=spilled)
        for rows, count in zip(self._kept, self._filled):
            np.maximum(rows.pane[:count], pane - 1, out=rows.pane[:count])
        for index, held in self._objects.items():
            part = self.layout.parts[index]
            merged: dict[tuple[int, int], Any] = {}
            for (kid, at), state in held.items():
                where = (kid, max(at, pane - 1))
                merged[where] = combine_objects(part, merged.get(where), state)
            self._objects[index] = merged

    def live_keys(self, keys: int) -> npt.NDArray[np.bool_]:
        """Return a mask of the keys that have state."""
        live = np.zeros(keys, dtype=np.bool_)
        if self._by_plane:
            held = min(keys, self._planes.shape[1])
            for plane in np.flatnonzero(self._started):
                live[:held] |= self._planes["pane"][plane, :held] >= self._needed
        live[self._spill["kid"][: self._count]] = True
        for rows, count in zip(self._kept, self._filled):
            live[rows.kid[:count]] = True
        for states in self._objects.values():
            live[[kid for kid, _ in states]] = True
        return live

    def renumber(self, kept: Ints, keys: int) -> None:
        """Renumber the keys `kept` to `0, 1, 2, …`. The other keys, of `keys` in all, must have no state."""
        number = np.full(keys, -1, dtype=np.int64)
        number[kept] = np.arange(len(kept))
        if self._by_plane:
            held = self._planes.shape[1]
            planes = empty((len(self._planes), len(kept)), self._dtype)
            there = np.flatnonzero(kept < held)
            for plane in np.flatnonzero(self._started):
                planes["pane"][plane] = NO_PANE
                planes[plane, there] = self._planes[plane, kept[there]]
                planes["kid"][plane] = np.arange(len(kept))
            discard(self._planes)  # the next ones have another size
            self._planes = planes
            self._untag()
        else:
            newest = np.full(len(kept), -1, dtype=self._newest.dtype)
            there = np.flatnonzero(kept < len(self._newest))
            newest[there] = self._newest[kept[there]]
            self._newest = newest
        self._keys = len(kept)
        spilled = self._spill["kid"][: self._count]
        spilled[...] = number[spilled]
        for rows, count in zip(self._kept, self._filled):
            rows.kid[:count] = number[rows.kid[:count]]
        for index, states in self._objects.items():
            self._objects[index] = {(int(number[k]), p): state for (k, p), state in states.items()}

    def _room(self, n: int) -> None:
        if self._count + n > len(self._spill):
            size = max(2 * len(self._spill), self._count + n)
            if size > np.iinfo(self._newest.dtype).max:
                self._newest = self._newest.astype(np.int64)
            self._spill = enlarged(self._spill, size, self._count)
        for rows, count in zip(self._kept, self._filled):
            rows.room(int(count), n)

    def _flush(self) -> None:
        """Move the records that are still needed to the spill; later rows start new records."""
        if self._by_plane:
            room = self.room_for(self._planes.size)
            self.add_partials(drain(self._planes, self._started, self._needed, NO_PANE, room))
            self._untag()
        self._newest.fill(-1)

    def _put_back(self, records: npt.NDArray[Any]) -> None:
        """Store spilled records again, in the (now empty) planes if they fit, otherwise in the spill."""
        if self._by_plane and self._in_one_turn:
            self._planes[self._place(records)] = records
            self._count = 0
        else:
            self._count = len(records)
            self._spill[: self._count] = records

    def into_planes(self) -> None:
        """After `elements`, which may have spilled all records: hold recent panes in planes again."""
        if self._by_plane and self._count and self._in_one_turn:
            self._untag()
            spilled = self._spill[: self._count]
            self._put_back(spilled[spilled["pane"] >= self._needed])

    def _place(self, records: npt.NDArray[Any]) -> tuple[Ints, Ints]:
        """Return the indices of records in the planes."""
        return records["pane"] & (len(self._planes) - 1), records["kid"]

    def fit(self, keys: int) -> None:
        """Make room for `keys` keys, with as many planes as memory allows."""
        held = self._planes.shape[1] if self._by_plane else len(self._newest)
        if keys > held:
            room = max(keys + keys // 4, held + held // 2, 16)
            planes = self._planes_for(room) if self._by_plane else 0
            if self._by_plane and planes != len(self._planes):
                self._flush()
                held = 0
            discard(self._planes)
            if planes:
                self._grow_planes(planes, room, held)
            else:
                newest = np.full(room, -1, dtype=self._newest.dtype)
                newest[:held] = self._newest[:held]
                self._newest, self._by_plane = newest, False
                self._planes = np.zeros((1, 0), dtype=self._dtype)
        self._keys = keys

    def _grow_planes(self, planes: int, room: int, held: int) -> None:
        """Make room for so many keys in each plane, of which there are `held` so far."""
        fresh, started = empty((planes, room), self._dtype), np.zeros(planes, dtype=np.uint8)
        if held:
            started = self._started
            for plane in np.flatnonzero(started):
                fresh[plane, :held] = self._planes[plane]
                fresh["pane"][plane, held:] = NO_PANE
        self._planes, self._started = fresh, started
        self._tags = np.full(planes, NO_PANE, dtype=np.int64)
        self._start_planes()

    def _planes_for(self, keys: int) -> int:
        """Return how many planes to use; 0 if they would take too much memory."""
        assert self._reach is not None
        plane = keys * self._dtype.itemsize
        # With more planes windows close less often. More than twice the reach gain little, unless they are
        # small: closing windows has a cost that does not depend on the number of keys.
        small = 1 << max(0, (self._small_planes // plane).bit_length() - 1)
        for room in (2 * self._reach + 7, self._reach + self._reach // 4 + 7):
            planes = 1 << room.bit_length()
            if planes * plane <= self._plane_bytes:
                return max(planes, small)
        return 0

    def _order_rows(self, elements: Elements, position: int, index: int) -> None:
        rows, count = self._kept[position], int(self._filled[position])
        part = self.layout.parts[index]
        kid, pane = rows.kid[:count], rows.pane[:count]
        args = [a[:count] for a in rows.args]
        if index in self.parts.saved_rows:
            order = order_by(kid, pane, *(_order_key(a, t, self.rank) for a, t in zip(args, part.types)))
            places, offsets = grouped(kid[order], pane[order], elements.kid, elements.pane, self._needed)
            kept = order[places >= 0]
            rows.take(kept)
        else:
            places, offsets = grouped(kid, pane, elements.kid, elements.pane, self._needed)
            rows.kid, rows.pane = (spread(x, offsets) for x in (elements.kid, elements.pane))
            rows.args = [moved(a, places, int(offsets[-1])) for a in args]
        self._filled[position] = int(offsets[-1])
        if index in self._objects:
            self._update_objects(elements, position, index)
            return
        if index in self.parts.ordered:
            kernel = refold_kernel(self.layout, index)
            err = kernel.run(len(elements), offsets, elements.records, self.texts.table, *rows.args)
            raise_for(err, "window aggregate")
        columns = [
            self.rank[a] if t.kind == "string" else a for a, t in zip(rows.args, part.types)
        ]
        elements.rows[index] = (offsets, columns)
        if index in self.parts.row_objects:
            values = [self._plain(a, t.kind) for a, t in zip(rows.args, part.types)]
            lists = (v.tolist() if isinstance(v, np.ndarray) else v for v in values)
            elements.row_objects[index] = (offsets, list(zip(*lists)))

    def _update_objects(self, elements: Elements, position: int, index: int) -> None:
        rows, held = self._kept[position], self._objects[index]
        part = self.layout.parts[index]
        starts = np.flatnonzero(
            np.r_[True, (np.diff(rows.kid) != 0) | (np.diff(rows.pane) != 0)][: len(rows.kid)]
        )
        ends = np.r_[starts[1:], len(rows.kid)]
        values = [self._plain(a, t.kind) for a, t in zip(rows.args, part.types)]
        updated = {}
        for start, end in zip(starts.tolist(), ends.tolist()):
            at = (int(rows.kid[start]), int(rows.pane[start]))
            updated[at] = update_object(part, held.get(at), [v[start:end] for v in values])
        held.update(updated)  # all or none, if a user's function raises
        self._filled[position] = 0
        pairs = zip(elements.kid.tolist(), elements.pane.tolist())
        elements.objects[index] = [held.get(pair) for pair in pairs]

    def _plain(self, column: npt.NDArray[Any], kind: str) -> Any:
        if kind == "string":
            return self.texts.decode(column).to_pylist()
        return column if kind == "float64" else column.tolist()


# --- arrays -----------------------------------------------------------------------------------------


def _empty_rows(part: StatePart) -> KeptRows:
    none = np.empty(0, dtype=np.int64)
    return KeptRows(none, none, [np.empty(0, dtype=numpy_type(t)) for t in part.types])


def _order_key(column: npt.NDArray[Any], kind: Any, rank: Ints) -> Ints:
    """Return integers that sort like the values of a column."""
    if kind.kind == "string":
        ranks: Ints = rank[column]
        return ranks
    if column.dtype.kind != "f":
        return column.astype(np.int64)
    return float_key(column)
