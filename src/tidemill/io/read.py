"""`tm.read`: find out what data holds, so that a stream can be declared for it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Any

import pyarrow as pa

from tidemill.core.errors import UserError
from tidemill.core.schema import Schema, schema
from tidemill.core.text_form import NULLS, TextForm, text_form
from tidemill.core.time_formats import guesses
from tidemill.core.time_reading import ISO, PLAIN, Reading, likely_option, likely_unit, meaning_of
from tidemill.core.types import FLOAT64, INT64, STRING, TIMESTAMP, DataType
from tidemill.core.zones import UTC
from tidemill.io.chunks import readable_at
from tidemill.io.data import Data, is_spark, quoted
from tidemill.io.files import described, files_at
from tidemill.io.found_text import FoundText, find_csv
from tidemill.io.schemas import (
    columns_of_file,
    file_schema,
    schema_of_frame,
    usable,
    with_key_columns,
)
from tidemill.io.sources import is_instance, open_source
from tidemill.io.stored_files import StoredFile
from tidemill.io.text_errors import skip_to
from tidemill.plan.nodes import Source


@dataclass(frozen=True)
class Asked:
    """What is said of the data, as `tm.read` gets it."""

    time: str | None = None
    end: str | None = None
    schema: Any = None
    unit: Any = None
    format: Any = None
    nulls: Any = None
    delimiter: str | None = None
    decimal: str = "."
    columns: Any = None
    encoding: Any = None
    skip: Any = 0
    filesystem: Any = None


@dataclass(frozen=True)
class Found:
    """What data holds."""

    name: str
    """A name for the stream: that of a file."""
    schema: Schema
    data: Data
    unread: Mapping[str, str]
    """Columns of types that no stream has."""
    formats: Mapping[str, Any]
    """The formats of columns with times in text: those that are said, and those that were found."""
    nulls: Any
    """Spellings of null, as `core.text_form.text_form` reads them."""
    seen: Mapping[str, tuple[str, ...]]
    """Those that were seen in the first rows."""
    likely: Mapping[str, str]
    """Options by which ints in the time columns would be instants of our time, where nothing is said."""


_LOOKED_AT = 1000
"""So many files of a directory or glob are looked at before a query reads them."""


def find(value: Any, asked: Asked, *, step: str) -> Found:
    """Find the columns of data, and how its times are written.

    >>> found = find([{"t": 1, "v": "a"}], Asked(), step="read")
    >>> found.schema, found.data
    (Schema(t: int64, v: string), list of 1 dict)
    """
    name, kind, text = "rows", "", FoundText(pa.schema([]))
    said = asked.delimiter, asked.decimal, asked.columns, asked.encoding, asked.skip
    form = text_form(Schema(()), None, *said, step=step)
    if isinstance(value, (str, os.PathLike)):
        path = os.fspath(value)
        files, kind = files_at(path, step, asked.filesystem)
        name = _name_of(str(files[0]) if len(files) == 1 else path)
        data = Data(path, described(files, kind), asked.filesystem)
        with readable_at(f"{step}, file {files[0]}"):
            if kind == "CSV":
                text = find_csv(files[0], form, (*NULLS, *_spelled(asked.nulls)))
                held = text.schema
            else:
                held = file_schema(files[0], kind)
            held = with_key_columns(held, files)
        if held.names and (asked.schema is None or isinstance(asked.schema, Mapping)):
            _check_later_files(held.names, files, kind, form, step)
    else:
        about = _about(value)
        value = _kept(value, step)
        data, held = Data(value, about), schema_of_frame(value)
    found, others = usable(held, step=step)
    if not found.names:
        raise UserError(step, expected="columns", got=f"none in {data!r}", hint="is it empty?")
    found = _with_given(found, asked.schema, step)
    _check_named(asked, found, others, value, kind, step)
    if text.schema and isinstance(asked.time, str) and asked.time not in found:
        _check_first_line(asked.time, files[0], form, found, step)
    nulls = asked.nulls
    if nulls is None and text.schema:
        timed = {asked.time, asked.end, *(asked.format if isinstance(asked.format, Mapping) else ())}
        nulls = {column: NULLS for column, one in found if one != STRING or column in timed}
    written = replace(form, nulls=text_form(found, nulls, None, ".", step=step).nulls)
    place, plain = f"{step}, file {files[0]}" if text.schema else step, found
    found, formats = _with_times(found, asked, data, written, place)
    likely = {}
    for column in (asked.time, asked.end):
        unit = asked.unit.get(column) if isinstance(asked.unit, Mapping) else asked.unit
        if column is not None and unit and column in found and plain[column] in (INT64, FLOAT64):
            first = _sample(column, plain[column], data, form, step).drop_null()
            if len(first) and (other := likely_unit(first[0].as_py())) not in (None, unit):
                likely[column] = f"unit={other!r}"
        elif column is not None and column in found and found[column] == INT64:
            first = _sample(column, INT64, data, form, step).drop_null()
            if len(first) and (option := likely_option(first[0].as_py())):
                likely[column] = option
        elif column is not None and column in found and found[column] == FLOAT64:
            first = _sample(column, FLOAT64, data, form, step).drop_null()
            if len(first) and (meaning := meaning_of(first[0].as_py(), column)):
                likely[column] = meaning
    return Found(name, found, data, others, formats, nulls, text.nulls, likely)


def _spelled(nulls: Any) -> tuple[str, ...]:
    """Return all spellings of null that are said, whatever their columns."""
    if isinstance(nulls, str):
        return (nulls,)
    return (
        tuple(one for some in nulls.values() for one in _spelled(some))
        if isinstance(nulls, Mapping)
        else (tuple(nulls or ()))
    )


def _with_times(
    found: Schema, asked: Asked, data: Data, form: TextForm, step: str
) -> tuple[Schema, dict[str, Any]]:
    """Return the schema with instants where numbers have a unit, and text a format, said or found."""
    times = [name for name in (asked.time, asked.end) if name is not None]
    units, formats = (
        dict(given)
        if isinstance(given, Mapping)
        else {}
        if given is None
        else dict.fromkeys(times, given)
        for given in (asked.unit, asked.format)
    )
    for name in times:
        if name in found and found[name] == STRING and name in units:
            raise UserError(
                step, expected=f"numbers in column {name!r}, which unit= is of", got="text",
                hint="format='%s' reads text that counts seconds; or make numbers of the text first",
            )  # fmt: skip
        if name in found and found[name] == STRING and name not in formats:
            formats[name] = _found_format(name, data, form, step)

    def read_as(name: str, kind: DataType) -> DataType:
        told = (name in units and kind.is_numeric) or (name in formats and kind in (STRING, INT64))
        return TIMESTAMP if told else kind

    return Schema(tuple((name, read_as(name, kind)) for name, kind in found)), formats


def _found_format(name: str, data: Data, form: TextForm, step: str) -> str:
    """Return the one common format that reads the first values of a column of text."""
    rows = _sample(name, STRING, data, form, step)
    texts = rows.drop_null().unique()
    if len(texts) and not PLAIN.from_text(texts, name).null_count:
        return ISO
    formats = guesses(texts, UTC)
    if len(formats) == 1:
        return formats[0]
    if not len(texts):
        raise UserError(
            step, expected=f"times in column {name!r}, to find out how they are written",
            got="no value in the first rows", hint=f"schema={{{name!r}: 'timestamp'}} declares them",
        )  # fmt: skip
    shown = repr(texts[0].as_py())
    if formats:
        raise UserError(
            step, expected=f"format= of the times in column {name!r}", got=f"text such as {shown}",
            hint=f"{' or '.join(f'format={one!r}' for one in formats)}: say which",
        )  # fmt: skip
    raise _odd_time(name, texts, rows, form if ", file " in step else None, step)


def _odd_time(name: str, texts: pa.Array, rows: pa.Array, form: TextForm | None, step: str) -> UserError:
    """Return the error for times of which no format reads all: it names the first that is not like most."""
    formats = [*guesses(texts[:1], UTC), ISO]
    read = [Reading(formats=((name, (one,)),)).from_text(texts, name) for one in formats]
    least = min(range(len(formats)), key=lambda at: read[at].null_count)
    none = read[least].null_count == len(texts)
    odd = texts.filter(read[least].is_null())[0].as_py()
    place = "" if form is None else f" in row {form.first_row + rows.index(odd).as_py()}"
    if none:
        return PLAIN.unread(name, odd, place, step=step)
    iso = not PLAIN.from_text(pa.array([odd]), name).null_count
    other = [ISO] if iso else guesses(pa.array([odd]), UTC)
    return UserError(
        step, expected=f"times in column {name!r} that one format reads, such as {texts[0].as_py()!r}",
        got=f"{odd!r}{place}",
        hint=f"format={[formats[least], *other]} reads both" if len(other) == 1 else
        f"nulls={[odd]} makes it null" if not other else f"format={other} reads it: say which, in a list",
    )  # fmt: skip


def _sample(name: str, kind: DataType, data: Data, form: TextForm, step: str) -> pa.Array:
    """Return the first values of a column."""
    source = Source(step, Schema(((name, kind),)), name, step=step, text=form)
    value = data.value.select(quoted(name)).limit(_FEW) if is_spark(data.value) else data.value
    first = next(iter(open_source(Data(value, data.about, data.system), source, promises=False)), None)
    return pa.array([], pa.string()) if first is None else first.batch.column(0)


_FEW = 1000
"""The rows of a Spark frame that are looked at."""


def _with_given(found: Schema, given: Any, step: str) -> Schema:
    if given is None:
        return found
    if not isinstance(given, Mapping):
        return schema(given, step=step)
    known = dict(schema(given, step=step))
    for column in known:
        found.type_of(column, step=f"{step} schema=")
    return Schema(tuple((name, known.get(name, kind)) for name, kind in found))


def _about(value: Any) -> str:
    kind = type(value)
    library = kind.__module__.split(".")[0]
    if isinstance(value, Sequence) and not isinstance(value, str):
        dicts = isinstance(next(iter(value), {}), Mapping)
        one, several = ("dict", "dicts") if dicts else ("batch", "batches")
        return f"list of {len(value)} {one if len(value) == 1 else several}"
    rows = "" if not hasattr(value, "__len__") else f", {len(value):,} rows"
    return f"{library} {kind.__name__}{rows}"


def _kept(value: Any, step: str) -> Any:
    """Return data that can be read again and again: what can be read once is read now."""
    if is_instance(value, "pandas", "DataFrame"):
        return _with_index(value)
    libraries = (("polars", "DataFrame"), ("polars", "LazyFrame"), ("pyarrow.dataset", "Dataset"))
    if (
        isinstance(value, pa.Table)
        or is_spark(value)
        or any(is_instance(value, *one) for one in libraries)
    ):
        return value
    if isinstance(value, pa.RecordBatch) or hasattr(value, "__arrow_c_array__"):
        return pa.Table.from_batches([pa.record_batch(value)])
    if hasattr(value, "__arrow_c_stream__"):
        return pa.RecordBatchReader.from_stream(value).read_all()
    if isinstance(value, Iterable) and not isinstance(value, (str, bytes, Mapping)):
        items = list(value)
        if items and all(isinstance(item, Mapping) for item in items):
            return _table_of_dicts(items, step)
        if items and all(isinstance(item, (pa.RecordBatch, pa.Table)) for item in items):
            return pa.concat_tables([pa.table(item) for item in items])
    raise UserError(
        step, expected="a path, a pandas, Polars or Spark frame, Arrow data, or a list of dicts",
        got=f"{value!r:.80} ({type(value).__name__})",
        hint=_instead_of(value),
    )  # fmt: skip


def _table_of_dicts(items: Sequence[Mapping[str, Any]], step: str) -> pa.Table:
    """Return dicts as rows, with the columns of all of them: one that a dict lacks is null there."""
    columns = {}
    for name in dict.fromkeys(name for item in items for name in item):
        try:
            columns[name] = pa.array([item.get(name) for item in items])
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as mixed:
            raise UserError(
                step, expected=f"values of one type in column {name!r}", got=f"{mixed}",
                hint="declare the types with tm.stream(...), and give the rows to run()",
            ) from mixed  # fmt: skip
    return pa.table(columns)


def _instead_of(value: Any) -> str:
    """Return what to give in place of what is no data."""
    if isinstance(value, Mapping):
        return "pyarrow.table(...) makes a table of a dict of columns"
    if hasattr(value, "read"):
        return "give the path of the file"
    if is_instance(value, "pandas", "Series"):
        return "write .rename_axis('t').reset_index(name='v'), with names for the times and the values"
    if isinstance(value, Sequence) and all(isinstance(one, (str, os.PathLike)) for one in value) and value:
        return "a directory or a glob such as 'data/*.csv' is several files; .union(...) joins streams"
    if isinstance(value, Sequence) or hasattr(value, "__array__"):
        return "pandas.DataFrame(rows, columns=[...]) gives its columns names"
    return ""


def _check_later_files(
    names: Sequence[str], files: Sequence[StoredFile], kind: str, form: TextForm, step: str
) -> None:
    """Refuse a file with a column that the first file has not: nobody would see that it is left out."""
    for file in files[1:_LOOKED_AT]:
        with readable_at(f"{step}, file {file}"):
            own = columns_of_file(file, kind, form)
        if more := [name for name in own if name not in names]:
            raise UserError(
                f"{step}, file {file}", expected=f"the columns of the first file, {files[0]}",
                got=f"{', '.join(map(repr, more))} besides",
                hint="read files with the same columns together, and put the streams together with "
                ".select(…) and .union(…); "
                f"schema=tm.read({str(files[0])!r}, …).schema reads the columns of the first file only",
            )  # fmt: skip


def _check_first_line(time: str, file: StoredFile, form: TextForm, found: Schema, step: str) -> None:
    """Say how to leave out lines that come before the header, and what to do about spaces between fields."""
    if len(found.names) == 1 and time in found.names[0].split():
        several = "tm.read(pandas.read_csv(path, sep=r'\\s+'), time=...) where there are several"
        raise UserError(
            f"{step}, file {file}", expected="a delimiter", got=f"{found.names[0]!r}, with spaces",
            hint=f"delimiter=' ' where one space separates fields, {several}",
        )  # fmt: skip
    if skip := skip_to(time, file, form):
        raise UserError(
            f"{step}, file {file}", expected=f"a column of {list(found.names)}", got=repr(time),
            hint=f"line {skip + 1} has it: skip={skip} leaves out what comes before",
        )  # fmt: skip


def _nested(time: str, found: Schema) -> str:
    """Return how to get at the rows of one object of JSON that has lists or columns; empty if it has none."""
    for name, kind in found:
        if time not in found and repr(kind).startswith("list<struct<") and f"{time}: " in repr(kind):
            return f"json.load(open(path))[{name!r}]"
    if time in found and repr(found[time]).startswith(("list<", "struct<")):
        return "pandas.read_json(path)"
    return ""


def _check_named(
    asked: Asked, found: Schema, others: Mapping[str, str], value: Any, kind: str, step: str
) -> None:
    """Say how to get at a time column that is an index of pandas, or of a type that no stream has."""
    for column in (asked.time, asked.end):
        if not isinstance(column, str):
            continue
        if kind == "JSON lines" and (nested := _nested(column, found)):
            raise UserError(
                step, expected=f"times in column {column!r}", got=repr(found),
                hint=f"tm.read({nested}, time=...)",
            )  # fmt: skip
        if column in found:
            continue
        if column in others:
            periods = "period" in others[column]
            raise UserError(
                step, expected=f"times in column {column!r}", got=f"{others[column]}, which no stream has",
                hint=f"frame[{column!r}] = frame[{column!r}].dt.to_timestamp()" if periods
                else "make instants of them first, with a date",
            )  # fmt: skip
        if is_instance(value, "pandas", "DataFrame") and None in value.index.names and (
            type(value.index).__name__ in ("DatetimeIndex", "PeriodIndex", "MultiIndex")
        ):  # fmt: skip
            raise UserError(
                step, expected=f"a column of {list(found.names)}", got=repr(column),
                hint=f"the index has no name, and is left out: tm.read(frame.rename_axis({column!r}), ...)",
            )  # fmt: skip


def _with_index(frame: Any) -> Any:
    """Return a frame of pandas with the parts of its index that have names as columns."""
    named = [name for name in frame.index.names if name is not None and name not in frame.columns]
    return frame.reset_index(named) if named else frame


def _name_of(path: str) -> str:
    """Return a name for a stream that is like that of its file.

    >>> _name_of("data/Flights 2013.csv.gz"), _name_of("2013/*.parquet")
    ('Flights_2013', 'rows')
    """
    stem = PurePosixPath(path).name.split(".")[0]
    name = "".join(letter if letter.isalnum() else "_" for letter in stem).strip("_")
    return name if name.isidentifier() else "rows"
