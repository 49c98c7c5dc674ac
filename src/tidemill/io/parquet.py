"""Read Parquet files and datasets by row group, with watermarks from their statistics.

After the last batch of a row group, the watermark is the minimum time of the row groups that follow. Before
that, it includes the minimum of the row group itself. A row group without statistics of the time column may
have any time, so there is no watermark until it is read.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tidemill.core.batch import check_schema
from tidemill.core.errors import UserError
from tidemill.core.time import BEGINNING
from tidemill.core.time_reading import NANOS, PLAIN, UNITS, Reading
from tidemill.io.chunks import ChunkSizes, RawChunk, Reader, promises, readable, step_of
from tidemill.io.stored_files import StoredFile
from tidemill.plan.nodes import Source

# Column chunks are read through a buffer of this size. Otherwise each chunk is loaded whole, so a file
# with one large row group would need its size in memory.
_BUFFER = 1 << 20
_TICKS_PER = {"milliseconds": (1000, 1), "microseconds": (1, 1), "nanoseconds": (1, 1000)}
_DAY = 86_400_000_000


@dataclass(frozen=True)
class _RowGroup:
    """A row group to read: its file, its number in the file, its row count and its minimum time."""

    file: int
    number: int
    rows: int
    low: int


Keys = Callable[[Sequence[str]], dict[str, pa.Scalar]]
"""The values of columns that a file of these columns does not have."""


@dataclass(frozen=True)
class _File:
    place: str
    open: Callable[[], Any]
    groups: tuple[int, ...] | None = None
    keys: Keys = lambda names: {}


def open_parquet(
    files: Sequence[StoredFile], keys: Sequence[Keys], source: Source, about: str, sizes: ChunkSizes,
    group: int | None = None,
) -> Reader:  # fmt: skip
    """Open Parquet files, to be read one after another, or one row group. All schemas are checked now.

    `keys` give the columns that are not in a file, but in the names of its directories.
    """
    groups = None if group is None else (group,)
    opened = [
        _File(f"file {file}", lambda file=file: file.path if file.system is None else file.open(), groups, of)  # type: ignore[misc]
        for file, of in zip(files, keys)
    ]
    return _reader(opened, source, about, sizes)


def with_keys(batch: pa.RecordBatch, keys: dict[str, pa.Scalar]) -> pa.RecordBatch:
    """Return a batch with a column for each key, which has one value."""
    for name, value in keys.items():
        batch = batch.append_column(name, pa.repeat(value, batch.num_rows))
    return batch


def open_dataset(dataset: Any, source: Source, sizes: ChunkSizes) -> Reader:
    """Open a pyarrow Dataset, to be read in the order of its fragments."""
    check_schema(dataset.schema, source.schema, source.reading, step=step_of(source))
    files = _plain_parquet(dataset, source)
    if files is not None:
        return _reader(files, source, f"dataset of {len(files)} Parquet files", sizes)
    return Reader(source, "dataset", lambda: _scan(dataset, source, sizes.most), sizes=sizes)


def least_times(metadata: Any, time: str, reading: Reading = PLAIN) -> list[int]:
    """Return the minimum time of each row group in ticks, from its statistics; `BEGINNING` if unknown."""
    paths = [metadata.schema.column(i).path for i in range(metadata.num_columns)]
    if time not in paths or reading.formats_of(time):  # the order of text is another
        return [BEGINNING] * metadata.num_row_groups
    position = paths.index(time)
    logical = json.loads(metadata.schema.column(position).logical_type.to_json())
    found = []
    for number in range(metadata.num_row_groups):
        statistics = metadata.row_group(number).column(position).statistics
        known = statistics is not None and statistics.has_min_max
        low = _ticks(statistics, logical, reading.unit(time)) if known else BEGINNING
        found.append(_in_zone(low, time, reading) if _naive(logical) else low)
    return found


def _naive(logical: dict[str, Any]) -> bool:
    return logical["Type"] == "Date" or logical.get("isAdjustedToUTC") is False


def _in_zone(low: int, time: str, reading: Reading) -> int:
    """Convert a naive time from its zone; the order of naive times is the order of rows."""
    if not reading.zoned or low == BEGINNING:
        return low
    try:
        found = reading.from_naive(pa.array([low], pa.timestamp("us")), time, step="statistics")
    except UserError:  # reading the row with this time raises the error
        return BEGINNING
    return int(found.cast(pa.int64())[0].as_py())


def _ticks(statistics: Any, logical: dict[str, Any], unit: str | None) -> int:
    # `min` fails for times that datetime cannot represent; `min_raw` is wrong for unsigned integers only.
    if logical["Type"] == "Timestamp":
        times, per = _TICKS_PER[logical["timeUnit"]]
        return int(statistics.min_raw * times // per)
    if logical["Type"] == "Date":
        return int(statistics.min_raw * _DAY)
    if statistics.physical_type in ("INT32", "INT64"):
        least = int(statistics.min)
        return least // NANOS if unit == "ns" else least * UNITS.get(unit or "us", 1)
    return BEGINNING


def _reader(files: Sequence[_File], source: Source, about: str, sizes: ChunkSizes) -> Reader:
    groups = [group for i, file in enumerate(files) for group in _survey(i, file, source)]
    rows = sum(group.rows for group in groups)
    return Reader(source, about, lambda: _read(files, groups, source, sizes.most), rows, sizes, exact=False)


def _survey(position: int, file: _File, source: Source) -> Iterator[_RowGroup]:
    import pyarrow.parquet as pq

    step = step_of(source, file.place)
    with readable(source, file.place), pq.ParquetFile(file.open(), pre_buffer=True) as opened:
        found = opened.schema_arrow
        for name, value in file.keys(found.names).items():
            found = found.append(pa.field(name, value.type))
        check_schema(found, source.schema, source.reading, step=step)
        metadata = opened.metadata
        if source.time in opened.schema_arrow.names:
            # Arrow aborts the process when it reads the metadata of a damaged column, but reading the column
            # raises an error. With `pre_buffer`, reading one row checks all row groups, in a millisecond.
            next(opened.iter_batches(1, columns=[source.time], use_threads=False), None)
        lows = least_times(metadata, source.time, source.reading)
    for number in range(len(lows)) if file.groups is None else file.groups:
        rows = metadata.row_group(number).num_rows
        if rows:
            yield _RowGroup(position, number, rows, lows[number])


def _read(
    files: Sequence[_File], groups: Sequence[_RowGroup], source: Source, most: int
) -> Iterator[RawChunk]:
    import pyarrow.parquet as pq

    bounds = iter(promises([group.low for group in groups]))
    for position, wanted in itertools.groupby(groups, key=lambda group: group.file):
        file = files[position]
        with (
            readable(source, file.place),
            pq.ParquetFile(file.open(), pre_buffer=False, buffer_size=_BUFFER) as opened,
        ):
            keys = file.keys(opened.schema_arrow.names)
            names = [name for name in source.schema.names if name not in keys]
            for group in wanted:
                after = next(bounds)
                left = group.rows
                for batch in opened.iter_batches(
                    most, row_groups=[group.number], columns=names
                ):
                    left -= batch.num_rows
                    least = min(group.low, after) if left else after
                    yield RawChunk(with_keys(batch, keys), file.place, least)


def _plain_parquet(dataset: Any, source: Source) -> list[_File] | None:
    """Return the files of a dataset if all are Parquet files with unchanged columns, otherwise None."""
    import pyarrow.dataset as ds

    try:
        fragments = list(dataset.get_fragments())
    except ValueError:  # the dataset has its own filter or projection
        return None
    needed = [dataset.schema.field(name) for name in source.schema.names]
    for fragment in fragments:
        if not isinstance(fragment, ds.ParquetFileFragment):
            return None
        # A column may come from the path, be filled with nulls, or be cast to the dataset's type.
        held = {field.name: field.type for field in fragment.physical_schema}
        if any(held.get(field.name) != field.type for field in needed):
            return None
    return [
        _File(f"file {f.path}", f.open, tuple(group.id for group in f.row_groups))
        for f in fragments
    ]


def _scan(dataset: Any, source: Source, most: int) -> Iterator[RawChunk]:
    """Read with Arrow's scanner, which holds a row group in memory even without readahead."""
    import pyarrow.dataset as ds

    scanner = dataset.scanner(
        columns=list(source.schema.names), batch_size=most,
        batch_readahead=0, fragment_readahead=0,
        fragment_scan_options=_lean(ds) if _is_parquet(dataset, ds) else None,
    )  # fmt: skip
    with readable(source, "dataset"):
        for batch in scanner.to_batches():
            yield RawChunk(batch, "dataset")


def _is_parquet(dataset: Any, ds: Any) -> bool:
    return isinstance(getattr(dataset, "format", None), ds.ParquetFileFormat)


def _lean(ds: Any) -> Any:
    return ds.ParquetFragmentScanOptions(
        use_buffered_stream=True, buffer_size=_BUFFER, pre_buffer=False
    )
