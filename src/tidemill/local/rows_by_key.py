"""Operators on the rows of a key in order: sessions, neighbours, edges, pieces, the greatest rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from tidemill.core.time import BEGINNING, FOREVER
from tidemill.core.types import to_arrow
from tidemill.kernels.in_time import session_ends
from tidemill.kernels.memory import empty
from tidemill.kernels.order import order_by
from tidemill.kernels.row_batches import taken_rows
from tidemill.local.expressions import evaluate
from tidemill.local.lifetimes import Ints, Keyed, Mask, instants, key_ids, row_ids, with_lifetimes
from tidemill.local.matching import ranges
from tidemill.local.operator import Snapshot
from tidemill.local.ranking import equal_rows, rank
from tidemill.local.same_rows import same_rows
from tidemill.local.snapshot import column, numbers
from tidemill.local.temporal_operator import Side, TemporalOperator
from tidemill.plan.faults import lost_edge
from tidemill.plan.identity import held_once
from tidemill.plan.temporal import (
    CHANGE,
    Chop,
    Edges,
    FromEdges,
    Neighbours,
    Stitch,
    TopRows,
    UntilSessionEnd,
    payload,
)

Worked = tuple[list[pa.RecordBatch], list[pa.RecordBatch]]
_GIVEN, _SINCE = "\0state given", "\0state since"


class SessionEndOperator(TemporalOperator):
    """Keeps the rows of sessions that may go on."""

    plan: UntilSessionEnd

    def _work(self, sides: list[Side], below: int) -> Worked:
        [side] = sides
        kid, count = row_ids(self.plan.input.schema, self.plan.keys, side.rows)
        end = empty(len(kid))
        session_ends(kid, side.starts, side.in_order, self.plan.gap, empty(count), empty(count), end)
        complete = end <= below
        rows = taken_rows(side.rows, np.flatnonzero(complete))
        kind = to_arrow(self.plan.schema[self.plan.time])
        ends = instants(end[complete], kind)
        name = self.plan.end_column
        at = rows.schema.get_field_index(name)
        field = pa.field(name, kind)
        rows = rows.append_column(field, ends) if at < 0 else rows.set_column(at, field, ends)
        open_ = ~complete
        if open_.any():
            self._held = int(side.starts[open_].min())
            self._wake = int(end[open_].min()) - 1
        return [rows], [side.keep(open_)]

    def _ends(self, port: int, kept: pa.RecordBatch) -> int:
        return FOREVER


class NeighboursOperator(TemporalOperator):
    """Keeps the rows that later ones look back to, and those that wait for later ones."""

    plan: Neighbours
    state = ((_GIVEN,),)

    def _work(self, sides: list[Side], below: int) -> Worked:
        [side] = sides
        n, source = side.rows.num_rows, self.plan.input
        _, kid = key_ids(source.schema, self.plan.keys, side.rows)
        names = payload(source)
        order = order_by(kid, side.starts, side.ends, *rank(side.rows, source.schema, names))
        keys = kid[order]
        given = np.where(side.is_new, 0, side.state(_GIVEN)) != 0
        begin = np.searchsorted(keys, keys, side="left")
        end = np.searchsorted(keys, keys, side="right")
        place = np.arange(n)
        back = max([0, *(a.back for a in self.plan.asked)])
        ahead = max([0, *(-a.back for a in self.plan.asked)])
        ready = ~given[order] & ((place + ahead < end) | (below == FOREVER))
        rows = place[ready]
        arrays = list(side.rows.select(list(source.schema.names)).take(pa.array(order[rows])).columns)
        for asked in self.plan.asked:
            other = rows - asked.back
            there = (other >= begin[rows]) & (other < end[rows])
            taken = pa.array(order[np.where(there, other, 0)], mask=~there) if n else pa.array([], pa.int64())
            arrays.append(side.rows.column(asked.column).take(taken))
        result = pa.RecordBatch.from_arrays(arrays, schema=self.plan.schema.to_arrow())
        # Of the rows that were given, the last ones of each key are looked back to by rows to come.
        done_now = given[order] | ready
        waiting = np.flatnonzero(~done_now)
        first_open = end.copy()
        if len(waiting):
            first = np.full(int(keys.max()) + 1, n, dtype=np.int64)
            np.minimum.at(first, keys[waiting], waiting)
            first_open = np.minimum(end, first[keys])
            self._held = int(side.starts[order[waiting]].min())
        kept = np.zeros(n, dtype=np.bool_)
        state = np.zeros(n, dtype=np.int64)
        kept[order] = ~done_now | (place >= first_open - back)
        state[order] = done_now
        return [result], [side.keep(kept, **{_GIVEN: state})]

    def _ends(self, port: int, kept: pa.RecordBatch) -> int:
        return FOREVER


class ChopOperator(TemporalOperator):
    """Keeps rows that never end, of which more pieces may come, up to the last instant of the stream."""

    plan: Chop

    def __init__(self, plan: Chop, *args: Any, **kwargs: Any) -> None:
        super().__init__(plan, *args, **kwargs)
        self._latest = BEGINNING

    def _work(self, sides: list[Side], below: int) -> Worked:
        [side] = sides
        origin, every = self.plan.origin, self.plan.every
        finite = side.ends != FOREVER
        for ticks in (side.starts, side.ends[finite]):
            if len(ticks):
                self._latest = max(self._latest, int(ticks.max()))
        last_cut = np.minimum(side.ends - 1, self._latest)
        first = (side.starts - origin) // every
        count = np.maximum((last_cut - origin) // every - first, 0)  # of cuts
        over = below == FOREVER
        pieces = count + (finite | over)
        rows = np.repeat(np.arange(len(pieces)), pieces)
        nth = np.arange(len(rows)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
        cut = origin + (first[rows] + nth) * every
        start = np.where(nth == 0, side.starts[rows], cut)
        end = np.where(nth == count[rows], side.ends[rows], cut + every)
        out = with_lifetimes(self.plan.input, side.rows.take(pa.array(rows)), start, end)
        kept = ~finite & (not over)
        rest = np.where(count > 0, origin + (first + count) * every, side.starts)
        left = with_lifetimes(self.plan.input, side.rows, rest, side.ends).filter(pa.array(kept))
        if kept.any():
            self._held = int(rest[kept].min())
        return [out], [left]

    def _extra_schemas(self) -> dict[str, pa.Schema]:
        return {"latest": pa.schema([("tick", pa.int64())])}

    def _extra(self) -> Snapshot:
        return {"latest": numbers(tick=[self._latest])}

    def _load_extra(self, found: Sequence[pa.Table]) -> None:
        self._latest = max([BEGINNING, *column(found[0], "tick").tolist()])


class StitchOperator(TemporalOperator):
    """Gives each layer of equal rows as one row for each stretch; keeps those that may go on."""

    plan: Stitch

    def __init__(self, plan: Stitch, *args: Any, **kwargs: Any) -> None:
        super().__init__(plan, *args, **kwargs)
        self._once = held_once(plan.input)
        """Columns by which no two rows hold at one instant, if there are any: then there is one layer."""

    def _work(self, sides: list[Side], below: int) -> Worked:
        [side] = sides
        if self._once is not None:
            out, start, end = self._runs(side, self._once)
        else:
            same = equal_rows(side.rows, self.plan.schema, payload(self.plan))
            out, start, end = _layers(Keyed.of(same, side.starts, side.ends))
        complete = (end < below) | (below == FOREVER)
        rows = with_lifetimes(self.plan.input, side.rows.take(pa.array(out)), start, end)
        if not complete.all():
            self._held = int(start[~complete].min())
            self._wake = int(end[~complete].min())
        return [rows.filter(pa.array(complete))], [rows.filter(pa.array(~complete))]


    def _runs(self, side: Side, keys: Sequence[str]) -> tuple[Ints, Ints, Ints]:
        """Return rows for runs of equal rows that touch, where the rows of a key follow each other."""
        _, kid = key_ids(self.plan.schema, keys, side.rows)
        by = Keyed.of(kid, side.starts, side.ends)
        joins = np.zeros(len(kid), dtype=np.bool_)
        joins[1:] = (by.keys[1:] == by.keys[:-1]) & (by.starts[1:] == by.ends[:-1])
        values = self.plan.schema.select(tuple(n for n in payload(self.plan) if n not in keys))
        if len(values) and joins.any():
            mine = np.flatnonzero(joins)
            rows = pa.Table.from_batches([side.rows.select(list(values.names))])
            now, before = (rows.take(pa.array(by.order[at])) for at in (mine, mine - 1))
            joins[mine] = same_rows(now, before, values)
        first = np.flatnonzero(~joins)
        last = np.append(first[1:], len(kid))[: len(first)] - 1
        return by.order[first], by.starts[first], by.ends[last]


def _layers(rows: Keyed) -> tuple[Ints, Ints, Ints]:
    """Return rows for the layers of intervals of each key: a row of the key, start and end.

    The k-th layer is where at least k intervals hold. Starts and ends sorted apart give it: the k-th layer
    begins where a start makes the count k, and ends where an end makes it less.
    """
    n = len(rows.keys)
    key = np.concatenate([rows.keys, rows.keys])
    at = np.concatenate([rows.starts, rows.ends])
    sign = np.concatenate([np.ones(n, np.int64), np.full(n, -1, np.int64)])
    source = np.concatenate([rows.order, rows.order])
    order = order_by(key, at)
    key, at, sign, source = key[order], at[order], sign[order], source[order]
    # The net change at each instant of a key.
    first = np.ones(2 * n, dtype=np.bool_)
    first[1:] = (key[1:] != key[:-1]) | (at[1:] != at[:-1])
    places = np.flatnonzero(first)
    net = np.add.reduceat(sign, places) if n else sign
    key, at, source = key[places], at[places], source[places]
    count = np.cumsum(net)  # 0 at the end of each key
    before = count - net
    # An instant that raises the count from a to b opens the layers a + 1 to b.
    up, down = np.maximum(net, 0), np.maximum(-net, 0)
    opens, closes = np.repeat(np.arange(len(net)), up), np.repeat(np.arange(len(net)), down)
    layer_open = before[opens] + 1 + _nth(up)
    layer_close = before[closes] - _nth(down)
    by_open = order_by(key[opens], layer_open, at[opens])
    by_close = order_by(key[closes], layer_close, at[closes])
    return source[opens][by_open], at[opens][by_open], at[closes][by_close]


def _nth(counts: Ints) -> Ints:
    """Return 0, 1, 2, … for each of the places that `np.repeat` makes."""
    found: Ints = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
    return found


class TopOperator(TemporalOperator):
    """Keeps the rows that hold at the watermark, and since when each of them is among the greatest."""

    plan: TopRows
    state = ((_SINCE,),)

    def _work(self, sides: list[Side], below: int) -> Worked:
        [side] = sides
        n = side.rows.num_rows
        _, kid = key_ids(self.plan.schema, self.plan.keys, side.rows)
        since = np.where(side.is_new, BEGINNING, side.state(_SINCE))
        closing = side.ends < below
        key = np.concatenate([kid[side.is_new], kid[closing]])
        at = np.concatenate([side.starts[side.is_new], side.ends[closing]])
        order = order_by(key, at)
        key, at = key[order], at[order]
        new = np.ones(len(key), dtype=np.bool_)
        new[1:] = (key[1:] != key[:-1]) | (at[1:] != at[:-1])
        key, at = key[new], at[new]
        until = np.append(np.where(key[1:] == key[:-1], at[1:], FOREVER), FOREVER) if len(at) else at
        rows = Keyed.of(kid, side.starts, side.ends)
        place = self._ranked(side)
        chosen_row, chosen_at = self._chosen(rows, Keyed(at, key, at, at), place)
        # What each row was so far goes on until the first edge of its key.
        first = np.searchsorted(key, kid)
        has_edge = np.zeros(n, dtype=np.bool_)
        if len(key):
            has_edge = (first < len(key)) & (key[np.minimum(first, len(key) - 1)] == kid)
        open_rows = np.flatnonzero((since != BEGINNING) & has_edge)
        row = np.concatenate([open_rows, chosen_row])
        start = np.concatenate([since[open_rows], at[chosen_at]])
        end = np.concatenate([at[first[open_rows]], until[chosen_at]])
        order = order_by(row, start)
        row, start, end = row[order], start[order], end[order]
        begins = np.ones(len(row), dtype=np.bool_)
        begins[1:] = (row[1:] != row[:-1]) | (start[1:] != end[:-1])
        runs = np.flatnonzero(begins)
        last = np.append(runs[1:], len(row))[: len(runs)] - 1
        row, start, end = row[runs], start[runs], end[last]
        over = below == FOREVER
        complete = (end != FOREVER) | over
        still = np.where(has_edge, BEGINNING, since)
        still[row[~complete]] = start[~complete]
        if over:  # rows whose key has no edge any more
            rest = np.flatnonzero(still != BEGINNING)
            row, start = np.append(row, rest), np.append(start, still[rest])
            end = np.append(end, np.full(len(rest), FOREVER))
            complete = np.ones(len(row), dtype=np.bool_)
        taken = side.rows.select(list(self.plan.schema.names)).take(pa.array(row[complete]))
        result = with_lifetimes(self.plan.input, taken, start[complete], end[complete])
        kept = (side.ends >= below) & (not over)
        held = still[kept]
        if (held != BEGINNING).any():
            self._held = int(held[held != BEGINNING].min())
        return [result], [side.keep(kept, **{_SINCE: still})]

    def _ranked(self, side: Side) -> Ints:
        """Return the rank of each row; the first one is the greatest. Of equal rows, it is the earliest."""
        plan, rows = self.plan, side.rows
        others = tuple(n for n in payload(plan) if n != plan.by)
        by, *_ = rank(rows, plan.schema, (plan.by,))
        null = np.asarray(rows.column(plan.by).is_null()).astype(np.int64)
        # ~x sorts the other way round, and cannot overflow.
        ties = [~r for r in rank(rows, plan.schema, others)]
        order = order_by(null, by if plan.least else ~by, *ties, side.starts, side.ends)
        found = np.empty(len(order), dtype=np.int64)
        found[order] = np.arange(len(order))
        return found

    def _chosen(self, rows: Keyed, snapshots: Keyed, place: Ints) -> tuple[Ints, Ints]:
        """Return pairs of a row and of a snapshot that has it among its greatest."""
        nothing = np.empty(0, dtype=np.int64)
        held_row, held_at = nothing, nothing
        for own, others in ranges(rows, snapshots, 0):
            held_row, held_at = np.append(held_row, rows.order[own]), np.append(held_at, others)
            order = order_by(held_at, place[held_row])
            held_row, held_at = held_row[order], held_at[order]
            begin = np.searchsorted(held_at, held_at, side="left")
            best = np.arange(len(held_at)) - begin < self.plan.count
            held_row, held_at = held_row[best], held_at[best]
        return held_row, held_at


class ChangesOperator(TemporalOperator):
    """Keeps edges above the watermark, and gives the net changes below it."""

    plan: Edges

    def _work(self, sides: list[Side], below: int) -> Worked:
        [side] = sides
        now = side.is_new
        finite = side.ends != FOREVER
        ended = finite & (side.ends < below)
        at = np.concatenate([side.starts[now], side.ends[ended]])
        sign = np.concatenate([np.ones(int(now.sum()), np.int64), np.full(int(ended.sum()), -1, np.int64)])
        row = np.concatenate([np.flatnonzero(now), np.flatnonzero(ended)])
        same = equal_rows(side.rows, self.plan.input.schema, payload(self.plan.input))[row]
        order = order_by(at, same)
        at, sign, row, same = at[order], sign[order], row[order], same[order]
        first = np.ones(len(at), dtype=np.bool_)
        first[1:] = (at[1:] != at[:-1]) | (same[1:] != same[:-1])
        places = np.flatnonzero(first)
        net = np.add.reduceat(sign, places) if len(at) else sign
        times = np.repeat(places, np.abs(net))
        schema, below_plan = self.plan.schema.to_arrow(), self.plan.input
        taken = side.rows.take(pa.array(row[times]))
        change = pa.array(np.sign(np.repeat(net, np.abs(net))))
        arrays = [
            change if n == CHANGE
            else instants(at[times], to_arrow(below_plan.schema[n])) if n == below_plan.time
            else taken.column(n)
            for n in self.plan.schema.names
        ]  # fmt: skip
        return [pa.RecordBatch.from_arrays(arrays, schema=schema)], [side.keep(finite & ~ended)]


class FromEdgesOperator(TemporalOperator):
    """Keeps the starts of lifetimes that are open."""

    plan: FromEdges

    def _work(self, sides: list[Side], below: int) -> Worked:
        [side] = sides
        source = self.plan.input
        _, kid = key_ids(source.schema, self.plan.keys, side.rows)
        found = evaluate(self.plan.starts, side.rows, source.schema)
        is_start = np.asarray(found.fill_null(False)).astype(np.int64)
        order = order_by(kid, side.starts, is_start)
        # Of several edges of one kind in a row, the first one counts; an end counts after a start.
        wrong = _repeated(kid[order], is_start[order])
        if wrong.any():
            at = order[np.flatnonzero(wrong)[0]]
            if not self._lenient:
                raise lost_edge(self.plan, int(side.starts[at]), start=bool(is_start[at]))
            for kind, reason in ((0, "an end without a start"), (1, "a second start")):
                lost = np.sort(order[wrong & (is_start[order] == kind)])
                if len(lost):
                    self._refuse(side.rows.take(pa.array(lost)), reason)
            order = order[~wrong]
        keys, starts, kinds = kid[order], side.starts[order], is_start[order]
        first = np.ones(len(keys), dtype=np.bool_)
        first[1:] = keys[1:] != keys[:-1]
        opens = np.flatnonzero(kinds == 1)
        follows = opens + 1
        closed = (follows < len(keys)) & (~np.append(first, True)[np.minimum(follows, len(keys))])
        end = np.where(closed, starts[np.minimum(follows, max(len(keys) - 1, 0))], FOREVER)
        given: Mask = closed | (below == FOREVER)
        kind = to_arrow(source.schema[source.time])
        taken = side.rows.take(pa.array(order[opens[given]]))
        result = taken.append_column(pa.field(self.plan.end_column, kind), instants(end[given], kind))
        kept = np.zeros(side.rows.num_rows, dtype=np.bool_)
        kept[order[opens[~given]]] = True
        if kept.any():
            self._held = int(side.starts[kept].min())
        return [result], [side.keep(kept)]

    def _ends(self, port: int, kept: pa.RecordBatch) -> int:
        return FOREVER


def _repeated(keys: Ints, kinds: Ints) -> Mask:
    """Return which edges, in order, follow one of their own kind; at first there is an end."""
    before = np.append(0, kinds[:-1])
    before[np.append(True, keys[1:] != keys[:-1])[: len(keys)]] = 0
    found: Mask = kinds == before[: len(kinds)]
    return found


__all__ = [
    "ChangesOperator", "ChopOperator", "FromEdgesOperator", "NeighboursOperator", "SessionEndOperator",
    "StitchOperator", "TopOperator",
]  # fmt: skip
