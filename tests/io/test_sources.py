"""Every kind of input gives the same rows, promises that hold, and errors that name the place."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from datetime import date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.dataset as ds
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tidemill as tm
from tidemill.core.errors import UserError
from tidemill.core.schema import schema
from tidemill.core.time import BEGINNING, FOREVER
from tidemill.io.chunks import ChunkSizes
from tidemill.io.sources import BATCH_ROWS, Chunk, Reader, open_source
from tidemill.plan.nodes import Source

CLICKS = Source(
    "clicks",
    schema({"ts": "timestamp", "user": "int64", "price": "float64", "tag": "string", "ok": "bool"}),
    "ts",
)
LOGICAL = Source("log", schema({"t": "int64", "v": "int64"}), "t")
ROWS = [
    {"ts": 1_500_000, "user": 1, "price": 0.5, "tag": "a", "ok": True},
    {"ts": -1, "user": -2, "price": None, "tag": 'é, "q"', "ok": False},
    {"ts": 1_767_225_600_000_000, "user": None, "price": 2.0, "tag": None, "ok": None},
    {"ts": 7, "user": 1 << 40, "price": 1e300, "tag": "", "ok": True},
]


def table(rows: list[dict[str, Any]] = ROWS, source: Source = CLICKS) -> pa.Table:
    arrow = source.declared.to_arrow()
    columns = [pa.array([row[f.name] for row in rows], f.type) for f in arrow]
    return pa.Table.from_arrays(columns, schema=arrow)


def read(value: Any, source: Source = CLICKS) -> list[dict[str, Any]]:
    return rows_of(list(open_source(value, source)), source)


def rows_of(chunks: list[Chunk], source: Source = CLICKS) -> list[dict[str, Any]]:
    out: list[dict[str, Any]] = []
    for chunk in chunks:
        assert chunk.batch.schema == source.schema.to_arrow()
        assert 0 < chunk.batch.num_rows <= BATCH_ROWS
        plain = [c.cast(pa.int64()) if pa.types.is_timestamp(c.type) else c
                 for c in chunk.batch.columns]  # fmt: skip
        out += pa.RecordBatch.from_arrays(plain, names=chunk.batch.schema.names).to_pylist()
    return out


def logical(times: list[int | None], *sizes: int) -> pa.Table:
    """A table on logical time, in chunks of the given sizes."""
    whole = pa.table(
        {"t": pa.array(times, pa.int64()), "v": pa.array(range(len(times)), pa.int64())}
    )
    parts, start = [], 0
    for size in sizes:
        parts.append(whole.slice(start, size))
        start += size
    return pa.concat_tables([*parts, whole.slice(start)])


# --- the same rows from everything ----------------------------------------------------------------


class Exporter:
    """Something that only speaks the Arrow C stream interface."""

    def __init__(self, held: pa.Table) -> None:
        self.held = held

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.held.__arrow_c_stream__(requested_schema)


def iso(row: dict[str, Any]) -> dict[str, Any]:
    instant = datetime(1970, 1, 1) + timedelta(microseconds=row["ts"])
    return {**row, "ts": instant.isoformat() + "Z"}


def dated(rows: Iterable[dict[str, Any]] = ROWS) -> list[dict[str, Any]]:
    """Rows as dicts of Python values: an int is no instant."""
    return [{**r, "ts": datetime(1970, 1, 1) + timedelta(microseconds=r["ts"])} for r in rows]


IN_MEMORY: dict[str, Callable[[], Any]] = {
    "table": table,
    "table in chunks": lambda: pa.concat_tables([table(ROWS[:1]), table([]), table(ROWS[1:])]),
    "batch": lambda: table().to_batches()[0],
    "reader": lambda: table().to_reader(),
    "c stream": lambda: Exporter(table()),
    "dataset": lambda: ds.dataset(table()),
    "list of batches": lambda: table().to_batches(max_chunksize=1),
    "list of tables": lambda: [table(ROWS[:2]), table(ROWS[2:])],
    "iterator of batches": lambda: iter(table().to_batches(max_chunksize=3)),
    "iterator of frames": lambda: iter([pl.from_arrow(table())]),
    "dicts": dated,
    "iterator of dicts": lambda: iter(dated()),
    "polars": lambda: pl.from_arrow(table()),
    "polars in chunks": lambda: pl.concat([pl.from_arrow(table([r])) for r in ROWS], rechunk=False),
    "polars categories": lambda: pl.concat(
        [pl.from_arrow(table([r])) for r in ROWS], rechunk=False
    ).with_columns(pl.col("tag").cast(pl.Categorical)),
    "polars lazy": lambda: pl.from_arrow(table()).lazy(),
    "pandas": lambda: table().to_pandas(),
    "pandas arrow": lambda: table().to_pandas(types_mapper=pd.ArrowDtype),
    "ns": lambda: table().cast(_with_time(pa.timestamp("ns", "Europe/Paris"))),
    "naive": lambda: table().cast(_with_time(pa.timestamp("us"))),
    "large": lambda: table().set_column(3, "tag", table()["tag"].cast(pa.large_string())),
    "dictionary": lambda: table().set_column(3, "tag", table()["tag"].dictionary_encode()),
    "dictionary time": lambda: table().set_column(0, "ts", table()["ts"].dictionary_encode()),
    "other order, more columns": lambda: (
        table()
        .select(["ok", "tag", "price", "user", "ts"])
        .append_column("more", pa.array([None] * 4, pa.decimal128(5)))
    ),
}


def _with_time(kind: pa.DataType) -> pa.Schema:
    return CLICKS.schema.to_arrow().set(0, pa.field("ts", kind))


@pytest.mark.parametrize("kind", IN_MEMORY)
def test_every_input_in_memory_gives_the_same_rows(kind: str) -> None:
    assert read(IN_MEMORY[kind]()) == ROWS


def _csv(path: Path, rows: list[dict[str, Any]] = ROWS) -> None:
    csv.write_csv(table(rows), path)


def _json(path: Path, rows: list[dict[str, Any]] = ROWS) -> None:
    lines = [json.dumps({**iso(r), "more": [1]}) for r in rows]
    path.write_text("\n".join(lines) + ("\n" if lines else ""))


def _parquet(path: Path, rows: list[dict[str, Any]] = ROWS) -> None:
    pq.write_table(table(rows), path, row_group_size=1)


def _ipc(path: Path, rows: list[dict[str, Any]] = ROWS) -> None:
    with pa.ipc.new_file(path, table().schema) as writer:
        writer.write_table(table(rows), max_chunksize=1)


def _ipc_stream(path: Path, rows: list[dict[str, Any]] = ROWS) -> None:
    with pa.ipc.new_stream(path, table().schema) as writer:
        writer.write_table(table(rows))


def _feather(path: Path, rows: list[dict[str, Any]] = ROWS) -> None:
    feather.write_feather(table(rows), str(path))


FILES: dict[str, Callable[..., None]] = {
    "x.csv": _csv, "x.jsonl": _json, "x.ndjson": _json, "x.json": _json, "x.parquet": _parquet,
    "x.pq": _parquet, "x.arrow": _ipc, "stream.arrow": _ipc_stream, "x.feather": _feather,
}  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_every_kind_of_file_gives_the_same_rows(name: str, tmp_path: Path) -> None:
    FILES[name](tmp_path / name)
    assert read(tmp_path / name) == ROWS
    assert read(str(tmp_path / name)) == ROWS
    assert read(tmp_path) == ROWS
    assert read(tmp_path / "*.*") == ROWS


@pytest.mark.parametrize("name", FILES)
def test_only_the_needed_columns_are_read(name: str, tmp_path: Path) -> None:
    FILES[name](tmp_path / name)
    few = Source(CLICKS.name, CLICKS.declared, "ts", ("user", "ts"))
    assert read(tmp_path / name, few) == [{"user": r["user"], "ts": r["ts"]} for r in ROWS]


@pytest.mark.parametrize("name", FILES)
def test_an_empty_file_has_no_chunks(name: str, tmp_path: Path) -> None:
    FILES[name](tmp_path / name, [])
    assert list(open_source(tmp_path / name, CLICKS)) == []


@pytest.mark.parametrize("name", ["x.csv", "x.jsonl"])
def test_a_file_of_no_bytes_or_blanks_has_no_chunks(name: str, tmp_path: Path) -> None:
    for text in ("", "\n\n"):
        (tmp_path / name).write_text(text)
        assert list(open_source(tmp_path / name, CLICKS)) == []


@pytest.mark.parametrize(
    "value",
    [table([]), table([]).to_reader(), [], iter(()), [table([])], ds.dataset(table([])),
     table([]).to_pandas(), pl.from_arrow(table([])), pl.from_arrow(table([])).lazy()],
    ids=lambda v: type(v).__name__,
)  # fmt: skip
def test_an_empty_input_has_no_chunks(value: Any) -> None:
    assert list(open_source(value, CLICKS)) == []


def test_packed_text_is_unpacked(tmp_path: Path) -> None:
    _csv(tmp_path / "x.csv")
    (tmp_path / "x.csv.gz").write_bytes(gzip.compress((tmp_path / "x.csv").read_bytes()))
    assert read(tmp_path / "x.csv.gz") == ROWS


def test_files_are_read_in_the_order_of_their_names(tmp_path: Path) -> None:
    for name, row in zip("cadb", ROWS):
        (tmp_path / "sub").mkdir(exist_ok=True)
        _parquet(tmp_path / "sub" / f"{name}.parquet", [row])
    (tmp_path / "sub" / "_SUCCESS").touch()
    (tmp_path / "sub" / ".part.tmp").touch()
    (tmp_path / "_logs").mkdir()
    (tmp_path / "_logs" / "log.txt").touch()
    want = [ROWS[1], ROWS[3], ROWS[0], ROWS[2]]
    assert read(tmp_path) == want
    assert read(tmp_path / "**" / "*.parquet") == want
    assert read(tmp_path / "su*") == want
    assert open_source(tmp_path, CLICKS).total_rows == 4
    assert open_source(tmp_path, CLICKS).describe() == "clicks: 4 Parquet files, 4 rows"


def test_a_name_with_brackets_is_a_file_before_it_is_a_glob(tmp_path: Path) -> None:
    _parquet(tmp_path / "x[1].parquet")
    assert read(tmp_path / "x[1].parquet") == ROWS


def test_how_many_rows_there_are_is_known_where_it_costs_nothing(tmp_path: Path) -> None:
    _parquet(tmp_path / "x.parquet")
    _csv(tmp_path / "x.csv")
    for value in (table(), ROWS, table().to_batches(1), tmp_path / "x.parquet", tmp_path / "x.csv"):
        assert open_source(value, CLICKS).total_rows == 4
    for value in (table().to_reader(), iter(ROWS)):
        assert open_source(value, CLICKS).total_rows is None
    assert open_source(tmp_path / "x.csv", CLICKS, sizes=ChunkSizes(ahead=2)).total_rows is None
    assert open_source(table(), CLICKS).describe() == "clicks: Table, 4 rows"


# --- text -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("1970-01-01T00:00:01Z", 1_000_000),
        ("1970-01-01 00:00:01", 1_000_000),
        ("1970-01-01", 0),
        ("1970-01-01T02:00:00+02:00", 0),
        ("1969-12-31T23:59:59.999999999Z", -1),
        ("1970-01-01T00:00:00.123456789", 123_456),
        ("1970-01-01T00:00", 0),
    ],
)
def test_instants_in_text(text: str, want: int, tmp_path: Path) -> None:
    source = Source("s", schema({"ts": "timestamp"}), "ts")
    # Alone, so that one cast reads all, and among others, so that each is read by itself.
    for others in ([], ["1970-01-01", "1970-01-01T00:00Z"]):
        (tmp_path / "x.csv").write_text("\n".join(["ts", *others, text]))
        assert read(tmp_path / "x.csv", source)[-1] == {"ts": want}
        (tmp_path / "x.jsonl").write_text("\n".join(json.dumps({"ts": t}) for t in [*others, text]))
        assert read(tmp_path / "x.jsonl", source)[-1] == {"ts": want}


def test_only_an_unquoted_empty_field_is_null(tmp_path: Path) -> None:
    source = Source("s", schema({"t": "int64", "x": "float64", "s": "string"}), "t")
    (tmp_path / "x.csv").write_text('t,x,s\n1,NaN,NA\n2,,\n3,1,""\n')
    first, *rest = read(tmp_path / "x.csv", source)
    assert np.isnan(first["x"]) and first["s"] == "NA"
    assert rest == [{"t": 2, "x": None, "s": None}, {"t": 3, "x": 1.0, "s": ""}]


def test_a_json_field_left_out_is_null_and_durations_are_microseconds(tmp_path: Path) -> None:
    source = Source("s", schema({"t": "int64", "d": "duration", "l": "list<int64>"}), "t")
    (tmp_path / "x.jsonl").write_text('{"t": 1, "d": 5}\n{"t": 2, "l": [1, 2]}\n')
    assert read(tmp_path / "x.jsonl", source) == [
        {"t": 1, "d": timedelta(microseconds=5), "l": None},
        {"t": 2, "d": None, "l": [1, 2]},
    ]


# --- promises -------------------------------------------------------------------------------------


def check_promises(chunks: list[Chunk], time: str = "t") -> None:
    """No later row is below what a chunk promised."""
    promised = BEGINNING
    for chunk in chunks:
        times = [t for t in chunk.batch.column(time).cast(pa.int64()).to_pylist() if t is not None]
        assert all(t >= promised for t in times)
        promised = max(promised, chunk.complete_below)


FEW = ChunkSizes(most=5, most_held=20, small=1, held=5)
"""Chunks of at most five rows, and no joining of small ones."""

TIMES = st.lists(st.integers(-50, 50) | st.sampled_from([BEGINNING, FOREVER]), max_size=40)
LENGTHS = st.lists(st.integers(0, 12), max_size=8)
SIXTY = settings(deadline=None, max_examples=60)


@SIXTY
@given(TIMES, LENGTHS, st.sampled_from([1, 3, 131_072]))
def test_any_split_gives_the_same_rows(times: list[int], lengths: list[int], small: int) -> None:
    whole = logical(list(times))
    chunked = logical(list(times), *lengths)
    batches = chunked.to_batches()
    inputs = [chunked, batches, iter(batches), chunked.to_reader(), whole.to_pylist(),
              iter([chunked, chunked.slice(0, 0)])]  # fmt: skip
    for value in inputs:
        chunks = list(open_source(value, LOGICAL, sizes=replace(FEW, small=small)))
        rows = [r for c in chunks for r in c.batch.to_pylist()]
        assert rows == whole.to_pylist()
        assert all(0 < c.batch.num_rows <= 5 for c in chunks)
        check_promises(chunks)
        if chunks and isinstance(value, pa.Table):
            assert chunks[-1].complete_below == FOREVER


@SIXTY
@given(TIMES, LENGTHS)
def test_promises_are_tight_in_memory(times: list[int], lengths: list[int]) -> None:
    chunks = list(open_source(logical(list(times), *lengths), LOGICAL, sizes=FEW))
    at = 0
    for chunk in chunks:
        at += chunk.batch.num_rows
        assert chunk.complete_below == min(times[at:], default=FOREVER)


@SIXTY
@given(TIMES, st.integers(1, 9), st.integers(1, 3), st.booleans())
def test_promises_of_parquet_hold(
    tmp_path_factory: pytest.TempPathFactory, times: list[int], group: int, files: int, ordered: bool
) -> None:  # fmt: skip
    folder = tmp_path_factory.mktemp("parquet")
    times = sorted(times) if ordered else times
    whole = logical(list(times))
    step = -(-len(times) // files) or 1
    for i in range(files):
        part = whole.slice(i * step, step)
        pq.write_table(part, folder / f"{i}.parquet", row_group_size=group)
    for value in (folder, ds.dataset(folder)):
        reader = open_source(value, LOGICAL, sizes=FEW)
        chunks = list(reader)
        assert [r for c in chunks for r in c.batch.to_pylist()] == whole.to_pylist()
        assert reader.total_rows == len(times)
        check_promises(chunks)
        if chunks:
            assert chunks[-1].complete_below == FOREVER
        if ordered and group <= 5:  # one chunk for each row group: then it is tight
            at = 0
            for chunk in chunks:
                at += chunk.batch.num_rows
                assert chunk.complete_below == min(times[at:], default=FOREVER)


def test_small_batches_are_joined_and_long_ones_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    n = 32 * BATCH_ROWS + 1
    long = pa.table({"t": np.arange(n), "v": np.arange(n)})
    monkeypatch.setenv("TIDEMILL_THREADS", "2")
    rows = [c.batch.num_rows for c in open_source(long, LOGICAL)]
    assert sum(rows) == n and rows == sorted(rows, reverse=True), "threads finish together"
    assert rows[0] == 4 * BATCH_ROWS and rows[-2] == BATCH_ROWS
    monkeypatch.setenv("TIDEMILL_THREADS", "1")
    chunks = list(open_source(long, LOGICAL))
    assert [c.batch.num_rows for c in chunks] == [4 * BATCH_ROWS] * 8 + [1]
    assert [c.complete_below for c in chunks[:2]] == [4 * BATCH_ROWS, 8 * BATCH_ROWS]
    many = long.slice(0, 2 * BATCH_ROWS + 1)
    assert [c.batch.num_rows for c in open_source(many, LOGICAL)] == [BATCH_ROWS, BATCH_ROWS, 1]
    assert [c.batch.num_rows for c in open_source(many.to_reader(), LOGICAL)] == [BATCH_ROWS, BATCH_ROWS, 1]
    [unknown, *_] = open_source(many.to_batches()[0].slice(0), LOGICAL)
    assert unknown.complete_below == BATCH_ROWS
    tiny = many.slice(0, 9_000).to_batches(max_chunksize=3)
    [joined] = open_source(iter(tiny), LOGICAL)
    assert joined.batch.num_rows == 9_000
    assert [c.complete_below for c in open_source(many.to_reader(), LOGICAL)] == [BEGINNING] * 3


def test_what_already_fits_is_not_copied() -> None:
    held = pa.table({"t": np.arange(1000), "v": np.arange(1000)})
    [chunk] = open_source(held, LOGICAL)
    got, had = chunk.batch.column("v").buffers()[1], held["v"].chunk(0).buffers()[1]
    assert got.address == had.address


TIME_TYPES = [
    pa.timestamp("s"), pa.timestamp("ms"), pa.timestamp("us", "UTC"), pa.timestamp("ns"),
    pa.timestamp("ns", "Asia/Tokyo"), pa.timestamp("ms", "America/Lima"), pa.date32(), pa.date64(),
    pa.dictionary(pa.int32(), pa.timestamp("us")),
]  # fmt: skip
INT_TYPES = [pa.int8(), pa.int16(), pa.uint8(), pa.uint16(), pa.int32(), pa.uint32(), pa.uint64()]


@pytest.mark.parametrize("kind", TIME_TYPES, ids=str)
def test_statistics_of_any_clock_time(kind: pa.DataType, tmp_path: Path) -> None:
    days = pa.array([-30_000, -1, 0, 20_000], pa.int32()).cast(pa.date32())
    if pa.types.is_dictionary(kind):
        column = days.cast(kind.value_type).dictionary_encode()
    else:
        column = days.cast(kind)
    source = Source("s", schema({"ts": "timestamp"}), "ts")
    _check_known(pa.table({"ts": column}), source, tmp_path)


@pytest.mark.parametrize("kind", INT_TYPES, ids=str)
def test_statistics_of_any_logical_time(kind: pa.DataType, tmp_path: Path) -> None:
    top = 2 ** (kind.bit_width - 1) - 1 if str(kind).startswith("i") else 2**kind.bit_width - 1
    values = [0, 1, 5, min(top, FOREVER)]
    source = Source("s", schema({"ts": "int64"}), "ts")
    _check_known(pa.table({"ts": pa.array(values, kind)}), source, tmp_path)


def test_nanoseconds_are_floored_in_statistics_as_in_rows(tmp_path: Path) -> None:
    column = pa.array([-1_999, -1, 1, 1_999], pa.timestamp("ns"))
    source = Source("s", schema({"ts": "timestamp"}), "ts")
    assert read(pa.table({"ts": column}), source) == [{"ts": t} for t in (-2, -1, 0, 1)]
    _check_known(pa.table({"ts": column}), source, tmp_path)


def _check_known(held: pa.Table, source: Source, folder: Path) -> None:
    """The promise of each row group is the next one's time; so it is in memory."""
    times = [row["ts"] for row in read(held, source)]
    pq.write_table(held, folder / "x.parquet", row_group_size=1)
    for value in (folder / "x.parquet", held.to_batches(max_chunksize=1)):
        raw = list(open_source(value, source).raw())
        assert [r.complete_below for r in raw] == [*times[1:], FOREVER]


