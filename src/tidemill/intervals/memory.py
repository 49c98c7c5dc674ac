"""The arrays of a time-travel index: made, made larger, and as readers have them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tidemill.core.errors import UserError
from tidemill.intervals.loops.blocks import (
    BELOW,
    CLOCK,
    FAN,
    HEAD,
    LACK_NEW,
    LACK_NODES,
    LACK_ROWS,
    LACK_TOUCHED,
    LACKS,
    LEAF,
    LEVELS,
    LIVE,
    NEVER,
    NODES_TOP,
    OWN,
    PARTIAL,
    REUSED,
    ROWS_TOP,
    SPARE,
    TOUCHED,
    UNIT,
    Ints,
    Store,
    begin,
    show_all,
)
from tidemill.intervals.loops.expire import expire_keys
from tidemill.intervals.loops.find import CURSOR
from tidemill.intervals.loops.insert import TOO_MANY, insert_groups
from tidemill.intervals.loops.list_rows import list_all
from tidemill.intervals.loops.summaries import SummaryKernel
from tidemill.intervals.sharing import Publisher
from tidemill.kernels.memory import empty

_SWEEP = 4096
"""At least so many keys are looked at when rows expire, and so many more for each row that came since."""
_SWEEP_BY_ROW = 8
_NO_TEXTS = np.zeros((1, 3), dtype=np.int64)


@dataclass(frozen=True)
class View:
    """The arrays that a reader needs. The heads of an older view do not change any more."""

    heads: Ints
    nodes: Ints
    rows: Ints
    entries: npt.NDArray[Any]
    elements: npt.NDArray[Any]
    clock: Ints
    limit: Ints
    texts: Ints
    """The place of the texts, as `kernels.texts` has it."""
    kept: tuple[Any, ...]
    """What must not be released as long as somebody reads."""


SHARED = ("heads", "nodes", "rows", "clock", "limit")
"""The arrays that readers need."""


def shapes_of(rows: np.dtype[Any], entries: np.dtype[Any]) -> dict[str, tuple[int, ...]]:
    """Return the least length of each of these arrays, and its other dimensions."""
    return {
        "heads": (0, HEAD), "nodes": (FAN, entries.itemsize // 8), "rows": (LEAF, rows.itemsize // 8),
        "clock": (REUSED + 1,), "limit": (1,),
    }  # fmt: skip


def entry_type(partial: list[tuple[str, str]]) -> np.dtype[Any]:
    """Return the type of an entry (`loops.blocks`) with the fields of a partial."""
    fields = [*((name, "i8") for name in ("first", "last", "at", "meta")), *partial]
    found = np.dtype(fields, align=True)
    assert found.itemsize % 8 == 0
    assert all(found.fields[name][1] >= 8 * PARTIAL for name, _ in partial)  # type: ignore[index]
    return found


def view_of(
    arrays: dict[str, Ints], rows: np.dtype[Any], entries: np.dtype[Any], texts: Ints = _NO_TEXTS,
    kept: tuple[Any, ...] = (),
) -> View:  # fmt: skip
    """Return arrays as readers have them, given the types of the records in them."""
    a = arrays
    return View(
        a["heads"], a["nodes"], a["rows"], _records(a["nodes"], entries), _records(a["rows"], rows),
        a["clock"], a["limit"], texts, kept,
    )  # fmt: skip


class BlockMemory:
    """The blocks of an index (`loops.blocks`), and the one who writes them."""

    def __init__(self, rows: np.dtype[Any], partial: list[tuple[str, str]]) -> None:
        """Rows have a type whose first fields are their time, their place and their ties."""
        self.row_type, self.entry_type = rows, entry_type(partial)
        self._store = Store(
            rows=self._numbers(8 * LEAF, self.row_type), nodes=self._numbers(4 * FAN, self.entry_type),
            heads=np.zeros((64, HEAD), dtype=np.int64), clock=np.zeros(8, dtype=np.int64),
            limit=np.full(1, NEVER),
            own=np.zeros(OWN, dtype=np.int64), row_stamps=np.zeros(8 * LEAF // UNIT, dtype=np.int64),
            row_next=np.zeros(8 * LEAF // UNIT, dtype=np.int64), node_stamps=np.zeros(4, dtype=np.int64),
            node_next=np.zeros(4, dtype=np.int64), touched=np.zeros((1024, 2), dtype=np.int64),
            oldest=np.full(64, NEVER), new=self._new(64),
            scratch=np.zeros(4 * LEVELS + CURSOR, dtype=np.int64),
        )  # fmt: skip
        self._store.own[BELOW] = -NEVER
        self._swept, self._since = 0, 0
        """The next key to look at when rows expire, and the rows that came since the last time."""
        self._failed: BaseException | None = None
        self._texts: tuple[Any, ...] = ()
        self.publisher: Publisher | None = None
        self.view = self._view()

    def _numbers(self, n: int, kind: np.dtype[Any]) -> Ints:
        found: Ints = empty((n, kind.itemsize // 8))
        return found

    def _new(self, n: int) -> Ints:
        return np.zeros((3, n, self.entry_type.itemsize // 8), dtype=np.int64)

    def _view(self) -> View:
        s = self._store
        texts = np.array([[*(a.ctypes.data for a in self._texts), 8]]) if self._texts else _NO_TEXTS
        shared = {name: getattr(s, name) for name in SHARED}
        return view_of(shared, self.row_type, self.entry_type, texts, self._texts)

    @property
    def rows(self) -> int:
        """The number of rows."""
        return int(self._store.own[LIVE])

    @property
    def bytes(self) -> int:
        """The bytes of memory that are used, or wait to be used again."""
        s = self._store
        used = int(s.own[ROWS_TOP]) * self.row_type.itemsize
        return used + int(s.own[NODES_TOP]) * self.entry_type.itemsize + s.heads.nbytes

    def insert(
        self, keys: Ints, records: npt.NDArray[Any], order: Ints, ties: int, first: int,
        summary: SummaryKernel,
    ) -> None:  # fmt: skip
        """Insert the records `order[first:]`, which are in order of key, time and ties."""
        if first == len(order):
            return
        self._require_whole()
        try:
            self._have_keys(int(keys[order[-1]]) + 1)
            words = records.view(np.int64).reshape(len(records), -1)
            begin(self._store)
            at = first
            while True:
                at = insert_groups(self._store, keys, words, order, ties, at)
                s = self._store
                assert s.own[ROWS_TOP] + LEAF <= len(s.rows) and s.own[NODES_TOP] <= len(s.nodes)
                self._summarise(summary)
                if at == TOO_MANY:
                    raise UserError(
                        "time-travel index", expected=f"at most {LEAF * FAN ** (LEVELS - 1):,} rows of a key",
                        got="more", hint="let rows expire: a shorter interval, or less lateness",
                    )  # fmt: skip
                if at == len(order):
                    break
                self._grow()
            show_all(self._store, keys, order, first)
        except BaseException as failed:
            self._failed = failed
            raise
        self._since += len(order) - first

    def _require_whole(self) -> None:
        if self._failed is not None:
            raise UserError(
                "time-travel index", "an earlier insert into it has failed", hint="restore it from a snapshot"
            ) from self._failed

    def _summarise(self, summary: SummaryKernel) -> None:
        s = self._store
        if count := int(s.own[TOUCHED]):
            view = self.view
            summary.run(s.touched, count, s.nodes, view.entries, view.elements, view.texts)
            s.own[TOUCHED] = 0

    def _have_keys(self, count: int) -> None:
        have = len(self._store.heads)
        if count > have:
            self._replace(keys=max(count, 2 * have))

    def _grow(self) -> None:
        """Make room where a group of rows found too little."""
        s, lacks = self._store, int(self._store.own[LACKS])
        if lacks & LACK_TOUCHED:
            self._store = s._replace(touched=np.zeros((2 * len(s.touched), 2), dtype=np.int64))
        if lacks & LACK_NEW:
            self._store = self._store._replace(new=self._new(2 * s.new.shape[1]))
        if lacks & (LACK_ROWS | LACK_NODES):
            rows = 2 * len(s.rows) if lacks & LACK_ROWS else 0
            self._replace(rows=rows, nodes=2 * len(s.nodes) if lacks & LACK_NODES else 0)

    def _replace(self, *, rows: int = 0, nodes: int = 0, keys: int = 0, clock: bool = False) -> None:
        """Use larger arrays from now on. Readers of the old heads have what is shown until now."""
        s = self._store
        changed = {"heads": self._copied("heads", s.heads, max(keys, len(s.heads)), len(s.heads))}
        changed["limit"] = self._array("limit", (1,))
        changed["limit"][0] = NEVER
        if clock:
            changed["clock"] = self._copied("clock", s.clock, len(s.clock), len(s.clock))
        if rows:
            changed["rows"] = self._copied("rows", s.rows, rows, int(s.own[ROWS_TOP]))
            for name in ("row_stamps", "row_next"):
                changed[name] = _longer(getattr(s, name), rows // UNIT)
        if nodes:
            changed["nodes"] = self._copied("nodes", s.nodes, nodes, int(s.own[NODES_TOP]))
            for name in ("node_stamps", "node_next"):
                changed[name] = _longer(getattr(s, name), nodes // FAN)
        if keys:
            changed["oldest"] = _longer(s.oldest, keys, NEVER)
        self._store = s._replace(**changed)
        self.view = self._view()
        if self.publisher is not None:
            self.publisher.publish({name: getattr(self._store, name) for name in SHARED})
        s.limit[0] = s.clock[CLOCK]  # before anything is released that the new heads do not refer to

    def _array(self, name: str, shape: tuple[int, ...]) -> Ints:
        """Return a new array, which readers in other processes can map if they need it."""
        return empty(shape) if self.publisher is None else self.publisher.array(name, shape)

    def _copied(self, name: str, array: Ints, n: int, used: int) -> Ints:
        """Return a new array of `n` rows, of which the first ones are those that are used of the old one."""
        found = self._array(name, (n, *array.shape[1:]))
        found[:used] = array[:used]
        if name == "heads":
            found[used:] = 0
        return found

    def share(self, publisher: Publisher) -> None:
        """Have the arrays that readers need where other processes can map them."""
        self.publisher = publisher
        self._replace(rows=len(self._store.rows), nodes=len(self._store.nodes), clock=True)

    def place_texts(self, arrays: tuple[Any, ...]) -> None:
        """Say where the texts are (`StringIndex.arrays`). Readers of the old heads have the old ones."""
        if len(self._texts) != len(arrays) or any(a is not b for a, b in zip(self._texts, arrays)):
            self._texts = arrays
            self._replace()

    def all_rows(self) -> tuple[Ints, npt.NDArray[Any]]:
        """Return the key and the record of each row, in order of key and time; nobody writes meanwhile."""
        view, n = self.view, self.rows
        keys, places = empty(n), empty(n)
        list_all(view.heads, view.nodes, view.rows, keys, places)
        return keys, view.elements[places]

    def expire(self, below: int, spare: int) -> None:
        """Drop the leaves that end before an instant, of some keys: of all of them in a few calls."""
        self._require_whole()
        s = self._store
        s.own[BELOW], s.own[SPARE] = below, spare
        keys = len(s.heads)
        count = min(keys, max(_SWEEP, _SWEEP_BY_ROW * self._since))
        first, self._since = self._swept, 0
        last = first + count
        expire_keys(s, first, min(last, keys), below, spare)
        if last > keys:
            expire_keys(s, 0, last - keys, below, spare)
        self._swept = last % keys


def _records(words: Ints, kind: np.dtype[Any]) -> npt.NDArray[Any]:
    found: npt.NDArray[Any] = words.reshape(-1).view(kind)
    return found


def _longer(array: Ints, n: int, fill: int = 0) -> Ints:
    """Return a copy with at least so many elements."""
    found = np.full((n, *array.shape[1:]), fill, dtype=np.int64)
    found[: len(array)] = array
    return found
