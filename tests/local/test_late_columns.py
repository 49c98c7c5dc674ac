"""Late rows have all columns that the stream declares, also those that the query does not read."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tidemill as tm
from tidemill import col

SCHEMA = {"t": "int64", "k": "int64", "v": "int64", "note": "string", "x": "float64", "at": "timestamp"}
STREAM = tm.stream("s", time="t", schema=SCHEMA, unit={"at": "s"})
QUERY = STREAM.group_by("k").window(tm.tumbling(10)).agg(n=tm.count())
"""It reads `t` and `k` only."""
TYPES = {n: pa.int64() for n in SCHEMA} | {"note": pa.string(), "x": pa.float64()}


def row(t: int) -> dict[str, Any]:
    return {"t": t, "k": t % 2, "v": 10 * t, "note": f"at {t}", "x": t / 4, "at": t}


def table(times: list[int]) -> pa.Table:
    return pa.table({name: pa.array([row(t)[name] for t in times], kind) for name, kind in TYPES.items()})


def rows_of(late: pa.Table) -> list[dict[str, Any]]:
    assert late.column_names == [*SCHEMA, "late_reason"]
    return [
        {**r, "at": int(r["at"].timestamp()) if r["at"] is not None else None}
        for r in late.drop_columns("late_reason").to_pylist()
    ]


TIMES = [30, 3, 31, 4, 55, 32, 56, 33]
LATE = [3, 4, 32, 33]

FORMS: dict[str, Callable[[list[int]], Any]] = {
    "batch": lambda times: table(times).to_batches()[0],
    "table": lambda times: pa.concat_tables([table(times[:3]), table(times[3:])]),
    "slice": lambda times: table([99, *times]).slice(1),
    "dicts": lambda times: list(map(row, times)),
    "tuple of dicts": lambda times: tuple(map(row, times)),
    "pandas": lambda times: table(times).to_pandas(),
    "polars": lambda times: pl.DataFrame(pl.from_arrow(table(times))),
    "reader": lambda times: table(times).to_reader(max_chunksize=3),
    "generator": lambda times: (table([t]).to_batches()[0] for t in times),
    "generator of dicts": lambda times: map(row, times),
    "batches": lambda times: table(times).to_batches(max_chunksize=3),
    "other types": lambda times: table(times).set_column(1, "k", table(times)["k"].cast(pa.int32())),
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("consistent", [False, True])
def test_whatever_was_pushed(form: str, consistent: bool) -> None:
    live = QUERY.live(tm.Disorder(slack=10, consistent=consistent))
    live.push(s=FORMS[form](TIMES))
    assert rows_of(live.late()) == [row(t) for t in LATE]
    live.push(s=row(5))
    assert rows_of(live.take_late()) == [row(t) for t in [*LATE, 5]]
    assert live.late().num_rows == 0 and live.stats().late == 5


def test_of_each_reason() -> None:
    live = QUERY.live(tm.Disorder(slack=10), emit=tm.Emit(correct=20))
    live.push(s=[{**row(1), "t": None}, row(50), {**row(2), "t": 1 << 62}, row(25), row(3)])
    late = live.late()
    assert dict(zip(late["late_reason"].to_pylist(), late["note"].to_pylist())) == {
        "null time": "at 1", "far time": "at 2", "corrected": "at 25", "late": "at 3",
    }  # fmt: skip


class Watched(dict[str, Any]):
    """A row that knows which columns were read."""

    asked: set[str]

    def __init__(self, t: int) -> None:
        super().__init__(row(t))
        self.asked = set()

    def __getitem__(self, name: str) -> Any:
        self.asked.add(name)
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        self.asked.add(name)
        return super().get(name, default)


def test_columns_that_the_query_does_not_read_are_read_of_late_rows_only() -> None:
    live = QUERY.live(tm.Disorder(slack=10))
    given = [Watched(t) for t in TIMES]
    live.push(s=given)
    for one in given:
        assert one.asked == (set(SCHEMA) if one["t"] in LATE else {"t", "k"}) | {"t"}


def test_a_column_that_rows_lack_is_null() -> None:
    live = QUERY.live(tm.Disorder(slack=10))
    live.push(s=table(TIMES).drop_columns(["note"]))
    live.push(s=[{"t": 1, "k": 1}, row(2)])
    live.push(s=table([6]).drop_columns(["x"]).to_pandas())
    late = rows_of(live.late())
    assert [r["note"] for r in late] == [None] * 4 + [None, "at 2", "at 6"]
    assert [r["x"] for r in late] == [t / 4 for t in LATE] + [None, 0.5, None]


def test_a_column_that_cannot_be_read_does_not_stop_the_query() -> None:
    live = QUERY.live(tm.Disorder(slack=10))
    live.push(s={**row(30), "v": "text"})  # the query does not read it
    with pytest.warns(UserWarning, match="late rows of s have null as 'v'.*int64.*text") as warned:
        live.push(s={**row(1), "v": "text"})
        live.push(s={**row(2), "v": "text"})
    live.push(s=row(3))
    assert len(warned) == 1
    found = [(r["v"], r["note"]) for r in rows_of(live.late())]
    assert found == [(None, "at 1"), (None, "at 2"), (30, "at 3")]
    offsets, no_text = pa.py_buffer(b"\0\0\0\0\1\0\0\0"), pa.py_buffer(b"\xff")
    broken = pa.Array.from_buffers(pa.string(), 1, [None, offsets, no_text])
    with pytest.warns(UserWarning, match="null as 'note'"):
        live.push(s=table([4]).set_column(3, "note", broken))


def test_late_rows_can_be_pushed_into_another_query() -> None:
    live = QUERY.live(tm.Disorder(slack=10))
    given = live.push(s=table(TIMES))
    given = pa.concat_tables([given, live.flush()])
    other = STREAM.group_by("note").window(tm.tumbling(10)).agg(v=tm.sum(col.v))
    replayed = other.live()
    replayed.push(s=live.late())
    found = {(r["note"], r["v"]) for r in replayed.flush().to_pylist()}
    assert found == {(f"at {t}", 10 * t) for t in LATE}
    changed = tm.reconcile(QUERY, given, late=live.late(), s=table([t for t in TIMES if t not in LATE]))
    answer = {(r["k"], r["window_start"]): r["n"] for r in given.to_pylist()}
    answer |= {(r["k"], r["window_start"]): r["n"] for r in changed.to_pylist()}
    assert answer == {(r["k"], r["window_start"]): r["n"] for r in QUERY.run(s=table(TIMES)).to_pylist()}


@pytest.mark.parametrize("folder", [False, True])
def test_a_checkpoint_has_them(folder: bool, tmp_path: Path) -> None:
    path = tmp_path / "saved"
    policy = tm.Disorder(slack=10)
    more = {"keep": 2} if folder else {}
    live = QUERY.live(policy)
    live.push(s=table(TIMES[:4]))
    live.checkpoint(path, **more)
    live.push(s=table(TIMES[4:]))
    live.checkpoint(path, **more)
    live.close()
    live = tm.restore(QUERY, path, policy)
    assert rows_of(live.late()) == [row(t) for t in LATE]
    live.close()
    # The stream may be declared with other columns, as long as the query reads the same.
    declared = {name: kind for name, kind in SCHEMA.items() if name != "v"} | {"new": "int64"}
    other = tm.stream("s", time="t", schema=declared, unit={"at": "s"})
    query = other.group_by("k").window(tm.tumbling(10)).agg(n=tm.count())
    for _ in range(2):
        live = tm.restore(query, path, policy)
        late = live.late()
        assert late.column_names == [*declared, "late_reason"]
        assert late["note"].to_pylist()[: len(LATE)] == [f"at {t}" for t in LATE]
        live.push(s={**row(7), "new": 1})
        live.checkpoint(path, **more)
        live.push(s={**row(8), "new": 1})
        live.checkpoint(path, **more)
        live.close()
    live = tm.restore(query, path, policy)
    assert live.late()["new"].to_pylist() == [None] * len(LATE) + [1] * 4
    live.close()


def feed(kind: str, folder: Path) -> Any:
    text = "".join(json.dumps(row(t)) + "\n" for t in TIMES)
    written = table(TIMES).drop_columns(["at"]).append_column("at", table(TIMES)["at"])
    if kind == "json":
        (folder / "rows.jsonl").write_text(text)
        return tm.follow(folder / "rows.jsonl", until=lambda: True)
    if kind == "bad lines":
        lines = text.splitlines(keepends=True)
        (folder / "rows.jsonl").write_text("".join([*lines[:2], "{\n", *lines[2:5], "no\n", *lines[5:]]))
        return tm.follow(folder / "rows.jsonl", until=lambda: True, on_bad=lambda line: None)
    if kind == "csv":
        names = list(SCHEMA)
        lines = [",".join(names), *(",".join(str(row(t)[n]) for n in names) for t in TIMES)]
        (folder / "rows.csv").write_text("\n".join(lines) + "\n")
        return tm.follow(folder / "rows.csv", until=lambda: True)
    if kind == "folder":
        (folder / "parts").mkdir()
        pq.write_table(written.slice(0, 3), folder / "parts" / "a.parquet")
        pq.write_table(written.slice(3), folder / "parts" / "b.parquet", row_group_size=2)
        return tm.follow(folder / "parts", until=lambda: True)
    if kind == "replay":
        return tm.replay(written.to_batches(max_chunksize=3), speed=None)
    if kind == "stream":
        tm.write_stream(folder / "rows.arrows", [table(TIMES)], table(TIMES).schema)
        return tm.read_stream(folder / "rows.arrows")
    return tm.items(map(row, TIMES))


@pytest.mark.parametrize("to", ["kept", "function", "files"])
@pytest.mark.parametrize("kind", ["json", "bad lines", "csv", "folder", "replay", "stream", "items"])
def test_sources_that_go_on(kind: str, to: str, tmp_path: Path) -> None:
    live, taken = QUERY.live(tm.Disorder(slack=10)), []
    late: Any = None

    def collect(name: str, rows: pa.Table) -> None:
        taken.append(rows)

    if to == "function":
        late = collect
    elif to == "files":
        late = tmp_path / "late"
    list(live.read(s=feed(kind, tmp_path), late=late))
    found = live.late()
    if to == "function":
        found = pa.concat_tables(taken)
    elif to == "files":
        found = pa.concat_tables([pq.read_table(p) for p in sorted((tmp_path / "late").glob("*.parquet"))])
    assert rows_of(found) == [row(t) for t in LATE]


@pytest.mark.parametrize("kind", ["string", "int64"])
def test_a_stream_cannot_have_the_column_of_the_reason(kind: str) -> None:
    late = tm.stream("s", time="t", schema={"t": "int64", "late_reason": kind})
    with pytest.raises(tm.UserError, match=r"stream 's': expected no column 'late_reason'.*name"):
        late.live()
    assert late.run(s=[{"t": 1, "late_reason": None}]).num_rows == 1