def test_unknown_statistics_promise_nothing_until_they_are_past(tmp_path: Path) -> None:
    known, unknown = logical([5, 6]), logical([7, 8])
    pq.write_table(known, tmp_path / "a.parquet")
    pq.write_table(unknown, tmp_path / "b.parquet", write_statistics=False)
    pq.write_table(logical([9]), tmp_path / "c.parquet")
    raw = list(open_source(tmp_path, LOGICAL).raw())
    assert [r.complete_below for r in raw] == [BEGINNING, 9, FOREVER]


def test_int96_times_are_read_without_promises(tmp_path: Path) -> None:
    pq.write_table(
        table(), tmp_path / "x.parquet", use_deprecated_int96_timestamps=True, row_group_size=2
    )
    assert read(tmp_path / "x.parquet") == ROWS
    raw = list(open_source(tmp_path / "x.parquet", CLICKS).raw())
    assert [r.complete_below for r in raw] == [BEGINNING, FOREVER]


def test_null_times_are_left_to_the_engine(tmp_path: Path) -> None:
    held = logical([None, 3, None, 5])
    pq.write_table(held, tmp_path / "x.parquet", row_group_size=1)
    for value in (held, tmp_path / "x.parquet", held.to_pylist()):
        chunks = list(open_source(value, LOGICAL))
        assert [r["t"] for c in chunks for r in c.batch.to_pylist()] == [None, 3, None, 5]
        check_promises(chunks)


