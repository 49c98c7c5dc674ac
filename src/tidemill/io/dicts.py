"""Convert Python dicts to columns of the types that the stream declares."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from tidemill.core.batch import conform
from tidemill.core.errors import UserError
from tidemill.core.schema import Schema
from tidemill.core.time_reading import Reading, option_for
from tidemill.core.types import BOOL, DURATION, TIMESTAMP, DataType, to_arrow
from tidemill.core.zones import UTC
from tidemill.io.chunks import SIZES, ChunkSizes, RawChunk, step_of
from tidemill.plan.nodes import Source

_UNFIT = (
    pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError, TypeError,
    UnicodeEncodeError, ValueError,
)  # fmt: skip


def read_rows(rows: Iterable[Any], source: Source, sizes: ChunkSizes = SIZES) -> Iterator[RawChunk]:
    """Read one dict for each row. It must have every column that is read; other keys are ignored.

    Instants are datetimes or dates, in UTC or the zone of the stream unless they have a zone, or ints if the
    stream declares their unit. `None` is null.
    """
    schema = source.schema
    arrow = schema.to_arrow()
    for block, first_row in _blocks(rows, source, sizes):
        yield RawChunk(_batch(block, schema, arrow, source, first_row))


class DictReader:
    """Reads dicts of one stream time after time, a few at a time; its schema is worked out once.

    >>> from tidemill.core.schema import schema
    >>> clicks = Source("clicks", schema({"t": "int64", "user": "string"}), "t")
    >>> DictReader(clicks).batches([{"t": 1, "user": "a"}])[0].to_pylist()
    [{'t': 1, 'user': 'a'}]
    """

    def __init__(self, source: Source) -> None:
        self._source, self._schema, self._arrow = source, source.schema, source.schema.to_arrow()
        self._declared = [
            (name, _as_declared(kind, source.reading), to_arrow(kind)) for name, kind in source.schema
        ]

    def batches(self, rows: Sequence[Any]) -> list[pa.RecordBatch]:
        """Return rows as batches in the types of the stream; errors are those of `read_rows`."""
        if 0 < len(rows) <= SIZES.most and (batch := self._plain(rows)) is not None:
            return [batch]
        return [
            _batch(block, self._schema, self._arrow, self._source, first_row)
            for block, first_row in _blocks(rows, self._source, SIZES)
        ]

    def _plain(self, rows: Sequence[Any]) -> pa.RecordBatch | None:
        """Return rows that are dicts with all columns, and values just as declared; None for others."""
        columns = []
        try:
            for name, types, kind in self._declared:
                values = [row[name] for row in rows if type(row) is dict]
                if len(values) < len(rows) or not types.issuperset(map(type, values)):
                    return None
                columns.append(pa.array(values, kind))
        except (KeyError, *_UNFIT):  # whoever reads them column by column says what is wrong
            return None
        return pa.RecordBatch.from_arrays(columns, schema=self._arrow)


def _blocks(rows: Iterable[Any], source: Source, sizes: ChunkSizes) -> Iterator[tuple[list[Any], int]]:
    """Yield dicts in lists that are not too long, each with the number of its first row."""
    iterator, first_row = iter(rows), 1
    while block := list(itertools.islice(iterator, sizes.most)):
        if not all(issubclass(kind, Mapping) for kind in set(map(type, block))):
            at, row = next((i, r) for i, r in enumerate(block) if not isinstance(r, Mapping))
            raise UserError(
                step_of(source, f"row {first_row + at}"),
                expected="a dict for each row", got=f"{row!r:.60} ({_type(row)})",
            )  # fmt: skip
        yield block, first_row
        first_row += len(block)


def _batch(
    block: list[Any], schema: Schema, arrow: pa.Schema, source: Source, first_row: int
) -> pa.RecordBatch:
    columns = [
        column_of(_values(block, name, source, first_row), name, kind, source, first_row)
        for name, kind in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=arrow)


def _values(block: list[Any], name: str, source: Source, first_row: int) -> list[Any]:
    try:
        return [row[name] for row in block]
    except KeyError:
        at = next(i for i, row in enumerate(block) if name not in row)
        raise UserError(
            step_of(source, f"row {first_row + at}"),
            expected=f"a column {name!r} of {source.schema[name]!r}",
            got=f"keys {list(block[at])}", hint="give None where a value is missing",
        ) from None  # fmt: skip


def _hint(value: Any, kind: DataType) -> str:
    return option_for(value, UTC) if isinstance(value, str) and kind == TIMESTAMP else ""


def column_of(
    values: list[Any], name: str, kind: DataType, source: Source, first_row: int
) -> pa.Array:
    """Convert Python values to a column. An error names the first value that does not fit, and its row."""
    try:
        return _array(values, name, kind, source.reading)
    except (*_UNFIT, UserError) as unfit:
        # Convert the values one by one to find the first that does not fit.
        for number, value in enumerate(values, first_row):
            try:
                _array([value], name, kind, source.reading)
            except (*_UNFIT, UserError) as alone:
                raise UserError(
                    step_of(source, f"row {number}"), expected=f"column {name!r} of {kind!r}",
                    got=f"{value!r:.60} ({_type(value)})",
                    hint=getattr(alone, "hint", "") or _hint(value, kind),
                ) from unfit  # fmt: skip
        raise UserError(
            step_of(source), expected=f"column {name!r} of {kind!r}", got=str(unfit)
        ) from unfit


def _as_declared(kind: DataType, reading: Reading) -> frozenset[type]:
    """Return the types of values that Arrow converts as they are."""
    return _NONE if kind == TIMESTAMP and reading.zoned else _AS_DECLARED.get(kind.kind, _NONE)


def _array(values: list[Any], name: str, kind: DataType, reading: Reading) -> pa.Array:
    found = set(map(type, values))
    if found <= _as_declared(kind, reading):
        return pa.array(values, to_arrow(kind))  # Arrow has nothing to infer, and nothing to check
    if any(f.__name__ == "NaTType" for f in found):  # the null of pandas for instants
        values = [None if type(v).__name__ == "NaTType" else v for v in values]
        found = set(map(type, values))
    if bool in found and kind != BOOL:  # Arrow would convert it to a number among floats
        raise pa.ArrowTypeError("a bool")
    if kind == TIMESTAMP and any(issubclass(f, (int, np.integer)) for f in found):
        return _apart(values, _is_int, name, kind, reading)
    if kind == TIMESTAMP and reading.unit(name) and any(issubclass(f, (float, np.floating)) for f in found):
        return _apart(values, _is_float, name, kind, reading)
    if kind == TIMESTAMP and str in found and reading.formats_of(name):
        return _apart(values, _is_text, name, kind, reading)
    if kind == TIMESTAMP and np.datetime64 in found:  # Arrow needs one unit, and does not support all
        values = [_naive(v) if isinstance(v, np.datetime64) else v for v in values]
        found = set(map(type, values))
    if kind == TIMESTAMP and reading.zoned and not _all_zoned(values):
        return _apart(values, _is_naive, name, kind, reading)
    if kind == DURATION and any(issubclass(f, (int, np.integer)) for f in found):
        raise UserError(
            name, expected="durations", got="ints, which have no unit", hint="give timedeltas"
        )  # fmt: skip
    if kind in (TIMESTAMP, DURATION):
        if not all(issubclass(f, _TIMES[kind.kind]) for f in found):
            raise pa.ArrowTypeError("a number, or something else, has no unit")  # Arrow accepts a Decimal
        if date in found:  # Arrow would drop the time of day of datetimes among dates
            values = [_midnight(v) if type(v) is date else v for v in values]
        try:
            return pa.array(values, to_arrow(kind))
        except pa.ArrowNotImplementedError:  # NumPy's finer units, which `conform` floors
            return _conformed(values, name, kind)
    if kind.kind == "decimal" and all(issubclass(f, (Decimal, int, type(None))) for f in found):
        return pa.array(values, to_arrow(kind))
    if kind.kind == "list":
        return _lists(values, name, kind, reading)
    if kind.kind == "struct":
        return _structs(values, name, kind, reading)
    return _conformed(values, name, kind)


_NONE: frozenset[type] = frozenset()
_AS_DECLARED = {
    kind: frozenset((python, type(None)))
    for kind, python in (
        ("int64", int), ("float64", float), ("bool", bool), ("string", str), ("timestamp", datetime),
        ("duration", timedelta),
    )
}  # fmt: skip
"""The types of Python that Arrow converts as they are, by the type of the column."""
_TIMES: dict[str, tuple[type, ...]] = {
    "timestamp": (datetime, date, np.datetime64, type(None)),
    "duration": (timedelta, np.timedelta64, type(None)),
}


def _lists(values: list[Any], name: str, kind: DataType, reading: Reading) -> pa.Array:
    """Convert lists, whose items are read like a column: given their type, Arrow would convert 1.5 to 1."""
    if not all(v is None or isinstance(v, (list, tuple, np.ndarray)) for v in values):
        raise pa.ArrowTypeError("not a list")
    items = _array([item for v in values if v is not None for item in v], name, kind.of[0], reading)
    ends = np.cumsum([0, *(0 if v is None else len(v) for v in values)]).tolist()
    begins = [None if v is None else end for v, end in zip(values, ends)]
    return pa.ListArray.from_arrays(pa.array([*begins, ends[-1]], pa.int32()), items).cast(to_arrow(kind))


def _structs(values: list[Any], name: str, kind: DataType, reading: Reading) -> pa.Array:
    """Convert dicts to structs. A missing field is null."""
    if not all(v is None or isinstance(v, Mapping) for v in values):
        raise pa.ArrowTypeError("not a dict")
    fields = [
        _array([None if v is None else v.get(n) for v in values], name, k, reading)
        for n, k in zip(kind.names, kind.of)
    ]
    missing = pa.array([v is None for v in values], pa.bool_())
    return pa.StructArray.from_arrays(fields, fields=list(to_arrow(kind)), mask=missing)


def _apart(
    values: list[Any], own: Callable[[Any], bool], name: str, kind: DataType, reading: Reading
) -> pa.Array:
    """Read ints, or naive times, separately, because Arrow would read them as UTC microseconds."""
    import pyarrow.compute as pc  # slow to import, seldom needed

    mine = [v if own(v) else None for v in values]
    if own is _is_int:
        read = reading.from_ints(pa.array(mine, pa.int64()), name, step=name)
    elif own is _is_float:
        read = reading.from_floats(pa.array(mine, pa.float64()), name, step=name)
    elif own is _is_text:
        read = reading.from_strings(pa.array(mine, pa.string()), name, step=name)
    else:
        read = reading.from_naive(pa.array(map(_naive, mine), pa.timestamp("us")), name, step=name)
    rest = [None if own(v) else v for v in values]
    return pc.coalesce(read, _array(rest, name, kind, reading))


def _is_int(value: Any) -> bool:
    return isinstance(value, (int, np.integer))


def _is_float(value: Any) -> bool:
    return isinstance(value, (float, np.floating))


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_naive(value: Any) -> bool:
    if isinstance(value, datetime):
        return value.tzinfo is None
    return isinstance(value, (date, np.datetime64))


def _naive(value: Any) -> Any:
    """Convert a naive time to a datetime; finer digits of NumPy times are floored."""
    if isinstance(value, np.datetime64):
        return value.astype("datetime64[us]").item()
    return _midnight(value) if type(value) is date else value


def _all_zoned(values: list[Any]) -> bool:
    return not any(map(_is_naive, values))


def _conformed(values: list[Any], name: str, kind: DataType) -> pa.Array:
    # Arrow infers the type, and the cast checks it: given the type, Arrow would convert 1.5 to 1.
    batch = pa.RecordBatch.from_arrays([pa.array(values)], names=[name])
    return conform(batch, Schema(((name, kind),)), step=name).column(0)


def _midnight(day: date) -> datetime:
    return datetime(day.year, day.month, day.day)


def _type(value: Any) -> str:
    return type(value).__name__
