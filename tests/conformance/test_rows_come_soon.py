"""A window waits for nothing that cannot change it: rows come when it is full, or the watermark is there."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tidemill as tm
from tests.conformance.harness import assert_same, by_reference, split
from tests.conformance.test_live import late_rows, rows_of
from tidemill import col
from tidemill.stream import Stream
from tidemill.windows.semantics import attribute, bounds

Row = dict[str, Any]
STREAM = tm.stream("s", time="t", schema={"t": "int64", "k": "int64", "v": "int64"})
AGGREGATES = {"n": tm.count(), "top": tm.max(col.v), "some": tm.collect(col.v)}


def ask(window: tm.Window, *keys: str) -> Stream:
    return STREAM.group_by(*keys or ("k",)).window(window).agg(**AGGREGATES)


def seeded(size: int, seed: int, keys: int = 3) -> list[Row]:
    pick = random.Random(seed)
    return [{"t": pick.randint(0, 60), "k": pick.randint(0, keys - 1), "v": i} for i in range(size)]


def filled(query: Stream, window: tm.Window, rows: list[Row], partition: str | None) -> list[Row]:
    """The windows of the definition that have all their rows."""
    found = by_reference(query, rows)
    count: dict[Any, int] = {}
    for row in rows:
        at = row[partition] if partition else None
        count[at] = count.get(at, 0) + 1
    return [r for r in found if r["window_end"] <= count[r[partition] if partition else None]]


ROW_WINDOWS = {
    "whole stream": (tm.rows(6, every=2, partition_by=[]), None),
    "by key": (tm.rows(5, every=2), "k"),
    "sampled": (tm.rows(2, every=5), "k"),
}


@pytest.mark.parametrize("case", ROW_WINDOWS)
def test_row_windows_come_with_their_last_row(case: str, tmp_path: Path) -> None:
    """Nothing is promised about time, and times stand still: only rows count."""
    window, partition = ROW_WINDOWS[case]
    query, pick = ask(window), random.Random(case)
    rows = [{**row, "t": 7 if pick.random() < 0.5 else row["t"]} for row in seeded(60, 2)]
    live, found, given = query.live(), [], []
    for batch in split(rows[:40], pick) + [[row] for row in rows[40:]]:
        found.append(live.push(s=batch) if batch else live.advance())
        given += batch
        assert_same(rows_of(query, found), filled(query, window, given, partition), query.schema)
        if pick.random() < 0.2:
            live.checkpoint(tmp_path / "saved")
            live = tm.restore(query, tmp_path / "saved")
    found.append(live.flush())
    assert_same(rows_of(query, found), by_reference(query, rows), query.schema)


@pytest.mark.parametrize("partition", [None, "k"])
def test_rows_in_order_of_time_come_when_the_watermark_fixes_their_order(
    partition: str | None, tmp_path: Path
) -> None:
    window = tm.rows(6, every=2, partition_by=[partition] if partition else [], order_by="t")
    query, pick = ask(window), random.Random(9)
    rows = seeded(80, 3)
    arrived = sorted(rows, key=lambda r: r["t"] + pick.randint(0, 5))
    live, found, given = query.live(), [], []
    batches = split(arrived, pick)
    for at, batch in enumerate(batches):
        found.append(live.push(s=batch) if batch else live.advance())
        given += batch
        below = min((r["t"] for b in batches[at + 1 :] for r in b), default=100)
        found.append(live.punctuate(below))
        known = [r for r in given if r["t"] < below]
        expected = filled(query, window, known, partition) if known else []
        assert_same(rows_of(query, found), expected, query.schema)
        assert live.stats().open_partials < len(given) + 9
        if pick.random() < 0.4:
            live.checkpoint(tmp_path / "saved")
            live = tm.restore(query, tmp_path / "saved")
    found.append(live.flush())
    assert_same(rows_of(query, found), by_reference(query, rows), query.schema)


@pytest.mark.parametrize(
    "window", [tm.rows(4, every=2, order_by="t"), tm.per_event(9, every=3, order_by="t")], ids=str
)
def test_a_row_whose_place_was_passed_has_no_number(window: tm.Window) -> None:
    query = ask(window)
    for seed in range(5):
        pick = random.Random(seed)
        arrived = seeded(70, seed)
        arrived.sort(key=lambda r: r["t"] + pick.randint(0, 12))
        live = query.live(tm.Disorder(slack=4))
        found = [live.push(s=batch) for batch in split(arrived, pick) if batch] + [live.flush()]
        late = late_rows(live)
        accepted = [r for r in arrived if r not in late]
        assert len(accepted) + len(late) == len(arrived) and live.stats().late == len(late)
        assert_same(rows_of(query, found), by_reference(query, accepted), query.schema)


def test_landmark_windows_come_when_the_watermark_passes_their_end() -> None:
    window = tm.landmark(10, start=5)
    query, pick = ask(window), random.Random(4)
    arrived = sorted(seeded(70, 5), key=lambda r: r["t"] + pick.randint(0, 5))
    live, found, given = query.live(), [], []
    batches = split(arrived, pick)
    for at, batch in enumerate(batches):
        found.append(live.push(s=batch) if batch else live.advance())
        given += batch
        below = min((r["t"] for b in batches[at + 1 :] for r in b), default=61)
        found.append(live.punctuate(below))
        expected = [r for r in by_reference(query, given) if r["window_end"] <= below]
        assert_same(rows_of(query, found), expected, query.schema)
    found.append(live.flush())
    assert_same(rows_of(query, found), by_reference(query, arrived), query.schema)


BOUNDED = {
    "landmark": tm.landmark(10), "rows": tm.rows(20, every=5),
    "rows, whole stream": tm.rows(20, 5, partition_by=[]), "rows by time": tm.rows(20, every=5, order_by="t"),
}  # fmt: skip


@pytest.mark.parametrize("case", BOUNDED)
def test_memory_does_not_grow_with_what_was_given(case: str) -> None:
    query = STREAM.group_by("k").window(BOUNDED[case]).agg(n=tm.count(), top=tm.max(col.v))
    live, open_partials, out = query.live(tm.Disorder(slack=3)), [], 0
    for at in range(40):
        numbers = np.arange(50 * at, 50 * at + 50)
        out += live.push(s=pa.table({"t": numbers, "k": numbers % 3, "v": numbers})).num_rows
        open_partials.append(live.stats().open_partials)
    assert out > 300
    assert max(open_partials) < 300, "twice what windows need, and a few more"


# --- batches --------------------------------------------------------------------------------------

IN_BATCHES = {
    "tumbling": tm.tumbling(500), "landmark": tm.landmark(2000), "rows by key": tm.rows(400, every=200),
    "rows": tm.rows(400, every=200, partition_by=[]), "rows by time": tm.rows(400, every=200, order_by="t"),
}  # fmt: skip


@pytest.mark.parametrize("case", IN_BATCHES)
def test_batches_come_before_the_input_ends(case: str) -> None:
    """An ordered stream of batches of 1000 rows: the first windows come after a few of them."""
    stream = tm.stream("s", time="t", ordered=True, schema={"t": "int64", "k": "int64"})
    query = stream.group_by("k").window(IN_BATCHES[case]).agg(n=tm.count())
    read = 0

    def feed() -> Iterator[pa.RecordBatch]:
        nonlocal read
        for start in range(0, 30_000, 1000):
            read += 1000
            times = np.arange(start, start + 1000)
            yield pa.record_batch({"t": times, "k": times % 7})

    came = [(read, batch) for batch in query.batches(s=feed())]
    # A batch is read ahead, to know whether more rows go with those before it.
    assert came[0][0] <= 5000
    assert len({at for at, _ in came}) >= 3
    whole = query.run(s=feed())
    got = pa.Table.from_batches([batch for _, batch in came])
    order = [(name, "ascending") for name in ("k", "window_start", "window_end")]
    assert got.sort_by(order).equals(whole.sort_by(order))


def test_the_definition_of_row_windows_by_time() -> None:
    """Figure-like: `attribute` numbers rows by time, `bounds` says which numbers a window has."""
    rows = {"t": [30, 10, 20], "v": [0, 1, 2]}
    spec = tm.rows(2, every=1, order_by="t")
    assert attribute(rows, spec).tolist() == [2, 0, 1]
    assert [bound.tolist() for bound in bounds([1], spec)] == [[0], [2]]
