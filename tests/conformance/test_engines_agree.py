"""Engines agree with each other, on more rows than the reference could take.

However the same rows come, by whatever source, in whatever order and batches, the answer is one.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from tests.conformance.cases import ARRIVAL, BY_EACH_WAY, SOME, WINDOWS, Row, ask, seeded
from tests.conformance.harness import (
    HASTE,
    arrivals,
    assert_same,
    in_batches,
    locally,
    on_spark,
    ran,
    split,
    table_of,
)  # fmt: skip
from tests.examples import later

pytestmark = pytest.mark.compiled  # the sample of windows: one of each kind of aggregate, in any haste

MANY = seeded(700, seed=8, span=500, keys=8)


@functools.cache
def answer(window: str) -> list[Row]:
    return locally(ask(WINDOWS[window], "one of each"), MANY)


ALIKE = ("tumbling", "rows, partitioned")
"""Windows in panes, as `hopping`, and by rows, as in `ARRIVAL`: compiled with all this in the soak."""
APART = [pytest.param(w, marks=pytest.mark.soak if w in ALIKE else ()) for w in SOME]


@pytest.mark.parametrize("speed", ["eager", "spilling", *later("patient")])
@pytest.mark.parametrize("window", APART)
def test_batches_and_arrival_do_not_matter(window: str, speed: str) -> None:
    query, pick = ask(WINDOWS[window], "one of each"), random.Random(speed)
    for order, arrived in arrivals(MANY, "t", pick).items():
        got = in_batches(query, split(arrived, pick), promises=True, speed=speed)
        assert_same(got, answer(window), query.schema, order)


@pytest.mark.parametrize("window", APART)
def test_promises_do_not_matter(window: str) -> None:
    query, pick = ask(WINDOWS[window], "one of each"), random.Random(7)
    batches = split(sorted(MANY, key=lambda row: row["t"]), pick)
    for promises in (True, False):
        got = in_batches(query, batches, promises=promises, speed="eager")
        assert_same(got, answer(window), query.schema, f"promises={promises}")


@pytest.mark.parametrize("window", [w if w in ALIKE else later(w)[0] for w in ARRIVAL])
def test_batches_do_not_matter_where_arrival_does(window: str) -> None:
    query, pick = ask(ARRIVAL[window], "few"), random.Random(3)
    whole = locally(query, MANY)
    for speed in HASTE:
        got = in_batches(query, split(MANY, pick), promises=True, speed=speed)
        assert_same(got, whole, query.schema, speed)


@pytest.mark.parametrize("window", [w if w in BY_EACH_WAY else later(w)[0] for w in SOME])
@pytest.mark.usefixtures("generated_java")
def test_local_and_spark(spark: Any, window: str) -> None:
    query = ask(WINDOWS[window], "one of each")
    assert_same(on_spark(spark, query, MANY, parts=4), answer(window), query.schema)


def _parquet(table: pa.Table, folder: Path) -> str:
    pq.write_table(table, folder / "rows.parquet", row_group_size=700)
    return str(folder / "rows.parquet")


def _json_lines(table: pa.Table, folder: Path) -> str:
    pl.from_arrow(table).write_ndjson(folder / "rows.jsonl")
    return str(folder / "rows.jsonl")


def _csv(table: pa.Table, folder: Path) -> str:
    pl.from_arrow(table).write_csv(folder / "rows.csv", quote_style="non_numeric")
    return str(folder / "rows.csv")


SOURCES: dict[str, Callable[[pa.Table, Path], Any]] = {
    "chunks": lambda table, folder: pa.Table.from_batches(table.to_batches(max_chunksize=100)),
    "reader": lambda table, folder: pa.RecordBatchReader.from_batches(
        table.schema, table.to_batches(max_chunksize=100)
    ),
    "batches": lambda table, folder: iter(table.to_batches(max_chunksize=100)),
    "dicts": lambda table, folder: table.to_pylist(),
    "pandas": lambda table, folder: table.to_pandas(types_mapper=pd.ArrowDtype),
    "polars": lambda table, folder: pl.from_arrow(table),
    "lazy": lambda table, folder: pl.from_arrow(table).lazy(),
    "dataset": lambda table, folder: ds.dataset(table),
    "parquet": _parquet,
    "csv": _csv,
    "json lines": _json_lines,
}


# NaN and infinity have no spelling that JSON and CSV agree on.
CLEAN = [{**row, "x": row["x"] if row["x"] == row["x"] else 2.0} for row in MANY]


@functools.cache
def answer_without_nan() -> list[Row]:
    return locally(ask(WINDOWS["hopping, many panes"], "one of each"), CLEAN)


@pytest.mark.parametrize("source", SOURCES)
def test_sources_do_not_matter(source: str, tmp_path: Path) -> None:
    query = ask(WINDOWS["hopping, many panes"], "one of each")
    data = SOURCES[source](table_of(query, CLEAN), tmp_path)
    assert_same(ran(query, data), answer_without_nan(), query.schema)