def test_a_dataset_keeps_its_filter_partitions_and_types(tmp_path: Path) -> None:
    held = logical([3, 1, 2]).append_column("day", pa.array(["x", "y", "x"]))
    hive = ds.partitioning(pa.schema([("day", pa.string())]), flavor="hive")
    ds.write_dataset(held, tmp_path, format="parquet", partitioning=hive)
    by_day = Source("s", schema({"t": "int64", "v": "int64", "day": "string"}), "t")
    whole = ds.dataset(tmp_path, partitioning=hive)
    key = lambda row: row["v"]
    assert sorted(read(whole, by_day), key=key) == held.to_pylist()
    assert read(whole.filter(ds.field("t") > 2), LOGICAL) == [{"t": 3, "v": 0}]
    floats = Source("s", schema({"t": "int64", "v": "float64"}), "t")
    as_text = ds.dataset(tmp_path, partitioning=hive, schema=pa.schema(
        [("t", pa.int64()), ("v", pa.float32()), ("w", pa.int64())]))  # fmt: skip
    assert sorted(read(as_text, floats), key=key) == [
        {"t": 3, "v": 0.0}, {"t": 1, "v": 1.0}, {"t": 2, "v": 2.0},
    ]  # fmt: skip
    filled = Source("s", schema({"t": "int64", "w": "int64"}), "t")
    assert {row["w"] for row in read(as_text, filled)} == {None}


