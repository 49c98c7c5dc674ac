"""`windows`, `extent`, `wids`: the meaning of every window, as pure functions (paper 003, 3.3–3.4).

`T` is the stream: an array of the windowing attribute in order of arrival, or named columns (a
mapping of arrays or an Arrow table) where a window has `on=`, `partition_by=` or `order_by=`.
A row is known by its position in `T`. Over floats, the attribute is first converted to ticks (`real_grid`).

Window ids are ints (grid windows, calendar windows), values of the attribute (`per_event`), first instants
(`session`); with a partition they are pairs `(id, partition)`, where the partition is the value of
its column, or a tuple where there are several.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemill.core.batch import conform, to_rows
from tidemill.core.errors import UserError
from tidemill.core.floats import canonical, canonical_arrow
from tidemill.core.schema import Schema
from tidemill.core.time import BEGINNING, FARTHEST, FOREVER, Domain, instant
from tidemill.core.types import FLOAT64, INT64, from_arrow, to_arrow
from tidemill.expr.evaluate import evaluate
from tidemill.expr.nodes import Column, Node, columns_of
from tidemill.expr.typing import resolve, type_of
from tidemill.windows.calendar_units import most_ticks, start_of, window_of
from tidemill.windows.real_grid import on_ticks, tick_of, value_of
from tidemill.windows.spec import (
    Calendar,
    GridWindow,
    LastRange,
    LastRows,
    PerEvent,
    Rows,
    Session,
    Window,
)

Ints = npt.NDArray[np.int64]
_TICKS = Schema((("", INT64),))


def windows(T: Any, S: Window) -> npt.NDArray[Any]:
    """The ids of the windows of `T`, ascending; partition by partition.

    For grid and calendar windows these are all ids from the first to the last window that holds a row; one
    between them may hold none. A day that its zone left out has no window.

    >>> from tidemill.windows.spec import tumbling
    >>> windows([0, 45], tumbling(10))
    array([0, 1, 2, 3, 4])
    >>> extent(2, [0, 45], tumbling(10))
    array([], dtype=int64)
    """
    stream = _stream(T, S)
    return stream.named(*_windows(stream, stream.spec))


def extent(w: Any, T: Any, S: Window) -> Ints:
    """The positions of the rows of window `w`.

    >>> from tidemill.windows.spec import hopping
    >>> extent(1, [0, 25, 10], hopping(20, every=10))
    array([0, 2])
    """
    stream = _stream(T, S)
    S = stream.spec
    x, inside = stream.attribute, np.ones(len(stream.attribute), dtype=np.bool_)
    if stream.labels is not None:
        w, label = w
        inside = stream.codes == (stream.labels.index(label) if label in stream.labels else -1)
    if isinstance(S, LastRows):
        early = inside & (x < S.origin + (int(w) + 1) * S.every.ticks)
        number = _row_numbers(stream.codes, stream.arrival)
        return np.flatnonzero(early & (number >= int(early.sum()) - S.range))
    if isinstance(S, LastRange):
        there = inside & (stream.slides < S.origin + (int(w) + 1) * S.every.ticks)
        return np.flatnonzero(there & (x > int(x[there].max(initial=BEGINNING)) - S.range.ticks))
    if isinstance(S, Session):
        start, end = session_runs(np.sort(x[inside]), S.gap.ticks)
        last = end[start == w]
        inside &= (x >= w) & (x <= last[0]) if len(last) else False
    else:
        low, high = (int(bound) for bound in bounds(w, S))
        inside &= (x > low) & (x <= high) if isinstance(S, PerEvent) else (x >= low) & (x < high)
    return np.flatnonzero(inside)


def wids(t: Any, T: Any, S: Window) -> Any:
    """The windows of row `t`; for an array of rows, pairs of arrays `(row, id)`.

    >>> from tidemill.windows.spec import hopping
    >>> wids(1, [0, 25], hopping(20, every=10))
    array([2, 3])
    >>> wids([0, 1], [0, 25], hopping(20, every=10))
    (array([0, 0, 1, 1]), array([0, 1, 2, 3]))
    """
    stream, rows = _stream(T, S), np.atleast_1d(np.asarray(t, dtype=np.int64))
    size = len(stream.attribute)
    if len(rows) and not 0 <= rows.min() <= rows.max() < size:
        raise UserError("wids", expected=f"rows of T, 0 to {size - 1}", got=repr(t))
    which, ids = _wids(rows, stream, stream.spec)
    named = stream.named(stream.codes[rows[which]], ids)
    return named if np.ndim(t) == 0 else (rows[which], named)


def attribute(T: Any, S: Window) -> Ints:
    """The windowing attribute of each row of `T`: ticks of its column, or the number of the row.

    Of a float, the tick is a step of the grid of `S`.

    >>> from tidemill.windows.spec import rows
    >>> attribute({"seg": ["a", "b", "a"]}, rows(2, every=1, partition_by="seg"))
    array([0, 0, 1])
    """
    return _stream(T, S).attribute


def taken_in_order(T: Any, S: Window) -> Ints:
    """What the rows of a window are ordered by, where an aggregate depends on it: the windowing attribute.

    Windows of the last rows take them in the order in which they count them: the other columns break ties.
    """
    stream = _stream(T, S)
    return stream.arrival if isinstance(S, LastRows) else stream.attribute


def wid_range(x: npt.ArrayLike, S: GridWindow | Calendar) -> tuple[Ints, Ints]:
    """First and last window id of rows with attribute `x`, vectorised; none when last < first.

    For a landmark window the ids have no end, so the last is the one that ends next.

    >>> from tidemill.windows.spec import hopping
    >>> wid_range([0, 25], hopping(20, every=10))
    (array([0, 2]), array([1, 3]))
    """
    values = np.asarray(x, dtype=np.int64)
    if isinstance(S, Calendar):
        _check_reach(values, FOREVER - FARTHEST, S)
        only = window_of(values, S)
        return only, only
    _check_reach(values, abs(S.origin) + (S.length or 0) + S.slide, S)
    offset = values - S.origin
    first = np.floor_divide(offset, S.slide)
    last = first if S.length is None else np.floor_divide(offset + S.length, S.slide) - 1
    if S.start is not None:
        last = np.where(values < S.start, first - 1, last)
    return first, last


def bounds(
    ids: npt.ArrayLike, S: Window, *, new: Callable[[Ints], Ints] = np.empty_like
) -> tuple[Ints, Ints]:
    """`window_start` and `window_end` of windows, from their ids (without the partition) alone.

    `[start, end)` for grid and calendar windows, `(start, end]` for `per_event`. A session's end depends on
    its rows, see `session_runs`. `new` makes room for the bounds of windows. Over floats, bounds are floats.

    >>> from tidemill.windows.spec import tumbling
    >>> bounds([2, 3], tumbling(0.1))
    (array([0.2, 0.3]), array([0.3, 0.4]))
    """
    w = np.asarray(ids, dtype=np.int64)
    if isinstance(S, GridWindow) and S.step is not None:
        ticks, node = bounds(w, replace(S, step=None), new=new), value_of(Column(""), S.step)
        starts, ends = ([evaluate(node, {"": t}, _TICKS) for t in side.tolist()] for side in ticks)
        return np.asarray(starts), np.asarray(ends)
    if isinstance(S, PerEvent):
        _check_reach(w, S.range.ticks, S)
        return w - S.range.ticks, w
    if isinstance(S, Calendar):
        low, high = (extreme * most_ticks(S) for extreme in _extremes(w))
        _check_fit(low - most_ticks(S), high + 2 * most_ticks(S), S)
        return start_of(w, S), start_of(w + 1, S)
    if not isinstance(S, GridWindow):
        raise UserError("bounds", expected="a window whose id fixes its bounds", got=str(S))
    low, high = (S.origin + (extreme + 1) * S.slide for extreme in _extremes(w))
    _check_fit(low - (S.length or 0), high, S)
    start, end = new(w), new(w)
    np.add(w, 1, out=end)
    end *= S.slide
    end += S.origin
    if S.length is None:
        start.fill(S.start)
        return start, end
    np.subtract(end, S.length, out=start)
    return (start if S.start is None else np.maximum(start, S.start, out=start)), end


def session_runs(ordered: Ints, gap: int) -> tuple[Ints, Ints]:
    """First and last attribute value of each run whose inner gaps are below `gap`.

    >>> session_runs(np.array([1, 2, 5, 20]), 4)
    (array([ 1, 20]), array([ 5, 20]))
    """
    begins = _begins(np.zeros(len(ordered), dtype=np.int64), ordered, gap)
    return ordered[begins], ordered[np.append(begins[1:], len(ordered))[: len(begins)] - 1]


# --- ids, with the partition as a code -----------------------------------------------------------


def _windows(stream: _Stream, S: Window) -> tuple[Ints, Ints]:
    """Partition and id of every window, in order of both."""
    codes, x = stream.codes, stream.attribute
    if isinstance(S, GridWindow | Calendar):
        first, last = wid_range(x, S)
        order = np.argsort(codes, kind="stable")
        order = order[(last >= first)[order]]
        partition, begin = np.unique(codes[order], return_index=True)
        low = np.minimum.reduceat(first[order], begin)
        high = np.maximum.reduceat(last[order], begin)
        which, ids = _spread(low, high - low + 1)
        if isinstance(S, Calendar):  # a day that the zone left out has no window
            start, end = bounds(ids, S)
            which, ids = which[start < end], ids[start < end]
        return partition[which], ids
    if isinstance(S, LastRows | LastRange):
        order = np.lexsort((stream.slides, codes))
        partition, begin = np.unique(codes[order], return_index=True)
        low = _slide(stream.slides[order][begin], S)
        which, ids = _spread(low, _last_slide(stream.slides, S) - low + 1)
        return partition[which], ids
    gap = 1  # a run for each value: equal values make one window
    if isinstance(S, PerEvent):
        position = x if S.by == "rank" else stream.arrival
        ends = (_row_numbers(codes, position) + 1) % S.every == 0
        codes, x = codes[ends], x[ends]
    elif isinstance(S, Session):
        gap = S.gap.ticks
    order = np.lexsort((x, codes))
    codes, x = codes[order], x[order]
    begins = _begins(codes, x, gap)
    return codes[begins], x[begins]


def _wids(rows: Ints, stream: _Stream, S: Window) -> tuple[Ints, Ints]:
    """The index into `rows` and the id of each membership."""
    x = stream.attribute[rows]
    if isinstance(S, GridWindow | Calendar):
        first, last = wid_range(x, S)
        if isinstance(S, GridWindow) and S.length is None:
            # A row stays in every later landmark window, up to the last one of the stream.
            last = np.where(last < first, last, wid_range(stream.attribute, S)[1].max(initial=0))
        return _spread(first, last - first + 1)
    if isinstance(S, LastRows):
        return _wids_of_last_rows(rows, stream, S)
    if isinstance(S, LastRange):
        return _wids_of_last_range(rows, stream, S)
    codes, ids = _windows(stream, S)
    reach = S.range.ticks - 1 if isinstance(S, PerEvent) else 0
    begin, end = _search(codes, ids, stream.codes[rows], x, x + reach)
    if isinstance(S, Session):
        begin = end - 1
    which, at = _spread(begin, end - begin)
    return which, ids[at]


def _wids_of_last_rows(rows: Ints, stream: _Stream, S: LastRows) -> tuple[Ints, Ints]:
    """A row leaves with the row that is `range` rows later in its partition, or never."""
    x, slide = stream.attribute, S.every.ticks
    order = np.lexsort((stream.arrival, stream.codes))
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    later = place + S.range
    there = later < len(order)
    successor = order[np.where(there, later, 0)]
    there &= stream.codes[successor] == stream.codes
    after = np.where(there, (x[successor] - S.origin) // slide, _last_slide(x, S) + 1)
    first = (x[rows] - S.origin) // slide
    return _spread(first, after[rows] - first)


def _wids_of_last_range(rows: Ints, stream: _Stream, S: LastRange) -> tuple[Ints, Ints]:
    """A row leaves with the first row of its partition that is `range` or more beyond it, or never."""
    x, first = stream.attribute, _slide(stream.slides, S)
    after = np.full(len(x), _last_slide(stream.slides, S) + 1)
    order = np.lexsort((first, stream.codes))
    for own in np.split(order, np.flatnonzero(np.diff(stream.codes[order])) + 1):
        greatest = np.maximum.accumulate(x[own])
        beyond = np.searchsorted(greatest, x[own] + S.range.ticks)
        gone = beyond < len(own)
        after[own[gone]] = first[own[beyond[gone]]]
    return _spread(first[rows], after[rows] - first[rows])


def _slide(slides: Ints, S: LastRows | LastRange) -> Ints:
    """The first window that sees rows."""
    found: Ints = (slides - S.origin) // S.every.ticks
    return found


def _last_slide(slides: Ints, S: LastRows | LastRange) -> int:
    """The last window of the whole stream."""
    return int((_extremes(slides)[1] - S.origin) // S.every.ticks)


def _spread(first: Ints, count: Ints) -> tuple[Ints, Ints]:
    """`first, first + 1, …`, `count` of them for each index, next to that index."""
    count = np.maximum(count, 0)
    index = np.repeat(np.arange(len(first)), count)
    return index, first[index] + np.arange(len(index)) - (np.cumsum(count) - count)[index]


def _search(codes: Ints, ids: Ints, at: Ints, low: Ints, high: Ints) -> tuple[Ints, Ints]:
    """The slice of the ordered `(codes, ids)` with partition `at` and an id in `[low, high]`."""
    values, rank = np.unique(np.concatenate((ids, low, high)), return_inverse=True)
    keys: Ints = np.concatenate((codes, at, at)) * len(values) + rank
    have, ends = keys[: len(ids)], len(ids) + len(low)
    return have.searchsorted(keys[len(ids) : ends]), have.searchsorted(keys[ends:], side="right")


def _begins(codes: Ints, x: Ints, gap: int) -> Ints:
    """Where runs begin in the ordered `(codes, x)`: at a new partition, or after `gap` or more."""
    begins = np.ones(len(x), dtype=np.bool_)
    # As unsigned, the difference of two ordered int64 cannot overflow.
    begins[1:] = (np.diff(x.astype(np.uint64)) >= np.uint64(gap)) | (np.diff(codes) != 0)
    return np.flatnonzero(begins)


def _row_numbers(codes: Ints, position: Ints) -> Ints:
    """From 0 in each partition, in order of `position`; ties in order of arrival."""
    order = np.lexsort((position, codes))
    _, begin, size = np.unique(codes[order], return_index=True, return_counts=True)
    numbers = np.empty_like(order)
    numbers[order] = np.arange(len(order)) - np.repeat(begin, size)
    return numbers


def _check_reach(x: Ints, reach: int, S: Window) -> None:
    low, high = _extremes(x)
    _check_fit(low - reach, high + reach, S)


def _check_fit(low: int, high: int, S: Window) -> None:
    """Refuse windows that int64 cannot hold, so that no sum of ticks ever wraps."""
    if low < BEGINNING or high > FOREVER:
        got = f"bounds from {low} to {high}"
        raise UserError(str(S), expected="windows within int64 ticks", got=got)


def _extremes(x: Ints) -> tuple[int, int]:
    return (int(x.min()), int(x.max())) if x.size else (0, 0)


# --- the stream as arrays ------------------------------------------------------------------------


@dataclass(frozen=True)
class _Stream:
    """`T` as arrays: of each row, the attribute, the partition and the position of arrival."""

    attribute: Ints
    codes: Ints
    labels: list[Any] | None  # of the codes; None where there are no partitions
    arrival: Ints
    spec: Window  # in ticks of the attribute
    slide: Ints | None = None  # what windows slide over, where it is another attribute

    @property
    def slides(self) -> Ints:
        return self.attribute if self.slide is None else self.slide

    def named(self, codes: Ints, ids: Ints) -> npt.NDArray[Any]:
        if self.labels is None:
            return ids
        pairs = zip(ids.tolist(), map(self.labels.__getitem__, codes.tolist()))
        return np.fromiter(pairs, dtype=object, count=len(ids))


def _stream(T: Any, S: Window) -> _Stream:
    columns = _columns(T, S)
    size = len(next(iter(columns.values()))) if columns else 0
    codes, arrival, labels = np.zeros(size, dtype=np.int64), np.arange(size), None
    if S.partition:
        keys = [_pick(columns, name, S) for name in S.partition]
        codes = _ranks(keys, size, S)
        some = pa.array(np.unique(codes, return_index=True)[1])
        parts = [[canonical(v) for v in key.take(some).to_pylist()] for key in keys]
        labels = parts[0] if len(parts) == 1 else list(zip(*parts))
    if isinstance(S, LastRows):  # numbered by the attribute, and then by all columns
        attribute, _ = _ticks(columns, S)
        _check_reach(attribute, abs(S.origin) + S.every.ticks, S)
        named = {n: c for n, c in columns.items() if n is not None}
        arrival = _ranks((pa.array(attribute), *(_pick(columns, n, S) for n in named)), size, S)
        return _Stream(attribute, codes, labels, arrival, S)
    if isinstance(S, LastRange):
        attribute, _ = _ticks(columns, S, S.range.domain)
        slides, _ = _ticks(columns, replace(S, on=S.slide_on), S.every.domain)
        _check_reach(attribute, S.range.ticks, S)
        _check_reach(slides, abs(S.origin) + S.every.ticks, S)
        return _Stream(attribute, codes, labels, arrival, S, slides)
    order_by: str | None = getattr(S, "order_by", None)
    if order_by is not None:
        others = [name for name in columns if name != order_by]
        arrival = _ranks((_pick(columns, name, S) for name in [order_by, *others]), size, S)
    if isinstance(S, Rows):
        return _Stream(_row_numbers(codes, arrival), codes, labels, arrival, S)
    attribute, S = _ticks(columns, S)
    if isinstance(S, PerEvent | Session):
        _check_reach(attribute, (S.range if isinstance(S, PerEvent) else S.gap).ticks, S)
    return _Stream(attribute, codes, labels, arrival, S)


def _columns(T: Any, S: Window) -> dict[str | None, Any]:
    if isinstance(T, pa.Table | pa.RecordBatch):
        return dict(zip(T.column_names, T.columns))
    columns = dict(T) if isinstance(T, Mapping) else {None: T if hasattr(T, "__len__") else list(T)}
    sizes = {name: len(values) for name, values in columns.items()}
    if len(set(sizes.values())) > 1:
        raise UserError(str(S), expected="columns of one length", got=f"lengths {sizes}")
    return columns


def _pick(columns: dict[str | None, Any], name: str | None, S: Window) -> pa.Array:
    if name not in columns:
        wanted = f"a column {name!r} in T" if name else "on= to name one of several columns"
        raise UserError(str(S), expected=wanted, got=f"columns {list(columns)}")
    values = columns[name]
    try:
        if isinstance(values, np.ndarray) and values.dtype.kind == "M":
            values = values.astype("datetime64[us]")  # floors, and Arrow has no hours or minutes
        values = values if isinstance(values, pa.Array | pa.ChunkedArray) else pa.array(values)
    except (pa.ArrowException, OverflowError, TypeError, ValueError) as bad:
        expected = f"values of one type in {_column(name)}"
        raise UserError(str(S), expected=expected, got=str(bad)) from bad
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if pa.types.is_floating(values.type):
        return canonical_arrow(values)  # keys are ranked by their bits
    return values


def _ticks(
    columns: dict[str | None, Any], S: Window, domain: Domain | None = None
) -> tuple[Ints, Window]:
    """The windowing attribute as ticks: ints as they are, instants and durations in microseconds (floored).

    Floats become steps of the grid of `S`, which is returned in such steps.
    """
    domain = domain or S.domain
    if isinstance(S.on, Node):
        column, where = _computed(columns, S.on, S), str(S.on)
    else:
        name = next(iter(columns)) if S.on is None and len(columns) == 1 else S.on
        column, where = _pick(columns, name, S), _column(name)
    kind, types = column.type, pa.types
    if types.is_floating(kind):
        step, (spec,) = on_ticks([S])
        node, schema = tick_of(Column(""), step), Schema((("", FLOAT64),))
        values = column.cast(pa.float64()).to_pylist()
        return np.array([evaluate(node, {"": v}, schema) for v in values], dtype=np.int64), spec
    if domain is Domain.REAL and len(column):
        raise UserError(str(S), expected=f"floats in {where}", got=str(kind))
    if column.null_count:
        raise UserError(
            str(S), expected=f"no nulls in {where}, the windowing attribute",
            got=f"{column.null_count} of {len(column)}", hint="drop these rows or fill them first",
        )  # fmt: skip
    text = types.is_string(kind) or types.is_large_string(kind)
    clock = text or types.is_timestamp(kind) or types.is_date(kind) or types.is_duration(kind)
    if not (clock or types.is_integer(kind) or len(column) == 0):
        raise UserError(str(S), expected=f"ints, floats, instants or durations in {where}", got=str(kind))
    if clock and domain is Domain.LOGICAL:
        raise UserError(
            str(S), expected=f"ints in {where}, on logical time", got=str(kind),
            hint="logical and clock time never mix",
        )  # fmt: skip
    try:
        if text:
            column = pa.array([instant(v, step=str(S)) for v in column.to_pylist()], pa.int64())
        elif clock and getattr(kind, "unit", "") == "ns":
            column = pa.array(np.floor_divide(column.cast(pa.int64()).to_numpy(), 1000))
        elif types.is_duration(kind):
            column = column.cast(pa.duration("us"))
        elif clock:
            column = column.cast(pa.timestamp("us", getattr(kind, "tz", None)))
        ticks: Ints = column.cast(pa.int64()).to_numpy()
    except pa.ArrowInvalid as bad:
        raise UserError(str(S), expected=f"int64 ticks in {where}", got=str(bad)) from bad
    return ticks, S


def _computed(columns: dict[str | None, Any], on: Node, S: Window) -> pa.Array:
    """The value of an expression over `T` for each row."""
    arrays = {name: _pick(columns, name, S) for name in sorted(columns_of(on))}
    schema = Schema(tuple((n, from_arrow(a.type, step=str(S), column=n)) for n, a in arrays.items()))
    rows = to_rows([conform(pa.record_batch(arrays), schema, step=str(S))], schema)
    node = resolve(on, schema, step=f"{S} on=")
    values = [evaluate(node, row, schema) for row in rows]
    kind = to_arrow(type_of(node, schema))
    plain = pa.int64() if pa.types.is_timestamp(kind) or pa.types.is_duration(kind) else kind
    return pa.array(values, plain).cast(kind)


def _ranks(columns: Iterable[pa.Array], size: int, S: Window) -> Ints:
    """Dense ranks of rows by one column after the other: nulls first, NaN last, ties share one."""
    ranks = np.zeros(size, dtype=np.int64)
    for column in columns:
        if size == 0 or ranks.max() == size - 1:
            break  # all told apart: a later column need not even be one that can be ordered
        try:
            coded = column.dictionary_encode()
            import pyarrow.compute as pc  # slow to import, seldom needed

            order = pc.sort_indices(coded.dictionary).to_numpy()
        except pa.ArrowNotImplementedError as bad:
            raise UserError(
                str(S), expected="columns that can be ordered", got=f"a column of {column.type}"
            ) from bad
        places = np.zeros(len(order) + 1, dtype=np.int64)  # the last is for null
        places[order] = np.arange(1, len(order) + 1)
        place = places[coded.indices.fill_null(len(order)).to_numpy()]
        _, ranks = np.unique(ranks * len(places) + place, return_inverse=True)
    return ranks


def _column(name: str | None) -> str:
    return "T" if name is None else f"column {name!r}"
