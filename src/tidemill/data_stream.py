"""`tm.read`: a stream together with its rows, from files and frames."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tidemill.core.brought_names import unknown_options
from tidemill.core.errors import UserError
from tidemill.core.schema import Schema
from tidemill.core.tables import html_table
from tidemill.core.time import Domain
from tidemill.core.types import FLOAT64
from tidemill.plan import build
from tidemill.plan.nodes import Source
from tidemill.stream import RESERVED, Stream, require_name

if TYPE_CHECKING:
    import pyarrow as pa

    from tidemill.io.read import Found


class DataStream(Stream):
    """A stream with its rows; make one with `tm.read`.

    It is a stream like any other, and queries on it run without inputs. It shows the columns that were found.
    """

    def __init__(self, source: Source, found: Found) -> None:
        super().__init__(source)
        self._source, self._found = source, found

    @property
    def name(self) -> str:
        """The name of the stream: to give a run other rows, `query.run(name=…)`."""
        return self._source.name

    @property
    def unread(self) -> dict[str, str]:
        """Columns that were left out, with their types: those that no stream has, and an index of pandas."""
        return dict(self._found.unread)

    def head(self, rows: int = 5) -> pa.Table:
        """The first rows, as the stream has them.

        >>> read([{"t": 7, "v": "a"}, {"t": 8, "v": "b"}], time="t").head(1).to_pylist()
        [{'t': 7, 'v': 'a'}]
        """
        import pyarrow as pa

        if isinstance(rows, bool) or not isinstance(rows, int) or rows < 0:
            raise UserError("head", expected="a number of rows", got=repr(rows))
        found: list[pa.RecordBatch] = []
        for batch in self.batches():
            found.append(batch.slice(0, rows - sum(b.num_rows for b in found)))
            if sum(b.num_rows for b in found) >= rows:
                break
        return pa.Table.from_batches(found, self._arrow_schema)

    def __repr__(self) -> str:
        lines = [self._title]
        wide = max(len(name) for name, _, _ in self._columns())
        lines += [f"  {name:{wide}}  {kind}{note and f'  ({note})'}" for name, kind, note in self._columns()]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return html_table(self._title, ("column", "type", ""), self._columns())

    @property
    def _title(self) -> str:
        return f"stream {self.name}: {self._source.held!r}"

    def _columns(self) -> Iterator[tuple[str, str, str]]:
        source = self._source
        for name, kind in source.declared:
            notes = ["time"] if name == source.time_column else ["end"] if name == source.end_column else []
            if notes and source.domain is Domain.LOGICAL:
                option = self._found.likely.get(name)
                notes.append(f"logical; {option} makes it clock time" if option else "logical")
            notes += [repr(one) for one in source.reading.formats_of(name)]
            if unit := source.reading.unit(name):
                other = self._found.likely.get(name)
                notes.append(f"unit {unit!r}" + (f", though {other} would be of our days" if other else ""))
            if name in self._found.seen:
                notes.append(f"null: {' '.join(self._found.seen[name])}")
            yield name, repr(kind), ", ".join(notes)
        for name, shown in self._found.unread.items():
            yield name, shown, "left out"


def read(
    source: Any, *, time: str | None = None, end: str | None = None, name: str | None = None,
    schema: Any = None, ordered: bool = False, unit: Any = None, tz: Any = None, format: Any = None,
    nulls: Any = None, delimiter: str | None = None, decimal: str = ".", columns: Sequence[str] | None = None,
    encoding: str | None = None, skip: int = 0, filesystem: Any = None,
    **brought: Any,
) -> DataStream:  # fmt: skip
    """A stream and its rows, from files or a frame: the schema is found, and runs need no argument.

    The source is the path of a Parquet, Arrow, CSV or JSON-lines file, a directory or a glob; a frame of
    pandas, Polars or Spark; Arrow data; or a list of dicts. `time` names the time column. What is found can
    be seen: print the stream. `schema={"v": "float64"}` says the types of some columns, where the first rows
    of a text file are not like the others. Spellings of null such as `NA` are null in numbers and times, or
    `nulls` says which and where. Of text in the time column the format is found, if only one fits. The other
    options are those of `tm.stream`.

    A path may be a URI, such as `s3://bucket/clicks/`, or in a `filesystem` of Arrow's. Directories that are
    named as Hive does, `year=2026/`, give columns.

    The stream has the name of the file, or `name`. Files are read when a query runs, on Spark by its tasks.

    >>> rows = [{"at": 1, "v": 5}, {"at": 4, "v": 7}]
    >>> readings = read(rows, time="at")
    >>> readings
    stream rows: list of 2 dicts
      at  int64  (time, logical)
      v   int64
    >>> readings.where(lambda e: e.v > 5).run().to_pylist()
    [{'at': 4, 'v': 7}]
    """
    from tidemill.io.read import Asked, find

    if brought:
        raise unknown_options("read", brought, inspect.signature(read).parameters)
    asked = Asked(
        time, end, schema, unit, format, nulls, delimiter, decimal, columns, encoding, skip, filesystem
    )  # fmt: skip
    found = find(source, asked, step="read")
    if name is None:
        name = f"{found.name}_rows" if found.name in RESERVED else found.name
    require_name(name, "read")
    times = [column for column, kind in found.schema if kind.is_ticks]
    if time is None:
        raise UserError(
            "read", expected=f"time= one of the columns {times or list(found.schema.names)}", got="none",
            hint=f"found {_shown(found.schema)}",
        )  # fmt: skip
    if time in found.schema and found.schema[time] == FLOAT64:
        raise UserError(
            "read", expected=f"the unit of the numbers in the time column {time!r}", got="float64",
            hint=found.likely.get(time, "unit='s' (or 'ms', 'us', 'ns') counts since 1970"),
        )  # fmt: skip
    node = build.source(
        name, time, found.schema, end=end, ordered=ordered, unit=unit, tz=tz, format=found.formats or None,
        nulls=found.nulls, delimiter=delimiter, decimal=decimal, columns=columns,
        encoding=encoding, skip=skip,
    )  # fmt: skip
    return DataStream(replace(node, held=found.data), found)


def _shown(schema: Schema) -> str:
    return ", ".join(f"{name}: {kind!r}" for name, kind in schema)