# --- rows of Python values ------------------------------------------------------------------------


def test_instants_of_python() -> None:
    source = Source("s", schema({"ts": "timestamp"}), "ts")
    east = timezone(timedelta(hours=2))
    values = [
        datetime(1970, 1, 1, 0, 0, 1), datetime(1970, 1, 1, 2, tzinfo=east), None,
        date(1970, 1, 2), pd.Timestamp(1_999),
    ]  # fmt: skip
    got = [row["ts"] for row in read([{"ts": v} for v in values], source)]
    assert got == [1_000_000, 0, None, 86_400_000_000, 1]
    assert read([{"ts": np.datetime64(-1, "ns")}], source) == [{"ts": -1}]


@pytest.mark.parametrize(
    ("column", "value"),
    [("ts", "2026-01-01"), ("ts", 1.5), ("ts", True), ("user", 1.5), ("user", 1.0), ("user", True),
     ("user", 1 << 63), ("user", "1"), ("user", datetime(2026, 1, 1)), ("price", "x"),
     ("price", True), ("price", (1 << 60) + 1), ("tag", b"x"), ("tag", 1), ("ok", 1),
     ("ok", "true")],
)  # fmt: skip
def test_a_value_of_another_type_is_refused_with_its_row(column: str, value: Any) -> None:
    rows = [*dated(), {**dated()[0], column: value}]
    with pytest.raises(UserError, match=f"run clicks, row 5: expected column '{column}' of") as e:
        read(rows)
    assert repr(value) in str(e.value)


