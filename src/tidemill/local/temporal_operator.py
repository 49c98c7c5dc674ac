"""The base of the operators of the temporal algebra that keep rows.

Rows wait until the watermark is above their start: then all rows that start before them are there. `_work`
gets those, with the rows that were kept, and returns results and the rows to keep. It is a function of these
rows, so the whole state of an operator is rows.
"""

from __future__ import annotations

import functools
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tidemill.core.errors import UserError
from tidemill.core.time import BEGINNING, FOREVER
from tidemill.expr.nodes import Column
from tidemill.kernels.keys import KeyIndex
from tidemill.kernels.order import ordered
from tidemill.kernels.row_batches import divided, joined_rows, taken_rows
from tidemill.local.key_limits import KeyLimits
from tidemill.local.late_rows import LateRows
from tidemill.local.lifetimes import Ints, Mask, check_lifetimes, ends_of, starts_of
from tidemill.local.limits import Limits
from tidemill.local.operator import Operator, Snapshot, Watermarks
from tidemill.local.refused_rows import RefusedRows
from tidemill.local.snapshot import column, numbers, tables
from tidemill.local.tuning import DEFAULT, Tuning
from tidemill.local.waiting_rows import WaitingRows
from tidemill.plan.intervals import IntervalJoin
from tidemill.plan.nodes import Plan
from tidemill.plan.temporal import Cut, Join, Temporal

_NO_KEYS = np.empty(0, dtype=np.int64)
_FORMAT = 1
_WAITING_OF_DUE = 8
"""If more rows wait than this times those that are due, these wait, too."""


@dataclass(frozen=True)
class Side:
    """The rows of a port that an operator works on: those that it kept, and then new ones."""

    plan: Plan
    rows: pa.RecordBatch
    """The columns of the port, and those of the state of a row."""
    kept: int
    """How many rows were kept."""
    starts: Ints
    ends: Ints

    def state(self, name: str) -> Ints:
        """Return a column of the state of rows; new rows have undefined values."""
        return np.asarray(self.rows.column(name)).copy()

    @property
    def is_new(self) -> Mask:
        found = np.ones(self.rows.num_rows, dtype=np.bool_)
        found[: self.kept] = False
        return found

    @functools.cached_property
    def new_in_order(self) -> Ints:
        """The places of the new rows, in order of their start."""
        return ordered(self.starts[self.kept :], self.kept)

    @functools.cached_property
    def in_order(self) -> Ints:
        """The places of all rows, in order of their start."""
        return ordered(self.starts)

    def leaving(self, below: int, *, in_turn: bool = False) -> Ints:
        """Return the places of the rows that end below a watermark, in order of their end.

        `in_turn` says that rows end in the order in which they start.
        """
        if in_turn:
            return self.in_order[self.ends[self.in_order] < below]
        rows = np.flatnonzero(self.ends < below)
        return rows[ordered(self.ends[rows])]

    def keep(self, mask: Mask, **state: Ints) -> pa.RecordBatch:
        """Return some rows, with other values of their state."""
        rows = self.rows
        for name, ticks in state.items():
            rows = rows.set_column(rows.schema.get_field_index(name), name, pa.array(ticks))
        places = np.flatnonzero(mask)
        return rows if len(places) == len(mask) else taken_rows(rows, places)


