"""Files appear whole, or not at all."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tidemill.core.errors import UserError
from tidemill.core.schema import Schema, schema
from tidemill.io import sinks
from tidemill.io.sinks import write_csv, write_ipc, write_parquet
from tidemill.io.sources import open_source
from tidemill.plan.nodes import Source

SCHEMA = schema({"t": "timestamp", "v": "float64", "s": "string", "d": "duration", "ok": "bool"})
SOURCE = Source("back", SCHEMA, "t")
WRITERS: dict[str, Callable[..., int]] = {
    "x.parquet": write_parquet, "x.arrow": write_ipc, "x.csv": write_csv,
}  # fmt: skip
every_writer = pytest.mark.parametrize("name", WRITERS)


def table(rows: int, of: Schema = SCHEMA) -> pa.Table:
    columns = {
        "t": pa.array([i * 1_000_001 for i in range(rows)], pa.timestamp("us", "UTC")),
        "v": pa.array([None if i % 3 == 0 else i / 7 for i in range(rows)], pa.float64()),
        "s": pa.array([None if i % 4 == 0 else "" if i % 4 == 1 else f'"{i},' for i in range(rows)],
                      pa.string()),
        "d": pa.array([timedelta(microseconds=i) for i in range(rows)], pa.duration("us")),
        "ok": pa.array([i % 2 == 0 for i in range(rows)], pa.bool_()),
    }  # fmt: skip
    return pa.table(columns, schema=of.to_arrow())


@every_writer
@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25, deadline=None
)
@given(rows=st.integers(0, 60), size=st.integers(1, 30))
def test_what_is_written_reads_back(name: str, tmp_path: Path, rows: int, size: int) -> None:
    held = table(rows)
    batches = held.to_batches(max_chunksize=size)
    assert WRITERS[name](tmp_path / name, held.schema, iter(batches)) == rows
    back = [chunk.batch for chunk in open_source(tmp_path / name, SOURCE)]
    assert pa.Table.from_batches(back, held.schema).equals(held)
    assert os.listdir(tmp_path) == [name]


@every_writer
def test_a_failure_on_the_way_leaves_nothing(name: str, tmp_path: Path) -> None:
    def broken() -> Iterator[pa.RecordBatch]:
        yield from table(5).to_batches()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        WRITERS[name](tmp_path / name, table(0).schema, broken())
    assert os.listdir(tmp_path) == []


@every_writer
def test_a_failure_leaves_the_old_file_and_success_replaces_it(name: str, tmp_path: Path) -> None:
    WRITERS[name](tmp_path / name, table(0).schema, table(3).to_batches())
    before = (tmp_path / name).read_bytes()

    def broken() -> Iterator[pa.RecordBatch]:
        yield from table(5).to_batches()
        assert (tmp_path / name).read_bytes() == before
        raise RuntimeError

    with pytest.raises(RuntimeError):
        WRITERS[name](tmp_path / name, table(0).schema, broken())
    assert os.listdir(tmp_path) == [name]
    assert (tmp_path / name).read_bytes() == before
    assert WRITERS[name](str(tmp_path / name), table(0).schema, iter(table(5).to_batches())) == 5
    assert (tmp_path / name).read_bytes() != before


def test_a_failing_disk_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(sinks.os, "fsync", full)
    with pytest.raises(UserError, match="no space"):
        write_parquet(tmp_path / "x.parquet", table(0).schema, table(5).to_batches())
    assert os.listdir(tmp_path) == []


@every_writer
def test_a_missing_directory_is_refused_before_anything_runs(name: str, tmp_path: Path) -> None:
    def never() -> Iterator[pa.RecordBatch]:
        raise AssertionError
        yield

    with pytest.raises(UserError, match=f"expected the directory {tmp_path}/no to exist"):
        WRITERS[name](tmp_path / "no" / name, table(0).schema, never())
    with pytest.raises(UserError, match="expected the path of a file, got the directory"):
        WRITERS[name](tmp_path, table(0).schema, never())


def test_tiny_batches_share_row_groups_and_huge_ones_do_not_wait(tmp_path: Path) -> None:
    held = pa.table({"t": pa.array(range(3 * sinks._ROWS), pa.int64())})
    write_parquet(tmp_path / "x.parquet", held.schema, iter(held.to_batches(max_chunksize=1000)))
    metadata = pq.read_metadata(tmp_path / "x.parquet")
    assert metadata.num_row_groups == 3
    assert metadata.num_rows == 3 * sinks._ROWS
    assert metadata.row_group(1).column(0).statistics.has_min_max


def test_a_file_has_the_usual_permissions(tmp_path: Path) -> None:
    (tmp_path / "plain").touch()
    write_parquet(tmp_path / "x.parquet", table(0).schema, [])
    modes = [stat.S_IMODE((tmp_path / n).stat().st_mode) for n in ("plain", "x.parquet")]
    assert modes[0] == modes[1]


def test_csv_takes_no_lists(tmp_path: Path) -> None:
    nested = pa.schema([("l", pa.list_(pa.int64()))])
    with pytest.raises(UserError, match=r"write csv: .*lists or structs in \['l'\]"):
        write_csv(tmp_path / "x.csv", nested, [])
    assert os.listdir(tmp_path) == []


# --- what is in the way, and what was left ------------------------------------------------------------


@every_writer
def test_what_a_killed_writer_left_is_removed_by_the_next_one(name: str, tmp_path: Path) -> None:
    left = tmp_path / f".{name}.0123456789ab.tmp"
    left.write_bytes(b"half")
    others = [tmp_path / f".{name}.backup.tmp", tmp_path / ".y.parquet.0123456789ab.tmp"]
    for other in others:
        other.write_bytes(b"mine")
    WRITERS[name](tmp_path / name, table(3).schema, table(3).to_batches())
    assert not left.exists() and all(other.exists() for other in others)


@every_writer
def test_the_hidden_file_of_a_writer_that_lives_stays(name: str, tmp_path: Path) -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        yield from table(3).to_batches()
        WRITERS[name](tmp_path / name, table(5).schema, table(5).to_batches())
        assert len([p for p in tmp_path.iterdir() if p.name.startswith(".")]) == 1

    assert WRITERS[name](tmp_path / name, table(3).schema, batches()) == 3
    assert [p.name for p in tmp_path.iterdir()] == [name]
    assert sum(c.batch.num_rows for c in open_source(tmp_path / name, SOURCE)) == 3


@pytest.mark.parametrize("what", ["link", "pipe", "directory", "device"])
def test_what_is_no_file_is_not_replaced_by_one(what: str, tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    if what == "link":
        (tmp_path / "real.csv").write_text("a\n1\n")
        path.symlink_to(tmp_path / "real.csv")
    elif what == "pipe":
        os.mkfifo(path)
    elif what == "directory":
        path.mkdir()
    else:
        path = Path(os.devnull)
    before = path.lstat()
    with pytest.raises(UserError, match=str(path)):
        write_csv(path, table(3).schema, table(3).to_batches())
    assert path.lstat().st_ino == before.st_ino


def test_a_full_disk_is_an_error_with_the_path_and_leaves_the_old_file() -> None:
    from tests.wheels.test_sharing import small_disk

    with small_disk(1) as disk:
        for name, write in WRITERS.items():
            write(disk / name, table(3).schema, table(3).to_batches())
            before = (disk / name).read_bytes()
            with pytest.raises(UserError, match=rf"{name}.*No space left.*the disk is full"):
                write(disk / name, table(3).schema, table(20_000).to_batches() * 40)
            assert (disk / name).read_bytes() == before
        assert {p.name for p in disk.iterdir()} == set(WRITERS)


def test_what_the_system_says_about_the_input_is_not_said_of_the_output(tmp_path: Path) -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        yield from table(3).to_batches()
        raise ConnectionResetError("a socket of the user's")

    with pytest.raises(ConnectionResetError, match="a socket"):
        write_csv(tmp_path / "x.csv", table(3).schema, batches())