def test_a_missing_key_is_refused_with_its_row() -> None:
    short = {k: v for k, v in dated()[0].items() if k != "price"}
    (row,) = dated(ROWS[:1])
    rows = (row if i != BATCH_ROWS + 1 else short for i in range(BATCH_ROWS + 9))
    reader = iter(open_source(rows, CLICKS))
    assert next(reader).batch.num_rows == BATCH_ROWS
    with pytest.raises(UserError, match=rf"row {BATCH_ROWS + 2}: expected a column 'price'"):
        next(reader)


@pytest.mark.parametrize("wrong", [(1, 2), 5, None, "row"])
def test_a_row_that_is_no_dict_is_refused(wrong: Any) -> None:
    with pytest.raises(UserError, match="row 2: expected a dict"):
        read([ROWS[0], wrong])


def test_rows_are_taken_as_they_come() -> None:
    taken, (row,) = 0, dated(ROWS[:1])

    def rows() -> Iterator[dict[str, Any]]:
        nonlocal taken
        while True:
            taken += 1
            yield row

    chunk = next(iter(open_source(rows(), CLICKS)))
    assert chunk.batch.num_rows == taken == BATCH_ROWS


# --- errors ---------------------------------------------------------------------------------------

WRONG_TYPE = table().set_column(1, "user", pa.array(["x"] * 4))
WITHOUT = table().drop_columns(["user"])


