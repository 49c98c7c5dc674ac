"""Random queries on long batches: every arrangement of records, every use of threads."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tidemill as tm
from tidemill import col
from tidemill.local.run import run
from tidemill.local.tuning import Tuning
from tidemill.stream import Stream

STREAM = tm.stream("s", time="t", schema={"t": "int64", "k": "int64", "x": "int64", "w": "string"})
WORDS = np.array(["", "a", "b", "ab", "a longer one", "a longer one still", "ü", None], dtype=object)


def events(pick: random.Random, draw: np.random.Generator) -> list[pa.RecordBatch]:
    n, keys = pick.choice([500, 5_000, 40_000]), pick.choice([1, 3, 50, 700])
    span, disorder = pick.choice([100, 2_000, 20_000]), pick.choice([0, 5, 300, 5_000])
    uniform = pick.random() < 0.5
    table = pa.table(
        {
            "t": np.sort(draw.integers(-span, span, n)) + draw.integers(0, disorder + 1, n),
            "k": draw.integers(0, keys, n) if uniform else np.minimum(draw.zipf(1.5, n), keys),
            "x": draw.integers(-9, 9, n),
            "w": pa.array(WORDS[draw.integers(0, 8, n)]),
        }
    )
    return table.to_batches(max_chunksize=pick.choice([97, 1_000, 9_999]))


def query(pick: random.Random) -> Stream:
    windows = [
        tm.tumbling(10), tm.hopping(60, every=20), tm.hopping(30, every=10, start=5), tm.tumbling(100),
        tm.session(7), tm.session(40),
    ]  # fmt: skip
    more: dict[str, Any] = {
        "last": tm.last(col.w), "least_word": tm.min(col.w), "of_most": tm.arg_max(col.w, col.x),
        "by_word": tm.arg_min(col.x, col.w), "median": tm.median(col.x), "words": tm.distinct_count(col.w),
    }  # fmt: skip
    asked = {name: more[name] for name in more if pick.random() < 0.35}
    rows = STREAM.where(col.x > 0) if pick.random() < 0.3 else STREAM
    grouped = rows.group_by("k") if pick.random() < 0.8 else rows
    return grouped.window(pick.choice(windows)).agg(
        x=tm.sum(col.x), n=tm.count(), least=tm.min(col.x), **asked
    )


def tunings(pick: random.Random) -> list[tuple[int, Tuning]]:
    """The first one is the plainest: one thread, and no records that are started together."""
    return [
        (1, Tuning(dense_rows=1 << 40)),
        (1, Tuning(dense_rows=0, held_text=0)),
        (2, Tuning(dense_rows=0, few_rows=0, few_closing=0)),
        (2, Tuning(dense_rows=0, few_rows=0, keys_by_row=2, few_lookups=0, few_partials=50)),
        (4, Tuning(
            few_rows=0, dense_rows=pick.choice([0, 600]), keys_by_row=pick.choice([0, 30, 10_000]),
            few_partials=pick.choice([0, 1_000, 1 << 18]), small_planes=pick.choice([0, 1 << 20]),
            plane_bytes=pick.choice([1 << 14, 1 << 28]), held_text=pick.choice([0, 3_000, 1 << 26]),
            few_closing=pick.choice([0, 512]),
        )),
    ]  # fmt: skip


@pytest.mark.compiled
@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.soak) for n in range(1, 60))])
def test_neither_threads_nor_arrangements_show(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    pick, draw = random.Random(seed), np.random.default_rng(seed)
    asked, batches, answers = query(pick), events(pick, draw), []
    for threads, tuning in tunings(pick):
        monkeypatch.setenv("TIDEMILL_THREADS", str(threads))
        found = run(asked.optimized, {"s": batches}, tuning=tuning)
        answers.append(sorted(str(row) for batch in found for row in batch.to_pylist()))
    assert all(answer == answers[0] for answer in answers[1:])