class TemporalOperator(Operator):
    """Works on rows in order of their start."""

    state: tuple[tuple[str, ...], ...] = ((), ())
    """The columns of ticks that are kept with the rows of each port."""

    def __init__(
        self, plan: Temporal, tuning: Tuning = DEFAULT, *, keep_late: bool = True, lenient: bool = False
    ) -> None:
        """With `lenient`, rows that cannot be used are kept apart (`refused`), and are no error."""
        self.plan, self._tuning, self._lenient = plan, tuning, lenient
        self.inputs = self._reads(plan)
        self.ports = len(self.inputs)
        self._schemas = [one.schema.to_arrow() for one in self.inputs]
        self._marks = Watermarks(self.ports)
        self._done = BEGINNING
        """All rows that start before this were worked on."""
        self._waiting = [WaitingRows(one) for one in self.inputs]
        self._kept_rows = [one_batch(self._kept_schema(port).empty_table()) for port in range(self.ports)]
        self._next = FOREVER
        """Before this instant nothing starts or ends."""
        self._enough = 0
        """While fewer rows wait, nobody looks for those that are due, unless results are wanted at once."""
        self._wake = FOREVER
        """Results may be complete above this instant, although nothing starts or ends; `_work` sets it."""
        self._held = FOREVER
        """The least start of results that are not complete; `_work` sets it."""
        self._by_key = [KeyLimits(one.schema) for one in self.inputs]
        """Watermarks of some keys of each port."""
        self._refused = [RefusedRows(schema) for schema in self._schemas]
        self._late = [LateRows(one.schema, Column(one.time), (), keep=keep_late) for one in self.inputs]

    def _reads(self, plan: Temporal) -> tuple[Plan, ...]:
        """Return the plans of the ports."""
        return plan.children()

    def _kept_schema(self, port: int) -> pa.Schema:
        """The columns of kept rows."""
        return pa.schema([*self._schemas[port], *((name, pa.int64()) for name in self.state[port])])

    # -- rows in

    def push(self, port: int, batch: pa.RecordBatch) -> Sequence[pa.RecordBatch]:
        check_lifetimes(self.inputs[port], batch)
        batch = self._in_time(port, batch)
        if batch.num_rows:
            self._waiting[port].add(batch)
            self._next = min(self._next, self._waiting[port].first)
        return ()

    def _in_time(self, port: int, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows of a batch that are not late; the others are kept apart."""
        below = self._marks.ports[port]
        if batch.num_rows and self._by_key[port]:
            in_time = starts_of(self.inputs[port], batch) >= self._by_key[port].of(batch)
            batch = batch if in_time.all() else batch.filter(pa.array(in_time))
        if below == BEGINNING or not batch.num_rows:
            return batch
        late = self._late[port].keep(batch, _NO_KEYS, Limits(below))
        return batch if late is None else batch.filter(pa.array(~late))

    # -- results out

    def advance(self, port: int, below: int, *, prompt: bool = False) -> Iterator[pa.RecordBatch]:
        self._marks.raise_to(port, below)
        return self._advance(prompt)

    def _advance(self, prompt: bool) -> Iterator[pa.RecordBatch]:
        below = self._marks.lowest
        if below <= self._done or (below < FOREVER and not prompt and not self.wants_advance):
            return
        if below <= self._next and below < FOREVER:
            self._done = below
            return
        if below < FOREVER and not prompt and self._few_due(below):
            return
        results = self._worked_on(below)
        self._done = below
        for limits, mark in zip(self._by_key, self._marks.ports):
            limits.forget(mark)
        self._see_next()
        yield from (batch for batch in results if batch.num_rows)

    def _few_due(self, below: int) -> bool:
        """Return whether it does not pay to take rows away from those that wait, as they come in any order.

        Then nobody looks again before some more wait.
        """
        few = _WAITING_OF_DUE * sum(rows.count_due(below) for rows in self._waiting) < self.waiting
        self._enough = self.waiting + self.waiting // 4 if few else 0
        return few

    def _worked_on(self, below: int) -> Iterable[pa.RecordBatch]:
        """Work on all rows up to a watermark, and return the results."""
        return self._worked([self._due(port, below) for port in range(self.ports)], below)

    def _worked(self, sides: list[Side], below: int) -> Iterable[pa.RecordBatch]:
        self._wake = self._held = FOREVER
        results, self._kept_rows = self._work(sides, below)
        return results

    def _see_next(self) -> None:
        """Note before which instant there is nothing to do."""
        self._next = self._wake
        for port, waiting in enumerate(self._waiting):
            self._next = min(self._next, waiting.first)
            if self._kept_rows[port].num_rows:
                self._next = min(self._next, self._ends(port, self._kept_rows[port]))

    # -- promises about keys

    @property
    def _key_columns(self) -> tuple[tuple[str, ...], ...]:
        """The columns of each port by which rows meet; empty if they do not meet by keys."""
        if isinstance(self.plan, (Join, Cut, IntervalJoin)):
            return self.plan.match.left_keys, self.plan.match.right_keys
        return (getattr(self.plan, "keys", ()),)

    def advance_keys(
        self, port: int, keys: Mapping[str, pa.Array], below: int, *, prompt: bool = False
    ) -> Iterator[pa.RecordBatch]:
        columns = self._key_columns
        if not keys or not keys.keys() <= set(columns[port]):
            return
        self._by_key[port].raise_to(keys, below)
        limit = np.full(len(next(iter(keys.values()))), FOREVER, dtype=np.int64)
        of_ports = []
        for other, (names, mark) in enumerate(zip(columns, self._marks.ports)):
            own = {names[columns[port].index(n)]: array for n, array in keys.items()}
            of_ports.append(own)
            limit = np.minimum(limit, np.maximum(mark, self._by_key[other].of_keys(own)))
        for reached in np.unique(limit[limit > self._done]).tolist():
            some = pa.array(np.flatnonzero(limit == reached))
            chosen = [{n: array.take(some) for n, array in own.items()} for own in of_ports]
            yield from self._advance_some(chosen, reached)

    def _advance_some(
        self, keys: Sequence[Mapping[str, pa.Array]], below: int
    ) -> Iterator[pa.RecordBatch]:
        """Work on the rows of some keys alone, up to a watermark of their own."""
        sides, others = [], []
        for port, own in enumerate(keys):
            index = KeyIndex(self.inputs[port].schema.select(tuple(own)))
            ids = index.encode(list(own.values()))
            among = np.zeros(index.count + 1, dtype=np.bool_)  # the last one is of all others
            among[ids] = True  # null has an id of its own, whether it is among the keys or not

            def chosen(rows: pa.RecordBatch, index: KeyIndex = index, among: Mask = among) -> Mask:
                found: Mask = among[np.maximum(index.find([rows.column(n) for n in index.schema.names]), -1)]
                return found

            kept = self._kept_rows[port]
            mine = chosen(kept)
            self._kept_rows[port], rest = divided(kept, mine)
            others.append(rest)
            sides.append(self._due(port, below, chosen))
        held, wake = self._held, self._wake
        results = self._worked(sides, below)
        self._kept_rows = [joined_rows(pair) for pair in zip(others, self._kept_rows)]
        # What other keys hold back is not known apart: it stays until the next watermark of all.
        self._held, self._wake = min(held, self._held), min(wake, self._wake)
        self._see_next()
        yield from (batch for batch in results if batch.num_rows)

    @property
    def waiting(self) -> int:
        """The number of rows that were not worked on yet."""
        return sum(waiting.count for waiting in self._waiting)

    def key_of_table(self, name: str, keys: Sequence[str]) -> str | None:
        """Return the column of a table of a snapshot that has the key, given the keys of the ports."""
        for port, key in enumerate(keys):
            if name in (f"waiting{port}", f"kept{port}"):
                return key
        return keys[0] if name in self._extra_schemas() else None

    @property
    def wants_advance(self) -> bool:
        return bool(self.waiting >= max(self._tuning.few_waiting, 4 * self._kept_count, self._enough))

    @property
    def _kept_count(self) -> int:
        """The number of rows that are kept."""
        return sum(rows.num_rows for rows in self._kept_rows)

    def _all_kept(self, port: int) -> pa.RecordBatch:
        """Return the rows of a port that are kept."""
        return self._kept_rows[port]

    def _due(
        self, port: int, below: int, chosen: Callable[[pa.RecordBatch], Mask] | None = None
    ) -> Side:
        """Take the rows that start below a watermark from those that wait; of some keys, or of all."""
        return self._side(port, self._kept_rows[port], self._taken(port, below, chosen))

    def _taken(
        self, port: int, below: int, chosen: Callable[[pa.RecordBatch], Mask] | None = None
    ) -> list[pa.RecordBatch]:
        """As `_due`, without the rows that are kept."""
        due = self._waiting[port].due(below, chosen)
        if not self.state[port]:
            return due
        nothing = [pa.array(np.zeros(batch.num_rows, np.int64)) for batch in due]
        schema = self._kept_rows[port].schema
        return [
            pa.RecordBatch.from_arrays([*b.columns, *[none] * len(self.state[port])], schema=schema)
            for b, none in zip(due, nothing)
        ]

    def _side(self, port: int, kept: pa.RecordBatch, due: list[pa.RecordBatch]) -> Side:
        rows, plan = joined_rows([kept, *due]), self.inputs[port]
        return Side(plan, rows, kept.num_rows, starts_of(plan, rows), ends_of(plan, rows))

    def _ends(self, port: int, kept: pa.RecordBatch) -> int:
        """Return the first instant at which kept rows matter, because they end."""
        return int(ends_of(self.inputs[port], kept).min())

    @abstractmethod
    def _work(
        self, sides: list[Side], below: int
    ) -> tuple[Iterable[pa.RecordBatch], list[pa.RecordBatch]]:
        """Return the results that are complete at a watermark, and the rows of each port to keep.

        All new rows start below it. Results may be made while they are read.
        """

    @property
    def promise(self) -> Limits:
        return Limits(min(self._done, self._held))

    def _refuse(self, rows: pa.RecordBatch, reason: str | list[str], port: int = 0) -> None:
        """Keep rows of a port apart, which cannot be used."""
        self._refused[port].add(rows, reason)

    def _refusing(self, side: Side) -> Callable[[Ints, list[str]], None] | None:
        """Return what keeps rows of a side apart, by their places; None if they are an error."""
        if not self._lenient:
            return None
        return lambda rows, reason: self._refuse(side.rows.take(pa.array(rows)), reason)

    def refused(self, port: int) -> tuple[int, pa.Table] | None:
        return self._refused[port].count, self._refused[port].table()

    # -- what it holds

    def so_far(self, more: Sequence[tuple[int, pa.RecordBatch]] = ()) -> Iterator[pa.RecordBatch]:
        copy = type(self)(self.plan, self._tuning, lenient=self._lenient)
        copy.restore(self.snapshot())
        for port, batch in more:
            copy.push(port, batch)
        for port in range(self.ports):
            yield from copy.advance(port, FOREVER)

    def size(self) -> tuple[int, int]:
        batches = [*self._kept_rows, *(b for waiting in self._waiting for b in waiting.batches)]
        return sum(b.num_rows for b in batches), sum(b.nbytes for b in batches)

    def late(self) -> pa.Table | None:
        found = [late.table() for late in self._late]
        return found[0] if len(found) == 1 else max(found, key=len)

    def snapshot(self) -> Snapshot:
        state: Snapshot = {
            "about": pa.table({"format": [_FORMAT], "plan": [str(self.plan)]}),
            "known": numbers(tick=[self._done, self._held, *self._marks.ports]),
            "refused": numbers(rows=[refused.count for refused in self._refused]),
        }
        for port, schema in enumerate(self._schemas):
            state[f"waiting{port}"] = pa.Table.from_batches(self._waiting[port].batches, schema=schema)
            state[f"kept{port}"] = pa.Table.from_batches([self._all_kept(port)])
            state[f"late{port}"] = self._late[port].table()
            state[f"refused{port}"] = self._refused[port].table()
            for number, limits in enumerate(self._by_key[port].tables(_BELOW)):
                state[f"limits{port}.{number}"] = limits
        return state | self._extra()

    def _extra_schemas(self) -> dict[str, pa.Schema]:
        """The tables of state besides rows."""
        return {}

    def _extra(self) -> Snapshot:
        return {}

    def _load_extra(self, found: Sequence[pa.Table]) -> None:
        """Load the tables of `_extra`, in order."""

    def _load_limits(self, port: int, found: Sequence[pa.Table]) -> None:
        columns, schema = self._key_columns, self._schemas[port]
        for table in found:
            *names, last = table.column_names
            fields = [schema.field(n) for n in names if n in columns[port]]
            wanted = pa.schema([*fields, (_BELOW, pa.int64())])
            if last != _BELOW or not names or not table.schema.equals(wanted):
                raise UserError("restore", expected="watermarks of keys", got=str(table.column_names))
            arrays = {n: table.column(n).combine_chunks() for n in names}
            self._by_key[port].load(arrays, column(table, last))

    def restore(self, state: Snapshot) -> None:
        wanted = {
            "about": pa.schema([("format", pa.int64()), ("plan", pa.string())]),
            "known": pa.schema([("tick", pa.int64())]), "refused": pa.schema([("rows", pa.int64())]),
        }  # fmt: skip
        for port, schema in enumerate(self._schemas):
            kept = self._kept_schema(port)
            wanted |= {f"waiting{port}": schema, f"kept{port}": kept, f"late{port}": schema}
            wanted[f"refused{port}"] = self._refused[port].schema
        about, known, counts, *rows = tables(state, wanted | self._extra_schemas())
        if about.to_pylist() != [{"format": _FORMAT, "plan": str(self.plan)}]:
            got = str(about.to_pylist())[:200]
            raise UserError("restore", expected=f"a snapshot of {self.plan}", got=got)
        ticks = column(known, "tick").tolist()
        if len(ticks) != 2 + self.ports:
            raise UserError("restore", expected=f"{2 + self.ports} watermarks", got=str(len(ticks)))
        self._done, self._held = ticks[:2]
        refused = column(counts, "rows").tolist() or [0] * self.ports
        if len(refused) != self.ports or min(refused) < 0:
            raise UserError("restore", expected=f"{self.ports} counts of rows", got=str(refused))
        self._next = BEGINNING
        for port, one in enumerate(self.inputs):
            self._marks.raise_to(port, ticks[2 + port])
            waiting, kept, late, bad = rows[4 * port : 4 * port + 4]
            self._refused[port].restore(bad, refused[port])
            self._kept_rows[port] = one_batch(kept)
            for batch in (*waiting.to_batches(), self._kept_rows[port]):
                check_lifetimes(one, batch)
            self._waiting[port] = WaitingRows(one, waiting.to_batches())
            self._late[port].restore(late)
            self._load_limits(port, [t for n, t in state.items() if n.startswith(f"limits{port}.")])
        self._load_extra(rows[4 * self.ports :])


_BELOW = "\0below"


def one_batch(table: pa.Table) -> pa.RecordBatch:
    batches = table.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=table.schema)
