"""The rows that a query gave and that may still change, each in its last revision."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemill.core.errors import UserError
from tidemill.core.schema import Schema
from tidemill.kernels.keys import KeyIndex
from tidemill.local.same_rows import Mask, same_rows
from tidemill.local.snapshot import column

Ints = npt.NDArray[np.int64]
_REVISION, _OPEN, _GONE = "\0revision", "\0open", "\0gone"


@dataclass
class _Part:
    """Rows that came together; those that were replaced or forgotten since stay until most of a part is."""

    rows: pa.Table
    revision: Ints
    open: Mask
    """Whether a row is of a window that was still open, so that it comes again."""
    gone: Mask
    """Whether a row was withdrawn."""
    live: Mask
    """Whether this is still the last revision of the row."""


class GivenRows:
    """Finds out which rows are new or have changed, and counts their revisions.

    >>> from tidemill.core.schema import schema
    >>> given = GivenRows(schema({"k": "int64", "n": "int64"}), ("k",))
    >>> given.note(pa.table({"k": [1, 2], "n": [5, 5]}), open=True)
    (array([ True,  True]), array([0, 0]))
    >>> given.note(pa.table({"k": [2, 1], "n": [5, 6]}), open=True)
    (array([False,  True]), array([0, 1]))
    """

    def __init__(self, schema: Schema, identity: tuple[str, ...]) -> None:
        self._schema, self._identity = schema, identity
        self._saved = pa.schema(
            [*schema.to_arrow(), (_REVISION, pa.int64()), (_OPEN, pa.int64()), (_GONE, pa.int64())]
        )
        self._clear()

    def _clear(self) -> None:
        self._keys = KeyIndex(self._schema.select(self._identity))
        self._place = np.empty(0, dtype=np.int64)
        """By the id of a row: the number of its part and its place there, in one int; or -1."""
        self._parts: dict[int, _Part] = {}
        self._next = self.count = 0

    # -- what changed

    def note(self, rows: pa.Table, *, open: bool) -> tuple[Mask, Ints]:
        """Note rows of the answer as they are now; return which are new or have changed, and revisions."""
        ids = self._ids(rows)
        at = self._place[ids]
        changed, revision = np.ones(len(rows), dtype=np.bool_), np.zeros(len(rows), dtype=np.int64)
        known = np.flatnonzero(at >= 0)
        if len(known):
            before, last, gone = self._taken(at[known])
            same = same_rows(before, rows.take(known), self._schema)
            changed[known] = ~same | gone
            revision[known] = last + changed[known]
            for part, places in self._by_part(at[known[same & ~gone]]):
                self._parts[part].open[places] = open
            self._forget(at[known[~same | gone]])
        if changed.any():
            self._add(ids[changed], rows.filter(pa.array(changed)), revision[changed], open)
        return changed, revision

    def finish(self, rows: pa.Table) -> Ints:
        """Note rows that can no longer change; return the revision of each."""
        _, revision = self.note(rows, open=False)
        ids = self._ids(rows)
        self._forget(self._place[ids])
        self._place[ids] = -1
        self._shrink()
        return revision

    def absent(self, now: pa.Table, *, open: bool) -> tuple[pa.Table, Ints]:
        """Return the given rows that are not among those of `now`, as withdrawn, with their revisions.

        `open` says of which windows `now` has all rows: of those still open, or of the complete ones.
        """
        there, ids = np.zeros(len(self._place), dtype=np.bool_), self._ids(now, add=False)
        there[ids[ids >= 0]] = True  # an unknown row has a negative id
        rows, revision = [], []
        for number, part in self._parts.items():
            mine = np.flatnonzero(part.live & ~part.gone & (part.open == open))
            if len(mine):
                ids = self._ids(part.rows.take(mine))
                lost = mine[~there[ids] & (self._place[ids] == (number << 32 | mine))]
                part.gone[lost] = True
                part.revision[lost] += 1
                rows.append(part.rows.take(lost))
                revision.append(part.revision[lost])
        none = np.empty(0, dtype=np.int64)
        return self._table(rows), np.concatenate([none, *revision])

    def forget_gone(self, until: tuple[str, int] | None, most: int) -> None:
        """Forget withdrawn rows that cannot return: those whose column is below a value.

        If nothing says which these are, forget all once they are more than `most`.
        """
        if until is None and sum(int((p.live & p.gone).sum()) for p in self._parts.values()) <= most:
            return
        for number, part in list(self._parts.items()):
            gone = part.live & part.gone
            if until is not None and gone.any():
                name, below = until
                gone &= np.asarray(part.rows.column(name).cast(pa.int64())) < below
            if gone.any():
                places = np.flatnonzero(gone)
                self._place[self._ids(part.rows.take(places))] = -1
                self._forget(number << 32 | places)
        self._shrink()

    # -- rows by place

    def _ids(self, rows: pa.Table, *, add: bool = True) -> Ints:
        if not len(rows):
            return np.empty(0, dtype=np.int64)
        arrays = [rows.column(name).combine_chunks() for name in self._identity]
        ids = self._keys.encode(arrays) if add else self._keys.find(arrays)
        if add and self._keys.count > len(self._place):
            more = np.full(max(64, 2 * self._keys.count - len(self._place)), -1, dtype=np.int64)
            self._place = np.append(self._place, more)
        return ids

    def _add(self, ids: Ints, rows: pa.Table, revision: Ints, open: bool) -> None:
        n = len(rows)
        flags = (np.full(n, open), np.zeros(n, np.bool_), np.ones(n, np.bool_))
        self._parts[self._next] = _Part(rows.combine_chunks(), revision, *flags)
        self._place[ids] = self._next << 32 | np.arange(n)
        self._next += 1
        self.count += n

    def _by_part(self, at: Ints) -> list[tuple[int, Ints]]:
        numbers = at >> 32
        return [(int(n), at[numbers == n] & 0xFFFFFFFF) for n in np.unique(numbers)]

    def _taken(self, at: Ints) -> tuple[pa.Table, Ints, Mask]:
        """Return the rows at some places with their revisions, and whether they are withdrawn."""
        order = np.argsort(at >> 32, kind="stable")
        rows, revision, gone = [], np.empty(len(at), np.int64), np.empty(len(at), np.bool_)
        start = 0
        for number, places in self._by_part(at):
            part, here = self._parts[number], order[start : start + len(places)]
            rows.append(part.rows.take(places))
            revision[here], gone[here] = part.revision[places], part.gone[places]
            start += len(places)
        return self._table(rows).take(np.argsort(order, kind="stable")), revision, gone

    def _table(self, rows: list[pa.Table]) -> pa.Table:
        return pa.concat_tables([self._schema.to_arrow().empty_table(), *rows])

    def _forget(self, at: Ints) -> None:
        for number, places in self._by_part(at):
            part = self._parts[number]
            self.count -= int(part.live[places].sum())
            part.live[places] = False
            if not part.live.any():
                del self._parts[number]

    def _shrink(self) -> None:
        """Store the rows anew if most of what is stored is no longer needed."""
        stored = max(self._keys.count, sum(len(part.rows) for part in self._parts.values()))
        if stored > 2 * self.count + 4096:
            self.restore(self.snapshot())

    # -- state

    def snapshot(self) -> pa.Table:
        """Return the rows, with what is known of each in columns of its own."""
        found = [self._saved.empty_table()]
        for part in self._parts.values():
            columns = (part.revision, part.open.astype(np.int64), part.gone.astype(np.int64))
            arrays = [*part.rows.columns, *(pa.chunked_array([c]) for c in columns)]
            whole = pa.Table.from_arrays(arrays, schema=self._saved)
            found.append(whole.filter(pa.array(part.live)))
        return pa.concat_tables(found)

    def restore(self, saved: pa.Table) -> None:
        """Load what `snapshot` returned."""
        if not saved.schema.equals(self._saved):
            raise UserError("restore", expected=f"rows of {self._saved.names}", got=str(saved.column_names))
        revision, opened, gone = (column(saved, name) for name in (_REVISION, _OPEN, _GONE))
        rows = saved.select(list(self._schema.names))
        self._clear()
        if len(rows):
            ids = self._ids(rows)
            if len(np.unique(ids)) != len(ids):
                raise UserError("restore", expected="each row once", got="one twice")
            self._add(ids, rows, revision, False)
            [part] = self._parts.values()
            part.open, part.gone = opened != 0, gone != 0

