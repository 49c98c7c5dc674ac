"""Rows that wait for a watermark are the same, in whatever pieces they come and are kept."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tidemill as tm
from tests.examples import later
from tidemill.core.time import FOREVER
from tidemill.local.waiting_rows import WaitingRows

PLAN = tm.stream("s", time="t", schema={"t": "int64", "k": "string"}).plan


def _rows(batches: list[pa.RecordBatch]) -> Counter[Any]:
    return Counter((row["t"], row["k"]) for batch in batches for row in batch.to_pylist())


@pytest.mark.parametrize("seed", [*range(5), *later(*range(5, 60))])
def test_the_same_as_a_list(seed: int) -> None:
    pick = random.Random(seed)
    waiting, expected, below = WaitingRows(PLAN), Counter[Any](), 0
    short = pick.random() < 0.7
    for _ in range(400):
        count = pick.choice([0, 1, 1, 1, 2]) if short else pick.randint(0, 40)
        rows = [{"t": below + pick.randint(0, 90), "k": pick.choice("abc")} for _ in range(count)]
        batch = pa.RecordBatch.from_pylist(rows, schema=PLAN.schema.to_arrow())
        waiting.add(batch)
        expected += _rows([batch])
        assert waiting.first == min((t for t, _ in expected), default=FOREVER)
        if pick.random() < 0.3:
            below += pick.randint(0, 3)
            some = pick.random() < 0.2
            found = waiting.due(below, _are_a) if some else waiting.due(below)
            due = Counter({
                (t, k): n for (t, k), n in expected.items() if t < below and (not some or k == "a")
            })  # fmt: skip
            assert _rows(found) == due and all(batch.num_rows for batch in found)
            expected -= due
        assert waiting.count == expected.total() and _rows(waiting.batches) == expected
    assert len(waiting.batches) < 60
    assert _rows(waiting.all()) == expected and waiting.count == 0 and waiting.first == FOREVER


def _are_a(rows: pa.RecordBatch) -> Any:
    return np.array([k == "a" for k in rows["k"].to_pylist()], dtype=np.bool_)
