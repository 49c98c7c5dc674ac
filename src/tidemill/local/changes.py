"""What changed in a state since it was saved, and how a state follows from a snapshot and changes.

Changes are named tables, as a snapshot is. Their names say what becomes of the table before: `keys` replaces
it, the rows of `keys+` follow it, and the partials of `elements~` replace those that may have changed
(`ChangedPartials`). A table that is not among the changes stays as it was.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemill.core.errors import UserError
from tidemill.local.limits import Limits
from tidemill.local.marks import FIRST
from tidemill.local.operator import Snapshot
from tidemill.local.snapshot import column, ids, limits_of, limits_table, numbers, tables

Ints = npt.NDArray[np.int64]
_MORE, _PARTIALS, _KEYS, _RANGE, _KEPT = "+", "~", "~keys", "~range", "~kept"
_RANGES = pa.schema([("first", pa.int64()), ("last", pa.int64())])


def more_of(name: str) -> str:
    """Return the name of rows that follow those of a table."""
    return name + _MORE


def becomes(name: str) -> str:
    """Return the name of the table that a table of changes is about. What is before a slash does not count.

    >>> becomes("keys+"), becomes("elements~range"), becomes("late/a~b+/rows")
    ('keys', 'elements', 'late/a~b+/rows')
    """
    folder, slash, own = name.rpartition("/")
    return folder + slash + own.removesuffix(_MORE).split(_PARTIALS)[0]


@dataclass(frozen=True)
class ChangedPartials:
    """Partials by key and pane, in place of all partials of some keys in a range of panes.

    Besides, partials in panes below `kept_from` are gone.
    """

    rows: pa.Table
    keys: Ints
    first: int
    last: int
    kept_from: Limits

    @staticmethod
    def joined(lanes: Sequence[ChangedPartials], keys: int) -> ChangedPartials:
        """Return the changes of all lanes, which are about the same panes, as one; there are so many keys."""
        if len(lanes) == 1:
            return lanes[0]
        limits = [lane.kept_from for lane in lanes]
        kept = limits[0]
        if any(l.by_key is not None or l.common != kept.common for l in limits):
            longest = -(-keys // len(lanes))
            by_key = np.stack([l.full(longest) for l in limits], axis=1).ravel()[:keys]
            kept = Limits(min(l.common for l in limits), by_key)
        return ChangedPartials(
            pa.concat_tables([lane.rows for lane in lanes]), np.concatenate([lane.keys for lane in lanes]),
            lanes[0].first, lanes[0].last, kept,
        )  # fmt: skip

    def tables(self, name: str) -> Snapshot:
        """Return the changes of a table as tables."""
        return {
            name + _PARTIALS: self.rows, name + _KEYS: numbers(kid=self.keys),
            name + _RANGE: numbers(first=[self.first], last=[self.last]),
            name + _KEPT: limits_table(self.kept_from),
        }  # fmt: skip


@dataclass
class _Partials:
    """The versions of a table of partials, and a mask of the rows that are not replaced."""

    rows: list[pa.Table]
    alive: list[npt.NDArray[np.bool_]] = field(default_factory=list)
    kid: list[Ints] = field(default_factory=list)
    pane: list[Ints] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._note(self.rows[0])

    def _note(self, rows: pa.Table) -> None:
        self.alive.append(np.ones(len(rows), dtype=np.bool_))
        self.kid.append(ids(rows, "kid", 1 << 62))
        self.pane.append(column(rows, "pane"))

    def replace(self, rows: pa.Table, keys: Ints, first: int, last: int, kept: Limits) -> None:
        for alive, kid, pane in zip(self.alive, self.kid, self.pane):
            if kept.by_key is not None or kept.common > FIRST:
                alive &= pane >= kept.of(kid)
            inside = np.flatnonzero((pane >= first) & (pane <= last))
            alive[inside[np.isin(kid[inside], keys)]] = False
        self.rows.append(rows)
        self._note(rows)

    def table(self) -> pa.Table:
        alive = pa.array(np.concatenate(self.alive))
        return pa.concat_tables(self.rows).filter(alive)


def folded(segments: Sequence[Snapshot], names: Sequence[str]) -> Snapshot:
    """Return the state that a snapshot and changes after it make, in their order: the tables of some names.

    >>> base = {"n": pa.table({"n": [1]}), "late": pa.table({"t": [4]})}
    >>> after = folded([base, {"n": pa.table({"n": [2]}), "late+": pa.table({"t": [5]})}], ["n", "late"])
    >>> after["n"].to_pydict(), after["late"].to_pydict()
    ({'n': [2]}, {'t': [4, 5]})
    """
    found: dict[str, list[pa.Table] | _Partials] = {}
    for segment in segments:
        for name, table in segment.items():
            own = becomes(name)
            if name == own:
                found[name] = [table]
            elif name == more_of(own):
                _appended(found, own, table)
            elif name == own + _PARTIALS:
                _replaced(found, own, segment)
    missing = [name for name in names if name not in found]
    if missing:
        raise UserError("restore", expected=f"tables {missing}", got=f"others: {sorted(found)}"[:200])
    return {name: _whole(found[name]) for name in names}


def _appended(found: Mapping[str, list[pa.Table] | _Partials], name: str, rows: pa.Table) -> None:
    before = found.get(name)
    if not isinstance(before, list) or not before[0].schema.equals(rows.schema):
        raise UserError("restore", expected=f"a table {name!r} before more rows of it", got="none like it")
    before.append(rows)


def _replaced(found: dict[str, list[pa.Table] | _Partials], name: str, segment: Snapshot) -> None:
    before, rows = found.get(name), segment[name + _PARTIALS]
    if isinstance(before, list):
        found[name] = before = _Partials([pa.concat_tables(before)])
    if before is None or not before.rows[0].schema.equals(rows.schema):
        raise UserError("restore", expected=f"partials {name!r} before changes of them", got="none like them")
    keys, ranges = tables(
        segment, {name + _KEYS: pa.schema([("kid", pa.int64())]), name + _RANGE: _RANGES}
    )
    if len(ranges) != 1:
        raise UserError("restore", expected="one range of panes", got=str(len(ranges)))
    kept = limits_of(segment.get(name + _KEPT), (1 << 63) - 2, (1 << 63))
    first, last = int(column(ranges, "first")[0]), int(column(ranges, "last")[0])
    before.replace(rows, column(keys, "kid"), first, last, kept)


def _whole(table: list[pa.Table] | _Partials) -> pa.Table:
    return table.table() if isinstance(table, _Partials) else pa.concat_tables(table)