@pytest.mark.parametrize(
    "kind",
    ["table", "reader", "dataset", "pandas", "polars", "lazy", "parquet", "arrow", "feather"],
)
@pytest.mark.parametrize(
    ("held", "expected", "got"),
    [(WRONG_TYPE, "column 'user' of type int64", "str|object|utf8"),
     (WITHOUT, "a column 'user' of int64", "columns .*'ts', 'price', 'tag', 'ok'")],
    ids=["type", "missing"],
)  # fmt: skip
def test_a_wrong_schema_is_refused_when_it_is_opened(
    kind: str, held: pa.Table, expected: str, got: str, tmp_path: Path
) -> None:
    pq.write_table(held, tmp_path / "x.parquet")
    for name in ("x.arrow", "x.feather"):
        feather.write_feather(held, str(tmp_path / name))
    frame = pl.from_arrow(held)
    assert isinstance(frame, pl.DataFrame)
    value = {
        "table": held, "reader": held.to_reader(), "dataset": ds.dataset(held),
        "pandas": held.to_pandas(types_mapper=pd.ArrowDtype), "polars": frame, "lazy": frame.lazy(),
        "parquet": tmp_path / "x.parquet", "arrow": tmp_path / "x.arrow",
        "feather": tmp_path / "x.feather",
    }[kind]  # fmt: skip
    with pytest.raises(UserError, match=f"run clicks.*: expected {expected}, got .*{got}"):
        open_source(value, CLICKS)


def test_the_step_names_the_stream() -> None:
    with pytest.raises(UserError) as e:
        open_source(WRONG_TYPE, CLICKS)
    assert (e.value.step, e.value.got) == ("run clicks", "string")


@pytest.mark.parametrize("changed", [WRONG_TYPE, WITHOUT], ids=["type", "missing"])
@pytest.mark.parametrize("lazy", [True, False])
def test_a_schema_that_changes_between_batches_names_the_batch(
    changed: pa.Table, lazy: bool
) -> None:
    items = [table(), table(), changed]
    with pytest.raises(UserError, match=r"run clicks, batch 3: expected (a )?column 'user'"):
        list(open_source(iter(items) if lazy else items, CLICKS))


@pytest.mark.parametrize("name", ["parquet", "arrow", "csv"])
def test_a_schema_that_changes_between_files_names_the_file(name: str, tmp_path: Path) -> None:
    write = {"parquet": pq.write_table, "csv": csv.write_csv, "arrow": feather.write_feather}[name]
    write(table(), str(tmp_path / f"a.{name}"))
    write(WITHOUT, str(tmp_path / f"b.{name}"))
    with pytest.raises(UserError, match=rf"run clicks, file .*b\.{name}: expected a column 'user'"):
        list(open_source(tmp_path, CLICKS))


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("x.csv", "t,v\n1,2\n3,x\n", "column 'v' of int64, got 'x' in row 3"),
        ("x.csv", "t,v\n1,2\n3\n", "Expected 2 columns, got 1"),
        ("x.jsonl", '{"t": 1, "v": 2}\n{"t": 1, "v": "x"}\n', "column 'v' of int64, got 'x' in row 2"),
        ("x.jsonl", '{"t": 1, "v": 2}\n{"t": 1, ', "an object of JSON on each line, got .* in row 2"),
        ("x.jsonl", '{"t": 1, "v": 2.5}\n', "2.5"),
        ("x.parquet", "no", "cannot be read"),
        ("x.arrow", "no", "cannot be read"),
    ],
)
def test_a_bad_file_is_named(name: str, text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(UserError, match=rf"(?s)run log, file .*{name}: .*{said}"):
        list(open_source(tmp_path / name, LOGICAL))


def test_a_bad_instant_is_named_with_its_row(tmp_path: Path) -> None:
    source = Source("s", schema({"ts": "timestamp"}), "ts")
    times = ["1970-01-01", "", "1970-01-01T00:00:00Z", "yesterday", "tomorrow"]
    (tmp_path / "x.csv").write_text("ts,n\n" + "\n".join(f"{t},0" for t in times))
    with pytest.raises(UserError, match=r"times in column 'ts' to be ISO.*'yesterday' in row 5"):
        read(tmp_path / "x.csv", source)
    (tmp_path / "x.jsonl").write_text("\n".join(json.dumps({"ts": t or None}) for t in times))
    with pytest.raises(UserError, match=r"times in column 'ts' to be ISO.*'yesterday' in row 4"):
        read(tmp_path / "x.jsonl", source)


def test_a_parquet_file_cut_short_is_named(tmp_path: Path) -> None:
    many = pa.table({"t": np.arange(100_000), "v": np.random.default_rng(1).permutation(100_000)})
    pq.write_table(many, tmp_path / "x.parquet")
    reader = open_source(tmp_path / "x.parquet", LOGICAL)
    whole = (tmp_path / "x.parquet").read_bytes()
    (tmp_path / "x.parquet").write_bytes(whole[:10] + b"\0" * 20_000 + whole[20_010:])
    with pytest.raises(UserError, match=r"run log, file .*x\.parquet: cannot be read"):
        list(reader)


@pytest.mark.parametrize("pattern", ["none.parquet", "*.parquet", "empty", "s3://bucket/x.parquet"])
def test_a_path_with_nothing_is_refused_by_name(pattern: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="nothing at ") as e:
        open_source(f"{tmp_path}/{pattern}", CLICKS)
    assert pattern in str(e.value)


def test_mixed_and_unknown_kinds_of_files_are_refused(tmp_path: Path) -> None:
    _csv(tmp_path / "a.csv")
    _parquet(tmp_path / "b.parquet")
    with pytest.raises(UserError, match=r"files of one kind .*, got CSV, Parquet"):
        open_source(tmp_path, CLICKS)
    for name in ("x.xlsx", "x", "x.parquet.gz"):
        (tmp_path / name).touch()
        with pytest.raises(UserError, match=r"a file that ends in one of \.parquet"):
            open_source(tmp_path / name, CLICKS)


@pytest.mark.parametrize("value", [5, None, {"ts": [1]}, b"x", object()])
def test_what_has_no_rows_is_refused(value: Any) -> None:
    with pytest.raises(UserError, match="run clicks: expected a pyarrow Table"):
        open_source(value, CLICKS)


def test_batches_and_dicts_do_not_mix() -> None:
    with pytest.raises(UserError, match="batch 2: expected a RecordBatch"):
        read([table(), ROWS[0]])
    with pytest.raises(UserError, match="row 2: expected a dict"):
        read([ROWS[0], table()])


def test_errors_of_an_iterator_pass_untouched() -> None:
    def broken() -> Iterator[pa.RecordBatch]:
        yield table().to_batches()[0]
        raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"):
        read(broken())


def test_pandas_floats_that_were_integers() -> None:
    frame = pd.DataFrame({"t": [1, 2], "v": [3.0, None]})
    assert read(frame, LOGICAL) == [{"t": 1, "v": 3}, {"t": 2, "v": None}]
    with pytest.raises(UserError, match="column 'v' of type int64, got float64"):
        read(pd.DataFrame({"t": [1], "v": [3.5]}), LOGICAL)
    with pytest.raises(UserError, match="row 2: expected column 'v' of int64, got 'x'"):
        read(pd.DataFrame({"t": [1, 2], "v": [3, "x"]}), LOGICAL)


# --- memory ---------------------------------------------------------------------------------------

MEASURE = """
import resource, sys
import pyarrow.parquet as pq, pyarrow as pa
from tidemill.core.schema import schema
from tidemill.io.sources import open_source
from tidemill.plan.nodes import Source
source = Source("s", schema({"t": "int64", "v": "float64"}), "t")
value = sys.argv[1]
if len(sys.argv) > 2:
    import pyarrow.dataset
    value = pyarrow.dataset.dataset(value)
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
before = peak()
rows = sum(chunk.batch.num_rows for chunk in open_source(value, source))
print(rows, peak() - before)
"""


@pytest.mark.parametrize("how", ["path", "dataset"])
def test_a_large_row_group_is_not_loaded_whole(how: str, tmp_path: Path) -> None:
    """80 MB of columns in a single row group, through a fraction of that."""
    rows = 5_000_000
    noise = np.random.default_rng(0).random(rows)
    path = tmp_path / "x.parquet"
    held = pa.table({"t": np.arange(rows), "v": noise, "w": noise})
    pq.write_table(held, path, row_group_size=rows, use_dictionary=False, compression="none")
    del held, noise
    command = [sys.executable, "-c", MEASURE, str(path), *(["dataset"] if how == "dataset" else [])]
    environment = {"PYTHONPATH": str(Path(tm.__file__).parents[1])}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    read_rows, megabytes = map(int, done.stdout.split())
    assert read_rows == rows
    assert megabytes < 60


def test_a_reader_is_what_open_source_gives() -> None:
    assert isinstance(open_source(table(), CLICKS), Reader)
